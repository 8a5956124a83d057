"""Models from folders: whatever is wrong with one is told in a sentence, and nothing random is ever explained."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import relprop
from relprop.attribution import attribute
from relprop.engine.finite_weights import check_weights
from relprop.errors import ModelError
from relprop.explainer import Explainer
from relprop.loading import load
from tokenizers_for_tests import LABELS, saved, tiny, wordpiece


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("whole"), *tiny("bert"))


@pytest.fixture
def folder(whole, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


def config(folder: Path, **changes: object) -> None:
    data = {**json.loads((folder / "config.json").read_text()), **changes}
    kept = {name: value for name, value in data.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


def weights(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def no_config(folder):
    (folder / "config.json").unlink()


def no_weights(folder):
    (folder / "model.safetensors").unlink()


def pickle_only(folder):
    no_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")


def truncated(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def empty_weights(folder):
    (folder / "model.safetensors").write_bytes(b"")


def not_safetensors(folder):
    (folder / "model.safetensors").write_bytes(b"\x80\x02}q\x00." * 100)


def headless(folder):
    weights(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if name.startswith("classifier")])


def one_missing(folder):
    weights(folder, lambda tensors: tensors.pop("bert.encoder.layer.1.output.dense.bias"))


def other_shape(folder):
    weights(folder, lambda tensors: tensors.update({"classifier.weight": torch.zeros(5, 32)}))


def other_config(folder):
    config(folder, hidden_size=64)


def no_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


def broken_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{")


def broken_config(folder):
    (folder / "config.json").write_text('{"model_type": "bert",')


def list_config(folder):
    (folder / "config.json").write_text("[]")


def no_architecture(folder):
    config(folder, architectures=None)


def unknown_architecture(folder):
    config(folder, architectures=["BertForMindReading"])


def no_model_architecture(folder):
    config(folder, architectures=["logging"])


def unknown_type(folder):
    config(folder, model_type="telepathy")


DAMAGE = {
    no_config: "holds no model: config.json is missing",
    no_weights: "holds no weights: there is no .safetensors file",
    pickle_only: "has its weights only in pytorch_model.bin; relprop loads safetensors alone",
    truncated: "cannot be loaded: its weights are damaged or cut short",
    empty_weights: "cannot be loaded: its weights are damaged or cut short",
    not_safetensors: "cannot be loaded: its weights are damaged or cut short",
    headless: 'has no fitting weights for "classifier.bias" and 1 more of BertForSequenceClassification.* random',
    one_missing: 'has no fitting weights for "bert.encoder.layer.1.output.dense.bias" of Bert',
    other_shape: 'has no fitting weights for "classifier.weight" of BertForSequenceClassification',
    other_config: 'has no fitting weights for "bert.embeddings.LayerNorm.bias" and .* more',
    no_tokenizer: "holds no tokenizer: there is no tokenizer.json",
    broken_tokenizer: "the tokenizer of .* cannot be loaded",
    broken_config: "config.*JSON",
    list_config: "cannot be loaded",
    no_architecture: "does not say which architecture",
    unknown_architecture: "is a BertForMindReading, which transformers .* does not have",
    no_model_architecture: "is a logging, which transformers .* does not have",
    unknown_type: "cannot be loaded: .*telepathy",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damaged_folders(folder, damage, capfd):
    """One sentence that names the folder and the fault; nothing else is printed."""
    damage(folder)
    with pytest.raises(ModelError, match=DAMAGE[damage]) as caught:
        load(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    assert len(message) < 500
    assert capfd.readouterr() == ("", "")


def test_a_whole_folder(whole, capfd):
    """The same model and tokenizer come back, ready, without a word."""
    model, tokenizer = load(whole)
    assert capfd.readouterr() == ("", "")
    assert not model.training
    assert model.config.id2label == LABELS
    assert tokenizer("good").input_ids == tiny("bert")[1]("good").input_ids
    for name, parameter in tiny("bert")[0].named_parameters():
        assert torch.equal(parameter, model.get_parameter(name))


def test_a_tied_head_is_not_missing(tmp_path):
    """A language model's output table is its input table: stored once, it is not random."""
    folder = saved(tmp_path, *tiny("lm"))
    assert not any("lm_head" in name for name in load_file(folder / "model.safetensors"))
    model, _ = load(folder)
    assert torch.equal(model.lm_head.weight, tiny("lm")[0].transformer.wte.weight)


