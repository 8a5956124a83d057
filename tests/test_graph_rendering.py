"""Drawings of graphs: what is coloured, where it lies, what a page or a figure may hold, and JSON that draws again."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.path import Path as Outline
from PIL import Image

from explanations import of_graph
from graph_models import ASPIRIN, MOLECULES, graphormer
from relprop import Explainer
from relprop.errors import InputError
from relprop.explanation import Explanation, save, show
from relprop.graph import Graph, from_networkx, from_smiles, superpixels
from relprop.render.graph.drawing import INK, OPACITY, PAPER, GraphMap, drawn
from relprop.render.graph.figure import draw, outline
from relprop.render.graph.html import html
from relprop.render.graph.layout import caption, described, grid
from relprop.render.graph.node_positions import placed, reach
from relprop.render.graph.shapes import Drawing, Shape
from relprop.render.image.overlay import painted
from relprop.render.palette import BLACK, SIGNED, as_hex, contrast
from test_render import HOSTILE, Elements

SVG = "{http://www.w3.org/2000/svg}"
RED, BLUE, WHITE = "#c85966", "#5f91c3", "#ffffff"  # the palette's poles as strong as black letters allow
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
ARTEMISININ = "C[C@H]1CC[C@H]2[C@@H](C)C(=O)O[C@@H]3O[C@]4(C)CC[C@@H]1[C@]23OO4"


def made(graph: Graph, scores: list[float] | None = None, method: str = "lrp", **words: object) -> GraphMap:
    values = np.linspace(-1, 2, len(graph)) if scores is None else np.array(scores, dtype=float)
    return GraphMap(graph, values, method, **{"target": "yes", "value": 1.5, **words})  # type: ignore[arg-type]


def plain(count: int, edges: list[tuple[int, int]] = [], **words: object) -> Graph:  # noqa: B006
    return Graph.of(np.zeros(count), edges, **words)  # type: ignore[arg-type]


def told(drawing: Drawing) -> dict[str, Shape]:
    """The shapes that stand for something, by what they say."""
    return {shape.title: shape for shape in drawing.shapes if shape.title}


def middle(shape: Shape) -> np.ndarray:
    box = outline(shape).get_extents()
    return np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])


def digit() -> np.ndarray:
    """A bright seven on black."""
    picture = np.zeros((28, 28))
    picture[5:8, 6:21] = 1
    picture[8:24, 16:19] = 1
    return picture


def hostile() -> list[GraphMap]:
    graphs = [plain(4, RING, names=[text] * 4, title=text) for text in HOSTILE]
    return [
        made(graph, method=text, target=text, prediction=text, edges=np.arange(4.0))
        for graph, text in zip(graphs, HOSTILE, strict=True)
    ]


# Molecules


def test_atoms_have_the_colour_of_their_scores() -> None:
    found = told(drawn(made(from_smiles("CCO"), [0.0, -2.0, 2.0])))
    assert {title: shape.fill for title, shape in found.items()} == {
        "C0: +0.000": WHITE, "C1: -2.000": BLUE, "O2: +2.000": RED
    }  # fmt: skip


def test_a_colour_lies_under_its_own_atom() -> None:
    """The only letters of ethanol are those of its oxygen."""
    drawing = drawn(made(from_smiles("OCC")))
    letters = next(shape for shape in drawing.shapes if shape.fill == "#000000")
    away = {title: np.linalg.norm(middle(shape) - middle(letters)) for title, shape in told(drawing).items()}
    assert min(away, key=lambda title: away[title]).startswith("O0")
    assert away["O0: -1.000"] < 12 < min(away["C1: +0.500"], away["C2: +2.000"])


def test_colours_of_bonds_lie_along_them() -> None:
    """Broader and on top the stronger; what is weakest is left out."""
    graph = from_smiles("CCCO")
    found = [shape for shape in drawn(made(graph, edges=np.array([1.0, -3.0, 0.01]))).shapes if "–" in shape.title]
    assert [shape.title for shape in found] == ["C0 – C1: +1.000", "C1 – C2: -3.000"]
    assert [shape.stroke for shape in found][1] == BLUE
    assert found[1].width == pytest.approx(3 * found[0].width)
    discs = told(drawn(made(graph, [0, 0, 0, 0])))
    ends = [middle(discs["C0: +0.000"]), middle(discs["C1: +0.000"])]
    assert np.allclose(outline(found[0]).vertices, ends, atol=0.02)


@pytest.mark.parametrize(
    "smiles", ["C", "[Na+].[Cl-]", "CC(=O)[O-].[Na+]", "C" * 200, ARTEMISININ, "[H][H]", "[2H]", "*"]
)
def test_any_molecule_is_drawn(smiles: str, capfd: pytest.CaptureFixture[str]) -> None:
    """One disc an atom, also where hydrogens are drawn for their place in space; all within the box; not a word."""
    graph = from_smiles(smiles)
    drawing = drawn(made(graph))
    assert len(told(drawing)) == len(graph)
    left, top, width, height = drawing.box
    for shape in drawing.shapes:
        box = outline(shape).get_extents()
        assert left <= box.x0 <= box.x1 <= left + width
        assert top <= box.y0 <= box.y1 <= top + height
    assert "".join(capfd.readouterr()) == ""


def test_what_is_no_molecule_of_these_bonds_is_drawn_as_nodes_and_links() -> None:
    """A source may be any words, or another molecule's."""
    for source in ("a story", "CCO"):
        drawing = drawn(made(plain(4, RING, source=source)))
        assert [label.text for label in drawing.labels] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("film", [SIGNED, PAPER])
