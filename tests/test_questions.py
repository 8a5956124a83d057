"""Questions: the window that answers, the answer in the context's own characters, relevance from its place alone."""

from __future__ import annotations

import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import BertForQuestionAnswering, GPT2ForQuestionAnswering

import relprop.methods  # noqa: F401  (fills the registry)
from models import tiny as tiny_model
from relprop import Explainer
from relprop.attribution import attribute
from relprop.engine.capture import CaptureOptions
from relprop.engine.passes import propagate
from relprop.errors import InputError, ModelError, TargetError
from relprop.explanation import Explanation, to_html
from relprop.methods.examples import single_example
from relprop.readers.context_windows import context_windows
from relprop.registry import METHODS
from relprop.render.text.figure import draw
from relprop.rulebook import rulesets
from relprop.targets import Against, Answer
from tiny_models import shrink
from tokenizers_for_tests import bert, byte_level, gpt2, roberta_style, tiny, wordpiece

QUESTION = "was it good?"
CONTEXT = "the movie is a good movie and the plot was very dull"
FILLER = "the plot was not very good and the film is bad. "
FAR = FILLER * 6 + "It is Seductive movie " + FILLER * 6
every_method = pytest.mark.parametrize("record", list(METHODS), ids=lambda record: record.name)


class Finder(nn.Module):
    """Answers start at one word and end at another: nothing else but [CLS] scores."""

    def __init__(self, tokenizer: Any, first: str, last: str) -> None:
        super().__init__()
        self.config = SimpleNamespace(pad_token_id=tokenizer.pad_token_id)
        self.table = nn.Embedding(len(tokenizer), 2)
        with torch.no_grad():
            self.table.weight.fill_(-1.0)
            self.table.weight[tokenizer.cls_token_id] = torch.tensor([0.5, 0.5])
            self.table.weight[tokenizer.convert_tokens_to_ids(first), 0] = 3.0
            self.table.weight[tokenizer.convert_tokens_to_ids(last), 1] = 2.0

    def get_input_embeddings(self) -> nn.Module:
        return self.table

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, start_positions: Any = None, end_positions: Any = None
    ) -> Any:
        start, end = self.table(input_ids).unbind(-1)
        return {"start_logits": start, "end_logits": end}


@cache
def finder() -> Explainer:
    tokenizer = wordpiece(32)
    return Explainer(Finder(tokenizer, "seductive", "movie"), tokenizer)


@cache
def reader(limit: int = 64, kind: str = "bert") -> Explainer:
    if kind == "bert":
        tokenizer = wordpiece(limit)
        return Explainer(bert(tokenizer, BertForQuestionAnswering), tokenizer)
    tokenizer = byte_level()
    return Explainer(gpt2(tokenizer, GPT2ForQuestionAnswering), tokenizer)


def logits(explainer: Explainer, question: str = QUESTION, context: str = CONTEXT) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        outputs = explainer.model(**explainer.tokenizer(question, context, return_tensors="pt"))
    return outputs.start_logits[0].double(), outputs.end_logits[0].double()


def places(e: Explanation, words: str) -> tuple[int, int]:
    """First and last unit of the context's first such words."""
    begin = e.text[1].index(words)
    inside = [
        i for i, unit in enumerate(e.units)
        if unit.segment == 1 and unit.start is not None and unit.start >= begin and unit.end <= begin + len(words)
    ]  # fmt: skip
    return inside[0], inside[-1]


# Windows


@pytest.mark.parametrize("limit", [24, 33, 64])
@pytest.mark.parametrize("make", [wordpiece, roberta_style, byte_level])
def test_windows_cover_the_context_and_overlap(make: Any, limit: int) -> None:
    tokenizer = make()
    rows = context_windows(tokenizer, "who?", FAR, limit)
    assert len(rows) > 2
    covered: set[int] = set()
    before: set[int] = set()
    for row in rows:
        assert len(row.ids["input_ids"]) <= limit
        units = [unit for unit in row.units if unit.segment == 1 and unit.start is not None]
        assert all(FAR[unit.start : unit.end] == unit.text for unit in units)
        own = {i for unit in units for i in range(unit.start, unit.end)}
        assert not covered or own & before, "a window that shares nothing with the one before"
        covered, before = covered | own, own
    assert {i for i, char in enumerate(FAR) if not char.isspace()} <= covered


