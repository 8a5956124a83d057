"""Questions about a context, for an explainer."""

from __future__ import annotations

import inspect
from typing import Any

from relprop.errors import InputError
from relprop.texts import Texts


def answers_questions(model: Any) -> bool:
    """Does the model have a question-answering head? It then learns from the answers' places."""
    return "start_positions" in inspect.signature(model.forward).parameters


def paired(given: Any, question: str | list[str] | None, context: str | list[str] | None) -> Any:
    """A question with its context, or a list of both: one context serves many questions, and the other way round."""
    if given is not None or question is None or context is None:
        raise InputError("a question needs its context: explainer(question=..., context=...), and no other text")
    if isinstance(question, str) and isinstance(context, str):
        return question, context
    count = len(question) if isinstance(question, list) else len(context)
    questions, contexts = ([one] * count if isinstance(one, str) else one for one in (question, context))
    if len(questions) != len(contexts):
        raise InputError(f"{len(questions)} questions for {len(contexts)} contexts")
    return list(zip(questions, contexts, strict=True))


class Questions(Texts):
    """A question-answering model and its tokenizer."""

    name = "questions"
