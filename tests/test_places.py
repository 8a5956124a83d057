"""Numbers at a place of a picture: detected objects, segments, depth."""

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from typer.testing import CliRunner

from relprop import Explainer
from relprop.cli.app import app
from relprop.errors import RelpropWarning, TargetError
from relprop.explanation import Explanation, save
from relprop.readers.image import ImageReader
from relprop.render.image.part import Frame, boxed
from relprop.tasks.detection import DetectedObject
from relprop.tasks.places import place_of
from relprop.tasks.regions import PixelNumber, RegionClass
from test_images import picture, processor
from tiny_models import build_whole, cases

DETECTORS = ["YolosForObjectDetection", "DetrForObjectDetection", "DeformableDetrForObjectDetection"]
SEGMENTERS = ["SegformerForSemanticSegmentation", "Mask2FormerForUniversalSegmentation"]
DEPTH = ["DPTForDepthEstimation", "GLPNForDepthEstimation"]
NAMES = {0: "cat", 1: "dog", 2: "bird"}


@cache
def explainer(architecture: str) -> Explainer:
    built = build_whole(next(one for one in cases() if one.architecture == architecture))
    height, width = built.examples[0]["pixel_values"].shape[-2:]
    built.model.config.id2label = {i: NAMES.get(i, f"class {i}") for i in range(len(built.model.config.id2label))}
    return Explainer(built.model, processor("ViT", size={"height": height, "width": width}))


def outputs(explain: Explainer, image: Image.Image) -> Any:
    with torch.no_grad():
        return explain.model(**explain.inputs([image]))


# Objects.


@pytest.mark.parametrize("architecture", DETECTORS)
def test_the_value_is_the_logit_of_the_box(architecture: str) -> None:
    explain, image = explainer(architecture), picture()
    found = outputs(explain, image)
    assert isinstance(explain.task, DetectedObject)
    e = explain(image, target=(5, "dog"))
    assert e.value == pytest.approx(found.logits[0, 5, 1].item())
    assert e.ledger is not None
    assert e.ledger.closes(1e-4)
    x, y, width, height = found.pred_boxes[0, 5].tolist()
    assert e.box == pytest.approx(
        (60 * (x - width / 2), 40 * (y - height / 2), 60 * (x + width / 2), 40 * (y + height / 2))
    )
    difference = explain(image, target=(5, ("dog", "cat")))
    assert difference.value == pytest.approx((found.logits[0, 5, 1] - found.logits[0, 5, 0]).item())
    assert difference.target.startswith("dog - cat at ")
    strongest = explain(image, target="dog")
    assert strongest.value == pytest.approx(found.logits[0, probability(explain, found)[:, 1].argmax(), 1].item())


def probability(explain: Explainer, found: Any) -> Tensor:
    logits = found.logits[0]
    return logits.softmax(-1)[:, :-1] if logits.shape[-1] > len(explain.labels) else logits.sigmoid()


@pytest.mark.parametrize("architecture", DETECTORS[:2])
def test_every_object_is_a_step(architecture: str) -> None:
    """Those above 0.5, as the processors of transformers count them; their sum is the whole."""
    explain, image = explainer(architecture), picture()
    sure = probability(explain, outputs(explain, image)).max(1).values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelpropWarning)
        e = explain(image)
    count = int((sure >= 0.5).sum())
    assert len(e.steps) == (min(count, 20) if count else 0)
    if count:
        assert [step.probability for step in e.steps] == pytest.approx(
            sorted(sure[sure >= 0.5].tolist(), reverse=True)[:20]
        )
        assert e.value == pytest.approx(sum(step.value for step in e.steps))
        alone = [e.step(i) for i in range(len(e.steps))]
        np.testing.assert_allclose(e.scores, sum(one.scores for one in alone), atol=1e-9)
        assert alone[0].box == e.steps[0].box is not None
        again = Explanation.from_json(e.to_json(), image)
        assert again.steps == e.steps
        assert again.to_json() == e.to_json()


def test_no_object_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    explain = explainer("YolosForObjectDetection")
    monkeypatch.setattr("relprop.tasks.detection.THRESHOLD", 0.999)
    with pytest.warns(RelpropWarning, match="finds no object with a probability of"):
        e = explain(picture())
    assert not e.steps
    assert e.box is not None


def test_an_object_by_a_point_in_its_box() -> None:
    """The likeliest of those whose box holds the point."""
    explain, image = explainer("YolosForObjectDetection"), picture()
    found = outputs(explain, image)
    x, y, width, height = (found.pred_boxes[0] * torch.tensor([60, 40, 60, 40])).T
    inside = ((x - 30).abs() <= width / 2) & ((y - 5).abs() <= height / 2)
    best = torch.where(inside, probability(explain, found)[:, 2], -1).argmax()
    e = explain(image, target=((29.5, 4.5), "bird"))
    assert e.value == pytest.approx(found.logits[0, best, 2].item())


