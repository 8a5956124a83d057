"""Shade -> colour: red supports, blue opposes, the intensity is the magnitude, and nothing is the ground itself."""

from __future__ import annotations

from dataclasses import dataclass

RGB = tuple[int, int, int]
BLACK: RGB = (0, 0, 0)
WHITE: RGB = (255, 255, 255)


@dataclass(frozen=True)
class Scale:
    """The three ends of a diverging scale."""

    ground: RGB
    supports: RGB
    opposes: RGB


# The poles of ColorBrewer's RdBu: safe for colour-blind readers, and nearly equally dark, so equal shades weigh alike.
LIGHT = Scale(WHITE, supports=(178, 24, 43), opposes=(33, 102, 172))
DARK = Scale((24, 26, 31), supports=(200, 44, 60), opposes=(47, 111, 196))


# Scores of one sign get one hue that stands for neither side: the pole of ColorBrewer's Purples.
LIGHT_AMOUNT = Scale(WHITE, supports=(84, 39, 143), opposes=(84, 39, 143))
DARK_AMOUNT = Scale(DARK.ground, supports=(138, 94, 204), opposes=(138, 94, 204))


@dataclass(frozen=True)
class Film:
    """What lies over a picture: the greys its black and white become, and the colours of growing shades each way."""

    greys: tuple[int, int]
    supports: tuple[RGB, ...]
    opposes: tuple[RGB, ...]


# Inferno from 0.5 to 0.97: perceptually uniform. Its darker part is too near a picture's greys, most for dichromats.
GLOW: tuple[RGB, ...] = (
    (188, 55, 84),
    (211, 71, 67),
    (230, 93, 47),
    (243, 120, 25),
    (251, 150, 6),
    (251, 182, 26),
    (245, 217, 73),
    (243, 246, 138),
)
# A pale picture for scores of both signs: each grey is lighter than the poles, so more is darker, wherever it lies.
SIGNED = Film((120, 255), supports=(LIGHT.supports,), opposes=(LIGHT.opposes,))
# A dim picture for scores of one sign: each grey is darker than the glow, so more is brighter.
UNSIGNED = Film((0, 120), supports=GLOW, opposes=GLOW)


def colour(shade: float, scale: Scale = LIGHT) -> RGB:
    """From the ground to a pole in a straight line, for a shade in [-1, 1]."""
    pole = scale.supports if shade > 0 else scale.opposes
    red, green, blue = (round(g + (p - g) * abs(shade)) for g, p in zip(scale.ground, pole, strict=True))
    return red, green, blue


def ink(background: RGB) -> RGB:
    """Black or white, whichever reads better: of pure black and white one always has a contrast above 4.5."""
    return max(BLACK, WHITE, key=lambda text: contrast(text, background))


def contrast(one: RGB, other: RGB) -> float:
    """Contrast ratio of WCAG 2, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def legend(steps: int = 9, signed: bool = True) -> tuple[float, ...]:
    """Shades for a legend, from fully opposing to fully supporting; of scores of one sign from nothing on."""
    least = -1 if signed else 0
    return tuple(least + (1 - least) * step / (steps - 1) for step in range(steps))


def light(signed: bool) -> Scale:
    """The scale on white paper."""
    return LIGHT if signed else LIGHT_AMOUNT


def as_hex(rgb: RGB) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def _luminance(rgb: RGB) -> float:
    red, green, blue = (_linear(channel / 255) for channel in rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)
