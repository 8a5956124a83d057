"""One pass: the model runs under the rules, the target flows back, and what reaches the sources is returned."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.capture import Capture, HeadMask, Seen
from relprop.engine.checkpoint import Checkpoint
from relprop.engine.ledger import Books
from relprop.engine.propagation import Propagation
from relprop.engine.sources import PLACES, At, Edit, MisfitError, Source, Sources
from relprop.errors import InputError, ModelError, RelpropError, unknown_name
from relprop.rulebook import rulesets
from relprop.rulebook.rulesets import RuleSet
from relprop.targets import Chosen, Labels, choose


@dataclass(frozen=True)
class Flow:
    """What one pass found."""

    chosen: Chosen
    sources: tuple[Source, ...]
    arrived: tuple[Tensor, ...]  # per source: the gradient, or the relevance
    carries: str
    seen: Seen | None = None
    books: Books | None = None

    def relevance(self) -> list[Tensor]:
        """Per source, element by element, in float32 or better."""
        return [
            wide(arrived) if self.carries == "relevance" else wide(source.leaf.detach()) * wide(arrived)
            for source, arrived in zip(self.sources, self.arrived, strict=True)
        ]


def wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def propagate(
    model: nn.Module,
    inputs: Mapping[str, Any],
    target: Any,
    rules: RuleSet,
    *,
    at: At | tuple[At, ...] | None = None,
    edit: Edit | None = None,
    capture: bool | HeadMask = False,
    checkpoint: bool = False,
    ledger: bool = False,
) -> Flow:
    """Run `model(**inputs)` under `rules` and let the target flow back to where the scores are read.

    `at`: the first block's input ("block"), the word embeddings, or the model's float "input"; several are tried in
    order, and None tries all three. `capture` keeps attention maps and block inputs; a `HeadMask` also masks heads.
    """
    plain = edit is None and not (isinstance(capture, HeadMask) or checkpoint or ledger)
    key = _key(model, inputs, target, rules, at) if plain and _shared() is not None else None
    if key is not None and (known := _recall(key, bool(capture))) is not None:
        return known
    flow = _first_place(model, inputs, target, rules, at, edit, capture, checkpoint, ledger)
    if key is not None:
        _remember(key, bool(capture), flow)
    return flow


def _first_place(
    model: nn.Module,
    inputs: Mapping[str, Any],
    target: Any,
    rules: RuleSet,
    at: At | tuple[At, ...] | None,
    edit: Edit | None,
    capture: bool | HeadMask,
    checkpoint: bool,
    ledger: bool,
) -> Flow:
    """The pass at the first place where the model lets scores be read."""
    places = PLACES if at is None else at if isinstance(at, tuple) else (at,)
    for place in places:
        if place not in PLACES:
            raise unknown_name("place", place, PLACES)
        pass_ = _Pass(model, inputs, rules, Sources(model, inputs, place, edit), capture, checkpoint, ledger)
        try:
            flow = pass_.run(target)
        except MisfitError as misfit:
            if len(places) == 1:
                raise InputError(f'scores cannot be read at="{at}": {misfit}; try at="word_embeddings"') from None
            continue
        if flow is not None:
            return flow
    raise ModelError(f"no place to read scores from was found (looked at: {', '.join(places)})")


_memory = threading.local()


@contextmanager
def shared_passes() -> Iterator[None]:
    """Inside, methods that want the same pass (same tensors, target and rules) share one; it is dropped at the end."""
    _memory.flows = {}
    try:
        yield
    finally:
        _memory.flows = None


def _shared() -> dict[Any, Flow] | None:
    return getattr(_memory, "flows", None)


def _key(model: nn.Module, inputs: Mapping[str, Any], target: Any, rules: RuleSet, at: Any) -> tuple[Any, ...]:
    tensors = tuple((name, id(value)) for name, value in inputs.items())
    return id(model), tensors, repr(target), rules.name, at


def _recall(key: tuple[Any, ...], capture: bool) -> Flow | None:
    """A pass that kept maps also serves those who want none."""
    flows = _shared() or {}
    return flows.get((key, True)) or (None if capture else flows.get((key, False)))


def _remember(key: tuple[Any, ...], capture: bool, flow: Flow) -> None:
    flows = _shared()
    if flows is not None:
        flows[key, capture] = flow


class _Pass:
    """The observers of one pass, and the pass itself."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        rules: RuleSet,
        sources: Sources,
        capture: bool | HeadMask,
        checkpoint: bool,
        ledger: bool,
    ) -> None:
        self.model = model
        self.sources = sources
        self.inputs = sources.float_inputs(inputs) if sources.at == "input" else inputs
        self.rules = rules.with_maps() if capture else rules
        self.saver = Checkpoint(model) if checkpoint else None
        heads = capture if isinstance(capture, HeadMask) else None
        self.capture = Capture(model, _batch(inputs), heads) if capture else None
        self.books = Books(model, rules.carries) if ledger else None

    def run(self, target: Any) -> Flow | None:
        """The flow, or None where no source was found."""
        with torch.inference_mode(False), torch.enable_grad(), evaluating(self.model):
            outputs = self._forward()
            if not self.sources.placed:
                return None
            chosen = choose(target, outputs, self.inputs, labels_of(self.model))
            _check_finite(self.model, chosen)
            _check_live(chosen)
            if self.books is not None:
                self.books.look_for_opaque(chosen.value)
            leaves = [source.leaf for source in self.sources.placed]
            arrived = torch.autograd.grad(chosen.value.sum(), leaves, allow_unused=True)
        reached = tuple(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, arrived, strict=True))
        seen = self.capture.seen if self.capture else None
        return Flow(_detached(chosen), tuple(self.sources.placed), reached, self.rules.carries, seen, self.books)

    def _forward(self) -> Any:
        every = (self.sources, self.saver, self.capture, self.books)
        try:
            with Propagation(self.rules, [one for one in every if one is not None]):
                outputs = call(self.model, self.inputs)
        finally:
            if self.saver is not None:
                self.saver.close()
        if self.capture is not None:
            self.capture.finish()
        return outputs


