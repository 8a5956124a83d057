"""How well a text fits a picture: two-tower models such as CLIP and SigLIP, over patches and words together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.model_call import call, evaluating
from relprop.engine.restoring import restoring
from relprop.errors import InputError, TargetError
from relprop.explanation import Explanation
from relprop.outputs import output_field
from relprop.part import Part
from relprop.readers.image_text import ImageTextReader, apart
from relprop.registry import Record
from relprop.render.text.part import TextPart
from relprop.tasks.steps import Explained
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution, Ledger

NAME = "similarity"
_FORMS = "a target is one of the texts, its number, or a pair of these for a difference"


def similarity(outputs: object) -> Tensor:
    """The logit of a picture and its own text, one per example."""
    logits = output_field(outputs, "logits_per_image")
    if logits is None:
        raise TargetError("the model gives no logits_per_image: how well a text fits a picture is not told")
    return logits.diagonal()


class PairScore:
    """The similarity logit of an image and a text.

    With several texts, (image, ["a dog", "a cat"]), these are classes: `target` is one of them or its number, None for
    the likeliest, a pair for a difference.
    """

    name = "inputs"

    def __init__(self, model: nn.Module, reader: ImageTextReader) -> None:
        self.model = model
        self.reader = reader

    def check_evaluation(self) -> None:
        raise InputError("evaluate hides units of one input, and the model reads a picture and a text together")

    def target(self, target: object) -> object:
        return similarity if target is None else target

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None = None) -> list[Query]:
        return [self._query(one, target, max_length) for one, target in zip(given, targets, strict=True)]

    def _query(self, given: object, target: object, max_length: int | None) -> Query:
        image, text = apart(given)
        if isinstance(text, str):
            if target is not None and not callable(target):
                raise TargetError(f"with one text the pair's similarity is explained: leave out target, got {target!r}")
            return Query(self.reader.read((image, text), max_length), similarity if target is None else target)
        texts = list(text)  # type: ignore[call-overload]
        rows = [self.reader.read((image, one), max_length) for one in texts]
        logits = torch.stack([self._logit(row) for row in rows])
        probabilities = logits.double().sigmoid() if self._is_sigmoid else logits.double().softmax(0)
        best = int(probabilities.argmax())
        chosen = [_number(one, texts, best) for one in (target if isinstance(target, tuple) else (target,))]
        if len(chosen) > 2:
            raise TargetError(f"a difference takes two texts, got {len(chosen)}: {target!r:.80}")
        says = (repr(texts[best]), probabilities[best].item())
        single = [Query(rows[i], similarity, Answered(repr(texts[i]), *says)) for i in chosen]
        if len(single) == 1:
            return single[0]
        name = " - ".join(repr(texts[i]) for i in chosen)
        return Query(rows[chosen[0]], None, Answered(name, *says), tuple(single), difference)

    @property
    def _is_sigmoid(self) -> bool:
        """Whether every text has a probability of its own: such models are trained with a bias."""
        return getattr(self.model, "logit_bias", None) is not None

    @restoring
    def _logit(self, row: Any) -> Tensor:
        with torch.no_grad(), evaluating(self.model):
            return similarity(call(self.model, self.reader.inputs([row]), similarity))[0]

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        if query.answer is not None:
            return query.answer
        own = query.target is similarity
        sure = found.value[number].double().sigmoid().item() if own and self._is_sigmoid else None
        return Answered(NAME if own else found.target[number], "fits" if sure is not None else "", sure)


def _number(target: object, texts: Sequence[str], best: int) -> int:
    if target is None:
        return best
    if isinstance(target, str) and target in texts:
        return texts.index(target)
    if type(target) is not bool and isinstance(target, Integral) and 0 <= int(target) < len(texts):
        return int(target)
    raise TargetError(f"{_FORMS}; got {target!r:.80} for {len(texts)} texts")


def difference(query: Query, method: Record[Any], explained: Sequence[Explained]) -> Explanation:
    """How much more one text fits than another: the picture's scores are subtracted, each text keeps its own."""
    if not method.signed:
        raise InputError(f'"{method.name}" tells no sign, so a difference of texts has no scores: use a signed method')
    (one, _), (other, _) = explained
    answer = query.answer
    assert answer is not None
    less = [_negated(part) for part in other.parts]
    shared = [_sum(part, own) for part, own in zip(one.parts, less, strict=True) if not isinstance(part, TextPart)]
    ledgers = [one.ledger, other.ledger]
    ledger = None if None in ledgers else Ledger.summed([ledgers[0], _less(ledgers[1])])  # type: ignore[list-item, arg-type]
    texts = [*one.texts, *(part for part in less if isinstance(part, TextPart))]
    return replace(
        one,
        parts=(*shared, *texts),
        target=answer.target,
        value=one.value - other.value,
        ledger=ledger,
        baseline=None if one.baseline is None or other.baseline is None else one.baseline - other.baseline,
    )


def _negated(part: Any) -> Part:
    values = {name: getattr(part, name) for name in part.scored}
    own = {name: tuple(-one for one in v) if isinstance(v, tuple) else -v for name, v in values.items()}
    changed: Part = replace(part, **own)
    return changed


def _sum(part: Any, other: Any) -> Part:
    if part.unit_scores().shape != other.unit_scores().shape:
        raise InputError("the two texts' scores lie on different grids of the picture: explain them one by one")
    added: Part = replace(part, **{name: getattr(part, name) + getattr(other, name) for name in part.scored})
    return added


def _less(ledger: Ledger) -> Ledger:
    entries = tuple(replace(entry, value=-entry.value) for entry in ledger.entries)
    return replace(ledger, value=-ledger.value, entries=entries)
