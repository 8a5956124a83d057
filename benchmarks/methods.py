"""What every method costs: BERT-base size, 128 tokens, batch 8, as a ratio to plain forward + backward, with its bound.

    python benchmarks/methods.py [--rounds 5] [--threads 1] [METHOD ...]

Occlusion and integrated gradients are compared with the same passes made by hand, in the same batches; attention flow
at 24 tokens with networkx's Edmonds-Karp; the memory of `gae` and `rollout` at 512 tokens with that of the maps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any
from unittest.mock import patch

import torch

import relprop.methods  # fills the registry
from cost import Work, build, inputs_for, memory, paired_ratios, plain, seconds, void
from relprop.engine import sources
from relprop.registry import METHODS

WORK = Work("bert-base", 128, batch=8)
BOUNDS = {"transformer_attribution": 3.5, "mask_lrp": 3.5, "gae": 1.15, "rollout": 0.6, "attention_flow": 6.0,
          "lrp_ah_ln": 0.95, "lrp_conservative": 0.97}  # fmt: skip
SKIPPED = ("random", "shapley", "occlusion", "integrated_gradients", "smoothgrad", "decompx")  # many passes: see below


def options(method: str) -> dict[str, object]:
    """A mask of every second head, as a real one would be."""
    return {"mask": torch.arange(144).view(12, 12) % 2} if method == "mask_lrp" else {}


def report(name: str, value: float, bound: float | None, digits: int = 2) -> None:
    limit = "" if bound is None else f"{bound:9.2f}  {'ok' if value <= bound else 'MISSED'}"
    print(f"{name:<44}{value:8.{digits}f}{limit}", flush=True)


def against_plain(methods: list[str], rounds: int) -> None:
    model, inputs = build(WORK).requires_grad_(False), inputs_for(WORK)
    for method in methods:
        run = lambda method=method: void(relprop.attribute(model, inputs, 1, method, **options(method)))  # noqa: E731
        report(method, paired_ratios(run, lambda: plain(model, inputs), rounds), BOUNDS.get(method))


def by_hand(rounds: int) -> None:
    """Methods of many passes, against those passes alone, in batches of 32."""
    model, inputs = build(WORK).requires_grad_(False), inputs_for(WORK)
    one = {name: value[:1, :64] for name, value in inputs.items()}

    @torch.no_grad()
    def forwards() -> None:
        model(**one)
        for _ in range(2):
            model(**{name: value.expand(32, -1) for name, value in one.items()})

    def occlusion() -> None:
        relprop.attribute(model, one, 1, "occlusion", replacement=0, internal_batch_size=32)

    report("occlusion / its 64 forward passes", paired_ratios(occlusion, forwards, rounds), 1.1)

    def gradients() -> None:
        with torch.no_grad():
            model(**one)
        plain(model, {name: value.expand(32, -1) for name, value in one.items()})

    def integrated() -> None:
        relprop.attribute(model, one, 1, "integrated_gradients", steps=31, baseline=0, internal_batch_size=32)

    report("integrated_gradients / its 32 passes", paired_ratios(integrated, gradients, rounds), 1.1)


def vectors(rounds: int) -> None:
    """`decompx`, which is for short inputs: one text of 24 tokens."""
    work = Work("bert-base", 24)
    model, inputs = build(work).requires_grad_(False), inputs_for(work)
    run = lambda: void(relprop.attribute(model, inputs, 1, "decompx"))  # noqa: E731
    report("decompx, 24 tokens, batch 1", paired_ratios(run, lambda: plain(model, inputs), rounds), None)


def proof_share(rounds: int) -> None:
    """What following the parts to their place, and showing that its rows are units, takes of repeated calls."""
    model, taken = build(WORK).requires_grad_(False), [0.0]
    follow = sources.Sources.after_claimed

    def timed(*args: Any) -> Any:
        start = time.process_time()
        found = follow(*args)
        taken[0] += time.process_time() - start
        return found

    with patch.object(sources.Sources, "after_claimed", timed):
        void(relprop.attribute(model, inputs_for(WORK), 1))  # surveyed
        shares = []
        for seed in range(2, 2 + rounds):
            taken[0] = 0.0
            whole = seconds(lambda seed=seed: void(relprop.attribute(model, inputs_for(WORK, seed), 1)))  # type: ignore[misc]
            shares.append(taken[0] / whole)
    report("proof of units / lrp_conservative", statistics.median(shares), 0.03, digits=4)


def flow_speed() -> None:
    """Attention flow at 24 tokens on BERT-base maps: networkx over ours."""
    import networkx
    import numpy as np

    from relprop.methods.block_maps import mean_heads, normalised_with_identity, weight_maps
    from relprop.methods.flow import max_flows

    work = Work("bert-base", 24)
    model = build(work)
    maps = weight_maps(model, inputs_for(work), 1, "flow", mean_heads)
    layers = [normalised_with_identity(one) for one in maps.folded]
    capacities, readout = torch.stack(layers, 1)[0].double().numpy(), maps.readout[0].double().numpy()
    ours = min(seconds(lambda: void(max_flows(capacities, readout))) for _ in range(3))
    graph = networkx.DiGraph()
    blocks, tokens, _ = capacities.shape
    for block, row, column in np.ndindex(blocks, tokens, tokens):
        graph.add_edge((block + 1, row), (block, column), capacity=float(capacities[block, row, column]))
    algorithm = networkx.algorithms.flow.edmonds_karp
    count = 3  # of 24 tokens: all would take minutes

    def slow() -> None:
        for token in range(count):
            networkx.maximum_flow_value(graph, (blocks, int(readout.argmax())), (0, token), flow_func=algorithm)

    theirs = seconds(slow) / count * tokens
    speed = theirs / ours
    print(
        f"{'attention_flow, 24 tokens: times networkx':<44}{speed:8.0f}{500:9.0f}  {'ok' if speed >= 500 else 'MISSED'}"
    )


def map_memory(tokens: int = 512) -> None:
    """Peak memory over that of the plain pass, in units of one block's maps."""
    work = Work("bert-base", tokens)
    one_block = 12 * tokens * tokens * 4 / 2**20
    base = memory(work, "plain")
    for method in ("gae", "rollout", "grad_cam"):
        extra = (memory(work, method) - base) / one_block
        print(f"{method + f', {tokens} tokens: peak over plain, in maps':<44}{extra:8.1f}   (of 12)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"{'BERT-base, 128 tokens, batch 8':<44}{'ratio':>8}{'bound':>9}")
    chosen = args.methods or METHODS.names()
    against_plain([name for name in chosen if name not in SKIPPED], args.rounds)
    if "decompx" in chosen:
        vectors(args.rounds)
    proof_share(args.rounds)
    if not args.methods:
        by_hand(args.rounds)
        flow_speed()
        map_memory()


if __name__ == "__main__":
    main()
