"""Waveforms, spectrograms and time series, in each of the layouts that models read."""

from __future__ import annotations

import torch
from torch import Tensor

from tiny_subject import LENGTHS, Example, Subject, number

SAMPLES = (9600, 8000)  # of the two examples' waveforms


def waveform(subject: Subject, length: int) -> Example:
    samples = SAMPLES[0] if length == LENGTHS[0] else SAMPLES[1]
    found: Example = {"input_values": subject.noise(1, samples)}
    if "attention_mask" in subject.takes:
        found["attention_mask"] = torch.ones(1, samples, dtype=torch.long)
    return found


def mel(subject: Subject, frames: int, frequencies_last: bool = True) -> Tensor:
    audio = subject.sub("audio_config", "audio_encoder_config", "encoder_config", "encoder")
    names = ("num_mel_bins", "feature_projection_input_dim", "n_mels", "input_feat_size", "input_feat_per_channel")
    bins = number(audio, *names, default=number(subject.config, *names, default=80))
    return subject.noise(1, frames, bins) if frequencies_last else subject.noise(1, bins, frames)


def spectrogram(subject: Subject, length: int) -> Example:
    found: Example = {"input_features": mel(subject, length)}
    if "attention_mask" in subject.takes:
        found["attention_mask"] = torch.ones(1, length, dtype=torch.long)
    return found


def whole_spectrogram(subject: Subject, length: int) -> Example:
    """Whisper's: always of full length, frequencies first."""
    audio = subject.sub("audio_config", "encoder_config")
    return {"input_features": mel(subject, 2 * number(audio, "max_source_positions", default=32), False)}


def masked_mel(subject: Subject, length: int) -> Example:
    """Frequencies first, full length, and a mask of its own."""
    audio = subject.sub("audio_config", "encoder_config")
    frames = 2 * number(audio, "n_window", "max_source_positions", default=32)
    mask = torch.ones(1, frames, dtype=torch.long)
    name = "feature_attention_mask" if "feature_attention_mask" in subject.takes else "input_features_mask"
    extra = {"padding_mask": torch.ones(1, 160 * frames, dtype=torch.bool)} if "padding_mask" in subject.takes else {}
    return {"input_features": mel(subject, frames, False), name: mask, **extra}


def masked_spectrogram(subject: Subject, length: int) -> Example:
    """Frames first, with a mask of its own."""
    stacked = number(subject.sub("audio_config"), "num_stacked_frames", default=1)  # frames in one
    features = mel(subject, 64 * stacked).view(1, 64, -1)
    return {"input_features": features, "input_features_mask": torch.ones(1, 64, dtype=torch.long)}


def stacked_spectrogram(subject: Subject, length: int) -> Example:
    """Granite Speech 5's: four frames in one."""
    mask = torch.ones(1, length, dtype=torch.long)
    return {"input_features": mel(subject, 4 * length).view(1, length, -1), "attention_mask": mask}


def patch_spectrogram(subject: Subject, length: int) -> Example:
    """The audio spectrogram transformer's: of full length, without a mask."""
    return {"input_values": subject.noise(1, subject.config.max_length, subject.config.num_mel_bins)}


def spoken_prefix(subject: Subject, length: int) -> Example:
    """SpeechT5's text to speech: the text, and the beginning of the spectrogram it writes."""
    if subject.case.task != "text-to-spectrogram":
        return waveform(subject, length)
    return {"decoder_input_values": subject.noise(1, 12, subject.config.num_mel_bins)}


def one_channel(subject: Subject, length: int) -> Example:
    """A waveform with its channel, and a mask of its own."""
    return {"input_values": subject.noise(1, 1, 64), "padding_mask": torch.ones(1, 64, dtype=torch.bool)}


def embedded_frames(subject: Subject, length: int) -> Example:
    """Pop2Piano's: spectrogram frames as wide as the model."""
    mask = torch.ones(1, length, dtype=torch.long)
    return {"input_features": subject.noise(1, length, subject.config.d_model), "attention_mask": mask}


def series(subject: Subject, length: int) -> Example:
    config = subject.config
    shape = (number(config, "context_length", default=32), number(config, "num_input_channels", default=1))
    return {"past_values": subject.noise(1, *shape)}


def plain_series(subject: Subject, length: int) -> Example:
    """TimesFM's: one series, without channels."""
    freq = {"freq": torch.zeros(1, dtype=torch.long)} if "freq" in subject.takes else {}
    return {"past_values": subject.noise(1, subject.config.context_length), **freq}
