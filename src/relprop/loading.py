"""Models from a folder or a hub id: safetensors only, nothing random, no code from the model's author."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from relprop.adapter_folders import CONFIG as ADAPTER_CONFIG
from relprop.adapter_folders import WEIGHTS as ADAPTER_WEIGHTS
from relprop.adapter_folders import AdapterFolder, adapter_folder, holds_adapter, with_adapter, with_label_count
from relprop.embedded import EMBEDDED as EMBEDDED  # also known here
from relprop.embedded import HUB_ID, check_name
from relprop.encoders.folder import MODULES, encoder_files, encoder_of_folder, is_encoder_folder, transformer_folder
from relprop.encoders.wrapped import is_headless
from relprop.engine.model_call import generates, is_ctc
from relprop.engine.wrappers import arguments_of
from relprop.errors import ModelError, RelpropError, RelpropWarning
from relprop.gguf_files import gguf_file, gguf_weights
from relprop.graph.graphormer import KIND, Graphormer
from relprop.library_logging import quiet as quiet
from relprop.loaded_weights import check_missing, check_numbers, check_picture_size, check_unused, table_rows
from relprop.model_config import config_value
from relprop.paired_processor import PairedProcessor
from relprop.stored_weights import WeightLimit, check_counts, check_texts, read_json, stored_weights

_OWN = {KIND: Graphormer}  # architectures that relprop brings itself
_SOUND_ARGUMENTS = ("input_values", "input_features")
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_PICTURE_SETTINGS = ("preprocessor_config.json", "processor_config.json")
_NEEDS = re.compile(r"(\w+) requires the (\S+) library but it was not found")  # how transformers says it
_WITHOUT = {"detectron2": "install it, or take LayoutLMv3, LayoutLM or LiLT, which read documents without it"}
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


def load(name: str | Path, tokenizer: Any = None) -> tuple[nn.Module, Any]:
    """Model in eval mode and tokenizer or image processor: embedded, a folder, a hub id, or a GGUF file.

    The tokenizer is the model's own, unless one is given. A folder may hold an adapter of PEFT alone, or a GGUF file.
    """
    given = str(EMBEDDED.get(str(name), name))
    with _as_model_errors(f'"{name}" cannot be loaded', given):
        where = os.path.expanduser(given)
        if (file := gguf_file(Path(where))) is not None:
            return _load_gguf(file, tokenizer)
        source, folder = _located(name, where)
        if holds_adapter(folder):
            adapter = adapter_folder(folder)
            model = _adapted_model(adapter)
            source = source if _has_tokenizer(folder) else os.path.expanduser(adapter.base)
        elif is_encoder_folder(folder):
            return _load_encoder(source, folder, tokenizer)
        else:
            model = _whole_model(source, folder)
        if tokenizer is None and not isinstance(model, tuple(_OWN.values())):
            tokenizer = load_processor(source, model)
    return model, tokenizer


def stamp(name: str | Path) -> tuple[tuple[str, int, int], ...]:
    """Names, times and sizes of the files of a model's folder: whether it is still the same. Of a hub id nothing."""
    folder = Path(EMBEDDED.get(str(name), name)).expanduser()
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


def _load_encoder(source: str, folder: Path, tokenizer: Any) -> tuple[nn.Module, Any]:
    """A Transformer without a head, with the modules behind it that the folder names."""
    inner = transformer_folder(folder)
    source = source if inner == folder else str(inner)
    model = _whole_model(source, inner, headless=True)
    if tokenizer is None:
        tokenizer = load_processor(source, model)
    return encoder_of_folder(folder, model), tokenizer


def load_processor(name: str | Path, model: nn.Module) -> Any:
    """The tokenizer or processor of this name that a model reads with: embedded, a folder, or a hub id."""
    where = os.path.expanduser(str(EMBEDDED.get(str(name), name)))
    if not os.path.isdir(where) and (isinstance(name, Path) or not HUB_ID.fullmatch(name)):
        raise ModelError(f'there is no folder "{name}" with a tokenizer or processor')
    main, taken = getattr(model, "main_input_name", ""), arguments_of(model)
    if main == "past_values":  # numbers, as they are
        return None
    if main in _SOUND_ARGUMENTS:
        return _load_sound_processor(where, model)
    texts = "input_ids" in taken or ("decoder_input_ids" in taken and generates(model))
    pictures = "pixel_values" in taken and not (os.path.isdir(where) and not _has_pictures(Path(where)))
    if texts and pictures:
        return _load_both(where, model)
    return _load_image_processor(where) if main == "pixel_values" else _load_tokenizer(where, model)


def _located(name: str | Path, where: str) -> tuple[str, Path]:
    """What transformers loads a model by, and the folder of its files on this machine, checked."""
    if os.path.isdir(where):
        _check_folder(transformer_folder(Path(where)))
        return where, Path(where)
    if os.path.exists(where):
        raise ModelError(f'"{name}" is a file; name the folder that holds the model')
    check_name(name)
    return str(name), _folder_from_hub(str(name))


