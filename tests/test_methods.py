"""One property over every registered method, and what each method must be beside."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models import BY_ZPLUS, OTHERWISE, ROUTED, skip_declined, tiny
from relprop.attribution import attribute
from relprop.engine.capture import CaptureOptions, HeadMask
from relprop.engine.passes import propagate
from relprop.errors import InputError, ModelError, TargetError, UnknownNameError, UnruledOpError
from relprop.explainer import Explainer
from relprop.registry import METHODS
from relprop.rulebook.rulesets import ruleset
from relprop.types import Attribution

NAMES = METHODS.names()
GRADIENT = [record.name for record in METHODS if record.gradients]
FAST: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 6},
    "smoothgrad": {"samples": 3},
    "shapley": {"max_evals": 105},  # three orders of 17 patches
}
TEXT = (
    "BertForSequenceClassification",
    "RobertaForSequenceClassification",
    "DebertaV2ForSequenceClassification",
    "GPT2ForSequenceClassification",
    "LlamaForSequenceClassification",
    "Qwen2MoeForSequenceClassification",
    "T5ForSequenceClassification",
    "BartForSequenceClassification",
)
POSITIVE_PART = ("cam", "grad_cam")  # all that they keep, which may be nothing
CAUSAL = ("GPT2LMHeadModel", "LlamaForCausalLM")

every_method = pytest.mark.parametrize("method", NAMES)


def explain(model: nn.Module, inputs: dict[str, Tensor], target: Any, method: str, **options: Any) -> Attribution:
    skip_declined(model, method)
    return attribute(model, inputs, target, method, **{**FAST.get(method, {}), **options})


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-10) -> bool:
    """Largest difference relative to the largest number."""
    assert found.shape == expected.shape
    return bool((found - expected).abs().max() <= tolerance * expected.abs().max())


def rounding(architecture: str) -> float:
    """Llama and its kin compute their norms in float32, whatever the model's dtype."""
    return 1e-5 if architecture.startswith(("Llama", "Qwen", "Mixtral")) else 1e-10


def ragged(architecture: str) -> tuple[Any, list[dict[str, Tensor]], dict[str, Tensor]]:
    """A model, two texts of 7 and 4 tokens, each alone, and both in one batch padded on the right."""
    model, inputs = tiny(architecture)
    long, short = inputs["input_ids"][:1], inputs["input_ids"][1:, :4].clone()
    short[0, -1] = long[0, -1]  # the end token, which some heads look for
    alone = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)} for ids in (long, short)]
    return model, alone, batched(alone, model.config.pad_token_id)


def batched(alone: list[dict[str, Tensor]], pad: int, left: bool = False) -> dict[str, Tensor]:
    width = max(one["input_ids"].shape[1] for one in alone)
    rows: dict[str, list[Tensor]] = {"input_ids": [], "attention_mask": []}
    for one in alone:
        for name, filler in (("input_ids", pad), ("attention_mask", 0)):
            filling = one[name].new_full((1, width - one[name].shape[1]), filler)
            rows[name].append(torch.cat([filling, one[name]] if left else [one[name], filling], 1))
    return {name: torch.cat(parts) for name, parts in rows.items()}


@pytest.mark.parametrize("method", [record.name for record in METHODS if record.maps])
@pytest.mark.parametrize("architecture", OTHERWISE)
def test_methods_that_need_maps_say_so(architecture: str, method: str) -> None:
    """A method that cannot apply names the reason and what to use instead."""
    model, inputs = tiny(architecture)
    with pytest.raises(ModelError, match=f'"{method}" needs one map of all tokens .* use lrp_ah_ln instead'):
        attribute(model, inputs, 0, method)


@pytest.mark.parametrize("method", BY_ZPLUS)
def test_a_missing_rule_is_named(method: str) -> None:
    """Relevance that reaches a router's choice stops with the operation's name and what to use instead."""
    model, inputs = tiny(ROUTED)
    with pytest.raises(UnruledOpError, match=r'"topk" in "model.layers.1.mlp.gate", .* use lrp_ah_ln'):
        attribute(model, inputs, 0, method)


