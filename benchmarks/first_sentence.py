"""What `relprop explain` of one sentence takes, over importing torch and transformers alone.

    python benchmarks/first_sentence.py [--rounds 9]

Seconds of the processor (user and system) of whole processes, on one thread. `imports` imports torch, transformers and
the classes of the embedded model; `uncollected` does so while garbage collection waits, as relprop does; `predicted`
also loads that model by transformers and predicts the sentence; `explained` is the command. They run in turn, so that a
busy machine slows all of them, and the median of the differences within a round is printed. A round before the first
is not counted: it compiles the modules.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys

from relprop.embedded import EMBEDDED

SENTENCE = "a gorgeous, witty, seductive movie."
IMPORTS = "import torch, transformers; from transformers import AutoTokenizer, BertForSequenceClassification as Model"
UNCOLLECTED = f"import gc; gc.disable(); {IMPORTS}"
PREDICTED = (
    f"{UNCOLLECTED}; folder = {str(EMBEDDED['sentiment'])!r}; model = Model.from_pretrained(folder); "
    f"print(model(**AutoTokenizer.from_pretrained(folder)({SENTENCE!r}, return_tensors='pt')).logits)"
)
COMMANDS = {
    "imports": [sys.executable, "-c", IMPORTS],
    "uncollected": [sys.executable, "-c", UNCOLLECTED],
    "predicted": [sys.executable, "-c", PREDICTED],
    "explained": [sys.executable, "-m", "relprop", "explain", SENTENCE],
}


def seconds(command: list[str]) -> float:
    """Of the processor, for one process; its modules are kept compiled, as those of an installed package are."""
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=os.environ | settings, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds of every command, round by round."""
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(rounds + 1):
        for name, command in COMMANDS.items():
            taken = seconds(command)
            if turn:
                found[name].append(taken)
    return found


def more(found: dict[str, list[float]], name: str, base: str) -> float:
    """How many seconds more than the base, in the middle round."""
    return statistics.median(one - other for one, other in zip(found[name], found[base], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    found = measure(parser.parse_args().rounds)
    for name, taken in found.items():
        over = ", ".join(f"{more(found, name, base):+.2f} s over {base}" for base in ("imports", "uncollected"))
        print(f"{name:<12} {statistics.median(taken):.2f} s ({over})")


if __name__ == "__main__":
    main()
