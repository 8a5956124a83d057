"""Adapters of PEFT: in memory and as folders, explained as the model that they make of another one."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import relprop
import relprop.loading
from models import tiny
from relprop.engine.wrappers import arguments_of, unwrapped
from relprop.errors import ModelError
from relprop.heads import known_heads
from relprop.targets import TokenAt
from tokenizers_for_tests import bert, wordpiece

peft = pytest.importorskip("peft")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

LAYERS = {  # adapters that change layers of the model: what is inside the wrapper is the model
    "lora": lambda task: peft.LoraConfig(task_type=task, r=4),
    "dora": lambda task: peft.LoraConfig(task_type=task, r=4, use_dora=True),
    "ia3": lambda task: peft.IA3Config(task_type=task),
    "boft": lambda task: peft.BOFTConfig(task_type=task, boft_block_size=4, target_modules=r".*(query|q_proj)"),
    "vera": lambda task: peft.VeraConfig(task_type=task, r=4),
}
VIRTUAL = {  # adapters that are computed by the wrapper
    "prompt": lambda task: peft.PromptTuningConfig(task_type=task, num_virtual_tokens=3),
    "prefix": lambda task: peft.PrefixTuningConfig(task_type=task, num_virtual_tokens=3),
    "p_tuning": lambda task: peft.PromptEncoderConfig(task_type=task, num_virtual_tokens=3, encoder_hidden_size=8),
}
EVERY = LAYERS | VIRTUAL
RARE = ("dora", "boft", "vera", "p_tuning")
KINDS = [pytest.param(kind, marks=pytest.mark.slow) if kind in RARE else kind for kind in EVERY]
OF_LAYERS, OF_VIRTUAL = (
    [one for one in KINDS if getattr(one, "values", (one,))[0] in some] for some in (LAYERS, VIRTUAL)
)
TASKS = {"BertForSequenceClassification": "SEQ_CLS", "LlamaForCausalLM": "CAUSAL_LM"}


def adapted(model: nn.Module, kind: str, task: str | None) -> Any:
    """The model with an adapter whose weights are large enough to show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = peft.get_peft_model(model, EVERY[kind](task))
    generator = torch.Generator().manual_seed(1)
    for parameter in made.parameters():
        if parameter.requires_grad:
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return made.to(next(model.parameters()).dtype).eval()


