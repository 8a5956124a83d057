"""`relprop explain --smiles`, molecules of a file, pictures as superpixels, and `relprop check` of graph models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from graph_models import ASPIRIN, MOLECULES, POINTS, graphormer, points
from relprop import Explainer
from relprop.cli import app, main
from relprop.errors import InputError
from relprop.explanation import Explanation
from relprop.graph import Settings


def run(*args: object, command: str = "explain") -> str:
    result = CliRunner().invoke(app, [command, *map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def digit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bright seven on black, with a colour that grey must do without."""
    picture = np.zeros((28, 28, 3), np.uint8)
    picture[5:8, 6:21] = picture[8:24, 16:19] = 250
    picture[20:24, 16:19, 0] = 90
    path = tmp_path_factory.mktemp("digit") / "seven.png"
    Image.fromarray(picture).save(path)
    return path


def test_a_molecule_is_shown_and_written(tmp_path: Path) -> None:
    """With the embedded model: the terminal, the page, the drawing and the numbers, two targets by two methods."""
    files = {ending: tmp_path / f"a.{ending}" for ending in ("svg", "html", "json")}
    out = run("--smiles", ASPIRIN, "--compare", "gae,lrp_ah_ln", "--target", "inhibitor", "--target",
              "no inhibitor,inhibitor", "--option", "pairs=True", "--html", files["html"], "--png", files["svg"],
              "--json", files["json"])  # fmt: skip
    assert out.count("lrp_ah_ln: ") == 2
    assert out.count("edge ") == 2  # of gae
    assert "13 nodes, 13 edges" in out
    assert files["svg"].read_text().startswith("<?xml")
    assert files["html"].read_text().count("<svg") == 4
    found = [Explanation.from_json(json.dumps(one)) for one in json.loads(files["json"].read_text())]
    assert [(one.method, one.target) for one in found] == [
        ("gae", "inhibitor"), ("lrp_ah_ln", "inhibitor"),
        ("gae", "no inhibitor - inhibitor"), ("lrp_ah_ln", "no inhibitor - inhibitor"),
    ]  # fmt: skip
    assert found[0].part.edges is not None
    assert found[1].part.edges is None
    assert np.allclose(found[1].scores, Explainer("molecules")(ASPIRIN, target="inhibitor", method="lrp_ah_ln").scores)


def test_the_ledger_of_a_molecule() -> None:
    out = run("--smiles", "CCO", "--ledger")
    assert "inputs (sum of the scores)" in out
    assert out.count("= value") == 1


def test_the_virtual_node_can_be_dropped() -> None:
    lines = (run("--smiles", "CCO", "--json", "-", *more) for more in ([], ["--drop-special"]))
    whole, dropped = (Explanation.from_json(line).part for line in lines)
    assert whole.rest != 0 == dropped.rest
    assert whole.scores.tolist() == dropped.scores.tolist()


def test_every_line_of_a_file_is_a_molecule(tmp_path: Path) -> None:
    """A name after the SMILES, as such files have, is kept as the title's end; the order is the file's."""
    file = tmp_path / "few.smi"
    file.write_text(f"{ASPIRIN} aspirin\n\nCCO ethanol\n")
    lines = run("--file", file, "--model", "molecules", "--json", "-").splitlines()
    found = [Explanation.from_json(line) for line in lines]
    assert [one.part.graph.title for one in found] == [f"{ASPIRIN} aspirin", "CCO ethanol"]
    alone = Explanation.from_json(run("--smiles", "CCO", "--json", "-"))
    assert np.allclose(found[1].scores, alone.scores, atol=1e-5)


