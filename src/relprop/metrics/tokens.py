"""Texts with tokens hidden: replaced or left out. Texts of one length share batches, equal ones their answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from relprop.errors import InputError
from relprop.metrics.hidden_units import Hidden, logits_without, moved_together, stack_questions
from relprop.metrics.nodes import Nodes
from relprop.metrics.score_arrays import Floats, Values, scores_per_unit

_CHUNK = 256  # questions whose keys are computed together


@dataclass(frozen=True, eq=False)
class Tokens:
    """Texts as the model takes them, and how their tokens are hidden.

    `inputs` are `input_ids`, `attention_mask` and what else the model takes, padded to one length. `content` [texts,
    tokens] marks the tokens that may be hidden, usually all but the special ones. A hidden token becomes `replacement`,
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
        """[texts, tokens]: the content without padding."""
        return (self.content != 0).cpu() & self.real

    def scores(self, scores: Values) -> Floats:
        """The caller's scores [texts, tokens], checked, with those of padding set to 0."""
        return scores_per_unit(scores, self.real, "token")

    def lengths(self, questions: Sequence[Hidden]) -> list[int]:
        """How many tokens the model reads in each question."""
        lengths: list[int] = self._kept(*stack_questions(questions)).sum(1).tolist()
        return lengths

    def keys(self, questions: Sequence[Hidden]) -> Iterator[bytes]:
        """What the model reads in each question: texts that become equal, such as when all is hidden, have one key.

        The length stands for the attention mask.
        """
        by_token = [name for name in self._token_inputs if name != "attention_mask"]
        for start in range(0, len(questions), _CHUNK):
            which, hidden = stack_questions(questions[start : start + _CHUNK])
            lengths = self._kept(which, hidden).sum(1).tolist()
            rows = {name: v.cpu().numpy() for name, v in self.hide(which, hidden).items() if isinstance(v, Tensor)}
            for i, length in enumerate(lengths):
                parts = [rows[name][i, :length].tobytes() for name in by_token]
                parts += [rows[name][i].tobytes() for name in self._text_inputs]
                yield b"|".join([str(length).encode(), *parts])

    def hide(self, which: Tensor, hidden: Tensor) -> dict[str, Any]:
        """The model's inputs for some texts with tokens hidden, cut to the longest of them."""
        kept = self._kept(which, hidden)
        counts = kept.sum(1)
        if not counts.min():
            raise InputError(
                f"nothing is left of text {int(which[counts.argmin()])}: give a token as replacement, or keep some"
            )
        order, filled = moved_together(kept)
        inputs = dict(self.inputs)
        for name in (*self._token_inputs, *self._text_inputs):
            rows = inputs[name][which.to(inputs[name].device)]
            if name == "input_ids" and self.replacement is not None:
                rows = rows.masked_fill(hidden.to(rows.device), self.replacement)
            if name in self._token_inputs:
                positions = order.to(rows.device).view(*order.shape, *[1] * (rows.dim() - 2))
                rows = rows.take_along_dim(positions, 1)
            if name in ("input_ids", "attention_mask"):
                rows = rows.masked_fill(~filled.to(rows.device), self._padding if name == "input_ids" else 0)
            inputs[name] = rows
        return inputs

    def _kept(self, which: Tensor, hidden: Tensor) -> Tensor:
        """The tokens that the model reads, as they are or replaced."""
        return self.real[which] if self.replacement is not None else self.real[which] & ~hidden

    @cached_property
    def _token_inputs(self) -> list[str]:
        """The inputs with one value per token."""
        shape = self.content.shape
        return [name for name, v in self.inputs.items() if isinstance(v, Tensor) and v.shape[:2] == shape]

    @cached_property
    def _text_inputs(self) -> list[str]:
        """The other inputs with one value per text."""
        tensors = {name: v for name, v in self.inputs.items() if isinstance(v, Tensor) and v.dim()}
        return [name for name, v in tensors.items() if len(v) == len(self) and name not in self._token_inputs]

    @cached_property
    def _padding(self) -> int:
        """The token that the inputs are padded with; without padding no batch needs it."""
        ids: Tensor = self.inputs["input_ids"].cpu()
        return int(ids[~self.real][0]) if not self.real.all() else 0

    @cached_property
    def pads_right(self) -> bool:
        """Whether texts of different length may share a batch.

        Padding on the left would shift the positions of most models; without padding its token is not known.
        """
        shrinks = self.real[:, 1:] <= self.real[:, :-1]
        return bool(shrinks.all()) and not bool(self.real.all())


def token_logits(
    model: nn.Module, tokens: Tokens | Nodes, questions: Iterable[Hidden], *, batch_size: int = 32
) -> Tensor:
    """The logits [questions, classes], in order; the model is called from short to long inputs."""
    every = list(questions)
    lengths = tokens.lengths(every)
    order = sorted(range(len(every)), key=lengths.__getitem__)
    groups = [order] if tokens.pads_right else [list(g) for _, g in groupby(order, key=lengths.__getitem__)]
    answers = []
    for group in groups:
        asked = [every[i] for i in group]
        answers.append(logits_without(model, tokens.hide, asked, batch_size=batch_size, keys=tokens.keys(asked)))
    return torch.cat(answers)[torch.tensor(order).argsort()]
