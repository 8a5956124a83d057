"""Scores in other libraries' shapes: frames, and the functions of docs/interoperability.md against what is documented.

The page's blocks that import another library run only where it is installed; their conventions are checked always.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import relprop
from explanations import of_generation, of_graph, of_image, of_text
from relprop.errors import RelpropError
from relprop.graph import Graph
from relprop.render.image.part import Frame
from relprop.types import Entry, ExplainedStep, Ledger, Unit

PAGE = (Path(__file__).parents[1] / "docs" / "interoperability.md").read_text()
CLS = Unit("[CLS]", special=True)
UNITS = (CLS, Unit("sed", 0, 3, word=0), Unit("uctive", 3, 9, word=0), Unit("film", 0, 4, segment=1, word=0))
SCORES = (0.5, -0.25, 1.0, 1 / 3)
BOOKS = Ledger(1.5, (Entry("", "inputs", "input", 1.5),))
PAIR = of_text(("seductive", "film"), UNITS, SCORES, "lrp", "good", 1.5, "good", 0.75, BOOKS, 0.1)


def blocks(kinds: str) -> list[str]:
    return re.findall(rf"^```(?:{kinds})\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    """The page's functions and what they import, without the rest of it."""
    kept = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    nodes: list[Any] = [node for block in blocks("python") for node in ast.parse(block).body if isinstance(node, kept)]
    namespace: dict[str, Any] = {"__name__": "page"}
    exec(compile(ast.Module(nodes, []), "interoperability.md", "exec"), namespace)
    return SimpleNamespace(**namespace)


def story(two_sided: bool = False) -> Any:
    """Three tokens read, two written; of an encoder-decoder the third is the decoder's start."""
    side = int(two_sided)
    units = (
        Unit("a", 0, 1, word=0),
        Unit("b", 1, 2, word=0),
        Unit("<s>", special=True, segment=side),
        Unit("c", 0 if two_sided else 2, 1 if two_sided else 3, segment=side, word=1),
        Unit("d", 1 if two_sided else 3, 2 if two_sided else 4, segment=side, word=1),
    )
    written = tuple(ExplainedStep((token,), name, name, 2.0, p) for token, name, p in ((7, "c", 0.5), (8, "d", 0.25)))
    rows = ((0.1, -0.2, 0.3, 0.0, 0.0), (1.0, 2.0, -3.0, 4.0, 0.0))
    return of_generation("ab", "cd", units, 3, written, rows, "lrp", "single", two_sided)


def test_a_frame_has_a_row_a_unit() -> None:
    """Columns as documented; whole numbers stay whole beside special tokens; nothing of the scores is lost."""
    frame = PAIR.to_frame()
    assert list(frame) == [
        "text",
        "start",
        "end",
        "special",
        "segment",
        "word",
        "score",
        "beside",
        "method",
        "target",
        "value",
    ]
    assert frame.score.sum() == pytest.approx(PAIR.value)
    frame = frame[frame.beside.isna()]
    assert frame.text.tolist() == ["[CLS]", "sed", "uctive", "film"]
    assert frame.score.tolist() == list(SCORES)
    assert frame.special.tolist() == [True, False, False, False]
    assert frame.segment.tolist() == [0, 0, 0, 1]
    assert [str(frame[name].dtype) for name in ("start", "end", "word")] == ["Int64"] * 3
    assert frame.start.isna().tolist() == [True, False, False, False]
    assert frame.end.tolist()[1:] == [3, 9, 4]
    assert set(zip(frame.method, frame.target, frame.value, strict=True)) == {("lrp", "good", 1.5)}


def test_a_frame_of_words_and_one_without_gaps() -> None:
    """The same columns and types, whatever is left out: frames can be put under each other."""
    words, all_of_it = PAIR.words().without_special().to_frame(), PAIR.to_frame()
    assert words.score.sum() == pytest.approx(all_of_it.score.sum()) == pytest.approx(PAIR.value)
    assert (words.dtypes == all_of_it.dtypes).all()
    words = words[words.beside.isna()]
    assert words.text.tolist() == ["seductive", "film"]
    assert words.score.tolist() == [0.75, 1 / 3]


