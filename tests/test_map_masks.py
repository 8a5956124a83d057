"""Methods on attention maps, under masks of every kind and with saturated weights: finite scores, or a sentence."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

from relprop.attribution import attribute
from relprop.errors import InputError, ModelError, RelpropError
from relprop.methods.block_maps import row_normalised
from relprop.registry import METHODS

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
MAPPED = [name for name in METHODS.names() if METHODS[name].maps]
CASES = [(name, variant) for name in MAPPED for variant in ("paper", "released")
         if variant == "paper" or "variant" in METHODS[name].options]  # fmt: skip
ONLY_WEIGHTS = ("attention_last", "rollout", "attention_flow", "alti")
MASKS = {
    "none": [[1] * 8] * 2,
    "right": [[1] * 5 + [0] * 3, [1] * 8],
    "left": [[0] * 3 + [1] * 5, [1] * 8],
    "gaps": [[1, 1, 0, 1, 0, 1, 1, 1], [1] * 8],
    "first": [[0] + [1] * 7, [1] * 8],
    "last": [[1] * 7 + [0], [1] * 8],
}


@cache
def model(kind: str, scale: float = 1.0, attention: str = "sdpa") -> Any:
    torch.manual_seed(0)
    made: Any
    if kind == "bert":
        made = hf.BertForSequenceClassification(hf.BertConfig(**SMALL, num_labels=3, initializer_range=0.1))
    else:
        config = hf.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, num_labels=3, initializer_range=0.1)
        made = hf.GPT2ForSequenceClassification(config)
        made.config.pad_token_id = 0
    made.set_attn_implementation(attention)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return made.double().eval()


def batch(name: str, kind: str = "keys") -> dict[str, Tensor]:
    """`kind`: the mask over keys, or as pairs of queries and keys, boolean or added."""
    ids = torch.randint(20, 99, (2, 8), generator=torch.Generator().manual_seed(1))
    keys = torch.tensor(MASKS[name])
    pairs = (keys != 0)[:, None, None].expand(2, 1, 8, 8)
    both = pairs & pairs.transpose(2, 3)
    mask = {
        "keys": keys,
        "pairs": pairs,
        "added": added(pairs),
        "rows that see nothing": both,
        "rows that see nothing, added": added(both),
    }[kind]
    return {"input_ids": ids * keys, "attention_mask": mask}


def added(mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, torch.finfo(torch.float64).min)


def options(method: str, variant: str) -> dict[str, str]:
    return {"variant": variant} if "variant" in METHODS[method].options else {}


@pytest.mark.sliced
@pytest.mark.parametrize(("method", "variant"), CASES)
@pytest.mark.parametrize("scale", [1.0, 100.0, 1e6])
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_scores_are_finite_or_refused(kind: str, scale: float, method: str, variant: str) -> None:
    for name in MASKS:
        for form in ("keys", "added"):
            try:
                found = attribute(model(kind, scale), batch(name, form), 1, method, **options(method, variant))
            except RelpropError:
                assert scale > 1
                continue
            assert found.scores.isfinite().all()
            real = torch.tensor(MASKS[name]) != 0
            assert not found.scores[~real].any()
            if method not in ("cam", "grad_cam"):  # their positive part may be nothing
                assert scale > 1 or found.scores.any(1).all()


@pytest.mark.sliced
@pytest.mark.parametrize(("method", "variant"), CASES)
@pytest.mark.parametrize(("form", "attention"), [("pairs", "sdpa"), ("added", "sdpa"), ("added", "eager")])
def test_a_mask_of_pairs_is_the_mask_of_its_keys(form: str, attention: str, method: str, variant: str) -> None:
    made = model("bert", attention=attention)
    for name in MASKS:
        found, plain = (
            attribute(made, batch(name, kind), 1, method, **options(method, variant)).scores for kind in (form, "keys")
        )
        assert torch.allclose(found, plain, atol=1e-9)


@pytest.mark.parametrize(("form", "attention"), [("", "sdpa"), (", added", "sdpa"), (", added", "eager")])
@pytest.mark.parametrize("method", MAPPED)
def test_rows_that_see_nothing_disturb_no_others(method: str, form: str, attention: str) -> None:
    made = model("bert", attention=attention)
    for name in ("right", "gaps"):  # the first row, which is read, sees all that is real
        found = attribute(made, batch(name, f"rows that see nothing{form}"), 1, method).scores
        assert torch.allclose(found, attribute(made, batch(name), 1, method).scores, atol=1e-9)


@pytest.mark.parametrize("method", ["cam", "grad_cam", "grad_sam", "attcat"])
def test_a_masked_row_that_is_read_still_counts(method: str) -> None:
    """BERT reads its first row whatever the mask says: means over real rows alone would leave out all that matters."""
    found = attribute(model("bert"), batch("first"), 1, method).scores
    assert found[0].any()
    assert found[0, 0] == 0  # but it is padding


def test_rows_that_a_mask_does_not_tell_are_not_guessed() -> None:
    inputs = {**batch("none"), "attention_mask": torch.eye(8, dtype=torch.bool).expand(2, 1, 8, 8)}
    for method in MAPPED:
        with pytest.raises(InputError, match="which of the 8 rows are padding cannot be told"):
            attribute(model("bert"), inputs, 1, method)


def saturated() -> Any:
    """The pooler's tanh is 1 or -1 exactly, and its gradient 0."""
    torch.manual_seed(0)
    made = hf.BertForSequenceClassification(hf.BertConfig(**SMALL, num_labels=3, initializer_range=0.1)).eval()
    with torch.no_grad():
        made.bert.pooler.dense.weight.mul_(1e6)
    return made


@pytest.mark.parametrize("method", MAPPED)
def test_a_saturated_head(method: str) -> None:
    """Which row is read is found all the same; what weighs by its gradient, which is 0, says so."""
    made, inputs = saturated(), batch("right")
    if METHODS[method].gradients and method != "partial_lrp":
        with pytest.raises(ModelError, match="gradient of the target of example 0 is 0 at the last block"):
            attribute(made, inputs, 1, method)
        return
    found = attribute(made, inputs, 1, method).scores
    assert found.isfinite().all()
    assert found.any(1).all()
    if method in ONLY_WEIGHTS:
        plain = saturated()
        with torch.no_grad():
            plain.bert.pooler.dense.weight.div_(1e6)
        assert torch.allclose(found, attribute(plain, inputs, 1, method).scores, atol=1e-5)


def test_several_sequences_per_example_are_refused() -> None:
    torch.manual_seed(0)
    made = hf.BertForMultipleChoice(hf.BertConfig(**SMALL)).eval()
    with pytest.raises(ModelError, match="attends in 6 sequences for 2 examples"):
        attribute(made, {"input_ids": torch.randint(20, 99, (2, 3, 7))}, None, "rollout")


def test_rows_of_zeros_stay_zero() -> None:
    assert row_normalised(torch.tensor([[1.0, 3.0], [0.0, 0.0]])).tolist() == [[0.25, 0.75], [0.0, 0.0]]


def test_scores_beyond_the_dtype_are_refused() -> None:
    """A product of maps whose entries are large: infinite in float32."""
    made = saturated()
    with torch.no_grad():
        made.bert.pooler.dense.weight.div_(1e6)
        made.classifier.weight.mul_(1e25)
    with pytest.raises(ModelError, match='"gae" gives scores of "input_ids" that are not finite for example 0'):
        attribute(made, batch("none"), 1, "gae")
    assert math.isfinite(attribute(made, batch("none"), 1, "rollout").scores.sum().item())
