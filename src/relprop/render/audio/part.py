"""`AudioPart`: scores of stretches of a sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from relprop.errors import InputError
from relprop.part import Part, Words
from relprop.render.audio.layout import AudioMap, Samples

STRETCH = 0.2  # seconds of the stretch that is called the strongest: about a syllable


@dataclass(frozen=True)
class Stretch:
    """What one row of the model reads: seconds of the sound, and of a patch of the spectrogram its band in Hz."""

    start: float
    end: float
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        band = "" if self.low is None else f", {self.low:.0f}-{self.high:.0f} Hz"
        return f"{self.start:.2f}-{self.end:.2f} s{band}"


@dataclass(frozen=True, eq=False)
class Sound:
    """One channel of samples. `note` says what was done to what was given."""

    samples: Samples  # from -1 to 1
    rate: int
    file: str = ""
    note: str = ""

    @property
    def duration(self) -> float:
        return len(self.samples) / self.rate


@dataclass(frozen=True, eq=False)
class AudioPart(Part):
    """The stretches of one sound, and one score per stretch."""

    kind: ClassVar[str] = "audio"
    rendering: ClassVar[str] = "relprop.render.audio"
    scored: ClassVar[tuple[str, ...]] = ("scores", "rest")
    drawn_by_step: ClassVar[bool] = True

    name: str
    units: tuple[Stretch, ...]
    scores: tuple[float, ...]
    duration: float  # seconds
    rate: int  # samples per second, as the model reads them
    rest: float = 0.0  # scores of class tokens, and of what the model's processor put behind the sound
    file: str = ""  # the file's name
    note: str = ""  # what was done to the sound before the model read it
    sound: Sound | None = None  # as the model's processor got it
    by_step: tuple[tuple[tuple[float, ...], float], ...] = ()  # per step its own `scores` and `rest`

    def __post_init__(self) -> None:
        for scores in (self.scores, *(own for own, _ in self.by_step)):
            if len(scores) != len(self.units):
                raise ValueError(f"{len(self.units)} stretches, {len(scores)} scores")

    @property
    def total(self) -> float:
        return sum(self.scores) + self.rest

    def top(self, count: int) -> list[tuple[Stretch, float]]:
        return sorted(zip(self.units, self.scores, strict=True), key=lambda pair: -abs(pair[1]))[:count]

    def strongest(self, seconds: float = STRETCH) -> Stretch:
        """The stretch of this length whose units support the target most, each unit counted at its middle."""
        middles = np.array([(unit.start + unit.end) / 2 for unit in self.units])
        supports = np.maximum(self.scores, 0)
        sums = [supports[np.abs(middles - one) <= seconds / 2].sum() for one in middles]
        middle = float(middles[int(np.argmax(sums))]) if len(sums) else 0.0
        return Stretch(max(0.0, middle - seconds / 2), min(self.duration, middle + seconds / 2))

    def without_special(self) -> Self:
        return replace(self, rest=0.0, by_step=tuple((scores, 0.0) for scores, _ in self.by_step))

    def columns(self) -> dict[str, Sequence[object]]:
        """One row per stretch; class tokens and what was put behind the sound are one row, special."""
        rows: list[tuple[object, ...]] = [
            (unit.start, unit.end, unit.low, unit.high, False, score)
            for unit, score in zip(self.units, self.scores, strict=True)
        ]
        if self.rest:
            rows.append((None, None, None, None, True, self.rest))
        names = ("start", "end", "low", "high", "special", "score")
        return (
            dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)) if rows else {name: [] for name in names}
        )

    def to_dict(self) -> dict[str, object]:
        """The numbers, without the sound."""
        plain = {name: getattr(self, name) for name in ("name", "scores", "duration", "rate", "rest", "file", "note")}
        steps = {"by_step": self.by_step} if self.by_step else {}
        return {"kind": self.kind, "units": [asdict(unit) for unit in self.units], **plain, **steps}

    @classmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        """`attached`: the sound, where it is to be drawn on."""
        if attached is not None and abs(attached.duration - data["duration"]) > 0.01:
            raise InputError(
                f"the explanation is of a sound of {data['duration']:.2f} s, not of {attached.duration:.2f} s"
            )
        units = tuple(Stretch(**unit) for unit in data["units"])
        steps = tuple((tuple(scores), rest) for scores, rest in data.get("by_step", ()))
        return cls(**{**data, "units": units, "scores": tuple(data["scores"]), "by_step": steps, "sound": attached})

    @classmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> AudioMap:
        if len(parts) != 1:
            raise InputError(f"an explanation of {len(parts)} sounds is not drawn: draw its parts one by one")
        (part,) = parts
        if part.sound is None:
            raise InputError("the sound is not saved with its numbers: load them with from_json(text, sound=...)")
        strongest = part.strongest()
        return AudioMap(
            samples=part.sound.samples,
            rate=part.sound.rate,
            edges=_array(part.units, "start", "end"),
            bands=_array(part.units, "low", "high") if any(unit.low is not None for unit in part.units) else None,
            scores=np.array(part.scores, dtype=np.float64),
            rest=part.rest,
            strongest=(strongest.start, strongest.end),
            words=words,
            note="; ".join(filter(None, (part.file, part.note))),
        )


def _array(units: Sequence[Stretch], first: str, last: str) -> NDArray[np.float64]:
    """[units, 2]"""
    pairs = [(getattr(unit, first), getattr(unit, last)) for unit in units]
    return np.array(pairs, dtype=np.float64).reshape(-1, 2)
