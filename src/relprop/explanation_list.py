"""Several explanations together: compared in one drawing, saved to one file, and loaded back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from relprop.errors import InputError
from relprop.explanation import Explanation, save, show, to_html
from relprop.text_tables import open_text

if TYPE_CHECKING:
    from relprop.render.image.overlay import Contour


class ExplanationList(list[Explanation]):
    """Explanations that are shown, drawn and saved together."""

    def show(self) -> None:
        """Print them to the terminal, stacked for comparison."""
        show(self)

    def to_html(self) -> str:
        """One self-contained page."""
        return to_html(self)

    def _repr_html_(self) -> str:
        return to_html(self, full_page=False)

    def save(self, path: str | os.PathLike[str], *, contour: Contour = None) -> None:
        """Write one file: .html, .json, .png, .svg or .pdf, by the ending of its name."""
        save(self, path, contour=contour)


def compare(explanations: Iterable[Explanation | Iterable[Explanation]]) -> ExplanationList:
    """Explanations, or lists of them, side by side: `.show()`, `.save("compare.png")`, `.to_html()`.

    >>> relprop.compare(explainer("not bad", method=["lrp_conservative", "gradient_x_input"])).save("compare.png")
    """
    found = ExplanationList()
    for one in [explanations] if isinstance(explanations, Explanation) else explanations:
        found += [one] if isinstance(one, Explanation) else one
    for one in found:
        if not isinstance(one, Explanation):
            raise InputError(f"compare takes explanations, or a list of them, got {type(one).__name__}")
    if not found:
        raise InputError("there is nothing to compare: the list of explanations is empty")
    return found


def load(path: str | os.PathLike[str], image: object = None) -> Explanation | ExplanationList:
    """An explanation saved as .json; of a file that holds several (a list, or .jsonl), all of them.

    `image`: the picture to draw it on again, which JSON does not hold.
    """
    file = Path(path)
    with open_text(file) as content:
        text = content.read()
    try:
        every, several = _texts(text)
        found = ExplanationList(Explanation.from_json(one, image) for one in every)
    except InputError as error:
        raise InputError(f'"{file}" cannot be loaded: {error}') from None
    return found if several else found[0]


def _texts(text: str) -> tuple[list[str], bool]:
    """The JSON of each explanation, and whether the file is one of several."""
    lines = [line for line in text.splitlines() if line.strip()]
    if text.lstrip().startswith("["):
        try:
            return [json.dumps(one) for one in json.loads(text)], True
        except (ValueError, RecursionError) as error:
            raise InputError(f"it is not JSON ({error})") from None
    if len(lines) > 1 and all(line.lstrip().startswith("{") and line.rstrip().endswith("}") for line in lines):
        return lines, True
    return [text], False
