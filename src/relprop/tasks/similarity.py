"""Similarity of two texts: how much each token of either makes their embeddings alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relprop.encoders import TextEncoder
from relprop.engine.model_call import call, evaluating
from relprop.engine.restoring import restoring
from relprop.errors import InputError, TargetError, unknown_name
from relprop.explanation import Explanation, warnings_of
from relprop.readers.encoder import EncoderReader
from relprop.readers.tokens import TokenRow, pads_left
from relprop.registry import Record
from relprop.render.pairs.part import PairPart
from relprop.render.text.part import TextPart
from relprop.similarity import LATE, SIMILARITIES, EmbeddingNumber, SimilarTo, embedding_of
from relprop.targets import name_of
from relprop.tasks.steps import READ_AT_ONCE, Explained
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution, Entry, Ledger

NAMES = ("first", "second")


@dataclass(frozen=True)
class Side(Answered):
    """What was found through one of the two texts."""

    row: TokenRow | None = None
    numbers: Tensor | None = None  # [units, numbers]: the share of each unit in each number of the embedding
    weight: float = 1.0  # that their products count with: 1 / norms of a cosine


class Similarity:
    """How similar two texts are, each explained with the other's embedding held constant.

    `target`: "cosine", "dot", "maxsim" (late interaction: the first text asks, the second is searched), None for the
    encoder's own. Of a single text: a number of its embedding, by index, or a function of the outputs.
    """

    name = "texts"

    def __init__(self, model: TextEncoder, reader: EncoderReader) -> None:
        self.model = model
        self.reader = reader

    def target(self, target: object) -> object:
        return target

    def check_evaluation(self) -> None:
        raise InputError("evaluate reads the probability of a class, and a similarity has none")

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None) -> list[Query]:
        """Of a pair two steps, one through each text."""
        read = [self._read(one, target, number, given, max_length) for number, (one, target) in
                enumerate(zip(given, targets, strict=True))]  # fmt: skip
        found = iter(self._outputs([row for rows in read for row in rows]))
        return [
            self._pair(rows, self._kind(target), [next(found) for _ in rows])
            if len(rows) == 2
            else self._single(rows[0], target, next(found))
            for rows, target in zip(read, targets, strict=True)
        ]

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        if not isinstance(query.target, SimilarTo) or query.answer is None:
            return query.answer or Answered(found.target[number])
        answer = query.answer
        assert isinstance(answer, Side)
        numbers = None
        if found.pairs is not None:
            count = len(query.row.units)
            left = pads_left(self.reader.tokenizer)
            numbers = found.pairs[number][-count:] if left else found.pairs[number][:count]
        return Side(answer.target, row=answer.row, numbers=numbers, weight=answer.weight)

    def _read(
        self, given: object, target: object, number: int, every: Sequence[object], max_length: int | None
    ) -> list[TokenRow]:
        which = f"pair {number} of the list: " if len(every) > 1 else ""
        single = callable(target) or (isinstance(target, int) and not isinstance(target, bool))
        try:
            if isinstance(given, str) and single:
                return [self.reader.read(given, max_length)]
            if not isinstance(given, tuple | list) or len(given) != 2 or single:
                raise InputError(
                    "an encoder compares two texts: give a pair, (first, second); of one text alone a number of its "
                    f"embedding is explained, target=0 or another index; got {given!r:.80}"
                )
            return [self.reader.read_side(text, side, max_length) for side, text in enumerate(given)]
        except InputError as error:
            raise InputError(f"{which}{error}") from None

    def _kind(self, target: object) -> str:
        if target is None and self.model.similarity not in SIMILARITIES:
            own = self.model.similarity
            raise TargetError(
                f'the encoder\'s own similarity, "{own}", is not explained: give target="cosine" or "dot"'
            )
        kind = self.model.similarity if target is None else target
        if not isinstance(kind, str):
            raise TargetError(f"of a pair a similarity is explained, {', '.join(SIMILARITIES)}; got {target!r:.80}")
        if kind not in SIMILARITIES:
            raise TargetError(str(unknown_name("similarity", kind, SIMILARITIES)))
        return kind

    def _single(self, row: TokenRow, target: Any, outputs: dict[str, Tensor]) -> Query:
        if callable(target):
            return Query(row, target, Answered(name_of(target)))
        number = EmbeddingNumber(int(target))
        number({name: value[None] for name, value in outputs.items()})  # raises where there is none such
        return Query(row, number, Answered(f"{number.__name__} ({self._pooled})"))

    def _pair(self, rows: list[TokenRow], kind: str, outputs: list[dict[str, Tensor]]) -> Query:
        late = kind in LATE
        vectors = [embedding_of(one, tokens=late) for one in outputs]
        keep = self._kept(rows[1]) if late else None
        others = [vectors[1] if keep is None else vectors[1][list(keep)], vectors[0]]
        name = f"{kind} ({self._pooled if not late else 'of tokens'})"
        weight = 1.0 if late or kind == "dot" else 1 / float(vectors[0].norm() * vectors[1].norm())
        steps = tuple(
            Query(
                row,
                SimilarTo(others[side], kind, second=side == 1, keep=keep if side else None),
                Side(name, row=row, weight=weight),
            )
            for side, row in enumerate(rows)
        )
        similar = steps[0].target
        assert isinstance(similar, SimilarTo)
        value = similar({one: tensor[None] for one, tensor in outputs[0].items()}).item()
        return Query(rows[0], None, Answered(name, value=value), steps, joined_sides)

    @property
    def _pooled(self) -> str:
        return f"{self.model.pooling} pooling"

    def _kept(self, row: TokenRow) -> tuple[bool, ...] | None:
        """The tokens of the searched text that may match; None for all."""
        if not self.model.skipped:
            return None
        keep = tuple(token not in self.model.skipped for token in row.ids["input_ids"])
        if not any(keep):
            raise InputError(
                f"the encoder skips every token of the second text {row.texts[0]!r:.60}: nothing can match"
            )
        return keep

    @restoring
    def _outputs(self, rows: Sequence[TokenRow]) -> list[dict[str, Tensor]]:
        """What the encoder gives for each text, without padding and without a backward pass."""
        found: dict[int, dict[str, Tensor]] = {}
        for batch in self.reader.batches(rows, READ_AT_ONCE):
            inputs = self.reader.inputs([rows[i] for i in batch])
            with torch.no_grad(), evaluating(self.model):
                outputs = call(self.model, inputs)
            for number, i in enumerate(batch):
                real = inputs["attention_mask"][number].bool()
                found[i] = {name: value[number][real] if value.dim() == 3 else value[number]
                            for name, value in outputs.items() if value.is_floating_point()}  # fmt: skip
        return [found[i] for i in range(len(rows))]


def joined_sides(query: Query, method: Record[Any], explained: Sequence[Explained]) -> Explanation:
    """The two texts as two parts, each of which explains the whole similarity; or their tokens in pairs."""
    (first, one), (second, other) = explained
    assert isinstance(one, Side)
    assert isinstance(other, Side)
    common: dict[str, Any] = {
        "method": method.name,
        "target": one.target,
        "value": first.value,
        "signed": method.signed,
        "warnings": warnings_of((first, second)),
    }
    if one.numbers is not None and other.numbers is not None:
        part = _pairs(first.part, second.part, one.weight * one.numbers @ other.numbers.T)
        rest = Entry("", "not itemised", "unexplained", first.value - part.total)
        ledger = Ledger(first.value, (Entry("", "pairs", "input", part.total), rest), itemised=False)
        return Explanation(parts=(part,), ledger=ledger, **common)
    parts = tuple(
        TextPart(name, part.text, part.units, part.scores, truncated=part.truncated)
        for name, part in zip(NAMES, (first.part, second.part), strict=True)
    )
    return Explanation(parts=parts, ledgers=(first.ledger, second.ledger), **common)


def _pairs(first: TextPart, second: TextPart, scores: Tensor) -> PairPart:
    """[Vasileiou24]: R_jj' = sum over m of R_j(phi_m) R_j'(phi_m)."""
    notes = [part.truncated for part in (first, second) if part.truncated]
    texts, units = (first.text[0], second.text[0]), (first.units, second.units)
    return PairPart("pairs", texts, *units, tuple(map(tuple, scores.tolist())), truncated="; ".join(notes) or None)
