"""The models that relprop brings, and the check of model names, both without torch: a misspelt name fails at once."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from relprop.errors import ModelError, did_you_mean

HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?", re.ASCII)
FOLDER = Path(__file__).parent / "models"


@dataclass(frozen=True)
class EmbeddedModel:
    """One of the models that come with the package."""

    name: str
    reads: str
    about: str
    example: str  # of a command
    pictures: str = ""  # the model whose sample pictures fit it

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def megabytes(self) -> float:
        return sum(file.stat().st_size for file in self.folder.iterdir()) / 1e6


MODELS = (
    EmbeddedModel("sentiment", "texts", "films: positive or negative", 'relprop explain "a witty movie"'),
    EmbeddedModel("pets", "images", "cat or dog", "relprop explain cat.jpg", "pets"),
    EmbeddedModel(
        "digits", "images", "digits on cluttered canvases", "relprop explain digits.png --model digits", "digits"
    ),
    EmbeddedModel("stories", "prompts", "writes children's stories", 'relprop explain --lm stories "Once upon a time"'),
    EmbeddedModel("molecules", "SMILES", "inhibitors of BACE-1", "relprop explain --smiles CCO"),
    EmbeddedModel(
        "superpixels", "images", "digits as regions", "relprop explain digit.png --model superpixels", "digits"
    ),
)
EMBEDDED = {model.name: model.folder for model in MODELS}


def near_folder(path: str) -> str:
    """The folder beside this one that has nearly its name, as the rest of a sentence; nothing where there is none."""
    above = Path(path).parent
    beside = [one for one in above.iterdir() if one.is_dir()] if above.is_dir() else []
    return did_you_mean(path, [str(one) for one in beside])


def check_name(name: str | Path) -> None:
    """Raise at once for a model that is not on this machine, unless the hub may know it.

    That is asked only if the name is not nearly another one, and the hub can be reached: its own client would try for
    half a minute. What it has on this machine already is let through.
    """
    where = os.path.expanduser(name)
    if name in EMBEDDED or os.path.exists(where):
        return
    if isinstance(name, Path) or not HUB_ID.fullmatch(name):
        raise ModelError(f'there is no folder "{name}"{near_folder(where)}')
    from huggingface_hub import constants, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    guess = ("" if "/" in name else did_you_mean(name, EMBEDDED)) or near_folder(name)
    if guess:
        raise ModelError(f'there is no model or folder "{name}"{guess} (a model of the hub is named owner/name)')
    host = urlsplit(constants.ENDPOINT).hostname
    proxies = any(os.environ.get(one) for one in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    if constants.HF_HUB_OFFLINE or proxies or host is None:
        return
    try:
        socket.getaddrinfo(host, 443)
    except OSError as error:
        raise ModelError(
            f'there is no folder "{name}", and from the hub: {host} cannot be reached ({error.strerror})'
        ) from None
