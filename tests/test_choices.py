"""Multiple choice: the logit of a choice over its own row, a difference in two parts."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import relprop
from encoders_for_tests import SMALL, tokenizer
from relprop.errors import InputError, ModelError, TargetError
from relprop.registry import METHODS

TEXT = "the movie was long"
CHOICES = ["i was bored", "everybody loved it and i did too", "it ended soon"]


def chooser(kind: str = "Bert", **more: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(tokenizer()), **SMALL, **more)
    model = getattr(transformers, f"{kind}ForMultipleChoice")(config).eval().double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.2)
    return model


def logits_of(model: Any) -> torch.Tensor:
    batch = tokenizer()([TEXT] * 3, CHOICES, padding=True, return_tensors="pt")
    with torch.no_grad():
        found: torch.Tensor = model(**{name: value[None] for name, value in batch.items()}).logits[0]
    return found


def test_the_value_is_the_choices_logit_among_the_others() -> None:
    run = relprop.Explainer(chooser(), tokenizer())
    logits = logits_of(chooser())
    for index, choice in enumerate(CHOICES):
        for target in (index, choice)[index % 2 :]:
            e = run((TEXT, CHOICES), target=target)
            assert e.value == pytest.approx(logits[index].item(), abs=1e-9)
            assert e.target == repr(choice)
            assert e.text == (TEXT, choice)
            assert e.ledger.closes(1e-6)
    best = int(logits.argmax())
    e = run((TEXT, CHOICES))
    assert (e.prediction, e.target) == (CHOICES[best], repr(CHOICES[best]))
    assert e.probability == pytest.approx(logits.softmax(-1)[best].item())


def test_scores_are_those_of_the_choices_row_in_the_whole_input() -> None:
    model, width = chooser(), 0
    batch = tokenizer()([TEXT] * 3, CHOICES, padding=True, return_tensors="pt")
    inputs = {name: value[None] for name, value in batch.items()}
    width = batch["input_ids"].shape[1]
    a = relprop.attribute(model, inputs, 1)
    e = relprop.Explainer(model, tokenizer())((TEXT, CHOICES), target=1)
    row = a.scores[0].view(3, width)[1]
    np.testing.assert_allclose(e.scores, row[: len(e.units)].numpy(), atol=1e-9)
    assert not a.scores[0].view(3, width)[[0, 2]].any()


def test_a_difference_has_a_part_for_each_choice() -> None:
    run = relprop.Explainer(chooser(), tokenizer())
    e = run((TEXT, CHOICES), target=(0, CHOICES[2]))
    first, second = (run((TEXT, CHOICES), target=index) for index in (0, 2))
    assert e.value == pytest.approx(first.value - second.value, abs=1e-9)
    assert [part.name for part in e.parts] == ["choice", "other choice"]
    np.testing.assert_allclose(e.parts[0].scores, first.scores, atol=1e-9)
    np.testing.assert_allclose(e.parts[1].scores, [-score for score in second.scores], atol=1e-9)
    assert e.ledger is not None
    assert e.ledger.closes(1e-6)
    assert e.ledger.value == pytest.approx(e.value)
    assert relprop.Explanation.from_json(e.to_json()) == e


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "Electra"])
def test_a_list_gives_what_each_gives_alone(kind: str) -> None:
    run = relprop.Explainer(chooser(kind, pad_token_id=0), tokenizer())
    given, methods = [(TEXT, CHOICES), ("good", ["bad", "a very good one indeed"])], ["lrp_conservative", "gae"]
    for one, target, found in zip(given, (1, 0), run(given, method=methods, target=[1, 0]), strict=True):
        for same, single in zip(found, run(one, method=methods, target=target), strict=True):
            np.testing.assert_allclose(same.scores, single.scores, atol=1e-6)


def test_every_method_explains_a_choice() -> None:
    run = relprop.Explainer(chooser(), tokenizer())
    found = run(("good", ["bad", "so"]), method=METHODS.names(), target=1, steps=2, samples=2, max_evals=20)
    assert [one.method for one in found] == METHODS.names()
    assert all(np.isfinite(one.scores).all() and len(one.scores) == 5 for one in found)


class Comparing(torch.nn.Module):
    """A chooser whose choices see each other."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, self.config = inner, inner.config

    def forward(self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None) -> Any:
        logits = self.inner(input_ids, attention_mask, token_type_ids).logits
        return logits - logits.mean(1, keepdim=True) / 2


class ComparingForMultipleChoice(Comparing):
    """Told by its name, as transformers' own."""


def test_choices_that_see_each_other_are_refused() -> None:
    run = relprop.Explainer(ComparingForMultipleChoice(chooser()), tokenizer())
    with pytest.raises(ModelError, match="it compares choices with each other"):
        run((TEXT, CHOICES), target=1)


@pytest.mark.parametrize(
    ("given", "target", "words"),
    [
        (TEXT, None, r'a text with its choices is given as \("text", \["one choice", "another"\]\)'),
        ((TEXT, CHOICES[0]), None, "a text with its choices is given as"),
        ((TEXT, ["one"]), None, "two choices or more"),
        ((TEXT, ["one", 2]), None, "two choices or more, each a text"),
        ((TEXT, ["one", ""]), None, "the text is empty"),
        ((TEXT, CHOICES), 3, "target 3 is out of range"),
        ((TEXT, CHOICES), "i was board", 'did you mean "i was bored"'),
        ((TEXT, CHOICES), (0, 1, 2), "a difference takes two choices, got 3"),
        ((TEXT, CHOICES), lambda outputs: outputs.logits[:, 0], "not a function"),
    ],
)
def test_wrong_inputs_have_their_sentence(given: Any, target: Any, words: str) -> None:
    with pytest.raises((InputError, TargetError), match=words):
        relprop.Explainer(chooser(), tokenizer())(given, target=target)


def test_a_wrong_example_of_a_list_is_named() -> None:
    with pytest.raises(InputError, match="text 1 of the list: a text with its choices"):
        relprop.Explainer(chooser(), tokenizer())([(TEXT, CHOICES), TEXT])
