"""Do the scores agree with people? The highest scored words or tokens against those that a person marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from relprop.errors import InputError
from relprop.metrics.score_arrays import Bools, Floats, Ints, Values, as_array, finite_scores, mean_defined
from relprop.metrics.segmentation import average_precision

KS = (10, 20, 30, 40, 50, 60, 70, 80)


@dataclass(frozen=True, eq=False)
class TokenF1:
    """Counts of words per document; columns are the numbers of words taken, `ks`."""

    ks: tuple[int, ...]
    hits: Ints  # [documents, ks], words taken that are marked
    taken: Ints  # [documents, ks], fewer than k in a document of fewer words
    marked: Ints  # [documents]

    @property
    def precision(self) -> Floats:
        return _ratio(self.hits, self.taken)

    @property
    def recall(self) -> Floats:
        return _ratio(self.hits, self.marked[:, None])

    @property
    def f1(self) -> Floats:
        """[documents, ks], 2 p r / (p + r) = 2 hits / (taken + marked); 0 where nothing is marked or taken."""
        return _ratio(2 * self.hits, self.taken + self.marked[:, None])

    def curve(self) -> Floats:
        """[ks]: the mean over documents, ERASER's macro F1."""
        average: Floats = self.f1.mean(0)
        return average

    def summary(self) -> dict[str, float]:
        """The mean over documents, and over ks."""
        return {"token_f1": mean_defined(self.f1)}


def token_f1(scores: Sequence[Values], rationales: Sequence[Values], *, ks: Sequence[int] = KS) -> TokenF1:
    """Token-F1 of ERASER (DeYoung et al. 2020) at the k best words, as in [Chefer21] Fig. 4.

    Per document one score and one true-or-false mark per word. Where a text was cut there are more marks than scores:
    the words behind the cut cannot be taken, but count as marked. Of tied words the first is taken.
    """
    steps = tuple(ks)
    if not steps or any(not isinstance(k, int) or k < 1 for k in steps):
        raise InputError(f"ks are numbers of words, 1 or more, got {list(steps)}")
    if len(scores) != len(rationales) or not len(scores):
        raise InputError(f"scores of {len(scores)} documents, rationales of {len(rationales)}")
    counts = [_document(i, *one, steps) for i, one in enumerate(zip(scores, rationales, strict=True))]
    hits, taken, marked = (np.array(column) for column in zip(*counts, strict=True))
    return TokenF1(steps, hits, taken, marked)


def _document(number: int, scores: Values, rationale: Values, ks: tuple[int, ...]) -> tuple[list[int], list[int], int]:
    values, marks = _scored_marks(number, scores, rationale)
    order = np.argsort(-values, kind="stable")
    best = marks[order[: int(np.isfinite(values).sum())]]
    return [int(best[:k].sum()) for k in ks], [len(best[:k]) for k in ks], int(marks.sum())


def _scored_marks(number: int, scores: Values, rationale: Values) -> tuple[Floats, Bools]:
    """Scores and marks of one document. Words behind the cut of a text score -inf: they are never taken."""
    values, marks = as_array(scores).astype(float), as_array(rationale)
    if values.ndim != 1 or marks.ndim != 1 or len(marks) < len(values) or not np.isin(marks, (0, 1)).all():
        raise InputError(
            f"document {number}: one score and one mark (true or false) per word, got scores {list(values.shape)} and "
            f"marks {list(marks.shape)}"
        )
    if np.isnan(values).any() or np.isposinf(values).any():
        raise InputError(f"the scores of document {number} are not all finite numbers")
    behind = np.full(len(marks) - len(values), -np.inf)
    return np.concatenate([values, behind]), marks.astype(bool)


@dataclass(frozen=True, eq=False)
class MarkedWords:
    """How high the marked words stand among all words, per document; NaN where none or all are marked."""

    precision: Floats  # share of marked words among the best, as many as are marked
    reciprocal_rank: Floats  # 1 / the place of the best marked word
    average_precision: Floats  # area under the precision-recall curve

    def summary(self) -> dict[str, float]:
        return {
            "marked_precision": mean_defined(self.precision),
            "marked_reciprocal_rank": mean_defined(self.reciprocal_rank),
            "marked_auprc": mean_defined(self.average_precision),
        }


