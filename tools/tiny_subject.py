"""A tiny model whose inputs are to be made, and what all makers of inputs share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from tiny_models import Case

LENGTHS = (70, 61)  # tokens of the two examples: more than 64, and uneven
FIRST_PLAIN_TOKEN = 20  # ids below are kept for special tokens, so that drawn text never holds one by accident

Example = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A model, the task it is built for, and the numbers its inputs are made of."""

    case: Case
    model: Any
    dtype: torch.dtype

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def takes(self) -> set[str]:
        """The names of its forward pass's arguments."""
        return set(inspect.signature(self.model.forward).parameters)

    def sub(self, *names: str) -> Any:
        """The first of these nested configs, or the config itself."""
        for name in names:
            if (nested := getattr(self.config, name, None)) is not None and hasattr(nested, "to_dict"):
                return nested
        return self.config

    def noise(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=self.dtype)


def field(config: Any, *names: str, default: Any = None) -> Any:
    """The first of these config fields that holds something."""
    for name in names:
        try:
            value = getattr(config, name, None)
        except Exception:  # some per-layer fields refuse to be read
            continue
        if value is not None:
            return value
    return default


def number(config: Any, *names: str, default: int) -> int:
    """The first of these config fields as one number: lists by their first entry."""
    value = field(config, *names, default=default)
    while isinstance(value, list | tuple):
        value = value[0]
    return int(value)


def text_config(subject: Subject) -> Any:
    """The config of what reads the text."""
    own = subject.sub("text_encoder", "model_config", "encoder")
    return own if own is not subject.config else own.get_text_config()


def words(subject: Subject, length: int, config: Any = None) -> Tensor:
    """Plain tokens [1, length] that end in the end token."""
    text = config or text_config(subject)
    size = number(text, "vocab_size", default=99)
    ids = torch.randint(min(FIRST_PLAIN_TOKEN, size // 2), size, (1, length))
    if isinstance(eos := field(text, "eos_token_id"), int) and eos < size:
        ids[:, -1] = eos
    return ids


Maker = Callable[[Subject, int], Example]  # of the arguments that one modality takes, for a text of this length
