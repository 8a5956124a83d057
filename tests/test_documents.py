"""Words with boxes: what the model reads, whose scores are whose, drawings, and wrong documents."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

import relprop
from document_models import (
    BOXES,
    HEADS,
    QUESTION,
    WORDS,
    document,
    layout_tokenizer,
    model,
    page,
    processor,
    tokenizer,
)  # fmt: skip
from relprop import Document, Explainer
from relprop.errors import InputError, ModelError, RelpropError
from relprop.explanation import Explanation, save
from relprop.registry import METHODS

FAMILIES = [
    (family, head)
    for family in ("LayoutLM", "Lilt", "Bros", "LayoutLMv3")
    for head in HEADS
    if (family, head) not in (("Bros", "SequenceClassification"), ("Bros", "QuestionAnswering"))
]
LAYOUTLMV2 = {"vocab_size": 9, "hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
TARGETS = {"SequenceClassification": 1, "TokenClassification": ("Total", "B-TOTAL"), "QuestionAnswering": "Total"}


def explainer(family: str, head: str, own: Any = None) -> Explainer:
    return Explainer(model(family, head), own or (processor() if family == "LayoutLMv3" else tokenizer()))


def asked(head: str, given: Any) -> dict[str, Any]:
    return {"question": QUESTION, "context": given} if head == "QuestionAnswering" else {"given": given}


def explained(family: str, head: str, own: Any = None, **options: Any) -> Explanation:
    found = explainer(family, head, own)(**asked(head, document(page())), target=TARGETS[head], **options)
    assert isinstance(found, Explanation)
    return found


def read_by_hand(family: str, head: str) -> dict[str, torch.Tensor]:
    """The inputs, token by token, as the models' own documentation builds them."""
    cls, sep = tokenizer().cls_token_id, tokenizer().sep_token_id
    corner = [1000] * 4
    ids, boxes, types = [cls], [[0] * 4], [0]
    if head == "QuestionAnswering":
        own = [*tokenizer()(QUESTION, add_special_tokens=False)["input_ids"], sep]
        ids, boxes, types = ids + own, boxes + [[0] * 4] * (len(own) - 1) + [corner], types + [0] * len(own)
    for word, box in zip(WORDS, BOXES, strict=True):
        own = tokenizer()(word, add_special_tokens=False)["input_ids"]
        ids, boxes = ids + own, boxes + [box] * len(own)
    ids, boxes = [*ids, sep], [*boxes, corner]
    types += [int(head == "QuestionAnswering")] * (len(ids) - len(types))
    bbox = torch.tensor([boxes])
    inputs = {"input_ids": torch.tensor([ids]), "bbox": bbox.double() / 1000 if family == "Bros" else bbox}
    inputs |= {"attention_mask": torch.ones(1, len(ids), dtype=torch.long), "token_type_ids": torch.tensor([types])}
    if family == "LayoutLMv3":
        pixels = processor().image_processor(images=[page()], apply_ocr=False, return_tensors="pt")["pixel_values"]
        inputs["pixel_values"] = pixels.double()
    return inputs


@pytest.mark.parametrize(("family", "head"), FAMILIES)
def test_the_value_is_the_models_own(family: str, head: str) -> None:
    e, inputs = explained(family, head), read_by_hand(family, head)
    with torch.no_grad():
        outputs = model(family, head)(**inputs)
    total = inputs["input_ids"][0].tolist().index(tokenizer().convert_tokens_to_ids("total"), 7 if "Q" in head else 0)
    expected = {
        "SequenceClassification": lambda: outputs.logits[0, 1],
        "TokenClassification": lambda: outputs.logits[0, total, 1],
        "QuestionAnswering": lambda: outputs.start_logits[0, total] + outputs.end_logits[0, total],
    }[head]()
    assert e.value == pytest.approx(expected.item(), rel=1e-9)
    assert e.ledger is not None
    assert e.ledger.closes(1e-6)
    kinds = ["document", "image"] if family == "LayoutLMv3" else ["document"]  # boxes are no part of their own
    assert [part.kind for part in e.parts] == kinds
    at = {unit.text: box for unit, box in zip(e.parts[0].units, e.parts[0].boxes, strict=True) if not unit.special}
    assert at["Total"] == tuple(BOXES[1])
    assert at["Paris"] == tuple(BOXES[4])
    assert all(box is None for unit, box in zip(e.parts[0].units, e.parts[0].boxes, strict=True) if unit.special)
    asks = [box for unit, box in zip(e.parts[0].units, e.parts[0].boxes, strict=True) if unit.text == "what"]
    assert asks == ([None] if head == "QuestionAnswering" else [])


