"""Train the two embedded Graph Transformers: BACE molecules and MNIST superpixels.

    python training/graphs.py bace --data ../shared/data --split random     # and --split scaffold
    python training/graphs.py mnist --data ../shared/data

Both are Graphormers of two layers. The weights that did best on the validation part are kept; the test part is read
once, at the end. A stopped run goes on from the checkpoint in the work folder.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import time
from collections import defaultdict
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

from relprop.graph import Graphormer, Settings, from_smiles, superpixels
from relprop.graph.graph import Graph, batch
from relprop.graph.molecules import BONDS, CATEGORIES, rdkit_chem

MODELS = Path(__file__).parent.parent / "src" / "relprop" / "models"
PARTS = ("train", "validation", "test")
Numbers = NDArray[Any]


@dataclass(frozen=True)
class Plan:
    """How long, how fast, and how each graph may be changed a little while it is learned."""

    epochs: int
    rate: float
    batch_size: int
    shift: float = 0.0  # of the positions, columns 1 and 2 of the features
    seed: int = 0


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


def labelled(graphs: Sequence[Graph], labels: Sequence[int]) -> Labelled:
    inputs = batch(graphs)
    small = {"adjacency": torch.uint8, "attention_mask": torch.uint8}
    return Labelled({name: v.to(small.get(name, v.dtype)) for name, v in inputs.items()}, torch.tensor(labels))


def scaffold_split(smiles: Sequence[str]) -> list[list[int]]:
    """80, 10 and 10 %: molecules of one Murcko scaffold stay together, the commonest scaffolds are learned."""
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    chem = rdkit_chem()
    groups = defaultdict(list)
    for number, one in enumerate(smiles):
        groups[MurckoScaffoldSmiles(mol=chem.MolFromSmiles(one))].append(number)  # type: ignore[no-untyped-call]
    parts: list[list[int]] = [[], [], []]
    for group in sorted(groups.values(), key=lambda group: (-len(group), group[0])):
        room = [0.8 * len(smiles) - len(parts[0]), 0.1 * len(smiles) - len(parts[1]), math.inf]
        parts[next(i for i, free in enumerate(room) if len(group) <= free)] += group
    return parts


def random_split(count: int, seed: int) -> list[list[int]]:
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return [order[: int(0.8 * count)], order[int(0.8 * count) : int(0.9 * count)], order[int(0.9 * count) :]]


@torch.no_grad()
def logits(model: Graphormer, data: Labelled) -> Tensor:
    model.eval()
    return torch.cat([model(**data.part(which)[0]) for which in torch.arange(len(data)).split(128)])


def roc_auc(model: Graphormer, data: Labelled) -> float:
    found = logits(model, data)
    ranks, positive = rankdata((found[:, 1] - found[:, 0]).numpy()), data.labels.numpy() == 1
    above = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
    return float(above / (positive.sum() * (~positive).sum()))


def accuracy(model: Graphormer, data: Labelled) -> float:
    return float((logits(model, data).argmax(-1) == data.labels).double().mean())


def fit(
    model: Graphormer, parts: dict[str, Labelled], plan: Plan, score: Score, work: Path, minutes: float
) -> dict[str, float]:
    """AdamW with warm-up and cosine decay; the best weights of the validation part."""
    train = parts["train"]
    optimiser = torch.optim.AdamW(model.parameters(), lr=plan.rate, weight_decay=0.01)
    steps = plan.epochs * math.ceil(len(train) / plan.batch_size)
    best, first, kept = -1.0, 0, {name: value.clone() for name, value in model.state_dict().items()}
    checkpoint = work / "checkpoint.pt"
    if checkpoint.is_file():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        best, first, kept = state["best"], state["epoch"], state["kept"]
    step = first * math.ceil(len(train) / plan.batch_size)
    began = time.monotonic()
    for epoch in range(first, plan.epochs):
        model.train()
        torch.manual_seed(plan.seed * 1000 + epoch)
        total = 0.0
        for which in torch.randperm(len(train)).split(plan.batch_size):
            inputs, labels = train.part(which)
            if plan.shift:
                moved = torch.randn(len(which), 1, 2) * plan.shift
                inputs["nodes"] = torch.cat([inputs["nodes"][..., :1], inputs["nodes"][..., 1:] + moved], -1)
            optimiser.param_groups[0]["lr"] = plan.rate * min(
                (step + 1) / (0.05 * steps), 0.5 * (1 + math.cos(math.pi * step / steps))
            )
            loss = F.cross_entropy(model(**inputs), labels)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            step, total = step + 1, total + loss.item() * len(which)
        reached = score(model, parts["validation"])
        if reached > best:
            best, kept = reached, {name: value.clone() for name, value in model.state_dict().items()}
        spent = (time.monotonic() - began) / 60
        print(f"epoch {epoch + 1} of {plan.epochs}: loss {total / len(train):.4f}, validation {reached:.4f}, "
              f"best {best:.4f}, {spent:.1f} min", flush=True)  # fmt: skip
        state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "best": best, "epoch": epoch + 1,
                 "kept": kept}  # fmt: skip
        torch.save(state, work / "checkpoint.part")
        (work / "checkpoint.part").replace(checkpoint)
        if spent > minutes:
            print("out of time: the best weights so far are taken")
            break
    model.load_state_dict(kept)
    return {"validation": best, "test": score(model, parts["test"])}


def bace(given: argparse.Namespace, work: Path) -> tuple[Graphormer, dict[str, float], dict[str, int]]:
    with gzip.open(given.data / "molecules" / "bace.csv.gz", "rt", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    smiles, labels = [row["smiles"] for row in rows], [int(row["Class"]) for row in rows]
    graphs = [from_smiles(one) for one in smiles]
    split = scaffold_split(smiles) if given.split == "scaffold" else random_split(len(rows), given.seed)
    parts = {
        name: labelled([graphs[i] for i in which], [labels[i] for i in which])
        for name, which in zip(PARTS, split, strict=True)
    }
    torch.manual_seed(given.seed)
    model = Graphormer(
        Settings(("no inhibitor", "inhibitor"), categories=CATEGORIES, edge_types=BONDS, reads="smiles", dropout=0.2)
    )
    scores = fit(model, parts, Plan(given.epochs or 150, 2e-4, 64, seed=given.seed), roc_auc, work, given.minutes)
    return model, scores, {name: len(part) for name, part in parts.items()}


def mnist(given: argparse.Namespace, work: Path) -> tuple[Graphormer, dict[str, float], dict[str, int]]:
    folder, cache = given.data / "mnist", work / "superpixels.npz"
    if not cache.is_file():
        kept: dict[str, Numbers] = {}
        for name, stem in (("train", "train"), ("test", "t10k")):
            pictures = _idx(folder / f"{stem}-images-idx3-ubyte.gz")
            console = Console(stderr=True)
            made = batch([superpixels(one) for one in track(pictures, description=name, console=console)])
            small = {"nodes": torch.half, "adjacency": torch.uint8, "attention_mask": torch.uint8}
            kept |= {f"{name}/{key}": made[key].to(kind).numpy() for key, kind in small.items()}
            kept[f"{name}/labels"] = _idx(folder / f"{stem}-labels-idx1-ubyte.gz").astype(np.int64)
        with cache.open("wb") as file:
            np.savez(file, **kept)  # type: ignore[arg-type]
    stored = np.load(cache)
    every = {
        name: Labelled(
            {key: torch.from_numpy(stored[f"{name}/{key}"]) for key in ("nodes", "adjacency", "attention_mask")},
            torch.from_numpy(stored[f"{name}/labels"]),
        )
        for name in ("train", "test")
    }
    for one in every.values():
        one.inputs["nodes"] = one.inputs["nodes"].float()
    cut = 55_000
    parts = {
        "train": _slice(every["train"], 0, cut),
        "validation": _slice(every["train"], cut, 60_000),
        "test": every["test"],
    }
    torch.manual_seed(given.seed)
    model = Graphormer(
        Settings(
            tuple(map(str, range(10))),
            features=3,
            waves=3,
            width=96,
            heads=8,
            feed_forward=192,
            reads="superpixels",
            longest=12,
            dropout=0.05,
        )
    )
    plan = Plan(given.epochs or 10, 2e-3, 64, shift=0.02, seed=given.seed)
    scores = fit(model, parts, plan, accuracy, work, given.minutes)
    return model, scores, {name: len(part) for name, part in parts.items()}


def _slice(data: Labelled, start: int, stop: int) -> Labelled:
    return Labelled({name: value[start:stop] for name, value in data.inputs.items()}, data.labels[start:stop])


def _idx(path: Path) -> Numbers:
    """MNIST's own format: a header that names the shape, then bytes."""
    content = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(content, ">i4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["bace", "mnist"])
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds molecules/ and mnist/")
    parser.add_argument("--split", choices=["random", "scaffold"], default="random", help="of BACE")
    parser.add_argument("--work", type=Path, default=Path("build/graphs"))
    parser.add_argument("--out", type=Path, help="where the model goes; default: into the package")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--minutes", type=float, default=50, help="stop after this long")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    name = given.which if given.which == "mnist" else f"bace-{given.split}-{given.seed}"
    work = given.work / name
    work.mkdir(parents=True, exist_ok=True)
    model, scores, sizes = (bace if given.which == "bace" else mnist)(given, work)
    out = given.out or MODELS / ("molecules" if given.which == "bace" else "superpixels")
    model.half().save(out)
    about = {"data": name, "sizes": sizes, "metric": "ROC-AUC" if given.which == "bace" else "accuracy", **scores}
    (work / "scores.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(about))


if __name__ == "__main__":
    main()