def test_an_answer_far_in_the_context() -> None:
    """Found in its window, told in the whole context's characters."""
    e = finder()(question="what is it?", context=FAR)
    begin = FAR.index("Seductive")
    assert e.prediction == "Seductive movie"
    assert e.target == "'Seductive movie'"
    assert e.part.answer == (begin, begin + len("Seductive movie"))
    assert e.value == pytest.approx(3 + 2)
    assert e.text == ("what is it?", FAR)
    for unit in e.units:
        if unit.start is not None:
            assert e.text[unit.segment][unit.start : unit.end] == unit.text
    scored = [unit.text for unit, score in zip(e.units, e.scores, strict=True) if score > 1e-3]
    assert scored == ["Seductive", "movie"]
    found = re.fullmatch(r"window (\d+) of (\d+): characters (\d+) to (\d+) of the context", e.part.truncated)
    assert found
    number, count, first, last = map(int, found.groups())
    assert 1 < number < count
    assert first <= begin < begin + len("Seductive movie") <= last < len(FAR)
    assert (first, last) == (
        min(unit.start for unit in e.units if unit.segment == 1 and unit.start is not None),
        max(unit.end for unit in e.units if unit.segment == 1 and unit.end is not None),
    )


def test_the_likeliest_answer_of_all_windows() -> None:
    """Against all pairs of places of all windows, one by one."""
    explainer = reader(24)
    best = (-torch.inf, (0, 0), 0.0, 0.0)
    for row in context_windows(explainer.tokenizer, QUESTION, FAR, 24):
        inputs = {name: torch.tensor([values]) for name, values in row.ids.items()}
        with torch.no_grad():
            outputs = explainer.model(**inputs)
        start, end = outputs.start_logits[0].double(), outputs.end_logits[0].double()
        for i, first in enumerate(row.units):
            for j in range(i, min(i + 30, len(row.units))):
                last = row.units[j]
                if first.segment == last.segment == 1 and not first.special and not last.special:
                    value = (start[i] + end[j]).item()
                    lead = value - (start[0] + end[0]).item()
                    probability = (start.softmax(0)[i] * end.softmax(0)[j]).item()
                    best = max(best, (lead, (first.start, last.end), value, probability))
    e = explainer(question=QUESTION, context=FAR)
    assert best[0] > 0
    assert e.part.answer == best[1]
    assert e.prediction == FAR[slice(*best[1])]
    assert (e.value, e.probability) == pytest.approx(best[2:], abs=1e-5)


def test_no_answer() -> None:
    """[CLS] scores above every answer: that is said, and that is explained."""
    for context, counts in ((CONTEXT, 1), (FILLER * 9, 5)):
        e = finder()(question="what?", context=context)
        assert (e.prediction, e.target, e.part.answer) == ("(no answer)", "(no answer)", None)
        assert e.value == pytest.approx(1.0)
        assert ("of" in (e.part.truncated or "")) == (counts > 1)
        strongest, _ = e.top(1)[0]
        assert strongest.text == "[CLS]"
    assert finder()(question="what?", context=CONTEXT, target="start").target == "start of (no answer)"
    assert 'class="answer"' not in e.to_html()


