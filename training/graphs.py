"""Train the two embedded Graph Transformers: BACE molecules and MNIST superpixels.

    python training/graphs.py bace --data ../shared/data --split random     # and --split scaffold
    python training/graphs.py mnist --data ../shared/data
    python training/graphs.py bace --data ../shared/data --learn parts --out OTHER     # to compare; and mnist whole

Both are Graphormers of two layers. The weights that did best on the validation part are kept; the test part is read
once, at the end. A stopped run goes on from the checkpoint in the work folder.

A model of whole graphs knows little of their parts: a digit it tells by the empty regions around the strokes, and half
an inhibitor is none to it. So the embedded model of digits learns them from their ink, `--learn parts`: the empty
regions of each are other digits', or left out. That of molecules learns whole ones.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from scipy.stats import rankdata
from torch import Tensor
from torch.nn import functional as F

from relprop.bench.idx import read_idx
from relprop.graph import Graphormer, Settings, from_smiles, superpixels
from relprop.graph.graph import Graph, batch
from relprop.graph.molecules import BONDS, CATEGORIES
from relprop.graph.splits import PARTS, random_split, scaffold_split
from relprop.metrics import Nodes

MODELS = Path(__file__).parent.parent / "src" / "relprop" / "models"
Numbers = NDArray[Any]
Inputs = dict[str, Tensor]
Change = Callable[[Inputs], Inputs]
DARK = 0.1  # brightness of an empty region, at most
SMALL = {"nodes": torch.half, "adjacency": torch.uint8, "attention_mask": torch.uint8}  # as they are kept


@dataclass(frozen=True)
class Labelled:
    """Padded graphs and their classes."""

    inputs: dict[str, Tensor]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, which: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Some graphs, padded only as far as they need."""
        mask = self.inputs["attention_mask"][which].long()
        width = int(mask.sum(1).max())
        nodes, adjacency = self.inputs["nodes"][which, : width - 1], self.inputs["adjacency"][which]
        kept = {"adjacency": adjacency[:, : width - 1, : width - 1].long(), "attention_mask": mask[:, :width]}
        return {"nodes": nodes if nodes.is_floating_point() else nodes.long(), **kept}, self.labels[which]


Score = Callable[[Graphormer, Labelled], float]


@dataclass(frozen=True)
class Plan:
    """How long, how fast, what the best weights are, and how each graph may be changed while it is learned."""

    name: str  # of its checkpoint
    epochs: int
    rate: float
    score: Score
    change: Change = lambda inputs: inputs
    batch_size: int = 64


def labelled(graphs: Sequence[Graph], labels: Sequence[int]) -> Labelled:
    inputs = batch(graphs)
    kept = {name: values if name == "nodes" else values.to(SMALL[name]) for name, values in inputs.items()}
    return Labelled(kept, torch.tensor(labels))


@torch.no_grad()
def logits(model: Graphormer, data: Labelled, change: Change = lambda inputs: inputs) -> Tensor:
    model.eval()
    return torch.cat([model(**change(data.part(which)[0])) for which in torch.arange(len(data)).split(128)])


def roc_auc(model: Graphormer, data: Labelled) -> float:
    found = logits(model, data)
    ranks, positive = rankdata((found[:, 1] - found[:, 0]).numpy()), data.labels.numpy() == 1
    above = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
    return float(above / (positive.sum() * (~positive).sum()))


def accuracy(model: Graphormer, data: Labelled) -> float:
    return float((logits(model, data).argmax(-1) == data.labels).double().mean())


def fit(model: Graphormer, parts: dict[str, Labelled], plan: Plan, given: argparse.Namespace, work: Path) -> None:
    """AdamW with warm-up and cosine decay; the weights that score best on the validation part."""
    epochs = given.epochs or plan.epochs
    train = parts["train"]
    optimiser = torch.optim.AdamW(model.parameters(), lr=plan.rate, weight_decay=0.01)
    steps = epochs * math.ceil(len(train) / plan.batch_size)
    best, first, kept = -1.0, 0, {name: value.clone() for name, value in model.state_dict().items()}
    checkpoint = work / f"{plan.name}.pt"
    if checkpoint.is_file():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        best, first, kept = state["best"], state["epoch"], state["kept"]
    step = first * math.ceil(len(train) / plan.batch_size)
    began = time.monotonic()
    for epoch in range(first, epochs):
        model.train()
        torch.manual_seed(given.seed * 1000 + epoch)
        total = 0.0
        for which in torch.randperm(len(train)).split(plan.batch_size):
            inputs, labels = train.part(which)
            optimiser.param_groups[0]["lr"] = plan.rate * min(
                (step + 1) / (0.05 * steps), 0.5 * (1 + math.cos(math.pi * step / steps))
            )
            loss = F.cross_entropy(model(**plan.change(inputs)), labels)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            step, total = step + 1, total + loss.item() * len(which)
        reached = plan.score(model, parts["validation"])
        if reached > best:
            best, kept = reached, {name: value.clone() for name, value in model.state_dict().items()}
        spent = (time.monotonic() - began) / 60
        print(f"epoch {epoch + 1} of {epochs}: loss {total / len(train):.4f}, validation {reached:.4f}, "
              f"best {best:.4f}, {spent:.1f} min", flush=True)  # fmt: skip
        state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "best": best, "epoch": epoch + 1,
                 "kept": kept}  # fmt: skip
        torch.save(state, checkpoint.with_suffix(".part"))
        checkpoint.with_suffix(".part").replace(checkpoint)
        if spent > given.minutes:
            print("out of time: the best weights so far are taken")
            break
    model.load_state_dict(kept)