def _whole_model(source: str, folder: Path, adapter: AdapterFolder | None = None, headless: bool = False) -> nn.Module:
    """The model of a folder; with an adapter, the model of the adapter's task; or its Transformer alone."""
    stored = stored_weights(folder)
    check_texts(folder, stored)
    config = _settings(folder)
    check_counts(folder, config, stored)
    own = _own_architecture(config)
    with WeightLimit(stored if adapter is None else stored + stored_weights(adapter.folder), source):
        model = own.load(folder) if own else _load_model(source, adapter, headless)
        if adapter is not None:
            with quiet():
                model = with_adapter(model, adapter)
    check_numbers(source, model, stored.whole)
    return model


def _adapted_model(adapter: AdapterFolder) -> nn.Module:
    check_texts(adapter.folder, stored_weights(adapter.folder))
    what = f'the model that the adapter in "{adapter.folder}" was made for cannot be loaded'
    with _as_model_errors(what, os.path.expanduser(adapter.base)):
        source, folder = _located(adapter.base, os.path.expanduser(adapter.base))
        if holds_adapter(folder):
            raise ModelError(f'"{adapter.folder}" adapts "{adapter.base}", which is an adapter itself')
    return _whole_model(source, folder, adapter)


def _load_both(where: str, model: nn.Module) -> Any:
    """The model's processor of pictures and texts, or its two halves."""
    import transformers

    with quiet(), _as_model_errors(f'the processor of "{where}" cannot be loaded', where):
        processor = transformers.AutoProcessor.from_pretrained(where, trust_remote_code=False)
    if all(getattr(processor, name, None) is not None for name in ("image_processor", "tokenizer")):
        _check_vocabulary(where, model, processor.tokenizer)
        check_picture_size(where, processor.image_processor)
        return processor
    return PairedProcessor(_load_image_processor(where), _load_tokenizer(where, model))


def _has_pictures(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _PICTURE_SETTINGS)


def _settings(folder: Path) -> dict[str, Any]:
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise ModelError(f'"{folder / "config.json"}" cannot be loaded: it holds no settings by name')
    return config


def _own_architecture(config: Mapping[str, Any]) -> type[Graphormer] | None:
    names = config.get("architectures")
    return _OWN.get(names[0]) if isinstance(names, list) and names and isinstance(names[0], str) else None


def _check_folder(folder: Path) -> None:
    if holds_adapter(folder):
        if any((folder / weights).is_file() for weights in (_SINGLE, _INDEX)):
            raise ModelError(f'"{folder}" holds a whole model and an adapter: give each a folder of its own')
        return
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


def _folder_from_hub(name: str) -> Path:
    """Where the hub's files lie on this machine, its config and weights among them; downloaded if need be."""
    from transformers.utils import cached_file

    def fetched(file: str, needed: bool) -> Path | None:
        found = cached_file(name, file, _raise_exceptions_for_missing_entries=needed)
        return None if found is None else Path(found)

    with quiet():
        weights = fetched(_SINGLE, needed=False)
        if weights is None and (index := fetched(_INDEX, needed=False)) is not None:
            weights = index
            for shard in sorted(set(read_json(index)["weight_map"].values())):
                fetched(shard, needed=True)
        adapter = fetched(ADAPTER_CONFIG, needed=False) if weights is None else None
        if adapter is not None:
            fetched(ADAPTER_WEIGHTS, needed=True)
        config = adapter or fetched("config.json", needed=True)
        if config is not None and fetched(MODULES, needed=False) is not None:
            for file in encoder_files(config.parent):
                fetched(file, needed=False)
    assert config is not None  # it was needed
    _check_folder(config.parent)
    return config.parent


def _load_model(where: str, adapter: AdapterFolder | None = None, headless: bool = False) -> nn.Module:
    import transformers

    with quiet():
        config = _config(where)
        if headless:
            name, cls = "encoder", transformers.AutoModel
        elif adapter is None or adapter.auto_class is None:
            name, cls = _architecture(where, config)
        else:
            name, cls = adapter.auto_class, getattr(transformers, adapter.auto_class)
            config = with_label_count(adapter, cls, config)
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
    filled = [] if adapter is None else list(adapter.shapes)
    if is_headless(model):  # its pooler is read by no encoder: embeddings are made of the last states
        filled += [key for key in info["missing_keys"] if key.startswith("pooler.")]
    check_missing(where, name, info, filled)
    check_unused(where, model, sorted(info["unexpected_keys"]), told=adapter is None)
    halves = [one for one in model.parameters() if one.dtype in (torch.float16, torch.bfloat16)]
    if halves and halves[0].device.type == "cpu" and config_value(model, "quantization_config") is None:
        model.float()  # many times faster there
    return model.eval()  # type: ignore[no-any-return]


