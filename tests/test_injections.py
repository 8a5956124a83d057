"""A hundred strings that would run a script, given as tokens, labels, names, SMILES, rows and links: none does.

The page is opened without its content-security policy and reports without theirs: it is the page and the reports that
must not make markup of texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from html import unescape
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

import page_for_tests
from explanations import changed, of_text
from page_for_tests import explain, file, shown, visit
from relprop.audit import names
from relprop.bench.cell_work import CellWork
from relprop.bench.report import read_results, write_report
from relprop.bench.runner import run_cells
from relprop.bench.store import Store
from relprop.bench.suite_folder import record_plan
from relprop.bench.suite_plan import plan_suite
from relprop.bench.suites import suite_from
from relprop.explainer import Explainer
from relprop.explanation import to_html as images_html
from relprop.render.visible import visible
from relprop.serve.options import method_catalogue
from relprop.types import Unit
from serving_for_tests import HANG, Live, patient, serving
from test_bench_report import SUITE
from test_images import picture, vit
from test_serve import graphormer
from tokenizers_for_tests import tiny

browser = page_for_tests.browser  # a fixture
RUN = "(window.ran??=[]).push(1)"
PAYLOADS = (
    "<script>RUN</script>",
    "<img src=x onerror=RUN>",
    "<svg onload=RUN>",
    "<svg><script>RUN</script></svg>",
    "<body onload=RUN>",
    "<iframe srcdoc='<script>parent.RUN</script>'></iframe>",
    "<iframe src=javascript:parent.RUN></iframe>",
    "<details open ontoggle=RUN>x</details>",
    "<input autofocus onfocus=RUN>",
    "<video><source onerror=RUN></video>",
    "<audio src=x onerror=RUN></audio>",
    "<object data=x onerror=RUN></object>",
    "<link rel=stylesheet href=x onerror=RUN>",
    "<style onload=RUN></style>",
    "<svg><animate onbegin=RUN attributeName=x dur=1s>",
    "<math><mtext><table><mglyph><style><img src=x onerror=RUN>",
    "<a href=javascript:RUN autofocus onfocus=RUN tabindex=0>x</a>",
    "<meta http-equiv=refresh content='0;url=javascript:RUN'>",
    "<form action=javascript:RUN><button autofocus onfocus=RUN>x</button></form>",
    "<noscript><p title='</noscript><img src=x onerror=RUN>'>",
    "<template><script>RUN</script></template><img src=x onerror=RUN>",
    "&lt;script&gt;RUN&lt;/script&gt;<img src=x onerror=RUN>",
    "${RUN}{{constructor.constructor('RUN')()}}<img src=x onerror=RUN>",
    "%3Cscript%3ERUN%3C/script%3E<img src=x onerror=RUN>",
    "\u202e<script>RUN</script>\x00",
)
# What runs some time after it was put into a page, by the kind of event; scripts and the like run at once. The address
# is one that answers, with something that is no picture: the page's log stays clean.
LATE = (
    "<img src=/v2/health/live onerror=RUN>",
    "<iframe srcdoc='<script>parent.RUN</script>'></iframe>",
    "<details open ontoggle=RUN>x</details>",
    "<video><source src=/v2/health/live onerror=RUN></video>",
    "<audio src=/v2/health/live onerror=RUN></audio>",
    "<style onload=RUN></style>",
    "<svg><animate onbegin=RUN attributeName=x dur=1s></svg>",
)
PLANT = """every => {
  window.late = [];
  every.forEach((markup, i) => {
    const inside = document.createElement("div");
    document.body.append(inside);
    inside.innerHTML = markup.replaceAll("RUN", `window.late.push(${i})`);
  });
}"""
BEFORE = ("", "\"'><p ", "</textarea></title></style>", "--> ]]></svg>")
STRINGS = [before + payload.replace("RUN", RUN) for before, payload in product(BEFORE, PAYLOADS)]
TOGETHER = [" ".join(STRINGS[i::2]) for i in range(2)]
OWN_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def hostile() -> Explainer:
    """A model whose classes have such names."""
    shared, tokenizer = tiny("bert")
    model = deepcopy(shared)
    model.config.id2label = {0: STRINGS[0], 1: STRINGS[1]}
    return Explainer(model, tokenizer)


@pytest.fixture(scope="module")
def live(browser: Any) -> Iterator[Live]:
    with serving({"hostile": hostile(), "vit": vit(), "graphs": graphormer()}, limits=patient()) as live:
        live.wait()
        yield live


def ran(page: Any) -> bool:
    """Whether a script has run: asked when markup of every kind that was put in later has run, twice over."""
    for _ in range(2):
        page.evaluate(PLANT, LATE)
        page.wait_for_function("count => new Set(window.late).size === count", arg=len(LATE), timeout=1000 * HANG)
    return page.evaluate("window.ran !== undefined")


def runs(browser: Any, content: str) -> bool:
    """Whether a page of this content runs a script, its own policy taken away."""
    page = browser.new_page()
    page.on("dialog", lambda dialog: dialog.dismiss())
    page.set_content(OWN_POLICY.sub("", content), wait_until="load")
    found = ran(page)
    page.close()
    return found


def test_they_would_run_as_markup(browser: Any) -> None:
    """Else the other tests could not fail."""
    assert len(set(STRINGS)) == 100
    page = browser.new_page()
    page.on("dialog", lambda dialog: dialog.dismiss())
    count = 0
    for text in STRINGS:
        page.set_content(f"<!DOCTYPE html><body>{text}")
        count += ran(page)
    page.close()
    assert count >= 80


# The page, told the worst by its service


def told(path: str, kind: str) -> Any:
    """What a service of hostile names would answer."""
    if path.endswith("/v1/models"):
        return {"models": ["m", *STRINGS]}
    if path.endswith("/v1/methods"):
        made = [{**one, "summary": STRINGS[i], "family": STRINGS[i]} for i, one in enumerate(method_catalogue())]
        return {"methods": [*made, {**made[0], "name": STRINGS[9]}]}
    prediction = {"prediction": STRINGS[3], "probability": 0.5}
    if path.endswith(":predict"):
        each = [{"label": text, "probability": 0.01} for text in STRINGS]
        return {"predictions": [{**prediction, "probabilities": each}]}
    heads = {"kinds": [["positional", "neither"]], "corpus": STRINGS[4]}
    source = "smiles" if kind == "graphs" else "text"
    return {"name": "m", "ready": True, "kind": kind, "input": source, "labels": STRINGS, "heads": heads}


def explained(method: str, kind: str) -> dict[str, Any]:
    scores = np.cos(np.arange(len(STRINGS))).tolist()
    entries = [{"module": text, "op": text, "kind": "bias", "value": 0.01} for text in STRINGS]
    both = {"method": method, "target": STRINGS[6], "value": 1.0, "scores": scores, "prediction": STRINGS[7]}
    both |= {"ledger": {"value": 1.0, "entries": entries, "itemised": False}, "truncated": STRINGS[8]}
    if kind == "graphs":
        placed = {
            "places": [[i % 10, i // 10] for i in range(100)],
            "edges": [],
            "edge_types": [],
            "source": STRINGS[9],
        }
        return {**both, "kind": "graph", "rest": 1.0, "graph": {"names": STRINGS, **placed}}
    each = {"start": None, "end": None, "special": False, "segment": 0, "word": None}
    return {**both, "units": [{**each, "text": text} for text in STRINGS]}


@pytest.mark.parametrize("kind", ["texts", "graphs"])
def test_names_tokens_and_labels_stay_texts(browser: Any, live: Live, kind: str) -> None:
    def answer(route: Any) -> None:
        path, body = route.request.url, route.request.post_data_json
        asked = path.endswith(":explain")
        found = {"explanations": [explained(body["parameters"]["method"], kind)]} if asked else told(path, kind)
        route.fulfill(json=found)

    with visit(browser, live, None, bypass_csp=True) as page:
        page.route("**/v1/**", answer)
        page.goto(f"/#{urlencode({'text': STRINGS[5]})}")
        shown(page)
        for summary in page.locator("summary:visible").all():
            summary.click()
        units = page.locator("#maps article").first.locator("[role=option]")
        assert [text.rsplit(", ", 1)[0] for text in units.evaluate_all("all => all.map(e => e.ariaLabel)")] == [
            visible(text) for text in STRINGS
        ]
        assert page.locator("#target option").all_text_contents()[1:] == [visible(text) for text in STRINGS]
        units.nth(3).hover()
        assert not ran(page)


def test_links_stay_texts(browser: Any, live: Live) -> None:
    fields = ("model", "text", "pair", "target", "against", "units", "name", "method")
    with visit(browser, live, bypass_csp=True) as page:
        shown(page)
        for text in TOGETHER:
            page.goto(f"/#{urlencode(dict.fromkeys(fields, text))}")
            page.get_by_text(f'This service has no model "{visible(text)}".').wait_for()
            page.goto(f"/#{urlencode({'model': 'vit', 'picture': text})}")
            page.get_by_text("The link is damaged: its picture cannot be read.").wait_for()
        assert not ran(page)


def test_file_names_stay_texts(browser: Any, live: Live) -> None:
    with visit(browser, live, "#model=vit", bypass_csp=True) as page:
        shown(page, re.compile("^Drop or choose"))
        for text in TOGETHER:
            name = text.replace("\x00", "").replace("/", "∕")
            page.set_input_files("#picture", file(picture(), name))
            page.locator("#picture-hint", has_text=visible(name)).wait_for()
            shown(page)
        assert not ran(page)


@pytest.mark.slow
def test_typed_texts_stay_texts(browser: Any, live: Live) -> None:
    """Through the real service: as texts, and as molecules that are none."""
    with visit(browser, live, quiet=False, bypass_csp=True) as page:
        for text in STRINGS:
            explain(page, text)
        page.select_option("#model", "graphs")
        page.get_by_text("Molecule (SMILES)").wait_for()
        for text in STRINGS:
            page.fill("#text", text)
            page.click("#explain")
            page.locator("#errors", has_text="is no SMILES that rdkit can read").wait_for()
        assert not ran(page)


# Reports


def explanation() -> Any:
    units = tuple(Unit(text, i, i + 1) for i, text in enumerate(STRINGS))
    scores = tuple(np.cos(np.arange(len(STRINGS))).tolist())
    return of_text(("",), units, scores, STRINGS[0], STRINGS[1], 1.0, STRINGS[2], 0.5, truncated=STRINGS[3])


def test_reports_and_notebooks_stay_texts(browser: Any) -> None:
    one = explanation()
    (seen,) = vit()([picture()])
    maps = [changed(seen, file=text, target=text, prediction=text) for text in TOGETHER]
    for page in (one.to_html(), one._repr_html_(), images_html(maps), "".join(each._repr_html_() for each in maps)):
        assert visible(STRINGS[0]) in unescape(page)
        assert not runs(browser, page)


@pytest.mark.slow
def test_downloaded_reports_stay_texts(browser: Any, live: Live) -> None:
    for start in range(0, len(STRINGS), 16):
        body = {"instances": STRINGS[start : start + 16], "parameters": {"target": 1, "words": True}, "format": "html"}
        answer = live.post("/v1/models/hostile:render", body)
        assert answer.status == 200, answer.content
        assert visible(STRINGS[1]) in unescape(answer.content.decode())
        assert not runs(browser, answer.content.decode())


def test_rows_of_a_corpus_stay_texts(browser: Any) -> None:
    texts = [f"Ann {text}" for text in STRINGS[:50]] + [f"Bob {text}" for text in STRINGS[50:]]
    audit = names(hostile(), texts, {"Ann": STRINGS[10], "Bob": STRINGS[11]}, contrast=(0, 1), draws=99, progress=False)
    page = audit.to_html()
    assert visible(STRINGS[10]) in unescape(page)
    assert not runs(browser, page)


@pytest.mark.slow
def test_rows_of_a_benchmark_stay_texts(browser: Any, tmp_path: Path) -> None:
    rows = [json.dumps({"text": text, "label": i % 2}) for i, text in enumerate(STRINGS)]
    (tmp_path / "own.jsonl").write_text("\n".join(rows))
    task = {"name": STRINGS[1], "model": "sentiment", "data": "own", "chunk": 25, "show": 100}
    plan = plan_suite(suite_from({**SUITE, "tasks": [task]}, "small", STRINGS[2]), tmp_path)
    record_plan(plan, tmp_path / "run", STRINGS[3])
    with Store(tmp_path / "run") as store:
        run_cells(store, plan.specs, CellWork(plan.locations))
    write_report(read_results(tmp_path / "run"), tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert visible(STRINGS[0]) in unescape(page)
    assert not runs(browser, page)
