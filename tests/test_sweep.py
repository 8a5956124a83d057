"""Coverage of head classes: a diverse slice in every run, the whole of transformers in the slow one."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import sweep
from readings import reading_of
from sweep import Case, Result
from tiny_models import build_whole, cases

# One of each kind of input and of head: what the model reads beside masks, types and positions.
SLICE = {
    "BertForTokenClassification": {"input_ids"},
    "BertForMultipleChoice": {"input_ids"},
    "LlamaForSequenceClassification": {"input_ids"},
    "T5ForConditionalGeneration": {"input_ids", "decoder_input_ids"},
    "LayoutLMv3ForSequenceClassification": {"input_ids", "pixel_values"},
    "CLIPModel": {"input_ids", "pixel_values"},
    "LlavaForConditionalGeneration": {"input_ids", "pixel_values"},
    "Qwen2VLForConditionalGeneration": {"input_ids", "pixel_values"},
    "YolosForObjectDetection": {"pixel_values"},
    "SegformerForSemanticSegmentation": {"pixel_values"},
    "Wav2Vec2ForCTC": {"input_values"},
    "WhisperForConditionalGeneration": {"input_features", "decoder_input_ids"},
    "PatchTSTForRegression": {"past_values"},
}
CLEAN = ("BertForTokenClassification", "LlamaForSequenceClassification", "PatchTSTForRegression")


def case_of(architecture: str) -> Case:
    return next(one for one in cases() if one.architecture == architecture)


def test_every_head_class_is_a_case_once() -> None:
    pairs = [(one.model_type, one.architecture) for one in cases()]
    assert len(pairs) == len(set(pairs)) > 900


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", SLICE)
def test_models_read_every_modality_and_depend_on_it(architecture: str) -> None:
    """An input that does not matter to the number would make every check of its part empty."""
    built = build_whole(case_of(architecture))
    names = {name for name, value in built.batch.items() if sweep.explained(name, value)}
    assert names == SLICE[architecture]
    assert all(sweep._matters(built, name) for name in names)
    assert not built.note


@pytest.mark.filterwarnings("ignore")
def test_texts_are_long_uneven_and_typed() -> None:
    batch = build_whole(case_of("BertForTokenClassification")).batch
    assert batch["attention_mask"].sum(1).tolist() == [70, 61]
    assert batch["token_type_ids"].unique().tolist() == [0, 1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", SLICE)
def test_what_does_not_hold_is_said(architecture: str) -> None:
    result = sweep.run(case_of(architecture))
    assert "built" in result.holds
    assert set(result.holds) | set(result.reasons) == set(sweep.COLUMNS)
    assert all(result.reasons.values())
    assert result.clean or architecture not in CLEAN, result


@pytest.mark.filterwarnings("ignore")
def test_scores_that_do_not_fit_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns can fail: a batch whose scores are swapped, a part that is missing, scores of padding."""
    built = build_whole(case_of("BertForTokenClassification"))
    rows = sweep._explained(built, built.batch).scores
    with pytest.raises(sweep.Unclean, match="differ from its examples"):
        sweep._same("input_ids", rows.flip(0), [rows[:1], rows[1:, :61]], 1e-6)
    with pytest.raises(sweep.Unclean, match="padding has scores"):
        sweep._same("input_ids", torch.ones(2, 70), [torch.ones(1, 70), torch.ones(1, 61)], 1e-6)
    with pytest.raises(sweep.Unclean, match="padding has scores"):
        sweep._no_score_for_padding("input_ids", torch.ones(2, 70), built.batch)
    monkeypatch.setattr(sweep, "parts_of", lambda attribution, names: {"?": attribution.scores})
    with pytest.raises(sweep.Unclean, match="no part for input_ids"):
        sweep._parts(built)


def test_readings_give_one_number_per_example() -> None:
    """Of rows that every example has, of maps the peak, of pairs the diagonal."""
    long, short = {"logits": torch.rand(1, 9, 4)}, {"logits": torch.rand(1, 7, 4)}
    target = reading_of([long, short])
    assert target.index is not None
    assert target.index[0] == 4
    assert target(long).shape == (1,)
    assert reading_of([{"predicted_depth": -torch.arange(48.0).view(1, 8, 6)}]).index == (7, 5)
    books = {"logits": torch.rand(4, 9, 5)}  # one example, four codebooks
    assert reading_of([books])(books).shape == (1,)
    similar = {"logits_per_image": torch.arange(4.0).view(2, 2)}
    assert reading_of([similar])(similar).tolist() == [0, 3]


@pytest.mark.filterwarnings("ignore")
def test_neither_a_crash_nor_a_hang_ends_the_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The clock moves only while a process hangs; a busy one has its limit in processor time."""
    hanging, now = tmp_path / "hanging", [0.0]

    def misbehave(case: Case) -> Result:
        if case.task == "crash":
            os._exit(1)
        if case.task == "hang":
            hanging.touch()
            threading.Event().wait()
        while case.task == "loop":
            pass
        return Result(case, sweep.COLUMNS)

    def sleep(seconds: float) -> None:
        if hanging.exists():
            hanging.unlink()
            now[0] += 2 * sweep.STUCK
        time.sleep(seconds)

    monkeypatch.setattr(sweep, "run", misbehave)
    monkeypatch.setattr(sweep, "SECONDS", 1)
    monkeypatch.setattr(sweep, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    found = {
        one.case.task: one for one in sweep.sweep([Case(task, "X", "x") for task in ("crash", "loop", "hang", "fine")])
    }
    assert found["crash"].first == ("runs", "its process crashed")
    assert found["hang"].first == ("runs", "it takes more than 3600 s")
    assert found["loop"].first == ("runs", "it takes more than 1 s of processor time")
    assert found["fine"].clean


def test_state_and_page(tmp_path: Path) -> None:
    """What was found is read back as it was; the page counts it and names what is not clean."""
    good = Result(Case("ctc", "GoodForCTC", "good"), sweep.COLUMNS, seconds=1.5)
    bad = Result(Case("ctc", "BadForCTC", "bad"), ("built", "runs"), {"closes": "gap 1: topk | in head"})
    none = Result(Case("ctc", "NoneForCTC", "none"), reasons={"built": "It needs the package natten."})
    for one in (good, bad, none):
        sweep.save(one, tmp_path / "results.jsonl")
    assert list(sweep.saved(tmp_path / "results.jsonl").values()) == [good, bad, none]
    page = sweep.page([good, bad, none])
    assert "Of 3 pairs of model type and head class 2 build; of these 2 run (100.0 %) and 1 (50.0 %)" in page
    assert "| ctc | 3 | 2 | 2 | 1 | 1 | 1 | 1 | 1 |" in page
    assert "| ctc | BadForCTC | bad | closes | gap 1: topk \\| in head |" in page
    assert "| ctc | NoneForCTC | none | It needs the package natten. |" in page


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_head_class() -> None:
    """Of the pairs that build, at least 90 % run and at least 85 % are clean; what is not has a reason."""
    results = list(sweep.sweep(cases(), jobs=os.cpu_count() or 1))
    built = [result for result in results if "built" in result.holds]
    assert len(built) >= 0.9 * len(results)
    assert sum("runs" in result.holds for result in built) >= 0.9 * len(built)
    assert sum(result.clean for result in built) >= 0.85 * len(built)
    assert all(result.first[1] for result in results if not result.clean)
