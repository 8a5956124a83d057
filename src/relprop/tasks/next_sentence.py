"""Next sentence: whether the second text of a pair follows the first."""

from __future__ import annotations

from typing import Any

from relprop.engine.model_call import labels_of
from relprop.errors import InputError
from relprop.targets import class_index
from relprop.tasks.classes import ClassScore
from relprop.tasks.task import Query

NAMES = {0: "follows", 1: "does not follow"}  # as [Devlin19] trained it; the config has no names for them


class NextSentence(ClassScore):
    """The logit of "follows" or "does not follow". `target`: one of these, None for the likelier, or a pair of both."""

    def _query(self, row: Any, target: object) -> Query:
        if len(row.texts) != 2:
            raise InputError("the model says whether a text follows another: give a pair of texts, (first, second)")
        return super()._query(row, target)

    def target(self, target: object) -> object:
        """Names as class indices."""
        if isinstance(target, tuple):
            return tuple(self.target(one) for one in target)
        return class_index(target, len(NAMES), NAMES) if isinstance(target, str) else target

    def class_name(self, index: int) -> str:
        return NAMES[index]

    def target_name(self, name: str) -> str:
        """What `Attribution.target` says by the config's labels, in words."""
        indices = {label: index for index, label in (labels_of(self.model) or {}).items()}
        return " - ".join(NAMES.get(indices.get(one, -1), one) for one in name.split(" - "))
