"""What is explained: a function of the model's outputs that gives one number per example."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from relprop.errors import TargetError, unknown_name
from relprop.outputs import ambiguous_row_message, logits_of, output_field
from relprop.padding import last_real_row, real_rows

Labels = Mapping[int, str]
Terms = tuple[tuple[int, object], ...]  # (sign, target) per term of a target that is a sum
ANSWER_PARTS = ("start", "end", "span")


@dataclass(frozen=True)
class ChosenTarget:
    """The explained numbers [batch] and, per example, the name of what was explained."""

    value: Tensor
    names: tuple[str, ...]
    rows: Tensor | None = None  # [batch, classes], where the target is one class of several
    exact: tuple[Any, ...] = ()  # per example the same target, with predicted classes and rows filled in


@dataclass(frozen=True)
class Answer:
    """Question answering: the logit of a given start, of a given end, or the sum of both."""

    start: int | None
    end: int | None

    def __call__(self, outputs: object) -> Tensor:
        parts = [(output_field(outputs, "start_logits"), self.start), (output_field(outputs, "end_logits"), self.end)]
        return torch.stack(
            [logits[:, position] for logits, position in parts if logits is not None and position is not None]
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

    def __call__(self, outputs: object) -> Tensor:
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

    Count rows from the end: then the target also holds if the model computes only the last rows.
    """

    row: int
    token: int
    against: int | None = None

    def __call__(self, outputs: object) -> Tensor:
        logits = logits_of(outputs)
        if logits.dim() != 3 or not -logits.shape[1] <= self.row < logits.shape[1]:
            raise TargetError(f"the logits have shape {list(logits.shape)}: there is no row {self.row} of tokens")
        row = logits[:, self.row]
        for token in (self.token, self.against):
            if token is not None:
                class_index(token, row.shape[1], None)
        return row[:, self.token] if self.against is None else row[:, self.token] - row[:, self.against]

    @property
    def __name__(self) -> str:
        return str(self.token) if self.against is None else f"{self.token} - {self.against}"


@dataclass(frozen=True)
class SumOf:
    """The sum of a few logits: an entity of several words."""

    tokens: tuple[TokenAt, ...]

    def __call__(self, outputs: object) -> Tensor:
        return torch.stack([token(outputs) for token in self.tokens]).sum(0)

    @property
    def __name__(self) -> str:
        return " + ".join(token.__name__ for token in self.tokens)

    @property
    def terms(self) -> Terms:
        return tuple((1, token) for token in self.tokens)


@dataclass(frozen=True)
class AtMask:
    """A masked language model's logit of a token (by id; None = the likeliest; a pair = a difference) at [MASK].

    `mask_token` is the id of [MASK] (`tokenizer.mask_token_id`); each example must hold exactly one.
    """

    mask_token: int
    token: object = None


@dataclass(frozen=True)
class Several:
    """Several targets of a single example: one forward pass, and one backward pass per target."""

    targets: tuple[Callable[[object], Tensor], ...]


def chosen_target(
    target: object,
    outputs: object,
    inputs: Mapping[str, object],
    labels: Labels | None = None,
    *,
    next_token: bool = False,
    mask_token: int | None = None,
) -> ChosenTarget:
    """The target, read from the outputs.

    `target`: class index or name; None for the predicted class; a pair for a difference; a list with one target per
    example; for question answering "start", "end" or "span"; for language models the next token by id, None = the
    likeliest; `AtMask` for masked language models; or a function of the outputs. `next_token`: the model is a language
    model, whose rows of logits score the next token. `mask_token`: the id of [MASK], if the model's config has it.
    """
    if callable(target):
        return _own_function(target, outputs, inputs)
    if isinstance(target, Several):
        values = [_own_function(one, outputs, inputs).value for one in target.targets]
        return ChosenTarget(torch.cat(values), tuple(map(name_of, target.targets)), exact=target.targets)
    if isinstance(target, list) and target and all(map(callable, target)):
        values = [_own_function(one, outputs, inputs).value for one in target]
        _each(target, len(values[0]))
        value = torch.stack([each[i] for i, each in enumerate(values)])
        return ChosenTarget(value, tuple(map(name_of, target)), exact=tuple(target))
    if output_field(outputs, "start_logits") is not None:
        return _answers(target, outputs, inputs)
    logits = logits_of(outputs)
    _check_length(len(logits) if logits.dim() else 0, inputs, "the model must give scores")
    at_mask = isinstance(target, AtMask) or (
        isinstance(target, list) and any(isinstance(one, AtMask) for one in target)
    )
    if logits.dim() == 3 and (at_mask or (logits.shape[1] > 1 and not next_token)):
        return _at_mask(target, logits, outputs, inputs, labels, mask_token)
    _check_per_token(logits, inputs, labels)
    rows = _class_rows(logits, inputs)
    named = labels is not None and logits.dim() < 3 and len(labels) == rows.shape[1]  # a vocabulary has no class names
    chosen = _classes(target, rows, labels if named else None)
    return ChosenTarget(chosen.value, chosen.names, rows, chosen.exact)


