"""Language models: every generated token's explanation is that of its own prefix, however it was come by."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from language_models import SEQ2SEQ, STORIES, explainer_of, stories, words
from relprop.attribution import attribute
from relprop.errors import InputError, ModelError, RelpropError, TargetError
from relprop.explainer import Explainer
from relprop.readers.decoder_text import EncoderDecoderReader
from relprop.readers.text import TextReader
from relprop.registry import METHODS
from relprop.targets import Several, TokenAt
from relprop.tasks.generation import _units
from second_mentions import STORIES as PLOTS
from second_mentions import strongest_word
from tokenizers_for_tests import byte_level, gpt2_lm, tiny

CAUSAL = ("GPT2LMHeadModel", "LlamaForCausalLM")
FAST: dict[str, dict[str, Any]] = {"integrated_gradients": {"steps": 3}, "smoothgrad": {"samples": 2}}
FAST["shapley"] = {"max_evals": 60}
SEVERAL = [record.name for record in METHODS if record.several]
PROMPT, MORE = "w30 w41 w52 w30", " w63 w74 w25"


def relative(found: Any, expected: Any) -> float:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())


# The engine: many targets of one example.


@pytest.mark.sliced
@pytest.mark.parametrize("method", SEVERAL)
@pytest.mark.parametrize("architecture", [*CAUSAL, *SEQ2SEQ])
def test_several_targets_are_each_alone(architecture: str, method: str) -> None:
    """One forward pass with a way back for each gives what a pass for each gives."""
    explainer = explainer_of(architecture)
    inputs = explainer.inputs([PROMPT])
    if architecture in SEQ2SEQ:
        inputs["decoder_input_ids"] = torch.tensor([[2, 50, 60]])
        inputs["decoder_attention_mask"] = torch.ones(1, 3, dtype=torch.long)
    targets = (TokenAt(-1, 33), TokenAt(-3, 40), TokenAt(-2, 21, 22))
    together = attribute(explainer.model, inputs, Several(targets), method)
    assert len(together.value) == len(together.target) == 3
    assert set(together.parts) == {"input_ids", *(["decoder_input_ids"] if architecture in SEQ2SEQ else [])}
    for number, target in enumerate(targets):
        alone = attribute(explainer.model, inputs, target, method)
        for name, scores in together.parts.items():
            assert len(scores) == 3
            assert relative(scores[number], alone.parts[name][0]) < 1e-9
        assert float(together.value[number]) == pytest.approx(float(alone.value[0]), rel=1e-12)


@pytest.mark.parametrize("method", [name for name in METHODS.names() if name not in SEVERAL])
def test_other_methods_refuse_several(method: str) -> None:
    explainer = explainer_of("GPT2LMHeadModel")
    with pytest.raises(InputError, match=f'"{method}" explains one target at a time'):
        attribute(explainer.model, explainer.inputs([PROMPT]), Several((TokenAt(-1, 3),)), method)


def test_several_take_neither_ledger_nor_checkpoint_nor_batch() -> None:
    explainer = explainer_of("GPT2LMHeadModel")
    target = Several((TokenAt(-1, 30), TokenAt(-2, 31)))
    inputs = explainer.inputs([PROMPT])
    for options in ({"ledger": True}, {"checkpoint": True}):
        with pytest.raises(InputError, match="several targets at once allow neither"):
            attribute(explainer.model, inputs, target, "lrp_ah_ln", **options)
    with pytest.raises(InputError, match="several targets at once are of a single example, got 2"):
        attribute(explainer.model, explainer.inputs([PROMPT, PROMPT]), target, "lrp_ah_ln")


# Every method, and every way to come by its scores.


@pytest.mark.sliced
@pytest.mark.parametrize("method", METHODS.names())
@pytest.mark.parametrize("architecture", CAUSAL)
def test_each_token_is_explained_by_its_prefix(architecture: str, method: str) -> None:
    """A row of the matrix is the explanation of that token as the next one of what stands before it."""
    explainer = explainer_of(architecture)
    options = FAST.get(method, {})
    found = explainer(PROMPT, continuation=MORE, method=method, **options)
    assert found.passes == ("shared" if METHODS[method].several else "single")
    assert found.matrix.shape == (3, 7)
    prefixes = [PROMPT, f"{PROMPT} w63", f"{PROMPT} w63 w74"]
    for row, (prefix, token) in enumerate(zip(prefixes, (63, 74, 25), strict=True)):
        alone = explainer(prefix, target=token, method=method, ledger=False, **options)
        assert found.steps[row].tokens == (token,)
        assert found.steps[row].value == pytest.approx(alone.value, rel=1e-5)
        assert not found.matrix[row, 4 + row :].any()
        one = found.token(row)
        assert (one.units, one.text, one.target) == (alone.units, alone.text, alone.target)
        assert (one.prediction, one.baseline is None) == (alone.prediction, alone.baseline is None)
        if any(alone.scores):
            assert relative(one.scores, alone.scores) < 1e-5  # Llama's norms are in float32


@pytest.mark.sliced
@pytest.mark.parametrize("method", METHODS.names())
@pytest.mark.parametrize("architecture", SEQ2SEQ)
def test_both_sides_of_an_encoder_decoder(architecture: str, method: str) -> None:
    """Source and target get scores; a method that needs one map of all tokens declines by name."""
    explainer = explainer_of(architecture)
    assert isinstance(explainer.reader, EncoderDecoderReader)
    if METHODS[method].maps:
        with pytest.raises(ModelError, match=f'"{method}" needs one map of all tokens'):
            explainer(PROMPT, continuation="w63 w74 w25", method=method)
        return
    options = FAST.get(method, {})
    found = explainer(PROMPT, continuation="w63 w74 w25", method=method, **options)
    assert [part.name for part in found.parts] == ["input_ids", "decoder_input_ids"]
    units = [unit for part in found.parts for unit in part.units]
    assert [unit.text for unit in units if not unit.special] == [*PROMPT.split(), "w63", "w74", "w25"]
    assert [unit.special for unit in units] == [False] * 4 + [True] * 2 + [False] * 3  # </s>, and the start
    by_one = explainer(PROMPT, continuation="w63 w74 w25", method=method, batch_size=1, **options)
    inputs = explainer.inputs([PROMPT])
    start = inputs["decoder_input_ids"]
    for row in range(3):
        own = torch.cat([start, torch.tensor([[63, 74, 25][:row]], dtype=torch.long)], 1)
        given = {**inputs, "decoder_input_ids": own, "decoder_attention_mask": torch.ones_like(own)}
        settled = explainer.reader.options(METHODS[method].options, options, [_row(explainer, own)], given)
        alone = attribute(explainer.model, given, TokenAt(-1, (63, 74, 25)[row]), method, **settled)
        both = torch.cat([alone.parts["input_ids"][0], alone.parts["decoder_input_ids"][0]])
        assert relative(found.matrix[row, : 6 + row], both) < 1e-5
        assert relative(by_one.matrix[row], found.matrix[row]) < 1e-5
        assert found.matrix[row, :4].any()
        assert found.matrix[row, 6 : 6 + row].any() == (row > 0)  # the decoder's own side
        assert not found.matrix[row, 6 + row :].any()


def _row(explainer: Explainer, own: torch.Tensor) -> Any:
    """The prompt with so many decoder tokens, as units."""
    source, start = explainer.reader.read(PROMPT)
    more = [unit for unit in explainer.reader.read("w63 w74 w25")[0].units if not unit.special]
    return source, replace(start, units=(*start.units, *more[: own.shape[1] - 1]))


@pytest.mark.parametrize("architecture", SEQ2SEQ)
def test_the_ledger_of_both_sides_closes(architecture: str) -> None:
    """What reaches source and decoder are inputs both: the books close on either side."""
    found = explainer_of(architecture)(PROMPT, continuation="w63 w74 w25", ledger=True)
    assert found.passes == "single"
    for row, one in enumerate(found.steps):
        assert one.ledger is not None
        assert one.ledger.closes(1e-6)
        assert one.ledger.inputs == pytest.approx(found.matrix[row].sum(), rel=1e-9)


@pytest.mark.parametrize("architecture", SEQ2SEQ)
def test_the_next_token_of_an_encoder_decoder(architecture: str) -> None:
    """Without generate: the first token that the decoder writes, in a list of texts of any length."""
    explainer = explainer_of(architecture)
    first = explainer(PROMPT, generate=1)
    alone = explainer(PROMPT)
    source, start = alone.parts
    assert (source.units, start.units) == (first.parts[0].units, first.parts[1].units[:-1])
    assert source.scores == pytest.approx(first.parts[0].by_step[0])
    assert start.scores == pytest.approx(first.parts[1].by_step[0][:-1])
    assert alone.target == first.steps[0].target
    short, again = explainer(["w33", PROMPT])
    for part, one in zip(again.parts, alone.parts, strict=True):
        assert part.scores == pytest.approx(one.scores)
    assert [len(part.scores) for part in short.parts] == [2, 1]


def test_a_decoder_with_its_own_words() -> None:
    """Where encoder and decoder have a table each, the decoder's tokens are found all the same."""
    model = explainer_of("BartForConditionalGeneration").model
    config = transformers.BartConfig.from_dict({**model.config.to_dict(), "tie_word_embeddings": False})
    other = transformers.BartForConditionalGeneration(config).double().eval()
    decoder = other.get_decoder().get_input_embeddings()
    if decoder.weight is other.get_input_embeddings().weight:
        decoder.weight = torch.nn.Parameter(decoder.weight.detach().flip(0).clone())
    for at in ("block", "word_embeddings"):
        found = Explainer(other, words("</s>"))(PROMPT, continuation="w63 w74", at=at)
        assert found.matrix[1, 6]


