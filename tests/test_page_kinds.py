"""The page with models of every kind: pictures, molecules, questions, next tokens; its looks, and who can use it.

The looks are also checked by eye: SHOTS=folder pytest -m slow tests/test_page_kinds.py saves them.
"""

from __future__ import annotations

import io
import os
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import page_for_tests
from page_for_tests import FIRST, KINDS, file, labels, methods, numbers, open_kind, panel, shown, visit
from relprop.embedded import EMBEDDED
from relprop.explainer import Explainer
from relprop.render import palette
from relprop.render.image.overlay import overlay
from serving_for_tests import Live
from test_images import picture
from test_serve import ASPIRIN, CONTEXT

browser, explainers = page_for_tests.browser, page_for_tests.explainers  # fixtures
live, page = page_for_tests.live, page_for_tests.page
PHONE = {"width": 360, "height": 740}


def test_a_picture_is_painted_as_the_library_does(page: Any, explainers: dict[str, Explainer]) -> None:
    image = picture(448, 300)
    page.select_option("#model", "vit")
    shown(page, re.compile("^Drop or choose a picture"))
    page.set_input_files("#picture", file(image))
    shown(page)
    assert methods(page) == ["lrp_full", *FIRST[1:]]
    for method in methods(page):
        (own,) = explainers["vit"]([image], method=method)
        data = panel(page, method).locator("canvas").evaluate("e => e.toDataURL()")
        seen = Image.open(io.BytesIO(b64decode(data.partition(",")[2]))).convert("RGB")
        assert np.abs(np.asarray(seen).astype(int) - overlay(own.drawings[0][1])).max() <= 3
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
        assert [label.split(", ")[0] for label in found] == list(own.units)
        assert panel(page, "lrp_conservative").locator("line").count() >= len(own.part.graph.edges)
        panel(page, "rollout").locator(".node").nth(4).hover()
        assert all(text.startswith("C4 ") for text in page.locator(".readout").all_text_contents())
        page.fill("#text", "no molecule")
        page.click("#explain")
        page.get_by_text("is no SMILES that rdkit can read").wait_for()
        assert not page.is_visible("#found")  # which was of another molecule


@pytest.mark.slow
def test_where_nodes_and_regions_lie(page: Any) -> None:
    made = """async ([graph, shapes]) => {
      const { graphMap } = await import('/graph_map.js');
      const whole = {edges: [[0, 1], [1, 2]], edge_types: [0, 3], names: ['a', 'b', 'c'], ...graph};
      const map = graphMap({method: 'x', scores: [1, -1, 0], graph: whole, rest: 0}, true, () => {});
      document.body.append(map.element);
      const found = [...map.element.querySelectorAll(shapes)];
      return found.map((one) => ['cx', 'cy', 'd', 'stroke-dasharray'].map((name) => one.getAttribute(name)));
    }"""
    graph = {"places": [[0, 0], [2, 0], [2, 1]], "source": "CCO"}
    found = page.evaluate(made, [graph, "circle"])
    places = np.array([[float(x), float(y)] for x, y, _, _ in found])
    assert np.allclose((places - places[0]) / (places[1] - places[0])[0], [[0, 0], [1, 0], [1, 0.5]])
    dashes = [dash for _, _, _, dash in page.evaluate(made, [graph, "line"])]
    assert dashes == [None, None, "3 2"]  # a single bond, and an aromatic one
    regions = page.evaluate(made, [{"source": [[0, 0, 1], [2, 0, 1]]}, ".area"])
    assert [d for _, _, d, _ in regions][1:] == ["M2 0h1v1h-1zM2 1h1v1h-1z", "M0 1h1v1h-1z"]
    edges = page.evaluate(made, [{"source": [[0, 0, 1], [2, 0, 1]]}, ".edge"])
    assert [d.count("M") for _, _, d, _ in edges] == [8, 6, 4]  # sides that face another region, or none


@pytest.mark.slow
def test_superpixels(page: Any, explainers: dict[str, Explainer]) -> None:
    """Of a large picture a smaller copy is cut in regions."""
    page.select_option("#model", "superpixels")
    shown(page, re.compile("^Drop or choose a picture"))
    with page.expect_request("**/v1/models/superpixels:explain") as asked:
        page.set_input_files("#picture", file(picture(900, 600)))
    shown(page)
    sent = Image.open(io.BytesIO(b64decode(asked.value.post_data_json["instances"][0]["b64"])))
    assert sent.size == (256, 171)
    (own,) = explainers["superpixels"]([np.asarray(sent.convert("L"))], method="lrp_conservative")
    found = labels(page, "lrp_conservative")
    assert numbers([label.split(", ")[1] for label in found]) == pytest.approx(own.scores, abs=2e-3)
    assert page.locator("#maps canvas").count() == 1  # the picture itself


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


# Samples, what is written, options, docs


