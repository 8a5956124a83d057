"""The golden models and their passes, and what the released code made of them, put together from relprop's parts."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import BertForQuestionAnswering, BertForSequenceClassification, ViTForImageClassification

from relprop.engine.capture import CaptureOptions, HeadMask
from relprop.engine.decompose import AttentionSubBlock, decompose
from relprop.engine.passes import propagate
from relprop.methods.decomposition import Measure, contributions
from relprop.methods.flow import max_flows
from relprop.rulebook import rulesets
from relprop.rulebook.rulesets import RuleSet

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
ATTENTION = ("eager", "sdpa")
MODELS = {
    "bert": BertForSequenceClassification,
    "ali_bert": BertForSequenceClassification,
    "vit": ViTForImageClassification,
    "bert_qa": BertForQuestionAnswering,
}
KEY = re.compile(r"(?:a/)?f64/(?:(t\d+|start|end)/)?(.+)")
MASKS = {
    "M1": torch.tensor([[1.0, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]]),
    # Not stored with the arrays: found from attn_cam_M2 and full_lrp_M2 at target 0, the only one of 4096 that fits.
    "M2": torch.tensor([[0.0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]]),
}


@cache
def arrays(file: str) -> dict[str, NDArray[Any]]:
    with np.load(GOLDEN / file) as stored:
        return dict(stored)


def keys(file: str) -> list[str]:
    return [key for key in arrays(file) if KEY.fullmatch(key)]


def parsed(key: str) -> tuple[Any, str]:
    """The target and the name of an array; what does not depend on the target has target 0."""
    match = KEY.fullmatch(key)
    assert match is not None, key
    target, name = match.groups()
    return (int(target[1:]) if target and target[0] == "t" else target or 0), name


FILES = tuple(f"{folder}/{path.name}" for folder in MODELS for path in sorted((GOLDEN / folder).glob("*.npz")))


@dataclass(frozen=True)
class Case:
    """A golden model under one attention implementation, and the target."""

    folder: str
    attention: str
    target: Any

    @property
    def model(self) -> Any:
        return _model(self.folder, self.attention)

    @property
    def inputs(self) -> dict[str, Tensor]:
        stored = arrays(f"{self.folder}/golden.npz")
        if self.folder == "vit":
            return {"pixel_values": torch.tensor(stored["pixel_values"]).double()}
        prefix = "" if self.folder == "bert_qa" else "a/"
        ids = torch.tensor(stored[f"{prefix}input_ids"])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@cache
def _model(folder: str, attention: str) -> Any:
    loaded = MODELS[folder].from_pretrained(GOLDEN / folder, attn_implementation=attention, dtype=torch.float64)
    assert loaded.config._attn_implementation == attention
    return loaded.eval()


@dataclass(frozen=True)
class Passed:
    """What one pass found: A_b and what reached it [blocks, heads, queries, keys], and the relevance at the source."""

    weights: Tensor
    arrived: Tensor
    source: Tensor


@cache
def passed(case: Case, rules: str, mask: str | None = None) -> Passed:
    """A pass by the "gradient", by the "paper" or "released" rules of [Chefer21], or by those with the "broadcast"."""
    heads = None if mask is None else HeadMask(MASKS[mask], late=True)
    flow = propagate(case.model, case.inputs, case.target, RULES[rules](case), capture=CaptureOptions(heads=heads))
    assert flow.captured is not None
    weights, arrived = (
        torch.cat([getattr(one, name) for one in flow.captured.maps]) for name in ("weights", "arrived")
    )
    return Passed(weights, arrived, flow.relevance()[0])


def constant_mean(at: Any = None) -> Callable[[Case], Tensor]:
    """LRP (AH+LN) with the mean of a LayerNorm constant too."""

    def layer_norm(func: Any, x: Tensor, shape: Any, weight: Tensor, bias: Tensor, eps: float, *_: Any) -> Tensor:
        mean, variance = x.detach().mean(-1, keepdim=True), x.detach().var(-1, unbiased=False, keepdim=True)
        return (x - mean) / (variance + eps).sqrt() * weight + bias

    rules = rulesets.lrp_ah_ln | RuleSet("constant_mean", {"layer_norm": layer_norm})
    return lambda case: propagate(case.model, case.inputs, case.target, rules, at=at).relevance()[0].sum(-1)


def _broadcast(case: Case) -> RuleSet:
    """The paper's rules with the released code's slip for question answering: the answer row's R goes to every row."""
    head, plain = case.model.qa_outputs.weight, rulesets.zplus_rules["linear"]

    def linear(func: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
        if weight.data_ptr() == head.data_ptr():
            x = x.view_as(x)
            x.register_hook(lambda r: r.sum(1, keepdim=True).expand_as(r) / r.shape[1])
        return plain(func, x, weight, bias)

    return rulesets.zplus_rules | RuleSet("broadcast", {"linear": linear}, carries="relevance")


RULES: dict[str, Callable[[Case], RuleSet]] = {
    "gradient": lambda case: rulesets.gradient,
    "paper": lambda case: rulesets.zplus_rules,
    "released": lambda case: rulesets.zplus_released,
    "broadcast": _broadcast,
}


def gamma_model(case: Case) -> Any:
    """The released gamma rule changes the model: output projections become W + 0.01 W+."""
    model = copy.deepcopy(case.model)
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            dense = layer.attention.output.dense
            dense.weight.copy_(_raised(dense.weight))
            dense.bias.copy_(_raised(dense.bias))
    return model


def _raised(weight: Tensor) -> Tensor:
    return weight + 0.01 * weight.clamp_min(0)


def gamma(name: str) -> Callable[[Case], Tensor]:
    """... and the values' projections share out by W + 0.01 W+."""

    def found(case: Case) -> Tensor:
        model = gamma_model(case)
        values = {layer.attention.self.value.weight.data_ptr() for layer in model.bert.encoder.layer}

        def linear(func: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Any:
            y = func(x, weight, bias)
            if weight.data_ptr() not in values:
                return y
            raised = func(x, _raised(weight), _raised(bias))
            return raised * (y / raised).detach()

        rules = rulesets.ruleset(name) | RuleSet("gamma", {"linear": linear})
        return propagate(model, case.inputs, case.target, rules).relevance()[0].sum(-1)

    return found


def relevance_of_values(case: Case) -> Tensor:
    """Relevance at the values of every block, by the paper's rules."""
    reached: list[Tensor] = []
    plain = rulesets.zplus_rules["matmul"]

    def matmul(func: Any, a: Tensor, b: Tensor) -> Any:
        if a.shape[-1] == a.shape[-2]:
            b.register_hook(lambda r: reached.insert(0, r))
        return plain(func, a, b)

    rules = rulesets.zplus_rules | RuleSet("values", {"matmul": matmul}, carries="relevance")
    propagate(case.model, case.inputs, case.target, rules)
    return torch.cat(reached)


def gradient_times(rules: str, block: int) -> Callable[[Case], Tensor]:
    """E_h (G_b * R_b)+ of one block, the class token's row, for the patches."""

    def found(case: Case) -> Tensor:
        product = passed(case, "gradient").arrived[block] * passed(case, rules).arrived[block]
        return product.clamp_min(0).mean(0)[0, 1:]

    return found


def mean_attention(case: Case) -> NDArray[Any]:
    return passed(case, "gradient").weights.mean(1).numpy()


def with_residual(case: Case) -> NDArray[Any]:
    weights = mean_attention(case)
    weights = weights + np.eye(weights.shape[-1])
    return weights / weights.sum(-1, keepdims=True)  # type: ignore[no-any-return]


def rolled(matrices: Any) -> NDArray[Any]:
    product = matrices[0]
    for matrix in matrices[1:]:
        product = matrix @ product
    return product  # type: ignore[no-any-return]


def flows(case: Case, blocks: int) -> NDArray[Any]:
    """Maximum flows [rows, tokens], from every row above the first `blocks` blocks."""
    weights = with_residual(case)[:blocks]
    return np.stack([max_flows(weights, row) for row in np.eye(weights.shape[-1])])


def gae_matrix(case: Case) -> NDArray[Any]:
    seen = passed(case, "gradient")
    cams = (seen.weights * seen.arrived).clamp_min(0).mean(1)
    return rolled((cams + torch.eye(cams.shape[-1])).numpy())


def token_vectors(case: Case) -> list[tuple[Tensor, Tensor]]:
    """ALTI's T_ij [rows, tokens, features] and y_i [rows, features] of every block."""
    found: list[tuple[Tensor, Tensor]] = []

    def use(mixing: AttentionSubBlock) -> Tensor:
        t = torch.stack(list(mixing.vectors()), 2)[0]
        found.append((t, mixing.output.detach().reshape(t[:, 0].shape)))
        return t

    decompose(case.model, case.inputs, use)
    return found


def block_shares(measure: Measure) -> Callable[[Case], NDArray[Any]]:
    """ALTI's contributions [blocks, rows, tokens]."""
    return lambda case: torch.cat(decompose(case.model, case.inputs, lambda m: contributions(m, measure))).numpy()


def head_contributions(mask: str | None, factor: float) -> Callable[[Case], Tensor]:
    """The released code's `head_contrs`: the mean of G_b * R_b per head."""
    return lambda case: factor * (passed(case, "gradient").arrived * passed(case, "paper", mask).arrived).mean((-2, -1))


def without_cls(scores: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(scores[..., :1]), scores[..., 1:]], -1)


def mean_of_rows(matrix: NDArray[Any]) -> NDArray[Any]:
    """The released code's baselines for question answering: the mean over rows, [CLS] on [CLS] set to 0."""
    matrix = matrix.copy()
    matrix[0, 0] = 0
    return matrix.mean(0)  # type: ignore[no-any-return]


def mask_lrp_with_slip(mask: str | None, factor: float) -> Callable[[Case], NDArray[Any]]:
    def found(case: Case) -> NDArray[Any]:
        product = passed(case, "gradient").arrived * factor * passed(case, "broadcast", mask).arrived
        abar = (product.clamp_min(0).mean(1) + torch.eye(product.shape[-1])).numpy()
        index = int(arrays("bert_qa/golden.npz")[f"f64/{case.target}/index"])
        return rolled(abar / abar.sum(-1, keepdims=True))[index]  # type: ignore[no-any-return]

    return found
