"""Models that a function of the user's own makes, on the command line: Transformers of tables, and any `Explainer`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import relprop
from relprop.cli import app
from relprop.errors import InputError, ModelError
from relprop.explanation import Explanation
from test_features import model

CODE = """
import test_features
import relprop

def credit():
    return test_features.model(numbers=3)

def known():
    return relprop.Explainer(credit(), columns=["debt", "age", "income"], labels=["no", "yes", "later"])

def texts():
    return relprop.Explainer("sentiment")

def nothing():
    return 3

number = 4
"""
ROWS = [{"age": 0.3, "income": -1.2, "debt": 2.0}, {"age": 1.5, "income": 0.1, "debt": -0.7}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_models_of_a_user.py").write_text(CODE)
    (tmp_path / "broken_models.py").write_text("1 / 0")
    lines = [",".join(ROWS[0]), *(",".join(map(str, row.values())) for row in ROWS)]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    (tmp_path / "more.csv").write_text(
        "\n".join(f"{line},{end}" for line, end in zip(lines, ("label", 1, 0), strict=True))
    )
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_models_of_a_user", None)


def run(*args: object) -> Any:
    return CliRunner().invoke(app, ["explain", *map(str, args)], catch_exceptions=False)


def loaded(*args: object) -> list[Explanation]:
    return [Explanation.from_json(line) for line in run(*args, "--json", "-").stdout.splitlines()]


def test_every_row_of_a_table(folder: Path) -> None:
    path = list(sys.path)
    own = relprop.Explainer(model(numbers=3), columns=list(ROWS[0]))(ROWS, target=1)
    for given in (("--file", "rows.csv"), ("rows.csv",)):
        found = loaded(*given, "--model", "own_models_of_a_user:credit", "--target", 1)
        assert [one.part.units for one in found] == [("age", "income", "debt")] * 2
        assert [one.scores for one in found] == [pytest.approx(one.scores) for one in own]
    assert sys.path == path
    run("--file", "rows.csv", "--model", "own_models_of_a_user:credit", "--out", "out.jsonl", "-q")
    assert [json.loads(line)["row"] for line in Path("out.jsonl").read_text().splitlines()] == [0, 1]


def test_an_explainer_reads_the_columns_that_it_knows(folder: Path) -> None:
    (first, _) = loaded("--file", "more.csv", "--model", "own_models_of_a_user:known", "--target", "yes")
    assert first.part.units == ("debt", "age", "income")
    own = relprop.Explainer(model(numbers=3), columns=["debt", "age", "income"])(ROWS[0], target=1)
    assert first.value == pytest.approx(own.value)
    (text,) = loaded("a witty film", "--model", "own_models_of_a_user:texts")
    assert text.value == pytest.approx(relprop.explain("a witty film").value)


@pytest.mark.parametrize(
    ("name", "given", "kind", "message"),
    [
        ("no_such_module:credit", ["rows.csv"], ModelError, 'there is no module "no_such_module"'),
        ("own_models_of_a_user:debit", ["rows.csv"], ModelError, 'has no function "debit"'),
        ("own_models_of_a_user:number", ["rows.csv"], ModelError, 'has no function "number"'),
        (
            "own_models_of_a_user:nothing",
            ["rows.csv"],
            ModelError,
            "should return a model.*returned int",
        ),
        ("broken_models:credit", ["rows.csv"], ModelError, 'importing "broken_models" failed: ZeroDivisionError'),
        ("own_models_of_a_user:credit", ["a text"], InputError, "give the table that it reads, --file rows.csv"),
        ("own_models_of_a_user:known", ["a text"], InputError, "the model reads rows of a table"),
        ("own_models_of_a_user:known", ["short.csv"], InputError, 'no column "debt", which the model reads'),
        ("own_models_of_a_user:known", ["absent.csv"], InputError, 'there is no table "absent.csv"'),
        ("own_models_of_a_user:known", ["--file", "rows.csv", "--column", "age"], InputError, "--column is for texts"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, name: str, given: list[str], kind: type[Exception], message: str) -> None:
    Path("short.csv").write_text("age,income\n1,2\n")
    with pytest.raises(kind, match=message):
        run(*given, "--model", name)
