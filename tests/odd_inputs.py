"""Odd inputs, and what is no text, picture, graph or question: each is explained, or refused in one sentence."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import torch
from PIL import Image

from relprop.graph import Graph

Made = dict[str, Any]


class OddText(str):
    """A subclass of str is a text."""


def texts() -> Made:
    """What may be given to a model of texts."""
    return {
        "None": None,
        "bytes": b"the good movie",
        "bytearray": bytearray(b"good"),
        "a number": 3,
        "a float": 1.5,
        "NaN": float("nan"),
        "a bool": True,
        "empty": "",
        "a blank": " ",
        "white": " \t\r\n\u00a0\u2003\u3000",
        "NUL": "\0",
        "NUL inside": "the good\0movie",
        "only control": "".join(map(chr, range(1, 32))),
        "control inside": "the \x01good\x02 \x1b[31mmovie",
        "half a character": "the \ud800 movie",
        "the other half": "\udc00",
        "both halves": "\ud83d\ude00",
        "not a character": "\ufffe\uffff",
        "a byte order mark": "\ufeffthe good movie",
        "zero width": "\u200b\u200d\u2060",
        "right to left": "مرحبا שלום",
        "turned": "the \u202egood\u202c movie",
        "accents only": "\u0301\u0302\u0303",
        "stacked": "a" + "\u0301" * 5000,
        "emoji": "😀👨‍👩‍👧‍👦🏳️‍🌈",
        "private": "\ue000\U000f0000",
        "flags": "🇩🇪" * 50,
        "one letter": "a",
        "one word of 10,000": "a" * 10_000,
        "10,000 words": "good " * 10_000,
        "marks": "!" * 10_000,
        "special tokens": "[CLS] [SEP] [MASK] [PAD]",
        "markup": "<script>alert(1)</script>",
        "a path": "../../etc/passwd",
        "numbers": "1234567890 " * 500,
        "lines": "\n" * 10_000 + "good",
        "a format": "%s {0} {x!r}",
        "a template": "{{7*7}}",
        "OddText": OddText("the good movie"),
        "a pair": ("the movie", "is good"),
        "a list in a list": [["a", "b", "c"]],
        "a triple": ("a", "b", "c"),
        "an empty pair": ("", "good"),
        "a pair with None": ("good", None),
        "an empty tuple": (),
        "a list": ["the good movie", "the bad movie"],
        "an empty list": [],
        "a list with None": ["good", None],
        "a list with bytes": ["good", b"bad"],
        "a list with empty": ["good", ""],
        "mixed": ["good", ("a", "b"), 3],
        "nested": [["good"]],
        "a dict": {"text": "good"},
        "a set": {"good"},
        "a generator": (text for text in ["good", "bad"]),
        "a map": map(str, [1, 2]),
        "an array": np.array(["good", "bad"]),
        "a scalar array": np.array("good"),
        "numpy's string": np.str_("the good movie"),
        "numbers array": np.arange(3.0),
        "a tensor": torch.ones(1, 3).long(),
        "a class": str,
        "a function": len,
        "a path object": Path("movie.txt"),
        "an open file": io.StringIO("good"),
        "an object": object(),
        "a memoryview": memoryview(b"good"),
        "a range": range(3),
        "complex": 1j,
        "deep": [[[[[[["good"]]]]]]],
        "Ellipsis": ...,
    }


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@cache
def _photo() -> Image.Image:
    values = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    return Image.fromarray(values)


def _png_of(width: int, height: int) -> bytes:
    """A few bytes that announce a picture of this size."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


def _rotated() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return _saved(_photo(), "JPEG", exif=exif)