def _load_gguf(file: Path, tokenizer: Any) -> tuple[nn.Module, Any]:
    """A language model from a GGUF file, its numbers unpacked to float32, and the tokenizer that comes with it."""
    import transformers

    where, stored = str(file.parent), gguf_weights(file)
    with quiet(), WeightLimit(stored, file.name):
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            where, gguf_file=file.name, output_loading_info=True, dtype=torch.float32, trust_remote_code=False
        )
    check_missing(str(file), type(model).__name__, info)
    check_numbers(str(file), model, stored.whole)
    model.eval()
    if tokenizer is None:
        tokenizer = _load_tokenizer(where, model, None if _has_tokenizer(file.parent) else file.name)
    return model, tokenizer


def _config(where: str) -> Any:
    """The config of a model. Raises for one that only code of the model's author can read."""
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(where, trust_remote_code=False)
    except ValueError as error:
        if "trust_remote_code" in str(error):
            raise _comes_with_code(where) from None
        raise


def _comes_with_code(where: str) -> ModelError:
    return ModelError(
        f'"{where}" comes with code of its author (auto_map), and relprop runs none: if you trust it, load the model '
        "yourself with trust_remote_code=True and pass Explainer(model, tokenizer)"
    )


def _architecture(where: str, config: Any) -> tuple[str, Any]:
    import transformers

    names = getattr(config, "architectures", None)
    if not (isinstance(names, list) and names and isinstance(names[0], str)):
        raise ModelError(f'the config of "{where}" does not say which architecture the model is ("architectures")')
    name = names[0]
    cls = getattr(transformers, name, None)
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        if getattr(config, "auto_map", None):
            raise _comes_with_code(where)
        raise ModelError(f'"{where}" is a {name:.80}, which transformers {transformers.__version__} does not have')
    return name, cls


def _load_tokenizer(where: str, model: nn.Module, gguf: str | None = None) -> Any:
    """The tokenizer of a folder or hub id; `gguf`: the file of the folder that holds it."""
    import transformers

    if Path(where).is_dir() and not _has_tokenizer(Path(where)) and gguf is None:
        raise ModelError(f'"{where}" holds no tokenizer: there is no tokenizer.json, vocab.txt or the like')
    with quiet(), _as_model_errors(f'the tokenizer of "{where}" cannot be loaded', where):
        within = {} if gguf is None else {"gguf_file": gguf}
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False, **within)
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
    table = table_rows(model)
    if table is not None and max(ids) >= table:
        raise ModelError(
            f'the tokenizer of "{where}" has tokens up to number {max(ids):,}, its model knows 0 to {table - 1:,}: '
            "they are not of the same model"
        )


def _load_image_processor(where: str) -> Any:
    import transformers

    if Path(where).is_dir() and not _has_pictures(Path(where)):
        raise ModelError(f'"{where}" holds no image processor: there is no preprocessor_config.json')
    with quiet(), _as_model_errors(f'the image processor of "{where}" cannot be loaded', where):
        processor = transformers.AutoImageProcessor.from_pretrained(where, trust_remote_code=False)
        check_picture_size(where, processor)
    return processor


@dataclass(frozen=True)
class SoundProcessor:
    """What a model of sounds reads with, and the tokenizer of what it writes."""

    feature_extractor: Any
    tokenizer: Any = None


def pipeline_processor(pipeline: Any) -> Any:
    """What a pipeline of transformers reads with."""
    tokenizer, extractor = (getattr(pipeline, name, None) for name in ("tokenizer", "feature_extractor"))
    if extractor is not None and getattr(pipeline.model, "main_input_name", "") in _SOUND_ARGUMENTS:
        return SoundProcessor(extractor, tokenizer)
    processor, images = (getattr(pipeline, name, None) for name in ("processor", "image_processor"))
    if processor is None and tokenizer is not None and images is not None:
        return PairedProcessor(images, tokenizer)
    return processor or tokenizer or images


def _load_sound_processor(where: str, model: nn.Module) -> SoundProcessor:
    import transformers

    files = ("preprocessor_config.json", "processor_config.json")
    if Path(where).is_dir() and not any((Path(where) / file).is_file() for file in files):
        raise ModelError(f'"{where}" holds no feature extractor: there is no {" or ".join(files)}')
    with quiet(), _as_model_errors(f'the feature extractor of "{where}" cannot be loaded', where):
        extractor = transformers.AutoFeatureExtractor.from_pretrained(where, trust_remote_code=False)
    writes = not Path(where).is_dir() or _has_tokenizer(Path(where))
    needed = generates(model) or is_ctc(model)
    return SoundProcessor(extractor, _load_tokenizer(where, model) if needed and writes else None)


def _has_tokenizer(folder: Path) -> bool:
    names = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
    return any(found for name in names for found in folder.glob(name))


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
    if isinstance(error, ImportError) and (needs := _NEEDS.search(str(error))):
        model, package = needs.groups()
        return f"{model} needs the package {package}: {_WITHOUT.get(package, 'install it')}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    if isinstance(error, LookupError | AttributeError | TypeError | ArithmeticError) or not first:
        first = f"its files do not fit together ({type(error).__name__}: {first})"
    return f"{first:.300}"
