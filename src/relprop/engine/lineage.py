"""Recognises activations, softmax and norms that a model writes out in several calls.

Each tensor carries a note of how it was computed: as a function of one other tensor, its sum or maximum. A call that
completes a softmax or a norm is given that function's name, so that the same rule applies (`Lineage.recognise`). Any
elementwise function f of one tensor with f(0) = 0 is an activation (`Lineage.activation`).

Names of recognised calls beside torch's own: "centre" (x - mean x), "shift" (x - max x), "norm_bias" (the bias of a
norm written out), "gate_sum" (1 + tanh u), "same_root_sum" and "same_root_product" (of two functions of the same
tensor), "inverse_sum" (1 / sum(exp x)), "sum_of_products" (a matrix product written as products and their sum),
"weighted_sum" (the same of a live tensor and weights: a linear layer).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from relprop.engine.call_kinds import (
    CASTS,
    CLOSES,
    EXPONENTIALS,
    FOLLOWED,
    LINEAR,
    MOVES,
    POINTWISE,
    PRODUCTS,
    REDUCTIONS,
    SUMS,
    log_scale,
    masks,
    normalises_rows,
    scalar,
    summed_product,
    tensors,
    value_at_zero,
)  # fmt: skip
from relprop.engine.logarithms import logarithm_of
from relprop.engine.products import factors_of, regrouped
from relprop.engine.refusals import location
from relprop.engine.tensor_notes import NOTE, Centred, Note, Origin, Reduction, Root, set_note
from relprop.errors import UnruledOpError
from relprop.ops import Op
from relprop.rulebook.elementwise import SATURATING, constant_ratio, power, quotient
from relprop.rulebook.rulesets import RuleSet
from relprop.rulebook.softmax import WRITTEN_OUT


class Lineage:
    """The notes on the tensors of one pass."""

    def __init__(self, rules: RuleSet, is_derived: Callable[[Tensor], bool]) -> None:
        self._rules = rules
        self._is_derived = is_derived  # of a constant: is it computed from live tensors?
        self._roots: WeakValueDictionary[int, Root] = WeakValueDictionary()
        self._ratios = rules.get("gelu") is constant_ratio
        self._follows = self._ratios or rules.carries == "relevance" or "same_root_product" in rules
        self.needed = self._follows or "softmax" in rules or "rsqrt" in rules
        # Where a softmax that is not recognised would flow back by another rule than its own.
        apart = rules.get("exp") is not rules["softmax"] if "softmax" in rules else "exp" not in rules
        self._differs = rules.carries == "relevance" or (apart and ("softmax" in rules or rules.get("div") is quotient))
        # Exponentials are gates and a softmax is not: one that is written out has no logits left.
        self._loses_logits = "exp" in rules and "softmax" in rules and apart
        self._sums: dict[int, str] = {}  # sums of exponentials that are no softmax's yet, and where

    def note(self, tensor: Tensor) -> Note | None:
        note: Note | None = getattr(tensor, NOTE, None)
        return note if note is not None and note.version == tensor._version else None

    def _root(self, tensor: Tensor) -> Root:
        """The tensor as a root: one object per tensor and version."""
        root = self._roots.get(id(tensor))
        if root is None or root.tensor is not tensor or not root.intact:
            root = self._roots[id(tensor)] = Root(tensor, tensor._version)
        return root

    @property
    def unrecognised(self) -> list[str]:
        """One sentence per place with a sum of exponentials that was not recognised as that of a softmax."""
        return [
            f"a sum of exponentials{where} could not be recognised as that of a softmax: it flows back otherwise than "
            f'"{self._rules.name}" says of a softmax'
            for where in dict.fromkeys(self._sums.values())
        ]

    def has_note(self, value: Any) -> bool:
        return isinstance(value, Tensor) and self.note(value) is not None

    def on_write(self, target: Tensor, before: Tensor, result: Tensor) -> None:
        """After an in-place write: `target` now has the values of `result`, and had those of `before`."""
        root = self._roots.pop(id(target), None)
        if root is not None and root.tensor is target:
            root.tensor, root.version = before, before._version
        note = self.note(result)
        set_note(target, None if note is None else replace(note, version=target._version))

    # Recognising calls.

    def recognise_constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Op:
        """The same for a call on gates; raises where it completes a softmax whose logits are lost in them."""
        if not self._loses_logits:
            return op
        completed, _ = self.recognise(op, args, kwargs)
        if completed.name == "softmax":
            raise UnruledOpError(WRITTEN_OUT)
        return completed

    def recognise(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Op, tuple[Any, ...]]:
        """The call under the name of the function that it completes; unchanged if it completes none."""
        name = self._completed_name(op, args, kwargs)
        if name is None or (name not in self._rules and name not in ("softmax", "sum")):
            return op, args
        if name == "norm_bias":
            u, b = args if self._biased(*args) else (args[1], args[0])
            centred = self._centred(u)
            assert centred is not None
            z = u if centred.z is None else centred.z.tensor
            return Op(name, lambda u, b, z, dims: torch.add(u, b), op.in_place), (u, b, z, centred.dims)
        return replace(op, name=name), args

    def _completed_name(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        if op.name in EXPONENTIALS:
            note = self.note(args[0])
            if note is not None and note.log_scale in (-0.5, 0.5):
                return "sqrt" if note.log_scale > 0 else "rsqrt"
            return "softmax" if note is not None and note.log_softmax else None
        if op.name in ("sum", "mean"):
            note = self.note(args[0]) if args and isinstance(args[0], Tensor) else None
            return None if note is None else note.product
        if op.name == "norm":
            return "sum" if self._sums_exponential(args, kwargs) else None
        if op.name == "reciprocal":
            return "inverse_sum" if "inverse_sum" in self._rules and self._inverse(1.0, args[0]) else None
        if op.name not in ("add", "sub", "mul", "div") or len(args) < 2:
            return None
        a, b = args[:2]
        if op.name in ("add", "sub") and self._is_gate_sum(a, b):
            return "gate_sum"
        if op.name == "add" and not kwargs and (self._biased(a, b) or self._biased(b, a)):
            return "norm_bias"
        if op.name == "div" and self._inverse(a, b):
            return "softmax"
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            return None
        if op.name in ("div", "mul"):
            self._check_order(a, b)
            softmax = self._normalised(op, a, b) or (op.name == "mul" and self._normalised(op, b, a))
            if softmax:
                return "softmax"
            return "same_root_product" if "same_root_product" in self._rules and self._same_root(a, b) else None
        reduction = self._reduction_of(b, a) if op.name == "sub" else None
        if reduction is not None:
            return {"sum": "centre", "max": "shift", "logsumexp": "shift"}.get(reduction.kind)
        return "same_root_sum" if self._same_root(a, b) else None

    def _same_root(self, a: Tensor, b: Tensor) -> bool:
        """Whether both are functions of the same tensor."""
        first, second = self._origin(a), self._origin(b)
        return first is not None and second is not None and first.root is second.root and a.shape == b.shape

    def written_out(self, op: Op, args: tuple[Any, ...]) -> Callable[..., Tensor] | None:
        """What to run in place of a call: log(x) of a softmax or a sum of exponentials, or x y f(x) as y (x f(x))."""
        if not self.needed:
            return None
        return regrouped(args, self.note, self._origin) if op.name == "mul" else self._written_out_log(args)

    def _written_out_log(self, args: tuple[Any, ...]) -> Callable[..., Tensor] | None:
        """What log(x) is, where x is a softmax or a sum of exponentials; None for other calls."""
        if self._rules.carries == "relevance":  # z+ passes on R in each call
            return None
        note = self.note(args[0])
        if note is None or note.logarithm is None or not note.logarithm.is_known:
            return None
        self._sums.pop(note.logarithm.number, None)
        return note.logarithm.function(args[0].shape)

    def _sums_exponential(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a norm of order 1 is the sum of an exponential."""
        note = self.note(args[0]) if isinstance(args[0], Tensor) else None
        order = args[1] if len(args) > 1 else kwargs.get("p", kwargs.get("ord"))
        return note is not None and (note.exponential or note.softmax) and scalar(order) == 1.0

    def _is_gate_sum(self, a: Any, b: Any) -> bool:
        """1 + tanh(u) and 1 + erf(u), as in a GELU written by hand: f(0) is not 0, so the sum is a gate."""
        first, second = self._origin(a), self._origin(b)
        one, other = (first, b) if first is not None else (second, a)
        return one is not None and one.saturates and scalar(other) not in (None, 0.0)

    def _normalised(self, op: Op, e: Tensor, total: Tensor) -> bool:
        """Whether e / total is exp(x) / sum(exp(x)), or a masked softmax that is normalised again."""
        note, other = self.note(e), self.note(total)
        if note is None or not (note.exponential or note.softmax) or other is None or other.reduction is None:
            return False
        root, again = other.reduction.root, self._reduction_of(total, e) is not None
        same = again or (note.exponential and self._exponent(root.tensor) is note.exponent)
        normalised = same and other.reduction.kind == ("sum" if op.name == "div" else "inverse")
        if normalised:
            self._sums.pop(root.number, None)
        elif note.softmax and self._differs and (summed := self.note(root.tensor)) is not None and summed.softmax:
            self._sums[root.number] = location()
        return normalised

    def _check_order(self, a: Tensor, total: Tensor) -> None:
        """Raises at (exp(x) v) / sum(exp(x)): there the softmax itself is never computed, so its rule cannot apply."""
        note, other = self.note(a), self.note(total)
        weights = None if note is None else note.weights
        if weights is None or other is None or other.reduction is None or not total.requires_grad:
            return
        if other.reduction.root is weights:
            raise UnruledOpError(
                "attention is normalised after the product with its values, where no rule applies: "
                "use lrp_conservative, or divide the weights by their sum before"
            )

    def _inverse(self, one: Any, total: Any) -> bool:
        """Whether one / total is 1 / sum(exp(x))."""
        note = self.note(total) if isinstance(total, Tensor) and scalar(one) == 1.0 else None
        if note is None or note.reduction is None or note.reduction.kind != "sum":
            return False
        inner = self.note(note.reduction.root.tensor)
        inverse = inner is not None and (inner.exponential or inner.softmax)
        if inverse:
            self._sums.pop(note.reduction.root.number, None)
        return inverse

    def _exponent(self, tensor: Tensor) -> Root | None:
        note = self.note(tensor)
        return Root(tensor, -1) if note is None or note.exponent is None else note.exponent

    def _reduction_of(self, tensor: Tensor, x: Tensor) -> Reduction | None:
        note = self.note(tensor)
        if note is None or note.reduction is None:
            return None
        root = note.reduction.root
        return note.reduction if root.intact and root is self._roots.get(id(x)) and root.tensor is x else None

    def _centred(self, u: Any) -> Centred | None:
        note = self.note(u) if isinstance(u, Tensor) else None
        centred = None if note is None else note.centred
        return centred if centred is not None and (centred.z is None or centred.z.intact) else None

    def _biased(self, u: Any, b: Any) -> bool:
        """Whether u + b adds the bias of a norm written by hand."""
        constant = isinstance(b, Tensor) and b.dim() > 0 and not b.requires_grad and self.note(b) is None
        centred = self._centred(u) if constant else None
        return centred is not None and centred.normed

    # Taking notes.

    def follow(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Note how the result was computed."""
        if op.name not in FOLLOWED:
            return
        if isinstance(result, tuple):
            position = {"max": 0, "var_mean": 1, "std_mean": 1}.get(op.name)
            if position is None:
                return
            result = result[position]
        first = next(tensors(args), None)
        if first is None or not isinstance(result, Tensor) or any(one is result for one in args):
            return  # returned as it is: a note that refers to its own tensor would never be freed
        if op.name in ("mul", "add", "where"):  # the operand that has a note
            first = next((one for one in tensors(args) if self.note(one) is not None), first)
        first_note = self.note(first)
        if op.name in MOVES and first_note is None:
            return
        if self._differs and op.name in SUMS and first_note is not None and first_note.exponential:
            root = self._root(first)  # kept until the note below refers to it
            self._sums[root.number] = location()
        known = first_note or Note(-1)
        result_note = Note(
            result._version,
            self._pointwise(op, args, kwargs),
            self._reduction(op, args, kwargs, first, first_note),
            op.name in EXPONENTIALS or (known.exponential and masks(op, args)),
            self._root_of(first) if op.name in EXPONENTIALS else known.exponent if op.name == "abs" else None,
            self._root(first) if op.name in PRODUCTS and known.exponential else None,
            op.name == "log_softmax" or self._is_log_softmax(op, args, first, first_note),
            log_scale(op, args, known.log_scale),
            self._centring(op, args, kwargs, first, first_note, result),
            summed_product(op, args, known.product, result, self._is_derived),
            logarithm_of(op, args, kwargs, first_note, first, self._root),
            op.name == "softmax" or (known.softmax and masks(op, args)),
            factors_of(op, args, known.factors, self._root) if self._follows else None,
        )
        if result_note != Note(result._version):
            set_note(result, result_note)

    def _reduction(
        self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], first: Tensor, first_note: Note | None
    ) -> Reduction | None:
        if op.name in REDUCTIONS and len(list(tensors(args))) == 1:
            dims = None if self._sums_exponential(args, kwargs) else args[1] if len(args) > 1 else kwargs.get("dim")
            return Reduction(REDUCTIONS[op.name], self._root(first), dims)
        reduction = None if first_note is None else first_note.reduction
        if reduction is None:
            return None
        if op.name in ("reciprocal", "inverse_sum") or (op.name in ("div", "softmax") and scalar(args[0]) == 1.0):
            return replace(reduction, kind="inverse") if reduction.kind == "sum" else None
        scaled = op.name in ("mul", "div", "add", "clamp", "clamp_min") and all(
            scalar(value) is not None for value in args[1:2]
        )
        return reduction if scaled or op.name in MOVES or op.name in CASTS else None

    def _is_log_softmax(self, op: Op, args: tuple[Any, ...], first: Tensor, first_note: Note | None) -> bool:
        if op.name in ("sub", "shift") and len(args) > 1 and isinstance(args[1], Tensor):
            reduction = self._reduction_of(args[1], first)
            return reduction is not None and reduction.kind == "logsumexp"
        return first_note is not None and first_note.log_softmax and op.name in CASTS

    def _centring(
        self,
        op: Op,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        first: Tensor,
        first_note: Note | None,
        result: Tensor,
    ) -> Centred | None:
        if op.name == "centre":
            note = self.note(args[1])
            return (
                Centred(None, note.reduction.dims, False) if note is not None and note.reduction is not None else None
            )
        if op.name == "layer_norm" and len(args) > 1 and not any(isinstance(one, Tensor) for one in args[2:4]):
            return Centred(None, tuple(range(-len(args[1]), 0)), True)
        if op.name == "batch_norm" and normalises_rows(args, kwargs):
            return Centred(None, (-1,), True)
        centred = None if first_note is None else first_note.centred
        if op.name in MOVES and centred is not None:
            keeps = centred.z is None and centred.dims in (-1, (-1,), [-1]) and result.shape[-1] == first.shape[-1]
            return centred if keeps else None
        if op.name in CASTS:
            return centred
        if op.name not in ("mul", "div") or len(args) < 2 or not isinstance(args[1], Tensor):
            return None
        scaled = self._scaled(first, args[1] if first is args[0] else args[0])
        return scaled if op.name == "mul" or first is args[0] else None

    def _scaled(self, u: Tensor, factor: Any) -> Centred | None:
        """x - mean(x) times a constant: first 1/std, with one number per row, then a weight."""
        centred = self._centred(u)
        if centred is None or not isinstance(factor, Tensor):
            return centred
        z = self._root(u) if centred.z is None else centred.z
        if centred.normed:
            return replace(centred, z=z)
        dims = (centred.dims,) if isinstance(centred.dims, int) else centred.dims or ()
        rows = bool(dims) and factor.dim() == u.dim() and all(factor.shape[dim] == 1 for dim in dims)
        return Centred(z, centred.dims, True) if rows else None

    def _origin(self, value: Any) -> Origin | None:
        """The origin of a live tensor, or of a gate computed from one; None for other constants."""
        if not isinstance(value, Tensor):
            return None
        note = self.note(value)
        if note is not None and note.origin is not None:
            return note.origin
        return Origin(self._root(value)) if value.requires_grad else None

    def _pointwise(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Origin | None:
        if op.name not in POINTWISE or not self._follows:
            return None
        if op.name == "activation":
            return Origin(self._root_of(args[0]), 0.0, True, True)
        operands = list(args[:1] if op.name in CASTS else args)
        origins = [self._origin(value) for value in operands]
        own = [one for one in origins if one is not None]
        if not own or any(one.root is not own[0].root for one in own):
            return None
        at_zero = value_at_zero(op, operands, origins, kwargs)
        if at_zero is None:
            return None
        scaled = op.name in ("mul", "div") and len(own) == 1 and (op.name == "mul" or origins[0] is not None)
        linear = scaled or op.name in LINEAR
        curved = not linear or any(one.curved for one in own)
        rule = self._rules.get(op.name)
        ruled = rule in (constant_ratio, power) or op.name in ("add", "sub", "mul", *CASTS) or scaled
        passes = at_zero == 0 and ruled and all(one.passes for one in own)
        saturates = op.name in SATURATING or (own[0].saturates and (scaled or op.name in CASTS or op.name == "neg"))
        return Origin(own[0].root, at_zero, curved, passes, saturates)

    def _root_of(self, tensor: Tensor) -> Root:
        origin = self._origin(tensor)
        return origin.root if origin is not None else self._root(tensor)

    def activation(self, op: Op, result: Any) -> Tensor | None:
        """The root x, if the result is a function of x with f(0) = 0 to which the identity rule is not yet applied."""
        if not self._ratios or op.name not in CLOSES or not isinstance(result, Tensor):
            return None
        note = self.note(result)
        origin = None if note is None else note.origin
        if origin is None or origin.passes or not origin.curved or origin.at_zero != 0 or not origin.root.intact:
            return None
        x = origin.root.tensor
        return x if x.shape == result.shape and x.requires_grad and result.is_floating_point() else None
