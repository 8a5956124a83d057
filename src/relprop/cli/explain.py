"""`relprop explain`: a text, an image, a molecule, a question or a prompt; lines of a file, and folders of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relprop.cli import given as givens
from relprop.cli.many import CHUNK, FileRun, explain_to_file
from relprop.cli.outputs import Outputs, loading_note, present, write_one_of_many
from relprop.cli.own_models import is_own, own_explainer
from relprop.cli.request import Request
from relprop.cli.targets import class_target, label_target, place_target
from relprop.errors import InputError

if TYPE_CHECKING:
    from relprop.explainer import Explainer
    from relprop.explanation import Explanation
    from relprop.render.image.overlay import Contour

MODEL = "An embedded model's name, a folder, a Hugging Face hub id, or MODULE:FUNCTION that returns a model."


def explain(
    pieces: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]",
            help="A text, a file (image, sound, .csv) or a folder of images; '-' or nothing reads a pipe.",
        ),
    ] = None,
    pair: Annotated[
        str | None,
        typer.Option(help="A second text, for models that read pairs; with --image, one to compare the text with."),
    ] = None,
    image: Annotated[
        Path | None, typer.Option(help="A picture beside the text, for models that read both together.")
    ] = None,
    document: Annotated[
        Path | None,
        typer.Option(
            help="Words with their boxes in place of the text: .json, .jsonl (a page per line), or .csv with columns "
            "word, left, top, right, bottom; with --image the page's picture."
        ),
    ] = None,
    choice: Annotated[
        list[str] | None,
        typer.Option(help="A choice that may follow the text, for models of multiple choice; twice or more."),
    ] = None,
    split: Annotated[bool, typer.Option("--split", help="Split the text into words at blanks.")] = False,
    chat: Annotated[
        Path | None,
        typer.Option(help="With --lm: a JSON file of messages with role and content, in place of the text."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Explain every line of this file, or a column of this .csv, .tsv, .jsonl, .parquet."),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="With --file: the column of texts; a number, from 0, where there is no header.")
    ] = None,
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
        str | None,
        typer.Option(help="Why not this class? With --lm: why not this token, or not each token's 'runner-up'?"),
    ] = None,
    question: Annotated[
        str | None, typer.Option(help="Ask this of the text; needs a model that answers questions.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="The text that holds the answer, in place of the text itself.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Default: lrp_blend (classes of texts), lrp_full (pictures), lrp_conservative."),
    ] = None,
    compare: Annotated[
        str | None, typer.Option(help="Several methods, comma-separated, stacked for comparison.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Class name or index; 'A,B' for a contrast, their difference; 'WORD,LABEL' for labels of words; "
            "'OBJECT,CLASS' or 'X:Y,CLASS' for objects and places of a picture; a choice; of pairs "
            "cosine, dot or maxsim; "
            "several are compared. Default: predicted."
        ),
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Merge sub-words to words.")] = False,
    drop_special: Annotated[bool, typer.Option("--drop-special", help="Leave out special tokens.")] = False,
    ledger: Annotated[bool, typer.Option("--ledger", help="Also print where the output went.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture (.png, .svg or .pdf).")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the numbers; '-' for standard output.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write each result as it is made (.jsonl or .parquet); after Ctrl-C the same command goes on."
        ),
    ] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="Print every unit's score in place of colours.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing, and write the files.")] = False,
    contour: Annotated[
        str | None, typer.Option(help="Images: draw a line around what scores above this number, or above the 'mean'.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Texts or images at a time.")] = 32,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the method, as NAME=VALUE; may be given several times.")
    ] = None,
) -> None:
    """Explain a text, an image or a molecule, coloured. Also every line of a pipe or file, and a folder of images."""
    options = dict(locals())
    _run(Request(givens.one_text(options.pop("pieces")), **options))


def _run(request: Request) -> None:
    request.check()
    outputs = Outputs(request.html, request.png, request.json, request.out, request.numbers, request.quiet)
    made = None
    if is_own(request.name):
        with loading_note(request.name):
            made = own_explainer(request.name, request.table)
    rows = request.rows() if made is None or made.reader.name != "rows" else request.table_rows(made)
    if request.is_folder:
        outputs.check_folders()
    else:
        outputs.check_files()
    explainer, methods = _loaded(request, made)
    request.check_reader(explainer.reader.name, getattr(explainer.task, "takes_questions", False))
    inputs = list(rows.values())
    targets = _targets(request, explainer, inputs)
    asked = request.asked() | {"method": methods}
    contour = _contour(request.contour)
    if request.out is not None:
        _explain_to_file(request, explainer, rows, targets, asked)
    elif request.is_folder:
        _explain_folder(explainer, inputs, targets, outputs, asked, contour)
    else:
        if request.writes and len(inputs) * len(methods) > 1 and outputs.files:
            raise InputError("one file holds one continuation: give one prompt and one method, or --json -")
        found = [one for each in _explained(explainer, inputs, targets, asked) for one in each]
        drawn = request.pictures or request.image or request.document
        present(found, outputs, request.ledger, contour if drawn else None)


def _loaded(request: Request, made: Explainer | None) -> tuple[Explainer, list[str]]:
    """The explainer, and the methods by their registered names."""
    from relprop.embedded import check_name

    if made is None:
        check_name(request.name)  # before torch is loaded, which takes seconds
    with loading_note("torch and transformers"):
        from relprop.explainer import Explainer
        from relprop.registry import METHODS

    given = request.compare.split(",") if request.compare else [request.method] if request.method else []
    methods = [METHODS[name.strip()].name for name in given]  # a wrong name is told before the model is loaded
    with loading_note(request.name):
        explainer = Explainer(request.name) if made is None else made
    return explainer, methods or [explainer.default_method]


def _targets(request: Request, explainer: Explainer, inputs: Sequence[Any]) -> list[object]:
    from relprop.engine.model_call import is_tagger

    whole = "" if request.question is None else givens.context_text(inputs[0][1])  # an answer may hold commas itself
    read = label_target if is_tagger(explainer.model) else class_target
    read = place_target if getattr(explainer.task, "takes_places", False) else read
    labels = dict(enumerate(request.choice)) if request.choice else explainer.labels
    targets: list[object] = [one if one in whole else read(one, labels) for one in request.target or ()]
    targets = targets or [None]
    if request.lm is not None or request.against is None:
        return targets
    if read is not class_target or whole or any(isinstance(one, tuple) for one in targets):
        raise InputError("--against is for one class or token; give the contrast as a part of --target alone")
    return [(one, class_target(request.against, labels)) for one in targets]


def _explain_to_file(
    request: Request, explainer: Explainer, rows: dict[int, Any], targets: Sequence[object], asked: dict[str, Any]
) -> None:
    """Every input to the file of --out, as they come."""
    from relprop.loading import stamp

    assert request.out is not None
    inputs = givens.digest(rows)
    begun = {"model": [request.name, stamp(request.name)], "targets": request.target, "inputs": inputs, **asked}

    def explained(some: Sequence[object]) -> list[list[Explanation]]:
        return _explained(explainer, some, targets, {**asked, "progress": False})

    explain_to_file(FileRun(request.out, rows, begun, CHUNK * request.batch_size), explained, request.quiet)


def _explained(
    explainer: Explainer, given: Sequence[object], targets: Sequence[object], asked: dict[str, Any]
) -> list[list[Explanation]]:
    """Each text, image or graph: every target by every method."""
    if not given:
        return []
    by_target = [explainer(list(given), target=target, **asked) for target in targets]
    return [[one for methods in each for one in methods] for each in zip(*by_target, strict=True)]


def _explain_folder(
    explainer: Explainer,
    paths: Sequence[Path],
    targets: Sequence[object],
    outputs: Outputs,
    asked: dict[str, Any],
    contour: Contour,
) -> None:
    """Every picture of a folder; one that cannot be read is named at the end, and the others go on."""
    from relprop.progress import tracked
    from relprop.readers.picture import opened_picture

    size = asked["batch_size"]
    failed: list[str] = []
    for chunk in tracked([paths[k : k + size] for k in range(0, len(paths), size)], "explaining"):
        good = []
        for path in chunk:
            try:
                opened_picture(path)
                good.append(path)
            except InputError as error:
                failed.append(str(error))
        for path, found in zip(good, _explained(explainer, good, targets, {**asked, "progress": False}), strict=True):
            write_one_of_many(path.name, found, outputs, contour)
    typer.echo(f"explained {len(paths) - len(failed)} of {len(paths)} images", err=True)
    if failed:
        raise InputError("; ".join(failed))


def _contour(given: str | None) -> Contour:
    try:
        return None if given is None else "mean" if given == "mean" else float(given)
    except ValueError:
        raise InputError(f'--contour is a number or "mean", got "{given}"') from None
