"""Damaged and hostile model folders: refused in one sentence of relprop's own, or explained as the whole one is.

None may take much memory on the way, whatever its config asks for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from damaged_models import BASES, BOMBS, CASES, EITHER, REFUSED, SAME, WARNED, DamagedModel, edit, make_base, weights
from relprop.errors import ModelError, RelpropError, RelpropWarning
from relprop.explainer import Explainer
from relprop.loading import load
from tokenizers_for_tests import saved, tiny

resource = pytest.importorskip("resource", reason="peak memory is read the Unix way")
MEGABYTES = 200
SLICE = [*BOMBS, *CASES[len(BOMBS) :: 3]]  # the rest with -m slow


def explained_value(folder: Path, base: str) -> float:
    picture = Image.fromarray((np.arange(192) % 255).astype(np.uint8).reshape(8, 8, 3))
    given: dict[str, Any] = {"molecules": "CCO", "vit": picture}
    if base == "clip":  # it takes two inputs: loaded, not explained
        load(folder)
        return 0.0
    return Explainer(folder)(given.get(base, "the good movie")).value


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, float]]:
    """Whole folders, each loaded and explained once, so that only what the damage costs is measured."""
    room = tmp_path_factory.mktemp("whole")
    folders = {base: make_base(base, room) for base in BASES}
    return {base: (folder, explained_value(folder, base)) for base, folder in folders.items()}


def peak() -> float:
    """The largest memory of the process so far, in MB."""
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (2**20 if sys.platform == "darwin" else 2**10)


def outcome(folder: Path, case: DamagedModel, value: float) -> tuple[str, str]:
    """What came of loading and explaining, and the sentence. Errors that are not relprop's own are raised."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = explained_value(folder, case.base)
        except RelpropError as error:
            return REFUSED, str(error)
    own = [str(one.message) for one in told if issubclass(one.category, RelpropWarning)]
    if found != pytest.approx(value, abs=1e-4):
        return "other numbers", f"{found} for {value}"
    return (WARNED, own[0]) if own else (SAME, "")


def check(case: DamagedModel, whole: dict[str, tuple[Path, float]], room: Path) -> None:
    source, value = whole[case.base]
    folder = Path(shutil.copytree(source, room / "model"))
    case.damage(folder)
    before = peak()
    what, sentence = outcome(folder, case, value)
    assert case.outcome in (what, EITHER), sentence
    assert "\n" not in sentence
    assert len(sentence.replace(str(folder), "")) < 500
    assert peak() - before < MEGABYTES


@pytest.mark.parametrize("case", SLICE, ids=lambda case: case.name[:40])
def test_some_damaged_folders(case: DamagedModel, whole: dict[str, tuple[Path, float]], tmp_path: Path) -> None:
    check(case, whole, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name[:40])
def test_all_damaged_folders(case: DamagedModel, whole: dict[str, tuple[Path, float]], tmp_path: Path) -> None:
    check(case, whole, tmp_path)


def test_there_are_enough() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 120
    assert len(BOMBS) >= 16


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "~nobody-at-all/model", "", ".", "/", "\ud800"])
def test_names_that_no_system_has(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(name)
    assert "\n" not in str(caught.value)


def test_models_of_the_hub_are_checked_alike(whole: dict[str, tuple[Path, float]], tmp_path: Path) -> None:
    """A bomb in the hub's cache is refused like one in a folder, and a whole model is loaded from there."""
    for name, base, changes in (
        ("bomb", "bert", {"vocab_size": 4_000_000}),
        ("unused", "bert", {"num_hidden_layers": 1}),
        ("whole", "bert", {}),
        ("shards", "sharded", {}),
    ):
        snapshot = tmp_path / "hub" / f"models--some--{name}" / "snapshots" / ("0" * 40)
        shutil.copytree(whole[base][0], snapshot)
        edit(snapshot, **changes)
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text(snapshot.name)
    code = """
from relprop.errors import ModelError
from relprop.loading import load
for name in ("bomb", "unused", "whole", "shards"):
    try:
        print(name, type(load(f"some/{name}")[0]).__name__)
    except ModelError as error:
        print(name, error)
"""
    home = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=home, capture_output=True, text=True, check=True)
    bomb, unused, *rest = done.stdout.splitlines()
    assert 'the config of "some/bomb" asks for a tensor of [4000000, 32], more than its files can fill' in bomb
    assert "does not use" in unused
    assert rest == ["whole BertForSequenceClassification", "shards BertForSequenceClassification"]


def pooler_checkpoint(folder: Path) -> Path:
    """As bert-base-uncased is: a masked language model whose files hold a pooler and a second head."""
    model, tokenizer = tiny("bert")
    transformers.BertForPreTraining(model.config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    edit(folder, architectures=["BertForMaskedLM"])
    return folder


def test_heads_of_another_task_are_told(tmp_path: Path) -> None:
    """A pooler and a head that the architecture does not have take nothing from its output: a warning, no refusal."""
    with pytest.warns(
        RelpropWarning, match=r'modules that BertForMaskedLM does not have: "bert.pooler.dense.bias" and 3'
    ):
        load(pooler_checkpoint(tmp_path))


def test_the_base_of_a_fine_tuned_model_loads(tmp_path: Path) -> None:
    """Weights that are saved without the prefix of their head's class are told apart as well."""
    model, tokenizer = tiny("bert")
    saved(tmp_path, transformers.BertModel(model.config), tokenizer)
    edit(tmp_path, num_hidden_layers=1)
    with pytest.raises(ModelError, match=r'does not use, such as "encoder.layer.1.'):
        load(tmp_path)


def test_the_weights_of_a_tied_table_may_be_stored_twice(tmp_path: Path) -> None:
    """Some exporters write the output table too."""
    folder = saved(tmp_path, *tiny("lm"))
    weights(folder, lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"].clone()}))
    model, _ = load(folder)
    assert torch.equal(model.lm_head.weight, tiny("lm")[0].transformer.wte.weight)
