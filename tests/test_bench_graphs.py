"""Benchmarks on graphs: their data and splits, how faithful scores of nodes are, and what the report says of it."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import struct
import sys
import types
from collections.abc import Generator, Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import graphs as graphs_training
from relprop import Explainer
from relprop.bench.catalog import shipped_catalog
from relprop.bench.datasets import Dataset, Example, GreyImage
from relprop.bench.executors import KeyedSpec, Outcome, in_process
from relprop.bench.executors import WorkFunction as AnyWork
from relprop.bench.export import fingerprint
from relprop.bench.measurements import Measurements
from relprop.bench.report import Results, read_results, write_report
from relprop.bench.report.blocks import TableBlock
from relprop.bench.report.published import read_published
from relprop.bench.report.tables import score_table
from relprop.bench.suite_folder import folder_state, record_plan, resume_run
from relprop.bench.suite_plan import plan_suite
from relprop.bench.suites import Suite, Table, read_suite, suite_from
from relprop.errors import InputError, RelpropError, UnknownNameError
from relprop.graph import Graphormer, Settings, from_smiles, splits, superpixels
from relprop.graph.molecules import BONDS, CATEGORIES
from relprop.metrics import METRICS, relevance_mass
from test_bench_kinds import worked

SMALL: dict[str, Any] = {"width": 16, "heads": 2, "feed_forward": 24, "dropout": 0.0}
MOLECULES = [
    ("CC(=O)Oc1ccccc1C(=O)O", 1), ("c1ccccc1CN", 0), ("CCO", 1), ("NC(=N)c1ccc(Cl)cc1", 0), ("C1CCCCC1O", 1),
    ("OC(=O)c1ccccc1", 0), ("CCN(CC)CC", 0), ("c1ccncc1", 1), ("CC#N", 0), ("O=C1CCCN1", 1),
]  # fmt: skip
CLASSES = ["no inhibitor", "inhibitor"]


def saved(folder: Path, settings: Settings) -> str:
    """Weights large enough that the order of nodes matters."""
    torch.manual_seed(5)
    model = Graphormer(settings)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def molecules(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The classes the other way round than the data has them."""
    settings = Settings(tuple(CLASSES[::-1]), categories=CATEGORIES, edge_types=BONDS, reads="smiles", **SMALL)
    return saved(tmp_path_factory.mktemp("molecules"), settings)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = Settings(tuple("0123456789"), features=3, waves=2, longest=6, reads="superpixels", **SMALL)
    return saved(tmp_path_factory.mktemp("superpixels"), settings)