@pytest.mark.parametrize("head", HEADS)
def test_tokenizers_of_documents_and_of_texts_agree(head: str) -> None:
    """The boxes of one that takes them itself are those that are put there by hand."""
    plain, own = (explained("LayoutLM", head, one) for one in (tokenizer(), layout_tokenizer()))
    assert own.value == pytest.approx(plain.value, rel=1e-9)
    assert own.scores == pytest.approx(plain.scores, abs=1e-9)
    assert own.part.boxes == plain.part.boxes


def test_a_box_matters() -> None:
    moved = Document(WORDS, [[0, 0, 9, 9], *BOXES[1:]])
    run = explainer("LayoutLM", "SequenceClassification")
    assert abs(run(moved, target=1).value - run(document(), target=1).value) > 1e-3


def test_boxes_in_pixels_are_scaled_to_the_page() -> None:
    given = Document(["a", "b"], [[0, 0, 50, 100], [25, 50, 100, 200]], size=(100, 200))
    assert given.boxes == ((0, 0, 500, 500), (250, 250, 1000, 1000))


QUICK: dict[str, Any] = {
    "shapley": {"max_evals": 80}, "integrated_gradients": {"steps": 2}, "smoothgrad": {"samples": 2},
    "mask_lrp": {"mask": np.ones((2, 4), dtype=bool)},
}  # fmt: skip
NO_MAPS = {"LayoutLMv3": "needs one map of all tokens", "Lilt": "needs attention maps"}  # of all words by all words
SHORT = Document(["Total", "Paris"], [BOXES[1], BOXES[4]], page(seed=1))


@pytest.mark.sliced
@pytest.mark.parametrize("family", ["LayoutLM", "Lilt", "Bros", "LayoutLMv3"])
@pytest.mark.parametrize("method", [record.name for record in METHODS.every()])
def test_a_batch_gives_what_each_gives_alone(family: str, method: str) -> None:
    """With padding, whatever the method; those that cannot say so in a sentence."""
    head = "TokenClassification" if family == "Bros" else "SequenceClassification"
    run, given = explainer(family, head), [document(page()), SHORT]
    options = {"target": TARGETS[head], "method": method, **QUICK.get(method, {})}
    if method == "bilrp" or (family in NO_MAPS and METHODS[method].maps):
        with pytest.raises(RelpropError, match=NO_MAPS.get(family, "two texts") if method != "bilrp" else "two texts"):
            run(given, **options)
        return
    together = run(given, **options)
    for one, alone in zip(together, (run(each, **options) for each in given), strict=True):
        assert one.value == pytest.approx(alone.value, rel=1e-9)
        for part, other in zip(one.parts, alone.parts, strict=True):
            assert np.asarray(part.scores) == pytest.approx(np.asarray(other.scores), abs=1e-8)
        assert np.abs(one.parts[0].scores).max() > 0 or not METHODS[method].signed


def test_every_label_and_their_boxes() -> None:
    e = explainer("LayoutLMv3", "TokenClassification")(document(page()))
    assert e.steps
    assert e.value == pytest.approx(sum(step.value for step in e.steps))
    assert all(part.kind in ("document", "image") for part in e.step(0).parts)
    merged = e.words()
    assert [unit.text for unit in merged.parts[0].units if not unit.special] == WORDS
    assert [box for box in merged.parts[0].boxes if box] == [tuple(box) for box in BOXES]


def test_a_long_page_is_asked_window_by_window() -> None:
    """The answer stands behind what one window holds."""
    words = ["filler"] * 60 + WORDS
    long = Document(words, [[10, 10, 20, 20]] * 60 + BOXES, page())
    run = explainer("LayoutLM", "QuestionAnswering")
    e = run(question=QUESTION, context=long, target="Paris", max_length=32)
    assert "window" in e.part.truncated
    assert "Paris" in [unit.text for unit in e.units]
    assert e.part.boxes[[unit.text for unit in e.units].index("Paris")] == tuple(BOXES[4])
    assert len(e.units) <= 32
    start, end = (run(question=QUESTION, context=long, target=one, max_length=32) for one in ("start", "end"))
    both = run(question=QUESTION, context=long, max_length=32)
    assert start.value + end.value == pytest.approx(both.value, rel=1e-9)


