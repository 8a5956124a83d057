"""Series of numbers: what is read of them, forecasts at a step, classes and numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from relprop import Explainer, Explanation
from relprop.errors import InputError, TargetError

CHANNELS = ["temp", "wind", "rain"]
PATCHES: dict[str, Any] = {
    "num_input_channels": 3, "context_length": 24, "patch_length": 6, "patch_stride": 6, "d_model": 16,
    "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32,
}  # fmt: skip
STEPS: dict[str, Any] = {
    "prediction_length": 3, "context_length": 10, "lags_sequence": [1, 2], "num_time_features": 2, "d_model": 16,
    "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
}  # fmt: skip


def walk(steps: int = 24, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).normal(size=(steps, channels)), 0)


def patches(head: str, **settings: Any) -> Explainer:
    torch.manual_seed(0)
    config = hf.PatchTSTConfig(**PATCHES, **settings)
    return Explainer(getattr(hf, f"PatchTSTFor{head}")(config).double().eval(), columns=CHANNELS)


def forecaster(kind: str, **settings: Any) -> Explainer:
    """Autoformer makes tensors of single precision itself."""
    torch.manual_seed(0)
    config = getattr(hf, f"{kind}Config")(**STEPS, **settings)
    model = getattr(hf, f"{kind}ForPrediction")(config).eval()
    return Explainer(model if kind == "Autoformer" else model.double())


def with_times(steps: int = 12) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(1)
    times = {"past_time_features": noise.normal(size=(steps, 2)), "future_time_features": noise.normal(size=(3, 2))}
    return {"past_values": np.sin(np.arange(steps) / 3), **times}


# PatchTST: every step of every channel is a unit.


@pytest.mark.parametrize("scaling", ["std", None])
def test_classes_of_series(scaling: str | None) -> None:
    own = patches("Classification", num_targets=4, scaling=scaling)
    given = [walk(seed=k) for k in range(3)]
    together = own(given, target=2, ledger=True)
    for one, series in zip(together, given, strict=True):
        inputs = {"past_values": torch.tensor(series)[None].requires_grad_()}
        value = own.model(**inputs).prediction_logits[0, 2]
        (slope,) = torch.autograd.grad(value, inputs["past_values"])
        assert abs(one.value - value.item()) < 1e-9
        assert one.ledger is not None
        assert one.ledger.closes(1e-3)
        assert len(one.scores) == 24 * 3
        plain = own(series, target=2, method="gradient_x_input")
        assert np.allclose(plain.part.map(), (slope[0] * inputs["past_values"][0]).detach().numpy())
        alone = own(series, target=2)
        assert np.allclose(alone.scores, one.scores)
    assert together[0].part.units[4].text == "wind step 1"


@pytest.mark.parametrize(("loss", "field"), [("mse", None), ("nll", 1)])
def test_forecasts_of_a_channel_at_a_step(loss: str, field: int | None) -> None:
    """The forecast itself; of a distribution its mean."""
    own = patches("Prediction", prediction_length=5, loss=loss, distribution_output="student_t")
    found = own(walk(), target=(4, "rain"))
    with torch.no_grad():
        outputs = own.model(past_values=torch.tensor(walk())[None])
    expected = outputs.prediction_outputs
    if field is not None:
        expected = own.model.distribution_output.distribution(expected, loc=outputs.loc, scale=outputs.scale).mean
    assert abs(found.value - expected[0, 3, 2].item()) < 1e-9
    assert found.target == "rain 4 steps ahead"
    share = np.abs(found.part.map()).sum(0)
    assert share[2] > share[:2].sum()  # channels are forecast by themselves
    assert own(walk(), target=(4, 2)).value == found.value


def test_numbers_read_off_series() -> None:
    one = patches("Regression", num_targets=1, loss="mse")(walk())
    assert one.target == "the number"
    several = patches("Regression", num_targets=3, loss="nll", distribution_output="normal")
    with torch.no_grad():
        outputs = several.model(past_values=torch.tensor(walk())[None]).regression_outputs
    assert abs(several(walk(), target=2).value - outputs[0][0, 2].item()) < 1e-9
    with pytest.raises(TargetError, match="the model gives 3 numbers: say which one"):
        several(walk())
    with pytest.raises(TargetError, match="3 numbers, 0 to 2, got target=3"):
        several(walk(), target=3)


# Models that forecast step by step.


@pytest.mark.parametrize("kind", ["TimeSeriesTransformer", "Informer", "Autoformer"])
def test_forecasts_step_by_step(kind: str) -> None:
    """Step 1 is the mean of what the model gives; later steps read the model's own forecasts before them."""
    own = forecaster(kind)
    given = with_times()
    dtype = next(own.model.parameters()).dtype
    inputs = {name: torch.tensor(one, dtype=dtype)[None] for name, one in given.items()}
    future = torch.zeros(1, 3, dtype=dtype)
    mask = torch.ones(1, 12, dtype=torch.bool)
    for step in range(3):
        found = own(given, target=step + 1, ledger=True)
        with torch.no_grad():
            outputs = own.model(**inputs, past_observed_mask=mask, future_values=future)
            forecast = own.model.output_distribution(outputs.params, loc=outputs.loc, scale=outputs.scale).mean
        assert abs(found.value - forecast[0, step].item()) < 1e-6
        assert found.ledger is not None
        assert found.ledger.closes(1e-2)
        parts = {part.name: part for part in found.parts}
        assert set(parts) == {"past_values", "past_time_features", "future_time_features", "future_values"}
        read = np.zeros(3) if kind == "Autoformer" else future[0].numpy()  # which reads no forecasts of its own
        assert np.allclose(parts["future_values"].values[:, 0], read)
        assert not np.any(parts["future_values"].map()[step:])  # nothing later speaks for it
        future[0, step] = forecast[0, step]


