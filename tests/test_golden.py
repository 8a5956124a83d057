"""Plain Hugging Face models give the numbers of the papers' released code and formulas (float64)."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification

from relprop.attribution import attribute
from relprop.engine.run import Flow, propagate
from relprop.rulebook.rulesets import ruleset

GOLDEN = Path(__file__).parent / "golden"
METHODS = {
    "gradient_x_input": "gi",
    "lrp_ah": "lrp_ah",
    "lrp_ln": "lrp_ln_std",
    "lrp_ah_ln": "lrp_ah_ln_std",
}
PLACES = {"block": "embeddings_output", "word_embeddings": "word_embeddings"}

attention = pytest.mark.parametrize("attention", ["eager", "sdpa"])
target = pytest.mark.parametrize("target", [0, 1])


@cache
def arrays(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name) as stored:
        return dict(stored)


@cache
def model(folder: str, attention: str) -> Any:
    loaded = BertForSequenceClassification.from_pretrained(
        GOLDEN / folder, attn_implementation=attention, dtype=torch.float64
    )
    assert loaded.config._attn_implementation == attention
    return loaded.eval()


def inputs(folder: str) -> dict[str, torch.Tensor]:
    ids = torch.tensor(arrays(f"{folder}/golden.npz")["a/input_ids"])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def distance(found: torch.Tensor, golden: np.ndarray) -> float:
    """Largest difference, relative to the largest golden number."""
    assert found.shape == golden.shape
    return float(np.abs(found.numpy() - golden).max() / np.abs(golden).max())


@attention
@pytest.mark.parametrize("folder", ["ali_bert", "bert"])
def test_the_golden_model_is_the_released_one(folder: str, attention: str) -> None:
    """Logits first: if these differ, no array below means anything."""
    with torch.no_grad():
        logits = model(folder, attention)(**inputs(folder)).logits
    assert distance(logits, arrays(f"{folder}/golden.npz")["a/f64/logits"]) < 1e-7


@attention
@target
@pytest.mark.parametrize("method", METHODS)
def test_released_code_of_ali(attention: str, target: int, method: str) -> None:
    """The attention-only BERT of [Ali22]: GI, LRP(AH), LRP(LN) and LRP(AH+LN)."""
    golden = arrays("ali_bert/golden.npz")
    found = attribute(model("ali_bert", attention), inputs("ali_bert"), target, method)
    assert distance(found.scores, golden[f"a/f64/t{target}/{METHODS[method]}"]) < 1e-6
    assert found.value.item() == pytest.approx(golden["a/f64/logits"][0, target], rel=1e-6)


@attention
@target
@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("method", METHODS)
def test_formulas_on_a_full_bert(attention: str, target: int, at: str, method: str) -> None:
    """The detach formulas of [Ali22] on a BERT with feed-forward layers, at both places where scores are read."""
    golden = arrays("bert/formula_ali_gradsam.npz")[f"a/f64/t{target}/{METHODS[method]}/{PLACES[at]}"]
    found = attribute(model("bert", attention), inputs("bert"), target, method, at=at)
    assert distance(found.scores, golden) < 1e-6


def captured(attention: str, target: int, rules: str) -> Flow:
    return propagate(model("bert", attention), inputs("bert"), target, ruleset(rules), capture=True)


@attention
@target
def test_attention_maps_and_their_gradients(attention: str, target: int) -> None:
    """A_b and G_b, also where the fused kernel never makes the map."""
    golden = arrays("bert/golden.npz")
    flow = captured(attention, target, "gradient")
    assert flow.seen is not None
    maps = torch.cat([one.weights for one in flow.seen.maps])
    gradients = torch.cat([one.arrived for one in flow.seen.maps])
    assert distance(maps, golden[f"a/f64/t{target}/chefer/attn"]) < 1e-9
    assert distance(gradients, golden[f"a/f64/t{target}/chefer/attn_grad"]) < 1e-9


@attention
@target
def test_released_relevance_of_chefer(attention: str, target: int) -> None:
    """R_b and the relevance at the encoder's input, by the rules of [Chefer21]; the total stays 1."""
    golden = arrays("bert/golden.npz")
    flow = captured(attention, target, "zplus")
    assert flow.seen is not None
    relevance = torch.cat([one.arrived for one in flow.seen.maps])
    assert distance(relevance, golden[f"a/f64/t{target}/chefer/attn_cam_ours"]) < 1e-6
    (at_input,) = flow.relevance()
    assert distance(at_input, golden[f"a/f64/t{target}/chefer/relprop_ours_encoder_input"]) < 1e-6
    assert at_input.sum().item() == pytest.approx(1.0, abs=1e-6)
