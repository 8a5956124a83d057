"""Decomposes attention sub-blocks into the vectors that each token gives to each other token ([ALTI]).

A sub-block computes y = norm(x + W_O A V), with or without the norm. It is recognised by its torch calls: from the
product of a map with the values, through all that depends on it, to the addition to the residual stream; y is the
tensor that the next sub-block adds to. With A and the norm's 1/std constant all of this is linear, so that each part is
given by its derivative, whatever the model's layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from relprop.deadline import check_deadline
from relprop.engine.leaves import tensors
from relprop.engine.model_call import call, evaluating
from relprop.engine.observer import Observer, PropagationMode, Run
from relprop.engine.placement import reading_plans
from relprop.engine.propagation import Propagation
from relprop.engine.restoring import restoring
from relprop.engine.sources import MisfitError, Sources
from relprop.engine.survey import LeafPlace, ReadingPlan
from relprop.errors import ModelError
from relprop.ops import LIKE, Op, at_least_float32
from relprop.rulebook import rulesets

MATRIX = {"linear", "addmm", "matmul", "einsum", "baddbmm", "bilinear", "conv1d", "conv2d", "conv3d"}
MOVES = {"view", "reshape", "flatten", "unflatten", "transpose", "permute", "squeeze", "unsqueeze", "contiguous",
         "clone", "to", "type", "type_as", "float", "half", "bfloat16", "double", "dropout"}  # fmt: skip
CARRIES = MOVES | {"mul", "masked_fill", "nan_to_num"}  # calls whose result is still an attention map


@dataclass(frozen=True)
class AttentionSubBlock:
    """One attention sub-block y = norm(x + W_O A V), as tensors of the graph of its forward pass."""

    weights: Tensor  # A
    values: Tensor  # V
    mixed: Tensor  # A V
    projected: Tensor  # W_O A V
    residual: Tensor  # x
    total: Tensor  # x + W_O A V
    output: Tensor  # y

    def vectors(self) -> Iterator[Tensor]:
        """For each token j, what it gives to every row i: T_ij = L_i (sum_h A_ij W_O V_j + [i = j] x_i) of [ALTI].

        L_i is the norm with 1/std constant. One token j at a time, so that memory is batch x heads x tokens x features
        and never tokens x tokens x features.
        """
        u = self._projected_values()
        batch, heads, tokens, _ = u.shape
        a = self.weights.detach().reshape(batch, heads, tokens, tokens).to(u)
        norm = derivative(self.output, self.projected)
        self._check(norm(torch.einsum("bhij,bhjd->bid", a, u)))
        own = derivative(self.output, self.total)(self.residual).reshape(batch, tokens, -1)
        for j in range(tokens):
            check_deadline()  # the mode does not see the calls of an observer
            t = norm(torch.einsum("bhi,bhd->bid", a[..., j], u[:, :, j])).reshape(batch, tokens, -1)
            t[:, j] += own[:, j]
            yield at_least_float32(t)

    def _projected_values(self) -> Tensor:
        """W_O V_j per head: [batch, heads, tokens, features]."""
        project = derivative(self.projected, self.mixed)
        tokens, width = self.values.shape[-2:]
        batch = self.residual.numel() // self.residual.shape[-1] // tokens
        v = self.values.detach().reshape(batch, -1, tokens, width)
        alone = torch.eye(v.shape[1]).to(v)[:, None, :, None, None] * v  # [head, batch, heads, tokens, width]
        return torch.stack([at_least_float32(project(one)).reshape(batch, tokens, -1) for one in alone], 1)

    def _check(self, total: Tensor) -> None:
        """Raises if the vectors of single heads and tokens do not sum to W_O A V: W_O must treat all tokens alike."""
        expected = at_least_float32(derivative(self.output, self.mixed)(self.mixed))
        tolerance = 1e-3 if self.mixed.dtype.itemsize >= 4 else 5e-2
        if (at_least_float32(total) - expected).abs().max() > tolerance * expected.abs().max():
            raise ModelError("the layers between its attention and the residual stream treat tokens differently")


def derivative(result: Tensor, source: Tensor) -> Callable[[Tensor], Tensor]:
    """The function v -> (d result / d source) v: u J is linear in u, so its derivative by u applies J forwards."""
    u = torch.zeros_like(result, requires_grad=True)
    (back,) = torch.autograd.grad(result, source, u, create_graph=True)

    def along(v: Tensor) -> Tensor:
        (pushed,) = torch.autograd.grad(back, u, v.detach().reshape(back.shape).to(back.dtype), retain_graph=True)
        return pushed

    return along


def decompose(
    model: nn.Module, inputs: Mapping[str, Any], use: Callable[[AttentionSubBlock], Tensor], target: Any = None
) -> list[Tensor]:
    """`use(sub_block)` for every attention sub-block, in the order of the forward pass; one graph at a time is kept."""
    for plan in reading_plans(model, inputs, target):
        with suppress(MisfitError):
            return _decomposed(model, inputs, use, plan.leaf_places)
    raise ModelError("its residual stream begins differently in every run")


@restoring
def _decomposed(
    model: nn.Module,
    inputs: Mapping[str, Any],
    use: Callable[[AttentionSubBlock], Tensor],
    leaf_places: Sequence[LeafPlace],
) -> list[Tensor]:
    stream = next((number for number, one in enumerate(leaf_places) if one.reached and one.place == "block"), None)
    if stream is None:
        raise ModelError("it has no residual stream to start from")
    alone = ReadingPlan(tuple(replace(one, ignored=number != stream) for number, one in enumerate(leaf_places)))
    sources, follow = Sources(inputs, alone), _ResidualFollower(use)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        given = sources.live_inputs(inputs)
        with Propagation(rulesets.lrp_ln.with_maps(), [sources, follow], sources.live):
            call(model, given)
    return follow.finished()


class _ResidualFollower(Observer):
    """Follows the residual stream and what attention adds to it.

    The stream: the latest sum, and what norms, dropout and reshapes (no weight matrix) compute from it.
    A branch: all that depends on a product of attention weights and values, until it is added to the stream.
    """

    def __init__(self, use: Callable[[AttentionSubBlock], Tensor]) -> None:
        self._use = use
        self._done: list[Tensor] = []
        self._maps: dict[int, Tensor] = {}
        self._stream: dict[int, Tensor] = {}
        self._branch: dict[int, Tensor] = {}
        self._branch_parts: dict[str, Tensor] = {}  # the branch's first tensors, and its latest projection
        self._parts: dict[str, Tensor] = {}  # of the current sub-block
        self._written: Tensor | None = None
        self._result: Any = None

    def before_call(self, mode: PropagationMode, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._written = mode.stand_in(args[0]) if op.in_place else None
        self._result = None

    def before_write(self, tensor: Tensor) -> None:
        self._copy_role(self._result, tensor)

    def _copy_role(self, source: Tensor | None, other: Tensor) -> None:
        """`other` has the values of `source`: an in-place call reads a copy of its tensor and then writes to it."""
        for tracked in (self._stream, self._branch, self._maps):
            tracked.pop(id(other), None)
            if id(source) in tracked:
                tracked[id(other)] = other

    def around_call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        if op.in_place:
            self._copy_role(self._written, args[0])
        self._result = self._classify(op, args, run(op, args, kwargs))
        return self._result

    def _classify(self, op: Op, args: tuple[Any, ...], result: Any) -> Any:
        live = [tensor for tensor in tensors(args) if tensor.requires_grad]
        if not live or not isinstance(result, Tensor):
            return result
        self._stream = self._stream or {id(live[0]): live[0]}  # the first call reads the model's input
        if op.name == "matmul" and id(args[0]) in self._maps:
            self._mix(args[0], args[1], result)
        elif any(id(tensor) in self._branch for tensor in live):
            self._along_branch(op, live, result)
        elif all(id(tensor) in self._stream for tensor in live):
            if op.name not in MATRIX:
                self._stream[id(result)] = result
        elif op.name == "add" and (operand := self._in_stream(live)) is not None:
            return self._feed(operand, result)
        if op.name == "softmax" or (op.name in CARRIES and id(args[0]) in self._maps):
            self._maps[id(result)] = result
        return result

    def finished(self) -> list[Tensor]:
        if self._parts:
            raise ModelError("its last attention is not followed by a feed-forward layer with a residual connection")
        return self._done

    def _in_stream(self, tensors: list[Tensor]) -> Tensor | None:
        return next((tensor for tensor in tensors if id(tensor) in self._stream), None)

    def _mix(self, weights: Tensor, values: Tensor, mixed: Tensor) -> None:
        self._maps.clear()
        self._branch = {id(mixed): mixed}
        self._branch_parts = {"weights": weights, "values": values, "mixed": mixed, "projected": mixed}

    def _along_branch(self, op: Op, live: list[Tensor], result: Tensor) -> None:
        others = [] if op.name in LIKE else [tensor for tensor in live if id(tensor) not in self._branch]
        if others:
            self._add(op, others, result)
            return
        self._branch[id(result)] = result
        sums_branches = op.name == "add" and len(live) > 1
        if op.name in MATRIX or sums_branches or (op.name in MOVES and live[0] is self._branch_parts["projected"]):
            self._branch_parts["projected"] = result

    def _add(self, op: Op, others: list[Tensor], total: Tensor) -> None:
        """The branch is added to the stream."""
        residual = self._in_stream(others)
        if op.name != "add" or residual is None:
            raise ModelError(
                f"its attention meets another branch ({op.name}) before it is added to the residual stream"
            )
        self._close(residual)
        self._parts = {**self._branch_parts, "residual": residual, "total": total}
        self._stream, self._branch = {id(total): total}, {}

    def _feed(self, operand: Tensor, total: Tensor) -> Tensor:
        """A feed-forward layer is added to the stream. Nothing flows back further: the graph so far is released."""
        if self._branch:
            raise ModelError("something else is added to the residual stream before its attention is")
        self._close(operand)
        total = total.detach().requires_grad_().clone()  # not a leaf: the model may write to it in place
        self._stream = {id(total): total}
        return total

    def _close(self, output: Tensor) -> None:
        """`output`, the next summand of the stream, is the output of the current sub-block."""
        if self._parts:
            self._done.append(self._use(AttentionSubBlock(**self._parts, output=output)))
            self._parts = {}
