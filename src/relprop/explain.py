"""`Explainer`: a model and its tokenizer, ready to be asked about texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from relprop.attribute import DEFAULT_METHOD, attribute, check_model
from relprop.domains import text as texts
from relprop.domains.text import Encoded, Text
from relprop.errors import InputError, ModelError, TargetError
from relprop.explanation import Explanation
from relprop.loading import load
from relprop.registry import METHODS
from relprop.types import Attribution, Entry, Ledger

_LONG_WORK = 8  # batches from which on a progress bar is worth its line


class Explainer:
    """Explains texts with one model: `Explainer(model, tokenizer)`, `Explainer(pipeline)`, `Explainer("folder")`."""

    def __init__(self, model: Any = "sentiment", tokenizer: Any = None) -> None:
        if isinstance(model, str | Path):
            loaded, own = load(model)
            model, tokenizer = loaded, tokenizer or own
        elif not isinstance(model, nn.Module) and hasattr(model, "model"):  # a transformers pipeline
            model, tokenizer = model.model, tokenizer or getattr(model, "tokenizer", None)
        check_model(model)
        if tokenizer is None:
            raise ModelError("an explainer of texts needs the model's tokenizer: Explainer(model, tokenizer)")
        self.model: Any = model
        self.tokenizer = tokenizer

    @property
    def labels(self) -> dict[int, str]:
        """The model's class names."""
        return {int(index): str(name) for index, name in getattr(self.model.config, "id2label", {}).items()}

    @overload
    def __call__(self, text: Text, **options: Any) -> Explanation: ...
    @overload
    def __call__(self, text: list[str] | list[tuple[str, str]] | list[Text], **options: Any) -> list[Explanation]: ...

    def __call__(
        self,
        text: Text | list[Any],
        *,
        target: Any = None,
        method: str = DEFAULT_METHOD,
        batch_size: int = 32,
        ledger: bool | None = None,
        special: str = "keep",
        max_length: int | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> Explanation | list[Explanation]:
        """Explain one text, one pair of texts (a tuple), or a list of these, in the order given.

        `target`: a class index or name, None for the prediction, a pair for a difference; for a list of texts also a
        list with one target each. `ledger`: itemise where the output went; None does so for a single text.
        `special="drop"` leaves out special tokens. Other options are the method's own.
        """
        METHODS[method].check(options)
        if special not in ("keep", "drop"):
            raise InputError(f'special is "keep" or "drop", got {special!r}')
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        single = not isinstance(text, list)
        if single:
            text = [text]
        if METHODS[method].options.get("ledger") is not None:
            options["ledger"] = single if ledger is None else ledger
        limit = max_length or texts.limit_of(self.model, self.tokenizer)
        rows = [texts.encode(self.tokenizer, one, limit) for one in text]
        targets = self.targets(target, len(rows))
        done: list[Explanation | None] = [None] * len(rows)
        for batch in _progress(self._batches(rows, batch_size), progress):
            parts = [rows[i] for i in batch]
            inputs = texts.pad(self.tokenizer, parts, self._pad_id, self.model.device)
            found = attribute(
                self.model,
                inputs,
                [targets[i] for i in batch],
                method,
                **self._defaults(method, options, parts, inputs),
            )
            for number, i in enumerate(batch):
                one = self._explanation(text[i], rows[i], found, number)
                done[i] = one.without_special() if special == "drop" else one
        complete = [one for one in done if one is not None]
        return complete[0] if single else complete

    @property
    def _pad_id(self) -> int | None:
        own: int | None = getattr(self.model.config, "pad_token_id", None)
        return own if own is not None else self.tokenizer.pad_token_id

    def _batches(self, rows: Sequence[Encoded], size: int) -> list[list[int]]:
        """Texts of similar length together. A model that knows no padding reads one text at a time."""
        if getattr(self.model.config, "pad_token_id", None) is None:
            size = 1
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].units))
        return [order[k : k + size] for k in range(0, len(order), size)]

    def targets(self, target: Any, count: int) -> list[Any]:
        each = target if isinstance(target, list) else [target] * count
        if len(each) != count:
            raise TargetError(f"{len(each)} targets for {count} texts")
        return [self._token_id(one) for one in each] if self._generates else each

    @property
    def _generates(self) -> bool:
        """A language model: its targets are tokens."""
        return bool(getattr(self.model, "can_generate", lambda: False)())

    def _token_id(self, target: Any) -> Any:
        """A token's id from its text; a pair's from both."""
        if isinstance(target, tuple):
            return tuple(self._token_id(one) for one in target)
        if not isinstance(target, str):
            return target
        ids = self.tokenizer(target, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise TargetError(
                f"target {target!r} is {len(ids)} tokens; a next-token target is one (mind the leading space)"
            )
        return ids[0]

    def _defaults(
        self, method: str, options: dict[str, Any], rows: list[Encoded], inputs: dict[str, torch.Tensor]
    ) -> dict[str, Any]:
        """Integrated gradients starts from the same special tokens with every other token masked out."""
        if "baseline" not in METHODS[method].options or "baseline" in options:
            return options
        hidden = self.tokenizer.mask_token_id if self.tokenizer.mask_token_id is not None else self._pad_id
        if hidden is None:
            return options
        start = inputs["input_ids"].clone()
        flags = [[not unit.special for unit in row.units] for row in rows]
        encoded = [
            Encoded({"input_ids": [int(flag) for flag in row]}, rows[i].units, None) for i, row in enumerate(flags)
        ]
        content = texts.pad(self.tokenizer, encoded, 0)["input_ids"].bool().to(start.device)
        return {**options, "baseline": start.masked_fill(content, hidden)}

    def _explanation(self, text: Text, row: Encoded, found: Attribution, number: int) -> Explanation:
        scores = tuple(texts.unpad(self.tokenizer, found.scores[number], row))
        value = found.value[number].item()
        prediction, probability = self._prediction(found, number)
        baseline = None if found.baseline is None else found.baseline[number].item()
        return Explanation(
            text=texts.parts_of(text),
            units=row.units,
            scores=scores,
            method=found.method,
            target=self._target_name(found.target[number]),
            value=value,
            prediction=prediction,
            probability=probability,
            ledger=found.ledger[number] if found.ledger else _plain_ledger(found.method, value, sum(scores), baseline),
            baseline=baseline,
            truncated=row.cut,
        )

    def _prediction(self, found: Attribution, number: int) -> tuple[str, float | None]:
        if found.logits is None or found.logits.shape[-1] < 2:
            return "", None
        probabilities = found.logits[number].double().softmax(-1)
        best = int(probabilities.argmax())
        name = repr(self.tokenizer.decode([best])) if self._generates else self.labels.get(best, str(best))
        return name, probabilities[best].item()

    def _target_name(self, name: str) -> str:
        if not self._generates:
            return name
        parts = name.split(" - ")
        decoded = [repr(self.tokenizer.decode([int(part)])) if part.isdigit() else part for part in parts]
        return " - ".join(decoded)


def _plain_ledger(method: str, value: float, scored: float, baseline: float | None) -> Ledger | None:
    """What is known without itemising: the inputs, the baseline, and the rest."""
    if not METHODS[method].signed:
        return None
    entries = [Entry("", "inputs", "input", scored)]
    if baseline is not None:
        entries.append(Entry("", "baseline", "constant", baseline))
    rest = Entry("", "not itemised", "unexplained", value - scored - (baseline or 0.0))
    return Ledger(value, (*entries, rest), itemised=False)


def _progress(batches: list[list[int]], wanted: bool | None) -> Iterator[list[int]]:
    """The batches; on long work at a terminal, with a progress bar."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    shown = wanted if wanted is not None else len(batches) >= _LONG_WORK and console.is_terminal
    if not shown:
        yield from batches
        return
    yield from track(batches, description="explaining", console=console, transient=True)


@cache
def _embedded() -> Explainer:
    return Explainer("sentiment")


def explain(text: Text | list[Any], **options: Any) -> Any:
    """Explain with the embedded sentiment model: no download. Takes what `Explainer.__call__` takes."""
    return _embedded()(text, **options)