def strokes(count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bright bars and rings on black, a little grey around them."""
    rng = np.random.default_rng(3)
    pictures = np.zeros((count, 28, 28), np.uint8)
    for picture in pictures:
        y, x = rng.integers(4, 10, 2)
        picture[y - 1 : y + 14, x - 1 : x + 5] = 90
        picture[y : y + 13, x : x + 4] = 255
        picture[20:24, 6 : 10 + 2 * x] = 200
    return pictures


def write_idx(path: Path, array: np.ndarray[Any, Any]) -> None:
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}i", *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes()))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are called as the real ones are."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("molecules", "mnist"):
        (folder / name).mkdir()
    with gzip.open(folder / "molecules" / "bace.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([("smiles", "Class"), *MOLECULES])
    for part in ("train", "t10k"):
        write_idx(folder / "mnist" / f"{part}-images-idx3-ubyte.gz", strokes(5))
        write_idx(folder / "mnist" / f"{part}-labels-idx1-ubyte.gz", np.array([3, 1, 4, 1, 5], np.uint8))
    return folder


def suite(model: str, of: str, methods: list[Any], metrics: list[str], **task: Any) -> Suite:
    own = {"name": "own", "model": model, "data": of, "explain": "label", "replacement": "", **task}
    everything = {"title": "Own", "classes": CLASSES, "text": "smiles", "label": "Class",
                  "files": {"test": "molecules/bace.csv.gz"}}  # fmt: skip
    tables = {"title": "own", "tasks": [own], "methods": methods, "metrics": metrics, "data": {"every": everything}}
    return suite_from(tables, "own", "the test")


# Splits


def test_a_random_split_is_that_of_a_shuffle() -> None:
    """80, 10 and 10 %, every row once; the order is that of torch's generator, which the shipped model was cut by."""
    parts = splits.random_split(1513)
    assert [len(part) for part in parts] == [1210, 151, 152]
    assert sorted(chain(*parts)) == list(range(1513))
    assert (
        list(chain(*splits.random_split(10))) == torch.randperm(10, generator=torch.Generator().manual_seed(0)).tolist()
    )
    assert splits.random_split(50, 1) != splits.random_split(50)


def test_a_scaffold_is_in_one_part_whatever_the_order_of_rows() -> None:
    """Ten of benzene, two of others each: benzene fills the train part, and ties do not go by row."""
    rings = ["c1ccncc1", "C1CCCCC1", "c1ccoc1", "c1ccsc1", "C1CCCC1"]
    smiles = [f"{'C' * k}c1ccccc1" for k in range(1, 31)] + [f"{side}{ring}" for side in ("C", "CC") for ring in rings]
    parts = splits.scaffold_split(smiles)
    assert [len(part) for part in parts] == [32, 4, 4]
    assert sorted(chain(*parts)) == list(range(40))
    assert set(range(30)) <= set(parts[0])
    for ring in range(5):
        assert len({next(i for i, part in enumerate(parts) if row in part) for row in (30 + ring, 35 + ring)}) == 1
    backwards = splits.scaffold_split(smiles[::-1])
    assert [{smiles[i] for i in part} for part in parts] == [{smiles[39 - i] for i in part} for part in backwards]


def test_a_scaffold_split_names_what_is_no_molecule() -> None:
    with pytest.raises(InputError, match="molecule 1, 'nonsense', is no SMILES"):
        splits.scaffold_split(["CCO", "nonsense"])


def test_training_cuts_as_the_bench_does(data: Path) -> None:
    assert graphs_training.random_split is splits.random_split
    assert graphs_training.scaffold_split is splits.scaffold_split
    for name, parts in {
        "bace": splits.random_split(10),
        "bace_scaffold": splits.scaffold_split([smiles for smiles, _ in MOLECULES]),
    }.items():
        for split, part in zip(splits.PARTS, parts, strict=True):
            found = shipped_catalog().dataset(name).examples(split, data)
            assert found == [Example(*MOLECULES[i]) for i in part]


# Data


def test_pictures_are_read_with_the_labels_beside_them(data: Path) -> None:
    mnist = shipped_catalog().dataset("mnist")
    found = mnist.examples("test", data)
    assert [one.label for one in found] == [3, 1, 4, 1, 5]
    assert np.array_equal(np.asarray(found[2].text), strokes(5)[2])
    assert np.asarray(found[0].text, dtype=np.float64).dtype == np.float64
    assert found == mnist.examples("train", data)  # rows [0, 55000]
    with pytest.raises(InputError, match='the validation split of "mnist" is empty'):
        mnist.examples("validation", data)
    changed = strokes(5)
    changed[2, 14, 14] ^= 1
    assert repr(GreyImage.of(changed[2])) != repr(found[2].text)  # a cell's key depends on it
    assert repr(GreyImage((1, 2), b"ab")) == "Picture(shape=(1, 2), grey=b'ab')"  # as in runs of earlier versions


def test_pictures_come_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(name: str, config: None, split: str) -> list[dict[str, Any]]:
        asked.append((name, split))
        return [{"image": Image.fromarray(strokes(1)[0]), "label": 7}]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    mnist = shipped_catalog().dataset("mnist")
    assert mnist.examples("validation", None) == [Example(GreyImage.of(strokes(1)[0]), 7)]
    assert asked == [("ylecun/mnist", "train[55000:]")]


def test_mistakes_in_data(data: Path, tmp_path: Path) -> None:
    write_idx(tmp_path / "t-images-idx3-ubyte.gz", strokes(2))
    write_idx(tmp_path / "t-labels-idx1-ubyte.gz", np.zeros(3, np.uint8))
    own = Dataset("own", "", "image", ("0",), "label", files={"test": "t-images-idx3-ubyte.gz"})
    with pytest.raises(InputError, match="holds 2 pictures"):
        own.examples("test", tmp_path)
    with pytest.raises(InputError, match="a file is cut into train, validation, test, not dev"):
        Dataset("own", "", "smiles", ("0",), "label", files={"dev": "x.csv"}, cut="random")
    with pytest.raises(InputError, match="grey picture"):
        GreyImage.of(np.zeros((2, 2, 3), np.uint8))


# Faithfulness


def test_numbers_are_those_of_evaluate(molecules: str, data: Path) -> None:
    """Whatever the cells and batches; true classes, by name."""
    methods, metrics = ["random", "gradient_x_input", "lrp_ah_ln"], ["auac", "au_mse", "aopc"]
    asked = suite(molecules, "every", methods, [*metrics, "conservation_gap"], chunk=4, batch_size=3)
    found = worked(asked, data)
    explainer = Explainer(molecules)
    given, labels = [MOLECULES[i][0] for i in found.examples], [1 - MOLECULES[i][1] for i in found.examples]
    wanted = explainer.evaluate(given, labels, methods=["gradient_x_input", "lrp_ah_ln"], metrics=metrics)
    for method in ("gradient_x_input", "lrp_ah_ln"):
        for metric in metrics:
            curve = wanted.curves[method][metric]
            assert found.scores[method][metric] == pytest.approx(curve.scores().tolist(), rel=1e-4, abs=1e-6)
            assert np.allclose(found.curves[method][metric].values, curve.values, rtol=1e-4, atol=1e-6)
    explained = explainer(given, target=labels, method="lrp_ah_ln")
    assert found.scores["lrp_ah_ln"]["total"] == pytest.approx([one.accounted for one in explained], rel=1e-4)
    assert found.scores["lrp_ah_ln"]["value"] == pytest.approx([one.value for one in explained], rel=1e-4)
    assert "total" not in found.scores["random"]
    assert np.ptp(found.scores["lrp_ah_ln"]["auac"]) > 0.01


def test_nothing_is_above_the_ceiling(molecules: str, data: Path) -> None:
    methods = ["random", "lrp_ah_ln", "occlusion"]
    found = worked(suite(molecules, "every", methods, ["auac", "au_mse"], ceiling=6), data)
    small = [i for i, place in enumerate(found.examples) if len(from_smiles(MOLECULES[place][0])) <= 6]
    assert 2 <= len(small) < len(MOLECULES)
    for metric, sign in (("auac", 1), ("au_mse", -1)):
        best = np.array(found.scores["ceiling"][metric])
        assert np.flatnonzero(~np.isnan(best)).tolist() == small
        for method in methods:
            assert (sign * np.array(found.scores[method][metric])[small] <= sign * best[small] + 1e-5).all()


@pytest.mark.parametrize("of", ["every", "mnist"])
def test_drawings_are_kept(molecules: str, digits: str, data: Path, of: str) -> None:
    """The graph itself, then each method; colour only where there are scores."""
    model = molecules if of == "every" else digits
    found = worked(suite(model, of, ["lrp_ah_ln", "rollout"], ["auac"], show=2), data)
    shown = [(one["example"], one["method"]) for one in found.exhibits]
    assert sorted(shown) == [(place, label) for place in (0, 1) for label in ("", "lrp_ah_ln", "rollout")]
    plain, *coloured = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(one["png"]))).convert("RGB"), np.int64)
        for one in found.exhibits[:3]
    )
    assert np.ptp(plain, axis=2).max() < 30  # grey
    assert np.ptp(plain) > 100
    for one in coloured:
        assert one.shape == plain.shape
        assert np.ptp(one, axis=2).max() > 60


