"""How much of relprop one explanation runs through: functions, modules, and calls that cross from module to module.

    python tools/trace_path.py                              # relprop explain "..."
    python tools/trace_path.py --method transformer_attribution   # relprop.attribute on a tiny BERT

A function counts once, however often it is called; a crossing is a pair of modules of which one calls the other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = str(Path(__file__).resolve().parents[1] / "src" / "relprop")
SENTENCE = "a gorgeous, witty, seductive movie."


class Trace:
    """What ran while the trace was on."""

    def __init__(self, source: str = SOURCE) -> None:
        self.source = source
        self.functions: set[tuple[str, int]] = set()
        self.crossings: set[tuple[str, str]] = set()

    @property
    def modules(self) -> set[str]:
        return {file for file, _ in self.functions}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self.source) or code.co_name == "<module>":
            return
        self.functions.add((code.co_filename, code.co_firstlineno))
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self.source):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != code.co_filename:
            self.crossings.add((caller.f_code.co_filename, code.co_filename))

    def run(self, work: Callable[[], object]) -> Trace:
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)
        return self

    def __str__(self) -> str:
        counts = (len(self.functions), len(self.modules), len(self.crossings))
        return "{} functions, {} modules, {} crossings between modules".format(*counts)


def explain() -> None:
    from relprop.cli import app

    with redirect_stdout(StringIO()):
        app(["explain", SENTENCE], standalone_mode=False)


def attribute(method: str) -> Callable[[], object]:
    """One attribution, after a first one that surveyed the model."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    import relprop

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=99, **sizes)).eval()
    ids = torch.arange(5, 12)[None]
    relprop.attribute(model, {"input_ids": ids}, 1, method)
    return lambda: relprop.attribute(model, {"input_ids": ids}, 1, method)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--method", help="trace relprop.attribute by this method instead")
    args = parser.parse_args()
    print(Trace().run(attribute(args.method) if args.method else explain))


if __name__ == "__main__":
    main()
