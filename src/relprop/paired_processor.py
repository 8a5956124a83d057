"""An image processor and a tokenizer as one processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PairedProcessor:
    """An image processor and a tokenizer that are stored without a processor of both."""

    image_processor: Any
    tokenizer: Any
    model_input_names: tuple[str, ...] = ("pixel_values", "input_ids")

    def __call__(self, images: Any, text: Any, **options: Any) -> dict[str, Any]:
        tensors = options.pop("return_tensors", None)
        pixels = self.image_processor(images=images, return_tensors=tensors)
        return {**pixels, **self.tokenizer(text, return_tensors=tensors, **options)}
