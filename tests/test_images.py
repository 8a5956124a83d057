"""ImageReader: opened whatever they are, their patches found by looking, their scores put back where they belong."""

import io
import json
import os
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor, nn

from explanations import of_image
from models import BY_ZPLUS, tiny
from relprop.attribution import attribute
from relprop.embedded import EMBEDDED
from relprop.errors import InputError, ModelError, RelpropError, RelpropWarning
from relprop.explainer import Explainer
from relprop.explanation import Explanation, save
from relprop.readers.image import ImageReader
from relprop.readers.patches import patch_grid
from relprop.readers.picture import frame, opened_picture, pixels
from relprop.registry import METHODS
from relprop.render.image.part import Frame
from test_untouched import assert_untouched, state_of
from tiny_models import shrink

SIZE = {"height": 32, "width": 32}
CROPPED: dict[str, Any] = {"size": {"shortest_edge": 36}, "crop_size": SIZE}


def processor(name: str, **settings: Any) -> Any:
    """A processor that needs Pillow alone."""
    cls = getattr(transformers, f"{name}ImageProcessorPil", None) or getattr(transformers, f"{name}ImageProcessor")
    return cls(**settings)


VIT = processor("ViT", size=SIZE)
CLIP = processor("CLIP", **CROPPED)
# Each architecture with the processor of its published models.
PROCESSORS: dict[str, Any] = {
    "ViTForImageClassification": VIT,
    "DeiTForImageClassification": processor("DeiT", size={"height": 36, "width": 36}, crop_size=SIZE),
    "DeiTForImageClassificationWithTeacher": processor("DeiT", size={"height": 36, "width": 36}, crop_size=SIZE),
    "BeitForImageClassification": processor(
        "Beit", size={"height": 36, "width": 36}, crop_size=SIZE, do_center_crop=True
    ),
    "Dinov2ForImageClassification": processor("Bit", **CROPPED),
    "Dinov2WithRegistersForImageClassification": processor("Bit", **CROPPED),
    "SwinForImageClassification": VIT,
    "CLIPForImageClassification": CLIP,
    "SiglipForImageClassification": processor("Siglip", size=SIZE),
}
OTHER_TOKENS = {"DeiT": 2, "Dinov2With": 5, "Swin": 0, "Siglip": 0}  # the others have one class token
FAST: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 3},
    "smoothgrad": {"samples": 2},
    "shapley": {"max_evals": 130},
}
WINDOWED = "SwinForImageClassification"
PIXELS = ("integrated_gradients", "smoothgrad")


def picture(width: int = 60, height: int = 40, seed: int = 0) -> Image.Image:
    """Coarse noise: neighbouring pixels are alike, as in a photograph."""
    small = np.random.default_rng(seed).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


@cache
def explainer(architecture: str, dtype: torch.dtype = torch.float64) -> Explainer:
    return Explainer(tiny(architecture)[0].to(dtype), PROCESSORS[architecture])


def vit(dtype: torch.dtype = torch.float64) -> Explainer:
    return explainer("ViTForImageClassification", dtype)


# The grid.


def first_rows(model: nn.Module, values: Tensor) -> Tensor:
    """What the first block reads, by a plain hook."""
    seen: list[Tensor] = []
    block = next(module for module in model.modules() if isinstance(module, nn.ModuleList))[0]

    def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(next(x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)).detach())

    handle = block.register_forward_pre_hook(keep, with_kwargs=True)
    with torch.no_grad():
        model(values)
    handle.remove()
    return seen[0][0]


def rows_by_patch(model: nn.Module, size: tuple[int, int], patch: tuple[int, int]) -> list[list[int]]:
    """Which row of the first block changes with each patch's pixels, patch by patch: slow and sure."""
    values = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = first_rows(model, values)
    table = []
    for top in range(0, size[0], patch[0]):
        table.append([])
        for left in range(0, size[1], patch[1]):
            changed = values.clone()
            changed[..., top : top + patch[0], left : left + patch[1]] += 1
            (row,) = torch.nonzero((first_rows(model, changed) != before).any(-1)).flatten().tolist()
            table[-1].append(row)
    return table


def shaped(architecture: str, **sizes: Any) -> nn.Module:
    """A random model with these sizes in its config."""
    cls = getattr(transformers, architecture)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(shrink(cls.config_class, num_labels=3, **sizes)).double().eval()
        for parameter in model.parameters():  # class tokens and positions start at 0
            nn.init.normal_(parameter, std=0.2)
    return model  # type: ignore[no-any-return]


ODD = [
    ("ViTForImageClassification", (32, 48), (8, 8), {"image_size": (32, 48)}),
    ("ViTForImageClassification", (64, 32), (16, 4), {"image_size": (64, 32), "patch_size": (16, 4)}),
    ("ViTForImageClassification", (8, 48), (8, 8), {"image_size": (8, 48)}),
    ("ViTForImageClassification", (16, 16), (16, 16), {"image_size": 16, "patch_size": 16}),
    ("DeiTForImageClassificationWithTeacher", (48, 32), (8, 16), {"image_size": (48, 32), "patch_size": (8, 16)}),
    ("BeitForImageClassification", (32, 48), (8, 8), {"image_size": (32, 48)}),
    ("Dinov2WithRegistersForImageClassification", (24, 56), (8, 8), {}),  # interpolates its positions
    ("SwinForImageClassification", (32, 64), (4, 4), {"image_size": (32, 64)}),
]
EVEN = [(name, (32, 32), (4, 4) if name == WINDOWED else (8, 8), {}) for name in PROCESSORS]


