"""Models from a folder or a hub id: safetensors only, nothing random, no code from the model's author."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from relprop.errors import ModelError, RelpropError, RelpropWarning
from relprop.graph.graphormer import KIND, Graphormer
from relprop.stored_weights import WeightLimit, check_counts, check_texts, read_json, stored_weights

_NAMES = ("sentiment", "pets", "digits", "stories", "molecules", "superpixels")
EMBEDDED = {name: Path(__file__).parent / "models" / name for name in _NAMES}
_OWN = {KIND: Graphormer}  # architectures that relprop brings itself
_SIDE = 4096  # pixels: more than models of pictures read
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?", re.ASCII)
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


def load(name: str | Path, tokenizer: Any = None) -> tuple[nn.Module, Any]:
    """Model in eval mode and tokenizer or image processor: embedded, a folder, or a hub id.

    The tokenizer is the model's own, unless one is given.
    """
    given = str(EMBEDDED.get(str(name), name))
    with _as_model_errors(f'"{name}" cannot be loaded', given):
        where = os.path.expanduser(given)
        if os.path.isdir(where):
            _check_folder(Path(where))
            source, folder = where, Path(where)
        elif os.path.exists(where):
            raise ModelError(f'"{name}" is a file; name the folder that holds the model')
        elif isinstance(name, Path) or not _HUB_ID.fullmatch(name):
            raise ModelError(f'there is no folder "{name}"')
        else:
            source, folder = name, _folder_from_hub(name)
        stored = stored_weights(folder)
        check_texts(folder, stored)
        config = _settings(folder)
        check_counts(folder, config, stored)
        own = _own_architecture(config)
        with WeightLimit(stored, source):
            model = own.load(folder) if own else _load_model(source)
        _check_numbers(source, model, stored.whole)
        if tokenizer is None and not own:
            tokenizer = load_processor(source, model)
    return model, tokenizer


def load_processor(name: str | Path, model: nn.Module) -> Any:
    """The tokenizer or image processor of this name that a model reads with: embedded, a folder, or a hub id."""
    where = os.path.expanduser(str(EMBEDDED.get(str(name), name)))
    if not os.path.isdir(where) and (isinstance(name, Path) or not _HUB_ID.fullmatch(name)):
        raise ModelError(f'there is no folder "{name}" with a tokenizer or processor')
    reads_pixels = getattr(model, "main_input_name", "") == "pixel_values"
    return _load_image_processor(where) if reads_pixels else _load_tokenizer(where, model)


def _settings(folder: Path) -> dict[str, Any]:
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise ModelError(f'"{folder / "config.json"}" cannot be loaded: it holds no settings by name')
    return config


def _own_architecture(config: Mapping[str, Any]) -> type[Graphormer] | None:
    names = config.get("architectures")
    return _OWN.get(names[0]) if isinstance(names, list) and names and isinstance(names[0], str) else None


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise ModelError(f'"{folder}" holds no model: config.json is missing')
    if not any(found for pattern in _WEIGHTS for found in folder.glob(pattern)):
        pickles = [found.name for pattern in _PICKLES for found in folder.glob(pattern)]
        if pickles:
            raise ModelError(
                f'"{folder}" has its weights only in {pickles[0]}; relprop loads safetensors alone, as pickled '
                "files can run code: save the model once with model.save_pretrained(folder)"
            )
        raise ModelError(f'"{folder}" holds no weights: there is no .safetensors file')
    if (folder / "adapter_config.json").exists() and find_spec("peft") is None:
        raise ModelError(
            f'"{folder}" holds an adapter, which is not used without the peft package: save the model with its '
            "adapter merged"
        )


def _folder_from_hub(name: str) -> Path:
    """Where the hub's files lie on this machine, its config and weights among them; downloaded if need be."""
    from transformers.utils import cached_file

    def fetched(file: str, needed: bool) -> Path | None:
        found = cached_file(name, file, _raise_exceptions_for_missing_entries=needed)
        return None if found is None else Path(found)

    with quiet():
        config = fetched("config.json", needed=True)
        if fetched(_SINGLE, needed=False) is None and (index := fetched(_INDEX, needed=False)) is not None:
            for shard in sorted(set(read_json(index)["weight_map"].values())):
                fetched(shard, needed=True)
    assert config is not None  # it was needed
    _check_folder(config.parent)
    return config.parent


def _load_model(where: str) -> nn.Module:
    import transformers

    with quiet():
        config = transformers.AutoConfig.from_pretrained(where, trust_remote_code=False)
        name, cls = _architecture(where, config)
        if not isinstance(config, getattr(cls, "config_class", None) or object):
            warnings.warn(
                f'"{where}" is a {name} with a config of another model, {type(config).__name__}: settings that only '
                "one of them knows are left at their defaults",
                RelpropWarning,
                stacklevel=4,
            )
        model, info = cls.from_pretrained(
            where, config=config, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True
        )
    missing = sorted(info["missing_keys"]) + sorted(str(key) for key, *_ in info["mismatched_keys"])
    if missing:
        raise ModelError(
            f'"{where}" has no fitting weights for {_first_of(missing)} of {name}: transformers would make them '
            "random, and so would be the explanation; fine-tune the model or load one with its head"
        )
    _check_unused(where, model, sorted(info["unexpected_keys"]))
    model.eval()
    return model  # type: ignore[no-any-return]


def _check_unused(where: str, model: nn.Module, keys: list[str]) -> None:
    """Raise if the files hold weights for what the model computes; other unused ones are told in a warning.

    transformers itself leaves out of `keys` what it knows to be superfluous, such as the numbers of positions.
    """
    name = type(model).__name__
    ours = [key for key in keys if _belongs(model, key)]
    if ours:
        raise ModelError(
            f'"{where}" holds weights that the {name} of its config does not use, such as {_first_of(ours)}: the '
            "config is of another model, and so would be the explanation"
        )
    if keys:
        warnings.warn(
            f'"{where}" holds weights of modules that {name} does not have: {_first_of(keys)}',
            RelpropWarning,
            stacklevel=4,
        )


