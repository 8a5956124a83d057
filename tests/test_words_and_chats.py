"""Words that are split before, and chats through the tokenizer's template."""

import copy
import os
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import relprop
from encoders_for_tests import SMALL, tokenizer
from relprop import WordList
from relprop.errors import InputError

WORDS = ["an", "unwatchable", "movie", "with", "music"]


def tagger() -> Any:
    torch.manual_seed(0)
    labels = {0: "O", 1: "B-PER", 2: "B-LOC"}
    config = transformers.BertConfig(vocab_size=len(tokenizer()), id2label=labels, **SMALL)
    return transformers.BertForTokenClassification(config).eval()


def test_words_are_those_that_were_given() -> None:
    run = relprop.Explainer("sentiment")
    e = run(WordList(["do", "n't", "un-watch-able", "New York"]))
    assert e.text == ("do n't un-watch-able New York",)
    words = e.words()
    assert [unit.text for unit in words.units if not unit.special] == ["do", "n't", "un-watch-able", "New York"]
    for unit in e.units:
        if unit.start is not None:
            assert e.text[0][unit.start : unit.end] == unit.text
    assert words.accounted == pytest.approx(e.accounted)


def test_plain_words_give_the_numbers_of_their_text() -> None:
    run = relprop.Explainer("sentiment")
    split, whole = run(WordList(WORDS)), run(" ".join(WORDS))
    assert split.value == pytest.approx(whole.value)
    np.testing.assert_allclose(split.scores, whole.scores, atol=1e-6)
    pair = run((WordList(WORDS[:2]), WordList(WORDS[2:])))
    assert pair.text == ("an unwatchable", "movie with music")
    assert pair.value == pytest.approx(run(("an unwatchable", "movie with music")).value)


def test_a_list_of_word_lists_is_several_texts() -> None:
    run = relprop.Explainer("sentiment")
    given = [WordList(WORDS), WordList(["good"]), "a plain text"]
    for one, found in zip(given, run(given), strict=True):
        np.testing.assert_allclose(found.scores, run(one).scores, atol=1e-5)


def test_labels_of_given_words() -> None:
    e = relprop.Explainer(tagger(), tokenizer())(WordList(WORDS), target=("unwatchable", "B-LOC"))
    assert e.target == "B-LOC at 'unwatchable'"
    first = next(i for i, unit in enumerate(e.units) if unit.word == 1 and not unit.special)
    ids = tokenizer()(WORDS, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        assert e.value == pytest.approx(tagger()(**ids).logits[0, first, 2].item(), abs=1e-5)


def test_too_many_words_are_cut_with_a_note() -> None:
    run = relprop.Explainer("sentiment")
    with pytest.warns(UserWarning, match="the words have 7 tokens, 5 are read: cut off from character"):
        e = run(WordList(["good"] * 5), max_length=5)
    assert len(e.units) == 5
    assert e.part.truncated


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("a text", "words are a list of strings"),
        ([], "words are a list of strings"),
        (["a", 3], "words are a list of strings"),
        (["a", " "], "word 1 of the list is empty"),
    ],
)
def test_wrong_words_have_their_sentence(words: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        WordList(words)


def test_a_pair_is_of_one_kind() -> None:
    with pytest.raises(InputError, match="a text of words goes alone or with another one"):
        relprop.explain((WordList(WORDS), "a text"))


# Chats.

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<story> {% endif %}"
)
CHAT = [{"role": "system", "content": "Once upon a time"}, {"role": "user", "content": " user said: a cat "}]


def storyteller(template: str | None = TEMPLATE) -> relprop.Explainer:
    stories = relprop.Explainer("stories")
    own = copy.deepcopy(stories.tokenizer)
    own.chat_template = template
    return relprop.Explainer(stories.model, own)


def test_a_chat_goes_through_the_template_and_only_contents_are_content() -> None:
    e = storyteller()(CHAT)
    assert e.text == ("<system> Once upon a time\n<user> user said: a cat\n<story> ",)
    text = e.text[0]
    spans = [(text.index("Once"), text.index("\n")), (text.index("user said"), text.index("\n<story>"))]
    for unit in e.units:
        inside = any(unit.start < stop and unit.end > start for start, stop in spans)
        assert unit.special is not inside
    same = storyteller().reader.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(e.units) == len(same)
    logits = storyteller().model(input_ids=torch.tensor([same])).logits[0, -1]
    assert e.value == pytest.approx(logits.max().item(), abs=1e-3)
    assert all(not unit.special for unit in e.without_special().units)


def test_chats_continue_and_go_in_lists() -> None:
    run = storyteller()
    story = run(CHAT, generate=3)
    assert len(story.steps) == 3
    assert story.prompt == run(CHAT).text[0]
    given = [CHAT, CHAT[:1], "Once upon a time"]
    for one, found in zip(given, run(given), strict=True):
        np.testing.assert_allclose(found.scores, run(one).scores, atol=1e-4)


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        ([{"role": "user"}], 'message 0 of the chat should be {"role": "user", "content": "..."}'),
        ([CHAT[0], "text"], "message 1 of the chat should be"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], "message 0 of the chat should be"),
    ],
)
def test_wrong_messages_have_their_sentence(chat: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        storyteller()(chat)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "the tokenizer has no chat template"),
        ("{{ raise_exception('roles must take turns') }}", "refuses these messages: roles must take turns"),
        ("{% for m in messages %}{{ m['content'] | upper }}{% endfor %}", "cannot be told: write the prompt as a text"),
        ("{% for m in messages %}{{ m['content'] }}{{ m['content'] }}{% endfor %}", "cannot be told"),
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}{{ messages[0]['content'] | length }}", "changes with"),
    ],
)
def test_templates_that_cannot_be_followed_are_refused(template: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        storyteller(template)(CHAT)


def test_messages_are_for_language_models_and_are_never_cut() -> None:
    with pytest.raises(InputError, match="a list of messages is for language models"):
        relprop.explain(CHAT)
    with pytest.raises(InputError, match=r"the chat has \d+ tokens, and 8 are read: shorten it"):
        storyteller()(CHAT, max_length=8)


@pytest.mark.slow
def test_smollm2_answers_a_chat_from_its_question() -> None:
    """SmolLM2-135M-Instruct: RELPROP_SMOLLM2 is its folder. The answer "Paris" is made of "France" in the question."""
    folder = os.environ.get("RELPROP_SMOLLM2")
    if folder is None:
        pytest.skip("RELPROP_SMOLLM2 names no folder of SmolLM2")
    run = relprop.Explainer(folder)
    run = relprop.Explainer(run.model.float(), run.tokenizer)
    story = run([{"role": "user", "content": "What is the capital of France?"}], generate=10)
    assert "Paris" in story.continuation
    place = next(i for i, step in enumerate(story.steps) if "Paris" in step.name)
    top = [unit.text for unit, _ in story.step(place).without_special().top(3)]
    assert "France" in top
    question = [unit for unit in story.units if unit.text == "France" and not unit.special]
    assert question
    assert all(unit.special for unit in story.units[:20])  # the template's own system prompt