# Properties of every method.


@pytest.mark.sliced
@every_method
@pytest.mark.parametrize("architecture", TEXT)
def test_a_padded_batch_is_its_examples(architecture: str, method: str) -> None:
    """Batch equals one by one, padding changes nothing, and pads score exactly 0."""
    model, alone, batch = ragged(architecture)
    together = explain(model, batch, 1, method)
    assert together.scores.shape == batch["input_ids"].shape
    assert not together.scores[1, 4:].any()
    for i, (one, length) in enumerate(zip(alone, (7, 4), strict=True)):
        single = explain(model, one, 1, method)
        assert single.scores.any() or method in POSITIVE_PART
        assert close(together.scores[i, :length], single.scores[0], rounding(architecture))
        assert close(together.value[i], single.value[0], rounding(architecture))


class Careless(nn.Module):
    """Lets padding into its mean, whatever the mask says."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(20, 4), nn.Linear(4, 3)
        self.double()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head(self.words(input_ids).tanh().mean(1))


@pytest.mark.parametrize("method", [record.name for record in METHODS if not record.maps])
def test_padding_scores_zero_though_the_model_reads_it(method: str) -> None:
    """Even where a model wrongly uses its padding, a pad is no unit of the text."""
    inputs = {"input_ids": torch.tensor([[3, 4, 5, 1, 1]]), "attention_mask": torch.tensor([[1, 1, 1, 0, 0]])}
    scores = explain(Careless(), inputs, 1, method).scores
    assert not scores[0, 3:].any()
    assert scores[0, :3].all()


@pytest.mark.sliced
@every_method
@pytest.mark.parametrize("architecture", ["GPT2ForSequenceClassification", "LlamaForSequenceClassification"])
def test_padding_on_the_left(architecture: str, method: str) -> None:
    """The same with the pads in front, positions counted from the first real token."""
    model, alone, _ = ragged(architecture)
    batch = batched(alone, model.config.pad_token_id, left=True)
    batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp_min(0)
    together = explain(model, batch, 1, method)
    assert not together.scores[1, :3].any()
    single = explain(model, alone[1], 1, method)
    assert close(together.scores[1, 3:], single.scores[0], rounding(architecture))


@pytest.mark.sliced
@every_method
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "XLNetForSequenceClassification",
                                          "ViTForImageClassification", "LlamaForCausalLM"])  # fmt: skip
def test_order_does_not_matter(architecture: str, method: str) -> None:
    """The batch turned round gives the scores turned round, each target with its own example."""
    model, inputs = tiny(architecture)
    plain = explain(model, inputs, [0, 2], method)
    turned = explain(model, {name: value.flip(0) for name, value in inputs.items()}, [2, 0], method)
    assert close(turned.scores.flip(0), plain.scores, rounding(architecture))
    assert close(turned.value.flip(0), plain.value, rounding(architecture))
    assert turned.target == plain.target[::-1]


@pytest.mark.parametrize("method", GRADIENT)
@pytest.mark.parametrize("architecture", CAUSAL)
def test_the_future_scores_zero(architecture: str, method: str) -> None:
    """A causal model's output at position 3 owes exactly nothing to the tokens after it, and something to the rest."""
    model, inputs = tiny(architecture)
    found = explain(model, inputs, lambda out: out.logits[:, 3, 5], method)
    assert not found.scores[:, 4:].any()
    assert found.scores.isfinite().all()
    if method not in POSITIVE_PART:
        assert found.scores[:, :4].all()


@pytest.mark.sliced
@every_method
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "GPT2LMHeadModel", "LlamaForCausalLM",
                                          "ViTForImageClassification"])  # fmt: skip
