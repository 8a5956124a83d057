"""Which font has the characters of a text: matplotlib's own first, then those of this machine, else a warning.

Widths are those of shaped text: letters of Arabic and Indic scripts join, and take less room than one by one.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import matplotlib as mpl
from matplotlib.font_manager import FontEntry, findSystemFonts, fontManager, ttfFontProperty
from matplotlib.ft2font import FT2Font, LoadFlags

from relprop.errors import RelpropWarning

FOLDER = Path(mpl.get_data_path(), "fonts", "ttf")  # the fonts that come with matplotlib: the same picture everywhere
REGULAR, BOLD = FOLDER / "DejaVuSans.ttf", FOLDER / "DejaVuSans-Bold.ttf"
MISSING = "□"
UNDRAWN = "\u200b\u200c\u200d\ufe0e\ufe0f"  # joiners and variants: they say how others are drawn
RIGHT_TO_LEFT = ("R", "AL")
SHAPED = (3, 11)  # the first matplotlib that joins letters and turns their order
# Fonts that are known to have many scripts are asked first: there may be hundreds.
_LIKELY = (
    "cjk", "noto sans", "source han", "droid sans fallback", "wenquanyi", "symbola", "emoji", "arial unicode",
    "hiragino", "pingfang", "yu gothic", "malgun", "microsoft yahei", "simsun", "segoe ui", "unifont",
)  # fmt: skip
_LAST_RESORT = "last resort"  # a font that claims every character, and draws all of a script as one box

_lacking: ContextVar[frozenset[str]] = ContextVar("_lacking", default=frozenset())  # of the figure that is being made


def fitted(text: str, first: Path) -> tuple[str, Path]:
    """The text and the font to draw it with: `first` if that has all of it; a box for each character that none has."""
    wanted = {char for char in text if char not in UNDRAWN}
    font = first if wanted <= _known(first) else _fallback(frozenset(wanted - _known(first)), frozenset(wanted), first)
    return drawable(text, font), font


def drawable(text: str, font: Path) -> str:
    """The text with a box for every character that this font lacks, which is remembered for the warning."""
    known = _known(font)
    lacking = {char for char in text if char not in known and char not in UNDRAWN}
    if mpl.__version_info__ < SHAPED:
        lacking |= {char for char in text if right_to_left(char)}
    if lacking:
        _lacking.set(_lacking.get() | lacking)
    box = next((one for one in (MISSING, "?") if one in known), "")
    return "".join(char if char in known else "" if char in UNDRAWN else box for char in text)


def warn_of_lacking() -> None:
    """Tell which characters of the figure that was made no font here has; for the next figure none are known yet."""
    lacking = "".join(sorted(_lacking.get()))
    _lacking.set(frozenset())
    if lacking:
        shown = f"{lacking[:20]}{f' and {len(lacking) - 20} more' if len(lacking) > 20 else ''}"
        warnings.warn(
            f"no font on this machine can draw {shown}: there are boxes in the picture; install a font that has them, "
            "such as Noto Sans CJK or Symbola, or save as .html",
            RelpropWarning,
            stacklevel=3,
        )


@cache
def _fallback(missing: frozenset[str], wanted: frozenset[str], first: Path) -> Path:
    """The machine's first font that has all; else the one that has most of what the first lacks; else the first."""
    best, most = first, 0
    for font in _machine_fonts():
        known = _known(font)
        if wanted <= known:
            return font
        if len(missing & known) > most:
            best, most = font, len(missing & known)
    return best


def _machine_fonts() -> Iterator[Path]:
    """The regular fonts that matplotlib found, likely ones first, in one order."""
    regular = [
        one
        for one in (*fontManager.ttflist, *_installed_since())
        if one.style == "normal" and str(one.weight) in ("400", "normal") and _LAST_RESORT not in one.name.lower()
    ]

    def likely(name: str) -> int:
        return next((k for k, part in enumerate(_LIKELY) if part in name.lower()), len(_LIKELY))

    for one in sorted(regular, key=lambda one: (likely(one.name), one.name, one.fname)):
        yield Path(one.fname)


@cache
def _installed_since() -> tuple[FontEntry, ...]:
    """Fonts that matplotlib's stored list lacks: it is not made again when a font is installed, as the warning says."""
    known, found = {one.fname for one in fontManager.ttflist}, []
    for file in sorted(set(findSystemFonts()) - known):
        with suppress(RuntimeError, OSError):  # of fonts that it cannot read
            found.append(ttfFontProperty(FT2Font(file)))
    return tuple(found)


@cache
def font_file(path: Path) -> FT2Font:
    font = FT2Font(str(path))
    font.set_size(100, 72)
    return font


@cache
def _known(path: Path) -> frozenset[str]:
    """The characters that a font draws; none of a font without outlines, as most of coloured emoji are."""
    try:
        font = font_file(path)
        codes = font.get_charmap()
        font.load_char(next(iter(codes)), LoadFlags.NO_HINTING)
    except (RuntimeError, OSError, StopIteration):
        return frozenset()
    return frozenset(map(chr, codes))


@cache
def width(text: str, path: Path) -> float:
    """How far a text moves the pen, in units of the font size."""
    if all(char.isascii() for char in text):
        return sum(_advance(char, path) for char in text)
    font = font_file(path)
    font.set_text(text, 0.0, flags=LoadFlags.NO_HINTING)
    return max(font.get_width_height()[0] / 64 / 100, _advance(text, path) if len(text) == 1 else 0.0)


@cache
def _advance(char: str, path: Path) -> float:
    return font_file(path).load_char(ord(char), LoadFlags.NO_HINTING).linearHoriAdvance / 65536 / 100


def right_to_left(text: str) -> bool:
    """Whether most letters of a text are of a script that is written from right to left."""
    kinds = [unicodedata.bidirectional(char) for char in text]
    return sum(kind in RIGHT_TO_LEFT for kind in kinds) > kinds.count("L")


def joins(text: str) -> bool:
    """Whether letters of a text take other forms beside their neighbours."""
    return any(unicodedata.bidirectional(char) == "AL" for char in text)
