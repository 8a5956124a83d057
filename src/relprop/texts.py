"""Texts for an explainer: encoded, batched by length, and their scores put back to units."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from relprop.domains import text as texts
from relprop.domains.text import Encoded, Text
from relprop.engine.model_call import device_of, fills_masks, generates, labels_of
from relprop.errors import InputError, ModelError, RelpropWarning, TargetError
from relprop.explanation import Explanation
from relprop.heads import Heads, identify, known_heads
from relprop.metrics import Tokens
from relprop.registry import METHODS
from relprop.targets import AtMask
from relprop.types import Attribution, Entry, Ledger


class Texts:
    """A model and its tokenizer."""

    name = "texts"

    def __init__(self, model: Any, tokenizer: Any) -> None:
        if tokenizer is None:
            raise ModelError("an explainer of texts needs the model's tokenizer: Explainer(model, tokenizer)")
        self.model = model
        self.tokenizer = tokenizer

    def encode(self, given: Sequence[Any], max_length: int | None = None) -> list[Encoded]:
        limit = self.limit(max_length)
        rows = []
        for number, one in enumerate(given):
            try:
                rows.append(texts.encode(self.tokenizer, one, limit))
            except InputError as error:
                raise InputError(f"text {number} of the list: {error}" if len(given) > 1 else str(error)) from None
        return rows

    def limit(self, max_length: int | None = None) -> int | None:
        """How many tokens are read: as many as the model can, unless fewer are wanted; None where it does not say."""
        limits = [limit for limit in (max_length, texts.limit_of(self.model, self.tokenizer)) if limit is not None]
        return min(limits, default=None)

    def prepared(
        self, given: Sequence[Any], targets: Sequence[Any], max_length: int | None = None
    ) -> tuple[list[Encoded], list[Any]]:
        """What the model reads for each text, and each target as `relprop.attribute` takes it."""
        return self.encode(given, max_length), [self.target(one) for one in targets]

    @property
    def padding(self) -> int | None:
        """The token that the model itself knows as padding."""
        return getattr(getattr(self.model, "config", None), "pad_token_id", None)

    @property
    def _even_only(self) -> bool:
        """Must the texts of a batch be of the same length?"""
        return texts.pads_left(self.tokenizer)

    def batches(self, rows: Sequence[Encoded], size: int) -> list[list[int]]:
        """Texts of similar length together. A model that knows no padding reads one text at a time.

        Padding on the left would shift the positions of most models: there, only texts of equal length go together.
        """
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].units))
        groups = [list(group) for _, group in groupby(order, key=lambda i: self._even_only and len(rows[i].units))]
        step = 1 if self.padding is None else size
        return [group[k : k + step] for group in groups for k in range(0, len(group), step)]

    def inputs(self, rows: Sequence[Encoded]) -> dict[str, Tensor]:
        """A padded batch of what the model takes: some tokenizers give token types to models without them."""
        taken = {"input_ids", "attention_mask", *inspect.signature(self.model.forward).parameters}
        batch = texts.pad(self.tokenizer, rows, self.padding, device_of(self.model))
        return {name: values for name, values in batch.items() if name in taken}

    def options(
        self, known: Mapping[str, Any], given: dict[str, Any], rows: Sequence[Encoded], inputs: dict[str, Tensor]
    ) -> dict[str, Any]:
        """What options mean for texts: integrated gradients starts with all but the special tokens masked out."""
        settled: dict[str, Any] = {}
        mask: int | None = self.tokenizer.mask_token_id
        hidden = self.padding if mask is None else mask
        if "baseline" in known and hidden is not None:
            ids = {name: inputs[name] for name in ("input_ids", "decoder_input_ids") if name in inputs}
            content = texts.content(self.tokenizer, rows).split([one.shape[1] for one in ids.values()], 1)
            settled["baseline"] = {
                name: one.masked_fill(own.to(one.device), hidden)
                for (name, one), own in zip(ids.items(), content, strict=True)
            }
        if "replacement" in known and hidden is not None:
            settled["replacement"] = hidden
        if "internal_batch_size" in known and self.padding is None:
            settled["internal_batch_size"] = 1
        return {**settled, **self._with_mask(given)}

    def tokens(self, rows: Sequence[Encoded], inputs: dict[str, Tensor], replacement: str | int | None) -> Tokens:
        """A batch whose tokens metrics can hide: by "mask", "unk", a token id, or (None) by leaving them out."""
        known = {"mask": self.tokenizer.mask_token_id, "unk": self.tokenizer.unk_token_id}
        hidden = known.get(replacement) if isinstance(replacement, str) else replacement
        if isinstance(replacement, str) and hidden is None:
            have = [name for name, value in known.items() if value is not None]
            raise InputError(
                f'the tokenizer has no "{replacement}" token; replacement is a token id, None to leave tokens out'
                + (f', or "{have[0]}"' if have else "")
            )
        return Tokens(inputs, texts.content(self.tokenizer, rows), hidden)

    @cached_property
    def heads(self) -> Heads:
        """The syntactic and positional heads: saved beside the model, or found on relprop's own sample."""
        return known_heads(self.model) or identify(self.model, self.tokenizer)

    def _with_mask(self, options: dict[str, Any]) -> dict[str, Any]:
        """A head mask given by name, as an array."""
        if not isinstance(options.get("mask"), str):
            return options
        how = {name: options[name] for name in ("corrupt", "seed") if name in options}
        rest = {name: value for name, value in options.items() if name != "corrupt"}
        return {**rest, "mask": self.heads.mask(options["mask"], **how)}

    @property
    def generates(self) -> bool:
        """A language model: its targets are tokens."""
        return generates(self.model)

    @property
    def fills_masks(self) -> bool:
        """A masked language model: its targets are tokens at [MASK]."""
        return fills_masks(self.model) and self.tokenizer.mask_token_id is not None

    def target(self, target: Any) -> Any:
        """A language model's token as its id; a pair's as both."""
        if self.fills_masks and (target is None or isinstance(target, str | int | tuple)):
            return AtMask(self.tokenizer.mask_token_id, self._token(target))
        return self._token(target) if self.generates else target

    def _token(self, target: Any) -> Any:
        if isinstance(target, tuple):
            return tuple(self._token(one) for one in target)
        if not isinstance(target, str):
            return target
        ids = self.tokenizer(target, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            kind = "next-token" if self.generates else "masked-token"
            raise TargetError(
                f"target {target!r} is {len(ids)} tokens; a {kind} target is one (mind the leading space)"
            )
        return ids[0]

    def explanation(self, given: Text, row: Encoded, found: Attribution, number: int) -> Explanation:
        scores = tuple(texts.unpad(self.tokenizer, scores_of(found)[number], row))
        value = found.value[number].item()
        prediction, probability = self._prediction(found, number)
        baseline = None if found.baseline is None else found.baseline[number].item()
        return Explanation(
            text=texts.parts_of(given),
            units=row.units,
            scores=scores,
            method=found.method,
            target=self.target_name(found.target[number]),
            value=value,
            prediction=prediction,
            probability=probability,
            ledger=found.ledger[number] if found.ledger else plain_ledger(found.method, value, sum(scores), baseline),
            baseline=baseline,
            truncated=row.cut,
        )

    def _prediction(self, found: Attribution, number: int) -> tuple[str, float | None]:
        best, probability = likeliest(self.model, found, number)
        if best is None:
            return "", None
        tokens = self.generates or self.fills_masks
        name = repr(self.tokenizer.decode([best])) if tokens else class_name(self.model, best)
        return name, probability

    def target_name(self, name: str) -> str:
        if not (self.generates or self.fills_masks):
            return name
        parts = name.split(" - ")
        decoded = [repr(self.tokenizer.decode([int(part)])) if part.isdigit() else part for part in parts]
        return " - ".join(decoded)


def scores_of(found: Attribution) -> Tensor:
    """[batch, units]: the tokens of a text, and behind them a decoder's own."""
    tokens = [found.parts[name] for name in ("input_ids", "decoder_input_ids") if name in found.parts]
    return torch.cat(tokens, 1) if len(tokens) == len(found.parts) else found.scores


def warned(found: Attribution) -> Attribution:
    """The same; what its numbers do not say is said as a warning."""
    for sentence in found.warnings:
        warnings.warn(sentence, RelpropWarning, stacklevel=4)
    return found


def likeliest(model: Any, found: Attribution, number: int) -> tuple[int | None, float | None]:
    """The likeliest class of an example and its probability, where the target is one class of several."""
    if found.logits is None or found.logits.shape[-1] < 2:
        return None, None
    several = getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification"
    logits = found.logits[number].double()
    probabilities = logits.sigmoid() if several else logits.softmax(-1)
    best = int(probabilities.argmax())
    return best, probabilities[best].item()


def class_name(model: Any, index: int) -> str:
    return (labels_of(model) or {}).get(index, str(index))


def plain_ledger(method: str, value: float, scored: float, baseline: float | None) -> Ledger | None:
    """What is known without itemising: the inputs, the baseline, and the rest."""
    record = METHODS[method]
    if not (record.complete or "ledger" in record.options):  # its scores are no shares of the value
        return None
    entries = [Entry("", "inputs", "input", scored)]
    if baseline is not None:
        entries.append(Entry("", "baseline", "constant", baseline))
    rest = Entry("", "not itemised", "unexplained", value - scored - (baseline or 0.0))
    return Ledger(value, (*entries, rest), itemised=False)
