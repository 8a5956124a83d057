"""Scores + units -> cells, and the words around them: what every text renderer draws, before any colour or markup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from relprop.render.caption import Caption, number
from relprop.render.visible import visible
from relprop.types import Heatmap, Unit

ANSWER_NOTE = "the answer"
FAINT = 0.05  # of the value: a row that holds less, either way, is drawn fainter
FAINT_NOTE = "drawn faint: the scores hold almost nothing of the value"
SCALE_NOTE = "shaded relative to the strongest unit of each row"


@dataclass(frozen=True)
class Cell:
    """One unit ready to draw; its text and title are safe to show but not yet escaped for any markup."""

    text: str
    score: float
    shade: float  # in [-1, 1], relative to the strongest unit of the row
    special: bool
    space_before: bool
    title: str
    answer: bool = False  # of the answer to a question
    signed: bool = True  # False for scores that only say how much, not for or against
    line_before: bool = False  # the text begins a new line here


SEPARATOR = Cell("|", 0.0, 0.0, special=True, space_before=True, title="")  # between the two texts of a pair


@dataclass(frozen=True)
class TextRow:
    """A heat map laid out."""

    caption: Caption
    cells: tuple[Cell, ...]

    @property
    def signed(self) -> bool:
        return all(cell.signed for cell in self.cells)

    @property
    def answers(self) -> bool:
        """Whether an answer is marked."""
        return any(cell.answer for cell in self.cells)


def rows(heatmaps: Sequence[Heatmap]) -> list[TextRow]:
    """Every heat map laid out, or a clear error where there is nothing to draw."""
    if not heatmaps:
        raise ValueError("no heat maps to draw; give at least one")
    return [TextRow(caption(heatmap), cells(heatmap)) for heatmap in heatmaps]


def stacked(heatmaps: Sequence[Heatmap]) -> list[tuple[tuple[str, ...], list[TextRow]]]:
    """Neighbouring rows about the same target and value under one subject, to compare methods."""
    return [(subject, list(group)) for subject, group in groupby(rows(heatmaps), key=lambda row: row.caption.subject)]


def cells(heatmap: Heatmap) -> tuple[Cell, ...]:
    """The row of cells, with a separator where a pair's second text begins."""
    units, scores = heatmap.units, heatmap.scores
    if len(units) != len(scores):
        raise ValueError(f'the heat map of "{heatmap.method}" has {len(units)} units but {len(scores)} scores')
    laid: list[Cell] = []
    previous: Unit | None = None
    segment: int | None = None  # of the last unit of the text: special tokens often carry no segment of their own
    faint = strength(heatmap)
    for number_of_unit, (unit, score, shade) in enumerate(zip(units, scores, shades(scores), strict=True)):
        crossed = not unit.special and segment not in (None, unit.segment)
        if crossed:
            laid.append(SEPARATOR)
        spaced = crossed or (previous is not None and _spaced(previous, unit))
        told, answer = title(score, heatmap.signed), _answers(unit, heatmap.answer)
        line = number_of_unit in heatmap.line_starts
        of_unit = (unit.special, spaced, told, answer, heatmap.signed, line)
        laid.append(Cell(_piece(unit), score, shade * faint, *of_unit))
        previous, segment = unit, segment if unit.special else unit.segment
    return tuple(laid)


def _answers(unit: Unit, answer: tuple[int, int] | None) -> bool:
    """Whether a unit of the second text is of the answer there."""
    if answer is None or unit.segment != 1 or unit.start is None or unit.end is None:
        return False
    return unit.start < answer[1] and unit.end > answer[0]


def shades(scores: Sequence[float]) -> list[float]:
    """Scores over the largest magnitude of the row; what is not a finite number is neutral."""
    strongest = max((abs(score) for score in scores if math.isfinite(score)), default=0.0)
    return [score / strongest if strongest and math.isfinite(score) else 0.0 for score in scores]


def strength(heatmap: Heatmap) -> float:
    """1, or less where the scores hold almost nothing of the value: such a row is drawn as faint as it is."""
    if not heatmap.shares or not math.isfinite(heatmap.value):
        return 1.0
    held = sum(abs(score) for score in heatmap.scores if math.isfinite(score))
    return min(1.0, held / (FAINT * abs(heatmap.value))) if heatmap.value else 1.0


def caption(heatmap: Heatmap) -> Caption:
    total, value = sum(heatmap.scores), number(heatmap.value).removeprefix("+")
    return Caption(
        method=visible(heatmap.method),
        target=f"{visible(heatmap.target)} = {value}",
        prediction=f"predicted {visible(heatmap.prediction)}" if heatmap.prediction else "",
        total=f"sum of scores {number(total)} of {value}" if heatmap.shares else f"sum of scores {number(total)}",
        note="; ".join(
            note
            for note in (heatmap.note and visible(heatmap.note), FAINT_NOTE if strength(heatmap) < 1 else "")
            if note
        ),
    )


def strongest(row: Sequence[Cell], count: int) -> tuple[list[Cell], list[Cell]]:
    """The most supporting and the most opposing cells, strongest first."""
    ordered = sorted(row, key=lambda cell: -abs(cell.shade))
    supporting = [cell for cell in ordered if cell.shade > 0]
    opposing = [cell for cell in ordered if cell.shade < 0]
    return supporting[:count], opposing[:count]


def signs(rows: Iterable[TextRow]) -> list[bool]:
    """Which legends rows need: of signed scores, of scores of one sign, or both."""
    return sorted({row.signed for row in rows}, reverse=True)


def ends(signed: bool) -> tuple[str, str]:
    """What the ends of a colour scale say."""
    return ("opposes", "supports") if signed else ("little", "much (neither for nor against)")


def title(score: float, signed: bool = True) -> str:
    """A cell's tooltip: the score, and in words what its colour says."""
    if not signed:
        return number(score).removeprefix("+")
    side = "supports" if score > 0 else "opposes" if score < 0 else "neutral"
    return f"{number(score)} {side if math.isfinite(score) else 'is not a finite number'}"


def _spaced(previous: Unit, unit: Unit) -> bool:
    """Whether the text has a gap between two units; where offsets are missing, whether a new word begins."""
    if unit.text[:1].isspace() or unit.special or previous.special:
        return True
    if unit.start is not None and previous.end is not None:
        return unit.start > previous.end
    same_word = unit.word is not None and unit.word == previous.word
    return not (same_word or _continues(unit))


def _continues(unit: Unit) -> bool:
    """A WordPiece continuation shown as the vocabulary spells it, for want of offsets: "##ing"."""
    return unit.start is None and not unit.special and len(unit.text) > 2 and unit.text.startswith("##")


def _piece(unit: Unit) -> str:
    text = unit.text[2:] if _continues(unit) else unit.text
    return visible(text.strip(" ") or text)