# Targets


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_targets_are_the_logits_they_name(kind: str) -> None:
    explainer = reader(64, kind)
    start, end = logits(explainer)
    plain = explainer(question=QUESTION, context=CONTEXT)
    assert plain.part.answer is not None
    i, j = places(plain, plain.prediction)
    a, b = places(plain, "good")
    c, d = places(plain, "the plot")
    none = 0
    expected = {
        None: start[i] + end[j],
        "span": start[i] + end[j],
        "start": start[i],
        "end": end[j],
        "good": start[a] + end[b],
        (15, 19): start[a] + end[b],
        (14, 20): start[a] + end[b],  # blanks around
        "": start[none] + end[none],
        ("good", "the plot"): start[a] + end[b] - start[c] - end[d],
        ((15, 19), "the plot"): start[a] + end[b] - start[c] - end[d],
        ("good", ""): start[a] + end[b] - start[none] - end[none],
        (None, "good"): start[i] + end[j] - start[a] - end[b],
        (lambda outputs: outputs.start_logits[:, 3]): start[3],
    }
    for target, value in expected.items():
        e = explainer(question=QUESTION, context=CONTEXT, target=target)
        assert e.value == pytest.approx(value.item(), abs=1e-4), target
        assert e.prediction == plain.prediction
        assert e.probability == pytest.approx((start.softmax(0)[i] * end.softmax(0)[j]).item(), abs=1e-5)
    both = explainer([(QUESTION, CONTEXT)] * 2, target=["good", "start"])
    assert [one.target for one in both] == ["'good'", f"start of {plain.prediction!r}"]
    assert [one.part.answer for one in both] == [(15, 19), plain.part.answer]


def test_of_several_places_the_best_is_explained() -> None:
    """Whole words first: "a" is no answer inside "plate"."""
    explainer = reader()
    context = "a plot was a movie, a film, a plate"
    start, end = logits(explainer, context=context)
    units = explainer(question=QUESTION, context=context).units
    alone = [i for i, unit in enumerate(units) if unit.text == "a" and context[unit.start : unit.end + 1] in ("a ",)]
    assert len(alone) == 4
    best = max(alone, key=lambda i: (start[i] + end[i]).item())
    e = explainer(question=QUESTION, context=context, target="a")
    assert e.part.answer == (units[best].start, units[best].end)
    assert e.value == pytest.approx((start[best] + end[best]).item(), abs=1e-4)
    inside = explainer(question=QUESTION, context=context, target="lat")
    assert context[slice(*inside.part.answer)].startswith("lat")  # type: ignore[misc]


