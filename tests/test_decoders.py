"""Encoder-decoders whose source is no text: parts of every kind take a column of scores per written token."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from typer.testing import CliRunner

from relprop import Explainer, Explanation
from relprop.cli.app import app
from relprop.engine.model_call import call
from relprop.errors import InputError, ModelError
from relprop.readers.decoder_text import EncoderDecoderReader
from relprop.render.image.part import ImagePart
from tokenizers_for_tests import byte_level


@cache
def picture_reader() -> Explainer:
    """A tiny model that reads a picture of 4 x 4 patches and writes text, as TrOCR does."""
    tokenizer = byte_level()
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    encoder = transformers.ViTConfig(**sizes, image_size=32, patch_size=8)
    decoder = transformers.TrOCRConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        cross_attention_hidden_size=32,
    )
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id = config.pad_token_id = tokenizer.eos_token_id
    torch.manual_seed(0)
    model: Any = transformers.VisionEncoderDecoderModel(config=config)
    model = model.eval().double()
    images = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    return Explainer(
        model, SimpleNamespace(tokenizer=tokenizer, image_processor=images, model_input_names=["pixel_values"])
    )


def picture(seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (40, 60, 3), dtype=np.uint8))


@cache
def written(ledger: bool = False) -> Explanation:
    return picture_reader()(picture(), generate={"max_new_tokens": 3, "min_new_tokens": 3}, ledger=ledger)


def test_a_picture_is_the_source_and_the_decoder_writes() -> None:
    """Patches and the decoder's tokens are parts of their own; the value is the model's logit and the books close."""
    explainer = picture_reader()
    assert isinstance(explainer.reader, EncoderDecoderReader)
    found = explainer(picture())
    assert [(part.kind, part.name) for part in found.parts] == [
        ("image", "pixel_values"),
        ("text", "decoder_input_ids"),
    ]
    logits = call(explainer.model, explainer.inputs([picture()])).logits[0, -1]
    assert found.value == pytest.approx(logits.max().item())
    assert found.ledger is not None
    assert found.ledger.closes(1e-6)
    assert found.ledger.inputs == pytest.approx(sum(part.total for part in found.parts))


def test_every_token_has_a_column_at_every_patch() -> None:
    """One pass for all tokens gives what a pass for each gives, at patches and at tokens; later tokens score 0."""
    shared, single = written(), written(ledger=True)
    assert (shared.passes, single.passes) == ("shared", "single")
    image, text = shared.parts
    assert isinstance(image, ImagePart)
    assert image.scores.shape == (4, 4)
    assert shared.matrix.shape == (3, 16 + len(text.units))
    assert np.abs(shared.matrix - single.matrix).max() < 1e-9
    assert image.scores == pytest.approx(sum(scores for scores, _ in image.by_step))
    for i, step in enumerate(single.steps):
        assert step.ledger is not None
        assert step.ledger.closes(1e-6)
        assert not shared.matrix[i, 16 + 1 + i :].any()
        assert shared.matrix[i, :16].any()


def test_a_step_is_the_token_explained_alone() -> None:
    """The last token of the continuation is the next token of its prefix, given as the decoder's text so far."""
    found = written(ledger=True)
    one = found.token(-1)
    assert [part.kind for part in one.parts] == ["image", "text"]
    assert one.parts[0].scores.ravel() == pytest.approx(found.matrix[-1, :16])
    assert one.parts[0].by_step == ()
    assert one.accounted == pytest.approx(one.ledger.inputs)  # type: ignore[union-attr]
    assert found.continuation
    assert found.prompt == ""


def test_the_decoder_may_be_given_a_text_to_go_on_from() -> None:
    """As Donut's questions are: the text's tokens stand behind the start, and the next token is explained."""
    explainer = picture_reader()
    alone = explainer(picture(), continuation="the movie", ledger=True).token(-1)
    ids = explainer.tokenizer.tokenizer("the movie").input_ids
    said = explainer.tokenizer.tokenizer.decode(ids[:-1])
    given = explainer((picture(), said), target=ids[-1])
    assert given.value == pytest.approx(alone.value)
    assert given.parts[0].scores == pytest.approx(alone.parts[0].scores)
    assert given.parts[1].scores == pytest.approx(alone.parts[1].scores)


def test_steps_of_pictures_are_saved_and_merged() -> None:
    found = written()
    loaded = Explanation.from_json(found.to_json(), image=picture())
    assert np.array_equal(loaded.matrix, found.matrix)
    assert loaded.to_json() == found.to_json()
    words = found.words()
    assert words.matrix.sum() == pytest.approx(found.matrix.sum())
    assert len(words.parts[0].by_step) == len(words.steps)
    assert not any(rest for _, rest in found.without_special().parts[0].by_step)
    damaged = found.to_json().replace('"by_step": [[[[', '"by_step": [[[[0.0], [', 1)
    with pytest.raises(InputError, match="damaged"):
        Explanation.from_json(damaged)


