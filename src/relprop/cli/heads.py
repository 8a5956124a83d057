"""`relprop heads`: a model's syntactic and positional heads, found, shown and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relprop.cli.explain import MODEL
from relprop.cli.outputs import Outputs, print_table

if TYPE_CHECKING:
    from relprop.heads import Heads


def heads(
    model: Annotated[str, typer.Argument(help=MODEL)] = "sentiment",
    treebank: Annotated[
        Path | None,
        typer.Option(help="Parsed sentences, a CoNLL-U file (.gz too). Default: a sample of UD English EWT."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read the treebank's first sentences only.")] = None,
    xi_pos: Annotated[float, typer.Option(help="Positional: one offset in more than this share of the rows.")] = 0.8,
    xi_synt: Annotated[
        float, typer.Option(help="Syntactic: a relation followed this much more often than by a fixed offset.")
    ] = 0.1,
    save: Annotated[
        Path | None,
        typer.Option(help="Write what was counted (.json); in the model's folder, as heads.json, for mask_lrp."),
    ] = None,
    offsets: Annotated[Path | None, typer.Option(help="Draw how far apart related words stand.")] = None,
    map: Annotated[Path | None, typer.Option("--map", help="Draw which heads are of which kind.")] = None,
) -> None:
    """Find a model's syntactic and positional heads. By where they look in parsed sentences."""
    for figure, file in ((offsets, save), (map, None)):
        Outputs(html=None, png=figure, json=file).check_files()
    from relprop.heads import SAMPLE, identify, read_conllu
    from relprop.loading import load

    sentences = read_conllu(treebank or SAMPLE)
    corpus = treebank.name if treebank else "the sample of UD English EWT"
    if limit and limit < len(sentences):
        sentences, corpus = sentences[:limit], f"{corpus}, its first {limit:,}"
    loaded, tokenizer = load(model)
    found = identify(loaded, tokenizer, sentences, xi_pos=xi_pos, xi_synt=xi_synt, corpus=corpus)
    _show_heads(found)
    if save:
        found.save(save)
    from relprop.heads.treebank import offset_shares
    from relprop.render import heads as figures

    if offsets:
        by_relation = {relation: offset_shares(counts) for relation, counts in found.relation_offsets.items()}
        figures.save(figures.offsets_figure(by_relation, f"{found.corpus} ({found.sentences:,} sentences)"), offsets)
    if map:
        figures.save(figures.heads_figure(found.kinds(), found.model), map)
    for path in (save, offsets, map):
        if path is not None:
            typer.echo(f"wrote {path}", err=True)


def _show_heads(found: Heads) -> None:
    from rich.table import Column

    if found.both.any():
        numbers = [Column(name, justify="right") for name in ("block", "head", "share", "threshold")]
        rows = [
            (str(one.block), str(one.head), one.kind, one.what, f"{one.share:.3f}", f"{one.threshold:.3f}")
            for one in found.findings()
        ]
        print_table([*numbers[:2], "kind", "what it looks at", *numbers[2:]], rows)
    else:
        typer.echo(found.nearest())
    kinds = [kind for row in found.kinds() for kind in row]
    named = ("positional", "syntactic", "positional and syntactic", "neither")
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in named)
    skipped = f", {found.skipped} too long and skipped" if found.skipped else ""
    typer.echo(f"{found.model}, {found.shape[0]} blocks of {found.shape[1]} heads: {counts}")
    typer.echo(f"{found.corpus}: {found.sentences:,} sentences, {found.words:,} words, {found.rows:,} tokens{skipped}")
