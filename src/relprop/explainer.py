"""`Explainer`: a model and its tokenizer, ready to be asked about texts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from relprop.attribution import DEFAULT_METHOD, attribute, check_model
from relprop.domains import text as texts
from relprop.domains.text import Encoded, Text
from relprop.engine.calling import labels_of
from relprop.engine.sharing import shared_passes
from relprop.errors import InputError, ModelError, TargetError
from relprop.explanation import Explanation
from relprop.heads import Heads, identify, known_heads
from relprop.loading import load
from relprop.registry import METHODS
from relprop.types import Attribution, Entry, Ledger

_LONG_WORK = 8  # batches from which on a progress bar is worth its line


class Explainer:
    """Explains texts with one model: `Explainer(model, tokenizer)`, `Explainer(pipeline)`, `Explainer("folder")`."""

    def __init__(self, model: Any = "sentiment", tokenizer: Any = None) -> None:
        if isinstance(model, str | Path):
            model, tokenizer = load(model, tokenizer)
        elif not isinstance(model, nn.Module) and hasattr(model, "model"):  # a transformers pipeline
            model, tokenizer = model.model, getattr(model, "tokenizer", None) if tokenizer is None else tokenizer
        check_model(model)
        if tokenizer is None:
            raise ModelError("an explainer of texts needs the model's tokenizer: Explainer(model, tokenizer)")
        self.model: Any = model
        self.tokenizer = tokenizer

    @property
    def labels(self) -> dict[int, str]:
        """The model's class names."""
        return dict(labels_of(self.model) or {})

    def __call__(
        self,
        text: Text | list[Any],
        *,
        target: Any = None,
        method: str | list[str] = DEFAULT_METHOD,
        batch_size: int = 32,
        ledger: bool | None = None,
        special: str = "keep",
        max_length: int | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> Any:
        """Explain one text, one pair of texts (a tuple), or a list of these, in the order given.

        Gives an `Explanation`, or a list of them for a list of texts. A list of methods gives a list, one for each
        method, in place of each explanation; they share passes where they can. `target`: a class index or name, None
        for the prediction, a pair for a difference; for a list of texts also a list with one target each. `ledger`:
        itemise where the output went; None does so for a single text. `special="drop"` leaves out special tokens.
        Other options are the method's own; with several methods, each takes those that it has.
        """
        methods = method if isinstance(method, list) else [method]
        single = not isinstance(text, list)
        given: list[Any] = [text] if single else text  # type: ignore[assignment]
        asked = {name: self._options(name, options, ledger, single, len(methods) > 1) for name in methods}
        _check(special, batch_size, max_length, methods)
        rows = self._encode(given, max_length)
        targets = self.targets(target, len(rows))
        done: dict[int, list[Explanation]] = {}
        for batch in _progress(self._batches(rows, batch_size), progress):
            parts = [rows[i] for i in batch]
            inputs = self._padded(parts)
            found = self._attribute(inputs, [targets[i] for i in batch], asked, parts)
            for number, i in enumerate(batch):
                each = [self._explanation(given[i], rows[i], found[name], number) for name in methods]
                done[i] = [one.without_special() for one in each] if special == "drop" else each
        results: list[Any] = [done[i] if isinstance(method, list) else done[i][0] for i in range(len(rows))]
        return results[0] if single else results

    def _options(
        self, method: str, options: dict[str, Any], ledger: bool | None, single: bool, several: bool
    ) -> dict[str, Any]:
        """A method's own options; one that it does not have is an error, unless it is meant for another."""
        record = METHODS[method]
        own = {name: value for name, value in options.items() if name in record.options or not several}
        if "ledger" in record.options and (single if ledger is None else ledger):
            own["ledger"] = True
        elif ledger and not several:
            own["ledger"] = True  # which it does not have: refused below
        record.check(own)
        return own

    def _attribute(
        self, inputs: dict[str, Tensor], targets: list[Any], asked: dict[str, dict[str, Any]], rows: list[Encoded]
    ) -> dict[str, Attribution]:
        """All methods on one batch. Those that need maps go first: their pass serves the others too."""
        found = {}
        with shared_passes() if len(asked) > 1 else nullcontext():
            for name in sorted(asked, key=lambda name: not METHODS[name].maps):
                settled = {**self._defaults(METHODS[name].options, rows, inputs), **self._found(asked[name])}
                found[name] = attribute(self.model, inputs, targets, name, **settled)
        return found

    def _encode(self, given: list[Any], max_length: int | None) -> list[Encoded]:
        limits = [limit for limit in (max_length, texts.limit_of(self.model, self.tokenizer)) if limit is not None]
        rows = []
        for number, one in enumerate(given):
            try:
                rows.append(texts.encode(self.tokenizer, one, min(limits, default=None)))
            except InputError as error:
                raise InputError(f"text {number} of the list: {error}" if len(given) > 1 else str(error)) from None
        return rows

    @property
    def _padding(self) -> int | None:
        """The token that the model itself knows as padding."""
        return getattr(getattr(self.model, "config", None), "pad_token_id", None)

    def _batches(self, rows: Sequence[Encoded], size: int) -> list[list[int]]:
        """Texts of similar length together. A model that knows no padding reads one text at a time.

        Padding on the left would shift the positions of most models: there, only texts of equal length go together.
        """
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].units))
        left = texts.pads_left(self.tokenizer)
        groups = [list(group) for _, group in groupby(order, key=lambda i: left and len(rows[i].units))]
        step = 1 if self._padding is None else size
        return [group[k : k + step] for group in groups for k in range(0, len(group), step)]

    def inputs(self, given: list[Any]) -> dict[str, Tensor]:
        """Texts as a batch for the model, `relprop.attribute` or `relprop.check`."""
        return self._padded(self._encode(given, None))

    def _padded(self, rows: list[Encoded]) -> dict[str, Tensor]:
        """A padded batch of what the model takes: some tokenizers give token types to models without them."""
        taken = {"input_ids", "attention_mask", *inspect.signature(self.model.forward).parameters}
        batch = texts.pad(self.tokenizer, rows, self._padding, next(self.model.parameters()).device)
        return {name: values for name, values in batch.items() if name in taken}

    def _defaults(self, known: Mapping[str, Any], rows: list[Encoded], inputs: dict[str, Tensor]) -> dict[str, Any]:
        """What options mean for texts: integrated gradients starts with all but the special tokens masked out."""
        defaults: dict[str, Any] = {}
        mask: int | None = self.tokenizer.mask_token_id
        hidden = self._padding if mask is None else mask
        if "baseline" in known and hidden is not None:
            ids = inputs["input_ids"]
            defaults["baseline"] = ids.masked_fill(texts.content(self.tokenizer, rows).to(ids.device), hidden)
        if "replacement" in known and hidden is not None:
            defaults["replacement"] = hidden
        if "internal_batch_size" in known and self._padding is None:
            defaults["internal_batch_size"] = 1
        return defaults

    @cached_property
    def heads(self) -> Heads:
        """The syntactic and positional heads: saved beside the model, or found on the sample that comes with relprop."""
        return known_heads(self.model) or identify(self.model, self.tokenizer)

    def _found(self, options: dict[str, Any]) -> dict[str, Any]:
        """A head mask given by name, as an array."""
        if not isinstance(options.get("mask"), str):
            return options
        how = {name: options[name] for name in ("corrupt", "seed") if name in options}
        rest = {name: value for name, value in options.items() if name != "corrupt"}
        return {**rest, "mask": self.heads.mask(options["mask"], **how)}

    def targets(self, target: Any, count: int) -> list[Any]:
        """One target a text; a language model's tokens as ids."""
        if isinstance(target, Tensor):
            target = target.tolist()
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


def _check(special: str, batch_size: int, max_length: int | None, methods: list[str]) -> None:
    if not methods:
        raise InputError("the list of methods is empty")
    if special not in ("keep", "drop"):
        raise InputError(f'special is "keep" or "drop", got {special!r}')
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    if max_length is not None and max_length < 1:
        raise InputError(f"max_length must be at least 1, got {max_length}")


def _plain_ledger(method: str, value: float, scored: float, baseline: float | None) -> Ledger | None:
    """What is known without itemising: the inputs, the baseline, and the rest."""
    record = METHODS[method]
    if not (record.complete or "ledger" in record.options):  # its scores are no shares of the value
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
    yield from track(batches, description="explaining", console=console, transient=console.is_terminal)


@cache
def _embedded() -> Explainer:
    return Explainer("sentiment")


def explain(text: Text | list[Any], **options: Any) -> Any:
    """Explain with the embedded sentiment model: no download. Takes what `Explainer.__call__` takes."""
    return _embedded()(text, **options)
