"""Files that relprop 0.1 wrote (schema version 1, golden/explanations-v1) load as the one Explanation of today.

Written by the last commit that had one class per kind of input. Same numbers, drawn again, saved as version 2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relprop.embedded import EMBEDDED
from relprop.errors import InputError
from relprop.explanation import Explanation
from relprop.types import Unit

FILES = {path.stem: path for path in sorted((Path(__file__).parent / "golden" / "explanations-v1").glob("*.json"))}
TEXTS = ("text", "words", "pair", "answer")
CONTINUATIONS = ("continuation", "encoder-decoder")


def saved(name: str) -> dict[str, Any]:
    """What the file holds, read without relprop."""
    return json.loads(FILES[name].read_text())


def loaded(name: str) -> Explanation:
    picture = EMBEDDED["digits"] / "samples" / "0-digits-7.png" if name == "picture" else None
    return Explanation.from_json(FILES[name].read_text(), picture)


def test_every_kind_is_there() -> None:
    assert {*TEXTS, *CONTINUATIONS, "picture", "graph"} == set(FILES)
    assert all(saved(name)["schema_version"] == 1 for name in FILES)


@pytest.mark.parametrize("name", [name for name in FILES if name not in CONTINUATIONS])
def test_what_was_explained_is_the_same(name: str) -> None:
    old, new = saved(name), loaded(name)
    for field in ("method", "target", "value", "prediction", "probability", "baseline"):
        assert getattr(new, field) == old[field], field
    entries = old["ledger"] and [tuple(entry.values()) for entry in old["ledger"]["entries"]]
    assert (new.ledger and [tuple(vars(entry).values()) for entry in new.ledger.entries]) == entries
    assert new.signed is (new.method not in ("transformer_attribution", "gae"))
    assert not new.steps


@pytest.mark.parametrize("name", TEXTS)
def test_texts_have_the_same_units_and_scores(name: str) -> None:
    old, new = saved(name), loaded(name)
    assert new.scores == tuple(old["scores"])
    assert new.units == tuple(Unit(**unit) for unit in old["units"])
    assert new.text == tuple(old["text"])
    assert new.part.merged is (name == "words") is old["merged"]
    assert new.part.answer == (None if old["answer"] is None else tuple(old["answer"]))
    assert (new.part.answer is not None) is (name == "answer")


def test_fields_that_came_later_may_be_missing() -> None:
    """The first files of version 1 knew no answers, notes or words."""
    old = saved("answer")
    for name in ("answer", "truncated", "merged", "baseline"):
        del old[name]
    new = Explanation.from_json(json.dumps(old))
    assert (new.part.answer, new.part.truncated, new.part.merged, new.baseline) == (None, None, False, None)
    assert new.scores == tuple(old["scores"])


def test_pictures_have_the_same_grid() -> None:
    old, new = saved("picture"), loaded("picture")
    assert new.scores.tolist() == old["scores"]
    assert (new.part.rest, new.part.file, list(new.part.size)) == (old["rest"], old["name"], old["size"])
    assert list(vars(new.part.frame).values()) == old["frame"]


def test_graphs_have_the_same_nodes_and_edges() -> None:
    old, new = saved("graph"), loaded("graph")
    assert new.scores.tolist() == old["scores"]
    assert new.part.edges.tolist() == old["edge_scores"]
    assert new.part.rest == old["rest"]
    assert list(new.units) == old["graph"]["names"]
    assert new.part.graph.edges.tolist() == old["graph"]["edges"]


@pytest.mark.parametrize("name", CONTINUATIONS)
def test_continuations_have_the_same_matrix(name: str) -> None:
    """One column of scores per unit, one row per generated token; an encoder-decoder's units are two texts now."""
    old, new = saved(name), loaded(name)
    assert new.matrix.tolist() == old["scores"]
    assert [unit.text for part in new.texts for unit in part.units] == [unit["text"] for unit in old["units"]]
    assert [unit.text for unit in new.generated] == [unit["text"] for unit in old["units"][old["given"] :]]
    assert (new.prompt, new.continuation, new.passes) == (old["prompt"], old["continuation"], old["passes"])
    for step, one in zip(new.steps, old["generated"], strict=True):
        assert json.loads(json.dumps(vars(step), default=vars)) == {**one, "box": None}
    assert new.value == pytest.approx(sum(one["value"] for one in old["generated"]))
    assert [part.name for part in new.parts] == ["input_ids", "decoder_input_ids"][: 1 + (name == "encoder-decoder")]
    np.testing.assert_allclose([score for part in new.texts for score in part.scores], np.sum(old["scores"], 0))


@pytest.mark.parametrize("name", FILES)
def test_they_are_drawn_and_saved_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = loaded(name)
    one.show()
    assert one.method in capsys.readouterr().out
    one.save(tmp_path / "x.html")
    one.save(tmp_path / "x.png")
    assert one.method in (tmp_path / "x.html").read_text().replace("<wbr>", "")
    again = Explanation.from_json(one.to_json())
    assert json.loads(one.to_json())["schema_version"] == 2
    assert again.to_json() == one.to_json()


@pytest.mark.parametrize("name", FILES)
def test_damaged_ones_are_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(InputError, match="is damaged"):
        Explanation.from_json(FILES[name].read_text().replace('"scores"', '"sores"'))


def test_a_method_that_is_not_installed_is_no_obstacle() -> None:
    """The numbers of a third party's method load without it."""
    text = FILES["picture"].read_text().replace("transformer_attribution", "my_method")
    assert Explanation.from_json(text).method == "my_method"
