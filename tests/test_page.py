"""The page in a browser: every control, numbers and colours as the library has them, what it says when things go wrong.

The looks are checked by eye: SHOTS=folder pytest tests/test_page.py saves them.
"""

from __future__ import annotations

import io
import os
import re
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from page_for_tests import chromium, explain, numbers, shown, visit
from relprop.explainer import Explainer
from relprop.heads import known_heads
from relprop.render import palette
from relprop.render.image import overlay
from relprop.serve import Limits
from serving_for_tests import Live, serving
from test_images import picture, vit
from test_serve import ASPIRIN, CONTEXT, graphormer
from tokenizers_for_tests import tiny

TEXT = "It is not a great film, but a gorgeous, seductive one."
FIRST = ["lrp_conservative", "gradient_x_input", "rollout"]
PHONE = {"width": 360, "height": 740}
KINDS = {"sentiment": "", "lm": "the movie", "qa": "is it good", "graphs": ASPIRIN, "vit": None}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def explainers() -> dict[str, Explainer]:
    made = {name: Explainer(*tiny(name)) for name in ("qa", "lm")}
    return {"sentiment": Explainer("sentiment"), **made, "vit": vit(), "graphs": graphormer()}


@pytest.fixture(scope="module")
def live(browser: Any, explainers: dict[str, Explainer]) -> Iterator[Live]:
    with serving(explainers, limits=Limits(threads=1, linger=0.0)) as live:
        live.wait()
        yield live


@pytest.fixture
def page(browser: Any, live: Live) -> Iterator[Any]:
    """As a first visitor sees it."""
    with visit(browser, live) as page:
        shown(page)
        yield page


def file(image: Image.Image, name: str = "one.png") -> dict[str, Any]:
    content = io.BytesIO()
    image.save(content, "PNG")
    return {"name": name, "mimeType": "image/png", "buffer": content.getvalue()}


def panel(page: Any, method: str) -> Any:
    return page.locator(f'#maps article[aria-label="{method}"]')


def labels(page: Any, method: str) -> list[str]:
    return panel(page, method).locator("[role=option]").evaluate_all("all => all.map(e => e.ariaLabel)")


def methods(page: Any) -> list[str]:
    return page.locator("#maps article[aria-label] h3").all_text_contents()


def open_kind(page: Any, name: str) -> None:
    """A model of each kind with something to explain."""
    page.select_option("#model", name)
    if name == "vit":
        page.locator("#picture-field").wait_for()
        page.set_input_files("#picture", file(picture(224, 160)))
    elif KINDS[name]:
        page.locator("#text-name", has_not_text=re.compile("^Text$")).wait_for()
        page.fill("#text", KINDS[name])
        if name == "qa":
            page.fill("#pair", CONTEXT)
        page.click("#explain")
    shown(page)


# Texts


def test_a_text_has_the_librarys_numbers(page: Any, explainers: dict[str, Explainer]) -> None:
    explain(page, TEXT)
    assert methods(page) == FIRST
    for method in FIRST:
        (own,) = explainers["sentiment"]([TEXT], method=method)
        found = labels(page, method)
        assert [label.rsplit(", ", 1)[0] for label in found] == [unit.text for unit in own.words().units]
        assert numbers([label.rsplit(", ", 1)[1] for label in found]) == pytest.approx(own.words().scores, abs=2e-3)
    assert page.locator("#subject").text_content() == f"positive = {own.value:.3f}"
    assert labels(page, "lrp_conservative")[3].endswith("opposes")


def test_pointing_and_arrow_keys_tell_numbers_in_all_maps(page: Any) -> None:
    words = panel(page, "gradient_x_input").locator(".unit")
    words.nth(3).hover()
    readouts = page.locator(".readout")
    assert all(text.startswith("not ") for text in readouts.all_text_contents())
    assert page.locator("[aria-selected=true]").count() == 3
    words.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "is"
    assert readouts.first.text_content().startswith("is ")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "[SEP]"
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.textContent") == "[CLS]"
    page.keyboard.press("Tab")  # one stop a map
    page.mouse.move(0, 0)
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert all(text.startswith("sum of scores") for text in readouts.all_text_contents())


@pytest.mark.slow
def test_words_or_sub_words(page: Any, explainers: dict[str, Explainer]) -> None:
    explain(page, TEXT)
    page.check("text=sub-words")
    shown(page)
    (own,) = explainers["sentiment"]([TEXT], method="lrp_conservative")
    assert [label.rsplit(", ", 1)[0] for label in labels(page, "lrp_conservative")] == [one.text for one in own.units]
    joined = panel(page, "lrp_conservative").locator(".unit.join").all_text_contents()
    assert {"du", "ct", "ive"} <= set(joined)
    page.check("text=words >> nth=0")
    shown(page)
    assert "seductive" in panel(page, "lrp_conservative").locator(".unit").all_text_contents()


