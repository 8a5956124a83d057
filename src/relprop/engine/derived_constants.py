"""Which constants are computed from the explained input, such as the attention weights of the AH-rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from relprop.engine.leaves import tensors
from relprop.ops import INDEXES, LIKE, VALUELESS, Op
from relprop.rulebook.rulesets import RuleSet
from relprop.rulebook.treatments import ByWeights

_MARK = "_relprop_derived"


class DerivedConstants:
    """Marks, in one pass, what calls compute from live tensors or from what is marked: of these, some are constants.

    Only where a rule makes a difference between these and the weights of the model.
    """

    def __init__(self, rules: RuleSet, is_live: Callable[[Tensor], bool]) -> None:
        self._is_live = is_live
        self._needed = any(isinstance(rule, ByWeights) for rule in rules.values())
        self.mark = object()  # of this pass: a model may keep a marked tensor

    def has(self, tensor: Tensor) -> bool:
        return not tensor.requires_grad and self._is_marked(tensor)

    def among(self, values: tuple[Any, ...]) -> bool:
        return any(map(self.has, tensors(values)))

    def detached(self, tensor: Tensor) -> Tensor:
        """A tensor that turned out to be a constant, without its gradient."""
        constant = tensor.detach()
        if self._is_marked(tensor):
            setattr(constant, _MARK, self.mark)
        return constant

    def follow(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Mark what a call returned or wrote to."""
        if not self._needed or op.name in VALUELESS:
            return
        given = tensors(args[:1] if op.name in LIKE else (*args, *kwargs.values()))
        # Weights that an index selects, as those of an expert, are weights still.
        values = (one for one in given if op.name not in INDEXES or one.is_floating_point())
        if any(self._is_marked(one) or self._is_live(one) for one in values):
            for tensor in tensors((result, args[:1] if op.in_place else ())):
                for one in (tensor, tensor._base):
                    if one is not None:
                        setattr(one, _MARK, self.mark)

    def _is_marked(self, tensor: Tensor) -> bool:
        return getattr(tensor, _MARK, None) is self.mark
