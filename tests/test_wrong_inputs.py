"""Inputs of a wrong kind, or missing: Python, the command line and the service say in a sentence what is expected."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from relprop import Explainer
from relprop.cli import app
from relprop.errors import InputError, ModelError
from serving_for_tests import patient, serving
from test_sounds import extractor, tone
from test_sounds import model as sound_model
from vision_language_models import QUESTION, model_and_processor, picture, without

NEEDS_BOTH = "give its processor, with an image processor and a tokenizer"


@pytest.mark.parametrize(
    ("given", "message"),
    [(picture(), "a text is a string or a pair of strings, got Image$"), (np.zeros((4, 4, 3)), "got ndarray$")],
)
def test_a_picture_where_a_text_is_wanted(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Explainer("sentiment")(given)


def test_a_picture_in_a_pair_is_named_by_its_kind() -> None:
    with pytest.raises(InputError, match=r"a pair of strings, got \(Image, 'a text'\)$"):
        Explainer("stories")((picture(), "a text"))


def test_a_text_where_a_picture_or_a_sound_is_wanted() -> None:
    with pytest.raises(InputError, match=r'no image "a text": an image is a file, a Pillow image or an array$'):
        Explainer("pets")("a text")
    sounds = Explainer(sound_model("samples"), extractor("samples"))
    with pytest.raises(InputError, match=r'no sound "a text": a sound is a path, \(samples, rate\) or '):
        sounds("a text")
    with pytest.raises(InputError, match=r"as in \(array, 16000\); got ndarray$"):
        sounds((8000, tone(rate=8000)))


@pytest.mark.parametrize("given", [None, "tokenizer"])
def test_a_tokenizer_or_nothing_with_a_model_that_reads_no_text(given: str | None) -> None:
    """Said at once, in the words of what the model reads."""
    tokenizer = Explainer("sentiment").tokenizer if given else None
    with pytest.raises(ModelError, match=r'the model reads sounds \("input_values"\): give its feature extractor'):
        Explainer(sound_model("samples"), tokenizer)
    with pytest.raises(ModelError, match=r'the model reads pictures \("pixel_values"\): give its image processor'):
        Explainer(Explainer("pets").model, tokenizer)


@pytest.mark.parametrize("name", ["clip", "llava", "vilt"])
def test_half_a_processor(name: str) -> None:
    """What is missing is said when it is: at once, or when a picture is given to a model that reads texts alone."""
    model, processor = model_and_processor(name)
    with pytest.raises(ModelError, match=NEEDS_BOTH):
        Explainer(model)
    for half in (processor.tokenizer, processor.image_processor, *(without(processor, one) for one in HALVES)):
        with pytest.raises((InputError, ModelError), match="processor, with an image processor and a tokenizer"):
            Explainer(model, half)((picture(), QUESTION))


HALVES = ("tokenizer", "image_processor")


class NoPixels:
    """A processor that forgets the picture."""

    def __init__(self, own: Any) -> None:
        self.tokenizer, self.image_processor = own.tokenizer, own.image_processor

    def __call__(self, images: Any, text: Any, return_tensors: str) -> Any:
        return self.tokenizer(text, return_tensors=return_tensors)


def test_no_pixels() -> None:
    model, processor = model_and_processor("clip")
    with pytest.raises(ModelError, match='the processor gives no "pixel_values", which the model reads'):
        Explainer(model, NoPixels(processor))((picture(), QUESTION))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("sounds")
    sound_model("samples").save_pretrained(where / "model")
    extractor("samples").save_pretrained(where / "model")
    for name in ("empty.wav", "empty.png", "empty.csv"):
        (where / name).write_bytes(b"")
    stereo = np.stack([tone(rate=8000), tone(rate=8000, seed=1)], 1)
    soundfile.write(where / "stereo.wav", stereo, 8000)
    return where


def run(*args: object) -> Any:
    return CliRunner().invoke(app, ["explain", *map(str, args)], catch_exceptions=False)


def test_command_line(folder: Path) -> None:
    with pytest.raises(InputError, match=r"empty.wav\" is no sound that can be read"):
        run(folder / "empty.wav", "--model", folder / "model")
    with pytest.raises(InputError, match=r"empty.png\" is no image that Pillow can read"):
        run(folder / "empty.png")
    with pytest.raises(InputError, match="has no line to explain"):
        run("--file", folder / "empty.png")
    with pytest.raises(
        InputError, match=r"is a table: name a model that reads it, .*relprop explain --file .*empty.csv --column NAME"
    ):
        run(folder / "empty.csv")
    with pytest.raises(InputError, match="--image needs a model that reads a picture and a text together"):
        run("a text", "--image", folder / "empty.png", "--model", "sentiment")
    done = run(folder / "stereo.wav", "--model", folder / "model")
    assert "2 channels averaged; resampled from 8,000 to 2,000 Hz" in " ".join(done.stdout.split())


@pytest.fixture(scope="module")
def service() -> Iterator[Any]:
    sounds = Explainer(sound_model("samples"), extractor("samples"))
    models = {"texts": Explainer("sentiment"), "images": Explainer("pets"), "sounds": sounds}
    with serving(models, limits=patient()) as running:
        running.wait()
        yield running


def encoded(rate: int, channels: int) -> str:
    stream = io.BytesIO()
    soundfile.write(stream, np.stack([tone(rate=rate, seed=k) for k in range(channels)], 1), rate, format="WAV")
    return b64encode(stream.getvalue()).decode()


@pytest.mark.parametrize(
    ("name", "instance", "message"),
    [
        ("texts", {"b64": "AAAA"}, "an instance is a text, "),
        ("texts", {"image": {"b64": "AAAA"}}, "an instance is a text, "),
        ("texts", "", "the text is empty: there is nothing to explain"),
        ("images", "a text", "a picture's file in base64"),
        ("images", {"b64": ""}, "the picture cannot be read"),
        ("images", {"b64": encoded(8000, 1)}, "the picture cannot be read"),
        ("sounds", "a text", "a file of sound in base64"),
        ("sounds", {"b64": ""}, "the sound cannot be read; it should be a wav, flac, ogg or mp3 file"),
    ],
)
def test_service(service: Any, name: str, instance: Any, message: str) -> None:
    answer = service.post(f"/v1/models/{name}:explain", {"instances": [instance]})
    assert (answer.status, message in answer.json["error"]) == (400, True), answer.json


def test_service_says_what_was_done_to_a_sound(service: Any) -> None:
    body = {"instances": [{"b64": encoded(8000, 2)}]}
    (found,) = service.post("/v1/models/sounds:explain", body).json["explanations"]
    assert found["parts"][0]["note"] == "2 channels averaged; resampled from 8,000 to 2,000 Hz"
