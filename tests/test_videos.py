"""Videos: frames x patches."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from relprop import Explainer
from relprop.errors import InputError
from relprop.explanation import Explanation, save
from relprop.readers.video import VideoReader
from relprop.render.video.part import VideoPart
from relprop.serve.answers import flat_explanation
from test_images import picture, processor
from tiny_models import build_whole, cases

MODELS = ["VideoMAEForVideoClassification", "TimesformerForVideoClassification", "VivitForVideoClassification"]


@cache
def explainer(architecture: str) -> Explainer:
    model = build_whole(next(one for one in cases() if one.architecture == architecture)).model
    side = model.config.image_size
    size = {"height": side, "width": side}
    return Explainer(model, processor("VideoMAE", size={"shortest_edge": side}, crop_size=size))


def frames(explain: Explainer, count: int | None = None, seed: int = 0) -> list[Image.Image]:
    return [picture(60, 40, seed=seed + i) for i in range(count or explain.model.config.num_frames)]


@pytest.mark.parametrize("architecture", MODELS)
def test_units_are_patches_of_frames(architecture: str) -> None:
    """Each score belongs to its own frames: a change of one frame changes what the model reads there alone."""
    explain = explainer(architecture)
    given = frames(explain)
    assert isinstance(explain.reader, VideoReader)
    e = explain(given, target=1)
    with torch.no_grad():
        logits = explain.model(**explain.inputs([tuple(given)])).logits
    assert e.value == pytest.approx(logits[0, 1].item())
    assert e.ledger is not None
    assert e.ledger.closes(1e-4)
    config, part = explain.model.config, e.part
    tube = {"videomae": getattr(config, "tubelet_size", 1), "timesformer": 1}.get(config.model_type)
    tube = config.tubelet_size[0] if tube is None else tube
    assert part.scores.shape[0] == config.num_frames // tube
    assert part.times == tuple((i, i + tube - 1) for i in range(0, config.num_frames, tube))
    assert len(part.units) == part.scores.size
    assert part.map().shape == (len(part.times), 40, 60)


def test_scores_lie_at_their_frame() -> None:
    """From black, integrated gradients scores the one frame that is not black."""
    explain = explainer("TimesformerForVideoClassification")
    given = [Image.new("RGB", (60, 40))] * explain.model.config.num_frames
    given[3] = picture()
    scores = explain(given, target=1, method="integrated_gradients", steps=2).part.scores
    assert scores[3].any()
    assert not np.delete(scores, 3, 0).any()


@pytest.mark.parametrize("architecture", MODELS[:2])
def test_a_batch_is_one_by_one(architecture: str) -> None:
    explain = explainer(architecture)
    videos = [tuple(frames(explain, seed=s)) for s in (0, 50)]
    together = explain(videos, target=0)
    for one, video in zip(together, videos, strict=True):
        alone = explain(list(video), target=0)
        np.testing.assert_allclose(one.scores, alone.scores, atol=1e-9)


def test_every_form_of_a_video(tmp_path: Path) -> None:
    """A list, a tuple, an array, a GIF; of more frames than the model reads, some are chosen evenly."""
    explain = explainer(MODELS[0])
    given = [one.quantize(32).convert("RGB") for one in frames(explain)]
    first = explain(given, target=0)
    array = np.stack([np.asarray(one) for one in given])
    for form in (tuple(given), array, torch.from_numpy(array)):
        np.testing.assert_allclose(explain(form, target=0).scores, first.scores)
    path = tmp_path / "x.gif"
    given[0].save(path, save_all=True, append_images=given[1:], duration=100, loop=0)
    from_file = explain(path, target=0)
    assert from_file.part.file == "x.gif"
    assert from_file.part.times == first.part.times
    more = explain(frames(explain, 2 * explain.model.config.num_frames), target=0)
    assert more.part.times[-1][1] == 2 * explain.model.config.num_frames - 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: [picture()] * 3, "the model reads [0-9]+ frames, and the video has 3"),
        (lambda: [picture(), picture(30, 30)], "the frames of a video are of one size"),
        (lambda: picture(), "the file holds one picture, no video"),
        (lambda: (), "a video is an animated file"),
        (lambda: 3, "a video is an animated file .* got int"),
        (lambda: np.zeros((4, 4), dtype=np.uint8), r"got ndarray of shape \[4, 4\]"),
        (lambda: "missing.gif", 'there is no image "missing.gif"'),
    ],
)
def test_wrong_videos_have_their_sentence(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        explainer(MODELS[0])(given())


def test_drawn_saved_and_loaded(tmp_path: Path) -> None:
    explain = explainer(MODELS[0])
    e = explain(frames(explain), target=0)
    for ending in ("png", "html"):
        save([e], tmp_path / f"x.{ending}")
    e.show()
    again = Explanation.from_json(e.to_json())
    assert again.to_json() == e.to_json()
    assert isinstance(again.part, VideoPart)
    np.testing.assert_allclose(again.scores, e.scores)
    with pytest.raises(InputError, match="not saved with its numbers"):
        again.save(tmp_path / "y.png")
    assert e.part.columns()["first"][0] == 0
    assert len(e.top(3)) == 3
    answer = flat_explanation(e)
    assert answer["parts"][0]["kind"] == "video"
