"""Texts with tokens hidden: replaced or left out. Texts of one length share batches, equal ones their answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relprop.errors import InputError
from relprop.metrics.hiding import Hidden, logits_without
from relprop.metrics.maps import examples, plain
from relprop.metrics.nodes import Nodes
from relprop.metrics.results import Floats

_BLOCK = 256  # questions that are looked at together


@dataclass(frozen=True, eq=False)
class Tokens:
    """Texts as the model takes them, and how their tokens are hidden.

    `inputs` are `input_ids`, `attention_mask` and what else the model takes, padded to one length. `content` [texts,
    tokens] says which tokens may be hidden: as a rule all but the special ones. A hidden token becomes `replacement`,
    the mask or the unknown token; with None it is left out, and the text gets shorter.
    """

    inputs: Mapping[str, Any]
    content: Tensor
    replacement: int | None

    def __post_init__(self) -> None:
        ids, mask = self.inputs.get("input_ids"), self.inputs.get("attention_mask")
        if not isinstance(ids, Tensor) or ids.dim() != 2 or not ids.numel():
            raise InputError("to hide tokens, the inputs need input_ids [texts, tokens]")
        for name, values in (("content", self.content), ("attention_mask", ids if mask is None else mask)):
            if not isinstance(values, Tensor) or values.shape != ids.shape:
                got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
                raise InputError(f"{name} is a tensor like input_ids, {list(ids.shape)}, got {got}")
        if (self.real.int().diff(dim=1, prepend=torch.zeros(len(ids), 1, dtype=torch.int)) > 0).sum(1).max() > 1:
            raise InputError("the attention mask has gaps: it may leave out padding on one side, and nothing else")
        bare = torch.nonzero(~self.hideable.any(1)).flatten().tolist()
        if bare:
            raise InputError(f"text {bare[0]} has no token that may be hidden: its content is empty")

    def __len__(self) -> int:
        return len(self.content)

    @cached_property
    def real(self) -> Tensor:
        """[texts, tokens]: all but padding."""
        mask = self.inputs.get("attention_mask")
        return torch.ones(self.content.shape, dtype=torch.bool) if mask is None else (mask != 0).cpu()

    @cached_property
    def hideable(self) -> Tensor:
        """[texts, tokens]: the content, without padding."""
        return (self.content != 0).cpu() & self.real

    def scores(self, scores: Any) -> Floats:
        """Anybody's scores [texts, tokens], checked; what padding scores is of no interest and set to 0."""
        real = self.real.numpy()
        values = plain(scores)
        if values.shape != real.shape:
            raise InputError(f"scores are one a token, {list(real.shape)}, got {list(values.shape)}")
        return examples(np.where(real, values, 0))

    def lengths(self, questions: Sequence[Hidden]) -> list[int]:
        """How many tokens the model reads."""
        lengths: list[int] = self._kept(*_stacked(questions)).sum(1).tolist()
        return lengths

    def keys(self, questions: Sequence[Hidden]) -> Iterator[bytes]:
        """What the model reads: texts that become the same, say when all is hidden, are one question.

        The attention mask is told by the length.
        """
        for start in range(0, len(questions), _BLOCK):
            which, hidden = _stacked(questions[start : start + _BLOCK])
            lengths = self._kept(which, hidden).sum(1).tolist()
            inputs = self.hide(which, hidden)
            by_token = [inputs[name].cpu().numpy() for name in self._token_like if name != "attention_mask"]
            by_text = [inputs[name].cpu().numpy() for name in self._by_text]
            for i, length in enumerate(lengths):
                parts = [*(rows[i, :length].tobytes() for rows in by_token), *(rows[i].tobytes() for rows in by_text)]
                yield b"|".join([str(length).encode(), *parts])

    def hide(self, which: Tensor, hidden: Tensor) -> dict[str, Any]:
        """The model's inputs for some texts with tokens hidden, cut to the longest of them."""
        kept = self._kept(which, hidden)
        counts = kept.sum(1)
        if not counts.min():
            raise InputError(
                f"nothing is left of text {int(which[counts.argmin()])}: give a token as replacement, or keep some"
            )
        order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)[:, : int(counts.max())]
        there = kept.gather(1, order)
        return {name: self._part(name, values, which, hidden, order, there) for name, values in self.inputs.items()}

    def _part(self, name: str, values: Any, which: Tensor, hidden: Tensor, order: Tensor, there: Tensor) -> Any:
        if name not in self._token_like and name not in self._by_text:
            return values
        rows = values[which.to(values.device)]
        if name == "input_ids" and self.replacement is not None:
            rows = rows.masked_fill(hidden.to(rows.device), self.replacement)
        if name not in self._token_like:
            return rows
        places = order.to(rows.device).view(*order.shape, *[1] * (rows.dim() - 2))
        rows = rows.gather(1, places.expand(-1, -1, *rows.shape[2:]))
        filler = {"input_ids": self._padding, "attention_mask": 0}.get(name)
        return rows if filler is None else rows.masked_fill(~there.to(rows.device), filler)

    def _kept(self, which: Any, hidden: Tensor) -> Tensor:
        """The tokens that the model reads, as they are or replaced."""
        return self.real[which] if self.replacement is not None else self.real[which] & ~hidden

    @cached_property
    def _token_like(self) -> list[str]:
        """The inputs that have a value a token."""
        shape = self.content.shape
        return [name for name, v in self.inputs.items() if isinstance(v, Tensor) and v.shape[:2] == shape]

    @cached_property
    def _by_text(self) -> list[str]:
        """The other inputs that differ from text to text."""
        tensors = {name: v for name, v in self.inputs.items() if isinstance(v, Tensor) and v.dim()}
        return [name for name, v in tensors.items() if len(v) == len(self) and name not in self._token_like]

    @cached_property
    def _padding(self) -> int:
        """The token that the inputs are padded with; where there is none, no batch needs any."""
        ids: Tensor = self.inputs["input_ids"].cpu()
        return int(ids[~self.real][0]) if not self.real.all() else 0

    @cached_property
    def pads_right(self) -> bool:
        """Whether texts of different length may share a batch.

        Padding on the left would shift the positions of most models, and without padding we do not know its token.
        """
        shrinks = self.real[:, 1:] <= self.real[:, :-1]
        return bool(shrinks.all()) and not bool(self.real.all())


def _stacked(questions: Sequence[Hidden]) -> tuple[Tensor, Tensor]:
    """Texts by index, and what is hidden of each."""
    return torch.tensor([one.example for one in questions]), torch.stack([one.units for one in questions])


def token_logits(
    model: nn.Module, tokens: Tokens | Nodes, questions: Iterable[Hidden], *, batch_size: int = 32
) -> Tensor:
    """The logits [questions, classes], in order, asked from short to long."""
    every = list(questions)
    lengths = tokens.lengths(every)
    order = sorted(range(len(every)), key=lengths.__getitem__)
    groups = [order] if tokens.pads_right else [list(g) for _, g in groupby(order, key=lengths.__getitem__)]
    answers = []
    for group in groups:
        asked = [every[i] for i in group]
        answers.append(logits_without(model, tokens.hide, asked, batch_size=batch_size, keys=tokens.keys(asked)))
    back = torch.tensor(order).argsort()
    return torch.cat(answers)[back]
