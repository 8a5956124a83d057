"""The store keeps its promises: damage is said and rescued, one runner at a time, and a read-only folder is enough."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bench_work
from relprop.bench.executors import KeyedSpec, Outcome, WorkFunction, in_process
from relprop.bench.export import fingerprint
from relprop.bench.report import read_results, write_report
from relprop.bench.rescue import rescue_results
from relprop.bench.runner import run_cells
from relprop.bench.store import NOTES, Store, StoredResult, cell_key
from relprop.bench.store_files import FILE, LOCK
from relprop.bench.suite_folder import LOCATIONS, folder_state, resume_run
from relprop.cli import app
from relprop.errors import InputError, RelpropError

CELLS = 40
SPECS = bench_work.specs(CELLS, places=[0])
SUITE = {
    "name": "numbers",
    "title": "Numbers",
    "metrics": ["auac"],
    "methods": [{"method": "gradient", "label": "gradient"}, {"method": "random", "label": "random"}],
    "tasks": [{"name": "numbers", "model": "none"}],
}


def padded(spec: dict[str, object]) -> dict[str, object]:
    """Long enough that the results need many pages of the file."""
    return {**bench_work.square(spec), "exhibits": [{"kind": "other", "text": "x" * 3000}]}


def backwards(work: WorkFunction, cells: Iterable[KeyedSpec]) -> Generator[Outcome, None, None]:
    """Workers end in any order."""
    return in_process(work, reversed(list(cells)))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    with Store(folder) as store:
        for name, value in zip(NOTES, (json.dumps(SUITE), "relprop bench run", "{}", "{}"), strict=True):
            store.note(name, value)
        assert run_cells(store, SPECS, padded, executor=backwards).complete
        assert [row.spec for row in store.rows()] == SPECS
    return folder


def rows(folder: Path) -> list[StoredResult]:
    with Store(folder, read_only=True) as store:
        return store.rows()


def flipped(content: bytes, places: list[int]) -> bytes:
    changed = bytearray(content)
    for place in places:
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def damages(content: bytes) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Sixty ways in which the file of the results goes wrong, always the same."""
    rng = random.Random(0)
    size = len(content)

    def written(new: bytes) -> Callable[[Path], object]:
        return lambda path: path.write_bytes(new)

    for k in range(30):
        places = [rng.randrange(8 * size) for _ in range(1 + k // 3)]
        yield f"{len(places)} bits flipped", written(flipped(content, places))
    for _ in range(10):
        yield "truncated", written(content[: rng.randrange(1, size)])
    for _ in range(8):
        start, count = rng.randrange(size - 4096), rng.randrange(1, 4096)
        yield "a hole", written(content[:start] + bytes(count) + content[start + count :])
    for _ in range(4):
        start = rng.randrange(size - 512)
        yield "garbage inside", written(content[:start] + rng.randbytes(512) + content[start + 512 :])
    yield "garbage", written(rng.randbytes(size))
    yield "UTF-16", written(content.decode("latin-1").encode("utf-16"))
    yield "JSON", written(b'{"schema_version": 2}' * 50)
    yield "pages swapped", written(content[:4096] + content[8192:12288] + content[4096:8192] + content[12288:])
    yield "no bytes", written(b"")
    yield "a folder", lambda path: (path.unlink(), path.mkdir())
    yield "nothing", Path.unlink
    yield "huge", lambda path: os.truncate(path, 2**33)


def test_damage_is_said_in_one_sentence_and_rescued(healthy: Path, tmp_path: Path) -> None:
    """No other exception, no wrong number: what is read is as it was written, or the folder is refused."""
    content, right = (healthy / FILE).read_bytes(), {row.key: row for row in rows(healthy)}
    refused, kept = 0, []
    ways = list(damages(content))
    assert len(ways) == 60
    for number, (name, damage) in enumerate(ways):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / FILE).write_bytes(content)
        damage(folder / FILE)
        try:
            assert rows(folder) == list(right.values()), name
            assert folder_state(folder).suite == SUITE
            continue
        except RelpropError as error:
            refused += 1
            said = str(error)
            assert "\n" not in said
            if "holds no benchmark results" in said:
                continue
            assert f"relprop bench resume {folder} --rescue" in said, (name, said)
        found = rescue_results(folder)
        assert found is not None
        assert found.aside.exists()
        with Store(folder) as store:
            assert all(row == right[row.key] for row in store.rows() if row.done)
            assert sum(row.done for row in store.rows()) == found.kept
            if found.whole:
                assert [row.key for row in store.rows()] == list(right)
            if number % 9 == 0:
                assert run_cells(store, SPECS, padded).complete
                assert {row.key: row.result for row in store.rows()} == {key: row.result for key, row in right.items()}
        kept.append(found.kept)
        shutil.rmtree(folder)
    assert refused > 50
    assert sum(count > CELLS // 2 for count in kept) > 40  # most of the damage is local, and so is the loss


def bench(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    return result.exit_code, result.output + (str(result.exception) if result.exception else "")


def test_a_wrong_number_is_seen(healthy: Path, tmp_path: Path) -> None:
    """SQLite is content with such a file: the digit of a result was changed behind its back."""
    content = (healthy / FILE).read_bytes()
    place = content.index(b'"value": [1521.0]')
    (tmp_path / FILE).write_bytes(content[: place + 11] + b"9" + content[place + 12 :])
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert "[1921.0]" in db.execute("SELECT result FROM cells WHERE place=39").fetchone()[0]
    key = cell_key(SPECS[39])
    for read in (read_results, fingerprint, folder_state):
        with pytest.raises(RelpropError, match=f"damaged .'{key}' is not as it was written"):
            read(tmp_path)
    code, said = bench("report", tmp_path)
    assert code == 1
    assert f"relprop bench resume {tmp_path} --rescue" in said


def test_the_command_rescues_and_works_on_the_rest(healthy: Path, tmp_path: Path) -> None:
    """The plan is whole, so the run goes on; its cells fail here, as they are no real ones, but only the lost one."""
    test_a_wrong_number_is_seen(healthy, tmp_path)
    (tmp_path / LOCATIONS).write_text(json.dumps({"data": None, "models": {}}))
    code, said = bench("resume", tmp_path, "--rescue", "--workers", 1)
    assert code == 1
    assert f'39 results are kept; the damaged file is now "{tmp_path / "damaged-1.sqlite"}"' in said
    assert "39 cells done, 1 set aside" in said
    assert bench("resume", tmp_path, "--rescue", "--workers", 1)[0] == 1
    assert len(list(tmp_path.glob("damaged-*"))) == 1  # nothing is damaged any more
    assert bench("report", tmp_path)[0] == 0


def test_a_plan_that_is_lost_is_written_again_by_run(healthy: Path, tmp_path: Path) -> None:
    """A report without the cells that nobody knows of would look complete."""
    shutil.copy(healthy / FILE, tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as db, db:
        db.execute("DELETE FROM cells WHERE place=7")
    with pytest.raises(RelpropError, match="it holds 39 of 40 cells"):
        rows(tmp_path)
    found = rescue_results(tmp_path)
    assert found is not None
    assert (found.kept, found.whole) == (39, False)
    with pytest.raises(InputError, match=r"nothing is planned .*: `relprop bench run SUITE --out .*` plans a suite"):
        resume_run(tmp_path)
    with pytest.raises(InputError, match="does not say which suite"):
        read_results(tmp_path)


def started(folder: Path) -> subprocess.Popen[str]:
    """A driver that has begun, and has no leave to work."""
    command = [sys.executable, bench_work.__file__, str(folder), "1", "1", "--leave"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def test_a_second_runner_is_refused_while_the_first_is_alive(tmp_path: Path) -> None:
    """Readers are welcome all the time; after SIGKILL the folder is free at once."""
    with started(tmp_path) as process:
        with pytest.raises(RelpropError, match=f'another process is working in "{tmp_path}"'):
            Store(tmp_path)
        assert not any(row.done for row in rows(tmp_path))
        process.kill()
        process.wait()
        with Store(tmp_path) as store:
            with pytest.raises(RelpropError, match="another process is working"):  # or this one, twice
                Store(tmp_path)
            assert run_cells(store, bench_work.specs(3), bench_work.square).complete
    assert len(rows(tmp_path)) == 3


def test_a_damaged_lock_is_said(tmp_path: Path) -> None:
    Store(tmp_path).__exit__()
    (tmp_path / LOCK).write_bytes(b"garbage" * 1000)
    with pytest.raises(RelpropError, match=r'results.lock" cannot be locked \(file is not a database\); delete it'):
        Store(tmp_path)
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).mkdir()
    with pytest.raises(RelpropError, match=r'results.lock" cannot be locked'):
        Store(tmp_path)


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


HALF_WRITTEN = """
import os, signal, sys
from pathlib import Path
from relprop.bench.store import Store
with Store(Path(sys.argv[1])) as store:
    store._db.execute("PRAGMA cache_size=1")
    store._db.execute("BEGIN IMMEDIATE")
    store._db.execute("UPDATE cells SET result='wrong'")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_write_that_was_killed_is_undone_for_readers_without_a_change(healthy: Path, tmp_path: Path) -> None:
    shutil.copy(healthy / FILE, tmp_path)
    assert subprocess.run([sys.executable, "-c", HALF_WRITTEN, str(tmp_path)]).returncode == -signal.SIGKILL
    before = listing(tmp_path)
    assert f"{FILE}-journal" in before
    assert before[FILE] != (healthy / FILE).read_bytes()
    assert rows(tmp_path) == rows(healthy)
    assert listing(tmp_path) == before
    with Store(tmp_path) as store:
        assert store.rows() == rows(healthy)
    assert not listing(tmp_path).get(f"{FILE}-journal")


def test_a_read_only_folder_can_be_reported(healthy: Path, tmp_path: Path) -> None:
    """Reading writes nothing; who may not write is told to name another folder."""
    folder = tmp_path / "run"
    shutil.copytree(healthy, folder)
    before = listing(folder)
    folder.chmod(0o555)
    try:
        assert bench("report", folder, "--out", tmp_path / "report")[0] == 0
        assert listing(folder) == before
        if os.access(folder, os.W_OK):
            pytest.skip("this user may write anywhere")
        with pytest.raises(RelpropError, match=r"cannot be written to .*--out names another folder"):
            write_report(read_results(folder), folder)
        with pytest.raises(RelpropError, match="cannot be locked"):
            Store(folder)
    finally:
        folder.chmod(0o755)


def test_results_of_version_1_are_signed_when_they_are_continued(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.executescript((Path(__file__).parent / "golden" / "bench" / "results_of_version_1.sql").read_text())
    old = rows(tmp_path)
    with Store(tmp_path) as store:
        assert store.rows() == old
    assert rows(tmp_path) == old
    with closing(sqlite3.connect(tmp_path / FILE)) as db, db:
        db.execute("UPDATE cells SET seconds=seconds+1 WHERE place=0")
    with pytest.raises(RelpropError, match="is not as it was written"):
        rows(tmp_path)
