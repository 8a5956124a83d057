"""The user's model and torch's own state are as they were: after every method, after an error, and among threads."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graph_models import MOLECULES, graphormer
from models import skip_declined, tiny
from relprop.attribution import attribute
from relprop.errors import ModelError
from relprop.graph import from_smiles
from relprop.readers.graph import GraphReader
from relprop.registry import METHODS

NAMES = METHODS.names()
FAST: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 3},
    "smoothgrad": {"samples": 2},
    "shapley": {"max_evals": 105},  # three orders of 17 patches
}
ARCHITECTURES = ("BertForSequenceClassification", "LlamaForSequenceClassification", "Qwen2MoeForSequenceClassification",
                 "T5ForSequenceClassification")  # fmt: skip
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_forward_hooks_with_kwargs",
         "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called", "_state_dict_hooks",
         "_load_state_dict_pre_hooks")  # fmt: skip
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")


def explain(model: nn.Module, inputs: dict[str, Tensor], method: str, **options: Any) -> Tensor:
    skip_declined(model, method)
    return attribute(model, inputs, 1, method, **{**FAST.get(method, {}), **options}).scores


def state_of(model: Any) -> dict[str, Any]:
    """All that could have been left behind, in a form that compares."""
    modules = dict(model.named_modules())
    tensors = {**dict(model.named_parameters()), **{f"buffer {n}": b for n, b in model.named_buffers()}}
    torch_state = torch.nn.modules.module
    return {
        "tensors": {name: (id(t), t.data_ptr(), t._version, t.tolist()) for name, t in tensors.items()},
        "requires_grad": {name: t.requires_grad for name, t in tensors.items()},
        "grad": {name: t.grad for name, t in tensors.items()},
        "tensor hooks": {name: t._backward_hooks for name, t in tensors.items()},
        "training": {name: m.training for name, m in modules.items()},
        "hooks": {name: [dict(getattr(m, kind)) for kind in HOOKS] for name, m in modules.items()},
        "attributes": {name: sorted(vars(m)) for name, m in modules.items()},
        "own forward": [name for name, m in modules.items() if "forward" in vars(m)],
        "classes": {name: (type(m), type(m).forward, type(m).__call__) for name, m in modules.items()},
        "config": repr(vars(model.config)),
        "attention": getattr(model.config, "_attn_implementation", None),
        "global hooks": [dict(getattr(torch_state, kind)) for kind in GLOBAL_HOOKS],
        "modes": torch.overrides._get_current_function_mode_stack(),
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "saved-tensor hooks": torch._C._autograd._top_saved_tensors_default_hooks(True),
        "functions": (nn.functional.softmax, nn.functional.scaled_dot_product_attention, torch.matmul, Tensor.__add__),
        "generator": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
    }


def assert_untouched(before: dict[str, Any], model: nn.Module) -> None:
    after = state_of(model)
    changed = [name for name in before if before[name] != after[name]]
    assert not changed


def test_the_watch_sees_each_kind_of_change() -> None:
    """What the tests below compare would notice a hook, a flag, a written weight, an own forward, a gradient."""
    changes: dict[str, Callable[[Any], Any]] = {
        "tensors": lambda m: m.classifier.weight.data.add_(1e-12),
        "requires_grad": lambda m: m.classifier.weight.requires_grad_(False),
        "grad": lambda m: setattr(m.classifier.weight, "grad", torch.zeros_like(m.classifier.weight)),
        "tensor hooks": lambda m: m.classifier.weight.register_hook(lambda g: g),
        "training": lambda m: m.dropout.train(),
        "hooks": lambda m: m.dropout.register_forward_hook(lambda *_: None),
        "own forward": lambda m: setattr(m.dropout, "forward", m.dropout.forward),
        "attention": lambda m: setattr(m.config, "_attn_implementation", "other"),
    }
    for name, change in changes.items():
        model, _ = tiny("BertForSequenceClassification")
        before = state_of(model)
        change(model)
        with pytest.raises(AssertionError, match=name):
            assert_untouched(before, model)


@pytest.mark.sliced
@pytest.mark.parametrize("method", NAMES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_method_leaves_the_model_alone(architecture: str, method: str) -> None:
    """Parameters to the bit, buffers, flags, hooks, forwards, config, modes."""
    model, inputs = tiny(architecture)
    given = {name: value.clone() for name, value in inputs.items()}
    before = state_of(model)
    explain(model, inputs, method)
    assert_untouched(before, model)
    assert all(torch.equal(inputs[name], value) for name, value in given.items())


@pytest.mark.parametrize("options", [{"ledger": True}, {"checkpoint": True}, {"ledger": True, "checkpoint": True}])
def test_options_leave_the_model_alone(options: dict[str, bool]) -> None:
    """The same with books and with checkpointing."""
    model, inputs = tiny("BertForSequenceClassification")
    before = state_of(model)
    explain(model, inputs, "lrp_conservative", **options)
    assert_untouched(before, model)


class Broken(Exception):  # noqa: N818 - a planted failure, not an error of ours
    pass


def breakable(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module that a forward pass calls."""
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList):
            yield name, module


