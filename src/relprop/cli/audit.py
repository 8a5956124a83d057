"""`relprop audit`: does a model treat groups of names alike?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relprop.errors import InputError

app = typer.Typer(
    help="Look for unequal treatment: how much names of each group support one class against another.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
WORDS, NOTHING = "words", "none"


@app.callback()
def audit() -> None:
    """Look for unequal treatment: how much names of each group support one class against another."""


@app.command()
def names(
    model: Annotated[str, typer.Argument(help="An embedded model's name, a folder, or a Hugging Face hub id.")],
    texts: Annotated[
        list[Path],
        typer.Option(help="A corpus: .txt (one text per line), .csv, .tsv or .jsonl, also .gz; several are joined."),
    ],
    column: Annotated[
        str | None, typer.Option(help="The texts' column; a number, from 0, where there is no header. [text, sentence]")
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="A CSV of term,group. Default: first names, female and male.")
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|words|none",
            help="Words not to look for, one per line; 'words': names that are also words, as will and may. "
            "Default: words for relprop's own names, else none.",
        ),
    ] = None,
    ignore_case: Annotated[
        bool | None,
        typer.Option(
            "--ignore-case/--match-case",
            help="Match names in any case, or with their capitals. Default: in any case if the corpus has no capitals.",
        ),
    ] = None,
    contrast: Annotated[
        str | None, typer.Option(metavar="A,B", help="Two classes. Default: positive,negative, or class 1 and class 0.")
    ] = None,
    method: Annotated[str, typer.Option(help="One of `relprop methods` that is signed.")] = "lrp_ah_ln",
    shuffles: Annotated[
        int,
        typer.Option(min=0, help="Also swap names at random this many times: is it the names or the texts?"),
    ] = 0,
    draws: Annotated[int, typer.Option(min=1, help="Number of draws of the permutation tests.")] = 9999,
    seed: Annotated[int, typer.Option(help="Seed of the permutation tests and the shuffles.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 32,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw the names and the groups (.png, .svg or .pdf).")] = None,
    mentions: Annotated[Path | None, typer.Option(help="Write every mention with its text (.csv).")] = None,
    ranking: Annotated[Path | None, typer.Option(help="Write the names in order (.csv).")] = None,
    summary: Annotated[
        Path | None, typer.Option(help="Write the groups' numbers, tests and effect sizes (.csv).")
    ] = None,
) -> None:
    """Compare the relevance of groups of names in a corpus. Tables, a test over names, and the names at both ends."""
    from relprop.cli.outputs import FIGURES
    from relprop.files import check_writable

    tables = {"mentions": mentions, "ranking": ranking, "summary": summary}
    endings = [(html, (".html",)), (png, FIGURES), *((path, (".csv",)) for path in tables.values())]
    for path, allowed in endings:
        if path is not None:
            check_writable(path, allowed)
    from relprop.audit import names as audit_names
    from relprop.audit import read_terms, read_texts
    from relprop.explainer import Explainer

    every = [text for path in texts for text in read_texts(path, column)]
    found = audit_names(
        Explainer(model),
        every,
        None if names is None else read_terms(names),
        contrast=_contrast(contrast),
        method=method,
        exclude=_excluded(exclude),
        ignore_case=ignore_case,
        shuffles=shuffles,
        draws=draws,
        seed=seed,
        batch_size=batch_size,
    )
    found.show()
    for path, table in [(html, ""), (png, ""), *((path, table) for table, path in tables.items())]:
        if path is not None:
            found.save(path, table or "mentions")
            typer.echo(f"wrote {path}", err=True)


def _contrast(given: str | None) -> tuple[str | int, str | int] | None:
    if given is None:
        return None
    parts = [int(part) if part.strip().isdigit() else part.strip() for part in given.split(",")]
    if len(parts) != 2:
        raise InputError(f'--contrast is two classes, such as positive,negative; got "{given}"')
    return parts[0], parts[1]


def _excluded(given: str | None) -> frozenset[str] | None:
    from relprop.audit import ambiguous_words, read_words

    if given is None:
        return None
    return ambiguous_words() if given == WORDS else frozenset() if given == NOTHING else read_words(given)
