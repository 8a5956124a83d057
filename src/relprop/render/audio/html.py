"""Sounds as a page: each is heard once, and shown with its scores per target and method; a click plays a stretch."""

from __future__ import annotations

import wave
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO

import numpy as np

from relprop.render.audio.layout import AudioMap, caption, described
from relprop.render.audio.painting import film_of, spectrum_pixels, wave_pixels
from relprop.render.grid import RELATIVE
from relprop.render.image.layout import ends, strip
from relprop.render.page import CSS as PAGE_CSS
from relprop.render.page import IMAGES, MEDIA, allowing, legend, method_name, png, spans, subject, whole_page

CSS = """
.relprop audio{width:100%;height:2.4rem;margin:.2rem 0 .4rem}
.relprop .hear{font:inherit;color:inherit;background:none;border:1px solid var(--line);border-radius:.3rem;
 padding:.1rem .5rem;cursor:pointer;text-align:left}
.relprop .hear:hover,.relprop .hear:focus-visible{border-color:var(--ink)}
.relprop .words{display:flex;flex-wrap:wrap;gap:.3rem;padding:.2rem 0 .6rem}
.relprop .row.now .method,.relprop .hear.now{background:var(--line)}
.relprop .stage{position:relative;cursor:pointer;border-radius:.25rem;overflow:hidden;box-shadow:0 0 0 1px var(--line)}
.relprop .stage img{display:block;width:100%;height:2.6rem;image-rendering:pixelated}
.relprop .stage img+img{height:3.4rem;border-top:1px solid #dfe3e8}
.relprop .mark,.relprop .head{position:absolute;pointer-events:none}
.relprop .mark{top:0;height:.28rem;background:#1f2328}
.relprop .head{top:0;bottom:0;width:0;border-left:2px solid #1f2328;display:none}
.relprop .seconds{position:relative;height:1.2rem;color:var(--soft);font-size:.75rem;font-variant-numeric:tabular-nums}
.relprop .seconds span{position:absolute;padding-left:.2rem;border-left:1px solid var(--soft)}
.relprop .legend img{display:block;width:9rem;height:.8rem;border:1px solid var(--line);border-radius:.2rem}
@media print{.relprop audio{display:none}}
"""

# A player of each sound; a button plays its stretch, a click on a picture plays from there.
SCRIPT = """
for (const root of document.querySelectorAll(".relprop .listening:not([data-ready])")) {
  root.dataset.ready = "";
  const player = root.querySelector("audio"), heads = [...root.querySelectorAll(".head")];
  const seconds = Number(root.dataset.seconds), rows = [...root.querySelectorAll(".row")];
  const buttons = [...root.querySelectorAll(".words .hear")];
  let stop = null;
  const draw = () => {
    if (stop !== null && player.currentTime >= stop) { player.pause(); stop = null; }
    for (const head of heads) {
      head.style.display = "block";
      head.style.left = 100 * player.currentTime / seconds + "%";
    }
    if (!player.paused) requestAnimationFrame(draw);
  };
  const play = (from, until) => { stop = until; player.currentTime = from; player.play(); };
  const select = row => [rows, buttons].forEach(every => every.forEach((one, i) =>
    one.classList.toggle("now", i === row)));
  player.addEventListener("play", draw);
  player.addEventListener("seeked", draw);
  root.addEventListener("click", event => {
    const button = event.target.closest(".hear"), stage = event.target.closest(".stage");
    const named = button && "row" in button.dataset;
    const row = named ? Number(button.dataset.row) : rows.indexOf(event.target.closest(".row"));
    if (button) {
      select(row);
      play(Number(button.dataset.from), Number(button.dataset.until));
      if (named) rows[row].scrollIntoView({block: "nearest"});
    } else if (stage) {
      const box = stage.getBoundingClientRect();
      select(row);
      play(seconds * (event.clientX - box.left) / box.width, null);
    }
  });
}
"""
SCRIPTS = (SCRIPT,)
BEFORE, BEHIND = 0.1, 0.15  # seconds that are played around a stretch


def html(maps: Sequence[AudioMap], *, full_page: bool = True, title: str = "Relevance of the sound") -> str:
    """A page that needs nothing from outside, or the fragment alone."""
    sounds: dict[bytes, list[AudioMap]] = {}
    for one in maps:
        sounds.setdefault(one.digest, []).append(one)
    groups = "".join(map(_group, sounds.values()))
    films = dict.fromkeys(map(film_of, maps))
    legends = "".join(legend(strip(film, 128), *ends(film), f"{RELATIVE} row") for film in films)
    body = f'<div class="relprop">\n<style>{PAGE_CSS}{CSS}</style>\n{groups}{legends}<script>{SCRIPT}</script></div>'
    return whole_page(body, title, f"{IMAGES}{MEDIA}{allowing(*SCRIPTS)}") if full_page else body


def _group(maps: Sequence[AudioMap]) -> str:
    first = maps[0]
    words = "".join(_hear(one, one.words.target, f' data-row="{i}"') for i, one in enumerate(maps))
    several = len({one.words.target for one in maps}) > 1
    chosen = f'<div class="words">{words}</div>\n' if several else ""
    note = caption(first).note
    said = f'<div class="account">{spans([note])}</div>\n' if note else ""
    return (
        f'<div class="group listening" data-seconds="{first.duration:.6f}">\n{said}'
        f'<audio controls preload="auto" src="{wav(first)}" aria-label="the sound"></audio>\n{chosen}'
        f"{''.join(map(_row, maps))}</div>\n"
    )


def _row(one: AudioMap) -> str:
    words, (first, last) = caption(one), one.strongest
    left, width = 100 * first / one.duration, 100 * (last - first) / one.duration
    heard = _hear(one, f"▶ {first:.2f}-{last:.2f} s")
    return (
        f'<div class="row"><div class="method">{subject(words.subject[:1])}<br>{method_name(words.method)}<br>{heard}'
        f'</div><div>\n<div class="stage" role="img" aria-label="{escape(described(one))}">'
        f'<img src="{png(wave_pixels(one))}" alt=""><img src="{png(spectrum_pixels(one))}" alt="">'
        f'<i class="mark" style="left:{left:.2f}%;width:{width:.2f}%"></i><i class="head"></i></div>\n{_seconds(one)}'
        f'<div class="account">{spans([*words.subject[1:], words.total])}</div></div></div>\n'
    )


def _hear(one: AudioMap, label: str, more: str = "") -> str:
    first, last = one.strongest
    until = min(one.duration, last + BEHIND)
    times = f'data-from="{max(0.0, first - BEFORE):.3f}" data-until="{until:.3f}"'
    return f'<button type="button" class="hear" {times}{more}><bdi>{escape(label)}</bdi></button>'


def _seconds(one: AudioMap) -> str:
    step = next((step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60) if one.duration / step <= 12), one.duration)
    times = [k * step for k in range(int(one.duration / step) + 1)]
    marks = (f'<span style="left:{100 * time / one.duration:.2f}%">{time:g} s</span>' for time in times[:-1] or times)
    return f'<div class="seconds" aria-hidden="true">{"".join(marks)}</div>\n'


def wav(one: AudioMap) -> str:
    """The sound as a WAV of 16 bits within the page."""
    loudest = max(1.0, float(np.abs(one.samples).max()))
    file = BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(one.rate)
        written.writeframes((one.samples / loudest * 32767).astype("<i2").tobytes())
    return f"data:audio/wav;base64,{b64encode(file.getvalue()).decode()}"
