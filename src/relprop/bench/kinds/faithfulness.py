"""Do a method's scores say what the model uses? Tokens or nodes are hidden, for all methods and metrics together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relprop.bench.datasets import GreyImage
from relprop.bench.kinds.batches import Batch, make_batches
from relprop.bench.kinds.exhibits import graph_exhibits, text_exhibit
from relprop.bench.kinds.task_kind import CellJob, TaskKind
from relprop.bench.measurements import CEILING, UNIFORM, Measurements
from relprop.errors import InputError
from relprop.graphs import Graphs
from relprop.metrics import FAITHFULNESS, ceiling, conservation, faithfulness, plan, relevance_mass
from relprop.registry import METHODS
from relprop.texts import Texts
from relprop.types import Attribution

SEARCHED = ("auac", "au_mse")  # metrics that have a ceiling
CONSERVATION = ("conservation_correlation", "conservation_gap")
MASS = "relevance_mass"
INK = 127  # pixels above this belong to the digit: half of the brightest
Attributions = Mapping[str, Attribution]  # by the method's label


class Faithfulness(TaskKind):
    metrics = (*FAITHFULNESS, *CONSERVATION, MASS)

    def check(self, job: CellJob) -> None:
        domain = _reader(job)
        if not job.methods:
            raise InputError("there is no method to measure")
        if isinstance(domain, Graphs) and job.task.replacement:
            raise InputError('a hidden node is removed, and nothing replaces it: set replacement = ""')
        if MASS in job.metrics and not (isinstance(domain, Graphs) and isinstance(job.examples[0].text, GreyImage)):
            raise InputError(f'"{MASS}" is for images that are read as graphs: leave it out of this task')
        super().check(job)

    def measure(self, job: CellJob) -> Measurements:
        whole, batches = make_batches(job, _reader(job))
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


def _reader(job: CellJob) -> Texts | Graphs:
    domain = job.explainer.domain
    if not isinstance(domain, Texts | Graphs):
        raise InputError(
            f'"{job.task.model}" is a model of {domain.name}, and the task hides tokens or nodes; kind = "pictures" '
            "hides pixels"
        )
    return domain


def _add_curves(whole: Measurements, job: CellJob, batch: Batch, found: Attributions) -> None:
    metrics = [metric for metric in job.metrics if metric in FAITHFULNESS]
    if not metrics:
        return
    tokens = batch.domain.tokens(batch.rows, batch.inputs, job.task.replacement or None)
    scores = [one.scores for one in found.values()]
    size = job.task.batch_size
    curves = faithfulness(batch.domain.model, tokens, scores, batch.labels, metrics=metrics, batch_size=size)
    for label, own in zip(found, curves, strict=True):
        for metric, curve in own.items():
            whole.add(label, metric, curve.scores().tolist())
            whole.add_curve(label, metric, curve.fractions, curve.values.tolist())


def _add_ceiling(whole: Measurements, job: CellJob, batch: Batch) -> None:
    """The best that any scores could reach, by search; NaN for texts and graphs that are too large."""
    most, size = job.task.ceiling, job.task.batch_size
    units = batch.domain.tokens(batch.rows, batch.inputs, job.task.replacement or None).hideable.sum(1)
    short = [i for i, count in enumerate(units.tolist()) if count <= most]
    for metric in (metric for metric in job.metrics if metric in SEARCHED):
        fractions = plan(metric).fractions
        values = np.full((len(batch.rows), len(fractions)), np.nan)
        scores = np.full(len(batch.rows), np.nan)
        if short:
            some = [batch.rows[i] for i in short]
            tokens = batch.domain.tokens(some, batch.domain.inputs(some), job.task.replacement or None)
            labels = None if batch.labels is None else [batch.labels[i] for i in short]
            best = ceiling(batch.domain.model, tokens, labels, metric=metric, longest=most, batch_size=size)
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
    assert isinstance(batch.domain, Graphs)
    inked = [np.asarray(example.text) > INK for example in batch.examples]
    whole.add(UNIFORM, MASS, [ink.mean() for ink in inked])
    for label, one in found.items():
        explained = [batch.domain.explanation(None, row, one, place) for place, row in enumerate(batch.rows)]
        pairs = zip(explained, inked, strict=True)
        whole.add(label, MASS, [relevance_mass(each.scores, each.graph.source, ink) for each, ink in pairs])


def _add_heatmaps(whole: Measurements, job: CellJob, batch: Batch, found: Attributions) -> None:
    for place, (number, example) in enumerate(zip(batch.numbers, batch.examples, strict=True)):
        if number >= job.shown:
            continue
        given: Any = example.text
        each: Any = {
            label: batch.domain.explanation(given, batch.rows[place], one, place) for label, one in found.items()
        }
        if isinstance(batch.domain, Graphs):
            whole.exhibits += graph_exhibits(each, job.places[number])
        else:
            whole.exhibits += [text_exhibit(one, job.places[number], label) for label, one in each.items()]
