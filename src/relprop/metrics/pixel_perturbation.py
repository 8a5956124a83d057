"""Positive and negative perturbation, [Chefer21] Table 1: how long does the prediction stay while pixels turn black?

Pixels are hidden by relevance, 10 % more at each step, and the area under the model's top-1 accuracy is taken, the
whole image included. Most relevant first ("positive"), a good map gives a small area; least relevant first
("negative"), a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from relprop.errors import InputError
from relprop.metrics.curves import trapezoid_area
from relprop.metrics.hidden_units import Hidden, logits_without
from relprop.metrics.hiding_plans import Variant
from relprop.metrics.score_arrays import Bools, Floats, Ints, Values, class_indices, mean_defined

FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
Prepare = Callable[[Tensor], Mapping[str, Any] | Tensor]
Order = Literal["positive", "negative"]
AgainstClass = Literal["predicted", "target"]


@dataclass(frozen=True, eq=False)
class Perturbation:
    """The class predicted for each image at each fraction of hidden pixels."""

    fractions: tuple[float, ...]
    positive: Ints  # [images, fractions], most relevant pixels hidden first
    negative: Ints  # [images, fractions], least relevant pixels hidden first
    labels: Ints | None  # [images], the true classes

    def hits(self, order: Order, against: AgainstClass) -> Bools:
        """[images, fractions]: is the top class the true one ("target"), or that of the whole image ("predicted")?"""
        classes = self.positive if order == "positive" else self.negative
        wanted = classes[:, 0] if against == "predicted" else self.labels
        if wanted is None:
            raise InputError("accuracy on the target class needs labels; they were not given")
        right: Bools = classes == wanted[:, None]
        return right

    def accuracy(self, order: Order, against: AgainstClass) -> Floats:
        """[fractions]: the curve."""
        curve: Floats = self.hits(order, against).mean(0)
        return curve

    def auc(self, order: Order, against: AgainstClass) -> Floats:
        """[images]: area under each image's hits by the trapezoid rule; their mean is the area under the curve."""
        return trapezoid_area(self.hits(order, against).astype(np.float64), self.fractions)

    def summary(self) -> dict[str, float]:
        orders: tuple[Order, ...] = ("positive", "negative")
        kinds: tuple[AgainstClass, ...] = ("predicted",) if self.labels is None else ("predicted", "target")
        return {f"{order}_auc_{kind}": mean_defined(self.auc(order, kind)) for order in orders for kind in kinds}


def normalise(mean: Sequence[float], std: Sequence[float]) -> Prepare:
    """`prepare` for models that take (pixel - mean) / std, each one number per channel."""

    def prepare(images: Tensor) -> Tensor:
        m, s = (images.new_tensor(list(values))[:, None, None] for values in (mean, std))
        return (images - m) / s

    return prepare


def pixel_perturbation(
    model: nn.Module,
    images: Tensor,
    scores: Tensor,
    labels: Values | None = None,
    *,
    prepare: Prepare | None,
    fill: float = 0.0,
    fractions: Sequence[float] = FRACTIONS,
    variant: Variant = "paper",
    batch_size: int = 32,
) -> Perturbation:
    """Both curves for images [n, channels, h, w] with pixels from 0 to 1 and scores [n, h, w].

    Hidden pixels become `fill`, and `prepare` then turns the images into the model's input (None: they are the input).
    Ties are broken from the top left; `variant="released"` leaves them to `torch.topk`, as the authors' code does.
    """
    return pixel_perturbations(
        model, images, [scores], labels,
        prepare=prepare, fill=fill, fractions=fractions, variant=variant, batch_size=batch_size,
    )[0]  # fmt: skip


def pixel_perturbations(
    model: nn.Module,
    images: Tensor,
    scores: Sequence[Tensor],
    labels: Values | None = None,
    *,
    prepare: Prepare | None,
    fill: float = 0.0,
    fractions: Sequence[float] = FRACTIONS,
    variant: Variant = "paper",
    batch_size: int = 32,
) -> list[Perturbation]:
    """`pixel_perturbation` for several sets of scores of the same images, which share batches and the whole images."""
    if variant not in ("paper", "released"):
        raise InputError(f'variant is "paper" or "released", got {variant!r}')
    _check_images(images)
    steps = _rising_from_zero(fractions)
    flat = [_pixel_scores(one, images) for one in scores]

    def hide(which: Tensor, hidden: Tensor) -> Mapping[str, Any] | Tensor:
        rows = images[which.to(images.device)]
        black = rows.masked_fill(hidden.to(images.device).view(len(rows), 1, *images.shape[2:]), fill)
        return prepare(black) if prepare else black

    logits = logits_without(model, hide, _questions(flat, steps, variant), batch_size=batch_size)
    true = class_indices(labels, len(images), logits.shape[1])
    classes = logits.argmax(-1).view(len(flat), len(images), 2, len(steps)).numpy()
    return [Perturbation(steps, one[:, 0], one[:, 1], true) for one in classes]


def _questions(sets: list[Tensor], fractions: tuple[float, ...], variant: Variant) -> Iterator[Hidden]:
    """By set of scores, image, order and fraction; the masks of one image exist at a time."""
    for scores in sets:
        for example, row in enumerate(scores):
            for sign in (1, -1):
                for units in _hidden(sign * row, fractions, variant):
                    yield Hidden(example, units)


def _hidden(scores: Tensor, fractions: tuple[float, ...], variant: Variant) -> Iterator[Tensor]:
    """One mask per fraction, highest score first; counts are rounded down."""
    order = scores.argsort(descending=True, stable=True)
    for fraction in fractions:
        count = int(fraction * len(scores) + 1e-9)  # 0.29 * 100 is 28.999...
        chosen = order[:count] if variant == "paper" else scores.topk(count).indices
        yield torch.zeros(len(scores), dtype=torch.bool).index_fill(0, chosen.cpu(), True)


def _check_images(images: Tensor) -> None:
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.is_floating_point() or not images.numel():
        got = f"{images.dtype} {list(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise InputError(f"images are a float tensor [images, channels, height, width], got {got}")
    low, high = float(images.min()), float(images.max())
    if not 0 <= low <= high <= 1:
        raise InputError(
            f"pixels must be from 0 to 1, these are from {low:.3g} to {high:.3g}: give the images before "
            "normalisation, and the normalisation as prepare=normalise(mean, std)"
        )


def _rising_from_zero(fractions: Sequence[float]) -> tuple[float, ...]:
    steps = tuple(float(fraction) for fraction in fractions)
    if steps[:1] != (0.0,) or list(steps) != sorted(set(steps)) or steps[-1] > 1 or len(steps) < 2:
        raise InputError(f"fractions start at 0 (the whole image) and rise to at most 1, got {list(steps)}")
    return steps


def _pixel_scores(scores: Tensor, images: Tensor) -> Tensor:
    """Scores as floats [images, pixels]."""
    values = torch.as_tensor(scores).detach()
    values = values[:, 0] if values.dim() == 4 and values.shape[1] == 1 else values
    expected = (len(images), *images.shape[2:])
    if values.shape != expected:
        raise InputError(
            f"scores are one per pixel, {list(expected)}, got {list(values.shape)} (scores of patches are enlarged "
            'first: torch.nn.functional.interpolate(scores[:, None], size, mode="bilinear"))'
        )
    flat = values.flatten(1) if values.is_floating_point() else values.flatten(1).double()
    broken = torch.nonzero(~torch.isfinite(flat).all(1)).flatten().tolist()
    if broken:
        raise InputError(f"the scores of example {broken[0]} are not all finite numbers")
    return flat