def test_several_pictures_give_what_each_gives_alone() -> None:
    explainer, pictures = picture_reader(), [picture(i) for i in range(3)]
    together = explainer(pictures, target=[5, 6, 7])
    for i, one in enumerate(pictures):
        alone = explainer(one, target=5 + i)
        assert together[i].value == pytest.approx(alone.value)
        for mine, other in zip(together[i].parts, alone.parts, strict=True):
            assert mine.unit_scores() == pytest.approx(other.unit_scores())


@pytest.mark.parametrize("method", ["integrated_gradients", "occlusion", "gradient_x_input", "attn_lrp", "random"])
def test_methods_of_several_kinds(method: str) -> None:
    options = {"steps": 4} if method == "integrated_gradients" else {}
    found = picture_reader()(picture(), continuation="the", method=method, **options)
    assert [len(part.by_step) for part in found.parts] == [len(found.steps)] * 2
    assert np.isfinite(found.matrix).all()
    assert found.matrix[:, : len(found.parts[0].units)].any()


def test_wrong_sources_are_told() -> None:
    with pytest.raises(InputError, match=r"no image \"the movie\""):
        picture_reader()("the movie", generate=2)


@cache
def page_reader(turns: bool = False) -> Explainer:
    """As Donut is: windows of a picture, wider than high, and a decoder that may be given a question."""
    tokenizer = Explainer("sentiment").tokenizer
    encoder = transformers.DonutSwinConfig(
        image_size=(32, 64), patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4
    )
    ends = {"pad_token_id": 0, "bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    side = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
    sizes = {f"{one}_{name}": size for one in ("encoder", "decoder") for name, size in side.items()}
    cross = {"is_decoder": True, "add_cross_attention": True}
    decoder = transformers.MBartConfig(
        vocab_size=len(tokenizer), d_model=32, max_position_embeddings=64, **sizes, **ends, **cross
    )
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = tokenizer.cls_token_id, 0
    torch.manual_seed(0)
    model: Any = transformers.VisionEncoderDecoderModel(config=config)
    images = transformers.DonutImageProcessorPil(size={"height": 32, "width": 64}, do_align_long_axis=turns)
    return Explainer(model.eval().double(), transformers.DonutProcessor(images, tokenizer))


def test_a_page_is_read_without_recognising_words_first() -> None:
    """The value is the model's own logit after the question, and a batch changes nothing."""
    run = page_reader()
    e = run((picture(), "a movie"))
    ids = [
        run.tokenizer.tokenizer.cls_token_id,
        *run.tokenizer.tokenizer("a movie", add_special_tokens=False)["input_ids"],
    ]
    pixels = run.tokenizer.image_processor(images=[picture()], return_tensors="pt")["pixel_values"].double()
    with torch.no_grad():
        logits = run.model(pixel_values=pixels, decoder_input_ids=torch.tensor([ids])).logits[0, -1]
    assert e.value == pytest.approx(logits.max().item())
    assert e.ledger is not None
    assert e.ledger.closes(1e-6)
    assert [part.kind for part in e.parts] == ["image", "text"]
    assert e.parts[0].scores.shape == (8, 16)
    both = run([picture(), picture(1)])
    for one, given in zip(both, (picture(), picture(1)), strict=True):
        assert one.parts[0].scores == pytest.approx(run(given).parts[0].scores, abs=1e-9)
    three = run(picture(), generate=3)
    assert len(three.steps) == len(three.parts[0].by_step) == 3


def test_a_page_that_the_processor_turns_is_refused() -> None:
    tall = picture().resize((40, 90))
    with pytest.raises(ModelError, match="turns or mirrors the picture: scores cannot be put back"):
        page_reader(turns=True)(tall)


def test_a_text_to_go_on_from_on_the_command_line(tmp_path: Path) -> None:
    """Beside the picture, as in Python; a model that does not write refuses it."""
    picture().save(tmp_path / "page.png")
    given = ["explain", "good", "--image", str(tmp_path / "page.png"), "--generate", "2", "--json", "-"]
    done = CliRunner().invoke(app, [*given, "--lm", "test_decoders:page_reader"], catch_exceptions=False)
    own = page_reader()((tmp_path / "page.png", "good"), generate=2)
    assert json.loads(done.stdout)["value"] == pytest.approx(own.value)
    with pytest.raises(InputError, match="--image needs a model that reads a picture and a text together"):
        CliRunner().invoke(app, [*given[:4], "--model", "pets"], catch_exceptions=False)
