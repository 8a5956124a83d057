"""Products whose factors stand in another order: x y f(x) is y times the activation x f(x), written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from relprop.engine.call_kinds import CASTS, scalar
from relprop.engine.tensor_notes import Factors, Note, Origin, Root
from relprop.ops import Op


def regrouped(
    args: tuple[Any, ...], note: Callable[[Tensor], Note | None], origin: Callable[[Any], Origin | None]
) -> Callable[..., Tensor] | None:
    """(x y) f(x) as y (x f(x)); None for other products."""
    if len(args) < 2 or not all(isinstance(one, Tensor) and one.requires_grad for one in args[:2]):
        return None
    for product, gate in (args[:2], args[1::-1]):
        own, of_gate = note(product), origin(gate)
        factors = None if own is None else own.factors
        if factors is None or of_gate is None:
            continue
        for one, other in ((factors.first, factors.second), (factors.second, factors.first)):
            own_root, other_root = (found and found.root for found in map(origin, (one.tensor, other.tensor)))
            if one.intact and other.intact and own_root is of_gate.root and other_root is not of_gate.root:
                x, y, scale = one.tensor, other.tensor, factors.scale
                return lambda *_: y * (x * gate * scale)
    return None


def factors_of(op: Op, args: tuple[Any, ...], before: Factors | None, root: Callable[[Tensor], Root]) -> Factors | None:
    """The two live tensors whose product a call's result is, up to a number; `before`: of its first tensor."""
    if op.name in CASTS:
        return before
    if op.name not in ("mul", "div") or len(args) < 2:
        return None
    a, b = args[:2]
    live = [one for one in (a, b) if isinstance(one, Tensor) and one.requires_grad]
    if op.name == "mul" and len(live) == 2 and a is not b and a.shape == b.shape:
        return Factors(root(a), root(b))
    if before is None or len(live) != 1 or (op.name == "div" and live[0] is b):
        return None
    number = scalar(b if live[0] is a else a)
    if not number:
        return None
    return replace(before, scale=before.scale * number if op.name == "mul" else before.scale / number)
