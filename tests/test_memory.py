"""Nothing is kept from call to call: neither tensors that Python sees, nor memory of graphs that it does not see."""

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor, nn

import relprop
from graph_models import ASPIRIN, MOLECULES, graphormer
from models import tiny
from relprop.attribution import attribute
from relprop.errors import ModelError
from relprop.explainer import Explainer
from relprop.graph import from_smiles
from relprop.readers.graph import GraphReader
from relprop.registry import METHODS

NAMES = METHODS.names()
FAST: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 2},
    "smoothgrad": {"samples": 2},
    "shapley": {"max_evals": 131},  # one order of the 65 rows of a digit
}


SAMPLES = Path(relprop.__file__).parent / "models/digits/samples"
EMBEDDED: dict[str, list[Any]] = {
    "sentiment": [
        "a gorgeous, witty, seductive movie.",
        "dull.",
        "not without its charms, though it is far too long .",
    ],
    "digits": [str(one) for one in sorted(SAMPLES.glob("*.png"))[:3]],
    "molecules": [ASPIRIN, "CCO", "c1ccccc1[N+](=O)[O-]"],
}


class _HeapCounts(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                     "fsmblks", "uordblks", "fordblks", "keepcost")]  # fmt: skip


@cache
def _glibc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return None
    library.mallinfo2.restype = _HeapCounts
    return library


def heap() -> int:
    """Bytes that are allocated and not freed, of C++ too; 0 where the C library does not count them."""
    if _glibc() is None:
        return 0
    counts = _glibc().mallinfo2()
    return int(counts.uordblks + counts.hblkhd)


def resident() -> int:
    """Bytes of the process in memory."""
    return int(psutil.Process().memory_info().rss)


def live_tensors() -> int:
    gc.collect()
    return held_tensors()


def held_tensors() -> int:
    """Live tensors, and those that only a collection of garbage would free."""
    return sum(issubclass(type(one), Tensor) for one in gc.get_objects())


@pytest.fixture(scope="module", autouse=True)
def frozen_objects() -> Iterator[None]:
    """Of the tests of this file, until its end: to search all that a process holds takes longer than a call."""
    yield
    gc.unfreeze()


def forget_older_objects() -> None:
    """From here on objects that are older are neither searched nor counted."""
    gc.collect()
    gc.freeze()


def assert_nothing_is_kept(call: Callable[[], Any], calls: int = 3, warm: int = 1, rounds: int = 6) -> None:
    """Every leak of a call shows: as a tensor in the count, or as some hundred bytes in the median growth of the heap.

    Python's own caches grow too, but not for ever: only what grows in every round is a leak.
    """
    for _ in range(warm):
        call()
    medians = []
    for _ in range(rounds):
        forget_older_objects()
        tensors, used = [live_tensors()], [heap()]
        for _ in range(calls):
            call()
            tensors.append(live_tensors())
            used.append(heap())
        medians.append(median(after - before for before, after in pairwise(used)))
        if tensors == tensors[:1] * len(tensors) and medians[-1] < 200:
            return
    raise AssertionError(f"tensors: {tensors}; median growth of the heap in bytes: {medians}")


def assert_freed_at_once(call: Callable[[], Any]) -> None:
    """No tensor of a call waits for Python to collect garbage, which happens when it likes: a cycle holds the rest."""
    forget_older_objects()
    gc.disable()
    try:
        before = held_tensors()
        call()
        assert held_tensors() == before
    finally:
        gc.enable()


@cache
def subject(kind: str) -> tuple[nn.Module, dict[str, Any]]:
    """A tiny model and one example."""
    if kind == "graph":
        model = graphormer(MOLECULES)
        return model, GraphReader(model).inputs([from_smiles(ASPIRIN)])
    names = {"text": "BertForSequenceClassification", "image": "ViTForImageClassification"}
    model, inputs = tiny(names[kind])
    return model, {name: value[:1] for name, value in inputs.items()}


def variants(method: str) -> list[dict[str, bool]]:
    own = METHODS[method].options
    return [{}, *({name: True} for name in ("ledger", "checkpoint") if name in own)]


