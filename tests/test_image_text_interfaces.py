"""A picture and a text through the command line, the service and its drawings."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

import page_for_tests
from page_for_tests import file, panel, shown, visit
from relprop import Explainer
from relprop.cli import app
from relprop.errors import InputError
from relprop.explanation import Explanation, save
from relprop.render.together.terminal import terminal
from serving_for_tests import patient, serving
from vision_language_models import COMPARERS, QUESTION, WRITERS, model_and_processor, picture

browser = page_for_tests.browser  # a fixture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIP with its processor, as transformers saves them, and a picture beside them."""
    where = tmp_path_factory.mktemp("clip")
    for one in model_and_processor("clip"):
        one.save_pretrained(where)
    picture().save(where / "picture.png")
    return where


def run(*args: object) -> Any:
    return CliRunner().invoke(app, ["explain", *map(str, args)], catch_exceptions=False)


def test_command_line(folder: Path, tmp_path: Path) -> None:
    """One text, and two that are compared, to the terminal and to files."""
    given = ("a red photo", "--image", folder / "picture.png", "--model", folder)
    out = run(*given)
    assert out.exit_code == 0, out.output
    assert "sum per part: image" in out.stdout
    alone = Explainer(str(folder))((folder / "picture.png", "a red photo"))
    files = [tmp_path / name for name in ("a.png", "a.html", "a.json")]
    out = run(
        *given, "--pair", "a blue cat", "--target", "0", "--png", files[0], "--html", files[1], "--json", files[2]
    )
    assert out.exit_code == 0, out.output
    found = json.loads(files[2].read_text())
    assert found["value"] == pytest.approx(alone.value)
    assert found["target"] == "'a red photo'"
    assert "data-name" in files[1].read_text()
    with Image.open(files[0]) as drawn:
        assert drawn.width > 500


def test_command_line_refuses(folder: Path) -> None:
    with pytest.raises(InputError, match="reads a picture and a text together, this one reads texts"):
        run("a red photo", "--image", folder / "picture.png", "--model", "sentiment")
    with pytest.raises(InputError, match=r'give a pair \(image, "text"\)'):
        run("a red photo", "--model", folder)
    with pytest.raises(InputError, match="leave out --question"):
        run("a red photo", "--image", folder / "picture.png", "--model", folder, "--question", "what")


@pytest.fixture(scope="module")
def service() -> Iterator[Any]:
    models = {name: Explainer(*model_and_processor(name)) for name in ("clip", "vilt", "llava", "qwen2_vl")}
    with serving(models, limits=patient()) as running:
        running.wait()
        yield running


def b64(image: Image.Image) -> str:
    stream = BytesIO()
    image.save(stream, format="PNG")
    return b64encode(stream.getvalue()).decode()


def test_service(service: Any) -> None:
    """Predictions and explanations are what Python gives; a list of texts is compared."""
    about = service.get("/v1/models/clip").json
    assert (about["kind"], about["input"]) == ("pairs", "both")
    instance = {"image": {"b64": b64(picture())}, "text": ["a red photo", "a blue cat"]}
    one = Explainer(*model_and_processor("clip"))((picture(), instance["text"]))
    found = service.post("/v1/models/clip:explain", {"instances": [instance]}).json
    assert found["predictions"] == [{"prediction": one.prediction, "probability": pytest.approx(one.probability)}]
    loaded = Explanation.from_json(json.dumps(found["explanations"][0]), image=picture())
    assert loaded.parts[0].scores == pytest.approx(one.parts[0].scores)
    assert loaded.parts[1].scores == pytest.approx(one.parts[1].scores)
    single = {"image": {"b64": b64(picture())}, "text": "a red photo"}
    value = service.post("/v1/models/clip:predict", {"instances": [single]}).json["predictions"][0]["value"]
    assert value == pytest.approx(Explainer(*model_and_processor("clip"))((picture(), "a red photo")).value)
    answer = service.post("/v1/models/vilt:explain", {"instances": [{**single, "text": QUESTION}]})
    assert answer.status == 200
    page = service.post("/v1/models/vilt:render", {"instances": [{**single, "text": QUESTION}], "format": "html"})
    assert b"data-name" in page.content


