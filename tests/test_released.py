"""Parity with the papers' released code, array by array; the paper's variant where both agree."""

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification, ViTForImageClassification

from relprop.attribution import attribute
from relprop.methods.flow import max_flows

GOLDEN = Path(__file__).parent / "golden"


@cache
def bert() -> tuple[Any, dict[str, torch.Tensor], Any]:
    arrays = np.load(GOLDEN / "bert/golden.npz")
    model = BertForSequenceClassification.from_pretrained(GOLDEN / "bert", dtype=torch.float64).eval()
    inputs = {name: torch.tensor(arrays[f"a/{name}"]) for name in ("input_ids", "attention_mask")}
    return model, inputs, arrays


@cache
def vit() -> tuple[Any, dict[str, torch.Tensor], Any]:
    arrays = np.load(GOLDEN / "vit/golden.npz")
    model = ViTForImageClassification.from_pretrained(GOLDEN / "vit", dtype=torch.float64).eval()
    return model, {"pixel_values": torch.tensor(arrays["pixel_values"]).double()}, arrays


def distance(found: torch.Tensor, expected: np.ndarray) -> float:
    """Largest difference relative to the largest number."""
    return float(np.abs(found.numpy() - expected).max() / max(np.abs(expected).max(), 1e-12))


BERT_ARRAYS = {
    "chefer/transformer_attribution_start0": ("transformer_attribution", {"variant": "released"}),
    "chefer/transformer_attribution_start1": ("transformer_attribution", {"variant": "released", "start_block": 1}),
    "chefer/transformer_attribution_start2": ("transformer_attribution", {"variant": "released", "start_block": 2}),
    "chefer/full_lrp": ("lrp", {"variant": "released"}),
    "chefer/partial_lrp": ("partial_lrp", {"variant": "released"}),
    "chefer/attn_gradcam": ("grad_cam", {"variant": "released"}),
    "attcat/attcat": ("attcat", {}),
    "masklrp/AttCAT": ("attcat", {}),
    "masklrp/GradCAM_attn": ("grad_cam", {"variant": "released"}),
    "masklrp/CAM_gradcam": ("cam", {}),
    "masklrp/RawAtt": ("attention_last", {"variant": "released"}),
    "masklrp/Rollout": ("rollout", {"variant": "released"}),
    "masklrp/MGAE_nomask": ("mask_lrp", {"variant": "released"}),
    "masklrp/MGAE_M1": ("mask_lrp", {"variant": "released", "mask": "head_mask_M1"}),
    "masklrp/MGAE_M1_start1": ("mask_lrp", {"variant": "released", "mask": "head_mask_M1", "start_block": 1}),
}  # fmt: skip


@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("array", BERT_ARRAYS)
def test_bert(array: str, target: int) -> None:
    model, inputs, arrays = bert()
    method, options = BERT_ARRAYS[array]
    options = {name: torch.tensor(arrays[value]) if name == "mask" else value for name, value in options.items()}
    expected = arrays[f"a/f64/t{target}/{array}"].reshape(-1)
    assert distance(attribute(model, inputs, target, method, **options).scores[0], expected) < 1e-6


@pytest.mark.parametrize("target", [0, 1])
def test_bert_where_the_released_code_only_hides_the_cls_token(target: int) -> None:
    """The paper's rules, all entries but the first, which the released code sets to 0."""
    model, inputs, arrays = bert()
    prefix = f"a/f64/t{target}/chefer"
    for method, array in (("lrp", "full_lrp_ours_rules"), ("partial_lrp", "partial_lrp_ours_rules")):
        scores = attribute(model, inputs, target, method).scores[0]
        assert distance(scores[1:], arrays[f"{prefix}/{array}"][0, 1:]) < 1e-6
    assert distance(attribute(model, inputs, target, "gae").scores[0], arrays[f"a/f64/t{target}/gae/R"][0]) < 1e-9


@pytest.mark.parametrize("start", [0, 1])
def test_bert_attention_alone(start: int) -> None:
    model, inputs, arrays = bert()
    found = attribute(model, inputs, 0, "rollout", variant="released", start_block=start).scores[0]
    assert distance(found, arrays[f"a/f64/chefer/rollout_start{start}"][0]) < 1e-9
    raw = attribute(model, inputs, 0, "attention_last", variant="released").scores[0]
    assert distance(raw, arrays["a/f64/chefer/raw_attention"][0]) < 1e-9


