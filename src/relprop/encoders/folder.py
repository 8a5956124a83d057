"""A folder as sentence-transformers saves it: which modules follow the Transformer, and how texts are compared."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from relprop.encoders.text_encoder import POOLINGS, TEXT, Pool, Project, TextEncoder, TransformerStep, UnitLength
from relprop.errors import ModelError, RelpropWarning
from relprop.stored_weights import read_json

MODULES, SETTINGS, LIMITS = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
_ACTIVATIONS = {"Identity": nn.Identity, "Tanh": nn.Tanh, "ReLU": nn.ReLU, "GELU": nn.GELU, "Sigmoid": nn.Sigmoid}
_POOLING = "pooling_mode"
_FORMER = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}  # else a mode is called as it is now


def is_encoder_folder(folder: Path) -> bool:
    """Whether the folder holds an encoder with its own modules; cross-encoders give a number, no embedding."""
    return (folder / MODULES).is_file() and _settings(folder, SETTINGS).get("model_type") != "CrossEncoder"


def encoder_files(folder: Path) -> list[str]:
    """The files beside the Transformer's own that an encoder may have."""
    files = [f"{path}/{name}" for _, path in _paths(folder)[1:] for name in ("config.json", "model.safetensors")]
    return [SETTINGS, LIMITS, *files]


def transformer_folder(folder: Path) -> Path:
    """Where the Transformer lies: the folder itself, or as old versions saved it a folder in it."""
    if not (folder / MODULES).is_file() or (folder / "config.json").is_file():
        return folder
    return folder / _paths(folder)[0][1]


def encoder_of_folder(folder: Path, model: nn.Module) -> TextEncoder:
    """The Transformer with the modules that the folder names. Raises for those that relprop does not know."""
    settings, (first, *rest) = _settings(folder, SETTINGS), _paths(folder)
    if (folder / "model_head.pkl").exists():
        warnings.warn(
            f'"{folder}" is a SetFit model, whose head is pickled and not loaded: its embeddings are explained; for '
            "its classes give Explainer the model that SetFitModel.from_pretrained loads",
            RelpropWarning,
            stacklevel=4,
        )
    kind = str(settings.get("model_type") or "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise _unknown(folder, kind)
    steps: list[nn.Module] = [TransformerStep(model)]
    steps += [_step(kind, folder / path) for kind, path in rest]
    pooling = next((step.pooling for step in steps if isinstance(step, Pool)), "no")
    longest = _settings(folder / first[1], LIMITS).get("max_seq_length")
    prompts, name = settings.get("prompts") or {}, settings.get("default_prompt_name")
    prompt = prompts.get(name, "") if isinstance(prompts, dict) and name else ""
    return TextEncoder(
        model,
        pooling,
        similarity=str(settings.get("similarity_fn_name") or "cosine"),
        steps=steps,
        max_length=longest if isinstance(longest, int) else None,
        prompts=(prompt, prompt),
    )


def _paths(folder: Path) -> list[tuple[str, str]]:
    """Per module its kind and folder. Raises unless a Transformer comes first."""
    listed = read_json(folder / MODULES)
    modules = listed if isinstance(listed, list) else []
    if not modules or not all(isinstance(one, dict) and {"type", "path"} <= set(one) for one in modules):
        raise ModelError(f'"{folder / MODULES}" does not list the modules of an encoder')
    found = [(str(one["type"]).rpartition(".")[2], str(one["path"])) for one in modules]
    for _, path in found:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ModelError(f'"{folder / MODULES}" names a module outside of its folder: {path!r:.80}')
    if found[0][0] != "Transformer":
        raise _unknown(folder, found[0][0])
    return found


def _step(kind: str, folder: Path) -> nn.Module:
    config = _settings(folder, "config.json")
    if kind == "Normalize":
        return UnitLength(str(config.get("module_input_name") or TEXT))
    if kind == "Pooling":
        modes = _modes(config)
        if len(modes) == 1 and modes[0] in POOLINGS and config.get("include_prompt", True):
            return Pool(modes[0])
    if kind == "Dense" and (folder / "model.safetensors").is_file():
        return _dense(config, folder)
    raise _unknown(folder.parent, kind)


def _modes(config: dict[str, Any]) -> Sequence[str]:
    """The names of the poolings, in both spellings of the file."""
    mode = config.get(_POOLING)
    if mode is not None:
        return [mode] if isinstance(mode, str) else list(mode)
    former = [name.removeprefix(f"{_POOLING}_") for name, value in config.items() if name != _POOLING and value is True]
    return [_FORMER.get(name, name) for name in former if name != "include_prompt"]


def _dense(config: dict[str, Any], folder: Path) -> Project:
    weights = load_file(str(folder / "model.safetensors"))
    kind = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    name, weight = str(config.get("module_input_name") or TEXT), weights.get("linear.weight")
    plain = set(weights) <= _LINEAR and config.get("module_output_name") in (None, name)
    if kind not in _ACTIVATIONS or weight is None or weight.dim() != 2 or not plain:
        raise _unknown(folder.parent, f"Dense layer with {kind}")
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias="linear.bias" in weights, dtype=weight.dtype)
    with torch.no_grad():
        linear.load_state_dict({name.removeprefix("linear."): value for name, value in weights.items()})
    return Project(linear.eval(), _ACTIVATIONS[kind](), name)


_LINEAR = {"linear.weight", "linear.bias"}


def _settings(folder: Path, name: str) -> dict[str, Any]:
    settings = read_json(folder / name) if (folder / name).is_file() else {}
    if not isinstance(settings, dict):
        raise ModelError(f'"{folder / name}" holds no settings by name')
    return settings


def _unknown(folder: Path, kind: str) -> ModelError:
    return ModelError(
        f'"{folder}" has a {kind:.80} among its modules, which relprop does not build from a folder: load it with '
        "sentence_transformers.SentenceTransformer and give that to Explainer"
    )
