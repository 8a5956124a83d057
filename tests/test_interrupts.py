"""An interrupt (Ctrl-C) at any bytecode leaves no trace: not in the model, not in torch, not in relprop's caches."""

import ast
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import relprop
from models import tiny
from relprop.attribution import attribute
from relprop.engine import model_call, pass_cache, restoring, survey
from relprop.engine.model_call import evaluating
from relprop.engine.pass_cache import shared_passes
from test_untouched import state_of

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupted finalisers

# Where contexts are entered and left.
CONTEXTS = ("contextlib.py", "torch/autograd/grad_mode.py", "torch/autograd/graph.py", "torch/overrides.py",
            "engine/restoring.py", "engine/model_call.py", "engine/checkpoint.py", "engine/passes.py",
            "engine/forward_passes.py", "engine/decompose.py", "engine/pass_cache.py")  # fmt: skip


class Interrupter:
    """Raises KeyboardInterrupt before a given bytecode of the traced files; counts them."""

    def __init__(self, at: int | None = None, files: tuple[str, ...] | None = CONTEXTS) -> None:
        self.at, self.files, self.count = at, files, 0

    def __enter__(self) -> "Interrupter":
        self.before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self.before)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if self.files is not None and not file.endswith(self.files) and name not in ("__enter__", "__exit__"):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._bytecode

    def _bytecode(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self._bytecode


class Writing(nn.Module):
    """A block that writes live values to a buffer of its own, and counts its calls in another."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.register_buffer("latest", torch.zeros(1, 7, 1, dtype=torch.float64))
        self.register_buffer("count", torch.ones(1, dtype=torch.float64))
        self.begun = self.done = 1

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        again = torch._C._current_graph_task_id() != -1
        self.begun += not again
        self.count.copy_(self.count + 1)
        self.latest.copy_(x[:1, :, :1])
        self.done = self.begun
        return self.block(x * (self.count / self.count), *args, **kwargs)


def subject() -> tuple[Any, dict[str, Tensor]]:
    """A model with some modules in training and buffers that it writes to."""
    model, inputs = tiny("BertForSequenceClassification")
    model.bert.encoder.layer[1] = Writing(model.bert.encoder.layer[1])
    model.train()
    model.bert.encoder.layer[0].eval()
    return model, inputs


class Passing(TorchFunctionMode):
    """A mode of the caller's own."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def saving() -> Iterator[None]:
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        yield


AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nothing": nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "a mode": Passing,
    "saved-tensor hooks": saving,
}
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("lrp_conservative", {"ledger": True}), ("lrp_ah_ln", {"checkpoint": True}), ("transformer_attribution", {}),
    ("alti", {}), ("gae", {}), ("occlusion", {}), ("lrp", {}), ("attention_last", {}),
]  # fmt: skip


