"""The figure of an audit, after figure 7 of [Ali22]: the names in order of their relevance, and each group's spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from relprop.audit import words
from relprop.audit.findings import AuditFindings, Ranked
from relprop.audit.statistics import Floats
from relprop.bench.report.plots import short_text
from relprop.render.typesetting import INK, RULE, SOFT

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
NAMED = 10  # names written at each end
LONGEST = 24  # characters of a name

Colours = Mapping[str, str]


@rc_context({"text.parse_math": False})  # a group may well be "$x$"
def audit_figure(audit: AuditFindings) -> Figure:
    """All names in order; the names at both ends; and for every group a box, and one point per name."""
    groups = audit.found.groups
    colours = {group: COLOURS[i % len(COLOURS)] for i, group in enumerate(groups)}
    drawn = Figure(figsize=(11, 4.8), facecolor="white", layout="constrained")
    order, ends, spread = drawn.subplots(1, 3, width_ratios=(1.3, 1.2, max(1.0, 0.35 * len(groups))))
    _order(order, audit.found.ranking()[::-1], colours)
    most, least = audit.found.extremes(NAMED)
    _ends(ends, [*least, *most[::-1]], len(least), colours)
    _spread(spread, audit.found.values(), colours)
    drawn.suptitle(short_text(words.heading(audit)), fontsize=10, color=INK)
    patches = [Patch(facecolor=colour, label=short_text(group, LONGEST)) for group, colour in colours.items()]
    drawn.legend(handles=patches, loc="outside lower center", ncols=4, frameon=False, fontsize=8, labelcolor=INK)
    return drawn


def _order(axis: Axes, names: Sequence[Ranked], colours: Colours) -> None:
    """One bar per name, from the least relevant to the most."""
    heights = [one.relevance for one in names]
    axis.bar(range(len(names)), heights, width=1.0, color=[colours[one.group] for one in names], linewidth=0)
    axis.set_xlim(-1, len(names))
    axis.set_xticks([])
    axis.set(xlabel=f"{len(names)} names in order", ylabel="relevance, mean of a name's mentions")
    _soften(axis)


def _ends(axis: Axes, names: Sequence[Ranked], gap: int, colours: Colours) -> None:
    """The least relevant names below, the most relevant ones above, with a gap between."""
    places = [i + (i >= gap) * 0.8 for i in range(len(names))]
    axis.barh(places, [one.relevance for one in names], height=0.78, color=[colours[one.group] for one in names])
    axis.set_yticks(places, [f"{short_text(one.name, LONGEST)} ({one.count})" for one in names])
    axis.set_xlabel("relevance (mentions in brackets)")
    axis.axvline(0, color=SOFT, linewidth=0.8)
    _soften(axis)


def _spread(axis: Axes, values: Mapping[str, Floats], colours: Colours) -> None:
    """Points are moved sideways at random, with a fixed seed, so that they do not cover each other."""
    there = {group: own for group, own in values.items() if len(own)}
    for place, (group, own) in enumerate(there.items()):
        sideways = place + np.random.default_rng(0).uniform(-0.28, 0.28, len(own))
        axis.scatter(sideways, own, s=9, color=colours[group], alpha=0.5, linewidths=0)
    box = {"color": INK, "linewidth": 1.1}
    axis.boxplot(
        list(there.values()), positions=range(len(there)), widths=0.62, showfliers=False,
        boxprops=box, medianprops={**box, "linewidth": 2}, whiskerprops=box, capprops=box,
    )  # fmt: skip
    axis.set_xticks(
        range(len(there)), [f"{short_text(group, LONGEST)}\n{len(own)} names" for group, own in there.items()]
    )
    axis.set_xlim(-0.6, len(there) - 0.4)
    axis.axhline(0, color=SOFT, linewidth=0.8)
    axis.set_ylabel("relevance of a name")
    _soften(axis)


def _soften(axis: Axes) -> None:
    """Axes and labels in soft colours."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(RULE)
    axis.tick_params(labelsize=8, colors=SOFT)
    axis.xaxis.label.set(fontsize=9, color=SOFT)
    axis.yaxis.label.set(fontsize=9, color=SOFT)
