"""What is to be explained, from the words of a command: texts, pictures, molecules, questions."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from relprop.errors import InputError

if TYPE_CHECKING:
    from relprop.explainer import Explainer

PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".opus")
SENTENCE = "a gorgeous, witty, seductive movie."
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


def one_text(words: Sequence[str] | None) -> str | None:
    """The text; raises for one that the shell took apart, as it came without quotes."""
    if words is not None and len(words) > 1:
        quoted = " ".join(words).replace('"', '\\"')
        raise InputError(f'the text came in {len(words)} pieces: put it in quotes: relprop explain "{quoted}"')
    return words[0] if words else None


def hint(text: str) -> str:
    """What the user may have meant where a text is the name of a file; nothing where it is not."""
    try:
        if not text.strip() or not Path(text).is_file():
            return ""
    except (OSError, ValueError):  # too long for a name, or with a null
        return ""
    from relprop.text_tables import TABLES, file_kind

    column = " --column NAME" if file_kind(Path(text)) in TABLES else ""
    return f'"{text}" is explained as a text; for what the file holds: relprop explain --file {text}{column}'


def texts(
    text: str | None, pair: str | None, file: Path | None, column: str | None = None
) -> dict[int, str | tuple[str, str]]:
    """The text, or every line of the file or of standard input, or a column of a table; by their row."""
    if text is not None and file is not None:
        raise InputError("give either a text or --file, not both")
    if file is None:
        refuse("--{name} is for the tables that --file names", column=column)
    if file is not None:
        from relprop.text_tables import is_table, read_column

        found = read_column(file, column) if is_table(file, column) else _lines(_text(file), f'"{file}"')
    elif text is None or text == "-":
        if sys.stdin.isatty():
            raise InputError('there is nothing to explain: relprop explain "your text" (or --file, or a pipe)')
        found = _lines(_decoded(typer.get_binary_stream("stdin").read(), "standard input"), "standard input")
    else:
        found = {0: text}
    return {row: one if pair is None else (one, pair) for row, one in found.items()}


def candidates(text: str | tuple[str, str]) -> str | list[str]:
    """The text beside a picture, or the two that are compared."""
    return text if isinstance(text, str) else list(text)


def with_choices(rows: dict[int, Any], choices: list[str] | None, split: bool, pair: str | None) -> dict[int, Any]:
    """Every text with the choices that may follow it, or split into its words."""
    if choices is not None:
        if split or pair is not None:
            raise InputError("--choice goes with the text alone: leave out --split and --pair")
        return {number: (text, choices) for number, text in rows.items()}
    if not split:
        return rows
    from relprop.readers.words import WordList

    def words(text: Any) -> Any:
        return WordList(text.split()) if isinstance(text, str) else tuple(map(words, text))

    return {number: words(text) for number, text in rows.items()}


def messages(file: Path) -> list[object]:
    """The messages of a chat, from a file of JSON."""
    found = _json(_text(file), file)
    if not isinstance(found, list) or not any(isinstance(one, dict) for one in found):
        raise InputError(f'"{file}" should hold a list of messages, [{{"role": "user", "content": "..."}}]')
    return found


def _text(file: Path) -> str:
    try:
        return _decoded(file.read_bytes(), f'"{file}"')
    except OSError as error:
        raise InputError(f'cannot read "{file}": {error.strerror}') from error


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 text (at byte {error.start})") from error


def _lines(text: str, where: str) -> dict[int, str]:
    every = enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    lines = {row: line for row, line in every if line.strip()}
    if not lines:
        raise InputError(f"the text is empty: {where} has no line to explain")
    return lines


def pictures(given: str | None) -> list[Path] | None:
    """The picture, or the folder's pictures; None where it is a text."""
    if not given or given.strip() in ("", ".", ".."):
        return None
    path = Path(given)
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError):  # too long for a name, or with a null: a text
        return None
    if path.suffix.lower() in PICTURES:
        if is_file:
            return [path]
        if not any(char.isspace() for char in given):
            raise InputError(f'there is no image "{given}"')
    if not is_folder:
        return None
    found = sorted(one for one in path.iterdir() if one.suffix.lower() in PICTURES)
    if not found:
        raise InputError(f'the folder "{given}" holds no image')
    return found


