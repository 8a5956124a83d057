"""Sounds, series and rows of tables through the command line and the service."""

import io
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from page_for_tests import browser as browser
from page_for_tests import visit
from relprop import Explainer, Explanation
from relprop.cli.app import app
from relprop.errors import InputError
from relprop.serve.answers import flat_explanation
from relprop.serve.body import ExplainRequest
from relprop.serve.instances import explainer_input
from relprop.serve.limits import Limits, RefusedError
from relprop.serve.models import ServedModel
from serving_for_tests import HANG, patient, serving
from test_features import COLUMNS, ROW
from test_features import model as row_model
from test_series import patches, walk
from test_sounds import LOW, explainer, extractor, tone
from test_sounds import model as sound_model

LIMITS = Limits()


def encoded(samples: np.ndarray, rate: int = LOW) -> str:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV")
    return b64encode(file.getvalue()).decode()


def table(values: np.ndarray, names: list[str]) -> str:
    return "\n".join([",".join(names), *(",".join(map(str, line)) for line in values.tolist())])


def served(name: str, one: Explainer) -> ServedModel:
    model = ServedModel(name, one)
    model.load()
    assert model.problem is None
    return model


def asked(model: ServedModel, instance: Any, target: Any = None, method: str = "lrp_conservative") -> Explanation:
    given = explainer_input(model.kind, instance, LIMITS)
    request = ExplainRequest((method,))
    model.check_work(request, [given], LIMITS)
    ((found,),) = model.answer(request, [given], [target])
    assert isinstance(found, Explanation)
    assert json.loads(json.dumps(flat_explanation(found)))["parts"]
    return found


def test_sounds() -> None:
    own = explainer("samples")
    model = served("sounds", own)
    assert (model.kind, model.description()["input"]) == ("sounds", "sound")
    assert model.description()["labels"] == ["quiet", "speech"]
    samples = tone(0.3, LOW)
    for instance in ({"b64": encoded(samples)}, {"audio": {"b64": encoded(samples)}}):
        found = asked(model, instance, 1)
        assert np.allclose(found.scores, own((samples, LOW), target=1).scores, rtol=1e-2, atol=1e-6)
    (predicted,) = model.answer(ExplainRequest(()), [explainer_input("sounds", instance, LIMITS)], [None])
    assert predicted["prediction"] in ("quiet", "speech")
    with pytest.raises(InputError, match="the sound is not in base64"):
        explainer_input("sounds", {"b64": "%"}, LIMITS)
    with pytest.raises(InputError, match="the sound cannot be read"):
        explainer_input("sounds", {"b64": "abcd"}, LIMITS)
    with pytest.raises(RefusedError, match=r"lasts 0.3 s; at most 0.1 s are taken"):
        explainer_input("sounds", {"b64": encoded(samples)}, Limits(sound=0.1))
    with pytest.raises(InputError, match=r"an instance is .* a file of sound in base64"):
        explainer_input("sounds", "a text", LIMITS)


def test_series() -> None:
    own = patches("Prediction", prediction_length=5, loss="mse")
    own.reader.columns = None
    model = served("series", own)
    assert (model.kind, model.description()["input"], model.description()["labels"]) == ("series", "table", [])
    expected = own(walk().round(3), target=(2, 1))
    csv = {"csv": table(walk().round(3), ["temp", "wind", "rain"])}
    found = asked(model, csv, (2, "wind"))
    assert np.allclose(found.scores, expected.scores)
    assert found.target == "wind 2 steps ahead"
    assert asked(model, csv, ("2", "wind")).value == found.value  # as the page sends it
    plain = asked(model, {"past_values": walk().round(3).tolist()}, (2, 1))
    assert np.allclose(plain.scores, expected.scores)
    assert model.answer(ExplainRequest(()), [csv], [None]) == [{"prediction": "", "probability": None}]
    for wrong in ("text", {"values": []}, {"past_values": [1], "more": 1}, {}):
        with pytest.raises(InputError, match="an instance is"):
            explainer_input("series", wrong, LIMITS)
    with pytest.raises(InputError, match="line 2 of the table has 1 cells"):
        explainer_input("series", {"csv": "a,b\n1\n"}, LIMITS)
    with pytest.raises(RefusedError, match="characters; at most"):
        explainer_input("series", {"csv": "a\n" + "1\n" * 100}, Limits(numbers=1))
    for instance in ({"csv": "a,b\n1,2\n3,4\n"}, {"past_values": [[1, 2], [3, 4]], "columns": ["a", "b"]}):
        assert explainer_input("series", instance, Limits(numbers=4))["columns"] == ["a", "b"]
        with pytest.raises(RefusedError, match="the series has 4 numbers; at most 3 are taken"):
            explainer_input("series", instance, Limits(numbers=3))


def test_rows() -> None:
    own = Explainer(row_model(), columns=COLUMNS)
    model = served("rows", own)
    assert (model.kind, model.description()["input"]) == ("rows", "table")
    expected = own(ROW, target=1)
    for instance in ({"row": ROW}, {"csv": "age,income,height,debt\n0.3,-1.2,0.5,2.0"}):
        assert np.allclose(asked(model, instance, 1).scores, expected.scores)
    with pytest.raises(InputError, match="one row, and the table has 2"):
        explainer_input("rows", {"csv": "a\n1\n2"}, LIMITS)


def test_the_page_shows_what_the_service_draws(browser: Any) -> None:
    """A row pasted as a table: the service's picture stands in the panel, and its numbers below."""
    with serving({"rows": Explainer(row_model(), columns=COLUMNS)}, limits=patient()) as live:
        live.wait()
        with visit(browser, live) as page:
            page.wait_for_function("() => !document.getElementById('text-field').hidden", timeout=1000 * HANG)
            page.fill("#text", "age,income,height,debt\n0.3,-1.2,0.5,2.0")
            page.click("#explain")
            loaded = "() => document.querySelector('img.drawn')?.naturalWidth > 0"
            page.wait_for_function(loaded, timeout=1000 * HANG)
            assert "age" in page.get_attribute("img.drawn", "alt")


def test_pipelines() -> None:
    class Pipeline:
        model, feature_extractor, tokenizer = sound_model("samples"), extractor("samples"), None

    found = Explainer(Pipeline())((tone(0.3, LOW), LOW), target=1)
    assert found.part.kind == "audio"


def test_the_command_line(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    sound_model("samples").save_pretrained(folder)
    extractor("samples").save_pretrained(folder)
    soundfile.write(tmp_path / "a.wav", tone(0.3, LOW), LOW)
    run = CliRunner().invoke(
        app, ["explain", str(tmp_path / "a.wav"), "--model", str(folder), "--target", "speech", "--json", "-"]
    )
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["parts"][0]["kind"] == "audio"
    own = patches("Prediction", prediction_length=5, loss="mse")
    own.model.float().save_pretrained(tmp_path / "series")
    (tmp_path / "a.csv").write_text(table(walk(), ["temp", "wind", "rain"]))
    arguments = ["explain", str(tmp_path / "a.csv"), "--model", str(tmp_path / "series"), "--target", "3,wind"]
    run = CliRunner().invoke(app, [*arguments, "--html", str(tmp_path / "a.html")])
    assert run.exit_code == 0, run.output
    assert "wind 3 steps ahead" in (tmp_path / "a.html").read_text()
    for name, kind in (("a.wav", "a sound"), ("a.csv", "a table")):
        run = CliRunner().invoke(app, ["explain", str(tmp_path / name)])
        assert f"is {kind}: name a model that reads it" in str(run.exception)