# One pass or many.


def grad_passes(explainer: Explainer, **asked: Any) -> int:
    """How many forward passes were made to flow back through."""
    calls: list[bool] = []
    handle = explainer.model.register_forward_pre_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    try:
        explainer(PROMPT, **asked)
    finally:
        handle.remove()
    return sum(calls)


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "T5ForConditionalGeneration"])
def test_twenty_tokens_from_one_pass(architecture: str) -> None:
    """The cost that is promised: one forward pass for all, a pass each with a ledger or a checkpoint."""
    explainer = explainer_of(architecture)
    settings = {"max_new_tokens": 20, "min_new_tokens": 20}
    explainer(PROMPT, generate=1)  # where a model's scores are read is found once
    assert grad_passes(explainer, generate=settings) == 1
    assert grad_passes(explainer, generate=settings, ledger=True) == 20
    assert grad_passes(explainer, generate=settings, checkpoint=True, batch_size=1) >= 20


def test_long_continuations_go_in_parts() -> None:
    """What flows back to many tokens at once fills memory: after 32 the pass is made anew, with the same numbers."""
    explainer = explainer_of("LlamaForCausalLM")
    settings = {"max_new_tokens": 40, "min_new_tokens": 40}
    assert grad_passes(explainer, generate=settings) == 2
    shared, single = explainer(PROMPT, generate=settings), explainer(PROMPT, generate=settings, checkpoint=True)
    assert (shared.passes, single.passes) == ("shared", "single")
    assert relative(shared.matrix, single.matrix) < 1e-5