def plain(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """The model's own scores of class or token 1."""
    with torch.no_grad():
        logits: Tensor = model(**inputs).logits
    return logits[:, 1] if logits.dim() == 2 else logits[:, -1, 1]


@pytest.mark.parametrize("architecture", TASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_adapted_model_is_explained(architecture: str, kind: str) -> None:
    """The value is the adapted model's, not the base's; the ledger closes; a batch is as one by one."""
    base, inputs = tiny(architecture)
    before = plain(base, inputs)
    model = adapted(base, kind, TASKS[architecture])
    found = relprop.attribute(model, inputs, 1, ledger=True)
    assert found.warnings == ()
    torch.testing.assert_close(found.value, plain(model, inputs), rtol=1e-9, atol=1e-9)
    assert (found.value - before).abs().max() > 1e-3
    assert found.ledger is not None
    assert all(one.closes(1e-4) for one in found.ledger)
    assert found.parts["input_ids"].shape == inputs["input_ids"].shape
    second = relprop.attribute(model, {name: one[1:] for name, one in inputs.items()}, 1)
    torch.testing.assert_close(second.scores[0], found.scores[1])


@pytest.mark.parametrize("kind", OF_LAYERS)
def test_merging_changes_nothing(kind: str) -> None:
    """An adapter's layers and the same weights merged are the same computation, however it is written."""
    base, inputs = tiny("BertForSequenceClassification")
    model = adapted(base, kind, "SEQ_CLS")
    assert unwrapped(model) is model.base_model.model
    found = relprop.attribute(model, inputs, 1, "gradient_x_input")
    merged = relprop.attribute(model.merge_and_unload(), inputs, 1, "gradient_x_input")
    torch.testing.assert_close(found.scores, merged.scores)


def reference(model: nn.Module, inputs: dict[str, Tensor], row: int) -> Tensor:
    """Gradient x input at the words' table, by hooks: what the wrapper computes, whatever it does between."""
    kept = []
    table = model.get_input_embeddings()

    def keep(module: nn.Module, given: Any, made: Tensor) -> Tensor:
        kept.append(made.detach().requires_grad_())
        return kept[-1]

    handle = table.register_forward_hook(keep)
    try:
        logits = model(**inputs).logits
    finally:
        handle.remove()
    (gradient,) = torch.autograd.grad(logits[0, row, 1] if logits.dim() == 3 else logits[0, 1], kept)
    return (gradient * kept[0]).sum(-1)[0]


@pytest.mark.parametrize("kind", OF_VIRTUAL)
def test_virtual_tokens_shift_no_score(kind: str) -> None:
    """Every token's score stands at the token, and rows of the output are counted without those before the text."""
    base, inputs = tiny("BertForTokenClassification")
    model, one = adapted(base, kind, "TOKEN_CLS"), {name: value[:1] for name, value in inputs.items()}
    shift = 0 if kind == "prefix" else 3
    expected = reference(model, one, 2 + shift)
    target = TokenAt(2, 1)
    found = relprop.attribute(model, one, target, "gradient_x_input", at="word_embeddings")
    torch.testing.assert_close(found.scores[0], expected)
    own = relprop.attribute(
        model, one, lambda outputs: outputs.logits[:, 2 + shift, 1], "gradient_x_input", at="word_embeddings"
    )
    torch.testing.assert_close(own.scores, found.scores)  # a function of the caller reads what the model returns


@pytest.mark.parametrize("kind", ["lora", "prompt", "prefix"])
def test_padding_after_the_text_changes_nothing(kind: str) -> None:
    """The last real row is that of the text's last token, virtual tokens or not."""
    base, _ = tiny("GPT2LMHeadModel", torch.float32)
    model = adapted(base, kind, "CAUSAL_LM")
    ids = torch.tensor([[5, 6, 7, 8]])
    alone = relprop.attribute(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, 3)
    padded = torch.tensor([[5, 6, 7, 8, 0, 0], [9, 8, 7, 6, 5, 4]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])
    both = relprop.attribute(model, {"input_ids": padded, "attention_mask": mask}, 3)
    torch.testing.assert_close(both.value[0], alone.value[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(both.scores[0, :4], alone.scores[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["lora", "prompt", "prefix"])
def test_an_explainer_of_an_adapted_classifier(kind: str) -> None:
    """Labels, pairs of texts with their token types, and head maps' limits are those of the model inside."""
    tokenizer = wordpiece()
    model = bert(tokenizer)
    made = adapted(model, kind, "SEQ_CLS")
    explainer = relprop.Explainer(made, tokenizer)
    assert explainer.labels == model.config.id2label
    assert "token_type_ids" in arguments_of(explainer.model)
    found = explainer(("a good film", "a bad film"), target=1)
    inputs = tokenizer("a good film", "a bad film", return_tensors="pt")
    assert found.value == pytest.approx(made(**inputs).logits[0, 1].item(), abs=1e-5)
    assert len(found.units) == inputs["input_ids"].shape[1]


@pytest.mark.parametrize("kind", ["lora", "prompt", "prefix"])
def test_a_continuation_of_an_adapted_language_model(kind: str) -> None:
    """Shared and single passes give the same scores; the tokens are those that the adapted model writes."""
    stories = relprop.Explainer("stories")
    model = adapted(stories.model, kind, "CAUSAL_LM")
    try:
        explainer = relprop.Explainer(model, stories.tokenizer)
        found = explainer("Tom said to", continuation=" Lily and")
        ids = stories.tokenizer("Tom said to Lily and", return_tensors="pt")["input_ids"]
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, -ids.shape[1] :]
        given = ids.shape[1] - len(found.steps)
        for k, step in enumerate(found.steps):
            assert step.value == pytest.approx(logits[given + k - 1, ids[0, given + k]].item(), abs=1e-4)
        next_token = explainer(found.prompt + " Lily", target=int(ids[0, -1]))
        np.testing.assert_allclose(next_token.scores, found.matrix[-1][: len(next_token.scores)], atol=1e-4)
    finally:
        if hasattr(model, "unload"):
            model.unload()


@pytest.mark.parametrize("kind", ["lora", "ia3", "prompt", "prefix"])
def test_a_folder_with_an_adapter_alone(kind: str, tmp_path: Path) -> None:
    """The base is found by its name in the adapter's config; numbers are those of the model in memory."""
    tokenizer = wordpiece()
    model = bert(tokenizer)
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    loaded, _ = relprop.loading.load(tmp_path / "base")
    made = adapted(loaded, kind, "SEQ_CLS")
    made.save_pretrained(tmp_path / "adapter")
    explainer = relprop.Explainer(tmp_path / "adapter")
    expected = relprop.Explainer(made, tokenizer)("a good film", target=1)
    found = explainer("a good film", target=1)
    assert found.value == pytest.approx(expected.value, abs=1e-6)
    assert found.scores == pytest.approx(expected.scores, abs=1e-6)


def folder_of_adapter(tmp_path: Path, labels: int = 2) -> Path:
    """An adapter for a classifier of so many labels, whose base has other heads and not this one."""
    from transformers import BertForPreTraining, BertForSequenceClassification

    tokenizer = wordpiece()
    model = bert(tokenizer)
    config = model.config
    BertForPreTraining(config).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = BertForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=labels)
    adapted(base, "lora", "SEQ_CLS").save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_a_head_that_comes_with_the_adapter(tmp_path: Path) -> None:
    """A base without a classifier: its labels are counted in the adapter's own head, and nothing is random."""
    folder = folder_of_adapter(tmp_path, labels=5)
    first, second = (relprop.Explainer(folder)("a good film", target=3) for _ in range(2))
    assert len(relprop.Explainer(folder).labels) == 5
    assert first.value == second.value


def no_weights(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()


def no_base(folder: Path) -> None:
    edit(folder, base_model_name_or_path=None)


def lost_base(folder: Path) -> None:
    edit(folder, base_model_name_or_path=str(folder / "nowhere"))


def own_base(folder: Path) -> None:
    edit(folder, base_model_name_or_path=str(folder))


def other_rank(folder: Path) -> None:
    edit(folder, r=8)


def fewer_targets(folder: Path) -> None:
    edit(folder, target_modules=["query"])


def more_targets(folder: Path) -> None:
    edit(folder, target_modules=["query", "key", "value"])


def whole_model_too(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder.parent / "base" / "model.safetensors").read_bytes())


def edit(folder: Path, **changes: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGE: dict[Any, str] = {
    no_weights: "holds no adapter_model.safetensors",
    no_base: "does not say which model it adapts",
    lost_base: "there is no folder",
    own_base: "which is an adapter itself",
    other_rank: "size mismatch|no fitting weights",
    fewer_targets: "does not use",
    more_targets: "no fitting weights",
    whole_model_too: "a whole model and an adapter",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda one: one.__name__)
def test_damaged_adapters_are_refused(damage: Any, tmp_path: Path) -> None:
    folder = folder_of_adapter(tmp_path)
    damage(folder)
    with pytest.raises(ModelError, match=DAMAGE[damage]) as told:
        relprop.Explainer(folder)
    assert "\n" not in str(told.value)


def test_without_peft_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of_adapter(tmp_path)
    monkeypatch.setattr("relprop.adapter_folders.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r'needs the peft package: pip install "relprop\[peft\]"'):
        relprop.Explainer(folder)


def test_heads_of_the_base_are_not_those_of_the_adapted_model(tmp_path: Path) -> None:
    """heads.json beside the base was counted on the base."""
    explainer = relprop.Explainer("sentiment")
    assert known_heads(explainer.model) is not None
    made = adapted(explainer.model, "lora", "SEQ_CLS")
    try:
        assert known_heads(made) is None
        assert known_heads(made.base_model.model) is None
    finally:
        made.unload()
        if hasattr(explainer.model, "peft_config"):
            del explainer.model.peft_config