@pytest.mark.parametrize("options", [{}, {"checkpoint": True}, {"ledger": True}], ids=["plain", "checkpoint", "ledger"])
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "Qwen2MoeForSequenceClassification"])
def test_an_error_in_any_layer_leaves_the_model_alone(architecture: str, options: dict[str, bool]) -> None:
    """A module that raises, each in turn: its error is the cause of ours, and nothing is left behind."""
    model, inputs = tiny(architecture)
    model.train()
    expected = explain(model, inputs, "lrp_ah_ln")
    broken, raised = [], []
    for name, module in breakable(model):

        def refuse(*_: Any, name: str = name) -> None:
            raise Broken(name)

        handle = module.register_forward_pre_hook(refuse)
        before = state_of(model)
        try:
            explain(model, inputs, "lrp_ah_ln", **options)
        except ModelError as error:
            broken.append(name)
            raised.append(str(error.__cause__))
        assert_untouched(before, model)
        handle.remove()
    assert raised == broken
    assert len(raised) > 20
    assert torch.equal(explain(model, inputs, "lrp_ah_ln"), expected)


@pytest.mark.parametrize("method", NAMES)
def test_an_error_in_the_target_leaves_the_model_alone(method: str) -> None:
    """A target function that raises, after the forward pass."""
    model, inputs = tiny("BertForSequenceClassification")
    model.train()
    before = state_of(model)

    def target(outputs: Any) -> Tensor:
        raise Broken

    with pytest.raises(Broken):
        attribute(model, inputs, target, method)
    assert_untouched(before, model)


@pytest.mark.parametrize("method", NAMES)
def test_training_mode_is_set_aside_and_restored(method: str) -> None:
    """A model in training (dropout 0.5), or with some modules in training, is explained as in eval mode."""
    model, inputs = tiny("BertForSequenceClassification")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    expected = explain(model, inputs, method)
    model.train()
    before = state_of(model)
    assert torch.equal(explain(model, inputs, method), expected)
    assert_untouched(before, model)
    model.eval()
    model.bert.encoder.layer[1].train()
    model.bert.encoder.layer[1].attention.eval()
    before = state_of(model)
    assert torch.equal(explain(model, inputs, method), expected)
    assert_untouched(before, model)


@pytest.mark.sliced
@pytest.mark.parametrize("method", NAMES)
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_callers_may_have_switched_gradients_off(context: Callable[[], Any], method: str) -> None:
    """Inside no_grad or inference_mode the scores are the same, and the mode is still on after."""
    model, inputs = tiny("BertForSequenceClassification")
    expected = explain(model, inputs, method)
    with context():
        before = state_of(model)
        found = explain(model, inputs, method)
        assert not torch.is_grad_enabled()
        assert_untouched(before, model)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("method", NAMES)
def test_inputs_made_in_inference_mode(method: str) -> None:
    """Tensors that were made under inference_mode are no hindrance outside of it."""
    model, inputs = tiny("BertForSequenceClassification")
    expected = explain(model, inputs, method)
    with torch.inference_mode():
        made = {name: value.clone() for name, value in inputs.items()}
    assert torch.equal(explain(model, made, method), expected)


@pytest.mark.parametrize("method", NAMES)
def test_frozen_models_are_explained(method: str) -> None:
    """requires_grad=False on every parameter changes nothing."""
    model, inputs = tiny("BertForSequenceClassification")
    expected = explain(model, inputs, method)
    model.requires_grad_(False)
    before = state_of(model)
    assert torch.equal(explain(model, inputs, method), expected)
    assert_untouched(before, model)


def test_the_users_own_hooks_still_run() -> None:
    """A forward hook that changes a layer's output is part of the model."""
    model, inputs = tiny("BertForSequenceClassification")
    plain = explain(model, inputs, "lrp_ah_ln")
    calls = []
    handle = model.bert.encoder.layer[0].register_forward_hook(lambda m, i, out: calls.append(1) or out * 2)
    assert not torch.equal(explain(model, inputs, "lrp_ah_ln"), plain)
    assert calls
    handle.remove()
    assert torch.equal(explain(model, inputs, "lrp_ah_ln"), plain)


def test_the_users_saved_tensor_hooks_stay() -> None:
    """Hooks of the caller are still the top ones after a checkpointed call, and after a failed one."""
    model, inputs = tiny("BertForSequenceClassification")
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        before = torch._C._autograd._top_saved_tensors_default_hooks(True)
        explain(model, inputs, "lrp_ah_ln", checkpoint=True)
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) == before
        handle = model.bert.encoder.layer[1].attention.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ModelError, match="ZeroDivisionError"):
            explain(model, inputs, "lrp_ah_ln", checkpoint=True)
        handle.remove()
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) == before


