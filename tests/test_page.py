"""The page in a browser: every control, the library's numbers, and what it says when things go wrong."""

from __future__ import annotations

import io
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import page_for_tests
from page_for_tests import FIRST, explain, labels, methods, numbers, open_kind, panel, shown, visit
from relprop.explainer import Explainer
from relprop.heads import known_heads
from relprop.serve.routes import PAGE
from serving_for_tests import Live, serving

browser, explainers = page_for_tests.browser, page_for_tests.explainers  # fixtures
live, page = page_for_tests.live, page_for_tests.page
TEXT = "It is not a great film, but a gorgeous, seductive one."


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
    assert labels(page, "lrp_blend")[3].endswith("opposes")


def added(told: list[str]) -> Decimal:
    """The sum of the numbers in some texts, one in each."""
    return sum((Decimal(number) for number in map(signed_number, told)), Decimal())


def signed_number(text: str) -> str:
    return re.findall(r"[+−-]?\d+\.\d+", text)[-1].replace("−", "-")


@pytest.mark.parametrize("kind", ["text", "graph"])
def test_what_is_shown_sums_to_the_value(page: Any, kind: str) -> None:
    """To the last digit: the line, the table with what stands beside the units, the chips, and the ledger."""
    if kind == "text":
        explain(page, TEXT)
    else:
        open_kind(page, "graphs")
    heading = Decimal(signed_number(page.locator("#subject").text_content()))
    for method in (methods(page)[0], "gradient_x_input"):
        line = panel(page, method).locator(".readout").text_content()
        value = Decimal(signed_number(line.split(" = ")[1]))
        assert value == heading
        total, *beside = line.split(" = ")[0].split(", ")
        assert added([total, *beside]) == value
        chips = panel(page, method).locator(".chip").all_text_contents()
        assert [chip.strip("()") for chip in chips] == (beside if kind == "text" else [])
        panel(page, method).locator("summary").click()
        panel(page, method).locator("tbody tr").first.wait_for()  # made when the fold says that it opened
        rows = panel(page, method).locator("tbody tr").all_text_contents()
        assert added(rows) == value
        assert [row.split(")")[0] for row in rows if row.startswith("(")][-len(beside) :] == [
            f"({one.rsplit(' ', 1)[0]}" for one in beside
        ]
    for figure in page.locator("#waterfalls figure").all():
        *parts, whole = figure.locator(".amount").all_text_contents()
        assert added([part for part in parts if part != "≈ 0"]) == added([whole]) == value


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
    (own,) = explainers["sentiment"]([TEXT], method="lrp_blend")
    assert [label.rsplit(", ", 1)[0] for label in labels(page, "lrp_blend")] == [one.text for one in own.units]
    joined = panel(page, "lrp_blend").locator(".unit.join").all_text_contents()
    assert {"du", "ct", "ive"} <= set(joined)
    page.check("text=words >> nth=0")
    shown(page)
    assert "seductive" in panel(page, "lrp_blend").locator(".unit").all_text_contents()


def test_a_class_and_another_against_it(page: Any, explainers: dict[str, Explainer]) -> None:
    explain(page, TEXT)
    page.select_option("#target", label="negative")
    shown(page)
    assert page.locator("#subject").text_content().startswith("negative = ")
    assert page.locator("#against option", has_text="negative").is_disabled()
    page.select_option("#against", label="positive")
    shown(page)
    (own,) = explainers["sentiment"]([TEXT], target=("negative", "positive"), method="lrp_blend")
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
    page.uncheck("[value=lrp_blend]")
    shown(page, re.compile("^3 heat maps"))
    page.check("[value=lrp_blend]")
    shown(page, re.compile("^4 heat maps"))
    assert methods(page) == ["gradient_x_input", "rollout", "occlusion", "lrp_blend"]
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
    assert len(labels(page, "lrp_blend")) == len(own.words().units)
    assert panel(page, "lrp_blend").locator(".bar").count() == 2  # between the texts, and before what is beside them


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
    page.fill("#text", "another film")
    page.click("#explain")
    shown(page)
    assert not page.is_visible("#link")  # which holds the link to what was shown before


# When things go wrong


@pytest.mark.slow
def test_a_busy_service_says_when_to_come_again(browser: Any, live: Live) -> None:
    with visit(browser, live, None, quiet=False) as page:
        page.clock.install()  # its time passes only when it is told to
        page.goto("/")
        shown(page)
        page.clock.pause_at(page.evaluate("Date.now() + 1000"))
        refused = {"status": 503, "headers": {"Retry-After": "2"}, "json": {"error": "9 inputs are waiting already"}}
        page.route("**/*:explain", lambda route: route.fulfill(**refused))
        page.fill("#text", "dull")
        page.click("#explain")
        shown(page, "No heat map came.")
        again = panel(page, "rollout").get_by_role("button")
        assert (again.is_disabled(), again.text_content()) == (True, "Try again in 2 s")
        assert "9 inputs are waiting already." in panel(page, "rollout").text_content()
        page.unroute_all()
        page.clock.run_for(1_000)
        assert (again.is_disabled(), again.text_content()) == (True, "Try again in 1 s")
        page.clock.run_for(1_000)
        page.clock.resume()
        again.click()
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


# Its files


def test_it_names_no_other_server_and_has_no_script_or_style_within() -> None:
    """So that the strictest policy holds."""
    markup = (PAGE / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", markup)
    for path in PAGE.iterdir():
        text = path.read_text()
        assert set(re.findall(r"\w+://[^'\"\s]+", text)) <= {"http://www.w3.org/2000/svg"}, path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), path.name