def test_a_model_that_looks_ahead_is_read_prefix_by_prefix() -> None:
    """Whether a model is causal is tried, not believed: one that sees later tokens would explain with their help."""
    config = transformers.BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, pad_token_id=0
    )
    torch.manual_seed(0)
    model = transformers.BertLMHeadModel(config).eval()
    for parameter in model.parameters():
        parameter.data.mul_(8)  # far from the uniform output of a new model
    explainer = Explainer(model, words())
    found = explainer(PROMPT, continuation=MORE)
    assert found.passes == "single"
    for row, prefix in enumerate([PROMPT, f"{PROMPT} w63", f"{PROMPT} w63 w74"]):
        alone = explainer(prefix, target=found.steps[row].tokens[0], ledger=False)
        assert found.token(row).scores == pytest.approx(alone.scores, rel=1e-3, abs=1e-4)
        assert found.token(row).prediction == alone.prediction


# What is generated.


def test_greedy_is_the_models_own() -> None:
    explainer = explainer_of("GPT2LMHeadModel")
    ids = explainer.tokenizer(PROMPT, return_tensors="pt")
    own = explainer.model.generate(**ids, max_new_tokens=5, do_sample=False, pad_token_id=0)[0, 4:].tolist()
    found = explainer(PROMPT, generate=5)
    assert [one.tokens[0] for one in found.steps] == own
    assert all(one.probability >= one.runner_up_probability for one in found.steps)
    again = explainer(PROMPT, continuation=found.continuation)
    assert again.units == found.units
    assert relative(again.matrix, found.matrix) < 1e-9


