"""A request's instances as `Explainer` takes them. Never a path: no request reads the server's files."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterable, Sequence
from io import BytesIO, StringIO
from typing import Any

import numpy as np
from PIL import Image

from relprop.errors import InputError
from relprop.readers.boxed_words import Document, document_of, document_of_table
from relprop.readers.words import WordList
from relprop.serve.limits import Limits, too_large

_ATOM = re.compile(r"\[[^\[\]]*\]|Br|Cl|[A-Za-z*]")
_RING_END = re.compile(r"%\(\d+\)|%\d\d|\d")
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
FRAMES = 256  # of a video
MOST_TEXTS = 16  # beside one picture: the model reads each of them
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
# By a model's kind: the names of its texts, and the message where something else is given.
TEXTS = {
    "texts": ("text", "pair"), "masks": ("text", "pair"), "two_texts": ("text", "pair"), "language": ("text",),
    "questions": ("question", "context"), "graphs": ("smiles",),
}  # fmt: skip
NUMBERS = ("past_values", "columns", "past_time_features", "future_time_features", "static_real_features",
           "static_categorical_features")  # fmt: skip
_TEXT = 'a text, ["text", "second text"], {"text": "..."} or {"words": ["...", "..."]}'
EXPECTED = {
    "sounds": '{"b64": "..."} or {"audio": {"b64": "..."}}, a file of sound in base64',
    "series": '{"csv": "a table with a header"} or {"past_values": [[...], ...]}, with what the model reads beside it',
    "rows": '{"row": {"column": value, ...}} or {"csv": "names, and one line of values below"}',
    "texts": _TEXT,
    "masks": _TEXT,
    "two_texts": '["text", "second text"] or {"text": "...", "pair": "..."}',
    "choices": '{"text": "...", "choices": ["...", "..."]}',
    "language": 'a text, {"text": "..."} or {"messages": [{"role": "...", "content": "..."}]}',
    "questions": '["question", "context"] or {"question": "...", "context": "..."}',
    "videos": '{"b64": "..."}, an animated GIF or WebP in base64',
    "images": '{"b64": "..."} or {"image": {"b64": "..."}}, a picture\'s file in base64; with "text": "..." where the '
    "model goes on from a text",
    "pairs": '{"image": {"b64": "..."}, "text": "..."}, a picture\'s file in base64 and a text or a list of texts',
    "documents": '{"words": ["...", ...], "boxes": [[left, top, right, bottom], ...]} or {"csv": "word,left,top,right,'
    'bottom and lines below"}, with "size": [width, height] where boxes are not thousandths of the page, and with '
    '"image": {"b64": "..."} where the model reads the picture',
    "graphs": 'a SMILES, {"smiles": "..."}, or for superpixels a picture as {"b64": "..."}',
}
_LIST = {"type": "array", "items": {"type": "string"}}
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
        *(
            {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
            for name, kind in (
                ("image", "object"),
                ("audio", "object"),
                ("row", "object"),
                ("csv", "string"),
                ("past_values", "array"),
            )
        ),
        {
            "type": "object",
            "properties": {"image": {"type": "object"}, "text": {"type": ["string", "array"]}},
            "required": ["image", "text"],
            "description": "a picture and a text, or several texts to compare",
        },
        {
            "type": "object",
            "properties": {
                "words": _LIST,
                "boxes": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
                "size": {"type": "array", "items": {"type": "number"}},
                "image": {"type": "object"},
                "question": {"type": "string"},
            },
            "required": ["words", "boxes"],
            "additionalProperties": False,
            "description": "the words of a page with their boxes",
        },
        *(
            {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            }
            for properties in (
                {"words": _LIST},
                {"text": {"type": "string"}, "choices": _LIST},
                {"messages": {"type": "array", "items": {"type": "object"}}},
            )
        ),
    ]
}


PictureAndText = tuple[Image.Image, str | list[str]]
OtherTexts = tuple[str, list[str]] | list[dict[str, str]] | WordList
Pages = Document | tuple[str, Document]
ExplainerInput = str | tuple[str, ...] | Image.Image | BytesIO | dict[str, Any] | PictureAndText | OtherTexts | Pages


def explainer_input(kind: str, instance: Any, limits: Limits) -> ExplainerInput:
    """The text, pair, picture or SMILES. Of a picture only the header is read here: reading it all is work."""
    if kind == "pairs":
        return _picture_and_text(instance, limits)
    if kind in ("documents", "document_questions"):
        return _document(kind, instance, limits)
    if kind == "images" and isinstance(instance, dict) and set(instance) == {"image", "text"}:
        return _picture_and_prompt(instance, limits)
    encoded = _base64_of(instance)
    if encoded is not None and kind in ("images", "videos", "graphs"):
        return _opened_picture(encoded, limits.region_pixels if kind == "graphs" else limits.pixels)
    if encoded is not None and kind == "sounds":
        return _opened_sound(encoded, limits.sound)
    if kind in ("series", "rows") and (numbers := _numbers_of(kind, instance, limits)) is not None:
        return numbers
    other = _other_texts(kind, instance)
    if other is not None:
        _check_characters(texts_in(other), limits)
        return other
    texts = _texts_of(instance, TEXTS.get(kind, ()))
    if texts is None or (kind == "two_texts" and len(texts) != 2):
        raise InputError(f"an instance is {EXPECTED[kind]}; got {_shortened(instance)}")
    _check_characters(texts, limits)
    if kind == "graphs":
        _check_molecule(texts[0], limits)
    return texts[0] if len(texts) == 1 else texts


def _check_characters(texts: Sequence[str], limits: Limits, boxed: bool = False) -> None:
    """`boxed`: a table with four numbers beside every word."""
    size, most = sum(map(len, texts)), limits.characters * (8 if boxed else 1)
    if size > most:
        raise too_large(f"an instance has {size:,} characters; at most {most:,} are taken")


def _picture_and_text(instance: Any, limits: Limits) -> PictureAndText:
    """A picture and its text, or several texts to compare."""
    given = instance if isinstance(instance, dict) and set(instance) == {"image", "text"} else {}
    encoded, text = _base64_of({"image": given.get("image")}), given.get("text")
    texts = [text] if isinstance(text, str) else text
    if encoded is None or not isinstance(texts, list) or not texts or not all(isinstance(one, str) for one in texts):
        raise InputError(f"an instance is {EXPECTED['pairs']}; got {_shortened(instance)}")
    if len(texts) > MOST_TEXTS:
        raise too_large(f"an instance has {len(texts)} texts; at most {MOST_TEXTS} are compared")
    _check_characters(texts, limits)
    return _opened_picture(encoded, limits.pixels), text if isinstance(text, str) else texts


def _picture_and_prompt(instance: dict[str, Any], limits: Limits) -> PictureAndText:
    """A picture, and a text that the decoder is to go on from."""
    encoded, text = _base64_of({"image": instance["image"]}), instance["text"]
    if encoded is None or not isinstance(text, str):
        raise InputError(f"an instance is {EXPECTED['images']}; got {_shortened(instance)}")
    _check_characters([text], limits)
    return _opened_picture(encoded, limits.pixels), text


def _document(kind: str, instance: Any, limits: Limits) -> Pages:
    """Words with boxes, the page's picture where there is one, and the question where one is asked."""
    given = dict(instance) if isinstance(instance, dict) else {}
    question, image, size = given.pop("question", None), given.pop("image", None), given.pop("size", None)
    asks, encoded = kind == "document_questions", _base64_of({"image": image})
    fits = set(given) in ({"words", "boxes"}, {"csv"}) and (image is None) == (encoded is None)
    if not fits or not (isinstance(question, str) if asks else question is None):
        more = ', and with "question": "..."' if asks else ""
        raise InputError(f"an instance is {EXPECTED['documents']}{more}; got {_shortened(instance)}")
    picture = None if encoded is None else _opened_picture(encoded, limits.pixels)
    if "csv" in given:
        if not isinstance(given["csv"], str):
            raise InputError(f'"csv" is a text, got {type(given["csv"]).__name__}')
        _check_characters([given["csv"]], limits, boxed=True)
        page = document_of_table(StringIO(given["csv"], newline=""), picture, size)
    else:
        page = document_of({**given, **({} if size is None else {"size": size})}, picture)
    _check_characters([*page.words, question or ""], limits)
    return (question, page) if asks else page


