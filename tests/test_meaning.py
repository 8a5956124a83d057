"""What colours say: one hue for scores without a side, faint rows where nothing is held; and lines that are kept."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from relprop.cli.outputs import number_lines
from relprop.explainer import Explainer
from relprop.explanation import Explanation, to_html
from relprop.registry import METHODS
from relprop.render import palette
from relprop.render.text.figure import draw
from relprop.render.text.html import html
from relprop.render.text.layout import FAINT_NOTE, rows
from relprop.render.text.terminal import terminal
from relprop.types import Heatmap, Unit
from tokenizers_for_tests import saved, tiny

UNITS = tuple(Unit(text, i, i + 1) for i, text in enumerate("abc"))


def heatmap(*scores: float, signed: bool = True, value: float = 1.0, shares: bool = True) -> Heatmap:
    return Heatmap(UNITS, scores, "a_method", "positive", value, signed=signed, shares=shares)


def printed(one: Heatmap, colours: str | None) -> str:
    file = io.StringIO()
    Console(file=file, width=80, color_system=colours, force_terminal=colours is not None).print(terminal([one]))
    return file.getvalue()


def hues(text: str) -> set[str]:
    """Which colours a terminal's output has: red for, blue against, or purple for neither."""
    found = set()
    for red, green, blue in re.findall(r"48;2;(\d+);(\d+);(\d+)", text):
        if red == green == blue:
            continue
        rising = sorted((int(value), name) for value, name in ((red, "red"), (green, "green"), (blue, "blue")))
        found.add("purple" if rising[0][1] == "green" and rising[2][1] == "blue" else rising[2][1])
    return found


def test_scores_without_a_side_have_a_colour_of_their_own() -> None:
    """On a terminal of any colours, on a page and in a figure; also in words."""
    signed, amount = heatmap(1, -0.6, 0.2), heatmap(1, 0.6, 0.2, signed=False)
    assert hues(printed(signed, "truecolor")) == {"red", "blue"}
    assert hues(printed(amount, "truecolor")) == {"purple"}
    sides = ("supports", "opposes")
    for colours in (None, "standard", "256", "truecolor"):
        assert all(side in printed(signed, colours) for side in sides)
        assert not any(side in printed(amount, colours) for side in sides)
    page = html([amount]).partition("</style>")[2]
    assert not re.search(r'class="t [pn]\d', page)
    assert 'class="t u16' in page
    assert not any(side in page for side in sides)
    assert all(side in html([signed, amount]) for side in (*sides, "neither for nor against"))
    boxes = {one.get_facecolor()[:3] for one in draw([amount]).patches + draw([amount]).artists}
    wanted = tuple(channel / 255 for channel in palette.LIGHT_AMOUNT.supports)
    poles = [tuple(c / 255 for c in pole) for pole in (palette.LIGHT.supports, palette.LIGHT.opposes)]
    assert any(box == pytest.approx(wanted) for box in boxes)
    assert not any(box == pytest.approx(pole) for box in boxes for pole in poles)


@pytest.mark.parametrize("dark", [False, True])
def test_every_shade_can_be_read(dark: bool) -> None:
    scale = palette.DARK_AMOUNT if dark else palette.LIGHT_AMOUNT
    for shade in palette.legend(33, signed=False):
        background = palette.colour(shade, scale)
        assert palette.contrast(palette.ink(background), background) >= 4.5


@pytest.mark.parametrize("method", ["lrp_conservative", "rollout", "gradient_x_input", "attention_last", "occlusion"])
def test_an_explanation_is_drawn_as_its_method_is(method: str) -> None:
    """The registry says which methods have sides."""
    page = Explainer(*tiny("bert"))("good movie", method=method).to_html().partition("</style>")[2]
    assert bool(re.search(r'class="t [pn]\d', page)) == METHODS[method].signed
    assert bool(re.search(r'class="t u\d', page)) != METHODS[method].signed


def test_words_of_a_continuation_are_not_called_tokens() -> None:
    """What was asked stays the sum of three tokens, also where two of them are shown as one word."""
    e = Explainer("stories")("Tom was hungry. He opened the fridge and took out a", generate=3).words()
    assert len(e.steps) == 2
    page = e.to_html()
    assert "What the model stories wrote is explained piece by piece" in page
    assert "sum of 3 generated tokens" in page
    assert "2 tokens" not in page


