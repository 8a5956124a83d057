"""Model folders that are damaged or hostile: what is done to a whole one, and what must come of it.

Each case says what loading and explaining must do: "refused" (relprop's own error), "same" (the numbers of the whole
folder), "warned" (these, with a warning), or "either" (where nobody can tell: the damage may have hit something that no
number depends on, or made another valid model).
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from relprop.embedded import EMBEDDED
from tokenizers_for_tests import saved, tiny

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
Damage = Callable[[Path], object]
REFUSED, SAME, WARNED, EITHER = "refused", "same", "warned", "either"


@dataclass(frozen=True)
class DamagedModel:
    """`base`: the folder that is damaged, one of `BASES`."""

    name: str
    damage: Damage
    outcome: str = REFUSED
    base: str = "bert"


@cache
def _tiny_vit() -> Any:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4
    )
    torch.manual_seed(0)
    return transformers.ViTForImageClassification(config).eval()


@cache
def _tiny_llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=len(tiny("lm")[1]), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


@cache
def _tiny_clip() -> Any:
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    vision = {**text, "image_size": 8, "patch_size": 4}
    config = transformers.CLIPConfig(
        text_config={**text, "vocab_size": len(tiny("lm")[1]), "eos_token_id": 0},
        vision_config=vision,
        projection_dim=8,
    )
    torch.manual_seed(0)
    return transformers.CLIPModel(config).eval()


def make_base(name: str, folder: Path) -> Path:
    """A whole folder."""
    if name in EMBEDDED:
        return Path(shutil.copytree(EMBEDDED[name], folder / name))
    if name == "vit":
        transformers.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(folder / name)
        _tiny_vit().save_pretrained(folder / name)
        return folder / name
    models = {"llama": _tiny_llama, "clip": _tiny_clip}
    if name in models:
        return saved(folder / name, models[name](), tiny("lm")[1])
    if name == "sharded":
        model, tokenizer = tiny("bert")
        model.save_pretrained(folder / name, max_shard_size="20KB")
        tokenizer.save_pretrained(folder / name)
        return folder / name
    return saved(folder / name, *tiny(name))


# What is done to a folder.


def edit(folder: Path, file: str = CONFIG, **changes: Any) -> None:
    """Settings of a JSON file changed; a name with a dot is of a config inside; `...` takes one out."""
    path = folder / file
    data = json.loads(path.read_text())
    for name, value in changes.items():
        *outer, last = name.split("__")
        inner = data
        for key in outer:
            inner = inner.setdefault(key, {})
        if value is ...:
            inner.pop(last, None)
        else:
            inner[last] = value
    path.write_text(json.dumps(data))


def weights(folder: Path, change: Callable[[dict[str, Any]], object], metadata: Any = None) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata=metadata or {"format": "pt"})


def set_number(tensors: dict[str, Any], name: str, number: float) -> None:
    tensors[name].view(-1)[1] = number


def header(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """The header of the weights rewritten, the data left as it is."""
    content = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    data = json.loads(content[8 : 8 + length])
    change(data)
    text = json.dumps(data).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def write(folder: Path, file: str, content: str | bytes) -> None:
    (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)


def cut(folder: Path, file: str, share: float) -> None:
    content = (folder / file).read_bytes()
    write(folder, file, content[: int(len(content) * share)])


def flip(folder: Path, file: str, seed: int, first: int | None = None) -> None:
    """Eight bits flipped, in the first bytes of the file or anywhere."""
    content = bytearray((folder / file).read_bytes())
    chance = random.Random(seed)
    for _ in range(8):
        content[chance.randrange(first or len(content))] ^= 1 << chance.randrange(8)
    write(folder, file, bytes(content))


def remove(folder: Path, *files: str) -> None:
    for file in files:
        (folder / file).unlink(missing_ok=True)


def as_folder(folder: Path, file: str) -> None:
    (folder / file).unlink(missing_ok=True)
    (folder / file).mkdir()


def as_loop(folder: Path, file: str) -> None:
    (folder / file).unlink(missing_ok=True)
    (folder / file).symlink_to(folder / file)


def as_dead_link(folder: Path, file: str) -> None:
    (folder / file).unlink(missing_ok=True)
    (folder / file).symlink_to(folder / "nowhere")


def sparse(folder: Path, file: str, size: int) -> None:
    """A file of zeros that takes no room."""
    with (folder / file).open("wb") as opened:
        opened.truncate(size)


def long_header(folder: Path, length: int, size: int | None = None) -> None:
    """Weights that announce a header of this many bytes, in a file of zeros."""
    with (folder / WEIGHTS).open("wb") as opened:
        opened.write(struct.pack("<Q", length))
        opened.truncate(size or 1000)


def labels(folder: Path, count: int) -> None:
    config = (folder / CONFIG).read_text()
    every = ",".join(f'"{i}":"L{i}"' for i in range(count))
    write(folder, CONFIG, config.replace('"id2label": {', f'"id2label": {{{every},'))


def tokens(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((folder / TOKENIZER).read_text())
    change(data)
    (folder / TOKENIZER).write_text(json.dumps(data))


def shifted(data: dict[str, Any]) -> None:
    """All tokens numbered from a million on."""
    data["model"]["vocab"] = {token: 10**6 + number for token, number in data["model"]["vocab"].items()}


def shard_named(folder: Path, name: Any) -> None:
    path = folder / f"{WEIGHTS}.index.json"
    data = json.loads(path.read_text())
    first = next(iter(data["weight_map"]))
    data["weight_map"][first] = name
    path.write_text(json.dumps(data))


def lose_shard(folder: Path) -> None:
    sorted(folder.glob("model-*.safetensors"))[-1].unlink()


def legacy_vocabulary(folder: Path, *files: str) -> None:
    """The tokenizer as older files, of which only these are there."""
    vocabulary = json.loads((folder / TOKENIZER).read_text())["model"]["vocab"]
    remove(folder, TOKENIZER)
    if "vocab.json" in files:
        write(folder, "vocab.json", json.dumps(vocabulary))
    if "vocab.txt" in files:
        write(folder, "vocab.txt", "")


PROCESSOR, WORDS = "preprocessor_config.json", "tokenizer_config.json"
EMBEDDINGS, NORM = "bert.embeddings.word_embeddings.weight", "bert.encoder.layer.1.output.LayerNorm.bias"
FIXED = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None}
FIXED |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
QUERY = "bert.encoder.layer.0.attention.self.query.weight"
DEEP = "[" * 100_000 + "]" * 100_000

# A few lines of text that ask for gigabytes or minutes.
BOMBS = [
    DamagedModel("vocab_size", partial(edit, vocab_size=4_000_000)),
    DamagedModel("vocab_size beyond memory", partial(edit, vocab_size=10**15)),
    DamagedModel("num_labels", partial(edit, num_labels=10**7, id2label=..., label2id=...)),
    DamagedModel("id2label", partial(labels, count=1_000_000)),
    DamagedModel("100,000 layers", partial(edit, num_hidden_layers=100_000)),
    DamagedModel("9,999 layers", partial(edit, num_hidden_layers=9_999)),
    DamagedModel("a milliard layers", partial(edit, num_hidden_layers=10**9), base="llama"),
    DamagedModel("hidden_size", partial(edit, hidden_size=400_000)),
    DamagedModel("max_position_embeddings", partial(edit, max_position_embeddings=10**9)),
    DamagedModel("intermediate_size", partial(edit, intermediate_size=10**8)),
    DamagedModel("num_attention_heads", partial(edit, num_attention_heads=10**9)),
    DamagedModel("type_vocab_size", partial(edit, type_vocab_size=10**8)),
    DamagedModel("head_dim", partial(edit, head_dim=10**7), base="llama"),
    DamagedModel("num_key_value_heads", partial(edit, num_key_value_heads=10**7), base="llama"),
    DamagedModel("image_size", partial(edit, image_size=10**6), base="vit"),
    DamagedModel("patch_size", partial(edit, patch_size=10**5, image_size=10**5), base="vit"),
    DamagedModel("num_channels", partial(edit, num_channels=10**9), base="vit"),
    DamagedModel("n_positions", partial(edit, n_positions=10**6), base="lm"),
    DamagedModel("n_layer", partial(edit, n_layer=10**8), base="lm"),
    DamagedModel("text_config's vocab_size", partial(edit, text_config__vocab_size=10**8), base="clip"),
    DamagedModel("text_config's layers", partial(edit, text_config__num_hidden_layers=10**8), base="clip"),
    DamagedModel("vision_config's image_size", partial(edit, vision_config__image_size=10**6), base="clip"),
    DamagedModel("projection_dim", partial(edit, projection_dim=10**9), base="clip"),
    DamagedModel("a graph model's width", partial(edit, width=8 * 10**7), base="molecules"),
    DamagedModel("a graph model's layers", partial(edit, layers=10**8), base="molecules"),
    DamagedModel("a graph model's categories", partial(edit, categories=[10**12]), base="molecules"),
    DamagedModel("a graph model's degrees", partial(edit, degrees=10**10), base="molecules"),
    DamagedModel("nested JSON", partial(write, file=CONFIG, content=f'{{"model_type": "bert", "x": {DEEP}}}')),
    DamagedModel("a config of a gigabyte", partial(sparse, file=CONFIG, size=10**9)),
    DamagedModel("a tokenizer of a gigabyte", partial(sparse, file=TOKENIZER, size=10**9)),
    DamagedModel("a nested tokenizer", partial(write, file=TOKENIZER, content=DEEP)),
    DamagedModel("a tokenizer_config of a gigabyte", partial(sparse, file=WORDS, size=10**9)),
    DamagedModel("a header of exabytes", partial(long_header, length=2**62)),
    DamagedModel("a header of a gigabyte", partial(long_header, length=10**9, size=2 * 10**9)),
    DamagedModel("a header of 90 MB", partial(long_header, length=9 * 10**7, size=10**8)),
]

_WEIGHT_DAMAGE = [
    *(
        DamagedModel(f"weights cut at {share}", partial(cut, file=WEIGHTS, share=share))
        for share in (0, 1e-4, 0.01, 0.5, 0.999)
    ),
    *(
        DamagedModel(f"header flipped, {seed}", partial(flip, file=WEIGHTS, seed=seed, first=2000), EITHER)
        for seed in range(8)
    ),
    *(DamagedModel(f"length flipped, {seed}", partial(flip, file=WEIGHTS, seed=seed, first=8)) for seed in range(3)),
    DamagedModel("no weights", lambda folder: remove(folder, WEIGHTS)),
    DamagedModel("a folder of weights", partial(as_folder, file=WEIGHTS)),
    DamagedModel("weights that link to themselves", partial(as_loop, file=WEIGHTS)),
    DamagedModel("weights that link to nothing", partial(as_dead_link, file=WEIGHTS)),
    DamagedModel("weights of zeros", partial(sparse, file=WEIGHTS, size=100_000)),
    DamagedModel(
        "weights that are text",
        partial(write, file=WEIGHTS, content="version https://git-lfs.github.com/spec/v1\n" * 9),
    ),
    DamagedModel("no tensors", partial(weights, change=dict.clear)),
    DamagedModel("a tensor missing", partial(weights, change=lambda t: t.pop(QUERY))),
    DamagedModel(
        "no head", partial(weights, change=lambda t: [t.pop(name) for name in list(t) if "classifier" in name])
    ),
    DamagedModel(
        "a tensor too many in a block", partial(weights, change=lambda t: t.update({f"{QUERY}_extra": torch.ones(2)}))
    ),
    DamagedModel(
        "a block too many",
        partial(
            weights,
            change=lambda t: t.update(
                {n.replace("layer.1", "layer.2"): v.clone() for n, v in t.items() if "layer.1" in n}
            ),
        ),
    ),
    DamagedModel("another shape", partial(weights, change=lambda t: t.update({QUERY: torch.zeros(32, 31)}))),
    DamagedModel(
        "a transposed table", partial(weights, change=lambda t: t.update({EMBEDDINGS: t[EMBEDDINGS].T.contiguous()}))
    ),
    DamagedModel("a tensor without numbers", partial(weights, change=lambda t: t.update({QUERY: torch.zeros(0, 32)}))),
    DamagedModel("a scalar", partial(weights, change=lambda t: t.update({QUERY: torch.tensor(1.0)}))),
    DamagedModel("renamed", partial(weights, change=lambda t: t.update({"query": t.pop(QUERY)}))),
    *(
        DamagedModel(
            f"{number} in {name}", partial(weights, change=partial(set_number, name=name, number=float(number)))
        )
        for number in ("nan", "inf", "-inf")
        for name in (QUERY, EMBEDDINGS, NORM)
    ),
    DamagedModel(
        "whole numbers", partial(weights, change=lambda t: t.update({QUERY: (t[QUERY] * 100).to(torch.int8)}))
    ),
    DamagedModel(
        "all whole numbers",
        partial(weights, change=lambda t: t.update({n: (v * 100).to(torch.int64) for n, v in t.items()})),
    ),
    DamagedModel("truth values", partial(weights, change=lambda t: t.update({QUERY: t[QUERY] > 0}))),
    DamagedModel("half precision", partial(weights, change=lambda t: t.update({QUERY: t[QUERY].half()})), EITHER),
    DamagedModel("double precision", partial(weights, change=lambda t: t.update({QUERY: t[QUERY].double()})), SAME),
    DamagedModel("an unknown dtype", partial(header, change=lambda h: h[QUERY].update(dtype="X32"))),
    DamagedModel("a negative shape", partial(header, change=lambda h: h[QUERY].update(shape=[-32, 32]))),
    DamagedModel("offsets beyond the file", partial(header, change=lambda h: h[QUERY].update(data_offsets=[0, 2**60]))),
    DamagedModel("offsets that overlap", partial(header, change=lambda h: h[QUERY].update(data_offsets=[0, 4096]))),
    DamagedModel("a shape without offsets", partial(header, change=lambda h: h[QUERY].pop("data_offsets"))),
    DamagedModel("no format", partial(weights, change=lambda t: None, metadata={"format": "cuneiform"}), EITHER),
    DamagedModel(
        "a whole module that is not used",
        partial(weights, change=lambda t: t.update({"bert.spare.dense.weight": torch.ones(2)})),
        WARNED,
    ),
    DamagedModel(
        "positions as buffers",
        partial(weights, change=lambda t: t.update({"bert.embeddings.position_ids": torch.arange(64)[None]})),
        SAME,
    ),
    DamagedModel("a shard lost", lose_shard, base="sharded"),
    DamagedModel(
        "a shard cut", lambda folder: cut(folder, sorted(folder.glob("model-*"))[0].name, 0.5), base="sharded"
    ),
    DamagedModel("a shard elsewhere", partial(shard_named, name="../../etc/passwd"), base="sharded"),
    DamagedModel("a shard that is no name", partial(shard_named, name=7), base="sharded"),
    DamagedModel("an index cut", partial(cut, file=f"{WEIGHTS}.index.json", share=0.5), base="sharded"),
    DamagedModel("an index that is a list", partial(write, file=f"{WEIGHTS}.index.json", content="[]"), base="sharded"),
    DamagedModel("an index without a map", partial(write, file=f"{WEIGHTS}.index.json", content="{}"), base="sharded"),
]

_CONFIG_DAMAGE = [
    *(DamagedModel(f"config cut at {share}", partial(cut, file=CONFIG, share=share)) for share in (0, 0.3, 0.9)),
    *(DamagedModel(f"config flipped, {seed}", partial(flip, file=CONFIG, seed=seed), EITHER) for seed in range(6)),
    DamagedModel("no config", lambda folder: remove(folder, CONFIG)),
    DamagedModel("a folder of config", partial(as_folder, file=CONFIG)),
    DamagedModel("a config that links to itself", partial(as_loop, file=CONFIG)),
    DamagedModel("a config of bytes", partial(write, file=CONFIG, content=b"\xff\xfe\x00" * 50)),
    *(
        DamagedModel(f"config {text}", partial(write, file=CONFIG, content=text))
        for text in ("[]", "null", "3", '"bert"', "{}", "NaN", '{"a": 1e999}')
    ),
    DamagedModel("one layer less", partial(edit, num_hidden_layers=1)),
    DamagedModel("one layer more", partial(edit, num_hidden_layers=3)),
    *(
        DamagedModel(f"hidden_size {value!r}", partial(edit, hidden_size=value))
        for value in (0, -32, 31, "32", None, [32], 32.5, 10**400)
    ),
    *(
        DamagedModel(f"num_hidden_layers {value!r}", partial(edit, num_hidden_layers=value))
        for value in (0, -1, "2", None, [2], {})
    ),
    *(
        DamagedModel(f"num_attention_heads {value!r}", partial(edit, num_attention_heads=value))
        for value in (0, -4, 5, "4", None)
    ),
    *(
        DamagedModel(f"architectures {value!r}", partial(edit, architectures=value))
        for value in (None, [], [None], [7], {"a": 1}, "Bert", ["logging"], ["BertForMindReading"], ["../x"])
    ),
    *(
        DamagedModel(f"model_type {value!r}", partial(edit, model_type=value))
        for value in (None, 7, "telepathy", ["bert"])
    ),
    DamagedModel("another architecture", partial(edit, architectures=["GPT2LMHeadModel"])),
    DamagedModel("another type", partial(edit, model_type="gpt2"), WARNED),
    DamagedModel("another activation", partial(edit, hidden_act="fizz")),
    DamagedModel("an epsilon that is text", partial(edit, layer_norm_eps="small")),
    DamagedModel("a dtype of config", partial(edit, dtype="float99")),
    DamagedModel("quantised by nobody", partial(edit, quantization_config={"quant_method": "sorcery"}), SAME),
    DamagedModel("code of its author", partial(edit, model_type="mine", auto_map={"AutoConfig": "x.Y"})),
    DamagedModel("labels that are a list", partial(edit, id2label=["a", "b"]), EITHER),
    DamagedModel("labels without numbers", partial(edit, id2label={"a": "b"})),
    DamagedModel("an adapter", partial(write, file="adapter_config.json", content="{}")),
    DamagedModel("a graph model without labels", partial(edit, labels=...), base="molecules"),
    DamagedModel("a graph model with other heads", partial(edit, heads="8"), base="molecules"),
    DamagedModel("a graph model of text", partial(edit, layers="two"), base="molecules"),
    DamagedModel("a graph model with more settings", partial(edit, colour="red"), base="molecules"),
    DamagedModel("a graph model with a layer less", partial(edit, layers=1), base="molecules"),
    DamagedModel("a graph model cut", partial(cut, file=WEIGHTS, share=0.5), base="molecules"),
    DamagedModel(
        "a graph model with NaN",
        partial(weights, change=partial(set_number, name="head.weight", number=np.nan)),
        base="molecules",
    ),
    DamagedModel("a graph model with labels that are a number", partial(edit, labels=3), base="molecules"),
    DamagedModel("a graph model of no heads", partial(edit, heads=0), base="molecules"),
]

_TOKENIZER_DAMAGE = [
    *(DamagedModel(f"tokenizer cut at {share}", partial(cut, file=TOKENIZER, share=share)) for share in (0, 0.2, 0.9)),
    *(
        DamagedModel(f"tokenizer flipped, {seed}", partial(flip, file=TOKENIZER, seed=seed), EITHER)
        for seed in range(5)
    ),
    *(DamagedModel(f"tokenizer_config cut at {share}", partial(cut, file=WORDS, share=share)) for share in (0, 0.5)),
    DamagedModel("no tokenizer", lambda folder: remove(folder, TOKENIZER)),
    DamagedModel("a folder of tokenizer", partial(as_folder, file=TOKENIZER)),
    DamagedModel("a tokenizer that links to itself", partial(as_loop, file=TOKENIZER)),
    *(
        DamagedModel(f"tokenizer {text}", partial(write, file=TOKENIZER, content=text))
        for text in ("{}", "[]", "null", '{"model": 3}')
    ),
    DamagedModel("a tokenizer without words", partial(tokens, change=lambda d: d["model"].update(vocab={}))),
    DamagedModel("a tokenizer of one word", partial(tokens, change=lambda d: d["model"].update(vocab={"[UNK]": 1}))),
    DamagedModel("tokens past the table", partial(tokens, change=shifted)),
    DamagedModel(
        "one token past the table",
        partial(tokens, change=lambda d: d["model"]["vocab"].update(new=len(tiny("bert")[1]))),
    ),
    DamagedModel("negative tokens", partial(tokens, change=lambda d: d["model"]["vocab"].update(the=-1))),
    DamagedModel("tokens of huge numbers", partial(tokens, change=lambda d: d["model"]["vocab"].update(the=2**31))),
    DamagedModel("an unknown pre-tokenizer", partial(tokens, change=lambda d: d.update(pre_tokenizer={"type": "Axe"}))),
    DamagedModel("padding to a milliard", partial(tokens, change=lambda d: d.update(padding=FIXED)), EITHER),
    *(
        DamagedModel(f"model_max_length {value!r}", partial(edit, file=WORDS, model_max_length=value), EITHER)
        for value in (0, -1, 10**30, "64", None, [64], 1.5)
    ),
    DamagedModel("another class of tokenizer", partial(edit, file=WORDS, tokenizer_class="Abacus"), EITHER),
    DamagedModel("a class that is a number", partial(edit, file=WORDS, tokenizer_class=3), EITHER),
    DamagedModel("words without merges", lambda f: legacy_vocabulary(f, "vocab.json"), base="lm"),
    DamagedModel("an empty list of words", lambda folder: legacy_vocabulary(folder, "vocab.txt")),
    DamagedModel("no image processor", lambda folder: remove(folder, PROCESSOR), base="vit"),
    DamagedModel("an image processor cut", partial(cut, file=PROCESSOR, share=0.5), base="vit"),
    DamagedModel("an image processor that is a list", partial(write, file=PROCESSOR, content="[]"), base="vit"),
    DamagedModel(
        "an image processor of another kind", partial(edit, file=PROCESSOR, image_processor_type="Camera"), base="vit"
    ),
    DamagedModel("pictures of no size", partial(edit, file=PROCESSOR, size={"height": 0, "width": 0}), base="vit"),
    DamagedModel(
        "pictures of a milliard pixels",
        partial(edit, file=PROCESSOR, size={"height": 10**6, "width": 10**6}),
        base="vit",
    ),
    DamagedModel("a deviation of nothing", partial(edit, file=PROCESSOR, image_std=[0, 0, 0]), base="vit"),
    DamagedModel("a mean that is text", partial(edit, file=PROCESSOR, image_mean="grey"), base="vit"),
]

CASES = [*BOMBS, *_WEIGHT_DAMAGE, *_CONFIG_DAMAGE, *_TOKENIZER_DAMAGE]
BASES = sorted({case.base for case in CASES})
