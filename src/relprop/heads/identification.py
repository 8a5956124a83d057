"""Which heads of a model are syntactic or positional, by their attention in parsed sentences ([Song24])."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from torch import nn

from relprop.engine.wrappers import check_model
from relprop.errors import InputError
from relprop.heads.alignment import AlignedSentence, align, token_limit
from relprop.heads.attention_counts import AttentionCounts, Variant, count_attention
from relprop.heads.attention_maps import attention_maps, batch_inputs, equal_length_batches
from relprop.heads.head_counts import XI_POS, XI_SYNT, Heads, check_thresholds, nested_tuples
from relprop.heads.treebank import RELATIONS, SAMPLE, Sentence, read_conllu, relation_offsets
from relprop.model_config import model_name
from relprop.progress import tracked

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def identify(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
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
    """Counts of what the model's heads attend to in parsed sentences, with the thresholds that make them syntactic.

    `sentences` come from `read_conllu` or `parse_texts`; None takes the sample of UD English EWT that ships with
    relprop. `variant="released"` counts as [Song24]'s code does: from dependent to governor only, words matched by
    spelling, special tokens as rows and as keys, offset 0 as an offset. `name` and `corpus` are kept in the result.
    """
    if variant not in ("paper", "released"):
        raise InputError(f'variant is "paper" or "released", got "{variant}"')
    if isinstance(relations, str) or not relations:
        raise InputError(f'relations are a sequence of names, such as ("nsubj", "obj"), got {relations!r}')
    check_thresholds(xi_pos, xi_synt)
    model = check_model(model)
    corpus = corpus or ("the sample of UD English EWT" if sentences is None else "sentences of the caller")
    given = read_conllu(SAMPLE) if sentences is None else list(sentences)
    read, rows = _readable(model, tokenizer, given)
    counts = _corpus_counts(model, read, rows, relations, variant, progress)
    offset, offset_rows = counts.best_offset(variant)
    return Heads(
        model=name or model_name(model),
        corpus=corpus,
        sentences=len(read),
        skipped=len(given) - len(read),
        words=sum(len(sentence.words) for sentence in read),
        rows=counts.rows,
        offset=nested_tuples(offset.tolist()),
        offset_rows=nested_tuples(offset_rows.tolist()),
        arcs=dict(zip(relations, counts.arcs.tolist(), strict=True)),
        hits=nested_tuples(counts.hits.tolist()),
        relation_offsets=relation_offsets(read, relations),
        xi_pos=xi_pos,
        xi_synt=xi_synt,
        variant=variant,
    )


def _readable(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, sentences: list[Sentence]
) -> tuple[list[Sentence], list[AlignedSentence]]:
    """The sentences that the model can read whole, and their tokens. Cutting one would change its parse."""
    limit = token_limit(model, tokenizer)
    pairs = [(sentence, align(tokenizer, sentence)) for sentence in sentences]
    kept = [(s, row) for s, row in pairs if row.first_tokens() and (limit is None or len(row) <= limit)]
    if not kept:
        why = f"; the model reads {limit} tokens at most" if sentences and limit else ""
        raise InputError(f"the model can read none of the {len(sentences)} sentences{why}")
    return [s for s, _ in kept], [row for _, row in kept]


def _corpus_counts(
    model: nn.Module,
    sentences: Sequence[Sentence],
    rows: Sequence[AlignedSentence],
    relations: Sequence[str],
    variant: Variant,
    progress: bool | None,
) -> AttentionCounts:
    def counts(batch: list[int]) -> AttentionCounts:
        some, parses = [rows[i] for i in batch], [sentences[i] for i in batch]
        maps = attention_maps(model, batch_inputs(model, some))
        return count_attention(maps, some, parses, relations=relations, longest=longest, variant=variant)

    longest = max(map(len, rows))
    return reduce(add, map(counts, tracked(equal_length_batches(model, rows), "attending", progress)))
