"""The command line: parse, one library call, show. Heavy imports wait until a command needs them."""

from __future__ import annotations

import re
import sys
import warnings
from ast import literal_eval
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from relprop import __version__
from relprop.cli import audit, bench, graphs, images, language, serve
from relprop.errors import InputError, RelpropError

if TYPE_CHECKING:
    from relprop.heads import Heads

app = typer.Typer(
    help="Explain what a Transformer's output is made of.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(audit.app, name="audit")
app.add_typer(bench.app, name="bench")
app.command()(serve.serve)

STDOUT = Path("-")
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
        str | None,
        typer.Argument(help="A text, an image file or a folder of images; '-' or nothing reads text from a pipe."),
    ] = None,
    pair: Annotated[str | None, typer.Option(help="A second text, for models that read pairs.")] = None,
    file: Annotated[Path | None, typer.Option(help="Explain every line of this file.")] = None,
    smiles: Annotated[str | None, typer.Option(help="A molecule, in place of the text.")] = None,
    model: Annotated[
        str | None, typer.Option(help=f"{MODEL} Default: sentiment; pets for images, molecules for --smiles.")
    ] = None,
    lm: Annotated[
        str | None, typer.Option(help="A language model, in place of --model: the text is its prompt.")
    ] = None,
    generate: Annotated[
        int | None, typer.Option(help="With --lm: let it write so many tokens, and explain each.")
    ] = None,
    continuation: Annotated[
        str | None, typer.Option(help="With --lm: explain each token of this text instead.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="With --lm: why each token and not this one, or not its 'runner-up'.")
    ] = None,
    question: Annotated[str | None, typer.Option(help="Ask this of the text, with a model that answers.")] = None,
    context: Annotated[str | None, typer.Option(help="Where the answer stands, in place of the text.")] = None,
    method: Annotated[str, typer.Option(help="One of `relprop methods`.")] = "lrp_conservative",
    compare: Annotated[
        str | None, typer.Option(help="Several methods, comma-separated, stacked for comparison.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Class name or index; 'A,B' for a difference; several are compared. Default: predicted."),
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Merge sub-words to words.")] = False,
    drop_special: Annotated[bool, typer.Option("--drop-special", help="Leave out special tokens.")] = False,
    ledger: Annotated[bool, typer.Option("--ledger", help="Also print where the output went.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture (.png, .svg or .pdf).")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the numbers; '-' for standard output.")] = None,
    contour: Annotated[
        str | None, typer.Option(help="Images: ring what scores above this number, or above the 'mean'.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Texts or images at a time.")] = 32,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the method, as NAME=VALUE; may be given several times.")
    ] = None,
) -> None:
    """Explain a text, an image or a molecule, coloured. Also every line of a pipe or file, and a folder of images."""
    language.check(lm, model, generate=generate, continuation=continuation, against=against)
    graphs.check(smiles, text=text, pair=pair, file=file, lm=lm, question=question, context=context)
    other = any(one is not None for one in (smiles, lm, question, context, pair, file))
    paths = None if other else images.pictures(text)
    outputs = images.Outputs(html, png, json)
    folder = paths is not None and Path(str(text)).is_dir()
    if question is not None or context is not None:
        given: list[Any] = [language.asked(model, text, question, context, file)]
    elif smiles is not None:
        given = [smiles]
    else:
        given = list(paths) if paths else _texts(text, pair, file)
    if folder:
        images.check_folders(outputs)
    else:
        _check_outputs(html, png, json)
    from relprop.explainer import Explainer
    from relprop.registry import METHODS

    names = [METHODS[name.strip()].name for name in (compare.split(",") if compare else [method])]
    explainer = Explainer(lm or model or ("molecules" if smiles is not None else "pets" if paths else "sentiment"))
    asked: dict[str, Any] = {"method": names, "batch_size": batch_size, "ledger": ledger, **_options(option or [])}
    whole = str(given[0][1]) if question is not None else ""  # an answer may hold commas itself
    targets = [one if one in whole else _target(one, explainer.labels) for one in target] if target else [None]
    graphs.check_model(explainer, smiles, words=words, contour=contour)
    if paths and explainer.domain.name == "images":
        _refuse_for_images(words=words, drop_special=drop_special)
    if folder and ledger:
        raise InputError("--ledger is for one image, not for a folder")
    asked |= {"special": "drop"} if drop_special else {}
    if folder:
        images.explain_folder(explainer, given, targets, outputs, asked, _contour(contour))
        return
    if (generate, continuation, against) != (None, None, None):
        asked |= {"generate": generate, "continuation": continuation, "against": against, "target": targets[0]}
        language.explain_continuations(explainer, given, outputs, asked, words)
        return
    found = [one for each in images.explained(explainer, given, targets, asked) for one in each]
    rings = _contour(contour) if paths else None
    images.present([one.words() if words else one for one in found], outputs, ledger, rings)


def _refuse_for_images(**given: bool) -> None:
    for name, value in given.items():
        if value:
            raise InputError(f"--{name.replace('_', '-')} is for texts")


def _contour(given: str | None) -> float | str | None:
    try:
        return given if given in (None, "mean") else float(given)
    except ValueError:
        raise InputError(f'--contour is a number or "mean", got "{given}"') from None


def _options(given: list[str]) -> dict[str, Any]:
    """NAME=VALUE as Python reads the value; what it cannot read is a word."""
    options = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise InputError(f'an option is NAME=VALUE, such as variant=released, got "{one}"')
        try:
            options[name.strip().replace("-", "_")] = literal_eval(value)
        except (SyntaxError, ValueError):
            options[name.strip().replace("-", "_")] = value
    return options


def _texts(text: str | None, pair: str | None, file: Path | None) -> list[Any]:
    """The text, or every line of the file or of standard input."""
    if text is not None and file is not None:
        raise InputError("give either a text or --file, not both")
    if file is not None:
        texts = _lines(_read(file), f'"{file}"')
    elif text is None or text == "-":
        if sys.stdin.isatty():
            raise InputError('there is nothing to explain: relprop explain "your text" (or --file, or a pipe)')
        texts = _lines(typer.get_binary_stream("stdin").read(), "standard input")
    else:
        texts = [text]
    return texts if pair is None else [(one, pair) for one in texts]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f'cannot read "{file}": {error.strerror}') from error


