"""Explainer: one model asked in many ways gives the same numbers, in the order asked."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import relprop.methods  # noqa: F401  (fills the registry)
from models import named
from relprop.attribution import attribute
from relprop.errors import InputError, ModelError, TargetError, UnknownNameError
from relprop.explainer import Explainer
from relprop.explanation import Explanation
from relprop.readers.tokens import TruncationWarning
from relprop.registry import METHODS
from tokenizers_for_tests import LABELS, bert, byte_level, gpt2, gpt2_lm, saved, tiny, wordpiece

TEXT = "a gorgeous, witty, seductive movie."
MANY = ["good", TEXT, "the plot is very dull and bad", "not good", "it was an unbelievable film, playing", "a film"]
LEDGERS = [record.name for record in METHODS if "ledger" in record.options]


@pytest.fixture(scope="module")
def explainer():
    return Explainer(*tiny("bert"))


def assert_near(a: Explanation, b: Explanation, tolerance: float = 1e-5) -> None:
    assert a.units == b.units
    assert (a.text, a.method, a.target, a.prediction) == (b.text, b.method, b.target, b.prediction)
    assert a.value == pytest.approx(b.value, abs=tolerance)
    assert a.scores == pytest.approx(b.scores, abs=tolerance)


# Where the model comes from


def test_sources_agree(explainer, tmp_path):
    """Objects, a folder by path or name, and a pipeline explain the same."""
    model, tokenizer = tiny("bert")
    folder = saved(tmp_path, model, tokenizer)
    pipeline = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    expected = explainer(TEXT)
    for source in (Explainer(folder), Explainer(str(folder)), Explainer(pipeline), Explainer(pipeline, tokenizer)):
        assert_near(source(TEXT), expected)
        assert source.labels == LABELS


def test_numbers_are_those_of_attribute(explainer):
    """Between a text and its scores there is only the tokenizer."""
    model, tokenizer = tiny("bert")
    found = attribute(model, dict(tokenizer(TEXT, return_tensors="pt")))
    e = explainer(TEXT, method=found.method)
    assert list(e.scores) == pytest.approx(found.scores[0].tolist(), abs=1e-6)
    assert e.value == pytest.approx(model(**tokenizer(TEXT, return_tensors="pt")).logits.max().item(), abs=1e-5)


def test_models_that_are_no_transformers_model():
    """Any module that maps ids to logits, without a config, and without the token types that the tokenizer gives."""

    class Bag(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.table = nn.Embedding(size, 8)
            self.head = nn.Linear(8, 3)

        def get_input_embeddings(self) -> nn.Module:
            return self.table

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.head((self.table(input_ids) * attention_mask[..., None]).sum(1))

    tokenizer = wordpiece()
    e, *_ = Explainer(Bag(len(tokenizer)), tokenizer)(["good movie", "bad"], target=2)
    assert e.target == "2"
    assert len(e.scores) == 4


# One and many


def test_one_text_one_explanation(explainer):
    """A text gives an explanation, a list a list, also of one or of none."""
    assert isinstance(explainer(TEXT), Explanation)
    (one,) = explainer([TEXT])
    assert_near(one, explainer(TEXT))
    assert explainer([]) == []


@pytest.mark.parametrize("method", ["lrp_ah_ln", "integrated_gradients", "random", "smoothgrad"])
def test_lists_keep_their_order_and_numbers(explainer, method):
    """Whatever lengths are batched together, each text gets what it gets alone."""
    alone = [explainer(text, method=method) for text in MANY]
    for batch_size in (1, 2, 32):
        for e, expected in zip(explainer(MANY, method=method, batch_size=batch_size), alone, strict=True):
            assert_near(e, expected)


def test_texts_of_similar_length_go_together(explainer, monkeypatch):
    """Batches are sorted by length: hardly any padding, and none larger than asked."""
    widths = []

    def seen(model, inputs, *args, **options):
        widths.append((tuple(inputs["input_ids"].shape), int((inputs["attention_mask"] == 0).sum())))
        return attribute(model, inputs, *args, **options)

    monkeypatch.setattr("relprop.explainer.attribute", seen)
    explainer(["good " * n for n in (9, 1, 5, 9, 1, 5, 9)], batch_size=3)
    assert [shape[0] for shape, _ in widths] == [3, 3, 1]
    assert sum(padding for _, padding in widths) == 12  # 1 1 5 | 5 9 9 | 9


def test_a_long_list(explainer):
    """200 short texts, in order."""
    texts = [f"{'good' if n % 3 else 'bad'} film {n}" for n in range(200)]
    found = explainer(texts)
    assert [e.text for e in found] == [(text,) for text in texts]
    assert_near(found[137], explainer(texts[137]))


def test_pairs(explainer):
    """A tuple is a pair; its units know their text, and the second text counts."""
    pair = ("the movie is good", "a dull plot")
    e = explainer(pair)
    assert e.text == pair
    assert [u.text for u in e.units if u.segment == 1 and not u.special] == ["a", "dull", "plot"]
    assert [u.text for u in e.units if u.special] == ["[CLS]", "[SEP]", "[SEP]"]
    assert e.value != explainer((pair[0], "a good plot"), target=e.target).value
    assert_near(explainer([("good", "bad"), pair, "not a pair"])[1], e)


def test_left_padding_changes_nothing():
    """GPT-2 numbers places from the left: padding there must not move the text."""
    tokenizer = byte_level(pad_token="<|endoftext|>", padding_side="left")
    for model in (gpt2(tokenizer), gpt2_lm(tokenizer)):
        explainer = Explainer(model, tokenizer)
        for text, e in zip(MANY, explainer(MANY, target=[0, 1, 0, 1, 0, 1]), strict=True):
            assert e.scores == pytest.approx(explainer(text, target=MANY.index(text) % 2).scores, abs=1e-5)


@pytest.mark.parametrize(
    ("method", "options"), [("lrp_ah_ln", {}), ("integrated_gradients", {"steps": 4}), ("gradient_x_input", {})]
)
def test_a_model_without_padding_reads_one_by_one(method, options):
    """GPT-2 has no padding token and refuses batches."""
    explainer = Explainer(*tiny("gpt2"))
    for text, e in zip(MANY, explainer(MANY, method=method, **options), strict=True):
        assert_near(e, explainer(text, method=method, **options))
        assert len(e.scores) == len(explainer.tokenizer(text).input_ids)


# Targets


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        ("positive", "positive", lambda logits: logits[1]),
        ("Negative", "negative", lambda logits: logits[0]),
        (0, "negative", lambda logits: logits[0]),
        (np.int64(1), "positive", lambda logits: logits[1]),
        (torch.tensor(1), "positive", lambda logits: logits[1]),
        (None, None, max),
        (("positive", "negative"), "positive - negative", lambda logits: logits[1] - logits[0]),
        ((0, 1), "negative - positive", lambda logits: logits[0] - logits[1]),
        (["positive"], "positive", lambda logits: logits[1]),
    ],
    ids=named,
)
def test_targets(explainer, target, name, value):
    """By name, index, prediction or pair: the value is that logit or difference."""
    logits = explainer.model(**explainer.inputs([TEXT])).logits[0].tolist()
    e = explainer(TEXT, target=target)
    assert e.value == pytest.approx(value(logits), abs=1e-5)
    assert e.target == (e.prediction if name is None else name)
    assert e.prediction == LABELS[int(np.argmax(logits))]
    assert e.probability == pytest.approx(1 / (1 + math.exp(-abs(logits[0] - logits[1]))), abs=1e-6)


def test_differences_are_differences(explainer):
    """Scores of a pair are the difference of the scores: every rule is linear in the target."""
    both = [explainer(TEXT, target=name).scores for name in ("positive", "negative")]
    expected = [a - b for a, b in zip(*both, strict=True)]
    assert explainer(TEXT, target=("positive", "negative")).scores == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("targets", [["positive", 0, None, (1, 0), "negative", 1], torch.tensor([1, 0, 0, 1, 1, 0])])
def test_one_target_a_text(explainer, targets):
    """A list of targets goes with the list of texts, whatever the batches."""
    for text, target, e in zip(MANY, targets, explainer(MANY, target=targets, batch_size=2), strict=True):
        assert_near(e, explainer(text, target=target))


def test_a_function_as_target(explainer):
    """Any number of the outputs."""
    assert explainer(TEXT, target=lambda outputs: outputs.logits.sum(1)).value == pytest.approx(
        sum(explainer(TEXT, target=i).value for i in (0, 1)), abs=1e-5
    )


@pytest.mark.parametrize("target", [" good", "Ġ", 40])
def test_language_models_explain_a_token(target):
    """By text or id, and the name tells the token."""
    model, tokenizer = tiny("lm")
    ids = tokenizer("the film is", return_tensors="pt").input_ids
    if target == "Ġ":  # the vocabulary's spelling is not the text's
        with pytest.raises(TargetError, match="'Ġ' is 2 tokens; a next-token target is one"):
            Explainer(model, tokenizer)("the film is", target=target)
        return
    token = tokenizer(target).input_ids[0] if isinstance(target, str) else target
    e = Explainer(model, tokenizer)("the film is", target=target)
    logits = model(ids).logits[0, -1]
    assert e.value == pytest.approx(logits[token].item(), abs=1e-5)
    assert e.target == repr(tokenizer.decode([token]))
    assert e.prediction == repr(tokenizer.decode([int(logits.argmax())]))


def test_language_models_contrast_tokens():
    """Why this token rather than that one."""
    explainer = Explainer(*tiny("lm"))
    e = explainer("the film is", target=(" good", " bad"))
    assert e.target == "' good' - ' bad'"
    assert e.value == pytest.approx(
        explainer("the film is", target=" good").value - explainer("the film is", target=" bad").value, abs=1e-5
    )
    assert explainer("the film is").target == explainer("the film is").prediction


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": "positiv"}, TargetError, 'target "positiv" is unknown; did you mean "positive"?'),
        ({"target": 2}, TargetError, "target 2 is out of range: the model has classes 0 to 1"),
        ({"target": -1}, TargetError, "target -1 is out of range"),
        ({"target": [0, 1]}, TargetError, "2 targets for 1 texts"),
        ({"target": "start"}, TargetError, 'target "start" is unknown'),
        ({"method": "attnlrp"}, UnknownNameError, 'method "attnlrp" is unknown; did you mean "attn_lrp"?'),
        ({"method": "magic"}, UnknownNameError, 'method "magic" is unknown'),
        ({"steps": 3}, InputError, '"lrp_blend" has no option "steps" (its options: rules, at, checkpoint, ledger)'),
        ({"method": "random", "ledger": True}, InputError, 'method "random" has no option "ledger"'),
        ({"special": "hide"}, InputError, 'special is "keep" or "drop", got \'hide\''),
        ({"batch_size": 0}, InputError, "batch_size must be at least 1, got 0"),
        ({"max_length": 0}, InputError, "max_length must be at least 1, got 0"),
        ({"max_length": 1}, InputError, "a limit of 1 tokens leaves no room for the text"),
        ({"max_length": 2}, InputError, "a limit of 2 tokens leaves no room for the text"),
    ],
    ids=named,
)
def test_wrong_options(explainer, options, error, message):
    """Told before any work, in the caller's words."""
    with pytest.raises(error) as caught:
        explainer(TEXT, **options)
    assert message in str(caught.value)


