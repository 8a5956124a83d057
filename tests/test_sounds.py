"""Sounds: what is read of them, where frames lie on them, and explanations of models of sound."""

import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import transformers as hf

from relprop import Explainer, Explanation
from relprop.errors import InputError, ModelError, TargetError
from relprop.loading import SoundProcessor
from relprop.readers.audio import AudioReader
from relprop.readers.sound import opened_sound
from relprop.readers.timeline import band_hertz, timeline
from relprop.render.audio.figure import draw

RATE = 16_000
LOW = 2_000  # of the models of samples: fewer of them
LABELS = {0: "quiet", 1: "speech"}
BLOCKS: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "id2label": LABELS,
}  # fmt: skip
CONVOLUTIONS: dict[str, Any] = {
    "conv_dim": (8, 8, 8), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2), "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8,
}  # fmt: skip


def tone(seconds: float = 0.5, rate: int = RATE, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, 0.01, round(seconds * rate))
    times = np.arange(len(noise)) / rate
    return (noise + 0.3 * np.sin(2 * np.pi * 440 * times) * (times > seconds / 2)).astype(np.float32)


def extractor(kind: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of mel filters without any frequency
        if kind == "spectrogram":
            return hf.ASTFeatureExtractor(num_mel_bins=32, max_length=128)
        if kind == "log mel":
            return hf.WhisperFeatureExtractor(feature_size=16, chunk_length=1)
        return hf.Wav2Vec2FeatureExtractor(sampling_rate=LOW)


def model(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "spectrogram":
        patches = {"max_length": 128, "num_mel_bins": 32, "patch_size": 8, "frequency_stride": 8, "time_stride": 8}
        return hf.ASTForAudioClassification(hf.ASTConfig(**BLOCKS, **patches)).eval()
    if kind == "log mel":
        return hf.WhisperForAudioClassification(
            hf.WhisperConfig(
                d_model=16,
                encoder_layers=2,
                encoder_attention_heads=2,
                encoder_ffn_dim=32,
                num_mel_bins=16,
                max_source_positions=50,
                classifier_proj_size=8,
                id2label=LABELS,
            )
        ).eval()
    norm = "group" if kind == "mixed samples" else "layer"
    stable = {"feat_extract_norm": norm, "do_stable_layer_norm": norm == "layer"}
    return hf.Wav2Vec2ForSequenceClassification(hf.Wav2Vec2Config(**BLOCKS, **CONVOLUTIONS, **stable)).eval()


KINDS = ("samples", "mixed samples", "spectrogram", "log mel")


def rate_of(kind: str) -> int:
    return LOW if "samples" in kind else RATE


def sounds(kind: str, *seconds: float) -> list[tuple[np.ndarray, int]]:
    return [(tone(one, rate_of(kind), seed), rate_of(kind)) for seed, one in enumerate(seconds)]


def explainer(kind: str) -> Explainer:
    return Explainer(model(kind).double(), extractor(kind))


# What is read.


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg"])
def test_files_arrays_and_dicts_are_the_same_sound(tmp_path: Path, ending: str) -> None:
    samples = tone()
    soundfile.write(tmp_path / f"a.{ending}", samples, RATE)
    read = opened_sound(tmp_path / f"a.{ending}", RATE)
    assert read.file == f"a.{ending}"
    assert read.rate == RATE
    assert len(read.samples) == len(samples)
    assert np.abs(read.samples - samples).max() < (0.1 if ending == "ogg" else 1e-3)  # ogg leaves things out
    for given in ((samples, RATE), {"array": samples, "sampling_rate": RATE}, (torch.tensor(samples), RATE)):
        assert np.array_equal(opened_sound(given, RATE).samples, samples)
    whole = np.round(samples * 32768).astype(np.int16)
    assert np.abs(opened_sound((whole, RATE), RATE).samples - samples).max() < 1e-4


def test_stereo_is_averaged_and_another_rate_resampled_and_said() -> None:
    left, right = tone(seed=0), tone(seed=1)
    stereo = np.stack([left, right])
    for array in (stereo, stereo.T):  # torchaudio's order, and soundfile's
        mixed = opened_sound((array, RATE), RATE)
        assert np.allclose(mixed.samples, (left + right) / 2, atol=1e-6)
        assert mixed.note == "2 channels averaged"
    slow = np.sin(2 * np.pi * 440 * np.arange(8000) / 8000).astype(np.float32)
    resampled = opened_sound((slow, 8000), RATE)
    assert resampled.note == "resampled from 8,000 to 16,000 Hz"
    expected = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    assert np.abs(resampled.samples - expected)[500:-500].max() < 0.01
    assert opened_sound((np.zeros(800), RATE), RATE).note == "the sound is silent"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros(5), "samples alone do not tell their rate"),
        ((np.zeros(0), RATE), "the sound is empty"),
        ((np.zeros((20, 20)), RATE), r"samples are \[samples\] or \[samples, channels\]"),
        ((np.zeros((2, 3, 4)), RATE), "samples are numbers"),
        ((np.full(9, np.nan), RATE), "not finite"),
        ((np.full(9, 3000.0), RATE), "divide those of 16 bits by 32768"),
        ((np.zeros(9), 0), "the rate of a sound is a whole number"),
        ((np.zeros(9), "16000"), "the rate of a sound is a whole number"),
        ((["a"], RATE), "samples are numbers"),
        (5, "a sound is a path"),
        ("nowhere.wav", 'there is no sound "nowhere.wav"'),
    ],
)
def test_what_is_no_sound_is_told_in_a_sentence(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        opened_sound(given, RATE)


def test_files_that_are_no_sound(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"no sound at all")
    (tmp_path / "b.wav").write_bytes(b"")
    for name in ("a.wav", "b.wav"):
        with pytest.raises(InputError, match=f"{name}.* is no sound that can be read"):
            opened_sound(tmp_path / name, RATE)
    empty = io.BytesIO()
    soundfile.write(empty, np.zeros(0), RATE, format="WAV")
    empty.seek(0)
    with pytest.raises(InputError, match="the sound is empty"):
        opened_sound(empty, RATE)


# Where frames lie.


@pytest.mark.parametrize(
    ("kind", "axis", "step"), [("samples", 0, 1 / LOW), ("spectrogram", 0, 0.01), ("log mel", 1, 0.01)]
)
def test_frames_are_found_by_clicks(kind: str, axis: int, step: float) -> None:
    """The extractors' own settings: samples, 10 ms from frame to frame; kaldi's first window is centred at 12.5 ms."""
    own = extractor(kind)
    found = timeline(own, own.model_input_names[0], rate_of(kind))
    assert found.axis == axis
    assert abs(found.step / step - 1) < 1e-3
    assert abs(found.first - (0.0125 if kind == "spectrogram" else 0.0)) < 0.004


def test_an_extractor_that_repeats_the_sound_is_refused() -> None:
    class Repeating:
        def __call__(self, samples: Any, sampling_rate: int, return_tensors: str) -> dict[str, Any]:
            return {"input_values": torch.tensor(samples).repeat(3)[None]}

    with pytest.raises(ModelError, match="does not keep the order of time"):
        timeline(Repeating(), "input_values", RATE)


def test_bands_are_found_by_tones() -> None:
    """The mel scale of the extractor's filters, at the bins where its filters have their peaks."""
    own = extractor("spectrogram")
    hertz = band_hertz(own, "input_values", RATE, 1)
    peaks = np.linspace(0, RATE / 2, own.mel_filters.shape[0])[own.mel_filters.argmax(0)]
    bins = np.array([8.0, 16.0, 24.0])
    assert np.abs(hertz(bins) / peaks[bins.astype(int)] - 1).max() < 0.25


# Explanations.


@pytest.mark.parametrize("kind", KINDS)
def test_classes_of_sounds(kind: str) -> None:
    """The value is the model's logit, the ledger closes, units cover the sound, and a batch is one by one."""
    own = explainer(kind)
    given = sounds(kind, 0.5, 0.5, 0.4)
    together = own(given, target="speech", ledger=True)
    for one, sound in zip(together, given, strict=True):
        with torch.no_grad():
            expected = own.model(**own.inputs([sound])).logits[0, 1].item()
        alone = own(sound, target=1)
        assert abs(one.value - expected) < 1e-6
        assert one.ledger is not None
        assert one.ledger.closes(1e-3)
        assert abs(one.part.total - one.ledger.inputs) < 1e-9
        assert np.allclose(one.scores, alone.scores, atol=1e-9 * max(map(abs, one.scores)) + 1e-12)
        assert one.part.units == alone.part.units
        assert one.prediction in LABELS.values()
    starts = [unit.start for unit in together[0].part.units]
    ends = [unit.end for unit in together[0].part.units]
    assert min(starts) < 0.05
    assert 0.42 < max(ends) <= 0.5
    assert all(start < end for start, end in zip(starts, ends, strict=True))
    assert (together[0].part.units[0].low is not None) == (kind == "spectrogram")


def test_scores_lie_where_the_sound_is() -> None:
    """A burst in a hush: scores of samples lie there, at the seconds where it was put."""
    samples = np.random.default_rng(0).normal(0, 1e-4, LOW // 2)
    samples[500:560] += np.random.default_rng(1).normal(0, 0.5, 60)
    found = explainer("mixed samples")((samples, LOW), target=1, method="gradient_x_input")
    middles = np.array([(unit.start + unit.end) / 2 for unit in found.part.units])
    strengths = np.abs(found.scores)
    assert strengths[(middles > 0.22) & (middles < 0.31)].sum() > 0.8 * strengths.sum()


@pytest.mark.parametrize(
    "method", ["gradient_x_input", "integrated_gradients", "attn_lrp", "gae", "rollout", "occlusion"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_methods(kind: str, method: str) -> None:
    """Every method gives finite scores within the sound. Attention among frames that samples are mixed in says so."""
    own = explainer(kind)
    (given,) = sounds(kind, 0.3)
    if kind == "mixed samples" and method in ("gae", "rollout"):
        with pytest.raises(ModelError, match="attention among the units"):
            own(given, target=1, method=method)
        return
    found = own(given, target=1, method=method)
    assert np.isfinite(found.scores).all()
    assert any(found.scores)
    assert all(0 <= unit.start <= unit.end <= 0.3 for unit in found.part.units)


def test_padding_behind_the_sound_is_no_unit_of_it() -> None:
    """Whisper's extractor fills a second: what lies behind the sound is in `rest`, and the sum stays."""
    own = explainer("log mel")
    found = own((tone(0.3), RATE), target=1, ledger=True)
    assert found.part.rest != 0
    assert max(unit.end for unit in found.part.units) <= 0.3
    assert abs(sum(found.scores) + found.part.rest - found.ledger.inputs) < 1e-9
    assert found.without_special().part.rest == 0


@pytest.mark.parametrize(
    ("kind", "given", "error", "message"),
    [
        ("log mel", (tone(1.5), RATE), InputError, r"lasts 1.50 s, and the model reads 1.00 s at once"),
        # kernels of 10, 3 and 3 with strides of 5, 2 and 2 read 10 + 2 * 5 + 2 * 10
        (
            "samples",
            (tone(0.5)[:3], LOW),
            InputError,
            r"^the sound has 3 samples .*reads sounds from 40 samples on \(0.0",
        ),
        ("samples", (tone(0.5)[:39], LOW), InputError, r"^the sound has 39 samples .*reads sounds from 40 samples on"),
        (
            "spectrogram",
            (tone(0.5)[:3], RATE),
            InputError,
            r"the sound has 3 samples .*reads sounds from \d+ samples on",
        ),
        ("samples", "a text", InputError, 'there is no sound "a text"'),
        ("samples", {"b64": "x"}, InputError, "a sound is a path"),
    ],
)
def test_sounds_that_a_model_cannot_read(kind: str, given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explainer(kind)(given)


@pytest.mark.parametrize(("kind", "count"), [("samples", 40), ("spectrogram", 400), ("log mel", 1)])
def test_the_shortest_sounds_that_a_model_reads(kind: str, count: int) -> None:
    found = explainer(kind)((tone(0.5)[:count], rate_of(kind)), target=1)
    assert found.part.duration == count / rate_of(kind)


def test_speech_models_of_samples_say_how_short_is_too_short(tmp_path: Path) -> None:
    """Where the model is run to find its words, and where a decoder writes them."""
    with pytest.raises(InputError, match="from 40 samples on"):
        ctc(tmp_path)((tone(0.5)[:3], LOW))
    config = hf.MoonshineConfig(
        vocab_size=20, hidden_size=16, intermediate_size=16, encoder_num_hidden_layers=1, decoder_num_hidden_layers=1,
        encoder_num_attention_heads=2, decoder_num_attention_heads=2,
    )  # fmt: skip
    own = AudioReader(hf.MoonshineForConditionalGeneration(config).eval(), extractor("samples"))
    with pytest.raises(InputError, match=r"the sound has 100 samples .*from \d+ samples on"):
        own.read((tone(0.5)[:100], LOW))


def test_an_extractor_without_a_rate_is_refused() -> None:
    own = extractor("samples")
    own.sampling_rate = None
    with pytest.raises(ModelError, match="at which rate"):
        AudioReader(model("samples"), own)


# Words that are heard.


def ctc(tmp_path: Path) -> Explainer:
    """A random model of letters, whose blank is unlikely enough that it hears words."""
    vocabulary = {name: k for k, name in enumerate(("<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefgh"))}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = hf.Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json"))
    processor = hf.Wav2Vec2Processor(extractor("samples"), tokenizer)
    torch.manual_seed(1)
    stable = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "vocab_size": len(vocabulary)}
    own = {name: value for name, value in BLOCKS.items() if name != "id2label"}
    one = hf.Wav2Vec2ForCTC(hf.Wav2Vec2Config(**own, **CONVOLUTIONS, **stable, pad_token_id=0)).double().eval()
    with torch.no_grad():
        one.lm_head.weight.mul_(40)
        one.lm_head.bias.zero_()
        one.lm_head.bias[:4] = torch.tensor([-1.0, -99.0, -99.0, -99.0])
    return Explainer(one, processor)


def test_words_of_a_transcript(tmp_path: Path) -> None:
    """Every word is a step: the transcript is the tokenizer's, the value the sum of the logits of its frames."""
    own = ctc(tmp_path)
    given = sounds("samples", 0.5)
    found = own(given[0])
    with torch.no_grad():
        logits = own.model(**own.inputs(given)).logits[0]
    assert found.prediction == own.reader.tokenizer.decode(logits.argmax(-1))
    assert [step.name for step in found.steps] == [repr(word) for word in found.prediction.split()]
    assert len(found.steps) > 1
    best = logits.argmax(-1)
    kept = (best != 0) & (best != 4)
    assert abs(found.value - logits.max(-1).values[kept].sum().item()) < 1e-6
    for k, step in enumerate(found.steps):
        one = found.step(k)
        assert one.ledger is None or one.ledger.closes(1e-3)
        assert abs(one.value - step.value) < 1e-12
    assert np.allclose(sum(np.array(found.step(k).scores) for k in range(len(found.steps))), found.scores)
    page = found.to_html()
    assert page.count("data:audio/wav") == 1
    assert page.count('class="stage"') == len(found.steps)
    back = Explanation.from_json(found.to_json(), sound=given[0])
    assert back.to_json() == found.to_json()


def test_one_word_of_a_transcript(tmp_path: Path) -> None:
    own = ctc(tmp_path)
    (given,) = sounds("samples", 0.5)
    every = own(given)
    words = every.prediction.split()
    start = 0
    for k, word in enumerate(words):
        one = own(given, target=(start, start + len(word)))
        assert abs(one.value - every.steps[k].value) < 1e-9
        assert np.allclose(one.scores, every.step(k).scores)
        if words.count(word) == 1 and every.prediction.count(word) == 1:
            assert own(given, target=word).target == one.target
        start += len(word) + 1
    with pytest.raises(TargetError, match="not in the transcript"):
        own(given, target="xyz")
    with pytest.raises(TargetError, match="are no word of the transcript"):
        own(given, target=(900, 902))
    with pytest.raises(TargetError, match="a target is a word of the transcript"):
        own(given, target=3.5)
    together = own([given, *sounds("samples", 0.4)])
    assert np.allclose(together[0].scores, every.scores)


def test_silence_has_no_word_and_a_vocabulary_is_needed(tmp_path: Path) -> None:
    own = ctc(tmp_path)
    with torch.no_grad():
        own.model.lm_head.bias[0] = 1e3
    with pytest.raises(InputError, match="the model hears no word"):
        own(*sounds("samples", 0.3))
    with pytest.raises(ModelError, match="its vocabulary is missing"):
        Explainer(own.model, extractor("samples"))


# Speech that a decoder writes down.


def test_speech_that_is_written_down() -> None:
    """Each written token by frames and by the tokens before it; the decoder starts from what the model itself does."""
    tokenizer = Explainer("stories").tokenizer
    torch.manual_seed(0)
    size = len(tokenizer)
    config = hf.WhisperConfig(
        d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=32, num_mel_bins=16,
        max_source_positions=50, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=32, vocab_size=size,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
        begin_suppress_tokens=None, max_target_positions=40,
    )  # fmt: skip
    model = hf.WhisperForConditionalGeneration(config).double().eval()
    processor = SoundProcessor(extractor("log mel"), tokenizer)
    own = Explainer(model, processor)
    (given,) = sounds("log mel", 0.4)
    found = own(given, generate=3)
    assert [part.name for part in found.parts] == ["input_features", "decoder_input_ids"]
    assert len(found.steps) == 3
    assert found.matrix.shape == (3, len(found.parts[0].units) + len(found.parts[1].units))
    values = []
    written = [step.tokens[0] for step in found.steps]
    for k in range(3):
        ids = torch.tensor([[1, *written[:k]]])
        features = own.reader.source.inputs([own.reader.source.read(given)])
        with torch.no_grad():
            values.append(model(**features, decoder_input_ids=ids).logits[0, -1, written[k]].item())
    assert np.allclose([step.value for step in found.steps], values, atol=1e-5)
    sums = sum(np.array(found.step(k).parts[0].scores) for k in range(3))
    assert np.allclose(sums, found.parts[0].scores)
    drawn = [one for rendering, one in found.drawings if rendering == "relprop.render.audio"]
    assert ["input_features" in dict(one.words.beside) for one in drawn] == [False] * 3  # it is the sum itself
    page = found.to_html()
    assert page.count('class="stage"') == 3
    assert page.count("'sha256-") == 2
    back = Explanation.from_json(found.to_json(), sound=given)
    assert back.to_html() == page


# Files and drawings.


def test_what_is_saved_and_drawn(tmp_path: Path) -> None:
    own = explainer("spectrogram")
    stereo = (np.stack([tone(), tone(seed=1)]), RATE)
    found = own(stereo, target=1)
    back = Explanation.from_json(found.to_json(), sound=stereo)
    assert back.to_json() == found.to_json()
    assert back.to_html() == found.to_html()
    with pytest.raises(InputError, match=r"from_json\(text, sound=...\)"):
        Explanation.from_json(found.to_json()).to_html()
    with pytest.raises(InputError, match=r"of a sound of 0.50 s, not of 0.30 s"):
        Explanation.from_json(found.to_json(), sound=(tone(0.3), RATE))
    page = found.to_html()
    assert page.count("data:audio/wav;base64,") == 1
    assert "media-src data:" in page
    assert "2 channels averaged" in page
    frame = found.to_frame()
    assert set(frame.columns) >= {"start", "end", "low", "high", "score"}
    for ending in ("png", "svg"):
        found.save(tmp_path / f"a.{ending}")
        assert (tmp_path / f"a.{ending}").stat().st_size > 1000
    lines = [text.get_text() for text in draw([found.drawings[0][1]]).texts]
    assert "(logit)" in lines  # broken between words
    assert f"probability {found.probability:.2f}" in " ".join(lines)
    found.show()
    data = json.loads(found.to_json())
    data["parts"][0]["scores"] = data["parts"][0]["scores"][:-1]
    with pytest.raises(InputError, match="damaged"):
        Explanation.from_json(json.dumps(data))


def test_several_sounds_are_heard_once_each() -> None:
    own = explainer("samples")
    from relprop.explanation import to_html

    found = [one for each in own(sounds("samples", 0.5, 0.3), method=["lrp_conservative", "rollout"]) for one in each]
    page = to_html(found)
    assert page.count("data:audio/wav") == 2
    assert page.count('class="stage"') == 4


def test_the_strongest_stretch() -> None:
    found = explainer("samples")(*sounds("samples", 0.5), target=1)
    stretch = found.part.strongest(0.1)
    middles = np.array([(unit.start + unit.end) / 2 for unit in found.part.units])
    supports = np.maximum(found.scores, 0)
    middle = (stretch.start + stretch.end) / 2
    inside = supports[np.abs(middles - middle) <= 0.0500001].sum()
    assert all(inside >= supports[np.abs(middles - one) <= 0.05].sum() - 1e-12 for one in middles)
