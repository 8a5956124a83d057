"""`Explainer`: a model with what reads its inputs and what it is asked, ready to explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor, nn

from relprop.attribution import attribute, ledger_of, warn_of, with_warnings
from relprop.encoders.wrapped import as_encoder, own_model
from relprop.engine.model_call import labels_of
from relprop.engine.pass_cache import shared_passes
from relprop.engine.wrappers import check_model
from relprop.errors import InputError, TargetError
from relprop.explanation import Explanation
from relprop.listing import as_list
from relprop.loading import load, load_processor, pipeline_processor, stamp
from relprop.methods import default_method
from relprop.model_config import model_name
from relprop.progress import tracked
from relprop.readers import Reader, read_all, reader_of
from relprop.readers.series import SeriesReader
from relprop.readers.text import TextReader
from relprop.readers.transforms import labels_with
from relprop.registry import METHODS, check_switches
from relprop.targets import quantity_of
from relprop.tasks import Query, Task, task_of
from relprop.tasks.classes import NUMBER, ClassScore, with_labels
from relprop.tasks.steps import Explained, joined_steps
from relprop.types import Attribution

if TYPE_CHECKING:
    from relprop.evaluation import Evaluation
    from relprop.heads import Heads

Examples = list[Any] | Iterator[Any]
Asked = dict[str, dict[str, object]]  # per method its options


class Explainer:
    """Explains texts, images or graphs with one model.

    `Explainer(model, tokenizer)`, `Explainer(model, image_processor)`, `Explainer(graph_model)`,
    `Explainer(pipeline)`, `Explainer("folder")`. A tokenizer or processor may be named by its folder or hub id.
    `reader` and `task` are chosen by the model, and can be given; so can `labels`, the names of its classes. In place
    of an image processor: a transform of torchvision, its weights, or timm's data config.
    """

    def __init__(
        self,
        model: Any = "sentiment",
        tokenizer: Any = None,
        *,
        reader: Reader[Any] | None = None,
        task: Task | None = None,
        columns: Sequence[str] | None = None,
        labels: Mapping[int, str] | Sequence[str] | None = None,
    ) -> None:
        source = model if isinstance(model, str | Path) else None
        if isinstance(model, str | Path):
            model, tokenizer = load(model, tokenizer)
        elif not isinstance(model, nn.Module) and hasattr(model, "model"):  # a transformers pipeline
            model, tokenizer = model.model, pipeline_processor(model) if tokenizer is None else tokenizer
        if isinstance(tokenizer, str | Path):
            tokenizer = load_processor(tokenizer, model)
        model, tokenizer = own_model(model, tokenizer)
        self.model: Any = as_encoder(check_model(model), tokenizer)
        self.tokenizer = tokenizer
        self.name = model_name(self.model, source)
        self.reader = reader_of(self.model, tokenizer, columns) if reader is None else reader
        self.task = task_of(self.model, self.reader) if task is None else task
        named = labels_with(getattr(self.reader, "processor", None)) if labels is None else labels
        if named is not None:
            self.task = with_labels(self.task, named)

    def __repr__(self) -> str:
        """The model's class, what it reads, and its classes."""
        names = list(self.labels.values())
        shown = ", ".join(names[:4]) + (f", ... ({len(names)} classes)" if len(names) > 4 else "")
        return f"Explainer({type(self.model).__name__} of {self.reader.name}{f': {shown}' if names else ''})"

    @property
    def labels(self) -> dict[int, str]:
        """The model's class names."""
        given = self.task.labels if isinstance(self.task, ClassScore) else None
        return dict(given or labels_of(self.model) or {})

    @property
    def default_method(self) -> str:
        """The method where none is named, by what the model reads and is asked."""
        return default_method(self.reader.name, classes=type(self.task) is ClassScore)

    @property
    def heads(self) -> Heads:
        """The model's syntactic and positional heads: saved beside it, or found on relprop's own sample."""
        if not isinstance(self.reader, TextReader):
            raise InputError(
                f"syntactic and positional heads are told by texts: a model of {self.reader.name} has none"
            )
        return self.reader.heads

    @overload
    def __call__(self, given: Examples, *, method: list[str], **options: Any) -> list[list[Explanation]]: ...
    @overload
    def __call__(self, given: Examples, *, method: str | None = ..., **options: Any) -> list[Explanation]: ...
    @overload
    def __call__(self, *, question: list[str], method: list[str], **options: Any) -> list[list[Explanation]]: ...
    @overload
    def __call__(self, *, question: list[str], method: str | None = ..., **options: Any) -> list[Explanation]: ...
    @overload
    def __call__(self, given: Any = ..., *, method: list[str], **options: Any) -> list[Explanation]: ...
    @overload
    def __call__(self, given: Any = ..., *, method: str | None = ..., **options: Any) -> Explanation: ...
    def __call__(
        self,
        given: object = None,
        *,
        question: str | list[str] | None = None,
        context: str | list[str] | None = None,
        generate: int | dict[str, object] | None = None,
        continuation: str | None = None,
        against: int | str | None = None,
        target: object = None,
        method: str | list[str] | None = None,
        batch_size: int = 32,
        ledger: bool | None = None,
        special: str = "keep",
        words: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> Any:
        """Explain one text, one pair of texts (a tuple), one image, one graph, or several of these.

        Several: a list, a generator, a series of pandas, a flat array of texts.

        An image is a path, a picture or an array; a graph is a `Graph`, a SMILES, or one of networkx or of PyTorch
        Geometric. Returns an `Explanation`, or a list of them for a list, in the order given. A list of methods gives
        a list, one per method, in place of each explanation; they share passes where they can; None is the default.
        `target`: a class index or name, None for the prediction, a pair for a difference; for a list also a list with
        one target each; a list of labels of one text, where it may have several.

        Words that are split before: `WordList([...])`. Multiple choice: `(text, [choice, ...])`; `target` is a choice,
        by its index or text, or a pair. Encoders compare a pair of texts; `target` is "cosine", "dot" or "maxsim".

        Labels of words (named entities): `target` is a word, or its characters, and a label; None for every entity, in
        the explanation's `steps`. Masked language models explain the token at each mask.

        `ledger`: itemise where the output went; None does so for a single example. `special="drop"` leaves out special
        tokens; `words=True` merges sub-words to words. Other options are the method's own; with several methods, each
        takes those that it has.

        Question answering: `question` and `context`; `target` is "start", "end", an answer of the context (its text, or
        its characters), "" for no answer, a pair of answers, or None for the predicted one.

        Language models explain the next token of a text or of a chat (a list of messages with "role" and "content");
        with `generate` (how many tokens, or settings of the model's own `generate`) or a given `continuation`, each
        token of it, in the explanation's `steps`; `against` another token, or each "runner-up"; alone, the
        next token against it.
        """
        if question is not None or context is not None:
            given = self._question(given, question, context)
        method = self.default_method if method is None else method
        methods = list(method) if isinstance(method, list | tuple) else [method]
        one = getattr(self.reader, "is_one", None)  # a list of pictures is one video, and one of messages a chat
        several = None if one is not None and one(given) else as_list(given)
        single, every = several is None, [given] if several is None else several
        _check(special, batch_size, max_length, methods)
        check_switches(words=words, ledger=ledger, progress=progress)
        _check_options(methods, options, self.__call__)
        if (generate, continuation, against) != (None, None, None):
            from relprop.tasks.generation import Generation, continued

            if target is not None:
                raise TargetError(
                    "generate, continuation and against explain what is written: leave out target, or give "
                    "target=(this, that) for two next tokens"
                )
            asked = {name: self._options(name, options, bool(ledger), False, len(methods) > 1) for name in methods}
            count = 1 if generate is None and continuation is None else generate
            wanted = Generation(count, continuation, against, batch_size, max_length)
            done = [continued(self.reader, self.task, one, wanted, asked, progress) for one in every]
            if generate is None and continuation is None:  # the next token alone
                done = [[one.step(0) for one in each] for each in done]
        else:
            asked = {name: self._options(name, options, ledger, single, len(methods) > 1) for name in methods}
            labels = single and isinstance(self.task, ClassScore) and self.task.takes_lists
            labels = labels and isinstance(target, list) and len(target) != 1
            targets = [target] if labels else self._each(target, len(every))
            queries = self.task.queries(every, targets, max_length)
            warn_of(sentence for query in queries for sentence in query.warnings)
            done = self._explained(queries, asked, batch_size, progress)
        if special == "drop":
            done = [[one.without_special() for one in each] for each in done]
        if words:
            done = [[one.words() for one in each] for each in done]
        order = [list(asked).index(name) for name in methods]  # the same method may be named twice
        done = [[replace(each[k], model=self.name) for k in order] for each in done]
        results = done if isinstance(method, list | tuple) else [each[0] for each in done]
        return results[0] if single else results

    def _explained(
        self, queries: Sequence[Query], asked: Asked, batch_size: int, progress: bool | None
    ) -> list[list[Explanation]]:
        """Per query one explanation per method."""
        single = [one for query in queries for one in (query.steps if query.steps is not None else [query])]
        done: dict[int, list[Explained]] = {}
        batches = self.reader.batches([query.row for query in single], batch_size)
        for batch in tracked(batches, "explaining", progress):
            found = self._attribute([single[i] for i in batch], asked)
            for number, i in enumerate(batch):
                done[i] = [self._explanation(single[i], found[name], number) for name in asked]
        every = (done[i] for i in range(len(single)))
        results = []
        for query in queries:
            if query.steps is None:
                results.append([one for one, _ in next(every)])
            else:
                steps = [next(every) for _ in query.steps]
                results.append(
                    [
                        (query.joined or joined_steps)(query, METHODS[name], [one[k] for one in steps])
                        for k, name in enumerate(asked)
                    ]
                )
        return results

    def explanation(self, query: Query, found: Attribution, number: int) -> Explanation:
        """The explanation of row `number` of a batch, from what `relprop.attribute` found."""
        return self._explanation(query, found, number)[0]

    def _explanation(self, query: Query, found: Attribution, number: int) -> Explained:
        parts, answer = self.reader.parts(query.row, found, number), self.task.answered(query, found, number)
        explanation = Explanation(
            parts=parts,
            method=found.method,
            target=answer.target,
            value=found.value[number].item(),
            prediction=answer.prediction,
            probability=answer.probability,
            ledger=ledger_of(found, number, sum(part.total for part in parts)),
            baseline=None if found.baseline is None else found.baseline[number].item(),
            signed=METHODS[found.method].signed,
            box=answer.box,
            quantity="" if answer.target == NUMBER else quantity_of(query.target),
            warnings=(*query.warnings, *found.warnings),
        )
        return explanation, answer

    def _question(self, given: object, question: object, context: object) -> object:
        """Questions with their contexts; refused where the task does not answer any."""
        from relprop.tasks.answers import paired

        if not getattr(self.task, "takes_questions", False):
            raise InputError(
                f"question and context are for models that answer questions, and {type(self.model).__name__} does not: "
                "give the text itself, or a pair of texts as a tuple"
            )
        return paired(given, as_list(question) or question, as_list(context) or context)

    def _options(
        self, method: str, options: dict[str, object], ledger: bool | None, single: bool, several: bool
    ) -> dict[str, object]:
        """A method's own options; one that it does not have is an error, unless it is meant for another."""
        record = METHODS[method]
        own = {name: value for name, value in options.items() if name in record.options or not several}
        if "ledger" in record.options and (single if ledger is None else ledger):
            own["ledger"] = True
        elif ledger and not several:
            own["ledger"] = True  # which it does not have: refused below
        record.check(own)
        return own

    def _attribute(self, queries: Sequence[Query], asked: Asked) -> dict[str, Attribution]:
        """All methods on one batch. Those whose pass serves others too go first."""
        rows, targets = [query.row for query in queries], [query.target for query in queries]
        inputs = self.reader.inputs(rows)
        found = {}
        with shared_passes() if len(asked) > 1 else nullcontext():
            for name in sorted(asked, key=lambda name: (not METHODS[name].two_way, not METHODS[name].maps)):
                settled = self.reader.options(METHODS[name].options, asked[name], rows, inputs)
                silent = self.reader.silent(rows) if isinstance(self.reader, SeriesReader) else ()
                found[name] = with_warnings(attribute(self.model, inputs, targets, name, **settled), silent)
        return found

    def evaluate(
        self,
        given: Sequence[object],
        labels: object = None,
        *,
        methods: Sequence[str],
        metrics: Sequence[str] | None = None,
        replacement: str | int | None = "mask",
        batch_size: int = 32,
        progress: bool | None = None,
        **options: object,
    ) -> Evaluation:
        """Compare methods on texts or graphs: do their scores say what the model uses? `print` the result for a table.

        `labels`: one class index or name per input, which is explained and whose probability is read; None takes the
        predicted ones. `metrics`: by default all of `relprop.metrics.FAITHFULNESS`. A hidden token becomes
        `replacement`: "mask", "unk", a token id; None leaves it out, as a node of a graph always is, with its edges.
        Other options go to the methods that have them. All methods and metrics share their perturbed inputs.
        """
        from relprop.evaluation import join_batches
        from relprop.metrics import FAITHFULNESS, faithfulness

        self.task.check_evaluation()
        if not given or not methods:
            raise InputError(f"there is nothing to compare: {len(given)} {self.reader.name}, {len(methods)} methods")
        _check("keep", batch_size, None, list(methods))
        check_switches(progress=progress)
        _check_options(methods, options, self.evaluate)
        queries = self.task.queries(given, self._each(labels, len(given)), None)
        asked = {METHODS[name].name: self._options(name, options, False, False, True) for name in methods}
        chosen = FAITHFULNESS if metrics is None else metrics
        parts, order = [], []
        for batch in tracked(self.reader.batches([query.row for query in queries], batch_size), "explaining", progress):
            chunk = [queries[i] for i in batch]
            rows = [query.row for query in chunk]
            hidden = self.reader.hidden(rows, self.reader.inputs(rows), replacement)
            found = self._attribute(chunk, asked)
            classes = None if labels is None else [self._class(query.target) for query in chunk]
            scores = [found[name].scores for name in asked]
            curves = faithfulness(self.model, hidden, scores, classes, metrics=chosen, batch_size=batch_size)
            parts.append(dict(zip(asked, curves, strict=True)))
            order += batch
        return join_batches(parts, order)

    def _class(self, label: Any) -> Any:
        """A class's index from its name."""
        return {name: index for index, name in self.labels.items()}.get(label, label)

    def inputs(self, given: Sequence[object]) -> dict[str, Tensor]:
        """Texts, images or graphs as a batch for the model, `relprop.attribute` or `relprop.check`."""
        return self.reader.inputs(read_all(self.reader, given))

    def targets(self, target: object, count: int) -> list[object]:
        """One target per example; a language model's tokens as ids."""
        return [self.task.target(one) for one in self._each(target, count)]

    def _each(self, target: object, count: int) -> list[object]:
        if hasattr(target, "tolist"):  # a tensor, an array, a series
            target = target.tolist()
        each = target if isinstance(target, list) else [target] * count
        if len(each) != count:
            raise TargetError(f"{len(each)} targets for {count} {self.task.name}")
        return each


def _check(special: str, batch_size: int, max_length: int | None, methods: list[str]) -> None:
    if not methods:
        raise InputError("the list of methods is empty")
    if special not in ("keep", "drop"):
        raise InputError(f'special is "keep" or "drop", got {special!r}')
    for name, number in (("batch_size", batch_size), ("max_length", 1 if max_length is None else max_length)):
        if not isinstance(number, int) or number < 1:
            kind = "" if isinstance(number, int) and not isinstance(number, bool) else "a whole number, "
            raise InputError(f"{name} must be {kind}at least 1, got {number!r:.80}")


def _check_options(methods: Sequence[str], options: Mapping[str, object], call: Callable[..., Any]) -> None:
    """Raise for an option that none of the methods has; `call`: whose arguments may have been meant."""
    records = [METHODS[name] for name in methods]
    for option in options:
        if not any(option in record.options for record in records):
            records[0].check({option: options[option]}, call)


@lru_cache(maxsize=2)
def _loaded(model: str, tokenizer: str | Path | None, files: object) -> Explainer:
    return Explainer(model, tokenizer)


def _explainer(model: Any, tokenizer: Any) -> Explainer:
    """A named model is loaded once, until the files of its folder change."""
    if not isinstance(model, str | Path) or not isinstance(tokenizer, str | Path | None):
        return Explainer(model, tokenizer)
    return _loaded(str(model), tokenizer, stamp(model))


@overload
def explain(text: Examples, *, method: list[str], **options: Any) -> list[list[Explanation]]: ...
@overload
def explain(text: Examples, *, method: str | None = ..., **options: Any) -> list[Explanation]: ...
@overload
def explain(text: Any = ..., *, method: list[str], **options: Any) -> list[Explanation]: ...
@overload
def explain(text: Any = ..., *, method: str | None = ..., **options: Any) -> Explanation: ...
def explain(text: Any = None, *, model: Any = "sentiment", tokenizer: Any = None, **options: Any) -> Any:
    """Explain with a model, by default the embedded one of sentiment: no download.

    `model` and `tokenizer` are what `Explainer` takes, the options what `Explainer.__call__` takes.
    """
    return _explainer(model, tokenizer)(text, **options)
