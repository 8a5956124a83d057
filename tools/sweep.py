"""Run the engine on a tiny random model of every architecture in transformers, and write docs/coverage.md.

    python tools/sweep.py                     # all of it, about two minutes; writes docs/coverage.md
    python tools/sweep.py --only Bert GPT2    # some, to the terminal

For each (task, architecture): do all rule sets leave the output as it is? does the ledger of lrp_conservative close to
1e-4, and if not, which operation is at fault? The models' weights are random and large enough to matter (see
tiny_models.py); numbers are float64 where the architecture bears it.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from relprop.checking import check
from relprop.engine.run import predict, propagate
from relprop.errors import UnruledOpError
from relprop.methods.reading import Inputs, batch_size, example
from relprop.rulebook.rulesets import RULESETS
from tiny_models import CannotBuild, Case, build, cases

TOLERANCE = 1e-4  # relative, of the ledger
CHANGE = {torch.float64: 1e-10, torch.float32: 1e-5}  # relative, of the outputs
GRADIENT_CARRYING = [name for name, rules in RULESETS.items() if rules.carries == "gradient"]


@dataclass(frozen=True)
class Result:
    """What the sweep found for one architecture and task."""

    case: Case
    status: str  # "closed", "open", "changed", "failed", "not built"
    detail: str = ""
    gap: float | None = None
    zplus: str = ""

    @property
    def unchanged(self) -> bool:
        return self.status in ("closed", "open")


def sweep(which: Iterable[Case]) -> list[Result]:
    results = []
    for case in which:
        result = run(case)
        print(f"{result.status:<10}{case.task:<22}{case.architecture:<46}{result.detail}", flush=True)
        results.append(result)
    return results


def run(case: Case) -> Result:
    """Build one model and look at it from all sides."""
    try:
        model, inputs = _build(case)
    except CannotBuild as reason:
        return Result(case, "not built", str(reason))
    try:
        return _examine(case, model, inputs)
    except Exception as error:  # an architecture that cannot be explained is a row of the table, not the end of it
        return Result(case, "failed", " ".join(f"{type(error).__name__}: {error}".split())[:160])


def _build(case: Case) -> tuple[Any, dict[str, Tensor]]:
    try:
        return build(case)
    except CannotBuild:
        return build(case, dtype=torch.float32)  # a few overflow their own masks in float64


def _examine(case: Case, model: Any, inputs: Inputs) -> Result:
    one = example(inputs, 0) if batch_size(inputs) == len(inputs.get("attention_mask", ())) else inputs
    one = one if "input_ids" not in inputs or len(one["input_ids"]) == 1 else _first_group(inputs)
    target = predict(model, one, None).exact[0]
    dtype = next(model.parameters()).dtype
    worst = max((_change(model, one, target, name), name) for name in GRADIENT_CARRYING)
    if worst[0] > CHANGE[dtype]:
        return Result(case, "changed", f"{worst[1]} changes the output by {worst[0]:.1e}")
    report = check(model, one, target)
    closed = report.ledger.closes(TOLERANCE)
    detail = "" if closed else report.fault
    return Result(case, "closed" if closed else "open", detail, report.ledger.gap, _zplus(model, one, target))


def _first_group(inputs: Inputs) -> dict[str, Any]:
    """One example of a model that reads several rows of ids an example (codebooks)."""
    rows = len(inputs["input_ids"]) // len(inputs["attention_mask"])
    return {name: value[: rows if name == "input_ids" else 1] for name, value in inputs.items()}


def _change(model: Any, inputs: Inputs, target: Any, rules: str) -> float:
    """Largest relative change of the outputs with a live input: all classes or tokens, or the answer's logits."""
    plain, ruled = predict(model, inputs, target), propagate(model, inputs, target, RULESETS[rules]).chosen
    before, after = (one.value if one.rows is None else one.rows for one in (plain, ruled))
    return ((after - before).abs().max() / before.abs().max()).item()


def _zplus(model: Any, inputs: Inputs, target: Any) -> str:
    """Does the relevance of [Chefer21]'s rules arrive whole?"""
    try:
        flow = propagate(model, inputs, target, RULESETS["zplus"])
    except UnruledOpError as error:
        return f"no rule for {str(error).split(chr(34))[1]}"
    except Exception as error:
        return type(error).__name__
    total = sum(part.double().sum().item() for part in flow.relevance())
    return "sum 1" if abs(total - 1) < 1e-6 else f"sum {total:.3g}"


def table(results: Sequence[Result]) -> str:
    """docs/coverage.md."""
    ran = [result for result in results if result.status != "not built" and result.status != "failed"]
    unchanged = [result for result in ran if result.unchanged]
    closed = [result for result in ran if result.status == "closed"]
    lines = [
        "# Coverage",
        "",
        "Generated by `python tools/sweep.py`; do not edit.",
        "",
        f"Tiny random models of every architecture of four tasks in transformers {transformers.__version__}, "
        f"torch {torch.__version__.split('+')[0]}, unmodified, float64 where the architecture bears it. "
        "Outputs are one example's "
        "logits: all classes, the whole vocabulary at the last token, or the answer's start plus end.",
        "",
        f"- {len(results)} (architecture, task) pairs; {len(ran)} start from a tiny config and run;",
        f"- outputs unchanged under all {len(GRADIENT_CARRYING)} gradient-carrying rule sets: "
        f"{len(unchanged)} of {len(ran)};",
        f"- ledger of `lrp_conservative` closes to {TOLERANCE:g}: {len(closed)} of {len(ran)} "
        f"({100 * len(closed) / max(1, len(ran)):.1f} %).",
        "",
        "| task | pairs | run | unchanged | closed |",
        "|---|---|---|---|---|",
    ]
    for task in sorted({result.case.task for result in results}):
        own = [result for result in results if result.case.task == task]
        count = Counter(result.status for result in own)
        runs = len(own) - count["not built"] - count["failed"]
        lines.append(f"| {task} | {len(own)} | {runs} | {count['closed'] + count['open']} | {count['closed']} |")
    lines += ["", "## What does not close, run or start", "", "| task | architecture | | why |", "|---|---|---|---|"]
    for result in results:
        if result.status != "closed":
            why = result.detail.replace("|", "\\|")
            lines.append(f"| {result.case.task} | {result.case.architecture} | {result.status} | {why} |")
    lines += [
        "",
        "## Every pair",
        "",
        "`gap`: unexplained relevance relative to what moved. `zplus`: total relevance of [Chefer21]'s rules at the",
        "input (1 means that none was lost), or the operation that has no rule there.",
        "",
        "| task | architecture | | gap | zplus |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        if result.status not in ("not built", "failed"):
            gap = "" if result.gap is None else "< 1e-9" if result.gap < 1e-9 else f"{result.gap:.0e}"
            lines.append(
                f"| {result.case.task} | {result.case.architecture} | {result.status} | {gap} | {result.zplus} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", help="parts of architecture names; nothing is written")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "coverage.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen = [c for c in cases() if not args.only or any(part.lower() in c.architecture.lower() for part in args.only)]
    results = sweep(chosen)
    if args.only:
        print("\n".join(table(results).splitlines()[6:9]))
    else:
        args.out.write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
