"""Heat maps in the terminal, from truecolor down to no colour at all, where numbers stand in for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.color import Color
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from relprop.render import palette
from relprop.render.text.layout import ANSWER_NOTE, SCALE_NOTE, Cell, TextRow, ends, rows, signs, strongest
from relprop.types import Heatmap

SHOWN = 5  # supporting and opposing units in numbers, where there is no colour

FEW = ("standard", "windows")  # 16 colours


def _ladder(*pairs: tuple[str, str]) -> tuple[Style, ...]:
    return tuple(Style(color=text, bgcolor=background) for text, background in pairs)


# The nearest colour is often of another hue: among 16 a strong red becomes yellow, among 256 a pale blue becomes grey.
# So both get steps of their own, from nothing to the strongest.
_PAPER = ("black", "bright_white")
_SUPPORTS_16 = _ladder(_PAPER, ("red", "bright_white"), ("bright_white", "red"))
_OPPOSES_16 = _ladder(_PAPER, ("blue", "bright_white"), ("bright_white", "blue"))
_AMOUNT_16 = _ladder(_PAPER, ("magenta", "bright_white"), ("bright_white", "magenta"))
_DARK, _PALE = "color(16)", "color(231)"
_SUPPORTS_256 = _ladder(*((_DARK, f"color({n})") for n in (231, 224, 217, 174, 167)), (_PALE, "color(124)"))
_OPPOSES_256 = _ladder(*((_DARK, f"color({n})") for n in (231, 189, 153, 110, 68)), (_PALE, "color(25)"))

_AMOUNT_256 = _ladder(
    *((_DARK, f"color({n})") for n in (231, 189, 183, 141)), (_PALE, "color(97)"), (_PALE, "color(54)")
)


def terminal(heatmaps: Sequence[Heatmap]) -> RenderableType:
    """Header, coloured tokens and what the scores account for, one heat map under the other; the legend closes."""
    return _TextTerminal(tuple(rows(heatmaps)))


@dataclass(frozen=True)
class _TextTerminal:
    """Rows that wait for the console: only it knows how many colours there are."""

    rows: tuple[TextRow, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        colours = "none" if console.no_color else console.color_system or "none"
        for row in self.rows:
            words = row.caption
            yield Text.assemble((words.method, "bold"), *(f"  {part}" for part in words.subject), overflow="fold")
            yield from _plain(row) if colours == "none" else _coloured(row, colours)
            yield Text(" · ".join(words.account), style="dim")
            yield Text()
        yield _legend(colours, any(row.answers for row in self.rows), signs(self.rows))


def _coloured(row: TextRow, colours: str) -> Iterator[RenderableType]:
    text = Text(overflow="fold")
    inside = False  # the answer, whose line runs on under its spaces
    for cell in row.drawn:
        text.append(
            "\n" if cell.line_before else " " if cell.space_before else "",
            Style(underline=(inside and cell.answer) or None),
        )
        style = Style(dim=cell.special and not cell.beside, italic=cell.beside or None, underline=cell.answer or None)
        text.append(cell.text, shade_style(cell.shade, colours, cell.signed) + style)
        inside = cell.answer
    # The terminal's own background is unknown, and white must read as nothing: the whole row lies on white paper.
    yield Padding(text, (0, 1), style=shade_style(0, colours))


def _plain(row: TextRow) -> Iterator[RenderableType]:
    """The text, and its strongest units with their scores: supporting left, opposing right."""
    yield Padding(
        Text("".join(("\n" if c.line_before else " " * c.space_before) + c.text for c in row.drawn), overflow="fold"),
        (0, 1),
    )
    supporting, opposing = strongest(row.cells, SHOWN)
    table = Table.grid(padding=(0, 4))
    if row.signed:
        table.add_row(_scores("supports", supporting), _scores("opposes", opposing))
    else:
        table.add_row(_scores("weighs most", supporting))
    yield Padding(table, (0, 1))


def _scores(heading: str, column: list[Cell]) -> RenderableType:
    lines = [f"{cell.title.partition(' ')[0]}  {cell.text}" for cell in column] or ["nothing"]
    return Group(Text(heading), *(Text(line, overflow="fold") for line in lines))


def _legend(colours: str, answers: bool, kinds: Sequence[bool]) -> Text:
    if colours == "none":
        signed = "+ supports the target, - opposes it"
        plain = "numbers without a sign say how much, neither for nor against"
        return Text("; ".join(signed if one else plain for one in kinds), style="dim")
    answer = [("  ", ""), (ANSWER_NOTE, "underline dim")] if answers else []
    scales = [piece for one in kinds for piece in _scale(one, colours)]
    return Text.assemble(*scales, (SCALE_NOTE, "dim"), *answer)


def _scale(signed: bool, colours: str) -> list[str | tuple[str, Style]]:
    swatch = "••" if colours in FEW else "  "  # few colours also tint the text
    least, most = ends(signed)
    swatches = [(swatch, shade_style(shade, colours, signed)) for shade in palette.legend(signed=signed)]
    return [f"{least} ", *swatches, f" {most}  "]


def shade_style(shade: float, colours: str, signed: bool = True) -> Style:
    if colours in FEW:
        return _step(shade, _AMOUNT_16 if not signed else _SUPPORTS_16 if shade > 0 else _OPPOSES_16)
    if colours == "256":
        return _step(shade, _AMOUNT_256 if not signed else _SUPPORTS_256 if shade > 0 else _OPPOSES_256)
    background = palette.colour(shade, palette.light(signed))
    return Style.from_color(Color.from_rgb(*palette.ink(background)), Color.from_rgb(*background))


def _step(shade: float, ladder: tuple[Style, ...]) -> Style:
    return ladder[min(int(abs(shade) * len(ladder)), len(ladder) - 1)]