def test_fused_attention_equals_eager(architecture: str, method: str) -> None:
    """The user's attention kernel does not change an explanation."""
    found = []
    for implementation in ("eager", "sdpa"):
        model, inputs = tiny(architecture)
        model.set_attn_implementation(implementation)
        found.append(explain(model, inputs, 1, method))
    tolerance = 1e-10 if architecture.startswith(("Bert", "GPT2")) else 1e-4  # their eager softmax is in float32
    assert close(found[1].scores, found[0].scores, tolerance)


@pytest.mark.sliced
@every_method
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "LlamaForSequenceClassification",
                                          "T5ForSequenceClassification", "ViTForImageClassification"])  # fmt: skip
def test_float32_is_near_float64(architecture: str, method: str) -> None:
    """Same weights in single precision: scores within 1e-4, in the model's own dtype."""
    model, inputs = tiny(architecture)
    single = copy.deepcopy(model).float()
    coarse_inputs = {name: value.float() if value.is_floating_point() else value for name, value in inputs.items()}
    inputs = {name: coarse_inputs[name].to(value.dtype) for name, value in inputs.items()}  # the same numbers exactly
    exact, coarse = explain(model, inputs, 1, method), explain(single, coarse_inputs, 1, method)
    assert (exact.scores.dtype, coarse.scores.dtype) == (torch.float64, torch.float32)
    assert close(coarse.scores.double(), exact.scores, 1e-2 if method == "lrp" else 1e-4)  # it divides by sums near 0
    assert close(coarse.value.double(), exact.value, 1e-4)


@pytest.mark.sliced
@every_method
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "LlamaForSequenceClassification",
                                          "ViTForImageClassification"])  # fmt: skip
def test_half_precision_gives_numbers(architecture: str, dtype: torch.dtype, method: str) -> None:
    """bf16 and fp16 models: finite scores in float32, and near those of the same weights in float64."""
    model, inputs = tiny(architecture, dtype)
    exact_model = copy.deepcopy(model).double()
    exact_inputs = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    found, exact = explain(model, inputs, 1, method), explain(exact_model, exact_inputs, 1, method)
    assert found.scores.dtype == found.value.dtype == torch.float32
    assert found.scores.isfinite().all()
    assert found.scores.any()
    if method not in ("smoothgrad", "lrp", "partial_lrp"):  # noise is drawn again; z-rules divide by sums near 0
        assert close(found.scores.double(), exact.scores, 0.3 if dtype == torch.bfloat16 else 0.05)


@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "GPT2ForSequenceClassification"])
def test_bfloat16_conserves(architecture: str) -> None:
    """The scores' sum in bf16 is what the float32 books leave to the inputs, within 2 % of what moved."""
    model, inputs = tiny(architecture, torch.bfloat16)
    coarse = attribute(model, inputs, 1, "lrp_conservative")
    exact = attribute(copy.deepcopy(model).float(), inputs, 1, "lrp_conservative", ledger=True)
    for i, ledger in enumerate(exact.ledger or ()):
        moved = max(abs(ledger.value), abs(ledger.inputs), abs(ledger.biases), abs(ledger.constants))
        expected = ledger.value - ledger.biases - ledger.constants
        assert abs(coarse.scores[i].sum().item() - expected) < 2e-2 * moved


@every_method
def test_the_value_is_the_models(method: str) -> None:
    """value, target and logits are those of the plain forward pass."""
    model, inputs = tiny("BertForSequenceClassification")
    found = explain(model, inputs, [2, 0], method)
    with torch.no_grad():
        logits = model(**inputs).logits
    assert close(found.value, logits[[0, 1], [2, 0]])
    assert found.logits is not None
    assert close(found.logits, logits)
    assert found.method == method
    assert len(found.target) == 2


@every_method
def test_calls_repeat(method: str) -> None:
    """Twice the same call, bitwise the same scores, whatever the global generator holds; and it is left alone."""
    model, inputs = tiny("BertForSequenceClassification")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = explain(model, inputs, 1, method).scores
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(explain(model, inputs, 1, method).scores, first)


