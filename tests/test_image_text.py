"""Models that read a picture and a text together: every number at the right patch and the right word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from relprop import Explainer, Explanation
from relprop.engine.model_call import call
from relprop.errors import InputError, ModelError, RelpropError, TargetError
from relprop.readers.image_text import ImageTextReader
from relprop.registry import METHODS
from relprop.tasks.pairs import similarity
from vision_language_models import (
    COMPARERS,
    OTHERS,
    QUESTION,
    WRITERS,
    model_and_processor,
    picture,
    without,
    word_tokenizer,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # of a processor
    # CLIP looks for the text's end by the numbers of its tokens: methods that only run forward say so.
    pytest.mark.filterwarnings("ignore:.input_ids. also enters the model:relprop.errors.RelpropWarning"),
]
EVERY = (*WRITERS, *COMPARERS, *OTHERS)
# Patches of a picture of 48 x 32 pixels, and where they differ from the whole picture.
GRIDS = {"qwen2_vl": (8, 12), "qwen2_5_vl": (8, 12), "smolvlm": (8, 8), "idefics3": (8, 8), "vilt": (4, 6)}


def explainer(name: str) -> Explainer:
    return Explainer(*model_and_processor(name))


@pytest.mark.parametrize("name", EVERY)
def test_patches_and_words_make_up_the_models_own_number(name: str) -> None:
    """The value is the model's logit, the books close, and the units are the picture's patches and the text's words."""
    one = explainer(name)
    found = one((picture(), QUESTION))
    outputs = call(one.model, one.inputs([(picture(), QUESTION)]))
    own = similarity(outputs)[0] if name in COMPARERS else outputs.logits.view(-1, outputs.logits.shape[-1])[-1].max()
    assert found.value == pytest.approx(own.item(), rel=1e-6)
    image, text = found.parts
    assert (image.name, text.name) == ("pixel_values", "input_ids")
    assert image.scores.shape == GRIDS.get(name, (4, 4))
    assert [unit.text for unit in text.units if not unit.special] == QUESTION.split()
    assert [QUESTION[u.start : u.end] for u in text.units if not u.special] == QUESTION.split()
    assert image.scores.any()
    assert any(text.scores)
    assert found.ledger is not None
    assert found.ledger.closes(1e-4)
    assert found.ledger.inputs == pytest.approx(image.total + text.total)
    places = [score for unit, score in zip(text.units, text.scores, strict=True) if unit.text == "<image>"]
    assert len(places) <= 5  # a run of them is one unit; tiles make several runs
    assert name == "idefics" or not any(places)  # where a patch takes a token's place, the token counts nothing


