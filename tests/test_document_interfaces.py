"""Words with boxes through the command line, the service and its page."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import page_for_tests
from document_models import BOXES, QUESTION, WORDS, document, model, page, processor, tokenizer
from page_for_tests import file, panel, shown, visit
from relprop.cli import app
from relprop.errors import InputError
from relprop.explainer import Explainer
from relprop.explanation import Explanation
from serving_for_tests import Live, patient, serving

browser = page_for_tests.browser  # a fixture
KINDS = {"classes": "SequenceClassification", "labels": "TokenClassification", "answers": "QuestionAnswering"}
TABLE = "word,left,top,right,bottom\n" + "".join(
    f"{word},{','.join(map(str, box))}\n" for word, box in zip(WORDS, BOXES, strict=True)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model per task with its tokenizer, as transformers saves them, and a page beside them."""
    where = tmp_path_factory.mktemp("pages")
    for name, head in KINDS.items():
        model("LayoutLM", head).save_pretrained(where / name)
        tokenizer().save_pretrained(where / name)
    page().save(where / "page.png")
    record = {"words": WORDS, "boxes": BOXES}
    (where / "page.json").write_text(json.dumps({**record, "image": "page.png"}))
    (where / "pages.jsonl").write_text(f"{json.dumps(record)}\n{json.dumps(record | {'words': WORDS[::-1]})}\n")
    (where / "page.csv").write_text(TABLE)
    return where


def run(*args: object) -> Any:
    return CliRunner().invoke(app, ["explain", *map(str, args)], catch_exceptions=False)


