"""The command line: parse, one library call, show. Heavy imports wait until a command needs them."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, NoReturn

import typer

from relprop import __version__
from relprop.cli import audit, bench, explain, heads, serve
from relprop.cli.explain import MODEL, class_target
from relprop.cli.given import example
from relprop.cli.outputs import print_table
from relprop.errors import RelpropError

app = typer.Typer(
    help="Explain what a Transformer's output is made of.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command()(explain.explain)
app.add_typer(audit.app, name="audit")
app.add_typer(bench.app, name="bench")
app.command()(serve.serve)


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
def methods() -> None:
    """List the methods, their options and sources."""
    from rich.table import Column
    from rich.text import Text

    import relprop.methods  # noqa: F401  (fills the registry)
    from relprop.registry import METHODS

    rows = []
    for record in sorted(METHODS, key=lambda record: record.family):
        options = ", ".join(f"{name}={default!r}" for name, default in record.options.items())
        about = Text.assemble(record.summary, ("\n" + options, "cyan"), ("\n" + record.citation, "dim"))
        rows.append((record.name, record.family, "yes" if record.signed else "no", about))
    print_table([Column("method", no_wrap=True), "family", "signed", "what it does, options, source"], rows)


@app.command()
def check(
    model: Annotated[str, typer.Argument(help=MODEL)] = "sentiment",
    text: Annotated[str | None, typer.Option(help="What to check with: a text, a picture's path or a SMILES.")] = None,
    target: Annotated[str | None, typer.Option(help="Class name or index. Default: predicted.")] = None,
    rules: Annotated[str, typer.Option(help="The rule set to check.")] = "lrp_conservative",
) -> None:
    """Check how exactly a model is explained. Operations met, outputs unchanged, every part accounted for."""
    from rich.table import Column

    from relprop.checking import check as run_check
    from relprop.explainer import Explainer

    explainer = Explainer(model)
    target_of_one = explainer.targets(class_target(target, explainer.labels), 1)
    inputs = explainer.inputs([example(explainer) if text is None else text])
    report = run_check(explainer.model, inputs, target_of_one, rules)
    calls, unexplained = Column("calls", justify="right"), Column("unexplained", justify="right")
    uses = [
        (use.name, str(use.calls), use.treatment, f"{use.unexplained:+.1e}" if use.unexplained else "0")
        for use in report.ops
    ]
    print_table(["operation", calls, "treatment", unexplained], uses, pad_edge=False)
    typer.echo(f"{report.ledger}\n")
    typer.echo(
        f"outputs: {'unchanged' if report.unchanged else 'CHANGED'} (largest relative change {report.change:.1e})"
    )
    typer.echo("scores are read at: " + ", ".join(f"{part} ({place})" for part, place in report.place.items()))
    typer.echo(f"verdict: {report.verdict}")
    if not (report.unchanged and report.closes):
        raise typer.Exit(1)


app.command()(heads.heads)


def main() -> NoReturn:
    """The entry point: what a user did wrong is one sentence and exit code 1, not a traceback."""
    warnings.showwarning = lambda message, *_, **__: typer.echo(f"relprop: {message}", err=True)
    try:
        app(bench.with_optional_values(sys.argv[1:]))
    except RelpropError as error:
        typer.echo(f"relprop: {error}", err=True)
    except KeyboardInterrupt:
        typer.echo("relprop: stopped", err=True)
        sys.exit(130)
    sys.exit(1)
