"""`Explainer`: a model and its tokenizer or image processor, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from relprop.attribution import DEFAULT_METHOD, attribute, check_model
from relprop.continuation import Continuation
from relprop.engine.model_call import answers_questions, labels_of
from relprop.engine.pass_cache import shared_passes
from relprop.errors import InputError, TargetError
from relprop.evaluation import Evaluation, join_batches
from relprop.graphs import Graphs, reads_graphs
from relprop.heads import Heads
from relprop.images import Images, is_image_processor
from relprop.language import EncoderDecoder, Wish, continued, reads_and_writes
from relprop.loading import load
from relprop.metrics import FAITHFULNESS, faithfulness
from relprop.questions import Questions, paired
from relprop.registry import METHODS
from relprop.texts import Texts, warned
from relprop.types import Attribution

_LONG_WORK = 8  # batches from which on a progress bar is worth its line


class Explainer:
    """Explains texts, images or graphs with one model.

    `Explainer(model, tokenizer)`, `Explainer(model, image_processor)`, `Explainer(graph_model)`,
    `Explainer(pipeline)`, `Explainer("folder")`.
    """

    def __init__(self, model: Any = "sentiment", tokenizer: Any = None) -> None:
        if isinstance(model, str | Path):
            model, tokenizer = load(model, tokenizer)
        elif not isinstance(model, nn.Module) and hasattr(model, "model"):  # a transformers pipeline
            own = getattr(model, "tokenizer", None) or getattr(model, "image_processor", None)
            model, tokenizer = model.model, own if tokenizer is None else tokenizer
        model = check_model(model)
        self.model: Any = model
        self.tokenizer = tokenizer
        self.domain: Texts | Images | Graphs = _domain(model, tokenizer)

    @property
    def labels(self) -> dict[int, str]:
        """The model's class names."""
        return dict(labels_of(self.model) or {})

    @property
    def heads(self) -> Heads:
        """The model's syntactic and positional heads: saved beside it, or found on relprop's own sample."""
        if not isinstance(self.domain, Texts):
            raise InputError(
                f"syntactic and positional heads are told by texts: a model of {self.domain.name} has none"
            )
        return self.domain.heads

    def __call__(
        self,
        given: Any = None,
        *,
        question: str | list[str] | None = None,
        context: str | list[str] | None = None,
        generate: int | dict[str, Any] | None = None,
        continuation: str | None = None,
        against: Any = None,
        target: Any = None,
        method: str | list[str] = DEFAULT_METHOD,
        batch_size: int = 32,
        ledger: bool | None = None,
        special: str = "keep",
        max_length: int | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> Any:
        """Explain one text, one pair of texts (a tuple), one image, one graph, or a list of these.

        An image is a path, a picture or an array; a graph is a `Graph`, a SMILES, or one of networkx or of PyTorch
        Geometric.
        Gives an `Explanation` (an `ImageExplanation` for an image, a `GraphExplanation` for a graph), or a list of them
        for a list, in the order given. A
        list of methods gives a list, one for each method, in place of each explanation; they share passes where they
        can. `target`: a class index or name, None for the prediction, a pair for a difference; for a list also a list
        with one target each. `ledger`: itemise where the output went; None does so for a single text or image.
        `special="drop"` leaves out special tokens. Other options are the method's own; with several methods, each takes
        those that it has.

        Question answering: `question` and `context`; `target` is "start", "end", an answer of the context (its text, or
        its characters), "" for no answer, a pair of answers, or None for the predicted one.

        Language models explain the next token; with `generate` (how many tokens, or settings of the model's own
        `generate`) or a given `continuation`, each token of it, as a `Continuation`; `against` another token, or each
        "runner-up".
        """
        if question is not None or context is not None:
            given = paired(given, question, context)
        methods = method if isinstance(method, list) else [method]
        single = not isinstance(given, list)
        every: list[Any] = [given] if single else given
        asked = {name: self._options(name, options, ledger, single, len(methods) > 1) for name in methods}
        _check(special, batch_size, max_length, methods)
        if (generate, continuation, against) != (None, None, None):
            if target is not None:
                raise TargetError("generate and continuation explain every token of it: leave out target")
            asked = {name: self._options(name, options, bool(ledger), False, len(methods) > 1) for name in methods}
            wish = Wish(generate, continuation, against, batch_size, max_length)
            by_name = [self._continued(one, wish, asked, special, progress) for one in every]
            written = [[one[name] for name in methods] if isinstance(method, list) else one[method] for one in by_name]
            return written[0] if single else written
        rows: Any
        rows, targets = self.domain.prepared(every, self._each(target, len(every)), max_length)
        done: dict[int, list[Any]] = {}
        for batch in _progress(self.domain.batches(rows, batch_size), progress):
            parts = [rows[i] for i in batch]
            found = self._attribute(parts, [targets[i] for i in batch], asked)
            for number, i in enumerate(batch):
                each = [self.domain.explanation(every[i], rows[i], found[name], number) for name in methods]
                done[i] = [one.without_special() for one in each] if special == "drop" else each
        results: list[Any] = [done[i] if isinstance(method, list) else done[i][0] for i in range(len(rows))]
        return results[0] if single else results

    def _continued(
        self, prompt: Any, wish: Wish, asked: dict[str, dict[str, Any]], special: str, progress: bool | None
    ) -> dict[str, Continuation]:
        if not isinstance(self.domain, Texts):
            raise InputError(
                f"generate, continuation and against are for language models, not for models of {self.domain.name}"
            )
        found = continued(self.domain, prompt, wish, asked, lambda parts: _progress(parts, progress))
        return {
            name: one.without_special() if special == "drop" else one for name, one in zip(asked, found, strict=True)
        }

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
        self, rows: list[Any], targets: list[Any], asked: dict[str, dict[str, Any]]
    ) -> dict[str, Attribution]:
        """All methods on one batch. Those whose pass serves others too go first."""
        inputs = self.domain.inputs(rows)
        found = {}
        with shared_passes() if len(asked) > 1 else nullcontext():
            for name in sorted(asked, key=lambda name: (not METHODS[name].two_way, not METHODS[name].maps)):
                settled = self.domain.options(METHODS[name].options, asked[name], rows, inputs)
                found[name] = warned(attribute(self.model, inputs, targets, name, **settled))
        return found

    def evaluate(
        self,
        given: list[Any],
        labels: Any = None,
        *,
        methods: Sequence[str],
        metrics: Sequence[str] = FAITHFULNESS,
        replacement: str | int | None = "mask",
        batch_size: int = 32,
        progress: bool | None = None,
        **options: Any,
    ) -> Evaluation:
        """Compare methods on texts or graphs: do their scores say what the model uses? `print` the result for a table.

        `labels`: one class index or name an input, which is explained and whose probability is read; None takes the
        predicted ones. A hidden token becomes `replacement`: "mask", "unk", a token id; None leaves it out, as a node
        of a graph always is, with its edges. Other options go to the methods that have them. All methods and metrics
        share their perturbed inputs.
        """
        if isinstance(self.domain, Images):
            raise InputError("evaluate compares methods on texts and graphs; for images see relprop.metrics")
        if not given or not methods:
            raise InputError(f"there is nothing to compare: {len(given)} {self.domain.name}, {len(methods)} methods")
        _check("keep", batch_size, None, list(methods))
        rows: Any = self.domain.encode(given)
        targets = self.targets(labels, len(rows))
        asked = {METHODS[name].name: self._options(name, options, False, False, True) for name in methods}
        parts, order = [], []
        for batch in _progress(self.domain.batches(rows, batch_size), progress):
            chunk = [rows[i] for i in batch]
            found = self._attribute(chunk, [targets[i] for i in batch], asked)
            classes = None if labels is None else [self._class(targets[i]) for i in batch]
            tokens = self.domain.tokens(chunk, self.domain.inputs(chunk), replacement)
            curves = faithfulness(
                self.model,
                tokens,
                [found[name].scores for name in asked],
                classes,
                metrics=metrics,
                batch_size=batch_size,
            )
            parts.append(dict(zip(asked, curves, strict=True)))
            order += batch
        return join_batches(parts, order)

    def _class(self, label: Any) -> Any:
        """A class's index from its name."""
        return {name: index for index, name in self.labels.items()}.get(label, label)

    def inputs(self, given: list[Any]) -> dict[str, Tensor]:
        """Texts, images or graphs as a batch for the model, `relprop.attribute` or `relprop.check`."""
        rows: Any = self.domain.encode(given)
        return self.domain.inputs(rows)

    def targets(self, target: Any, count: int) -> list[Any]:
        """One target an example; a language model's tokens as ids."""
        return [self.domain.target(one) for one in self._each(target, count)]

    def _each(self, target: Any, count: int) -> list[Any]:
        if isinstance(target, Tensor):
            target = target.tolist()
        each = target if isinstance(target, list) else [target] * count
        if len(each) != count:
            raise TargetError(f"{len(each)} targets for {count} {self.domain.name}")
        return each


def _domain(model: Any, tokenizer: Any) -> Texts | Images | Graphs:
    if reads_graphs(model):
        return Graphs(model)
    if is_image_processor(tokenizer):
        return Images(model, tokenizer)
    if reads_and_writes(model):
        return EncoderDecoder(model, tokenizer)
    return Questions(model, tokenizer) if answers_questions(model) else Texts(model, tokenizer)


def _check(special: str, batch_size: int, max_length: int | None, methods: list[str]) -> None:
    if not methods:
        raise InputError("the list of methods is empty")
    if special not in ("keep", "drop"):
        raise InputError(f'special is "keep" or "drop", got {special!r}')
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    if max_length is not None and max_length < 1:
        raise InputError(f"max_length must be at least 1, got {max_length}")


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


def explain(text: str | tuple[str, str] | list[Any], **options: Any) -> Any:
    """Explain with the embedded sentiment model: no download. Takes what `Explainer.__call__` takes."""
    return _embedded()(text, **options)
