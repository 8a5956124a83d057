"""Run the engine on a tiny random model of every head class in transformers, and write docs/coverage.md.

    python tools/sweep.py                          # all of it; writes docs/coverage.md
    python tools/sweep.py --resume                 # goes on where the last sweep stopped
    python tools/sweep.py --only Bert GPT2         # some, to the terminal
    python tools/sweep.py --task ctc --jobs 4

For each pair of model type and head class, column by column:

- built: a tiny random model runs, with every modality it reads, token types, more than 64 tokens and uneven lengths;
- runs: `attribute` gives finite scores, by the default method of what the model reads and is asked;
- unchanged: under every gradient-carrying rule set the outputs are the plain model's, to 1e-10 in float64;
- closes: the ledger's gap is at most 1e-4;
- parts: every argument that the explained number depends on has a part with scores of its own, one per unit, without
  a warning;
- batch: a batch of two gives the scores of its examples one by one, to 1e-6, and padding scores exactly 0.

A pair is clean if all of them hold. What is not is named with the operation or the reason.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

import relprop
from readings import Reading, fields_of
from relprop.methods import DEFAULT, default_method
from relprop.rulebook.rulesets import RULESETS
from tiny_models import Built, CannotBuild, Case, build_whole, cases
from tiny_subject import FIRST_PLAIN_TOKEN

CLASSES = "text-classification"  # the task of the default method for classes of texts
COLUMNS = ("built", "runs", "unchanged", "closes", "parts", "batch")
LEDGER = 1e-4  # relative gap
CHANGE = {torch.float64: 1e-10, torch.float32: 1e-5}  # relative, of the outputs
SAME = {torch.float64: 1e-6, torch.float32: 1e-3}  # relative, between an example alone and in a batch
SECONDS = 60  # of processor time for one pair: how busy the machine is does not change the result
STUCK = 60 * SECONDS  # of the clock: a pair that waits for something takes no processor time
# The method of each gradient-carrying rule set: its own name, but for the plain gradient.
METHODS = {name: "gradient_x_input" if name == "gradient" else name for name in RULESETS}
METHODS = {name: method for name, method in METHODS.items() if RULESETS[name].carries == "gradient"}
STATE = Path(__file__).parent.parent / "build" / "sweep" / "results.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "coverage.md"

Inputs = dict[str, Any]


class Unclean(Exception):  # noqa: N818 - the sweep reads better with the plain word
    """A column that does not hold, with the reason in one sentence."""


@dataclass(frozen=True)
class Result:
    """What the sweep found for one pair: the columns that hold, and why the others do not."""

    case: Case
    holds: tuple[str, ...] = ()
    reasons: dict[str, str] = field(default_factory=dict)  # by column
    gap: float | None = None
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return len(self.holds) == len(COLUMNS)

    @property
    def first(self) -> tuple[str, str]:
        """The first column that does not hold, and its reason."""
        return next((column, self.reasons[column]) for column in COLUMNS if column in self.reasons)


# ------------------------------------------------------------------------------------------------------------ one pair


def run(case: Case) -> Result:
    """Build one model and look at it from all sides."""
    start = time.process_time()
    try:
        built, dtype = _build(case)
    except CannotBuild as reason:
        return Result(case, reasons={"built": str(reason)})
    result = _examined(case, built, dtype)
    return replace(result, seconds=round(time.process_time() - start, 2))


def _build(case: Case) -> tuple[Built, torch.dtype]:
    try:
        return replace(build_whole(case), task=case.task), torch.float64
    except CannotBuild as reason:
        try:  # a few overflow their own masks in float64 or fix float32 in their code
            return replace(build_whole(case, dtype=torch.float32), task=case.task), torch.float32
        except CannotBuild:
            raise reason from None


def _examined(case: Case, built: Built, dtype: torch.dtype) -> Result:
    """Every column from `runs` on; where the explanation fails, nothing else can hold."""
    holds, reasons = ["built"], {}
    checks: dict[str, Callable[[], None]] = {
        "runs": lambda: _runs(built),
        "unchanged": lambda: _unchanged(built, CHANGE[dtype]),
        "closes": lambda: _closes(built),
        "parts": lambda: _parts(built),
        "batch": lambda: _batch(built, SAME[dtype]),
    }
    for column, check in checks.items():
        try:
            check()
            holds.append(column)
        except Unclean as reason:
            reasons[column] = str(reason)
        except Exception as error:  # an architecture that cannot be explained is a row of the table, not the end of it
            reasons[column] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        if "runs" in reasons:
            reasons |= dict.fromkeys(COLUMNS[2:], "it does not run")
            break
    return Result(case, tuple(holds), reasons)


def _explained(built: Built, inputs: Inputs, **options: Any) -> Any:
    """By the default of what the model reads and is asked: pictures alone, classes of texts, or anything else."""
    read = [name for name, value in inputs.items() if explained(name, value)]
    method = default_method("images" if read == ["pixel_values"] else "texts", classes=built.task == CLASSES)
    return relprop.attribute(built.model, inputs, built.target, method, **options)


def parts_of(attribution: Any, names: Sequence[str]) -> dict[str, Tensor]:
    """The scores by argument; those of an engine without parts belong to the only argument there is."""
    parts = getattr(attribution, "parts", None)
    if parts:
        return dict(parts)
    return {names[0] if len(names) == 1 else "?": attribution.scores}


def _runs(built: Built) -> None:
    for name, scores in parts_of(_explained(built, built.examples[0]), ["scores"]).items():
        if not bool(scores.isfinite().all()):
            raise Unclean(f"{name}: scores are not finite")


def _unchanged(built: Built, tolerance: float) -> None:
    """All outputs under the rules against the plain ones; the target sees them go by."""
    inputs = built.examples[0]
    with torch.no_grad():
        plain = fields_of(built.model(**inputs))
    for name, method in METHODS.items():
        witness = Witness(built.target)
        relprop.attribute(built.model, inputs, witness, method)
        for one, value in witness.outputs.items():
            if one in plain and plain[one].shape == value.shape:
                change = _apart(value, plain[one])
                if not change <= tolerance:
                    raise Unclean(f"{name} changes {one} by {change:.1e}")


def _apart(ours: Tensor, theirs: Tensor) -> float:
    """Largest difference relative to the largest number; where a model says "never" by infinity, both must."""
    difference = torch.where(ours == theirs, 0, ours - theirs).abs().max()
    return float(difference / torch.where(theirs.isfinite(), theirs, 0).abs().max().clamp_min(1e-30))


class Witness:
    """A target that keeps the outputs it reads."""

    def __init__(self, target: Reading) -> None:
        self.target, self.outputs = target, dict[str, Tensor]()
        self.__name__ = target.__name__

    def __call__(self, outputs: Any) -> Tensor:
        self.outputs = {name: value.detach() for name, value in fields_of(outputs).items()}
        return self.target(outputs)


def _closes(built: Built) -> None:
    (ledger,) = _explained(built, built.examples[0], ledger=True).ledger
    if not ledger.closes(LEDGER):
        worst = ledger.largest("unexplained", 1)[0]
        raise Unclean(f"gap {ledger.gap:.0e}: {worst.op} in {worst.module or 'the model'} ({worst.value:+.3g})")


def _parts(built: Built) -> None:
    """Every argument that the number depends on is reached, unit by unit, and nothing is left to warn of."""
    inputs = built.examples[0]
    names = [name for name in inputs if explained(name, inputs[name]) and _matters(built, name)]
    attribution = _explained(built, inputs)
    parts = parts_of(attribution, names)
    for name in names:
        if name not in parts:
            raise Unclean(f"no part for {name}")
        if not bool((parts[name] != 0).any()):
            raise Unclean(f"{name}: all scores are 0")
        if not inputs[name].is_floating_point() and parts[name].shape[-1] not in _unit_counts(inputs[name]):
            raise Unclean(f"{name}: {parts[name].shape[-1]} scores for {_unit_counts(inputs[name])[0]} tokens")
    for warning in getattr(attribution, "warnings", ()):
        raise Unclean(str(warning))


def explained(name: str, value: Any) -> bool:
    """Floats and token ids are explained; masks, positions, types and places say how to read them."""
    if not isinstance(value, Tensor) or "mask" in name:
        return False
    return value.is_floating_point() or re.fullmatch(r"(.*_)?input_ids|task_inputs|inputs", name) is not None


def _unit_counts(ids: Tensor) -> tuple[int, ...]:
    """As many units as tokens: in a row, in all rows of an example (choices, codebooks), or one per frame of tokens."""
    return (ids.shape[-1], ids.numel(), ids.shape[1])


def _matters(built: Built, name: str) -> bool:
    """Does the explained number change with this argument?"""
    inputs = built.examples[0]
    value = inputs[name]
    if value.is_floating_point():
        other = value + 1e-3 * torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(0))
    else:
        plain = value >= FIRST_PLAIN_TOKEN
        other = torch.where(plain, value.max() + FIRST_PLAIN_TOKEN - value, value).clamp_max(int(value.max()))
    with torch.no_grad():
        before, after = (built.target(built.model(**one)) for one in (inputs, {**inputs, name: other}))
    return bool(((after - before).abs() > 1e-9 * before.abs()).any())


def _batch(built: Built, tolerance: float) -> None:
    """The batch's scores are the examples' own, and padding has none."""
    if built.note:
        raise Unclean(built.note)
    names = [name for name in built.batch if explained(name, built.batch[name])]
    together = parts_of(_explained(built, built.batch), names)
    each = [parts_of(_explained(built, one), names) for one in built.examples]
    for name, scores in together.items():
        alone = [_shaped(one[name], inputs.get(name)) for one, inputs in zip(each, built.examples, strict=True)]
        _same(name, _shaped(scores, built.batch.get(name)), alone, tolerance)
        _no_score_for_padding(name, scores, built.batch)


def _shaped(scores: Tensor, ids: Any) -> Tensor:
    """Scores in the shape of their tokens, where an example has several rows of them: each row is padded by itself."""
    several = isinstance(ids, Tensor) and ids.dim() > 2 and not ids.is_floating_point()
    return scores.view(ids.shape) if several and ids.numel() == scores.numel() else scores


def _same(name: str, together: Tensor, each: list[Tensor], tolerance: float) -> None:
    if len(together) == len(each):
        pairs = [(row[..., : one.shape[-1]], one[0]) for row, one in zip(together, each, strict=True)]
        extra = [row[..., one.shape[-1] :] for row, one in zip(together, each, strict=True)]
    else:  # patches of all pictures one after the other, or several rows per example
        pairs, extra = [(together, torch.cat(each))], []
    for ours, alone in pairs:
        if ours.shape != alone.shape:
            raise Unclean(f"{name}: {tuple(ours.shape)} scores in a batch, {tuple(alone.shape)} alone")
        if not (apart := _apart(ours, alone)) <= tolerance:
            raise Unclean(f"{name}: a batch's scores differ from its examples' by {apart:.1e}")
    if any(bool((one != 0).any()) for one in extra):
        raise Unclean(f"{name}: padding has scores")


def _no_score_for_padding(name: str, scores: Tensor, batch: Inputs) -> None:
    mask = batch.get(name.replace("input_ids", "attention_mask"))
    if not name.endswith("input_ids") or not isinstance(mask, Tensor) or mask.numel() != scores.numel():
        return
    if bool((scores.flatten()[mask.flatten() == 0] != 0).any()):
        raise Unclean(f"{name}: padding has scores")


# ----------------------------------------------------------------------------------------------------------- all pairs


def sweep(which: Sequence[Case], jobs: int = 1) -> Iterator[Result]:
    """Each pair in a worker process, so that neither a crash nor an endless loop ends the sweep."""
    context = get_context("fork")
    _import_all()
    waiting, busy = list(reversed(which)), list[_Worker]()
    while waiting or busy:
        while waiting and len(busy) < jobs:
            busy.append(_Worker(context, waiting.pop()))
        for worker in busy[:]:
            result = worker.result()
            if result is not None:
                busy.remove(worker)
                yield result
        time.sleep(0.01)


def _import_all() -> None:
    """Loads, once and for every worker, what the first model of any kind loads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        build_whole(next(one for one in cases() if one.architecture == "BertForSequenceClassification"))


