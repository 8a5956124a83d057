"""Calling the user's model: what is around it is taken off, what it is given stays as it was, and errors are true."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import relprop
from relprop.attribution import attribute
from relprop.checking import check
from relprop.engine.model_call import call, evaluating, unexplained_inputs
from relprop.engine.wrappers import unwrapped
from relprop.errors import InputError, ModelError
from tokenizers_for_tests import wordpiece

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself

LABELS = {0: "bad", 1: "good", 2: "fine"}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
IDS = torch.randint(20, 99, (2, 7), generator=torch.Generator().manual_seed(0))
INPUTS = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}


def bert(vocabulary: int = 99) -> Any:
    torch.manual_seed(0)
    config = hf.BertConfig(vocab_size=vocabulary, id2label=LABELS, max_position_embeddings=64, **SMALL)
    return hf.BertForSequenceClassification(config).eval()


def compiled_part() -> Any:
    model = bert()
    model.bert.encoder.layer[0] = torch.compile(model.bert.encoder.layer[0])
    return model


def compiled_in_place() -> Any:
    model = bert()
    model.compile()
    return model


WRAPPED = {
    "compiled": lambda: torch.compile(bert()),
    "compiled part": compiled_part,
    "compiled in place": compiled_in_place,
    "data parallel": lambda: nn.DataParallel(bert()),
    "compiled data parallel": lambda: torch.compile(nn.DataParallel(bert())),
}


@pytest.mark.parametrize("method", ["lrp_conservative", "rollout", "occlusion"])
@pytest.mark.parametrize("kind", WRAPPED)
def test_what_is_around_a_model_changes_nothing(kind: str, method: str) -> None:
    """Scores, and the names of the classes."""
    found, plain = (attribute(model, INPUTS, "good", method) for model in (WRAPPED[kind](), bert()))
    assert torch.allclose(found.scores, plain.scores, atol=1e-7)
    assert found.target == plain.target == ("good", "good")


def test_a_compiled_model_is_checked_and_explained_as_its_own() -> None:
    report = check(torch.compile(bert()), INPUTS)
    assert report.closes
    assert report.change == check(bert(), INPUTS).change
    tokenizer = wordpiece()
    explainer = relprop.Explainer(nn.DataParallel(bert(len(tokenizer))), tokenizer)
    assert explainer.labels == LABELS
    assert explainer("a witty film", target="fine").target == "fine"


def test_compiling_goes_on_after() -> None:
    """torch's setting is restored, also after an error and with threads that overlap."""
    from torch._dynamo import eval_frame

    torch.compile(bert())
    before = eval_frame._stance
    gate, done = threading.Event(), threading.Event()

    def other() -> None:
        with evaluating(bert()):
            gate.set()
            done.wait(600)

    thread = threading.Thread(target=other)
    thread.start()
    assert gate.wait(600)

    def failing() -> None:
        with evaluating(bert()):
            assert eval_frame._stance.stance == "force_eager"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    done.set()
    thread.join()
    assert eval_frame._stance == before


def test_unwrapped_leaves_others_alone() -> None:
    model = bert()
    assert unwrapped(model) is model
    assert unwrapped(torch.compile(nn.DataParallel(model))) is model


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(99, 8), nn.Linear(8, 3)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.embed(input_ids).mean(1))


def part_scripted() -> nn.Module:
    model = Toy()
    model.head = torch.jit.script(model.head)
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: torch.jit.trace(Toy(), (IDS,)), "it is traced or scripted by torch.jit"),
        (lambda: torch.jit.script(Toy()), "it is traced or scripted by torch.jit"),
        (part_scripted, 'its part "head" is traced or scripted by torch.jit'),
        (lambda: torch.export.export(Toy(), (IDS,)), "an exported program cannot be explained"),
        (lambda: torch.export.export(Toy(), (IDS,)).module(), "it is exported by torch.export"),
    ],
    ids=["traced", "scripted", "part scripted", "exported", "exported module"],
)
def test_a_model_whose_calls_cannot_be_seen_is_refused(made: Any, message: str) -> None:
    for use in (attribute, check):
        with pytest.raises(ModelError, match=message):
            use(made(), {"input_ids": IDS})


def test_a_plain_graph_of_a_model_is_explained() -> None:
    model = Toy()
    found = attribute(torch.fx.symbolic_trace(model), {"input_ids": IDS}, 1)
    assert torch.allclose(found.scores, attribute(model, {"input_ids": IDS}, 1).scores)


# What the model is given


def causal() -> Any:
    torch.manual_seed(0)
    return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=99, **SMALL)).eval()


