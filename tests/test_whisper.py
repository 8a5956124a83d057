"""Whisper-tiny on spoken sentences: the stretch that made a word is the word's own, or ends just before it.

`RELPROP_WHISPER` names the folder of the model; espeak-ng speaks.
"""

import io
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from relprop import Explainer

FOLDER = os.environ.get("RELPROP_WHISPER", "")
RATE = 16_000
BEFORE = 0.2  # seconds before a word that still count: frames reach that far back, and speech is coarticulated
PAUSE = 0.1
SENTENCES = (
    "the quick brown fox jumps over the lazy dog",
    "my brother bought seven green apples at the market yesterday",
    "please open the window because it is very warm in this room",
)
Spans = list[tuple[str, float, float]]  # words and their seconds


def spoken(word: str) -> np.ndarray:
    """One word, without the silence around it."""
    command = ["espeak-ng", "-v", "en-us", "-s", "150", "--stdout", word]
    samples, rate = soundfile.read(io.BytesIO(subprocess.run(command, capture_output=True, check=True).stdout))
    samples = resample_poly(samples, RATE, rate)
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    return samples[loud[0] : loud[-1] + 1]


def sentence(text: str) -> tuple[np.ndarray, Spans]:
    """Words one by one with pauses between them, so that each word's seconds are known."""
    pieces, spans, time = [np.zeros(round(0.3 * RATE))], Spans(), 0.3
    for word in text.split():
        samples = spoken(word)
        spans.append((word, time, time + len(samples) / RATE))
        pieces += [samples, np.zeros(round(PAUSE * RATE))]
        time += len(samples) / RATE + PAUSE
    return np.concatenate(pieces).astype(np.float32), spans


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER or shutil.which("espeak-ng") is None, reason="RELPROP_WHISPER or espeak-ng is missing")
def test_words_are_made_by_their_own_stretch_of_sound(tmp_path: Path) -> None:
    """Of the words that the model hears right, in at least 80 % the middle of the strongest 0.2 s lies in the word."""
    explainer = Explainer(FOLDER)
    explainer.model.float()
    right = every = 0
    for text in SENTENCES:
        samples, spans = sentence(text)
        found = explainer((samples, RATE), generate=True, method="attn_lrp").words()
        waiting = list(spans)
        for number, unit in enumerate(found.generated):
            word = "".join(filter(str.isalpha, unit.text.lower()))
            index = next((i for i, (own, *_) in enumerate(waiting) if own == word), None)
            if index is None:  # misheard
                continue
            _, start, end = waiting[index]
            waiting = waiting[index + 1 :]
            stretch = found.step(number).parts[0].strongest()
            right += start - BEFORE <= (stretch.start + stretch.end) / 2 <= end
            every += 1
        found.save(tmp_path / "a.html")
    assert every >= 20
    assert right / every >= 0.8