class _Worker:
    """A process that examines one pair."""

    def __init__(self, context: Any, case: Case) -> None:
        self.case, self.start = case, time.monotonic()
        self.ours, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_send, args=(theirs, case), daemon=True)
        self.process.start()
        theirs.close()

    def result(self) -> Result | None:
        """What it found; None while it works."""
        stuck = time.monotonic() - self.start > STUCK
        if not self.ours.poll() and self.process.is_alive() and not stuck:
            return None
        try:
            found: Result | None = self.ours.recv() if self.ours.poll() else None
        except EOFError:
            found = None
        if found is not None or stuck:
            self.process.kill()
        self.process.join()
        self.ours.close()
        return self._lost(stuck) if found is None else found

    def _lost(self, stuck: bool) -> Result:
        late = self.process.exitcode == -signal.SIGXCPU
        reason = f"it takes more than {SECONDS} s of processor time" if late else "its process crashed"
        reason = f"it takes more than {STUCK} s" if stuck else reason
        return Result(self.case, ("built",), dict.fromkeys(COLUMNS[1:], reason))


def _send(connection: Any, case: Case) -> None:
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))  # then the system sends SIGXCPU
    warnings.simplefilter("ignore")
    connection.send(run(case))


def line(result: Result) -> str:
    """One line of progress."""
    column, reason = ("clean", "") if result.clean else result.first
    return f"{column:<10}{result.case.task:<24}{result.case.architecture:<46}{result.seconds:5.1f}s  {reason}"


