"""`relprop explain` on pictures: one, several classes, a folder, and what may go wrong."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from relprop.cli import app
from relprop.embedded import EMBEDDED
from relprop.errors import InputError
from relprop.explanation import Explanation

SAMPLES = EMBEDDED["digits"] / "samples"
TWO = sorted(SAMPLES.glob("3-*.png"))[0]  # two digits, named in the file's name


def run(*args: object) -> str:
    result = CliRunner().invoke(app, ["explain", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_picture_is_shown_and_written(tmp_path: Path) -> None:
    """The terminal, the page, the picture and the numbers, for two classes by two methods."""
    files = [tmp_path / name for name in ("a.png", "a.html", "a.json")]
    first, second = TWO.stem.split("-")[-2:]
    out = run(TWO, "--model", "digits", "--target", first, "--target", second,
              "--compare", "transformer_attribution,lrp-ah-ln", "--png", files[0], "--html", files[1], "--json",
              files[2], "--contour", "mean")  # fmt: skip
    assert out.count("transformer_attribution") == 2
    with Image.open(files[0]) as picture:
        assert picture.width > 500
    assert "<img" in files[1].read_text()
    found = json.loads(files[2].read_text())
    assert [(one["target"], one["method"]) for one in found] == [
        (first, "transformer_attribution"), (first, "lrp_ah_ln"),
        (second, "transformer_attribution"), (second, "lrp_ah_ln"),
    ]  # fmt: skip
    assert np.array(found[0]["parts"][0]["scores"]).shape == (8, 8)
    assert found[0]["parts"][0]["scores"] != found[2]["parts"][0]["scores"]


def test_the_ledger_of_a_picture() -> None:
    assert "positions and other constants" in run(TWO, "--model", "digits", "--ledger")


def test_numbers_on_standard_output() -> None:
    line = run(TWO, "--model", "digits", "--json", "-")
    assert json.loads(line)["parts"][0]["size"] == [56, 56]


def test_a_folder_writes_one_file_each(tmp_path: Path) -> None:
    """Named after the picture; what is no picture is left alone, and folders are made."""
    folder, out = tmp_path / "in", tmp_path / "out" / "maps"
    shutil.copytree(SAMPLES, folder)
    run(folder, "--model", "digits", "--png", out, "--json", out, "--batch-size", 4)
    names = sorted(path.name for path in SAMPLES.glob("*.png"))
    assert sorted(path.name for path in out.iterdir()) == sorted(f"{n}{e}" for n in names for e in (".json", ".png"))
    alone = Explanation.from_json(run(folder / names[0], "--model", "digits", "--json", "-"))
    together = Explanation.from_json((out / f"{names[0]}.json").read_text())
    assert np.allclose(alone.scores, together.scores, atol=1e-5)


def test_a_damaged_picture_does_not_stop_the_others(tmp_path: Path) -> None:
    shutil.copy(TWO, tmp_path / "b.png")
    (tmp_path / "a.png").write_bytes(TWO.read_bytes()[:100])
    with pytest.raises(InputError, match=r"a\.png"):
        run(tmp_path, "--model", "digits", "--json", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["b.png.json"]


def test_mistakes(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cases = {
        "there is no image": (tmp_path / "none.png",),
        "holds no image": (tmp_path / "empty",),
        "one .png file each: name a folder": (SAMPLES, "--png", tmp_path / "x.png"),
        '--contour is a number or "mean"': (TWO, "--model", "digits", "--contour", "high"),
        "--words is for texts": (TWO, "--model", "digits", "--words"),
        "--ledger is for one image": (SAMPLES, "--model", "digits", "--ledger"),
    }
    for message, args in cases.items():
        with pytest.raises(InputError, match=message):
            run(*args)


def test_a_text_that_names_a_picture_is_a_text() -> None:
    assert "[CLS]" in run("I saw cat.png")
