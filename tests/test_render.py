"""Heat maps drawn: what the cells say, that no text is ever obeyed, and golden pages.

After a wanted change of looks: UPDATE_GOLDEN=1 pytest tests/test_render.py, then look at the difference.
"""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.layout_engine import TightLayoutEngine
from PIL import Image
from rich.color import Color
from rich.console import Console

from relprop.render.caption import number
from relprop.render.page import CSS
from relprop.render.palette import DARK, LIGHT, colour, contrast, ink, legend
from relprop.render.text.figure import MARGIN, WIDTH, draw, save
from relprop.render.text.html import html, shade_rules
from relprop.render.text.layout import SEPARATOR, caption, cells, shades, stacked
from relprop.render.text.terminal import terminal
from relprop.render.visible import visible
from relprop.types import Heatmap, Unit

GOLDEN = Path(__file__).parent / "golden" / "render"
RENDERERS = [terminal, html, draw]

HOSTILE = [
    "<script>alert(1)</script>",
    "\" onmouseover='x' &amp;",
    "[red]not red[/red]",
    "[/]",
    "\x1b[31m\x1b]0;title\x07",
    "a\nb\tc\rd",
    "\u202egnp.exe\u202c",
    "$x$ $\\frac{1$",
    "-->",
    "]]>",
    "{title}",
    "w" * 500,
    "👩‍👩‍👧 🇩🇪",
    "e\u0301\u0323",
    "漢字かな",
    "\ud800",
    "",
    "  ",
]


def units_of(text: str, segment: int = 0) -> list[Unit]:
    """Words and punctuation with their offsets."""
    return [Unit(m.group(), m.start(), m.end(), segment=segment) for m in re.finditer(r"\w+|[^\w\s]", text)]


def heatmap(units: Sequence[Unit], scores: Sequence[float], method: str = "attn_lrp", **words: Any) -> Heatmap:
    words = {"target": "positive", "prediction": "positive (0.98)", **words}
    return Heatmap(tuple(units), tuple(scores), method=method, value=1.5, **words)


def review() -> list[Heatmap]:
    """A sentence by three methods, and a pair."""
    start, end = Unit("[CLS]", special=True), Unit("[SEP]", special=True)
    units = [start, *units_of("Not a dull moment, <b>luminous & sharp</b>."), end]
    base = [0.1, -0.6, 0, -0.35, 0.2, 0.01, 0, 0.02, 0, 0.9, 0.05, 0.4, 0, 0, 0, 0, -0.02, 0]
    assert len(units) == len(base)
    pair = [start, *units_of("Men play."), end, *units_of("A sport.", segment=1), end]
    return [
        heatmap(units, base, beside=(("biases", 0.45), ("positions", 0.34)), quantity="logit"),
        heatmap(units, [-score for score in base], "gradient_x_input", note="last 12 tokens cut off", quantity="logit"),
        heatmap(units, [1e-5 * abs(score) for score in base], "attention_rollout", shares=False, quantity="logit"),
        heatmap(pair, [0, 0.5, 0.3, 0, 0, 0, -0.25, 0, 0], target="entailment", prediction=""),
    ]


def hostile() -> list[Heatmap]:
    """Every hostile string as a token, a method, a target, a prediction and a note."""
    units = [Unit(text, i, i + 1) for i, text in enumerate(HOSTILE)]
    scores = [math.cos(i) for i in range(len(HOSTILE))]
    return [heatmap(units, scores, text, target=text, prediction=text, note=text) for text in HOSTILE]


def printed(heatmaps: Sequence[Heatmap], colours: str | None = None, width: int = 60, **options: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=colours, force_terminal=colours is not None, **options)
    console.print(terminal(heatmaps))
    return file.getvalue()


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_bytes(text.encode())
    assert text == path.read_bytes().decode()


def without(page: str, *styles: str) -> str:
    """A page without style sheets that are checked elsewhere: page.html has them."""
    for style in styles:
        assert page.count(style) == 1
        page = page.replace(style, "")
    return page