def test_a_class_and_another_against_it(page: Any, explainers: dict[str, Explainer]) -> None:
    explain(page, TEXT)
    page.select_option("#target", label="negative")
    shown(page)
    assert page.locator("#subject").text_content().startswith("negative = ")
    assert page.locator("#against option", has_text="negative").is_disabled()
    page.select_option("#against", label="positive")
    shown(page)
    (own,) = explainers["sentiment"]([TEXT], target=("negative", "positive"), method="lrp_conservative")
    assert page.locator("#subject").text_content() == f"{own.target} = {own.value:.3f}".replace("= -", "= −")
    page.get_by_role("button", name="positive").click()  # which was held against it
    shown(page)
    assert page.input_value("#against") == ""
    assert page.locator("#subject").text_content().startswith("positive = ")
    page.select_option("#target", "")
    shown(page)
    page.select_option("#against", label="positive")
    assert "not held against itself" in page.locator("#errors").text_content()


@pytest.mark.slow
def test_methods_stand_in_the_order_chosen(page: Any) -> None:
    page.click("#methods-fold summary")
    page.check("[value=occlusion]")
    shown(page, re.compile("^4 heat maps"))
    page.uncheck("[value=lrp_conservative]")
    shown(page, re.compile("^3 heat maps"))
    page.check("[value=lrp_conservative]")
    shown(page, re.compile("^4 heat maps"))
    assert methods(page) == ["gradient_x_input", "rollout", "occlusion", "lrp_conservative"]
    for name in methods(page):
        page.uncheck(f"[value={name}]")
    shown(page, "Choose at least one method.")
    assert not page.is_visible("#found")


@pytest.mark.slow
def test_the_keyboard_explains_and_skips_to_the_results(page: Any) -> None:
    page.fill("#text", "a dull film")
    page.keyboard.press("Control+Enter")
    shown(page)
    assert page.locator("#subject").text_content().startswith("negative")
    page.evaluate("document.activeElement.blur()")
    page.reload()
    shown(page)
    page.keyboard.press("Tab")
    assert page.locator("#skip").evaluate("e => e.getBoundingClientRect().top >= 0")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"


@pytest.mark.slow
def test_a_second_text(page: Any, explainers: dict[str, Explainer]) -> None:
    page.click("#pair-name")
    page.fill("#pair", "it is dull")
    explain(page, "a witty film")
    (own,) = explainers["sentiment"]([("a witty film", "it is dull")])
    assert len(labels(page, "lrp_conservative")) == len(own.words().units)
    assert panel(page, "lrp_conservative").locator(".bar").count() == 1


# The ledger, the heads, what is kept


def test_the_ledger_is_a_waterfall_and_a_table(page: Any, explainers: dict[str, Explainer]) -> None:
    explain(page, TEXT)
    own = explainers["sentiment"](TEXT, method="gradient_x_input").ledger
    figure = page.locator("#waterfalls figure", has_text="gradient_x_input")
    told = figure.locator("svg").get_attribute("aria-label").split(": ")[1].split(", ")
    expected = [own.inputs, own.biases, own.constants, own.unexplained, own.value]
    assert [part.rsplit(" ", 1)[0] for part in told] == ["inputs", "biases", "constants", "unexplained", "= value"]
    assert numbers([part.rsplit(" ", 1)[1] for part in told]) == pytest.approx(expected, abs=2e-3)
    widths = figure.locator("rect").evaluate_all("all => all.map(e => Number(e.getAttribute('width')))")
    assert widths[3] / widths[4] == pytest.approx(abs(own.unexplained / own.value), rel=0.02)
    figure.locator("summary").click()
    figure.locator("tbody").nth(1).wait_for()
    rows = figure.locator("tbody").nth(1).locator("tr").all_text_contents()
    largest = max((entry for entry in own.entries if entry.kind != "input"), key=lambda entry: abs(entry.value))
    assert rows[0].endswith(f"{largest.kind}{largest.module}")
    panel(page, "rollout").locator("summary").click()
    panel(page, "rollout").locator("tbody").wait_for()
    assert panel(page, "rollout").locator("tbody tr").count() == len(labels(page, "rollout"))