def test_a_wrong_text_in_a_list_is_found(explainer):
    """Which of the list, and why."""
    with pytest.raises(InputError, match="text 2 of the list: the text is empty: there is nothing to explain"):
        explainer(["good", "bad", "", "film"])
    with pytest.raises(InputError, match=r"^the text is empty"):
        explainer("  ")


# Options


@pytest.mark.parametrize("name", ["lrp-ah-ln", "integrated-gradients"])
def test_method_names_take_hyphens(explainer, name):
    """As the command line writes them."""
    assert explainer(TEXT, method=name) == explainer(TEXT, method=name.replace("-", "_"))


@pytest.mark.parametrize("method", METHODS.names())
def test_every_method_explains(explainer, method):
    """A finite number for every unit, under the name asked for; JSON keeps it."""
    e = explainer(TEXT, method=method)
    assert e.method == method
    assert len(e.scores) == len(e.units)
    assert all(map(math.isfinite, e.scores))
    assert len(set(e.scores)) > (1 if method in ("cam", "grad_cam") else 3)  # these keep positive parts only
    assert Explanation.from_json(e.to_json()) == e


def test_special_tokens_can_be_dropped(explainer):
    """Their scores go, the rest stays."""
    kept, dropped = explainer(TEXT), explainer(TEXT, special="drop")
    assert [u.text for u in kept.units if u.special] == ["[CLS]", "[SEP]"]
    assert dropped == kept.without_special()
    assert not any(unit.special for unit in dropped.units)


