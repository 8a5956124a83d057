"""Make the embedded language model: stories15m with the word pieces that its stories need, and no others.

    python training/stories.py --model ../shared/data/model-stories15m

The weights of the blocks are untouched. The pieces are counted in stories that the model itself tells, drawn at random;
those that a kept piece is merged from stay too, so that a text of kept pieces is cut as before, and any other text into
smaller ones.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

OUT = Path(__file__).parent.parent / "src" / "relprop" / "models" / "stories"
SHARD = "9MB"  # no file of the repository may have more than 10 MB
TOLD_AT_ONCE = 64
COMMONEST = 2500  # pieces are numbered by how common they are in English at large


def stories(model: Any, count: int, seed: int) -> Tensor:
    """Token ids [count, length] of stories drawn from the model, from the first token on."""
    torch.manual_seed(seed)
    begin = torch.full((TOLD_AT_ONCE, 1), model.config.bos_token_id)
    length = model.config.max_position_embeddings
    told = []
    for _ in track(range(0, count, TOLD_AT_ONCE), description="telling stories", console=Console(stderr=True)):
        found = model.generate(
            begin,
            attention_mask=torch.ones_like(begin),
            do_sample=True,
            top_k=0,
            max_length=length,
            pad_token_id=model.config.eos_token_id,
        )
        told.append(nn.functional.pad(found, (0, length - found.shape[1]), value=model.config.eos_token_id))
    return torch.cat(told)[:count]


def kept_pieces(table: dict[str, Any], counts: Counter[int], least: int) -> list[str]:
    """Special pieces, bytes, the commonest of ASCII, those that occur often enough, and all that they are made of."""
    vocabulary: dict[str, int] = table["model"]["vocab"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(table["model"]["merges"])}
    special = {entry["content"] for entry in table["added_tokens"]}
    kept = {
        piece
        for piece, number in vocabulary.items()
        if piece in special
        or piece.startswith("<0x")
        or (piece.strip("\u2581").isascii() and (len(piece) == 1 or number < COMMONEST))
        or counts[number] >= least
    }
    for piece in sorted(kept - special):
        if not piece.startswith("<0x"):
            kept |= _made_of(piece, ranks)
    return sorted(kept, key=vocabulary.__getitem__)


def _made_of(piece: str, ranks: dict[tuple[str, ...], int]) -> set[str]:
    """All pieces on the way from single characters to this one."""
    parts, met = list(piece), set(piece)
    while len(parts) > 1:
        pairs = [(ranks.get((a, b), len(ranks)), i) for i, (a, b) in enumerate(pairwise(parts))]
        rank, i = min(pairs)
        if rank == len(ranks):
            raise ValueError(f"the piece {piece!r} cannot be merged from its characters")
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        met.add(parts[i])
    return met


def shrunk_table(table: dict[str, Any], kept: list[str]) -> dict[str, Any]:
    """The tokenizer with the kept pieces only, numbered anew in the old order."""
    numbers = {piece: number for number, piece in enumerate(kept)}
    merges = [pair for pair in table["model"]["merges"] if {*pair, "".join(pair)} <= numbers.keys()]
    added = [{**entry, "id": numbers[entry["content"]]} for entry in table["added_tokens"]]
    return {**table, "added_tokens": added, "model": {**table["model"], "vocab": numbers, "merges": merges}}


def shrink(model: Any, rows: list[int]) -> None:
    """Keep these rows of the embedding, which is the output's weight too."""
    small = nn.Embedding(len(rows), model.config.hidden_size)
    small.weight = nn.Parameter(model.get_input_embeddings().weight.detach()[rows])
    model.set_input_embeddings(small)
    model.config.vocab_size = len(rows)
    model.lm_head.out_features = len(rows)
    model.tie_weights()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the folder of stories15m")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--stories", type=int, default=1024, help="how many are told to count pieces")
    parser.add_argument("--least", type=int, default=2, help="keep pieces that occur this often")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    table = json.loads((Path(given.model) / "tokenizer.json").read_text(encoding="utf-8"))
    told = stories(model, given.stories, given.seed)
    kept = kept_pieces(table, Counter(told.flatten().tolist()), given.least)
    fresh = stories(model, TOLD_AT_ONCE, given.seed + 1)
    vocabulary = table["model"]["vocab"]
    shrink(model, [vocabulary[piece] for piece in kept])
    given.out.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(given.out, max_shard_size=SHARD)
    (given.out / "tokenizer.json").write_text(
        json.dumps(shrunk_table(table, kept), ensure_ascii=False), encoding="utf-8"
    )
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "model_max_length": model.config.max_position_embeddings,
    }  # fmt: skip
    (given.out / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    config = json.loads((given.out / "config.json").read_text(encoding="utf-8"))
    (given.out / "config.json").write_text(
        json.dumps({**config, "dtype": "float32"}, indent=2) + "\n", encoding="utf-8"
    )
    report(given.model, tokenizer, given.out, fresh, len(kept))


def report(original: str, tokenizer: Any, out: Path, fresh: Tensor, count: int) -> None:
    """On stories that were not counted: how many are cut as before, and are their likeliest next pieces the same?"""
    large = AutoModelForCausalLM.from_pretrained(original, dtype=torch.float32)
    small, own = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    same = agree = total = 0
    for ids in fresh:
        text = tokenizer.decode(ids, skip_special_tokens=True)
        theirs, ours = tokenizer(text)["input_ids"], own(text)["input_ids"]
        if tokenizer.convert_ids_to_tokens(theirs) != own.convert_ids_to_tokens(ours):
            continue
        with torch.no_grad():
            likeliest = [m(torch.tensor([ids])).logits[0].argmax(-1) for m, ids in ((large, theirs), (small, ours))]
        pieces = [one.convert_ids_to_tokens(found) for one, found in zip((tokenizer, own), likeliest, strict=True)]
        same, total = same + 1, total + len(ours)
        agree += sum(a == b for a, b in zip(*pieces, strict=True))
    share = f"; {100 * agree / total:.2f} % of their {total:,} likeliest next pieces are the same" if total else ""
    print(f"{count:,} pieces; {same} of {len(fresh)} new stories are cut as before{share}")


if __name__ == "__main__":
    main()
