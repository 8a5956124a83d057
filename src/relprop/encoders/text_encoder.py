"""A text's embedding as one computation: a Transformer, then pooling, dense layers and a norm."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relprop.errors import ModelError
from relprop.outputs import output_field

Features = dict[str, Any]  # what goes from step to step, by the names that sentence-transformers gave them
TOKENS, TEXT = "token_embeddings", "sentence_embedding"


class TextEncoder(nn.Module):
    """Texts to embeddings. `TextEncoder(model, pooling="cls")` pools the last states of a Transformer.

    `steps` follow one another on a dict of features, as the modules of sentence-transformers do. What the explanation
    must say of the encoder: `pooling`, by name; `similarity`, how its authors compare embeddings; `prompts`, which
    stand before the first and the second text of a pair; `skipped`, the tokens that late interaction leaves out.
    """

    def __init__(
        self,
        model: nn.Module,
        pooling: str = "mean",
        *,
        similarity: str = "cosine",
        steps: Sequence[nn.Module] | None = None,
        max_length: int | None = None,
        prompts: tuple[str, str] = ("", ""),
        skipped: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.steps = nn.ModuleList([TransformerStep(model), Pool(pooling)] if steps is None else steps)
        self.config = getattr(model, "config", None)
        self.pooling, self.similarity, self.prompts = pooling, similarity, prompts
        self.max_length, self.skipped = max_length, skipped
        self.training = False

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Features:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        features: Features = {"input_ids": input_ids, "attention_mask": mask}
        if token_type_ids is not None:
            features["token_type_ids"] = token_type_ids
        for step in self.steps:
            features = step(features)
        found = {name: features[name] for name in (TEXT, TOKENS) if isinstance(features.get(name), Tensor)}
        return {**found, "attention_mask": mask}


class TransformerStep(nn.Module):
    """A Transformer's last states, one per token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.takes_types = "token_type_ids" in inspect.signature(model.forward).parameters

    def forward(self, features: Features) -> Features:
        names = ["input_ids", "attention_mask", *(["token_type_ids"] if self.takes_types else [])]
        outputs = self.model(**{name: features[name] for name in names if name in features})
        states = output_field(outputs, "last_hidden_state")
        if states is None:
            raise ModelError("the encoder gives no last_hidden_state to pool an embedding from")
        return {**features, TOKENS: states}


class Pool(nn.Module):
    """One vector per text from those of its tokens, padding left out."""

    def __init__(self, pooling: str) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ModelError(f'the pooling "{pooling:.40}" is not one of {", ".join(POOLINGS)}')
        self.pooling = pooling

    def forward(self, features: Features) -> Features:
        states = features[TOKENS]
        return {**features, TEXT: POOLINGS[self.pooling](states, features["attention_mask"].to(states.device))}


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    weights = mask.to(states.dtype).unsqueeze(-1)
    return (states * weights).sum(1) / weights.sum(1).clamp_min(1e-9)


def _first(states: Tensor, mask: Tensor) -> Tensor:
    return states[torch.arange(len(states), device=states.device), mask.int().argmax(1)]


def _last(states: Tensor, mask: Tensor) -> Tensor:
    last = mask.shape[1] - 1 - mask.int().flip(1).argmax(1)
    return states[torch.arange(len(states), device=states.device), last]


def _max(states: Tensor, mask: Tensor) -> Tensor:
    lowest = torch.finfo(states.dtype).min
    return states.masked_fill(mask.unsqueeze(-1) == 0, lowest).max(1).values


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": _mean, "cls": _first, "max": _max, "lasttoken": _last,
}  # fmt: skip


class Project(nn.Module):
    """A dense layer with its activation, on the text's vector or on those of its tokens."""

    def __init__(self, linear: nn.Linear, activation: nn.Module, name: str = TEXT) -> None:
        super().__init__()
        self.linear, self.activation, self.name = linear, activation, name

    def forward(self, features: Features) -> Features:
        return {**features, self.name: self.activation(self.linear(features[self.name]))}


class UnitLength(nn.Module):
    """Vectors of length 1."""

    def __init__(self, name: str = TEXT) -> None:
        super().__init__()
        self.name = name

    def forward(self, features: Features) -> Features:
        return {**features, self.name: F.normalize(features[self.name], p=2, dim=-1)}
