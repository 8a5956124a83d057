"""The number to explain, for any head: one table from a field of the outputs to how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# The first of these that the outputs hold is explained. "row": one class of a late row that every example has; "peak":
# the largest number of a map, which no ReLU cut off; "pair": how well each picture fits its own text; "product": of two
# embeddings.
READINGS = {
    "start_logits": "row",  # and the end's: an answer is both
    "logits": "row",
    "logits_per_image": "pair",
    "video_embeds": "product",  # the logits of the one family with these are shares of the batch
    "class_queries_logits": "row",
    "masks_queries_logits": "peak",
    "pred_masks": "peak",
    "prediction_logits": "row",
    "prediction_outputs": "row",
    "regression_outputs": "row",
    "mean_predictions": "row",
    "heatmaps": "peak",
    "predicted_depth": "peak",
    "predicted_normal": "peak",
    "normals": "peak",
    "pointmaps": "peak",
    "alphas": "peak",
    "reconstruction": "peak",
    "scores": "row",
    "matching_scores": "row",
    "spectrogram": "row",
    "waveform": "row",
    "audio_values": "row",
    "embeddings": "row",
    "projected_states": "row",
    "mmm_text_logits": "row",
    "cross_relationship_score": "row",
    "last_hidden_state": "row",
}
BESIDE = {"start_logits": "end_logits", "video_embeds": "text_embeds"}


class NothingToRead(Exception):  # noqa: N818 - the sweep reads better with the plain words
    """Outputs without a float tensor."""


@dataclass(frozen=True)
class Reading:
    """A target: the outputs' field at an index that every example has, one number per example."""

    fields: tuple[str, ...]
    index: tuple[int, ...] | None  # None: the diagonal of one field, the product of two
    rows: int = 1  # that an example has in the outputs: one per codebook or frame, of which the first is read

    def __call__(self, outputs: Any) -> Tensor:
        if self.index is None and len(self.fields) == 2:
            left, right = (tensor_of(outputs, name) for name in self.fields)
            return (left * right).sum(-1)
        return torch.stack([self._one(tensor_of(outputs, name)) for name in self.fields]).sum(0)

    def _one(self, values: Tensor) -> Tensor:
        if self.index is None:
            return values.diagonal()
        every: tuple[Any, ...] = (slice(None, None, self.rows), *self.index)
        return values[every]

    @property
    def __name__(self) -> str:
        return f"{' + '.join(self.fields)}[{'diagonal' if self.index is None else ', '.join(map(str, self.index))}]"


def reading_of(each: list[Any]) -> Reading:
    """The reading that fits the outputs of single examples."""
    name = next((one for one in READINGS if one in fields_of(each[0])), None)
    if name is None:
        name = next(iter(fields_of(each[0])), "")
    if not name:
        raise NothingToRead(f"Its {type(each[0]).__name__} holds no float tensor.")
    values = [tensor_of(one, name) for one in each]
    names = (name, BESIDE[name]) if name in BESIDE else (name,)
    kind = READINGS.get(name, "row")
    if kind in ("pair", "product"):
        return Reading(names, None)
    room = [min(sizes) for sizes in zip(*(value.shape[1:] for value in values), strict=True)]
    if kind == "peak":
        corner: tuple[Any, ...] = (0, *(slice(size) for size in room))
        common = values[0][corner]
        return Reading(
            names, tuple(int(i) for i in torch.unravel_index(common.abs().argmax(), common.shape)), len(values[0])
        )
    # Not the very last rows: a model that shortens its input may pad them itself.
    rows = [max(0, size - 3) if i == 0 else size // 2 for i, size in enumerate(room[:-1])]
    likeliest = int(values[0][(0, *rows)][: room[-1]].argmax()) if room else None
    return Reading(names, (*rows, likeliest) if likeliest is not None else (), len(values[0]))


def fields_of(outputs: Any) -> dict[str, Tensor]:
    """The float tensors among the outputs, by name; those of a bare tuple are numbered."""
    if isinstance(outputs, Tensor):
        return {"0": outputs}
    pairs = outputs.items() if isinstance(outputs, Mapping) else enumerate(outputs)
    found = {str(name): first(value) for name, value in pairs if name not in ("loss",)}
    return {name: value for name, value in found.items() if value is not None}


def first(value: Any) -> Tensor | None:
    """The value, or the first of a tuple of tensors, if it is a float tensor with a batch."""
    if isinstance(value, tuple | list) and value and isinstance(value[0], Tensor):
        value = value[0]
    return value if isinstance(value, Tensor) and value.is_floating_point() and value.dim() else None


def tensor_of(outputs: Any, name: str) -> Tensor:
    return fields_of(outputs)[name]
