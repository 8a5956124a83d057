"""Kinds of tasks: what a cell does with its model and examples."""

from importlib import import_module

from relprop.bench.kinds.task_kind import CellJob, Judge, TaskKind
from relprop.errors import unknown_name

__all__ = ["KINDS", "CellJob", "Judge", "TaskKind", "task_kind"]

KINDS = {
    "faithfulness": "faithfulness.Faithfulness",
    "rationales": "rationales.Rationales",
    "answers": "answers.AnswerTokens",
    "heads": "heads.HeadKinds",
    "layers": "layers.RelevanceByBlock",
    "pictures": "pictures.PictureMaps",
}


def task_kind(name: str) -> TaskKind:
    """A kind by its name; its module is imported here, as it may need packages that others do not."""
    if name not in KINDS:
        raise unknown_name("kind of task", name, KINDS)
    module, _, kind = KINDS[name].partition(".")
    found: TaskKind = getattr(import_module(f"relprop.bench.kinds.{module}"), kind)()
    return found
