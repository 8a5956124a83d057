"""What long inputs cost: a Llama of 12 x 768 as its input grows, with and without checkpointing; maps at 2,048 tokens.

    python benchmarks/long_context.py [--tokens N ...] [--checkpoint] [--maps] [--quick]

Peak memory is what one explanation adds to the resident set of a fresh process that has loaded the model, with glibc
told to give back what is freed (MALLOC_MMAP_THRESHOLD_); growth is over the first length. Time is a ratio to a plain
forward and backward pass to the embeddings, with frozen parameters and fused attention, that keeps the last logits
only, as relprop does; the two are run in turn, and the median is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

import relprop.methods  # fills the registry
from cost import added_memory, paired_ratios, void
from relprop.registry import METHODS

TOKENS = (1024, 2048, 4096, 8192)
LONGEST = 16384  # with checkpointing
TIMED = 4096
MOST_GROWTH, MOST_TIME = 8.5, 1.05  # required of lrp_ah_ln from 1,024 to 8,192 tokens, and at 4,096
KEPT = 2**20  # bytes from which on glibc asks the system for each piece of memory, and gives it back when it is freed
ROWS = ("plain", "gradient_x_input", "lrp_ah_ln", "lrp_conservative")
# The two left out need far more of other things: vectors of all pairs of tokens, and a graph of all maps.
BY_MAPS = tuple(record.name for record in METHODS if record.maps and record.name not in ("alti", "attention_flow"))


def llama() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=2048,
        vocab_size=32000,
        max_position_embeddings=LONGEST,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def bert() -> Any:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        max_position_embeddings=2048,
        attn_implementation="sdpa",
    )
    return BertForSequenceClassification(config).eval().requires_grad_(False)


def inputs_of(tokens: int) -> dict[str, Tensor]:
    ids = torch.randint(5, 1000, (1, tokens), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def plain(model: Any, inputs: dict[str, Tensor], rows: int = 1) -> None:
    """Forward and backward to the embedded input, the logits of the last rows (0: of all) kept."""
    embedded = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    language = {"use_cache": False, "logits_to_keep": rows} if hasattr(model, "lm_head") else {}
    logits = model(inputs_embeds=embedded, attention_mask=inputs["attention_mask"], **language).logits
    torch.autograd.grad(logits.flatten(0, -2)[-1, 1], embedded)


def runner(row: str, model: Any, inputs: dict[str, Tensor]) -> Callable[[], None]:
    method, _, checkpoint = row.partition(", ")
    if method == "plain":
        return partial(plain, model, inputs, rows=0 if checkpoint else 1)
    options = {"checkpoint": True} if checkpoint else {}
    return lambda: void(relprop.attribute(model, inputs, 1, method, **options))


def peak(row: str, tokens: int, build: Callable[[], Any]) -> float:
    """Megabytes, in this process."""
    model, inputs = build(), inputs_of(tokens)
    small = {name: value[:, :8] for name, value in inputs.items()}
    runner(row, model, small)()  # libraries loaded, thread pools made
    return added_memory(runner(row, model, inputs))


def memory(row: str, tokens: int, model: str = "llama") -> float:
    """`peak` in a fresh process."""
    command = [sys.executable, __file__, "--peak", json.dumps([row, tokens, model])]
    threads = str(torch.get_num_threads())
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(KEPT), "OMP_NUM_THREADS": threads}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def verdict(value: float, bound: float) -> str:
    return f"   at most {bound}: {'ok' if value <= bound else 'MISSED'}"


def show_memory(rows: tuple[str, ...], lengths: list[int]) -> None:
    print(f"{'peak memory, MB':<32}" + "".join(f"{tokens:>9,}" for tokens in lengths) + "   growth")
    for row in rows:
        found = []
        print(f"{row:<32}", end="", flush=True)
        for tokens in lengths:
            found.append(memory(row, tokens))
            print(f"{found[-1]:9.0f}", end="", flush=True)
        growth = found[-1] / found[0]
        bounded = row == "lrp_ah_ln" and (lengths[0], lengths[-1]) == (TOKENS[0], TOKENS[-1])
        print(f"{growth:9.2f}" + (verdict(growth, MOST_GROWTH) if bounded else ""), flush=True)


def show_time(tokens: int, rounds: int) -> None:
    model, inputs = llama(), inputs_of(tokens)
    reference = runner("plain", model, inputs)
    print(f"\n{f'time at {tokens:,} tokens / plain':<32}{'ratio':>9}")
    for row in ("lrp_ah_ln", "gradient_x_input", "plain, all logits", "lrp_ah_ln, checkpoint"):
        ratio = paired_ratios(runner(row, model, inputs), reference, rounds)
        print(f"{row:<32}{ratio:9.2f}" + (verdict(ratio, MOST_TIME) if row == "lrp_ah_ln" else ""), flush=True)


def show_maps(tokens: int) -> None:
    one = 6 * tokens * tokens * 4 / 2**20
    print(
        f"\nBERT 6 x 384, 6 heads, {tokens:,} tokens: one block's maps are {one:.0f} MB\n{'peak memory':<32}{'MB':>9}"
    )
    for row in ("plain", "lrp_ah_ln", "lrp", *BY_MAPS):
        print(f"{row:<32}{memory(row, tokens, 'bert'):9.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", help="lengths for peak memory, and nothing else")
    parser.add_argument("--checkpoint", action="store_true", help="lrp_ah_ln with checkpointing only")
    parser.add_argument("--time", action="store_true", help="time only")
    parser.add_argument("--maps", action="store_true", help="methods on attention maps only")
    parser.add_argument("--quick", action="store_true", help="1,024 and 2,048 tokens only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.peak:
        row, tokens, model = json.loads(args.peak)
        print(peak(row, tokens, {"llama": llama, "bert": bert}[model]))
        return
    if args.maps:
        show_maps(1024 if args.quick else 2048)
        return
    if args.time:
        show_time(1024 if args.quick else TIMED, args.rounds)
        return
    lengths = args.tokens or [tokens for tokens in TOKENS if tokens <= (2048 if args.quick else LONGEST)]
    if not args.checkpoint:
        show_memory(ROWS, lengths)
    show_memory(("lrp_ah_ln, checkpoint",), lengths if args.tokens or args.quick else [*lengths, LONGEST])
    if not (args.tokens or args.checkpoint):
        show_time(1024 if args.quick else TIMED, args.rounds)
        show_maps(1024 if args.quick else 2048)


if __name__ == "__main__":
    main()