def test_several_channels_step_by_step() -> None:
    own = forecaster("TimeSeriesTransformer", input_size=3)
    given = {**with_times(), "past_values": walk(12)}
    found = own(given, target=(2, 1))
    assert found.target == "channel 1 2 steps ahead"
    with pytest.raises(TargetError, match=r"3 channels .*: target=\(step, channel\)"):
        own(given, target=2)


def test_a_batch_is_one_by_one() -> None:
    own = forecaster("TimeSeriesTransformer")
    second = {**with_times(), "past_values": walk(12, 1)[:, 0]}
    together = own([with_times(), second], target=[1, 3])
    for one, given, target in zip(together, (with_times(), second), (1, 3), strict=True):
        alone = own(given, target=target)
        assert abs(alone.value - one.value) < 1e-9
        for part, other in zip(alone.parts, one.parts, strict=True):
            assert np.allclose(part.scores, other.scores, atol=1e-9)


# What is given.


def test_tables_frames_and_arrays_are_the_same_series(tmp_path: Path) -> None:
    import pandas

    own = patches("Classification", num_targets=2)
    own.reader.columns = None
    series = walk(30).round(3)
    frame = pandas.DataFrame(series, columns=CHANNELS)
    frame.insert(0, "day", [f"2026-01-{k + 1:02}" for k in range(30)])
    frame.to_csv(tmp_path / "a.csv", index=False)
    expected = own(series, target=1)
    assert expected.part.note == "the last 24 of 30 steps are read"
    for given in (tmp_path / "a.csv", str(tmp_path / "a.csv"), frame[CHANNELS], torch.tensor(series)):
        found = own(given, target=1)
        assert np.allclose(found.scores, expected.scores)
    assert own(tmp_path / "a.csv", target=1).part.channels == tuple(CHANNELS)
    assert expected.part.channels == ("channel 0", "channel 1", "channel 2")


