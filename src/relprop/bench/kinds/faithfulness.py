"""Do a method's scores say what the model uses? Tokens or nodes are hidden, for all methods and metrics together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relprop.bench.datasets import Example, Picture
from relprop.bench.kinds import exhibits
from relprop.bench.kinds.batches import Batch, batched
from relprop.bench.kinds.kind import Job
from relprop.bench.measured import Measured
from relprop.bench.suites import Suite, Task
from relprop.errors import InputError
from relprop.graphs import Graphs
from relprop.metrics import FAITHFULNESS, ceiling, conservation, faithfulness, plan, relevance_mass
from relprop.registry import METHODS
from relprop.texts import Texts
from relprop.types import Attribution

CEILING = "ceiling"  # the name under which the best order is reported
UNIFORM = "uniform map"  # and the one of a picture whose pixels all have the same score
SEARCHED = ("auac", "au_mse")
CONSERVATION = ("conservation_correlation", "conservation_gap")
MASS = "relevance_mass"
KNOWN = (*FAITHFULNESS, *CONSERVATION, MASS)
INK = 127  # pixels above this are of the digit: half of the brightest
Found = Mapping[str, Attribution]  # by the method's label


def examples(suite: Suite, task: Task, folder: Path | None) -> Sequence[Example]:
    return suite.catalog.dataset(task.data).examples(task.split, folder)


def check(job: Job) -> None:
    """One example through everything."""
    domain = domain_of(job)
    unknown = [metric for metric in job.metrics if metric not in KNOWN]
    if unknown or not job.metrics:
        raise InputError(f"faithfulness takes metrics of {', '.join(KNOWN)}; got {', '.join(unknown) or 'none'}")
    if not job.methods:
        raise InputError("there is no method to be measured")
    if isinstance(domain, Graphs) and job.task.replacement:
        raise InputError('a hidden node is taken out, and nothing takes its place: set replacement = ""')
    if MASS in job.metrics and not (isinstance(domain, Graphs) and isinstance(job.examples[0].text, Picture)):
        raise InputError(f'"{MASS}" is for pictures that are read as graphs: leave it out of this task')
    measure(job)


def domain_of(job: Job) -> Texts | Graphs:
    domain = job.explainer.domain
    if not isinstance(domain, Texts | Graphs):
        raise InputError(
            f'"{job.task.model}" is a model of {domain.name}, and the task hides tokens or nodes; kind = "pictures" '
            "hides pixels"
        )
    return domain


def measure(job: Job) -> Measured:
    whole, batches = batched(job, domain_of(job))
    for batch in batches:
        found = {method.label: batch.explained(method, whole) for method in job.methods}
        _add_curves(whole, job, batch, found)
        if job.task.ceiling:
            _add_ceiling(whole, job, batch)
        if any(metric in CONSERVATION for metric in job.metrics):
            _add_totals(whole, job, found)
        if MASS in job.metrics:
            _add_mass(whole, batch, found)
        _add_heatmaps(whole, job, batch, found)
    return whole


def _add_curves(whole: Measured, job: Job, batch: Batch, found: Found) -> None:
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


def _add_ceiling(whole: Measured, job: Job, batch: Batch) -> None:
    """How far any scores could get, by search: on texts and graphs small enough, and not defined for the others."""
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


def _add_totals(whole: Measured, job: Job, found: Found) -> None:
    """Of signed methods: scores without a sign are no shares of the output."""
    for method in job.methods:
        if METHODS[method.method].signed:
            pair = conservation(found[method.label].scores, found[method.label].value)
            whole.add(method.label, "total", pair.totals.tolist())
            whole.add(method.label, "value", pair.values.tolist())


def _add_mass(whole: Measured, batch: Batch, found: Found) -> None:
    """Of pictures that are read as graphs of their regions. The virtual node is nowhere, and does not count."""
    assert isinstance(batch.domain, Graphs)
    inked = [np.asarray(example.text) > INK for example in batch.examples]
    whole.add(UNIFORM, MASS, [ink.mean() for ink in inked])
    for label, one in found.items():
        explained = [batch.domain.explanation(None, row, one, place) for place, row in enumerate(batch.rows)]
        pairs = zip(explained, inked, strict=True)
        whole.add(label, MASS, [relevance_mass(each.scores, each.graph.source, ink) for each, ink in pairs])


def _add_heatmaps(whole: Measured, job: Job, batch: Batch, found: Found) -> None:
    for place, (number, example) in enumerate(zip(batch.numbers, batch.examples, strict=True)):
        if number >= job.shown:
            continue
        given: Any = example.text
        each: Any = {
            label: batch.domain.explanation(given, batch.rows[place], one, place) for label, one in found.items()
        }
        if isinstance(batch.domain, Graphs):
            whole.exhibits += exhibits.graphs(each, job.places[number])
        else:
            about = {"kind": "text", "example": job.places[number]}
            whole.exhibits += [{**about, "method": label, "explanation": one.to_json()} for label, one in each.items()]
