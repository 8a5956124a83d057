"""Heat maps over pictures: enlarging, colours that all readers tell apart, contours, grids, and every renderer.

After a wanted change of looks: UPDATE_GOLDEN=1 pytest tests/test_render_images.py, then look at the difference.
"""

from __future__ import annotations

import base64
import io
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.layout_engine import TightLayoutEngine
from PIL import Image
from rich.color import Color
from rich.console import Console

from relprop.render.image.figure import draw, save
from relprop.render.image.html import LONGEST, html
from relprop.render.image.layout import caption, described, grid, scale_note, strip
from relprop.render.image.overlay import (
    ImageMap,
    bounds,
    enlarged,
    fitted,
    overlay,
    own_bound,
    painted,
    resized,
    shades,
)
from relprop.render.image.terminal import STEPS, TALL, terminal
from relprop.render.page import CSS, PANELS
from relprop.render.palette import GLOW, LIGHT, SIGNED, UNSIGNED, Film
from relprop.render.panels import MARGIN
from test_render import GOLDEN, HOSTILE, Elements, check_golden, without

RENDERERS = [terminal, html, draw]
MAGNIFIED = [(14, 14, 224, 224), (3, 5, 17, 11), (1, 1, 4, 6), (2, 7, 2, 7), (4, 1, 9, 3), (1, 6, 5, 31)]


def picture(height: int = 24, width: int = 32) -> np.ndarray:
    """A gradient in colour with a bright square, unlike its mirror images."""
    y, x = np.mgrid[0:height, 0:width]
    image = np.stack([255 * x / width, 255 * y / height, 128 + 0 * x], axis=-1)
    image[height // 4 : height // 2, width // 8 : width // 3] = (250, 240, 220)
    return image.astype(np.uint8)


def hill(rows: int = 7, columns: int = 7, signed: bool = True) -> np.ndarray:
    """Support at the upper left, and opposition at the lower right where there are signs."""
    y, x = (np.mgrid[0:rows, 0:columns] + 0.5) / np.array([rows, columns])[:, None, None]
    up = np.exp(-((x - 0.2) ** 2 + (y - 0.2) ** 2) * 12)
    return up - signed * 0.6 * np.exp(-((x - 0.8) ** 2 + (y - 0.8) ** 2) * 12)


def made(
    scores: np.ndarray | None = None, image: np.ndarray | None = None, method: str = "attn_lrp", **words: object
) -> ImageMap:
    words = {"target": "tabby", "value": 7.5, "prediction": "tabby (0.98)", **words}
    return ImageMap(picture() if image is None else image, hill() if scores is None else scores, method, **words)


def gallery() -> list[ImageMap]:
    """Two methods for two classes of one picture, one of them missing, and another picture."""
    rollout = hill(signed=False)
    return [
        made(rollout, method="attention_rollout", signed=False),
        made(note="without special tokens"),
        made(-hill(), target="dog", value=-1.25),
        made(rollout, picture(40, 20), "attention_rollout", target="<b>boat & sail</b>", prediction="", signed=False),
    ]


def hostile() -> list[ImageMap]:
    """Every hostile string as a method, a target, a prediction and a note."""
    return [made(method=text, target=text, prediction=text, note=text) for text in HOSTILE]


def printed(maps: Sequence[ImageMap], colours: str | None = None, width: int = 60, **options: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=colours, force_terminal=colours is not None, **options)
    console.print(terminal(maps))
    return file.getvalue()


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


# What can be drawn


@pytest.mark.parametrize(
    ("image", "came"),
    [
        (np.zeros((4, 4, 4), np.uint8), r"uint8 \[4, 4, 4\]"),
        (np.zeros((4, 4), np.uint8), r"uint8 \[4, 4\]"),
        (np.zeros((4, 4, 3)), r"float64 \[4, 4, 3\]"),
        (np.zeros((0, 4, 3), np.uint8), r"uint8 \[0, 4, 3\]"),
        (Image.new("RGBA", (4, 4)), "a Image"),
    ],
)
def test_other_pictures_are_refused_with_what_to_do(image: object, came: str) -> None:
    with pytest.raises(ValueError, match=rf"not {came}; np\.asarray\(image\.convert\(\"RGB\"\)\) makes one"):
        made(image=image)


@pytest.mark.parametrize("scores", [np.zeros(4), np.zeros((0, 3)), np.zeros((2, 2), int), [[1.0]]])
def test_scores_must_be_a_map_of_floats(scores: object) -> None:
    with pytest.raises(ValueError, match=r'the scores of "attn_lrp" must be an array \[rows, columns\] of floats, not'):
        made(scores)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match='the scores of "attn_lrp" hold 1 numbers that are not finite'):
        made(np.array([[1.0, bad]]))


