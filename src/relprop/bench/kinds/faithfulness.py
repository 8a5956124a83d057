"""Do a method's scores say what the model uses? Tokens or nodes are hidden, for all methods and metrics together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relprop.bench.datasets import GreyImage
from relprop.bench.kinds.batches import Batch, make_batches
from relprop.bench.kinds.exhibits import graph_exhibits, text_exhibit
from relprop.bench.kinds.task_kind import CellJob, Judge, TaskKind
from relprop.bench.measurements import CEILING, UNIFORM, Measurements
from relprop.errors import InputError
from relprop.metrics import (
    FAITHFULNESS,
    Nodes,
    Tokens,
    ceiling,
    conservation,
    f_fidelity,
    faithfulness,
    limits,
    plan,
    relevance_mass,
    token_logits,
)
from relprop.metrics.f_fidelity import DRAWS
from relprop.metrics.token_perturbation import nothing_hidden
from relprop.readers.graph import GraphReader
from relprop.readers.text import TextReader
from relprop.registry import METHODS
from relprop.types import Attribution

SEARCHED = ("auac", "au_mse")  # metrics that have a ceiling
CONSERVATION = (
    "conservation_correlation",
    "conservation_gap",
    "conservation_wrong_sign",
    "conservation_median_miss",
)
MASS = "relevance_mass"
NORMALISED = "naopc"  # AOPC between its limits
JUDGED = {"f_fidelity_plus": "plus", "f_fidelity_minus": "minus"}  # asked of the judge; fields of `FFidelity`
INK = 127  # pixels above this belong to the digit: half of the brightest
Attributions = Mapping[str, Attribution]  # by the method's label


class Faithfulness(TaskKind):
    metrics = (*FAITHFULNESS, *CONSERVATION, MASS, NORMALISED, *JUDGED)
    options = ("judge", "draws")  # a recipe's model that was trained with tokens hidden; how often hiding is drawn

    def check(self, job: CellJob) -> None:
        graphs = isinstance(_reader(job), GraphReader)
        job.explainer.task.check_evaluation()
        if not job.methods:
            raise InputError("there is no method to measure")
        if graphs and job.task.replacement:
            raise InputError('a hidden node is removed, and nothing replaces it: set replacement = ""')
        if NORMALISED in job.metrics and not (job.task.ceiling and "aopc" in job.metrics):
            raise InputError(f'"{NORMALISED}" needs the metric "aopc", and "ceiling": the most tokens of a text')
        if any(metric in JUDGED for metric in job.metrics) != (job.judge is not None):
            raise InputError(
                f'the metrics {", ".join(JUDGED)} need a judge, and only they: options = {{ judge = "recipe:NAME" }} '
                "names a model that was trained with tokens hidden at random"
            )
        if job.judge is not None:
            _check_judge(job, job.judge)
        if MASS in job.metrics and not (graphs and isinstance(job.examples[0].text, GreyImage)):
            raise InputError(f'"{MASS}" is for images that are read as graphs: leave it out of this task')
        super().check(job)

    def measure(self, job: CellJob) -> Measurements:
        whole, batches = make_batches(job)
        for batch in batches:
            found = {method.label: batch.explain(method, whole) for method in job.methods}
            _add_curves(whole, job, batch, found)
            if job.task.ceiling:
                _add_ceiling(whole, job, batch)
            if job.judge is not None:
                _add_judged(whole, job, job.judge, batch, found)
            if NORMALISED in job.metrics:
                _add_normalised(whole, job, batch, found)
            if any(metric in CONSERVATION for metric in job.metrics):
                _add_totals(whole, job, found)
            if MASS in job.metrics:
                _add_mass(whole, batch, found)
            _add_heatmaps(whole, job, batch, found)
        return whole


def _reader(job: CellJob) -> TextReader | GraphReader:
    reader = job.explainer.reader
    if not isinstance(reader, TextReader | GraphReader):
        raise InputError(
            f'"{job.task.model}" is a model of {reader.name}, and the task hides tokens or nodes; kind = "pictures" '
            "hides pixels"
        )
    return reader


def _check_judge(job: CellJob, judge: Judge) -> None:
    """Both models must read the same token ids and mean the same by their classes."""
    readers = [_reader(one) for one in (job, replace(job, explainer=judge.explainer))]
    if not all(isinstance(one, TextReader) for one in readers):
        raise InputError("a judge is a model of texts, as the explained one")
    words = [one.tokenizer.get_vocab() for one in readers if isinstance(one, TextReader)]
    if words[0] != words[1] or job.explainer.labels != judge.explainer.labels:
        raise InputError(
            f'the judge "{job.task.options["judge"]}" has another vocabulary or other classes than "{job.task.model}": '
            "let its recipe start from that model"
        )


def _add_curves(whole: Measurements, job: CellJob, batch: Batch, found: Attributions) -> None:
    metrics = [metric for metric in job.metrics if metric in FAITHFULNESS]
    if not metrics:
        return
    units = _reader(job).hidden(batch.rows, batch.inputs, job.task.replacement or None)
    scores = [one.scores for one in found.values()]
    size = job.task.batch_size
    curves = faithfulness(job.explainer.model, units, scores, batch.labels, metrics=metrics, batch_size=size)
    for label, own in zip(found, curves, strict=True):
        for metric, curve in own.items():
            whole.add(label, metric, curve.scores().tolist())
            whole.add_curve(label, metric, curve.fractions, curve.values.tolist())


def _add_judged(whole: Measurements, job: CellJob, judge: Judge, batch: Batch, found: Attributions) -> None:
    """F-Fidelity: the judge is right where it says the explained class, the true or the predicted one."""
    reader, own = _reader(job), _reader(replace(job, explainer=judge.explainer))
    units = own.hidden(batch.rows, batch.inputs, judge.replacement)
    labels = batch.labels
    if labels is None:
        labels = token_logits(reader.model, units, nothing_hidden(units)).argmax(-1).tolist()
    results = f_fidelity(
        judge.explainer.model,
        units,
        [one.scores for one in found.values()],
        labels,
        beta=judge.hide,
        draws=int(job.task.options.get("draws", DRAWS)),
        seed=job.seed,
        batch_size=job.task.batch_size,
    )
    for label, result in zip(found, results, strict=True):
        for metric in (metric for metric in job.metrics if metric in JUDGED):
            values = getattr(result, JUDGED[metric])
            whole.add(label, metric, values.mean(1).tolist())
            whole.add_curve(label, metric, result.fractions, values.tolist())


@dataclass(frozen=True)
class _ShortExamples:
    """The examples of a batch that are short enough for a search."""

    places: list[int]  # in the batch
    units: Tokens | Nodes
    labels: list[Any] | None


def _short_examples(job: CellJob, batch: Batch) -> _ShortExamples | None:
    reader, replacement = _reader(job), job.task.replacement or None
    counts = reader.hidden(batch.rows, batch.inputs, replacement).hideable.sum(1)
    places = [i for i, count in enumerate(counts.tolist()) if count <= job.task.ceiling]
    if not places:
        return None
    rows = [batch.rows[i] for i in places]
    labels = None if batch.labels is None else [batch.labels[i] for i in places]
    return _ShortExamples(places, reader.hidden(rows, reader.inputs(rows), replacement), labels)


def _add_normalised(whole: Measurements, job: CellJob, batch: Batch, labels: Iterable[str]) -> None:
    """AOPC between the lowest and highest value that a search finds; NaN for what is too large, or has no range."""
    short, count = _short_examples(job, batch), len(batch.rows)
    lowest, highest = np.full(count, np.nan), np.full(count, np.nan)
    if short is not None:
        found = limits(
            job.explainer.model,
            short.units,
            short.labels,
            longest=job.task.ceiling,
            batch_size=job.task.batch_size,
        )
        lowest[short.places], highest[short.places] = found
    span = np.where(highest > lowest, highest - lowest, np.nan)
    for label in labels:
        values = np.array(whole.scores[label]["aopc"][-count:])
        whole.add(label, NORMALISED, ((values - lowest) / span).tolist())


def _add_ceiling(whole: Measurements, job: CellJob, batch: Batch) -> None:
    """The best that any scores could reach, by search; NaN for texts and graphs that are too large."""
    short = _short_examples(job, batch)
    for metric in (metric for metric in job.metrics if metric in SEARCHED):
        fractions = plan(metric).fractions
        values = np.full((len(batch.rows), len(fractions)), np.nan)
        scores = np.full(len(batch.rows), np.nan)
        if short is not None:
            best = ceiling(
                job.explainer.model,
                short.units,
                short.labels,
                metric=metric,
                longest=job.task.ceiling,
                batch_size=job.task.batch_size,
            )
            values[short.places], scores[short.places] = best.values, best.scores()
        whole.add(CEILING, metric, scores.tolist())
        whole.add_curve(CEILING, metric, fractions, values.tolist())


def _add_totals(whole: Measurements, job: CellJob, found: Attributions) -> None:
    """The sum of scores and the output, for signed methods: scores without a sign are not shares of the output."""
    for method in job.methods:
        if METHODS[method.method].signed:
            pair = conservation(found[method.label].scores, found[method.label].value)
            whole.add(method.label, "total", pair.totals.tolist())
            whole.add(method.label, "value", pair.values.tolist())


def _add_mass(whole: Measurements, batch: Batch, found: Attributions) -> None:
    """For images that are read as graphs of their regions. The virtual node covers no pixels and does not count."""
    inked = [np.asarray(example.text) > INK for example in batch.examples]
    whole.add(UNIFORM, MASS, [ink.mean() for ink in inked])
    for label, one in found.items():
        parts = [batch.explanation(one, place).part for place in range(len(batch.rows))]
        pairs = zip(parts, inked, strict=True)
        whole.add(label, MASS, [relevance_mass(part.scores, part.graph.source, ink) for part, ink in pairs])


def _add_heatmaps(whole: Measurements, job: CellJob, batch: Batch, found: Attributions) -> None:
    for place, number in enumerate(batch.numbers):
        if number >= job.shown:
            continue
        each = {label: batch.explanation(one, place) for label, one in found.items()}
        if isinstance(_reader(job), GraphReader):
            whole.exhibits += graph_exhibits(each, job.places[number])
        else:
            whole.exhibits += [text_exhibit(one, job.places[number], label) for label, one in each.items()]
