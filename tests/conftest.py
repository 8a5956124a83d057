"""One thread and no network, for every test; a slice of the combinations of long ones."""

import gc
import os
from collections import Counter
from itertools import combinations, groupby
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["NUMBA_DISABLE_JIT"] = "1"  # of shap: to compile takes every process longer than its few calls here

import pytest
import torch

torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)  # before the tests that are marked slow are left out
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Of a test marked `sliced`, all but a slice of its combinations are slow."""
    for _, group in groupby(items, key=lambda item: getattr(item, "originalname", None) and item.function):
        own = list(group)
        mark = own[0].get_closest_marker("sliced")
        if mark is None:
            continue
        chosen = one_of_each(own, mark.args)
        for item in own:
            if item not in chosen:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What is imported stays, so that garbage collection need not look through it in every test."""
    gc.collect()
    gc.freeze()


def one_of_each(items: list[Any], axes: tuple[str, ...]) -> list[Any]:
    """One item per combination of values on these axes (default: the longest); other values take turns."""
    values: dict[str, list[str]] = {name: [] for name in items[0].callspec.params}
    for item in items:
        for name, value in item.callspec.params.items():
            values[name] += [repr(value)] if repr(value) not in values[name] else []
    axes = axes or (max(values, key=lambda name: len(values[name])),)

    def place(item: Any) -> dict[str, int]:
        return {name: own.index(repr(item.callspec.params[name])) for name, own in values.items()}

    by_axes: dict[tuple[int, ...], list[Any]] = {}
    for item in items:
        by_axes.setdefault(tuple(place(item)[name] for name in axes), []).append(item)
    used: Counter[Any] = Counter()
    chosen = []
    for group in by_axes.values():
        best = min(group, key=lambda item: sum(used[one] for one in pairs(place(item))))
        used.update(pairs(place(best)))
        chosen.append(best)
    return chosen


def pairs(places: dict[str, int]) -> list[Any]:
    """The values, and all pairs of them."""
    return [*places.items(), *combinations(places.items(), 2)]
