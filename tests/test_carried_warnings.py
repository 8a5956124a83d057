"""What an explanation's numbers do not say goes with it: to files, drawings, the service and its page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import page_for_tests
import relprop.attribution
from page_for_tests import panel, shown, tiny, visit, vit
from relprop import Explainer, Explanation
from relprop.cli.app import main
from relprop.errors import RelpropWarning
from serving_for_tests import serving
from test_images import picture
from test_tags import saying

browser = page_for_tests.browser  # a fixture
TEXT = "a gorgeous, witty, seductive movie."
SAID = "only <half> of the model is read"


@pytest.fixture
def unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass has something to say."""
    found = relprop.attribution.attribute

    def attribute(*given: Any, **options: Any) -> Any:
        return replace(found(*given, **options), warnings=(SAID,))

    monkeypatch.setattr("relprop.explainer.attribute", attribute)
    monkeypatch.setattr("relprop.tasks.generation.attribute", attribute)


@pytest.mark.usefixtures("unsure")
@pytest.mark.parametrize("kind", ["text", "image", "written", "entities", "none"])
def test_an_explanation_keeps_its_warnings(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made: dict[str, Any] = {
        "text": lambda: Explainer("sentiment")(TEXT),
        "image": lambda: vit()(picture()),
        "written": lambda: Explainer(*tiny("lm"))("a movie", generate=3),
        "entities": lambda: saying({"good": "B-PER", "film": "B-LOC"})("a good film", method="gradient_x_input"),
        "none": lambda: saying({})("the film was dull"),
    }
    with pytest.warns(RelpropWarning):
        e = made[kind]()
    (said,) = e.warnings
    assert said == SAID if kind != "none" else "finds no entity" in said
    assert all(e.step(i).warnings == e.warnings for i in range(len(e.steps)))
    again = Explanation.from_json(e.to_json())
    assert again.warnings == e.warnings
    e.show()
    assert f"warning: {said[:30]}" in " ".join(capsys.readouterr().out.split())
    assert e.to_html().count('<p class="warning">') == 1
    assert "&lt;half&gt;" in e.to_html() or kind == "none"
    if not e.steps:
        e.save(tmp_path / "with.png")
        replace(e, warnings=()).save(tmp_path / "without.png")
        with Image.open(tmp_path / "with.png") as tall, Image.open(tmp_path / "without.png") as short:
            assert tall.width == short.width
            assert tall.height > short.height


@pytest.mark.usefixtures("unsure")
@pytest.mark.filterwarnings("default::relprop.errors.RelpropWarning")
def test_the_command_line_tells_them_once(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["relprop", "explain", TEXT])
    with pytest.raises(SystemExit):
        main()
    assert "".join(capfd.readouterr()).count(SAID) == 1


def test_nothing_to_say_leaves_no_trace() -> None:
    e = Explainer("sentiment")(TEXT)
    assert e.warnings == ()
    assert "warnings" not in json.loads(e.to_json())
    assert '<p class="warning">' not in e.to_html()


@pytest.mark.usefixtures("unsure")
@pytest.mark.filterwarnings("ignore::relprop.errors.RelpropWarning")
def test_the_service_and_its_page_tell_them(browser: Any) -> None:
    models = {"sentiment": Explainer("sentiment"), "tagger": saying({"good": "B-PER"})}
    with serving(models) as live:
        live.wait()
        answered = live.explain(TEXT).json["explanations"][0]
        assert answered["warnings"] == [SAID]
        assert Explanation.from_json(json.dumps(answered)).warnings == (SAID,)
        assert live.explain("a good film", model="tagger").json["explanations"][0]["warnings"] == [SAID]
        assert "finds no entity" in live.explain("dull", model="tagger").json["explanations"][0]["warnings"][0]
        with visit(browser, live) as page:
            shown(page)
            assert panel(page, page_for_tests.FIRST[0]).locator(".warning").text_content() == f"Warning: {SAID}"
