"""Is it the method or the question? One trunk, asked for the species, of 2, and for the breed, of 37.

The embedded model learned breeds too, by a second head that its training checkpoint still has. Tables 1 and 2 of
[Chefer21] on the same pictures for both heads, measured as the suite chefer21-pets does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch

import relprop
from pets import SPECIES, PetStudent
from picture_maps import bar, chunks, parsed
from relprop.bench.kinds import CellJob
from relprop.bench.kinds.listed_pictures import Listed
from relprop.bench.kinds.picture_data import list_pictures
from relprop.bench.kinds.pictures import PictureMaps, image_reader, load_pictures
from relprop.bench.measurements import Measurements, join_measurements
from relprop.bench.report.metric_statistics import metric_statistic
from relprop.bench.suites import Method, SuiteTask
from relprop.bootstrap import Statistic
from reporting import less
from vision import save_model

OURS = "transformer_attribution"
COLUMNS = {"mIoU": "mean_iou", "positive": "positive_auc_target"}
TASK = SuiteTask("pets", "pets", kind="pictures", explain="label", options={"pets": "oxford-pets"})


class Heads(NamedTuple):
    species: relprop.Explainer
    breeds: relprop.Explainer


def two_heads(checkpoint: Path) -> Heads:
    """The student's trunk with either head, its weights rounded as those of the embedded model are."""
    student = PetStudent()
    student.load_state_dict(torch.load(checkpoint, weights_only=True)["slow"])
    with TemporaryDirectory() as name:
        save_model(student.vit, Path(name) / "species")
        student.vit.classifier = student.breeds
        student.vit.config.num_labels = student.breeds.out_features
        save_model(student.vit, Path(name) / "breeds")
        return Heads(*(relprop.Explainer(Path(name) / head) for head in Heads._fields))


def draw_both(heads: Heads, data: Path, limit: int, seed: int) -> list[Listed]:
    """Of so many test pictures whose breed is predicted rightly, in random order, those whose species is too."""
    every = list_pictures(TASK, data)
    breed_right: list[Listed] = []
    for part in chunks([every[i] for i in np.random.default_rng(seed).permutation(len(every))]):
        breed_right += right(heads.breeds, part)
        if len(breed_right) >= limit:
            break
    return [one for part in chunks(breed_right[:limit]) for one in right(heads.species, part)]


def right(explainer: relprop.Explainer, pets: Sequence[Listed]) -> list[Listed]:
    """Those that are predicted rightly."""
    loaded = load_pictures(image_reader(_job(explainer, pets, ())), pets, explainer.labels)
    with torch.no_grad():
        guesses = explainer.model(loaded.prepare(loaded.pixels)).logits.argmax(1).tolist()
    assert loaded.labels is not None
    return [one for one, own, guess in zip(pets, loaded.labels[:, 0], guesses, strict=True) if own == guess]


def by_head(heads: Heads, pets: Sequence[Listed], specs: Sequence[str]) -> dict[str, dict[str, Statistic]]:
    """In percent, by method."""
    two, many = (measured(head, pets, specs) for head in heads)
    found: dict[str, dict[str, Statistic]] = {spec: {} for spec in specs}
    for column, metric in COLUMNS.items():
        for spec in specs:
            one, other = (_percent(head, spec, metric) for head in (two, many))
            found[spec] |= {f"{column}, {len(SPECIES)} species": one, f"{column}, 37 breeds": other}
            if OURS in specs and spec != OURS:
                found[spec][f"breeds, less that of `{OURS}` in {column}"] = less(other, _percent(many, OURS, metric))
    return found


def measured(explainer: relprop.Explainer, pets: Sequence[Listed], specs: Sequence[str]) -> Measurements:
    parts = bar(chunks(pets), f"{len(explainer.labels)} classes")
    return join_measurements([PictureMaps().measure(_job(explainer, part, specs)) for part in parts])


def _percent(found: Measurements, spec: str, metric: str) -> Statistic:
    statistic = metric_statistic(metric, found.scores[spec])
    assert statistic is not None
    return lambda weights: 100 * statistic(weights)


def _job(explainer: relprop.Explainer, pets: Sequence[Listed], specs: Sequence[str]) -> CellJob:
    methods = tuple(Method(*parsed(spec), label=spec) for spec in specs)
    return CellJob(TASK, methods, tuple(COLUMNS.values()), 0, explainer, pets, range(len(pets)), shown=0)
