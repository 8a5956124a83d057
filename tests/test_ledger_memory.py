"""A ledger keeps no tensor of its pass: a service would grow with every request."""

from __future__ import annotations

import gc

import torch

from relprop.explainer import Explainer
from tokenizers_for_tests import tiny


def tensors() -> int:
    gc.collect()
    return sum(type(one) is torch.Tensor for one in gc.get_objects())


def test_nothing_is_kept_of_a_pass_with_a_ledger() -> None:
    explainer = Explainer(*tiny("bert"))
    explainer("a good movie", ledger=True)
    before = tensors()
    for _ in range(3):
        explainer("a good movie", ledger=True)
    assert tensors() <= before