def test_a_page_that_is_too_long_is_cut_and_says_so() -> None:
    long = Document(["word"] * 100, [[0, 0, 10, 10]] * 100)
    with pytest.warns(relprop.readers.tokens.TruncationWarning, match="the page has 102 tokens, 64 are read"):
        e = explainer("LayoutLM", "SequenceClassification")(long)
    assert len(e.units) == 64
    assert "64 are read" in e.part.truncated


@pytest.mark.parametrize(("family", "own"), [("LayoutLM", "layout"), ("LayoutLMv3", "both"), ("Bros", "plain")])
def test_what_a_processor_made(family: str, own: str) -> None:
    """Its tensors give the numbers that the words and boxes give, without padding."""
    head = "TokenClassification" if family == "Bros" else "SequenceClassification"
    inputs: Any = read_by_hand(family, head)
    if own != "plain":
        made = layout_tokenizer()(WORDS, boxes=BOXES, padding="max_length", max_length=40, return_tensors="pt")
        made.update({name: value for name, value in inputs.items() if name == "pixel_values"})
        inputs = made
    target: Any = TARGETS[head] if own != "plain" else ("total", "B-TOTAL")  # ids know no capitals
    found = explainer(family, head)(inputs, target=target)
    known = explained(family, head)
    assert found.value == pytest.approx(known.value, rel=1e-9)
    assert found.parts[0].scores == pytest.approx(known.parts[0].scores, abs=1e-9)
    assert found.parts[0].boxes == known.parts[0].boxes
    assert [unit.word is None for unit in found.parts[0].units] == [unit.special for unit in found.parts[0].units]
    assert len({unit.word for unit in found.parts[0].units if not unit.special}) == len(WORDS)


def test_saved_and_loaded(tmp_path: Path) -> None:
    e = explained("LayoutLMv3", "SequenceClassification")
    loaded = Explanation.from_json(e.to_json(), image=page())
    assert loaded.parts[0] == e.parts[0]
    assert loaded.parts[0].boxes == e.parts[0].boxes
    assert loaded.to_json() == e.to_json()
    frame = e.to_frame()
    row = frame[(frame.text == "Paris")].iloc[0]
    assert [row.left, row.top, row.right, row.bottom] == BOXES[4]
    broken = json.loads(e.to_json())
    broken["parts"][0]["boxes"].pop()
    with pytest.raises(InputError, match="boxes"):
        Explanation.from_json(json.dumps(broken))


def test_drawn_on_the_page_and_on_a_blank_one(tmp_path: Path) -> None:
    with_picture = explained("LayoutLMv3", "SequenceClassification")
    blank = explainer("LayoutLM", "SequenceClassification")(document(), target=1)
    for e in (with_picture, blank):
        html = e.to_html()
        boxes = re.findall(r'<i class="[^"]*" style="left:([\d.]+)%;top:([\d.]+)%;[^"]*" title="([^"]*)"', html)
        assert [(float(left) * 10, float(top) * 10) for left, top, _ in boxes] == [(box[0], box[1]) for box in BOXES]
        assert [told.split(":")[0] for *_, told in boxes] == WORDS
        e.save(tmp_path / "page.png")
        e.show()
    ((_, drawn),) = blank.drawings
    word = {one.text: one for one in drawn.words}["unwatchable"]
    pieces = [s for unit, s in zip(blank.units, blank.scores, strict=True) if unit.word == 2]
    assert len(pieces) > 1
    assert word.score == pytest.approx(sum(pieces))
    height, width = drawn.page.scores.shape
    assert drawn.page.scores[round(height * 0.52), round(width * 0.5)] == pytest.approx(word.score)
    assert drawn.page.image[round(height * 0.52), :].min() < 128  # the word is written there
    assert drawn.page.scores[-1, -1] == 0
    assert drawn.page.image[-1, -1].tolist() == [255, 255, 255]
    save([with_picture, with_picture], tmp_path / "two.png")


