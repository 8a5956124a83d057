"""Where papers and released code part: each difference of docs/released.md by itself. Arrays: test_golden.py."""

import itertools
import re
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

from golden_cases import MASKS, Case, arrays, passed
from released_rules import Rules, released_bert
from relprop.attribution import attribute
from relprop.engine.capture import CaptureOptions, HeadMask
from relprop.engine.passes import propagate
from relprop.engine.propagation import Propagation
from relprop.methods.flow import max_flows
from relprop.rulebook import rulesets
from relprop.rulebook.pixels import down_to_pixels

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "released.md"
BERT = Case("bert", "sdpa", 0)


def scores(method: str, case: Case = BERT, **options: Any) -> Tensor:
    return attribute(case.model, case.inputs, case.target, method, **options).scores[0]


def distance(found: Any, expected: Any) -> float:
    """Largest difference relative to the largest number."""
    found, expected = np.asarray(found), np.asarray(expected)
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-12))


# The rules, on models and inputs that no golden array is of


def another_bert(seed: int, heads: int = 3) -> tuple[Any, Tensor]:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=2 + seed % 3, num_attention_heads=heads, intermediate_size=40,
        max_position_embeddings=20, num_labels=3, initializer_range=(0.3, 0.1)[seed % 2],
    )  # fmt: skip
    return BertForSequenceClassification(config).double().eval(), torch.randint(5, 50, (1, 4 + seed % 9))


RULES = {
    "paper": (rulesets.zplus_rules, Rules(ours=True, stabiliser=0), 1e-9),
    "released": (rulesets.zplus_stabilised, Rules(ours=True), 1e-6),
    "released LRP": (rulesets.zplus_released, Rules(ours=False), 1e-6),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(12))
def test_the_rules_hold_on_other_models_and_inputs(seed: int, name: str) -> None:
    """Against a second writing of them without an engine, at every map and at the first block's input."""
    model, ids = another_bert(seed)
    rules, theirs, tolerance = RULES[name]
    slow = released_bert(model, ids, seed % 3, theirs)
    flow = propagate(model, {"input_ids": ids}, seed % 3, rules, capture=CaptureOptions())
    assert flow.captured is not None
    assert distance(torch.cat([one.arrived for one in flow.captured.maps]), slow.maps) < tolerance
    assert distance(flow.relevance()[0], slow.source) < tolerance


@pytest.mark.parametrize("seed", range(6))
def test_the_released_masking_holds_on_other_models_and_inputs(seed: int) -> None:
    model, ids = another_bert(seed)
    mask = (torch.rand(2 + seed % 3, 3) > 0.4).double()
    slow = released_bert(model, ids, seed % 3, Rules(ours=True, stabiliser=0), mask)
    capture = CaptureOptions(heads=HeadMask(mask, late=True))
    flow = propagate(model, {"input_ids": ids}, seed % 3, rulesets.zplus_rules, capture=capture)
    assert flow.captured is not None
    assert distance(2 * torch.cat([one.arrived for one in flow.captured.maps]), slow.maps) < 1e-9
    assert distance(flow.relevance()[0], slow.source) < 1e-9


@pytest.mark.parametrize("target", [0, 1])
def test_the_released_code_divides_by_a_little_more(target: int) -> None:
    """The second writing with the stabiliser is the released code to 1e-11: it explains all that is left."""
    golden = arrays("bert/golden.npz")
    case = Case("bert", "eager", target)
    for ours, name in ((True, "ours"), (False, "orig")):
        slow = released_bert(case.model, case.inputs["input_ids"], target, Rules(ours))
        assert distance(slow.maps, golden[f"a/f64/t{target}/chefer/attn_cam_{name}"]) < 1e-11
        assert distance(slow.source, golden[f"a/f64/t{target}/chefer/relprop_{name}_encoder_input"]) < 1e-11
    for name, mask in MASKS.items():
        slow = released_bert(case.model, case.inputs["input_ids"], target, Rules(ours=True), mask)
        assert distance(slow.maps, golden[f"a/f64/t{target}/masklrp/attn_cam_{name}"]) < 1e-11


