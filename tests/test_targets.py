"""What is explained: every form of a target gives the number it names, and a wrong one gives a sentence."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from models import named
from relprop.errors import TargetError
from relprop.outputs import logits_of
from relprop.padding import last_real_row
from relprop.targets import chosen_target, class_index

LABELS = {0: "negative", 1: "neutral", 2: "Positive"}
LOGITS = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0], [65.0, 64.0, 0.0]])
CLASSES = {"logits": LOGITS}


def chosen(target, outputs=CLASSES, inputs=None, labels=LABELS, **facts):
    found = chosen_target(target, outputs, inputs or {}, labels, **facts)
    return found.value.tolist(), found.names


@pytest.mark.parametrize(
    ("target", "values", "names"),
    [
        (0, [1, 8, 65], ("negative",) * 3),
        ("neutral", [2, 16, 64], ("neutral",) * 3),
        ("POSITIVE", [4, 32, 0], ("Positive",) * 3),
        (" neutral ", [2, 16, 64], ("neutral",) * 3),
        ("2", [4, 32, 0], ("Positive",) * 3),
        (None, [4, 32, 65], ("Positive", "Positive", "negative")),
        (("positive", 0), [3, 24, -65], ("Positive - negative",) * 3),
        ((None, "neutral"), [2, 16, 1], ("Positive - neutral", "Positive - neutral", "negative - neutral")),
        ([0, "neutral", None], [1, 16, 65], ("negative", "neutral", "negative")),
        ([0, (1, 0), None], [1, 8, 65], ("negative", "neutral - negative", "negative")),
        (torch.tensor([2, 1, 0]), [4, 16, 65], ("Positive", "neutral", "negative")),
        (torch.tensor(1), [2, 16, 64], ("neutral",) * 3),
        (np.int64(1), [2, 16, 64], ("neutral",) * 3),
        (lambda outputs: outputs["logits"].sum(1), [7, 56, 129], ("<lambda>",) * 3),
    ],
    ids=named,
)
def test_class_targets(target, values, names):
    """Index, name, prediction, difference, one an example, tensors, and functions of the outputs."""
    assert chosen(target) == (values, names)


@pytest.mark.parametrize("target", [None, 1, (2, 0), [0, (1, None), None], lambda o: o["logits"][:, 0]], ids=named)
def test_exact_targets_repeat_the_choice(target):
    """`exact` has nothing left to predict: on other outputs it reads the same classes."""
    first = chosen_target(target, CLASSES, {}, LABELS)
    other = {"logits": -LOGITS}
    again = chosen_target(list(first.exact), other, {}, LABELS)
    assert again.value.tolist() == (-first.value).tolist()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (3, "target 3 is out of range: the model has classes 0 to 2"),
        (-1, "target -1 is out of range: the model has classes 0 to 2"),
        ("-1", "target -1 is out of range"),
        ("7", "target 7 is out of range"),
        ("²", 'target "²" is unknown'),
        ("positiv", 'target "positiv" is unknown; did you mean "Positive"'),
        ("joy", 'target "joy" is unknown; known: Positive, negative, neutral'),
        (True, "a target is a class index, a class name, a pair of these or None, got True"),
        (1.0, "a target is a class index.* got 1.0"),
        ({"a": 1}, "a target is a class index"),
        ((0, 1, 2), r"a difference takes two targets, got 3: \(0, 1, 2\)"),
        ((), "a difference takes two targets, got 0"),
        ([0, 1], "2 targets for 3 examples"),
        (lambda outputs: outputs["logits"], r"one number per example \(a 1-d tensor\), it gave \(3, 3\)"),
        (lambda outputs: 1.0, "one number per example .* it gave float"),
    ],
    ids=named,
)
def test_wrong_targets(target, message):
    """What was expected and what came."""
    with pytest.raises(TargetError, match=message):
        chosen(target)


def test_names_that_differ_only_in_case():
    """An exact name wins; a name that fits two classes is refused, not guessed."""
    labels = {0: "good", 1: "Good"}
    assert class_index("Good", 2, labels) == 1
    with pytest.raises(TargetError, match=r'target "GOOD" names 2 classes; give one of the indices \[0, 1\]'):
        class_index("GOOD", 2, labels)


def test_a_name_of_digits_is_a_name_first():
    """Star ratings are often called "1" to "5", one off their index."""
    labels = {0: "1", 1: "2", 2: "3"}
    assert class_index("1", 3, labels) == 0
    assert class_index(1, 3, labels) == 1


def test_names_without_labels():
    """A model without class names says so."""
    with pytest.raises(
        TargetError, match='"good" is a name, but this output has no class names; give an index below 3'
    ):
        chosen("good", labels=None)


@pytest.mark.parametrize(
    "outputs",
    [LOGITS, CLASSES, SimpleNamespace(logits=LOGITS), (LOGITS, "more"), [torch.zeros(0, 3) + 1, LOGITS][1:]],
    ids=["tensor", "dict", "object", "tuple", "list"],
)
def test_logits_are_found(outputs):
    """Tensors, dicts, records and tuples."""
    assert torch.equal(logits_of(outputs), LOGITS)


def test_outputs_without_logits():
    """A headless model has no target."""
    with pytest.raises(TargetError, match=r"without logits, only hidden states \(last_hidden_state \[3, 3\]\)"):
        chosen(None, SimpleNamespace(last_hidden_state=LOGITS))
    with pytest.raises(TargetError, match=r"logits of shape \(1, 2, 3, 4\) have no single target"):
        chosen(None, {"logits": torch.zeros(1, 2, 3, 4)})


def test_one_logit_an_example():
    """A regression's [batch] is a single class."""
    assert chosen(0, {"logits": LOGITS[:, 0]}, labels=None) == ([1, 8, 65], ("0",) * 3)


