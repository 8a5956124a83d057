"""SetFit: a sentence encoder and a linear head, of scikit-learn or of torch, as one classifier."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relprop.encoders.text_encoder import TEXT, TextEncoder
from relprop.errors import ModelError


class EncoderClassifier(nn.Module):
    """Logits [batch, classes] of embeddings."""

    def __init__(self, encoder: TextEncoder, head: nn.Module, unit_length: bool, labels: dict[int, str], several: bool):
        super().__init__()
        self.encoder, self.head, self.unit_length = encoder, head, unit_length
        self.max_length, self.prompts = encoder.max_length, encoder.prompts
        self.config = deepcopy(encoder.config)
        if self.config is not None:
            self.config.id2label = labels
            self.config.problem_type = "multi_label_classification" if several else "single_label_classification"
        self.training = False

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        embedding = self.encoder(input_ids, attention_mask, token_type_ids)[TEXT]
        logits = self.head(F.normalize(embedding, p=2, dim=-1) if self.unit_length else embedding)
        return logits if isinstance(logits, Tensor) else logits[0]  # SetFit's own head gives probabilities too


class LinearHead(nn.Module):
    """x W + b with the weights of a linear classifier. Of two classes: minus and plus half of their difference."""

    def __init__(self, weight: Tensor, bias: Tensor, two_classes: bool) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.two_classes = two_classes

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = (self.get_buffer(name).to(device=x.device, dtype=x.dtype) for name in ("weight", "bias"))
        logits = F.linear(x, weight, bias)
        return torch.cat([-logits / 2, logits / 2], -1) if self.two_classes else logits


def setfit_classifier(model: Any, encoder: TextEncoder) -> EncoderClassifier:
    """A SetFit model; raises in one sentence for a head without a gradient."""
    head, unit_length = model.model_head, bool(getattr(model, "normalize_embeddings", False))
    if isinstance(head, nn.Module):
        return EncoderClassifier(encoder, head, unit_length, _labels(model, head), getattr(head, "multitarget", False))
    estimators = getattr(head, "estimators_", None)
    several = estimators is not None
    joined = _linear(estimators if several else [head])
    if joined is None:
        raise _no_gradient(type(head).__name__)
    linear = LinearHead(*joined, two_classes=not several and len(joined[0]) == 1)
    if not _same_probabilities(linear, head, joined[0].shape[1], several):
        raise _no_gradient(type(head).__name__)
    return EncoderClassifier(encoder, linear, unit_length, _labels(model, head), several)


def _linear(estimators: Any) -> tuple[Tensor, Tensor] | None:
    """The weights of linear classifiers, one under the other; None where they have none."""
    weights, biases = [], []
    for one in estimators:
        weight, bias = getattr(one, "coef_", None), getattr(one, "intercept_", None)
        if weight is None or bias is None:
            return None
        weights.append(np.atleast_2d(np.asarray(weight, dtype=np.float64)))
        biases.append(np.broadcast_to(np.asarray(bias, dtype=np.float64), len(weights[-1])))
    if len({weight.shape[1] for weight in weights}) != 1:  # each of a chain also reads what those before it say
        return None
    return torch.from_numpy(np.concatenate(weights)), torch.from_numpy(np.concatenate(biases))


def _same_probabilities(linear: LinearHead, head: Any, size: int, several: bool) -> bool:
    """Whether the head's own probabilities are those of the logits, tried on a few vectors."""
    x = torch.randn(4, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits = linear(x)
    try:
        own = head.predict_proba(x.numpy())
    except (AttributeError, ValueError):
        return False
    if several and isinstance(own, list):  # per label those of no and yes
        own = np.stack([np.asarray(one)[:, -1] for one in own], 1)
    ours = (logits.sigmoid() if several else logits.softmax(-1)).numpy()
    return ours.shape == np.shape(own) and bool(np.allclose(ours, own, atol=1e-6))


def _no_gradient(kind: str) -> ModelError:
    return ModelError(
        f"the SetFit model's head is a {kind}, whose probabilities are not made of linear scores that a gradient could "
        "pass: relprop explains fitted logistic regressions of scikit-learn and heads of torch"
    )


def _labels(model: Any, head: Any) -> dict[int, str]:
    names = getattr(model, "labels", None)
    if names is None:
        names = getattr(head, "classes_", None)
    count = getattr(head, "out_features", None)
    if names is None or (isinstance(names, list) and any(isinstance(one, np.ndarray) for one in names)):
        names = range(count or len(getattr(head, "estimators_", ())))
    return {index: str(name) for index, name in enumerate(names)}