def explain(kind: str, method: str, **options: Any) -> Any:
    model, inputs = subject(kind)
    return attribute(model, inputs, 1, method, **{**FAST.get(method, {}), **options})


def test_the_count_sees_a_leak_of_one_tensor_and_of_a_graph() -> None:
    """Both kinds of leak that the tests below look for: a list, and a cycle through C++."""
    kept = []
    with pytest.raises(AssertionError):
        assert_nothing_is_kept(lambda: kept.append(torch.zeros(1)))

    def cycle() -> None:
        x = torch.zeros(1, requires_grad=True) * 1
        x.register_hook(lambda _: x)

    with pytest.raises(AssertionError):
        assert_nothing_is_kept(cycle)
    if _glibc() is not None:  # held in C++ alone: Python sees no tensor

        def unseen() -> None:
            x = torch.zeros(64, requires_grad=True)
            kept.append((x * x.exp()).grad_fn)

        with pytest.raises(AssertionError):
            assert_nothing_is_kept(unseen)


def test_a_cycle_that_holds_a_tensor_is_seen() -> None:
    def cycle() -> None:
        held: list[Any] = [torch.zeros(1)]
        held.append(held)

    with pytest.raises(AssertionError):
        assert_freed_at_once(cycle)


@pytest.mark.sliced
@pytest.mark.parametrize("method", NAMES)
@pytest.mark.parametrize("kind", ["text", "image", "graph"])
def test_no_call_keeps_anything(kind: str, method: str) -> None:
    """Every method, also with its ledger and with checkpoints. (A service that explained with ledgers held some 30 MB
    of tensors in cycles, more or less, as it happened.)"""
    for options in variants(method):
        call = partial(explain, kind, method, **options)
        assert_nothing_is_kept(call)
        assert_freed_at_once(call)


@pytest.mark.parametrize("method", ["lrp_conservative", "gae", "lrp", "transformer_attribution", "alti"])
def test_no_failed_call_keeps_anything(method: str) -> None:
    """An error in the middle of the model, where a graph is there and nothing has flowed back through it."""
    model, inputs = tiny("BertForSequenceClassification")
    attribute(model, inputs, 1, method)

    def refuse(*_: Any) -> None:
        raise ValueError("a planted failure")

    handle = model.bert.encoder.layer[1].output.register_forward_hook(refuse)
    for options in variants(method):

        def call(options: dict[str, bool] = options) -> None:
            with pytest.raises(ModelError, match="a planted failure"):
                attribute(model, inputs, 1, method, **options)

        assert_nothing_is_kept(call)
    handle.remove()


@pytest.mark.slow
@pytest.mark.parametrize("method", NAMES)
def test_200_calls_keep_nothing(method: str) -> None:
    """Texts, pictures and graphs of different lengths, by the embedded models: tensors and memory."""
    every = [(Explainer(name), given) for name, given in EMBEDDED.items()]
    options = FAST.get(method, {})

    def call() -> None:
        for explain, given in every:
            for one in given:
                explain(one, method=method, **options)

    assert_nothing_is_kept(call, calls=200 // len(EMBEDDED["sentiment"]) // len(EMBEDDED), rounds=3)


@pytest.mark.slow
def test_memory_is_flat_over_3000_mixed_calls() -> None:
    """Resident memory grows by less than 3 %, from the 300th call on."""
    explainers = {name: Explainer(name) for name in EMBEDDED}
    work = [
        (explainers[name], one, method, options)
        for method in NAMES
        if method != "shapley"  # a thousand passes per call
        for name, given in EMBEDDED.items()
        for one in given
        for options in variants(method)
    ]
    sizes = []
    for turn in range(3000):
        explain, given, method, options = work[turn * 7 % len(work)]
        explain(given, method=method, **{**FAST.get(method, {}), **options})
        if turn >= 300 and turn % 100 == 0:
            gc.collect()
            sizes.append(resident())
    print([round(size / 2**20, 1) for size in sizes])
    assert max(sizes) < 1.03 * sizes[0]
