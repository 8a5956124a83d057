"""Copies a model with a bias built in: would `relprop audit names` find it in this corpus?

python benchmarks/name_bias.py MODEL ranking.csv OUT --group female --strength 0.1

The embedding of every name of the group moves by a share of what parts "good" from "bad". Only names that are one token
move, so that no other word does. `ranking.csv` is what `relprop audit names --ranking` wrote.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import torch

from relprop.loading import load

POLES = ("good", "bad")


def bias(model: Any, tokenizer: Any, names: list[str], strength: float) -> list[str]:
    """Move the names that are one token, in place; tells which."""
    vocabulary = tokenizer.get_vocab()
    table = model.get_input_embeddings().weight
    moved = [name for name in names if tokenizer.tokenize(name) == [name]]
    with torch.no_grad():
        towards, away = (table[vocabulary[word]].clone() for word in POLES)
        for name in moved:
            table[vocabulary[name]] += strength * (towards - away)
    return moved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or an embedded model's name")
    parser.add_argument("ranking", type=Path, help="a CSV with columns `name` and `group`")
    parser.add_argument("output", type=Path, help="the folder of the biased copy")
    parser.add_argument("--group", default="female")
    parser.add_argument("--strength", type=float, default=0.1)
    args = parser.parse_args()
    with args.ranking.open(encoding="utf-8", newline="") as lines:
        names = [row["name"].lower() for row in csv.DictReader(lines) if row["group"] == args.group]
    model, tokenizer = load(args.model)
    moved = bias(model, tokenizer, names, args.strength)
    model.save_pretrained(args.output)  # type: ignore[operator]
    tokenizer.save_pretrained(args.output)
    print(f"{args.output}: {len(moved)} of {len(names)} names moved by {args.strength} of {POLES[0]} - {POLES[1]}")


if __name__ == "__main__":
    main()