def _class_rows(logits: Tensor, inputs: Mapping[str, object]) -> Tensor:
    """One row of scores per example: the logits themselves, or a language model's at the last real token."""
    if logits.dim() == 1:
        return logits[:, None]
    if logits.dim() == 2:
        return logits
    if logits.dim() == 3:
        rows = last_real_row(inputs, logits.shape[1], logits.shape[0]).to(logits.device)
        return logits[torch.arange(logits.shape[0], device=logits.device), rows]
    raise TargetError(
        f"logits of shape {tuple(logits.shape)} have no single target; pass target=function of outputs that gives one "
        "number per example"
    )


def _check_per_token(logits: Tensor, inputs: Mapping[str, object], labels: Labels | None) -> None:
    """Raises if there is one number per token ([batch, tokens]) where one per class is expected."""
    ids = inputs.get("input_ids")
    if logits.dim() != 2 or not isinstance(ids, Tensor) or ids.dim() != 2 or labels is None:
        return
    if ids.shape == logits.shape and logits.shape[1] not in (1, len(labels)):
        raise TargetError(
            f"the model gives one number for each of {logits.shape[1]} tokens; say which token's with a function, for "
            "instance target=lambda outputs: outputs.logits[:, 3]"
        )


def _at_mask(
    target: object,
    logits: Tensor,
    outputs: object,
    inputs: Mapping[str, object],
    labels: Labels | None,
    mask_token: int | None,
) -> ChosenTarget:
    """A masked language model's logits at [MASK]. Raises for other logits with one row per token, query or frame.

    `exact` names the row, because a copy of the example with hidden tokens may hold more masks.
    """
    each = _each(target, len(logits))
    asked = {one.mask_token for one in each if isinstance(one, AtMask)}
    mask_token = asked.pop() if asked else mask_token
    ids = inputs.get("input_ids")
    per_token = isinstance(ids, Tensor) and ids.shape == logits.shape[:2]
    if asked or not per_token or mask_token is None or (labels and len(labels) == logits.shape[2]):
        raise TargetError(ambiguous_row_message(logits, outputs, inputs, len(labels) if labels else None))
    assert isinstance(ids, Tensor)
    masked = ids == mask_token
    for number, count in enumerate(masked.sum(1).tolist()):
        if count != 1:
            raise TargetError(
                f"example {number} holds {count} mask tokens (id {mask_token}), not one; say which row is meant with "
                "target=relprop.targets.TokenAt(row, token)"
            )
    at = masked.int().argmax(1)
    rows = logits[torch.arange(len(logits), device=logits.device), at.to(logits.device)]
    chosen = _classes([one.token if isinstance(one, AtMask) else one for one in each], rows, None)
    exact = tuple(
        TokenAt(row, *one) if isinstance(one, tuple) else TokenAt(row, one)
        for row, one in zip(at.tolist(), chosen.exact, strict=True)
    )
    return ChosenTarget(chosen.value, chosen.names, rows, exact)


def _own_function(target: Callable[[object], Tensor], outputs: object, inputs: Mapping[str, object]) -> ChosenTarget:
    value = target(outputs)
    if not isinstance(value, Tensor) or value.dim() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise TargetError(f"the target function must give one number per example (a 1-d tensor), it gave {shape}")
    _check_length(len(value), inputs, "the target function must give one number")
    return ChosenTarget(value, (name_of(target),) * len(value), exact=(target,) * len(value))


def _check_length(count: int, inputs: Mapping[str, object], what: str) -> None:
    """Raises if the count fits no axis of any input: there must be one number per example."""
    tensors = [one for one in inputs.values() if isinstance(one, Tensor) and one.dim()]
    if tensors and not any(count in one.shape for one in tensors):
        raise TargetError(f"{what} per example, it gave {count} for {min(map(len, tensors))} examples")


def is_own_function(target: object) -> bool:
    """Whether a target is a function of the caller, beyond reading single logits."""
    if isinstance(target, list):
        return bool(target) and all(map(is_own_function, target))
    return callable(target) and not isinstance(target, Answer | Against | TokenAt | SumOf | AtMask)


def quantity_of(target: object) -> str:
    """What the number of a target is, in the field's words; nothing for a function of the caller."""
    if is_own_function(target):
        return ""
    token = target.token if isinstance(target, AtMask) else target
    difference = isinstance(token, tuple | Against) or (isinstance(token, TokenAt) and token.against is not None)
    several = isinstance(token, SumOf) or (isinstance(token, Answer) and None not in (token.start, token.end))
    return "logit difference" if difference else "sum of logits" if several else "logit"


def name_of(target: object) -> str:
    return getattr(target, "__name__", type(target).__name__)


def terms_of(target: object) -> Terms:
    """The signed terms of a target that is a sum; else the target itself."""
    return getattr(target, "terms", ((1, target),))


