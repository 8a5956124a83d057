"""`relprop explain`: a text, an image, a molecule, a question or a prompt; lines of a file, and folders of pictures."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relprop.cli import given as givens
from relprop.cli.given import refuse
from relprop.cli.many import CHUNK, FileRun, explain_to_file
from relprop.cli.outputs import Outputs, loading_note, present, write_one_of_many
from relprop.cli.own_models import is_own, own_explainer, table_of, table_rows
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
    split: Annotated[bool, typer.Option("--split", help="The text's words are those between blanks.")] = False,
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
    question: Annotated[str | None, typer.Option(help="Ask this of the text, with a model that answers.")] = None,
    context: Annotated[str | None, typer.Option(help="Where the answer stands, in place of the text.")] = None,
    method: Annotated[str, typer.Option(help="One of `relprop methods`.")] = "lrp_conservative",
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
        typer.Option(help="Write many as they come (.jsonl or .parquet); given again, a stopped command goes on."),
    ] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="Print every unit's score in place of colours.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing, and write the files.")] = False,
    contour: Annotated[
        str | None, typer.Option(help="Images: ring what scores above this number, or above the 'mean'.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Texts or images at a time.")] = 32,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the method, as NAME=VALUE; may be given several times.")
    ] = None,
) -> None:
    """Explain a text, an image or a molecule, coloured. Also every line of a pipe or file, and a folder of images."""
    text = givens.one_text(pieces)
    writing = {"generate": generate, "continuation": continuation}
    if lm is None:
        refuse(
            '--{name} needs a language model: relprop explain --lm MODEL "prompt" --{name} ...', **writing, chat=chat
        )
    else:
        refuse("give either --lm or --{name}, not both", model=model)
        writing["against"] = against
    if smiles is not None:
        refuse("give either --smiles or a text, not both", text=text)
        others = {"pair": pair, "image": image, "file": file, "lm": lm, "question": question, "context": context}
        refuse("give either --smiles or --{name}, not both", **others)
    if document is not None:
        refuse("give either --document or a text, not both", text=text)
        refuse("give either --document or --{name}, not both", pair=pair, file=file, smiles=smiles, context=context)
    elif image is not None:
        refuse("with --image the question is the text itself: leave out --{name}", question=question, context=context)
    other = (
        any(one is not None for one in (smiles, lm, question, context, pair, file, image, choice, document)) or split
    )
    paths = None if other else givens.pictures(text)
    givens.check_other_file(text, lm or model)
    outputs = Outputs(html, png, json, out, numbers, quiet)
    folder = paths is not None and Path(str(text)).is_dir()
    name = lm or model or ("molecules" if smiles is not None else "pets" if paths else "sentiment")
    made = None
    if is_own(name):
        with loading_note(name):
            made = own_explainer(name, table_of(text, file))
    if made is not None and made.reader.name == "rows":
        refuse("--{name} is for texts, and this model reads rows of a table", column=column, pair=pair, image=image)
        rows: dict[int, Any] = table_rows(made, table_of(text, file))
    elif document is not None:
        rows = givens.documents(document, model, image, question)
    elif question is not None or context is not None:
        rows = {0: givens.question_and_context(model, text, question, context, file)}
    elif smiles is not None:
        rows = {0: smiles}
    elif chat is not None:
        refuse("give either --chat or a text, not both", text=text, pair=pair, file=file, choice=choice)
        rows = {0: givens.messages(chat)}
    else:
        rows = dict(enumerate(paths)) if paths else dict(givens.texts(text, pair, file, column))
        rows = rows if image is None else {row: (image, givens.candidates(one)) for row, one in rows.items()}
        rows = rows if paths or image is not None else givens.with_choices(rows, choice, split, pair)
    given = list(rows.values())
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    if folder:
        outputs.check_folders()
    else:
        outputs.check_files()
    from relprop.embedded import check_name

    if made is None:
        check_name(name)  # before torch is loaded, which takes seconds
    with loading_note("torch and transformers"):
        from relprop.engine.model_call import is_tagger
        from relprop.explainer import Explainer
        from relprop.loading import stamp
        from relprop.registry import METHODS

    names = [METHODS[name.strip()].name for name in (compare.split(",") if compare else [method])]
    with loading_note(name):
        explainer = Explainer(name) if made is None else made
    asked: dict[str, Any] = {"method": names, "batch_size": batch_size, "ledger": ledger, **_options(option or [])}
    whole = givens.context_text(given[0][1]) if question is not None else ""  # an answer may hold commas itself
    read = label_target if is_tagger(explainer.model) else class_target
    read = place_target if getattr(explainer.task, "takes_places", False) else read
    labels = dict(enumerate(choice)) if choice else explainer.labels
    targets: list[object] = [one if one in whole else read(one, labels) for one in target] if target else [None]
    if lm is None and against is not None:
        if read is not class_target or whole or any(isinstance(one, tuple) for one in targets):
            raise InputError("--against is for one class or token; give the contrast as a part of --target alone")
        targets = [(one, class_target(against, labels)) for one in targets]
    reads = explainer.reader.name
    if reads == "texts" and not other and not paths and text is not None and (hint := givens.hint(text)):
        typer.echo(f"relprop: {hint}", err=True)
    if document is not None and reads != "documents":
        raise InputError(f"--document needs a model that reads words with their boxes, this one reads {reads}")
    if image is not None and reads not in ("inputs", "documents"):
        raise InputError(f"--image needs a model that reads a picture and a text together, this one reads {reads}")
    if reads == "graphs":
        refuse("--{name} is not for graphs", words=words, contour=contour)
    else:
        refuse(f"--{{name}} needs a model of graphs, this one reads {reads}: leave out --model", smiles=smiles)
    if paths and reads == "images":
        refuse("--{name} is for texts", words=words, drop_special=drop_special)
    if folder:
        refuse("--{name} is for one image, not for a folder", ledger=ledger)
    asked |= {"special": "drop"} if drop_special else {}
    asked |= {"words": True} if words else {}
    asked |= {"progress": False} if quiet else {}
    if out is not None:
        asked |= {key: value for key, value in writing.items() if value is not None}
        begun = {"model": [name, stamp(name)], "targets": target, "inputs": givens.digest(rows), **asked}

        def explained(some: Sequence[object]) -> list[list[Explanation]]:
            return _explained(explainer, some, targets, {**asked, "progress": False})

        explain_to_file(FileRun(out, rows, begun, CHUNK * batch_size), explained, quiet)
        return
    if folder:
        _explain_folder(explainer, given, targets, outputs, asked, _contour(contour))
        return
    if any(value is not None for value in writing.values()):
        if len(given) * len(names) > 1 and outputs.files:
            raise InputError("one file holds one continuation: give one prompt and one method, or --json -")
        asked |= writing
    found = [one for each in _explained(explainer, given, targets, asked) for one in each]
    rings = _contour(contour) if paths or image or document else None
    present(found, outputs, ledger, rings)


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


def _options(given: list[str]) -> dict[str, object]:
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


def class_target(target: str | None, labels: dict[int, str]) -> object:
    """'positive', '1', or 'positive,negative' for a difference. A class name may hold commas itself."""
    if target is None or target in labels.values():
        return target
    parts = [int(part) if re.fullmatch(r"\s*-?[0-9]+\s*", part) else part for part in target.split(",")]
    return parts[0] if len(parts) == 1 else tuple(parts)


def label_target(target: str, labels: dict[int, str]) -> object:
    """'B-LOC' alone, 'Berlin,B-LOC', '16:22,B-LOC' by characters, 'Berlin,B-LOC,O' for a difference.

    The word may hold commas itself.
    """
    *rest, last = target.split(",")
    if not rest or target in labels.values():
        return target
    label: object = last.strip()
    if len(rest) > 1 and rest[-1].strip() in labels.values():
        label = (rest.pop().strip(), label)
    word = ",".join(rest)
    characters = re.fullmatch(r"([0-9]+):([0-9]+)", word.strip())
    return (int(characters[1]), int(characters[2])) if characters else word, label


def place_target(target: str, labels: dict[int, str]) -> object:
    """'cat' alone, '3,cat' for an object, '120:80,cat' at a point, '10:20:90:60,cat' in a box; 'cat,dog' at either end.

    A place may stand alone.
    """
    where, *classes = (part.strip() for part in target.split(","))
    if target in labels.values() or not re.fullmatch(r"[0-9]+|[0-9.]+(:[0-9.]+){1,3}", where):
        return class_target(target, labels)
    numbers = tuple(float(one) if "." in one else int(one) for one in where.split(":"))
    label = classes[0] if len(classes) == 1 else tuple(classes)
    if len(numbers) == 1:
        return (numbers[0], label) if classes else numbers[0]
    return (numbers, label) if classes else numbers