def back(rules: rulesets.RuleSet, f: Any, *xs: Tensor, seed: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in xs]
    with Propagation(rules):
        y = f(*(leaf.clone() for leaf in leaves))
    return list(torch.autograd.grad(y, leaves, seed))


def test_a_layer_of_the_released_lrp_returns_up_to_twice_the_relevance() -> None:
    """x+W+ and x-W- each get all of R; by the paper's rule they share it."""
    x, weight = torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0, -3.0]])
    for rules, expected in ((rulesets.zplus_rules, [[0.4, 0.6]]), (rulesets.zplus_released, [[1.0, 1.0]])):
        (found,) = back(rules, lambda x: F.linear(x, weight), x, seed=torch.ones(1, 1))
        assert torch.allclose(found, torch.tensor(expected))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("active", [2, 4])
def test_an_output_without_positive_products_gives_nothing(active: int, seed: int) -> None:
    """Z = 0 exactly: no noise of rounding may stand for it, also where few of many rows have relevance."""
    rng = torch.Generator().manual_seed(seed)
    x, relevance = torch.zeros(1, 11, 48, dtype=torch.float64), torch.zeros(1, 11, 256, dtype=torch.float64)
    x[..., :active] = torch.rand(1, 11, active, dtype=torch.float64, generator=rng)
    relevance[:, 0] = torch.rand(256, dtype=torch.float64, generator=rng)
    weight, bias = (torch.randn(*shape, dtype=torch.float64, generator=rng) for shape in ((256, 48), (256,)))
    positive = (x[0, 0] * weight).clamp_min(0)
    total = positive.sum(1, keepdim=True)
    expected = (torch.where(total > 0, positive / total, 0) * relevance[0, 0, :, None]).sum(0)
    (found,) = back(rulesets.zplus_rules, lambda x: F.linear(x, weight, bias), x, seed=relevance)
    assert (total == 0).any()
    assert distance(found[0, 0], expected) < 1e-9


def test_the_released_lrp_leaves_sums_unscaled() -> None:
    """Of 3 + (-2) the shares are 3 and -2; by the paper's rule 3/5 and 2/5, so that the parts stay within the whole."""
    u, v = torch.tensor([[3.0]]), torch.tensor([[-2.0]])
    for rules, expected in ((rulesets.zplus_rules, [0.6, 0.4]), (rulesets.zplus_released, [3.0, -2.0])):
        found = back(rules, torch.add, u, v, seed=torch.ones(1, 1))
        assert torch.allclose(torch.cat(found).flatten(), torch.tensor(expected))


@pytest.mark.parametrize("method", ["lrp", "partial_lrp", "transformer_attribution", "mask_lrp"])
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_a_batch_is_explained_as_its_examples_are(method: str, variant: str) -> None:
    """The released Add rule sums over the whole batch; both variants here sum over each example."""
    ids = BERT.inputs["input_ids"]
    batch = torch.cat([ids, ids.flip(1)])
    together = attribute(BERT.model, {"input_ids": batch}, 0, method, variant=variant).scores
    for found, one in zip(together, batch, strict=True):
        alone = attribute(BERT.model, {"input_ids": one[None]}, 0, method, variant=variant).scores[0]
        assert distance(found, alone) < 1e-9


# Pixels


