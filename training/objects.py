"""A tiny detector of coloured squares, and whether its explanations lie on the object that is asked about.

    python training/objects.py [steps]

Every picture has two squares of different colours on a noisy ground. Which patches decide is known: those of the
square. A YOLOS of 0.1 million parameters has three detection tokens that look for one colour each. Nothing is written.

After 500 steps it names colours, but its boxes are rough: those of 12 % of the squares hold the centre. Of these, the
share of positive relevance on the square's patches is 0.82 by lrp_conservative, 0.90 by attn_lrp, 0.79 by lrp_ah_ln and
0.43 by gradient x input: short of the 0.95 aimed at.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from relprop import Explainer
from relprop.types import Box

SIDE, PATCH = 48, 8
COLOURS = {"red": (220, 40, 40), "green": (40, 190, 60), "blue": (50, 70, 220)}
Shown = tuple[Image.Image, list[tuple[str, Box]]]


def drawn(rng: np.random.Generator) -> Shown:
    """Two squares of different colours that do not touch."""
    pixels: NDArray[np.uint8] = rng.integers(90, 150, (SIDE, SIDE, 3), dtype=np.uint8)
    names = rng.permutation(list(COLOURS))[:2].tolist()
    halves = rng.permutation(2).tolist()  # one in the left half, one in the right half
    objects: list[tuple[str, Box]] = []
    for name, half in zip(names, halves, strict=True):
        size = int(rng.integers(12, 19))
        left = half * SIDE // 2 + int(rng.integers(1, SIDE // 2 - size))
        top = int(rng.integers(0, SIDE - size))
        noise = rng.integers(-20, 20, (size, size, 3))
        pixels[top : top + size, left : left + size] = np.clip(np.array(COLOURS[name]) + noise, 0, 255)
        objects.append((name, (float(left), float(top), float(left + size), float(top + size))))
    return Image.fromarray(pixels), objects


def processor() -> transformers.BaseImageProcessor:
    size = {"height": SIDE, "width": SIDE}
    return transformers.ViTImageProcessorPil(size=size, image_mean=[0.5] * 3, image_std=[0.25] * 3)


def detector() -> transformers.YolosForObjectDetection:
    torch.manual_seed(0)
    config = transformers.YolosConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96, image_size=[SIDE, SIDE],
        patch_size=PATCH, num_detection_tokens=len(COLOURS), id2label=dict(enumerate(COLOURS)),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.YolosForObjectDetection(config)
    embeddings = model.vit.embeddings
    for parameter in (embeddings.detection_tokens, embeddings.position_embeddings):  # zeros: all tokens would be alike
        nn.init.normal_(parameter, std=0.3)
    return model


def trained(steps: int) -> transformers.YolosForObjectDetection:
    """The detector after so many batches of 32 pictures."""
    model, make, rng = detector().train(), processor(), np.random.default_rng(0)
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    for step in range(steps):
        shown = [drawn(rng) for _ in range(32)]
        pixels = make(images=[picture for picture, _ in shown], return_tensors="pt")["pixel_values"]
        loss = _loss(model(pixel_values=pixels), [objects for _, objects in shown])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return model.eval()


def _loss(outputs: Any, shown: Sequence[Sequence[tuple[str, Box]]]) -> Tensor:
    """Token i finds the i-th colour: its class or "no object", and its box. (Free matching takes many more steps.)"""
    classes, boxes = torch.full(outputs.logits.shape[:2], len(COLOURS)), torch.zeros_like(outputs.pred_boxes)
    for number, objects in enumerate(shown):
        for name, (left, top, right, bottom) in objects:
            index = list(COLOURS).index(name)
            classes[number, index] = index
            middle = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
            boxes[number, index] = torch.tensor(middle) / SIDE
    there = classes < len(COLOURS)
    named = nn.functional.cross_entropy(outputs.logits.flatten(0, 1), classes.flatten())
    return named + 5 * nn.functional.l1_loss(outputs.pred_boxes[there], boxes[there])


def on_object(scores: NDArray[np.float64], box: Box) -> float:
    """The share of positive relevance on patches that the object touches."""
    rows, columns = (np.arange(SIDE // PATCH) * PATCH for _ in range(2))
    down, across = (
        (start + PATCH > low) & (start < high)
        for start, low, high in ((rows, box[1], box[3]), (columns, box[0], box[2]))
    )
    positive = scores.clip(0)
    return float(positive[np.ix_(down, across)].sum() / max(positive.sum(), 1e-30))


def measured(
    model: transformers.YolosForObjectDetection, pictures: int = 50, method: str = "lrp_conservative"
) -> tuple[float, list[float]]:
    """How many of the squares are found, and for each of these the share of positive relevance that lies on it."""
    explain, rng = Explainer(model, processor()), np.random.default_rng(1)
    shares, every = [], 0
    for _ in range(pictures):
        picture, objects = drawn(rng)
        for name, box in objects:
            every += 1
            centre = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
            e = explain(picture, target=name, method=method, ledger=False)
            assert e.box is not None
            found = e.box[0] <= centre[0] <= e.box[2] and e.box[1] <= centre[1] <= e.box[3] and e.prediction == name
            if found:
                shares.append(on_object(e.scores, box))
    return len(shares) / every, shares


if __name__ == "__main__":
    found_model = trained(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)
    for name in ("lrp_conservative", "lrp_ah_ln", "attn_lrp", "gradient_x_input", "transformer_attribution"):
        share, each = measured(found_model, method=name)
        print(f"{name}: found {share:.2f}; on the object: mean {np.mean(each):.3f}, median {np.median(each):.3f}")
