"""Operations that relevance cannot pass: refused by name, at once or when relevance reaches them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from relprop.engine.module_stack import module_frames, module_of, path_of
from relprop.errors import UnruledOpError
from relprop.ops import LIKE, VALUELESS, Op
from relprop.rulebook.product import live_tensors
from relprop.rulebook.rulesets import RuleSet

NO_GRADIENT = "an operation without a gradient: use a method that needs none, such as occlusion"
NO_UNITS = "an operation without a gradient, by which units are found: explain the model as it was before quantisation"


def location() -> str:
    """The running module as ' in "path"'; empty outside of modules."""
    running = [module_of(frame) for frame in module_frames()]
    return f' in "{path_of(running[0], running[-1])}"' if running else ""


def flows_back(result: Any, args: tuple[Any, ...]) -> bool:
    """Whether a gradient flows from result to args: torch only warns if there is none, or fails far away."""
    results = live_tensors(result)
    if not results:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            zeros = [torch.zeros_like(one) for one in results]
            grads = torch.autograd.grad(results, live_tensors(*args), zeros, retain_graph=True, allow_unused=True)
        except (RuntimeError, NotImplementedError):
            return False
    return any(one is not None for one in grads)


def refusal(op: Op, reason: str, where: str | None = None) -> UnruledOpError:
    return UnruledOpError(f'relevance reached "{op.name}"{location() if where is None else where}, {reason}')


def with_gradient(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """The result. Raises if floats computed from live tensors have no gradient: they would count as constants."""
    if isinstance(result, Tensor) and result.requires_grad:
        return result
    results = [one for one in (result if isinstance(result, tuple | list) else (result,)) if isinstance(one, Tensor)]
    lost = any(one.is_floating_point() for one in results) and not live_tensors(*results)
    intended = op.name in VALUELESS or op.name in LIKE or op.name in ("detach", "data")
    if lost and not intended and live_tensors(*args, *kwargs.values()):
        raise refusal(op, NO_GRADIENT)
    return result


def guard(result: Any, op: Op, rules: RuleSet, reason: str) -> Any:
    """The result; raises in the backward pass if relevance reaches it. Branches without relevance are harmless."""
    where = location()

    def refuse(relevance: Tensor) -> None:
        if not _gradient_flows(rules) and torch.count_nonzero(relevance):
            raise refusal(op, reason, where)

    results = [one for one in (result if isinstance(result, tuple | list) else (result,)) if isinstance(one, Tensor)]
    if op.custom and any(one.is_floating_point() for one in results) and not live_tensors(results):
        raise refusal(op, reason, where)  # it would count as a constant
    for tensor in live_tensors(results):
        tensor.register_hook(refuse)
    return result


def _gradient_flows(rules: RuleSet) -> bool:
    """Whether a two-way pass is in its gradient phase."""
    return rules.settings.phase is not None and rules.settings.phase.gradient


def opaque_functions(value: Tensor) -> Iterator[Any]:
    """The model's own autograd functions in the graph of `value`: they are not torch calls."""
    nodes, visited = [value.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        nodes += [following for following, _ in node.next_functions]
        cls = getattr(node, "_forward_cls", None)
        if cls is not None and not cls.__module__.startswith("relprop."):
            yield node


def guard_opaque(value: Tensor, rules: RuleSet) -> None:
    """Raise in the backward pass if relevance reaches one: it would be treated as a gradient."""
    for node in opaque_functions(value) if rules.carries == "relevance" else ():
        name = node._forward_cls.__name__

        def refuse(flowing: tuple[Tensor | None, ...], name: str = name) -> None:
            if not _gradient_flows(rules) and any(one is not None and one.any() for one in flowing):
                raise UnruledOpError(
                    f'relevance reached "{name}", a function with a backward pass of its own: use lrp_ah_ln'
                )

        node.register_prehook(refuse)