class Elements(HTMLParser):
    """What a browser would see: tags with attributes, and the text of each class."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def tokens(self) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.tags if (attrs.get("class") or "").split()[:1] == ["t"]]


# Shades and colours


def test_shades_keep_signs_order_and_proportions() -> None:
    assert shades([0.5, -2.0, 1.0, 0.0]) == [0.25, -1.0, 0.5, 0.0]


@pytest.mark.parametrize("scale", [1e-320, 1e-12, 1.0, 1e308])
def test_shades_do_not_depend_on_the_scale(scale: float) -> None:
    assert shades([scale, -scale, 0.0]) == [1.0, -1.0, 0.0]


def test_special_tokens_count_for_the_strongest() -> None:
    row = cells(heatmap([Unit("[CLS]", special=True), Unit("good", 0, 4)], [4.0, 1.0]))
    assert [cell.shade for cell in row] == [1.0, 0.25]


def test_a_row_of_zeros_and_an_empty_row_are_neutral() -> None:
    assert shades([0.0, -0.0]) == [0.0, 0.0]
    assert shades([]) == []


def test_scores_that_are_no_numbers_are_neutral_and_leave_the_others_alone() -> None:
    assert shades([math.nan, 1.0, math.inf, -2.0, -math.inf]) == [0.0, 0.5, 0.0, -1.0, 0.0]
    assert shades([math.nan]) == [0.0]
    titles = [cell.title for cell in cells(heatmap(units_of("a b"), [math.nan, -math.inf]))]
    assert titles == ["nan is not a finite number", "-inf is not a finite number"]


def test_red_supports_blue_opposes_and_nothing_is_the_ground() -> None:
    for scale in (LIGHT, DARK):
        red, blue = colour(1, scale), colour(-1, scale)
        assert red[0] > 2 * max(red[1:])
        assert blue[2] > 1.5 * max(blue[:2])
        assert colour(0, scale) == scale.ground
    assert colour(0) == (255, 255, 255)


@pytest.mark.parametrize("scale", [LIGHT, DARK])
@pytest.mark.parametrize("sign", [-1, 1])
def test_intensity_grows_with_the_magnitude(scale: object, sign: int) -> None:
    away = [contrast(colour(sign * step / 20, scale), scale.ground) for step in range(21)]
    assert away == sorted(away)
    assert len(set(away)) == 21


def test_equal_magnitudes_weigh_alike_in_both_signs() -> None:
    for step in range(101):
        assert contrast(colour(step / 100), colour(-step / 100)) < 1.3


@pytest.mark.parametrize("scale", [LIGHT, DARK])
def test_text_is_readable_on_every_shade(scale: object) -> None:
    for step in range(-500, 501):
        background = colour(step / 500, scale)
        assert contrast(ink(background), background) >= 4.5


def test_contrast_is_that_of_wcag() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)  # the well-known #777


def test_soft_text_of_the_page_is_readable_too() -> None:
    soft = re.search(r"--soft:light-dark\((#\w+),(#\w+)\)", CSS)
    assert soft
    for text, scale in zip(soft.groups(), (LIGHT, DARK), strict=True):
        assert contrast(tuple(bytes.fromhex(text[1:])), scale.ground) >= 4.5


def test_legend_runs_from_full_opposition_to_full_support() -> None:
    assert legend(5) == (-1.0, -0.5, 0.0, 0.5, 1.0)


# Layout


def flat(row: Sequence[object]) -> str:
    return "".join(" " * cell.space_before + cell.text for cell in row)


def test_the_text_reads_as_it_was_written() -> None:
    text = "It isn't dull, (really)!"
    units = [Unit(m.group(), m.start(), m.end()) for m in re.finditer(r"is|n't|\w+|[^\w\s]", text)]
    assert flat(cells(heatmap(units, [0.0] * len(units)))) == text


def test_spaces_without_offsets_are_guessed_from_words() -> None:
    pieces = [
        Unit("play"),
        Unit("##ing"),
        Unit("ball", word=1),
        Unit("s", word=1),
        Unit("##"),
        Unit("[SEP]", special=True),
    ]
    assert flat(cells(heatmap(pieces, [0.0] * 6))) == "playing balls ## [SEP]"


def test_hashes_of_the_text_itself_stay() -> None:
    assert flat(cells(heatmap([Unit("a", 0, 1), Unit("##ing", 2, 7)], [0.0, 0.0]))) == "a ##ing"


def test_a_space_inside_a_unit_is_a_space_before_it() -> None:
    assert flat(cells(heatmap([Unit("so", 0, 2), Unit(" good", 2, 7)], [0.0, 0.0]))) == "so good"


def test_the_texts_of_a_pair_are_parted() -> None:
    row = cells(review()[3])
    assert flat(row) == "[CLS] Men play. [SEP] | A sport. [SEP]"
    assert [cell is SEPARATOR for cell in row].count(True) == 1


def test_a_pair_without_special_tokens_is_parted_though_offsets_touch() -> None:
    row = cells(heatmap([Unit("ab", 0, 2), Unit("cd", 2, 4, segment=1)], [1.0, 1.0]))
    assert flat(row) == "ab | cd"


def test_captions_say_what_the_scores_account_for() -> None:
    words = caption(heatmap(units_of("a b"), [1.0, 0.234], note="cut off", quantity="logit"))
    assert words.subject == ("positive = 1.500 (logit)", "predicted positive (0.98)")
    assert words.account == ("sum of scores +1.234, not accounted +0.266 = 1.500", "cut off")
    alone = caption(heatmap(units_of("a b"), [1.0, 0.234], shares=False))
    assert alone.account == ("sum of scores +1.234",)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "+0.000"),
        (-0.0, "+0.000"),
        (-1.25, "-1.250"),
        (1e-5, "+1.00e-05"),
        (2.5e7, "+2.50e+07"),
        (math.nan, "nan"),
    ],
)
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


def test_only_neighbours_about_the_same_thing_share_a_header() -> None:
    assert [len(rows) for _, rows in stacked(review())] == [3, 1]


@pytest.mark.parametrize("render", RENDERERS)
def test_nothing_to_draw_is_said(render: object) -> None:
    with pytest.raises(ValueError, match="no heat maps to draw; give at least one"):
        render([])


@pytest.mark.parametrize("render", RENDERERS)
def test_scores_that_do_not_fit_the_units_are_said(render: object) -> None:
    with pytest.raises(ValueError, match='"attn_lrp" has 2 units but 1 scores'):
        render([heatmap(units_of("a b"), [1.0])])


# Untrusted text


@pytest.mark.parametrize("text", HOSTILE)
def test_visible_text_has_nothing_to_obey(text: str) -> None:
    shown = visible(text)
    assert shown.strip()
    unseen = {unicodedata.category(char) for char in shown.replace("\u200d", "")}
    assert not unseen & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_visible_text_leaves_ordinary_text_alone() -> None:
    for text in ("naïve", "שלום", "می\u200cخواهم", "👩‍👩‍👧", "e\u0301", "漢字", "$x$"):
        assert visible(text) == text
    assert [visible(text) for text in ("\u202e", "\n", "\x1b", "", " ")] == ["‹U+202E›", "↵", "‹U+001B›", "∅", "␣"]


@pytest.mark.parametrize("full_page", [True, False])
def test_html_obeys_no_text(full_page: bool) -> None:
    page = html(hostile(), full_page=full_page, title="</title><script>x</script>")
    seen = Elements(page)
    tags = {tag for tag, _ in seen.tags}
    assert tags <= {"html", "head", "meta", "title", "style", "body", "div", "span", "bdi", "i"}
    attributes = {name for _, attrs in seen.tags for name in attrs}
    outside = {"lang", "charset", "http-equiv", "content", "name"}
    assert attributes <= {"class", "title", "dir", "role", "aria-label", "aria-hidden"} | outside
    assert "\x1b" not in page
    assert "\u202e" not in page
    page.encode()  # a lone surrogate would not


def test_html_shows_every_hostile_token_in_full() -> None:
    text = "".join(Elements(html(hostile())).text)
    for hostile_text in HOSTILE:
        assert visible(hostile_text.strip(" ") or hostile_text) in text


def test_html_needs_nothing_from_outside() -> None:
    page = html(review())
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert '<meta charset="utf-8">' in page
    assert not re.search(r"https?:|url\(|@import|src=|href=|<script|<link", page)


@pytest.mark.parametrize("colours", ["truecolor", "256", "standard", None])
def test_the_terminal_obeys_no_text(colours: str | None) -> None:
    output = printed(hostile(), colours)
    own = re.sub(r"\x1b\[[\d;]*m", "", output)  # our own colours are the only sequences
    assert not {char for char in own if unicodedata.category(char) in ("Cc", "Cf", "Cs")} - {"\n", "\u200d"}
    assert "[red]not red[/red]" in own
    if colours is None:
        assert own == output


@pytest.mark.parametrize("colours", ["truecolor", None])
def test_the_terminal_keeps_to_the_width(colours: str | None) -> None:
    lines = re.sub(r"\x1b\[[\d;]*m", "", printed([heatmap(units_of("w" * 300), [1.0])], colours, width=40)).splitlines()
    assert max(map(len, lines)) <= 40
    assert sum(line.count("w") for line in lines) >= 300


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_pictures_obey_no_text_and_lack_no_glyph(tmp_path: Path, suffix: str) -> None:
    """Mathtext would raise on the formula, and a glyph the font lacks would warn, which is an error here."""
    save(hostile()[::4], tmp_path / f"hostile{suffix}")
    content = (tmp_path / f"hostile{suffix}").read_bytes()
    assert content.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    if suffix == ".svg":
        assert not [element for element in ElementTree.fromstring(content).iter() if "script" in str(element.tag)]


# Each renderer


def test_html_golden() -> None:
    check_golden("page.html", html(review(), title="Golden"))
    check_golden("fragment.html", without(html(review()[3:], full_page=False), CSS, shade_rules()))


def test_a_fragment_is_no_page_and_styles_only_its_own() -> None:
    fragment = html(review(), full_page=False)
    assert not re.search(r"<(html|head|body|meta|title)\b", fragment)
    css = re.sub(r"/\*.*?\*/", "", fragment[fragment.index("<style>") + 7 : fragment.index("</style>")])
    selectors = [part for rule in re.findall(r"([^{}]+)\{[^{}]*\}", css) for part in rule.split(",")]
    assert len(selectors) > 40
    assert not [selector for selector in selectors if ".relprop" not in selector]


def test_html_tokens_tell_their_score_and_sign_without_colour() -> None:
    tokens = Elements(html([heatmap(units_of("good bad so"), [0.5, -1.0, 0.0], shares=False)])).tokens()
    assert [token["title"] for token in tokens] == ["+0.500 supports", "-1.000 opposes", "+0.000 neutral"]
    assert ["minus" in token["class"].split() for token in tokens] == [False, True, False]


def test_html_rows_are_labelled_with_their_strongest_units() -> None:
    seen = Elements(html([heatmap(units_of("good bad so fine"), [0.5, -1.0, 0.0, 0.7])]))
    labels = [attrs["aria-label"] for _, attrs in seen.tags if "aria-label" in attrs]
    assert labels == [
        "attn_lrp, positive = 1.500; supported most by fine (+0.700 supports), good (+0.500 supports); "
        "opposed most by bad (-1.000 opposes)"
    ]


def test_every_shade_class_of_a_page_has_its_rule_for_both_themes() -> None:
    steps = [step / 50 for step in range(-50, 51)]
    page = html([heatmap([Unit("x")] * len(steps), steps, shares=False)])
    classes = {name for token in Elements(page).tokens() for name in token["class"].split() if name[1:].isdigit()}
    assert len(classes) == 32
    for name in classes:
        assert re.search(rf"\.relprop \.{name}\{{background:#\w+;color:#\w+;background:light-dark\(", page)


@pytest.mark.parametrize(
    ("name", "colours"), [("truecolor.ansi", "truecolor"), ("256.ansi", "256"), ("16.ansi", "standard")]
)
def test_terminal_golden(name: str, colours: str) -> None:
    check_golden(name, printed(review(), colours))


def test_terminal_golden_without_colour() -> None:
    check_golden("plain.txt", printed(review()))


def test_no_color_is_respected_on_a_terminal() -> None:
    output = printed(review(), "truecolor", no_color=True)
    assert not re.search(r"\x1b\[[\d;]*[34]8;", output)
    assert "+0.900  luminous" in output


def test_consoles_of_different_colours_do_not_disturb_one_another() -> None:
    """Rich caches the codes of a style for the first console that shows it."""
    assert "48;2;" in printed(review(), "truecolor")
    assert "48;2;" not in printed(review(), "256")
    assert "48;2;" in printed(review(), "truecolor")


def test_sixteen_colours_keep_the_sign() -> None:
    output = printed([heatmap(units_of("good fine so poor bad"), [1.0, 0.5, 0.1, -0.5, -1.0])], "standard")
    found = {
        word: re.search(rf"\x1b\[([\d;]*)m{word}", output).group(1) for word in ("good", "fine", "so", "poor", "bad")
    }
    assert found == {"good": "97;41", "fine": "31;107", "so": "30;107", "poor": "34;107", "bad": "97;44"}


def test_256_colours_keep_the_hue_the_order_and_the_contrast() -> None:
    words = [f"w{step}" for step in range(-10, 11)]
    output = printed(
        [heatmap([Unit(word) for word in words], [step / 10 for step in range(-10, 11)], shares=False)],
        "256",
        width=200,
    )
    found = re.findall(r"\x1b\[38;5;(\d+);48;5;(\d+)mw-?\d+", output)
    inks, grounds = (
        [tuple(Color.from_ansi(int(n)).get_truecolor()) for n in column] for column in zip(*found, strict=True)
    )
    assert len(grounds) == 21
    assert all(contrast(*pair) >= 4.5 for pair in zip(inks, grounds, strict=True))
    assert all(red > max(green, blue) for red, green, blue in grounds[12:])
    assert all(blue > max(red, green) for red, green, blue in grounds[:9])
    strength = [contrast(ground, (255, 255, 255)) for ground in grounds]
    assert strength[:11] == sorted(strength[:11], reverse=True)
    assert strength[10:] == sorted(strength[10:])


def test_special_tokens_are_dim_in_the_terminal() -> None:
    assert re.search(r"\x1b\[2;[\d;]*m\[CLS\]", printed(review(), "truecolor"))


def painted(path: Path, shade: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the pixels that have exactly this shade's colour."""
    with Image.open(path) as image:
        return np.nonzero((np.asarray(image.convert("RGB")) == colour(shade)).all(axis=-1))


