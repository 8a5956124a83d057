"""The report's figures: curves, methods along a line, and the scatter of conservation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from relprop.bench.measured import Measured
from relprop.bench.report import plots
from relprop.bench.report.blocks import Key, Panel, Plot
from relprop.bench.report.comparing import compared, shown_tasks
from relprop.bench.report.estimates import correlation
from relprop.bench.report.results import CEILING, Results
from relprop.bench.suites import Method, Table
from relprop.metrics import METRICS

BY_BLOCK = "relevance_by_block"
_PIXELS = ("pixels hidden", "accuracy")
_AXES = {  # what lies along and upright
    "auac": ("share shown", "p of the class"),
    "au_mse": ("share hidden", "squared change of logits"),
    "aopc": ("share hidden", "drop of p"),
    "log_odds": ("share hidden", "log p / p before"),
    "comprehensiveness": ("share hidden", "drop of p"),
    "sufficiency": ("share kept", "drop of p"),
    "token_f1": ("words taken, k", "F1"),
    "positive_auc_target": _PIXELS,
    "negative_auc_target": _PIXELS,
    "positive_auc_predicted": _PIXELS,
    "negative_auc_predicted": _PIXELS,
    "randomised_spearman": ("blocks randomised", "rank correlation"),
    "randomised_spearman_absolute": ("blocks randomised", "rank correlation"),
    BY_BLOCK: ("block", "sum of relevance"),
}


def keys(results: Results) -> dict[str, Key]:
    """A colour and dash for every method, the same in all figures."""
    random = results.random()
    others = [one.label for one in results.suite.methods if one.label != random]
    found = {label: plots.key(results.printed(label), i) for i, label in enumerate(others)}
    if random:
        found[random] = Key(results.printed(random), plots.GREY, "5 4")
    return {**found, CEILING: Key(CEILING, "currentColor", "1 3")}


def curves(results: Results) -> Iterator[Plot]:
    """One plot a metric, one panel a task: the mean over the examples. Methods along a line are drawn over it."""
    every = [measured.curves for measured in results.tasks.values()]
    drawn = {metric for own in every for one in own.values() for metric in one}
    aside = {one.label for one in results.suite.methods if one.line and one.x is not None}
    styles = {label: one for label, one in keys(results).items() if label not in aside}
    for metric in [*(name for name in results.metrics if name in drawn), *sorted(drawn - {*results.metrics})]:
        panels: list[Panel] = []
        seen: set[str] = set()
        for task, measured in results.tasks.items():
            means = {label: _mean(measured, label, metric) for label in styles}
            known = {label: points for label, points in means.items() if points}
            if known:
                panels.append(_panel(task, metric, known, styles))
                seen |= known.keys()
        if panels:
            legend = tuple(style for label, style in styles.items() if label in seen)
            short = " The ceiling is that of the shortest examples alone." if CEILING in seen else ""
            yield Plot(f"curve {metric}", _said(metric) + short, tuple(panels), legend)


def _mean(measured: Measured, label: str, metric: str) -> list[tuple[float, float]]:
    """Of the examples that have a number; nothing where none has."""
    curve = measured.curves.get(label, {}).get(metric)
    if curve is None:
        return []
    values = np.asarray(curve.values, np.float64)
    columns = [(x, column[~np.isnan(column)]) for x, column in zip(curve.at, values.T, strict=True)]
    return [(x, float(known.mean())) for x, known in columns if known.size]


def _panel(
    title: str, metric: str, drawn: Mapping[str, Sequence[tuple[float, float]]], styles: Mapping[str, Key]
) -> Panel:
    x, y = _AXES.get(metric, ("", metric))
    points = list(chain(*drawn.values()))
    frame = plots.Frame.around([p[0] for p in points], [p[1] for p in points])
    lines = "".join(plots.line(frame, own, styles[label]) for label, own in _random_first(drawn, styles))
    alt = f"{metric} on {title}, {y} against {x}: a line each for {', '.join(styles[label].name for label in drawn)}"
    return Panel(title, alt, plots.axes(frame, title, x, y) + lines)


def _random_first(
    drawn: Mapping[str, Sequence[tuple[float, float]]], styles: Mapping[str, Key]
) -> list[tuple[str, Sequence[tuple[float, float]]]]:
    """What is only to be compared with lies below the rest."""
    return sorted(drawn.items(), key=lambda one: styles[one[0]].colour not in (plots.GREY, "currentColor"))


def _said(metric: str) -> str:
    if metric == BY_BLOCK:
        return (
            "What is left on the way back: relevance at each block's input, mean over the examples. Last is the output."
        )
    about = METRICS.get(metric)
    return f"{metric}, mean over the examples" + (f": {about.meaning}; {about.better} is better." if about else ".")


def along_lines(results: Results, tables: Sequence[Table]) -> Iterator[Plot]:
    """Methods of one line over their x, with intervals: one plot a table, one panel a task."""
    lines: dict[str, list[Method]] = {}
    for one in results.suite.methods:
        if one.line and one.x is not None:
            lines.setdefault(one.line, []).append(one)
    styles = {name: plots.key(name, i) for i, name in enumerate(lines)}
    along = _setting(list(chain(*lines.values())))
    for table in tables if lines else ():
        panels = []
        for task in shown_tasks(results, table):
            ours = compared(results, table, task).ours
            bars = {
                name: [
                    (one.x or 0.0, *ours[one.label].interval(), ours[one.label].value)
                    for one in own
                    if one.label in ours
                ]
                for name, own in lines.items()
            }
            if any(bars.values()):
                panels.append(
                    _along(task, (along, table.metric), {name: sorted(own) for name, own in bars.items()}, styles)
                )
        if panels:
            yield Plot(f"line {table.title}", f"{table.title}.", tuple(panels), tuple(styles.values()))


def _setting(methods: Sequence[Method]) -> str:
    """The option that x is the value of, if there is one."""
    names = {name for one in methods for name in one.options}
    return next((name for name in sorted(names) if all(one.options.get(name) == one.x for one in methods)), "")


def _along(
    task: str,
    axes: tuple[str, str],
    lines: Mapping[str, Sequence[tuple[float, float, float, float]]],
    styles: Mapping[str, Key],
) -> Panel:
    every = list(chain(*lines.values()))
    frame = plots.Frame.around([p[0] for p in every], [bound for p in every for bound in p[1:]])
    drawn = ""
    for name, own in lines.items():
        points = [(x, value) for x, _, _, value in own]
        drawn += plots.bars(frame, [(x, low, high) for x, low, high, _ in own], styles[name])
        drawn += plots.line(frame, points, styles[name]) + plots.dots(frame, points, styles[name])
    alt = f"{axes[1]} on {task}: a line each for {', '.join(lines)}"
    return Panel(task, alt, plots.axes(frame, task, *axes) + drawn)


def conservation(results: Results) -> Iterator[Plot]:
    """sum R against y, one plot a task, one panel a method; on the dashed diagonal relevance is conserved."""
    styles = keys(results)
    for task, measured in results.tasks.items():
        panels = []
        for one in results.suite.methods:
            columns = measured.scores.get(one.label, {})
            if "total" in columns and "value" in columns:
                pairs = [(y, total) for y, total in zip(columns["value"], columns["total"], strict=True)]
                known = [pair for pair in pairs if np.isfinite(pair).all()]
                if known:
                    panels.append(_scatter(results.printed(one.label), known, styles[one.label]))
        if panels:
            said = f"{task}: sum R against y, {len(measured.examples)} examples"
            yield Plot(f"conservation {task}", said, tuple(panels))


def _scatter(name: str, points: Sequence[tuple[float, float]], style: Key) -> Panel:
    xs, ys = np.array(points).T
    r = float(correlation(xs, ys)(np.ones((1, len(xs))))[0])
    title = name if np.isnan(r) else f"{name}, r = {r:.2f}"
    low, high = float(xs.min()), float(xs.max())
    frame = plots.Frame.around([*xs, low - 0.02 * (high - low), high + 0.02 * (high - low)], [*ys, *xs])
    ends = [(x, x) for x in frame.x]
    diagonal = plots.line(frame, ends, Key("sum R = y", "currentColor", "4 3"), 1.0)
    drawn = plots.axes(frame, title, "y", "sum R") + diagonal + plots.dots(frame, points, style, opacity=0.55)
    return Panel(title, f"sum of scores against the output y for {title}, {len(points)} examples", drawn)
