"""Small real slices of the graph models' training script and of what is measured of them, and the models it made."""

import csv
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graph_facts
import graphs
from graph_models import POINTS, graphormer, points
from relprop import Explainer
from relprop.embedded import EMBEDDED
from relprop.graph import superpixels
from relprop.metrics import relevance_mass

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


def test_digits_are_learned_from_their_ink_or_whole(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way has a checkpoint of its own; another way than the embedded model's must say where it goes."""
    work = ("--data", data, "--epochs", 1, "--work", tmp_path)
    for way, kept in (("parts", "ink.pt"), ("whole", "whole.pt")):
        run(monkeypatch, "mnist", *work, "--learn", way, "--out", tmp_path / way)
        assert (tmp_path / "mnist" / kept).is_file()
        assert len(Explainer(tmp_path / way)(np.eye(28)).scores) > 10
    with pytest.raises(SystemExit):
        run(monkeypatch, "mnist", *work, "--learn", "whole")


def test_molecules_may_also_be_learned_in_parts(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("--data", data, "--epochs", 1, "--work", tmp_path, "--learn", "parts", "--out", tmp_path / "model")
    run(monkeypatch, "bace", *given)
    first, then = (
        torch.load(tmp_path / "bace-random-0" / f"{name}.pt", weights_only=True)["kept"]
        for name in ("whole", "fragments")
    )
    assert any(not torch.equal(first[name], then[name]) for name in first)


def test_only_the_ink_is_left_as_it_was() -> None:
    """What is bright only moves, with its whole digit; what is dark comes mostly from other graphs, or is left out."""
    pictures = np.zeros((16, 28, 28))
    for place, picture in enumerate(pictures):
        picture[4 + place : 8 + place, 4:24] = 1
    inputs: Any = graphs.batch([superpixels(one) for one in pictures])
    torch.manual_seed(0)
    changed = graphs.ink(inputs)
    empty, own = [], []
    for before, nodes, mask in zip(inputs["nodes"], changed["nodes"], changed["attention_mask"][:, 1:], strict=True):
        after = nodes[mask > 0]
        moved = after[after[:, 0] > graphs.DARK] - before[before[:, 0] > graphs.DARK]
        assert moved.std(0).max() < 1e-6
        dark = after[after[:, 0] <= graphs.DARK]
        empty.append(len(dark))
        own.append(int((torch.cdist(dark, before + moved[0]) < 1e-5).any(1).sum()))
    assert min(empty) == 0
    assert max(empty) > 40
    assert 0 < sum(own) < 0.3 * sum(empty)


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
    found = Explainer("superpixels")([one, zero], method="lrp_ah_ln")
    assert [each.prediction for each in found] == ["1", "0"]
    for each, picture in zip(found, (one, zero), strict=True):
        assert relevance_mass(each.scores, each.part.graph.source, picture > 127) > 0.8  # and they read the ink
    molecules = Explainer("molecules")
    assert molecules("CN1C=NC2=C1C(=O)N(C(=O)N2C)C").prediction == "no inhibitor"


def test_what_the_models_and_their_data_are_like(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the test's four molecules phenol was learned from, aniline was not; a bar's brightness lies on the bar."""
    graph_facts.main(["molecules", "--data", str(data)])
    said = capsys.readouterr().out
    assert "stereoisomer that was learned from: 1\n" in said
    assert "fewer than 20 atoms that were learned from: 32;" in said
    assert said.count("| lrp_ah_ln |") == 2
    graph_facts.main(["superpixels", "--data", str(data), "--digits", "12"])
    brightness, features, alone = capsys.readouterr().out.splitlines()[4:7]
    assert float(brightness.split("|")[4].strip(" %")) > 80
    assert features != alone
