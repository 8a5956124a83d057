"""`relprop explain` for language models and for questions: a continuation, the next token, an answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from relprop.cli.images import STDOUT, Outputs
from relprop.errors import InputError

if TYPE_CHECKING:
    from relprop.continuation import Continuation
    from relprop.explainer import Explainer


def check(lm: str | None, model: str | None, **given: Any) -> None:
    """What goes with a language model goes with no other; one model is enough."""
    if lm is not None and model is not None:
        raise InputError("give either --lm or --model, not both")
    for name, value in given.items():
        if lm is None and value is not None:
            raise InputError(f'--{name} needs a language model: relprop explain --lm MODEL "prompt" --{name} ...')


def asked(
    model: str | None, text: str | None, question: str | None, context: str | None, file: Path | None
) -> tuple[str, str]:
    """A question and its context, which is an option of its own, the text, or a whole file."""
    if question is None or model is None:
        raise InputError("a context needs its --question, and a --model that answers questions")
    places = [place for place in (context, text, file) if place is not None]
    if len(places) != 1:
        raise InputError("a question needs one context: --context TEXT, --file FILE, or the text itself")
    if not isinstance(places[0], Path):
        return question, places[0]
    try:
        return question, places[0].read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f'cannot read "{places[0]}": {getattr(error, "strerror", None) or error}') from error


def explain_continuations(
    explainer: Explainer, prompts: list[str], outputs: Outputs, asked: dict[str, Any], words: bool
) -> None:
    """Each prompt's continuation by each method: shown, and written where asked."""
    if len(prompts) * len(asked["method"]) > 1 and any(path != STDOUT for path, _ in outputs.each()):
        raise InputError("one file holds one continuation: give one prompt and one method, or --json -")
    found: list[Continuation] = [one for prompt in prompts for one in explainer(prompt, **asked)]
    found = [one.words() if words else one for one in found]
    if outputs.json == STDOUT:
        typer.echo("\n".join(one.to_json() for one in found))
    else:
        for one in found:
            one.show()
            if asked["ledger"]:
                books = "".join(f"\n{made.target}\n{made.ledger or 'has no ledger'}\n" for made in one.generated)
                typer.echo(books, nl=False)
    for path, _ in outputs.each():
        if path != STDOUT:
            found[0].save(path)
            typer.echo(f"wrote {path}", err=True)
