"""The command line: parse, one library call, show. Heavy imports wait until a command needs them."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from relprop import __version__
from relprop.cli import audit, bench, explain, heads, serve
from relprop.cli.explain import MODEL
from relprop.cli.given import example
from relprop.cli.outputs import loading_note, print_table
from relprop.cli.targets import class_target
from relprop.cli.words import command_words
from relprop.errors import RelpropError

if TYPE_CHECKING:
    from relprop.registry import Record

HELP = {"help_option_names": ["-h", "--help"]}  # of all commands: the sub-commands inherit it

app = typer.Typer(
    help="Explain what a Transformer's output is made of.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
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
def methods(
    name: Annotated[str | None, typer.Argument(help="A method, to read all about it.")] = None,
) -> None:
    """List the methods, the defaults first. With a name: what it does, its options and source."""
    with loading_note("the methods"):
        from relprop.methods import methods as known

        records = known() if name is None else [known(name)]
    if name is not None:
        _show_method(records[0])
        return
    rows = [(one.name, one.family, "yes" if one.signed else "no", one.summary) for one in records]
    print_table(["method", "family", "signed", "what it does (relprop methods NAME tells more)"], rows, one_line=True)


def _show_method(record: Record[Any]) -> None:
    from inspect import cleandoc

    typer.echo(f"{record.name} ({record.family})\n\n{cleandoc(record.function.__doc__ or '')}\n")
    signs = "for and against (signed)" if record.signed else "how much, not for or against (unsigned)"
    sums = "; they sum to the value" if record.complete else ""
    typer.echo(f"scores:  {signs}{sums}")
    for number, (option, default) in enumerate(record.options.items()):
        typer.echo(f"{'         ' if number else 'options: '}{option}={default}")
    typer.echo(f'source:  {record.citation}\nuse:     relprop explain "your text" --method {record.name}', nl=False)
    first = next(iter(record.options), None)
    typer.echo(f" --option {first}={record.options[first]}" if first else "")


@app.command()
def models() -> None:
    """List the embedded models. Folders and ids of the Hugging Face hub can be named wherever they can."""
    from rich.table import Column

    from relprop.embedded import MODELS

    rows = [(one.name, one.reads, one.about, f"{one.megabytes:.1f} MB", one.example) for one in MODELS]
    print_table(["model", "reads", "what", Column("size", justify="right"), "try"], rows, one_line=True)
    typer.echo("Your own: --model FOLDER (saved with save_pretrained), or --model OWNER/NAME of the Hugging Face hub.")


@app.command()
def check(
    model: Annotated[str, typer.Argument(help=MODEL)] = "sentiment",
    text: Annotated[str | None, typer.Option(help="What to check with: a text, a picture's path or a SMILES.")] = None,
    target: Annotated[str | None, typer.Option(help="Class name or index. Default: predicted.")] = None,
    rules: Annotated[str, typer.Option(help="The rule set to check.")] = "lrp_conservative",
) -> None:
    """Check how exactly a model is explained. Operations met, outputs unchanged, every part accounted for."""
    from rich.table import Column

    from relprop.embedded import check_name

    check_name(model)
    with loading_note("torch and transformers"):
        from relprop.checking import check as run_check
        from relprop.explainer import Explainer
    with loading_note(model):
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
        typer.echo(f"relprop: {command_words(str(error))}", err=True)
    except KeyboardInterrupt:
        typer.echo("relprop: stopped", err=True)
        sys.exit(130)
    sys.exit(1)
