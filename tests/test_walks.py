"""docs/walks.md is run as it is written: its Python blocks, and every command of its shell blocks, in their order."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from relprop.cli import main
from test_serve_command import process

PAGE = Path(__file__).parents[1] / "docs" / "walks.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_every_line_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)  # `main` sets its own
    namespace: dict[str, object] = {"__name__": "page"}
    served = []
    for kind, block in BLOCK.findall(PAGE.read_text()):
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), namespace)
            continue
        for line in block.splitlines():
            command = shlex.split(line)
            assert command[0] == "relprop"
            if command[1] == "serve":
                served.append(command[2:])
                continue
            monkeypatch.setattr(sys, "argv", command)
            with pytest.raises(SystemExit) as ended:
                main()
            out, err = capsys.readouterr()
            assert not ended.value.code, (line, err)
            assert out or err, line
    for name in ("why.html", "map.png", "cat.png", "scores.jsonl", "story.html"):
        assert (tmp_path / name).stat().st_size > 1000, name
    (models,) = served
    with process(*models) as (_, live):
        live.wait()
        assert live.get("/v1/models").json["models"] == models
