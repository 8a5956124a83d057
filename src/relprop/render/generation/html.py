"""A continuation as a page: pointing at a generated token colours its causes. Without a script it shows the sums."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape

from relprop.render.caption import number
from relprop.render.generation.layout import GenerationMap, count_before, lead, totals
from relprop.render.page import CSS as PAGE_CSS
from relprop.render.page import allowing, spans, subject, whole_page
from relprop.render.text import html as text
from relprop.render.text.layout import SEPARATOR, caption, cells
from relprop.render.visible import visible
from relprop.types import ExplainedStep

FULL = 1000  # scores are told as thousandths of their row's strongest

CSS = """
.relprop .generation{line-height:2.15;padding:.55rem 0 .6rem;border-top:1px solid var(--line);overflow-wrap:anywhere}
.relprop .g{border-bottom:2px solid var(--soft);border-bottom-left-radius:0;border-bottom-right-radius:0}
.relprop[data-ready] .g{cursor:pointer}
.relprop .g:focus-visible,.relprop .g.on{outline:2px solid var(--ink);outline-offset:1px}
.relprop .g.pinned{border-bottom-color:var(--ink);border-bottom-width:3px}
.relprop .later{opacity:.45}
.relprop .lead{margin:0 0 .4rem}
.relprop .detail{min-height:4.6em;padding:.5rem 0;border-top:1px solid var(--line);font-size:.875rem;
 font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.relprop .detail:empty{display:none}
.relprop .detail b{font-weight:600}
.relprop .detail .why{margin-top:.15rem;color:var(--soft)}
.relprop .detail .why span{margin-right:.9rem;white-space:nowrap}
.relprop .detail .why i{display:inline-block;width:.7em;height:.7em;margin-right:.35em;border-radius:.15em}
"""

# No script of the page's makes markup: what it shows is set as text.
SCRIPT = """
for (const root of document.querySelectorAll(".relprop.continuation:not([data-ready])")) {
  root.dataset.ready = "";
  const data = root.querySelector("script[type='application/json']").textContent;
  const {given, rows, notes, signed: sides} = JSON.parse(data);
  const units = [...root.querySelectorAll(".t")], tokens = units.slice(given);
  const detail = root.querySelector(".detail");
  const plain = units.map(unit => unit.className), titles = units.map(unit => unit.title);
  const bare = plain.map(names => names.split(" ").filter(name => !/^([pnu]\\\\d+|minus)$/.test(name)).join(" "));
  const amount = share => share ? " u" + Math.abs(share) : "";
  const level = share => !sides ? amount(share) : share > 0 ? " p" + share : share < 0 ? " n" + -share : "";
  const shade = q => Math.round(q * LEVELS / FULL);
  const signed = x => (x > 0 && sides ? "+" : "") + (Math.abs(x) >= 1e-3 ? x.toFixed(3) : x.toExponential(1));
  const label = unit => unit.dataset.name || unit.textContent;
  const both = root.classList.contains("together");  // what was read can be pointed at too
  let shown = null, pinned = null;

  function make(name, words, into) {
    const node = document.createElement(name);
    node.textContent = words;
    into.append(node);
    return node;
  }
  function explain(row) {
    const [strongest, shares] = rows[row];
    make("b", notes[row][0], detail);
    detail.append("  " + notes[row][1]);
    const why = make("div", "", detail);
    why.className = "why";
    const order = [...shares.keys()].filter(i => shares[i]).sort((a, b) => Math.abs(shares[b]) - Math.abs(shares[a]));
    for (const i of order.slice(0, 6)) {
      const cause = make("span", "", why);
      make("i", "", cause).className = level(shade(shares[i])).trim();
      cause.append(label(units[i]) + " " + signed(shares[i] * strongest / FULL));
    }
  }
  function show(row) {
    if (row === shown) return;
    shown = row;
    const shares = row === null ? null : rows[row][1];
    units.forEach((unit, i) => {
      let names = plain[i];
      if (shares) {
        const q = shares[i] || 0;
        names = bare[i] + level(shade(q)) + (sides && q <= -UNDERLINED ? " minus" : "");
        if (i >= given + row) names += i === given + row ? " on" : " later";
      }
      if (i >= given && i - given === pinned) names += " pinned";
      if (unit.className !== names) unit.className = names;
    });
    detail.replaceChildren();
    if (row === null) make("span", HINT, detail); else explain(row);
  }
  function effect(i) {  // the tokens that a patch or a word makes
    const parts = rows.map(([strongest, shares]) => (shares[i] || 0) * strongest / FULL);
    const most = Math.max(...parts.map(Math.abs));
    shown = undefined;
    units.forEach((unit, k) => {
      const q = k < given || !most ? 0 : parts[k - given] / most * FULL;
      const names = k < given ? bare[k] : bare[k] + level(shade(q)) + (q <= -UNDERLINED ? " minus" : "");
      unit.className = names + (k === i ? " at" : "");
    });
    detail.replaceChildren();
    make("b", label(units[i]), detail);
    const why = make("div", "", detail);
    why.className = "why";
    const order = [...parts.keys()].sort((a, b) => Math.abs(parts[b]) - Math.abs(parts[a]));
    for (const k of order.slice(0, 6)) {
      const made = make("span", "", why);
      make("i", "", made).className = level(shade(most ? parts[k] / most * FULL : 0)).trim();
      made.append(label(tokens[k]) + " " + signed(parts[k]));
    }
  }
  function pin(row) {
    pinned = row;
    tokens.forEach((token, i) => token.setAttribute("aria-pressed", i === row));
    shown = undefined;  // paint anew, though it may be the same
    show(row);
  }
  function focus(row) {
    row = Math.max(0, Math.min(tokens.length - 1, row));
    tokens.forEach((token, i) => token.tabIndex = i === row ? 0 : -1);
    tokens[row].focus();
  }
  const of = event => tokens.indexOf(event.target.closest(".g"));
  const rest = () => {  // what is seen when the pointer is elsewhere
    const row = tokens.findIndex(token => token.matches(":focus-visible"));
    show(pinned === null && row >= 0 ? row : pinned);
  };
  const text = root.querySelector(both ? ".both" : ".generation");
  text.addEventListener("pointerover", event => {
    const row = of(event), i = units.indexOf(event.target);
    if (row >= 0 && pinned === null) show(row);
    if (both && i >= 0 && i < given && pinned === null) effect(i);
    if (i >= 0) units[i].title = shown == null ? titles[i]
      : i < rows[shown][1].length ? signed(rows[shown][1][i] * rows[shown][0] / FULL) : "";
  });
  text.addEventListener("pointerleave", rest);
  text.addEventListener("focusin", event => { const row = of(event); if (row >= 0) show(row); });
  text.addEventListener("focusout", event => { if (!text.contains(event.relatedTarget)) rest(); });
  text.addEventListener("click", event => {
    const row = of(event);
    if (row >= 0) { focus(row); pin(pinned === row ? null : row); } else pin(null);
  });
  text.addEventListener("keydown", event => {
    const row = of(event), moves = {ArrowRight: row + 1, ArrowDown: row + 1, ArrowLeft: row - 1, ArrowUp: row - 1,
      Home: 0, End: tokens.length - 1};
    if (row < 0) return;
    if (event.key in moves) focus(moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") pin(pinned === row ? null : row);
    else if (event.key === "Escape") pin(null);
    else return;
    event.preventDefault();
  });
  tokens.forEach((token, i) => { token.setAttribute("role", "button"); token.tabIndex = i ? -1 : 0; });
  make("span", HINT, detail);
}
"""
HINT = "Point at an underlined token to see its causes; a click keeps them, arrow keys go on, Escape lets go."
_SETTINGS = {"LEVELS": text.LEVELS, "FULL": FULL, "UNDERLINED": round(text.UNDERLINED * FULL), "HINT": HINT}


def html(maps: Sequence[GenerationMap], *, full_page: bool = True, title: str = "Relevance of a continuation") -> str:
    """A page that needs nothing from outside, or the fragments alone."""
    (own_script,) = SCRIPTS
    body = "\n".join(_fragment(one, own_script) for one in maps)
    if not full_page:
        return body
    return whole_page(body, title, allowing(*SCRIPTS))


def _fragment(one: GenerationMap, script: str) -> str:
    words, tokens = caption(totals(one)), "".join(_tokens(one))
    return (
        f'<div class="relprop continuation">\n<style>{PAGE_CSS}{CSS}{text.shade_rules()}</style>\n'
        f'<p class="lead">{escape(lead(one))}</p>\n'
        f'<div class="subject">{subject([words.method])}{spans([words.target, *words.account])}</div>\n'
        f'<div class="generation" dir="auto">{tokens}</div>\n'
        f'<div class="detail" role="status"></div>\n{text.legend(False, (one.signed,))}'
        f'<script type="application/json">{data(one)}</script>\n<script>{script}</script></div>'
    )


def _tokens(one: GenerationMap) -> Iterator[str]:
    """In reading order; a line ends where the text's does."""
    numbers = iter(range(len(one.units)))
    for cell in cells(totals(one)):
        if cell is SEPARATOR:
            yield text.token_html(cell)
            continue
        generated = '<span class="t g' if next(numbers) >= one.given else '<span class="t'
        yield text.token_html(cell).replace('<span class="t', generated, 1)


def data(one: GenerationMap) -> str:
    """Every row as its strongest score and thousandths of it; nothing in it can end the script element."""
    rows = []
    for row, scores in enumerate(one.scores):
        seen = scores[: count_before(one, row)]
        strongest = max(map(abs, seen), default=0.0)
        rows.append(
            [float(f"{strongest:.6g}"), [round(FULL * score / strongest) if strongest else 0 for score in seen]]
        )
    notes = [list(_said(step)) for step in one.steps]
    found = {"given": one.given, "rows": rows, "notes": notes, "signed": one.signed}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _said(step: ExplainedStep) -> tuple[str, str]:
    """A generated token with its value; how likely it was, and which other one was likeliest."""
    other = f", runner-up {visible(step.runner_up)} {step.runner_up_probability:.2f}" if step.runner_up else ""
    value = number(step.value).removeprefix("+")
    return f"{visible(step.target)} = {value}", f"probability {step.probability:.2f}{other}"


def script(hint: str = HINT) -> str:
    """The page's own script; `hint`: what it says before anything is pointed at."""
    made = SCRIPT.replace("\\\\", "\\")
    for name, value in {**_SETTINGS, "HINT": hint}.items():
        made = made.replace(name, json.dumps(value))
    return made


SCRIPTS = (script(),)  # that may run in a page