def test_sampling_repeats_with_its_seed() -> None:
    explainer = explainer_of("LlamaForCausalLM")
    settings = {"max_new_tokens": 6, "do_sample": True, "temperature": 3.0, "seed": 1}
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, second = explainer(PROMPT, generate=settings), explainer(PROMPT, generate=settings)
    assert torch.equal(torch.get_rng_state(), state)
    assert first == second
    assert first != explainer(PROMPT, generate={**settings, "seed": 2})


def test_the_end_token_ends_it_and_is_explained() -> None:
    explainer = explainer_of("GPT2LMHeadModel")
    first = explainer(PROMPT, generate=2).steps[0].tokens[0]
    found = explainer(PROMPT, generate={"max_new_tokens": 9, "eos_token_id": first})
    assert len(found.steps) == 1
    ended = explainer(PROMPT, generate={"max_new_tokens": 4, "forced_eos_token_id": 2})
    assert ended.generated[-1].special
    assert ended.matrix[-1].any()


def test_the_model_is_left_alone() -> None:
    explainer = explainer_of("LlamaForCausalLM")
    model = explainer.model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config, generation = model.config.to_dict(), model.generation_config.to_dict()
    try:
        explainer(PROMPT, generate=3)
        assert all(module.training for module in model.modules())
    finally:
        model.eval()
    assert (model.config.to_dict(), model.generation_config.to_dict()) == (config, generation)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(parameter.grad is not None for parameter in model.parameters())


def test_against() -> None:
    """A difference of two tokens: additive scores are the difference of theirs."""
    explainer = explainer_of("LlamaForCausalLM")
    plain = explainer(PROMPT, continuation=MORE)
    other = explainer(PROMPT, continuation=MORE, against="w33")
    assert other.steps[0].target == "'w63' - 'w33'"
    assert other == explainer(PROMPT, continuation=MORE, against=33)
    alone = explainer(PROMPT, target=("w63", "w33"), ledger=False)
    assert other.token(0).scores == pytest.approx(alone.scores, rel=1e-4)
    rival = explainer(PROMPT, continuation=MORE, against="runner-up")
    for one, contrast in zip(plain.steps, rival.steps, strict=True):
        assert contrast.target == f"{one.target} - {one.runner_up}"
        assert (contrast.probability, contrast.runner_up) == (one.probability, one.runner_up)