@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2"])
def test_words_sum_to_the_same(kind):
    """Merging moves nothing in or out."""
    e = Explainer(*tiny(kind))("the unbelievable movie wasn't goes  日\n")
    words = e.words()
    assert words.accounted == pytest.approx(e.accounted, abs=1e-9)
    assert [u.text for u in words.units if not u.special and u.text.strip()] == [
        "the", "unbelievable", "movie", "wasn't", "goes", "日",
    ]  # fmt: skip


@pytest.mark.parametrize("method", LEDGERS)
def test_ledgers(explainer, method):
    """Itemised for one text, not for a list unless asked; the entries always sum to the value."""
    for e, itemised in [
        (explainer(TEXT, method=method), True),
        (explainer(TEXT, method=method, ledger=False), False),
        (explainer(MANY, method=method)[1], False),
        (explainer(MANY, method=method, ledger=True)[1], True),
    ]:
        assert e.ledger.itemised is itemised
        assert e.ledger.value == pytest.approx(e.value, abs=1e-6)
        assert sum(entry.value for entry in e.ledger.entries) == pytest.approx(e.value, abs=1e-5)
        assert e.ledger.inputs == pytest.approx(e.accounted, abs=1e-6)
        assert (e.ledger.biases != 0) is itemised


def test_plain_ledgers(explainer):
    """Integrated gradients books its baseline; unsigned scores are no shares of anything."""
    e = explainer(TEXT, method="integrated_gradients")
    assert e.ledger.constants == e.baseline
    assert e.accounted + e.baseline == pytest.approx(e.value, abs=1e-3)
    for method in ("gradient", "rollout"):  # norms and attention
        scores = explainer(TEXT, method=method)
        assert scores.ledger is None
        assert not scores.drawings[0][1].shares
    relevance = explainer(TEXT, method="lrp")  # which starts from 1
    assert relevance.ledger is None
    assert [name for name, _ in relevance.account] == ["not accounted"]


