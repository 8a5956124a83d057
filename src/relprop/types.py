"""The values that travel: units, the ledger, an attribution, and what is drawn. All frozen; no torch at import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from relprop.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["input", "bias", "constant", "unexplained"]
Box = tuple[float, float, float, float]  # left, top, right and bottom edge, in a picture's own pixels
KINDS: tuple[Kind, ...] = ("input", "bias", "constant", "unexplained")
# Operations of the one entry that stands for all the rest, where a ledger is not itemised.
NOT_ITEMISED, BIASES_AND_CONSTANTS = "not itemised", "biases and constants"
Shares = tuple[tuple[str, float], ...]  # of a value, by name


@dataclass(frozen=True)
class Unit:
    """One thing that gets a score: a token or a word, with its place in the original text."""

    text: str
    start: int | None = None  # character offsets in the text; None for special tokens
    end: int | None = None
    special: bool = False
    segment: int = 0  # 1 for the second text of a pair
    word: int | None = None  # index of the word this piece belongs to


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: what an operation of a module took from the output."""

    module: str
    op: str
    kind: Kind
    value: float

    @property
    def share(self) -> str:
        """Of what this is a part, in a word or two."""
        if self.op in (NOT_ITEMISED, BIASES_AND_CONSTANTS, "baseline", "rows of no input"):
            return "not accounted" if self.op == NOT_ITEMISED else self.op
        if self.kind == "constant":
            return "positions" if "position" in f"{self.module} {self.op}".lower() else "constants"
        return "biases" if self.kind == "bias" else "unexplained"


@dataclass(frozen=True)
class Ledger:
    """Where the output went. `value` = inputs + biases + constants + unexplained, always.

    Inputs have an entry for each part; what an operation gained and what it lost without explanation are two entries.

    A ledger closes when nothing is unexplained: all of the output is traced to an input, a bias or another constant.
    """

    value: float
    entries: tuple[Entry, ...] = field(repr=False)
    itemised: bool = True  # False: only the inputs were booked, all the rest stands as one unexplained entry

    @classmethod
    def revived(cls, data: Mapping[str, Any] | None) -> Ledger | None:
        """From what `dataclasses.asdict` made of one."""
        if data is None:
            return None
        return cls(**{**data, "entries": tuple(Entry(**entry) for entry in data["entries"])})

    @classmethod
    def summed(cls, ledgers: Sequence[Ledger]) -> Ledger:
        """Of a sum of values: all entries together."""
        entries = tuple(entry for one in ledgers for entry in one.entries)
        return cls(sum(one.value for one in ledgers), entries, itemised=all(one.itemised for one in ledgers))

    def total(self, kind: Kind) -> float:
        return sum(entry.value for entry in self.entries if entry.kind == kind)

    @property
    def inputs(self) -> float:
        return self.total("input")

    @property
    def biases(self) -> float:
        return self.total("bias")

    @property
    def constants(self) -> float:
        return self.total("constant")

    @property
    def unexplained(self) -> float:
        return self.total("unexplained")

    @property
    def gap(self) -> float:
        """Unexplained relevance, gains and losses both counted, relative to what moved through the books."""
        lost = sum(abs(entry.value) for entry in self.entries if entry.kind == "unexplained")
        moved = max(abs(self.value), *(abs(self.total(kind)) for kind in KINDS[:3]))
        return lost / moved if moved else lost

    def beside(self, scored: float) -> Shares:
        """What the value is made of beside scores that sum to `scored`; with these it is the value.

        Scores that were booked and are not among these (of special tokens, say) are a share of their own.
        """
        sums = {"special units": self.inputs - scored}
        if abs(sums["special units"]) <= 1e-6 * max(abs(self.inputs), abs(scored)):  # rounding
            sums = {}
        for entry in self.entries:
            if entry.kind != "input":
                sums[entry.share] = sums.get(entry.share, 0.0) + entry.value
        return tuple((name, value) for name, value in sums.items() if value)

    def closes(self, tolerance: float = 1e-4) -> bool:
        return self.gap <= tolerance

    def largest(self, kind: Kind, count: int = 5) -> list[Entry]:
        return sorted((e for e in self.entries if e.kind == kind), key=lambda e: -abs(e.value))[:count]

    def grouped(self, name: Callable[[Entry], str]) -> dict[str, dict[Kind, float]]:
        """Sums per group and kind, in order of first appearance."""
        sums: dict[str, dict[Kind, float]] = {}
        for entry in self.entries:
            kinds = sums.setdefault(name(entry), dict.fromkeys(KINDS, 0.0))
            kinds[entry.kind] += entry.value
        return sums

    def __str__(self) -> str:
        """The totals by kind, then every module that took more than a thousandth of what moved."""
        if not self.itemised:
            return _table([*((entry.op, entry.value) for entry in self.entries), ("= value", self.value)])
        parts = [entry for entry in self.entries if entry.kind == "input"]
        each = [(f"  {entry.op}", entry.value) for entry in parts] if len(parts) > 1 else []
        totals: list[tuple[str, float | None]] = [
            ("inputs (sum of the scores)", self.inputs),
            *each,
            ("biases", self.biases),
            ("positions and other constants", self.constants),
            ("unexplained", self.unexplained),
            ("= value", self.value),
        ]
        moved = max(abs(self.value), *(abs(self.total(kind)) for kind in KINDS))
        lines = sorted(self._lines(), key=lambda line: -abs(line[1]))
        shown = [line for line in lines if abs(line[1]) >= 1e-3 * moved][:20]
        rest = sum(value for _, value in lines) - sum(value for _, value in shown)
        smaller = [(f"{len(lines) - len(shown)} smaller entries", rest)] if len(lines) > len(shown) else []
        return _table([*totals, ("", None), *shown, *smaller])

    def _lines(self) -> Iterable[tuple[str, float]]:
        """One per kind, module and operation: an operation's gains and losses are entries of their own."""
        sums: dict[str, float] = {}
        for entry in self.entries:
            if entry.kind != "input":
                name = f"{entry.kind:<11}  {entry.module or '(model)'}: {entry.op}"
                sums[name] = sums.get(name, 0.0) + entry.value
        return sums.items()