def test_several_methods_and_several_prompts() -> None:
    explainer = explainer_of("GPT2LMHeadModel")
    many = explainer([PROMPT, "w20"], generate=2, method=["lrp_ah_ln", "gradient"])
    assert [[one.method for one in each] for each in many] == [["lrp_ah_ln", "gradient"]] * 2
    assert many[1][0] == explainer("w20", generate=2, method="lrp_ah_ln")
    dropped = explainer_of("T5ForConditionalGeneration")(PROMPT, generate=2, special="drop")
    assert [len(part.units) for part in dropped.parts] == [4, 2]
    assert not any(unit.special for part in dropped.parts for unit in part.units)


# What is refused, and what is right at the edges.


def test_a_prompt_of_one_token() -> None:
    found = explainer_of("LlamaForCausalLM")("w20", generate=3)
    assert len(found.units) - len(found.steps) == 1
    assert found.matrix[0].tolist()[0] != 0


@pytest.mark.parametrize("prompt", ["", "  "])
def test_an_empty_prompt(prompt: str) -> None:
    with pytest.raises(InputError, match="the text is empty: there is nothing to explain"):
        explainer_of("LlamaForCausalLM")(prompt, generate=3)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"generate": 0}, "generate is a number of tokens from 1 on"),
        ({"generate": -3}, "generate is a number of tokens from 1 on"),
        ({"generate": 2, "continuation": "w20"}, "either generate or continuation, not both"),
        ({"continuation": ""}, "the continuation is empty"),
        ({"against": "w20", "target": 3}, r"give target=\(this, that\) for two next tokens"),
        ({"generate": 2, "target": 3}, "leave out target"),
        ({"generate": {"max_new_tokens": 2, "wrong": 1}}, "the model cannot generate so: .*wrong"),
        ({"generate": {"num_return_sequences": 2, "num_beams": 2}}, "generate must give one continuation"),
        ({"generate": 2, "against": 99}, 'against is a token, its id below 99, or "runner-up", got 99'),
        ({"generate": 2, "against": "w20 w21"}, "is 2 tokens; a next-token target is one"),
        ({"generate": 64}, "the prompt has 4 tokens and the model reads 64: there is room for 61 more, not for 64"),
        ({"continuation": " w20" * 62}, "there is room for 61 more, not for 62"),
        ({"generate": 3, "max_length": 5}, "reads 5: there is room for 2 more, not for 3"),
    ],
    ids=str,
)
def test_mistakes(asked: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, TargetError), match=message):
        explainer_of("GPT2LMHeadModel")(PROMPT, **asked)


def test_all_the_room_can_be_used() -> None:
    """The last token is written, but not read."""
    found = explainer_of("GPT2LMHeadModel")(PROMPT, generate={"max_new_tokens": 61, "min_new_tokens": 61})
    assert len(found.steps) == 61


def test_models_that_write_nothing() -> None:
    with pytest.raises(ModelError, match="the model writes no text"):
        Explainer(*tiny("bert"))("good", generate=2)
    with pytest.raises(InputError, match="a prompt is a text"):
        explainer_of("GPT2LMHeadModel")(("a", "b"), generate=2)


def test_a_continuation_that_changes_the_prompts_tokens() -> None:
    """ "the" is one token: "th" and "e" would be none of the model's ways to read it."""
    explainer = Explainer(*tiny("lm"))
    with pytest.raises(InputError, match="changes the prompt's last token: begin it where a word begins"):
        explainer("good th", continuation="e movie")


# Where the generated tokens lie in the text.


@pytest.mark.parametrize(
    "text", [" good bad the end", " na\u00efve caf\u00e9 \u65e5\u672c", " \U0001f600!", "\n\n a  b"]
)
def test_places_in_the_text(text: str) -> None:
    """Units of what was generated are those of the whole text read at once, also within one character's bytes."""
    tokenizer = byte_level()
    explainer = Explainer(gpt2_lm(tokenizer), tokenizer)
    found = explainer("the movie", continuation=text)
    whole = explainer("the movie" + text, ledger=False)
    assert found.prompt + found.continuation == "the movie" + text
    assert [(unit.text, unit.start, unit.end) for unit in found.units] == [
        (unit.text, unit.start, unit.end) for unit in whole.units
    ]