@pytest.mark.parametrize(("architecture", "size", "patch", "sizes"), [*EVEN, *ODD])
def test_each_score_belongs_to_its_patch(
    architecture: str, size: tuple[int, int], patch: tuple[int, int], sizes: dict[str, Any]
) -> None:
    """Row of the block, row of the grid and score agree with what changes when a patch's pixels change."""
    model = shaped(architecture, **sizes) if (architecture, size, patch, sizes) in ODD else tiny(architecture)[0]
    table = rows_by_patch(model, size, patch)
    explain = Explainer(model, processor("ViT", size={"height": size[0], "width": size[1]}))
    found = explain(picture(), method="gradient_x_input", target=0, ledger=False)
    plain = attribute(model, explain.inputs([picture()]), 0, "gradient_x_input").scores[0]
    np.testing.assert_array_equal(found.scores, plain[torch.tensor(table)].numpy())
    others = OTHER_TOKENS.get(next((key for key in OTHER_TOKENS if architecture.startswith(key)), ""), 1)
    assert len(plain) == found.scores.size + others
    assert found.part.rest == pytest.approx((plain.sum() - found.scores.sum()).item(), abs=1e-12)
    assert (found.part.rest == 0) == (others == 0)


class Toy(nn.Module):
    """Patches of 4 x 4 and a class token in any order, or mixed with each other, before two blocks."""

    def __init__(self, order: list[int] | None = None, mixed: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.cut, self.token = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8))
            self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
            self.mix = torch.randn(64, 64) if mixed else None
        self.order = order

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.cut(pixel_values).flatten(2).transpose(1, 2)
        x = x if self.mix is None else self.mix @ x
        x = torch.cat([x, self.token.expand(len(x), 1, 8)], 1)
        x = x if self.order is None else x[:, self.order]
        for block in self.blocks:
            x = x + block(x).relu()
        return x.mean(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_patches_in_any_order_are_put_in_place(dtype: torch.dtype) -> None:
    """Columns first, or shuffled with the class token in between."""
    values = torch.randn(1, 3, 12, 20, generator=torch.Generator().manual_seed(0)).to(dtype)
    by_columns = torch.arange(15).view(3, 5).t().flatten().tolist()
    for order in ([*by_columns, 15], torch.randperm(16, generator=torch.Generator().manual_seed(2)).tolist()):
        windows = attribute(Toy(order).to(dtype), values, 0).windows["pixel_values"][0]
        grid = patch_grid(windows)
        assert (grid.rows, grid.columns, len(windows)) == (3, 5, 16)
        assert [order[row] for row in grid.places.tolist()] == list(range(15))


def test_patches_cut_without_a_convolution() -> None:
    """No convolution tells the grid: the windows do."""

    class Unfolded(Toy):
        def forward(self, pixel_values: Tensor) -> Tensor:
            x = nn.functional.unfold(pixel_values, 4, stride=4).transpose(1, 2) @ self.cut.weight.flatten(1).t()
            return self.blocks[1](self.blocks[0](x)).mean(1)

    values = torch.randn(1, 3, 12, 20, generator=torch.Generator().manual_seed(0))
    grid = patch_grid(attribute(Unfolded(), values, 0).windows["pixel_values"][0])
    assert (grid.rows, grid.columns, grid.places.tolist()) == (3, 5, list(range(15)))


def test_patches_that_overlap_keep_the_models_order() -> None:
    """PVT's reach into their neighbours: each lies where its middle is."""
    model, inputs = tiny("PvtV2ForImageClassification")
    windows = attribute(model, inputs, 0).windows["pixel_values"][0]
    grid = patch_grid(windows)
    assert (grid.rows, grid.columns, grid.places.tolist()) == (8, 8, list(range(64)))
    assert windows[9, 1:].tolist() == [[1, 7], [1, 7]]


def test_rows_that_are_no_patches_are_read_lower() -> None:
    """Rows that all see the whole image lie nowhere on it: scores are read before they are mixed."""
    model = Toy(mixed=True)
    explain = Explainer(model, VIT)
    assert explain(picture()).scores.shape == (8, 8)
    assert attribute(model, explain.inputs([picture()]), 0).place == {"pixel_values": "features"}
    assert explain(picture(), at="input").scores.shape == (32, 32)


def test_a_convolutional_network_is_read_at_its_pixels() -> None:
    """Its feature maps see too much of the image to lie anywhere on it."""
    model, _ = tiny("ResNetForImageClassification")
    assert Explainer(model, VIT)(picture()).scores.shape == (32, 32)


# Every method on every architecture.


@pytest.mark.sliced
@pytest.mark.parametrize("method", METHODS.names())
@pytest.mark.parametrize("architecture", PROCESSORS)
def test_every_method(architecture: str, method: str) -> None:
    """Finite scores of patches or pixels, the same in a batch as one by one; or a reason and what to use instead."""
    explain, given = explainer(architecture), [picture(60, 40), picture(33, 90, seed=1), picture(32, 32, seed=2)]
    options = {**FAST.get(method, {}), "target": 1, "method": method}
    if METHODS[method].maps and architecture == WINDOWED:
        with pytest.raises(RelpropError, match="use lrp_ah_ln instead"):
            explain(given, **options)
        return
    together, alone = explain(given, **options), [explain(one, ledger=False, **options) for one in given]
    side = 8 if architecture == WINDOWED else 4
    for one, other in zip(together, alone, strict=True):
        assert one.scores.shape == ((32, 32) if method in PIXELS else (side, side))
        assert np.isfinite(one.scores).all()
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-6, atol=1e-10 * np.abs(other.scores).max())
        assert one.part.rest == pytest.approx(other.part.rest, rel=1e-6, abs=1e-12)
    assert len({one.scores.tobytes() for one in together}) == 3 or method in ("cam", "grad_cam")