def shares_beside(value: float, scored: float, ledgers: Sequence[Ledger | None]) -> Shares:
    """What a value is made of beside its scores, by the ledgers of its terms; "not accounted" is what none tells."""
    known = [one for one in ledgers if one is not None]
    beside = Ledger.summed(known).beside(scored) if known and len(known) == len(ledgers) else ()
    rest = value - scored - sum(share for _, share in beside)
    return beside if abs(rest) <= 1e-6 * max(abs(value), abs(scored)) else (*beside, ("not accounted", rest))


@dataclass(frozen=True)
class ExplainedStep:
    """One of several numbers that an explanation explains, and how sure the model was.

    A token of a continuation, a masked token, an entity, or one of several labels.
    """

    tokens: tuple[int, ...]  # its id; several for a word made of sub-words; none for a label
    name: str  # the token in quotes, or the label
    target: str  # what was explained: the token or label, or its difference from another
    value: float  # the explained number: a logit, a difference of logits; summed for a word or an entity of several
    probability: float  # of the token, given all before it; of several tokens, that of all of them
    runner_up: str = ""  # the likeliest other token or label; none for several tokens
    runner_up_probability: float | None = None
    ledger: Ledger | None = None
    baseline: float | None = None  # the value at the baseline, for methods that have one
    box: Box | None = None  # where on a picture the number is read

    @classmethod
    def revived(cls, data: Mapping[str, Any]) -> ExplainedStep:
        """From what `dataclasses.asdict` made of one."""
        own = {"tokens": tuple(data["tokens"]), "ledger": Ledger.revived(data["ledger"]), "box": box_of(data)}
        return cls(**{**data, **own})

    @classmethod
    def joined(cls, pieces: Sequence[ExplainedStep]) -> ExplainedStep:
        """A word's numbers from those of its pieces."""
        first = pieces[0]
        if len(pieces) == 1:
            return first
        ledgers = [one.ledger for one in pieces if one.ledger is not None]
        baselines = [one.baseline for one in pieces if one.baseline is not None]
        return cls(
            tokens=tuple(token for one in pieces for token in one.tokens),
            name=" + ".join(one.name for one in pieces),
            target=" + ".join(one.target for one in pieces),
            value=sum(one.value for one in pieces),
            probability=prod(one.probability for one in pieces),
            ledger=Ledger.summed(ledgers) if len(ledgers) == len(pieces) else None,
            baseline=sum(baselines) if len(baselines) == len(pieces) else None,
        )