def test_half_a_character_before_the_end() -> None:
    """A model may stop within a character: its bytes lie where the sign for what cannot be read does."""
    tokenizer = byte_level()
    reader = Explainer(gpt2_lm(tokenizer), tokenizer).reader
    assert isinstance(reader, TextReader)
    first, _ = tokenizer("\u00e9").input_ids
    row = reader.read("the movie")
    written, units = _units(reader, row, [first, tokenizer.eos_token_id])
    assert written == "\ufffd"
    assert [(unit.text, unit.start, unit.special) for unit in units] == [
        ("\ufffd", 9, False),
        ("<|endoftext|>", None, True),
    ]


# The architectures that people use.

ARCHITECTURES = (
    "GPT2LMHeadModel", "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM",
    "Gemma2ForCausalLM", "Gemma3ForCausalLM", "PhiForCausalLM", "Phi3ForCausalLM", "MixtralForCausalLM",
    "OlmoeForCausalLM", "Qwen2MoeForCausalLM", "MambaForCausalLM", "Mamba2ForCausalLM", "JambaForCausalLM",
    "FalconMambaForCausalLM", "GraniteMoeHybridForCausalLM", *SEQ2SEQ,
)  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architectures(architecture: str) -> None:
    """Three tokens generated: shared passes equal single ones, later tokens score nothing, and the books close."""
    explainer = explainer_of(architecture, torch.float32)
    settings = {"max_new_tokens": 3, "min_new_tokens": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some architectures warn of slow paths
        shared = explainer(PROMPT, generate=settings)
        single = explainer(PROMPT, generate=settings, ledger=True)
    assert (shared.passes, single.passes) == ("shared", "single")
    assert len(shared.steps) == 3
    given = shared.matrix.shape[1] - 3
    for row, one in enumerate(single.steps):
        assert not shared.matrix[row, given + row :].any()
        assert shared.matrix[row, :given].any()
        assert one.ledger is not None
        assert one.ledger.closes(1e-3)
        assert relative(shared.matrix[row], single.matrix[row]) < 1e-3


# A real model.

# Of the benchmark's 32 stories one for each plot: the first plot with its first name, the second with its second, ...
NAMED = {names[k % len(names)]: plot.format(names[k % len(names)]) for k, (names, plot) in enumerate(PLOTS)}


@pytest.mark.skipif(not STORIES, reason="needs the model stories15m: RELPROP_STORIES=FOLDER")
@pytest.mark.parametrize("where", STORIES)
@pytest.mark.parametrize("name", NAMED)
def test_a_second_mention_points_at_the_first(where: str, name: str) -> None:
    """Of all words before a name's second mention the first weighs most, and the ledger closes in float32."""
    explainer = stories(where)
    found = explainer(NAMED[name], continuation=f" {name}", ledger=True)
    assert all(one.ledger is not None and one.ledger.closes(1e-3) for one in found.steps)
    assert strongest_word(explainer, NAMED[name], name, "lrp_conservative") == name


@pytest.mark.skipif(not STORIES, reason="needs the model stories15m: RELPROP_STORIES=FOLDER")
@pytest.mark.parametrize("where", STORIES)
def test_a_real_story(where: str) -> None:
    """The model's own words: shared passes equal single ones, and each row's scores are all of its value."""
    explainer = stories(where)
    shared = explainer(NAMED["Lily"], generate=20)
    single = explainer(NAMED["Lily"], generate=20, ledger=True)
    assert (shared.passes, single.passes) == ("shared", "single")
    assert shared.continuation == single.continuation
    assert relative(shared.matrix, single.matrix) < 1e-4
    assert shared.matrix.sum(1) == pytest.approx([one.value for one in shared.steps], rel=1e-3)


def test_images_have_no_continuation() -> None:
    with pytest.raises(RelpropError, match="for language models, not for models of images"):
        Explainer("digits")("digit.png", generate=2)
