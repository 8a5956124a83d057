"""Where relevance ends: the tensors that the scores are read from, found in the running model and made live."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from relprop.engine.propagation import Observer, Propagation
from relprop.engine.structure import calls, first_tensor, module_of, stacks
from relprop.ops import Op

At = Literal["block", "word_embeddings", "input"]
PLACES: tuple[At, ...] = ("block", "word_embeddings", "input")
Lookup = Callable[[Tensor], Tensor]
Edit = Callable[[Tensor, Tensor | None, Lookup | None], Tensor]


class MisfitError(Exception):
    """The first block's rows are not the input's tokens (pooled, windowed or otherwise rearranged)."""


@dataclass(frozen=True)
class Source:
    """A live leaf, batch first, and the token ids that it came from, if any."""

    leaf: Tensor
    ids: Tensor | None
    sequence_first: bool = False  # in the model; the leaf is batch first all the same


class Sources(Observer):
    """Makes live: the input of the first block of every stack, or the word embeddings, or the model's own float input.

    `edit(x, ids, lookup)` may change the embedded input x before it is used; `lookup(other_ids)` embeds other tokens
    (None where x is no embedding). Without `live` nothing flows back: only the edit takes place.
    """

    def __init__(
        self, model: nn.Module, inputs: Mapping[str, Any], at: At, edit: Edit | None = None, live: bool = True
    ) -> None:
        self.at = at
        self._live = live
        self.placed: list[Source] = []
        self._edit = edit
        self._ids = inputs.get("input_ids")
        self._model = model
        self._firsts = {id(block): number for number, stack in enumerate(stacks(model)) for block in stack}
        self._waiting = set(self._firsts.values()) if at == "block" else set()
        self._last_ids: Tensor | None = None

    def make_live(self, x: Tensor, lookup: Lookup | None = None) -> Tensor:
        """A copy of x that relevance flows back to. (A clone of the leaf: a model may write to it in place.)"""
        swapped = self._sequence_first()
        ids = self._last_ids
        if swapped and ids is not None:
            x, ids = x.transpose(0, 1), ids.t()
        if self._edit is not None:
            x = self._edit(x, ids, lookup)
        leaf = x.detach().requires_grad_(self._live)
        self.placed.append(Source(leaf, ids, swapped))
        return leaf.clone().transpose(0, 1) if swapped else leaf.clone()

    def _sequence_first(self) -> bool:
        """Some models (XLNet) put the sequence before the batch; sources are batch first all the same."""
        own, known = self._last_ids, self._ids
        if own is None or known is None or own.shape != known.t().shape:
            return False
        return torch.equal(own, known.t()) and not torch.equal(own, known)

    def float_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs with every floating-point tensor made live."""
        floating = {
            k: v for k, v in inputs.items() if isinstance(v, Tensor) and v.is_floating_point() and "mask" not in k
        }
        return {**inputs, **{name: self.make_live(value) for name, value in floating.items()}}

    def before(self, mode: Propagation, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if op.name == "embedding" and self._is_word_lookup(args, kwargs):
            self._last_ids = args[0]
        if self._waiting:
            self._enter_block(mode)

    def _enter_block(self, mode: Propagation) -> None:
        """At the first call inside a stack's first block, that block's hidden states become live."""
        for frame in calls():
            stack = self._firsts.get(id(module_of(frame)))
            if stack is None:
                continue
            if stack in self._waiting:
                self._waiting.discard(stack)
                x = first_tensor(frame)
                if x is not None and not mode.is_live(x):
                    self._check_fit(x)
                    mode.replace(x, self.make_live(x))
            return

    def _check_fit(self, x: Tensor) -> None:
        tokens = self._last_ids if self._last_ids is not None else self._ids
        if tokens is not None and x.shape[: tokens.dim()] != tokens.shape:
            raise MisfitError(f"block input {tuple(x.shape)}, tokens {tuple(tokens.shape)}")

    def constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        if self.at != "word_embeddings" or op.name != "embedding" or not self._is_word_lookup(args, kwargs):
            return result
        return self.make_live(result, lambda ids: _embedded(op, (ids, *args[1:]), kwargs))

    def _is_word_lookup(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """By the table where the model names it, else by the ids."""
        if tables := _word_tables(self._model):  # asked anew: an offloaded one is loaded for each call
            table = args[1] if len(args) > 1 else kwargs["weight"]
            return any(table is one or (one.is_meta and table.shape == one.shape) for one in tables)
        known = self._ids
        return known is not None and args[0].shape == known.shape and torch.equal(args[0], known)


def _embedded(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        return op.function(*args, **kwargs)  # type: ignore[no-any-return]


def _word_tables(model: Any) -> list[Tensor]:
    """The weights of the model's word embeddings, where it tells: a decoder may have its own."""
    tables = []
    with suppress(AttributeError, NotImplementedError, TypeError):
        tables.append(model.get_input_embeddings().weight)
    with suppress(AttributeError, NotImplementedError, TypeError):
        tables.append(model.get_decoder().get_input_embeddings().weight)
    return [table for table in tables if isinstance(table, Tensor)]