def box_of(data: Mapping[str, Any]) -> Box | None:
    """The box of a saved explanation or step, if it has one."""
    if data.get("box") is None:
        return None
    left, top, right, bottom = data["box"]
    return (left, top, right, bottom)


def without_no_box(data: dict[str, Any]) -> dict[str, Any]:
    """What is saved: a box only where there is one."""
    return {name: value for name, value in data.items() if name != "box" or value is not None}


def _table(rows: Sequence[tuple[str, float | None]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value:+12.6f}" if value is not None else "" for name, value in rows)


@dataclass(frozen=True, repr=False)
class Attribution:
    """Scores of a batch, as tensors: for every part, by the model's own argument name, [batch, units].

    Units of token ids are the tokens. Of any other input they are the rows of the place where it is read, and `windows`
    tells which stretch of the input each row reads. Padding scores exactly 0.
    """

    parts: Mapping[str, Tensor]
    value: Tensor  # [batch], the explained number
    target: tuple[str, ...]  # what was explained, per example
    method: str
    logits: Tensor | None = None  # [batch, classes], where the target is one class of several
    ledger: tuple[Ledger, ...] | None = None
    baseline: Tensor | None = None  # [batch], the value at the baseline, where the method has one
    pairs: Tensor | None = None  # [batch, units, units]: what went to the first from the second, where asked for
    place: Mapping[str, str] = field(default_factory=dict)  # where each part was read
    windows: Mapping[str, Tensor] = field(default_factory=dict)  # [batch, units, axes, (first, last)]
    warnings: tuple[str, ...] = ()  # what the numbers do not say
    conserves: bool = False  # the rules lose nothing: what the scores leave of the value is biases and constants

    def __repr__(self) -> str:
        """Short: what was explained, and the shapes of the scores."""
        more = f" and {len(self.target) - 2} more" if len(self.target) > 2 else ""
        pairs = zip(self.target[:2], self.value.tolist(), strict=False)
        explained = ", ".join(f"{target} {value:.2f}" for target, value in pairs)
        shapes = ", ".join(f"{name} {list(scores.shape)}" for name, scores in self.parts.items())
        return f"Attribution({self.method}: {explained}{more}; scores of {shapes})"

    @property
    def scores(self) -> Tensor:
        """The scores of the only part."""
        if len(self.parts) != 1:
            raise InputError(
                f"the scores are of {len(self.parts)} inputs that are never added: take .parts[...] of one of "
                + ", ".join(f'"{name}"' for name in self.parts)
            )
        return next(iter(self.parts.values()))


@dataclass(frozen=True)
class Heatmap:
    """What a renderer draws: one row of units with their scores, and the words around it."""

    units: tuple[Unit, ...]
    scores: tuple[float, ...]
    method: str
    target: str
    value: float
    prediction: str = ""  # for instance "positive (0.98)"
    note: str = ""  # for instance what was cut off
    shares: bool = True  # the scores are shares of the value: with those of `beside` they sum to it
    answer: tuple[int, int] | None = None  # characters of the second text that are marked
    signed: bool = True  # False for scores that only say how much, not for or against
    line_starts: frozenset[int] = frozenset()  # units before which the text begins a new line
    beside: Shares = ()  # what the value is made of beside the scores
    quantity: str = ""  # what the value is: "logit"
