"""Tables and many inputs: columns of files, results written as they come, and runs that go on after a kill."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import relprop
from relprop.cli import app
from relprop.errors import InputError
from relprop.explainer import Explainer
from relprop.text_tables import is_table, read_column
from tokenizers_for_tests import saved, tiny

ROWS = [("1", "good, witty movie", "1"), ("2", "the plot\nis dull", "0"), ("3", "  ", "0"), ("4", 'so "so"', "1")]
TEXTS = {0: ROWS[0][1], 1: ROWS[1][1], 3: ROWS[3][1]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(tmp_path_factory.mktemp("bert"), *tiny("bert")))


def as_csv(delimiter: str = ",") -> str:
    cells = (('"' + cell.replace('"', '""') + '"' for cell in row) for row in [("id", "text", "label"), *ROWS])
    return "".join(delimiter.join(row) + "\r\n" for row in cells)


def table(folder: Path, kind: str) -> Path:
    """The rows as a file of a kind."""
    path = folder / f"reviews.{kind}"
    records = [dict(zip(("id", "text", "label"), row, strict=True)) for row in ROWS]
    if kind == "csv.gz":
        path.write_bytes(gzip.compress(as_csv().encode()))
    elif kind == "parquet":
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(records), path)
    elif kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, records)))
    else:
        path.write_bytes(as_csv().encode("utf-8-sig"))
    return path


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl", "parquet"])
def test_columns_of_tables(tmp_path: Path, kind: str) -> None:
    """By name; quoted cells with commas and line breaks are whole, blank ones left out, rows numbered as they stand."""
    path = table(tmp_path, kind)
    assert is_table(path, None)
    assert read_column(path, "text") == TEXTS


def test_other_tables(tmp_path: Path) -> None:
    """Tabs, semicolons, no header, lines of JSON that are texts."""
    (tmp_path / "a.tsv").write_text('id\ttext\n1\ta "fine" film\n')
    assert read_column(tmp_path / "a.tsv", "text") == {0: 'a "fine" film'}
    (tmp_path / "b.csv").write_text("id;text\n1;good, really\n")
    assert read_column(tmp_path / "b.csv", "text") == {0: "good, really"}
    (tmp_path / "c.csv").write_text("1,good\n2,bad\n")
    assert read_column(tmp_path / "c.csv", "1") == {0: "good", 1: "bad"}
    (tmp_path / "f.csv").write_text(",0\n0,good\n1,bad\n")  # a frame without names
    assert read_column(tmp_path / "f.csv", "0") == {0: "good", 1: "bad"}
    (tmp_path / "d.jsonl").write_text('"good"\n"bad"\n')
    assert read_column(tmp_path / "d.jsonl", None) == {0: "good", 1: "bad"}
    (tmp_path / "e.csv").write_text("good; or bad\n")  # without a header a semicolon is a part of the text
    assert read_column(tmp_path / "e.csv", "0") == {0: "good; or bad"}


WRONG = {
    "no column": (
        "a.csv",
        "id,text\n1,good\n",
        None,
        r"is a table: name its column .*it has id, text; without a header",
    ),
    "a slip": ("a.csv", "id,text\n1,good\n", "txt", r'has no column "txt"; did you mean "text"\? \(it has id, text\)'),
    "too large a number": ("a.csv", "id,text\n1,good\n", "2", r'has no column "2" \(it has id, text\)'),
    "twice": ("a.csv", "text,text\n1,good\n", "text", r'has 2 columns "text"'),
    "short row": ("a.csv", "id,text\n1,good\n2\n", "text", r'row 1 of .* has no column "text" \(it has 1 cells\)'),
    "only a header": ("a.csv", "id,text\n", "text", "has no text to explain"),
    "empty": ("a.csv", "", "text", 'has no column "text"'),
    "a number": ("a.jsonl", '{"text": 3}\n', "text", "holds 3, not a text"),
    "no lines of JSON": ("a.jsonl", "good\n", "text", "cannot be read"),
    "not Parquet": ("a.parquet", "good\n", "text", "cannot be read"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_tables(tmp_path: Path, case: str) -> None:
    name, content, column, message = WRONG[case]
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_column(tmp_path / name, column)


def run(*arguments: object) -> tuple[int, str]:
    """The exit code, and all that was said; an error's sentence if there was one."""
    done = CliRunner().invoke(app, ["explain", *map(str, arguments)])
    return done.exit_code, done.output or str(done.exception)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    (tmp_path / "a.txt").write_text("good\n")
    assert "is no table that can be read" in run("--file", tmp_path / "a.json")[1]
    assert "is no table that can be read" in run("--file", tmp_path / "a.txt", "--column", "text")[1]
    assert "--column is for the tables that --file names" in run("good", "--column", "text")[1]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_results_have_their_rows(tmp_path: Path, model: str, ending: str) -> None:
    """What the library gives, method under method; the row of each joins it to the table."""
    out = tmp_path / f"out.{ending}"
    methods = ["lrp_conservative", "gae"]
    command = ("--file", table(tmp_path, "csv"), "--column", "text", "--model", model, "--compare", ",".join(methods))
    code, said = run(*command, "--out", out, "--words")
    assert code == 0
    assert said == f"explained 3 of 3, wrote {out}\n"
    expected = [e for each in Explainer(*tiny("bert"))(list(TEXTS.values()), method=methods, words=True) for e in each]
    if ending == "jsonl":
        assert [json.loads(line)["row"] for line in out.read_text().splitlines()] == [0, 0, 1, 1, 3, 3]
        found = [(e.method, [unit.text for unit in e.units], list(e.scores)) for e in relprop.load(out)]
    else:
        rows = pytest.importorskip("pyarrow.parquet").read_table(out).to_pylist()
        assert [row["row"] for row in rows] == [0, 0, 1, 1, 3, 3]
        assert [row["target"] for row in rows] == [e.target for e in expected]
        found = [(r["method"], [u["text"] for u in r["units"]], [u["score"] for u in r["units"]]) for r in rows]
    for (method, units, scores), e in zip(found, expected, strict=True):
        assert method == e.method
        assert units == [unit.text for unit in e.units]
        assert scores == pytest.approx(e.scores, abs=1e-5)
    assert not list(tmp_path.glob("*.part"))
    assert "is there already" in run(*command, "--out", out)[1]


