"""Explanations in the shapes of SHAP, Gradio and anywidget, and relprop as a method of Captum, Inseq and Quantus."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import relprop
from explanations import of_image, of_text
from relprop.errors import InputError, RelpropError, TargetError
from relprop.loading import EMBEDDED
from relprop.quantus import explain_func
from relprop.render.image.part import Frame
from relprop.types import Entry, Ledger, Unit

CLS = Unit("[CLS]", special=True)
UNITS = (CLS, Unit("sed", 2, 5, word=0), Unit("uctive", 5, 11, word=0), Unit("film", 0, 4, segment=1, word=0))
SCORES = (0.5, -0.25, 1.0, 0.125)
BOOKS = Ledger(1.5, (Entry("", "inputs", "input", 1.5),))
PAIR = of_text(("a seductive  one", "film!"), UNITS, SCORES, "lrp", "good", 1.5, "good", 0.75, BOOKS, 0.1)
PROMPT = "Once upon a time, there was a little girl named Lily. She met a boy named Tom. Tom said to"


def test_shap_gets_values_that_add_up() -> None:
    """Base value and values are the explained number, and every plot of a text works on it."""
    shap = pytest.importorskip("shap")
    found = PAIR.to_shap()
    assert isinstance(found, shap.Explanation)
    assert found.values.tolist() == list(SCORES)
    assert found.base_values + found.values.sum() == pytest.approx(PAIR.value)
    assert found.data.tolist() == ["[CLS]", "sed", "uctive  ", "film"]
    assert found.output_names == "good"
    assert "uctive" in shap.plots.text(found, display=False)


def test_shap_of_a_real_explanation_is_relprops() -> None:
    pytest.importorskip("shap")
    e = relprop.explain("a gorgeous, witty, seductive movie.", target="positive")
    assert e.to_shap().values == pytest.approx(np.array(e.scores), abs=1e-6)


def test_shap_of_a_picture_names_patches() -> None:
    pytest.importorskip("shap")
    one = of_image(Image.new("RGB", (4, 4)), np.array([[1.0, 2.0]]), Frame(0, 0, 4, 4), "lrp", "cat", 3.5, 0.25)
    found = replace(one, ledger=BOOKS).to_shap()
    assert found.feature_names == ["row 0, column 0", "row 0, column 1", "other tokens"]
    assert found.values.tolist() == [1, 2, 0.25]


def test_scores_that_are_no_shares_are_not_shaps() -> None:
    pytest.importorskip("shap")
    with pytest.raises(InputError, match='shares of a number, and the scores of "rollout" are not'):
        replace(PAIR, method="rollout", ledger=None).to_shap()


@pytest.mark.parametrize(("name", "call"), [("shap", "to_shap"), ("anywidget", "widget")])
def test_without_a_package_its_extra_is_named(name: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "relprop.widget", raising=False)
    with pytest.raises(RelpropError, match=rf"needs the {name} package: pip install"):
        getattr(PAIR, call)()


@pytest.mark.parametrize("name", ["captum", "inseq"])
def test_a_module_without_its_package_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [one for one in sys.modules if one.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"relprop.{name}", raising=False)
    with pytest.raises(
        RelpropError, match=rf'relprop.{name} needs the {name} package: pip install "relprop\[{name}\]"'
    ):
        __import__(f"relprop.{name}")


def test_highlighted_pairs_are_the_text() -> None:
    """Joined they are the texts, one per line; the largest score is 1, signs are kept, gaps have none."""
    pairs = PAIR.to_highlighted()
    assert "".join(text for text, _ in pairs) == "a seductive  one\nfilm!"
    assert pairs == [
        ("a ", None), ("sed", -0.25), ("uctive", 1.0), ("  one", None), ("\n", None), ("film", 0.125), ("!", None),
    ]  # fmt: skip


def test_pieces_of_one_character_are_not_repeated() -> None:
    """Bytes of an emoji are units of the same place."""
    units = (Unit("a", 0, 1), Unit("?", 1, 2), Unit("?", 1, 2))
    one = of_text(("a🙂",), units, (1.0, 2.0, 4.0), "lrp", "x", 7.0, "x", 0.5, None, None)
    assert one.to_highlighted() == [("a", 0.25), ("🙂", 0.5), ("", 1.0)]


def test_a_picture_has_no_highlighted_text() -> None:
    one = of_image(Image.new("RGB", (4, 4)), np.ones((1, 1)), Frame(0, 0, 4, 4), "lrp", "cat", 1.0)
    with pytest.raises(InputError, match="of texts"):
        one.to_highlighted()


def test_gradio_takes_the_pairs() -> None:
    gradio = pytest.importorskip("gradio")
    shown = gradio.HighlightedText().postprocess(PAIR.to_highlighted())
    assert [one.class_or_confidence for one in shown.root if one.class_or_confidence is not None] == [-0.25, 1, 0.125]


def test_a_widget_shows_levels_and_tells_what_was_clicked() -> None:
    pytest.importorskip("anywidget")
    widget = PAIR.widget()
    assert widget.levels == ["tokens", "words", "sentences"]
    assert widget.html == PAIR._repr_html_()
    assert widget.selected_unit is None
    widget.selected = 2
    assert widget.selected_unit == (UNITS[2], 1.0)
    widget.level = "words"
    assert widget.selected == -1
    assert widget.html == PAIR.words()._repr_html_()
    with pytest.raises(InputError, match="level is one of tokens, words, sentences"):
        widget.level = "letters"


class Logits(nn.Module):
    """What Quantus needs: a tensor of scores."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> Tensor:
        scores: Tensor = self.model(pixel_values).logits
        return scores


