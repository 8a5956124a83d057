"""Models from a folder or a hub id: safetensors only, nothing random, no code from the model's author."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from relprop.errors import ModelError

EMBEDDED = {"sentiment": Path(__file__).parent / "models" / "sentiment"}
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


def load(name: str | Path) -> tuple[nn.Module, Any]:
    """Model in eval mode and tokenizer, from an embedded name, a folder, or a hub id."""
    where = EMBEDDED.get(str(name), name)
    if Path(where).is_dir():
        _check_folder(Path(where))
    elif isinstance(name, Path) or str(name).startswith((".", "/", "~")):
        raise ModelError(f'there is no folder "{name}"')
    return _load_model(where), _load_tokenizer(where)


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


def _load_model(where: str | Path) -> nn.Module:
    import transformers

    transformers.logging.disable_progress_bar()
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # what it would warn of is checked below
    try:
        config = transformers.AutoConfig.from_pretrained(where, trust_remote_code=False)
        names = getattr(config, "architectures", None) or []
        cls = getattr(transformers, names[0], None) if names else None
        if cls is None:
            raise ModelError(
                f'the config of "{where}" names no architecture that transformers {transformers.__version__} has'
            )
        model, info = cls.from_pretrained(where, config=config, use_safetensors=True, output_loading_info=True)
    except ModelError:
        raise
    except Exception as error:  # safetensors, JSON, OS and hub errors have no common base
        raise ModelError(f'"{where}" cannot be loaded: {_first_line(error)}') from error
    finally:
        transformers.logging.set_verbosity(verbosity)
    missing = sorted(info["missing_keys"]) + sorted(str(key) for key, *_ in info.get("mismatched_keys", ()))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            f'"{where}" has no fitting weights for "{missing[0]}"{more} of {names[0]}: transformers would make them '
            "random, and so would be the explanation; fine-tune the model or load one with its head"
        )
    model.eval()
    return model  # type: ignore[no-any-return]


def _load_tokenizer(where: str | Path) -> Any:
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    except Exception as error:
        files = "no tokenizer files" if Path(where).is_dir() and not _has_tokenizer(Path(where)) else _first_line(error)
        raise ModelError(f'the tokenizer of "{where}" cannot be loaded: {files}') from error


def _has_tokenizer(folder: Path) -> bool:
    names = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "*.model")
    return any(found for name in names for found in folder.glob(name))


def _first_line(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "its config.json is not valid JSON"
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