LEGEND_FROM = 250  # pixels from the top, in a picture of one short row


def test_a_png_is_red_where_units_support_and_blue_where_they_oppose(tmp_path: Path) -> None:
    save([heatmap(units_of("wonderful dreadful"), [1.0, -1.0], shares=False)], tmp_path / "a.png")
    (red_y, red_x), (blue_y, blue_x) = painted(tmp_path / "a.png", 1), painted(tmp_path / "a.png", -1)
    red_word, blue_word = red_x[red_y < LEGEND_FROM], blue_x[blue_y < LEGEND_FROM]
    assert min(len(red_word), len(blue_word)) > 2000
    assert red_word.max() < blue_word.min()  # the supporting word comes first
    assert blue_x[blue_y > LEGEND_FROM].max() < red_x[red_y > LEGEND_FROM].min()  # and the legend runs to support


def test_a_png_without_scores_has_colour_only_in_the_legend(tmp_path: Path) -> None:
    save([heatmap(units_of("wonderful dreadful"), [0.0, math.nan])], tmp_path / "a.png")
    for shade in (1, -1):
        assert painted(tmp_path / "a.png", shade)[0].min() > LEGEND_FROM


def extents(heatmaps: Sequence[Heatmap]) -> list[tuple[float, float, float, str]]:
    """Every text of a figure: its baseline, its left and its right edge in inches, and what it says."""
    figure = draw(heatmaps)
    shown = [text for text in figure.texts if text.get_text()]
    boxes = [text.get_window_extent().transformed(figure.dpi_scale_trans.inverted()) for text in shown]
    return [(text.get_position()[1], box.x0, box.x1, text.get_text()) for text, box in zip(shown, boxes, strict=True)]


