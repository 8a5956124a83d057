"""A page in the terminal: the page with its boxes, coarse, then the words."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType

from relprop.render.document.layout import DocumentMap
from relprop.render.image.terminal import terminal as picture_in_terminal
from relprop.render.text.terminal import terminal as text_in_terminal


def terminal(maps: Sequence[DocumentMap]) -> RenderableType:
    """The words of all maps; the picture's own scores where the model reads it. A page is too coarse to be read."""
    pictures = [one.picture for one in maps if one.picture is not None]
    shown = [picture_in_terminal(pictures)] if pictures else []
    return Group(*shown, text_in_terminal([one.text for one in maps]))
