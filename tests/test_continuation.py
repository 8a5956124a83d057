"""A continuation as a value and as a picture: what it sums, what it says, and what pointing at it does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from PIL import Image
from rich.console import Console

from browser import CHROMIUM, Page
from explanations import changed, of_generation
from relprop import Explanation, Unit
from relprop.errors import InputError
from relprop.render import palette
from relprop.render.generation.figure import draw
from relprop.render.generation.html import html
from relprop.render.generation.layout import GenerationMap, causes, laid_out, totals
from relprop.render.generation.terminal import terminal
from relprop.render.text.layout import caption
from relprop.types import Entry, ExplainedStep, Ledger

browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


def books(value: float, inputs: float) -> Ledger:
    return Ledger(
        value, (Entry("", "inputs", "input", inputs), Entry("", "rest", "unexplained", value - inputs)), False
    )


def drawing(found: Explanation) -> GenerationMap:
    ((_, one),) = found.drawings
    return one


def story() -> Explanation:
    """ "Lily saw" continued with " Li" "ly" "." and the end."""
    units = (
        Unit("<s>", special=True),
        Unit("Li", 0, 2, word=0), Unit("ly", 2, 4, word=0), Unit("saw", 5, 8, word=2),
        Unit("Li", 9, 11, word=4), Unit("ly", 11, 13, word=4), Unit(".", 13, 14, word=5),
        Unit("</s>", special=True),
    )  # fmt: skip
    scores = (
        (0.5, 2.0, 1.0, -0.5, 0.0, 0.0, 0.0, 0.0),
        (0.0, 1.0, 3.0, 0.0, 4.0, 0.0, 0.0, 0.0),
        (0.25, 0.0, 0.0, -1.0, 0.0, 0.5, 0.0, 0.0),
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0),
    )
    generated = (
        ExplainedStep((7,), "' Li'", "' Li'", 4.0, 0.5, "' Tom'", 0.25, books(4.0, 3.0)),
        ExplainedStep((8,), "'ly'", "'ly'", 9.0, 0.75, "'sa'", 0.125, books(9.0, 8.0)),
        ExplainedStep((9,), "'.'", "'.'", 1.0, 0.125, "'!'", 0.5, books(1.0, -0.25)),
        ExplainedStep((2,), "'</s>'", "'</s>'", 1.0, 1.0, "'.'", 0.0, books(1.0, 1.0)),
    )
    return of_generation("Lily saw", " Lily.", units, 4, generated, scores, "lrp_conservative", "shared")


def test_a_token_is_an_explanation() -> None:
    """With all that stood before it, the text as far as it was read, and what was likeliest then."""
    one = story().token(1)
    assert isinstance(one, Explanation)
    assert [unit.text for unit in one.units] == ["<s>", "Li", "ly", "saw", "Li"]
    assert one.scores == (0.0, 1.0, 3.0, 0.0, 4.0)
    assert (one.text, one.target, one.value) == (("Lily saw Li",), "'ly'", 9.0)
    assert (one.prediction, one.probability) == ("'ly'", 0.75)
    contrast = replace(story().steps[1], target="'ly' - 'sa'")
    assert replace(story(), steps=(*story().steps[:1], contrast, *story().steps[2:])).token(1).prediction == "'ly'"
    unlikely = story().token(2)
    assert (unlikely.prediction, unlikely.probability) == ("'!'", 0.5)
    assert story().token(-1).target == "'</s>'"
    assert one.ledger == books(9.0, 8.0)
    with pytest.raises(InputError, match="token 4 is out of range: 4 were generated"):
        story().token(4)


def test_words_on_both_sides() -> None:
    """Pieces are summed down and across; what is given and what is generated stay apart."""
    found = story().words()
    assert [unit.text for unit in found.units] == ["<s>", "Lily", "saw", "Lily", ".", "</s>"]
    assert (len(found.generated), found.part.merged) == (3, True)
    assert found.matrix.tolist() == [
        [0.5, 7.0, -0.5, 4.0, 0.0, 0.0],  # "ly" owes 4 to "Li": the word to itself
        [0.25, 0.0, -1.0, 0.5, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
    ]
    lily = found.steps[0]
    assert (lily.tokens, lily.value, lily.probability, lily.runner_up) == ((7, 8), 13.0, 0.375, "")
    assert lily.ledger is not None
    assert (lily.ledger.value, lily.ledger.inputs) == (13.0, 11.0)
    assert found.matrix.sum() == story().matrix.sum()
    assert found.token(1).words().units == found.token(1).units


def test_a_word_begun_in_the_prompt_is_not_merged_with_it() -> None:
    """Else a generated token would be counted among its own causes."""
    units = (Unit("Li", 0, 2, word=0), Unit("ly", 2, 4, word=0))
    found = of_generation("Li", "ly", units, 1, story().steps[:1], ((1.0, 0.0),), "lrp").words()
    assert [unit.text for unit in found.units] == ["Li", "ly"]
    assert found.part.by_step == ((1.0, 0.0),)


def test_words_need_places() -> None:
    bare = changed(story(), units=tuple(Unit(unit.text) for unit in story().units))
    with pytest.raises(InputError, match="words cannot be made"):
        bare.words()


def test_without_special_tokens() -> None:
    found = story().without_special()
    assert [unit.text for unit in found.generated] == ["Li", "ly", "."]
    assert found.matrix.tolist() == story().matrix[:3, 1:7].tolist()


def test_json_loads_back_equal(tmp_path: Path) -> None:
    found = story()
    assert Explanation.from_json(found.to_json()) == found
    found.save(tmp_path / "a.json")
    assert Explanation.from_json((tmp_path / "a.json").read_text()) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not JSON"),
        ("[]", "this is no explanation saved by relprop"),
        ('{"kind": "continuation"}', "it has no schema_version"),
        ('{"kind": "continuation", "schema_version": 1}', "damaged"),
        (json.dumps({**json.loads(story().to_json()), "steps": []}), "0 steps do not fit the scores"),
    ],
)
def test_foreign_json(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Explanation.from_json(text)


def test_infinite_scores_are_not_saved() -> None:
    broken = changed(story(), by_step=((np.inf,) * 8, *story().part.by_step[1:]))
    with pytest.raises(InputError, match="not finite"):
        broken.to_json()


# In the terminal


def printed(found: Explanation) -> str:
    console = Console(width=120, no_color=True, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(terminal([drawing(found)]))
    console.file.close()
    return console.export_text()


def test_terminal() -> None:
    """The sums on the text, then a line for each token with its strongest causes in order of weight."""
    shown = printed(story())
    assert "sum of 4 generated tokens = 15.000" in shown
    assert "+4.000  ly" in shown  # 1 + 3 over all rows
    line = next(line for line in shown.splitlines() if "'ly'" in line)
    assert re.search(r"'ly' +\+9.000 +0.75 +'sa' 0.12 +Li \+4.000 · ly \+3.000 · Li \+1.000", line)
    opposed = next(line for line in shown.splitlines() if "'.'" in line)
    assert "saw -1.000 · ly +0.500" in opposed


def test_causes_are_the_strongest_of_either_sign() -> None:
    one = drawing(story())
    found = causes(one, 0, laid_out(one), 2)
    assert [(cell.text, score) for cell, score in found] == [("Li", 2.0), ("ly", 1.0)]
    assert totals(one).scores == (0.75, 3.0, 4.0, -1.5, 4.0, 0.5, 1.0, 0.0)


# As a picture


def test_figure_shows_every_score(tmp_path: Path) -> None:
    """Colours are the palette's, each row by its strongest; what comes later is no cause and has no colour."""
    figure = draw(drawing(story()))
    pixels = np.asarray(figure.axes[0].images[0].get_array())
    assert pixels.shape == (4, 7, 3)
    assert pixels[0, 1] * 255 == pytest.approx(palette.colour(1.0))
    assert pixels[0, 3] * 255 == pytest.approx(palette.colour(-0.25))
    assert pixels[1, 1] * 255 == pytest.approx(palette.colour(0.25))
    assert len({tuple(pixels[row, column]) for row in range(4) for column in range(4 + row, 7)}) == 1
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["Li", "ly", ".", "</s>"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()][:4] == ["<s>", "Li", "ly", "saw"]
    for ending in ("png", "svg", "pdf"):
        story().save(tmp_path / f"a.{ending}")
        assert (tmp_path / f"a.{ending}").stat().st_size > 1000
    seen = np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).reshape(-1, 3)
    assert (seen == np.array(palette.colour(1.0))).all(1).sum() > 100
    assert to_rgb("white") == tuple(seen[0] / 255)


