"""What it costs to explain a continuation: a ratio to as many plain forward and backward passes of the same lengths.

    python benchmarks/generation.py [--quick] [--rounds 3]

Plain means: frozen parameters, fused attention, the gradient of one logit of the last row (no other row's are made) to
the embedded input, over the prompt and what is written so far. `shared` is `explainer(prompt, continuation=...)` with
all it does: the passes without gradient that read probabilities and try whether the model is causal, one forward pass
for all tokens, and a way back for each. `single` is a pass for each token by `relprop.attribute`. Each is measured in
turn with the plain passes in one run, so that a busy machine slows both; the median of the ratios is printed.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import relprop
from cost import seconds, void
from relprop.targets import TokenAt

WRITTEN = 20
PROMPTS = (64, 256, 1024)
METHOD = "lrp_conservative"


def build(name: str) -> Any:
    """A random model of the given kind, 12 blocks of 768; speed does not depend on the weights."""
    torch.manual_seed(0)
    if name == "gpt2-12x768":
        return GPT2LMHeadModel(GPT2Config(n_positions=2048, attn_implementation="sdpa")).eval()
    config = LlamaConfig(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=2048, vocab_size=32000,
        max_position_embeddings=2048, attn_implementation="sdpa",
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def tokenizer_for(model: Any) -> Any:
    """A word for every token of the model."""
    vocabulary = {f"w{i}": i for i in range(model.config.vocab_size)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="w0")


def plain(model: Any, ids: Tensor, token: int) -> None:
    """Forward and backward to the embedded input."""
    embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
    mask = torch.ones_like(ids)
    logits = model(inputs_embeds=embedded, attention_mask=mask, use_cache=False, logits_to_keep=1).logits
    torch.autograd.grad(logits[0, -1, token], embedded)


def ratios(model: Any, prompt: int, rounds: int, sampled: int) -> tuple[float, float]:
    """Shared and single over plain. Of the plain and the single passes `sampled` are measured and stand for all."""
    ids = torch.randint(5, 1000, (1, prompt + WRITTEN), generator=torch.Generator().manual_seed(1))
    text = [f"w{i}" for i in ids[0].tolist()]
    explainer = relprop.Explainer(model, tokenizer_for(model))
    before, after = " ".join(text[:prompt]), " " + " ".join(text[prompt:])
    chosen = [round(k * (WRITTEN - 1) / max(1, sampled - 1)) for k in range(sampled)]

    def one_by_one(k: int) -> None:
        own = ids[:, : prompt + k]
        inputs = {"input_ids": own, "attention_mask": torch.ones_like(own)}
        void(relprop.attribute(model, inputs, TokenAt(-1, int(ids[0, prompt + k])), METHOD))

    plain(model, ids, 0)
    explainer(before, continuation=after[: after.index(" ", 1)], method=METHOD)
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        reference = single = shared = 0.0
        for number, k in enumerate(chosen):
            if number == sampled // 2:  # amid the others: a machine's busy minute then weighs on all
                shared = seconds(lambda: void(explainer(before, continuation=after, method=METHOD)))
            reference += seconds(lambda k=k: plain(model, ids[:, : prompt + k], 7)) * WRITTEN / sampled  # type: ignore[misc]
            single += seconds(lambda k=k: one_by_one(k)) * WRITTEN / sampled  # type: ignore[misc]
        found.append((shared / reference, single / reference))
    return statistics.median(one[0] for one in found), statistics.median(one[1] for one in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the shorter prompts, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--sampled", type=int, default=5, help="of the 20 plain and single passes, how many are measured"
    )
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rounds = 1 if args.quick else args.rounds
    print(f"{'model':<14}{'prompt':>7}{'shared':>9}{'single':>9}   ({WRITTEN} plain forward + backward passes = 1)")
    for name in ("llama-12x768", "gpt2-12x768"):
        model = build(name).requires_grad_(False)
        for prompt in PROMPTS[:-1] if args.quick else PROMPTS:
            shared, single = ratios(model, prompt, rounds, args.sampled)
            print(f"{name:<14}{prompt:>7}{shared:>9.2f}{single:>9.2f}", flush=True)


if __name__ == "__main__":
    main()
