"""Do a method's scores say what the model uses? Texts with tokens hidden, for all methods and metrics together."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relprop.attribution import attribute
from relprop.bench.datasets import Example
from relprop.bench.kinds.kind import Job
from relprop.bench.measured import Measured
from relprop.bench.suites import Method, Suite, Task
from relprop.domains.text import Encoded, TruncationWarning
from relprop.errors import InputError
from relprop.metrics import FAITHFULNESS, ceiling, conservation, faithfulness, plan
from relprop.registry import METHODS
from relprop.texts import Texts
from relprop.types import Attribution

CEILING = "ceiling"  # the name under which the best order is reported
SEARCHED = ("auac", "au_mse")
CONSERVATION = ("conservation_correlation", "conservation_gap")


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
    texts = texts_of(job)
    rows = encoded(texts, job)
    batches = texts.batches(rows, job.task.batch_size)
    whole = Measured([job.places[i] for batch in batches for i in batch])
    metrics = [metric for metric in job.metrics if metric in FAITHFULNESS]
    for batch in batches:
        chunk = [rows[i] for i in batch]
        labels = [job.examples[i].label for i in batch] if job.task.explain == "label" else None
        inputs = texts.inputs(chunk)
        found = {}
        for method in job.methods:
            found[method.label] = attributed(texts, chunk, inputs, labels, method, whole)
        if metrics:
            tokens = texts.tokens(chunk, inputs, job.task.replacement or None)
            scores = [one.scores for one in found.values()]
            curves = faithfulness(texts.model, tokens, scores, labels, metrics=metrics, batch_size=job.task.batch_size)
            for label, own in zip(found, curves, strict=True):
                for metric, curve in own.items():
                    whole.add(label, metric, curve.scores().tolist())
                    whole.add_curve(label, metric, curve.fractions, curve.values.tolist())
            if job.task.ceiling:
                add_ceiling(whole, job, texts, chunk, labels)
        if any(metric in CONSERVATION for metric in job.metrics):
            for label, one in found.items():
                if METHODS[_named(job, label).method].signed:
                    pair = conservation(one.scores, one.value)
                    whole.add(label, "total", pair.totals.tolist())
                    whole.add(label, "value", pair.values.tolist())
        for number, i in enumerate(batch):
            if i < job.shown:
                for label, one in found.items():
                    explanation = texts.explanation(job.examples[i].text, chunk[number], one, number)
                    whole.exhibits.append(
                        {
                            "kind": "text",
                            "example": job.places[i],
                            "method": label,
                            "explanation": explanation.to_json(),
                        }
                    )
    return whole


def add_ceiling(whole: Measured, job: Job, texts: Texts, rows: list[Encoded], labels: list[int] | None) -> None:
    """How far any scores could get, by search: on texts short enough, and not defined for the others."""
    short = [i for i, row in enumerate(rows) if sum(not unit.special for unit in row.units) <= job.task.ceiling]
    for metric in (metric for metric in job.metrics if metric in SEARCHED):
        fractions = plan(metric).fractions
        values = np.full((len(rows), len(fractions)), np.nan)
        scores = np.full(len(rows), np.nan)
        if short:
            some = [rows[i] for i in short]
            tokens = texts.tokens(some, texts.inputs(some), job.task.replacement or None)
            own = None if labels is None else [labels[i] for i in short]
            best = ceiling(
                texts.model, tokens, own, metric=metric, longest=job.task.ceiling, batch_size=job.task.batch_size
            )
            values[short], scores[short] = best.values, best.scores()
        whole.add(CEILING, metric, scores.tolist())
        whole.add_curve(CEILING, metric, fractions, values.tolist())


def encoded(texts: Texts, job: Job) -> list[Encoded]:
    """That long texts are cut is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        return texts.encode([example.text for example in job.examples], job.task.max_length)


def texts_of(job: Job) -> Texts:
    domain = job.explainer.domain
    if not isinstance(domain, Texts):
        raise InputError(f'"{job.task.model}" is a model of images, and the task is about texts')
    return domain


def attributed(
    texts: Texts, rows: list[Any], inputs: dict[str, Any], labels: Any, method: Method, whole: Measured
) -> Attribution:
    """A method's scores of a batch, and how long it took."""
    settled = texts.options(METHODS[method.method].options, dict(method.options), rows, inputs)
    start = time.perf_counter()
    found = attribute(texts.model, inputs, labels, method.method, **settled)
    whole.took(method.label, time.perf_counter() - start)
    return found


def _named(job: Job, label: str) -> Method:
    return next(one for one in job.methods if one.label == label)