def test_letters_are_readable_on_every_colour(film: object) -> None:
    shades = np.linspace(-1 if film is SIGNED else 0, 1, 101)
    colours = painted(np.full(101, 255, np.uint8), shades, film, OPACITY)  # type: ignore[arg-type]
    ink = tuple(int(INK[i : i + 2], 16) for i in (1, 3, 5))
    assert min(contrast(tuple(map(int, colour)), BLACK) for colour in colours) > 4.5  # type: ignore[arg-type]
    assert min(contrast(tuple(map(int, colour)), ink) for colour in colours) > 3.5  # type: ignore[arg-type]


# Superpixels


def test_regions_are_painted_where_they_are() -> None:
    """The drawing, as pixels, is each region's colour on its own pixels."""
    graph = superpixels(digit())
    scores = np.random.default_rng(0).normal(size=len(graph))
    drawing = drawn(made(graph, list(scores)))
    found = [shape for shape in drawing.shapes if shape.title]
    assert len(found) == len(graph)
    left, _, width, _ = drawing.box
    pixel = (width + 2 * left) / 28
    for region in range(len(graph)):
        here = np.argwhere(graph.source == region)[:, ::-1] + 0.5
        assert outline(found[region]).contains_points(here * pixel).all()
        other = np.argwhere(graph.source != region)[:, ::-1] + 0.5
        assert not outline(found[region]).contains_points(other * pixel).any()


def test_a_digit_is_dark_on_light_and_shows_under_colours() -> None:
    graph = superpixels(digit())
    bright = graph.nodes[:, 0]
    for one in (made(graph).plain(), made(graph, [1e-9] * (len(graph) - 1) + [1.0])):
        fills = [shape.fill for shape in drawn(one).shapes if shape.title]
        light = [sum(int(fill[i : i + 2], 16) for i in (1, 3, 5)) for fill in fills]
        assert light[int(bright[:-1].argmax())] < light[int(bright[:-1].argmin())] - 100


def test_edges_of_superpixels_join_the_centres() -> None:
    graph = superpixels(digit())
    edges = np.zeros(len(graph.edges))
    edges[0] = 1
    bands = [shape for shape in drawn(made(graph, edges=edges)).shapes if "–" in shape.title]
    assert len(bands) == 2  # one dark, broader, under the other
    assert bands[0].width > bands[1].width
    assert np.allclose(outline(bands[1]).vertices, (graph.places[graph.edges[0]] + 0.5) * 150 / 28, atol=0.01)


def test_a_large_picture_keeps_its_drawing_small() -> None:
    """Regions that vanish between the pixels that are kept do no harm."""
    regions = np.zeros((1000, 700), int)
    regions[500:, 350:] = 1
    regions[1, 1] = 2
    drawing = drawn(made(Graph.of(np.zeros((3, 3)), [(0, 1)], source=regions)))
    assert len(told(drawing)) == 2
    assert sum(len(shape.path) for shape in drawing.shapes) < 100_000


# Nodes and links


def test_given_places_are_kept() -> None:
    """Up to their scale: y goes down, as given."""
    places = np.array([(0, 0), (3, 1), (1, 2), (0, 5)])
    found = placed(plain(4, RING, places=places))
    assert np.allclose(found / found[1, 0] * 3, places)