def is_sum(target: object) -> bool:
    """Whether a target, or one of a list, is a sum."""
    each = target if isinstance(target, list) else [target]
    return any(len(terms_of(one)) > 1 for one in each)


def _each(target: object, batch: int) -> list[object]:
    """One target per example."""
    target = target.tolist() if isinstance(target, Tensor) else target
    each = target if isinstance(target, list) else [target] * batch
    if len(each) != batch:
        raise TargetError(f"{len(each)} targets for {batch} examples")
    return each


def _joined(parts: Sequence[ChosenTarget]) -> ChosenTarget:
    """Those of single examples as one of a batch."""
    names, exact = (tuple(part.names[0] for part in parts), tuple(part.exact[0] for part in parts))
    return ChosenTarget(torch.cat([part.value for part in parts]), names, exact=exact)


def _classes(target: object, rows: Tensor, labels: Labels | None) -> ChosenTarget:
    batch, count = rows.shape
    if isinstance(target, tuple):
        if len(target) != 2:
            raise TargetError(f"a difference takes two targets, got {len(target)}: {target!r}")
        left, right = (_classes(part, rows, labels) for part in target)
        names = tuple(f"{a} - {b}" for a, b in zip(left.names, right.names, strict=True))
        return ChosenTarget(left.value - right.value, names, exact=tuple(zip(left.exact, right.exact, strict=True)))
    per_example = _each(target, batch)
    if any(isinstance(one, tuple) for one in per_example):
        return _joined([_classes(one, rows[i : i + 1], labels) for i, one in enumerate(per_example)])
    predicted = rows.detach().argmax(-1).tolist()
    indices = [predicted[i] if one is None else class_index(one, count, labels) for i, one in enumerate(per_example)]
    value = rows.gather(1, torch.tensor(indices, device=rows.device)[:, None])[:, 0]
    return ChosenTarget(value, tuple(str((labels or {}).get(index, index)) for index in indices), exact=tuple(indices))


def class_index(target: object, count: int, labels: Labels | None) -> int:
    """The index of a class, given by index or by name (case does not matter)."""
    if isinstance(target, bool) or not isinstance(target, Integral | str):
        raise TargetError(f"a target is a class index, a class name, a pair of these or None, got {target!r}")
    if not isinstance(target, str):
        if not 0 <= int(target) < count:
            raise TargetError(f"target {target} is out of range: the model has classes 0 to {count - 1}")
        return int(target)
    names = {index: name for index, name in (labels or {}).items() if index < count}
    exact = [index for index, name in names.items() if name == target]
    matches = exact or [index for index, name in names.items() if name.casefold() == target.strip().casefold()]
    if len(matches) > 1:
        raise TargetError(f'target "{target}" names {len(matches)} classes; give one of the indices {matches}')
    if matches:
        return matches[0]
    if re.fullmatch(r"-?[0-9]+", target):
        return class_index(int(target), count, labels)
    if not names:
        raise TargetError(
            f'target "{target}" is a name, but this output has no class names; give an index below {count}'
        )
    raise TargetError(str(unknown_name("target", target, names.values())))


def _answers(target: object, outputs: object, inputs: Mapping[str, object]) -> ChosenTarget:
    """Question answering: the logit of each example's answer start, end, or their sum. Padding is excluded."""
    start, end = output_field(outputs, "start_logits"), output_field(outputs, "end_logits")
    assert start is not None
    if end is None:
        raise TargetError("the model gave start_logits but no end_logits")
    batch, length = start.shape
    each = _each(target, batch)
    real = real_rows(inputs, batch, length).to(start.device)
    return _joined([_answer(each[i], start[i : i + 1], end[i : i + 1], real[i]) for i in range(batch)])


def _answer(target: object, start: Tensor, end: Tensor, real: Tensor) -> ChosenTarget:
    """One example's answer, at the predicted or at given positions."""
    if isinstance(target, tuple) and len(target) == 2:
        first, last = _position(target[0], start, real), _position(target[1], end, real)
    elif target in (None, *ANSWER_PARTS):
        first, last = _position(None, start, real), _position(None, end, real)
    else:
        raise TargetError(f'a question-answering target is "start", "end", "span" or (start, end), got {target!r}')
    (a,), (b,) = first.exact, last.exact
    exact = Answer(None if target == "end" else a, None if target == "start" else b)
    value = first.value if target == "start" else last.value if target == "end" else first.value + last.value
    return ChosenTarget(value, (exact.__name__,), exact=(exact,))


def _position(target: object, scores: Tensor, real: Tensor) -> ChosenTarget:
    """A token given by index, or the likeliest of the real ones."""
    if target is None:
        target = int(scores.detach().masked_fill(~real, -torch.inf).argmax())
    position = _classes(target, scores, None)
    if not real[position.exact[0]]:
        raise TargetError(f"target {target} is out of range: that token is padding")
    return position