@pytest.mark.parametrize("edge", ["left", "top", "right", "bottom"])
@pytest.mark.parametrize("architecture", DETECTORS[:2])
def test_an_edge_of_the_box(architecture: str, edge: str) -> None:
    """In the picture's own pixels; what the model itself gives, and the ledger closes."""
    e = explainer(architecture)(picture(), target=(3, edge))
    assert e.box is not None
    assert e.value == pytest.approx(e.box[("left", "top", "right", "bottom").index(edge)])
    assert e.ledger is not None
    assert e.ledger.closes(1e-4)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ((99, "cat"), "object 99 is out of range: the model proposes 12"),
        ("horse", '"horse" is unknown'),
        (("cat", "dog"), "the object 'cat'"),
        (((300, 2), "cat"), r"\(300, 2\) lies outside of the picture, which is 60 x 40 pixels"),
        ((1, ("cat", "dog", "bird")), "a difference takes two classes, got 3"),
        ([1, 2], "2 targets for 1 images"),
        ((1, 2, 3), "a target is an object's class"),
    ],
)
def test_wrong_objects_have_their_sentence(target: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        explainer("YolosForObjectDetection")(picture(), target=target)
    if not isinstance(target, list):
        with pytest.raises(TargetError, match=f"image 1 of the list: .*{message}"):
            explainer("YolosForObjectDetection")([picture(), picture()], target=[(1, "cat"), target])


# Regions.


@pytest.mark.parametrize("architecture", SEGMENTERS)
def test_the_value_is_the_mean_logit_of_the_region(architecture: str) -> None:
    explain, image = explainer(architecture), picture()
    assert isinstance(explain.task, RegionClass)
    found = outputs(explain, image)
    box = (10, 5, 50, 30)
    e = explain(image, target=(box, "dog"))
    if "logits" in found:
        maps = found.logits[0, 1]
        mask = inside(maps.shape, box)
    else:  # the proposed mask that says "dog" most in the region
        mask = inside(found.masks_queries_logits.shape[-2:], box)
        says = found.class_queries_logits[0].softmax(-1)[:, 1, None, None] * found.masks_queries_logits[0].sigmoid()
        maps = found.masks_queries_logits[0, says[:, mask].mean(1).argmax()]
    assert e.value == pytest.approx(maps[mask].mean().item())
    assert e.box == box
    assert e.target == "dog at (10, 5) to (50, 30)"
    assert e.ledger is not None
    assert e.ledger.closes(1e-4)
    drawn = np.zeros((40, 60), dtype=bool)
    drawn[5:30, 10:50] = True
    masked = explain(image, target=(drawn, "dog"))
    assert masked.value == pytest.approx(e.value)
    np.testing.assert_allclose(masked.scores, e.scores)


def inside(shape: Any, box: tuple[int, int, int, int]) -> Tensor:
    """The cells whose middle lies in a box of a picture of 60 x 40 pixels, one by one."""
    rows, columns = shape
    cells = [
        [
            box[0] <= (j + 0.5) * 60 / columns < box[2] and box[1] <= (i + 0.5) * 40 / rows < box[3]
            for j in range(columns)
        ]
        for i in range(rows)
    ]
    return torch.tensor(cells)


def test_classes_of_a_picture() -> None:
    """None is every class that covers enough; a class alone is read where it is the likeliest."""
    explain, image = explainer("SegformerForSemanticSegmentation"), picture()
    logits = outputs(explain, image).logits[0]
    likeliest = logits.argmax(0)
    e = explain(image)
    shares = torch.bincount(likeliest.flatten()).double() / likeliest.numel()
    assert [step.name for step in e.steps] == [
        explain.labels[i] for i in shares.argsort(descending=True).tolist() if shares[i] >= 0.02
    ]
    first = int(shares.argmax())
    assert e.steps[0].value == pytest.approx(logits[first, likeliest == first].mean().item())
    assert explain(image, target=explain.labels[first]).value == pytest.approx(e.steps[0].value)
    height, width = likeliest.shape
    at = explain(image, target=(0, 0))
    assert at.value == pytest.approx(logits[:, 0, 0].max().item())
    corner = explain(image, target=((59, 39), "bird"))
    assert corner.value == pytest.approx(logits[2, height - 1, width - 1].item())


@pytest.mark.parametrize("architecture", DEPTH)
def test_depth(architecture: str) -> None:
    explain, image = explainer(architecture), picture()
    assert type(explain.task) is PixelNumber
    depth = outputs(explain, image).predicted_depth[0]
    whole, point = explain([image, image], target=[None, (0, 0)], ledger=True)
    assert whole.value == pytest.approx(depth.mean().item())
    assert whole.box is None
    assert point.value == pytest.approx(depth[0, 0].item())
    assert point.ledger is not None
    assert point.ledger.closes(1e-4)
    with pytest.raises(TargetError, match="a place is a point"):
        explain(image, target="cat")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (((70, 3), "cat"), "lies outside of the picture"),
        (((5, 5, 3, 9), "cat"), "a box is .left, top, right, bottom. within the picture, which is 60 x 40 pixels"),
        ((np.zeros((40, 60), dtype=bool), "cat"), "true somewhere"),
        ((np.ones((3, 3), dtype=bool), "cat"), r"\[40, 60\] as the picture"),
        ((3, "cat"), "a place is a point"),
        (((3, 3), 1.5), "got the class 1.5"),
    ],
)
def test_wrong_places_have_their_sentence(target: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        explainer("SegformerForSemanticSegmentation")(picture(), target=target)


def test_a_class_that_is_nowhere() -> None:
    explain, image = explainer("Mask2FormerForUniversalSegmentation"), picture()
    names = {step.name for step in explain(image).steps}
    missing = next(name for name in explain.labels.values() if name not in names)
    with pytest.raises(TargetError, match="is the likeliest class nowhere on the picture"):
        explain(image, target=missing)


def test_a_place_in_a_frame() -> None:
    """A cropped picture: cells lie where the model sees; the nearest one stands in for a place between them."""
    place = place_of((10, 10, 20, 20), (100, 50))
    cells = place.cells((5, 5), Frame(25, 0, 75, 50))
    assert cells.nonzero().tolist() == [[1, 0]]
    assert place_of((99, 49), (100, 50)).cells((5, 5), Frame(25, 0, 75, 50)).nonzero().tolist() == [[4, 4]]


# One by one, all methods, and every way in and out.


@pytest.mark.parametrize(
    ("architecture", "target"),
    [("YolosForObjectDetection", (4, "cat")), ("SegformerForSemanticSegmentation", ((3, 3), "cat"))],
)
def test_a_batch_is_one_by_one(architecture: str, target: Any) -> None:
    explain = explainer(architecture)
    pictures = [picture(seed=1), picture(80, 30, seed=2)]
    together = explain(pictures, target=target)
    for one, image in zip(together, pictures, strict=True):
        alone = explain(image, target=target)
        np.testing.assert_allclose(one.scores, alone.scores, atol=1e-9)
        assert one.value == pytest.approx(alone.value)
        assert one.box == pytest.approx(alone.box)


@pytest.mark.parametrize("method", ["lrp_ah_ln", "attn_lrp", "gradient_x_input", "integrated_gradients", "occlusion"])
def test_other_methods(method: str) -> None:
    e = explainer("YolosForObjectDetection")(picture(), target=(2, "cat"), method=method)
    assert np.isfinite(e.scores).all()
    assert e.box is not None


def test_the_box_is_drawn(tmp_path: Path) -> None:
    image = Image.new("RGB", (60, 40), "grey")
    drawn = np.asarray(boxed(image, (10, 5, 30, 25)))
    assert (drawn[5, 10:30] == 255).all()
    assert (drawn[24, 10:30] == 255).all()
    assert (drawn[5:25, 29] == 255).all()
    assert (drawn[4, 10:30] == 0).all()
    assert (drawn[14, 15] == np.asarray(image)[14, 15]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelpropWarning)
        e = explainer("YolosForObjectDetection")(picture())
    for ending in ("png", "html", "json"):
        save([e], tmp_path / f"x.{ending}")
        assert (tmp_path / f"x.{ending}").stat().st_size > 100
    e.show()


def test_the_command_line_takes_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """'5,dog' is an object; '10:5:50:30,dog' and '3:4,dog' are places."""
    picture().save(tmp_path / "x.png")
    for architecture, given, target in [
        ("YolosForObjectDetection", "5,dog", (5, "dog")),
        ("YolosForObjectDetection", "3,left", (3, "left")),
        ("SegformerForSemanticSegmentation", "10:5:50:30,dog", ((10, 5, 50, 30), "dog")),
        ("SegformerForSemanticSegmentation", "3:4", (3, 4)),
        ("SegformerForSemanticSegmentation", "3:4,dog,cat", ((3, 4), ("dog", "cat"))),
        ("DPTForDepthEstimation", "3:4", (3, 4)),
    ]:
        explain = explainer(architecture)
        monkeypatch.setattr("relprop.explainer.Explainer", lambda *_, own=explain: own)
        done = CliRunner().invoke(
            app, ["explain", str(tmp_path / "x.png"), "--model", "x", "--target", given, "--json", "-"]
        )
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["value"] == pytest.approx(explain(picture(), target=target).value)


def test_readers_are_of_pictures() -> None:
    assert isinstance(explainer("YolosForObjectDetection").reader, ImageReader)