@pytest.mark.parametrize(
    ("smiles", "message"),
    [
        ("C1CC", "relprop: 'C1CC' is no SMILES that rdkit can read: its grammar is wrong\n"),
        ("", "relprop: the SMILES is empty: there is no molecule to explain\n"),
        ("CF(C)C", "relprop: 'CF(C)C' is no SMILES that rdkit can read: Explicit valence"),
    ],
)
def test_an_invalid_smiles_is_one_sentence(
    smiles: str, message: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And exit code 1; rdkit's own lines are not seen."""
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)  # `main` sets its own
    monkeypatch.setattr(sys, "argv", ["relprop", "explain", "--smiles", smiles])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert ended.value.code == 1
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_the_wrong_line_of_a_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "few.smi"
    file.write_text("CCO\nC1CC\n")
    with pytest.raises(InputError, match="graph 1 of the list: 'C1CC'"):
        run("--file", file, "--model", "molecules")


def test_a_picture_is_explained_by_its_superpixels(digit: Path, tmp_path: Path) -> None:
    out = run(digit, "--model", "superpixels", "--compare", "lrp_ah_ln,rollout", "--png", tmp_path / "a.png")
    assert "seven.png" in out
    assert "nodes" in out
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width > 3 * 1.5 * 200  # the picture itself and two methods


def test_a_folder_of_pictures_is_explained_by_superpixels(digit: Path, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(digit.read_bytes())
    (tmp_path / "b.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"b\.png"):
        run(tmp_path, "--model", "superpixels", "--json", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.png.json"]
    found = Explanation.from_json((tmp_path / "out" / "a.png.json").read_text())
    assert np.allclose(found.scores, Explainer("superpixels")(digit).scores, atol=1e-5)


def test_pictures_are_read_grey_from_path_pillow_and_array(digit: Path) -> None:
    explainer = Explainer(graphormer(POINTS))
    with Image.open(digit) as picture:
        found = explainer([str(digit), digit, picture, np.asarray(picture.convert("L")) / 255])
    assert [one.part.graph.title for one in found] == ["seven.png", "seven.png", "", ""]
    for one in found[1:]:
        assert np.array_equal(one.part.graph.nodes, found[0].part.graph.nodes)
        assert np.allclose(one.scores, found[0].scores)
    assert 0.9 < found[0].part.graph.nodes[:, 0].max() <= 1
    with pytest.raises(InputError, match='there is no image "CCO"'):
        explainer("CCO")


def test_a_model_that_does_not_say_what_it_reads_takes_smiles() -> None:
    silent = Settings(**{**MOLECULES.__dict__, "reads": ""})
    assert len(Explainer(graphormer(silent))("CCO").part.graph) == 3


def test_mistakes(digit: Path) -> None:
    cases = {
        "either --smiles or a text": ("CCO", "--smiles", "CCO"),
        "either --smiles or --lm": ("--smiles", "CCO", "--lm", "stories"),
        "either --smiles or --file": ("--smiles", "CCO", "--file", digit),
        "--smiles needs a model of graphs, this one reads texts": ("--smiles", "CCO", "--model", "sentiment"),
        "--words is not for graphs": ("--smiles", "CCO", "--words"),
        "--contour is not for graphs": (digit, "--model", "superpixels", "--contour", "mean"),
        'there is no image "none.png"': ("none.png", "--model", "superpixels"),
        "reads nodes of 8 whole-number features": (digit, "--model", "molecules"),
        'has no option "pairs"': ("--smiles", "CCO", "--method", "lrp_ah_ln", "--option", "pairs=True"),
    }
    for message, args in cases.items():
        with pytest.raises(InputError, match=message):
            run(*args)


@pytest.mark.parametrize("args", [["molecules"], ["molecules", "--text", "CCO"], ["superpixels"]])
def test_the_books_of_the_embedded_models_close(args: list[str]) -> None:
    assert "verdict: the ledger closes" in run(*args, command="check")


def test_a_picture_is_checked_by_its_path(digit: Path) -> None:
    assert "verdict: the ledger closes" in run("superpixels", "--text", digit, command="check")


def test_a_model_is_not_checked_with_a_guess(tmp_path: Path) -> None:
    graphormer(Settings(("a", "b"), features=3, width=16, heads=2)).save(tmp_path)
    with pytest.raises(InputError, match="does not say what it reads"):
        run(tmp_path, command="check")
    assert len(Explainer(tmp_path)(points(3, [(0, 1)])).scores) == 3