@pytest.mark.parametrize("target", [0, 1])
def test_grad_sam_by_column(target: int) -> None:
    model, inputs, _ = bert()
    arrays = np.load(GOLDEN / "bert/formula_ali_gradsam.npz")
    found = attribute(model, inputs, target, "grad_sam").scores[0]
    assert distance(found, arrays[f"a/f64/t{target}/gradsam_colmean"]) < 1e-9


VIT_ARRAYS = {
    "transformer_attribution_start0": ("transformer_attribution", {}),
    "transformer_attribution_start1": ("transformer_attribution", {"start_block": 1}),
    "transformer_attribution_start2": ("transformer_attribution", {"start_block": 2}),
    "lrp_rollout_start0": ("transformer_attribution", {"ablate": "gradient"}),
    "lrp_rollout_start1": ("transformer_attribution", {"ablate": "gradient", "start_block": 1}),
    "last_layer_ours": ("transformer_attribution", {"ablate": "gradient", "only_block": -1}),
    "last_layer_ablation_ours": ("transformer_attribution", {"only_block": -1}),
    "second_layer_ours": ("transformer_attribution", {"ablate": "gradient", "only_block": 1}),
    "second_layer_ablation_ours": ("transformer_attribution", {"only_block": 1}),
    "last_layer_orig": ("partial_lrp", {"variant": "released"}),
    "gae": ("gae", {}),
}  # fmt: skip


@pytest.mark.parametrize("target", [0, 4])
@pytest.mark.parametrize("array", VIT_ARRAYS)
def test_vit(array: str, target: int) -> None:
    """Patches, without the class token."""
    model, inputs, arrays = vit()
    method, options = VIT_ARRAYS[array]
    found = attribute(model, inputs, target, method, **options).scores[0, 1:]
    assert distance(found, arrays[f"f64/t{target}/{array}"].reshape(-1)) < 1e-4


def test_vit_attention_alone() -> None:
    model, inputs, arrays = vit()
    assert distance(attribute(model, inputs, 0, "rollout").scores[0, 1:], arrays["f64/rollout_start0"][0]) < 1e-4
    assert distance(attribute(model, inputs, 0, "attention_last").scores[0, 1:], arrays["f64/last_layer_attn"]) < 1e-4


@pytest.mark.parametrize("target", [0, 1])
def test_a_mask_of_ones_is_transformer_attribution(target: int) -> None:
    """[Song24] with every head is [Chefer21]; with some heads it is not, and keeps the total."""
    model, inputs, arrays = bert()
    plain = attribute(model, inputs, target, "transformer_attribution").scores
    every = attribute(model, inputs, target, "mask_lrp", mask=torch.ones(3, 4)).scores
    some = attribute(model, inputs, target, "mask_lrp", mask=torch.tensor(arrays["head_mask_M1"])).scores
    assert distance(every, plain.numpy()) < 1e-9
    assert distance(some[0, 1:], plain[0, 1:].numpy()) > 1e-3


@pytest.mark.parametrize("row", [0, 3])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_attention_flow(row: int, blocks: int) -> None:
    """The flows of Abnar's code, from two rows at every height."""
    arrays = np.load(GOLDEN / "bert/golden_alti_flow.npz")
    weights = bert()[2]["a/f64/t0/chefer/attn"].mean(1)[:blocks] + np.eye(11)
    flows = max_flows(weights / weights.sum(-1, keepdims=True), np.eye(11)[row])
    assert distance(torch.tensor(flows), arrays[f"a/f64/abnar/flow_out{row}_layer{blocks - 1}"]) < 1e-6


def test_attention_flow_of_the_model() -> None:
    model, inputs, _ = bert()
    arrays = np.load(GOLDEN / "bert/golden_alti_flow.npz")
    found = attribute(model, inputs, 0, "attention_flow").scores[0]
    assert distance(found, arrays["a/f64/abnar/flow_out0_layer2"]) < 1e-6


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
    assert distance(torch.tensor(max_flows(capacities, readout)), flows / flows.sum()) < 1e-7


def test_the_released_maps_of_a_mask_of_ones_are_doubled() -> None:
    """In the released code a mask of ones is not the same as no mask; in the paper's variant it is."""
    model, inputs, _ = bert()
    ones = torch.ones(3, 4)
    found = [attribute(model, inputs, 0, "mask_lrp", variant="released", mask=mask).scores for mask in (None, ones)]
    assert distance(found[1], found[0].numpy()) > 0.1