def test_a_given_answer_is_looked_for_in_every_window() -> None:
    e = finder()(question="what is it?", context=FAR, target="It is")
    assert FAR[slice(*e.part.answer)] == "It is"
    assert e.prediction == "Seductive movie"
    assert e.part.truncated.startswith("window ")


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"target": "wonderful"}, TargetError, "the answer 'wonderful' does not occur in the context; spell it as"),
        ({"target": ("good", "wonderful")}, TargetError, "'wonderful' does not occur in the context"),
        ({"target": (3, 400)}, TargetError, "characters 3 to 400 are no answer: the context has 52"),
        ({"target": (5, 5)}, TargetError, "characters 5 to 5 are no answer"),
        ({"target": (3, 4)}, TargetError, "characters 3 to 4 are no answer.* blanks are none"),
        ({"target": 3}, TargetError, 'a question-answering target is "start", "end", "span", an answer by .* got 3'),
        ({"target": (1, 2, 3)}, TargetError, r"a question-answering target is .* got \(1, 2, 3\)"),
        ({"target": CONTEXT, "max_length": 12}, TargetError, "no window of the context holds .* larger max_length"),
        ({"question": "good " * 70}, InputError, "the question has 70 tokens, which leaves no room for the context"),
        ({"question": " "}, InputError, "the question is empty"),
        ({"context": ""}, InputError, "the context is empty"),
        ({"context": "\u200b"}, InputError, "the tokenizer finds no token in the context"),
        ({"context": None}, InputError, "a question needs its context"),
        ({"context": ["good", "bad"], "question": ["is it?"]}, InputError, "1 questions for 2 contexts"),
        ({"context": ["good", ""]}, InputError, "question 1 of the list: the context is empty"),
        ({"context": ["good", "bad"], "target": "good"}, TargetError, "question 1 of the list: the answer 'good'"),
    ],
)  # fmt: skip
def test_mistakes(asked: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        reader()(**{"question": QUESTION, "context": CONTEXT, **asked})


def test_a_question_alone() -> None:
    with pytest.raises(InputError, match="a question needs its context"):
        reader()(QUESTION)
    with pytest.raises(InputError, match="and no other text"):
        reader()("good", question=QUESTION, context=CONTEXT)


def test_heads_that_give_no_places() -> None:
    model = Finder(wordpiece(), "good", "good")
    model.forward = lambda input_ids, attention_mask, start_positions=None: {"logits": input_ids}  # type: ignore
    with pytest.raises(ModelError, match="the model answers without start_logits"):
        Explainer(model, wordpiece())(question=QUESTION, context=CONTEXT)


# One and many


def left_padding() -> Explainer:
    tokenizer = wordpiece(32)
    tokenizer.padding_side = "left"
    return Explainer(bert(tokenizer, BertForQuestionAnswering), tokenizer)


@pytest.mark.parametrize("make", [lambda: reader(32), lambda: reader(64, "gpt2"), left_padding, finder])
@pytest.mark.parametrize("method", ["lrp_conservative", "rollout"])
def test_many_as_one(make: Any, method: str) -> None:
    """Several windows, several lengths, several kinds of targets in a batch; GPT-2 has no padding."""
    explainer = make()
    if explainer is finder() and method == "rollout":
        pytest.skip("it has no attention")
    asked = [(QUESTION, CONTEXT), ("what?", FILLER * 5), ("is it witty?", "it is a good film"), (QUESTION, CONTEXT * 3)]
    targets = [None, "start", ("good", "film"), ""]
    together = explainer(asked, target=targets, method=method, batch_size=4)
    for pair, target, found in zip(asked, targets, together, strict=True):
        e = explainer(pair, target=target, method=method, ledger=False)
        assert e.units == found.units
        assert (e.target, e.prediction, e.part.answer, e.part.truncated) == (
            found.target, found.prediction, found.part.answer, found.part.truncated,
        )  # fmt: skip
        assert found.scores == pytest.approx(e.scores, abs=1e-5)
        assert (found.value, found.probability) == pytest.approx((e.value, e.probability), abs=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "RobertaForQuestionAnswering", "ElectraForQuestionAnswering", "XLNetForQuestionAnsweringSimple",
        "T5ForQuestionAnswering", "BartForQuestionAnswering", "LlamaForQuestionAnswering",
    ],
)  # fmt: skip
def test_other_heads(name: str) -> None:
    """Relative positions, sequence before batch, a decoder that reads the text again, a causal model."""
    tokenizer, kind = wordpiece(48), getattr(transformers, name)
    torch.manual_seed(0)
    explainer = Explainer(kind(shrink(kind.config_class, vocab_size=len(tokenizer), num_labels=2)).eval(), tokenizer)
    asked = [(QUESTION, FAR), ("what?", CONTEXT)]
    for pair, found in zip(asked, explainer(asked, target="good", ledger=True), strict=True):
        e = explainer(pair, target="good")
        assert pair[1][slice(*e.part.answer)] == "good"
        assert (found.part.answer, found.part.truncated) == (e.part.answer, e.part.truncated)
        assert found.scores == pytest.approx(e.scores, abs=1e-5)
        assert e.ledger.closes(1e-3)


def test_one_context_for_many_questions() -> None:
    explainer = reader()
    both = explainer(question=[QUESTION, "is it a film?"], context=CONTEXT, ledger=False)
    assert [one.text for one in both] == [(QUESTION, CONTEXT), ("is it a film?", CONTEXT)]
    assert both[1] == explainer([("is it a film?", CONTEXT)], ledger=False)[0]
    assert [one.text[1] for one in explainer(question=QUESTION, context=["good", "bad"])] == ["good", "bad"]