@pytest.mark.parametrize("name", ["llava", "qwen2_vl"])
def test_service_explains_what_is_written(service: Any, name: str) -> None:
    """Token by token over patches and words, as Python does."""
    about = service.get(f"/v1/models/{name}").json
    assert (about["kind"], about["input"], about["writes"]) == ("pairs", "both", True)
    instance = {"image": {"b64": b64(picture())}, "text": QUESTION}
    own = Explainer(*model_and_processor(name))((picture(), QUESTION), generate=3)
    body = {"instances": [instance], "parameters": {"generate": 3}}
    found = service.post(f"/v1/models/{name}:explain", body).json["explanations"][0]
    loaded = Explanation.from_json(json.dumps(found), image=picture())
    assert [step.tokens for step in loaded.steps] == [step.tokens for step in own.steps]
    assert loaded.matrix == pytest.approx(own.matrix, abs=1e-9)
    page = service.post(f"/v1/models/{name}:render", {**body, "format": "html"})
    assert b"data-name" in page.content
    both = {**body, "parameters": {"generate": 3, "target": "red"}}
    assert 'leave out "target"' in service.post(f"/v1/models/{name}:explain", both).json["error"]


def test_service_bounds_what_is_written() -> None:
    """Before it starts: by the tokens that are written, the patches and words, and the picture's pixels."""
    instance = {"image": {"b64": b64(picture())}, "text": QUESTION}
    with serving({"vlm": Explainer(*model_and_processor("qwen2_vl"))}, limits=patient(work=2000, pixels=2000)) as live:
        live.wait()

        def answer(generate: int, size: tuple[int, int] = (48, 32)) -> Any:
            sent = {**instance, "image": {"b64": b64(picture(size=size))}}
            return live.post("/v1/models/vlm:explain", {"instances": [sent], "parameters": {"generate": generate}})

        assert answer(1).status == 200
        many = answer(20)
        assert (many.status, "20 passes over up to" in many.json["error"]) == (413, True)
        assert answer(201).status == 422
        large = answer(1, (80, 60))
        assert (large.status, "80 x 60 pixels" in large.json["error"]) == (413, True)


def test_page_shows_what_is_written_of_a_picture(browser: Any, service: Any, tmp_path: Path) -> None:
    """A written token colours patches and words, a patch and a word the written tokens."""
    with visit(browser, service, "#model=llava") as page:
        shown(page, re.compile("^Drop or choose"))
        assert page.locator("#pair-fold").is_hidden()
        page.click("#methods-fold summary")
        page.uncheck("input[value=rollout]")
        page.uncheck("input[value=gradient_x_input]")
        page.fill("#text", QUESTION)
        page.fill("#generate", "3")
        page.check("input[value=pieces]")
        page.set_input_files("#picture", file(picture()))
        one = panel(page, "lrp_conservative")
        one.locator(".unit.written").nth(2).wait_for()
        own = Explainer(*model_and_processor("llava"))((picture(), QUESTION), generate=3)

        def look() -> tuple[str, list[str]]:
            drawn = one.locator("canvas").evaluate("e => e.toDataURL()")
            units = one.locator(".unit").evaluate_all("all => all.map((e) => e.style.getPropertyValue('--light'))")
            return drawn, units

        sums, written = look(), one.locator(".unit.written")
        assert written.count() == 3
        written.nth(1).hover()
        second = look()
        assert second[0] != sums[0]
        assert second[1] != sums[1]
        assert one.locator(".readout").text_content().startswith(own.steps[1].target)
        written.nth(1).click()  # stays chosen while the pointer is elsewhere
        page.locator("h1").hover()
        assert look() == second
        page.keyboard.press("ArrowRight")
        assert one.locator(".readout").text_content().startswith(own.steps[2].target)
        page.screenshot(path=tmp_path / "written.png", full_page=True)
        page.locator("h1").click()
        one.locator(".picture").hover()
        patch = look()
        assert patch[0] == sums[0]
        assert [a == b for a, b in zip(patch[1], sums[1], strict=True)][:-3] == [True] * (len(sums[1]) - 3)
        assert patch[1][-3:] != sums[1][-3:]
        assert re.match(r"row \d, column \d: ", one.locator(".readout").text_content())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of a processor
