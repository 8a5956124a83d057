"""Long inputs: memory linear in tokens, only the logits that are read, and attention maps some rows at a time."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

import long_context
from models import tiny
from relprop import ops
from relprop.attribution import attribute
from relprop.engine.model_call import rows_read
from relprop.engine.passes import propagate
from relprop.engine.propagation import Propagation
from relprop.errors import RelpropError
from relprop.registry import METHODS
from relprop.rulebook import attention, rulesets
from relprop.rulebook.rulesets import RuleSet
from relprop.rulebook.treatments import Expand
from relprop.targets import Several, TokenAt

BY_MAPS = [record.name for record in METHODS if record.maps]
BY_RELEVANCE = ("lrp", "partial_lrp", "transformer_attribution", "mask_lrp")
MASK = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 0]])


def llama() -> Any:
    """Grouped queries, so that keys are shared by heads."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96,
        vocab_size=500, max_position_embeddings=4096, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def bert() -> Any:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=8, intermediate_size=64, vocab_size=500,
        max_position_embeddings=2048,
    )  # fmt: skip
    return BertForSequenceClassification(config).eval()


def tokens(count: int, batch: int = 1) -> dict[str, Tensor]:
    ids = torch.randint(5, 500, (batch, count), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def tensor_peak(run: Callable[[], object]) -> int:
    """The most bytes that tensors made during the run held at once."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        run()
    assert found.profiler is not None
    events = [one for one in found.profiler.kineto_results.events() if one.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


# Memory.


def test_the_peak_is_what_tensors_held() -> None:
    """Two of 4 MB at once, and one more after they are gone."""

    def run() -> None:
        a, b = torch.zeros(2**20), torch.zeros(2**20)
        del a, b
        torch.zeros(2**20)

    assert tensor_peak(run) == 2 * 4 * 2**20


@pytest.mark.sliced
@pytest.mark.parametrize("options", [{}, {"checkpoint": True}], ids=["", "checkpoint"])
@pytest.mark.parametrize("method", ["lrp_ah_ln", "lrp_conservative", "attn_lrp", "gradient_x_input", "lrp"])
def test_memory_is_linear_in_tokens(method: str, options: dict[str, Any]) -> None:
    """Four times the tokens take at most 4.5 times the memory; one map of all tokens by all would be far more."""
    if not set(options) <= set(METHODS[method].options):
        pytest.skip(f"{method} has no checkpoint")
    model = llama()
    attribute(model, tokens(16), 1, method, **options)  # where scores are read is found once
    gc.collect()  # what is freed while memory is counted would count against it
    peaks = [tensor_peak(lambda n=n: attribute(model, tokens(n), 1, method, **options)) for n in (512, 2048)]
    assert peaks[1] <= 4.5 * peaks[0]


@pytest.mark.parametrize("method", [name for name in BY_MAPS if name not in ("alti", "attention_flow", "grad_cam")])
def test_maps_are_never_whole(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1,024 tokens the two blocks' maps are 32 MB each; the whole pass takes less than one of them."""
    monkeypatch.setattr(attention, "_CHUNK", 2**17)
    model, inputs = bert(), tokens(1024)
    assert tensor_peak(lambda: attribute(model, inputs, 1, method)) < 8 * 1024 * 1024 * 4


# Logits.


@pytest.mark.parametrize("method", ["lrp_ah_ln", "gradient_x_input", "lrp", "rollout", "occlusion", "attcat"])
def test_the_last_logits_suffice(method: str) -> None:
    """The head sees one row for a next token; scores, value and logits are those of all rows."""
    model, inputs = tiny("LlamaForCausalLM")
    inputs = {name: value for name, value in inputs.items() if name in ("input_ids", "attention_mask")}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    rows: list[int] = []
    model.lm_head.register_forward_hook(lambda module, args, result: rows.append(args[0].shape[1]))
    found = attribute(model, inputs, 3, method)
    assert set(rows) == {1}
    rows.clear()
    whole = attribute(model, inputs, lambda outputs: outputs.logits[:, -1, 3], method)
    assert set(rows) == {inputs["input_ids"].shape[1]}
    torch.testing.assert_close(found.scores, whole.scores, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.value, whole.value)
    assert found.logits is not None
    with torch.no_grad():
        torch.testing.assert_close(found.logits, model(**inputs).logits[:, -1])


def test_rows_that_a_target_reads() -> None:
    """The last one for a next token; all where examples end in padding, or where a function may read any."""
    full, right, left = ({"attention_mask": torch.tensor(mask)} for mask in ([[1, 1]], [[1, 1], [1, 0]], [[0, 1]]))
    for target in (None, 5, (5, 7), [5], [None]):
        assert rows_read(target, full) == rows_read(target, left) == rows_read(target, {}) == 1
        assert rows_read(target, right) is None
    assert rows_read(Several((TokenAt(-3, 5), TokenAt(-1, 2))), full) == 3
    assert rows_read(TokenAt(2, 5), full) is None
    assert rows_read([TokenAt(-2, 5), lambda outputs: outputs.logits[:, 0, 0]], full) is None


def test_a_classifier_reads_all_rows() -> None:
    """Some take `logits_to_keep` too, and pick their own row from what is left."""
    model, inputs = tiny("BioGptForSequenceClassification")
    with torch.no_grad():
        logits = model(**inputs).logits
    assert torch.allclose(attribute(model, inputs, 0, "lrp_ah_ln").value, logits[:, 0])


def test_padding_on_the_right_reads_each_last_token() -> None:
    model, inputs = llama(), tokens(12, batch=2)
    inputs["attention_mask"][1, 8:] = 0
    both = attribute(model, inputs, 7, "lrp_ah_ln")
    short = attribute(model, {name: value[1:, :8] for name, value in inputs.items()}, 7, "lrp_ah_ln")
    torch.testing.assert_close(both.scores[1:, :8], short.scores, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(both.value[1:], short.value)


# Maps some rows at a time.


def scores(method: str, model: Any, inputs: dict[str, Tensor]) -> Tensor | str:
    """The scores, or why there are none."""
    options = {"mask": MASK} if method == "mask_lrp" else {}
    try:
        return attribute(model, inputs, 1, method, **options).scores
    except RelpropError as error:
        return str(error)


@pytest.mark.sliced
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "architecture", ["BertForSequenceClassification", "GPT2ForSequenceClassification", "LlamaForSequenceClassification"]
)
@pytest.mark.parametrize("method", [*BY_MAPS, "lrp", "lrp_ah_ln"])
def test_rows_at_a_time_change_nothing(
    method: str, architecture: str, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few query rows at a time give the scores of all at once, causal or not, padded or not."""
    model, inputs = tiny(architecture)
    model.set_attn_implementation(implementation)
    whole = scores(method, model, inputs)
    length = inputs["input_ids"].shape[1]
    heads = model.config.num_attention_heads
    monkeypatch.setattr(attention, "_CHUNK", 2 * heads * length * 3)
    assert attention.rows_at_a_time((2, heads, length, length)) == 3
    parts = scores(method, model, inputs)
    assert isinstance(whole, Tensor)
    assert isinstance(parts, Tensor)
    assert whole.any()
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "LlamaForSequenceClassification"])
@pytest.mark.parametrize("method", BY_RELEVANCE)
def test_relevance_in_fused_attention_is_that_of_its_parts(method: str, architecture: str) -> None:
    """Fused attention's own rule shares as its two products and its softmax would, one by one."""
    model, inputs = tiny(architecture)
    found = {}
    for implementation in ("sdpa", "eager"):
        model.set_attn_implementation(implementation)
        found[implementation] = scores(method, model, inputs)
    torch.testing.assert_close(found["sdpa"], found["eager"], rtol=1e-5, atol=1e-9)  # eager softmax is in float32


def test_a_rule_for_a_part_spells_attention_out() -> None:
    """A rule set with a matrix product or softmax of its own meets them inside of attention too."""
    model, inputs = tiny("BertForSequenceClassification")
    spelled: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        return lambda func, *args, **kwargs: spelled.append(name) or rulesets.zplus_rules[name](func, *args, **kwargs)

    for name in ("matmul", "softmax"):
        assert isinstance(rulesets.zplus_rules["scaled_dot_product_attention"], Expand)
        own = rulesets.zplus_rules | RuleSet("own", {name: noted(name)}, carries="relevance")
        flow, plain = (propagate(model, inputs, 1, each) for each in (own, rulesets.zplus_rules))
        torch.testing.assert_close(flow.arrived[0], plain.arrived[0], rtol=1e-8, atol=1e-12)
    blocks = model.config.num_hidden_layers
    assert spelled.count("softmax") == blocks
    assert spelled.count("matmul") >= 2 * blocks


@pytest.mark.parametrize("live", [(1, 0, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1)], ids=str)
def test_attention_of_which_parts_are_constant_is_spelled_out(live: tuple[int, ...]) -> None:
    """Only where query, key and value are live do its products share in halves."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 5, 4, dtype=torch.float64) for _ in range(3))
    arrived = []
    for function in (torch.nn.functional.scaled_dot_product_attention, ops.plain_attention):
        leaves = [one.clone().requires_grad_(bool(flag)) for one, flag in zip((q, k, v), live, strict=True)]
        with Propagation(rulesets.zplus_rules):
            result = function(*leaves)
        arrived.append(torch.autograd.grad(result.sum(), [one for one in leaves if one.requires_grad]))
    for one, other in zip(*arrived, strict=True):
        torch.testing.assert_close(one, other)


# The benchmark.


def test_the_benchmark_measures_growth(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Growth is over the first length, and lrp_ah_ln is held to its bound from 1,024 to 8,192 tokens only."""
    monkeypatch.setattr(long_context, "memory", lambda row, n: float(n) * (1 if row == "plain" else 1 + n / 1000))
    long_context.show_memory(("plain", "lrp_ah_ln"), [1024, 8192])
    _, plain, method = capsys.readouterr().out.splitlines()
    assert plain.split()[-1] == "8.00"
    assert method.endswith("at most 8.5: MISSED")
    long_context.show_memory(("lrp_ah_ln",), [1024, 2048])
    assert "at most" not in capsys.readouterr().out
