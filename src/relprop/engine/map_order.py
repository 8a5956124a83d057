"""Proves that rows and columns of attention maps are the rows of the residual stream, in their order.

A model may sort, roll or flip its keys, or its queries: the map then has the right shape and mixes up the units. By
the support of gradients (`units.proved_rows`), each row of the values must read the same row of the block's input, and
each row of the block's output the same row of the product of weights and values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from relprop.engine.leaves import Leaf
from relprop.engine.units import Rows, proved_rows

Axes = tuple[int, int]  # of a tensor: its batch axis, and that of its rows


class MapOrder:
    """What is known of the order of rows in the maps of one pass."""

    def __init__(self) -> None:
        self.differs = False  # some map has its rows in another order
        self.unproved = False  # of some map it could not be shown
        self._mixed: tuple[Tensor, tuple[int | None, int]] | None = None

    def check_values(self, block_input: Tensor | None, values: Tensor, axes: Axes) -> None:
        """The values that are mixed: row j of every head must read row j of the block's input.

        All heads together, since each reads the same rows; one by one only if together they are mixed.
        """
        if block_input is None or block_input.dim() != 3:
            self.unproved = True
            return
        by_row = values.movedim(axes, (0, 1))  # [batch, rows, heads, features]
        rows = _rows_read(by_row.flatten(2), block_input)
        if rows is not None or by_row.dim() < 4:
            self._check(rows, (0, 1))
            return
        for head in by_row.flatten(2, -2).unbind(2):
            self._check(_rows_read(head, block_input), (0, 1))

    def keep_mixed(self, mixed: Tensor, axes: tuple[int | None, int]) -> None:
        """The product of weights and values, until the block's output is known. No batch axis: it is of one example."""
        self._mixed = (mixed, axes)

    def check_output(self, output: Tensor | None) -> None:
        """The block's output: row i must read row i of the product."""
        if self._mixed is None:
            return
        (mixed, axes), self._mixed = self._mixed, None
        rows = None if output is None or output.dim() != 3 else _rows_read(output, mixed)
        self._check(rows, tuple(None if axis is None else axis % mixed.dim() for axis in axes))

    def _check(self, rows: Rows | None, axes: tuple[int | None, ...]) -> None:
        """Compare rows [batch, rows] with the axes of what they read: each must read its own index."""
        if rows is None or rows.axis != -1 or bool(rows.empty.any()):
            self.unproved = True
            return
        position = torch.unravel_index(torch.arange(len(rows.low), device=rows.low.device), rows.grid)
        for own, axis in zip(position, axes, strict=True):
            if axis is not None:
                low, high = rows.low[:, axis], rows.high[:, axis]
                self.differs |= bool((own < low).any()) or bool((own > high).any())
                self.unproved |= bool((low != high).any())


def _rows_read(state: Tensor, below: Tensor) -> Rows | None:
    """The rows of `state`, each with the window of `below` that it reads."""
    shape = below.shape[:-1]
    elements = torch.arange(shape.numel(), device=below.device).view(shape)
    return proved_rows(state, [Leaf("", below, elements, "input", "")], shape)


def product_axes(equation: str) -> tuple[Axes, Axes] | None:
    """For an einsum of weights [batch, heads, queries, keys] and values: which axes hold batch and rows.

    (batch, keys) of the values, and (batch, queries) of the result. None if the weights are ordered otherwise.
    """
    terms, _, result = equation.replace(" ", "").partition("->")
    weights, _, values = terms.partition(",")
    leading = [term.startswith("...") for term in (weights, values, result)]
    query, key = weights[-2:-1], weights[-1:]
    batch = "..." if all(leading) else weights[:1]
    fits = key not in result and query in result and key in values and batch in values and batch in result
    if len(weights) < 3 or not fits or any(leading) != all(leading):
        return None

    def axes(term: str, row: str) -> Axes:
        return (0 if batch == "..." else term.index(batch)), term.index(row) - len(term)

    return axes(values, key), axes(result, query)
