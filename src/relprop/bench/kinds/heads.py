"""Which heads of a model are syntactic or positional, and how far apart related words stand: [Song24] figures 1, 5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relprop.bench.kinds.batches import texts_of
from relprop.bench.kinds.kind import Job
from relprop.bench.measured import Measured
from relprop.bench.suites import Suite, Task
from relprop.errors import InputError, unknown_name
from relprop.heads import SAMPLE, Sentence, identify, read_conllu
from relprop.heads.treebank import offset_shares

_OPTIONS = ("treebank", "limit", "xi_pos", "xi_synt")
_TRIED = 5  # sentences of a check


@dataclass(frozen=True)
class Corpus:
    """Parsed sentences: the one thing that a cell looks at."""

    name: str
    sentences: tuple[Sentence, ...]


def examples(suite: Suite, task: Task, folder: Path | None) -> Sequence[Corpus]:
    """The treebank that the task's options name, under the folder of the data; without one, relprop's own sample."""
    for option in task.options:
        if option not in _OPTIONS:
            raise unknown_name("option of heads", option, _OPTIONS)
    given = task.options.get("treebank")
    if given is not None and folder is None:
        raise InputError(f'the treebank "{given}" is a file: name the folder that holds it with --data')
    sentences = read_conllu(SAMPLE if folder is None or given is None else folder / given)
    name = "the sample of UD English EWT" if given is None else Path(given).name
    limit = task.options.get("limit")
    if limit is not None and limit < 1:
        raise InputError(f'"limit" must be at least 1, got {limit}')
    if limit is not None and limit < len(sentences):
        sentences, name = sentences[:limit], f"{name}, its first {limit:,}"
    return [Corpus(name, tuple(sentences))]


def check(job: Job) -> None:
    """A few sentences through the model."""
    few = [replace(corpus, sentences=corpus.sentences[:_TRIED]) for corpus in job.examples]
    measure(replace(job, examples=few))


def measure(job: Job) -> Measured:
    return Measured(list(job.places), exhibits=[_exhibit(job, corpus) for corpus in job.examples])


def _exhibit(job: Job, corpus: Corpus) -> dict[str, Any]:
    """Offsets are named, as JSON knows no numbers for names."""
    texts = texts_of(job)
    thresholds = {name: job.task.options[name] for name in ("xi_pos", "xi_synt") if name in job.task.options}
    found = identify(
        texts.model, texts.tokenizer, corpus.sentences, name=job.task.model, corpus=corpus.name, progress=False,
        **thresholds,
    )  # fmt: skip
    return {
        "kind": "heads",
        "model": found.model,
        "corpus": found.corpus,
        "sentences": found.sentences,
        "xi_pos": found.xi_pos,
        "xi_synt": found.xi_synt,
        "kinds": found.kinds(),
        "offsets": {
            relation: {str(offset): share for offset, share in offset_shares(counts).items()}
            for relation, counts in found.relation_offsets.items()
        },
    }