def _lines(content: bytes, where: str) -> list[str]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 text (at byte {error.start})") from error
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
    if not lines:
        raise InputError(f"the text is empty: {where} has no line to explain")
    return lines


def _target(target: str | None, labels: dict[int, str]) -> Any:
    """'positive', '1', or 'positive,negative' for a difference. A class name may hold commas itself."""
    if target is None or target in labels.values():
        return target
    parts = [int(part) if re.fullmatch(r"\s*-?[0-9]+\s*", part) else part for part in target.split(",")]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _check_outputs(html: Path | None, png: Path | None, json: Path | None) -> None:
    """Before any work: can the results be written where they should?"""
    from relprop.explanation import PICTURES, check_path

    for path, endings in [(html, (".html",)), (png, PICTURES), (json, (".json",))]:
        if path is not None and not (path is json and path == STDOUT):
            check_path(path, endings)


@app.command()
def methods() -> None:
    """List the methods, their options and sources."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    import relprop.methods  # noqa: F401  (fills the registry)
    from relprop.registry import METHODS

    table = Table("method", "family", "signed", "what it does, options, source", header_style="bold", box=SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    for record in sorted(METHODS, key=lambda record: record.family):
        options = ", ".join(f"{name}={default!r}" for name, default in record.options.items())
        about = Text.assemble(record.summary, ("\n" + options, "cyan"), ("\n" + record.citation, "dim"))
        table.add_row(record.name, record.family, "yes" if record.signed else "no", about)
    Console().print(table)


@app.command()
def check(
    model: Annotated[str, typer.Argument(help=MODEL)] = "sentiment",
    text: Annotated[str | None, typer.Option(help="What to check with: a text, a picture's path or a SMILES.")] = None,
    target: Annotated[str | None, typer.Option(help="Class name or index. Default: predicted.")] = None,
    rules: Annotated[str, typer.Option(help="The rule set to check.")] = "lrp_conservative",
) -> None:
    """Check how exactly a model is explained. Operations met, outputs unchanged, ledger, and do the books close?"""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    from relprop.checking import check as run_check
    from relprop.explainer import Explainer

    explainer = Explainer(model)
    target_of_one = explainer.targets(_target(target, explainer.labels), 1)
    inputs = explainer.inputs([graphs.example(explainer) if text is None else text])
    report = run_check(explainer.model, inputs, target_of_one, rules)
    calls, unexplained = Column("calls", justify="right"), Column("unexplained", justify="right")
    table = Table("operation", calls, "treatment", unexplained, header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for use in report.ops:
        table.add_row(use.name, str(use.calls), use.treatment, f"{use.unexplained:+.1e}" if use.unexplained else "0")
    Console().print(table)
    typer.echo(f"{report.ledger}\n")
    typer.echo(
        f"outputs: {'unchanged' if report.unchanged else 'CHANGED'} (largest relative change {report.change:.1e})"
    )
    typer.echo("scores are read at: " + ", ".join(f"{part} ({place})" for part, place in report.place.items()))
    typer.echo(f"verdict: {report.verdict}")
    if not (report.unchanged and report.closes):
        raise typer.Exit(1)


@app.command()
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
    _check_outputs(html=None, png=offsets, json=save)
    _check_outputs(html=None, png=map, json=None)
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
    _draw_heads(found, offsets, map)
    for path in (save, offsets, map):
        if path is not None:
            typer.echo(f"wrote {path}", err=True)


def _show_heads(found: Heads) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    numbers = [Column(name, justify="right") for name in ("block", "head", "share", "threshold")]
    table = Table(*numbers[:2], "kind", "what it looks at", *numbers[2:], header_style="bold", box=SIMPLE_HEAD)
    for one in found.findings():
        share = (f"{one.share:.3f}", f"{one.threshold:.3f}")
        table.add_row(str(one.block), str(one.head), one.kind, one.what, *share)
    if found.both.any():
        Console().print(table)
    else:
        typer.echo(found.nearest())
    kinds = [kind for row in found.kinds() for kind in row]
    named = ("positional", "syntactic", "positional and syntactic", "neither")
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in named)
    skipped = f", {found.skipped} too long and skipped" if found.skipped else ""
    typer.echo(f"{found.model}, {found.shape[0]} blocks of {found.shape[1]} heads: {counts}")
    typer.echo(f"{found.corpus}: {found.sentences:,} sentences, {found.words:,} words, {found.rows:,} tokens{skipped}")


def _draw_heads(found: Heads, offsets: Path | None, map: Path | None) -> None:
    from relprop.heads.treebank import offset_shares
    from relprop.render import heads as figures

    if offsets:
        by_relation = {relation: offset_shares(counts) for relation, counts in found.relation_offsets.items()}
        figures.save(figures.offsets_figure(by_relation, f"{found.corpus} ({found.sentences:,} sentences)"), offsets)
    if map:
        figures.save(figures.heads_figure(found.kinds(), found.model), map)


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