def own_state() -> dict[str, Any]:
    """What relprop and torch keep of this thread or process, beside the model's own state."""
    dynamo = sys.modules.get("torch._dynamo")
    return {
        "held modules": list(model_call._evaluating),
        "eager": list(model_call._eager),
        "stance": None if dynamo is None else dynamo.eval_frame._stance,
        "notes": list(restoring._notes()),
        "lock": restoring.lock._is_owned(),
        "shared passes": pass_cache._shared(),
        "torch functions": torch._C._get_torch_function_state(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "autocast": (torch.is_autocast_enabled("cpu"), (torch.ones(1, 1) @ torch.ones(1, 1)).dtype),
        "filters": list(warnings.filters),
        "cache matters": len(model_call._cache_matters),
    }


def state(model: Any) -> dict[str, Any]:
    """All of the model's state, except the numbers in the buffers that it writes to itself."""
    found = state_of(model)
    for name in [name for name in found["tensors"] if name.endswith((".latest", ".count"))]:
        found["tensors"][name] = found["tensors"][name][:2]
    return {**found, "attributes": None}


def assert_no_trace(model: Any, before: dict[str, Any]) -> None:
    after = {**own_state(), **state(model)}
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not changed, changed
    block = model.bert.encoder.layer[1]
    assert block.begun - 1 <= block.count.item() <= block.begun
    assert block.begun > block.done or block.count.item() == block.begun
    block.count.fill_(block.begun)


def interrupted(
    model: Any, call: Callable[[], Tensor], expected: Tensor, at: int, files: tuple[str, ...] | None = CONTEXTS
) -> bool:
    """Whether the call was interrupted there. Raises if that left a trace, at once or when the traceback is gone."""
    before = {**own_state(), **state(model)}
    try:
        with Interrupter(at, files):
            call()
    except KeyboardInterrupt:
        assert_no_trace(model, before)
    else:
        return False
    assert_no_trace(model, before)
    assert torch.equal(call(), expected)
    return True


def bytecodes(call: Callable[[], Any], files: tuple[str, ...] | None = CONTEXTS) -> int:
    with Interrupter(files=files) as counted:
        call()
    return counted.count


def scores(model: Any, inputs: dict[str, Tensor], method: str, options: dict[str, Any], anew: bool) -> Tensor:
    """`anew`: as if the model had never been explained before."""
    if anew:
        survey._plans.pop(model, None)
    with shared_passes():
        return attribute(model, inputs, 1, method, **options).scores


def interrupt_at_random(each: int, seed: int, files: tuple[str, ...] | None = CONTEXTS) -> int:
    """`each` interrupts per method, and as many on a model that is new to relprop; returns how many came through."""
    chance, count = random.Random(seed), 0
    for number, (method, options) in enumerate(METHODS):
        model, inputs = subject()
        with list(AROUND.values())[number % len(AROUND)]():
            expected = scores(model, inputs, method, options, anew=True)
            for anew in (False, True):
                call = partial(scores, model, inputs, method, options, anew)
                total = bytecodes(call, files)
                count += sum(interrupted(model, call, expected, chance.randint(1, total), files) for _ in range(each))
    return count


def test_interrupts_at_random() -> None:
    """Where contexts are entered and left: a few per method."""
    assert interrupt_at_random(4, seed=0) > 40


@pytest.mark.slow
def test_500_interrupts_at_random() -> None:
    """At any bytecode, of torch and of the model too."""
    assert interrupt_at_random(16, seed=1) + interrupt_at_random(17, seed=2, files=None) >= 500


def test_interrupts_of_a_rules_context() -> None:
    """A context of the user's own: at every bytecode of its `__enter__`."""
    x = torch.ones(2, requires_grad=True)

    def call() -> None:
        with relprop.rules("lrp_ah_ln"):
            (x * x).sum()

    before = own_state()
    entering = ("engine/propagation.py",)
    for at in range(1, 40):
        try:
            with Interrupter(at, entering):
                relprop.rules("lrp_ah_ln").__enter__()
        except KeyboardInterrupt:
            restoring._notes().clear()  # a note without effect, if it was the last bytecode
            assert own_state() == before
            assert not torch.overrides._get_current_function_mode_stack()
            assert restoring.default_hooks() is None
        else:
            raise AssertionError("not interrupted")
        call()


def test_a_model_and_its_wrapper_overlap() -> None:
    """Two passes hold the same modules; whichever ends last restores them, and each restores once."""
    inner = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    inner[0].eval()
    wrapper = nn.Sequential(inner, nn.Dropout())
    flags = [module.training for module in wrapper.modules()]
    for first, second in ((inner, wrapper), (wrapper, inner)):
        one, other = evaluating(first), evaluating(second)
        one.__enter__()
        other.__enter__()
        assert not any(module.training for module in wrapper.modules())
        one.__exit__(None, None, None)
        assert not any(module.training for module in second.modules())
        other.__exit__(None, None, None)
        assert [module.training for module in wrapper.modules()] == flags


RUNS = ("evaluating", "Propagation")


def test_every_function_that_runs_a_model_restores() -> None:
    """By its source: whoever enters these contexts is decorated, so that an interrupt of `__exit__` is undone too."""
    entering = []
    for file in sorted(Path(relprop.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            contexts = [item.context_expr for one in ast.walk(node) if isinstance(one, ast.With) for item in one.items]
            runs = [one.func.id for one in contexts if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
            if set(runs) & set(RUNS):
                entering.append((node.name, any(ast.unparse(one) == "restoring" for one in node.decorator_list)))
    assert len(entering) > 10
    assert [name for name, restored in entering if not restored] == ["_forward"]  # called by a function that restores