def test_a_picture_has_a_row_a_patch() -> None:
    """Patches row by row with their edges on the picture; class tokens have no place."""
    scores = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    one = of_image(Image.new("RGB", (90, 60)), scores, Frame(0, 10, 90, 50), "lrp", "cat", 2.5, 0.5, "a.jpg")
    frame = one.to_frame()
    assert list(frame) == [
        "row", "column", "left", "top", "right", "bottom", "special", "score", "name", "beside", "method", "target",
        "value",
    ]  # fmt: skip
    assert frame.score.sum() == pytest.approx(one.value)
    frame = frame[frame.beside.isna()]
    assert frame.score.tolist() == [1, 2, 3, 4, 5, 6, 0.5]
    assert frame.score.sum() == one.accounted
    last = frame[frame.special]
    assert len(last) == 1
    assert last[["row", "column", "left", "top", "right", "bottom"]].isna().all(axis=None)
    fifth = frame.iloc[4]
    assert (fifth.row, fifth.column) == (1, 1)
    assert (fifth.left, fifth.top, fifth.right, fifth.bottom) == (30, 30, 60, 50)
    assert set(frame.name) == {"a.jpg"}
    rest = one.without_special().to_frame()
    assert not rest[rest.beside.isna()].special.any()


def test_a_graph_is_a_frame() -> None:
    """A row a node, and one for the virtual node, which has no number."""
    graph = Graph.of([[1.0], [2.0]], [(0, 1)], names=["a", "b"], title="two")
    one = of_graph(graph, np.array([0.25, -1.0]), "lrp_ah_ln", "yes", 1.5, rest=0.5)
    frame = one.to_frame()
    assert frame.score.sum() == pytest.approx(one.value)
    frame = frame[frame.beside.isna()]
    assert frame.node.tolist()[:2] == [0, 1]
    assert frame.node.isna().tolist() == frame.special.tolist() == [False, False, True]
    assert frame["name"].tolist()[:2] == ["a", "b"]
    assert frame.score.tolist() == [0.25, -1.0, 0.5]
    assert set(frame.graph) == {"two"}
    assert one.without_special().to_frame().beside.isna().sum() == 2


@pytest.mark.parametrize("one", [PAIR, of_image(Image.new("RGB", (2, 2)), np.ones((1, 1)), Frame(0, 0, 2, 2),
                                                        "lrp", "cat", 1.0)], ids=["text", "picture"])  # fmt: skip
def test_without_pandas_the_extra_is_named(one: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RelpropError, match=r'to_frame needs the pandas package: pip install "relprop\[pandas\]"'):
        one.to_frame()


@pytest.mark.parametrize("shape", [(6, 3), (6,)], ids=["tokens by hidden", "tokens"])
def test_captums_scores_are_summed_over_hidden(page: SimpleNamespace, shape: tuple[int, ...]) -> None:
    """Padding behind the text's own tokens is left off, and books of another method are not kept."""
    given = torch.arange(6 * 3).view(6, 3).float() if len(shape) == 2 else torch.arange(6.0)
    found = page.from_captum(PAIR, given, "Captum's")
    assert found.scores == ((3.0, 12.0, 21.0, 30.0) if len(shape) == 2 else (0.0, 1.0, 2.0, 3.0))
    assert (found.method, found.ledger, found.baseline) == ("Captum's", None, None)
    assert found.units == PAIR.units
    assert "Captum&#x27;s" in found.to_html()


def test_captums_record_has_its_fields(page: SimpleNamespace) -> None:
    """The arguments of VisualizationDataRecord, as captum documents them."""
    fields = page.to_captum(PAIR, true_class="bad")
    assert list(fields) == [
        "word_attributions", "pred_prob", "pred_class", "true_class", "attr_class", "attr_score", "raw_input_ids",
        "convergence_score",
    ]  # fmt: skip
    assert fields["word_attributions"].tolist() == pytest.approx(list(SCORES))
    assert fields["raw_input_ids"] == ["[CLS]", "sed", "uctive", "film"]
    assert (fields["pred_class"], fields["true_class"], fields["attr_class"]) == ("good", "bad", "good")
    assert fields["attr_score"] + fields["convergence_score"] == pytest.approx(PAIR.value)


