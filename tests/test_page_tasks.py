"""The page asks for a label at a word, a class at an object or a region, a token at a mask, a text that follows."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

import page_for_tests
import test_features
import test_places
import test_videos
from encoders_for_tests import explainer as encoder
from page_for_tests import file, numbers, panel, shown, visit
from relprop.explainer import Explainer
from relprop.readers.words import WordList
from serving_for_tests import Live
from test_decoders import page_reader
from test_images import picture
from test_series import forecaster, with_times
from test_serve_tasks import tiny
from test_words_and_chats import storyteller

browser, live = page_for_tests.browser, page_for_tests.live  # fixtures
pytestmark = pytest.mark.filterwarnings("ignore:the model finds no object")  # the tiny detector is sure of none
TEXT = "a movie about music"
LABELS = {0: "toxic", 1: "insult", 2: "threat"}
BIO = {0: "O", 1: "B-PER", 2: "B-LOC"}


@pytest.fixture(scope="module")
def explainers() -> dict[str, Explainer]:
    return {
        "tagger": tiny("TokenClassification", id2label=BIO),
        "masks": tiny("MaskedLM"),
        "next": tiny("NextSentencePrediction"),
        "several": tiny("SequenceClassification", id2label=LABELS, problem_type="multi_label_classification"),
        "chat": storyteller(),
        "number": tiny("SequenceClassification", id2label={0: "LABEL_0"}, problem_type="regression"),
        "encoder": encoder(),
        "detector": test_places.explainer("YolosForObjectDetection"),
        "segmenter": test_places.explainer("SegformerForSemanticSegmentation"),
        "depth": test_places.explainer("GLPNForDepthEstimation"),
        "video": test_videos.explainer("VideoMAEForVideoClassification"),
        "reader": page_reader(),
        "series": forecaster("TimeSeriesTransformer"),
        "rows": Explainer(test_features.model(), columns=test_features.COLUMNS),
    }


@pytest.fixture
def page(browser: Any, live: Live) -> Iterator[Any]:
    with visit(browser, live, None, quiet=False) as page:
        yield page


def opened(page: Any, model: str, says: Any = page_for_tests.SHOWN) -> None:
    """With one method, so that the test is short. Loaded anew, so that no status of the model before is left."""
    page.goto(f"/?{model}#model={model}&method=gradient_x_input")
    shown(page, says)


def asked(page: Any, model: str, **fields: str) -> Any:
    """The target that is sent when fields are filled, and the heading that comes."""
    put = "(e, v) => { e.value = e.options ? [...e.options].find((one) => one.text === v).value : v; }"
    for name, value in fields.items():
        page.locator(f"#{name.replace('_', '-')}").evaluate(put, value)  # without events, which would ask at once
    with page.expect_request(f"**/v1/models/{model}:explain") as request:
        page.click("#explain")
    shown(page)
    return request.value.post_data_json["parameters"].get("target"), page.locator("#subject").text_content()


def test_what_the_page_is_told(live: Live, explainers: dict[str, Explainer]) -> None:
    about = {name: live.get(f"/v1/models/{name}").json for name in explainers}
    places = {name: one["at"] for name, one in about.items() if one["at"]}
    assert places == {
        "tagger": "word", "masks": "mask", "detector": "object", "segmenter": "region", "depth": "region"
    }  # fmt: skip
    assert [name for name, one in about.items() if one["paired"]] == ["next"]
    assert about["depth"]["labels"] == about["reader"]["labels"] == []  # a depth and a token are no classes
    assert about["video"]["samples"] == []  # pictures that stand still


def test_a_label_at_a_word(page: Any) -> None:
    opened(page, "tagger")
    page.fill("#text", TEXT)
    target, subject = asked(page, "tagger", place="music", target="B-LOC")
    assert target == ["music", 2]
    assert subject.startswith("B-LOC at 'music' = ")
    target, subject = asked(page, "tagger", place="8:13", against="O")
    assert target == [[8, 13], [2, 0]]
    assert subject.startswith("B-LOC - O at 'about' = ")
    page.fill("#place", "")
    page.click("#explain")
    page.get_by_text("Two classes differ at one word: say at which.").wait_for()
    assert not page.is_visible("#found")


def test_a_token_at_a_mask(page: Any) -> None:
    opened(page, "masks")
    page.fill("#text", "a [MASK] movie with [MASK]")
    target, subject = asked(page, "masks", place="1", target_text="music")
    assert target == [1, "music"]
    assert subject.startswith("'music' at [MASK] 1 = ")
    page.fill("#place", "the second")
    page.click("#explain")
    page.get_by_text('"the second" names no mask: its number, from 0.').wait_for()


def test_a_class_at_an_object_or_a_region(page: Any) -> None:
    """Two classes by their numbers would be an object and a class to a detector, and a point to a segmenter."""
    opened(page, "detector", re.compile("^Drop or choose"))
    page.set_input_files("#picture", file(picture()))
    shown(page)
    page.select_option("#target", label="cat")
    page.select_option("#against", label="dog")
    page.get_by_text("Two classes differ at one object: say at which.").wait_for()
    target, subject = asked(page, "detector", place="5")
    assert target == [5, [0, 1]]
    assert subject.startswith("cat - dog at ")
    opened(page, "segmenter", re.compile("^Drop or choose"))
    page.set_input_files("#picture", file(picture()))
    shown(page)
    target, subject = asked(page, "segmenter", place="10:5:40:30", target="dog")
    assert (target, subject.split(" = ")[0]) == ([[10, 5, 40, 30], 1], "dog at (10, 5) to (40, 30)")
    target, subject = asked(page, "segmenter", place="10:5", target="predicted")
    assert (target, subject.split(" = ")[0].split()[1:]) == ([10, 5], ["at", "(10,", "5)"])
    target, _ = asked(page, "segmenter", against="cat")
    assert target == [[10, 5], [None, 0]]
    page.fill("#place", "10")
    page.click("#explain")
    page.get_by_text('"10" names no region').wait_for()
    opened(page, "depth", re.compile("^Drop or choose"))
    page.set_input_files("#picture", file(picture()))
    shown(page)
    assert page.locator("#target-field").is_hidden()
    assert asked(page, "depth", place="10:5")[0] == [10, 5]


def test_a_text_that_follows_and_one_number(page: Any) -> None:
    opened(page, "next")
    samples = page.locator("#samples button").all_text_contents()
    assert len(set(samples)) == len(samples) > 1
    page.fill("#pair", "")
    page.click("#explain")
    shown(page, "Fill the second field too: second text.")
    opened(page, "number")
    assert page.locator("#target-field").is_hidden()
    opened(page, "encoder")
    assert page.locator("#against-field").is_hidden()
    ledgers = page.locator("#waterfalls figcaption .soft").all_text_contents()
    assert [one.split(", ")[-1] for one in ledgers] == ["by the first text", "by the second text"]


def test_a_choice_while_a_model_is_loaded_does_not_end_the_loading(page: Any) -> None:
    told = {"name": "number", "ready": False, "reason": "is being loaded"}
    page.route("**/v1/models/number", lambda route: route.fulfill(json=told))
    opened(page, "number", re.compile("is being loaded"))
    page.click("#methods-fold summary")
    page.check("input[value=lrp_conservative]")
    page.unroute("**/v1/models/number")
    shown(page, re.compile("^2 heat maps of the number"))


def test_a_failure_leaves_no_heading_of_another_question(page: Any) -> None:
    opened(page, "tagger")
    page.fill("#place", "nowhere")
    page.click("#explain")
    shown(page, "No heat map came.")
    assert page.locator("#subject").text_content() == "Results"
    assert page.locator("#ledger").is_hidden()


def test_a_video_is_sent_as_its_file(page: Any, explainers: dict[str, Explainer]) -> None:
    """Also one that is too large for a link, of which a still copy is made of pictures."""
    frames = [one.resize((300, 200)) for one in test_videos.frames(explainers["video"])]
    content = io.BytesIO()
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:])
    opened(page, "video", re.compile("^Drop or choose"))
    page.set_input_files("#picture", {"name": "a.gif", "mimeType": "image/gif", "buffer": content.getvalue()})
    shown(page)
    assert "NaN" not in panel(page, "gradient_x_input").text_content()
    assert "Red patches" in page.locator("#reading").text_content()
    assert "picture=" not in page.url
    panel(page, "gradient_x_input").locator("img.drawn").wait_for()


def test_a_decoder_goes_on_from_a_text(page: Any, live: Live, explainers: dict[str, Explainer]) -> None:
    opened(page, "reader", re.compile("^Drop or choose"))
    page.fill("#generate", "2")
    page.fill("#text", "good")
    image = picture()
    with page.expect_request("**/v1/models/reader:explain") as request:
        page.set_input_files("#picture", file(image))
    shown(page)
    instance = request.value.post_data_json["instances"][0]
    assert set(instance) == {"image", "text"}
    own = explainers["reader"]((Image.open(io.BytesIO(file(image)["buffer"])), "good"), generate=2)
    answer = live.explain(instance, model="reader", generate=2).json["explanations"][0]
    assert answer["value"] == pytest.approx(own.value, abs=1e-6)
    wrong = live.explain({**instance, "text": ["good"]}, model="reader")
    assert (wrong.status, 'with "text": "..." where the model goes on from a text' in wrong.error) == (400, True)


def test_a_series_with_times_is_pasted_as_json(page: Any) -> None:
    opened(page, "series", re.compile("^Paste a table"))
    page.fill("#text", json.dumps({name: one.tolist() for name, one in with_times().items()}))
    assert asked(page, "series", target_text="2")[1].startswith("channel 0 2 steps ahead = ")


def test_a_class_without_a_name_is_typed_by_its_number(page: Any) -> None:
    opened(page, "rows", re.compile("^Paste a table"))
    row = test_features.ROW
    page.fill("#text", ",".join(row) + "\n" + ",".join(map(str, row.values())))
    target, subject = asked(page, "rows", target_text="1")
    assert (target, subject.split(" = ")[0]) == (1, "1")
    target, subject = asked(page, "rows", against_text="0")
    assert (target, subject.split(" = ")[0]) == ([1, 0], "1 - 0")


def said(one: Any) -> tuple[str, float]:
    return one.target, pytest.approx(one.value, abs=6e-4)


def heading_of(text: str) -> tuple[str, float]:
    target, _, value = text.rpartition(" = ")
    return target, numbers([value])[0]


def test_words_labels_and_messages(page: Any, explainers: dict[str, Explainer]) -> None:
    """Words that were split before, every label at once, and a chat: as Python gives them."""
    words = ["a", "movie", "about", "music"]
    opened(page, "tagger")
    page.fill("#text", json.dumps(words))
    target, subject = asked(page, "tagger", place="music", target="B-LOC")
    own = explainers["tagger"](WordList(words), target=("music", "B-LOC"), method="gradient_x_input")
    assert (target, heading_of(subject)) == (["music", 2], said(own))
    opened(page, "several")
    page.fill("#text", TEXT)
    page.select_option("#target", label="every label")
    several = explainers["several"](TEXT, target=[0, 1, 2], method="gradient_x_input")
    titles = panel(page, "gradient_x_input").locator(".several p.soft")
    titles.nth(2).wait_for()
    assert [heading_of(one) for one in titles.all_text_contents()] == [said(step) for step in several.steps]
    opened(page, "chat")
    chat = [{"role": "user", "content": "a movie"}]
    page.fill("#text", json.dumps(chat))
    with page.expect_request("**/v1/models/chat:explain") as request:
        page.click("#explain")
    shown(page)
    assert request.value.post_data_json["instances"] == [{"messages": chat}]
    next_token = explainers["chat"](chat, method="gradient_x_input")
    assert heading_of(page.locator("#subject").text_content()) == said(next_token)


def test_pairs_of_tokens(page: Any, explainers: dict[str, Explainer]) -> None:
    page.goto("/?bilrp#model=encoder&method=bilrp")
    page.fill("#text", "a movie about music")
    page.fill("#pair", "a film with songs")
    page.click("#explain")
    shown(page)
    own = explainers["encoder"](("a movie about music", "a film with songs"), method="bilrp")
    assert heading_of(page.locator("#subject").text_content()) == said(own)
    assert "NaN" not in panel(page, "bilrp").text_content()
