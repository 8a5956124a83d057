"""The command line: parse, one library call, show. Heavy imports wait until a command needs them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from relprop import __version__
from relprop.errors import InputError, RelpropError

if TYPE_CHECKING:
    from relprop.explanation import Explanation

app = typer.Typer(
    help="Explain what a Transformer's output is made of.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

MODEL = "An embedded model's name, a folder, or a Hugging Face hub id."


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relprop {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Explain what a Transformer's output is made of."""


@app.command()
def explain(
    text: Annotated[
        str | None, typer.Argument(help="The text to explain; '-' or nothing reads standard input.")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="A second text, for models that read pairs.")] = None,
    file: Annotated[Path | None, typer.Option(help="Explain every line of this file.")] = None,
    model: Annotated[str, typer.Option(help=MODEL)] = "sentiment",
    method: Annotated[str, typer.Option(help="One of `relprop methods`.")] = "lrp_ah_ln",
    compare: Annotated[
        str | None, typer.Option(help="Several methods, comma-separated, stacked for comparison.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Class name or index; 'A,B' for a difference. Default: predicted.")
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Merge sub-words to words.")] = False,
    drop_special: Annotated[bool, typer.Option("--drop-special", help="Leave out special tokens.")] = False,
    ledger: Annotated[bool, typer.Option("--ledger", help="Also print where the output went.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture (.png, .svg or .pdf).")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the numbers; '-' for standard output.")] = None,
    batch_size: Annotated[int, typer.Option(help="Texts at a time.")] = 32,
) -> None:
    """Explain a text, standard input, or a file of lines, and show it coloured."""
    texts = _texts(text, pair, file)
    _check_outputs(html, png, json)
    from relprop.explain import Explainer
    from relprop.explanation import save, show

    explainer = Explainer(model)
    methods = [name.strip() for name in compare.split(",")] if compare else [method]
    found: list[Explanation] = []
    special = "drop" if drop_special else "keep"
    per_method = [
        explainer(
            texts, target=_target(target), method=name, special=special, batch_size=batch_size, **_ledger(name, ledger)
        )
        for name in methods
    ]
    for together in zip(*per_method, strict=True):
        found += [one.words() if words else one for one in together]
    if json == Path("-"):
        typer.echo("\n".join(one.to_json() for one in found))
        return
    show(found)
    if ledger:
        for one in found:
            typer.echo(
                f"\n{one.method}: {one.target}\n{one.ledger if one.ledger else 'no ledger: the scores are unsigned'}"
            )
    for path in (html, png, json):
        if path is not None:
            save(found, path)
            typer.echo(f"wrote {path}", err=True)


def _ledger(method: str, wanted: bool) -> dict[str, bool]:
    from relprop.registry import METHODS

    return {"ledger": True} if wanted and "ledger" in METHODS[method].options else {}


def _texts(text: str | None, pair: str | None, file: Path | None) -> list[Any]:
    if file is not None:
        if text is not None:
            raise InputError("give either a text or --file, not both")
        if not file.is_file():
            raise InputError(f'there is no file "{file}"')
        lines = _lines(file.read_text(encoding="utf-8", errors="replace").splitlines(), str(file))
        return [(line, pair) for line in lines] if pair is not None else lines
    if text is None or text == "-":
        if sys.stdin.isatty():
            raise InputError('there is nothing to explain: relprop explain "your text" (or --file, or a pipe)')
        lines = _lines(sys.stdin.read().splitlines(), "standard input")
        return [(line, pair) for line in lines] if pair is not None else lines
    return [(text, pair)] if pair is not None else [text]


def _lines(lines: Iterable[str], where: str) -> list[str]:
    kept = [line for line in lines if line.strip()]
    if not kept:
        raise InputError(f"the text is empty: {where} has no line to explain")
    return kept


def _target(target: str | None) -> Any:
    """'positive', '1', or 'positive,negative' for a difference."""
    parts = [int(part) if part.lstrip("-").isdigit() else part.strip() for part in (target or "").split(",") if part]
    return None if not parts else parts[0] if len(parts) == 1 else tuple(parts)


def _check_outputs(html: Path | None, png: Path | None, json: Path | None) -> None:
    """Before any work: can the results be written where they should?"""
    endings = {html: (".html", ".htm"), png: (".png", ".svg", ".pdf"), json: (".json",)}
    for path, allowed in endings.items():
        if path is None or path == Path("-"):
            continue
        if path.suffix.lower() not in allowed:
            raise InputError(f'"{path}" must end in {" or ".join(allowed)}')
        if not path.parent.is_dir():
            raise InputError(f'cannot write "{path}": there is no folder "{path.parent}"')


@app.command()
def methods() -> None:
    """List the methods with their families, options and sources."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    import relprop.methods  # noqa: F401  (fills the registry)
    from relprop.registry import METHODS

    table = Table("method", "family", "signed", "what it does, options, source", header_style="bold", box=SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    for record in METHODS:
        options = ", ".join(f"{name}={default!r}" for name, default in record.options.items())
        about = Text.assemble(record.summary, ("\n" + options, "cyan"), ("\n" + record.citation, "dim"))
        table.add_row(record.name, record.family, "yes" if record.signed else "no", about)
    Console().print(table)


@app.command()
def check(
    model: Annotated[str, typer.Argument(help=MODEL)] = "sentiment",
    text: Annotated[str, typer.Option(help="The text to check with.")] = "a gorgeous, witty, seductive movie.",
    target: Annotated[str | None, typer.Option(help="Class name or index. Default: predicted.")] = None,
    rules: Annotated[str, typer.Option(help="The rule set to check.")] = "lrp_conservative",
) -> None:
    """Check a model: operations met, outputs unchanged, ledger, and whether the books close."""
    from rich.console import Console
    from rich.table import Table

    from relprop.check import check as run_check
    from relprop.domains import text as texts
    from relprop.explain import Explainer

    explainer = Explainer(model)
    limit = texts.limit_of(explainer.model, explainer.tokenizer)
    inputs = texts.pad(explainer.tokenizer, [texts.encode(explainer.tokenizer, text, limit)], 0, explainer.model.device)
    report = run_check(explainer.model, inputs, explainer.targets(_target(target), 1), rules)
    table = Table("operation", "calls", "treatment", "unexplained", header_style="bold")
    for use in report.ops:
        table.add_row(use.name, str(use.calls), use.treatment, f"{use.unexplained:+.2e}")
    console = Console()
    console.print(table)
    console.print(str(report.ledger), markup=False, highlight=False)
    console.print(
        f"\noutputs: {'unchanged' if report.unchanged else 'CHANGED'} (largest relative change {report.change:.1e})"
    )
    console.print(f"verdict: {report.verdict}", markup=False, highlight=False)
    if not (report.unchanged and report.closes):
        raise typer.Exit(1)


def main() -> NoReturn:
    """The entry point: what a user did wrong is one sentence and exit code 1, not a traceback."""
    try:
        app()
    except RelpropError as error:
        typer.echo(f"relprop: {error}", err=True)
    except KeyboardInterrupt:
        typer.echo("relprop: stopped", err=True)
        sys.exit(130)
    sys.exit(1)