def _files() -> dict[str, bytes]:
    photo = _photo()
    png, jpeg = _saved(photo, "PNG"), _saved(photo, "JPEG")
    frames = {"save_all": True, "append_images": [photo.rotate(90)]}
    return {
        "whole.png": png,
        "whole.jpg": jpeg,
        "empty.png": b"",
        "cut.png": png[: len(png) // 2],
        "cut.jpg": jpeg[: len(jpeg) // 2],
        "head.png": png[:20],
        "flipped.png": png[:200] + bytes(255 - b for b in png[200:400]) + png[400:],
        "flipped.jpg": jpeg[:300] + bytes(255 - b for b in jpeg[300:400]) + jpeg[400:],
        "text.png": b"not a picture",
        "drawing.png": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        "drawing.svg": b"<svg/>",
        "page.png": b"%PDF-1.7",
        "bomb.png": _png_of(60_000, 60_000),
        "wide.png": _png_of(2**31 - 1, 1),
        "none.png": _png_of(0, 0),
        "flat.png": _png_of(10, 0),
        "one.png": _saved(photo.resize((1, 1)), "PNG"),
        "tall.png": _saved(photo.resize((1, 3000)), "PNG"),
        "grey.png": _saved(photo.convert("L"), "PNG"),
        "bits.png": _saved(photo.convert("1"), "PNG"),
        "palette.png": _saved(photo.convert("P"), "PNG"),
        "alpha.png": _saved(photo.convert("RGBA"), "PNG"),
        "palette.gif": _saved(photo, "GIF", transparency=0),
        "moving.gif": _saved(photo, "GIF", **frames),
        "moving.webp": _saved(photo, "WEBP", **frames),
        "moving.png": _saved(photo, "PNG", **frames),
        "cmyk.jpg": _saved(photo.convert("CMYK"), "JPEG"),
        "lab.tif": _saved(photo.convert("LAB"), "TIFF"),
        "sixteen.png": _saved(Image.fromarray(np.arange(2400, dtype=np.uint16).reshape(40, 60) * 20), "PNG"),
        "float.tif": _saved(Image.fromarray(np.linspace(0, 1, 2400, dtype=np.float32).reshape(40, 60)), "TIFF"),
        "nan.tif": _saved(Image.fromarray(np.full((9, 9), np.nan, np.float32)), "TIFF"),
        "turned.jpg": _rotated(),
        "bad-exif.jpg": jpeg[:2] + b"\xff\xe1\x00\x10Exif\0\0" + b"\xff" * 8 + jpeg[2:],
        "icon.ico": _saved(photo, "ICO"),
        "zip.png": b"PK\x03\x04" + b"\0" * 100,
        "pickle.png": b"\x80\x04\x95" + b"\0" * 50,
    }


def pictures(room: Path) -> Made:
    """What may be given to a model of pictures."""
    files = _files()
    for name, content in files.items():
        (room / name).write_bytes(content)
    (room / "folder.png").mkdir()
    (room / "loop.png").symlink_to(room / "loop.png")
    photo, values = _photo(), np.asarray(_photo())
    closed = Image.open(room / "whole.png")
    closed.close()
    return {
        **{name: room / name for name in files},
        "folder.png": room / "folder.png",
        "loop.png": room / "loop.png",
        "no file": room / "nothing.png",
        "a name as text": str(room / "whole.png"),
        "bytes of a name": str(room / "whole.png").encode(),
        "NUL in a name": "a\0.png",
        "a long name": "a" * 5000,
        "half a character": "\ud800.png",
        "a URL": "https://example.org/a.png",
        "an image": photo,
        "a closed image": closed,
        "no pixels": Image.new("RGB", (0, 0)),
        "one pixel": Image.new("RGB", (1, 1)),
        "HSV": photo.convert("HSV"),
        "YCbCr": photo.convert("YCbCr"),
        "I": Image.new("I", (9, 9), 70_000),
        "F": Image.new("F", (9, 9), -1.0),
        "I;16": Image.new("I;16", (9, 9), 999),
        "array": values,
        "array of floats": values / 255,
        "array too bright": values / 2.0,
        "array with NaN": np.full((9, 9, 3), np.nan),
        "infinite": np.full((9, 9), np.inf),
        "negative": -np.ones((9, 9, 3)),
        "array of objects": np.array([[None]]),
        "array of text": np.array([["a"]]),
        "complex": np.ones((9, 9)) * 1j,
        "flat": values[0, 0],
        "no rows": values[:0],
        "five colours": np.zeros((9, 9, 5)),
        "two colours": np.zeros((9, 9, 2)),
        "batch": values[None],
        "a tensor": torch.from_numpy(values.copy()).permute(2, 0, 1),
        "bool": values[..., 0] > 99,
        "meta": torch.zeros(3, 9, 9, device="meta"),
        "sparse": torch.eye(9).to_sparse(),
        "None": None,
        "a number": 7,
        "a list": [photo, room / "whole.jpg"],
        "a list with None": [photo, None],
        "an empty list": [],
        "bytes": files["whole.png"],
        "a stream": io.BytesIO(files["whole.png"]),
        "a dict": {"image": photo},
        "a generator": (one for one in [photo]),
        "an object": object(),
        "a tuple": (photo, photo),
        "half": torch.rand(3, 9, 9).half(),
        "needs grad": torch.rand(3, 9, 9, requires_grad=True),
        "empty name": "",
    }


def graphs(room: Path) -> Made:
    """What may be given to a model of molecules."""
    ring = networkx.cycle_graph(4)
    featured = networkx.cycle_graph(3)
    networkx.set_node_attributes(featured, [0] * 8, "x")
    nodes = np.zeros((3, 8), np.int64)
    return {
        "a molecule": "CCO",
        "empty": "",
        "blank": "  ",
        "no SMILES": "the good movie",
        "open ring": "C1CC",
        "five bonds": "C(C)(C)(C)(C)C",
        "unknown atom": "[Xx]",
        "dummy": "*",
        "hydrogen": "[H][H]",
        "ions": "[Na+].[Cl-]",
        "NUL": "C\0C",
        "unicode": "Ç",
        "half a character": "C\ud800",
        "spaces": " CCO ",
        "two lines": "CCO\nCC",
        "deep": "(" * 5000,
        "branches": "C" + "(C)" * 3000,
        "rings": "C%99CC%99",
        "charge": "[C+9999]",
        "isotope": "[999999C]",
        "long": "C" * 50_000,
        "a reaction": "CC>>CO",
        "a pattern": "[#6]~[#7]",
        "None": None,
        "a number": 3,
        "bytes": b"CCO",
        "a list": ["CCO", "CC"],
        "a list with a wrong one": ["CCO", "C1"],
        "an empty list": [],
        "a generator": (one for one in ["CCO"]),
        "an object": object(),
        "a path": room / "x.png",
        "a graph": Graph.of(nodes, [(0, 1), (1, 2)]),
        "no edges": Graph.of(nodes),
        "floats": Graph.of(nodes.astype(float)),
        "fewer features": Graph.of(nodes[:, :3]),
        "categories beyond": Graph.of(nodes + 10**6),
        "negative categories": Graph.of(nodes - 5),
        "unknown bonds": Graph.of(nodes, [(0, 1)], [99]),
        "too many nodes": Graph.of(np.zeros((100_000, 8), np.int64)),
        "networkx without features": ring,
        "networkx": featured,
        "empty networkx": networkx.Graph(),
        "directed": networkx.DiGraph(featured),
        "an array": np.zeros((3, 3)),
        "a dict": {"nodes": [], "edges": []},
        "a picture": _photo(),
    }


def graph_arrays() -> dict[str, Callable[[], Any]]:
    """Arguments of `Graph.of` that make no graph."""
    return {
        "no nodes": lambda: Graph.of([]),
        "ragged": lambda: Graph.of([[1], [1, 2]]),
        "text": lambda: Graph.of(["a"]),
        "None": lambda: Graph.of(None),
        "ragged edges": lambda: Graph.of([1, 2], [(0, 1, 2)]),
        "text edges": lambda: Graph.of([1, 2], [("a", "b")]),
        "edges beyond": lambda: Graph.of([1, 2], [(0, 5)]),
        "edges of floats": lambda: Graph.of([1, 2], [(0.5, 1.5)]),
        "NaN edges": lambda: Graph.of([1, 2], [(np.nan, 1)]),
        "types of text": lambda: Graph.of([1, 2], [(0, 1)], ["a"]),
        "places of text": lambda: Graph.of([1, 2], places="ab"),
        "names of numbers": lambda: Graph.of([1, 2], names=3),
        "an object": lambda: Graph.of(object()),
        "a generator": lambda: Graph.of(i for i in range(3)),
        "huge edge": lambda: Graph.of([1, 2], [(0, 2**70)]),
        "NaN": lambda: Graph.of([np.nan]),
        "a huge type": lambda: Graph.of([1, 2], [(0, 1)], [2**62]),
        "complex": lambda: Graph.of([1j]),
        "NaN places": lambda: Graph.of([1, 2], places=[[np.nan, 0], [0, 0]]),
    }


def questions() -> dict[str, Made]:
    """Keyword arguments of a model that answers questions."""
    good = {"question": "what is good", "context": "the movie is good"}
    return {
        "good": good,
        "no context": {"question": "what"},
        "no question": {"context": "the movie"},
        "empty question": {**good, "question": ""},
        "empty context": {**good, "context": " "},
        "numbers": {"question": 3, "context": 4},
        "bytes": {"question": b"what", "context": b"movie"},
        "None in a list": {"question": ["what", None], "context": ["movie", "film"]},
        "uneven": {"question": ["a", "b"], "context": ["movie"]},
        "lists": {"question": ["what", "what"], "context": ["the movie", "the film"]},
        "halves": {**good, "context": "\ud800 movie"},
        "a dict": {**good, "question": {"a": 1}},
        "answer not there": {**good, "target": "elephant"},
        "a target of NaN": {**good, "target": float("nan")},
        "characters beyond": {**good, "target": (5, 99)},
        "characters turned": {**good, "target": (9, 2)},
        "a target of bytes": {**good, "target": b"good"},
        "a long context": {**good, "context": "the movie " * 300},
        "a long question": {**good, "question": "what is good " * 5000},
        "an object": {**good, "context": object()},
        "a generator": {**good, "context": (c for c in "abc")},
    }


def targets_and_options() -> dict[str, Made]:
    """Keyword arguments beside a good text."""
    return {
        "target None": {"target": None},
        "target beyond": {"target": 99},
        "negative": {"target": -5},
        "a float": {"target": 0.5},
        "NaN": {"target": float("nan")},
        "text": {"target": "elephant"},
        "bytes": {"target": b"positive"},
        "a dict": {"target": {}},
        "a bool": {"target": True},
        "a triple": {"target": (0, 1, 0)},
        "a pair of texts": {"target": ("positive", "negative")},
        "half": {"target": "\ud800"},
        "an object": {"target": object()},
        "huge": {"target": 10**30},
        "numpy": {"target": np.int64(1)},
        "method None": {"method": None},
        "method 3": {"method": 3},
        "no method": {"method": "astrology"},
        "a list with None": {"method": [None]},
        "no methods": {"method": []},
        "max_length 0": {"max_length": 0},
        "max_length text": {"max_length": "5"},
        "max_length NaN": {"max_length": float("nan")},
        "max_length huge": {"max_length": 10**30},
        "max_length 2": {"max_length": 2},
        "batch_size 0": {"batch_size": 0},
        "batch_size text": {"batch_size": "many"},
        "batch_size None": {"batch_size": None},
        "batch_size float": {"batch_size": 2.5},
        "special 3": {"special": 3},
        "special list": {"special": []},
        "unknown option": {"colour": "red"},
    }
