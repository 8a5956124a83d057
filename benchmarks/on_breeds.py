"""Is it the method or the question? One trunk, asked for the species, of 2, and for the breed, of 37.

The embedded model learned breeds too, by a second head that its training checkpoint still has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

import relprop
from on_pets import IOU, OURS, POSITIVE, Pet, draw, perturbation, segmentation
from pets import SPECIES, PetStudent
from picture_maps import chunks, logits
from reporting import Statistic, less
from vision import save_model


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


def draw_both(heads: Heads, data: Path, limit: int, seed: int) -> list[Pet]:
    """Of so many test pictures whose breed is predicted rightly, those whose species is too."""
    pets = draw(heads.breeds, data, limit, seed).pets
    species = torch.cat([logits(heads.species, [pet.example.image for pet in part]) for part in chunks(pets)]).argmax(1)
    return [pet for pet, guess in zip(pets, species.tolist(), strict=True) if pet.species == guess]


def by_head(heads: Heads, pets: Sequence[Pet], specs: Sequence[str]) -> dict[str, dict[str, Statistic]]:
    """Tables 1 and 2 on the same pictures, for both heads."""
    found: dict[str, dict[str, Statistic]] = {spec: {} for spec in specs}
    for measure, column in ((segmentation, IOU), (perturbation, POSITIVE)):
        two, many = (measure(head, pets, specs) for head in heads)
        for spec in specs:
            one, other = two[spec][column], many[spec][column]
            found[spec] |= {f"{column}, {len(SPECIES)} species": one, f"{column}, 37 breeds": other}
            if OURS in specs and spec != OURS:
                found[spec][f"breeds, less that of `{OURS}` in {column}"] = less(other, many[OURS][column])
    return found