@pytest.mark.parametrize("method", [record.name for record in METHODS if "seed" in record.options])
def test_seeds(method: str) -> None:
    """The same seed repeats, another differs, and it differs for every example of the batch."""
    model, inputs = tiny("BertForSequenceClassification")
    drawn = {"mask": np.eye(2, model.config.num_attention_heads), "corrupt": 0.5} if method == "mask_lrp" else {}
    first, again, other = (explain(model, inputs, 1, method, seed=seed, **drawn).scores for seed in (3, 3, 9))
    assert torch.equal(first, again)
    assert (first != other).any(1).all()


@pytest.mark.parametrize("method", [record.name for record in METHODS if record.complete])
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "BartForSequenceClassification",
                                          "ViTForImageClassification", "GPT2LMHeadModel"])  # fmt: skip
def test_complete_where_declared(architecture: str, method: str) -> None:
    """The scores sum to value - baseline value (smooth models: kinks as in T5's ReLU need more steps)."""
    model, inputs = tiny(architecture)
    found = attribute(model, inputs, 1, method, **({"steps": 200} if "steps" in METHODS[method].options else {}))
    assert found.baseline is not None
    assert close(found.scores.sum(1), found.value - found.baseline, 1e-6)


@pytest.mark.parametrize("method", [record.name for record in METHODS if "checkpoint" in record.options])
def test_checkpoint_is_only_about_memory(method: str) -> None:
    """checkpoint=True gives bitwise the same scores."""
    model, inputs = tiny("GPT2ForSequenceClassification")
    assert torch.equal(
        attribute(model, inputs, 1, method, checkpoint=True).scores, attribute(model, inputs, 1, method).scores
    )


@pytest.mark.parametrize("method", [record.name for record in METHODS if "internal_batch_size" in record.options])
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_internal_batches_do_not_matter(method: str, size: int) -> None:
    """How many copies go through the model at a time changes nothing."""
    model, inputs = tiny("BertForSequenceClassification")
    plain = explain(model, inputs, [0, 1], method)
    found = explain(model, inputs, [0, 1], method, internal_batch_size=size)
    assert close(found.scores, plain.scores)
    if plain.baseline is not None and found.baseline is not None:
        assert close(found.baseline, plain.baseline)


@every_method
def test_unknown_options_are_refused(method: str) -> None:
    """An option the method lacks is an error that lists those it has."""
    model, inputs = tiny("BertForSequenceClassification")
    with pytest.raises(InputError, match=f'method "{method}" has no option "colour"'):
        attribute(model, inputs, 1, method, colour="red")


# Single methods.


def test_gradient_is_the_norm_of_the_gradient() -> None:
    """Saliency, by hand, at the word embeddings."""
    model, inputs = tiny("BertForSequenceClassification")
    x = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=x, attention_mask=inputs["attention_mask"]).logits
    (grad,) = torch.autograd.grad(logits[:, 1].sum(), x)
    found = attribute(model, inputs, 1, "gradient", at="word_embeddings").scores
    assert close(found, grad.square().sum(-1).sqrt())


@pytest.mark.parametrize("baseline", [None, 11])
def test_integrated_gradients_is_a_riemann_sum(baseline: int | None) -> None:
    """Against a slow midpoint sum along the straight way, by hand."""
    model, inputs = tiny("BertForSequenceClassification")
    table = model.get_input_embeddings()
    ids = torch.full_like(inputs["input_ids"], model.config.pad_token_id if baseline is None else baseline)
    end, start = table(inputs["input_ids"]).detach(), table(ids).detach()
    total, points = torch.zeros_like(end), 300
    for k in range(points):
        x = (start + (k + 0.5) / points * (end - start)).requires_grad_()
        logits = model(inputs_embeds=x, attention_mask=inputs["attention_mask"]).logits
        total += torch.autograd.grad(logits[:, 1].sum(), x)[0] / points
    found = attribute(model, inputs, 1, "integrated_gradients", steps=100, baseline=baseline)
    assert close(found.scores, (total * (end - start)).sum(-1), 1e-3)
    with torch.no_grad():
        at_start = model(input_ids=ids, attention_mask=inputs["attention_mask"]).logits[:, 1]
    assert found.baseline is not None
    assert close(found.baseline, at_start)