def test_every_window_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, ...]] = []

    def seen(model: Any, inputs: Any) -> Any:
        assert not torch.is_grad_enabled()
        read.extend(tuple(row[mask != 0].tolist()) for row, mask in zip(*inputs.values(), strict=True))
        return model(**inputs)

    monkeypatch.setattr("relprop.tasks.answers.call", seen)
    explainer = finder()
    explainer([("what?", FAR), ("who?", CONTEXT)], method="random")
    wanted = [
        row for pair in (("what?", FAR), ("who?", CONTEXT)) for row in context_windows(explainer.tokenizer, *pair, 32)
    ]
    assert sorted(read) == sorted(tuple(row.ids["input_ids"]) for row in wanted)


# Two explanations added


@cache
def in_double(architecture: str) -> tuple[Any, dict[str, Tensor]]:
    model, inputs = tiny_model(architecture)
    return model, {name: values[:1] for name, values in inputs.items()}


def relative(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).abs().max() / expected.abs().max()).item()


def one_order(inputs: dict[str, Tensor]) -> dict[str, int]:
    """The fewest evaluations that `shapley` takes."""
    return {"max_evals": 2 * inputs["input_ids"].shape[1] + 1}


@every_method
def test_additive_is_what_the_registry_says(record: Any) -> None:
    """The method itself, one pass: the scores of a sum are the sum of the scores, or they are not."""
    model, inputs = in_double("BertForQuestionAnswering")
    few = one_order(inputs) if record.name == "shapley" else {}
    start, end, span, against = (
        record.function(model, inputs, [target], **few).scores
        for target in (Answer(2, None), Answer(None, 4), Answer(2, 4), Against(Answer(2, None), Answer(None, 4)))
    )
    assert (relative(span, start + end) < 1e-6) == record.additive
    assert not record.additive or relative(against, start - end) < 1e-6


@every_method
def test_a_span_is_two_explanations_added(record: Any) -> None:
    """[Song24]; and a difference two spans subtracted. By whatever name the span is given."""
    model, inputs = in_double("BertForQuestionAnswering")
    with torch.no_grad():
        outputs = model(**inputs)
    i, j = int(outputs.start_logits.argmax()), int(outputs.end_logits.argmax())
    few = one_order(inputs) if record.name == "shapley" else {}

    def scores(target: Any) -> Tensor:
        return attribute(model, inputs, target, record.name, **few).scores

    start, end = scores("start"), scores("end")
    for target in (None, "span", (i, j), [Answer(i, j)]):
        assert relative(scores(target), start + end) < 1e-6
    other = scores([Answer(1, 5)])
    difference = attribute(model, inputs, [Against(Answer(i, j), Answer(1, 5))], record.name, **few)
    assert torch.allclose(difference.scores, start + end - other, atol=1e-9)
    value = (
        outputs.start_logits[0, i] + outputs.end_logits[0, j] - outputs.start_logits[0, 1] - outputs.end_logits[0, 5]
    )
    assert difference.value.item() == pytest.approx(value.item())
    assert difference.target == (f"span {i}-{j} - span 1-5",)


# Relevance starts at the answer's row

ANSWERERS = {  # False: no map of all tokens by all tokens a block, so that methods on maps decline
    "BertForQuestionAnswering": True,
    "RobertaForQuestionAnswering": True,
    "GPT2ForQuestionAnswering": True,
    "DistilBertForQuestionAnswering": True,
    "ElectraForQuestionAnswering": True,
    "DebertaV2ForQuestionAnswering": True,
    "LlamaForQuestionAnswering": True,
    "Qwen2ForQuestionAnswering": True,
    "ModernBertForQuestionAnswering": True,
    "XLNetForQuestionAnsweringSimple": False,
    "T5ForQuestionAnswering": False,
    "BartForQuestionAnswering": False,
}
CAUSAL = ("GPT2ForQuestionAnswering", "LlamaForQuestionAnswering", "Qwen2ForQuestionAnswering")
TARGETS = [Answer(2, None), Answer(None, 4)]