def two_pets() -> tuple[nn.Module, Tensor]:
    pets = relprop.Explainer("pets")
    return pets.model, pets.inputs(sorted((EMBEDDED["pets"] / "samples").glob("*.jpg"))[:2])["pixel_values"]


@pytest.mark.parametrize("method", ["lrp_conservative", "gradient_x_input"])
def test_quantus_gets_a_map_per_picture(method: str) -> None:
    """`explain_func(model, inputs, targets, **kwargs)`: arrays in, [batch, 1, height, width] out, a class each."""
    model, x = two_pets()
    found = explain_func(Logits(model).eval(), x.numpy(), np.array([1, 0]), method=method)
    own = relprop.attribute(model, {"pixel_values": x}, [1, 0], method, at="input").scores
    assert found.shape == (2, 1, 96, 96)
    np.testing.assert_allclose(found.reshape(2, -1), own.numpy(), atol=1e-6)
    with pytest.raises(InputError, match="1 targets for 2 inputs"):
        explain_func(model, x.numpy(), [1])


def test_quantus_gets_a_score_per_number_of_a_table() -> None:
    """Inputs without pixels keep their shape."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    x = torch.randn(2, 5)
    found = explain_func(model, x.numpy(), [0, 2], "gradient_x_input")
    wanted = x.clone().requires_grad_()
    model(wanted)[[0, 1], [0, 2]].sum().backward()
    np.testing.assert_allclose(found, (wanted * wanted.grad).detach().numpy(), atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_quantus_itself_calls_it() -> None:
    quantus = pytest.importorskip("quantus")
    model, x = two_pets()
    network = Logits(model).eval()
    sparse = quantus.Sparseness(disable_warnings=True)
    options: dict[str, Any] = {"explain_func": explain_func, "explain_func_kwargs": {"method": "lrp_ah_ln"}}
    found = sparse(model=network, x_batch=x.numpy(), y_batch=np.array([1, 0]), device="cpu", **options)
    own = explain_func(network, x.numpy(), [1, 0], "lrp_ah_ln")
    given = sparse(model=network, x_batch=x.numpy(), y_batch=np.array([1, 0]), a_batch=own, device="cpu")
    assert found == pytest.approx(given, abs=1e-6)


def classifier() -> tuple[Any, dict[str, Tensor], Any]:
    explainer = relprop.Explainer("sentiment")
    inputs = explainer.inputs(["a gorgeous, witty, seductive movie.", "dull, and far too long."])
    return explainer.model, inputs, lambda ids, mask: explainer.model(ids, attention_mask=mask).logits


@pytest.mark.parametrize("rules", ["lrp_conservative", "lrp_ah_ln", "attn_lrp"])
def test_captums_layer_has_relprops_scores(rules: str) -> None:
    """At the words, at a block; the convergence delta is what is left of the logit."""
    pytest.importorskip("captum")
    from relprop.captum import LayerLRP

    model, inputs, forward = classifier()
    rest = {"target": 1, "additional_forward_args": (inputs["attention_mask"],)}
    layer = LayerLRP(forward, model.get_input_embeddings(), rules)
    found, delta = layer.attribute(inputs["input_ids"], return_convergence_delta=True, **rest)
    own = relprop.attribute(model, inputs, 1, rules, at="word_embeddings")
    torch.testing.assert_close(found.sum(-1), own.scores, atol=1e-6, rtol=0)
    torch.testing.assert_close(delta, own.value - own.scores.sum(1), atol=1e-6, rtol=0)
    block = LayerLRP(forward, model.get_submodule("bert.embeddings"), rules)  # its output is what the first block reads
    at_block = block.attribute(inputs["input_ids"], **rest)
    default = relprop.attribute(model, inputs, 1, rules)
    assert default.place == {"input_ids": "block"}
    torch.testing.assert_close(at_block.sum(-1), default.scores, atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore")
def test_captums_class_for_language_models_takes_it() -> None:
    """Its log-probabilities get the relevance of their logits: relprop's own scores of each token."""
    pytest.importorskip("captum")
    from captum.attr import LLMGradientAttribution, TextTokenInput

    from relprop.captum import LayerLRP

    stories = relprop.Explainer("stories")
    own = stories("Tom said to", continuation=" Lily, how")
    layer = LayerLRP(stories.model, stories.model.get_input_embeddings())
    ids = torch.tensor([token for one in own.steps for token in one.tokens])
    prompt = TextTokenInput("Tom said to", stories.tokenizer)
    found = LLMGradientAttribution(layer, stories.tokenizer).attribute(prompt, target=ids)
    assert found.token_attr is not None
    np.testing.assert_allclose(found.token_attr.numpy(), own.matrix[:, : found.token_attr.shape[1]], atol=1e-5)