def test_integrated_gradients_takes_ids_as_baseline() -> None:
    """Baseline ids of the input's shape; where they are the input, a token scores 0; another shape is refused."""
    model, inputs = tiny("BertForSequenceClassification")
    baseline = torch.full_like(inputs["input_ids"], 11)
    baseline[:, 2:5] = inputs["input_ids"][:, 2:5]
    found = explain(model, inputs, 1, "integrated_gradients", baseline=baseline)
    assert not found.scores[:, 2:5].any()
    assert found.scores[:, [0, 1, 5, 6]].all()
    with pytest.raises(InputError, match=r'baseline of "input_ids" has shape \(2, 3\), the input \(2, 7\)'):
        explain(model, inputs, 1, "integrated_gradients", baseline=baseline[:, :3])


def test_integrated_gradients_of_a_square() -> None:
    """sum w x^2 from zero: the scores are w x^2, exactly, from two points on."""

    class Squares(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * x) @ torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=x.dtype)

    x = torch.tensor([[2.0, -3.0]], dtype=torch.float64)
    found = attribute(Squares(), x, 1, "integrated_gradients", steps=2)
    assert close(found.scores, torch.tensor([[8.0, -9.0]], dtype=torch.float64), 1e-12)
    assert found.baseline is not None
    assert found.baseline.item() == 0.0


@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "T5ForSequenceClassification"])
def test_smoothgrad_without_noise(architecture: str) -> None:
    """Noise 0: gradient x input at the word embeddings."""
    model, inputs = tiny(architecture)
    smooth = attribute(model, inputs, 1, "smoothgrad", noise=0.0, samples=2).scores
    assert close(smooth, attribute(model, inputs, 1, "gradient_x_input", at="word_embeddings").scores)


def test_smoothgrad_noise_has_the_right_size() -> None:
    """On y = x^2 the mean of x * 2x under noise s * range is 2 (x^2 + s^2 range^2): here s * range = 1."""

    class Squares(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * x).sum(-1)

    x = torch.tensor([[[0.0], [1.0], [2.0]]], dtype=torch.float64)
    found = attribute(Squares(), x, lambda out: out.sum(1), "smoothgrad", samples=3000, noise=0.5).scores
    assert (found - 2 * (x[..., 0] ** 2 + 1)).abs().max() < 0.5


def test_random_is_uniform_and_unsigned() -> None:
    """Scores in [0, 1), different in every place, and made of the example's content: equal texts, equal scores."""
    model, inputs = tiny("BertForSequenceClassification")
    twice = {name: value[[0, 1, 0]] for name, value in inputs.items()}
    scores = attribute(model, twice, 1, "random").scores
    assert ((scores >= 0) & (scores < 1)).all()
    assert torch.equal(scores[0], scores[2])
    assert len(scores[:2].unique()) == 14


@pytest.mark.parametrize("architecture", ["ViTForImageClassification", "T5ForSequenceClassification"])
def test_random_scores_the_units_that_others_score(architecture: str) -> None:
    """The floor can only be compared where it has as many scores: patches, not colour channels."""
    model, inputs = tiny(architecture)
    assert attribute(model, inputs, 1, "random").scores.shape == attribute(model, inputs, 1, "lrp_ah_ln").scores.shape


@pytest.mark.parametrize("steps", [0, -1])
def test_too_few_steps(steps: int) -> None:
    """The error repeats the number."""
    model, inputs = tiny("BertForSequenceClassification")
    with pytest.raises(InputError, match=f"at least one step, got {steps}"):
        attribute(model, inputs, 1, "integrated_gradients", steps=steps)
    with pytest.raises(InputError, match=f"at least one sample, got {steps}"):
        attribute(model, inputs, 1, "smoothgrad", samples=steps)


