"""What other installed packages add to relprop, by their entry points."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoints, entry_points


def plugins(group: str) -> EntryPoints:
    """The entry points of a group. All packages are read once per search path: that takes as long as an explanation."""
    return _entry_points(group, tuple(sys.path))


@lru_cache
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    return entry_points(group=group)
