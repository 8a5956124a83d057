"""What suites may name: datasets and recipes, relprop's own and those of the suite's file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from relprop.bench.datasets import Data
from relprop.bench.recipes import ABOUT, Recipe, Said, folder_of, start_folder, trained
from relprop.bench.tables import built
from relprop.errors import InputError, unknown_name

_FILE = Path(__file__).parent / "catalog.toml"
_STARTS_FROM = "recipe:"


@dataclass(frozen=True)
class Catalog:
    """Datasets and recipes by name."""

    data: Mapping[str, Data]
    recipes: Mapping[str, Recipe]

    def dataset(self, name: str) -> Data:
        if name not in self.data:
            raise unknown_name("dataset", name, self.data)
        return self.data[name]

    def recipe(self, name: str) -> Recipe:
        if name not in self.recipes:
            raise unknown_name("recipe", name, self.recipes)
        return self.recipes[name]

    def train(self, name: str, folder: Path | None, said: Said | None = None) -> tuple[Path, dict[str, Any]]:
        """A recipe's model, after those that it starts from."""
        where, chain = self._chain(name)
        for recipe in chain:
            path, about = trained(recipe, self.dataset(recipe.data), folder, where, said=said)
            where = str(path)
        return path, about

    def is_trained(self, name: str, folder: Path | None) -> bool:
        """Was the recipe's model, and all that it starts from, trained before?"""
        where, chain = self._chain(name)
        for recipe in chain:
            path = folder_of(recipe, self.dataset(recipe.data).examples("train", folder), where)
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
        return start_folder(start), chain


def catalog_of(tables: Mapping[str, Any], where: str) -> Catalog:
    """The `[data.NAME]` and `[recipe.NAME]` tables of a TOML file."""
    return Catalog(
        {name: built(Data, table, f"[data.{name}] in {where}", name=name) for name, table in _part(tables, "data")},
        {
            name: built(Recipe, table, f"[recipe.{name}] in {where}", name=name)
            for name, table in _part(tables, "recipe")
        },
    )


def _part(tables: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    part = tables.get(name, {})
    if not isinstance(part, Mapping):
        raise InputError(f'"{name}" should hold tables, as in [{name}.NAME]')
    return list(part.items())


@cache
def own_catalog() -> Catalog:
    """The one that comes with relprop."""
    return catalog_of(tomllib.loads(_FILE.read_text(encoding="utf-8")), "relprop's catalog")


def with_own(more: Catalog) -> Catalog:
    own = own_catalog()
    return Catalog({**own.data, **more.data}, {**own.recipes, **more.recipes})
