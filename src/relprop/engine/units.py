"""Proves with gradients which unit of its part each row of a hidden state is; shapes are not trusted.

A row is the vector along the feature axis at one position of the other axes. Row numbers are encoded digit by digit:
the gradient that starts at a row is scaled by 2^digit. Scaling by a power of two is exact in floating point, so if a
single row reads an input number, the ratio of scaled to plain gradient there is exactly that power; if several rows
read it, the ratio is no power of two. The gradient passes only through what lies below the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from relprop.engine.leaves import CONSTANT, Leaf

# How many rows may read the same input number (overlapping windows).
MOST_OVERLAP = 8
NOTHING = 1e-9  # of the largest gradient of any row: less than that is no dependence


@dataclass(frozen=True)
class Rows:
    """The rows of a state, and the window of the part that each row reads: elements `low` to `high`, both included.

    A row that reads nothing (a class token, a learned prompt) has low > high.
    """

    axis: int | None  # the state's feature axis; None where every number is a row
    grid: tuple[int, ...]  # the state's other axes
    low: Tensor  # [rows, axes of the part]
    high: Tensor
    shape: tuple[int, ...]  # of the part

    def of(self, state: Tensor) -> Tensor:
        """The state as [rows, features]."""
        return state.reshape(len(self.low), -1) if self.axis in (None, -1) else state.movedim(1, -1).flatten(0, -2)

    def back(self, rows: Tensor, shape: Sequence[int]) -> Tensor:
        """The state of this shape with these rows."""
        if self.axis in (None, -1):
            return rows.reshape(shape)
        return rows.reshape(*self.grid, -1).movedim(-1, 1)

    @property
    def elements(self) -> Tensor:
        """[rows]: the flat index of the element that each row reads, -1 for none. For `single` rows."""
        index = torch.zeros(len(self.low), dtype=torch.long, device=self.low.device)
        for axis, size in enumerate(self.shape):
            index = index * size + self.low[:, axis]
        return torch.where(self.empty, -1, index)

    @property
    def empty(self) -> Tensor:
        return (self.low > self.high).any(1)

    @property
    def single(self) -> bool:
        """Whether every row reads at most one element, as that of a token does."""
        return bool((self.high <= self.low).all())

    @property
    def differ(self) -> bool:
        """Whether rows read different windows, or each example has only one row that reads."""
        windows = torch.cat([self.low[:, 1:], self.high[:, 1:]], 1)[~self.empty]
        alone = int(torch.bincount(self.low[~self.empty, 0]).max()) == 1
        return alone or (windows.shape[1] > 0 and len(torch.unique(windows, dim=0)) > 1)

    @property
    def spanned(self) -> tuple[int, ...]:
        """Axes of the part that every row reads from end to end: its features. Empty if rows do not differ."""
        low, high = self.low[~self.empty], self.high[~self.empty]
        size = torch.tensor(self.shape, device=low.device)
        full = ((low == 0) & (high == size - 1)).all(0)
        full[0] = False
        differ = len(self.shape) > 1 and len(torch.unique(low[:, 1:], dim=0)) > 1
        return tuple(torch.nonzero(full).flatten().tolist()) if differ else ()


@dataclass(frozen=True)
class UnitIndex:
    """The example and unit of each row of a state; -1 for a row that belongs to no unit."""

    example: Tensor  # [rows]
    unit: Tensor
    examples: int
    units: int
    windows: Tensor | None = None  # [examples, units, axes of the part but the batch, 2]: first and last element

    def summed(self, values: Tensor) -> Tensor:
        """[examples, units]: the sums of the rows' values."""
        kept = self.unit >= 0
        index = (self.example * self.units + self.unit)[kept].to(values.device)
        total = values.new_zeros(self.examples * self.units)
        return total.index_add(0, index, values[kept.to(values.device)]).view(self.examples, self.units)


def unit_index(
    rows: Rows,
    examples: int,
    axis: int | None,
    by_element: bool,
    features: tuple[int, ...] = (),
    owner: Tensor | None = None,
) -> UnitIndex:
    """The example and unit of each row.

    `axis`: the part's batch axis; None where `owner` gives the example of each row, or there is only one example.
    `by_element`: units are the part's elements, joined along `features`. Otherwise units are the rows, in their order;
    rows that read the same window in every example are one unit.
    """
    example = torch.zeros(len(rows.low), dtype=torch.long, device=rows.low.device) if owner is None else owner
    if axis is not None:
        example = torch.where(rows.empty, -1, rows.low[:, axis])
        example = _with_empty_rows(example, rows.grid, examples)
    others = [i for i in range(len(rows.shape)) if i != axis and i not in features]
    if by_element and owner is None:
        unit = torch.zeros_like(example)
        for i in others:
            unit = unit * rows.shape[i] + rows.low[:, i]
        return UnitIndex(example, torch.where(rows.empty, -1, unit), examples, prod(rows.shape[i] for i in others))
    return _by_row(rows, example, examples, axis)


