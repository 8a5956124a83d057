"""What perturbation evaluation costs: its time over that of the model alone, and ten methods' over one's.

    python benchmarks/evaluation.py [--data ../shared/data] [--rounds 9] [--threads 1]

All six metrics. The ideal is what cannot be saved: the distinct inputs that were asked, as tensors, sorted by length,
in full batches, through the model. The second ratio is that of ten sets of scores together to the same ten one by one,
times ten. Random scores share the least; those of ten methods agree here and there. Runs are paired, the median is
given. Texts are made up, or with `--data` the first of SST-2's dev set.
"""

from __future__ import annotations

import argparse
import gzip
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import relprop
from cost import paired_ratios, void
from relprop.metrics import Tokens, faithfulness

BATCH = 32
IDEAL, TEN = 1.15, 10.0
TEN_METHODS = (
    "random",
    "attention_last",
    "rollout",
    "gae",
    "grad_cam",
    "gradient_x_input",
    "lrp_ah",
    "lrp_ah_ln",
    "lrp_conservative",
    "attn_lrp",
)
WORDS = (
    *("a", "the", "this", "it", "film", "movie", "story", "plot", "cast", "script", "and", "but", "of", "with", "is"),
    *(
        "never",
        "not",
        "too",
        "so",
        "good",
        "bad",
        "great",
        "dull",
        "witty",
        "gorgeous",
        "lifeless",
        "funny",
        "charming",
    ),
    *("boring", "clever", "long", "sweet", "empty", "moving", "tired", "honest", "fresh", "flat", ",", ".", "!"),
)

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Work:
    name: str
    texts: int
    for_ten: int  # texts that ten sets of scores are evaluated on: it takes ten times as long


WORKS = (Work("sentiment", 16, 4), Work("minilm-6x384", 8, 2))


def build(name: str) -> Any:
    """The embedded model, where what is not the model weighs most; or a random one, as fast as a trained one."""
    if name == "sentiment":
        return relprop.Explainer(name).model
    torch.manual_seed(0)
    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    return BertForSequenceClassification(config).eval()


def sentences(count: int, data: Path | None = None) -> list[str]:
    """2 to 40 words each, as SST-2 has them."""
    if data:
        with gzip.open(data / "sst2-glue" / "dev.tsv.gz", "rt") as file:
            return [line.split("\t")[0] for line in file][1 : count + 1]
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 40))) for _ in range(count)]


def tokens_of(texts: list[str], *, left_out: bool = False) -> Tokens:
    """As the embedded model's tokenizer has them: the larger model knows these ids too."""
    explainer = relprop.Explainer("sentiment")
    inputs = explainer.inputs(texts)
    content = ~torch.isin(inputs["input_ids"], torch.tensor(explainer.tokenizer.all_special_ids))
    return Tokens(inputs, content, None if left_out else explainer.tokenizer.mask_token_id)


def random_scores(tokens: Tokens, sets: int) -> list[Tensor]:
    return [torch.randn(tokens.content.shape, generator=torch.Generator().manual_seed(seed)) for seed in range(sets)]


def scores_of_methods(model: nn.Module, tokens: Tokens) -> list[Tensor]:
    return [relprop.attribute(model, dict(tokens.inputs), method=name).scores for name in TEN_METHODS]


def asked(model: nn.Module, run: Callable[[], object]) -> list[Batch]:
    """What a run asks of the model, call by call."""
    calls: list[Batch] = []

    def note(_: nn.Module, __: Any, inputs: dict[str, Any]) -> None:
        calls.append({name: value for name, value in inputs.items() if isinstance(value, Tensor)})

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        run()
    finally:
        hook.remove()
    return calls


def ideal(calls: Sequence[Batch], batch_size: int = BATCH) -> list[Batch]:
    """The distinct inputs of these calls, sorted by length, in full batches; padded with 0, as they came."""
    distinct = {tuple(row["input_ids"].tolist()): row for call in calls for row in _rows(call)}
    rows = sorted(distinct.values(), key=lambda row: len(row["input_ids"]))
    return [_batch(rows[start : start + batch_size]) for start in range(0, len(rows), batch_size)]


def _rows(call: Batch) -> Iterator[Batch]:
    """One input at a time, without padding."""
    for i, real in enumerate(call["attention_mask"].bool()):
        yield {name: values[i, real] for name, values in call.items()}


def _batch(rows: list[Batch]) -> Batch:
    return {name: nn.utils.rnn.pad_sequence([row[name] for row in rows], batch_first=True) for name in rows[0]}


@torch.no_grad()
def forwards(model: nn.Module, batches: list[Batch]) -> None:
    for batch in batches:
        model(**batch)


def to_ideal(model: nn.Module, tokens: Tokens, scores: list[Tensor], rounds: int) -> tuple[int, float]:
    """How many distinct inputs these scores ask for, and the time of their evaluation over that of the inputs alone."""
    run = lambda: void(faithfulness(model, tokens, scores, batch_size=BATCH))  # noqa: E731
    batches = ideal(asked(model, run))
    count = sum(len(batch["input_ids"]) for batch in batches)
    return count, paired_ratios(run, lambda: forwards(model, batches), rounds)


def to_one(model: nn.Module, tokens: Tokens, scores: list[Tensor], rounds: int) -> float:
    """The time of all sets together, in units of the mean time of one alone."""

    def alone() -> None:
        for one in scores:
            faithfulness(model, tokens, [one], batch_size=BATCH)

    return len(scores) * paired_ratios(
        lambda: void(faithfulness(model, tokens, scores, batch_size=BATCH)), alone, rounds
    )


def report(model: str, scores: str, count: int, own: float, ten: float | None = None) -> None:
    good = own <= IDEAL and (ten is None or ten < TEN)
    times = "" if ten is None else f"{ten:.2f}"
    print(f"{model:<15}{scores:<22}{count:>7}{own:>9.3f}{times:>10}   {'ok' if good else 'MISSED'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with sst2-glue")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(
        f"{'model':<15}{'scores':<22}{'inputs':>7}{'/ ideal':>9}{'10 / one':>10}   (at most {IDEAL}, below {TEN:.0f})"
    )
    for work in WORKS:
        model, texts = build(work.name).requires_grad_(False), sentences(work.texts, args.data)
        for name, tokens in (("replaced", tokens_of(texts)), ("left out", tokens_of(texts, left_out=True))):
            one = random_scores(tokens, 1)
            report(work.name, f"1 random, {name}", *to_ideal(model, tokens, one, args.rounds))
        tokens = tokens_of(texts[: work.for_ten])
        for name, sets in (("10 random", random_scores(tokens, 10)), ("10 methods", scores_of_methods(model, tokens))):
            count, own = to_ideal(model, tokens, sets, args.rounds)
            report(work.name, name, count, own, to_one(model, tokens, sets, args.rounds))


if __name__ == "__main__":
    main()