@pytest.mark.parametrize("name", EVERY)
def test_scores_lie_where_the_pixels_came_from(name: str) -> None:
    """A picture that is black but for one cell of the grid: what differs from black lies in that cell alone."""
    reader = explainer(name).reader
    assert isinstance(reader, ImageTextReader)
    rows, columns = GRIDS.get(name, (4, 4))
    size = (64, 64) if GRIDS.get(name) == (8, 8) else (48, 32)
    left = (size[0] - size[1]) // 2 if name in ("clip", "llava") else 0  # these cut the sides off
    width, height = ((size[0] - 2 * left) // columns, size[1] // rows)
    found = _attribution(name, size)
    for row, column in ((0, 0), (1, columns - 1), (rows - 1, 1)):
        pixels = np.zeros((size[1], size[0], 3), np.uint8)
        pixels[row * height : (row + 1) * height, left + column * width : left + (column + 1) * width] = 255
        own = reader.read((Image.fromarray(pixels), QUESTION))
        grid = reader.parts(own, _lit(found, own), 0)[0].scores  # type: ignore[union-attr]
        assert np.unravel_index(grid.argmax(), grid.shape) == (row, column)
        tiled = name in ("smolvlm", "idefics3")  # the whole picture once more, smaller: its patches are four cells
        assert grid[row, column] > (0.5 if tiled else 0.97) * grid.sum()


def _attribution(name: str, size: tuple[int, int]) -> Any:
    """What was found of a grey picture of this size: which unit reads which window."""
    from relprop import attribute

    one = explainer(name)
    given = (Image.new("RGB", size, "gray"), QUESTION)
    target = similarity if name in COMPARERS else None
    return attribute(one.model, one.inputs([given]), target)


def _lit(found: Any, row: Any) -> Any:
    """The same with scores that say how far each unit's pixels are from black."""
    lit = (row[0].inputs["pixel_values"] - row[0].black).abs()
    windows = found.windows.get("pixel_values")
    if windows is None:
        scores = lit.sum(-1)
    else:
        own = windows[0].tolist()
        source = lit if len(own[0]) == lit.dim() else lit[0]
        scores = torch.tensor([[source[tuple(slice(a, b + 1) for a, b in one)].sum() for one in own]])
    return replace(found, parts={**found.parts, "pixel_values": scores.view(1, -1)})


@pytest.mark.parametrize("name", WRITERS)
def test_every_written_token_has_its_patches_and_words(name: str) -> None:
    """One pass for all tokens gives what a pass for each gives; the tokens are those that the model writes."""
    one, settings = explainer(name), {"max_new_tokens": 3, "min_new_tokens": 3}
    shared = one((picture(), QUESTION), generate=settings)
    single = one((picture(), QUESTION), generate=settings, ledger=True)
    assert (shared.passes, single.passes) == ("shared", "single")
    assert np.abs(shared.matrix - single.matrix).max() < 1e-9
    units = len(shared.parts[0].units) + len(shared.parts[1].units)
    assert shared.matrix.shape == (3, units)
    assert shared.prompt == QUESTION
    assert shared.parts[0].scores == pytest.approx(sum(scores for scores, _ in shared.parts[0].by_step))
    for i, step in enumerate(single.steps):
        assert step.ledger is not None
        assert step.ledger.closes(1e-4)
        assert not shared.matrix[i, units - 3 + i :].any()
    tokens = one.inputs([(picture(), QUESTION)])
    written = one.model.generate(**tokens, **settings, do_sample=False)[0].tolist()[-3:]
    assert [step.tokens[0] for step in shared.steps] == written
    # The model's own scores on the way, with its cache, are the values.
    told = one.model.generate(
        **tokens, **settings, do_sample=False, output_logits=True, return_dict_in_generate=True
    ).logits
    for step, row in zip(shared.steps, told, strict=True):
        assert step.value == pytest.approx(row[0, step.tokens[0]].item(), rel=1e-4)


def test_a_given_continuation_and_words() -> None:
    one = explainer("llava")
    found = one((QUESTION, picture()), continuation=" red cat")
    assert (found.prompt, found.continuation) == (QUESTION, " red cat")
    assert [unit.text for unit in found.generated] == ["red", "cat"]
    step = found.token(1)
    assert step.parts[1].text == (f"{QUESTION} red",)
    loaded = Explanation.from_json(found.to_json(), image=picture())
    assert np.array_equal(loaded.matrix, found.matrix)
    assert found.words().matrix.sum() == pytest.approx(found.matrix.sum())


@pytest.mark.parametrize("name", COMPARERS)
def test_several_texts_are_classes(name: str) -> None:
    """The likeliest of them is explained; probabilities are the model's own over all; a pair is a difference."""
    one, texts = explainer(name), ["a red photo", "a blue cat", "a dog"]
    alone = [one((picture(), text)) for text in texts]
    logits = torch.tensor([found.value for found in alone])
    found = one((picture(), texts))
    best = int(logits.argmax())
    expected = logits.sigmoid() if name == "siglip" else logits.softmax(0)
    assert found.prediction == found.target == repr(texts[best])
    assert found.probability == pytest.approx(expected[best].item(), rel=1e-5)
    assert found.parts[1].scores == pytest.approx(alone[best].parts[1].scores)
    assert one((picture(), texts), target="a dog").value == pytest.approx(alone[2].value)
    assert one((texts, picture()), target=1).value == pytest.approx(alone[1].value)
    two = one((picture(), texts), target=("a dog", 0))
    assert two.target == "'a dog' - 'a red photo'"
    assert two.value == pytest.approx(alone[2].value - alone[0].value)
    assert two.parts[0].scores == pytest.approx(alone[2].parts[0].scores - alone[0].parts[0].scores)
    assert [part.text for part in two.parts[1:]] == [("a dog",), ("a red photo",)]
    assert two.parts[2].total == pytest.approx(-alone[0].parts[1].total)
    assert two.ledger is not None
    assert two.ledger.closes(1e-4)
    assert Explanation.from_json(two.to_json(), image=picture()).to_json() == two.to_json()
    with pytest.raises(TargetError, match="one of the texts, its number"):
        one((picture(), texts), target="a fish")
    with pytest.raises(InputError, match="tells no sign"):
        one((picture(), texts), target=(0, 1), method="random")


def test_the_models_own_logits_of_a_batch() -> None:
    """What the model gives for the texts together, padded by its own tokenizer, is what is explained one by one."""
    one, texts = explainer("clip"), ["a red photo", "a blue cat", "a dog"]
    tokenizer = one.tokenizer.tokenizer
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    pixels = one.inputs([(picture(), texts[0])])["pixel_values"]
    logits = one.model(pixel_values=pixels, **{n: tokens[n] for n in ("input_ids", "attention_mask")}).logits_per_image
    for i, text in enumerate(texts):
        assert one((picture(), text)).value == pytest.approx(logits[0, i].item())


def test_several_pairs_give_what_each_gives_alone() -> None:
    one = explainer("vilt")
    given = [(picture(0), QUESTION), (picture(1, (32, 32)), "a red cat"), ("a dog ?", picture(2))]
    together = one(given)
    for pair, found in zip(given, together, strict=True):
        alone = one(pair)
        assert found.value == pytest.approx(alone.value)
        for mine, other in zip(found.parts, alone.parts, strict=True):
            assert mine.unit_scores() == pytest.approx(other.unit_scores())


FAST = {"integrated_gradients": {"steps": 3}, "smoothgrad": {"samples": 2}, "shapley": {"permutations": 1}}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clip", "llava"])
def test_every_method_answers_or_says_why_not(name: str) -> None:
    one, answered, refused = explainer(name), [], list[str]()
    for method in METHODS.names():
        known = {key: value for key, value in FAST.get(method, {}).items() if key in METHODS[method].options}
        try:
            found = one((picture(), "a red cat"), method=method, **known)
        except RelpropError as error:
            refused.append(str(error))
            continue
        answered.append(method)
        assert all(np.isfinite(part.unit_scores()).all() for part in found.parts)
        assert len(found.parts) == 2
    assert not [sentence for sentence in refused if "\n" in sentence]
    assert {"lrp_conservative", "attn_lrp", "integrated_gradients", "gradient_x_input", "occlusion"} <= set(answered)


def test_a_text_in_the_frame_of_a_template_and_with_its_own_place() -> None:
    """Words of a chat template are special; a prompt with the picture's place in it is taken as it is."""
    one = explainer("idefics3")
    units = one((picture(), QUESTION)).parts[1].units
    assert {unit.text for unit in units if unit.special} >= {"USER", "ASSISTANT", "<image>"}
    own = explainer("llava")((picture(), f"USER : <image> {QUESTION}")).parts[1]
    assert [unit.text for unit in own.units if not unit.special] == ["USER", ":", *QUESTION.split()]


def test_a_folder_is_loaded_with_its_processor(tmp_path: Path) -> None:
    model, processor = model_and_processor("clip")
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    found = Explainer(str(tmp_path))((picture(), "a red cat"))
    assert found.value == pytest.approx(explainer("clip")((picture(), "a red cat")).value)


def test_wrong_inputs_are_told() -> None:
    one = explainer("llava")
    with pytest.raises(InputError, match=r"give a pair \(image, \"text\"\), got 'what"):
        one(QUESTION)
    with pytest.raises(InputError, match="has a text, got Image and Image"):
        one((picture(), picture()))
    with pytest.raises(InputError, match="'what is' is no file of one"):
        one(("what is", "the colour"))
    with pytest.raises(InputError, match="a string that is not empty"):
        one((picture(), "  "))
    with pytest.raises(InputError, match="shorten it"):
        one((picture(), "red " * 300))
    with pytest.raises(InputError, match="shorten it"):
        explainer("clip")((picture(), "red " * 30))
    with pytest.raises(TargetError, match="leave out target"):
        explainer("clip")((picture(), "a dog"), target="a cat")
    with pytest.raises(InputError, match="evaluate is for"):
        explainer("vilt").evaluate([(picture(), QUESTION)], methods=["random"])


def test_a_processor_that_lacks_a_half_is_told() -> None:
    model, processor = model_and_processor("clip")
    for other in (word_tokenizer(), processor.image_processor, without(processor, "tokenizer"), None):
        with pytest.raises(ModelError, match="reads a picture and a text together: give its processor"):
            Explainer(model, other)

    class Blind:
        tokenizer, image_processor = processor.tokenizer, processor.image_processor

        def __call__(self, text: Any, images: Any, **options: Any) -> Any:
            return self.tokenizer(text, **options)

    with pytest.raises(ModelError, match='gives no "pixel_values", which the model reads'):
        Explainer(model, Blind())((picture(), "a dog"))