# --------------------------------------------------------------------------------------------------------------- state


def saved(path: Path) -> dict[tuple[str, str], Result]:
    """What an earlier sweep found."""
    if not path.exists():
        return {}
    rows = [json.loads(row) for row in path.read_text(encoding="utf-8").splitlines()]
    results = [Result(**{**row, "case": Case(**row["case"]), "holds": tuple(row["holds"])}) for row in rows]
    return {(one.case.model_type, one.case.architecture): one for one in results}


def save(result: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")


# ---------------------------------------------------------------------------------------------------------------- page


def page(results: Sequence[Result]) -> str:
    """docs/coverage.md."""
    built = [result for result in results if "built" in result.holds]
    clean = [result for result in built if result.clean]
    share = 100 / max(1, len(built))
    lines = [
        "# Coverage",
        "",
        "Generated by `python tools/sweep.py`; do not edit.",
        "",
        f"Tiny random models of every head class in the auto mappings of transformers {transformers.__version__}, "
        f"torch {torch.__version__.split('+')[0]}, unmodified, in float64 where the architecture bears it. "
        "Inputs hold every modality the model reads, token types, 70 and 61 tokens in a batch of two. The explained "
        "number is one class, token, box, pixel, frame or similarity per example.",
        "",
        f"Of {len(results)} pairs of model type and head class {len(built)} build; of these "
        f"{_held(built, 'runs')} run ({share * _held(built, 'runs'):.1f} %) and {len(clean)} "
        f"({share * len(clean):.1f} %) are clean in every column:",
        "",
        f"- **runs**: `attribute` gives finite scores, by `{default_method('images')}` where a model reads pictures "
        f"alone, `{default_method('texts', classes=True)}` for classes of texts, `{DEFAULT}` elsewhere;",
        f"- **unchanged**: outputs equal the plain model's under all {len(METHODS)} gradient-carrying rule sets;",
        f"- **closes**: the ledger's gap is at most {LEDGER:g};",
        "- **parts**: every token and float argument that the number depends on has scores, one per proved unit;",
        "- **batch**: a batch of two gives the scores of its examples one by one, and padding scores exactly 0.",
        "",
        *_totals(results),
        "",
        "## What is not clean",
        "",
        "The first column that does not hold, and why.",
        "",
        *_rows(["task", "head class", "model type", "column", "why"], map(_open_row, _open(built))),
        "",
        "## What does not build",
        "",
        *_rows(
            ["task", "head class", "model type", "why"],
            ([r.case.task, r.case.architecture, r.case.model_type, r.first[1]] for r in results if r not in built),
        ),
    ]
    return "\n".join(lines) + "\n"


def _held(results: Iterable[Result], column: str) -> int:
    return sum(column in result.holds for result in results)


def _totals(results: Sequence[Result]) -> list[str]:
    """One row per task, and one for all."""
    groups = {
        task: [one for one in results if one.case.task == task] for task in sorted({r.case.task for r in results})
    }
    rows = []
    for task, own in [*groups.items(), ("**all**", list(results))]:
        clean = sum(one.clean for one in own)
        rows.append([task, str(len(own)), *(str(_held(own, column)) for column in COLUMNS), str(clean)])
    return _rows(["task", "pairs", *COLUMNS, "clean"], rows)


def _open(built: Sequence[Result]) -> list[Result]:
    """By column, then by reason, so that what has one cause stands together."""
    return sorted((one for one in built if not one.clean), key=lambda one: (COLUMNS.index(one.first[0]), one.first[1]))


def _open_row(result: Result) -> list[str]:
    return [result.case.task, result.case.architecture, result.case.model_type, *result.first]


def _rows(head: list[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = ["| " + " | ".join(one.replace("|", "\\|") for one in row) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", help="parts of head class names; nothing is written")
    parser.add_argument("--task", nargs="*", help="tasks; nothing is written")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="keep what the last sweep found")
    parser.add_argument("--out", type=Path, default=PAGE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    some = bool(args.only or args.task)
    chosen = [one for one in cases() if _wanted(one, args.only, args.task)]
    known = saved(STATE) if args.resume else {}
    if not some and not args.resume:
        STATE.unlink(missing_ok=True)
    results = {(one.model_type, one.architecture): known.get((one.model_type, one.architecture)) for one in chosen}
    left = [one for one in chosen if results[one.model_type, one.architecture] is None]
    for number, result in enumerate(sweep(left, args.jobs), 1):
        print(f"{number:>4}/{len(left)}  {line(result)}", flush=True)
        results[result.case.model_type, result.case.architecture] = result
        if not some:
            save(result, STATE)
    written = page([result for result in results.values() if result is not None])
    if some:
        print("\n" + "\n".join(written.splitlines()[6:7]))
    else:
        args.out.write_text(written, encoding="utf-8")


def _wanted(case: Case, only: Sequence[str] | None, tasks: Sequence[str] | None) -> bool:
    named = not only or any(part.lower() in case.architecture.lower() for part in only)
    return named and (not tasks or case.task in tasks)


if __name__ == "__main__":
    main()