def test_a_torch_that_does_not_tell_its_saved_tensor_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 2.6 and 2.7: scores are the same, and only the caller's hooks stay, also after an error."""
    model, inputs = tiny("BertForSequenceClassification")
    plain, top = explain(model, inputs, "lrp_ah_ln"), torch._C._autograd._top_saved_tensors_default_hooks
    monkeypatch.delattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
    assert torch.equal(explain(model, inputs, "lrp_ah_ln", checkpoint=True), plain)
    assert top(True) is None
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        before = top(True)
        assert torch.equal(explain(model, inputs, "lrp_ah_ln"), plain)
        assert top(True) == before
        handle = model.bert.encoder.layer[1].attention.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ModelError, match="ZeroDivisionError"):
            explain(model, inputs, "lrp_ah_ln")
        handle.remove()
        assert top(True) == before


def test_a_training_step_goes_on_as_before() -> None:
    """Gradients that the user has gathered, and the graph that he holds, survive an explanation in between."""
    model, inputs = tiny("BertForSequenceClassification")

    def gradients(between: Callable[[], Any]) -> list[Tensor]:
        model.zero_grad()
        model(**inputs).logits[0, 0].backward()
        loss = model(**inputs).logits[1, 1]
        between()
        loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    plain = gradients(lambda: None)
    found = gradients(lambda: explain(model, inputs, "lrp_conservative"))
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


def threaded_models() -> dict[str, tuple[Any, dict[str, Tensor]]]:
    """Models of texts, prompts, pictures and graphs, and their inputs; fresh ones, equal to the bit."""
    names = ("BertForSequenceClassification", "LlamaForSequenceClassification", "ViTForImageClassification")
    found: dict[str, tuple[Any, dict[str, Tensor]]] = {name: tiny(name, torch.float32) for name in names}
    graphs = graphormer(MOLECULES, dtype=torch.float32)
    found["Graphormer"] = (graphs, GraphReader(graphs).inputs([from_smiles("CCO"), from_smiles("C=CN")]))
    for number, (model, _) in enumerate(found.values()):
        model.train(number % 2 == 0)
    return found


@dataclass(frozen=True)
class ThreadedCall:
    """One call of one of these models."""

    model: str
    method: str
    options: dict[str, bool]
    given: dict[str, Tensor]

    def scores(self, models: dict[str, tuple[Any, dict[str, Tensor]]]) -> Tensor:
        return explain(models[self.model][0], self.given, self.method, **self.options)


def threaded_calls(models: dict[str, tuple[Any, dict[str, Tensor]]]) -> list[ThreadedCall]:
    """Every method on every model: batches, single examples and shorter texts, with ledgers and checkpoints too."""
    calls = []
    for (name, (_, inputs)), method in product(models.items(), NAMES):
        given = [inputs, {key: value[1:] for key, value in inputs.items()}]
        if "input_ids" in inputs:
            given.append({key: value[:, :5] for key, value in inputs.items()})
        switches = [{}, *({one: True} for one in ("ledger", "checkpoint") if one in METHODS[method].options)]
        calls += [ThreadedCall(name, method, options, one) for options, one in product(switches, given)]
    return calls


def run_threads(calls_each: int) -> None:
    """8 threads with mixed calls on 4 models, half of them in training mode: bitwise the numbers of one thread.

    The threads meet models that were never explained before, so that they also fill relprop's caches together.
    """
    alone, models = threaded_models(), threaded_models()
    work = threaded_calls(alone)
    turns = [random.Random(thread).choices(range(len(work)), k=calls_each) for thread in range(8)]
    expected = {index: work[index].scores(alone) for index in sorted({one for turn in turns for one in turn})}
    before = {name: state_of(model) for name, (model, _) in models.items()}
    start = threading.Barrier(8)

    def run(turn: list[int]) -> list[int]:
        start.wait()
        return [index for index in turn if not torch.equal(work[index].scores(models), expected[index])]

    with ThreadPoolExecutor(8) as pool:
        wrong = [index for found in pool.map(run, turns) for index in found]
    assert not wrong, {(work[index].model, work[index].method) for index in wrong}
    for name, (model, _) in models.items():
        assert_untouched(before[name], model)


def test_threads() -> None:
    """8 threads x 25 calls over 4 models."""
    run_threads(25)


@pytest.mark.slow
def test_many_calls_in_threads() -> None:
    """8 threads x 1,000 calls over 4 models."""
    run_threads(1_000)


def test_a_thread_that_fails_does_not_disturb_the_others() -> None:
    """One thread's errors leave another's flags and numbers alone."""
    model, inputs = tiny("BertForSequenceClassification")
    model.train()
    expected = explain(model, inputs, "lrp_ah_ln")
    before = state_of(model)

    def run(thread: int) -> bool:
        for _ in range(10):
            if thread % 2:
                with pytest.raises(Broken):
                    attribute(model, inputs, lambda out: (_ for _ in ()).throw(Broken()), "lrp_ah_ln")
            elif not torch.equal(explain(model, inputs, "lrp_ah_ln"), expected):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))
    assert_untouched(before, model)
