"""The conservation ledger: for every call, the relevance of its result minus that of its arguments.

This is what the call itself took. Summed over all calls it telescopes: value = what reached the inputs + what each call
took. Biases and other additive constants may take a share (Euler's theorem); whatever else takes or creates relevance
is unexplained, and is listed by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.module_stack import QualifiedNames
from relprop.engine.observer import Observer, PropagationMode, Run
from relprop.engine.refusals import opaque_functions
from relprop.engine.saved_tensors import address
from relprop.ops import AFFINE, Op, bias_of
from relprop.rulebook.norm import CARRYING
from relprop.rulebook.rulesets import Carries, RuleSet
from relprop.rulebook.softmax import AT_REST
from relprop.rulebook.treatments import Expand
from relprop.types import Entry, Kind, Ledger

Hook = Callable[[Tensor | None], None]


@dataclass
class _Account:
    """What one call took, filled in during the backward pass."""

    module: str
    op: str
    rest: Kind  # the kind of what is not taken by a bias
    taken: float = 0.0
    bias: float = 0.0
    node: Any = None  # of its result in the graph, until the accounts are weighed
    weight: float = 1.0  # where scores are a mean over several states: the share of these that lie below the call


class LedgerKeeper(Observer):
    """Opens an account per call in the forward pass; the backward pass fills them."""

    def __init__(self, model: nn.Module, rules: RuleSet) -> None:
        self._names = QualifiedNames(model)
        self._rules = rules
        self._carries = rules.carries
        self._accounts: list[_Account] = []
        self._named_constant: str | None = None
        self._opaque: list[str] = []
        self._saved: dict[int, list[list[Tensor]]] = {}

    def before_call(self, mode: PropagationMode, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """`x + parameter`: keep the parameter's name before the parameter is detached."""
        self._named_constant = None
        if op.name == "add":
            self._named_constant = next(
                (n for a in args if isinstance(a, Tensor) and (n := self._names.parameter(a))), None
            )

    def around_call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        account = self._new_account(op)
        aliases: dict[int, Tensor] = {}
        args, values = (self._aliased(given, account, aliases) for given in (args, tuple(kwargs.values())))
        kwargs = dict(zip(kwargs, values, strict=True))
        result = run(op, args, kwargs)
        if id(result) in aliases:
            return aliases[id(result)]  # returned as it is, for instance by dropout
        taking = self._carries == "gradient" and self._rules.get(op.name) not in CARRYING
        bias = bias_of(op, args, kwargs) if taking else None
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                account.node = tensor.grad_fn
                tensor.register_hook(_flow_out(self._carries, self._save(tensor), account, bias))
        return result

    def _new_account(self, op: Op) -> _Account:
        affine = (op.name in AFFINE and op.name not in _NOT_LINEAR) or self._rests(op)
        rest: Kind = "constant" if affine else "unexplained"
        module, name = self._names.current_module(), op.name
        if self._named_constant:
            module, _, name = self._named_constant.rpartition(".")
            rest = "bias" if "bias" in name else "constant"
        account = _Account(module, name, rest if self._carries == "gradient" else "unexplained")
        self._accounts.append(account)
        return account

    def _rests(self, op: Op) -> bool:
        """Whether the operation's rule leaves to a constant what the operation gives at rest."""
        rule = self._rules.get(op.name)
        return (rule.fused if isinstance(rule, Expand) else rule) in AT_REST

    def _aliased(self, values: tuple[Any, ...], account: _Account, aliases: dict[int, Tensor]) -> tuple[Any, ...]:
        """An alias per live tensor, so that what flows back to it from this call alone can be read.

        `aliases` gets the tensor of each, by the alias's id.
        """
        aliased: list[Any] = []
        for value in values:
            if isinstance(value, Tensor) and value.requires_grad:
                alias = value.view_as(value)
                alias.register_hook(_flow_in(self._carries, self._save(value), account))
                aliases[id(alias)] = value
                value = alias
            elif type(value) in (tuple, list):
                value = type(value)(self._aliased(tuple(value), account, aliases))
            aliased.append(value)
        return tuple(aliased)

    def _save(self, tensor: Tensor) -> list[Tensor]:
        """The tensor's present value, for the backward pass; copied only before its memory is overwritten."""
        saved = [tensor.detach()]
        self._saved.setdefault(address(tensor), []).append(saved)
        return saved

    def before_write(self, tensor: Tensor) -> None:
        for saved in self._saved.pop(address(tensor), ()):
            saved[0] = saved[0].clone()

    def weigh(self, share: Callable[[Any], float] | None) -> None:
        """Before the backward pass: the weight of every account, by the node of its call. None: all weigh 1."""
        for account in self._accounts:
            account.weight = 1.0 if share is None or account.node is None else share(account.node)
            account.node = None  # its graph would never be freed

    def note_opaque_functions(self, value: Tensor) -> None:
        """Note autograd functions of the model's own: they are not torch calls and cannot be traced, only named."""
        self._opaque += [node._forward_cls.__name__ for node in opaque_functions(value)]

    def op_totals(self) -> dict[str, tuple[int, float]]:
        """Per operation: the number of calls, and how much they took without explanation."""
        op_totals: dict[str, tuple[int, float]] = {}
        for account in self._accounts:
            calls, unexplained = op_totals.get(account.op, (0, 0.0))
            lost = account.taken - account.bias if account.rest == "unexplained" else 0.0
            op_totals[account.op] = (calls + 1, unexplained + lost)
        return op_totals

    def ledger(self, value: float, inputs: Iterable[Entry]) -> Ledger:
        """The ledger of one example: the inputs, every account that took something, and what was not traced."""
        entries = list(inputs)
        # Unexplained gains and losses of one operation stay apart: their sum would hide them.
        sums: dict[tuple[str, str, Kind, bool], float] = {}
        for account in self._accounts:
            parts: list[tuple[Kind, float]] = [("bias", account.bias), (account.rest, account.taken - account.bias)]
            for kind, amount in parts:
                if amount:
                    key = (account.module, account.op, kind, kind == "unexplained" and amount < 0)
                    sums[key] = sums.get(key, 0.0) + amount * account.weight
        entries += [Entry(module, op, kind, amount) for (module, op, kind, _), amount in sums.items()]
        untraced = value - sum(entry.value for entry in entries)
        name = f"not traced ({', '.join(sorted(set(self._opaque)))})" if self._opaque else "not traced"
        return Ledger(value, (*entries, Entry("", name, "unexplained", untraced)))


