"""`Explanation`: what a user gets back, whatever was explained. Numbers, drawings, and JSON that loads back equal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relprop import exports
from relprop.drawings import GENERATION, PICTURES, TOGETHER, drawings_of
from relprop.errors import InputError
from relprop.files import check_writable, write_text, writing
from relprop.part import Part, kinds_of, only, refuse_sum, strongest_names
from relprop.render.pairs.part import PairPart
from relprop.render.text.part import TextPart
from relprop.render.visible import visible
from relprop.types import Box, ExplainedStep, Ledger, Shares, Unit, box_of, shares_beside, without_no_box

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from relprop.render.image.overlay import Contour

FIGURES = (".png", ".svg", ".pdf")
ENDINGS = (".html", ".json", *FIGURES)
Drawn = tuple[str, list[Any], dict[str, Any]]  # the package of the renderers, what they draw, and with which options
Groups = Callable[[TextPart, int], list[list[int]]]  # indices of the units that are added together


@dataclass(frozen=True, repr=False)
class Explanation:
    """What one number of a model's output is made of: one part per explained input.

    With `steps`, it explains several numbers, each with scores of its own: every generated token of a continuation by
    all units before it, or every entity, mask or label of a text by all its units.

    With `ledgers`, each part explains the whole value by itself: a similarity through either text.
    """

    parts: tuple[Part, ...]
    method: str
    target: str
    value: float  # the explained number: the target's logit, or a difference of logits; of several steps their sum
    prediction: str = ""  # the likeliest class or token, or the answer
    probability: float | None = None  # and its probability
    ledger: Ledger | None = None
    baseline: float | None = None  # the value at the baseline, for methods that have one
    signed: bool = True  # False for scores that only say how much, not for or against
    steps: tuple[ExplainedStep, ...] = ()  # of a continuation, one for each of the last units of the last part
    box: Box | None = None  # where on a picture the number is read: a detected object, a region
    quantity: str = ""  # what the value is: "logit", "logit difference"; nothing for other numbers
    passes: str = ""  # of a continuation: "shared", all tokens from one forward pass; "single", a pass for each
    ledgers: tuple[Ledger | None, ...] = ()  # where each part explains the whole value: one per part
    model: str = field(default="", compare=False)  # its name, where known: the same scores may come from a copy
    warnings: tuple[str, ...] = ()  # what the numbers do not say, in sentences; Python warnings say the same

    def __repr__(self) -> str:
        """What was explained, its value and the units that weigh most."""
        named = [name for part in self.parts for name in strongest_names(part, self.signed)]
        given = " | ".join(self.text) or kinds_of(self.parts)
        shown = repr(given if len(given) <= 40 else f"{given[:37]}...")
        return f"Explanation({shown} -> {self.target} {self.value:.2f}; {', '.join(named)})"

    # The only part.

    @property
    def part(self) -> Any:
        """The only part; with several parts an error that names them."""
        return only(self.parts, "scores")

    @property
    def units(self) -> Any:
        """The units of the only part."""
        return only(self.parts, "units").units

    @property
    def scores(self) -> Any:
        """The scores of the only part."""
        return self.part.scores

    @property
    def accounted(self) -> float:
        """The sum of all scores: how much of the value they account for."""
        return refuse_sum(self.parts) if self.ledgers else sum(part.total for part in self.parts)

    @property
    def by_part(self) -> tuple[tuple[str, float], ...]:
        """How much came from each part, by its kind: ("image", +1.04), ("text", +0.20)."""
        return tuple((part.kind, part.total) for part in self.parts)

    @property
    def account(self) -> Shares:
        """What the value is made of beside the scores, by name: with them it sums to the value.

        Biases, positions and constants from the ledger; "not accounted" what none tells. Empty for unsigned scores, and
        where each part explains the whole value (`side` has each).
        """
        ledgers = [one.ledger for one in self.steps or (self,)]
        return shares_beside(self.value, self.accounted, ledgers) if self.signed and not self.ledgers else ()

    def top(self, count: int = 5) -> list[tuple[Any, float]]:
        """The units of the only part that weigh most, either way."""
        return list(only(self.parts, "units").top(count))

    # Texts.

    @property
    def texts(self) -> tuple[TextPart, ...]:
        """The parts that are texts."""
        return tuple(part for part in self.parts if isinstance(part, TextPart))

    @property
    def text(self) -> tuple[str, ...]:
        """What was read and written: all texts, in their order."""
        return tuple(text for part in self.parts if isinstance(part, TextPart | PairPart) for text in part.text)

    def words(self) -> Explanation:
        """The same explanation with sub-words merged: a word's score is the sum of its pieces' scores.

        Of a continuation, generated words too: values are added, probabilities multiplied, and what a word's later
        pieces owe to its earlier ones stands at the word itself.
        """
        return self._merged("words", TextPart.word_groups)

    def sentences(self) -> Explanation:
        """The same explanation with the units of each sentence merged, as `words` merges those of a word."""
        return self._merged("sentences", TextPart.sentence_groups)

    def _merged(self, what: str, groups_of: Groups) -> Explanation:
        if pairs := [part for part in self.parts if isinstance(part, PairPart)]:
            return replace(self, parts=tuple(part.merged_by(groups_of) for part in pairs))
        if not self.texts:
            raise InputError(f"{what} are of texts, and this is an explanation of {kinds_of(self.parts)}")
        return self._grouped(groups_of, merged=True)

    def without_special(self) -> Explanation:
        """The same explanation without the scores of special tokens, class tokens and the like."""
        if self.steps:
            return self._grouped(lambda part, _: part.content_groups())
        return replace(self, parts=tuple(part.without_special() for part in self.parts))

    def _grouped(self, groups_of: Groups, merged: bool = False) -> Explanation:
        """Units of texts added together, and the steps that are such units."""
        given, end = self._given, self.parts[-1]
        groups = {id(part): groups_of(part, given if part is end else len(part.units)) for part in self.texts}
        last = groups.get(id(end), [])
        if self.writes:
            steps = [[i - given for i in group] for group in last if group[0] >= given]
        else:
            steps = [[i] for i in range(len(self.steps))]
        parts = tuple(
            replace(part.grouped(groups[id(part)], steps), merged=merged or part.merged)
            if isinstance(part, TextPart)
            else (part if merged else part.without_special()).joined_steps(steps)
            for part in self.parts
        )
        return replace(
            self, parts=parts, steps=tuple(ExplainedStep.joined([self.steps[i] for i in rows]) for rows in steps)
        )

    # Several numbers: continuations, entities, masks, labels.

    @property
    def writes(self) -> bool:
        """Whether the steps are units that the model wrote."""
        last = self.parts[-1]
        return bool(self.steps) and isinstance(last, TextPart) and last.written_from is not None

    @property
    def _given(self) -> int:
        """How many units of the last part were there before anything was generated."""
        return len(self.parts[-1].units) - (len(self.steps) if self.writes else 0)

    @property
    def generated(self) -> tuple[Unit, ...]:
        """The generated units."""
        return tuple(self.parts[-1].units[self._given :])

    @property
    def prompt(self) -> str:
        """Of a continuation: what the model was given, as far as it is text."""
        return self.texts[0].text[0][: self.texts[0].written_from]

    @property
    def continuation(self) -> str:
        """Of a continuation: what was written."""
        return self.texts[-1].text[0][self.texts[-1].written_from :] if self.writes else ""

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Of several steps: scores [steps, units of all parts]."""
        import numpy as np

        return np.concatenate([part.step_rows() for part in self.parts], axis=1)

    def token(self, index: int) -> Explanation:
        """The explanation of one generated token, with all that came before it."""
        if not -len(self.steps) <= index < len(self.steps):
            raise InputError(f"token {index} is out of range: {len(self.steps)} were generated")
        return self.step(index)

    def step(self, index: int) -> Explanation:
        """The explanation of one step alone: of a continuation's token, an entity, a mask or a label."""
        if not -len(self.steps) <= index < len(self.steps):
            raise InputError(f"step {index} is out of range: there are {len(self.steps)}")
        index %= len(self.steps)
        step = self.steps[index]
        written = self.texts[-1] if self.writes else None
        likeliest = step.runner_up_probability is None or step.probability >= step.runner_up_probability
        return replace(
            self,
            parts=tuple(
                part.as_read(index, self._given) if part is written else part.at_step(index) for part in self.parts
            ),
            target=step.target,
            value=step.value,
            prediction=step.name if likeliest else step.runner_up,
            probability=step.probability if likeliest else step.runner_up_probability,
            ledger=step.ledger,
            baseline=step.baseline,
            box=step.box,
            steps=(),
            passes="",
        )

    def side(self, index: int) -> Explanation:
        """Where each part explains the whole value: the explanation through one of them alone."""
        if not -len(self.ledgers) <= index < len(self.ledgers):
            raise InputError(f"side {index} is out of range: there are {len(self.ledgers)}")
        target = f"{self.target}, by the {self.parts[index].name} text"
        return replace(self, parts=(self.parts[index],), target=target, ledger=self.ledgers[index], ledgers=())

    # Drawings and files.

    @property
    def drawings(self) -> list[tuple[str, Any]]:
        """What is drawn, kind by kind: the package of the renderers, and what they take."""
        return drawings_of(self)

    def show(self) -> None:
        """Print it to the terminal."""
        show([self])

    def to_html(self) -> str:
        """A self-contained page."""
        return to_html([self])

    def _repr_html_(self) -> str:
        return to_html([self], full_page=False)

    def save(self, path: str | os.PathLike[str], *, contour: Contour = None) -> None:
        """Write .html, .json, .png, .svg or .pdf, by the ending of the name; a file is replaced whole or not at all."""
        save([self], path, contour=contour)

    def to_frame(self) -> Any:
        """A pandas frame: one row per unit, with its place and score; then `account`: scores sum to the value."""
        return exports.to_frame(self)

    def to_shap(self) -> Any:
        """A `shap.Explanation` of the only part, for SHAP's plots: base value + sum of the values = the value."""
        return exports.to_shap(self)

    def to_highlighted(self) -> list[tuple[str, float | None]]:
        """Pairs of text and score from -1 to 1 for Gradio's `HighlightedText`; special tokens are left out."""
        return exports.highlighted(self)

    def widget(self) -> Any:
        """A view for notebooks: tokens, words or sentences, and which unit was clicked (extra `widget`)."""
        return import_module("relprop.widget").ExplanationWidget(self)

    def to_json(self) -> str:
        """One line of JSON with its schema version; `from_json` loads it back. Pictures are not saved with it."""
        from relprop.saved_explanations import SCHEMA_VERSION

        left = ("parts", "ledger", "steps", "box", "ledgers", "warnings")
        names = [one.name for one in fields(self) if one.name not in left]
        data = {
            "schema_version": SCHEMA_VERSION,
            "parts": [part.to_dict() for part in self.parts],
            **{name: getattr(self, name) for name in names},
            "ledger": None if self.ledger is None else asdict(self.ledger),
            "steps": [without_no_box(asdict(step)) for step in self.steps],
            "box": self.box,
        }
        data = without_no_box(data) | (
            {"ledgers": [one and asdict(one) for one in self.ledgers]} if self.ledgers else {}
        )
        data |= {"warnings": self.warnings} if self.warnings else {}
        try:
            return json.dumps(data, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise InputError("the explanation holds a number that is not finite, which JSON cannot tell") from None

    @classmethod
    def from_json(cls, text: str, image: object = None, sound: object = None) -> Explanation:
        """Load what `to_json` wrote, to draw it again on its picture or sound.

        `image`: a path, a Pillow image or an array. `sound`: a path, (samples, rate) or a dict of datasets.
        """
        from relprop.saved_explanations import check_saved, damaged, part_reviver, upgraded

        revived, data = part_reviver(image, sound), upgraded(text)
        with damaged():
            parts = [revived(one) for one in data["parts"]]
            ledger = Ledger.revived(data["ledger"])
            steps = tuple(ExplainedStep.revived(step) for step in data["steps"])
            ledgers = tuple(Ledger.revived(one) for one in data.get("ledgers", ()))
            own = {"ledger": ledger, "steps": steps, "ledgers": ledgers, "box": box_of(data)}
            own |= {"warnings": tuple(data.get("warnings", ()))}
            found = cls(**{**data, "parts": tuple(parts), **own})
            found._check_parts()
            check_saved(found, found.texts, (found.ledger, *ledgers, *(step.ledger for step in steps)))
        return found

    def _check_parts(self) -> None:
        """Raise ValueError for parts that relprop never writes."""
        if not self.parts:
            raise ValueError("it has no parts")
        if any(len(part.by_step) != len(self.steps) for part in self.parts) or self._given < 0:
            raise ValueError(f"{len(self.steps)} steps do not fit the scores")
        if self.ledgers and len(self.ledgers) != len(self.parts):
            raise ValueError(f"{len(self.ledgers)} ledgers do not fit {len(self.parts)} parts")


def show(explanations: Sequence[Explanation]) -> None:
    """Print explanations to the terminal, stacked for comparison."""
    from rich.console import Console

    console = Console()
    for rendering, drawings, _ in _by_kind(explanations):
        console.print(import_module(f"{rendering}.terminal").terminal(drawings))
    for sentence in warnings_of(explanations):
        console.print(f"warning: {visible(sentence)}", markup=False, highlight=False)


def to_html(explanations: Sequence[Explanation], *, contour: Contour = None, full_page: bool = True) -> str:
    """One self-contained page for several explanations, stacked for comparison; or the fragment for a notebook."""
    kinds, told = _by_kind(explanations, contour), warnings_of(explanations)
    if (len(kinds) == 1 and not told) or not full_page:
        return _html(kinds, told, full_page=full_page)
    from relprop.render.page import IMAGES, MEDIA, allowing, whole_page

    scripts = [script for one, *_ in kinds for script in getattr(import_module(f"{one}.html"), "SCRIPTS", ())]
    policy = f"{IMAGES}{MEDIA}{allowing(*scripts)}"
    return whole_page(_html(kinds, told, full_page=False), "Relevance of the inputs", policy)


def save(explanations: Sequence[Explanation], path: str | os.PathLike[str], *, contour: Contour = None) -> None:
    """Write explanations to one file, by the ending of its name. A file is replaced whole or not at all."""
    target = Path(path)
    check_writable(target, ENDINGS)
    kind = target.suffix.lower()
    with writing(target):
        if kind == ".html":
            write_text(target, to_html(explanations, contour=contour))
        elif kind == ".json":
            lines = [one.to_json() for one in explanations]
            write_text(target, lines[0] if len(lines) == 1 else "[" + ",\n".join(lines) + "]")
        else:
            kinds = _by_kind(explanations, contour)
            if any(part.drawn_by_step for one in explanations for part in one.parts):  # with the tokens as labels
                kinds = [one for one in kinds if one[0] != GENERATION]
            if len(kinds) != 1:
                raise InputError(f"a figure holds one kind of input, and this has {len(kinds)}: save it as .html")
            ((rendering, drawings, options),) = kinds
            from relprop.render.saving import with_warnings

            with with_warnings(warnings_of(explanations)):
                import_module(f"{rendering}.figure").save(drawings, target, **options)


def warnings_of(explanations: Iterable[Explanation]) -> tuple[str, ...]:
    """The warnings of all explanations, each once."""
    return tuple(dict.fromkeys(sentence for one in explanations for sentence in one.warnings))


def _html(kinds: Sequence[Drawn], warnings: Sequence[str], *, full_page: bool) -> str:
    drawn = [import_module(f"{one}.html").html(drawings, full_page=full_page, **how) for one, drawings, how in kinds]
    if warnings:
        from relprop.render.page import warning_lines

        drawn.append(warning_lines(warnings))
    return "\n".join(drawn)


def _by_kind(explanations: Sequence[Explanation], contour: Contour = None) -> list[Drawn]:
    """The drawings of all explanations, those of one kind together."""
    kinds: dict[str, list[Any]] = {}
    for one in explanations:
        for rendering, drawing in one.drawings:
            kinds.setdefault(rendering, []).append(drawing)
    if contour is not None and not {PICTURES, TOGETHER} & set(kinds):
        raise InputError("a contour rings regions of pictures: leave it out here")
    ringed = {one: {"contour": contour} for one in (PICTURES, TOGETHER)} if contour is not None else {}
    return [(rendering, drawings, ringed.get(rendering, {})) for rendering, drawings in kinds.items()]