@pytest.mark.parametrize("signed", [True, False])
def test_a_figure_says_what_it_is(signed: bool) -> None:
    """Method, number and how to read it, within the figure; and the ends of the legend do not lie on each other."""
    one = replace(drawing(story()), model="stories", quantity="logit", signed=signed)
    figure = draw(one)
    FigureCanvasAgg(figure).draw()
    (title,) = [text for text in figure.texts if text.get_text()]
    told = title.get_text().replace("\n", " ")
    assert told.startswith(
        f"lrp_conservative: {caption(totals(one)).target}. The 4 tokens that the model stories wrote"
    )
    assert figure.bbox.fully_containsy(title.get_window_extent().y1)
    assert figure.bbox.fully_containsx(title.get_window_extent().x1)
    least, most = (label.get_window_extent() for label in figure.axes[1].get_xticklabels())
    assert least.x1 < most.x0


def test_a_word_that_owes_to_itself_is_drawn() -> None:
    pixels = np.asarray(draw(drawing(story().words())).axes[0].images[0].get_array())
    assert pixels[0, 3] * 255 == pytest.approx(palette.colour(4 / 7), abs=1)


def large(rows: int = 200, given: int = 1000) -> GenerationMap:
    generator = np.random.default_rng(0)
    units = tuple(Unit(f"w{i}", 5 * i, 5 * i + 4, word=i) for i in range(given + rows))
    scores = generator.normal(size=(rows, given + rows)) * np.tri(rows, given + rows, given - 1)
    steps = tuple(ExplainedStep((i,), f"'w{i}'", f"'w{i}'", 1.0, 0.5, "'x'", 0.25) for i in range(rows))
    return GenerationMap(units, given, steps, tuple(map(tuple, scores.tolist())), "lrp_conservative")


