"""Which heads of a model are syntactic or positional, and how far apart related words stand: [Song24] Figures 1, 5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relprop.bench.catalog import Catalog
from relprop.bench.kinds.batches import text_reader
from relprop.bench.kinds.task_kind import CellJob, TaskKind
from relprop.bench.measurements import Exhibit, Measurements
from relprop.bench.suites import SuiteTask
from relprop.errors import InputError
from relprop.heads import SAMPLE, Sentence, identify, read_conllu
from relprop.heads.treebank import offset_shares

_CHECKED = 5  # sentences of a check


@dataclass(frozen=True)
class Corpus:
    """Parsed sentences: the single example of a cell."""

    name: str
    sentences: tuple[Sentence, ...]


class HeadKinds(TaskKind):
    options = ("treebank", "limit", "xi_pos", "xi_synt")

    def examples(self, catalog: Catalog, task: SuiteTask, folder: Path | None) -> Sequence[Corpus]:
        """The treebank named in the task's options, in the folder of the data; by default relprop's own sample."""
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

    def check(self, job: CellJob) -> None:
        few = [replace(corpus, sentences=corpus.sentences[:_CHECKED]) for corpus in job.examples]
        super().check(replace(job, examples=few))

    def measure(self, job: CellJob) -> Measurements:
        return Measurements(list(job.places), exhibits=[_exhibit(job, corpus) for corpus in job.examples])


def _exhibit(job: CellJob, corpus: Corpus) -> Exhibit:
    """Offsets become texts, as the keys of JSON objects are texts."""
    reader = text_reader(job)
    thresholds = {name: job.task.options[name] for name in ("xi_pos", "xi_synt") if name in job.task.options}
    found = identify(
        reader.model, reader.tokenizer, corpus.sentences, name=job.task.model, corpus=corpus.name, progress=False,
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
