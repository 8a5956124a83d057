"""What `relprop explain` is asked: its options, which of them go together, and the inputs that they name."""

from __future__ import annotations

from ast import literal_eval
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from relprop.cli import given as givens
from relprop.cli.given import refuse
from relprop.cli.own_models import table_of, table_rows
from relprop.errors import InputError

if TYPE_CHECKING:
    from relprop.explainer import Explainer


@dataclass(frozen=True)
class Request:
    """The options of `relprop explain`, under their names."""

    text: str | None
    pair: str | None
    image: Path | None
    document: Path | None
    choice: list[str] | None
    split: bool
    chat: Path | None
    file: Path | None
    column: str | None
    smiles: str | None
    model: str | None
    lm: str | None
    generate: int | None
    continuation: str | None
    against: str | None
    question: str | None
    context: str | None
    method: str | None
    compare: str | None
    target: list[str] | None
    words: bool
    drop_special: bool
    ledger: bool
    html: Path | None
    png: Path | None
    json: Path | None
    out: Path | None
    numbers: bool
    quiet: bool
    contour: str | None
    batch_size: int
    option: list[str] | None

    @property
    def name(self) -> str:
        """The model's."""
        default = "molecules" if self.smiles is not None else "pets" if self.pictures else "sentiment"
        return self.lm or self.model or default

    @property
    def table(self) -> Path | None:
        return table_of(self.text, self.file)

    @cached_property
    def is_text(self) -> bool:
        """Whether nothing but the text is given."""
        others = (self.smiles, self.lm, self.question, self.context, self.pair, self.file, self.image, self.choice,
                  self.document)  # fmt: skip
        return not self.split and all(one is None for one in others)

    @cached_property
    def pictures(self) -> list[Path] | None:
        """The picture or the folder's pictures that the text names."""
        return givens.pictures(self.text) if self.is_text else None

    @property
    def is_folder(self) -> bool:
        return self.pictures is not None and Path(str(self.text)).is_dir()

    @property
    def writing(self) -> dict[str, Any]:
        """What a language model is asked to write, or to have written."""
        found = {"generate": self.generate, "continuation": self.continuation}
        return found if self.lm is None else {**found, "against": self.against}

    @property
    def writes(self) -> bool:
        return any(value is not None for value in self.writing.values())

    def check(self) -> None:
        """Raise for options that do not go together."""
        if self.lm is None:
            needs = '--{name} needs a language model: relprop explain --lm MODEL "prompt" --{name} ...'
            refuse(needs, **self.writing, chat=self.chat)
        else:
            refuse("give either --lm or --{name}, not both", model=self.model)
        others = {"pair": self.pair, "file": self.file, "context": self.context}
        if self.smiles is not None:
            refuse("give either --smiles or a text, not both", text=self.text)
            others |= {"image": self.image, "lm": self.lm, "question": self.question}
            refuse("give either --smiles or --{name}, not both", **others)
        if self.document is not None:
            refuse("give either --document or a text, not both", text=self.text)
            refuse("give either --document or --{name}, not both", **others, smiles=self.smiles)
        elif self.image is not None:
            asked = {"question": self.question, "context": self.context}
            refuse("with --image the question is the text itself: leave out --{name}", **asked)
        if self.batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {self.batch_size}")
        givens.check_other_file(self.text, self.lm or self.model)

    def rows(self) -> dict[int, Any]:
        """The inputs, by their row."""
        if self.document is not None:
            return givens.documents(self.document, self.model, self.image, self.question)
        if self.question is not None or self.context is not None:
            return {0: givens.question_and_context(self.model, self.text, self.question, self.context, self.file)}
        if self.smiles is not None:
            return {0: self.smiles}
        if self.chat is not None:
            others = {"pair": self.pair, "file": self.file, "choice": self.choice}
            refuse("give either --chat or a text, not both", text=self.text, **others)
            return {0: givens.messages(self.chat)}
        if self.pictures:
            return dict(enumerate(self.pictures))
        texts: dict[int, Any] = dict(givens.texts(self.text, self.pair, self.file, self.column))
        if self.image is not None:
            return {row: (self.image, givens.candidates(one)) for row, one in texts.items()}
        return givens.with_choices(texts, self.choice, self.split, self.pair)

    def table_rows(self, explainer: Explainer) -> dict[int, Any]:
        """The rows of the table, for a model that reads these."""
        others = {"column": self.column, "pair": self.pair, "image": self.image}
        refuse("--{name} is for texts, and this model reads rows of a table", **others)
        return table_rows(explainer, self.table)

    def check_reader(self, reads: str, answers: bool) -> None:
        """Raise for options that are not for what the model reads; `answers`: whether it answers questions."""
        if not answers:
            message = f'--{{name}} is for models that answer questions, and "{self.name}" does not'
            refuse(message, question=self.question, context=self.context)
        if reads == "texts" and self.is_text and not self.pictures and self.text is not None:
            hint = givens.hint(self.text)
            if hint:
                typer.echo(f"relprop: {hint}", err=True)
        if self.document is not None and reads != "documents":
            raise InputError(f"--document needs a model that reads words with their boxes, this one reads {reads}")
        goes_on = reads == "images" and self.lm is not None  # from the text, beside the picture (Donut)
        if self.image is not None and reads not in ("inputs", "documents") and not goes_on:
            raise InputError(f"--image needs a model that reads a picture and a text together, this one reads {reads}")
        if reads == "graphs":
            refuse("--{name} is not for graphs", words=self.words, contour=self.contour)
        else:
            message = f"--{{name}} needs a model of graphs, this one reads {reads}: leave out --model"
            refuse(message, smiles=self.smiles)
        if self.pictures and reads == "images":
            refuse("--{name} is for texts", words=self.words, drop_special=self.drop_special)
        if self.is_folder:
            refuse("--{name} is for one image, not for a folder", ledger=self.ledger)

    def asked(self) -> dict[str, Any]:
        """The arguments of the explainer."""
        asked: dict[str, Any] = {"batch_size": self.batch_size, "ledger": self.ledger, **_options(self.option or [])}
        asked |= {"special": "drop"} if self.drop_special else {}
        asked |= {"words": True} if self.words else {}
        asked |= {"progress": False} if self.quiet else {}
        return asked | {name: value for name, value in self.writing.items() if value is not None}


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
