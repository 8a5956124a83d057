"""What `import relprop` gives: one list, names of before 0.2 that still work, and types that editors can complete."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from mypy import api

import relprop

ONE, LIST = "relprop.explanation.Explanation", "list[relprop.explanation.Explanation]"
CALLS = {
    'explainer("x")': ONE,
    'explainer(("x", "y"))': ONE,
    'explainer(question="x", context="y")': ONE,
    'explainer("x", method="lrp", generate=3)': ONE,
    'explainer(["x", "y"])': LIST,
    'explainer(question=["x", "y"], context="z")': LIST,
    'explainer(question=["x"], context=["y"], method=["lrp"])': f"list[{LIST}]",
    'explainer("x", method=["lrp", "gae"])': LIST,
    'explainer(["x"], method=["lrp"])': f"list[{LIST}]",
    'explain("x")': ONE,
    'explain(["x"])': LIST,
    'explain("x", method=["lrp"])': LIST,
    'explain(["x"], method=["lrp"])': f"list[{LIST}]",
}


def test_every_public_name_exists_once() -> None:
    assert len(set(relprop.__all__)) == len(relprop.__all__)
    assert dir(relprop) == sorted(relprop.__all__)
    assert set(relprop.__all__) == {*relprop._HOMES, "__version__"}
    for name in relprop.__all__:
        assert getattr(relprop, name) is not None


@pytest.mark.parametrize("name", ["Continuation", "ImageExplanation", "GraphExplanation"])
def test_one_explanation_for_all_kinds(name: str) -> None:
    """Old imports work, and no list names them."""
    assert getattr(relprop, name) is relprop.Explanation
    assert getattr(importlib.import_module("relprop"), name) is relprop.Explanation
    assert name not in relprop.__all__


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'relprop' has no attribute 'explane'"):
        relprop.explane  # noqa: B018


def test_calls_have_the_types_they_return(tmp_path: Path) -> None:
    """`reveal_type` as mypy answers it, in strict mode."""
    lines = [
        "from relprop import Explainer, explain",
        "explainer = Explainer()",
        *(f"reveal_type({call})" for call in CALLS),
    ]
    (tmp_path / "calls.py").write_text("\n".join(lines))
    config = Path(__file__).parents[1] / "pyproject.toml"
    out, err, code = api.run([str(tmp_path / "calls.py"), "--config-file", str(config), "--no-pretty"])
    assert code == 0, out + err
    shown = [line.split('is "')[1].rstrip('"') for line in out.replace("builtins.", "").splitlines() if 'is "' in line]
    assert shown == list(CALLS.values())