@pytest.mark.slow
def test_the_head_map(page: Any, explainers: dict[str, Explainer]) -> None:
    kinds = known_heads(explainers["sentiment"].model).kinds()
    rows = page.locator(".heads tbody tr")
    for block, row in enumerate(kinds):
        cells = rows.nth(len(kinds) - 1 - block).locator("td")  # blocks go up
        assert cells.locator(".unseen").all_text_contents() == row
        assert cells.nth(2).locator("[aria-hidden]").text_content() == {"positional": "P", "neither": "·"}[row[2]]
    assert "positional: 1" in page.locator(".kinds").text_content()
    open_kind(page, "lm")
    assert "not known here" in page.locator("#head-map").text_content()
    open_kind(page, "vit")
    assert not page.is_visible("#heads")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["html", "png", "json"])
def test_downloads(page: Any, form: str, tmp_path: Path) -> None:
    explain(page, TEXT)
    with page.expect_download() as found:
        page.click(f"[data-format={form}]")
    path = tmp_path / found.value.suggested_filename
    found.value.save_as(path)
    shown(page, f"Saved as relprop.{form}.")
    if form == "png":
        assert Image.open(io.BytesIO(path.read_bytes())).width > 300
    else:
        assert path.name == f"relprop.{form}"
        assert all(method in path.read_text() for method in [*FIRST, "seductive"])