def test_captum_is_refused_what_it_cannot_multiply() -> None:
    pytest.importorskip("captum")
    from relprop.captum import LayerLRP

    with pytest.raises(InputError, match="carries relevance itself: take lrp_conservative"):
        LayerLRP(nn.Linear(2, 2), nn.Linear(2, 2), "zplus")


@pytest.mark.filterwarnings("ignore")
class TestInseq:
    @pytest.fixture(scope="class")
    def stories(self) -> Any:
        pytest.importorskip("inseq")
        return relprop.Explainer("stories")

    @pytest.mark.parametrize("method", ["lrp_conservative", "lrp_ah_ln", "attn_lrp"])
    def test_a_registered_method_gives_relprops_matrix(self, stories: Any, method: str) -> None:
        import inseq

        import relprop.inseq as registered

        own = stories(PROMPT, continuation=' Lily, "', method=method)
        model = inseq.load_model(stories.model, method, tokenizer=stories.tokenizer)
        found = model.attribute(PROMPT, PROMPT + ' Lily, "', show_progress=False)
        theirs = found.sequence_attributions[0].target_attributions.sum(-1).nan_to_num().T
        np.testing.assert_allclose(theirs.numpy(), own.matrix, atol=1e-6 * max(1.0, np.abs(own.matrix).max()))
        assert found.info["attributed_fn"] == "logit_fn"
        assert set(registered.REGISTERED) <= set(inseq.list_feature_attribution_methods())

    def test_inseqs_own_default_is_given_back(self, stories: Any) -> None:
        """A method asked for once leaves the model's own as it was."""
        import inseq

        import relprop.inseq  # noqa: F401

        model = inseq.load_model(stories.model, "saliency", tokenizer=stories.tokenizer)
        once = model.attribute("Tom said", "Tom said to", method="lrp_conservative", show_progress=False)
        after = model.attribute("Tom said", "Tom said to", show_progress=False)
        assert [one.info["attributed_fn"] for one in (once, after)] == ["logit_fn", "probability_fn"]

    def test_a_probability_is_refused_in_a_sentence(self, stories: Any) -> None:
        import inseq

        import relprop.inseq  # noqa: F401

        model = inseq.load_model(stories.model, "lrp_conservative", tokenizer=stories.tokenizer)
        with pytest.raises(TargetError, match='take attributed_fn="logit"'):
            model.attribute("Tom said", "Tom said to", attributed_fn="probability", show_progress=False)


def test_gradients_can_be_taken_inside_the_rules() -> None:
    """`torch.autograd.grad` in the context, as other packages call it, is no operation of the model."""
    x = torch.ones(1, 3, requires_grad=True)
    with relprop.rules("lrp_conservative"), warnings.catch_warnings():
        warnings.simplefilter("error")
        (gradient,) = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x)
    torch.testing.assert_close(gradient, torch.nn.functional.gelu(x.detach()))