@pytest.mark.parametrize("architecture", ANSWERERS)
def test_every_method_answers(architecture: str) -> None:
    model, inputs = tiny_model(architecture)
    for record in METHODS:
        if record.name == "shapley":  # as occlusion, and slow
            continue
        if record.maps and not ANSWERERS[architecture]:
            with pytest.raises(ModelError, match="use lrp_ah_ln instead"):
                attribute(model, inputs, TARGETS, record.name)
            continue
        found = attribute(model, inputs, TARGETS, record.name)
        assert found.scores.isfinite().all()
        assert (found.scores != 0).any(), record.name
        if architecture in CAUSAL and record.name != "random":  # what comes after the answer cannot matter
            assert not found.scores[0, 3:].any(), record.name
            assert not found.scores[1, 5:].any(), record.name


@pytest.mark.parametrize("architecture", [name for name, maps in ANSWERERS.items() if maps])
@pytest.mark.parametrize("rules", [rulesets.gradient, rulesets.zplus_rules], ids=lambda rules: rules.name)
def test_only_the_answer_feeds_the_target(architecture: str, rules: Any) -> None:
    """The read-out is the answer's row, and all that reaches the last block's map comes through it."""
    model, inputs = tiny_model(architecture)
    for number, row in enumerate((2, 4)):
        one = single_example(inputs, number)
        seen = propagate(model, one, TARGETS[number : number + 1], rules, capture=CaptureOptions()).captured
        assert seen is not None
        expected = torch.zeros(seen.readout().shape, dtype=torch.bool)
        expected[0, row] = True
        assert torch.equal(seen.readout() > 0, expected)
        assert seen.readout().sum(1).tolist() == pytest.approx([1])
        arrived = seen.maps[-1].arrived
        assert arrived is not None
        assert torch.equal(arrived.abs().sum((1, 3)) > 0, expected)


# Saved and drawn


def test_json_keeps_the_answer() -> None:
    e = finder()(question="what is it?", context=FAR)
    assert Explanation.from_json(e.to_json()) == e
    assert e.words().part.answer == e.part.answer


def test_html_frames_the_answer_as_one() -> None:
    e = finder()(question="what is it?", context=FAR)
    page = to_html([e, e])
    framed = re.findall(r'<span class="answer">(.*?)</span></span>', page)
    assert [re.sub(r"<[^>]*>", "", one) for one in framed] == ["Seductive movie"] * 2
    assert page.count('<span class="answer">the answer</span>') == 1  # the legend
    assert 'class="answer"' not in to_html([Explainer(*tiny("bert"))("good")])


def test_the_terminal_underlines_the_answer() -> None:
    from rich.console import Console

    from relprop.render.text.terminal import terminal

    e = finder()(question="what is it?", context=FAR)
    lines = Console(width=400, color_system="truecolor", force_terminal=True).render_lines(terminal([e.drawings[0][1]]))
    underlined = ["".join(s.text for s in line if s.style and s.style.underline) for line in lines]
    assert [text for text in underlined if text] == ["Seductive movie", "the answer"]


def test_pictures_frame_the_answer() -> None:
    """One frame a line of the answer, and one in the legend."""
    from matplotlib.patches import FancyBboxPatch

    e = finder()(question="what is it?", context=FAR)
    frames = [one for one in draw([e.drawings[0][1]]).artists if isinstance(one, FancyBboxPatch) and not one.get_fill()]
    assert len(frames) == 2
    plain = draw([Explainer(*tiny("bert"))("good").drawings[0][1]])
    assert not [one for one in plain.artists if isinstance(one, FancyBboxPatch) and not one.get_fill()]


def test_evaluate_says_what_to_use_instead() -> None:
    with pytest.raises(InputError, match="relprop bench run song24-qa"):
        reader().evaluate([(QUESTION, CONTEXT)], methods=["gradient"])
