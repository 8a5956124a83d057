"""Attention maps, what flows back to them, and block inputs: seen as the model runs, fused attention or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relprop.engine.captured_maps import Block, Fold, Map, Seen
from relprop.engine.module_stack import Paths, calls, first_tensor, module_of
from relprop.engine.observer import Observer, Run
from relprop.engine.propagation import Propagation
from relprop.engine.survey import hands_weights_on
from relprop.errors import InputError
from relprop.ops import Op
from relprop.rulebook import zplus_attention
from relprop.rulebook.attention import rows_at_a_time, watched, weights_of
from relprop.rulebook.rulesets import RuleSet


@dataclass(frozen=True)
class Watch:
    """What to see of attention, and what to keep of it.

    `fold` turns a map and what flowed back to it into what a method needs, block by block and some query rows at a
    time, so that maps are not hoarded: what it makes has the rows second to last. Block inputs are then kept only on
    request. Without it all is kept.
    """

    heads: HeadMask | None = None
    fold: Fold | None = None
    blocks: bool = False
    last: bool = False  # only the last map is wanted: nothing flows back beyond it
    outflows: bool = False  # of fused attention only the gradient at its result is wanted, for a pass to come


@dataclass(frozen=True)
class HeadMask:
    """Relevance flows through some heads only: what enters a block's heads is masked and scaled to its old sum.

    A block none of whose heads is in the mask stays as it is: nothing else could carry its relevance. `late`: the
    released code's way, which masks what leaves the heads, after the maps' relevance is kept, unscaled.
    """

    mask: Tensor  # [blocks, heads]
    late: bool = False

    def entering(self, block: int) -> Callable[[Tensor], Tensor]:
        def masked(relevance: Tensor) -> Tensor:
            if not self.mask[block].any():
                return relevance
            kept = self._through(block, relevance)
            before, after = (one.flatten(1).sum(1).view(-1, 1, 1, 1) for one in (relevance, kept))
            return kept * torch.where(after == 0, 0, before / torch.where(after == 0, 1, after))

        return masked

    def leaving(self, block: int) -> Callable[[Tensor], Tensor]:
        return lambda relevance: self._through(block, relevance)

    def _through(self, block: int, relevance: Tensor) -> Tensor:
        return relevance * self.mask[block].to(relevance)[None, :, None, None]


class Capture(Observer):
    """Sees attention maps, block inputs and what flows back to them; may let relevance through some heads only."""

    def __init__(
        self, model: nn.Module, blocks: Sequence[nn.Module], batch: int, watch: Watch, rules: RuleSet, live: bool = True
    ) -> None:
        self.seen = Seen()
        self._batch = batch
        self._watch = watch
        self._rules = rules
        self._live = live  # False: nothing flows back through the blocks, only through what follows the last one
        self._paths = Paths(model)
        self._blocks, self._total = {id(block) for block in blocks}, len(blocks)
        self._inside: Any = None  # the frame of the block that is running
        self._count = 0  # blocks entered
        self.end: Tensor | None = None  # where the way back ends, if before the sources
        self._weights: dict[int, Tensor] = {}  # results of softmax, and what handed them on

    def before(self, mode: Propagation, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        frame = next((f for f in calls() if id(module_of(f)) in self._blocks), None)
        if frame is self._inside:
            return
        left, self._inside = self._inside, frame
        if not self._live:
            self._count += frame is not None
            if left is not None and self._count - (frame is not None) == self._total:
                self._make_live(mode)
        elif frame is not None:
            self._enter(mode, first_tensor(frame))

    def _enter(self, mode: Propagation, x: Tensor | None) -> None:
        if x is None or not mode.is_live(x):
            return
        self._count += 1
        if self._watch.fold is None or self._watch.blocks:
            x = mode.stand_in(x)
            block = Block(len(self.seen.blocks), self._paths.here(), x)
            self.seen.blocks.append(block)
            x.register_hook(self._keep(block))

    def _make_live(self, mode: Propagation) -> None:
        """What follows the last block is to be traced back to its output, and no further."""
        if self.seen.last is not None:
            leaf = self.seen.last.input.detach().requires_grad_()
            mode.replace(self.seen.last.input, leaf)
            self.seen.last = Block(self._count, self.seen.last.module, leaf)

    def around(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        if self._inside is None:  # attention outside the blocks, a pooling head's
            result = run(op, args, kwargs)
        elif op.name == "matmul" and id(args[0]) in self._weights:
            result = self._values(args[0], args[1], lambda values: run(op, (args[0], values), kwargs))
        elif op.name == "einsum" and len(args) == 3 and id(args[1]) in self._weights:
            result = self._values(args[1], args[2], lambda values: run(op, (args[0], args[1], values), kwargs))
        elif op.name == "scaled_dot_product_attention":
            result = self._fused(args, kwargs)
        else:
            result = run(op, args, kwargs)
        self._follow(op, args, result)
        if self._inside is not None and isinstance(result, Tensor) and result.requires_grad:
            self.seen.last = Block(self._count, self._paths.here(), result)
        return result

    def constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        if not self._live and self._inside is not None and isinstance(result, Tensor) and result.is_floating_point():
            product = {"matmul": 0, "einsum": 1}.get(op.name, -1)
            if product >= 0 and id(args[product]) in self._weights:
                self._tap(args[product])
            elif op.name == "scaled_dot_product_attention":
                self._look(args, kwargs)
            self.seen.last = Block(self._count, "", result)
        self._follow(op, args, result)
        return result

    def finish(self, gradients: Seen | None = None) -> None:
        """After the forward pass: watch what flows back to the last block's output. `gradients`: of an earlier pass."""
        self._inside = None
        self._check_heads()
        if gradients is not None and gradients.last is not None and self.seen.last is not None:
            self.seen.last.gradient = gradients.last.gradient
            for entry, earlier in zip(self.seen.maps, gradients.maps, strict=True):
                entry.gradient, entry.outflow = earlier.gradient, earlier.outflow
        if self.seen.last is not None and self.seen.last.input.requires_grad:
            self.seen.last.input.register_hook(self._keep(self.seen.last))

    def _check_heads(self) -> None:
        if self._watch.heads is not None and self.seen.maps:
            given, own = tuple(self._watch.heads.mask.shape), (self._count, self.seen.maps[-1].shape[1])
            if given != own:
                raise InputError(f"the head mask has shape {given}, the model {own[0]} blocks of {own[1]} heads")

    def settle(self) -> None:
        """After the backward pass: maps that nothing flowed back to; and let go of the graph.

        Its hooks hold this capture: kept tensors of the graph would close a circle that is never collected.
        """
        self.end = None
        self._weights.clear()
        for block in (*self.seen.blocks, *([self.seen.last] if self.seen.last else [])):
            block.input = block.input.detach()
        wanted = self.seen.maps[-1:] if self._watch.last else self.seen.maps
        for entry in wanted:
            if self._watch.fold is not None and entry.folded is None:
                last = self.seen.last
                zeros = torch.zeros(
                    (), dtype=last.input.dtype if last else None, device=last.input.device if last else None
                )
                entry.weights = zeros.expand(entry.shape) if entry.weights is None else entry.weights
                self._fold(entry)

    def _follow(self, op: Op, args: tuple[Any, ...], result: Any) -> None:
        """A softmax makes a map; dropout, casts and reshapes hand it on."""
        if isinstance(result, Tensor) and hands_weights_on(op, args, result, self._weights):
            self._weights[id(result)] = result

    def _values(self, weights: Tensor, values: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """The product of a map with the values: the map is kept, the relevance of heads is masked."""
        self._tap(weights)
        heads, block = self._watch.heads, self._count - 1
        if heads is None:
            return product(values)
        if not heads.late:
            result = product(values)
            result.register_hook(self._by_head(heads.entering(block)))
            return result
        values = values.view_as(values)
        for tensor in (weights, values):
            tensor.register_hook(self._by_head(heads.leaving(block)))
        return product(values)

    def _by_head(self, edit: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor | None]:
        """`edit` relevance as [batch, heads, ...], also where the model has batch and heads in one dimension."""

        def edited(x: Tensor) -> Tensor | None:
            if self._gradient_flows:
                return None
            return edit(x.unflatten(0, (self._batch, -1))).flatten(0, 1) if x.dim() == 3 else edit(x)

        return edited

    def _fused(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Attention whose map is made, seen and folded on the way back, and never kept."""
        given = self._with_batch(args)
        entry = self._new_map(None, (*given[0].shape[:-1], given[1].shape[-2]))
        self.end = given[0] if self._watch.last else None
        if self._watch.outflows:
            result = F.scaled_dot_product_attention(*given, **kwargs)
            result.register_hook(self._keep_outflow(entry))
        elif self._rules.carries == "gradient":
            result = watched(self._by_rows(entry), *given, **kwargs)
        else:
            settings: dict[str, Any] = {"tell": self._by_rows(entry), "outflow": lambda: entry.outflow}
            run = partial(zplus_attention.attention, F.scaled_dot_product_attention, way=self._rules.way, **settings)
            result = run(*given, **kwargs)
            if self._watch.heads is not None:
                result.register_hook(self._by_head(self._watch.heads.entering(self._count - 1)))
        return result if args[0].dim() == given[0].dim() else result.flatten(0, 1)

    def _with_batch(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Query, key and value as [batch, heads, ...], also where the model has batch and heads in one dimension."""
        return *(one.unflatten(0, (self._batch, -1)) if one.dim() == 3 else one for one in args[:3]), *args[3:]

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The map of attention on the way there, where nothing will flow back."""
        given = self._with_batch(args)
        entry = self._new_map(None, (*given[0].shape[:-1], given[1].shape[-2]))
        tell = self._by_rows(entry)
        for chunk, weights in weights_of(*given, **kwargs):
            tell(chunk, weights)

    def _keep_outflow(self, entry: Map) -> Callable[[Tensor], None]:
        def keep(arrived: Tensor) -> None:
            entry.outflow = arrived.detach()

        return keep

    def _by_rows(self, entry: Map) -> Callable[..., None]:
        """Folds a map of which some rows are told at a time."""

        def tell(
            chunk: slice, weights: Tensor, gradient: Tensor | None = None, relevance: Tensor | None = None
        ) -> None:
            if entry.square:
                assert self._watch.fold is not None
                entry.fold_rows(self._watch.fold, chunk, weights, gradient, relevance)

        return tell

    def _new_map(self, weights: Tensor | None, shape: Sequence[int]) -> Map:
        if self._watch.last and self.seen.maps:
            self.seen.maps[-1].weights = self.seen.maps[-1].folded = None
        entry = Map(self._count - 1, self._paths.here(), weights, tuple(shape))
        self.seen.maps.append(entry)
        self._weights.clear()
        return entry

    def _tap(self, weights: Tensor) -> None:
        """Keep the map that a product with the values uses."""
        shaped = weights.unflatten(0, (self._batch, -1)) if weights.dim() == 3 else weights
        entry = self._new_map(None if self._watch.outflows else shaped.detach(), shaped.shape)
        if weights.requires_grad:
            self.end = weights if self._watch.last else None
            weights.register_hook(self._keep(entry, shaped.shape))
        elif not self._live and self._watch.fold is not None:
            self._fold(entry)

    @property
    def _gradient_flows(self) -> bool:
        phase = self._rules.way.phase
        return self._rules.carries == "gradient" if phase is None else phase.gradient

    def _keep(self, entry: Map | Block, shape: Any = None) -> Callable[[Tensor | None], None]:
        def keep(arrived: Tensor | None) -> None:
            if arrived is None:
                return
            found = arrived.detach() if shape is None else arrived.detach().reshape(shape)
            if self._gradient_flows:
                entry.gradient = found
            else:
                entry.relevance = found
            done = not self._gradient_flows or self._rules.carries == "gradient"
            if done and isinstance(entry, Map) and self._watch.fold is not None:
                self._fold(entry)

        return keep

    def _fold(self, entry: Map) -> None:
        """Make of a map what is needed, and let go of it. One that is no map of all tokens by all tokens stays."""
        if entry.square:
            assert self._watch.fold is not None
            step = rows_at_a_time(entry.shape)
            for start in range(0, entry.shape[2], step):
                chunk = slice(start, min(entry.shape[2], start + step))
                entry.fold_rows(self._watch.fold, chunk, *entry.rows(chunk))
            entry.weights = entry.gradient = entry.relevance = None
