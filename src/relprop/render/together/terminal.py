"""A picture and a text in the terminal: the map over the picture, the words, and how much came from each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from relprop.render.generation.terminal import terminal as generation_in_terminal
from relprop.render.image.terminal import terminal as picture_in_terminal
from relprop.render.text.terminal import terminal as text_in_terminal
from relprop.render.together.layout import TogetherMap, told_sums


def terminal(maps: Sequence[TogetherMap]) -> RenderableType:
    """One under the other."""
    return Group(*(_together(one) for one in maps))


def _together(one: TogetherMap) -> RenderableType:
    words = text_in_terminal([one.text]) if one.generation is None else generation_in_terminal([one.generation])
    sums = Text(f"sum per part: {' · '.join(told_sums(one))}")
    return Group(picture_in_terminal([one.picture]), words, sums)