def test_method_names() -> None:
    """Hyphens are underscores; a typo is answered with the nearest name and how many there are."""
    model, inputs = tiny("BertForSequenceClassification")
    assert attribute(model, inputs, 1, "gradient-x-input").method == "gradient_x_input"
    with pytest.raises(
        UnknownNameError, match=f'"attnlrp" is unknown; did you mean "attn_lrp".*lists all {len(METHODS)}'
    ):
        attribute(model, inputs, 1, "attnlrp")


# Targets.


def labelled() -> tuple[Any, dict[str, Tensor], Tensor]:
    model, inputs = tiny("BertForSequenceClassification")
    model.config.id2label = {0: "bad", 1: "Good", 2: "so so"}
    with torch.no_grad():
        return model, inputs, model(**inputs).logits


def test_targets_of_a_classifier() -> None:
    """Every form of target: exact values and names."""
    model, inputs, y = labelled()
    best = y.argmax(1).tolist()
    names = ["bad", "Good", "so so"]
    forms: list[tuple[Any, Tensor, tuple[str, ...]]] = [
        (1, y[:, 1], ("Good", "Good")),
        ("good", y[:, 1], ("Good", "Good")),
        ("SO SO", y[:, 2], ("so so", "so so")),
        ("2", y[:, 2], ("so so", "so so")),
        (None, y.max(1).values, tuple(names[i] for i in best)),
        ((1, 0), y[:, 1] - y[:, 0], ("Good - bad",) * 2),
        (("good", "so so"), y[:, 1] - y[:, 2], ("Good - so so",) * 2),
        ([0, "good"], torch.stack([y[0, 0], y[1, 1]]), ("bad", "Good")),
        ([None, 2], torch.stack([y[0].max(), y[1, 2]]), (names[best[0]], "so so")),
        ([(0, 1), 2], torch.stack([y[0, 0] - y[0, 1], y[1, 2]]), ("bad - Good", "so so")),
        (torch.tensor([2, 0]), torch.stack([y[0, 2], y[1, 0]]), ("so so", "bad")),
        (lambda out: out.logits.logsumexp(1), y.logsumexp(1), ("<lambda>",) * 2),
        ([lambda out: out.logits[:, 0], lambda out: out.logits[:, 2]], y[[0, 1], [0, 2]], ("<lambda>",) * 2),
    ]
    for target, value, wanted in forms:
        for method in ("gradient_x_input", "random", "integrated_gradients"):
            found = explain(model, inputs, target, method)
            assert close(found.value, value), (target, method)
            assert found.target == wanted


def test_a_difference_is_the_difference_of_the_scores() -> None:
    """Contrastive targets are linear in the scores of their parts."""
    model, inputs, _ = labelled()
    for method in ("gradient_x_input", "lrp_ah_ln", "lrp_conservative", "attn_lrp"):
        left, right, both = (attribute(model, inputs, t, method).scores for t in (1, 2, (1, 2)))
        assert close(both, left - right)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (3, "target 3 is out of range: the model has classes 0 to 2"),
        (-1, "target -1 is out of range"),
        ("goood", 'target "goood" is unknown; did you mean "Good"'),
        (1.5, "a target is a class index, a class name, a pair of these or None, got 1.5"),
        (True, "got True"),
        ((0, 1, 2), "a difference takes two targets, got 3"),
        ([0], "1 targets for 2 examples"),
        (lambda out: out.logits, r"must give one number per example .* it gave \(2, 3\)"),
        (lambda out: 3.0, "it gave float"),
    ],
)
def test_wrong_targets(target: Any, message: str) -> None:
    """A target that the output lacks is refused in the caller's words."""
    model, inputs, _ = labelled()
    with pytest.raises(TargetError, match=message):
        attribute(model, inputs, target)


