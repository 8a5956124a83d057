"""Folders that hold an adapter of PEFT alone: which model they adapt, and the adapter put on it."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from relprop.errors import ModelError
from relprop.stored_weights import read_json, stored_shapes

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."  # of the names of weights in an adapter's file
# The class of transformers for each task of PEFT; an adapter without a task adapts the architecture as it is.
_CLASSES = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "FEATURE_EXTRACTION": "AutoModel",
}


@dataclass(frozen=True)
class AdapterFolder:
    """An adapter: the model that it was made for, the class of its task, and the shapes of its weights."""

    folder: Path
    base: str  # a folder or a hub id
    auto_class: str | None
    shapes: dict[str, tuple[int, ...]]  # by the names that the adapted model itself has


def holds_adapter(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def adapter_folder(folder: Path) -> AdapterFolder:
    """What an adapter's folder says. Raises where peft is missing, or files are."""
    if find_spec("peft") is None:
        raise ModelError(f'"{folder}" holds an adapter, which needs the peft package: pip install "relprop[peft]"')
    config = read_json(folder / CONFIG)
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if not isinstance(base, str) or not base:
        raise ModelError(
            f'"{folder / CONFIG}" does not say which model it adapts ("base_model_name_or_path"): load both with '
            "peft and pass the model and its tokenizer"
        )
    if not (folder / WEIGHTS).is_file():
        raise ModelError(
            f'"{folder}" holds no {WEIGHTS}: relprop loads safetensors alone, as pickled files can run code'
        )
    shapes = {name.removeprefix(_PREFIX): shape for name, shape in stored_shapes(folder / WEIGHTS).items()}
    return AdapterFolder(folder, base, _CLASSES.get(str(config.get("task_type"))), shapes)


def with_label_count(adapter: AdapterFolder, auto_class: Any, config: Any) -> Any:
    """The base model's config, with as many labels as the head that was trained with the adapter has."""
    sizes = []
    for extra in (0, 1):  # what changes with the number of labels is the head
        other = copy.deepcopy(config)
        other.num_labels = config.num_labels + extra
        with torch.device("meta"):
            sizes.append({name: one.shape for name, one in auto_class.from_config(other).named_parameters()})
    for name, shape in adapter.shapes.items():
        axes = [k for k, size in enumerate(sizes[0].get(name, ())) if size != sizes[1][name][k]]
        if axes and len(shape) > axes[0] and shape[axes[0]] != config.num_labels:
            config.num_labels = shape[axes[0]]
    return config


def with_adapter(model: nn.Module, adapter: AdapterFolder) -> nn.Module:
    """The model with its adapter. Raises unless the adapter's weights are all there and all used."""
    import peft

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what peft only warns of is refused below
        adapted = peft.PeftModel.from_pretrained(model, str(adapter.folder))
    wanted = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    expected = {name.removeprefix(_PREFIX): tuple(one.shape) for name, one in wanted.items()}
    missing = sorted(name for name, shape in expected.items() if adapter.shapes.get(name) != shape)
    if missing:
        raise ModelError(
            f'"{adapter.folder}" has no fitting weights for "{missing[0]}" of its adapter: peft would leave them as '
            "they are made, and the explanation would be of another model"
        )
    own = {name for name, _ in model.named_parameters()}  # tables that grew with the vocabulary are whole
    unused = sorted(name for name in adapter.shapes if name not in expected and name not in own)
    if unused:
        raise ModelError(f'"{adapter.folder}" holds weights that its adapter does not use, such as "{unused[0]}"')
    adapted.eval()
    return adapted  # type: ignore[no-any-return]