def test_places_are_found_where_there_are_none() -> None:
    """The same each time; along a path each node nearest to its neighbours; two nodes are not on each other."""
    path = plain(8, [(i, i + 1) for i in range(7)])
    places = placed(path)
    assert np.array_equal(places, placed(path))
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    assert all(apart[i, i + 1] < apart[i, j] for i in range(7) for j in range(8) if abs(i - j) > 1)
    pair = placed(plain(4, [(0, 1), (2, 3)]))
    assert min(np.linalg.norm(pair[a] - pair[b]) for a, b in combinations(range(4), 2)) > 2 * reach(pair)


@pytest.mark.parametrize("links", ["none", "parts", "many"])
def test_three_hundred_nodes_stand_free(links: str) -> None:
    """Whether alone, in parts or all linked: hardly any disc hides another, and parts lie apart."""
    rng = np.random.default_rng(0)
    edges = {
        "none": [],
        "parts": [(5 * k + i, 5 * k + (i + 1) % 5) for k in range(60) for i in range(5)],
        "many": [(i, int(rng.integers(i))) for i in range(1, 300)],
    }[links]
    graph = plain(300, edges)
    places = placed(graph)
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.diag([np.inf] * 300)
    hidden = (apart.min(1) < reach(places)).mean()
    assert hidden < (0.15 if links == "many" else 1e-9)
    if links == "parts":
        part = np.arange(300) // 5
        assert apart[part[:, None] != part[None]].min() > 2 * reach(places)
    assert len(told(drawn(made(graph)))) == 300


def test_names_are_written_where_they_fit() -> None:
    graph = plain(3, names=["heart", "a name that is much too long for a disc", "x"])
    assert [label.text for label in drawn(made(graph)).labels] == ["heart", "x"]


def test_nodes_at_one_place_and_a_single_node_are_drawn() -> None:
    for graph in (plain(3, places=np.zeros((3, 2))), plain(1)):
        drawing = drawn(made(graph))
        assert np.isfinite(drawing.box).all()
        assert min(drawing.box[2:]) > 20


# What is around the drawings


def test_maps_make_a_grid_of_graphs_and_methods() -> None:
    """Equal graphs share a row though they are two values; a method that comes again gets another column."""
    first, second = from_smiles("CCO"), from_smiles("CCN")
    maps = [made(first, method="a"), made(second, method="b"), made(from_smiles("CCO"), method="b"),
            made(first, method="a", target="no"), made(first, method="a")]  # fmt: skip
    table = grid(maps)
    assert table.methods == ("a", "b", "a")
    assert [[cell is not None for cell in row.cells] for row in table.rows] == [
        [True, True, True], [False, True, False], [True, False, False]
    ]  # fmt: skip
    draw(maps)
    assert html(maps).count(" –</figcaption>") == 4


def test_the_words_around_a_drawing() -> None:
    words = caption(made(from_smiles("CCO"), [1, 2, -3], rest=0.25, prediction="yes (0.90)"))
    assert words.subject == ("yes = 1.500", "predicted yes (0.90)")
    assert words.total == "scores -3.000 to +2.000, virtual node +0.250"
    assert len(caption(made(from_smiles("C" * 200))).note) == 60
    assert described(made(from_smiles("CCO"), [1, 2, -3])) == (
        "lrp, yes = 1.500; supported most by C1 (+2.000), C0 (+1.000); opposed most by O2 (-3.000)"
    )
    assert "strongest C1" in described(made(from_smiles("CCO"), [1, 2, 0], signed=False))
    assert "all scores are 0" in described(made(from_smiles("CCO")).plain())


@pytest.mark.parametrize("scores", [[1.0, np.nan, 0.0], [1.0, 2.0]])
def test_scores_that_cannot_be_drawn_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="one finite score for each of the graph's 3 nodes"):
        made(from_smiles("CCO"), scores)


def test_a_path_of_svg_is_one_of_matplotlib() -> None:
    path = outline(Shape("M 0 1 L 2 -3 Q 1 1 2 2 C 1 2 3 4 5 6 Z"))
    assert path.codes is not None
    assert list(path.codes) == [Outline.MOVETO, Outline.LINETO, *[Outline.CURVE3] * 2, *[Outline.CURVE4] * 3, 79]
    assert path.vertices[:3].tolist() == [[0, 1], [2, -3], [1, 1]]


# Pages and figures


