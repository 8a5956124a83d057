"""Do a method's scores say what the model uses? Tokens or nodes are hidden, for all methods and metrics together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from relprop.bench.datasets import GreyImage
from relprop.bench.kinds.batches import Batch, make_batches
from relprop.bench.kinds.exhibits import graph_exhibits, text_exhibit
from relprop.bench.kinds.task_kind import CellJob, TaskKind
from relprop.bench.measurements import CEILING, UNIFORM, Measurements
from relprop.errors import InputError
from relprop.metrics import FAITHFULNESS, ceiling, conservation, faithfulness, plan, relevance_mass
from relprop.readers.graph import GraphReader
from relprop.readers.text import TextReader
from relprop.registry import METHODS
from relprop.types import Attribution

SEARCHED = ("auac", "au_mse")  # metrics that have a ceiling
CONSERVATION = ("conservation_correlation", "conservation_gap")
MASS = "relevance_mass"
INK = 127  # pixels above this belong to the digit: half of the brightest
Attributions = Mapping[str, Attribution]  # by the method's label


class Faithfulness(TaskKind):
    metrics = (*FAITHFULNESS, *CONSERVATION, MASS)

    def check(self, job: CellJob) -> None:
        graphs = isinstance(_reader(job), GraphReader)
        job.explainer.task.check_evaluation()
        if not job.methods:
            raise InputError("there is no method to measure")
        if graphs and job.task.replacement:
            raise InputError('a hidden node is removed, and nothing replaces it: set replacement = ""')
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


def _add_ceiling(whole: Measurements, job: CellJob, batch: Batch) -> None:
    """The best that any scores could reach, by search; NaN for texts and graphs that are too large."""
    most, size = job.task.ceiling, job.task.batch_size
    reader, replacement = _reader(job), job.task.replacement or None
    counts = reader.hidden(batch.rows, batch.inputs, replacement).hideable.sum(1)
    short = [i for i, count in enumerate(counts.tolist()) if count <= most]
    for metric in (metric for metric in job.metrics if metric in SEARCHED):
        fractions = plan(metric).fractions
        values = np.full((len(batch.rows), len(fractions)), np.nan)
        scores = np.full(len(batch.rows), np.nan)
        if short:
            some = [batch.rows[i] for i in short]
            units = reader.hidden(some, reader.inputs(some), replacement)
            labels = None if batch.labels is None else [batch.labels[i] for i in short]
            best = ceiling(reader.model, units, labels, metric=metric, longest=most, batch_size=size)
            values[short], scores[short] = best.values, best.scores()
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