@pytest.mark.parametrize("method", ["lrp_conservative", "occlusion", "rollout"])
def test_a_cache_stays_as_it_was(method: str) -> None:
    """And every pass sees it as given: the value is the plain model's."""
    model = causal()
    past = model(IDS[:, :4], use_cache=True).past_key_values
    kept = [(layer.keys.clone(), layer.values.clone()) for layer in past.layers]
    inputs = {"input_ids": IDS[:, 4:], "past_key_values": past, "attention_mask": torch.ones(2, 7)}
    try:
        found = attribute(model, inputs, 5, method)
    except (InputError, ModelError):
        assert method != "lrp_conservative"  # maps have columns, and copies would need rows, of the cache
    else:
        assert torch.allclose(found.value, model(IDS).logits[:, -1, 5], atol=1e-5)
    assert past.get_seq_length() == 4
    for layer, (keys, values) in zip(past.layers, kept, strict=True):
        assert torch.equal(layer.keys, keys)
        assert torch.equal(layer.values, values)
    (sentence,) = unexplained_inputs(inputs)
    assert 'input "past_key_values" (DynamicCache) holds numbers that feed the output, and no score covers' in sentence


class Greedy(nn.Module):
    """Writes to all that it is given but tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.toy = Toy()

    def forward(self, input_ids: Tensor, extra: Any) -> Tensor:
        shift = extra["states"][0].sum() if isinstance(extra, dict) else extra[0].sum()
        for one in extra["states"] if isinstance(extra, dict) else extra:
            one.add_(1)
        if isinstance(extra, list):
            extra.append(torch.ones(1))
        return self.toy(input_ids) + shift


@pytest.mark.parametrize(
    "extra", [[torch.zeros(2)], (torch.zeros(2),), {"states": [torch.zeros(2)]}], ids=["list", "tuple", "dict"]
)
def test_objects_with_tensors_stay_as_they_were(extra: Any) -> None:
    model = Greedy()
    for _ in range(2):
        found = attribute(model, {"input_ids": IDS, "extra": extra}, 1)
        assert torch.allclose(found.value, model.toy(IDS)[:, 1])
    held = extra["states"] if isinstance(extra, dict) else extra
    assert len(held) == 1
    assert not held[0].any()
    assert len(unexplained_inputs({"input_ids": IDS, "extra": extra})) == 1


def test_a_tensor_with_a_gradient_is_passed_on() -> None:
    """A copy of what is explained would be cut off from it."""
    leaf = torch.zeros(2, requires_grad=True)
    seen: list[Any] = []

    class Keeps(Toy):
        def forward(self, input_ids: Tensor, extra: Any = None) -> Tensor:
            seen.append(extra[0])
            return super().forward(input_ids)

    call(Keeps(), {"input_ids": IDS, "extra": [leaf.double()]})
    assert seen[0].requires_grad


def test_inputs_that_hold_nothing_need_no_sentence() -> None:
    assert unexplained_inputs({"input_ids": IDS, "use_cache": False, "sizes": [(3, 4)]}) == []
    assert len(unexplained_inputs({"input_ids": IDS, "ids": [IDS], "weights": [0.5, 1.5]})) == 2
    assert unexplained_inputs({"input_ids": IDS, "past_key_values": hf.DynamicCache()}) == []


# Errors that say what is true


class Output(nn.Module):
    def __init__(self, made: Any) -> None:
        super().__init__()
        self.toy, self.made = Toy(), made

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.made(self.toy(input_ids))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda y: y.detach() * 10 - 50, "may not use that input, or detach its output or compute it under no_grad"),
        (lambda y: (y * 100).round().long(), "it is of type int64: explain the scores before they are rounded"),
        (lambda y: y.detach().softmax(-1), "if it is a probability, explain the logit before the softmax or sigmoid"),
    ],
    ids=["detached", "integers", "probabilities"],
)
def test_a_constant_output_is_told_for_what_it_is(made: Any, message: str) -> None:
    with pytest.raises(ModelError, match=f"does not depend on any explained input .*{message}") as caught:
        attribute(Output(made), {"input_ids": IDS}, 1)
    assert ("probability" in str(caught.value)) == ("probability" in message)


def test_failures_are_blamed_on_whose_they_are() -> None:
    """A model that fails by itself, and one that fails only when it is watched."""

    class Fails(Toy):
        def forward(self, input_ids: Tensor) -> Tensor:
            raise ValueError("no such luck")

    class Shy(Toy):
        def forward(self, input_ids: Tensor) -> Tensor:
            if torch._C._is_torch_function_mode_enabled():
                raise ValueError("watched")
            return super().forward(input_ids)

    with pytest.raises(ModelError, match="running the model failed: ValueError: no such luck"):
        attribute(Fails(), {"input_ids": IDS}, 1)
    with pytest.raises(ModelError, match="the model runs by itself, but relprop cannot follow it: ValueError: watched"):
        attribute(Shy(), {"input_ids": IDS}, 1)