def test_samples_are_clicked(page: Any, explainers: dict[str, Explainer]) -> None:
    """A text, and a picture that comes with relprop."""
    page.get_by_role("button", name="A long, dull film").click()
    shown(page)
    (own,) = explainers["sentiment"](["A long, dull film with one good joke."])
    assert page.locator("#subject").text_content().replace("−", "-") == f"{own.target} = {own.value:.3f}"
    assert page.locator("#reading").text_content().startswith(f"The model sentiment gives {own.target} the logit")
    page.select_option("#model", "vit")
    page.locator("#samples img").nth(3).click()
    shown(page)
    pets = EMBEDDED["pets"] / "samples"
    assert page.locator("#picture-hint").text_content() == "beagle_77.jpg"
    (own,) = explainers["vit"]([Image.open(pets / "beagle_77.jpg")])
    assert numbers([page.locator("#subject").text_content().rpartition("= ")[2]]) == pytest.approx(
        [own.value], abs=2e-3
    )


def test_what_a_model_writes_is_explained_token_by_token(page: Any, explainers: dict[str, Explainer]) -> None:
    open_kind(page, "lm")
    page.fill("#generate", "3")
    page.click("#explain")
    page.locator(".unit.written").first.wait_for()
    shown(page)
    own = explainers["lm"]("the movie", generate=3).words()
    assert "generate=3" in page.url
    wrote = own.text[0][len("the movie") :].strip()
    assert page.locator("#subject").text_content() == f"lm wrote: {wrote}"
    told = page.locator("#reading").text_content()
    assert told.startswith("The model lm wrote what is underlined; the sum of the logits of its tokens is")
    page.check("text=sub-words")
    shown(page)
    assert "wrote the 3 underlined tokens" in page.locator("#reading").text_content()
    page.locator("#units-field input").first.check()
    shown(page)
    assert page.locator("#classes button").count() == 0
    assert not page.is_visible("#target-field")
    written = panel(page, "lrp_conservative").locator(".unit.written")
    assert written.count() == len(own.steps)
    written.last.hover()
    told = panel(page, "lrp_conservative").locator(".readout").text_content()
    strongest = max(own.matrix[-1], key=abs)
    assert numbers([told.partition("): ")[2]]) == pytest.approx([strongest], abs=2e-3)
    assert numbers([told.partition("= ")[2]]) == pytest.approx([own.steps[-1].value], abs=2e-3)
    page.fill("#generate", "many")
    page.click("#explain")
    page.get_by_text("A whole number up to 200").wait_for()
    shown(page)


def test_options_and_special_tokens(page: Any, browser: Any, live: Live, explainers: dict[str, Explainer]) -> None:
    """In the request, the numbers and the link."""
    page.goto("/#model=sentiment&text=not+a+bad+film&method=integrated_gradients&method=rollout")
    page.reload()
    shown(page)
    page.click("#options-fold summary")
    page.get_by_label("steps").fill("3")
    page.get_by_label("steps").press("Enter")
    shown(page)
    page.check("#special")
    shown(page)
    own = explainers["sentiment"](["not a bad film"], method="integrated_gradients", steps=3, special="drop")[0]
    assert page.locator("#options-note").text_content() == "steps 3"
    with visit(browser, live, page.url.partition("/#")[2].join(["#", ""])) as other:
        shown(other)
        for one in (page, other):
            found = labels(one, "integrated_gradients")
            assert [label.split(", ")[0] for label in found] == ["not", "a", "bad", "film"]
            assert numbers([label.split(", ")[1] for label in found]) == pytest.approx(own.scores, abs=2e-3)


def test_fast_methods_are_asked_first(page: Any) -> None:
    asked: list[str] = []
    page.on(
        "request", lambda one: asked.append(one.post_data_json["parameters"].get("method")) if one.post_data else None
    )
    chosen = ["shapley", "occlusion", "lrp_ah_ln", "integrated_gradients", "rollout"]
    page.goto("about:blank")  # from the page itself it would ask twice: for the new fragment, and when loaded again
    page.goto("/#model=sentiment&text=dull&" + "&".join(f"method={one}" for one in chosen))
    shown(page)
    assert [one for one in asked if one] == ["lrp_ah_ln", "rollout", "integrated_gradients", "occlusion", "shapley"]


def test_lines_are_kept(page: Any) -> None:
    page.fill("#text", "a good film\nwith 😀 a dull\n\nend")
    page.click("#explain")
    shown(page)
    box = panel(page, FIRST[0]).locator(".text")
    lines = box.evaluate("e => e.innerText").split("\n")
    assert [" ".join(line.split(" | ")[0].split()) for line in lines] == [
        "[CLS] a good film",
        "with 😀 a dull",
        "end [SEP]",
    ]


def test_the_docs_are_the_services_own(browser: Any, live: Live) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for look in ({}, {"color_scheme": "dark", "viewport": PHONE}):
        with visit(browser, live, "docs", **look) as page:
            page.locator("#methods-table table").wait_for()
            assert f":{live.port}/v1/models/NAME:explain" in page.locator("#curl").text_content()
            assert "steps = 50" in page.locator("#methods-table tr", has_text="integrated_gradients").text_content()
            assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
            found = axe.run(page).response["violations"]
            assert not [one["id"] for one in found if one["impact"] in ("serious", "critical")]
            page.get_by_role("link", name="The page").click()
            shown(page)
