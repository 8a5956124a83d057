"""What is explained: a function of the model's outputs that gives one number an example."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from relprop.errors import TargetError, unknown_name

Labels = Mapping[int, str]
Terms = tuple[tuple[int, Any], ...]  # of a target that is a sum: each with its sign
ANSWER_PARTS = ("start", "end", "span")


@dataclass(frozen=True)
class Chosen:
    """The explained numbers [batch] and, per example, the name of what was explained."""

    value: Tensor
    names: tuple[str, ...]
    rows: Tensor | None = None  # [batch, classes], where the target is one class of several
    exact: tuple[Any, ...] = ()  # per example the same target with nothing left to predict


@dataclass(frozen=True)
class Answer:
    """Question answering: the logit of a given start, of a given end, or the sum of both."""

    start: int | None
    end: int | None

    def __call__(self, outputs: Any) -> Tensor:
        parts = [(field(outputs, "start_logits"), self.start), (field(outputs, "end_logits"), self.end)]
        return torch.stack(
            [logits[:, place] for logits, place in parts if logits is not None and place is not None]
        ).sum(0)

    @property
    def __name__(self) -> str:
        if self.start is None or self.end is None:
            return f"end {self.end}" if self.start is None else f"start {self.start}"
        return f"span {self.start}-{self.end}"

    @property
    def terms(self) -> Terms:
        ends = (Answer(self.start, None), Answer(None, self.end))
        return tuple((1, one) for one in ends if one != Answer(None, None))


@dataclass(frozen=True)
class Against:
    """Question answering: how much more one answer scores than another."""

    answer: Answer
    other: Answer

    def __call__(self, outputs: Any) -> Tensor:
        return self.answer(outputs) - self.other(outputs)

    @property
    def __name__(self) -> str:
        return f"{self.answer.__name__} - {self.other.__name__}"

    @property
    def terms(self) -> Terms:
        return (*self.answer.terms, *((-sign, one) for sign, one in self.other.terms))


@dataclass(frozen=True)
class TokenAt:
    """A language model's logit of a token at a row; `against` another token, their difference.

    Rows are best counted from the end: so the target is the same where the model gives the last rows only.
    """

    row: int
    token: int
    against: int | None = None

    def __call__(self, outputs: Any) -> Tensor:
        row = logits_of(outputs)[:, self.row]
        return row[:, self.token] if self.against is None else row[:, self.token] - row[:, self.against]


@dataclass(frozen=True)
class Several:
    """Several targets of a single example: one forward pass, and for each its own way back."""

    targets: tuple[Callable[[Any], Tensor], ...]


def choose(target: Any, outputs: Any, inputs: Mapping[str, Any], labels: Labels | None = None) -> Chosen:
    """Read the target off the outputs.

    `target`: class index or name; None for the predicted class; a pair for a difference; a list with one target an
    example; for question answering "start", "end" or "span"; for language models the next token by id, None = the
    likeliest; or a function of the outputs.
    """
    if callable(target):
        return _own_function(target, outputs)
    if isinstance(target, Several):
        values = [_own_function(one, outputs).value for one in target.targets]
        return Chosen(torch.cat(values), tuple(map(name_of, target.targets)), exact=target.targets)
    if isinstance(target, list) and target and all(map(callable, target)):
        values = [_own_function(one, outputs).value[i] for i, one in enumerate(target)]
        return Chosen(torch.stack(values), tuple(map(name_of, target)), exact=tuple(target))
    if field(outputs, "start_logits") is not None:
        return _answers(target, outputs, inputs)
    logits = logits_of(outputs)
    if logits.dim() == 3 and labels and logits.shape[2] == len(labels):
        raise TargetError(
            f"the model gives each token one of {len(labels)} classes; say which token's with a function, for instance "
            "target=lambda outputs: outputs.logits[:, 3, 1]"
        )
    rows = _class_rows(logits, inputs)
    chosen = _classes(target, rows, None if logits.dim() == 3 else labels)  # a vocabulary has no class names
    return Chosen(chosen.value, chosen.names, rows, chosen.exact)


def field(outputs: Any, name: str) -> Tensor | None:
    value = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
    return value if isinstance(value, Tensor) else None


def logits_of(outputs: Any) -> Tensor:
    """The logits, wherever the model puts them."""
    if isinstance(outputs, Tensor):
        return outputs
    logits = field(outputs, "logits")
    if logits is None and isinstance(outputs, tuple | list):
        logits = next((value for value in outputs if isinstance(value, Tensor)), None)
    if logits is None:
        raise TargetError(
            f"the model returned {type(outputs).__name__} without logits; pass target=function of outputs"
        )
    return logits


def last_real_row(inputs: Mapping[str, Any], length: int, batch: int) -> Tensor:
    """Index of each example's last row that is no padding."""
    mask = inputs.get("decoder_attention_mask" if "decoder_input_ids" in inputs else "attention_mask")
    if not isinstance(mask, Tensor) or mask.dim() != 2 or mask.shape[1] != length:
        return torch.full((batch,), length - 1)
    return (torch.arange(length, device=mask.device) * (mask != 0)).argmax(1)