def _with_empty_rows(example: Tensor, grid: tuple[int, ...], examples: int) -> Tensor:
    """Give rows that read nothing the example of the rows beside them."""
    known = example >= 0
    if bool(known.all()):
        return example
    for size, index in zip(grid, torch.unravel_index(torch.arange(len(example)), grid), strict=True):
        if size == examples and torch.equal(index.to(example)[known], example[known]):
            return index.to(example)
    return example


def _by_row(rows: Rows, example: Tensor, examples: int, axis: int | None) -> UnitIndex:
    """Units are the rows of an example, in their order; examples with fewer rows end in units that read nothing."""
    axes = [i for i in range(len(rows.shape)) if i != axis]
    counts = torch.bincount(example[example >= 0], minlength=examples)
    own = [torch.nonzero(example == number).flatten() for number in range(examples)]
    windows = torch.tensor([1, 0], device=example.device).expand(examples, int(counts.max()), len(axes), 2).clone()
    for number, mine in enumerate(own):
        windows[number, : len(mine)] = torch.stack([rows.low[mine][:, axes], rows.high[mine][:, axes]], -1)
    empty = (windows[..., 0] > windows[..., 1]).any(-1).all(0)
    first, index = _distinct(windows.transpose(0, 1).flatten(1), empty)
    unit = torch.full_like(example, -1)
    for mine in own:
        unit[mine] = index[: len(mine)]
    return UnitIndex(example, unit, examples, len(first), windows[:, first])


def _distinct(windows: Tensor, empty: Tensor) -> tuple[Tensor, Tensor]:
    """The indices of the distinct windows, in order of first appearance; and per window its number among these."""
    number = torch.arange(len(empty), device=empty.device)
    keys = torch.cat([windows, torch.where(empty, number, -1)[:, None]], 1)  # each empty window counts as distinct
    kinds, index = torch.unique(keys, dim=0, return_inverse=True)
    first = torch.full((len(kinds),), len(keys), device=keys.device).scatter_reduce(0, index, number, "amin")
    order = first.argsort()
    rank = torch.empty_like(order).scatter(0, order, number[: len(order)])
    return first[order], rank[index]


def row_owners(rows: Rows, plain: Tensor, scaled: Tensor) -> tuple[Tensor, Tensor] | None:
    """The example of each row, from the gradients of all examples: `plain`, and `scaled` by 2^i for example i.

    And which rows have a gradient; those without count to the example of the row before. None if a row belongs to
    several examples.
    """
    flows = [rows.of(one) for one in (plain, scaled)]
    before, after = ((one @ _noise(one.shape[-1], one)).nan_to_num(0.0) for one in flows)  # rows that a mask hides
    rounding = before.abs() <= NOTHING * before.abs().max()  # what a mask lets through of hidden tokens
    before, after = (torch.where(rounding, 0, one) for one in (before, after))
    power = _power(before, after, plain.dtype)
    if power is None:
        return None
    latest = torch.where(before != 0, torch.arange(len(before), device=before.device), 0).cummax(0).values
    return power[latest], before != 0


def rows_of_leaf(leaf: Leaf, shape: Sequence[int], features: tuple[int, ...] = ()) -> Rows:
    """The rows of a leaf: each leading position is one element; along a feature axis, a row holds all elements."""
    axis = None if leaf.elements.dim() == leaf.tensor.dim() else -1
    elements, last = leaf.elements, leaf.elements
    if axis is None and features in ((1,), (len(shape) - 1,)):
        axis = 1 if features == (1,) else -1
        elements, last = elements.select(axis, 0), last.select(axis, -1)
    low, high = (
        torch.stack(torch.unravel_index(one.flatten().clamp_min(0), tuple(shape)), -1) for one in (elements, last)
    )
    real = (elements.flatten() >= 0)[:, None]
    grid = tuple(elements.shape)
    return Rows(axis, grid, torch.where(real, low, 1), torch.where(real, high, 0), tuple(shape))


def proved_rows(state: Tensor, leaves: Sequence[Leaf], shape: Sequence[int]) -> Rows | None:
    """The rows of `state`, if each reads one window of the part (of this shape) that enters by `leaves`; else None."""
    for axis in ([], [-1], [-1], [-1, 1])[min(state.dim(), 3)]:  # features come last, or second, as in feature maps
        for classes in range(1, MOST_OVERLAP + 1):
            decoded = _decoded(state, leaves, axis, classes)
            if decoded is not None:
                rows = _windows(decoded, leaves, tuple(shape), state, axis)
                if rows is not None:
                    return rows
                break
    return None


def _count(state: Tensor, axis: int) -> int:
    return state.numel() // state.shape[axis]