def test_pixels_by_the_bounded_rule() -> None:
    """z^B by loops: R_j = sum_i (x_j w_ji - l w+_ji - h w-_ji) / sum_j (...) R_i; l and h are each image's own."""
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 3, 4, 4).double(), torch.randn(5, 3, 2, 2).double(), torch.randn(5).double()
    relevance = torch.randn(2, 5, 2, 2).double()
    rules = down_to_pixels(rulesets.zplus_rules)
    (found,) = back(rules, lambda x: F.conv2d(x, weight, bias, stride=2), x, seed=relevance)
    expected = torch.zeros_like(x)
    for image, channel, row, column in itertools.product(range(2), range(5), range(2), range(2)):
        patch = x[image, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        w, low, high = weight[channel], x[image].min(), x[image].max()
        z = patch * w - low * w.clamp_min(0) - high * w.clamp_max(0)
        share = z / z.sum() * relevance[image, channel, row, column]
        expected[image, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] += share
    assert distance(found, expected) < 1e-12
    assert torch.allclose(found.sum((1, 2, 3)), relevance.sum((1, 2, 3)))


def test_only_the_first_convolution_reads_pixels() -> None:
    """A second one gets the z+ rule, as without pixels."""
    torch.manual_seed(0)
    x, first, second = torch.randn(1, 3, 4, 4), torch.randn(4, 3, 2, 2), torch.randn(2, 4, 2, 2)
    seed = torch.rand(1, 2, 2, 2)
    middle = F.conv2d(x, first)
    (reached,) = back(rulesets.zplus_rules, lambda y: F.conv2d(y, second), middle, seed=seed)
    rules = down_to_pixels(rulesets.zplus_rules)
    (expected,) = back(rules, lambda x: F.conv2d(x, first), x, seed=reached)
    (found,) = back(rules, lambda x: F.conv2d(F.conv2d(x, first), second), x, seed=seed)
    assert torch.allclose(found, expected, atol=1e-6)


def test_position_embeddings_take_a_share_on_the_way_to_pixels() -> None:
    """As in the released code; elsewhere constants take nothing, and neither do masks."""
    x, positions = torch.tensor([[[3.0]]]), torch.tensor([[[1.0]]])
    for rules, share in ((rulesets.zplus_rules, 1.0), (down_to_pixels(rulesets.zplus_rules), 0.75)):
        (found,) = back(rules, lambda x: x + positions, x, seed=torch.ones(1, 1, 1))
        assert found.item() == pytest.approx(share)
    mask = torch.tensor([[[0.0, -torch.inf]]])
    seed = torch.tensor([[[1.0, 0.0]]])
    (found,) = back(down_to_pixels(rulesets.zplus_rules), lambda x: x + mask, torch.rand(1, 1, 2), seed=seed)
    assert torch.equal(found, seed)


def test_images_of_a_batch_have_their_own_range() -> None:
    case = Case("vit", "sdpa", 0)
    pixels = case.inputs["pixel_values"]
    both = attribute(case.model, {"pixel_values": torch.cat([3 * pixels.flip(3), pixels])}, 0, "lrp", at="input")
    assert both.scores.shape == (2, 32 * 32)
    assert distance(both.scores[1], scores("lrp", case, at="input")) < 1e-9


# Reading


@pytest.mark.parametrize("method", ["attention_last", "rollout", "cam", "lrp", "partial_lrp", "mask_lrp"])
def test_the_released_code_overwrites_the_read_out_tokens_score(method: str) -> None:
    """With 0; the paper's variant keeps it. Where rules and scaling agree, nothing else differs."""
    case = Case("bert", "sdpa", 1)
    released, paper = scores(method, case, variant="released"), scores(method, case)
    assert released[0] == 0
    assert paper[0] > 0 or method in ("cam", "lrp")  # those two happen to be 0 or less here
    if method in ("attention_last", "rollout", "cam"):
        assert torch.equal(released[1:], paper[1:])


def test_the_released_cam_overwrites_a_score_that_is_not_zero() -> None:
    """The golden arrays cannot tell: their [CLS] scores are 0 anyway."""
    model, ids = another_bert(1)
    found = {v: attribute(model, {"input_ids": ids}, 0, "cam", variant=v).scores[0] for v in ("paper", "released")}
    assert found["paper"][0] > 0
    assert found["released"][0] == 0
    assert torch.equal(found["paper"][1:], found["released"][1:])


def test_released_transformer_attribution_normalises_rows_on_bert() -> None:
    """Each row of I + E_h (G_b * R_b)+ sums to 1, and [CLS] gets the smallest score; the paper has neither."""
    g, r = passed(BERT, "gradient").arrived, passed(BERT, "paper").arrived
    plain = [torch.eye(11) + one for one in (g * r).clamp_min(0).mean(1)]
    normal = [one / one.sum(-1, keepdim=True) for one in plain]
    paper, released = ((m[2] @ m[1] @ m[0])[0] for m in (plain, normal))
    assert distance(scores("transformer_attribution"), paper) < 1e-9
    found = scores("transformer_attribution", variant="released")
    assert distance(found[1:], released[1:]) < 1e-7  # the stabiliser
    assert found[0] == found[1:].min()
    assert distance(paper[1:], released[1:]) > 1e-3


def test_rows_read_by_default_are_the_read_out_and_all_on_request() -> None:
    """[Ali22]'s scripts sum all rows, for attention, rollout and GAE."""
    weights = passed(BERT, "gradient").weights.mean(1)
    assert distance(scores("attention_last"), weights[-1, 0]) < 1e-9
    assert distance(scores("attention_last", readout="all"), weights[-1].sum(0)) < 1e-9
    assert distance(scores("rollout", readout="all").sum(), 11) < 1e-9
    assert distance(scores("gae", readout="all"), scores("gae")) > 0.1


# What the released code reads off one row, and where padding receives nothing.
UNPADDED = ("attention_last", "rollout", "gae", "lrp", "partial_lrp", "mask_lrp")


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("attention_last", {"readout": "all"}),
        ("rollout", {"readout": "all"}),
        ("gae", {"readout": "all"}),
        ("gae", {"variant": "released"}),
        ("gae", {"variant": "released", "readout": "all"}),
        ("cam", {}),
        ("grad_cam", {}),
        ("grad_cam", {"weigh_by": "row"}),
        ("grad_sam", {}),
        ("grad_sam", {"mean_over": "keys"}),
        ("attcat", {}),
        *((method, {"variant": "released"}) for method in UNPADDED),
    ],
)
def test_padding_changes_nothing(method: str, options: dict[str, Any]) -> None:
    case = Case("bert", "sdpa", 1)
    ids = case.inputs["input_ids"]
    padded = {"input_ids": F.pad(torch.cat([ids, ids.flip(1)]), (0, 4)),
              "attention_mask": F.pad(torch.ones(2, 11, dtype=torch.long), (0, 4))}  # fmt: skip
    found = attribute(case.model, padded, 1, method, **options).scores
    assert distance(found[0, :11], scores(method, case, **options)) < 1e-9
    assert not found[:, 11:].any()