def _other_texts(kind: str, instance: Any) -> OtherTexts | None:
    """Words, choices or messages, given by name; None where it is something else."""
    if not isinstance(instance, dict):
        return None
    if kind in ("texts", "masks") and set(instance) == {"words"} and _are_texts(instance["words"]):
        return WordList(instance["words"])
    if kind == "choices" and set(instance) == {"text", "choices"} and isinstance(instance["text"], str):
        return (instance["text"], instance["choices"]) if _are_texts(instance["choices"]) else None
    if kind == "language" and set(instance) == {"messages"} and isinstance(instance["messages"], list):
        messages = instance["messages"]
        fits = all(isinstance(one, dict) and _are_texts([*one, *one.values()]) for one in messages)
        return list(messages) if messages and fits else None
    return None


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def texts_in(value: Any) -> list[str]:
    """Every text that an input holds."""
    if isinstance(value, str):
        return [value]
    inner = (
        value.words if isinstance(value, WordList | Document) else value.values() if isinstance(value, dict) else value
    )
    return [text for one in inner for text in texts_in(one)]


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
    wrapped = isinstance(instance, dict) and set(instance) in ({"image"}, {"audio"})
    inner = next(iter(instance.values())) if wrapped else instance
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
    if (frames := getattr(picture, "n_frames", 1)) > FRAMES:
        raise too_large(f"the file has {frames:,} frames; at most {FRAMES} are taken")
    return picture