def test_amounts_have_no_plus_sign(capsys: pytest.CaptureFixture[str]) -> None:
    """A plus sign would say that a unit or an atom speaks for the target; of attention it does not."""
    text = printed(heatmap(0.6, 0.4, 0.2, signed=False), None)
    Explainer("molecules")("CCO", method="rollout").show()
    graph = capsys.readouterr().out
    for shown in (text, graph, "\n".join(number_lines(Explainer("sentiment")("good", method="rollout")))):
        assert not re.search(r"\+\d", shown)
    assert "neither for nor against" in graph


@pytest.mark.parametrize("method", ["lrp_conservative", "rollout"])
def test_a_continuation_opens_with_a_sentence(method: str) -> None:
    """And is coloured as its method is, in its script too."""
    e = Explainer("stories")("One day,", generate=3, method=method)
    page = e.to_html()
    body = page[page.index("<p") :]
    assert body.startswith('<p class="lead">The 3 tokens that the model stories wrote are explained, each by')
    assert ("speaks for it" in body) == METHODS[method].signed
    assert f'"signed": {str(METHODS[method].signed).lower()}'.replace(" ", "") in body
    assert bool(re.search(r'class="t[ g]* [pn]\d', body)) == METHODS[method].signed


# Faint rows


def test_a_row_that_holds_almost_nothing_looks_faint() -> None:
    """A row's strongest unit is in full colour only if the row holds a part of the value that is worth it."""
    strong, weak = rows([heatmap(0.3, -0.1, 0.1), heatmap(0.003, -0.001, 0.001)])
    assert max(abs(cell.shade) for cell in strong.cells) == 1
    assert max(abs(cell.shade) for cell in weak.cells) == pytest.approx(0.1)
    assert FAINT_NOTE in weak.caption.account
    assert FAINT_NOTE not in strong.caption.account
    unlike = rows([heatmap(0.003, 0.001, 0.001, shares=False)])[0]  # no shares of the value: nothing to compare with
    assert max(cell.shade for cell in unlike.cells) == 1


# Lines


def lines(e: Explanation) -> list[str]:
    """The lines of a page's text."""
    tokens = to_html([e]).partition('class="tokens"')[2].partition("</div>")[0]
    return [
        re.sub(r"<[^>]+>", "", line).partition(">")[2] or re.sub(r"<[^>]+>", "", line) for line in tokens.split("<br>")
    ]


def test_lines_are_kept() -> None:
    """Where a tokenizer drops line breaks, and where it has tokens for them; on a page, a terminal and in a figure."""
    e = Explainer(*tiny("bert"))("good movie\nthe plot\n\nis dull", special="drop")
    assert [line.partition("|")[0].strip() for line in lines(e)] == ["good movie", "the plot", "is dull"]
    assert lines(e.words()) == lines(e)
    ((_, drawing),) = e.drawings
    assert "good movie\n" in re.sub(r" +\n", "\n", printed(drawing, None))
    heights = [text.get_position()[1] for text in draw([drawing]).texts if text.get_text() in ("good", "plot", "dull")]
    assert len(set(heights)) == 3
    story = Explainer("stories")("One day,\nthe", generate=1)
    assert story.to_html().count("<br>") >= 1


def test_drawings_name_the_model(tmp_path: Path) -> None:
    """An embedded one, a folder of one's own, and one in memory; the name is saved, and makes no difference."""
    e = Explainer("sentiment")("a good film")
    sure = f"predicted positive by sentiment, probability {e.probability:.2f}"
    assert sure in re.sub(r"<[^>]+>", "", e.to_html())
    ((_, drawing),) = e.drawings
    assert sure in " ".join(printed(drawing, None).split())
    assert Explanation.from_json(e.to_json()).model == "sentiment"
    given = tiny("bert")
    folder = saved(tmp_path / "mine", *given)
    own, loaded = Explainer(*given)("good movie"), Explainer(str(folder))("good movie")
    assert (own.model, loaded.model) == (type(given[0]).__name__, "mine")
    assert own == replace(own, model="another")
    assert Explainer("molecules").name == "molecules"
