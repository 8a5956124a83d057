"""Tiny random models for tests, with weights large enough that a wrong rule shows."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import relprop.methods  # noqa: F401  (fills the registry)
from relprop.registry import METHODS
from tiny_models import Case, build, cases

# One of each kind: post-norm, shared layers, relative positions, pre-norm, rotary, gated MLP, mixture, encoder-decoder.
CLASSIFIERS = (
    "BertForSequenceClassification",
    "DistilBertForSequenceClassification",
    "RobertaForSequenceClassification",
    "ElectraForSequenceClassification",
    "AlbertForSequenceClassification",
    "DebertaV2ForSequenceClassification",
    "ModernBertForSequenceClassification",
    "XLNetForSequenceClassification",
    "GPT2ForSequenceClassification",
    "LlamaForSequenceClassification",
    "Qwen2MoeForSequenceClassification",
    "T5ForSequenceClassification",
    "BartForSequenceClassification",
)


# Their attention is not one map of all tokens by all tokens a block: methods that need one decline.
OTHERWISE = ("XLNetForSequenceClassification", "T5ForSequenceClassification", "BartForSequenceClassification")

# The rules of [Chefer21] do not say how relevance passes a router's choice of experts.
ROUTED = "Qwen2MoeForSequenceClassification"
BY_ZPLUS = ("lrp", "partial_lrp", "transformer_attribution", "mask_lrp")


def skip_declined(model: Any, method: str) -> None:
    """Skip what a method rightly declines; `test_methods_that_need_maps_say_so` checks that it does, and how."""
    if METHODS[method].maps and type(model).__name__ in OTHERWISE:
        pytest.skip(f"{method} needs attention maps that {type(model).__name__} does not have")
    if method in BY_ZPLUS and type(model).__name__ == ROUTED:
        pytest.skip(f"{method} has no rule for routing")


@cache
def case(architecture: str) -> Case:
    return next(one for one in cases() if one.architecture == architecture)


def tiny(architecture: str, dtype: torch.dtype = torch.float64) -> tuple[Any, dict[str, Tensor]]:
    """A fresh tiny model in eval mode and a batch of 2 x 7 tokens."""
    return build(case(architecture), dtype=dtype)


def named(value: Any) -> str:
    """A test's name for a parameter, the same in every process."""
    return "function" if callable(value) else str(value)
