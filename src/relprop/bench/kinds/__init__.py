"""Kinds of tasks: what a cell does with its model and examples."""

from relprop.bench.kinds.task_kind import KINDS, CellJob, TaskKind, task_kind

__all__ = ["KINDS", "CellJob", "TaskKind", "task_kind"]
