"""Correlation of two sets of scores, one number per example."""

from __future__ import annotations

import numpy as np

from relprop.errors import InputError
from relprop.metrics.score_arrays import Bools, Floats, Values, finite_scores


def compared_rows(scores: Values, other: Values, where: Values | None = None) -> list[tuple[Floats, Floats]]:
    """Pairs of rows [examples, scores] to compare: one of all examples, or with a mask `where` one of each example."""
    a, b = finite_scores(scores), finite_scores(other)
    if a.shape != b.shape or a.ndim < 2:
        raise InputError(f"two sets of scores [examples, ...] of one shape, got {list(a.shape)} and {list(b.shape)}")
    if where is None:
        return [(a.reshape(len(a), -1), b.reshape(len(b), -1))]
    chosen = finite_scores(where, "mask").astype(bool)
    if chosen.shape != a.shape:
        raise InputError(f"the mask of the scores that count has the shape {list(a.shape)}, got {list(chosen.shape)}")
    return [(x[one][None], y[one][None]) for x, y, one in zip(a, b, chosen, strict=True)]


def pearson(a: Floats, b: Floats) -> Floats:
    """Pearson's correlation of each row of a with the same row of b; NaN where all scores of a row are equal."""
    varied = _varies(a) & _varies(b)
    return np.where(varied, (_unit(a) * _unit(b)).sum(1).clip(-1, 1), np.nan)


def spearman(a: Floats, b: Floats) -> Floats:
    """Pearson's correlation of the ranks; tied scores have their mean rank."""
    from scipy.stats import rankdata  # here, as importing it takes 0.4 s

    return pearson(rankdata(a, axis=1), rankdata(b, axis=1))


def _varies(rows: Floats) -> Bools:
    varies: Bools = (rows != rows[:, :1]).any(1)
    return varies


def _unit(rows: Floats) -> Floats:
    """Rows with mean 0 and norm 1, divided by the largest deviation first, so that squares of tiny scores are not 0."""
    centred = rows - rows.mean(1, keepdims=True)
    scaled = _divided(centred, np.abs(centred).max(1, keepdims=True))
    return _divided(scaled, np.linalg.norm(scaled, axis=1, keepdims=True))


def _divided(rows: Floats, by: Floats) -> Floats:
    return np.divide(rows, by, out=np.zeros_like(rows), where=by > 0)
