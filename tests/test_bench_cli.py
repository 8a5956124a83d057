"""`relprop bench` as a user meets it."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relprop.bench.export import fingerprint, result_rows
from relprop.bench.kinds import CellJob
from relprop.bench.kinds.faithfulness import Faithfulness
from relprop.bench.measurements import Measurements
from relprop.bench.store import Store, cell_key
from relprop.bench.store_files import FILE
from relprop.bench.suite_folder import folder_state, resume_run
from relprop.cli import app
from relprop.cli.bench import with_optional_values
from relprop.progress import live_count

GOLDEN = Path(__file__).parent / "golden"
INTERRUPTED = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background may ignore it
from relprop.bench.store import Store
from relprop.cli import main

succeed = Store.succeed

def interrupted(*result):  # Ctrl-C just after the first result is stored
    succeed(*result)
    os.kill(os.getpid(), signal.SIGINT)

Store.succeed = interrupted
main()
"""
SUITE = """
title = "Reviews"
metrics = ["auac", "au_mse", "conservation_correlation"]
sample = 6
methods = ["random", "lrp_ah_ln"]

[[tasks]]
name = "reviews"
model = "sentiment"
data = "reviews"
explain = "label"
chunk = 2
show = 1

[data.reviews]
title = "Reviews"
classes = ["negative", "positive"]
text = "text"
label = "label"
files = { test = "reviews.jsonl" }
"""
TEXTS = ["a gorgeous film", "dull and witless", "warm, funny, wise", "a mess", "not bad at all", "a waste of time"]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    rows = [json.dumps({"text": text, "label": 1 - number % 2}) for number, text in enumerate(TEXTS)]
    (tmp_path / "reviews.jsonl").write_text("\n".join(rows))
    (tmp_path / "mine.toml").write_text(SUITE)
    return tmp_path / "mine.toml"


