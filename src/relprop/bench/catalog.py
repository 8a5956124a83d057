"""The datasets and recipes that suites may name: those shipped with relprop and those in the suite's file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from relprop.bench.datasets import Dataset
from relprop.bench.recipes import (
    ABOUT,
    ModelFacts,
    Recipe,
    TrainingProgress,
    model_folder,
    pretrained_source,
    train_model,
)
from relprop.bench.settings import validated
from relprop.errors import InputError, unknown_name

_FILE = Path(__file__).parent / "catalog.toml"
_STARTS_FROM = "recipe:"
T = TypeVar("T")


@dataclass(frozen=True)
class Catalog:
    """Datasets and recipes by name."""

    data: Mapping[str, Dataset]
    recipes: Mapping[str, Recipe]

    def dataset(self, name: str) -> Dataset:
        if name not in self.data:
            raise unknown_name("dataset", name, self.data)
        return self.data[name]

    def recipe(self, name: str) -> Recipe:
        """A recipe by name; "NAME@1" is the same recipe with seed 1, another model of the same kind."""
        base, _, seed = name.partition("@")
        if base not in self.recipes:
            raise unknown_name("recipe", base, self.recipes)
        if base == name:
            return self.recipes[name]
        if not seed.isdecimal():
            raise InputError(f'a recipe\'s seed is a whole number, as in "{base}@1"; got "{name}"')
        return replace(self.recipes[base], name=name, seed=int(seed))

    def train(
        self, name: str, folder: Path | None, progress: TrainingProgress | None = None
    ) -> tuple[Path, ModelFacts]:
        """Train a recipe's model after those that it starts from; its folder and facts."""
        where, chain = self._chain(name)
        for recipe in chain:
            path, about = train_model(recipe, self.dataset(recipe.data), folder, where, progress=progress)
            where = str(path)
        return path, about

    def is_trained(self, name: str, folder: Path | None) -> bool:
        """Are the recipe's model and all that it starts from trained already?"""
        where, chain = self._chain(name)
        for recipe in chain:
            path = model_folder(recipe, self.dataset(recipe.data).examples("train", folder), where)
            if not (path / ABOUT).is_file():
                return False
            where = str(path)
        return True

    def _chain(self, name: str) -> tuple[str, list[Recipe]]:
        """Where training starts, and the recipes from there to this one."""
        chain = [self.recipe(name)]
        while (start := chain[0].start).startswith(_STARTS_FROM):
            before = self.recipe(start.removeprefix(_STARTS_FROM))
            if before in chain:
                names = [one.name for one in (*reversed(chain), before)]
                raise InputError(f"recipes start from each other: {', '.join(names)}")
            chain.insert(0, before)
        return pretrained_source(start), chain


def catalog_of(tables: Mapping[str, Any], where: str) -> Catalog:
    """The `[data.NAME]` and `[recipe.NAME]` tables of a TOML file."""

    def named(kind: type[T], part: str) -> dict[str, T]:
        own = tables.get(part, {})
        if not isinstance(own, Mapping):
            raise InputError(f'"{part}" should hold tables, as in [{part}.NAME]')
        return {
            name: validated(
                kind, {**table, "name": name} if isinstance(table, Mapping) else table, f"[{part}.{name}] in {where}"
            )
            for name, table in own.items()
        }

    return Catalog(named(Dataset, "data"), named(Recipe, "recipe"))


@cache
def shipped_catalog() -> Catalog:
    """The catalog that comes with relprop."""
    return catalog_of(tomllib.loads(_FILE.read_text(encoding="utf-8")), "relprop's catalog")


def with_shipped(more: Catalog) -> Catalog:
    shipped = shipped_catalog()
    return Catalog({**shipped.data, **more.data}, {**shipped.recipes, **more.recipes})
