"""Models from a folder or a hub id: safetensors only, nothing random, no code from the model's author."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from relprop.errors import ModelError
from relprop.graph.graphormer import KIND, Graphormer

_NAMES = ("sentiment", "pets", "digits", "stories", "molecules", "superpixels")
EMBEDDED = {name: Path(__file__).parent / "models" / name for name in _NAMES}
_OWN = {KIND: Graphormer}  # architectures that relprop brings itself
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?", re.ASCII)
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


def load(name: str | Path, tokenizer: Any = None) -> tuple[nn.Module, Any]:
    """Model in eval mode and tokenizer or image processor (its own, unless given): embedded, a folder, or a hub id."""
    where = EMBEDDED.get(str(name)) or Path(name).expanduser()
    if where.is_dir():
        _check_folder(where)
    elif where.exists():
        raise ModelError(f'"{name}" is a file; name the folder that holds the model')
    elif isinstance(name, Path) or not _HUB_ID.fullmatch(name):
        raise ModelError(f'there is no folder "{name}"')
    source = str(where) if where.is_dir() else str(name)
    own = _own_architecture(where)
    model = own.load(where) if own else _load_model(source)
    if tokenizer is None and not own:
        reads_pixels = getattr(model, "main_input_name", "") == "pixel_values"
        tokenizer = _load_image_processor(source) if reads_pixels else _load_tokenizer(source)
    return model, tokenizer


def _own_architecture(folder: Path) -> type[Graphormer] | None:
    try:
        names = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("architectures") or [None]
    except (OSError, ValueError, AttributeError):
        return None
    return _OWN.get(names[0])


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


def _load_model(where: str) -> nn.Module:
    import transformers

    with quiet(), _as_model_errors(f'"{where}" cannot be loaded', where):
        config = transformers.AutoConfig.from_pretrained(where, trust_remote_code=False)
        name, cls = _architecture(where, config)
        model, info = cls.from_pretrained(
            where, config=config, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True
        )
    missing = sorted(info["missing_keys"]) + sorted(str(key) for key, *_ in info["mismatched_keys"])
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            f'"{where}" has no fitting weights for "{missing[0]}"{more} of {name}: transformers would make them '
            "random, and so would be the explanation; fine-tune the model or load one with its head"
        )
    model.eval()
    return model  # type: ignore[no-any-return]


def _architecture(where: str, config: Any) -> tuple[str, Any]:
    import transformers

    names = getattr(config, "architectures", None) or []
    if not names:
        raise ModelError(f'the config of "{where}" does not say which architecture the model is ("architectures")')
    cls = getattr(transformers, names[0], None)
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        raise ModelError(f'"{where}" is a {names[0]}, which transformers {transformers.__version__} does not have')
    return names[0], cls


def _load_tokenizer(where: str) -> Any:
    import transformers

    if Path(where).is_dir() and not _has_tokenizer(Path(where)):
        raise ModelError(f'"{where}" holds no tokenizer: there is no tokenizer.json, vocab.txt or the like')
    with quiet(), _as_model_errors(f'the tokenizer of "{where}" cannot be loaded', where):
        return transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)


def _load_image_processor(where: str) -> Any:
    import transformers

    if Path(where).is_dir() and not (Path(where) / "preprocessor_config.json").is_file():
        raise ModelError(f'"{where}" holds no image processor: there is no preprocessor_config.json')
    with quiet(), _as_model_errors(f'the image processor of "{where}" cannot be loaded', where):
        return transformers.AutoImageProcessor.from_pretrained(where, trust_remote_code=False)


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
    except ModelError:
        raise
    except Exception as error:
        here = "" if Path(where).is_dir() else f'there is no folder "{where}", and from the hub: '
        raise ModelError(f"{what}: {here}{_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    if isinstance(error, SafetensorError):
        return f"its weights are damaged or cut short ({error})"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
