"""The service's page in a real browser, watched: what it logs, which dialogs it opens, and whom it asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from browser import CHROMIUM
from serving_for_tests import Live

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
SHOWN = re.compile(r"\d+ heat maps? of ")
SECONDS = 20


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, or the test is skipped."""
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


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
    """The first number in each."""
    return [
        float(found.group().replace("−", "-")) for found in (re.search(r"[+−]?\d[\d.e+−-]*", t) for t in texts) if found
    ]