def _class_rows(logits: Tensor, inputs: Mapping[str, Any]) -> Tensor:
    """One row of scores an example: the logits themselves, or a language model's at the last real token."""
    if logits.dim() == 1:
        return logits[:, None]
    if logits.dim() == 2:
        return logits
    if logits.dim() == 3:
        rows = last_real_row(inputs, logits.shape[1], logits.shape[0]).to(logits.device)
        return logits[torch.arange(logits.shape[0], device=logits.device), rows]
    raise TargetError(f"logits of shape {tuple(logits.shape)} have no single target; pass target=function of outputs")


def _own_function(target: Callable[[Any], Tensor], outputs: Any) -> Chosen:
    value = target(outputs)
    if not isinstance(value, Tensor) or value.dim() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise TargetError(f"the target function must give one number an example (a 1-d tensor), it gave {shape}")
    return Chosen(value, (name_of(target),) * len(value), exact=(target,) * len(value))


def name_of(target: Callable[..., Any]) -> str:
    return getattr(target, "__name__", type(target).__name__)


def terms_of(target: Any) -> Terms:
    """What a target is the sum of: itself, if nothing else."""
    return getattr(target, "terms", ((1, target),))


def _classes(target: Any, rows: Tensor, labels: Labels | None) -> Chosen:
    batch, count = rows.shape
    if isinstance(target, tuple):
        if len(target) != 2:
            raise TargetError(f"a difference takes two targets, got {len(target)}: {target!r}")
        left, right = (_classes(part, rows, labels) for part in target)
        names = tuple(f"{a} - {b}" for a, b in zip(left.names, right.names, strict=True))
        return Chosen(left.value - right.value, names, exact=tuple(zip(left.exact, right.exact, strict=True)))
    if isinstance(target, Tensor):
        target = target.tolist()
    per_example = target if isinstance(target, list) else [target] * batch
    if len(per_example) != batch:
        raise TargetError(f"{len(per_example)} targets for {batch} examples")
    if any(isinstance(one, tuple) for one in per_example):
        parts = [_classes(one, rows[i : i + 1], labels) for i, one in enumerate(per_example)]
        value, names = torch.cat([part.value for part in parts]), tuple(part.names[0] for part in parts)
        return Chosen(value, names, exact=tuple(part.exact[0] for part in parts))
    predicted = rows.detach().argmax(-1).tolist()
    indices = [predicted[i] if one is None else class_index(one, count, labels) for i, one in enumerate(per_example)]
    value = rows.gather(1, torch.tensor(indices, device=rows.device)[:, None])[:, 0]
    return Chosen(value, tuple(str((labels or {}).get(index, index)) for index in indices), exact=tuple(indices))


def class_index(target: Any, count: int, labels: Labels | None) -> int:
    """A class by index, or by name without regard to case."""
    if isinstance(target, bool) or not isinstance(target, Integral | str):
        raise TargetError(f"a target is a class index, a class name, a pair of these or None, got {target!r}")
    if not isinstance(target, str):
        if not 0 <= int(target) < count:
            raise TargetError(f"target {target} is out of range: the model has classes 0 to {count - 1}")
        return int(target)
    names = {index: name for index, name in (labels or {}).items() if index < count}
    exact = [index for index, name in names.items() if name == target]
    found = exact or [index for index, name in names.items() if name.casefold() == target.strip().casefold()]
    if len(found) > 1:
        raise TargetError(f'target "{target}" names {len(found)} classes; give one of the indices {found}')
    if found:
        return found[0]
    if re.fullmatch(r"-?[0-9]+", target):
        return class_index(int(target), count, labels)
    if not names:
        raise TargetError(
            f'target "{target}" is a name, but this output has no class names; give an index below {count}'
        )
    raise TargetError(str(unknown_name("target", target, names.values())))


def _answers(target: Any, outputs: Any, inputs: Mapping[str, Any]) -> Chosen:
    """Question answering: where each example's answer starts, ends, or the sum of both. Padding answers nothing."""
    start, end = field(outputs, "start_logits"), field(outputs, "end_logits")
    assert start is not None
    if end is None:
        raise TargetError("the model gave start_logits but no end_logits")
    batch, length = start.shape
    each = target if isinstance(target, list) else [target] * batch
    if len(each) != batch:
        raise TargetError(f"{len(each)} targets for {batch} examples")
    stops = (last_real_row(inputs, length, batch) + 1).tolist()
    parts = [_answer(each[i], start[i : i + 1, :stop], end[i : i + 1, :stop]) for i, stop in enumerate(stops)]
    return Chosen(
        torch.cat([part.value for part in parts]),
        tuple(part.names[0] for part in parts),
        exact=tuple(part.exact[0] for part in parts),
    )


def _answer(target: Any, start: Tensor, end: Tensor) -> Chosen:
    """One example's answer, at the predicted or at a given place."""
    if isinstance(target, tuple) and len(target) == 2:
        first, last = _classes(target[0], start, None), _classes(target[1], end, None)
    elif target in (None, *ANSWER_PARTS):
        first, last = _classes(None, start, None), _classes(None, end, None)
    else:
        raise TargetError(f'a question-answering target is "start", "end", "span" or (start, end), got {target!r}')
    (a,), (b,) = first.exact, last.exact
    exact = Answer(None if target == "end" else a, None if target == "start" else b)
    value = {"start": first.value, "end": last.value}.get(target, first.value + last.value)
    return Chosen(value, (exact.__name__,), exact=(exact,))