def test_own_tokenizer_for_a_folder_without(folder):
    """Who brings a tokenizer needs none in the folder."""
    no_tokenizer(folder)
    tokenizer = wordpiece()
    explainer = Explainer(folder, tokenizer)
    assert explainer.tokenizer is tokenizer


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such/folder", 'there is no folder "/no/such/folder"'),
        ("./nowhere", 'there is no folder "./nowhere"'),
        ("~/nowhere-at-all", 'there is no folder "~/nowhere-at-all"'),
        ("a/b/c", 'there is no folder "a/b/c"'),
        ("my model", 'there is no folder "my model"'),
        (Path("nowhere"), 'there is no folder "nowhere"'),
        ("someone/some-model", 'there is no folder "someone/some-model", and from the hub: .*connect'),
        ("sentimnt", 'there is no model or folder "sentimnt"; did you mean "sentiment"'),
    ],
    ids=str,
)
def test_names_of_nothing(name, message, capfd):
    """A path says it is missing; what could be a hub id says both."""
    with pytest.raises(ModelError, match=message) as caught:
        load(name)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_file_is_no_folder(whole):
    """Who names the weights meant their folder."""
    with pytest.raises(ModelError, match="is a file; name the folder that holds the model"):
        load(whole / "model.safetensors")


def test_paths_from_home(folder, monkeypatch):
    """~ is the user's home, as in a shell."""
    monkeypatch.setenv("HOME", str(folder.parent))
    assert load(f"~/{folder.name}")[0].config.id2label == LABELS


QUERY = "bert.encoder.layer.1.attention.self.query.weight"
BIAS = "bert.encoder.layer.1.output.dense.bias"


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", [QUERY, BIAS])
def test_nan_weights_are_named(name, number):
    """Weights that are not finite are not explained, in a model that was not loaded by relprop either."""
    model, tokenizer = deepcopy(tiny("bert")[0]), tiny("bert")[1]
    with torch.no_grad():
        model.get_parameter(name).view(-1)[3] = number
    for ask in (
        lambda: Explainer(model, tokenizer),
        lambda: attribute(model, {"input_ids": torch.ones(1, 3).long()}, 0, "occlusion"),
        lambda: relprop.check(model, {"input_ids": torch.ones(1, 3).long()}),
    ):
        with pytest.raises(ModelError, match=f'not finite numbers: its parameter "{name}" holds a NaN or an infinity'):
            ask()


def test_a_weight_that_becomes_nan_is_seen():
    """torch's fused attention hides a NaN in a query weight from the output of a short text."""
    model, tokenizer = deepcopy(tiny("bert")[0]), tiny("bert")[1]
    explain = Explainer(model, tokenizer)
    expected = explain("the good movie").scores
    with torch.no_grad():
        weight = model.get_parameter(QUERY)
        before = weight[0, 0].clone()
        weight[0, 0] = torch.nan
    with pytest.raises(ModelError, match=QUERY):
        explain("the good movie")
    with torch.no_grad():
        weight[0, 0] = before
    assert explain("the good movie").scores == expected
    model.load_state_dict({**model.state_dict(), BIAS: torch.full_like(model.state_dict()[BIAS], torch.inf)})
    with pytest.raises(ModelError, match=BIAS):
        explain("the good movie")


def test_large_finite_weights_are_finite():
    """Their sum is not."""
    layer = torch.nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.fill_(3e38)
    check_weights(layer)


def test_meta_models_are_refused():
    """A model without storage has nothing to explain."""
    with torch.device("meta"):
        model = transformers.BertForSequenceClassification(tiny("bert")[0].config)
    for ask in (
        lambda: Explainer(model, wordpiece()),
        lambda: attribute(model, {"input_ids": torch.ones(1, 3).long()}),
    ):
        with pytest.raises(ModelError, match=r"no weights yet \(meta device\)"):
            ask()


@pytest.mark.parametrize("level", [transformers.logging.INFO, transformers.logging.WARNING])
@pytest.mark.parametrize("damage", [None, headless])
def test_the_users_settings_are_left_alone(folder, level, damage):
    """Loading is quiet, and after it transformers is as talkative as before."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(level)
    transformers.logging.enable_progress_bar()
    try:
        if damage is None:
            load(folder)
        else:
            damage(folder)
            with pytest.raises(ModelError):
                load(folder)
        assert transformers.logging.get_verbosity() == level
        assert transformers.logging.is_progress_bar_enabled()
    finally:
        transformers.logging.set_verbosity(before)


@pytest.mark.parametrize("model", [None, 3, torch.zeros(2), [1]], ids=str)
def test_what_is_no_model(model):
    """Neither a module, a pipeline nor a name."""
    with pytest.raises(ModelError, match=r"a model is a torch\.nn\.Module"):
        Explainer(model, wordpiece())


def test_a_model_needs_its_tokenizer():
    """Texts cannot be read without."""
    with pytest.raises(ModelError, match=r"needs the model's tokenizer: Explainer\(model, tokenizer\)"):
        Explainer(tiny("bert")[0])