def loaded(done: Any) -> list[Explanation]:
    return [Explanation.from_json(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", ["page.json", "page.csv"])
def test_command_line(folder: Path, tmp_path: Path, name: str) -> None:
    own = Explainer(folder / "classes")(document(), target=1)
    (found,) = loaded(run("--document", folder / name, "--model", folder / "classes", "--target", 1, "--json", "-"))
    assert found.value == pytest.approx(own.value)
    assert found.part.boxes == own.part.boxes
    html = tmp_path / "out.html"
    run("--document", folder / name, "--image", folder / "page.png", "--model", folder / "classes", "--html", html)
    assert "unwatchable: " in html.read_text()


def test_command_line_asks_and_labels(folder: Path) -> None:
    ask = ("--document", folder / "page.json", "--model", folder / "answers", "--question", QUESTION, "--json", "-")
    (found,) = loaded(run(*ask, "--target", "Total"))
    own = Explainer(folder / "answers")(question=QUESTION, context=document(), target="Total")
    assert found.value == pytest.approx(own.value)
    labelled = ("--document", folder / "pages.jsonl", "--model", folder / "labels", "--target", "Total,B-TOTAL")
    two = loaded(run(*labelled, "--json", "-"))
    assert [one.text[0].split()[0] for one in two] == ["Invoice", "Paris"]


def test_command_line_refuses(folder: Path, tmp_path: Path) -> None:
    own = ("--model", folder / "classes")
    with pytest.raises(InputError, match="--document needs a --model that reads words with their boxes"):
        run("--document", folder / "page.json")
    with pytest.raises(InputError, match=r"--document needs a model that reads words .* this one reads texts"):
        run("--document", folder / "page.json", "--model", "sentiment")
    with pytest.raises(InputError, match="reads words with their boxes: give "):
        run("a plain text", *own)
    with pytest.raises(InputError, match="either --document or a text"):
        run("a plain text", "--document", folder / "page.json", *own)
    with pytest.raises(InputError, match=r"is a .json, .jsonl or .csv file"):
        run("--document", folder / "page.png", *own)
    for content, message in {
        "": "is not JSON",
        '{"words": ["a"]}': 'a document is {"words"',
        '{"words": ["a"], "boxes": [[0, 0, 5000, 1]]}': "lies outside of the page",
        '{"words": ["a"], "boxes": [[0, 0, 5, 1]], "image": 3}': "is the name of a picture",
    }.items():
        wrong = tmp_path / "wrong.json"
        wrong.write_text(content)
        with pytest.raises(InputError, match=message):
            run("--document", wrong, *own)
    table = tmp_path / "wrong.csv"
    for content, message in {
        "word,left\na,1\n": "has the columns word, left, top, right, bottom",
        "word,left,top,right,bottom\na,1,2,x,4\n": "line 2 of the table holds a box that is not four numbers",
        "": "holds no rows",
    }.items():
        table.write_text(content)
        with pytest.raises(InputError, match=message):
            run("--document", table, *own)


@pytest.fixture(scope="module")
def service() -> Iterator[Any]:
    models = {name: Explainer(model("LayoutLM", head), tokenizer()) for name, head in KINDS.items()}
    models["pictured"] = Explainer(model("LayoutLMv3", "SequenceClassification"), processor())
    with serving(models, limits=patient(tokens=60)) as running:
        running.wait()
        yield running


def b64() -> str:
    stream = BytesIO()
    page().save(stream, format="PNG")
    return b64encode(stream.getvalue()).decode()


INSTANCE = {"words": WORDS, "boxes": BOXES}


def test_service(service: Any) -> None:
    kinds = {name: service.get(f"/v1/models/{name}").json["kind"] for name in (*KINDS, "pictured")}
    assert kinds == dict.fromkeys(kinds, "documents") | {"answers": "document_questions"}
    body = {"instances": [INSTANCE, {"csv": TABLE}], "parameters": {"target": 1}}
    own = Explainer(model("LayoutLM", "SequenceClassification"), tokenizer())(document(), target=1)
    for found in service.post("/v1/models/classes:explain", body).json["explanations"]:
        one = Explanation.from_json(json.dumps(found))
        assert one.value == pytest.approx(own.value)
        assert (one.part.kind, one.part.boxes) == ("document", own.part.boxes)
        assert one.part.scores == pytest.approx(own.part.scores)
    asked = {"instances": [{**INSTANCE, "question": QUESTION}], "parameters": {"target": "Total"}}
    answered = Explainer(model("LayoutLM", "QuestionAnswering"), tokenizer())(
        question=QUESTION, context=document(), target="Total"
    )
    found = service.post("/v1/models/answers:explain", asked).json["explanations"][0]
    assert found["value"] == pytest.approx(answered.value)
    both = {"instances": [{**INSTANCE, "image": {"b64": b64()}}], "format": "png"}
    assert service.post("/v1/models/pictured:render", both).content.startswith(b"\x89PNG")
    several = service.post("/v1/models/labels:explain", {"instances": [INSTANCE]})
    assert several.status == 200


def test_service_refuses(service: Any) -> None:
    for name, instance, status, message in [
        ("classes", "a text", 400, 'an instance is {"words"'),
        ("classes", {"words": WORDS}, 400, 'an instance is {"words"'),
        ("classes", {**INSTANCE, "question": "who?"}, 400, 'an instance is {"words"'),
        ("answers", INSTANCE, 400, 'and with "question": "..."'),
        ("classes", {"words": WORDS, "boxes": BOXES[:2]}, 400, "5 words, and 2 boxes"),
        ("classes", {"words": ["a"], "boxes": [[0, 0, 2000, 1]]}, 400, "lies outside of the page"),
        ("classes", {**INSTANCE, "image": {"b64": "?"}}, 400, "the picture is not in base64"),
        ("pictured", INSTANCE, 400, "reads the page's picture too"),
        ("classes", {"csv": ""}, 400, "holds no rows"),
        ("classes", {"csv": 3}, 400, '"csv" is a text'),
        ("classes", {"words": ["word"] * 200, "boxes": [[0, 0, 1, 1]] * 200}, 413, "has 64 tokens; at most 60"),
        ("classes", {"words": ["x" * 999] * 20, "boxes": [[0, 0, 1, 1]] * 20}, 413, "19,980 characters"),
    ]:
        answer = service.post(f"/v1/models/{name}:explain", {"instances": [instance]})
        assert (answer.status, message in answer.json["error"]) == (status, True), answer.json


def test_page(browser: Any, service: Live, tmp_path: Path) -> None:
    """A table of words is drawn by the service, with the page's picture where there is one."""
    with visit(browser, service, "#model=classes") as opened:
        shown(opened)
        assert opened.locator("#text").input_value().startswith("word,left,top,right,bottom")
        drawn = panel(opened, "lrp_conservative").locator("img.drawn")
        drawn.wait_for()
        opened.select_option("#model", "answers")
        opened.locator("#pair-name", has_text="Question").wait_for()
        shown(opened)
        opened.fill("#text", TABLE)
        opened.fill("#target-text", "Total")
        opened.click("#explain")
        shown(opened)
        opened.locator("#subject", has_text="'Total'").wait_for()
        opened.set_input_files("#picture", file(page()))
        shown(opened)
        opened.locator("img.drawn[src]").nth(2).wait_for()
        opened.screenshot(path=tmp_path / "page.png", full_page=True)