def test_large_continuations_stay_small() -> None:
    """200 tokens by 1,200: a page of about a megabyte, and a figure that fits a canvas."""
    assert len(html([large()]).encode()) < 2_000_000
    assert max(draw(large()).get_size_inches()) < 70


# As a page


def test_page_is_self_contained_and_obeys_no_token() -> None:
    """Text of the model's is text: nothing of it ends the data or becomes markup, and one script alone may run."""
    nasty = "</script><img src=x onerror=alert(1)>"
    found = changed(story(), units=(*story().units[:-1], Unit(nasty, 14, 50, word=6)))
    found = replace(found, steps=(*found.steps[:-1], replace(found.steps[-1], target=repr(nasty))))
    page = html([drawing(found)])
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert "http" not in page.replace("http-equiv", "")
    assert re.search(r"default-src 'none'; script-src 'sha256-[\w+/=]{44}'; style-src 'unsafe-inline'", page)
    assert "<!DOCTYPE" not in html([drawing(found)], full_page=False)


def shade_of(page: Page, unit: int) -> str:
    names = page.ask(f"document.querySelectorAll('.t')[{unit}].className").split()
    return " ".join(name for name in names if re.fullmatch(r"[pn]\d+|later|on|pinned", name))


TOKEN = "document.querySelectorAll('.g')[{}]"
DETAIL = "document.querySelector('.detail').textContent"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    story().save(tmp_path / "page.html")
    return tmp_path / "page.html"


@browser
def test_pointing_colours_the_causes(saved: Path) -> None:
    """The sums at first; a token's own causes under the pointer; the sums again when it leaves."""
    with Page(saved) as page:
        assert shade_of(page, 1) == "p12"  # 3 of 4
        assert "Point at an underlined token" in page.ask(DETAIL)
        page.point(TOKEN.format(1))
        assert [shade_of(page, i) for i in range(8)] == ["", "p4", "p12", "", "p16", "on", "later", "later"]
        told = page.ask(DETAIL)
        assert told.startswith("'ly' = 9.000  probability 0.75, runner-up 'sa' 0.12")
        assert told.endswith("Li +4.000ly +3.000Li +1.000")
        page.point(TOKEN.format(2))
        assert shade_of(page, 3) == "n16"
        page.point("document.querySelector('.legend')")
        assert shade_of(page, 1) == "p12"


@browser
def test_a_click_keeps_them(saved: Path) -> None:
    with Page(saved) as page:
        page.point(TOKEN.format(1), click=True)
        page.point(TOKEN.format(2))
        assert "on pinned" in shade_of(page, 5)
        assert page.ask(f"{TOKEN.format(1)}.getAttribute('aria-pressed')") == "true"
        page.press("Escape")
        assert "pinned" not in shade_of(page, 5)
        page.point(TOKEN.format(2), click=True)
        assert "on pinned" in shade_of(page, 6)
        page.point(TOKEN.format(2), click=True)
        assert "pinned" not in shade_of(page, 6)
        page.point("document.querySelector('.legend')")
        assert shade_of(page, 1) == "p12"


@browser
def test_keys_alone_are_enough(saved: Path) -> None:
    """Tab enters, arrows go on and stop at the ends, Enter keeps, Escape lets go, and Tab leaves."""
    with Page(saved) as page:
        page.ask(f"{TOKEN.format(0)}.focus()")
        assert "on" in shade_of(page, 4)
        page.press("ArrowRight")
        assert page.ask(DETAIL).startswith("'ly' = 9.000")
        page.press("End")
        page.press("ArrowRight")
        assert page.ask(DETAIL).startswith("'</s>' = 1.000")
        page.press("Home")
        page.press("Enter")
        page.ask("document.activeElement.blur()")
        assert "on pinned" in shade_of(page, 4)
        assert page.ask("[...document.querySelectorAll('.g')].filter(one => one.tabIndex === 0).length") == 1


@browser
def test_without_scripts_the_sums_are_seen(saved: Path) -> None:
    with Page(saved, script=False) as page:
        page.point(TOKEN.format(1))
        assert shade_of(page, 1) == "p12"
        assert page.ask(DETAIL) == ""


@browser
def test_a_large_page_answers_at_once(tmp_path: Path) -> None:
    """1,200 tokens: from the pointer's move to the colours in less than a fifth of a second."""
    (tmp_path / "large.html").write_text(html([large()]))
    with Page(tmp_path / "large.html") as page:
        spent = page.ask(
            "(() => {const begin = performance.now();"
            "for (let i = 0; i < 10; i++) document.querySelectorAll('.g')[i].dispatchEvent("
            "new PointerEvent('pointerover', {bubbles: true})); document.body.offsetHeight;"
            "return (performance.now() - begin) / 10})()"
        )
    assert spent < 200


def test_notebooks_get_the_fragment() -> None:
    assert story()._repr_html_() == html([drawing(story())], full_page=False)
