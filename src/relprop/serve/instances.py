"""A request's instances as `Explainer` takes them. Never a path: no request reads the server's files."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from io import BytesIO
from typing import Any

from PIL import Image

from relprop.errors import InputError
from relprop.serve.limits import Limits, too_large

_ATOM = re.compile(r"\[[^\[\]]*\]|Br|Cl|[A-Za-z*]")
_RING_END = re.compile(r"%\(\d+\)|%\d\d|\d")
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
# By a model's kind: the names of its texts, and the message where something else is given.
TEXTS = {"texts": ("text", "pair"), "language": ("text",), "questions": ("question", "context"), "graphs": ("smiles",)}
EXPECTED = {
    "texts": 'a text, ["text", "second text"] or {"text": "..."}',
    "language": 'a text or {"text": "..."}',
    "questions": '["question", "context"] or {"question": "...", "context": "..."}',
    "images": '{"b64": "..."} or {"image": {"b64": "..."}}, a picture\'s file in base64',
    "graphs": 'a SMILES, {"smiles": "..."}, or for superpixels a picture as {"b64": "..."}',
}
INSTANCE_SCHEMA = {
    "anyOf": [
        {"type": "string", "description": "a text, or a SMILES"},
        {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2, "description": "a pair of texts"},
        *(
            {
                "type": "object",
                "properties": {name: {"type": "string"} for name in names},
                "required": names[:1],
                "additionalProperties": False,
            }
            for names in (*TEXTS.values(), ("b64",))
        ),
        {"type": "object", "properties": {"image": {"type": "object"}}, "required": ["image"]},
    ]
}


ExplainerInput = str | tuple[str, ...] | Image.Image


def explainer_input(kind: str, instance: Any, limits: Limits) -> ExplainerInput:
    """The text, pair, picture or SMILES. Of a picture only the header is read here: reading it all is work."""
    encoded = _base64_of(instance)
    if encoded is not None and kind in ("images", "graphs"):
        return _opened_picture(encoded, limits.pixels if kind == "images" else limits.region_pixels)
    texts = _texts_of(instance, TEXTS.get(kind, ()))
    if texts is None:
        raise InputError(f"an instance is {EXPECTED[kind]}; got {_shortened(instance)}")
    size = sum(map(len, texts))
    if size > limits.characters:
        raise too_large(f"an instance has {size:,} characters; at most {limits.characters:,} are taken")
    if kind == "graphs":
        _check_molecule(texts[0], limits)
    return texts[0] if len(texts) == 1 else texts


def _check_molecule(smiles: str, limits: Limits) -> None:
    for name, count, most in zip(
        ("atoms", "bonds"), atoms_and_bonds(smiles), (limits.atoms, limits.bonds), strict=True
    ):
        if count > most:
            raise too_large(f"the molecule has {count:,} {name}; at most {most:,} are taken")


def atoms_and_bonds(smiles: str) -> tuple[int, int]:
    """How many of each a SMILES names, counted without rdkit; a ring bond is named at both of its ends."""
    atoms = len(_ATOM.findall(smiles))
    return atoms, max(0, atoms - 1) + len(_RING_END.findall(_BRACKETS.sub("", smiles))) // 2


def _texts_of(instance: Any, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """One text or two, given by name or without; None where it is something else."""
    texts = instance
    if isinstance(instance, dict):
        if set(instance) - set(names) or not set(names[:1]) <= set(instance):
            return None
        texts = [instance[name] for name in names if name in instance]
    elif isinstance(instance, str):
        texts = [instance]
    fits = isinstance(texts, list) and 0 < len(texts) <= len(names) and all(isinstance(one, str) for one in texts)
    return tuple(texts) if fits else None


def _base64_of(instance: Any) -> str | None:
    """The base64 of {"b64": ...} or {"image": {"b64": ...}}; None where it is something else."""
    inner = instance["image"] if isinstance(instance, dict) and set(instance) == {"image"} else instance
    encoded = inner["b64"] if isinstance(inner, dict) and set(inner) == {"b64"} else None
    return encoded if isinstance(encoded, str) else None


def _opened_picture(encoded: str, most: int) -> Image.Image:
    """The picture, with only its header read."""
    try:
        content = b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the picture is not in base64 (b64)") from None
    try:
        picture = Image.open(BytesIO(content), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise too_large(f"the picture is too large; at most {most:,} pixels are taken") from None
    except Exception:  # damaged files make Pillow raise errors of every kind
        raise InputError(f"the picture cannot be read; it should be one of ({', '.join(FORMATS)})") from None
    if picture.width * picture.height > most:
        size = f"{picture.width} x {picture.height} pixels"
        raise too_large(f"the picture has {size}; at most {most:,} are taken: make it smaller")
    return picture


def _shortened(instance: Any) -> str:
    return f"{instance!r:.80}" if isinstance(instance, str | dict) else type(instance).__name__