def test_unsigned_scores_below_0_are_refused_but_not_their_rounding() -> None:
    with pytest.raises(ValueError, match=r"called unsigned but go down to -0\.5; give signed=True"):
        made(np.array([[1.0, -0.5]]), signed=False)
    overlay(made(np.array([[1.0, -1e-9]]), signed=False))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"opacity": 1.5}, "between 0 and 1, not 1.5"),
        ({"bound": 0.0}, "above 0, not 0.0"),
        ({"bound": math.nan}, "nan"),
    ],
)
def test_wrong_options_are_said(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        overlay(made(), **options)


@pytest.mark.parametrize("render", RENDERERS)
def test_nothing_to_draw_is_said(render: object) -> None:
    with pytest.raises(ValueError, match="no heat maps to draw; give at least one"):
        render([])


@pytest.mark.parametrize("render", [html, draw])
def test_an_unknown_bound_is_said(render: object) -> None:
    with pytest.raises(ValueError, match='a number, "method", "grid" or None, not "row"'):
        render(gallery(), bound="row")


# Enlarging


def slowly(scores: np.ndarray, width: int, height: int) -> np.ndarray:
    """Bilinear with half-pixel centres, pixel by pixel; beyond the outer centres the edge goes on."""
    rows, columns = scores.shape
    found = np.empty((height, width))
    for i in range(height):
        for j in range(width):
            y = min(max((i + 0.5) * rows / height - 0.5, 0), rows - 1)
            x = min(max((j + 0.5) * columns / width - 0.5, 0), columns - 1)
            top, left = int(y), int(x)
            low, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
            above = scores[top, left] * (1 - (x - left)) + scores[top, right] * (x - left)
            below = scores[low, left] * (1 - (x - left)) + scores[low, right] * (x - left)
            found[i, j] = above * (1 - (y - top)) + below * (y - top)
    return found


@pytest.mark.parametrize(("rows", "columns", "height", "width"), MAGNIFIED)
def test_enlarging_is_bilinear_between_the_centres_of_patches(rows: int, columns: int, height: int, width: int) -> None:
    scores = np.random.default_rng(0).normal(size=(rows, columns))
    found = enlarged(scores, width, height)
    np.testing.assert_allclose(found, slowly(scores, width, height), atol=1e-6)
    theirs = torch.nn.functional.interpolate(
        torch.tensor(scores)[None, None], (height, width), mode="bilinear", align_corners=False
    )
    np.testing.assert_allclose(found, theirs[0, 0].numpy(), atol=1e-6)


def test_more_scores_than_pixels_are_averaged_not_skipped() -> None:
    scores = np.random.default_rng(0).normal(size=(30, 40))
    theirs = torch.nn.functional.interpolate(
        torch.tensor(scores)[None, None], (7, 9), mode="bilinear", align_corners=False, antialias=True
    )
    np.testing.assert_allclose(enlarged(scores, 9, 7), theirs[0, 0].numpy(), atol=1e-6)


def test_a_map_keeps_its_place_whatever_the_size_of_the_picture() -> None:
    large = shades(made(image=picture(240, 320)))
    for small in (shades(made()), shades(resized(made(image=picture(240, 320)), 32, 24))):
        np.testing.assert_allclose(small, large.reshape(24, 10, 32, 10).mean((1, 3)), atol=0.03)


@pytest.mark.parametrize(("size", "expected"), [((400, 300), (100, 75)), ((3, 6), (50, 100)), ((9000, 1), (100, 1))])
def test_fitted_pictures_have_the_wanted_longer_side(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert fitted(made(image=picture(*size)), 100).image.shape == (*expected, 3)


# Colours


def linear(rgb: np.ndarray) -> np.ndarray:
    rgb = np.asarray(rgb) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of linear sRGB."""
    xyz = light @ np.array([[0.4124, 0.2126, 0.0193], [0.3576, 0.7152, 0.1192], [0.1805, 0.0722, 0.9505]])
    ratio = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], axis=-1)


# Machado, Oliveira and Fernandes (2009), severity 1: what dichromats see, in linear sRGB.
SIGHT = {
    "full": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def seen(rgb: np.ndarray, sight: str = "full") -> np.ndarray:
    return lab(np.clip(linear(rgb) @ SIGHT[sight].T, 0, 1))


def ladder(film: Film, greys: int, *steps: float) -> np.ndarray:
    """The colours of some shades over one grey."""
    return painted(np.full((1, len(steps)), greys, np.uint8), np.array([steps]), film)[0]


STEPS_UP = np.linspace(0, 1, 101)


def test_the_glow_grows_evenly_lighter() -> None:
    lightness = np.diff(seen(np.array(GLOW))[:, 0])
    assert lightness.min() > 0.6 * lightness.mean()


@pytest.mark.parametrize("grey", range(0, 256, 15))
@pytest.mark.parametrize("sign", [-1, 1])
def test_more_is_darker_on_every_grey_where_there_are_signs(grey: int, sign: int) -> None:
    lightness = seen(ladder(SIGNED, grey, *(sign * STEPS_UP)))[:, 0]
    assert np.diff(lightness).max() < 0.5  # bytes are rounded
    assert lightness[0] - lightness[-1] > 5


@pytest.mark.parametrize("grey", range(0, 256, 15))
def test_more_is_brighter_on_every_grey_where_there_are_none(grey: int) -> None:
    lightness = seen(ladder(UNSIGNED, grey, *STEPS_UP))[:, 0]
    assert np.diff(lightness).min() > -0.5  # bytes are rounded
    assert lightness[-1] - lightness[0] > 30


def test_both_signs_weigh_alike() -> None:
    for step in (0.25, 0.5, 0.75, 1):
        ends = seen(ladder(SIGNED, 255, -step, step))[:, 0]
        assert abs(ends[0] - ends[1]) < 6


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("grey", [0, 64, 128, 192, 255])
def test_all_readers_tell_the_signs_and_nothing_apart(sight: str, grey: int) -> None:
    for step, least in ((0.5, 11), (1, 22)):
        colours = seen(ladder(SIGNED, grey, -step, 0, step), sight)
        for one, other in combinations(colours, 2):
            assert np.linalg.norm(one - other) > least


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("grey", [0, 64, 128, 192, 255])
def test_all_readers_tell_quarters_of_the_unsigned_scale_apart(sight: str, grey: int) -> None:
    for one, other in combinations(seen(ladder(UNSIGNED, grey, 0, 0.25, 0.5, 0.75, 1), sight), 2):
        assert np.linalg.norm(one - other) > 6  # 2.3 is just noticed


def test_red_supports_and_blue_opposes_as_in_texts() -> None:
    pixels = overlay(made(np.array([[1.0, -1.0]])), opacity=1)
    assert tuple(pixels[0, 0]) == LIGHT.supports
    assert tuple(pixels[0, -1]) == LIGHT.opposes


# The overlay


@pytest.mark.parametrize("signed", [True, False])
def test_a_map_of_zeros_is_the_grey_picture(signed: bool) -> None:
    pixels = overlay(made(np.zeros((3, 3)), signed=signed), contour="mean")
    assert (pixels == pixels[..., :1]).all()
    grey = np.asarray(Image.fromarray(picture()).convert("L")).astype(float)
    assert np.corrcoef(grey.ravel(), pixels[..., 0].ravel())[0, 1] > 0.999


def test_the_picture_shows_through_the_strongest_colour() -> None:
    pixels = overlay(made(np.ones((1, 1)))).astype(int)
    assert np.ptp(pixels.sum(-1)) > 40


def test_0_is_clear_wherever_the_other_scores_lie() -> None:
    scores = np.zeros((4, 8))
    scores[:, 6:] = 1
    left = overlay(made(scores))[:, :20]
    np.testing.assert_array_equal(left, overlay(made(np.zeros((1, 1))))[:, :20])


@pytest.mark.parametrize("scale", [1e-320, 1e-12, 1e300])
def test_a_map_of_its_own_scale_looks_the_same_at_any(scale: float) -> None:
    scores = np.array([[1.0, -1.0], [0.0, 0.0]])
    np.testing.assert_array_equal(overlay(made(scores * scale)), overlay(made(scores)))


def test_small_maps_keep_their_strongest_score_and_pixels_are_clipped() -> None:
    assert own_bound(made(np.arange(200.0).reshape(10, 20))) == 199
    assert own_bound(made(np.arange(10_000.0).reshape(100, 100))) == pytest.approx(9949, abs=2)
    lone = np.zeros((100, 100))
    lone[3, 4] = -5.0
    assert own_bound(made(lone)) == 5


def test_a_bound_beyond_the_scores_makes_them_paler() -> None:
    np.testing.assert_array_equal(
        overlay(made(np.full((2, 2), 3.0)), bound=6), overlay(made(np.full((2, 2), 0.5)), bound=1)
    )
    np.testing.assert_array_equal(overlay(made(np.full((2, 2), 3.0)), bound=1), overlay(made(np.full((2, 2), 3.0))))


def test_bounds_are_shared_by_a_method_or_by_all() -> None:
    maps = [made(np.array([[top]]), method=method) for top, method in ((1.0, "a"), (4.0, "a"), (9.0, "b"), (0.0, "c"))]
    assert bounds(maps, None) == {"a": None, "b": None, "c": None}
    assert bounds(maps, "method") == {"a": 4, "b": 9, "c": 1}  # of zeros any bound will do
    assert bounds(maps, "grid") == {"a": 9, "b": 9, "c": 9}
    assert bounds(maps, 2.5) == {"a": 2.5, "b": 2.5, "c": 2.5}
    assert scale_note(SIGNED, "grid", bounds(maps, "grid")) == "full colour from ±9.000 in every map"
    assert scale_note(UNSIGNED, "method", bounds(maps, "method")) == "relative to the strongest scores of each method"


@pytest.mark.parametrize(
    ("name", "options"), [("signed.png", {}), ("unsigned.png", {"signed": False}), ("contour.png", {"contour": 0.25})]
)
def test_overlay_golden(name: str, options: dict[str, object]) -> None:
    contour = options.pop("contour", None)
    pixels = overlay(made(hill(signed=options.get("signed", True)), **options), contour=contour)
    path = GOLDEN / "image" / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    with Image.open(path) as golden:
        np.testing.assert_allclose(pixels.astype(int), np.asarray(golden).astype(int), atol=1)


# Contours


def test_a_contour_lies_where_the_scores_cross_it_white_within_and_black_around() -> None:
    scores = np.tile(np.linspace(0, 1, 8), (3, 1))  # crosses 0.5 in the middle
    plain, ringed = (overlay(made(scores, picture(20, 40)), contour=contour) for contour in (None, 0.5))
    assert np.unique(np.nonzero(plain != ringed)[1]).tolist() == [19, 20]
    assert (ringed[:, 19] == 0).all()
    assert (ringed[:, 20] == 255).all()


def test_the_frame_of_the_picture_is_no_contour() -> None:
    inside = overlay(made(np.ones((3, 3))), contour=0.5)
    np.testing.assert_array_equal(inside, overlay(made(np.ones((3, 3)))))


def test_the_mean_is_a_threshold_and_a_flat_map_has_no_contour() -> None:
    ringed = overlay(made(), contour="mean")
    np.testing.assert_array_equal(ringed, overlay(made(), contour=float(hill().mean())))
    assert (ringed != overlay(made())).any()
    for level in (0.1, 1 / 3, 7e5):
        flat = made(np.full((5, 3), level), picture(61, 43))
        np.testing.assert_array_equal(overlay(flat, contour="mean"), overlay(flat))


def test_contours_of_large_pictures_are_thicker() -> None:
    scores = np.tile(np.linspace(0, 1, 8), (3, 1))
    ringed = overlay(made(scores, picture(400, 800)), contour=0.5)
    assert (ringed == 255).all(axis=(0, 2)).sum() == 4


# The grid and its words


def test_pictures_and_targets_go_down_and_methods_across() -> None:
    maps = gallery()
    table = grid(maps)
    assert table.methods == ("attention_rollout", "attn_lrp")
    assert [row.cells for row in table.rows] == [(maps[0], maps[1]), (None, maps[2]), (maps[3], None)]
    assert [row.first for row in table.rows] == [maps[0], maps[2], maps[3]]


def test_the_same_target_of_another_picture_is_another_row() -> None:
    assert len(grid([made(), made(image=picture(12, 64)), made(image=picture())]).rows) == 2


def test_a_method_that_comes_again_gets_a_column_of_its_own() -> None:
    first, again = made(), made()
    assert grid([first, again]).rows[0].cells == (first, again)


def test_maps_are_told_in_words() -> None:
    assert caption(made(note="cut")).account == ("scores -0.597 to +0.995", "cut")
    assert (
        described(made()) == "attn_lrp, tabby = 7.500; supported most at the top left; opposed most at the bottom right"
    )
    assert described(made(hill(signed=False), signed=False)).endswith("; strongest at the top left")
    assert described(made(np.zeros((1, 1)))) == "attn_lrp, tabby = 7.500; all scores are 0"


# HTML


def pictures_of(page: str) -> list[np.ndarray]:
    """Every image of a page, decoded."""
    sources = [attrs["src"] for tag, attrs in Elements(page).tags if tag == "img"]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(source.split(",")[1])))) for source in sources]


def test_html_golden() -> None:
    page = re.sub(r"base64,[\w+/=]+", "base64,…", html(gallery(), title="Golden"))  # compressors differ
    check_golden("image/page.html", without(page, CSS))


def test_html_holds_the_picture_the_overlays_and_the_legends() -> None:
    maps = gallery()[:2]
    plain, first, second, *legends = pictures_of(html(maps, contour="mean", bound="grid"))
    np.testing.assert_array_equal(plain, fitted(maps[0], LONGEST).image)
    bound = bounds(maps, "grid")["attn_lrp"]
    for shown, one in ((first, maps[0]), (second, maps[1])):
        np.testing.assert_array_equal(shown, overlay(fitted(one, LONGEST), contour="mean", bound=bound))
    assert [legend.shape for legend in legends] == [strip(SIGNED, 128).shape] * 2


def test_huge_pictures_are_downscaled_in_pages() -> None:
    assert max(max(image.shape[:2]) for image in pictures_of(html([made(image=picture(1500, 3000))]))) == LONGEST


@pytest.mark.parametrize("full_page", [True, False])
def test_html_obeys_no_text(full_page: bool) -> None:
    page = html(hostile(), full_page=full_page, title="</title><script>x</script>")
    found = Elements(page)
    tags = {"html", "head", "meta", "title", "style", "body", "div", "span", "bdi", "b", "img", "label", "input", "wbr"}
    assert {tag for tag, _ in found.tags} <= tags | {"figure", "figcaption"}
    attributes = {"class", "title", "alt", "src", "style", "type", "aria-label"}
    outside = {"lang", "charset", "http-equiv", "content", "name"}
    assert {name for _, attrs in found.tags for name in attrs} <= attributes | outside
    styles = {re.sub(r"base64,[\w+/=]+", "", attrs["style"]) for _, attrs in found.tags if "style" in attrs}
    assert styles == {"--picture:url(data:image/png;)"}
    assert "\x1b" not in page
    assert "\u202e" not in page
    page.encode()  # a lone surrogate would not


def test_html_needs_nothing_from_outside_and_no_script() -> None:
    page = html(gallery())
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page
    assert not re.search(r"https?:|url\((?!data:image/png;base64,)|@import|href=|<script|<link|\bon\w+=", page)


def test_html_tells_its_maps_to_those_who_cannot_see_them() -> None:
    found = Elements(html(gallery()[:2]))
    texts = [attrs["alt"] for tag, attrs in found.tags if tag == "img"]
    assert texts[0] == "the picture, 32 × 24 pixels"
    assert texts[1:3] == [described(one) for one in gallery()[:2]]
    text = "".join(found.text)
    for words in ("tabby = 7.500", "predicted tabby (0.98)", "attention_rollout", "attn_lrp", "without special tokens"):
        assert words in text


def test_html_has_a_panel_for_every_cell_also_where_one_is_missing() -> None:
    figures = [tag for tag, _ in Elements(html(gallery())).tags if tag == "figure"]
    assert len(figures) == 3 * (1 + 1 + 2)


def test_a_fragment_is_no_page_and_styles_only_its_own() -> None:
    fragment = html(gallery(), full_page=False)
    assert not re.search(r"<(html|head|body|meta|title)\b", fragment)
    css = re.sub(r"@media[^{]*", "", PANELS)
    selectors = [part for rule in re.findall(r"([^{}]+)\{[^{}]*\}", css) for part in rule.split(",")]
    assert len(selectors) > 15
    assert not [selector for selector in selectors if ".relprop" not in selector]


# Terminal


@pytest.mark.parametrize(
    ("name", "colours"), [("truecolor.ansi", "truecolor"), ("256.ansi", "256"), ("plain.txt", None)]
)
def test_terminal_golden(name: str, colours: str | None) -> None:
    check_golden(f"image/{name}", printed(gallery()[:3], colours, width=24))


def test_half_blocks_are_the_pixels_of_the_overlay() -> None:
    output = printed([made()], "truecolor", width=16)
    found = re.findall(r"\x1b\[38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m▀", output)
    cells = np.array(found, int).reshape(6, 16, 2, 3).transpose(0, 2, 1, 3)  # 16 x 12 pixels, two a character
    np.testing.assert_array_equal(cells.reshape(12, 16, 3), overlay(resized(made(), 16, 12)))


@pytest.mark.parametrize("colours", ["truecolor", "256", "standard", None])
@pytest.mark.parametrize("width", [1, 7, 40, 300])
@pytest.mark.parametrize("size", [(24, 32), (1, 1), (90, 3), (2, 200)])
def test_the_terminal_keeps_to_the_width_and_to_a_height(
    colours: str | None, width: int, size: tuple[int, int]
) -> None:
    one = ImageMap(picture(*size), hill(), "m", "t", 1.0)
    lines = bare(printed([one], colours, width)).splitlines()
    assert max(map(len, lines)) <= width
    assert sum("▀" in line for line in lines) <= TALL


@pytest.mark.parametrize("options", [{"colours": "standard"}, {"colours": "truecolor", "no_color": True}])
def test_without_enough_colours_characters_tell_the_signs(options: dict[str, object]) -> None:
    output = bare(printed([made(np.array([[1.0, 0.0], [0.0, -0.5]]), picture(20, 20))], **options))
    assert not re.search(r"\x1b\[[\d;]*[34]8;", output)
    assert [line.rstrip() for line in output.splitlines()[1:6]] == [
        "supports opposes",
        "+----+   +----+",
        "|@@  |   |    |",
        "|    |   |  ==|",
        "+----+   +----+",
    ]


def test_averaged_pixels_still_use_the_whole_ramp() -> None:
    noise = np.random.default_rng(0).normal(size=(64, 64)) * np.kron(hill(signed=False), np.ones((10, 10)))[:64, :64]
    assert "@@" in printed([made(noise)])


@pytest.mark.parametrize("film", [SIGNED, UNSIGNED])
def test_256_colours_go_the_way_of_the_film(film: Film) -> None:
    for side in filter(None, STEPS[film]):
        lightness = [seen(np.array(Color.from_ansi(n).get_truecolor()))[0] for n in side]
        assert lightness == sorted(lightness, reverse=film is SIGNED)


@pytest.mark.parametrize("colours", ["truecolor", "256", None])
def test_the_terminal_obeys_no_text(colours: str | None) -> None:
    own = bare(printed(hostile(), colours, width=20))
    assert not {char for char in own if not char.isprintable()} - {"\n", "\u200d"}


# Figures


def test_figures_hold_the_picture_first_then_a_column_a_method() -> None:
    figure = draw(gallery())
    columns = sorted({round(axes.get_position().x0, 3) for axes in figure.axes})
    panes = [axes for axes in figure.axes if axes.images[0].get_array().shape[0] > 1]
    assert len(panes) == 3 * 3 - 2
    assert len(figure.axes) - len(panes) == 2  # the two colour bars
    assert len(columns) >= 3
    np.testing.assert_array_equal(
        panes[0].images[0].get_array(), fitted(made(), max(panes[0].images[0].get_array().shape)).image
    )


def test_a_note_that_all_maps_share_is_told_once() -> None:
    """The name of a picture's file stands below the picture; notes that differ stay with their maps."""
    same = [made(method=method, note="cat.jpg") for method in ("a", "b")]
    assert [text.get_text() for text in draw(same).texts].count("cat.jpg") == 1
    assert html(same).count("cat.jpg") == 1
    other = [made(method="a", note="cut"), made(method="b", note="whole")]
    assert all(html(other).count(note) == 1 for note in ("cut", "whole"))


def test_figures_pass_contour_and_bound_on() -> None:
    plain, ringed, shared = (draw(gallery(), **o).axes for o in ({}, {"contour": "mean"}, {"bound": 50.0}))
    for other in (ringed, shared):
        assert (plain[1].images[0].get_array() != other[1].images[0].get_array()).any()
    assert "±50.000" in {text.get_text() for text in draw(gallery(), bound=50.0).texts}


@pytest.mark.parametrize("methods", [1, 3, 12])
@pytest.mark.parametrize("size", [(24, 32), (1, 1), (300, 10), (5, 400), (1200, 1600)])
def test_figures_stay_of_sensible_size(methods: int, size: tuple[int, int]) -> None:
    """Whatever the pictures: the paper is bounded, and so is every picture's number of pixels."""
    maps = [made(image=picture(*size), method=f"method_{i}") for i in range(methods)]
    figure = draw(maps)
    width, height = figure.get_size_inches()
    assert 4 < width < 2 + 1.1 * max(6, methods + 1)
    assert height < 4
    assert max(max(axes.images[0].get_array().shape) for axes in figure.axes) <= 600


def test_words_and_pictures_keep_off_one_another_and_inside_the_page() -> None:
    words = {"target": "a target of many words that go on", "prediction": "another of many words", "note": "w" * 80}
    maps = [
        made(hill(), picture(*size), f"a_method_with_a_long_name_{i}", **words)
        for size in ((24, 32), (9, 90))
        for i in range(5)
    ]
    figure = draw(maps)
    inches = figure.dpi_scale_trans.inverted()
    texts = [text.get_window_extent().transformed(inches) for text in figure.texts if text.get_text()]
    panes = [axes.get_window_extent().transformed(inches) for axes in figure.axes]
    width, height = figure.get_size_inches()
    for box in [*texts, *panes]:
        assert box.x0 > MARGIN - 0.05
        assert box.x1 < width - MARGIN + 0.05
        assert box.y0 > 0
        assert box.y1 < height
    shrunk = [box.padded(-0.03) for box in texts]  # the pieces of a name touch
    assert not [1 for one, other in combinations([*shrunk, *panes], 2) if one.overlaps(other)]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_saved_figures_obey_no_text_and_lack_no_glyph(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"hostile{suffix}"
    save(hostile()[::4], path)
    content = path.read_bytes()
    assert content.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    if suffix == ".svg":
        assert not [element for element in ElementTree.fromstring(content).iter() if "script" in str(element.tag)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_saved_png_shows_the_overlay_in_its_colours(tmp_path: Path) -> None:
    save([made(np.array([[1.0, -1.0]]), np.full((50, 100, 3), 255, np.uint8))], tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    ends = ladder(SIGNED, 255, -1, 1)
    blue, red = ([np.nonzero((pixels == end).all(-1))[1]] for end in ends)
    assert len(red[0]) > 5000
    assert len(blue[0]) > 5000


def test_a_figure_too_large_for_the_canvas_gets_fewer_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relprop.render.saving.MOST_PIXELS", 300)
    save(gallery(), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert 290 < max(image.size) <= 300


@pytest.mark.parametrize("name", ["a.jpg", "a", "png"])
def test_unknown_suffixes_are_said_with_the_known(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf'"{name}"; the name must end in \.png, \.svg, \.pdf'):
        save(gallery(), tmp_path / name)


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.PNG"
    path.write_bytes(b"old")

    def half(figure: object, written: Path, **options: object) -> None:
        written.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    with pytest.raises(OSError, match="disk full"):
        save(gallery(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_figures_leave_matplotlib_as_it_was_and_ignore_the_users_settings() -> None:
    code = "import sys; from relprop.render.image import html, terminal; assert 'matplotlib' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    before = dict(mpl.rcParams)
    plain = draw(gallery())
    assert dict(mpl.rcParams) == before
    odd = {"text.usetex": True, "figure.autolayout": True, "image.origin": "lower", "image.aspect": "equal"}
    with mpl.rc_context(odd):
        figure = draw(gallery())
    assert not isinstance(figure.get_layout_engine(), TightLayoutEngine)
    assert not [text for text in figure.texts if text.get_usetex()]
    assert figure.axes[0].images[0].origin == plain.axes[0].images[0].origin == "upper"
    assert figure.axes[0].get_aspect() == "auto"
