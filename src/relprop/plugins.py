"""What other installed packages add to relprop, by their entry points."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoints, entry_points


def plugins(group: str) -> EntryPoints:
    """The entry points of a group. All packages are read once per search path: that takes as long as an explanation."""
    return _entry_points(tuple(sys.path)).select(group=group)


@lru_cache(maxsize=1)
def _entry_points(path: tuple[str, ...]) -> EntryPoints:
    return entry_points()