def slow_mass(scores: Any, regions: Any, marked: Any) -> float:
    """Pixel by pixel."""
    sizes = [int((regions == node).sum()) for node in range(len(scores))]
    inside = total = 0.0
    for y in range(regions.shape[0]):
        for x in range(regions.shape[1]):
            share = max(float(scores[regions[y, x]]), 0.0) / sizes[regions[y, x]]
            total += share
            inside += share * bool(marked[y, x])
    return inside / total


def test_relevance_mass_is_that_of_pixels() -> None:
    rng = np.random.default_rng(0)
    regions, marked = rng.permutation(np.arange(60) % 7).reshape(6, 10), rng.random((6, 10)) > 0.7
    scores = rng.normal(size=7)
    assert relevance_mass(scores, regions, marked) == pytest.approx(slow_mass(scores, regions, marked))
    assert relevance_mass(np.bincount(regions.ravel()), regions, marked) == pytest.approx(marked.mean())  # uniform
    assert relevance_mass(np.eye(7)[3], regions, regions == 3) == 1
    assert np.isnan(relevance_mass(-np.ones(7), regions, marked))
    with pytest.raises(InputError, match="name nodes 0 to 5"):
        relevance_mass(scores[:6], regions, marked)
    with pytest.raises(InputError, match="of one size"):
        relevance_mass(scores, regions, marked[:5])
    assert METRICS["relevance_mass"].better == "higher"