def test_rows_that_cannot_be_explained(tmp_path: Path, model: str) -> None:
    """They are written with their error, the others go on, and the exit code tells."""
    (tmp_path / "in.jsonl").write_text('"good"\n"a\\ud800"\n"bad"\n')
    code, said = run("--file", tmp_path / "in.jsonl", "--model", model, "--out", tmp_path / "out.jsonl")
    assert code == 1
    assert "row 1: " in said
    assert "explained 2 of 3" in said
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [("error" in line, line["row"]) for line in lines] == [(False, 0), (True, 1), (False, 2)]


def test_what_fails_for_every_row_is_an_error(tmp_path: Path, model: str) -> None:
    """A wrong target is no matter of rows: nothing is written."""
    (tmp_path / "in.txt").write_text("good\nbad\n")
    command = ("--file", tmp_path / "in.txt", "--model", model, "--out", tmp_path / "out.jsonl", "--target", "joy")
    code, said = run(*command)
    assert code == 1
    assert 'target "joy" is unknown' in said
    assert not (tmp_path / "out.jsonl").exists()


def test_warnings_are_counted(tmp_path: Path, model: str) -> None:
    (tmp_path / "in.txt").write_text(("good " * 100 + "\n") * 5)
    code, said = run("--file", tmp_path / "in.txt", "--model", model, "--out", tmp_path / "out.jsonl")
    assert code == 0
    assert "(and 4 more warnings)" in said
    assert len(said.splitlines()) == 2


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    """One line per picture; one that cannot be read is told."""
    image = pytest.importorskip("PIL.Image")
    for number in range(3):
        image.new("RGB", (20, 20), (80 * number, 90, 20)).save(tmp_path / f"{number}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    code, said = run(tmp_path, "--model", "digits", "--out", tmp_path / "maps.jsonl", "--quiet")
    assert code == 1
    assert "broken.png" in said
    found = [json.loads(line) for line in (tmp_path / "maps.jsonl").read_text().splitlines()]
    assert [one["parts"][0]["file"] for one in found if "parts" in one] == ["0.png", "1.png", "2.png"]


# Kills

# Explains, and is killed in the middle of its third chunk.
KILLED = """
import os, signal, sys
from relprop.cli import main
from relprop.explainer import Explainer
call, count = Explainer.__call__, iter(range(100))
def killed(self, *given, **options):
    if next(count) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(self, *given, **options)
Explainer.__call__ = killed
sys.argv[0] = "relprop"
main()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that cannot be caught")
def test_a_killed_run_goes_on(tmp_path: Path, model: str) -> None:
    """Killed in the middle, and cut in the middle of a line: the result is that of a run that nobody stopped."""
    (tmp_path / "in.csv").write_text("text\n" + "".join(f"good movie {'so ' * (n % 7)}{n}\n" for n in range(40)))
    given = ("--file", tmp_path / "in.csv", "--column", "text", "--model", model, "--batch-size", 2)
    out, part, whole = (tmp_path / name for name in ("out.jsonl", "out.jsonl.part", "whole.jsonl"))
    command = [sys.executable, "-c", KILLED, "explain", *map(str, given), "--out", str(out)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not out.exists()
    assert part.read_bytes().count(b'"row"') == 16
    with part.open("ab") as file:
        file.write(b'{"row": 16, "schema_ver')  # as a kill may leave it
    code, said = run(*given, "--out", out)
    assert (code, said) == (0, f"goes on after 16 of 40\nexplained 40 of 40, wrote {out}\n")
    assert run(*given, "--out", whole)[0] == 0
    assert out.read_bytes() == whole.read_bytes()
    assert not part.exists()


def test_ctrl_c_says_that_the_same_command_goes_on(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.txt").write_text("".join(f"good movie {n}\n" for n in range(20)))
    given = ("--file", tmp_path / "in.txt", "--model", model, "--batch-size", 2, "--out", tmp_path / "out.jsonl")
    calls, call = iter([False, True]), Explainer.__call__

    def stopped(self: Explainer, *texts: Any, **options: Any) -> Any:
        if next(calls):
            raise KeyboardInterrupt
        return call(self, *texts, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Explainer, "__call__", stopped)
        code, said = run(*given)
    assert (code, said) == (130, "stopped; what is done is kept, and the same command goes on\n")
    code, said = run(*given)
    assert (code, said) == (0, f"goes on after 8 of 20\nexplained 20 of 20, wrote {tmp_path / 'out.jsonl'}\n")


def test_another_command_does_not_go_on_with_it(tmp_path: Path, model: str) -> None:
    """Settings, texts and the model's files must be the same, else results of two kinds would stand in one file."""
    texts = tmp_path / "in.txt"
    texts.write_text("good\nbad\n")
    out, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part"
    settings = {"method": ["lrp"]}
    part.write_text(json.dumps({"settings": settings}) + '\n{"done": "chunk"}\n')
    code, said = run("--file", texts, "--model", model, "--out", out)
    assert code == 1
    assert 'was begun with another setting of "method"' in said
    part.write_text('{"settings": {')  # killed before anything was explained
    assert run("--file", texts, "--model", model, "--out", out)[0] == 0
