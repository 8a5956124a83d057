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

Axes = tuple[int | None, int]  # of a tensor: its batch axis (None: there is one example), and that of its rows


class MapOrder:
    """What is known of the order of rows in the maps of one pass."""

    def __init__(self) -> None:
        self.differs = False  # some map has its rows in another order
        self.unproved = False  # of some map it could not be shown
        self._mixed: tuple[Tensor, Axes] | None = None

    def check_values(self, block_input: Tensor | None, values: Tensor, axes: Axes) -> None:
        """The values that are mixed: row j of every head must read row j of the block's input.

        All heads together, since each reads the same rows; one by one only if together they are mixed.
        """
        batch, row = axes
        if block_input is None or block_input.dim() != 3 or batch is None or values.dim() < 3:
            self.unproved = True
            return
        by_row = values.movedim((batch, row), (0, 1))  # [batch, rows, heads, features]
        if self._reads_own_rows(by_row.flatten(2), block_input):
            return
        for head in by_row.flatten(2, -2).unbind(2) if by_row.dim() > 3 else [by_row]:
            self._check_rows(head, block_input)

    @staticmethod
    def _reads_own_rows(values: Tensor, block_input: Tensor) -> bool:
        trial = MapOrder()
        trial._check_rows(values, block_input)
        return not (trial.differs or trial.unproved)

    def _check_rows(self, values: Tensor, block_input: Tensor) -> None:
        """Values [batch, rows, features]: each row must read the same row of the block's input."""
        rows = _rows_read(values, block_input)
        if rows is None or rows.axis != -1 or bool(rows.empty.any()):
            self.unproved = True
            return
        position = torch.unravel_index(torch.arange(len(rows.low), device=rows.low.device), rows.grid)
        for read, own in enumerate(position):
            self._compare(own, rows.low[:, read], rows.high[:, read])

    def keep_mixed(self, mixed: Tensor, axes: Axes) -> None:
        """The product of weights and values, until the block's output is known."""
        self._mixed = (mixed, axes)

    def check_output(self, output: Tensor | None) -> None:
        """The block's output: row i must read row i of the product."""
        if self._mixed is None:
            return
        (mixed, axes), self._mixed = self._mixed, None
        rows = None if output is None or output.dim() != 3 else _rows_read(output, mixed)
        if rows is None or rows.axis != -1 or bool(rows.empty.any()):
            self.unproved = True
            return
        position = torch.unravel_index(torch.arange(len(rows.low), device=rows.low.device), rows.grid)
        for own, axis in zip(position, axes, strict=True):
            if axis is not None:
                self._compare(own, rows.low[:, axis % mixed.dim()], rows.high[:, axis % mixed.dim()])

    def _compare(self, own: Tensor, low: Tensor, high: Tensor) -> None:
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