@pytest.mark.parametrize(
    ("mask", "rows"),
    [
        (None, [3, 3]),
        ([[1, 1, 1, 1], [1, 1, 0, 0]], [3, 1]),
        ([[0, 0, 1, 1], [0, 1, 1, 1]], [3, 3]),
        ([[1, 1, 1], [1, 1, 1]], [3, 3]),
    ],
    ids=["no mask", "right", "left", "other length"],
)
def test_last_real_row(mask, rows):
    """The last token that is no padding, on whichever side padding is."""
    inputs = {} if mask is None else {"attention_mask": torch.tensor(mask)}
    assert last_real_row(inputs, 4, 2).tolist() == rows


def test_next_token():
    """A language model is read at each example's last real token; the labels of its config are not its tokens'."""
    logits = torch.arange(2 * 4 * 5.0).view(2, 4, 5)
    inputs = {"attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])}
    assert chosen(2, {"logits": logits}, inputs, next_token=True) == ([17, 27], ("2", "2"))
    assert chosen(None, {"logits": logits}, inputs, next_token=True) == ([19, 29], ("4", "4"))


def test_a_class_per_token_is_refused():
    """A token classifier has no last-token meaning: say which token, do not explain [SEP]."""
    with pytest.raises(TargetError, match="gives each token one of 3 classes; say which token's with a function"):
        chosen(None, {"logits": torch.zeros(2, 4, 3)})


START = torch.tensor([[0.0, 1, 5, 2], [3, 1, 0, 9]])
END = torch.tensor([[0.0, 1, 2, 7], [1, 4, 0, 9]])
ANSWER = SimpleNamespace(start_logits=START, end_logits=END)
SHORT = {"attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])}


@pytest.mark.parametrize(
    ("target", "values", "names"),
    [
        ("start", [5, 3], ("start 2", "start 0")),
        ("end", [7, 4], ("end 3", "end 1")),
        ("span", [12, 7], ("span 2-3", "span 0-1")),
        (None, [12, 7], ("span 2-3", "span 0-1")),
        ((1, 2), [3, 1], ("span 1-2", "span 1-2")),
        ((None, 2), [7, 3], ("span 2-2", "span 0-2")),
        (["start", (1, 0)], [5, 2], ("start 2", "span 1-0")),
        ([None, "end"], [12, 4], ("span 2-3", "end 1")),
    ],
    ids=named,
)
def test_answers(target, values, names):
    """Start, end or their sum, predicted among real tokens or given; one for all or one an example."""
    assert chosen(target, ANSWER, SHORT) == (values, names)
    exact = chosen_target(target, ANSWER, SHORT, LABELS).exact
    assert chosen_target(list(exact), ANSWER, SHORT, LABELS).value.tolist() == values


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("middle", 'a question-answering target is "start", "end", "span" or .*, got \'middle\''),
        (1, "a question-answering target"),
        ((0, 1, 2), "a question-answering target"),
        ((0, 3), "target 3 is out of range"),
        (["start"], "1 targets for 2 examples"),
    ],
    ids=named,
)
def test_wrong_answers(target, message):
    """Also a place in the padding is out of range."""
    with pytest.raises(TargetError, match=message):
        chosen(target, ANSWER, SHORT)


def test_an_answer_without_an_end():
    """Half a question answerer is told what it lacks."""
    with pytest.raises(TargetError, match="gave start_logits but no end_logits"):
        chosen(None, SimpleNamespace(start_logits=START))