def bench(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    return result.exit_code, result.output + (str(result.exception) if result.exception else "")


def ran(suite: Path, out: Path, *more: object) -> Path:
    code, output = bench("run", suite, "--out", out, "--data", suite.parent, "--workers", 1, *more)
    assert code == 0, output
    return out


def test_a_suite_is_run_listed_and_reported(suite, tmp_path):
    out = ran(suite, tmp_path / "out")
    assert folder_state(out).summary.complete
    code, listed = bench("list", tmp_path)
    assert code == 0
    assert "mine" in listed
    code, output = bench("report", out, "--export", tmp_path / "all.csv")
    assert code == 0, output
    assert "AUAC" in (out / "report.md").read_text().upper()
    assert (out / "report.html").is_file()
    assert f"| fingerprint of the numbers | {fingerprint(out)} |" in (out / "report.md").read_text()
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert lines[0] == "task,model,weights,method,metric,example,at,value"
    assert len(lines) == 1 + len(list(result_rows(out)))


def test_results_of_other_weights_are_not_joined(suite, tmp_path):
    """As after a training elsewhere: one cell is done with other weights, one planned, the third lost."""
    fresh, out = ran(suite, tmp_path / "fresh"), tmp_path / "out"
    with Store(fresh, read_only=True) as store:
        rows, described = store.rows(), store.about("suite")
    other = [{**row.spec, "weights": "0123456789abcdef"} for row in rows[:2]]
    with Store(out) as store:
        store.note("suite", described)
        store.plan([(cell_key(spec), spec) for spec in other])
        store.succeed(cell_key(other[0]), rows[0].result, 1.0)
    again = ("run", suite, "--out", out, "--data", suite.parent, "--workers", 1)
    code, output = bench(*again)
    assert code == 1
    assert f'task "reviews": 1 cells in "{out}" were measured on a model with other weights' in output
    assert "--anew" in output
    code, output = bench(*again, "--anew")
    assert code == 0, output
    with Store(out, read_only=True) as store:
        assert [row.key for row in store.rows()] == [row.key for row in rows]
    assert fingerprint(out) == fingerprint(fresh)


def test_a_report_repeats_the_command_with_relative_paths(suite, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = ran(suite.absolute(), tmp_path / "out", "--seed", 0, "--task", "reviews")
    assert folder_state(out).command == "relprop bench run mine.toml --out out --data . --seed 0"


def test_parquet_holds_what_csv_holds(suite, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = ran(suite, tmp_path / "out")
    assert bench("report", out, "--export", tmp_path / "all.parquet")[0] == 0
    table = parquet.read_table(tmp_path / "all.parquet").to_pydict()
    assert list(zip(*table.values(), strict=True)) == list(result_rows(out))


def test_all_executors_give_the_same_bits(suite, tmp_path):
    alone = ran(suite, tmp_path / "alone")
    code, output = bench("run", suite, "--out", tmp_path / "two", "--data", suite.parent, "--workers", 2)
    assert code == 0, output
    assert fingerprint(alone) == fingerprint(tmp_path / "two")


def test_the_same_again_goes_on_and_another_suite_is_refused(suite, tmp_path):
    out = ran(suite, tmp_path / "out")
    before = fingerprint(out)
    ran(suite, out)
    assert fingerprint(out) == before
    code, output = bench("run", suite, "--out", out, "--data", suite.parent, "--sample", 2)
    assert code == 1
    assert "holds results of another suite or sample" in output


def test_results_of_an_older_relprop_go_on_and_are_reported(suite, tmp_path):
    """The cells that are done count, without being done again; the heat maps were saved as schema version 1."""
    out = tmp_path / "old"
    out.mkdir()
    with closing(sqlite3.connect(out / FILE)) as store:
        store.executescript((GOLDEN / "bench" / "results_of_version_1.sql").read_text())
    before = dict(finished(out))
    assert len(before) == 2
    ran(suite, out)
    after = dict(finished(out))
    assert len(after) == 3
    assert {key: after[key] for key in before} == before
    assert bench("report", out)[0] == 0
    assert "gorgeous" in (out / "report.html").read_text()


def finished(folder: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(folder / FILE)) as store:
        return store.execute("SELECT key, result FROM cells WHERE result IS NOT NULL").fetchall()


def test_a_dry_run_writes_nothing(suite, tmp_path):
    code, output = bench("run", suite, "--out", tmp_path / "out", "--data", suite.parent, "--dry-run")
    assert code == 0
    assert "1 tasks can be run, 3 cells" in output
    assert not (tmp_path / "out").exists()


def test_a_cell_that_fails_is_set_aside_told_and_tried_again(suite, tmp_path, monkeypatch):
    measure = Faithfulness.measure

    def unlucky(kind: Faithfulness, job: CellJob) -> Measurements:
        if job.places[0] == 2 and len(job.places) > 1:  # a whole cell, not the dry run's one example
            raise ValueError("no luck")
        return measure(kind, job)

    monkeypatch.setattr(Faithfulness, "measure", unlucky)
    out = tmp_path / "out"
    code, output = bench("run", suite, "--out", out, "--data", suite.parent, "--workers", 1)
    assert code == 1
    assert 'set aside: task "reviews", examples 2 to 3: ValueError: no luck' in output
    assert "2 cells done, 1 set aside" in output
    assert bench("report", out)[0] == 0  # of what there is
    assert "no luck" in (out / "report.md").read_text()
    monkeypatch.setattr(Faithfulness, "measure", measure)
    assert bench("resume", out, "--workers", 1)[0] == 1  # set aside is set aside
    assert bench("resume", out, "--workers", 1, "--again")[0] == 0
    assert fingerprint(out) == fingerprint(ran(suite, tmp_path / "calm"))


def test_ctrl_c_stops_cleanly_and_the_rest_goes_on(suite, tmp_path):
    out = tmp_path / "out"
    arguments = ["bench", "run", str(suite), "--out", str(out), "--data", str(tmp_path), "--workers", "2"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *arguments], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert ended.returncode == 130, ended.stderr
    assert "results so far are kept: relprop bench resume" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert folder_state(out).summary.done == 1
    assert resume_run(out).complete


def test_wrong_calls_say_what_to_do(suite, tmp_path):
    assert '--data "nowhere" is not a folder' in bench("run", suite, "--out", tmp_path / "o", "--data", "nowhere")[1]
    assert "holds no benchmark results" in bench("resume", tmp_path)[1]
    assert "there are no results" in bench("list", tmp_path)[1]
    assert 'did you mean "song24"' in bench("run", "song-24", "--out", tmp_path / "o")[1]


def test_rate_and_time_left(monkeypatch, capsys):
    """From the first cell on, of those of this run; the next model's steps are counted anew."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with live_count("cells") as show:
        for at, done, count in ((130.0, 11, 16), (250.0, 13, 16), (300.0, 1, 9), (360.0, 3, 9)):
            now[0] = at
            show(done, count, "", urgent=True)
    assert capsys.readouterr().err.splitlines() == [
        "cells: 11 of 16",  # ten were done before
        "cells: 13 of 16 (1.0 per minute, 0:03:00 left)",
        "cells: 1 of 9",
        "cells: 3 of 9 (2.0 per minute, 0:03:00 left)",
    ]


def test_ray_alone_means_a_local_cluster():
    assert with_optional_values(["bench", "run", "x", "--ray"]) == ["bench", "run", "x", "--ray=local"]
    assert with_optional_values(["--ray", "--out", "d"]) == ["--ray=local", "--out", "d"]
    assert with_optional_values(["--ray", "auto"]) == ["--ray", "auto"]