def test_integrated_gradients_start_from_masked_words(explainer):
    """By default every token but the special ones is the mask token; special tokens then score 0."""
    e = explainer(TEXT, method="integrated_gradients")
    masked = " ".join("[MASK]" for unit in e.units if not unit.special)
    logits = explainer.model(**explainer.inputs([masked])).logits[0]
    assert e.baseline == pytest.approx(logits.tolist()[[*LABELS.values()].index(e.target)], abs=1e-5)
    assert [score for unit, score in zip(e.units, e.scores, strict=True) if unit.special] == [0, 0]
    given = torch.full_like(explainer.inputs([TEXT])["input_ids"], 7)
    assert explainer(TEXT, method="integrated_gradients", baseline=given).baseline != e.baseline


def test_options_reach_the_method(explainer):
    """The method's own options, by name."""
    few, many = (explainer(TEXT, method="smoothgrad", samples=n) for n in (1, 9))
    assert few.scores != many.scores
    assert explainer(TEXT, method="random", seed=1).scores != explainer(TEXT, method="random", seed=2).scores


def test_long_texts_are_cut_with_a_warning(explainer):
    """To the model's limit, to `max_length` where that is less, and never beyond the limit."""
    text = "good " * 100
    for max_length, kept in [(None, 64), (10, 10), (500, 64)]:
        with pytest.warns(TruncationWarning, match=rf"102 tokens, {kept} are read: cut off from character"):
            e = explainer(text, max_length=max_length)
        assert len(e.units) == kept
        assert e.part.truncated in e.drawings[0][1].note
    assert explainer("good", max_length=500).part.truncated is None


def test_progress(explainer, capfd, monkeypatch):
    """Asked for, a bar on standard error; unasked, none where nobody watches; nothing on standard output."""
    explainer(MANY, batch_size=1, progress=True)
    out, err = capfd.readouterr()
    assert "explaining" in err
    assert "100%" in err
    assert out == ""
    explainer(MANY * 3, batch_size=1)
    explainer(MANY * 3, batch_size=1, progress=False)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    explainer(MANY, batch_size=1)
    assert capfd.readouterr() == ("", "")  # short work
    explainer(MANY * 3, batch_size=1)
    assert "explaining" in capfd.readouterr().err