@pytest.mark.parametrize("method", METHODS.names())
def test_single_precision_agrees(method: str) -> None:
    """float32 is near float64."""
    one, other = (
        vit(dtype)(picture(), method=method, **FAST.get(method, {})) for dtype in (torch.float32, torch.float64)
    )
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-3, atol=1e-4 * np.abs(other.scores).max())


SEVERAL = ("DeiTForImageClassificationWithTeacher", "Dinov2ForImageClassification", "CLIPForImageClassification")


@pytest.mark.parametrize("architecture", SEVERAL)
def test_single_precision_agrees_where_several_rows_are_read(architecture: str) -> None:
    """Class and distillation token, class token and mean, the mean of all."""
    one, other = (
        explainer(architecture, dtype)(picture(), method="gae", target=0) for dtype in (torch.float32, torch.float64)
    )
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-3, atol=1e-4 * np.abs(other.scores).max())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", ["lrp_ah_ln", "gradient", "rollout", "transformer_attribution"])
def test_half_precision(method: str, dtype: torch.dtype) -> None:
    """Pixels come in the model's own dtype; the map is nearly that of float64.

    Most maps: the z-rule divides by sums of queries and keys, and where one is near 0 a rounded sum may be far off.
    """
    pictures = [picture(seed=seed) for seed in range(7)]
    told = pytest.warns(RelpropWarning, match="too coarse") if method in BY_ZPLUS else nullcontext()
    with told:
        rough = vit(dtype)(pictures, method=method, target=0)
    exact = vit(torch.float64)(pictures, method=method, target=0)
    pairs = list(zip(rough, exact, strict=True))
    assert np.median([np.corrcoef(one.scores.ravel(), other.scores.ravel())[0, 1] for one, other in pairs]) > 0.95
    assert all(one.value == pytest.approx(other.value, abs=0.05) for one, other in pairs)


def test_methods_share_passes_and_keep_their_numbers() -> None:
    """A list of methods gives what each gives alone."""
    names = ["rollout", "gradient_x_input", "gae", "lrp_ah_ln"]
    together = vit()(picture(), method=names)
    assert [one.method for one in together] == names
    for one in together:
        alone = vit()(picture(), method=one.method)
        np.testing.assert_allclose(one.scores, alone.scores, rtol=1e-9, atol=1e-12)


# Which part of the picture the model sees.


def cropped(width: int, height: int, edge: int = 36, crop: int = 32) -> tuple[float, float, float, float]:
    """The shorter side scaled to `edge`, then the middle cut out: in the picture's own pixels."""
    scaled = (edge, int(edge * height / width)) if width <= height else (int(edge * width / height), edge)
    edges = []
    for size, new in zip((width, height), scaled, strict=True):
        start = (new - crop) // 2
        edges.append((start * size / new, (start + crop) * size / new))
    (left, right), (top, bottom) = edges
    return left, top, right, bottom


