"""Scores + units -> cells, and the words around them: what every text renderer draws, before any colour or markup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from relprop.render.caption import Caption, ShownAccount, amount, number, shown_account, shown_target
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
    beside: bool = False  # no unit of the text: biases and the like


SEPARATOR = Cell("|", 0.0, 0.0, special=True, space_before=True, title="")  # between the two texts of a pair


@dataclass(frozen=True)
class TextRow:
    """A heat map laid out."""

    caption: Caption
    cells: tuple[Cell, ...]
    chips: tuple[Cell, ...] = ()  # what the value is made of beside the units: biases, positions

    @property
    def drawn(self) -> tuple[Cell, ...]:
        """The cells, and behind a bar the chips."""
        return (*self.cells, SEPARATOR, *self.chips) if self.chips else self.cells

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
    return [TextRow(caption(heatmap), cells(heatmap), chips(heatmap)) for heatmap in heatmaps]


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
    faint, told = strength(heatmap), _titles(heatmap)
    shaded = zip(units, scores, shades(scores), told, strict=True)
    for number_of_unit, (unit, score, shade, named) in enumerate(shaded):
        crossed = not unit.special and segment not in (None, unit.segment)
        if crossed:
            laid.append(SEPARATOR)
        spaced = crossed or (previous is not None and _spaced(previous, unit))
        line, answer = number_of_unit in heatmap.line_starts, _answers(unit, heatmap.answer)
        of_unit = (unit.special, spaced, named, answer, heatmap.signed, line)
        laid.append(Cell(_piece(unit), score, shade * faint, *of_unit))
        previous, segment = unit, segment if unit.special else unit.segment
    return tuple(laid)


def chips(heatmap: Heatmap) -> tuple[Cell, ...]:
    """What the value is made of beside the units, with its numbers, on the scale of the units: clipped at its ends."""
    if not _claims(heatmap):
        return ()
    largest = max((abs(score) for score in heatmap.scores if math.isfinite(score)), default=0.0)
    full = largest / strength(heatmap) if largest else 0.0  # the score of full colour
    laid = []
    for name, shown in _account(heatmap).beside:
        score = float(shown)
        told = f"{visible(name)} {_side(score, shown)}"
        shade = max(-1.0, min(1.0, score / full)) if full else math.copysign(1, score)
        laid.append(Cell(f"({visible(name)} {shown})", score, shade, True, True, told, beside=True))
    return tuple(laid)


def _claims(heatmap: Heatmap) -> bool:
    """Whether scores and shares are said to sum to the value: those without a sign never are."""
    return heatmap.shares and heatmap.signed


def _account(heatmap: Heatmap) -> ShownAccount:
    return shown_account(heatmap.scores, heatmap.beside, heatmap.value)


def _titles(heatmap: Heatmap) -> list[str]:
    """Every unit's score in words, with numbers that add up where they are shares of the value."""
    shown = _account(heatmap).scores if _claims(heatmap) else tuple(map(number, heatmap.scores))
    return [_side(score, one, heatmap.signed) for score, one in zip(heatmap.scores, shown, strict=True)]


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


def _plain_sum(heatmap: Heatmap) -> str:
    return (number if heatmap.signed else amount)(sum(heatmap.scores))


def caption(heatmap: Heatmap) -> Caption:
    return Caption(
        method=visible(heatmap.method),
        target=shown_target(visible(heatmap.target), heatmap.value, heatmap.quantity),
        prediction=f"predicted {visible(heatmap.prediction)}" if heatmap.prediction else "",
        total=_account(heatmap).line if _claims(heatmap) else f"sum of scores {_plain_sum(heatmap)}",
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
    return _side(score, number(score), signed)


def _side(score: float, shown: str, signed: bool = True) -> str:
    if not signed:
        return shown.removeprefix("+")
    side = "supports" if score > 0 else "opposes" if score < 0 else "neutral"
    return f"{shown} {side if math.isfinite(score) else 'is not a finite number'}"


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