def marked_words(scores: Sequence[Values], marks: Sequence[Values]) -> MarkedWords:
    """Precision@k and MRR of words that are known to decide (Bastings et al. 2022), and the AUPRC of the same.

    Per document one score and one true-or-false mark per word. Ties are counted against the scores: of words with the
    same score, those that are not marked come first.
    """
    if len(scores) != len(marks) or not len(scores):
        raise InputError(f"scores of {len(scores)} documents, marks of {len(marks)}")
    found = [_places(*_scored_marks(i, *one)) for i, one in enumerate(zip(scores, marks, strict=True))]
    precision, rank, average = (np.array(column) for column in zip(*found, strict=True))
    return MarkedWords(precision, rank, average)


def _places(values: Floats, marks: Bools) -> tuple[float, float, float]:
    count = int(marks.sum())
    if count in (0, len(marks)):
        return nan, nan, nan
    cut = np.isneginf(values)  # tied with each other, below all that can be taken
    values = np.where(cut, values[~cut].min(initial=0.0) - 1, values)
    ranked = marks[np.lexsort((marks, -values))]
    return float(ranked[:count].mean()), 1 / (1 + int(ranked.argmax())), average_precision(values, marks)


def word_scores(scores: Values, words: Values) -> list[Floats]:
    """One array per text: a word's score is the maximum over its tokens, as in [Chefer21] Fig. 4.

    `words` [texts, tokens] holds the index of each token's word, below 0 for none. A word without a token scores -inf:
    it is never taken.
    """
    values, word_of = as_array(scores).astype(float), as_array(words)
    if values.shape != word_of.shape or values.ndim != 2:
        raise InputError(f"scores and words are [texts, tokens], got {list(values.shape)} and {list(word_of.shape)}")
    best = []
    for row, index in zip(values, word_of.astype(int), strict=True):
        word = np.full(max(0, int(index.max(initial=-1)) + 1), -np.inf)
        np.maximum.at(word, index[index >= 0], row[index >= 0])
        best.append(word)
    return best


@dataclass(frozen=True, eq=False)
class PrecisionAtK:
    """How many of the k best tokens are in the answer."""

    k: int
    hits: Ints  # [examples]
    taken: Ints  # [examples], fewer than k in a text of fewer tokens
    answer: Ints  # [examples], tokens of the answer

    def summary(self) -> dict[str, float]:
        """The precision, and what [Song24]'s released code calls precision: mean hits / mean length, a recall."""
        return {
            "precision_at_k": mean_defined(self.hits / self.taken),
            "pooled_recall_at_k": float(self.hits.sum() / self.answer.sum()),
        }


def precision_at_k(scores: Values, answers: Values, *, k: int = 20, where: Values | None = None) -> PrecisionAtK:
    """Precision@20, [Song24] Table 2: scores [examples, tokens] against the mask of the answer's tokens.

    `where` marks the tokens that take part: without it all do, special ones and padding too. Of tied tokens the first
    is taken.
    """
    values, truth = finite_scores(scores), finite_scores(answers, "answers")
    part = np.ones(values.shape) if where is None else finite_scores(where, "mask")
    if values.ndim != 2 or truth.shape != values.shape or part.shape != values.shape:
        raise InputError(
            f"scores, answers and mask are [examples, tokens], got {[list(a.shape) for a in (values, truth, part)]}"
        )
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    counts = [_top_counts(row, true != 0, there != 0, k) for row, true, there in zip(values, truth, part, strict=True)]
    hits, taken, answer = (np.array(column) for column in zip(*counts, strict=True))
    if not answer.all():
        raise InputError(f"example {int(answer.argmin())} has no token of an answer")
    return PrecisionAtK(k, hits, taken, answer)


def _top_counts(scores: Floats, answer: Bools, there: Bools, k: int) -> tuple[int, int, int]:
    best = np.argsort(-scores[there], kind="stable")[:k]
    return int(answer[there][best].sum()), len(best), int(answer[there].sum())


def _ratio(part: Ints, whole: Ints) -> Floats:
    ratio: Floats = np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)
    return ratio
