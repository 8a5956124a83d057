"""Correlation of two sets of scores, example by example."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata

from relprop.errors import InputError
from relprop.metrics.maps import examples
from relprop.metrics.results import Bools, Floats


def pairs(scores: Any, other: Any, where: Any = None) -> list[tuple[Floats, Floats]]:
    """The two sets as rows to compare: all examples at once, or with a mask `where` one by one, cut to what counts."""
    a, b = examples(scores), examples(other)
    if a.shape != b.shape or a.ndim < 2:
        raise InputError(f"two sets of scores [examples, ...] of one shape, got {list(a.shape)} and {list(b.shape)}")
    if where is None:
        return [(a.reshape(len(a), -1), b.reshape(len(b), -1))]
    chosen = examples(where, "mask").astype(bool)
    if chosen.shape != a.shape:
        raise InputError(f"the mask of what counts is one a score, {list(a.shape)}, got {list(chosen.shape)}")
    return [(x[one][None], y[one][None]) for x, y, one in zip(a, b, chosen, strict=True)]


def pearson(a: Floats, b: Floats) -> Floats:
    """Of each row of a with the same row of b; NaN where one of them has no contrast."""
    varied = _varies(a) & _varies(b)
    return np.where(varied, (_unit(a) * _unit(b)).sum(1).clip(-1, 1), np.nan)


def spearman(a: Floats, b: Floats) -> Floats:
    """Of the ranks, ties sharing theirs."""
    return pearson(rankdata(a, axis=1), rankdata(b, axis=1))


def _varies(rows: Floats) -> Bools:
    varies: Bools = (rows != rows[:, :1]).any(1)
    return varies


def _unit(rows: Floats) -> Floats:
    """Mean 0, norm 1. The largest deviation is divided out first, so that tiny scores do not vanish in the squares."""
    centred = rows - rows.mean(1, keepdims=True)
    scaled = _divided(centred, np.abs(centred).max(1, keepdims=True))
    return _divided(scaled, np.linalg.norm(scaled, axis=1, keepdims=True))


def _divided(rows: Floats, by: Floats) -> Floats:
    return np.divide(rows, by, out=np.zeros_like(rows), where=by > 0)
