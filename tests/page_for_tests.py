"""The service's page in a real browser, watched: what it logs, which dialogs it opens, and whom it asks."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from PIL import Image

from browser import CHROMIUM
from relprop.explainer import Explainer
from serving_for_tests import HANG, Live, patient, serving
from test_images import picture, vit
from test_serve import ASPIRIN, CONTEXT, graphormer
from tokenizers_for_tests import tiny

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
SHOWN = re.compile(r"\d+ heat maps? of ")
SECONDS = HANG
FIRST = ["lrp_blend", "gradient_x_input", "rollout"]  # the methods that a first visitor sees, of a text
KINDS = {"sentiment": "", "lm": "the movie", "qa": "is it good", "graphs": ASPIRIN, "vit": "", "superpixels": ""}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Or the test is skipped."""
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def explainers() -> dict[str, Explainer]:
    made = {name: Explainer(*tiny(name)) for name in ("qa", "lm")}
    real = {name: Explainer(name) for name in ("sentiment", "superpixels")}
    return {**real, **made, "vit": vit(), "graphs": graphormer()}


@pytest.fixture(scope="module")
def live(browser: Any, explainers: dict[str, Explainer]) -> Iterator[Live]:
    with serving(explainers, limits=patient()) as live:
        live.wait()
        yield live


@pytest.fixture
def page(browser: Any, live: Live) -> Iterator[Any]:
    """As a first visitor sees it."""
    with visit(browser, live) as page:
        shown(page)
        yield page


@contextmanager
def visit(browser: Any, live: Live, fragment: str | None = "", quiet: bool = True, **context: Any) -> Iterator[Any]:
    """The page, opened and at last checked: no dialog, no other server, and where it is `quiet` no error in its log."""
    origin = f"http://127.0.0.1:{live.port}"
    wrong: list[str] = []
    opened = browser.new_context(permissions=["clipboard-read", "clipboard-write"], base_url=origin, **context)
    try:
        page = opened.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda said: wrong.append(f"{said.type}: {said.text}") if _counts(said, quiet) else None)
        page.on("request", lambda asked: None if _own(asked.url, origin) else wrong.append(f"asked {asked.url}"))
        if fragment is not None:
            page.goto(f"/{fragment}")
        yield page
        assert wrong == []
    finally:
        opened.close()


def _counts(said: Any, quiet: bool) -> bool:
    """A refusal, which Chromium logs itself, is no error where the test is about one."""
    refused = said.text.startswith("Failed to load resource")
    return said.type in ("error", "warning") and (quiet or not refused)


def _own(url: str, origin: str) -> bool:
    return url.startswith((origin, "data:", "blob:"))


def shown(page: Any, says: re.Pattern[str] | str = SHOWN) -> None:
    """Waits until the page says so."""
    from playwright.sync_api import expect

    expect(page.locator("#status")).to_have_text(says, timeout=1000 * SECONDS)


def explain(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.click("#explain")
    shown(page)


def numbers(texts: list[str]) -> list[float]:
    """The first in each."""
    return [float(re.findall(r"[+−]?\d[\d.e+−-]*", text)[0].replace("−", "-")) for text in texts]


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
    if name in ("vit", "superpixels"):
        page.locator("#picture-field").wait_for()
        page.set_input_files("#picture", file(picture(56, 40)))
    elif KINDS[name]:
        page.locator("#text-name", has_not_text=re.compile("^Text$")).wait_for()
        page.fill("#text", KINDS[name])
        if name == "qa":
            page.fill("#pair", CONTEXT)
        page.click("#explain")
    shown(page)
