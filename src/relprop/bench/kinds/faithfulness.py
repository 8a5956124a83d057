"""Do a method's scores say what the model uses? Texts with tokens hidden, for all methods and metrics together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from relprop.bench.datasets import Example
from relprop.bench.kinds.batches import Batch, batched, texts_of
from relprop.bench.kinds.kind import Job
from relprop.bench.measured import Measured
from relprop.bench.suites import Suite, Task
from relprop.errors import InputError
from relprop.metrics import FAITHFULNESS, ceiling, conservation, faithfulness, plan
from relprop.registry import METHODS
from relprop.types import Attribution

CEILING = "ceiling"  # the name under which the best order is reported
SEARCHED = ("auac", "au_mse")
CONSERVATION = ("conservation_correlation", "conservation_gap")
Found = Mapping[str, Attribution]  # by the method's label


def examples(suite: Suite, task: Task, folder: Path | None) -> Sequence[Example]:
    return suite.catalog.dataset(task.data).examples(task.split, folder)


def check(job: Job) -> None:
    """One example through everything."""
    texts_of(job)
    unknown = [metric for metric in job.metrics if metric not in (*FAITHFULNESS, *CONSERVATION)]
    if unknown or not job.metrics:
        known = ", ".join((*FAITHFULNESS, *CONSERVATION))
        raise InputError(f"faithfulness takes metrics of {known}; got {', '.join(unknown) or 'none'}")
    if not job.methods:
        raise InputError("there is no method to be measured")
    measure(job)


def measure(job: Job) -> Measured:
    whole, batches = batched(job)
    for batch in batches:
        found = {method.label: batch.explained(method, whole) for method in job.methods}
        _add_curves(whole, job, batch, found)
        if job.task.ceiling:
            _add_ceiling(whole, job, batch)
        if any(metric in CONSERVATION for metric in job.metrics):
            _add_totals(whole, job, found)
        _add_heatmaps(whole, job, batch, found)
    return whole


def _add_curves(whole: Measured, job: Job, batch: Batch, found: Found) -> None:
    metrics = [metric for metric in job.metrics if metric in FAITHFULNESS]
    if not metrics:
        return
    tokens = batch.texts.tokens(batch.rows, batch.inputs, job.task.replacement or None)
    scores = [one.scores for one in found.values()]
    size = job.task.batch_size
    curves = faithfulness(batch.texts.model, tokens, scores, batch.labels, metrics=metrics, batch_size=size)
    for label, own in zip(found, curves, strict=True):
        for metric, curve in own.items():
            whole.add(label, metric, curve.scores().tolist())
            whole.add_curve(label, metric, curve.fractions, curve.values.tolist())


def _add_ceiling(whole: Measured, job: Job, batch: Batch) -> None:
    """How far any scores could get, by search: on texts short enough, and not defined for the others."""
    most, size = job.task.ceiling, job.task.batch_size
    short = [i for i, row in enumerate(batch.rows) if sum(not unit.special for unit in row.units) <= most]
    for metric in (metric for metric in job.metrics if metric in SEARCHED):
        fractions = plan(metric).fractions
        values = np.full((len(batch.rows), len(fractions)), np.nan)
        scores = np.full(len(batch.rows), np.nan)
        if short:
            some = [batch.rows[i] for i in short]
            tokens = batch.texts.tokens(some, batch.texts.inputs(some), job.task.replacement or None)
            labels = None if batch.labels is None else [batch.labels[i] for i in short]
            best = ceiling(batch.texts.model, tokens, labels, metric=metric, longest=most, batch_size=size)
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


def _add_heatmaps(whole: Measured, job: Job, batch: Batch, found: Found) -> None:
    for place, (number, example) in enumerate(zip(batch.numbers, batch.examples, strict=True)):
        if number >= job.shown:
            continue
        about = {"kind": "text", "example": job.places[number]}
        for label, one in found.items():
            explanation = batch.texts.explanation(example.text, batch.rows[place], one, place)
            whole.exhibits.append({**about, "method": label, "explanation": explanation.to_json()})
