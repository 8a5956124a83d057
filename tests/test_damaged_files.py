"""Files that relprop reads for benchmarks, heads, graphs and audits: damage is one sentence of its own error class."""

import gzip
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from relprop.audit import read_terms, read_texts, read_words
from relprop.bench.datasets import Dataset
from relprop.bench.idx import read_idx
from relprop.bench.kinds import picture_data
from relprop.bench.recipes import _load_checkpoint, _save_checkpoint
from relprop.bench.suites import SuiteTask, read_suite
from relprop.errors import RelpropError
from relprop.graph import Graphormer, Settings
from relprop.heads import SAMPLE, Heads, read_conllu
from relprop.metrics import read_folder

HEADS = Heads(
    "m", "c", 2, 0, 9, 9, ((1, -1),), ((5, 4),), {"nsubj": 3}, ((((1, 2),), ((0, 3),)),), {"nsubj": {-1: 2, 2: 1}}
)
SUITE = """
title = "Own"
methods = ["gradient"]
[[tasks]]
name = "a"
model = "sentiment"
data = "own"
[data.own]
title = "Own"
text = "text"
label = "label"
classes = ["no", "yes"]
files = { test = "own.jsonl" }
"""
ANSWERS = Dataset("qa", "Answers", ("question", "context"), answer="answer", files={"test": "qa.jsonl"})


def graphormer(folder: Path) -> Path:
    Graphormer(Settings(("a", "b"), features=2, width=8, heads=2, feed_forward=8)).save(folder)
    return folder


def checkpointed() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimiser.step()
    return model, optimiser


def pictures(folder: Path) -> list[object]:
    (folder / "pets").mkdir(exist_ok=True)
    task = SuiteTask("t", "m", kind="pictures", options={"pets": "pets"})
    listed = picture_data.list_pictures(task, folder)
    return listed[0].open_pictures(listed, {0: "cat", 1: "dog"})


def write_pets(folder: Path) -> Path:
    (folder / "pets").mkdir()
    (folder / "pets" / "test.txt").write_text("Beagle_1 5 2 1\n")
    with zipfile.ZipFile(folder / "pets" / picture_data.ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("images/Beagle_1.jpg", "trimaps/Beagle_1.png"):
            with archive.open(name, "w") as file:
                Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).save(
                    file, name[-3:].replace("jpg", "jpeg")
                )
    return folder / "pets" / picture_data.ARCHIVE


def write_pair(folder: Path) -> Path:
    for kind in ("images", "masks"):
        (folder / kind).mkdir()
        Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16) % 2).save(folder / kind / "a.png")
    return folder / "images" / "a.png"


def written(name: str, content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def write_checkpoint(folder: Path) -> Path:
    _save_checkpoint(*checkpointed(), 3, folder / "c.safetensors")
    return folder / "c.safetensors"


SENTENCES = b"\n\n".join(gzip.decompress(SAMPLE.read_bytes()).split(b"\n\n")[:3]) + b"\n\n"
IDX = struct.pack(">BBBBiii", 0, 0, 8, 3, 2, 4, 4) + bytes(32)
ROWS = [{"question": "who?", "context": "it was me", "answer": {"text": ["me"], "answer_start": [7]}}] * 3
# What writes a good file, and what reads it.
LOADERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "heads": (written("heads.json", HEADS.to_json().encode()), Heads.load),
    "sentences": (written("a.conllu.gz", gzip.compress(SENTENCES)), read_conllu),
    "graphormer": (lambda folder: graphormer(folder) / "model.safetensors", lambda path: Graphormer.load(path.parent)),
    "its settings": (lambda folder: graphormer(folder) / "config.json", lambda path: Graphormer.load(path.parent)),
    "digits": (written("a-idx3-ubyte.gz", gzip.compress(IDX)), read_idx),
    "terms": (written("terms.csv", b"term,group\nMary,f\nJohn,m\n"), read_terms),
    "words": (written("words.txt.gz", gzip.compress(b"will\ngrace\n" * 50)), read_words),
    "texts": (written("t.jsonl.gz", gzip.compress(b'{"text": "a film"}\n' * 50)), read_texts),
    "suite": (written("own.toml", SUITE.encode()), read_suite),
    "answers": (
        written("qa.jsonl", "\n".join(map(json.dumps, ROWS)).encode()),
        lambda path: ANSWERS.examples("test", path.parent),
    ),
    "checkpoint": (write_checkpoint, lambda path: _load_checkpoint(*checkpointed(), path)),
    "pets": (write_pets, lambda path: pictures(path.parents[1])),
    "image": (write_pair, lambda path: list(read_folder(path.parent, path.parents[1] / "masks"))),
}


def damages(content: bytes) -> Iterator[bytes]:
    """Always the same: bits, holes, ends, other types, other encodings, and too deep."""
    rng = random.Random(0)
    for count in (1, 1, 1, 2, 2, 3, 4, 8):
        changed = bytearray(content)
        for _ in range(count):
            changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        yield bytes(changed)
    for share in (0.1, 0.5, 0.9, 0.99):
        yield content[: int(share * len(content))]
    third = len(content) // 3
    yield content[:third] + bytes(third) + content[2 * third :]
    yield from (
        rng.randbytes(len(content)),
        b"",
        b"\x00" * 64,
        b"\x1f\x8b" + rng.randbytes(64),
        b"PK\x03\x04" + bytes(64),
    )
    yield from (
        b"null",
        b"[]",
        b"{}",
        b"7",
        b'"text"',
        b'{"schema_version": 1}',
        b"NaN",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    )
    yield content.decode("latin-1").encode("utf-16")


@pytest.mark.parametrize("name", LOADERS)
def test_a_damaged_file_is_one_sentence(name: str, tmp_path: Path) -> None:
    write, read = LOADERS[name]
    path = write(tmp_path)
    content = path.read_bytes()
    read(path)
    said: list[str] = []
    for damaged in damages(content):
        path.write_bytes(damaged)
        try:
            read(path)
        except RelpropError as error:
            said.append(str(error))
    assert len(said) >= 8
    assert all(said)
    assert not any("\n" in sentence for sentence in said)
