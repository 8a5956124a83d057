"""All numbers of a run as one tidy table: the same bits for the same suite, however often it was interrupted."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

from relprop.bench.measurements import Measurements
from relprop.bench.store import Store
from relprop.errors import InputError, RelpropError
from relprop.files import write_bytes

COLUMNS = ("task", "model", "weights", "method", "metric", "example", "at", "value")
ENDINGS = (".csv", ".parquet")


def result_rows(folder: Path) -> Iterator[tuple[object, ...]]:
    """One number per row, in the order of the plan. A curve has one row per position `at`, which is None for scores."""
    with Store(folder, read_only=True) as store:
        rows = store.rows()
    for row in rows:
        if not row.done:
            continue
        task, found = row.spec["task"], Measurements.from_dict(row.result)
        about = (task["name"], task["model"], row.spec["weights"])
        for method, own in sorted(found.scores.items()):
            for metric, values in sorted(own.items()):
                for example, value in zip(found.examples, values, strict=True):
                    yield (*about, method, metric, example, None, value)
        for method, curves in sorted(found.curves.items()):
            for metric, curve in sorted(curves.items()):
                for example, line in zip(found.examples, curve.values, strict=True):
                    for at, value in zip(curve.at, line, strict=True):
                        yield (*about, method, metric, example, at, value)


def to_csv(folder: Path) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(("" if value is None else value for value in row) for row in result_rows(folder))
    return text.getvalue()


def fingerprint(folder: Path) -> str:
    """SHA-256 of the table."""
    return hashlib.sha256(to_csv(folder).encode()).hexdigest()


def export_table(folder: Path, path: Path) -> None:
    """Write the table as .csv or .parquet."""
    if path.suffix not in ENDINGS:
        raise InputError(f'a table is saved as {" or ".join(ENDINGS)}, got "{path}"')
    content = to_csv(folder).encode() if path.suffix == ".csv" else _parquet(folder)
    try:
        write_bytes(path, content)
    except OSError as error:
        raise InputError(f'"{path}" cannot be written: {error.strerror}') from error


def _parquet(folder: Path) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise RelpropError(
            'Parquet needs the pyarrow package: pip install "relprop[bench]" (or save as .csv)'
        ) from None
    kinds = [pyarrow.string()] * 5 + [pyarrow.int64(), pyarrow.float64(), pyarrow.float64()]
    columns = list(zip(*result_rows(folder), strict=True)) or [()] * len(COLUMNS)
    arrays = [pyarrow.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(arrays, names=COLUMNS), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
