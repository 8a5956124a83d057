"""Kinds of experiments: what a cell does with its model and examples."""

from relprop.bench.kinds.kind import KINDS, Job, Kind, kind_of

__all__ = ["KINDS", "Job", "Kind", "kind_of"]