# The hooks that fill the accounts refer to values only: a hook that leads to a live tensor keeps its graph for ever.


def _flow(carries: Carries, saved: list[Tensor], arrived: Tensor) -> float:
    tensor = saved[0]
    if carries == "relevance":
        return arrived.double().sum().item()
    if torch.is_complex(tensor):
        return (tensor * arrived.conj()).real.double().sum().item()
    product = tensor.double() * arrived.double()
    return torch.where(arrived == 0, 0, product).sum().item()  # also where the tensor is NaN or infinite


def _flow_in(carries: Carries, saved: list[Tensor], account: _Account) -> Hook:
    def add(arrived: Tensor | None) -> None:
        if arrived is None:
            return
        account.taken -= _flow(carries, saved, arrived)

    return add


def _flow_out(carries: Carries, saved: list[Tensor], account: _Account, bias: tuple[Tensor, int] | None) -> Hook:
    def add(arrived: Tensor | None) -> None:
        if arrived is None:
            return
        account.taken += _flow(carries, saved, arrived)
        if bias is not None:
            values, dimension = bias
            shape = [1] * arrived.dim()
            shape[dimension] = -1
            lined_up = values if dimension == -1 else values.reshape(shape)
            account.bias += (arrived.double() * lined_up.double()).sum().item()

    return add


# Their bias has an entry of its own; what else they take is not a constant.
_NOT_LINEAR = {"layer_norm", "group_norm", "linear", "conv1d", "conv2d", "conv3d"}