def test_training_models_are_explained_in_eval_mode_and_left_in_training():
    """Dropout would make the scores random."""
    tokenizer = wordpiece()
    model = bert(tokenizer)
    expected = Explainer(model, tokenizer)(TEXT)
    assert Explainer(model.train(), tokenizer)(TEXT) == expected
    assert all(module.training for module in model.modules())


def test_half_precision():
    """bfloat16 weights give finite scores near those of float32."""
    tokenizer = wordpiece()
    exact = Explainer(bert(tokenizer), tokenizer)(TEXT, target=0)
    rough = Explainer(bert(tokenizer).to(torch.bfloat16), tokenizer)(TEXT, target=0)
    assert rough.value == pytest.approx(exact.value, abs=0.1)
    assert rough.accounted == pytest.approx(exact.accounted, abs=0.2)


def test_a_foreign_tokenizer_is_noticed():
    """Ids beyond the model's table are an input error, not an index error from the depths."""
    with pytest.raises(InputError, match=r"token ids run from \d+ to \d+, the model knows 0 to"):
        Explainer(tiny("bert")[0], tiny("roberta")[1])("日本 😀 ÿ good bad the")


def test_headless_models_have_no_target():
    """A bare encoder has nothing to explain, and says what to do."""
    model, tokenizer = tiny("bert")
    with pytest.raises(InputError, match=r"an encoder compares two texts: give a pair, \(first, second\)"):
        Explainer(model.bert, tokenizer)(TEXT)


@pytest.mark.parametrize("method", METHODS.names())
def test_infinite_weights_are_never_explained(method):
    """No method returns a number from a broken model."""
    tokenizer = wordpiece()
    model = bert(tokenizer)
    with torch.no_grad():
        model.classifier.bias[0] = torch.nan
    with pytest.raises(ModelError, match=r'not finite numbers: its parameter "classifier.bias"'):
        Explainer(model, tokenizer)(TEXT, method=method)


def test_names_of_the_package_stay_callable():
    """`relprop.explain` is a function also after another name was used (its module has the same name)."""
    code = "import relprop; relprop.Explainer; assert callable(relprop.explain) and callable(relprop.attribute)"
    subprocess.run([sys.executable, "-c", code], check=True)


MAPPED = ["gradient_x_input", "rollout", "gae", "cam", "grad_cam", "grad_sam", "attcat", "attention_last", "gradient",
          "lrp", "partial_lrp", "transformer_attribution"]  # fmt: skip


def test_several_methods_share_one_pass(explainer):
    """What each gives alone, from a single forward pass: attention, gradients and relevance."""
    explainer(["so so", TEXT], method=MAPPED)  # where scores are read, and that a batch keeps them, is found once
    calls = []
    handle = explainer.model.register_forward_pre_hook(lambda *_: calls.append(1))
    try:
        together = explainer([TEXT, "good"], method=MAPPED)
    finally:
        handle.remove()
    assert len(calls) == 3  # one is shared; partial_lrp, in float64, has a pass of its own and one for the value
    for number, name in enumerate(MAPPED):
        alone = explainer([TEXT, "good"], method=name)
        for shared, own in zip(together, alone, strict=True):  # rounding: maps are seen in spelled-out attention
            assert shared[number].scores == pytest.approx(own.scores, abs=1e-5, rel=1e-4)
        assert [one[number].method for one in together] == [name, name]


def test_several_methods_for_one_text(explainer):
    """One text gives one list; options go to the methods that have them; a method may come twice."""
    found = explainer(TEXT, method=["lrp_ah_ln", "integrated_gradients", "lrp_ah_ln"], steps=3)
    assert [one.method for one in found] == ["lrp_ah_ln", "integrated_gradients", "lrp_ah_ln"]
    assert found[0] == found[2]
    assert found[1].scores == explainer(TEXT, method="integrated_gradients", steps=3).scores
    with pytest.raises(InputError, match="the list of methods is empty"):
        explainer(TEXT, method=[])


def test_passes_are_not_shared_beyond_a_call(explainer):
    """Another text at the same address, or changed weights, must not get an old answer."""
    before = explainer(TEXT, method=["gradient_x_input"])[0]
    weight = explainer.model.classifier.weight
    kept = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.mul_(2)
        after = explainer(TEXT, method=["gradient_x_input"])[0]
    finally:
        with torch.no_grad():
            weight.copy_(kept)
    assert before.scores != after.scores