def _opened_sound(encoded: str, most: float) -> BytesIO:
    """The file of a sound, with only its header read."""
    import soundfile

    try:
        content = BytesIO(b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        raise InputError("the sound is not in base64 (b64)") from None
    try:
        about = soundfile.info(content)
    except Exception:  # damaged files make libsndfile raise errors of every kind
        raise InputError("the sound cannot be read; it should be a wav, flac, ogg or mp3 file") from None
    if about.frames > most * about.samplerate:
        raise too_large(f"the sound lasts {about.frames / about.samplerate:.1f} s; at most {most:g} s are taken")
    return content


def _numbers_of(kind: str, instance: Any, limits: Limits) -> dict[str, Any] | None:
    """A series or a row of a table; None where it is something else."""
    if not isinstance(instance, dict) or not instance:
        return None
    if isinstance(table := instance.get("csv"), str) and len(instance) == 1:
        if len(table) > 16 * limits.numbers:
            raise too_large(f"the table has {len(table):,} characters; at most {16 * limits.numbers:,} are taken")
        return _checked_numbers(_series_of(table), limits) if kind == "series" else _row_of(table)
    if kind == "rows":
        row = instance.get("row")
        return row if isinstance(row, dict) and len(instance) == 1 and len(row) <= limits.numbers else None
    if set(instance) - set(NUMBERS) or "past_values" not in instance:
        return None
    return _checked_numbers(instance, limits)


def _checked_numbers(series: dict[str, Any], limits: Limits) -> dict[str, Any]:
    count = _count(series.values())
    if count > limits.numbers:
        raise too_large(f"the series has {count:,} numbers; at most {limits.numbers:,} are taken")
    return series


def _count(values: Iterable[Any]) -> int:
    """The numbers in nested lists; names of columns are none."""
    return sum(_count(one) if isinstance(one, list | np.ndarray) else not isinstance(one, str) for one in values)


def _series_of(table: str) -> dict[str, Any]:
    from relprop.readers.series import read_table

    values, names = read_table(StringIO(table, newline=""))
    return {"past_values": values, "columns": names}


def _row_of(table: str) -> dict[str, Any]:
    from relprop.readers.series import table_rows

    names, rows = table_rows(StringIO(table, newline=""))
    if len(rows) != 1:
        raise InputError(f"an instance is one row, and the table has {len(rows)}")
    return dict(zip(names, rows[0], strict=True))


def _shortened(instance: Any) -> str:
    return f"{instance!r:.80}" if isinstance(instance, str | dict) else type(instance).__name__
