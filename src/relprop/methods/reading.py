"""From what reached the sources to one score a unit: rows in the input's own order, padding at exactly 0."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relprop.engine.run import Flow, propagate
from relprop.engine.sources import At, Source
from relprop.rulebook.rulesets import RuleSet
from relprop.types import Attribution, Entry, Ledger

Inputs = Mapping[str, Any]


def input_relevance(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    rules: RuleSet,
    method: str,
    *,
    at: At | None,
    checkpoint: bool,
    ledger: bool,
) -> Attribution:
    """Sum over features of the relevance that reached each unit. The ledger is kept example by example."""
    if ledger and batch_size(inputs) > 1:
        each = [
            input_relevance(
                model,
                example(inputs, i),
                one_target(target, i),
                rules,
                method,
                at=at,
                checkpoint=checkpoint,
                ledger=True,
            )
            for i in range(batch_size(inputs))
        ]
        return joined(each)
    flow = propagate(model, inputs, target, rules, at=at, checkpoint=checkpoint, ledger=ledger)
    relevance = flow.relevance()
    scores = unit_scores(flow, relevance, inputs)
    books = (close(flow, relevance, scores),) if ledger else None
    return Attribution(scores, flow.chosen.value, flow.chosen.names, method, flow.chosen.rows, books)


def unit_scores(
    flow: Flow, per_source: list[Tensor], inputs: Inputs, reduce: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """One row of scores an example: features reduced (by default summed), sources of the same tokens added."""
    ids = token_ids(inputs)
    total: Tensor | None = None
    for source, values in zip(flow.sources, per_source, strict=True):
        rows = (reduce or _sum)(_features_last(values))
        if ids is not None:
            rows = _in_order(rows, source, inputs, ids.shape[1])
        total = rows if total is None else total + rows
    assert total is not None
    mask = token_mask(inputs)
    if mask is not None and mask.shape == total.shape:
        total = torch.where(mask != 0, total, 0)
    return total


def token_ids(inputs: Inputs) -> Tensor | None:
    """The tokens that get scores: the text's, and behind them a decoder's own where those are given."""
    return _both(inputs.get("input_ids"), inputs.get("decoder_input_ids"))


def token_mask(inputs: Inputs) -> Tensor | None:
    """Which of them are no padding; None where nothing says so."""
    own, mask = inputs.get("decoder_input_ids"), inputs.get("attention_mask")
    if not isinstance(own, Tensor) or not isinstance(mask, Tensor):
        return mask if isinstance(mask, Tensor) else None
    return _both(mask, inputs.get("decoder_attention_mask", torch.ones_like(own)))


def _both(text: Any, decoder: Any) -> Tensor | None:
    if not isinstance(text, Tensor) or not isinstance(decoder, Tensor):
        return text if isinstance(text, Tensor) else None
    return torch.cat([text, decoder], 1)


def _sum(values: Tensor) -> Tensor:
    return values.sum(-1)


def _features_last(values: Tensor) -> Tensor:
    """[batch, units, features] from tokens, feature maps [batch, features, height, width] or plain vectors."""
    if values.dim() == 4:
        return values.flatten(2).transpose(1, 2)
    return values[..., None] if values.dim() == 2 else values.flatten(2)


def _in_order(rows: Tensor, source: Source, inputs: Inputs, count: int) -> Tensor:
    """The rows among all `count` units: cut to length, moved to where they belong, and 0 elsewhere."""
    place = units_at(inputs["input_ids"] if source.ids is None else source.ids, inputs)
    if place is None:  # another text: in the ledger, not in the scores
        return rows.new_zeros(len(rows), count)
    start, stop = place
    late = max(0, -start)
    rows = rows[:, late : stop - start]
    return F.pad(rows, (start + late, count - start - late - rows.shape[1]))


def units_at(own: Tensor, inputs: Inputs) -> tuple[int, int] | None:
    """Which units (from, to) the embedded tokens `own` are: the text, or the decoder's; None for any other.

    From -1 where a decoder reads the text itself, shifted by one behind its start token.
    """
    ids, decoder = inputs["input_ids"], inputs.get("decoder_input_ids")
    length = ids.shape[1]
    if own.shape[0] == ids.shape[0] and own.shape[1] >= length and torch.equal(own[:, :length], ids):
        return 0, length
    if isinstance(decoder, Tensor):
        same = own.shape == decoder.shape and torch.equal(own, decoder)
        return (length, length + decoder.shape[1]) if same else None
    return (-1, length - 1) if own.shape == ids.shape and torch.equal(own[:, 1:], ids[:, :-1]) else None


def close(flow: Flow, relevance: list[Tensor], scores: Tensor) -> Ledger:
    """The books of one example. What reached a source without being a unit's score is a constant."""
    assert flow.books is not None
    value = flow.chosen.value.item() if flow.carries == "gradient" else 1.0
    scored = scores.double().sum().item()
    other = sum(part.double().sum().item() for part in relevance) - scored
    inputs = [Entry("", "inputs", "input", scored)]
    return flow.books.close(value, [*inputs, Entry("", "other inputs", "constant", other)] if other else inputs)