def padded(case: Case, count: int) -> dict[str, Tensor]:
    ids = case.inputs["input_ids"]
    return {"input_ids": F.pad(ids, (0, count)), "attention_mask": F.pad(torch.ones_like(ids), (0, count))}


def released_scores(case: Case, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The baselines of [Chefer21], [Song24] and [Ali22] as their code has them: it does not know of padding."""
    out = case.model(**inputs, output_attentions=True, output_hidden_states=True)
    a, h = out.attentions, out.hidden_states[: len(out.attentions)]
    grads = torch.autograd.grad(out.logits[0, case.target], [*a, *h])
    g, dh = grads[: len(a)], grads[len(a) :]
    cam = g[-1][0].mean((0, 1)).clamp_min(0)
    weighed = (a[-1][0] * g[-1][0].mean((1, 2), keepdim=True)).mean(0).clamp_min(0)
    weighed = (weighed - weighed.min()) / (weighed.max() - weighed.min())
    row = (a[-1][0, :, 0] * g[-1][0, :, 0, 1:].mean(1)[:, None]).mean(0).clamp_min(0)
    row[1:] = (row[1:] - row[1:].min()) / (row[1:].max() - row[1:].min())
    attcat = sum((x * dx).sum(-1)[0] * one[0].mean((0, 1)) for x, dx, one in zip(h, dh, a, strict=True))
    assert isinstance(attcat, Tensor)
    sums = a[-1][0].mean(0).sum(0)
    found = {"cam": cam, "grad_cam": weighed[0], "grad_cam by row": row, "attcat": attcat, "attention_last": sums}
    return {name: one.detach() for name, one in found.items()}


@pytest.mark.parametrize("count", [0, 4])
@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_released_code_counts_padding(attention: str, target: int, count: int) -> None:
    """Its means and scales are over every row; only the padding's own scores are 0 here."""
    case = Case("bert", attention, target)
    inputs = padded(case, count)
    expected = released_scores(Case("bert", "eager", target), inputs)
    for name, options in {
        "cam": {},
        "grad_cam": {},
        "grad_cam by row": {"weigh_by": "row"},
        "attcat": {},
        "attention_last": {"readout": "all"},
    }.items():
        method = name.split()[0]
        found = attribute(case.model, inputs, target, method, variant="released", **options).scores[0]
        own = slice(0 if method in ("attcat", "attention_last") else 1, 11)  # [CLS] is overwritten in the others
        assert distance(found[own], expected[name][own]) < 1e-9
        assert not found[11:].any()
        paper = attribute(case.model, inputs, target, method, **options).scores[0]
        assert count == 0 or distance(paper[own], expected[name][own]) > 1e-3 or not expected[name][own].any()


def test_the_released_transformer_attribution_counts_padding_as_the_smallest() -> None:
    """[CLS] gets the smallest score of the row, which is that of padding: 0."""
    found = scores("transformer_attribution", variant="released")
    inputs = padded(BERT, 4)
    more = attribute(BERT.model, inputs, BERT.target, "transformer_attribution", variant="released").scores[0]
    assert distance(more[1:11], found[1:]) < 1e-9
    assert found[0] > more[0] == 0


@pytest.mark.parametrize("target", [0, 1])
def test_the_released_rules_hold_under_padding(target: int) -> None:
    """The second writing of the rules with the mask added to the scores, as the released code adds it."""
    case = Case("bert", "sdpa", target)
    inputs = padded(case, 4)
    slow = released_bert(case.model, inputs["input_ids"], target, Rules(ours=False), padding=inputs["attention_mask"])
    found = attribute(case.model, inputs, target, "lrp", variant="released").scores[0]
    assert distance(found[1:11], slow.source.sum(-1)[0, 1:11]) < 1e-6
    found = attribute(case.model, inputs, target, "partial_lrp", variant="released").scores[0]
    assert distance(found[1:11], slow.maps[-1].clamp_min(0).mean(0)[0, 1:11]) < 1e-6


def test_released_gae_is_scaled() -> None:
    """As in [Ali22]'s IMDB script: the least score is 0, the largest 1, and the order is the paper's."""
    paper, released = scores("gae")[1:], scores("gae", variant="released")
    assert released[0] == released.min() == 0
    assert released.max() == 1
    assert torch.equal(paper.argsort(), released[1:].argsort())


def test_released_grad_cam_is_scaled_and_never_nan() -> None:
    """The released code divides by the largest, which may be 0: NaN. Here such a map is 0."""
    case = Case("bert", "sdpa", 1)
    paper, released = scores("grad_cam", case), scores("grad_cam", case, variant="released")
    assert 0 < released.max() <= 1
    assert distance(released[1:] / released[1:].max(), paper[1:] / paper[1:].max()) < 1e-9
    model, ids = another_bert(0, heads=1)  # one head: for a target or for its negative no number of the map is positive
    for options in ({}, {"weigh_by": "row"}):
        found = [
            attribute(model, {"input_ids": ids}, target, "grad_cam", variant="released", **options).scores
            for target in (lambda outputs: outputs.logits[:, 0], lambda outputs: -outputs.logits[:, 0])
        ]
        assert sorted(one.max().item() > 0 for one in found) == [False, True]
        assert all(one.isfinite().all() for one in found)


def test_grad_cam_by_the_row_leaves_the_class_token_out() -> None:
    """ViT's way: head weights from the read-out row without its own token."""
    seen = passed(BERT, "gradient")
    weight = seen.arrived[-1][:, 0, 1:].mean(1)
    expected = (weight[:, None] * seen.weights[-1][:, 0]).sum(0).clamp_min(0)
    assert distance(scores("grad_cam", weigh_by="row"), expected) < 1e-9


def test_grad_sam_by_key_and_by_query() -> None:
    """Both axes have the same total; the paper's code was never released."""
    by_key, by_query = scores("grad_sam"), scores("grad_sam", mean_over="keys")
    assert by_key.sum().item() == pytest.approx(by_query.sum().item())
    assert distance(by_key, by_query) > 0.1


# Masks


@pytest.mark.parametrize("target", [0, 1])
def test_a_mask_of_ones_is_transformer_attribution(target: int) -> None:
    """[Song24] with every head is [Chefer21]; with some heads it is not."""
    case = Case("bert", "sdpa", target)
    plain = scores("transformer_attribution", case)
    assert distance(scores("mask_lrp", case, mask=torch.ones(3, 4)), plain) < 1e-9
    assert distance(scores("mask_lrp", case, mask=MASKS["M1"])[1:], plain[1:]) > 1e-3


def test_the_released_maps_of_a_mask_of_ones_are_doubled() -> None:
    """In the released code a mask of ones is not the same as no mask; in the paper's variant it is."""
    none, ones = (scores("mask_lrp", variant="released", mask=mask) for mask in (None, torch.ones(3, 4)))
    assert distance(ones, none) > 0.1


@pytest.mark.parametrize("late", [False, True])
def test_masked_relevance_keeps_its_total(late: bool) -> None:
    """In the paper what passes the mask is scaled up to what came; in the released code the rest is lost."""
    capture = CaptureOptions(heads=HeadMask(MASKS["M1"], late=late))
    flow = propagate(BERT.model, BERT.inputs, 0, rulesets.zplus_rules, capture=capture)
    total = flow.relevance()[0].sum().item()
    assert (abs(total - 1) < 1e-9) != late


@pytest.mark.parametrize("part", ["start", "end"])
def test_the_relevance_of_an_answer_starts_at_its_row(part: str) -> None:
    """The released code spreads it over all 15 rows."""
    case = Case("bert_qa", "sdpa", part)
    golden = arrays("bert_qa/golden.npz")
    found = passed(case, "paper").arrived[-1].abs().sum((0, 2)).nonzero().flatten().tolist()
    assert found == [int(golden[f"f64/{part}/index"])]
    assert (np.abs(golden[f"f64/{part}/attn_cam_nomask"][-1]).sum((0, 2)) > 0).all()


# Flow


def test_attention_flow_equals_networkx() -> None:
    """A slow, independent solver on a small random graph with two rows read."""
    rng = np.random.default_rng(0)
    capacities = rng.random((2, 4, 4))
    capacities /= capacities.sum(-1, keepdims=True)
    readout = np.array([0.3, 0, 0.7, 0])
    graph = networkx.DiGraph()
    for row, weight in enumerate(readout):
        graph.add_edge("read", (2, row), capacity=weight)
    for block, row, column in itertools.product(range(2), range(4), range(4)):
        graph.add_edge((block + 1, row), (block, column), capacity=capacities[block, row, column])
    flows = np.array([networkx.maximum_flow_value(graph, "read", (0, token)) for token in range(4)])
    assert distance(max_flows(capacities, readout), flows / flows.sum()) < 1e-7


# The page


def test_every_test_that_the_page_names_exists() -> None:
    page = PAGE.read_text()
    defined = {
        name for path in TESTS.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
    named = re.findall(r"`(test_\w+)`", page)
    assert len(named) > 15
    assert not set(named) - defined
    rows = [row for row in page.split("<!--")[0].splitlines() if row.startswith("| ") and "---" not in row]
    unproved = [row for row in rows if "`test_" not in row and not row.startswith("| what ")]
    assert not unproved, "a difference without a test"