@pytest.mark.parametrize("full_page", [True, False])
def test_hostile_names_do_nothing_in_a_page(full_page: bool) -> None:
    usual = made(plain(4, RING), edges=np.arange(4.0))
    tags = {tag for tag, _ in Elements(html([usual], full_page=full_page)).tags}
    page = html(hostile(), full_page=full_page, title="</title><script>x</script>")
    found = Elements(page)
    assert {tag for tag, _ in found.tags} == tags
    assert not any(name.startswith("on") for _, attrs in found.tags for name in attrs)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", page)
    assert "<script>alert(1)</script>: +2.000" in found.text  # told in full by pointing at it


def test_short_names_are_escaped_too() -> None:
    """Those that fit in a disc are written in it."""
    found = Elements(html([made(plain(2, [(0, 1)], names=["<a>", "&lt;"]))]))
    assert "a" not in [tag for tag, _ in found.tags]
    assert {"<a>", "&lt;"} <= set(found.text)


def test_a_page_needs_nothing_from_outside_and_no_script() -> None:
    page = html([made(from_smiles(ASPIRIN)), made(superpixels(digit()))])
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page
    assert not re.search(r"https?:|url\((?!data:image/png;base64,)|@import|href=|<script|<link|\bon\w+=", page)


def test_a_page_tells_each_score_and_shows_the_picture_itself() -> None:
    graph = superpixels(digit())
    found = Elements(html([made(graph, method=name) for name in ("a", "b")]))
    labels = [attrs["aria-label"] for tag, attrs in found.tags if tag == "svg"]
    assert [label.split(",")[0] for label in labels if label] == ["the picture itself", "a", "b"]
    assert found.text.count("0: -1.000") == 2


def test_hostile_names_do_nothing_in_a_figure(tmp_path: Path) -> None:
    explained = [
        of_graph(one.graph, np.asarray(one.scores), "lrp", one.target, 1.0, prediction=one.prediction)
        for one in hostile()
    ]
    save(explained, tmp_path / "x.svg")
    tags = {str(element.tag) for element in ElementTree.fromstring((tmp_path / "x.svg").read_text()).iter()}
    assert f"{SVG}path" in tags
    assert not [tag for tag in tags if "script" in tag or "foreignObject" in tag]


def test_a_saved_molecule_is_a_vector(tmp_path: Path) -> None:
    """Colours and letters are paths; only the bar of the legend is pixels."""
    explained = of_graph(from_smiles("CCO"), np.array([0.0, -2, 2]), "lrp", "yes", 1.0)
    explained.save(tmp_path / "x.svg")
    root = ElementTree.fromstring((tmp_path / "x.svg").read_text())
    assert len(list(root.iter(f"{SVG}image"))) == 1
    styles = " ".join(element.get("style", "") for element in root.iter(f"{SVG}path"))
    for paint in (f"fill: {RED}", f"fill: {BLUE}", "stroke: #000000"):
        assert paint in styles