class Padded:
    """A user's own processor: shrunk to fit, and set into the middle or a corner of a grey square."""

    model_input_names = ("pixel_values",)

    def __init__(self, corner: bool = False) -> None:
        self.corner = corner

    def __call__(self, images: list[Image.Image], return_tensors: str) -> dict[str, Tensor]:
        made = []
        for image in images:
            scale = 32 / max(image.size)
            small = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
            square = Image.new("RGB", (32, 32), "grey")
            square.paste(small, (0, 0) if self.corner else ((32 - small.width) // 2, (32 - small.height) // 2))
            made.append(torch.from_numpy(np.array(square)).permute(2, 0, 1) / 127.5 - 1)
        return {"pixel_values": torch.stack(made)}


def whole(width: int, height: int) -> tuple[float, float, float, float]:
    return 0, 0, width, height


def fitted(width: int, height: int, corner: bool = False) -> tuple[float, float, float, float]:
    """Where the square of `Padded` lies, in the picture's own pixels."""
    edges = []
    for size in (width, height):
        small = max(1, round(size * 32 / max(width, height)))
        start = 0 if corner else (32 - small) // 2
        edges.append((-start * size / small, (32 - start) * size / small))
    (left, right), (top, bottom) = edges
    return left, top, right, bottom


def unscaled(width: int, height: int) -> tuple[float, float, float, float]:
    """Cut out, or padded, without scaling."""
    left, top = -((64 - width + 1) // 2), -((64 - height + 1) // 2)
    return left, top, left + 64, top + 64


VIEWS: dict[str, tuple[Any, Callable[[int, int], tuple[float, float, float, float]]]] = {
    "resized": (VIT, whole),
    "nearest": (processor("ViT", size=SIZE, resample=0), whole),
    "cropped": (CLIP, cropped),
    "resized, then cropped": (
        PROCESSORS["DeiTForImageClassification"],
        lambda w, h: (2 * w / 36, 2 * h / 36, 34 * w / 36, 34 * h / 36),
    ),
    "only cropped": (processor("CLIP", do_resize=False, crop_size={"height": 64, "width": 64}), unscaled),
    "padded around": (Padded(), fitted),
    "padded to the right and below": (Padded(corner=True), lambda w, h: fitted(w, h, corner=True)),
}
SIZES = [(60, 40), (640, 480), (75, 200), (1000, 100), (90, 1300), (32, 32), (224, 224)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_the_frame_is_found(view: str, size: tuple[int, int]) -> None:
    """Edges within 1 % of the picture's side, or of the model's where that is longer."""
    own, expected = VIEWS[view]
    found = frame(own, size)
    known = expected(*size)
    for axis, low, high in ((0, found.left, found.right), (1, found.top, found.bottom)):
        side = max(size[axis], known[axis + 2] - known[axis])
        assert (low, high) == pytest.approx((known[axis], known[axis + 2]), abs=0.01 * side)


def test_a_picture_seen_whole_is_framed_exactly() -> None:
    """No sliver at the edge is called unseen."""
    assert all(frame(VIT, size) == Frame(0, 0, *size) for size in [(1, 1), (2, 3), (60, 40), (501, 377), (3000, 30)])


@pytest.mark.parametrize("size", [(3000, 30), (40, 6000)], ids=str)
def test_of_a_panorama_a_small_part_is_seen(size: tuple[int, int]) -> None:
    """Less than three of 256 greys lie in the frame: still its edges are found within 2 % of its own width."""
    found, known = frame(CLIP, size), cropped(*size)
    width = known[2] - known[0]
    assert (found.left, found.top, found.right, found.bottom) == pytest.approx(known, abs=0.02 * width)


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (2, 2), (3, 3), (5, 9)], ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_pictures_of_a_few_pixels(view: str, size: tuple[int, int]) -> None:
    """A frame to within a pixel, and a finite map."""
    own, expected = VIEWS[view]
    found = frame(own, size)
    known = expected(*size)
    assert (found.left, found.top) == pytest.approx(known[:2], abs=1)
    assert found.right > found.left
    assert found.bottom > found.top
    one = of_image(picture(*size), np.ones((4, 4)), found, "rollout", "", 1.0)
    assert one.part.map().shape == (size[1], size[0])
    assert one.part.map()[size[1] // 2, size[0] // 2] == 1


class Own:
    """A user's own processor: whatever it makes of a picture's array."""

    model_input_names = ("pixel_values",)

    def __init__(self, made: Callable[[np.ndarray], Any]) -> None:
        self.made = made

    def __call__(self, images: list[Image.Image], return_tensors: str) -> Any:
        return {"pixel_values": self.made(np.asarray(images[0]))}


def colours_first(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.copy()).permute(2, 0, 1)[None].double()


def test_processors_whose_view_cannot_be_found_are_declined() -> None:
    """Donut's lays the long side down, one mirrors, one evens out all grey: a map would be put back wrongly."""
    with pytest.raises(ModelError, match="turns or mirrors the picture"):
        frame(processor("Donut", size={"height": 32, "width": 64}, do_align_long_axis=True), (40, 90))
    with pytest.raises(ModelError, match="turns or mirrors the picture"):
        frame(Own(lambda array: colours_first(array[:, ::-1])), (40, 90))
    with pytest.raises(ModelError, match="the same of black and white"):
        frame(Own(lambda array: colours_first(array) - array.mean()), (40, 90))
    assert frame(Own(colours_first), (40, 90)) == Frame(0, 0, 40, 90)


@pytest.mark.parametrize("size", [(60, 40), (75, 200), (300, 100)], ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_a_bright_spot_is_mapped_back_to_itself(view: str, size: tuple[int, int]) -> None:
    """White squares all over the picture: the patch that lights up is drawn where the square is, or it is unseen."""
    own, expected = VIEWS[view]
    left, top, right, bottom = expected(*size)
    step = max(right - left, bottom - top) / 4  # a patch in the picture's pixels
    for x, y in [(a * size[0], b * size[1]) for a in (0.1, 0.3, 0.5, 0.7, 0.9) for b in (0.1, 0.5, 0.8)]:
        image = Image.new("RGB", size)
        image.paste("white", tuple(round(v) for v in (x - step / 4, y - step / 4, x + step / 4, y + step / 4)))
        seen = pixels(own, image)[0] - pixels(own, Image.new("RGB", size))[0]
        lit = nn.functional.adaptive_avg_pool2d(seen[None], 4)[0]
        scores = (lit == lit.max()).double().numpy() if lit.max() > 1e-3 else np.zeros((4, 4))
        one = of_image(image, scores, frame(own, size), "rollout", "", 1.0).part.map()
        if not (left < x < right and top < y < bottom):
            assert one[int(y), int(x)] == 0
        elif left + step / 2 < x < right - step / 2 and top + step / 2 < y < bottom - step / 2:
            assert one[int(y), int(x)] > 0.2


def test_the_map_is_bilinear_and_0_where_the_model_does_not_see() -> None:
    """A ramp of scores over the middle of a wide picture: straight between the patches' centres, 0 outside."""
    scores = np.arange(4.0)[None].repeat(2, 0) + 1
    found = of_image(picture(100, 20), scores, Frame(30, 0, 70, 20), "rollout", "", 1.0).part.map()
    assert found.shape == (20, 100)
    assert not found[:, :30].any()
    assert not found[:, 70:].any()
    assert (found[:, 30:70] > 0).all()
    np.testing.assert_allclose(found[7, 35:65], (np.arange(35, 65) + 0.5 - 30) / 10 + 0.5)
    assert found[0, 30] == 1
    assert found[0, 69] == 4


def test_scores_of_a_cropped_picture_are_drawn_in_the_frame() -> None:
    """Through the explainer: a wide picture under CLIP's processor."""
    found = explainer("CLIPForImageClassification")(picture(120, 40))
    left, _, right, _ = cropped(120, 40)
    shown = found.drawings[0][1].scores
    assert shown.shape == (40, 120)
    assert not shown[:, : int(left) - 1].any()
    assert not shown[:, int(right) + 2 :].any()
    assert shown[20, int(left) + 2 : int(right) - 2].all()
    full = vit()(picture(120, 40)).drawings[0][1]
    assert full.scores.shape == (4, 4)


# Opening pictures.


def bands() -> Image.Image:
    """Red, green and blue side by side."""
    image = Image.new("RGB", (6, 4), "red")
    image.paste((0, 255, 0), (2, 0, 4, 4))
    image.paste((0, 0, 255), (4, 0, 6, 4))
    return image


def grey(low: Any, high: Any, dtype: Any) -> np.ndarray:
    return np.array([[low, high]], dtype=dtype)


SEEN = {
    "palette": (bands().quantize(8), bands()),
    "cmyk": (bands().convert("CMYK"), bands()),
    "opaque": (bands().convert("RGBA"), bands()),
    "transparent is white": (Image.new("RGBA", (2, 2), (0, 0, 0, 0)), Image.new("RGB", (2, 2), "white")),
    "half transparent": (Image.new("LA", (2, 2), (0, 128)), Image.new("RGB", (2, 2), (127, 127, 127))),
    "grey": (Image.new("L", (3, 2), 77), Image.new("RGB", (3, 2), (77, 77, 77))),
    "black and white": (Image.new("1", (3, 2), 1), Image.new("RGB", (3, 2), "white")),
    "hsv": (bands().convert("HSV"), bands()),
    "16 bits": (Image.fromarray(grey(0, 65535, np.uint16)), Image.fromarray(grey(0, 255, np.uint8))),
    "dark 16 bits": (Image.fromarray(grey(0, 250, np.uint16)), Image.fromarray(grey(0, 1, np.uint8))),
    "32 bits": (Image.fromarray(grey(257, 65535, np.int32)), Image.fromarray(grey(1, 255, np.uint8))),
    "bytes in 32 bits": (Image.fromarray(grey(1, 255, np.int32)), Image.fromarray(grey(1, 255, np.uint8))),
    "floats": (Image.fromarray(grey(0.0, 1.0, np.float32)), Image.fromarray(grey(0, 255, np.uint8))),
    "array": (np.asarray(bands()), bands()),
    "array of floats": (np.asarray(bands()) / 255, bands()),
    "array of 16 bits": ((np.asarray(bands()) * np.uint16(257)).astype(">u2"), bands()),
    "dark array of 16 bits": (grey(0, 250, ">u2"), Image.fromarray(grey(0, 1, np.uint8))),
    "array of integers": (np.asarray(bands()).astype(np.int64), bands()),
    "array with alpha": (np.asarray(bands().convert("RGBA")), bands()),
    "array of grey": (grey(3, 200, np.uint8), Image.fromarray(grey(3, 200, np.uint8))),
    "array of one colour": (grey(3, 200, np.uint8)[..., None], Image.fromarray(grey(3, 200, np.uint8))),
    "mask": (grey(False, True, bool), Image.fromarray(grey(0, 255, np.uint8))),
    "tensor": (torch.from_numpy(np.array(bands())).permute(2, 0, 1), bands()),
    "tensor, colours last": (
        torch.from_numpy(np.array(bands())).transpose(0, 1),
        bands().transpose(Image.Transpose.TRANSPOSE),
    ),
    "tensor of floats": (torch.from_numpy(np.array(bands())).permute(2, 0, 1).bfloat16() / 255, bands()),
    "tensor with a gradient": (torch.ones(1, 2, 3, requires_grad=True), Image.new("RGB", (3, 2), "white")),
}


@pytest.mark.parametrize("kind", SEEN)
def test_every_mode_is_seen_in_its_colours(kind: str) -> None:
    """Palette, CMYK, alpha, 16 bits, arrays and tensors."""
    given, expected = SEEN[kind]
    found = opened_picture(given)
    assert found.mode == "RGB"
    difference = np.asarray(found).astype(int) - np.asarray(expected.convert("RGB"))
    assert np.abs(difference).max() <= 1


def test_paths_of_either_kind(tmp_path: Path) -> None:
    """A string or a path; a 16-bit PNG and a palette with a transparent colour from disk; the file's own name."""
    bands().save(tmp_path / "bands.png")
    Image.fromarray(grey(0, 65535, np.uint16)).save(tmp_path / "deep.png")
    bands().quantize(8).save(tmp_path / "clear.png", transparency=bands().quantize(8).getpixel((0, 0)))
    for path in (tmp_path / "bands.png", str(tmp_path / "bands.png")):
        assert opened_picture(path).tobytes() == bands().tobytes()
        assert vit()(path).part.file == "bands.png"
    assert opened_picture(tmp_path / "deep.png").getpixel((1, 0)) == (255, 255, 255)
    assert opened_picture(tmp_path / "clear.png").getpixel((0, 0)) == (255, 255, 255)
    assert opened_picture(tmp_path / "clear.png").getpixel((2, 0)) == (0, 255, 0)


def test_photographs_are_turned_upright(tmp_path: Path) -> None:
    """EXIF orientation 6: the camera was held on its side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    bands().save(tmp_path / "turned.png", exif=exif)
    found = opened_picture(tmp_path / "turned.png")
    assert found.size == (4, 6)
    assert found.getpixel((0, 0)) == (255, 0, 0)
    assert found.getpixel((0, 5)) == (0, 0, 255)
    assert vit()(tmp_path / "turned.png").part.map().shape == (6, 4)


def test_of_an_animation_the_first_frame_is_taken(tmp_path: Path) -> None:
    """A GIF of a red and a blue frame."""
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert opened_picture(tmp_path / "moving.gif").getpixel((0, 0)) == (255, 0, 0)


def test_the_callers_picture_is_left_alone() -> None:
    """A picture with a palette keeps it."""
    own = bands().quantize(8)
    before = own.tobytes()
    vit()(own)
    assert own.mode == "P"
    assert own.tobytes() == before


def broken_files(folder: Path) -> dict[str, str]:
    """Files that are no pictures, and what must be said of each."""
    rough = io.BytesIO()
    picture(200, 150).save(rough, "JPEG")
    whole_png = io.BytesIO()
    picture(200, 150).save(whole_png, "PNG")
    damaged = bytearray(whole_png.getvalue())
    damaged[len(damaged) // 2] ^= 0xFF
    files = {
        "text.jpg": (b"not a picture", "is no image that Pillow can read"),
        "empty.png": (b"", "is no image that Pillow can read"),
        "cut.jpg": (rough.getvalue()[: len(rough.getvalue()) // 2], "cannot be read: .*truncated"),
        "cut.png": (whole_png.getvalue()[:200], "cannot be read"),
        "damaged.png": (bytes(damaged), "cannot be read"),
    }
    for name, (content, _) in files.items():
        (folder / name).write_bytes(content)
    (folder / "folder.png").mkdir()
    return {name: f'{name}" {message}' for name, (_, message) in files.items()} | {
        "folder.png": 'folder.png" cannot be read: Is a directory',
        "missing.png": 'there is no image ".*missing.png"',
    }


def test_files_that_are_no_pictures_are_said(tmp_path: Path) -> None:
    """Each by its name and what is wrong with it; in a list also which one."""
    bands().save(tmp_path / "good.png")
    for name, message in broken_files(tmp_path).items():
        with pytest.raises(InputError, match=message):
            vit()(tmp_path / name)
        with pytest.raises(InputError, match=f"image 1 of the list: .*{name}"):
            vit()([tmp_path / "good.png", tmp_path / name])
    with Image.open(tmp_path / "cut.jpg") as lazy, pytest.raises(InputError, match=r"image cannot be read: .*trunc"):
        vit()(lazy)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    bands().save(tmp_path / "mine.png")
    (tmp_path / "mine.png").chmod(0)
    with pytest.raises(InputError, match=r'mine.png" cannot be read: Permission denied'):
        opened_picture(tmp_path / "mine.png")


def test_damaged_files_raise_no_other_errors(tmp_path: Path) -> None:
    """Every format with random bytes changed or cut off: a picture, or our error."""
    generator = np.random.default_rng(0)
    refused = 0
    for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "PPM", "ICO"):
        file = io.BytesIO()
        picture(20, 20).save(file, kind)
        for turn in range(40):
            content = bytearray(file.getvalue())
            for _ in range(4):
                content[generator.integers(len(content))] = generator.integers(256)
            path = tmp_path / f"some.{kind.lower()}"
            path.write_bytes(content[: generator.integers(len(content))] if turn % 2 else content)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    opened_picture(path)
                except InputError:
                    refused += 1
    assert refused > 100


@pytest.mark.filterwarnings("ignore")  # relprop's own care must do, without the tests' strictness
def test_bombs_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file that unfolds to more than Pillow's limit: from the size in its header, before any work."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    for name, side in (("large.png", 110), ("huge.png", 150)):  # Pillow warns above the limit, and refuses twice of it
        Image.new("1", (side, side)).save(tmp_path / name)
        with pytest.raises(InputError, match=f'{name}" is too large .* than 10,000 pixels'):
            opened_picture(tmp_path / name)


def test_large_pictures_are_explained() -> None:
    """12 megapixels."""
    found = vit(torch.float32)(picture(4000, 3000))
    assert found.part.frame == Frame(0, 0, 4000, 3000)
    assert found.part.map().shape == (3000, 4000)


MISFITS: list[tuple[Any, str]] = [
    (np.zeros((4, 4, 2), np.uint8), r"an image array is \[height, width\] or .*, got \[4, 4, 2\]"),
    (np.zeros((3, 8, 8), np.uint8), r"got \[3, 8, 8\]"),
    (np.zeros((2, 8, 8, 3), np.uint8), r"got \[2, 8, 8, 3\]"),
    (torch.zeros(2, 3, 8, 8), r"got \[2, 3, 8, 8\]"),
    (np.zeros((0, 4)), r"got \[0, 4\]"),
    (np.full((4, 4), 200.0), "floats from 0 to 1.*, got float64 from 200.0 to 200.0"),
    (np.full((4, 4), -0.5), "got float64 from -0.5"),
    (np.full((4, 4), np.nan), "got float64 from nan"),
    (np.full((4, 4), 300), "got int64 from 300 to 300"),
    (np.full((4, 4), -1, np.int8), "got int8 from -1"),
    (np.full((4, 4), "x"), "an image array holds numbers, got <U1"),
    (torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0)), "floats from 0 to 1"),
    (Image.new("RGB", (0, 4)), "the image has no pixels"),
    (Image.fromarray(grey(-5, 5, np.int32)), "got int32 from -5"),
    (Image.fromarray(grey(0, 1e6, np.float32)), "got float32 from 0.0 to 1000000.0"),
    (("a.png", "b.png"), r"an image is a path, .* \(several are a list\), got tuple"),
    (None, "got NoneType"),
    (b"bytes", "got bytes"),
]


@pytest.mark.parametrize(("given", "message"), MISFITS)
def test_what_is_no_picture_is_said(given: Any, message: str) -> None:
    """Each with what was expected and what came."""
    with pytest.raises(InputError, match=message):
        vit()(given)


def test_options_of_texts_are_declined() -> None:
    """Lengths, heads and head masks are a text's."""
    with pytest.raises(InputError, match="max_length is for texts"):
        vit()(picture(), max_length=3)
    with pytest.raises(InputError, match="told by texts"):
        _ = vit().heads


def test_processors_that_fail_are_quoted() -> None:
    """A user's own processor that raises, or gives something else than pixels."""
    with pytest.raises(InputError, match="image processor failed: ZeroDivisionError: division by zero"):
        Explainer(vit().model, Own(lambda _: 1 / 0))(picture())
    with pytest.raises(ModelError, match=r"should give pixels \[batch, colours, height, width\], got \[1, 16, 192\]"):
        Explainer(vit().model, Own(lambda _: torch.zeros(1, 16, 192)))(picture())


# Numbers.


@pytest.mark.parametrize("architecture", PROCESSORS)
def test_integrated_gradients_start_from_black(architecture: str) -> None:
    """The scores sum to the value minus that of a black picture, which is not the picture of zeros."""
    explain = explainer(architecture)
    found = explain(picture(), method="integrated_gradients", target=2, steps=100)
    with torch.no_grad():
        value, black = explain.model(**explain.inputs([picture(), Image.new("RGB", (60, 40))])).logits[:, 2].tolist()
    assert found.value == pytest.approx(value)
    assert found.baseline == pytest.approx(black)
    assert abs(value - black) > 1e-3
    assert found.accounted == pytest.approx(value - black, rel=1e-3)
    assert abs(found.ledger.unexplained) < 1e-3 * abs(value - black)


def test_integrated_gradients_take_another_baseline() -> None:
    """The caller's own pixels in place of black."""
    own = vit().inputs([picture(seed=5)])["pixel_values"]
    found = vit()(picture(), method="integrated_gradients", target=2, steps=100, baseline=own)
    with torch.no_grad():
        assert found.baseline == pytest.approx(vit().model(own).logits[0, 2].item())
    assert found.accounted == pytest.approx(found.value - found.baseline, rel=1e-3)


@pytest.mark.parametrize("architecture", PROCESSORS)
def test_the_ledger_closes(architecture: str) -> None:
    """One picture gets an itemised ledger, a list only when asked; it is closed, and its inputs are the scores."""
    explain = explainer(architecture)
    found = explain(picture(), method="lrp_conservative")
    assert found.ledger.itemised
    assert found.ledger.closes(1e-8)
    assert found.ledger.value == pytest.approx(found.value)
    assert found.ledger.inputs == pytest.approx(found.accounted)
    (listed,) = explain([picture()], method="lrp_conservative")
    assert not listed.ledger.itemised
    assert listed.ledger.inputs == pytest.approx(found.ledger.inputs)
    (asked,) = explain([picture()], method="lrp_conservative", ledger=True)
    assert asked.ledger.itemised


@pytest.mark.parametrize("method", ["gradient", "gradient_x_input", "lrp_ah_ln", "lrp_conservative", "lrp"])
@pytest.mark.parametrize("architecture", PROCESSORS)
def test_scores_of_pixels(architecture: str, method: str) -> None:
    """at="input": a score for every pixel that the model reads, none for other tokens."""
    found = explainer(architecture)(picture(), method=method, at="input", target=0)
    assert found.scores.shape == (32, 32)
    assert np.isfinite(found.scores).all()
    assert (found.scores != 0).mean() > 0.9
    assert found.part.rest == 0


def test_pixels_are_in_the_order_of_the_image() -> None:
    """Gradients and their product with the input, by plain autograd."""
    given = vit().inputs([picture()])["pixel_values"].requires_grad_()
    (slope,) = torch.autograd.grad(vit().model(given).logits[0, 1], given)
    found = vit()(picture(), method=["gradient", "gradient_x_input"], at="input", target=1)
    np.testing.assert_allclose(found[0].scores, slope[0].norm(dim=0).numpy(), rtol=1e-9)
    np.testing.assert_allclose(found[1].scores, (slope * given)[0].sum(0).detach().numpy(), rtol=1e-8, atol=1e-14)


def test_there_are_no_words_in_a_picture() -> None:
    with pytest.raises(RelpropError, match="no input of token ids is looked up"):
        vit()(picture(), at="word_embeddings")


def test_special_tokens_may_be_left_out() -> None:
    """The class token's score goes, the map stays."""
    kept, dropped = vit()(picture()), vit()(picture(), special="drop")
    assert kept.part.rest != 0
    assert dropped.part.rest == 0
    np.testing.assert_array_equal(dropped.scores, kept.scores)
    assert dropped.accounted == pytest.approx(kept.accounted - kept.part.rest)


# The model, the results.


@pytest.mark.parametrize("method", METHODS.names())
def test_two_calls_agree_and_leave_the_model_alone(method: str) -> None:
    """To the bit; hooks, weights, modes and the generator as they were, grid and frame being looked for included."""
    model, _ = tiny("ViTForImageClassification")
    model.train()
    before = state_of(model)
    explain = Explainer(model, VIT)
    one, other = (explain(picture(), method=method, **FAST.get(method, {})) for _ in range(2))
    assert one.scores.tobytes() == other.scores.tobytes()
    assert_untouched(before, model)


def test_a_list_keeps_its_order() -> None:
    """Pictures of different sizes and kinds, in batches of two, each with a target of its own."""
    given = [
        picture(40, 60),
        np.asarray(picture(60, 40, 1)),
        picture(20, 20, 2),
        picture(60, 40, 3),
        picture(40, 60, 4),
    ]
    found = vit()(given, target=[0, 1, 2, 1, 0], batch_size=2)
    for one, own, target in zip(found, given, [0, 1, 2, 1, 0], strict=True):
        alone = vit()(own, target=target)
        assert one.target == alone.target
        assert one.part.image.tobytes() == opened_picture(own).tobytes()
        np.testing.assert_allclose(one.scores, alone.scores, rtol=1e-9, atol=1e-12)
    assert vit()([]) == []


def test_pictures_that_stay_of_different_shapes() -> None:
    """A processor that keeps the shape, and a model that takes any: one batch for each shape."""
    keeping = processor("ViT", do_resize=False)
    explain = Explainer(tiny("Dinov2ForImageClassification")[0], keeping)
    found = explain([picture(48, 32), picture(32, 32), picture(48, 32, seed=1), picture(24, 56)])
    assert [one.scores.shape for one in found] == [(4, 6), (4, 4), (4, 6), (7, 3)]
    images = ImageReader(explain.model, keeping)
    rows = [images.read(picture(width, 32)) for width in (48, 32, 48, 48)]
    assert images.batches(rows, 2) == [[1], [0, 2], [3]]
    np.testing.assert_allclose(found[2].scores, explain(picture(48, 32, seed=1)).scores, rtol=1e-9, atol=1e-12)


def test_predictions_and_targets_have_names() -> None:
    """The likeliest class with its probability; targets by name, and as a difference."""
    logits = vit().model(**vit().inputs([picture()])).logits[0].detach()
    found = vit()(picture())
    best = int(logits.argmax())
    assert found.prediction == found.target == f"LABEL_{best}"
    assert found.probability == pytest.approx(logits.softmax(0)[best].item())
    assert vit()(picture(), target="LABEL_1").value == pytest.approx(logits[1].item())
    assert vit()(picture(), target=("LABEL_1", "LABEL_0")).value == pytest.approx((logits[1] - logits[0]).item())


def test_json_holds_the_numbers() -> None:
    """Scores, frame, size and ledger as they are."""
    found = explainer("CLIPForImageClassification")(picture(), method="lrp_conservative")
    data = json.loads(found.to_json())
    assert (data["schema_version"], data["method"]) == (2, "lrp_conservative")
    (part,) = data["parts"]
    assert (part["kind"], part["name"], part["rest"]) == ("image", "pixel_values", found.part.rest)
    assert part["scores"] == found.scores.tolist()
    assert part["size"] == [60, 40]
    frame = found.part.frame
    assert part["frame"] == [frame.left, frame.top, frame.right, frame.bottom]
    assert (data["value"], data["target"]) == (found.value, found.target)
    assert (data["prediction"], data["probability"]) == (found.prediction, found.probability)
    booked = sum(entry["value"] for entry in data["ledger"]["entries"])
    assert booked == pytest.approx(found.value)


def test_json_is_loaded_back_onto_its_picture() -> None:
    """Everything is as it was; another picture's size, another kind's explanation and damage are said."""
    found = explainer("CLIPForImageClassification")(picture(), method="lrp_conservative")
    back = Explanation.from_json(found.to_json(), picture())
    assert back.to_json() == found.to_json()
    assert back.ledger == found.ledger
    np.testing.assert_array_equal(back.part.map(), found.part.map())
    np.testing.assert_array_equal(back.part.image, found.part.image)
    with pytest.raises(InputError, match="of a picture of 60 x 40 pixels, not of 61 x 40"):
        Explanation.from_json(found.to_json(), picture().resize((61, 40)))
    for damaged in ("[]", "{}", "{", found.to_json().replace('"image"', '"graph"'), json.dumps({"schema_version": 1})):
        with pytest.raises(InputError, match=r"is no explanation saved by relprop|saved explanation is damaged"):
            Explanation.from_json(damaged, picture())


def test_results_are_saved(tmp_path: Path) -> None:
    """By the ending of the name; several in one file; a bad name is said before any work."""
    found = [vit()(picture(seed=seed)) for seed in range(2)]
    for ending, start in ((".png", b"\x89PNG"), (".html", b"<!doctype html>"), (".pdf", b"%PDF"), (".svg", b"<?xml")):
        found[0].save(tmp_path / f"one{ending}")
        assert (tmp_path / f"one{ending}").read_bytes().lower().startswith(start.lower())
    save(found, tmp_path / "both.json")
    assert [one["parts"][0]["scores"] for one in json.loads((tmp_path / "both.json").read_text())] == [
        one.scores.tolist() for one in found
    ]
    assert found[0].to_html().count("<html") == 1
    assert "<html" not in found[0]._repr_html_()
    with pytest.raises(InputError, match="must end in"):
        found[0].save(tmp_path / "one.bmp")


def test_show_prints_a_map(capsys: pytest.CaptureFixture[str]) -> None:
    """Wider than high, with the method's name."""
    vit()(picture()).show()
    assert "lrp_full" in capsys.readouterr().out


def test_a_pipeline_is_taken_apart() -> None:
    """transformers' own pipeline of a model and its processor."""
    pipeline = transformers.pipeline("image-classification", model=vit(torch.float32).model, image_processor=VIT)
    np.testing.assert_array_equal(Explainer(pipeline)(picture()).scores, vit(torch.float32)(picture()).scores)


def test_a_saved_model_comes_with_its_processor(tmp_path: Path) -> None:
    """From a folder, as the explainer was."""
    vit(torch.float32).model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="holds no image processor"):
        Explainer(tmp_path)
    VIT.save_pretrained(tmp_path)
    np.testing.assert_array_equal(Explainer(tmp_path)(picture()).scores, vit(torch.float32)(picture()).scores)


# The embedded model.


@pytest.mark.parametrize("sample", json.loads((EMBEDDED["digits"] / "samples" / "samples.json").read_text()), ids=str)
def test_digits_are_found_where_they_are(sample: dict[str, Any]) -> None:
    """The embedded model by name, on its samples: the score of a digit lies on its ink more than elsewhere."""
    explain = digits()
    for label in sample["labels"]:
        found = explain(EMBEDDED["digits"] / "samples" / sample["file"], target=label)
        ink = np.array([[cell == "#" for cell in row] for row in sample["masks"][str(label)]])
        shown = found.part.map()
        assert shown.shape == ink.shape
        assert shown[ink].mean() > 4 * np.abs(shown[~ink].mean())
        assert found.value > 0


@cache
def digits() -> Explainer:
    return Explainer("digits")