def bace(given: argparse.Namespace, work: Path) -> dict[str, Labelled]:
    with gzip.open(given.data / "molecules" / "bace.csv.gz", "rt", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    smiles, labels = [row["smiles"] for row in rows], [int(row["Class"]) for row in rows]
    graphs = [from_smiles(one) for one in smiles]
    split = scaffold_split(smiles) if given.split == "scaffold" else random_split(len(rows), given.seed)
    return {
        name: labelled([graphs[i] for i in which], [labels[i] for i in which])
        for name, which in zip(PARTS, split, strict=True)
    }


def molecules() -> Graphormer:
    return Graphormer(
        Settings(("no inhibitor", "inhibitor"), categories=CATEGORIES, edge_types=BONDS, reads="smiles", dropout=0.2)
    )


def fragments(inputs: Inputs) -> Inputs:
    """Of three graphs in four a random share of the nodes is left out."""
    count, size = inputs["nodes"].shape[:2]
    share = torch.where(torch.rand(count, 1) < 0.25, torch.zeros(1), torch.rand(count, 1))
    return Nodes(inputs).hide(torch.arange(count), F.pad(torch.rand(count, size) < share, (1, 0)))


def mnist(given: argparse.Namespace, work: Path) -> dict[str, Labelled]:
    cache = work / "superpixels.npz"
    if not cache.is_file():
        segment(given.data / "mnist", cache)
    stored = np.load(cache)
    train, test = (
        Labelled(
            {key: torch.from_numpy(stored[f"{name}/{key}"]) for key in SMALL}
            | {"nodes": torch.from_numpy(stored[f"{name}/nodes"]).float()},
            torch.from_numpy(stored[f"{name}/labels"]),
        )
        for name in ("train", "test")
    )
    cut = len(train) * 11 // 12  # the last 5,000 of 60,000 are for validation
    return {"train": _slice(train, 0, cut), "validation": _slice(train, cut, len(train)), "test": test}


def segment(folder: Path, cache: Path) -> None:
    """All pictures as graphs of superpixels, kept for the next time."""
    kept: dict[str, Numbers] = {}
    for name, stem in (("train", "train"), ("test", "t10k")):
        pictures = read_idx(folder / f"{stem}-images-idx3-ubyte.gz")
        made = batch([superpixels(one) for one in track(pictures, description=name, console=Console(stderr=True))])
        kept |= {f"{name}/{key}": made[key].to(kind).numpy() for key, kind in SMALL.items()}
        kept[f"{name}/labels"] = read_idx(folder / f"{stem}-labels-idx1-ubyte.gz").astype(np.int64)
    with cache.open("wb") as file:
        np.savez(file, **kept)  # type: ignore[arg-type]


def digits() -> Graphormer:
    shape: dict[str, Any] = {"width": 96, "heads": 8, "feed_forward": 192, "longest": 12}
    return Graphormer(
        Settings(tuple(map(str, range(10))), features=3, waves=3, reads="superpixels", dropout=0.05, **shape)
    )


def shifted(inputs: Inputs) -> Inputs:
    """The digits moved a little: positions are columns 1 and 2 of the features."""
    nodes = inputs["nodes"]
    moved = torch.randn(len(nodes), 1, 2) * 0.02
    return {**inputs, "nodes": torch.cat([nodes[..., :1], nodes[..., 1:] + moved], -1)}


def ink(inputs: Inputs) -> Inputs:
    """Graphs in which nothing but the ink tells the digit: their empty regions are those of any digits, in any order.

    Of three graphs in ten all of them are left out, of four some, of three none.
    """
    given = shifted(inputs)
    nodes = given["nodes"]
    dark = (nodes[..., 0] <= DARK) & (inputs["attention_mask"][:, 1:] > 0)
    others = nodes[dark]
    given["nodes"] = nodes.masked_scatter(dark[..., None], others[torch.randint(len(others), (len(others),))])
    kind = torch.rand(len(nodes), 1)
    share = torch.where(kind < 0.3, 1, torch.where(kind < 0.7, torch.rand(kind.shape), 0))
    return without_dark(given, share)


def without_dark(inputs: Inputs, share: Tensor) -> Inputs:
    """The graphs without so much of their dark nodes, but never without all their nodes."""
    bright = inputs["nodes"][..., 0]
    gone = (bright <= DARK) & (torch.rand(bright.shape) < share) & (bright.amax(1, keepdim=True) > DARK)
    hidden = torch.cat([torch.zeros_like(gone[:, :1]), gone], 1)
    return Nodes(inputs).hide(torch.arange(len(bright)), hidden)


def bare_accuracy(model: Graphormer, data: Labelled) -> float:
    """On graphs without any dark node."""
    found = logits(model, data, lambda inputs: without_dark(inputs, torch.ones(len(inputs["nodes"]), 1)))
    return float((found.argmax(-1) == data.labels).double().mean())


def whole_and_bare(model: Graphormer, data: Labelled) -> float:
    return (accuracy(model, data) + bare_accuracy(model, data)) / 2


def _slice(data: Labelled, start: int, stop: int) -> Labelled:
    return Labelled({name: value[start:stop] for name, value in data.inputs.items()}, data.labels[start:stop])


@dataclass(frozen=True)
class Recipe:
    """A data set, a model, the ways to learn, and what is measured."""

    data: Callable[[argparse.Namespace, Path], dict[str, Labelled]]
    model: Callable[[], Graphormer]
    plans: dict[str, list[Plan]]  # by `--learn`, one plan after the other; the embedded model's are first
    scores: dict[str, Score]
    name: str  # of the embedded model


WHOLE_MOLECULES = Plan("whole", 150, 2e-4, roc_auc)
RECIPES = {
    "bace": Recipe(
        bace,
        molecules,
        {"whole": [WHOLE_MOLECULES], "parts": [WHOLE_MOLECULES, Plan("fragments", 40, 2e-4, roc_auc, fragments)]},
        {"ROC-AUC": roc_auc, "accuracy": accuracy},
        "molecules",
    ),
    "mnist": Recipe(
        mnist,
        digits,
        {
            "parts": [Plan("ink", 12, 2e-3, whole_and_bare, ink)],
            "whole": [Plan("whole", 6, 2e-3, accuracy, shifted)],
        },
        {"accuracy": accuracy, "without dark nodes": bare_accuracy},
        "superpixels",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=list(RECIPES))
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds molecules/ and mnist/")
    parser.add_argument("--split", choices=["random", "scaffold"], default="random", help="of BACE")
    parser.add_argument(
        "--learn", choices=["whole", "parts"], help="from whole graphs or from parts; default: as the embedded model"
    )
    parser.add_argument("--work", type=Path, default=Path("build/graphs"))
    parser.add_argument("--out", type=Path, help="where the model goes; default: into the package")
    parser.add_argument("--epochs", type=int, help="of each phase")
    parser.add_argument("--minutes", type=float, default=50, help="stop a phase after this long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluate", action="store_true", help="only measure the model that is there")
    given = parser.parse_args()
    recipe = RECIPES[given.which]
    if given.learn not in (None, next(iter(recipe.plans))) and not given.out:
        parser.error(f"the embedded model learns otherwise: --learn {given.learn} needs --out")
    work = given.work / (given.which if given.which == "mnist" else f"bace-{given.split}-{given.seed}")
    work.mkdir(parents=True, exist_ok=True)
    parts, out = recipe.data(given, work), given.out or MODELS / recipe.name
    if not given.evaluate:
        torch.manual_seed(given.seed)
        model = recipe.model()
        for plan in recipe.plans[given.learn or next(iter(recipe.plans))]:
            fit(model, parts, plan, given, work)
        model.half().save(out)
    model = Graphormer.load(out)  # as users get it, from half precision
    found = {metric: {name: score(model, parts[name]) for name in PARTS[1:]} for metric, score in recipe.scores.items()}
    about = {"sizes": {name: len(part) for name, part in parts.items()}, **found}
    (work / "scores.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(about))


if __name__ == "__main__":
    main()