def _detached(chosen: Chosen) -> Chosen:
    rows = None if chosen.rows is None else wide(chosen.rows.detach())
    return Chosen(wide(chosen.value.detach()), chosen.names, rows, chosen.exact)


def predict(model: nn.Module, inputs: Mapping[str, Any], target: Any) -> Chosen:
    """The target read off a plain forward pass."""
    with torch.no_grad(), evaluating(model):
        chosen = choose(target, call(model, inputs), inputs, labels_of(model))
    _check_finite(model, chosen)
    return _detached(chosen)


def predict_edited(model: nn.Module, inputs: Mapping[str, Any], target: Any, at: At, edit: Edit) -> Chosen:
    """The target read off a forward pass with an edited input, and no backward pass."""
    sources = Sources(model, inputs, at, edit, live=False)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        edited = sources.float_inputs(inputs) if at == "input" else inputs
        with Propagation(rulesets.gradient, [sources]):
            outputs = call(model, edited)
        if not sources.placed:
            raise ModelError(f"no place to change the input was found (looked at: {at})")
        return _detached(choose(target, outputs, inputs, labels_of(model)))


def call(model: nn.Module, inputs: Mapping[str, Any]) -> Any:
    """`model(**inputs)`, without a cache of keys and values where the model would keep one."""
    extra = {}
    if "use_cache" in inspect.signature(model.forward).parameters and "use_cache" not in inputs:
        extra["use_cache"] = False
    try:
        return model(**inputs, **extra)
    except (RelpropError, MisfitError):
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise ModelError(f"running the model failed: {type(error).__name__}: {reason}") from error


def labels_of(model: nn.Module) -> Labels | None:
    labels = getattr(getattr(model, "config", None), "id2label", None)
    return {int(index): str(name) for index, name in labels.items()} if isinstance(labels, dict) else None


def _batch(inputs: Mapping[str, Any]) -> int:
    return next((len(value) for value in inputs.values() if isinstance(value, Tensor) and value.dim()), 1)


def _check_finite(model: nn.Module, chosen: Chosen) -> None:
    numbers = chosen.value if chosen.rows is None else chosen.rows
    if not torch.isfinite(numbers).all():
        broken = [name for name, p in model.named_parameters() if not torch.isfinite(p).all()]
        cause = f'its parameter "{broken[0]}" is not finite' if broken else "its weights are finite: check the input"
        raise ModelError(f"the model's output is not a finite number; {cause}")


def _check_live(chosen: Chosen) -> None:
    if not chosen.value.requires_grad:
        raise ModelError(
            "no relevance can flow from the target to the input: under these rules the output is a constant "
            "(explain logits rather than probabilities)"
        )


_evaluating: weakref.WeakKeyDictionary[nn.Module, list[Any]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, each module's own flag restored after; threads that share a model leave it together."""
    with _lock:
        entry = _evaluating.get(model)
        if entry is None:
            training = [module for module in model.modules() if module.training]
            entry = _evaluating[model] = [0, training]
            for module in training:
                module.training = False
        entry[0] += 1
    try:
        yield
    finally:
        with _lock:
            entry[0] -= 1
            if entry[0] == 0:
                del _evaluating[model]
                for module in entry[1]:
                    module.training = True
