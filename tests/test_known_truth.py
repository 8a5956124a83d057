"""Models of known truth: the positive relevance is on the unit that decides.

`training/known_truth.py` says how they are made, and prints what other methods reach.
"""

from typing import Any

import numpy as np
import pytest

from known_truth import KINDS, explained, obeyed, share, tagged, tagger
from relprop import Explainer

AIM = 0.95  # of the positive relevance


def shares(explain: Explainer, kind: str, count: int, seed: int = 1) -> Any:
    """Of the units, and of everything. First that the model obeys: the deciding unit, hidden, takes the value away."""
    draw, rng = KINDS[kind][1], np.random.default_rng(seed)
    for _ in range(4):
        decides, others = obeyed(explain, draw(rng))
        assert decides > 0.9
        assert others < 0.1
    drawn = [draw(rng) for _ in range(count)]
    return np.transpose([share(explained(explain, one.given, one.target), one.deciding) for one in drawn])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_relevance_is_on_the_unit_that_decides(kind: str) -> None:
    """Of all patches and words; and of everything, but for the detector, whose detection token asks the question."""
    of_units, of_all = shares(KINDS[kind][0](), kind, 20)
    assert of_units.mean() >= AIM, of_units
    if kind != "detector":
        assert of_all.mean() >= AIM, of_all


def test_a_tagger_after_a_few_seconds() -> None:
    """The same on a shorter training: the deciding word has most of it, in every sentence."""
    assert shares(tagger(250), "tagger", 8, seed=2).min() > 0.6


def test_the_truth_is_drawn_as_it_is_told() -> None:
    """The word before the one that is asked about is its label; hidden, it is another."""
    for seed in range(20):
        example = tagged(np.random.default_rng(seed))
        (start, _), (label, _) = example.target
        before = example.given[:start].split()
        assert before[-1] == label
        assert example.deciding == [(0, len(before) - 1)]
        text, (span, _) = example.hidden[example.deciding[0]]
        assert text[: span[0]].split() != before
        assert len(text.split()) == len(example.given.split())
