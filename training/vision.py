"""What the training scripts of the image models share: the loop, the CNN that teaches the ViT, the saved model.

The minutes are the budget: the learning rate warms up over the first twentieth of them and falls along a cosine to
zero as they run out, so that a run on any machine ends with a finished model. Step n draws all its randomness from
(seed, n), so a stopped run goes on from its checkpoint as if nothing had happened.
"""

import argparse
import copy
import itertools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import ViTConfig, ViTForImageClassification
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import relprop

WARM_UP = 0.05
Network = TypeVar("Network", bound=nn.Module)


def options(description: str, data: str, out: str, minutes: float) -> argparse.ArgumentParser:
    """The options that every image model's script takes."""
    name = Path(out).name
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help=f"folder with {data}")
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument(
        "--work", type=Path, default=Path("build") / name, help="for checkpoints; a stopped run goes on"
    )
    parser.add_argument("--minutes", type=float, default=minutes, help="of training the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true", help="only print the figures of the model in --out")
    return parser


def schedule(share: float) -> float:
    """The learning rate after a share of the budget, as a part of its peak."""
    return min(share / WARM_UP, 1.0) * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def decay_groups(model: nn.Module, decay: float) -> list[dict[str, object]]:
    """Matrices decay; biases, norms, tokens and positions do not."""
    matrices = [p for name, p in model.named_parameters() if p.ndim > 1 and "embeddings.p" not in name]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [{"params": matrices, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, step: int, memory: float) -> None:
    """Running average of weights (and of batch statistics), over about 1 / (1 - memory) steps."""
    memory = min(memory, (1 + step) / (10 + step))
    for old, new in zip(slow.state_dict().values(), fast.state_dict().values(), strict=True):
        if old.is_floating_point():
            old.lerp_(new, 1 - memory)
        else:
            old.copy_(new)


def train(
    model: Network,
    loss_of: Callable[[Network, np.random.Generator], Tensor],
    checkpoint: Path,
    *,
    minutes: float,
    rate: float,
    decay: float,
    seed: int,
    memory: float = 0.998,
    score: Callable[[Network], str] = lambda model: "",
    every: float = 60.0,
) -> Network:
    """AdamW in bfloat16 until the minutes are spent; returns the averaged weights, in eval mode."""
    slow = copy.deepcopy(model).eval()
    optimiser = torch.optim.AdamW(decay_groups(model, decay), lr=rate, betas=(0.9, 0.98))
    step, spent = 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        step, spent = state["step"], state["spent"]
        for part, name in ((model, "model"), (slow, "slow"), (optimiser, "optimiser")):
            part.load_state_dict(state[name])
        print(f"  going on at step {step}, {spent / 60:.1f} of {minutes:g} minutes", flush=True)

    def save() -> None:
        state = {"step": step, "spent": spent, "model": model.state_dict(), "slow": slow.state_dict()}
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        torch.save({**state, "optimiser": optimiser.state_dict()}, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)

    losses: list[float] = []
    before, saved = time.monotonic(), spent
    model.train()
    while spent < 60 * minutes:
        rng = np.random.default_rng((seed, step))
        torch.manual_seed(int(rng.integers(2**62)))
        for group in optimiser.param_groups:
            group["lr"] = rate * schedule(spent / (60 * minutes))
        loss = loss_of(model, rng)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        follow(slow, model, step, memory)
        step += 1
        losses.append(loss.item())
        now = time.monotonic()
        spent, before = spent + now - before, now
        if spent - saved >= every or spent >= 60 * minutes:
            save()
            mean = sum(losses) / len(losses)
            print(f"  {spent / 60:.1f} min, step {step}: loss {mean:.4f} {score(slow)}", flush=True)
            losses, saved = [], spent
    return slow


def waves(side: int, width: int) -> Tensor:
    """Sines and cosines of row and column for side x side patches, after a zero for the class token."""
    frequencies = 100.0 ** -(torch.arange(width // 4) / (width // 4))
    angles = torch.arange(side)[:, None] * frequencies
    one = torch.cat([angles.sin(), angles.cos()], 1)
    rows, columns = one[:, None].expand(-1, side, -1), one[None].expand(side, -1, -1)
    grid = torch.cat([rows, columns], 2).reshape(side**2, width)
    return torch.cat([torch.zeros(1, width), grid])[None]


def new_vit(names: dict[int, str], *, side: int, patch: int, width: int, layers: int, heads: int, **more: str) -> Any:
    """A ViT that begins as Beyer et al. 2022 advise: positions are waves, and weights suit a narrow model."""
    config = ViTConfig(
        image_size=side,
        patch_size=patch,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=2 * width,
        initializer_range=width**-0.5,
        id2label=names,
        label2id={name: number for number, name in names.items()},
        attn_implementation="eager",  # in bfloat16 on a CPU faster than sdpa
        **more,
    )
    model = ViTForImageClassification(config)
    model.vit.embeddings.position_embeddings.data.copy_(waves(side // patch, width))
    return model


class Residual(nn.Module):
    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(into, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        skip = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.skip = skip if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


class Teacher(nn.Module):
    """A residual CNN that halves the picture at every width; gives logits and the features of its last two widths."""

    def __init__(self, widths: tuple[int, ...], labels: int) -> None:
        super().__init__()
        first = widths[0]
        self.stem = nn.Sequential(nn.Conv2d(3, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU())
        self.stages = nn.ModuleList(
            nn.Sequential(Residual(into, out, 2), Residual(out, out, 1)) for into, out in itertools.pairwise(widths)
        )
        self.head = nn.Linear(widths[-1], labels)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = self.stem(x.contiguous(memory_format=torch.channels_last))
        features = [x := stage(x) for stage in self.stages]
        return self.head(x.mean((2, 3))), features[-2:]


class Student(nn.Module):
    """A ViT whose patches learn a teacher's features at the same place: the locality guidance of Li et al. 2022.

    A ViT learns slowly from little data, as it must find out that what is near belongs together; a CNN knows. An early
    layer learns the teacher's last but one features, a late layer its last.
    """

    def __init__(self, vit: ViTForImageClassification, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.vit = vit
        self.guided = (len(vit.vit.layers) // 3 - 1, len(vit.vit.layers) - 2)
        self.guesses = nn.ModuleList(nn.Linear(vit.config.hidden_size, size) for size in widths[-2:])

    def forward(self, x: Tensor, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """What the classifier reads, and the guessed features, when only some patches are seen."""
        tokens = self.vit.vit.embeddings(x)
        tokens = torch.cat([tokens[:, :1], tokens[:, 1 + patches]], 1)
        guessed = []
        for number, layer in enumerate(self.vit.vit.layers):
            tokens = layer(tokens)
            guessed += [self.guesses[k](tokens[:, 1:]) for k, guided in enumerate(self.guided) if guided == number]
        return self.vit.vit.layernorm(tokens)[:, 0], guessed


def distance(guessed: list[Tensor], features: list[Tensor], patches: Tensor, side: int) -> Tensor:
    """Squared error of the guesses; the features of each patch have mean 0 and variance 1."""
    total = torch.zeros(())
    for guess, feature in zip(guessed, features, strict=True):
        placed = F.interpolate(feature.float(), size=(side, side), mode="bilinear").flatten(2).transpose(1, 2)
        wanted = F.layer_norm(placed[:, patches], placed.shape[-1:])
        total = total + F.mse_loss(guess.float(), wanted)
    return total


def save_model(model: ViTForImageClassification, folder: Path, mean: float = 0.5) -> None:
    """Weights in half precision, to be computed in single; the processor turns any picture into the model's input."""
    model.half().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    size = {"height": model.config.image_size, "width": model.config.image_size}
    processor = ViTImageProcessorPil(size=size, image_mean=[mean] * 3, image_std=[0.5] * 3, do_convert_rgb=True)
    processor.save_pretrained(folder)


def load_model(folder: Path) -> ViTForImageClassification:
    return ViTForImageClassification.from_pretrained(folder, dtype=torch.float32).eval()


def as_input(images: np.ndarray | Tensor, mean: float = 0.5) -> Tensor:
    """Bytes (n, height, width[, 3]) as the processor gives them: (n, 3, height, width), less the mean, doubled."""
    values = torch.as_tensor(images)
    values = values.unsqueeze(-1).expand(*values.shape, 3) if values.ndim == 3 else values
    return (values.permute(0, 3, 1, 2).float() / 255 - mean) / 0.5


@torch.no_grad()
def predict(model: nn.Module, inputs: Tensor) -> Tensor:
    """Logits of every picture, in order, in single precision."""
    return torch.cat([model(part).logits for part in inputs.split(128)])


def evidence(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """What speaks for the targets, (n, height, width): AttnLRP's relevance of the pixels where it is positive."""
    x = inputs.clone().requires_grad_()
    with relprop.rules("attn_lrp"):
        logits = model(x).logits
    (grad,) = torch.autograd.grad(logits.gather(1, targets[:, None]).sum(), x)
    return (x * grad).sum(1).clamp(min=0).detach()


def share_on(evidence: Tensor, places: Tensor) -> float:
    """The mean share of each picture's evidence that lies on its marked places."""
    return ((evidence * places).sum((1, 2)) / evidence.sum((1, 2))).mean().item()