def test_words_of_a_picture_keep_inside_the_page_and_off_one_another() -> None:
    """Widths are measured before anything is drawn: wrong ones would run over the edge or into the next word."""
    long = [*units_of("many words of different widths " * 20), Unit("w" * 300), *units_of("漢字 " * 10)]
    placed = extents([heatmap(long, [0.5] * len(long), "a_method_whose_name_is_far_too_long_for_its_column")])
    assert min(left for _, left, _, _ in placed) >= MARGIN - 0.02
    assert max(right for _, _, right, _ in placed) <= WIDTH - MARGIN + 0.02
    for (line, _, right, _), (next_line, left, _, _) in pairwise(sorted(placed)):
        assert line != next_line or right < left
    assert sum(text.count("w") for *_, text in placed) > 300


def test_joined_pieces_stay_on_one_line() -> None:
    units = [Unit("aaaa ", i * 5, i * 5 + 4) for i in range(40)]
    pieces = [Unit("luminous"[i], 300 + i, 301 + i) for i in range(8)]
    for count in range(1, 40):
        figure = draw([heatmap(units[:count] + pieces, [1.0] * (count + 8))])
        assert len({text.get_position()[1] for text in figure.texts if text.get_text() in tuple("luminos")}) == 1


def test_pictures_leave_matplotlib_as_it_was() -> None:
    code = "import sys; from relprop.render.text import html, terminal; assert 'matplotlib' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    before = dict(mpl.rcParams)
    draw(review())
    assert dict(mpl.rcParams) == before
    code = "import sys; from relprop.render.text import figure; assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )


def test_pictures_ignore_the_users_tex_and_layout_settings() -> None:
    with mpl.rc_context({"text.usetex": True, "figure.autolayout": True}):
        figure = draw(review())
    assert not [text for text in figure.texts if text.get_usetex() or text.get_parse_math()]
    assert not isinstance(figure.get_layout_engine(), TightLayoutEngine)


@pytest.mark.parametrize("name", ["a.jpg", "a", "png"])
def test_unknown_suffixes_are_said_with_the_known(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf'"{name}"; the name must end in \.png, \.svg, \.pdf'):
        save(review(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.PNG"
    save(review()[3:], path)
    old = path.read_bytes()
    assert old.startswith(b"\x89PNG")

    def half(figure: object, written: Path, **options: object) -> None:
        written.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    with pytest.raises(OSError, match="disk full"):
        save(review(), path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_never_writes_into_the_old_file(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.svg", tmp_path / "still being read.svg"
    path.write_text("old")
    os.link(path, reader)
    save(review()[3:], path)
    assert reader.read_text() == "old"
    assert path.read_text().startswith("<?xml")


def test_very_long_pictures_fit_the_canvas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relprop.render.saving.MOST_PIXELS", 400)
    save([heatmap(units_of("word " * 300), [1.0] * 300)], tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert 300 < image.height <= 400


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_picture_is_the_same_bytes_every_time(tmp_path, ending):
    heatmaps = review()
    for name in ("one", "two"):
        save(heatmaps, tmp_path / f"{name}.{ending}")
    one, two = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("one", "two"))
    assert one == two