def test_a_file_holds_what_stands_beside_the_series(tmp_path: Path) -> None:
    """Features of time cannot be told in a table: a .json file has them by name, on the command line too."""
    own, given, path = forecaster("TimeSeriesTransformer"), with_times(), tmp_path / "a.json"
    path.write_text(json.dumps({name: one.tolist() for name, one in given.items()}))
    one, other = own(given, target=2), own(path, target=2)
    assert other.to_json() == one.to_json()
    for content, message in (("[1, 2]", 'should hold {"past_values"'), ("{", "cannot be read as JSON")):
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            own(path)
    with pytest.raises(InputError, match="there is no file"):
        own(tmp_path / "missing.json")


def test_missing_values_are_left_out_where_the_model_can() -> None:
    series = walk()
    series[3, 1] = np.nan
    found = patches("Classification", num_targets=2)(series, target=1)
    assert found.part.observed[3, 1] == 0
    assert found.part.map()[3, 1] == 0
    plain = Explainer(Plain(), columns=CHANNELS)
    with pytest.raises(InputError, match="holds a finite number"):
        plain((1.0, np.nan, 2.0))


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1, keepdim=True)


@pytest.mark.parametrize(
    ("given", "target", "message"),
    [
        (walk(20), 1, "has 20 steps, and the model looks back 24"),
        (walk(24, 2), 1, "reads 3 channels, and the series has 2"),
        ({"values": walk()}, 1, 'a dict holds it as "past_values"'),
        ({"past_values": walk(), "hours": walk()}, 1, 'takes no "hours"'),
        ("nowhere.csv", 1, 'there is no table "nowhere.csv"'),
        (object(), 1, '"past_values" is an array of numbers'),
        (np.zeros((2, 2, 2)), 1, r"\[steps\] or \[steps, channels\], got \[2, 2, 2\]"),
        (walk(), (9, "rain"), "forecasts 5 steps"),
        (walk(), (0, "rain"), "counted from 1"),
        (walk(), 2, r"forecasts 3 channels \(temp, wind, rain\)"),
        (walk(), (2, "snow"), 'channel "snow" is unknown'),
        (walk(), None, r"forecasts 3 channels \(temp, wind, rain\)"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(given: Any, target: Any, message: str) -> None:
    with pytest.raises((InputError, TargetError), match=message):
        patches("Prediction", prediction_length=5, loss="mse")(given, target=target)


def test_times_that_a_model_needs() -> None:
    own = forecaster("Informer")
    with pytest.raises(InputError, match=r'also reads "past_time_features" \[12, 2\]'):
        own(np.arange(12.0), target=1)
    with pytest.raises(InputError, match=r'"future_time_features" is \[3, 2\] for this model, got \[3, 1\]'):
        own({**with_times(), "future_time_features": np.zeros((3, 1))}, target=1)


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    own = patches("Classification", num_targets=2)
    for text, message in (
        ("a,b\n", "holds no rows"),
        ("a,b,c\n1,2\n", "line 2 .* has 2 cells, and the header 3"),
        ("a,b,c\n1,2,x\n", "line 2 .* holds 'x', which is no number"),
    ):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(InputError, match=message):
            own(tmp_path / "a.csv", target=1)


# Drawings.


def test_what_is_saved_and_drawn(tmp_path: Path) -> None:
    own = forecaster("TimeSeriesTransformer")
    found = own(with_times(), target=2, method=["lrp_conservative", "gradient_x_input"])
    for one in found:
        back = Explanation.from_json(one.to_json())
        assert back.to_json() == one.to_json()
        assert back.to_html() == one.to_html()
        one.show()
        for ending in ("png", "svg"):
            one.save(tmp_path / f"a.{ending}")
    page = found[0].to_html()
    assert "past_time_features: feature 1" in page
    assert "channel 0 2 steps ahead" in page
    assert {"start", "end", "channel", "score"} <= set(found[0].to_frame().columns)
    data = json.loads(found[0].to_json())
    data["parts"][0]["units"][0]["end"] = 99
    with pytest.raises(InputError, match="damaged"):
        Explanation.from_json(json.dumps(data))