def _decoded(state: Tensor, leaves: Sequence[Leaf], axis: int, classes: int) -> list[list[Tensor]] | None:
    """Per class of rows and per leaf: the row that reads each position, CONSTANT for none.

    Rows of different classes may read the same numbers; returns None if rows of one class do.
    """
    count = _count(state, axis)
    number = torch.arange(count, device=state.device).view(state.movedim(axis, -1).shape[:-1])
    number = number.unsqueeze(-1).movedim(-1, axis)
    noise = _noise(state.shape[axis], state).view([-1 if i == axis % state.dim() else 1 for i in range(state.dim())])
    noise = noise * _row_factors(number.shape, state)
    per_class = []
    for own in range(classes):
        flowing = torch.where(number % classes == own, noise, 0)
        plain = _flow(state, leaves, flowing)
        decoded = [torch.where(one == 0, CONSTANT, 0) for one in plain]
        for base_power, digits in _digits(number, count, state.dtype):
            scaled = _flow(state, leaves, torch.ldexp(flowing, digits))
            for total, before, after in zip(decoded, plain, scaled, strict=True):
                digit = _power(before, after, state.dtype)
                if digit is None:
                    return None
                total += digit * base_power
        per_class.append(decoded)
    return per_class


def _noise(length: int, like: Tensor) -> Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(0)).to(like)


def _row_factors(shape: Sequence[int], like: Tensor) -> Tensor:
    """One random factor per row: without it, two rows that read one unit could together look like a third row."""
    return (0.5 + torch.rand(tuple(shape), generator=torch.Generator().manual_seed(1))).to(like)


def _flow(state: Tensor, leaves: Sequence[Leaf], flowing: Tensor) -> list[Tensor]:
    """The gradient at every leading position of the leaves, features summed with random weights."""
    tensors = [leaf.tensor for leaf in leaves]
    arrived = torch.autograd.grad(state, tensors, flowing.expand_as(state), retain_graph=True, allow_unused=True)
    summed = []
    for leaf, flow in zip(leaves, arrived, strict=True):
        flat = (torch.zeros_like(leaf.tensor) if flow is None else flow).reshape(*leaf.elements.shape, -1)
        flat = flat.float() if flat.dtype is torch.float16 else flat
        summed.append(flat @ _noise(flat.shape[-1], flat) if flat.shape[-1] > 1 else flat[..., 0])
    return summed


def _digits(number: Tensor, count: int, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
    """The digits of every row's number with their base power; the base is as large as the dtype's exponents allow."""
    base = 8 if dtype is torch.float16 else 64
    base_power = 1
    while base_power < count:
        yield base_power, number // base_power % base
        base_power *= base


_FLOAT16_ROUNDING = 1e-5  # absolute, of a sum of numbers near the smallest that float16 holds


def _power(before: Tensor, after: Tensor, dtype: torch.dtype) -> Tensor | None:
    """log2(after / before), 0 where both are 0; None unless it is an integer everywhere. `dtype`: of the gradients."""
    flowed = before != 0
    power = torch.where(flowed, after / before, 1).abs().log2().round()
    exact = torch.ldexp(before, power)
    near: Tensor | float = 0.0  # scaling by a power of two is exact, but for float16's smallest numbers
    if dtype is torch.float16:
        near = 4 * torch.finfo(dtype).eps * exact.abs() + _FLOAT16_ROUNDING * 2**power
    return power.long() if bool(((after - exact).abs() <= near).all()) else None


def _windows(
    decoded: list[list[Tensor]], leaves: Sequence[Leaf], shape: tuple[int, ...], state: Tensor, axis: int
) -> Rows | None:
    """The window of every row; None if a window has gaps."""
    dims, count = len(shape), _count(state, axis)
    device = leaves[0].elements.device
    low = torch.full((count, dims), torch.iinfo(torch.long).max, device=device)
    high = torch.full((count, dims), -1, device=device)
    read = torch.zeros(count, dtype=torch.long, device=device)
    for rows in decoded:
        pairs = [
            torch.stack([row[kept := (row >= 0) & (leaf.elements >= 0)], leaf.elements[kept]])
            for leaf, row in zip(leaves, rows, strict=True)
        ]
        row, element = torch.unique(torch.cat(pairs, 1), dim=1) if len(pairs) > 1 else pairs[0]
        positions = torch.stack(torch.unravel_index(element, tuple(shape)), -1)
        index = row[:, None].expand(-1, dims)
        low.scatter_reduce_(0, index, positions, "amin")
        high.scatter_reduce_(0, index, positions, "amax")
        read.index_add_(0, row, torch.ones_like(row))
    empty = read == 0
    low[empty], high[empty] = 1, 0
    gapless = torch.where(empty, 0, (high - low + 1).prod(1)) == read
    grid = tuple(state.movedim(axis, -1).shape[:-1])
    return Rows(axis, grid, low, high, shape) if bool(gapless.all()) and not bool(empty.all()) else None
