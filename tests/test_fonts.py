"""Pictures of texts in any script: fonts of the machine step in, or a warning does; letters join, lines turn round."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from relprop.errors import RelpropWarning
from relprop.render import fonts
from relprop.render.text.figure import JOINER, TOKEN, draw, save
from relprop.render.text.html import html
from relprop.render.typesetting import REGULAR, place, text_run
from relprop.types import Heatmap, Unit

shaped = pytest.mark.skipif(mpl.__version_info__ < fonts.SHAPED, reason="letters are joined by matplotlib 3.11")


def heatmap(*tokens: str) -> Heatmap:
    """Tokens as they follow each other in a text; a blank before a token parts it from the last."""
    units, place = [], 0
    for token in tokens:
        place += token != token.lstrip()
        units.append(Unit(token.strip(), place, place + len(token.strip())))
        place += len(token.strip())
    return Heatmap(tuple(units), tuple(0.5 for _ in units), "a_method", "positive", 1.0)


@pytest.fixture
def tiny_font(tmp_path: Path) -> Path:
    """A font that draws two characters as squares."""
    builder = pytest.importorskip("fontTools.fontBuilder").FontBuilder(1000, isTTF=True)
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    names = {ord("日"): "first", ord("本"): "second"}
    builder.setupGlyphOrder([".notdef", *names.values()])
    builder.setupCharacterMap(names)
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for point in ((0, 800), (800, 800), (800, 0)):
        pen.lineTo(point)
    pen.closePath()
    builder.setupGlyf(dict.fromkeys([".notdef", *names.values()], pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys([".notdef", *names.values()], (1000, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Tiny", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "tiny.ttf")
    return tmp_path / "tiny.ttf"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """The fonts that the machine has."""

    def has(*files: Path) -> None:
        monkeypatch.setattr(fonts, "_machine_fonts", lambda: iter(files))
        fonts._fallback.cache_clear()

    yield has
    fonts._fallback.cache_clear()


def texts(figure: Figure) -> dict[str, tuple[float, FontProperties]]:
    return {one.get_text(): (one.get_position()[0], one.get_fontproperties()) for one in figure.texts}


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_a_font_of_the_machine_steps_in(tmp_path: Path, tiny_font: Path, machine, ending: str) -> None:
    """For the tokens that need it, and no others; without a warning, in every format."""
    machine(tiny_font)
    one = heatmap("good", " 日", "本")
    drawn = texts(draw([one]))
    assert drawn["日"][1].get_file() == str(tiny_font)
    assert drawn["good"][1].get_file() == str(REGULAR)
    save([one], tmp_path / f"x.{ending}")
    assert (tmp_path / f"x.{ending}").stat().st_size > 1000


def test_a_font_installed_since_matplotlib_looked_is_found(tiny_font: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib keeps its list of fonts on disk; who installs one, as the warning says, must not see boxes again."""
    monkeypatch.setattr(fonts, "findSystemFonts", lambda: [str(tiny_font), str(REGULAR)])
    fonts._installed_since.cache_clear()
    try:
        assert list(fonts._machine_fonts()).count(tiny_font) == 1
    finally:
        fonts._installed_since.cache_clear()


def test_characters_that_no_font_has_are_told(tmp_path: Path, tiny_font: Path, machine) -> None:
    """Once, by name, and only for the figure that has them; part of a token that can be drawn is."""
    machine(tiny_font)
    with pytest.warns(RelpropWarning, match="no font on this machine can draw 国: there are boxes") as told:
        save([heatmap("good", " 国", "日国")], tmp_path / "x.png")
    assert len(told) == 1
    assert fonts.MISSING in texts(draw([heatmap("国")]))
    fonts._lacking.set(frozenset())
    save([heatmap("good")], tmp_path / "y.png")  # warnings are errors here


def test_a_font_that_claims_everything_is_not_asked() -> None:
    """matplotlib brings one that draws every character of a script as the same box."""
    assert not [font for font in fonts._machine_fonts() if "lastresort" in font.name.lower()]


def test_fonts_without_outlines_are_passed_over(tmp_path: Path, machine) -> None:
    (tmp_path / "no.ttf").write_bytes(b"no font")
    machine(tmp_path / "no.ttf")
    assert fonts.fitted("国", REGULAR) == (fonts.MISSING, REGULAR)
    fonts._lacking.set(frozenset())


def test_joiners_and_variants_are_no_characters(machine) -> None:
    machine()
    assert fonts.fitted("❤\ufe0f", REGULAR)[0] in ("❤", "❤\ufe0f")
    assert not fonts._lacking.get()


# From right to left


def test_lines_from_right_to_left() -> None:
    """The first word stands at the right; Latin words and numbers among it keep their own order."""
    drawn = texts(draw([heatmap("שלום", " עולם", " one", " two", " טוב")]))
    order = sorted(("שלום", "עולם", "one", "two", "טוב"), key=lambda text: -drawn[text][0])
    assert order == ["שלום", "עולם", "two", "one", "טוב"]


def test_what_is_no_word_goes_with_the_line() -> None:
    """[CLS] stands at the line's beginning, [SEP] and the chips at its end, on a page as in a figure."""
    units = (Unit("[CLS]", special=True), *heatmap("שלום", " עולם").units, Unit("[SEP]", special=True))
    one = replace(heatmap(), units=units, scores=(0.1, 0.5, 0.2, 0.1), value=1.0, beside=(("biases", 0.1),))
    drawn = texts(draw([one]))
    named = ["[CLS]", "שלום", "עולם", "[SEP]", "|", "(biases\u00a0+0.100)"]
    assert sorted(named, key=lambda text: -drawn[text][0]) == named
    apart = re.findall(r'dir="ltr" title="[^"]*">([^<]*)<', html([one]))
    assert apart == ["[CLS]", "[SEP]", "(biases +0.100)"]


def test_words_from_right_to_left_in_a_line_from_left_to_right() -> None:
    drawn = texts(draw([heatmap("alpha", " beta", " gamma", " שלום", " עולם", " end")]))
    order = sorted(("alpha", "beta", "gamma", "שלום", "עולם", "end"), key=lambda text: drawn[text][0])
    assert order == ["alpha", "beta", "gamma", "עולם", "שלום", "end"]


@pytest.mark.parametrize("right_to_left", [False, True])
def test_turned_words_keep_their_room(right_to_left: bool) -> None:
    """None lies on another or beyond the edges, on several lines."""
    words = [text_run(text, TOKEN, True, "#000000") for text in ["שלום", "עולם", "one", "two", "טוב", "12", "מאוד"] * 6]
    placed = place(words, 1.0, 4.0, 0.0, right_to_left)
    assert len({run.y for run in placed}) > 2
    for y in {run.y for run in placed}:
        spans = sorted((run.x, run.x + run.word.width) for run in placed if run.y == y)
        assert spans[0][0] >= 1.0 - 1e-9
        assert spans[-1][1] <= 4.0 + 1e-9
        assert all(one[1] <= other[0] + 1e-9 for one, other in pairwise(spans))


@shaped
def test_letters_join() -> None:
    """A word takes less room than its letters alone; pieces of one word are drawn in their joined forms."""
    word = "سلام"
    assert fonts.width(word, REGULAR) < sum(fonts.width(char, REGULAR) for char in word) * 0.9
    drawn = texts(draw([heatmap("سل", "ام", " جدا")]))
    assert f"سل{JOINER}" in drawn
    assert f"{JOINER}ام" in drawn
    assert "جدا" in drawn