def check_other_file(given: str | None, model: str | None) -> None:
    """Raise for a file of sound or a table without a model that reads it: its name would be taken for a text."""
    suffix = Path(given).suffix.lower() if given else ""
    if model is None and suffix in (*SOUNDS, ".csv") and not any(char.isspace() for char in str(given)):
        kind = "a table" if suffix == ".csv" else "a sound"
        texts = f"; for a column of texts: relprop explain --file {given} --column NAME" if suffix == ".csv" else ""
        raise InputError(f'"{given}" is {kind}: name a model that reads it, with --model or --lm{texts}')


def question_and_context(
    model: str | None, text: str | None, question: str | None, context: str | None, file: Path | None
) -> tuple[str, str]:
    """A question and its context, which is an option of its own, the text, or a whole file."""
    if question is None:
        raise InputError("a context needs its --question, and a --model that answers questions")
    if model is None:
        raise InputError("--question needs a --model that answers questions")
    contexts = [one for one in (context, text, file) if one is not None]
    if len(contexts) != 1:
        raise InputError("a question needs one context: --context TEXT, --file FILE, or the text itself")
    return question, _text(contexts[0]) if isinstance(contexts[0], Path) else contexts[0]


def documents(file: Path, model: str | None, image: Path | None, question: str | None) -> dict[int, Any]:
    """The pages of a file, each with its question where one is asked."""
    from relprop.readers.boxed_words import document_of, document_of_table

    if model is None:
        raise InputError("--document needs a --model that reads words with their boxes")
    kind = file.suffix.lower()
    if kind == ".csv":
        pages = {0: document_of_table(file, image)}
    elif kind in (".json", ".jsonl"):
        pages = {}
        for row, text in _lines(_text(file), f'"{file}"').items() if kind == ".jsonl" else [(0, _text(file))]:
            record = _json(text, file)
            beside = record.pop("image", None) if isinstance(record, dict) else None
            if beside is not None and not isinstance(beside, str):
                raise InputError(f'"image" in "{file}" is the name of a picture beside it, got {beside!r:.60}')
            pages[row] = document_of(record, image or (beside and file.parent / beside))
    else:
        raise InputError(f'--document is a .json, .jsonl or .csv file of words with their boxes, got "{file}"')
    return {row: page if question is None else (question, page) for row, page in pages.items()}


def _json(text: str, file: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f'"{file}" is not JSON: {error}') from None


def context_text(context: Any) -> str:
    """What is written in a context: a text, or the words of a page."""
    return context if isinstance(context, str) else " ".join(context.words)


def digest(rows: Mapping[int, object]) -> str:
    """A hash of what is explained: texts as they are, pictures by name, size and time."""
    known = [
        (row, str(one), one.stat().st_size, one.stat().st_mtime_ns) if isinstance(one, Path) else (row, one)
        for row, one in rows.items()
    ]
    return sha256(repr(known).encode("utf-8", "surrogatepass")).hexdigest()


def refuse(message: str, **given: object) -> None:
    """Raise if one of the options was given; {name} in the message is the option's."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise InputError(message.format(name=name.replace("_", "-")))


def example(explainer: Explainer) -> object:
    """What a model is checked with, unless something is given; for superpixels a bright stroke on black."""
    reads = getattr(explainer.reader, "reads", None)
    if reads is None:
        return SENTENCE
    import numpy as np

    known = {"smiles": ASPIRIN, "superpixels": np.pad(np.ones((20, 4)), ((4, 4), (12, 12)))}
    if reads not in known:
        raise InputError("the model does not say what it reads: check it in Python, relprop.check(model, inputs)")
    return known[reads]