def _belongs(model: nn.Module, key: str) -> bool:
    """Whether a weight that the model lacks would be of one of its blocks or modules, not of a whole one it lacks."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    spellings = [key, prefix + key, key.removeprefix(prefix)]
    known = dict(model.named_modules())
    path, count = max((_known_parents(known, one) for one in spellings), key=lambda found: found[1])
    numbered = any(step.isdigit() for step in path[: count + 1])
    return numbered or count == len(path) - 1


def _known_parents(known: Mapping[str, Any], key: str) -> tuple[list[str], int]:
    """The steps of a weight's name, and how many of them lead to modules that the model has."""
    path = key.split(".")
    return path, sum(".".join(path[: k + 1]) in known for k in range(len(path)))


def _first_of(names: list[str]) -> str:
    return f'"{names[0]}"' + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _check_numbers(where: str, model: nn.Module, whole: Collection[str]) -> None:
    """Raise for weights that are not finite, or were whole numbers in the file; `whole`: the names of such."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            continue
        if name in whole or name.removeprefix(prefix) in whole:
            raise ModelError(
                f'"{where}" has whole numbers for "{name}", as if it were quantised, and its config does not say how'
            )
        if not torch.isfinite(parameter).all():
            raise ModelError(f'"{where}" has weights that are not finite numbers: its parameter "{name}"')


def _architecture(where: str, config: Any) -> tuple[str, Any]:
    import transformers

    names = getattr(config, "architectures", None)
    if not (isinstance(names, list) and names and isinstance(names[0], str)):
        raise ModelError(f'the config of "{where}" does not say which architecture the model is ("architectures")')
    name = names[0]
    cls = getattr(transformers, name, None)
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        raise ModelError(f'"{where}" is a {name:.80}, which transformers {transformers.__version__} does not have')
    return name, cls


def _load_tokenizer(where: str, model: nn.Module) -> Any:
    import transformers

    if Path(where).is_dir() and not _has_tokenizer(Path(where)):
        raise ModelError(f'"{where}" holds no tokenizer: there is no tokenizer.json, vocab.txt or the like')
    with quiet(), _as_model_errors(f'the tokenizer of "{where}" cannot be loaded', where):
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
        _check_vocabulary(where, model, tokenizer)
    longest = getattr(tokenizer, "model_max_length", None)
    if longest is not None and not isinstance(longest, int | float):
        raise ModelError(f'the tokenizer of "{where}" has a model_max_length that is no number: {longest!r:.80}')
    return tokenizer


def _check_vocabulary(where: str, model: nn.Module, tokenizer: Any) -> None:
    """Raise if the tokenizer has no tokens of its own, or some that the model does not know.

    Tokens that were added to a vocabulary and not to the model are often never used: they are refused in a text.
    """
    added = getattr(tokenizer, "added_tokens_decoder", {})
    ids = [number for number in tokenizer.get_vocab().values() if number not in added]
    if not ids:
        raise ModelError(f'the tokenizer of "{where}" has no vocabulary: the file with its tokens is missing or empty')
    table = _table_rows(model)
    if table is not None and max(ids) >= table:
        raise ModelError(
            f'the tokenizer of "{where}" has tokens up to number {max(ids):,}, its model knows 0 to {table - 1:,}: '
            "they are not of the same model"
        )


def _table_rows(model: nn.Module) -> int | None:
    """How many tokens the model's table has; None where it does not say which of its tables that is."""
    try:
        table = getattr(model, "get_input_embeddings", lambda: None)()
    except (NotImplementedError, AttributeError):
        return None
    return getattr(table, "num_embeddings", None)


def _load_image_processor(where: str) -> Any:
    import transformers

    if Path(where).is_dir() and not (Path(where) / "preprocessor_config.json").is_file():
        raise ModelError(f'"{where}" holds no image processor: there is no preprocessor_config.json')
    with quiet(), _as_model_errors(f'the image processor of "{where}" cannot be loaded', where):
        processor = transformers.AutoImageProcessor.from_pretrained(where, trust_remote_code=False)
        _check_picture_size(where, processor)
    return processor


def _check_picture_size(where: str, processor: Any) -> None:
    """Raise if pictures would be made larger than any model reads them."""
    for size in (getattr(processor, name, None) for name in ("size", "crop_size", "pad_size")):
        get = getattr(size, "get", None)
        for side in [get(one) for one in ("height", "width", "shortest_edge")] if get else [size]:
            if isinstance(side, int | float) and side > _SIDE:
                raise ModelError(
                    f'the image processor of "{where}" makes pictures of {side:,} pixels a side; at most {_SIDE:,} '
                    "can be explained"
                )


def _has_tokenizer(folder: Path) -> bool:
    names = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
    return any(found for name in names for found in folder.glob(name))


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and no warnings while transformers loads: what it would warn of is checked after."""
    from transformers import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _as_model_errors(what: str, where: str) -> Iterator[None]:
    """Safetensors, JSON, OS and hub errors have no common base: the first line of any becomes the reason."""
    try:
        yield
    except RelpropError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of the tokenizers, in Rust
            raise
        here = "" if os.path.isdir(where) else f'there is no folder "{where}", and from the hub: '
        raise ModelError(f"{what}: {here}{_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    """The reason in one line; what only programmers understand is named by its type too."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    if isinstance(error, LookupError | AttributeError | TypeError | ArithmeticError) or not first:
        first = f"its files do not fit together ({type(error).__name__}: {first})"
    return f"{first:.300}"
