"""Every float64 array of the golden files, under both attention implementations: what `golden_arrays` says it is."""

import numpy as np
import pytest

import golden_table
from golden_arrays import LINES, Line
from golden_cases import ATTENTION, FILES, MASKS, Case, arrays, keys, passed

CASES = [(line, key) for line in LINES if line.found is not None for key in line.keys]


@pytest.mark.parametrize("file", FILES)
def test_every_array_has_a_line(file: str) -> None:
    known = {key for line in LINES if line.file == file for key in line.keys}
    assert set(keys(file)) == known
    assert all(line.keys for line in LINES if line.file == file), "a line without an array"


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize(("line", "key"), CASES, ids=[f"{line.file}:{key}:{line.says}" for line, key in CASES])
def test_array(line: Line, key: str, attention: str) -> None:
    assert line.difference(key, attention) < line.tolerance


def test_the_stored_mask_is_the_one_used() -> None:
    assert np.array_equal(arrays("bert/golden.npz")["head_mask_M1"], MASKS["M1"])
    assert np.array_equal(arrays("bert_qa/golden.npz")["head_mask_M1"], MASKS["M1"])


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("folder", ["bert", "vit"])
def test_the_total_stays_one(folder: str, attention: str) -> None:
    """By the paper's rules; not by the released LRP's."""
    case = Case(folder, attention, 0)
    assert passed(case, "paper").source.sum().item() == pytest.approx(1, abs=1e-9)
    assert abs(passed(case, "released").source.sum().item() - 1) > 0.1


def test_the_page_has_this_table() -> None:
    """Its rows and verdicts; the measured numbers are the machine's own."""
    page = golden_table.on_page(golden_table.PAGE.read_text())
    assert golden_table.structure(page) == golden_table.structure(golden_table.table(measure=False))
    assert "NOT MATCHED" not in page
