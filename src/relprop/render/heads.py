"""Figures of heads, for papers: how far apart related words stand, and which heads of a model are of which kind."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from relprop.render import saving
from relprop.render.typesetting import INK, RULE, SOFT

REACH = 7  # offsets beyond are told in words
COLUMNS = 4

# The kinds in Okabe and Ito's colours, which colour-blind readers tell apart, with a letter for print without colour.
STYLE = {
    "positional": ("#0072b2", "white", "P"),
    "syntactic": ("#e69f00", "black", "S"),
    "positional and syntactic": ("#009e73", "white", "B"),
    "neither": ("#eceff2", SOFT, ""),
}


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    saving.write(figure, saving.check(path))


def offsets_figure(shares: Mapping[str, Mapping[int, float]], title: str) -> Figure:
    """Per relation, bars of lambda_k(i): how often the dependent stands i words behind its governor.

    The tallest bar is marked: it is what a head reaches that looks at one fixed offset.
    """
    count = len(shares)
    columns = min(COLUMNS, count)
    lines = -(-count // columns)
    figure = Figure(figsize=(2.3 * columns + 0.5, 2.1 * lines + 0.7), facecolor="white", layout="constrained")
    axes = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
    for axis, (relation, found) in zip(axes, shares.items(), strict=False):
        _bars(axis, relation, found)
    for axis in axes[count:]:
        axis.set_axis_off()
    for axis in axes[::columns]:
        axis.set_ylabel("share", fontsize=9, color=SOFT)
    figure.suptitle(title, fontsize=10, color=INK)
    figure.supxlabel("dependent's place behind its governor, in words", fontsize=9, color=SOFT)
    return figure


def _bars(axis: Axes, relation: str, shares: Mapping[int, float]) -> None:
    best = max(shares, key=lambda offset: shares[offset], default=None)
    near = {offset: share for offset, share in shares.items() if abs(offset) <= REACH}
    colours = ["#d55e00" if i == best else "#7a8794" for i in near]
    bars = axis.bar(list(near), list(near.values()), color=colours, width=0.8)
    marked = [f"{i:+d}: {share:.2f}" if i == best else "" for i, share in near.items()]
    axis.bar_label(bars, marked, padding=2, fontsize=8, color=INK)
    beyond = sum(shares.values()) - sum(near.values())
    note = f"\n{beyond:.2f} farther" if beyond >= 0.005 else ""
    axis.set_title(f"{relation}{note}", fontsize=9, color=INK)
    axis.set_xlim(-REACH - 0.7, REACH + 0.7)
    axis.set_xticks(range(-6, 7, 3), [f"{i:+d}" if i else "0" for i in range(-6, 7, 3)])
    axis.margins(y=0.15)
    _quiet(axis)


def heads_figure(kinds: Sequence[Sequence[str]], title: str) -> Figure:
    """Blocks (upwards) by heads, every cell coloured by the head's kind: positional, syntactic, both, or neither."""
    blocks, heads = len(kinds), len(kinds[0])
    figure = Figure(figsize=(max(4.2, 0.32 * heads + 1), 0.32 * blocks + 1.5), facecolor="white", layout="constrained")
    axis = figure.subplots()
    for block, row in enumerate(kinds):
        for head, kind in enumerate(row):
            colour, ink, letter = STYLE[kind]
            axis.add_patch(Rectangle((head - 0.46, block - 0.46), 0.92, 0.92, facecolor=colour, linewidth=0))
            axis.text(head, block, letter, ha="center", va="center", fontsize=7, color=ink)
    axis.set(xlim=(-0.6, heads - 0.4), ylim=(-0.6, blocks - 0.4), aspect="equal", xlabel="head", ylabel="block")
    axis.set_xticks(_ticks(heads))
    axis.set_yticks(_ticks(blocks))
    axis.set_title(title, fontsize=10, color=INK)
    _quiet(axis)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    counts = {kind: sum(row.count(kind) for row in map(list, kinds)) for kind in STYLE}
    patches = [Patch(facecolor=STYLE[kind][0], label=f"{kind} ({count})") for kind, count in counts.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=2, frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _ticks(count: int) -> range:
    return range(0, count, 1 if count <= 16 else 4)


def _quiet(axis: Axes) -> None:
    """Only what is read stays dark."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(RULE)
    axis.tick_params(labelsize=8, colors=SOFT)
    axis.xaxis.label.set(fontsize=9, color=SOFT)
    axis.yaxis.label.set(fontsize=9, color=SOFT)
