"""Which heads of a model are syntactic, and which positional, by where they look in parsed sentences ([Song24])."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from relprop.errors import InputError
from relprop.heads.alignment import Aligned, align, limit_of
from relprop.heads.attention_maps import attention_maps, batches, inputs_of, tracked
from relprop.heads.head_counts import XI_POS, XI_SYNT, Heads
from relprop.heads.tally import Tally, Variant, count
from relprop.heads.treebank import RELATIONS, SAMPLE, Sentence, read_conllu, relation_offsets


def identify(
    model: nn.Module,
    tokenizer: Any,
    sentences: Sequence[Sentence] | None = None,
    *,
    relations: Sequence[str] = RELATIONS,
    xi_pos: float = XI_POS,
    xi_synt: float = XI_SYNT,
    variant: Variant = "paper",
    name: str | None = None,
    corpus: str | None = None,
    progress: bool | None = None,
) -> Heads:
    """Count where the model's heads look in parsed sentences, and judge by the thresholds.

    `sentences`: from `read_conllu` or `parsed`; None takes the sample of UD English EWT that comes with relprop.
    `variant="released"` counts as [Song24]'s code does: from dependent to governor only, words matched by spelling,
    special tokens as rows and as keys, offset 0 as an offset. `name` and `corpus` are for the record.
    """
    _check(relations, xi_pos, xi_synt, variant)
    corpus = corpus or ("the sample of UD English EWT" if sentences is None else "sentences of the caller")
    given = read_conllu(SAMPLE) if sentences is None else list(sentences)
    read, rows = _readable(model, tokenizer, given)
    tally = _counted(model, read, rows, relations, variant, progress)
    offset, offset_rows = tally.best_offset(variant)
    return Heads(
        model=name or _name(model),
        corpus=corpus,
        sentences=len(read),
        skipped=len(given) - len(read),
        words=sum(len(sentence.words) for sentence in read),
        rows=tally.rows,
        offset=_tuples(offset),
        offset_rows=_tuples(offset_rows),
        arcs=dict(zip(relations, tally.arcs.tolist(), strict=True)),
        hits=_tuples(tally.hits),
        relation_offsets=relation_offsets(read, relations),
        xi_pos=xi_pos,
        xi_synt=xi_synt,
        variant=variant,
    )


def _check(relations: Sequence[str], xi_pos: float, xi_synt: float, variant: str) -> None:
    """Before any work."""
    if variant not in ("paper", "released"):
        raise InputError(f'variant is "paper" or "released", got "{variant}"')
    if isinstance(relations, str) or not relations:
        raise InputError(f'relations are a sequence of names, such as ("nsubj", "obj"), got {relations!r}')
    for name, value in (("xi_pos", xi_pos), ("xi_synt", xi_synt)):
        if not 0 <= value <= 1:
            raise InputError(f"{name} is a number from 0 to 1, got {value}")


def _readable(model: nn.Module, tokenizer: Any, sentences: list[Sentence]) -> tuple[list[Sentence], list[Aligned]]:
    """The sentences that the model can read whole, as it reads them. To cut one would change its parse."""
    limit = limit_of(model, tokenizer)
    pairs = [(sentence, align(tokenizer, sentence)) for sentence in sentences]
    kept = [(s, row) for s, row in pairs if row.first() and (limit is None or len(row) <= limit)]
    if not kept:
        why = f"; the model reads {limit} tokens at most" if sentences and limit else ""
        raise InputError(f"of {len(sentences)} sentences the model can read none{why}")
    return [s for s, _ in kept], [row for _, row in kept]


def _counted(
    model: nn.Module,
    sentences: Sequence[Sentence],
    rows: Sequence[Aligned],
    relations: Sequence[str],
    variant: Variant,
    progress: bool | None,
) -> Tally:
    longest = max(map(len, rows))
    total: Tally | None = None
    for batch in tracked(batches(model, rows), progress):
        some = [rows[i] for i in batch]
        maps = attention_maps(model, inputs_of(model, some))
        these = [sentences[i] for i in batch]
        tally = count(maps, some, these, relations=relations, longest=longest, variant=variant)
        total = tally if total is None else total + tally
    assert total is not None  # there is at least one sentence
    return total


def _name(model: nn.Module) -> str:
    """The hub id, the folder's own name or the class: no path of anybody's machine in a file that travels."""
    source = str(getattr(getattr(model, "config", None), "name_or_path", None) or type(model).__name__)
    return Path(source).name if Path(source).is_absolute() or Path(source).is_dir() else source


def _tuples(counts: Any) -> Any:
    return tuple(map(_tuples, counts)) if isinstance(counts, np.ndarray) else int(counts)