@pytest.mark.parametrize("name", [*WRITERS, *COMPARERS, "vilt"])
def test_every_kind_on_the_page(browser: Any, name: str) -> None:
    """The number, and what each part gives of it, are those of Python."""
    explain = Explainer(*model_and_processor(name))
    writes = name in WRITERS
    own = explain((picture(), QUESTION), **({"generate": 2} if writes else {}), method="gradient_x_input")
    with serving({"model": explain}, limits=patient()) as live:
        live.wait()
        with visit(browser, live, "#method=gradient_x_input") as page:
            shown(page, re.compile("^Drop or choose"))
            page.fill("#text", QUESTION)
            if writes:
                page.fill("#generate", "2")
            page.set_input_files("#picture", file(picture()))
            one = panel(page, "gradient_x_input")
            (one.locator(".unit.written").nth(1) if writes else one.locator(".unit").first).wait_for()
            told = one.locator(".readout").text_content()
            shares = dict(re.findall(r"(picture|text) ([+−-][\d.]+(?:e[+−-]?\d+)?)", told))
    found = [float(share.replace("−", "-")) for share in shares.values()]
    assert found == pytest.approx([total for _, total in own.by_part], abs=1e-3, rel=1e-2)


def test_service_refuses(service: Any) -> None:
    for instance in ("a text", {"text": "a text"}, {"image": {"b64": "x"}, "text": 3}, {"b64": "x"}):
        answer = service.post("/v1/models/clip:explain", {"instances": [instance]})
        assert answer.status in (400, 422)
        assert "a picture's file in base64 and a text or a list of texts" in answer.json["error"]
    many = {"image": {"b64": b64(picture())}, "text": ["a"] * 17}
    assert "at most 16 are compared" in service.post("/v1/models/clip:explain", {"instances": [many]}).json["error"]


def test_drawings_state_the_sum_of_each_part(tmp_path: Path) -> None:
    one = Explainer(*model_and_processor("llava"))((picture(), QUESTION), continuation=" red cat")
    assert one.by_part == (("image", one.parts[0].total), ("text", one.parts[1].total))
    ((rendering, drawing),) = one.drawings
    assert rendering == "relprop.render.together"
    console = Console(width=100, record=True, file=StringIO())
    console.print(terminal([drawing]))
    shown = console.export_text()
    assert f"image {one.parts[0].total:+.3f} · text {one.parts[1].total:+.3f}" in shown
    page = one.to_html()
    assert page.count("data-name=") == len(one.parts[0].units)
    assert page.count('class="t g') == 2
    data = json.loads(page.split('<script type="application/json">')[1].split("</script>")[0])
    strongest, shares = data["rows"][1]
    assert np.array(shares) * strongest / 1000 == pytest.approx(one.matrix[1, : len(shares)], abs=strongest / 900)
    assert "http" not in page.replace("http-equiv", "")
    for name in ("a.png", "a.svg", "a.pdf"):
        one.save(tmp_path / name)
    pair = Explainer(*model_and_processor("clip"))
    save([pair((picture(), "a dog"), method=m) for m in ("lrp_conservative", "gradient_x_input")], tmp_path / "two.png")
    with Image.open(tmp_path / "two.png") as drawn:
        assert drawn.height > 400