def batch_size(inputs: Inputs) -> int:
    return next((len(value) for value in inputs.values() if isinstance(value, Tensor) and value.dim()), 1)


def example(inputs: Inputs, index: int) -> dict[str, Any]:
    """One example of a batch, as a batch of one."""
    batch = batch_size(inputs)
    return {
        name: value[index : index + 1] if isinstance(value, Tensor) and value.dim() and len(value) == batch else value
        for name, value in inputs.items()
    }


def singles(inputs: Inputs) -> list[dict[str, Any]]:
    """Every example of a batch, as a batch of one."""
    return [example(inputs, i) for i in range(batch_size(inputs))]


def copies(batch: int, copies: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Every copy of every example, in chunks: (index of the example, index of the copy)."""
    every = torch.arange(batch * copies)
    for chunk in every.split(max(1, size)):
        yield chunk // copies, chunk % copies


def select(inputs: Inputs, owner: Tensor, batch: int) -> dict[str, Any]:
    """The given examples of a batch, in the given order, as often as they are named."""
    return {
        name: value[owner.to(value.device)]
        if isinstance(value, Tensor) and value.dim() and len(value) == batch
        else value
        for name, value in inputs.items()
    }


def real_units(inputs: Inputs) -> Tensor:
    """Which units of a single example are no padding."""
    mask = token_mask(inputs)
    if mask is not None and mask.dim() == 2:
        return (mask[0] != 0).cpu()
    return torch.ones(_content(inputs).shape[:1], dtype=torch.bool)


def content_generator(inputs: Inputs, seed: int | str) -> torch.Generator:
    """Randomness that depends on a single example's real content and on the seed alone."""
    content, real = _content(inputs), real_units(inputs)
    if len(content) <= len(real):  # a mask may begin with units that the model adds
        content = content[real[len(real) - len(content) :]]
    digest = hashlib.sha256(content.contiguous().double().numpy().tobytes() + str(seed).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def _content(inputs: Inputs) -> Tensor:
    first = next(value for value in inputs.values() if isinstance(value, Tensor) and value.dim() > 1)
    ids = token_ids(inputs)
    return (first if ids is None else ids)[0].detach().cpu()


def one_target(target: Any, index: int) -> Any:
    """The target of one example: lists and tensors hold one each, anything else serves all."""
    return (
        [target[index]]
        if isinstance(target, list)
        else target[index : index + 1]
        if isinstance(target, Tensor)
        else target
    )


def joined(parts: list[Attribution]) -> Attribution:
    """Attributions of single examples as one batch."""
    rows = [part.logits for part in parts]
    return Attribution(
        torch.cat([part.scores for part in parts]),
        torch.cat([part.value for part in parts]),
        tuple(name for part in parts for name in part.target),
        parts[0].method,
        torch.cat(rows) if all(row is not None for row in rows) else None,  # type: ignore[arg-type]
        tuple(book for part in parts for book in part.ledger or ()) or None,
    )