def test_targets_of_question_answering() -> None:
    """Start, end, span and a given span: exact values and names."""
    model, inputs = tiny("BertForQuestionAnswering")
    with torch.no_grad():
        out = model(**inputs)
    s, e = out.start_logits, out.end_logits
    i, j = s.argmax(1).tolist(), e.argmax(1).tolist()
    span = tuple(f"span {a}-{b}" for a, b in zip(i, j, strict=True))
    forms: list[tuple[Any, Tensor, tuple[str, ...]]] = [
        ("start", s.max(1).values, tuple(f"start {a}" for a in i)),
        ("end", e.max(1).values, tuple(f"end {b}" for b in j)),
        ("span", s.max(1).values + e.max(1).values, span),
        (None, s.max(1).values + e.max(1).values, span),
        ((2, 4), s[:, 2] + e[:, 4], ("span 2-4",) * 2),
    ]
    for target, value, wanted in forms:
        for method in ("gradient_x_input", "integrated_gradients", "random"):
            found = explain(model, inputs, target, method)
            assert close(found.value, value), (target, method)
            assert found.target == wanted
    parts = [attribute(model, inputs, part, "gradient_x_input").scores for part in ("start", "end", "span")]
    assert close(parts[0] + parts[1], parts[2])
    with pytest.raises(TargetError, match='"start", "end", "span"'):
        attribute(model, inputs, "middle")


def test_the_given_span_stays_the_same_along_the_way() -> None:
    """Integrated gradients of a predicted span follow that span, not whatever is likeliest at each step: complete."""
    model, inputs = tiny("BertForQuestionAnswering")
    found = attribute(model, inputs, "span", "integrated_gradients", steps=200)
    assert found.baseline is not None
    assert close(found.scores.sum(1), found.value - found.baseline, 1e-6)


def test_targets_of_a_language_model() -> None:
    """The next token at the last real place, by id or the likeliest; class names mean nothing there."""
    model, inputs = tiny("GPT2LMHeadModel")
    inputs["attention_mask"][1, 5:] = 0
    with torch.no_grad():
        logits = model(**inputs).logits
    rows = torch.stack([logits[0, 6], logits[1, 4]])
    assert close(attribute(model, inputs, 17).value, rows[:, 17])
    found = attribute(model, inputs, None)
    assert close(found.value, rows.max(1).values)
    assert found.target == tuple(map(str, rows.argmax(1).tolist()))
    left = {**inputs, "attention_mask": inputs["attention_mask"].flip(1)}
    with torch.no_grad():
        expected = model(**left).logits[:, -1, 17]
    assert close(attribute(model, left, 17).value, expected)
    with pytest.raises(TargetError, match="is a name, but this output has no class names"):
        attribute(model, inputs, "LABEL_0")


# Inputs.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": torch.full((2, 7), 500)}, "token ids run from 500 to 500, the model knows 0 to 98"),
        ({"input_ids": torch.full((2, 7), -1)}, "token ids run from -1"),
        ({"attention_mask": torch.tensor([[1] * 7, [0] * 7])}, "row 1 of the batch is all padding"),
        ({"input_ids": torch.zeros(2, 0, dtype=torch.long)}, r'input "input_ids" is empty: its shape is \(2, 0\)'),
    ],
)
def test_wrong_inputs(change: dict[str, Tensor], message: str) -> None:
    """Input that cannot be explained is refused before the model runs."""
    model, inputs = tiny("BertForSequenceClassification")
    with pytest.raises(InputError, match=message):
        attribute(model, {**inputs, **change}, 1)


