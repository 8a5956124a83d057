"""What a folder's weight files hold, told by their headers alone, and a limit to what a config may ask for.

A config is a few lines of text that can ask for any amount of memory; the weights that a model needs must all be in its
files. So whatever is larger than these allow is refused before it is made.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.overrides import TorchFunctionMode

from relprop.errors import ModelError

_HEADER = 10_000_000  # bytes: names and shapes of 80,000 tensors
_TEXT = 4_000_000  # bytes that any text file beside the weights may have ...
_TEXT_PER_ROW = 1_000  # ... and for each row of the largest table: a token, its merges, a label
_ASIDE = 32_000_000  # numbers that a model may make and not store: masks, tables of sines
_COUNTS = re.compile("layer|depth|label")  # settings that configs count up to, in lists and tables of names
_ANY_COUNT = 10_000  # is no burden, whatever the weights
_TEXTS = ("*.json", "*.txt", "*.model", "*.jinja")
_FACTORIES = {
    *(torch.arange, torch.empty, torch.empty_strided, torch.eye, torch.full, torch.linspace, torch.logspace),
    *(torch.ones, torch.rand, torch.randint, torch.randn, torch.randperm, torch.tensor, torch.zeros),
}


@dataclass(frozen=True)
class StoredWeights:
    """The sizes of all tensors of a model's files."""

    tensors: int
    numbers: int  # a byte of whole numbers may hold up to eight packed ones
    longest: int  # the largest dimension
    whole: frozenset[str]  # names of the tensors of whole numbers or truth values

    def __add__(self, other: StoredWeights) -> StoredWeights:
        """What two models' files hold together."""
        return StoredWeights(
            tensors=self.tensors + other.tensors,
            numbers=self.numbers + other.numbers,
            longest=max(self.longest, other.longest),
            whole=self.whole | other.whole,
        )


def read_json(path: Path) -> Any:
    """What a JSON file holds. Raises with the reason."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ModelError(f'"{path}" is not JSON that can be read: {reason}') from None


def check_texts(folder: Path, stored: StoredWeights) -> None:
    """Raise if a file of settings or tokens is too large to be one of this model's."""
    most = _TEXT + _TEXT_PER_ROW * stored.longest
    for path in sorted(path for pattern in _TEXTS for path in folder.glob(pattern)):
        if path.is_file() and path.stat().st_size > most:
            raise ModelError(
                f'"{path}" has {path.stat().st_size:,} bytes: too many for a model whose largest table has '
                f"{stored.longest:,} rows"
            )


def check_counts(folder: Path, config: Mapping[str, Any], stored: StoredWeights) -> None:
    """Raise if a config, or one inside it, counts more layers or labels than the weight files can hold."""
    most = max(_ANY_COUNT, stored.tensors, stored.longest)
    for name, count in _counts(config):
        if count > most:
            raise ModelError(
                f'the config of "{folder}" has {count:,} in "{name}": more than its weights, {stored.tensors:,} '
                f"tensors of at most {stored.longest:,} rows, can have"
            )


def _counts(settings: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Settings that are counted up to, with their numbers, also of configs inside the config."""
    for name, value in settings.items():
        every = value if isinstance(value, list) else [value]
        if _COUNTS.search(name):
            numbers = [one for one in every if isinstance(one, int)]
            yield name, max([sum(map(abs, numbers)), len(value) if isinstance(value, list | dict) else 0])
        for one in every:
            if isinstance(one, dict):
                yield from _counts(one)


def stored_weights(folder: Path) -> StoredWeights:
    """The sizes of all weights in a folder. Raises for damaged files."""
    tensors = [tensor for path in sorted(folder.glob("*.safetensors")) for tensor in _tensors(path)]
    filled = [(shape, dtype) for _, shape, dtype in tensors if math.prod(shape)]
    return StoredWeights(
        tensors=len(tensors),
        numbers=sum(math.prod(shape) * _packed(dtype) for shape, dtype in filled),
        longest=max((side for shape, _ in filled for side in shape), default=0),
        whole=frozenset(name for name, _, dtype in tensors if dtype == "BOOL" or _packed(dtype) > 1),
    )


def stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor in a file of weights."""
    return {name: shape for name, shape, _ in _tensors(path)}


def _tensors(path: Path) -> list[tuple[str, tuple[int, ...], str]]:
    """Every tensor's name, shape and dtype."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
        if _HEADER < length <= path.stat().st_size:
            raise ModelError(f'"{path}" has a header of {length:,} bytes: too many to be read safely')
        with safe_open(path, framework="pt") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118  (it is no dict)
            return [(name, tuple(one.get_shape()), one.get_dtype()) for name, one in slices.items()]
    except OSError as error:
        raise ModelError(f'"{path}" cannot be loaded: {error.strerror or error}') from None
    except SafetensorError as error:
        raise ModelError(f'"{path}" cannot be loaded: its weights are damaged or cut short ({error})') from None


def _packed(dtype: str) -> int:
    """One for floats; the bits of a whole number, as quantised models pack many into one."""
    bits = re.fullmatch(r"[IU](\d+)", dtype)
    return int(bits[1]) if bits else 1


class WeightLimit(TorchFunctionMode):
    """A context that stops the making of a model as soon as it takes more numbers than its files can fill."""

    def __init__(self, stored: StoredWeights, name: str) -> None:
        super().__init__()
        self._name, self._stored = name, stored
        # Weights that are tied are made twice, and once more when they are loaded.
        self._most = self._numbers = 4 * stored.numbers + _ASIDE  # what may still be made
        self._tensors = 4 * stored.tensors + 1000

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            if func in _FACTORIES:
                self._numbers -= made.numel()
                self._tensors -= 1
            if made.numel() > self._most or self._numbers < 0 or self._tensors < 0:
                asked = f"a tensor of {list(made.shape)}" if self._tensors >= 0 else "too many tensors"
                raise ModelError(
                    f'the config of "{self._name}" asks for {asked}, more than its files can fill: they hold '
                    f"{self._stored.tensors:,} tensors of {self._stored.numbers:,} numbers"
                )
        return made