def test_a_saved_picture_has_the_colours(tmp_path: Path) -> None:
    """Red is on the oxygen's side of the page and blue on the other; the whole legend is there."""
    explained = of_graph(from_smiles("CCCCCO"), np.array([-2.0, 0, 0, 0, 0, 2]), "lrp", "yes", 1.0)
    explained.save(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    upper = pixels[: int(0.7 * len(pixels))]

    def where(colour: str) -> np.ndarray:
        rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        return np.argwhere(np.abs(upper - rgb).max(-1) <= 1)

    assert min(len(where(RED)), len(where(BLUE))) > 300
    drawing = told(drawn(explained.drawings[0][1]))
    side = np.sign(middle(drawing["O5: +2.000"])[0] - middle(drawing["C0: -2.000"])[0])
    assert np.sign(where(RED)[:, 1].mean() - where(BLUE)[:, 1].mean()) == side
    assert (pixels[:, -5:] == 255).all()


def test_many_methods_of_a_wide_molecule_stay_readable() -> None:
    """A drawing has at least 0.45 of its natural size, and one of its own fills no more than it needs."""
    graph = from_smiles("C" * 60)
    natural = drawn(made(graph)).box[2] / 72
    assert draw([made(graph, method=f"method_{i}") for i in range(4)]).get_size_inches()[0] > 4 * 0.45 * natural
    assert draw([made(from_smiles("C"))]).get_size_inches()[0] < 7


# Explanations


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer(graphormer(MOLECULES))


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html", "json"])
def test_explanations_are_saved(explainer: Explainer, tmp_path: Path, ending: str) -> None:
    """Several graphs by several methods, edges where a method has them."""
    found = explainer([ASPIRIN, "CCO"], method=["gae", "lrp_ah_ln"], pairs=True)
    assert found[0][0].part.edges is not None
    assert found[0][1].part.edges is None
    path = tmp_path / f"x.{ending}"
    save([one for each in found for one in each], path)
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!DOCTYPE html>", "json": b"["}[ending]
    assert path.read_bytes().startswith(start)
    found[0][0].save(path)
    with pytest.raises(InputError, match="must end in"):
        found[0][0].save(tmp_path / "x.txt")


def test_a_notebook_shows_a_fragment(explainer: Explainer) -> None:
    fragment = explainer("CCO")._repr_html_()
    assert "<svg" in fragment
    assert "<html" not in fragment
    assert explainer("CCO").to_html().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("graph", [ASPIRIN, superpixels(digit()), plain(4, RING, names=list("abcd"), title="ring")])
def test_json_draws_again(graph: Graph | str) -> None:
    graph = from_smiles(graph) if isinstance(graph, str) else graph
    scores, edges = np.linspace(-1, 1, len(graph)), np.linspace(0, 1, len(graph.edges))
    first = of_graph(graph, scores, "gae", "yes", 1.5, 0.5, "no", 0.75, None, 0.1, edges=edges)
    again = Explanation.from_json(first.to_json())
    assert drawn(again.drawings[0][1]) == drawn(first.drawings[0][1])
    assert again.to_json() == first.to_json()
    assert np.array_equal(again.part.graph.nodes, graph.nodes)
    assert np.array_equal(again.part.graph.edge_types, graph.edge_types)


def test_json_keeps_the_ledger_and_leaves_out_a_foreign_graph(explainer: Explainer) -> None:
    found = explainer("CCO", ledger=True)
    assert found.ledger.entries
    assert Explanation.from_json(found.to_json()).ledger == found.ledger
    networkx = pytest.importorskip("networkx")
    ring = networkx.cycle_graph(4)
    networkx.set_node_attributes(ring, 1, "x")
    graph = from_networkx(ring)
    assert Explanation.from_json(
        of_graph(graph, np.ones(4), "gae", "yes", 1.0).to_json()
    ).part.graph.source is None  # fmt: skip


@pytest.mark.parametrize("text", ["no JSON", "[1]", "{}"])
def test_json_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="this is no explanation saved by relprop"):
        Explanation.from_json(text)


def test_damaged_json_is_refused() -> None:
    text = of_graph(from_smiles("CCO"), np.ones(3), "gae", "yes", 1.0).to_json()
    for damaged in (text.replace('"names"', '"nouns"'), text.replace("[[0, 1]", "[[0, 9]"), text[:-3]):
        with pytest.raises(InputError, match=r"is no explanation saved by relprop|saved explanation is damaged"):
            Explanation.from_json(damaged)


def test_show_prints_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Markup and control characters in a name are neither obeyed nor lost; edges follow where they have scores."""
    graph = plain(3, [(0, 1), (1, 2)], names=["[red]a[/red]", "\x1b[31mb", "c"], title="[/]")
    show([of_graph(graph, np.array([3.0, -2, 1]), "lrp", "yes", 2.0, 0.5, edges=np.array([0.5, -1]))])
    printed = capsys.readouterr().out
    assert "[red]a[/red]" in printed
    assert "\x1b[31m" not in printed
    assert printed.index("[red]a") < printed.index("‹U+001B›[31mb") < printed.index("c  ")
    assert "‹U+001B›[31mb – c" in printed
    assert "sum of scores +2.500, not accounted -0.500 = 2.000; of the virtual node +0.500" in printed


def test_the_strongest_are_told_first() -> None:
    found = of_graph(from_smiles("CCO"), np.array([1.0, -3, 2]), "lrp", "yes", 1.0, edges=np.array([1.0, -2]))
    assert found.top(2) == [("C1", -3.0), ("O2", 2.0)]
    assert found.part.top_edges(1) == [(("C1", "O2"), -2.0)]
    assert of_graph(from_smiles("CCO"), np.ones(3), "lrp", "yes", 1.0).part.top_edges() == []


def test_the_poles_are_the_palettes() -> None:
    """What the tests above call red and blue."""
    poles = painted(np.full(3, 255, np.uint8), np.array([1.0, -1.0, 0.0]), SIGNED, OPACITY)
    assert [as_hex(tuple(map(int, rgb))) for rgb in poles] == [RED, BLUE, WHITE]  # type: ignore[arg-type]
