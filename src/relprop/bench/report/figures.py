"""The report's figures: curves, methods along a line, and the scatter of conservation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter

import numpy as np

from relprop.bench.measurements import Measurements
from relprop.bench.report import plots
from relprop.bench.report.blocks import LineStyle, Panel, Plot, Series
from relprop.bench.report.comparison import compare, shown_tasks
from relprop.bench.report.metric_statistics import correlation
from relprop.bench.report.results import CEILING, Results
from relprop.bench.suites import Method, Table
from relprop.bootstrap import Floats
from relprop.metrics import METRICS
from relprop.render.typesetting import INK

BY_BLOCK = "relevance_by_block"
_PIXELS = ("pixels hidden", "accuracy")
_AXES = {  # labels of the x axis and the y axis
    "auac": ("share shown", "p of the class"),
    "au_mse": ("share hidden", "squared change of logits"),
    "aopc": ("share hidden", "drop of p"),
    "log_odds": ("share hidden", "log p / p before"),
    "comprehensiveness": ("share hidden", "drop of p"),
    "sufficiency": ("share kept", "drop of p"),
    "token_f1": ("words taken, k", "F1"),
    "positive_auc_target": _PIXELS,
    "negative_auc_target": _PIXELS,
    "label_positive_auc_target": _PIXELS,
    "label_negative_auc_target": _PIXELS,
    "positive_auc_predicted": _PIXELS,
    "negative_auc_predicted": _PIXELS,
    "randomised_spearman": ("blocks randomised", "rank correlation"),
    "randomised_spearman_absolute": ("blocks randomised", "rank correlation"),
    BY_BLOCK: ("block", "sum of relevance"),
}


def line_styles(results: Results) -> dict[str, LineStyle]:
    """A colour and dash for every method, the same in all figures."""
    random = results.random()
    others = [one.label for one in results.suite.methods if one.label != random]
    found = {label: plots.line_style(results.printed(label), i) for i, label in enumerate(others)}
    if random:
        found[random] = LineStyle(results.printed(random), plots.GREY, "dashed")
    return {**found, CEILING: LineStyle(CEILING, INK, "dotted")}


def curves(results: Results) -> Iterator[Plot]:
    """One plot per metric, one panel per task: the mean over the examples. Methods along a line are drawn elsewhere."""
    drawn = {metric for task in results.tasks.values() for own in task.curves.values() for metric in own}
    elsewhere = {one.label for one in results.suite.methods if one.line and one.x is not None}
    styles = {label: one for label, one in line_styles(results).items() if label not in elsewhere}
    for metric in [*(name for name in results.metrics if name in drawn), *sorted(drawn - {*results.metrics})]:
        panels: list[Panel] = []
        shown: set[str] = set()
        for task, measurements in results.tasks.items():
            means = {label: _mean_curve(measurements, label, metric) for label in styles}
            known = {label: points for label, points in means.items() if points}
            if known:
                panels.append(_curve_panel(task, metric, known, styles))
                shown |= known.keys()
        if panels:
            legend = tuple(style for label, style in styles.items() if label in shown)
            short = " The ceiling is known for the shortest examples only." if CEILING in shown else ""
            yield Plot(f"curve {metric}", _caption(metric) + short, tuple(panels), legend)


def _mean_curve(measurements: Measurements, label: str, metric: str) -> list[tuple[float, float]]:
    """The mean over the examples that have a number; nothing where none has."""
    curve = measurements.curves.get(label, {}).get(metric)
    if curve is None:
        return []
    values = np.asarray(curve.values, np.float64)
    columns = [(x, column[~np.isnan(column)]) for x, column in zip(curve.at, values.T, strict=True)]
    return [(x, float(known.mean())) for x, known in columns if known.size]


def _curve_panel(
    task: str, metric: str, curves: Mapping[str, Sequence[tuple[float, float]]], styles: Mapping[str, LineStyle]
) -> Panel:
    """References are drawn first, below the methods."""
    x, y = _AXES.get(metric, ("", metric))
    names = ", ".join(styles[label].name for label in curves)
    series = [Series(styles[label], points) for label, points in curves.items()]
    series.sort(key=lambda one: one.style.colour not in (plots.GREY, INK))
    return Panel(task, f"{metric} on {task}, {y} against {x}: a line each for {names}", x, y, tuple(series))


def _caption(metric: str) -> str:
    if metric == BY_BLOCK:
        return (
            "Relevance that is left at the input of each block, mean over the examples. The last point is the output."
        )
    about = METRICS.get(metric)
    return f"{metric}, mean over the examples" + (f": {about.meaning}; {about.better} is better." if about else ".")


def along_lines(results: Results, tables: Sequence[Table]) -> Iterator[Plot]:
    """Methods of one line over their x, with intervals: one plot per table, one panel per task."""
    lines: dict[str, list[Method]] = {}
    for one in results.suite.methods:
        if one.line and one.x is not None:
            lines.setdefault(one.line, []).append(one)
    styles = {name: plots.line_style(name, i) for i, name in enumerate(lines)}
    setting = _shared_setting(list(chain(*lines.values())))
    for table in tables if lines else ():
        panels = []
        for task in shown_tasks(results, table):
            ours = compare(results, table, task).ours
            series = []
            for name, own in lines.items():
                known = sorted(((one.x or 0.0, ours[one.label]) for one in own if one.label in ours), key=itemgetter(0))
                if known:
                    points = [(x, estimate.value) for x, estimate in known]
                    series.append(Series(styles[name], points, intervals=[one.interval() for _, one in known]))
            if series:
                alt = f"{table.metric} on {task}: a line each for {', '.join(one.style.name for one in series)}"
                panels.append(Panel(task, alt, setting, table.metric, tuple(series)))
        if panels:
            yield Plot(f"line {table.title}", f"{table.title}.", tuple(panels), tuple(styles.values()))


def _shared_setting(methods: Sequence[Method]) -> str:
    """The option whose value is x for all methods, if there is one."""
    names = {name for one in methods for name in one.options}
    return next((name for name in sorted(names) if all(one.options.get(name) == one.x for one in methods)), "")


def conservation(results: Results) -> Iterator[Plot]:
    """sum R against y, one plot per task, one panel per method; on the dashed diagonal relevance is conserved."""
    styles = line_styles(results)
    for task, measurements in results.tasks.items():
        panels = []
        for one in results.suite.methods:
            columns = measurements.scores.get(one.label, {})
            if "total" in columns and "value" in columns:
                pairs = np.array([columns["value"], columns["total"]]).T
                known = pairs[np.isfinite(pairs).all(1)]
                if len(known):
                    panels.append(_scatter_panel(results.printed(one.label), known, styles[one.label]))
        if panels:
            said = f"{task}: sum R against y, {len(measurements.examples)} examples"
            yield Plot(f"conservation {task}", said, tuple(panels))


def _scatter_panel(name: str, points: Floats, style: LineStyle) -> Panel:
    xs, ys = points.T
    r = float(correlation(xs, ys)(np.ones((1, len(xs))))[0])
    title = name if np.isnan(r) else f"{name}, r = {r:.2f}"
    diagonal = Series(LineStyle("sum R = y", INK, "dashed"), [(float(x), float(x)) for x in (xs.min(), xs.max())])
    alt = f"sum of scores against the output y for {title}, {len(points)} examples"
    return Panel(title, alt, "y", "sum R", (diagonal, Series(style, [(x, y) for x, y in points], joined=False)))