def test_the_mass_on_the_digit_is_measured(digits: str, data: Path) -> None:
    methods = ["lrp_ah_ln", "rollout"]
    found = worked(suite(digits, "mnist", methods, ["auac", "relevance_mass"], chunk=2), data)
    explainer, labels = Explainer(digits), [3, 1, 4, 1, 5]
    for number, place in enumerate(found.examples):
        picture = strokes(5)[place]
        ink = picture > 127.5
        regions = superpixels(picture).source
        for method in methods:
            scores = explainer(picture, target=labels[place], method=method).scores
            mass = slow_mass(scores, regions, ink)
            assert found.scores[method]["relevance_mass"][number] == pytest.approx(mass, rel=1e-3)
        assert found.scores["uniform map"]["relevance_mass"][number] == pytest.approx(ink.mean())


@pytest.mark.parametrize(
    ("of", "task", "message"),
    [
        ("every", {"replacement": "mask"}, 'nothing replaces it: set replacement = ""'),
        ("every", {"metrics": ["relevance_mass"]}, '"relevance_mass" is for images that are read as graphs'),
        ("every", {"metrics": ["token_f1"]}, "the metrics of faithfulness are auac, .*; got token_f1"),
        ("every", {"kind": "layers"}, "is a model of graphs, and the task is about texts"),
        ("every", {"model": "pets"}, 'is a model of images, and the task hides tokens or nodes; kind = "pictures"'),
        ("every", {"max_length": 9}, "max_length is for texts"),
        ("mnist", {}, r'has the class "3" \(number 3\)'),
    ],
)
def test_mistakes(molecules: str, data: Path, of: str, task: dict[str, Any], message: str) -> None:
    with pytest.raises(RelpropError, match=message):
        worked(suite(of=of, methods=["lrp_ah_ln"], **{"model": molecules, "metrics": ["auac"], **task}), data)


def test_digits_are_no_molecules(data: Path, tmp_path: Path) -> None:
    settings = Settings(tuple("0123456789"), categories=CATEGORIES, edge_types=BONDS, **SMALL)
    with pytest.raises(InputError, match="reads nodes of 8 whole-number features, the graph's have 3"):
        worked(suite(saved(tmp_path, settings), "mnist", ["gae"], ["auac"]), data)