WRONG: list[tuple[Any, str]] = [
    ("a plain text", "reads words with their boxes: give relprop.Document.*got 'a plain text'"),
    (relprop.WordList(WORDS), "reads words with their boxes: give relprop.Document"),
    (page(), "reads words with their boxes.*got Image"),
    ({"input_ids": torch.tensor([[2, 3]])}, r'"bbox" \[1, tokens, 4\], got "input_ids" \[1, 2\]'),
    ({"input_ids": torch.tensor([[2, 3]]), "bbox": torch.full((1, 2, 4), 2000)}, "from 2000 to 2000: boxes are from 0"),
    (
        {"input_ids": torch.ones(2, 3).long(), "bbox": torch.zeros(2, 3, 4).long()},
        "holds 2 pages: explain them one by one",
    ),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_what_is_no_document(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        explainer("LayoutLM", "SequenceClassification")(given)


@pytest.mark.parametrize(
    ("words", "boxes", "more", "message"),
    [
        (WORDS, BOXES[:3], {}, "one box .* per word: 5 words, and 3 boxes"),
        (WORDS, None, {}, "5 words, and NoneType boxes"),
        ([], [], {}, "words are a list of strings"),
        (["a", " "], [[0, 0, 1, 1]] * 2, {}, "word 1 of the list is empty"),
        (["a"], [[0, 0, 1]], {}, "box 0, of the word 'a', should be four numbers"),
        (["a"], [[0, 0, 1, float("nan")]], {}, "should be four numbers"),
        (["a"], [[0, 0, 1300, 40]], {}, r"lies outside of the page: \[0, 0, 1300, 40\].*size=\(width, height\)"),
        (["a"], [[0, 0, 1300, 40]], {"size": (1200, 800)}, "the page is 1200 x 800$"),
        (["a"], [[-1, 0, 10, 40]], {}, "lies outside of the page"),
        (["a"], [[20, 0, 10, 40]], {}, "ends before it begins"),
        (["a"], [[0.1, 0.2, 0.3, 0.4]], {}, r"whole numbers from 0 to 1000; for shares of the page say size=\(1, 1\)"),
        (["a"], [[0, 0, 1, 1]], {"size": (0, 1)}, "two numbers above 0"),
    ],
)
def test_wrong_words_and_boxes(words: Any, boxes: Any, more: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Document(words, boxes, **more)


def test_what_is_missing() -> None:
    with pytest.raises(InputError, match="reads the page's picture too"):
        explainer("LayoutLMv3", "SequenceClassification")(document())
    with pytest.raises(InputError, match="there is no image"):
        explainer("LayoutLMv3", "SequenceClassification")(document("nowhere.png"))
    with pytest.raises(InputError, match="a question needs its context"):
        explainer("LayoutLM", "QuestionAnswering")(document())
    with pytest.raises(InputError, match="question is empty"):
        explainer("LayoutLM", "QuestionAnswering")(question=" ", context=document())
    with pytest.raises(InputError, match="reads words with their boxes"):
        explainer("LayoutLM", "QuestionAnswering")(question="who?", context="a text")
    with pytest.raises(InputError, match="a text is a string"):
        Explainer("sentiment")(document())
    alone = Explainer(model("LayoutLMv3", "SequenceClassification"), tokenizer())  # words alone, as asked for
    assert [part.kind for part in alone(document()).parts] == ["document"]


def test_layoutlmv2_names_the_way_out(tmp_path: Path) -> None:
    """Its backbone is detectron2's, which transformers asks for when the folder is loaded."""
    if importlib.util.find_spec("detectron2"):
        pytest.skip("detectron2 is installed")
    config = transformers.LayoutLMv2Config(architectures=["LayoutLMv2ForTokenClassification"], **LAYOUTLMV2)
    config.save_pretrained(tmp_path)
    save_file({"classifier.bias": torch.zeros(2)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    needs = r"cannot be loaded: LayoutLMv2Model needs the package detectron2: install it, or take LayoutLMv3, LayoutLM"
    with pytest.raises(ModelError, match=needs + " or LiLT, which read documents without it$"):
        Explainer(tmp_path)


def test_a_picture_under_another_name_is_refused() -> None:
    """As LayoutLMv2 takes it, where detectron2 is installed."""

    class ReadsImage(torch.nn.Module):
        def forward(self, input_ids: Any, bbox: Any, image: Any) -> Any:
            raise AssertionError

    with pytest.raises(ModelError, match=r'ReadsImage reads the page\'s picture by "image".*take LayoutLMv3'):
        Explainer(ReadsImage(), tokenizer())


def test_floats_are_places_only_where_each_token_has_a_box() -> None:
    """As relprop.attribute sees them, without any reader."""
    inputs = read_by_hand("Bros", "TokenClassification")
    found = relprop.attribute(model("Bros", "TokenClassification"), inputs, lambda out: out.logits[:, 3, 1], "rollout")
    assert set(found.parts) == {"input_ids"}
