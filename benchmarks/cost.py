"""What an explanation costs: time and memory as a ratio to a plain forward and backward pass on the same work.

    python benchmarks/cost.py [--quick]

Plain means: frozen parameters, fused attention, gradient to the input of the first block's embeddings. Each method is
measured interleaved with the plain pass in one run, so that a busy machine slows both; the median of the paired ratios
is printed. Peak memory is what the pass adds to the resident set, measured in a fresh process each.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForSequenceClassification

import relprop

METHODS = ("lrp_ah", "lrp_ln", "lrp_ah_ln", "lrp_conservative", "attn_lrp", "gradient_x_input")


@dataclass(frozen=True)
class Work:
    name: str
    tokens: int
    batch: int = 1


WORKS = (Work("bert-base", 128), Work("bert-base", 512), Work("llama-12x768", 1024))


def build(work: Work) -> Any:
    """A random model of the given size; speed does not depend on the weights."""
    torch.manual_seed(0)
    if work.name == "bert-base":
        return BertForSequenceClassification(BertConfig(attn_implementation="sdpa")).eval()
    config = LlamaConfig(
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=2048,
        vocab_size=32000,
        max_position_embeddings=2048,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return LlamaForSequenceClassification(config).eval()


def inputs_for(work: Work, seed: int = 1) -> dict[str, Tensor]:
    ids = torch.randint(5, 1000, (work.batch, work.tokens), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def plain(model: torch.nn.Module, inputs: dict[str, Tensor]) -> None:
    """Forward and backward to the embedded input, parameters frozen."""
    embedded = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()  # type: ignore[operator]
    extra = {"use_cache": False} if "Llama" in type(model).__name__ else {}
    logits = model(inputs_embeds=embedded, attention_mask=inputs["attention_mask"], **extra).logits
    torch.autograd.grad(logits[:, 1].sum(), embedded)


def runner(method: str, model: torch.nn.Module, inputs: dict[str, Tensor]) -> Callable[[], None]:
    if method == "plain":
        return lambda: plain(model, inputs)
    return lambda: void(relprop.attribute(model, inputs, 1, method))


def void(_: object) -> None:
    """Drop a result."""


def seconds(run: Callable[[], None]) -> float:
    """Of the processor, over all threads: other work on the machine hardly moves them."""
    start = time.process_time()
    run()
    return time.process_time() - start


def time_ratios(work: Work, methods: tuple[str, ...], rounds: int) -> dict[str, float]:
    """Median over rounds of method / plain, the two run one after the other, in turn first."""
    model = build(work).requires_grad_(False)
    inputs = inputs_for(work)
    reference = runner("plain", model, inputs)
    return {method: paired_ratios(runner(method, model, inputs), reference, rounds) for method in methods}


def paired_ratios(run: Callable[[], None], reference: Callable[[], None], rounds: int) -> float:
    """Median over rounds of run / reference, the two one after the other, in turn first."""
    run()
    reference()
    ratios = []
    gc.disable()
    for number in range(rounds):
        pair = (run, reference) if number % 2 else (reference, run)
        times = [seconds(one) for one in pair]
        own, other = times if number % 2 else times[::-1]
        ratios.append(own / other)
    gc.enable()
    gc.collect()
    return statistics.median(ratios)


def peak_memory(work: Work, method: str) -> float:
    """Megabytes that one pass adds to the peak, in this process."""
    model = build(work).requires_grad_(False)
    inputs = inputs_for(work)
    small = {name: value[:, :8] for name, value in inputs.items()}
    runner(method, model, small)()  # libraries loaded, thread pools made
    return added_memory(runner(method, model, inputs))


def added_memory(run: Callable[[], None]) -> float:
    """Megabytes that it adds to the peak of what this process has resident."""
    gc.collect()
    before = _resident()
    _reset_peak()
    run()
    return (_peak() - before) / 2**20


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _peak() -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def memory(work: Work, method: str) -> float:
    """`peak_memory` in a fresh process."""
    command = [sys.executable, __file__, "--peak", json.dumps([work.name, work.tokens, method])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory_ratio(work: Work, method: str) -> float:
    """Peak of the method over the peak of the plain pass."""
    return memory(work, method) / memory(work, "plain")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="lrp_ah_ln only, fewer rounds, no memory")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.peak:
        name, tokens, method = json.loads(args.peak)
        print(peak_memory(Work(name, tokens), method))
        return
    methods = ("lrp_ah_ln",) if args.quick else METHODS
    print(f"{'work':<14}{'tokens':>7}  {'method':<20}{'time':>7}{'peak':>7}   (plain forward + backward = 1)")
    for work in WORKS:
        ratios = time_ratios(work, methods, 5 if args.quick else args.rounds)
        for method, ratio in ratios.items():
            peak = "" if args.quick else f"{memory_ratio(work, method):7.2f}"
            print(f"{work.name:<14}{work.tokens:>7}  {method:<20}{ratio:7.2f}{peak}", flush=True)


if __name__ == "__main__":
    main()
