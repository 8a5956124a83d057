"""Small real slices of the graph models' training script, and the models that it made."""

import csv
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphs
from graph_models import POINTS, graphormer, points
from relprop import Explainer
from relprop.graph import superpixels
from relprop.loading import EMBEDDED

SMILES = ("CCO", "CCN", "c1ccccc1O", "c1ccccc1N", "CC(=O)O", "CCCl", "c1ccncc1", "CC(C)O", "C1CCCC1", "NCC(=O)O")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """BACE's and MNIST's files in small: who has nitrogen, and a bar whose place is the class."""
    folder = tmp_path / "data"
    for name in ("molecules", "mnist"):
        (folder / name).mkdir(parents=True)
    with gzip.open(folder / "molecules" / "bace.csv.gz", "wt", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([("smiles", "Class"), *((one, int("N" in one or "n" in one)) for one in SMILES * 4)])
    classes = np.arange(12, dtype=np.uint8) % 10
    pictures = np.zeros((12, 28, 28), np.uint8)
    for picture, label in zip(pictures, classes, strict=True):
        picture[4 + 2 * label : 7 + 2 * label, 4:24] = 255
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", pictures), ("labels-idx1", classes)):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            (folder / "mnist" / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *given: object) -> None:
    monkeypatch.setattr(sys, "argv", ["graphs.py", *map(str, given)])
    graphs.main()


def test_molecules_are_learned_and_a_stopped_run_goes_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two epochs at once are the same as one, stopped, and one more."""
    for work, more in (("once", ()), ("twice", ("--minutes", 0))):
        for _ in range(1 + bool(more)):
            out = ("--work", tmp_path / work, "--out", tmp_path / work / "model")
            run(monkeypatch, "bace", "--data", data, "--epochs", 2, *out, *more)
    models = [Explainer(tmp_path / work / "model").model for work in ("once", "twice")]
    for one, other in zip(*(model.state_dict().values() for model in models), strict=True):
        assert torch.equal(one, other)
    about = json.loads((tmp_path / "once" / "bace-random-0" / "scores.json").read_text())
    assert about["sizes"] == {"train": 32, "validation": 4, "test": 4}
    assert 0 <= about["ROC-AUC"]["test"] <= 1


def test_digits_are_learned_in_two_phases(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "mnist", "--data", data, "--epochs", 1, "--work", tmp_path, "--out", tmp_path / "model")
    assert {path.name for path in (tmp_path / "mnist").iterdir()} == {
        "superpixels.npz", "whole.pt", "sparse.pt", "scores.json",
    }  # fmt: skip
    assert len(Explainer(tmp_path / "model")(np.eye(28)).scores) > 10


def test_dark_nodes_go_and_bright_ones_stay() -> None:
    picture = np.zeros((28, 28))
    picture[8:12, 4:24] = 1
    inputs: Any = graphs.batch([superpixels(picture), superpixels(np.zeros((28, 28)))])
    left = graphs.without_dark(inputs, torch.ones(2, 1))
    kept = left["attention_mask"].sum(1) - 1
    assert kept[0] == (inputs["nodes"][0, :, 0] > graphs.DARK).sum()
    assert kept[1] == inputs["attention_mask"][1].sum() - 1  # nothing would be left
    same = graphs.without_dark(inputs, torch.zeros(2, 1))
    assert torch.equal(same["attention_mask"], inputs["attention_mask"])


def test_roc_auc_counts_pairs() -> None:
    """The share of pairs of a positive and a negative that are in order."""
    model = graphormer(POINTS)
    some = [points(4, [(0, 1)], seed) for seed in range(20)]
    data = graphs.labelled(some, [seed % 3 == 0 for seed in range(20)])
    data = graphs.Labelled({**data.inputs, "nodes": data.inputs["nodes"].double()}, data.labels.long())
    gap = (graphs.logits(model, data) @ torch.tensor([-1.0, 1.0, 0.0], dtype=torch.float64)).numpy()
    ups, downs = gap[data.labels == 1], gap[data.labels == 0]
    assert graphs.roc_auc(model, data) == pytest.approx(np.mean(ups[:, None] > downs[None]))


def test_the_embedded_models_know_their_trade() -> None:
    """Drawn digits are told apart; a known BACE inhibitor's scaffold is told from caffeine. Together below 3 MB."""
    size = sum(path.stat().st_size for name in ("molecules", "superpixels") for path in EMBEDDED[name].iterdir())
    assert size < 3_000_000
    one, zero = np.zeros((28, 28)), np.zeros((28, 28))
    one[4:24, 13:16] = 255
    rows, columns = np.indices((28, 28))
    away = np.hypot((rows - 13.5) / 1.3, columns - 13.5)
    zero[(away > 5) & (away < 8)] = 255
    assert [found.prediction for found in Explainer("superpixels")([one, zero])] == ["1", "0"]
    molecules = Explainer("molecules")
    assert molecules("CN1C=NC2=C1C(=O)N(C(=O)N2C)C").prediction == "no inhibitor"
