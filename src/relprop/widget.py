"""A view of an explanation for notebooks that talks back: tokens, words or sentences, and the unit that was clicked."""

from __future__ import annotations

from typing import Any

from relprop.errors import InputError, RelpropError

try:
    import anywidget
    import traitlets
except ImportError:
    raise RelpropError('a widget needs the anywidget package: pip install "relprop[widget]"') from None

LEVELS = ("tokens", "words", "sentences")
_ESM = """
function render({ model, el }) {
  const bar = document.createElement("div");
  const view = document.createElement("div");
  const levels = model.get("levels");
  if (levels.length > 1) {
    const choice = document.createElement("select");
    choice.setAttribute("aria-label", "units");
    for (const level of levels) choice.add(new Option(level, level));
    choice.value = model.get("level");
    choice.addEventListener("change", () => { model.set("level", choice.value); model.save_changes(); });
    model.on("change:level", () => { choice.value = model.get("level"); });
    bar.append(choice);
  }
  const draw = () => {
    view.innerHTML = model.get("html");
    for (const old of view.querySelectorAll("script:not([type])")) {  // scripts that are set as text do not run
      const script = document.createElement("script");
      script.textContent = old.textContent;
      old.replaceWith(script);
    }
    view.querySelectorAll(".tokens .t").forEach((unit, index) => {
      unit.style.cursor = "pointer";
      unit.addEventListener("click", () => { model.set("selected", index); model.save_changes(); mark(); });
    });
    mark();
  };
  const mark = () => view.querySelectorAll(".tokens .t").forEach((unit, index) => {
    unit.style.outline = index === model.get("selected") ? "2px solid currentColor" : "";
  });
  model.on("change:html", draw);
  model.on("change:selected", mark);
  el.append(bar, view);
  draw();
}
export default { render };
"""


class ExplanationWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """`e.widget()`: `level` chooses the units of a text, `selected` is the index of the clicked one, or -1."""

    _esm = _ESM
    html = traitlets.Unicode().tag(sync=True)
    levels = traitlets.List(traitlets.Unicode()).tag(sync=True)
    level = traitlets.Unicode("tokens").tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)

    def __init__(self, explanation: Any) -> None:
        self._views = {"tokens": explanation}
        if explanation.texts:
            for level in LEVELS[1:]:
                try:
                    self._views[level] = getattr(explanation, level)()
                except InputError:  # a tokenizer without places in the text
                    break
        super().__init__(html=explanation._repr_html_(), levels=list(self._views))

    @property
    def explanation(self) -> Any:
        """What is shown."""
        return self._views[self.level]

    @property
    def selected_unit(self) -> tuple[Any, float] | None:
        """The unit that was clicked, with its score, where the explanation is of one text."""
        part = self.explanation.part
        return None if self.selected < 0 else (part.units[self.selected], part.scores[self.selected])

    @traitlets.validate("level")  # type: ignore[untyped-decorator]
    def _known_level(self, proposal: Any) -> str:
        if proposal["value"] not in self._views:
            raise InputError(f"level is one of {', '.join(self._views)}, got {proposal['value']!r}")
        return str(proposal["value"])

    @traitlets.observe("level")  # type: ignore[untyped-decorator]
    def _draw(self, _: object) -> None:
        with self.hold_trait_notifications():
            self.selected = -1
            self.html = self.explanation._repr_html_()