def test_a_stopped_run_goes_on_to_the_same_numbers(molecules: str, digits: str, data: Path, tmp_path: Path) -> None:
    own = [
        {"name": "BACE", "model": molecules, "data": "bace", "split": "train", "chunk": 3},
        {"name": "MNIST", "model": digits, "data": "mnist", "chunk": 2, "metrics": ["auac", "relevance_mass"]},
    ]
    tables = {
        "title": "both", "methods": ["random", "lrp_ah_ln"], "metrics": ["auac", "au_mse"],
        "tasks": [{**one, "explain": "label", "replacement": "", "show": 1} for one in own],
    }  # fmt: skip
    plan = plan_suite(suite_from(tables, "both", "the test"), data)
    assert len(plan.specs) == 3 + 3

    def first_three(work: AnyWork, cells: Iterable[KeyedSpec]) -> Generator[Outcome, None, None]:
        yield from in_process(work, islice(cells, 3))

    for folder, executors in ((tmp_path / "calm", [in_process]), (tmp_path / "stopped", [first_three, in_process])):
        record_plan(plan, folder, "relprop bench run both")
        for executor in executors:
            assert folder_state(folder).summary.done in (0, 3)
            resume_run(folder, executor)
        assert folder_state(folder).summary.complete
    assert fingerprint(tmp_path / "calm") == fingerprint(tmp_path / "stopped")
    write_report(read_results(tmp_path / "stopped"), tmp_path / "report")
    page = (tmp_path / "report" / "report.md").read_text()
    assert "| *uniform map* |" in page
    assert "| BACE |" in page
    assert list((tmp_path / "report" / "figures").glob("mnist-*-lrp-ah-ln.png"))


# The report


def grids(results: Results, table: Table) -> list[TableBlock]:
    return [block for block in score_table(results, table) if isinstance(block, TableBlock)]


def test_leads_are_paired(molecules: str) -> None:
    """Both lower and higher: ahead is above 0, and bold where the interval leaves out 0."""
    rng = np.random.default_rng(1)
    hard = rng.normal(size=40)  # some examples are harder for all: without pairs nothing would be clear
    measured = Measurements(list(range(40)))
    columns = {"random": hard, "lrp_ah_ln": hard + 0.1 + rng.normal(size=40) * 0.05, "gae": hard[::-1]}
    for label, values in columns.items():
        measured.add(label, "auac", values.tolist())
        measured.add(label, "au_mse", values.tolist())
    measured.add("uniform map", "auac", [0.0] * 40)
    asked = suite(molecules, "every", [{"method": "random", "printed": "Random"}, "lrp_ah_ln", "gae"], ["auac"])
    results = Results(asked, {"own": measured})
    for metric, sign in (("auac", 1), ("au_mse", -1)):
        scores, leads = grids(results, Table("T", metric, lead="lrp_ah_ln"))
        assert [line.name for line in leads.rows] == ["Random", "gae"]
        by_name = {line.name: line.cells[0] for line in leads.rows}
        lead = sign * float(np.mean(columns["lrp_ah_ln"] - columns["random"]))
        assert by_name["Random"].text.startswith(f"{lead:+.3f} (")
        assert by_name["Random"].bold
        assert not by_name["gae"].bold
        assert "how far lrp_ah_ln is ahead" in leads.caption
        if metric == "auac":
            assert [line.name for line in scores.rows if line.apart] == ["uniform map"]
            assert not any(cell.bold for line in scores.rows if line.apart for cell in line.cells)
    assert len(grids(results, Table("T", "auac"))) == 1
    wrong = {"tables": [{"title": "T", "metric": "auac", "lead": "lrp"}], "tasks": [{"name": "a", "model": "b"}]}
    with pytest.raises(UnknownNameError, match='method of table "T" "lrp" is unknown'):
        suite_from({"title": "", "methods": ["gae"], **wrong}, "s", "s")


def test_the_shipped_suite_asks_for_the_papers_columns() -> None:
    shipped = read_suite("ali22-graphs")
    assert [(task.name, task.model, task.explain, task.replacement) for task in shipped.tasks] == [
        ("BACE", "molecules", "label", ""), ("MNIST", "superpixels", "label", "")
    ]  # fmt: skip
    assert not any(task.without for task in shipped.tasks)  # attention flow on both
    printed = {one.printed for one in shipped.methods}
    for table in ("ali22_table1_auac", "ali22_table2_aumse"):
        rows = read_published(table)
        assert {method for method, column in rows if column in ("BACE", "MNIST")} <= printed
        assert {"BACE", "MNIST"} <= {column for _, column in rows}
