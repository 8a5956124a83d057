"""Metrics on images: the released code's arrays, slow oracles, what must not matter, and mistakes."""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.integrate import trapezoid
from scipy.stats import pearsonr, spearmanr
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import ViTForImageClassification

from relprop.errors import InputError, ModelError, RelpropError
from relprop.metrics import (
    METRICS,
    average_precision,
    class_sensitivity,
    merged,
    normalise,
    pixel_perturbation,
    pixel_perturbations,
    pointing_game,
    read_folder,
    read_imagenet_segmentation,
    segment,
)

GOLDEN = Path(__file__).parent / "golden" / "metrics"
ORDERS = ("positive", "negative")


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with np.load(GOLDEN / "vision.npz") as arrays:
        return dict(arrays)


class Linear(nn.Module):
    """Two classes, logits s and -s with s = sum of w * pixel. Counts what it is asked."""

    def __init__(self, size: int = 6, seed: int = 0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, size, size, generator=torch.Generator().manual_seed(seed)))
        self.batches: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.batches.append(len(x))
        s = (x * self.w).sum((1, 2, 3))
        return torch.stack([s, -s], 1)

    def contributions(self, images: Tensor) -> Tensor:
        """To the predicted class, pixel by pixel."""
        shares = (images * self.w.detach()).sum(1)
        return shares * shares.sum((1, 2), keepdim=True).sign()