@pytest.mark.parametrize("replacement", [None, 7])
def test_occlusion_is_a_loop_over_tokens(replacement: int | None) -> None:
    """BERT reads nothing but embeddings, so hiding an embedding is replacing the token."""
    model, inputs = tiny("BertForSequenceClassification")
    plain = model(**inputs).logits[:, 1]
    expected = torch.zeros(2, 7, dtype=torch.float64)
    for unit in range(7):
        ids = inputs["input_ids"].clone()
        ids[:, unit] = model.config.pad_token_id if replacement is None else replacement
        expected[:, unit] = plain - model(**{**inputs, "input_ids": ids}).logits[:, 1]
    found = attribute(model, inputs, 1, "occlusion", replacement=replacement, internal_batch_size=5)
    assert close(found.scores, expected.detach(), 1e-10)


# What class, which heads.

CLASS_BLIND = ("random", "attention_last", "rollout", "attention_flow", "alti")


@pytest.mark.sliced
@every_method
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "GPT2ForSequenceClassification"])
def test_maps_of_two_classes(architecture: str, method: str) -> None:
    """They differ where the method is class-specific and are the same where it reads attention alone."""
    model, inputs = tiny(architecture)
    found = [explain(model, inputs, target, method).scores for target in (0, 1)]
    if method in CLASS_BLIND:
        assert torch.equal(*found)
    else:
        assert not close(*found, 1e-3)


def test_a_mask_of_heads_keeps_the_total() -> None:
    """What flows through the heads that are left is what would flow through all; every example for itself."""
    model, inputs = tiny("BertForSequenceClassification")
    blocks, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    mask = torch.zeros(blocks, heads)
    mask[0, 1:] = 1  # and a block without any, which stays as it is
    totals = []
    for capture in (CaptureOptions(), CaptureOptions(heads=HeadMask(mask))):
        flow = propagate(model, inputs, 1, ruleset("zplus"), capture=capture)
        assert flow.captured is not None
        maps = [one.arrived for one in flow.captured.maps]
        assert all(one is not None for one in maps)
        totals.append(flow.relevance()[0].flatten(1).sum(1))
    assert (totals[0] - 1).abs().max() < 1e-9
    assert (totals[1] - 1).abs().max() < 1e-9
    assert not maps[0][:, 0].any()
    assert maps[0][:, 1:].any()
    assert maps[1].any()


def test_masks_by_name_need_known_heads(tmp_path: Path) -> None:
    """By default all heads where none are known; by name an error that says what to do; from heads.json once saved."""
    model, inputs = tiny("BertForSequenceClassification")
    shape = (model.config.num_hidden_layers, model.config.num_attention_heads)
    everything = attribute(model, inputs, 1, "mask_lrp", mask=torch.ones(shape)).scores
    assert torch.equal(attribute(model, inputs, 1, "mask_lrp").scores, everything)
    with pytest.raises(ModelError, match=r"relprop heads FOLDER --save"):
        attribute(model, inputs, 1, "mask_lrp", mask="syntactic")
    with pytest.raises(InputError, match="corrupt needs a mask"):
        attribute(model, inputs, 1, "mask_lrp", corrupt=0.5)
    with pytest.raises(InputError, match=rf"shape \(1, 2\), the model {shape[0]} blocks of {shape[1]} heads"):
        attribute(model, inputs, 1, "mask_lrp", mask=torch.ones(1, 2))
    mask = np.zeros(shape, dtype=bool)
    mask[0, 0] = True
    corrupted = attribute(model, inputs, 1, "mask_lrp", mask=mask, corrupt=1.0).scores
    assert close(corrupted, everything, 1e-12)


def test_the_embedded_models_masks_work_by_name() -> None:
    """Its heads are known: the default is "both", and "random" draws as many by the seed."""
    explainer = Explainer()
    text = "a gorgeous, witty, seductive movie."
    default, both = (explainer(text, method="mask_lrp", **options).scores for options in ({}, {"mask": "both"}))
    assert default == both
    plain = explainer(text, method="transformer_attribution").scores
    assert default != plain
    draws = {explainer(text, method="mask_lrp", mask="random", seed=seed).scores for seed in range(4)}
    assert len(draws) > 1
