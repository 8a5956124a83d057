"""LSTM, GRU and RNN layers written out step by step, in calls that have rules: gates are constant factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.errors import UnruledOpError

States = tuple[Tensor, ...]
Weights = Sequence[Any]  # tensors or None: input, hidden, their two biases, projection
Step = Callable[[Tensor, States, Weights], States]  # the new states; the first of them is the output


def lstm(x: Tensor, hx: Any, weights: Any, *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    """`torch.lstm` written out."""
    output, (hidden, cell) = _layers(_lstm_step, x, hx, weights, settings)
    return output, hidden, cell


def gru(x: Tensor, hx: Any, weights: Any, *settings: Any) -> tuple[Tensor, Tensor]:
    """`torch.gru` written out."""
    output, (hidden,) = _layers(_gru_step, x, (hx,), weights, settings)
    return output, hidden


def rnn_tanh(x: Tensor, hx: Any, weights: Any, *settings: Any) -> tuple[Tensor, Tensor]:
    """`torch.rnn_tanh` written out."""
    output, (hidden,) = _layers(lambda *step: (torch.tanh(_rnn_sum(*step)),), x, (hx,), weights, settings)
    return output, hidden


def rnn_relu(x: Tensor, hx: Any, weights: Any, *settings: Any) -> tuple[Tensor, Tensor]:
    """`torch.rnn_relu` written out."""
    output, (hidden,) = _layers(lambda *step: (torch.relu(_rnn_sum(*step)),), x, (hx,), weights, settings)
    return output, hidden


def lstm_cell(x: Tensor, hx: Any, *weights: Any) -> States:
    """`torch.lstm_cell` written out."""
    return _lstm_step(x, tuple(hx), _cell_weights(weights))


def gru_cell(x: Tensor, hx: Tensor, *weights: Any) -> Tensor:
    """`torch.gru_cell` written out."""
    return _gru_step(x, (hx,), _cell_weights(weights))[0]


def rnn_tanh_cell(x: Tensor, hx: Tensor, *weights: Any) -> Tensor:
    """`torch.rnn_tanh_cell` written out."""
    return torch.tanh(_rnn_sum(x, (hx,), _cell_weights(weights)))


def rnn_relu_cell(x: Tensor, hx: Tensor, *weights: Any) -> Tensor:
    """`torch.rnn_relu_cell` written out."""
    return torch.relu(_rnn_sum(x, (hx,), _cell_weights(weights)))


def _cell_weights(weights: tuple[Any, ...]) -> Weights:
    """The weights of a cell: its two biases may be missing, and it has no projection."""
    return [*weights, None, None, None][:5]


def _lstm_step(x: Tensor, states: States, weights: Weights) -> States:
    """c = f c + i g, h = o tanh(c), with the gates i, f, o = sigmoid(...) and g = tanh(...)."""
    h, c = states
    i, f, g, o = (F.linear(x, weights[0], weights[2]) + F.linear(h, weights[1], weights[3])).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if weights[4] is None else F.linear(h, weights[4])), c


def _gru_step(x: Tensor, states: States, weights: Weights) -> States:
    """h = (1 - z) n + z h, with the gates r, z = sigmoid(...) and n = tanh(W x + r (U h))."""
    (h,) = states
    r, z, n = F.linear(x, weights[0], weights[2]).chunk(3, -1)
    r_h, z_h, n_h = F.linear(h, weights[1], weights[3]).chunk(3, -1)
    z = torch.sigmoid(z + z_h)
    n = torch.tanh(n + torch.sigmoid(r + r_h) * n_h)
    return ((1 - z) * n + z * h,)


def _rnn_sum(x: Tensor, states: States, weights: Weights) -> Tensor:
    total: Tensor = F.linear(x, weights[0], weights[2]) + F.linear(states[0], weights[1], weights[3])
    return total


def _layers(step: Step, x: Tensor, first: Any, weights: Any, settings: tuple[Any, ...]) -> tuple[Tensor, States]:
    """All layers in both directions, without dropout: the output of every step, and the last states."""
    if isinstance(first, Tensor) or any(not one.is_floating_point() for one in first):  # numbers of examples per step
        raise UnruledOpError("a recurrent layer reads a packed sequence, which has no rule: pad it, or use lrp_ah_ln")
    biases, layers, _, _, both, batch_first = settings
    directions, per_direction = 2 if both else 1, len(weights) // (layers * (2 if both else 1))
    steps: list[Tensor] = list((x.transpose(0, 1) if batch_first else x).unbind(0))
    last: list[States] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            own = list(weights[number * per_direction : (number + 1) * per_direction])
            own = own if biases else [*own[:2], None, None, *own[2:]]
            states: States = tuple(one[number] for one in first)
            done = []
            for one in reversed(steps) if direction else steps:
                states = step(one, states, [*own, None])
                done.append(states[0])
            last.append(states)
            outputs.append(done[::-1] if direction else done)
        steps = [torch.cat(pair, -1) for pair in zip(*outputs, strict=True)] if both else outputs[0]
    output = torch.stack(steps, 1 if batch_first else 0)
    return output, tuple(torch.stack(list(each)) for each in zip(*last, strict=True))