def pictures(count: int = 5, size: int = 6, seed: int = 1) -> Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def noise(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Perturbation


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_perturbation_is_the_released_codes(
    golden: dict[str, Any], variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hits are equal in both variants; with the released ties, also each logit the code saw.

    The enlarged maps have ties at the border, so that the two variants hide a few other pixels.
    """
    model = ViTForImageClassification.from_pretrained(GOLDEN / "vit224", attn_implementation="eager").eval()
    images = F.interpolate(torch.tensor(golden["perturb/low_images_uint8"]).float() / 255, size=224)
    scores = F.interpolate(torch.tensor(golden["perturb/vis_14x14"]), size=224, mode="bilinear")
    seen: list[Tensor] = []
    module = sys.modules[pixel_perturbation.__module__]
    ask = module.logits_without
    monkeypatch.setattr(module, "logits_without", lambda *a, **k: seen.append(ask(*a, **k)) or seen[0])
    labels = golden["perturb/target"]
    result = pixel_perturbation(
        model, images, scores, labels, prepare=normalise([0.5] * 3, [0.5] * 3), variant=variant, batch_size=16
    )
    logits = seen[0].view(6, 2, 10, 4).permute(1, 2, 0, 3)  # order, fraction, image, class
    atol = 1e-5 if variant == "released" else 2e-2
    assert np.allclose(logits[0, 0], golden["perturb/logits"], atol=1e-5)
    for order, name, values in zip(ORDERS, ("pos", "neg"), logits, strict=True):
        hits = np.concatenate(
            [golden[f"perturb/{name}/model_hits"][None], golden[f"perturb/{name}/perturbations_hits"]]
        )
        assert np.array_equal(result.hits(order, "target").T, hits)
        area = trapezoid(hits.mean(1), np.arange(10) / 10)  # the authors' np.trapz(y, x)
        assert result.summary()[f"{order}_auc_target"] == pytest.approx(area)
        chances = values.softmax(-1)
        top, sure = values.max(-1).values, chances.max(-1).values
        assert np.allclose(top[1:] - top[0], golden[f"perturb/{name}/perturbations_logit_diff"], atol=atol)
        assert np.allclose(sure[1:] - sure[0], golden[f"perturb/{name}/perturbations_prob_diff"], atol=atol)
        margin = (chances[:, range(6), labels] / chances.topk(2).values[..., 1]).log()
        assert np.allclose(margin[0], golden[f"perturb/{name}/model_dissimilarities"], atol=1e-5)
        assert np.allclose(margin[1:], golden[f"perturb/{name}/perturbations_dissimilarities"], atol=atol)


def test_perturbation_by_hand() -> None:
    """One image at a time, sorted in plain Python, hidden before the normalisation; scores with ties."""
    model, images, labels = Linear().eval(), pictures(), torch.tensor([0, 1, 0, 1, 1])
    scores = noise(5, 6, 6).mul(2).round()
    mean, std = [0.2, 0.4, 0.6], [0.3, 0.5, 0.7]
    result = pixel_perturbation(model, images, scores, labels, prepare=normalise(mean, std), fill=0.25)
    for order, sign in zip(ORDERS, (-1, 1), strict=True):
        for i in range(5):
            places = sorted(range(36), key=lambda p: (sign * scores[i].flatten()[p].item(), p))
            classes = []
            for tenth in range(10):
                image = images[i].flatten(1).clone()
                for p in places[: 36 * tenth // 10]:
                    image[:, p] = 0.25
                x = (image.view(3, 6, 6) - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
                classes.append(int((x * model.w).sum() <= 0))
            assert getattr(result, order)[i].tolist() == classes
            hits = [float(c == labels[i]) for c in classes]
            area = sum((a + b) / 2 * 0.1 for a, b in pairwise(hits))
            assert result.auc(order, "target")[i] == pytest.approx(area)
            assert result.hits(order, "predicted")[i].tolist() == [c == classes[0] for c in classes]


def test_true_contributions_are_best() -> None:
    """On a linear model no other scores can hurt more, or less, at any fraction; random ones lie in the middle."""
    model, images = Linear(12), pictures(40, 12)
    true = model.contributions(images)
    best, worst, *others = pixel_perturbations(
        model, images, [true, -true, *(noise(40, 12, 12, seed=s) for s in range(5))], prepare=None
    )
    for other in (worst, *others):
        assert (best.hits("positive", "predicted") <= other.hits("positive", "predicted")).all()
        assert (best.hits("negative", "predicted") >= other.hits("negative", "predicted")).all()
    for other in others:
        for order, direction in zip(ORDERS, (1, -1), strict=True):
            areas = [direction * one.summary()[f"{order}_auc_predicted"] for one in (best, other, worst)]
            assert areas == sorted(areas)
            assert len(set(areas)) == 3


def test_monotone_rescaling_changes_no_perturbation() -> None:
    model, images, scores = Linear(), pictures(), noise(5, 6, 6)
    a, b = pixel_perturbations(model, images, [scores, scores.mul(3).exp() - 7], prepare=None)
    assert np.array_equal(a.positive, b.positive)
    assert np.array_equal(a.negative, b.negative)


def test_batches_are_full_and_nothing_is_asked_twice() -> None:
    """Two sets of scores: 2 x 9 hidden images each, and one whole image for all. Equal scores: both orders are one."""
    model, images = Linear(), pictures()
    pixel_perturbations(model, images, [noise(5, 6, 6, seed=s) for s in (1, 2)], prepare=None, batch_size=8)
    assert sum(model.batches) == 5 * (1 + 4 * 9)
    assert set(model.batches[:-1]) == {8}
    model.batches.clear()
    result = pixel_perturbation(model, images, torch.ones(5, 6, 6), prepare=None, batch_size=8)
    assert sum(model.batches) == 5 * 10
    assert np.array_equal(result.positive, result.negative)


def test_batch_size_and_merging_change_nothing() -> None:
    model, images, scores, labels = Linear(), pictures(), noise(5, 6, 6), torch.tensor([0, 1, 1, 0, 1])
    whole = pixel_perturbation(model, images, scores, labels, prepare=None)
    single = pixel_perturbation(model, images, scores, labels, prepare=None, batch_size=1)
    halves = [
        pixel_perturbation(model, images[part], scores[part], labels[part], prepare=None)
        for part in (slice(2), slice(2, 5))
    ]
    for other in (single, merged(halves)):
        assert np.array_equal(whole.positive, other.positive)
        assert np.array_equal(whole.negative, other.negative)
        assert whole.summary() == other.summary()


def test_one_pixel_and_all_pixels() -> None:
    """A tenth of one pixel is no pixel; at fraction 1 all are black."""
    model = Linear(1)
    result = pixel_perturbation(model, pictures(2, 1), torch.ones(2, 1, 1), prepare=None)
    assert sum(model.batches) == 2
    assert result.summary() == {
        "positive_auc_predicted": pytest.approx(0.9),
        "negative_auc_predicted": pytest.approx(0.9),
    }
    black = pixel_perturbation(model, pictures(2, 1), torch.ones(2, 1, 1), prepare=None, fractions=(0, 1))
    assert (black.positive[:, 1] == 0).all()  # logits 0 and 0: the first class


def test_fractions_are_of_all_pixels_rounded_down() -> None:
    """29 % of 100 pixels are 29, though 0.29 * 100 is 28.999... in binary; 35 % of 9 pixels are 3."""
    for size, fraction, count in ((10, 0.29, 29), (3, 0.35, 3)):
        seen: list[Tensor] = []
        scores = noise(1, size, size)
        pixel_perturbation(
            Linear(size), torch.ones(1, 3, size, size), scores, fractions=(0, fraction),
            prepare=lambda x, seen=seen: seen.append(x) or x,
        )  # fmt: skip
        whole, most, least = seen[0]
        assert (whole == 1).all()
        order = scores.flatten().argsort(descending=True)
        assert set((most == 0).all(0).flatten().nonzero().flatten().tolist()) == set(order[:count].tolist())
        assert set((least == 0).all(0).flatten().nonzero().flatten().tolist()) == set(order[-count:].tolist())


def test_the_model_is_left_as_it_was() -> None:
    model = Linear().train()
    pixel_perturbation(model, pictures(), noise(5, 6, 6), prepare=None)
    with pytest.raises(RelpropError):
        pixel_perturbation(model, pictures(), noise(5, 6, 6), prepare=lambda x: x[:, :2, :4])
    assert model.training
    assert model.w.requires_grad
    assert model.w.grad is None
    assert torch.is_grad_enabled()


def broken(value: float) -> Tensor:
    scores = noise(5, 6, 6)
    scores[3, 0, 0] = value
    return scores


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": broken(float("nan"))}, "scores of example 3 are not all finite"),
        ({"scores": broken(float("inf"))}, "scores of example 3 are not all finite"),
        ({"scores": noise(5, 2, 2)}, r"one per pixel, \[5, 6, 6\], got \[5, 2, 2\].*interpolate"),
        ({"images": pictures() * 255}, "from 0 to 1, .* before normalisation"),
        ({"images": pictures() - 0.5}, "from 0 to 1, .* before normalisation"),
        ({"images": pictures()[0]}, "images are a float tensor"),
        ({"labels": [0, 1]}, "labels are 5 class indices"),
        ({"labels": [0, 1, 2, 0, 0]}, "labels run from 0 to 2, the model has classes 0 to 1"),
        ({"fractions": (0.1, 0.2)}, "fractions start at 0"),
        ({"fractions": (0, 0.5, 0.2)}, "fractions start at 0"),
        ({"variant": "papr"}, 'variant is "paper" or "released"'),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_mistakes_in_perturbation(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"images": pictures(), "scores": noise(5, 6, 6), "prepare": None} | change
    with pytest.raises(InputError, match=message):
        pixel_perturbation(Linear(), **arguments)


def test_models_that_give_no_classes() -> None:
    with pytest.raises(ModelError, match=r"expected logits \[32, classes\]"):
        pixel_perturbation(nn.Flatten(0), pictures(), noise(5, 6, 6), prepare=None)
    with pytest.raises(ModelError, match="not a finite number"):
        pixel_perturbation(Linear(), pictures(), noise(5, 6, 6), prepare=lambda x: x / 0)
    with pytest.raises(InputError, match="needs labels"):
        pixel_perturbation(Linear(), pictures(), noise(5, 6, 6), prepare=None).accuracy("positive", "target")


# Segmentation


def test_segmentation_is_the_released_codes(golden: dict[str, Any]) -> None:
    parts = [segment(golden[f"seg/res{i}"], golden[f"seg/lab{i}"]) for i in range(3)]
    whole = merged(parts)
    for name, field in (("correct", "correct"), ("labeled", "labelled"), ("inter", "intersection"), ("union", "union")):
        assert np.array_equal(getattr(whole, field), [golden[f"seg/{name}{i}"] for i in range(3)])
    assert whole.average_precision == pytest.approx([golden[f"seg/ap{i}"].item() for i in range(3)], abs=1e-12)
    released = {ours: golden[f"seg/{name}"].item() for ours, name in
                (("pixel_accuracy", "pixAcc"), ("mean_iou", "mIoU"), ("mean_ap", "mAP"))}  # fmt: skip
    assert whole.summary() == pytest.approx(released, abs=1e-12)


def slow_average_precision(scores: list[float], positive: list[bool]) -> float:
    """At each distinct score: the share of positives gained there, times the precision of all that score as high."""
    area = 0.0
    for threshold in sorted(set(scores)):
        above = [p for s, p in zip(scores, positive, strict=True) if s >= threshold]
        gained = sum(p for s, p in zip(scores, positive, strict=True) if s == threshold)
        area += gained / max(1, sum(positive)) * sum(above) / len(above)
    return area


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_average_precision_by_hand(levels: int) -> None:
    rng = np.random.default_rng(levels)
    for share in (0.0, 0.1, 0.7, 1.0):
        scores, positive = rng.integers(levels, size=60) / 7, rng.random(60) < share
        ours = average_precision(scores, positive)
        assert ours == pytest.approx(slow_average_precision(scores.tolist(), positive.tolist()))
        if positive.any():
            other = pytest.importorskip("sklearn.metrics").average_precision_score
            assert ours == pytest.approx(other(positive, scores))


def test_segmentation_by_hand() -> None:
    """Pixel by pixel, with void pixels: they count in the map's range and mean, and nowhere else."""
    rng = np.random.default_rng(0)
    scores, true, void = rng.normal(size=(4, 7, 5)), rng.random((4, 7, 5)) < 0.4, rng.random((4, 7, 5)) < 0.2
    result = segment(torch.tensor(scores), torch.tensor(true), void)
    for i in range(4):
        heat = (scores[i] - scores[i].min()) / (scores[i].max() - scores[i].min())
        pixels = [
            (h, h > heat.mean(), t) for h, t, v in zip(heat.flat, true[i].flat, void[i].flat, strict=True) if not v
        ]
        assert result.labelled[i] == len(pixels)
        assert result.correct[i] == sum(p == t for _, p, t in pixels)
        for kind in (False, True):
            assert result.intersection[i, int(kind)] == sum(p == t == kind for _, p, t in pixels)
            assert result.union[i, int(kind)] == sum(kind in (p, t) for _, p, t in pixels)
        both = [(1 - h, not t) for h, _, t in pixels] + [(h, bool(t)) for h, _, t in pixels]
        assert result.average_precision[i] == pytest.approx(slow_average_precision(*map(list, zip(*both, strict=True))))
    assert segment(scores, true ^ void, void).summary() == result.summary()


def test_scale_and_offset_change_no_segmentation() -> None:
    rng = np.random.default_rng(1)
    scores, true = rng.normal(size=(3, 8, 8)), rng.random((3, 8, 8)) < 0.5
    assert segment(scores * 1e-6 + 3, true).summary() == pytest.approx(segment(scores, true).summary(), abs=1e-6)


def test_maps_and_masks_that_say_nothing() -> None:
    """Equal scores are all background, at chance in precision; a class that is nowhere is left out of the mean."""
    half = np.arange(16).reshape(1, 4, 4) < 8
    assert segment(np.full((1, 4, 4), 0.3), half).summary() == {"pixel_accuracy": 0.5, "mean_iou": 0.25, "mean_ap": 0.5}
    nothing = segment(np.ones((1, 4, 4)), np.zeros((1, 4, 4)))
    assert nothing.summary() == {"pixel_accuracy": 1.0, "mean_iou": 1.0, "mean_ap": 0.5}
    false_alarm = segment(half.astype(float), np.zeros((1, 4, 4)))
    assert false_alarm.summary()["mean_iou"] == 0.25
    assert segment([[3.0]], [[True]]).summary()["pixel_accuracy"] == 0.0  # one pixel


# Pointing game, class sensitivity


def test_pointing_game_by_hand() -> None:
    heat = np.zeros((3, 9, 9))
    heat[0, 4, 4] = heat[1, 1, 1] = heat[2, 8, 8] = 1
    true = np.zeros((3, 9, 9), dtype=bool)
    true[:, 4:6, 4:6] = True
    assert pointing_game(heat, true).hits.tolist() == [1, 0, 0]
    assert pointing_game(heat, true, tolerance=4.2).hits.tolist() == [1, 0, 0]  # sqrt(18) = 4.24 away
    assert pointing_game(heat, true, tolerance=4.25).hits.tolist() == [1, 1, 1]
    assert pointing_game(np.exp(5 * heat) - 3, true).hits.tolist() == [1, 0, 0]
    heat[1, 5, 5] = 0.5
    assert pointing_game(heat, true, heat == 1).hits.tolist() == [3 / 80, 1, 4 / 80]


def test_equal_scores_point_by_chance() -> None:
    true = np.arange(100).reshape(10, 10) < 37
    assert pointing_game(np.zeros((10, 10)), true).summary() == {"pointing_game": pytest.approx(0.37)}
    with pytest.raises(InputError, match="example 1 has no object to point at"):
        pointing_game(np.zeros((2, 10, 10)), np.stack([true, ~true & true]))
    with pytest.raises(InputError, match="tolerance"):
        pointing_game(np.zeros((10, 10)), true, tolerance=-1)


def test_class_sensitivity_by_hand() -> None:
    a, b = noise(6, 4, 5, seed=1), noise(6, 4, 5, seed=2).mul(2).round()
    result = class_sensitivity(a, b)
    for i in range(6):
        assert result.pearson[i] == pytest.approx(pearsonr(a[i].flatten(), b[i].flatten()).statistic)
        assert result.spearman[i] == pytest.approx(spearmanr(a[i].flatten(), b[i].flatten()).statistic)
    assert class_sensitivity(a.mul(2).exp(), b).spearman == pytest.approx(result.spearman)
    assert class_sensitivity(a.double() * 1e-200, -a).summary() == pytest.approx(
        {"class_pearson": -1, "class_spearman": -1}
    )


def test_maps_without_contrast_have_no_correlation() -> None:
    a, b = noise(3, 8), noise(3, 8)
    b[1] = 0.1
    result = class_sensitivity(a, b)
    assert np.isnan(result.pearson).tolist() == np.isnan(result.spearman).tolist() == [False, True, False]
    assert result.summary()["class_pearson"] == pytest.approx(1)
    assert np.isnan(class_sensitivity(b[1:2], a[1:2]).summary()["class_pearson"])


@pytest.mark.parametrize("metric", [segment, pointing_game, class_sensitivity])
def test_mistakes_in_maps(metric: Callable[..., Any]) -> None:
    good = np.eye(4)[None]
    with pytest.raises(InputError, match="scores of example 0 are not all finite"):
        metric(np.where(good > 0, np.nan, 1), good)
    with pytest.raises(InputError, match=r"\[1, 4, 4\].*\[1, 2, 2\]"):
        metric(good, good[:, :2, :2])
    with pytest.raises(InputError, match="there are no scores"):
        metric(np.zeros((0, 4, 4)), np.zeros((0, 4, 4)))


def test_mistakes_in_masks() -> None:
    with pytest.raises(InputError, match=r"true or false per pixel; it holds 0\.0 to 255\.0"):
        segment(np.eye(4), np.eye(4) * 255)
    with pytest.raises(InputError, match="all pixels of example 0 are ignored"):
        segment(np.eye(4), np.eye(4), np.ones((4, 4)))
    with pytest.raises(InputError, match=r"maps have the shape \[images, height, width\]"):
        segment(np.ones(4), np.ones(4))
    with pytest.raises(InputError, match="no result to merge"):
        merged([])
    short, long = (
        pixel_perturbation(Linear(), pictures(), noise(5, 6, 6), prepare=None, fractions=f) for f in [(0, 1), (0, 0.5)]
    )
    with pytest.raises(InputError, match="differ in fractions"):
        merged([short, long])


def test_every_number_is_better_the_way_the_table_says() -> None:
    """A map that is right beats one that is wrong, on each metric, in the declared direction."""
    model, images = Linear(12), pictures(40, 12)
    true, labels = model.contributions(images), (images * model.w.detach()).sum((1, 2, 3)) < 0
    mask = true > true.mean()
    results = []
    for scores, other in ((true, noise(40, 12, 12)), (-true, -true)):
        curves = pixel_perturbation(model, images, scores, labels.long(), prepare=None)
        parts = curves, segment(scores, mask), pointing_game(scores, mask), class_sensitivity(scores, other)
        results.append({name: value for part in parts for name, value in part.summary().items()})
    right, wrong = results
    for name, value in right.items():
        assert (value > wrong[name]) == (METRICS[name].better == "higher"), name


# Images with masks


def write_mat(path: Path, images: list[Any], masks: list[Any]) -> None:
    """As MATLAB 7.3 stores a struct array: columns of references, each mask in a cell of its own, axes in reverse."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        kept = file.create_group("#refs#")

        def cell(name: str, data: Any) -> Any:
            return kept.create_dataset(name, data=data).ref

        def column(name: str, references: list[Any]) -> Any:
            return file.create_dataset(name, data=np.array(references, dtype=object)[:, None], dtype=h5py.ref_dtype)

        column("value/img", [cell(f"i{i}", image.T) for i, image in enumerate(images)])
        inner = [column(f"#refs#/c{i}", [cell(f"m{i}", mask.T)]).ref for i, mask in enumerate(masks)]
        column("value/gt", inner)


def test_imagenet_segmentation(tmp_path: Path) -> None:
    """Images that are not square come out upright, each with its own mask, as booleans; a grey one as RGB."""
    rng = np.random.default_rng(0)
    images = [rng.integers(256, size=(5, 8, 3), dtype=np.uint8), rng.integers(256, size=(6, 4), dtype=np.uint8)]
    masks = [rng.integers(2, size=image.shape[:2], dtype=np.uint8) for image in images]
    write_mat(tmp_path / "gtsegs_ijcv.mat", images, masks)
    colour, grey = read_imagenet_segmentation(tmp_path / "gtsegs_ijcv.mat")
    assert np.array_equal(np.asarray(colour.image), images[0])
    assert np.array_equal(np.asarray(grey.image), np.repeat(images[1][:, :, None], 3, 2))
    for example, mask in zip((colour, grey), masks, strict=True):
        assert example.foreground.dtype == bool
        assert np.array_equal(example.foreground, mask)
        assert not example.ignore.any()
    assert (colour.name, grey.name) == ("0", "1")


def test_mistakes_with_mat_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is said at the call, before the first image is drawn."""
    h5py = pytest.importorskip("h5py")
    with pytest.raises(InputError, match=r"there is no file .*none\.mat"):
        read_imagenet_segmentation(tmp_path / "none.mat")
    (tmp_path / "old.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    with pytest.raises(InputError, match=r"no MATLAB 7\.3 file"):
        read_imagenet_segmentation(tmp_path / "old.mat")
    h5py.File(tmp_path / "other.mat", "w").close()
    with pytest.raises(InputError, match="holds no /value/img"):
        read_imagenet_segmentation(tmp_path / "other.mat")
    write_mat(tmp_path / "odd.mat", [np.zeros((4, 6, 3), np.uint8)], [np.zeros((6, 4), np.uint8)])
    with pytest.raises(InputError, match="image 0: the mask is 4 x 6 pixels, the image 6 x 4"):
        list(read_imagenet_segmentation(tmp_path / "odd.mat"))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=r"pip install relprop\[vision\]"):
        read_imagenet_segmentation(tmp_path / "other.mat")


@pytest.fixture
def trimaps(tmp_path: Path) -> Path:
    """Two images with trimaps: 1 pet, 2 background, 3 border."""
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    for i, name in enumerate(("b.JPG", "a.png")):
        Image.fromarray(np.full((3, 4, 3), 50 * i, np.uint8)).save(tmp_path / "images" / name)
        Image.fromarray(np.array([[1, 1, 3, 2]] * 3, np.uint8)).save(tmp_path / "masks" / f"{name[0]}.png")
    (tmp_path / "images" / "._a.png").write_bytes(b"left by another system")
    return tmp_path


def test_folders(trimaps: Path) -> None:
    a, b = read_folder(trimaps / "images", trimaps / "masks", foreground={1}, ignore={3})
    assert (a.name, b.name) == ("a", "b")
    assert a.image.getpixel((0, 0)) == (50, 50, 50)
    assert a.foreground.tolist() == [[True, True, False, False]] * 3
    assert a.ignore.tolist() == [[False, False, True, False]] * 3
    plain = next(read_folder(trimaps / "images", trimaps / "masks", ignore=[3]))
    assert plain.foreground.tolist() == [[True, True, False, True]] * 3
    large = a.resized(6, 8)
    assert large.image.size == (8, 6)
    assert large.foreground.tolist() == [[True] * 4 + [False] * 4] * 6
    assert large.ignore.tolist() == [[False] * 4 + [True] * 2 + [False] * 2] * 6
    assert segment(large.foreground.astype(float), large.foreground, large.ignore).summary()["mean_iou"] == 1


def test_mistakes_with_folders(trimaps: Path) -> None:
    images, masks = trimaps / "images", trimaps / "masks"
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        read_folder(images, trimaps / "nowhere")
    with pytest.raises(InputError, match="holds no image"):
        read_folder(trimaps, masks)
    Image.new("L", (9, 9)).save(masks / "a.png")
    with pytest.raises(InputError, match="the mask is 9 x 9 pixels, the image 4 x 3"):
        list(read_folder(images, masks))
    Image.new("RGB", (4, 3)).save(masks / "a.png")
    with pytest.raises(InputError, match="one value per pixel"):
        list(read_folder(images, masks))
    (masks / "a.png").unlink()
    with pytest.raises(InputError, match=r"the image a\.png has no mask a\.png"):
        read_folder(images, masks)
