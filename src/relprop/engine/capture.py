"""Captures attention maps, block inputs and what flows back to them, from fused and written-out attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relprop.engine.captured_maps import AttentionMap, BlockInput, CapturedMaps, Fold
from relprop.engine.map_order import MapOrder, product_axes
from relprop.engine.module_stack import QualifiedNames, first_tensor, module_frames, module_of
from relprop.engine.observer import Observer, PropagationMode, Run
from relprop.engine.sources import MisfitError
from relprop.engine.survey import are_weights
from relprop.engine.weak_callbacks import WeakCallbacks
from relprop.errors import InputError, OneByOneError
from relprop.ops import Op
from relprop.rulebook.attention import fused_weights_by_rows, observed_attention, rows_at_a_time
from relprop.rulebook.rulesets import RuleSet
from relprop.rulebook.zplus_attention import zplus_attention


@dataclass(frozen=True)
class CaptureOptions:
    """What a pass keeps of attention.

    `fold` reduces a map and what flowed back to it to what a method needs, block by block and some query rows at a
    time, so that no map is kept; its result has the query rows in the second to last dimension. Block inputs are then
    kept only with `blocks`. Without `fold` everything is kept.
    """

    heads: HeadMask | None = None
    fold: Fold | None = None
    blocks: bool = False
    last: bool = False  # keep only the last map; the backward pass ends there
    output_gradients: bool = False  # of fused attention keep only the gradient of its result, for a later pass


@dataclass(frozen=True)
class HeadMask:
    """[Song24] Relevance flows through some heads only: what enters a block's heads is masked, then rescaled.

    The rescaling restores the sum (the equation after Eq. 9). A block without any head in the mask is left as it is,
    because nothing else could carry its relevance. `late` follows the released code: relevance is masked where it
    leaves the heads, after that of the maps is kept, and not rescaled.
    """

    mask: Tensor  # [blocks, heads]
    late: bool = False

    def mask_entering(self, block: int) -> Callable[[Tensor], Tensor]:
        """Masks the relevance that enters the heads of a block, and restores its sum."""

        def masked(relevance: Tensor) -> Tensor:
            if not self.mask[block].any():
                return relevance
            kept = self._masked(block, relevance)
            before, after = (one.flatten(1).sum(1).view(-1, 1, 1, 1) for one in (relevance, kept))
            return kept * torch.where(after == 0, 0, before / torch.where(after == 0, 1, after))

        return masked

    def mask_leaving(self, block: int) -> Callable[[Tensor], Tensor]:
        """Masks the relevance that leaves the heads of a block."""
        return lambda relevance: self._masked(block, relevance)

    def _masked(self, block: int, relevance: Tensor) -> Tensor:
        return relevance * self.mask[block].to(relevance)[None, :, None, None]


class Capture(Observer):
    """Keeps attention maps, block inputs and what flows back to them; applies a head mask, if there is one."""

    def __init__(
        self,
        model: nn.Module,
        blocks: Sequence[nn.Module],
        batch: int,
        options: CaptureOptions,
        rules: RuleSet,
        live: bool = True,
        order: MapOrder | None = None,
    ) -> None:
        self.captured = CapturedMaps()
        self._order = order  # proves the order of rows, where asked for
        self._block_input: Tensor | None = None
        self._batch = batch
        self._options = options
        self._rules = rules
        self._live = live  # False: the backward pass ends at the output of the last block
        self._names = QualifiedNames(model)
        self._blocks, self._total = {id(block) for block in blocks}, len(blocks)
        self._block_frame: FrameType | None = None  # of the block that is running
        self._count = 0  # blocks entered
        self.end: Tensor | None = None  # where the backward pass ends, if before the sources
        self._weights: dict[int, Tensor] = {}  # results of softmax, also cast or reshaped
        self._changed: set[int] = set()  # of these, the ids of those that were multiplied or masked
        self._weak = WeakCallbacks()  # this capture holds tensors of the graph

    def before_call(self, mode: PropagationMode, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        frame = next((f for f in module_frames() if id(module_of(f)) in self._blocks), None)
        if frame is self._block_frame:
            return
        left, self._block_frame = self._block_frame, frame
        if left is not None:
            self._check_output()
        if not self._live:
            self._count += frame is not None
            if left is not None and self._count - (frame is not None) == self._total:
                self._make_live(mode)
        elif frame is not None:
            self._enter(mode, first_tensor(frame))

    def _enter(self, mode: PropagationMode, x: Tensor | None) -> None:
        if x is None or not mode.is_live(x):
            return
        self._count += 1
        self._block_input = mode.stand_in(x)
        if self._options.fold is None or self._options.blocks:
            x = mode.stand_in(x)
            block = BlockInput(len(self.captured.blocks), self._names.current_module(), x)
            self.captured.blocks.append(block)
            x.register_hook(self._weak(self._keep_arrived(block)))

    def _make_live(self, mode: PropagationMode) -> None:
        """Make the output of the last block live: what follows it is traced back to there, and no further."""
        if self.captured.last is not None:
            leaf = self.captured.last.input.detach().requires_grad_()
            mode.replace(self.captured.last.input, leaf)
            self.captured.last = BlockInput(self._count, self.captured.last.module, leaf)

    def around_call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        if self._block_frame is None:  # attention outside the blocks, for instance of a pooling head
            result = run(op, args, kwargs)
        elif op.name == "matmul" and id(args[0]) in self._weights:
            result = self._weighted_values(args[0], args[1], lambda values: run(op, (args[0], values), kwargs))
            self._prove_order(args[1], result)
        elif op.name == "einsum" and len(args) == 3 and id(args[1]) in self._weights and product_axes(args[0]):
            result = self._weighted_values(args[1], args[2], lambda values: run(op, (args[0], args[1], values), kwargs))
            self._prove_order(args[2], result, args[0])
        elif op.name == "scaled_dot_product_attention":
            result = self._fused(args, kwargs)
            self._prove_order(args[2], result)
        else:
            result = run(op, args, kwargs)
        self._track_weights(op, args, result)
        if self._block_frame is not None and isinstance(result, Tensor) and result.requires_grad:
            self.captured.last = BlockInput(self._count, self._names.current_module(), result)
        return result

    def after_constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        in_block = not self._live and self._block_frame is not None
        if in_block and isinstance(result, Tensor) and result.is_floating_point():
            product = 0 if op.name == "matmul" else 1 if op.name == "einsum" and product_axes(args[0]) else -1
            if product >= 0 and id(args[product]) in self._weights:
                self._keep_map(args[product])
            elif op.name == "scaled_dot_product_attention":
                self._fold_forward(args, kwargs)
            self.captured.last = BlockInput(self._count, "", result)
        self._track_weights(op, args, result)
        return result

    def _prove_order(self, values: Tensor, mixed: Tensor, equation: str | None = None) -> None:
        axes = ((0, -2), (0, -2)) if equation is None else product_axes(equation)
        if self._order is not None and axes is not None:
            self._order.check_values(self._block_input, self._by_batch(values), axes[0])
            self._order.keep_mixed(mixed, axes[1] if mixed.dim() > 3 else (None, axes[1][1]))

    def _check_output(self) -> None:
        if self._order is not None:
            self._order.check_output(None if self.captured.last is None else self.captured.last.input)

    def finish(self, gradients: CapturedMaps | None = None) -> None:
        """After the forward pass: keep what flows back to the last block's output. `gradients`: of an earlier pass."""
        self._block_frame = None
        self._check_output()
        self.check_blocks()
        self._check_heads()
        if gradients is not None and gradients.last is not None and self.captured.last is not None:
            self.captured.last.gradient = gradients.last.gradient
            for entry, earlier in zip(self.captured.maps, gradients.maps, strict=True):
                entry.gradient, entry.output_gradient = earlier.gradient, earlier.output_gradient
        if self.captured.last is not None and self.captured.last.input.requires_grad:
            self.captured.last.input.register_hook(self._weak(self._keep_arrived(self.captured.last)))

    def check_blocks(self) -> None:
        """Raise if not as many blocks ran as in the survey."""
        if self._count != self._total:
            raise MisfitError(f"{self._count} blocks ran where {self._total} were expected")

    def _check_heads(self) -> None:
        if self._options.heads is not None and self.captured.maps:
            given, own = tuple(self._options.heads.mask.shape), (self._count, self.captured.maps[-1].shape[1])
            if given != own:
                raise InputError(f"the head mask has shape {given}, the model {own[0]} blocks of {own[1]} heads")

    def release(self) -> None:
        """After the backward pass: fold the maps that nothing flowed back to, and release the graph."""
        self.end = None
        self._weak.clear()
        self._weights.clear()
        for block in (*self.captured.blocks, *([self.captured.last] if self.captured.last else [])):
            block.input = block.input.detach()
        wanted = self.captured.maps[-1:] if self._options.last else self.captured.maps
        for entry in wanted:
            if self._options.fold is not None and entry.folded is None:
                last = self.captured.last
                zeros = torch.zeros(
                    (), dtype=last.input.dtype if last else None, device=last.input.device if last else None
                )
                entry.weights = zeros.expand(entry.shape) if entry.weights is None else entry.weights
                self._fold(entry)

    def _track_weights(self, op: Op, args: tuple[Any, ...], result: Any) -> None:
        """Remember results of softmax, and what dropout, casts and reshapes make of them."""
        if isinstance(result, Tensor) and are_weights(op, args, result, self._weights):
            self._weights[id(result)] = result
            if op.name in ("mul", "masked_fill") or (args and id(args[0]) in self._changed and op.name != "softmax"):
                self._changed.add(id(result))

    def _weighted_values(self, weights: Tensor, values: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """The product of a map with the values: keeps the map, applies the head mask."""
        self._keep_map(weights)
        heads, block = self._options.heads, self._count - 1
        if heads is None:
            return product(values)
        if not heads.late:
            result = product(values)
            result.register_hook(self._weak(self._by_head(heads.mask_entering(block))))
            return result
        values = values.view_as(values)
        for tensor in (weights, values):
            tensor.register_hook(self._weak(self._by_head(heads.mask_leaving(block))))
        return product(values)

    def _by_head(self, edit: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor | None]:
        """A hook: `edit` of relevance as [batch, heads, ...], also where batch and heads are one dimension."""

        def edited(x: Tensor) -> Tensor | None:
            if self._gradient_flows:
                return None
            return edit(self._by_batch(x)).flatten(0, 1) if x.dim() == 3 else edit(x)

        return edited

    def _fused(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Fused attention whose map is recomputed and folded during the backward pass, and never kept."""
        given = self._with_batch(args)
        entry = self._new_map(None, (*given[0].shape[:-1], given[1].shape[-2]))
        self.end = given[0] if self._options.last else None
        if self._options.output_gradients:
            result = F.scaled_dot_product_attention(*given, **kwargs)
            result.register_hook(self._weak(self._keep_output_gradient(entry)))
        elif self._rules.carries == "gradient":
            result = observed_attention(self._weak(self._row_folder(entry)), *given, **kwargs)
        else:
            result = zplus_attention(
                F.scaled_dot_product_attention,
                *given,
                settings=self._rules.settings,
                observe=self._weak(self._row_folder(entry)),
                output_gradient=self._weak(lambda: entry.output_gradient),
                **kwargs,
            )
            if self._options.heads is not None:
                result.register_hook(self._weak(self._by_head(self._options.heads.mask_entering(self._count - 1))))
        return result if args[0].dim() == given[0].dim() else result.flatten(0, 1)

    def _with_batch(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Query, key and value as [batch, heads, ...], also where batch and heads are one dimension."""
        return *map(self._by_batch, args[:3]), *args[3:]

    def _by_batch(self, tensor: Tensor) -> Tensor:
        """A tensor whose first dimension is batch and heads with two dimensions for them."""
        if tensor.dim() != 3:
            return tensor
        if self._batch > 1:
            raise OneByOneError("the first dimension of its attention is batch and heads, in an unknown order")
        shaped: Tensor = tensor.unflatten(0, (self._batch, -1))
        return shaped

    def _fold_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Fold the map of fused attention in the forward pass, where nothing will flow back."""
        given = self._with_batch(args)
        entry = self._new_map(None, (*given[0].shape[:-1], given[1].shape[-2]))
        fold_chunk = self._row_folder(entry)
        for chunk, weights in fused_weights_by_rows(*given, **kwargs):
            fold_chunk(chunk, weights)

    def _keep_output_gradient(self, entry: AttentionMap) -> Callable[[Tensor], None]:
        def keep(arrived: Tensor) -> None:
            entry.output_gradient = arrived.detach()

        return keep

    def _row_folder(self, entry: AttentionMap) -> Callable[..., None]:
        """A callback that folds some query rows of the map."""

        def fold_chunk(
            chunk: slice, weights: Tensor, gradient: Tensor | None = None, relevance: Tensor | None = None
        ) -> None:
            if entry.square:
                assert self._options.fold is not None
                entry.fold_rows(self._options.fold, chunk, weights, gradient, relevance)

        return fold_chunk

    def _new_map(self, weights: Tensor | None, shape: Sequence[int]) -> AttentionMap:
        if self._options.last and self.captured.maps:
            self.captured.maps[-1].weights = self.captured.maps[-1].folded = None
        entry = AttentionMap(self._count - 1, self._names.current_module(), weights, tuple(shape))
        self.captured.maps.append(entry)
        self._weights.clear()
        self._changed.clear()
        return entry

    def _keep_map(self, weights: Tensor) -> None:
        """Keep the map that is multiplied with the values."""
        shaped = self._by_batch(weights)
        if id(weights) in self._changed:
            sums = shaped.detach().sum(-1)
            self.captured.changed |= bool((((sums - 1).abs() > 0.01) & (sums != 0)).any())  # 0: a mask hides all keys
        entry = self._new_map(None if self._options.output_gradients else shaped.detach(), shaped.shape)
        if weights.requires_grad:
            self.end = weights if self._options.last else None
            weights.register_hook(self._weak(self._keep_arrived(entry, shaped.shape)))
        elif not self._live and self._options.fold is not None:
            self._fold(entry)

    @property
    def _gradient_flows(self) -> bool:
        phase = self._rules.settings.phase
        return self._rules.carries == "gradient" if phase is None else phase.gradient

    def _keep_arrived(
        self, entry: AttentionMap | BlockInput, shape: Sequence[int] | None = None
    ) -> Callable[[Tensor | None], None]:
        def keep(arrived: Tensor | None) -> None:
            if arrived is None:
                return
            value = arrived.detach() if shape is None else arrived.detach().reshape(shape)
            if self._gradient_flows:
                entry.gradient = value
            else:
                entry.relevance = value
            done = not self._gradient_flows or self._rules.carries == "gradient"
            if done and isinstance(entry, AttentionMap) and self._options.fold is not None:
                self._fold(entry)

        return keep

    def _fold(self, entry: AttentionMap) -> None:
        """Fold a map and drop it. A map that is not of all tokens by all tokens is kept."""
        if entry.square:
            assert self._options.fold is not None
            step = rows_at_a_time(entry.shape)
            for start in range(0, entry.shape[2], step):
                chunk = slice(start, min(entry.shape[2], start + step))
                entry.fold_rows(self._options.fold, chunk, *entry.rows(chunk))
            entry.weights = entry.gradient = entry.relevance = None
