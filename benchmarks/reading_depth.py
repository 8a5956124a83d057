"""At which block should relevance be read? One row of metrics per block's input, for the mean and for half of each.

    python benchmarks/reading_depth.py yelp_64 --data DATA --split test --sample 90 --max-length 64

The model is that of a recipe of `src/relprop/bench/catalog.toml`, a BERT. Rows are kept by hooks under the public
rules, not by the engine that `lrp_full` and `lrp_blend` share.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import relprop
from relprop.bench.catalog import Catalog, with_shipped
from relprop.metrics import faithfulness
from relprop.readers.tokens import without_truncation_warnings

METRICS = ("auac", "au_mse", "aopc", "log_odds")


def rows_at_blocks(model: Any, inputs: dict[str, Tensor], labels: list[int], rules: str) -> list[Tensor]:
    """Input x gradient per token at the input of every block, [batch, tokens] each."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Any, ...]) -> None:
        kept.append(args[0])

    handles = [block.register_forward_pre_hook(keep) for block in model.bert.encoder.layer]
    words = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    try:
        with relprop.rules(rules):
            logits = model(**{**inputs, "input_ids": None, "inputs_embeds": words}).logits
    finally:
        for handle in handles:
            handle.remove()
    value = logits[torch.arange(len(labels)), labels].sum()
    gradients = torch.autograd.grad(value, kept)
    mask = inputs["attention_mask"]
    return [(x * g).sum(-1).detach() * mask for x, g in zip(kept, gradients, strict=True)]


def readings(model: Any, inputs: dict[str, Tensor], labels: list[int]) -> Iterator[tuple[str, Tensor]]:
    yield "lrp_conservative", rows_at_blocks(model, inputs, labels, "lrp_conservative")[0]
    rows = rows_at_blocks(model, inputs, labels, "lrp_carried")
    for number, one in enumerate(rows, 1):
        yield f"lrp_carried, block {number}", one
    mean = torch.stack(rows).mean(0)
    yield "mean over blocks (lrp_full)", mean
    yield "half block 1, half the mean (lrp_blend)", (rows[0] + mean) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipe")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the datasets")
    parser.add_argument("--split", default="test")
    parser.add_argument("--sample", type=int, default=90)
    parser.add_argument("--max-length", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    catalog = with_shipped(Catalog({}, {}))
    folder, _ = catalog.train(args.recipe, args.data)
    explainer = relprop.Explainer(str(folder))
    every = catalog.dataset(catalog.recipe(args.recipe).data).examples(args.split, args.data)
    chosen = sorted(np.random.default_rng(0).choice(len(every), min(args.sample, len(every)), replace=False))
    examples = [every[number] for number in chosen]
    with without_truncation_warnings():
        texts, targets = [one.text for one in examples], [one.target for one in examples]
        queries = explainer.task.queries(texts, targets, args.max_length)
    found: dict[str, dict[str, list[float]]] = {}
    reader: Any = explainer.reader
    for numbers in reader.batches([query.row for query in queries], 10):
        rows, labels = [queries[i].row for i in numbers], [queries[i].target for i in numbers]
        inputs = reader.inputs(rows)
        scores = dict(readings(explainer.model, inputs, labels))
        units = reader.hidden(rows, inputs, "unk")
        curves = faithfulness(explainer.model, units, list(scores.values()), labels, metrics=METRICS, batch_size=32)
        for name, own in zip(scores, curves, strict=True):
            for metric, curve in own.items():
                found.setdefault(name, {}).setdefault(metric, []).extend(curve.scores().tolist())
    print(f"| {args.recipe}, {len(examples)} texts | " + " | ".join(METRICS) + " |")
    print("|---|" + "---|" * len(METRICS))
    for name, values in found.items():
        print(f"| {name} | " + " | ".join(f"{np.mean(values[metric]):.3f}" for metric in METRICS) + " |")


if __name__ == "__main__":
    main()
