"""One explanation of several inputs of different kinds: drawn one below the other, saved together, never added."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from relprop.errors import InputError
from relprop.explanation import Explanation, save, to_html
from relprop.render.features.part import FeaturePart
from relprop.render.image.part import Frame, ImagePart
from relprop.render.text.part import TextPart
from relprop.types import Unit

PICTURE = Image.new("RGB", (8, 6), "gray")
CAPTION = (Unit("[CLS]", special=True), Unit("kit", 0, 3, word=0), Unit("ten", 3, 6, word=0))


def both() -> Explanation:
    """A picture and its caption."""
    text = TextPart("input_ids", ("kitten",), CAPTION, (0.5, 1.0, 2.0))
    image = ImagePart(
        "pixel_values", PICTURE.size, np.array([[1.0, -4.0]]), Frame(0, 0, 8, 6), 0.25, "cat.png", PICTURE
    )
    return Explanation((text, image), "lrp_conservative", "match", 3.0)


def test_scores_of_different_inputs_are_not_mixed() -> None:
    named = r'take \.parts\[\.\.\.\] of "input_ids", "pixel_values"'
    for read in (lambda e: e.units, lambda e: e.scores, lambda e: e.part, lambda e: e.top()):
        with pytest.raises(InputError, match=named):
            read(both())
    assert both().accounted == 0.5 + 1 + 2 + 1 - 4 + 0.25


def test_show_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    both().show()
    printed = capsys.readouterr().out
    assert "kit" in printed
    assert "cat.png" in printed
    assert printed.count("lrp_conservative") >= 2


def test_one_page_holds_both(tmp_path: Path) -> None:
    page = both().to_html()
    for once in ("<!DOCTYPE html>", "<html", "<body>", "</html>"):
        assert page.count(once) == 1
    assert page.count('<div class="relprop together">') == 1
    assert ">kit</span>" in page
    assert 'src="data:image/png;base64,' in page
    assert "img-src data:" in page  # else the browser leaves the picture out
    both().save(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text() == page
    fragment = both()._repr_html_()
    assert "<html" not in fragment
    assert ">kit</span>" in fragment
    assert "data:image/png" in fragment


def test_a_contour_is_drawn_where_there_is_a_picture() -> None:
    text_only = Explanation(both().parts[:1], "lrp", "match", 3.0)
    image_only = Explanation(both().parts[1:], "lrp", "match", 3.0)
    assert to_html([image_only], contour=0.5) != to_html([image_only])
    with pytest.raises(InputError, match="save a figure to see a contour"):
        to_html([both()], contour=0.5)
    with pytest.raises(InputError, match="a contour rings regions of pictures"):
        to_html([text_only], contour=0.5)


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_a_figure_is_refused(tmp_path: Path, ending: str) -> None:
    """A picture and its text are drawn together; a row of a table and a text are not."""
    table = FeaturePart("row", ("age", "pay"), ("41", "7"), (1.0, -2.0))
    mixed = replace(both(), parts=(both().parts[0], table))
    with pytest.raises(InputError, match=r"a figure holds one kind of input, and this has 2: save it as \.html"):
        mixed.save(tmp_path / f"x{ending}")
    assert not list(tmp_path.iterdir())


def test_explanations_of_one_kind_each_are_saved_together(tmp_path: Path) -> None:
    """Pages take them all; a figure does not."""
    alone = [Explanation((part,), "lrp", "match", 3.0) for part in both().parts]
    save(alone, tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text().count('<div class="relprop">') == 2
    with pytest.raises(InputError, match="this has 2"):
        save(alone, tmp_path / "x.png")


def test_frame_has_a_row_per_unit_and_says_of_which_part() -> None:
    frame = both().to_frame()
    assert frame.score.sum() == pytest.approx(both().value)
    frame = frame[frame.beside.isna()]
    assert frame["part"].tolist() == ["input_ids"] * 3 + ["pixel_values"] * 3
    assert frame["score"].tolist() == [0.5, 1.0, 2.0, 1.0, -4.0, 0.25]
    assert frame["special"].tolist() == [True, False, False, False, False, True]
    assert frame["value"].unique().tolist() == [3.0]
    assert frame["start"].tolist()[1:3] == [0, 3]
    assert frame["start"].isna().tolist() == [True, False, False, True, True, True]
    assert "part" not in Explanation(both().parts[:1], "lrp", "match", 3.0).to_frame()


def test_words_and_special_units_are_each_parts_own() -> None:
    text, image = both().words().parts
    assert [unit.text for unit in text.units] == ["[CLS]", "kitten"]
    assert text.scores == (0.5, 3.0)
    assert image is not text
    assert image.scores.tolist() == [[1.0, -4.0]]
    text, image = both().without_special().parts
    assert text.scores == (1.0, 2.0)
    assert image.rest == 0


def test_json_holds_both() -> None:
    again = Explanation.from_json(both().to_json(), PICTURE)
    assert again.parts[0] == both().parts[0]
    assert again.parts[1].scores.tolist() == [[1.0, -4.0]]
    assert again.to_html() == both().to_html()
    with pytest.raises(InputError, match="the picture is not saved"):
        Explanation.from_json(both().to_json()).show()