def test_inseqs_table_is_transposed_with_gaps(page: SimpleNamespace) -> None:
    """Of a decoder all tokens are targets, and a token has a score only where it came before."""
    fields = page.to_inseq(story(), lambda text: {"input_ids": [1, 2, 3]})
    assert fields["source"] == [("a", 1), ("b", 2), ("<s>", 3)]
    assert fields["target"] == [("a", 1), ("b", 2), ("<s>", 3), ("c", 7), ("d", 8)]
    assert fields["source_attributions"] is None
    expected = [[0.1, 1.0], [-0.2, 2.0], [0.3, -3.0], [np.nan, 4.0], [np.nan, np.nan]]
    np.testing.assert_array_equal(fields["target_attributions"].numpy(), expected)
    assert fields["attr_pos_start"] == 3
    assert fields["step_scores"]["probability"].tolist() == [0.5, 0.25]


def test_inseqs_two_tables_of_an_encoder_decoder(page: SimpleNamespace) -> None:
    """The source apart, and the decoder's start first among the targets."""
    fields = page.to_inseq(story(two_sided=True), lambda text: {"input_ids": [1, 2]}, start=[0])
    assert fields["source"] == [("a", 1), ("b", 2)]
    assert fields["target"] == [("<s>", 0), ("c", 7), ("d", 8)]
    np.testing.assert_array_equal(fields["source_attributions"].numpy(), [[0.1, 1.0], [-0.2, 2.0]])
    np.testing.assert_array_equal(fields["target_attributions"].numpy(), [[0.3, -3.0], [np.nan, 4.0], [np.nan, np.nan]])
    assert fields["attr_pos_start"] == 1


@pytest.mark.parametrize("two_sided", [False, True], ids=["decoder", "encoder-decoder"])
@pytest.mark.parametrize("hidden", [0, 4], ids=["scores", "scores by hidden"])
def test_there_and_back(page: SimpleNamespace, two_sided: bool, hidden: int) -> None:
    """What Inseq gives becomes the continuation that it came from."""
    one = story(two_sided)
    fields = page.to_inseq(
        one, lambda text: {"input_ids": [1, 2] if two_sided else [1, 2, 3]}, [0] if two_sided else ()
    )
    if hidden:  # shares that add up
        shares = torch.tensor([0.5, 0.25, 0.125, 0.125])
        for name in ("source_attributions", "target_attributions"):
            fields[name] = None if fields[name] is None else fields[name][..., None] * shares
    back = page.from_inseq(one, SimpleNamespace(**fields), "theirs")
    np.testing.assert_allclose(back.matrix, one.matrix)
    assert replace(back, parts=one.parts) == replace(one, method="theirs")


@pytest.mark.filterwarnings("ignore")  # theirs
def test_the_whole_page_with_the_real_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block in order, those with imports of other libraries too: the page's own asserts compare the numbers."""
    for name in ("captum", "inseq", "quantus", "IPython"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks("python|py"):
        exec(compile(block, "interoperability.md", "exec"), namespace)
    saved = namespace["inseq"].FeatureAttributionOutput.load(tmp_path / "story.json").sequence_attributions[0]
    own = namespace["story"]
    np.testing.assert_allclose(namespace["from_inseq"](own, saved, "saved").matrix, own.matrix, atol=1e-5)
    assert "inseq: input_x_gradient" in (tmp_path / "inseq.html").read_text()
    assert len(namespace["curves"]) == 2


@pytest.mark.filterwarnings("ignore")
def test_inseq_under_relprops_rules() -> None:
    """Input times gradient of another library, inside the rules, is the rules' own method."""
    inseq = pytest.importorskip("inseq")
    stories = relprop.Explainer("stories")
    prompt, written = "Tom said to", " Lily"
    own = stories(prompt, continuation=written, method="lrp_conservative")
    model = inseq.load_model(stories.model, "input_x_gradient", tokenizer=stories.tokenizer)
    with relprop.rules("lrp_conservative"):
        found = model.attribute(prompt, prompt + written, attributed_fn="logit", show_progress=False)
    theirs = found.sequence_attributions[0].target_attributions.sum(-1).nan_to_num().T
    np.testing.assert_allclose(theirs.numpy(), own.matrix, atol=1e-5)
