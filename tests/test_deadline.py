"""A deadline stops its own thread's work wherever it is, and nothing of the model's or of other threads'."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack

from relprop.deadline import OutOfTimeError, check_deadline, has_deadline, stop_when
from relprop.engine.prediction import predict
from relprop.explainer import Explainer
from relprop.graph.molecules import from_smiles
from relprop.registry import METHODS
from tokenizers_for_tests import tiny

TEXT = "a good movie and a dull film"
OPTIONS = {"integrated_gradients": {"steps": 3}, "smoothgrad": {"samples": 3}, "shapley": {"max_evals": 40}}


class Count:
    """How often the deadline is looked at; it is over at the given time."""

    def __init__(self, over_at: int | None = None) -> None:
        self.checks, self._over_at = 0, over_at

    def __call__(self) -> bool:
        self.checks += 1
        return self._over_at is not None and self.checks >= self._over_at


def stopped(work: Callable[[], Any], over_at: int) -> None:
    count = Count(over_at)
    with pytest.raises(OutOfTimeError), stop_when(count):
        work()
    assert count.checks < over_at + 5  # nothing went on after it but what cleans up
    assert not has_deadline()
    assert not _get_current_function_mode_stack()


def state(model: Any) -> Any:
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()]
    return hooks, [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]


@pytest.mark.parametrize("method", METHODS.names())
def test_every_method_stops_at_any_time(method: str) -> None:
    """At its first torch call, in the middle, and at its last; and afterwards it works as before."""
    explainer = Explainer(*tiny("bert"))
    before = state(explainer.model)

    def work() -> Any:
        return explainer(TEXT, method=method, **OPTIONS.get(method, {}))

    expected, count = work(), Count()
    with stop_when(count):
        work()
    assert count.checks > 20
    for over_at in (1, count.checks // 3, count.checks // 2, count.checks):
        stopped(work, over_at)
        assert state(explainer.model) == before
    assert work().scores == expected.scores


def test_loops_without_torch_calls_are_watched() -> None:
    """Per token a maximum flow, or the vectors that it gives in every block."""
    explainer = Explainer(*tiny("bert"))
    checks = {}
    for method in ("rollout", "attention_flow", "alti"):
        explainer(TEXT, method=method)
        with stop_when(count := Count()):
            explainer(TEXT, method=method)
        checks[method] = count.checks
    tokens, blocks = len(explainer(TEXT).units), explainer.model.config.num_hidden_layers
    assert checks["attention_flow"] == checks["rollout"] + tokens
    assert checks["alti"] > checks["rollout"] + tokens * blocks


def test_plain_passes_and_generation_stop() -> None:
    bert, lm = Explainer(*tiny("bert")), Explainer(*tiny("lm"))
    inputs = bert.inputs([TEXT])
    for work in (lambda: predict(bert.model, inputs, [0]), lambda: lm("the movie", generate=4)):
        work()
        with stop_when(count := Count()):
            work()
        assert count.checks > 20
        stopped(work, count.checks // 2)


def test_a_backward_pass_stops() -> None:
    """Which autograd runs without any call that a mode could see."""
    explainer = Explainer(*tiny("bert"))
    explainer(TEXT, method="gradient_x_input")
    backward, count = [], Count()

    def over() -> bool:
        backward.append(torch._C._current_graph_task_id() != -1)
        return count()

    with stop_when(over):
        explainer(TEXT, method="gradient_x_input")
    assert sum(backward) > 10
    stopped(lambda: explainer(TEXT, method="gradient_x_input"), backward.index(True) + 3)


def test_other_threads_with_the_same_model_go_on() -> None:
    explainer = Explainer(*tiny("bert"))
    expected = explainer(TEXT).scores
    over, ready, found = threading.Event(), threading.Event(), []

    def other() -> None:
        ready.wait(600)
        found.append(explainer(TEXT).scores)
        over.set()

    thread = threading.Thread(target=other)
    thread.start()

    def until_the_other_is_done() -> bool:
        """In the middle of a pass of this thread."""
        ready.set()
        return over.wait(600)

    with pytest.raises(OutOfTimeError), stop_when(until_the_other_is_done):
        explainer(TEXT)
    thread.join(600)
    assert found == [expected]


def test_deadlines_nest() -> None:
    check_deadline()
    with stop_when(lambda: True):
        with stop_when(lambda: False):
            check_deadline()
        with pytest.raises(OutOfTimeError):
            check_deadline()
    check_deadline()


def test_molecules_are_laid_out_only_when_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    from rdkit.Chem import rdDepictor

    laid: list[Any] = []
    real = rdDepictor.Compute2DCoords
    monkeypatch.setattr(rdDepictor, "Compute2DCoords", lambda molecule: (laid.append(molecule), real(molecule))[1])
    graph = from_smiles("CCO")
    part = graph.subgraph([0, 1])
    assert not laid
    assert graph.places is not None
    assert part.places is not None
    assert (part.places == graph.places[:2]).all()
    assert len(laid) == 1