def test_a_link_restores_everything(page: Any, browser: Any, live: Live) -> None:
    page.click("#methods-fold summary")
    page.check("[value=attn_lrp]")
    page.check("text=sub-words")
    page.fill("#text", "ünïcode & a #witty film\nof two lines?")
    page.select_option("#target", label="negative")
    page.select_option("#against", label="positive")
    shown(page)
    page.click("#share")
    shown(page, "Link copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.input_value("#link") == page.url
    with visit(browser, live, link.partition("/#")[2].join(["#", ""])) as other:
        shown(other)
        for one in ("#model", "#text", "#target", "#against"):
            assert other.input_value(one) == page.input_value(one)
        assert other.is_checked("text=sub-words")
        assert methods(other) == [*FIRST, "attn_lrp"]
        assert labels(other, "attn_lrp") == labels(page, "attn_lrp")
        other.goto(f"/#{'model=nowhere&text=dull&method=rollout'}")  # a link in the same tab
        other.get_by_text('This service has no model "nowhere".').wait_for()
        assert methods(other) == ["rollout"]


# Other kinds of models


def test_a_picture_is_painted_as_the_library_does(page: Any, explainers: dict[str, Explainer]) -> None:
    image = picture(448, 300)
    page.select_option("#model", "vit")
    shown(page, re.compile("^Drop or choose a picture"))
    page.set_input_files("#picture", file(image))
    shown(page)
    for method in FIRST:
        (own,) = explainers["vit"]([image], method=method)
        data = panel(page, method).locator("canvas").evaluate("e => e.toDataURL()")
        seen = Image.open(io.BytesIO(b64decode(data.partition(",")[2]))).convert("RGB")
        assert np.abs(np.asarray(seen).astype(int) - overlay(own.image_map())).max() <= 3
    canvas = panel(page, "rollout").locator(".picture")
    (own,) = explainers["vit"]([image], method="rollout")
    canvas.focus()
    page.keyboard.press("ArrowRight")  # shows the middle
    page.keyboard.press("ArrowUp")
    spoken = page.locator("#spoken").text_content()
    row, column = (int(one) - 1 for one in re.search(r"rollout: row (\d+), column (\d+)", spoken).groups())
    assert row == own.scores.shape[0] // 2 - 1
    assert numbers([panel(page, "rollout").locator(".readout").text_content().split(": ")[1]]) == pytest.approx(
        [own.scores[row, column]], abs=2e-3
    )
    assert page.locator(".spot:visible").count() == 3


@pytest.mark.slow
def test_a_picture_is_dropped_and_comes_back_by_link(page: Any, browser: Any, live: Live) -> None:
    page.select_option("#model", "vit")
    shown(page, re.compile("^Drop or choose"))
    dropped = """async () => {
      const canvas = new OffscreenCanvas(3000, 2000);
      canvas.getContext('2d').fillRect(0, 0, 900, 900);
      const data = new DataTransfer();
      data.items.add(new File([await canvas.convertToBlob()], 'large.png', {type: 'image/png'}));
      for (const kind of ['dragover', 'drop']) {
        document.body.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}));
      }
    }"""
    with page.expect_request("**/v1/models/vit:predict") as asked:
        page.evaluate(dropped)
    sent = asked.value.post_data_json["instances"][0]["b64"]
    assert len(sent) < 1_000_000
    shown(page)
    assert page.locator("#picture-hint").text_content() == "large.png"
    with visit(browser, live, page.url.partition("/#")[2].join(["#", ""])) as other:
        shown(other)
        assert other.locator("#picture-hint").text_content() == "large.png"
        assert other.locator("#subject").text_content() == page.locator("#subject").text_content()
        other.goto("/#model=vit&picture=AAAA")
        other.get_by_text("This file is no picture that can be read here.").wait_for()


def test_a_molecule(browser: Any, live: Live, explainers: dict[str, Explainer]) -> None:
    with visit(browser, live, quiet=False) as page:
        open_kind(page, "graphs")
        (own,) = explainers["graphs"]([ASPIRIN], method="lrp_conservative")
        found = labels(page, "lrp_conservative")
        assert [label.split(", ")[0] for label in found] == list(own.graph.names)
        assert panel(page, "lrp_conservative").locator("line").count() == len(own.graph.edges)
        panel(page, "rollout").locator(".node").nth(4).hover()
        assert all(text.startswith("C4 ") for text in page.locator(".readout").all_text_contents())
        page.fill("#text", "no molecule")
        page.click("#explain")
        page.get_by_text("is no SMILES that rdkit can read").wait_for()
        assert not page.is_visible("#found")  # which was of another molecule


@pytest.mark.slow
def test_where_nodes_lie(page: Any) -> None:
    """As the service says; where it does not, neighbours are nearest."""
    open_kind(page, "graphs")
    made = """async (places) => {
      const { graphMap } = await import('/graph_map.js');
      const graph = {names: ['a', 'b', 'c', 'd'], edges: [[0, 1], [1, 2], [2, 3]], places};
      const map = graphMap({method: 'x', scores: [1, -1, 0, 2], graph, rest: 0}, true, () => {});
      document.body.append(map.element);
      const at = (circle) => ['cx', 'cy'].map((name) => Number(circle.getAttribute(name)));
      return [...map.element.querySelectorAll('circle')].map(at);
    }"""
    given = np.array(page.evaluate(made, [[0, 0], [2, 0], [2, 1], [0, 1]]))
    assert np.allclose((given - given[0]) / (given[1] - given[0])[0], [[0, 0], [1, 0], [1, 0.5], [0, 0.5]])
    own = np.array(page.evaluate(made, None))
    apart = np.linalg.norm(own[:, None] - own[None], axis=-1)
    assert np.allclose(apart / apart[0, 1], np.abs(np.subtract.outer(np.arange(4), np.arange(4))), atol=0.1)


@pytest.mark.slow
def test_a_question_and_a_next_token(page: Any, explainers: dict[str, Explainer]) -> None:
    open_kind(page, "qa")
    (own,) = explainers["qa"]([("is it good", CONTEXT)])
    assert page.locator("#classes button bdi").all_text_contents() == ([own.prediction] if own.prediction else [])
    page.fill("#target-text", "good film")
    page.press("#target-text", "Enter")
    shown(page)
    assert panel(page, "rollout").locator(".unit.answer").all_text_contents() == ["good", "film"]
    open_kind(page, "lm")
    tokens = page.locator("#classes button")
    second = tokens.nth(1).locator("bdi").text_content()
    tokens.nth(1).click()
    shown(page)
    assert page.locator("#subject").text_content().startswith(f"{second} = ")


# When things go wrong


@pytest.mark.slow
def test_a_busy_service_says_when_to_come_again(browser: Any, live: Live) -> None:
    with visit(browser, live, quiet=False) as page:
        shown(page)
        refused = {"status": 503, "headers": {"Retry-After": "2"}, "json": {"error": "9 inputs are waiting already"}}
        page.route("**/*:explain", lambda route: route.fulfill(**refused))
        page.fill("#text", "dull")
        page.click("#explain")
        shown(page, "No heat map came.")
        again = panel(page, "rollout").get_by_role("button")
        assert (again.is_disabled(), again.text_content()) == (True, "Try again in 2 s")
        assert "9 inputs are waiting already." in panel(page, "rollout").text_content()
        page.unroute_all()
        again.click()  # waits until it can be
        panel(page, "rollout").locator(".unit").first.wait_for()
        page.route("**/*:predict", lambda route: route.abort())
        page.fill("#text", "witty")
        page.click("#explain")
        page.get_by_text("The service cannot be reached.").wait_for()
        page.unroute_all()
        page.locator("#errors").get_by_role("button", name="Try again").click()
        shown(page)


@pytest.mark.slow
def test_the_token_is_asked_for_and_kept_in_memory_only(browser: Any, explainers: dict[str, Explainer]) -> None:
    with serving({"sentiment": explainers["sentiment"]}, token="sésame") as live:
        live.wait()
        with visit(browser, live, quiet=False) as page:
            page.click("#token-cancel")
            page.get_by_text("The service wants its token").wait_for()
            page.locator("#errors").get_by_role("button", name="Try again").click()
            for word in ("wrong", "sésame"):
                page.fill("#token-field", word)
                page.keyboard.press("Enter")
                if word == "wrong":
                    page.get_by_text("not the right one").wait_for()
            shown(page)
            kept = page.evaluate(
                "[document.cookie, JSON.stringify({...localStorage, ...sessionStorage}), location.href]"
            )
            assert kept[:2] == ["", "{}"]
            assert "same" not in kept[2]
            with page.expect_download():
                page.click("[data-format=json]")


def test_a_newer_question_ends_an_older_one(page: Any) -> None:
    def answer(route: Any) -> None:
        """But never the old one."""
        if route.request.post_data_json["instances"] != ["an old question"]:
            route.continue_()

    page.route("**/*:explain", answer)
    page.fill("#text", "an old question")
    with page.expect_request("**/*:explain"):
        page.click("#explain")
    assert page.locator("#progress").is_visible()
    assert panel(page, "rollout").get_attribute("aria-busy") == "true"
    with page.expect_event("requestfailed") as ended:
        explain(page, "a newer one")
    assert ended.value.post_data_json["instances"] == ["an old question"]
    assert "newer" in panel(page, "rollout").locator(".unit").all_text_contents()
    assert not page.locator("#progress").is_visible()
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.slow
def test_stopping(page: Any) -> None:
    page.route("**/*:explain", lambda route: None)
    page.fill("#text", "never answered")
    with page.expect_request("**/*:explain"):
        page.click("#explain")
    page.click("#stop")
    shown(page, "Stopped.")
    assert page.locator("[aria-busy]").count() == 0
    assert page.locator(".unit").count() == 0
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.slow
def test_a_model_that_is_loaded_later_or_never(browser: Any, live: Live) -> None:
    reasons = iter(["is being loaded", "is being loaded", "cannot be served: no weights"])

    def told(route: Any) -> None:
        route.fulfill(json={"name": "lm", "ready": False, "reason": next(reasons)})

    with visit(browser, live) as page:
        shown(page)
        page.route("**/v1/models/lm", told)
        page.select_option("#model", "lm")
        shown(page, 'The model "lm" is being loaded…')
        page.get_by_text('The model "lm" cannot be served: no weights.').wait_for()
        assert not page.is_visible("#found")


# Looks


@pytest.mark.slow
def test_colours_are_the_librarys(browser: Any, live: Live) -> None:
    shades = [step / 16 for step in range(-16, 17)]
    painted = """async (shades) => {
      const { tint } = await import('/palette.js');
      return shades.map((shade) => {
        const element = document.body.appendChild(document.createElement('i'));
        tint(element, shade);
        const style = getComputedStyle(element);
        return [style.backgroundColor, style.color, element.classList.contains('minus')];
      });
    }"""
    for theme, scale in (("light", palette.LIGHT), ("dark", palette.DARK)):
        with visit(browser, live, color_scheme=theme) as page:
            for shade, (ground, ink, minus) in zip(shades, page.evaluate(painted, shades), strict=True):
                expected = palette.colour(shade, scale)
                assert np.abs(np.subtract(numbers3(ground), expected)).max() <= 1  # halves are rounded otherwise
                assert numbers3(ink) == palette.ink(expected)
                assert minus == (shade <= -0.2)


def numbers3(colour: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", colour)))


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_fits_a_phone_and_is_accessible(browser: Any, live: Live, name: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    looks = {"light": {}, "dark": {"color_scheme": "dark"}, "phone": {"viewport": PHONE, "reduced_motion": "reduce"}}
    for look, context in looks.items():
        with visit(browser, live, **context) as page:
            shown(page)
            open_kind(page, name)
            page.click("#methods-fold summary")
            for summary in page.locator("#found summary").all():
                summary.click()
            page.locator("[role=option], .picture[tabindex]").first.focus()
            if folder := os.environ.get("SHOTS"):
                page.screenshot(path=Path(folder) / f"{name}-{look}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
            found = axe.run(page).response["violations"]
            assert not [
                (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
            ]
