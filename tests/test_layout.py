"""The shape of the source tree: imports point down the ranks of DESIGN.md, `import relprop` is light, files short."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "relprop"
FILES = sorted(SOURCE.rglob("*.py"))
HEAVY = ("torch", "transformers", "matplotlib", "rich", "numpy", "scipy", "PIL", "typer")

# DESIGN.md, "Layout": a part is a module, or a package with all that is in it.
RANKS = {
    "errors": 0, "types": 0, "registry": 0,
    "files": 0, "text_tables": 0, "progress": 0, "bootstrap": 0, "model_config": 0,
    "ops": 1, "targets": 1, "outputs": 1, "padding": 1, "graph": 1,
    "rulebook": 2, "render": 2,
    "engine": 3,
    "methods": 4, "heads": 4,
    "domains": 5, "metrics": 5, "attribution": 5, "loading": 5,
    "explanation": 6, "image_explanation": 6, "texts": 6, "images": 6,
    "graph_explanation": 6, "graphs": 6, "questions": 6, "language": 6, "continuation": 6, "explainer": 6,
    "evaluation": 6, "checking": 6,
    "bench": 7, "audit": 7,
    "cli": 8,
    "serve": 8,
}  # fmt: skip
# The package's own face: it names everything and imports nothing until asked.
FACE = "__init__"


def name_of(file: Path) -> str:
    return str(file.relative_to(SOURCE))


def part_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def parts_imported(tree: ast.AST) -> set[str]:
    """First names below `relprop` that the code imports, wherever in the file; `TYPE_CHECKING` blocks count too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "relprop":
            below = (node.module or "").split(".")[1:]
            names = [below[0]] if below else [alias.name for alias in node.names]
            found.update(names)
        elif isinstance(node, ast.Import):
            found.update(alias.name.split(".")[1] for alias in node.names if alias.name.startswith("relprop."))
    return found


def test_reading_imports_finds_every_spelling() -> None:
    """The reader below sees plain, from, nested and deferred imports: else the rank test proves nothing."""
    code = "\n".join([
        "import relprop.cli", "from relprop import ops, rules", "from relprop.engine.passes import call", "import os",
        "def f():", "    from relprop.heads import x",
    ])  # fmt: skip
    assert parts_imported(ast.parse(code)) == {"cli", "ops", "rules", "engine", "heads"}


def test_every_part_has_a_rank() -> None:
    """A new module must be placed in the table, or the next test would not look at it."""
    assert {part_of(file) for file in FILES} - {FACE} <= set(RANKS)


@pytest.mark.parametrize("file", [f for f in FILES if part_of(f) != FACE], ids=name_of)
def test_imports_point_down(file: Path) -> None:
    """A module imports only from its own part, or from a part of the same or a lower rank."""
    own = part_of(file)
    imported = parts_imported(ast.parse(file.read_text()))
    upwards = {part for part in imported - {"__version__"} if RANKS.get(part, 99) > RANKS[own]}
    assert not upwards, f"{name_of(file)} (rank {RANKS[own]}) imports upwards: {sorted(upwards)}"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_no_relative_imports(file: Path) -> None:
    """Relative imports would pass by the rank test unseen."""
    nodes = ast.walk(ast.parse(file.read_text()))
    assert not [node.lineno for node in nodes if isinstance(node, ast.ImportFrom) and node.level]


def test_no_import_cycle() -> None:
    """Same rank may import same rank, but never in a circle."""
    graph: dict[str, set[str]] = {}
    for file in FILES:
        if part_of(file) != FACE:
            graph.setdefault(part_of(file), set()).update(parts_imported(ast.parse(file.read_text())) - {part_of(file)})
    while leaves := {part for part, needs in graph.items() if not needs & set(graph)}:
        graph = {part: needs for part, needs in graph.items() if part not in leaves}
    assert not graph, f"a circle among {sorted(graph)}"


def test_import_is_light() -> None:
    """`import relprop` loads none of the heavy packages, so that the command line answers at once."""
    code = f"import sys, relprop; dir(relprop); print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    "first", ["relprop.attribution", "relprop.explainer", "relprop.checking", "relprop.cli", "relprop"]
)
def test_public_names_are_never_modules(first: str) -> None:
    """A module of the same name as a function (rules, attribute, explain, check) must not take its place."""
    code = (
        f"import {first}, relprop, types; relprop.attribute; relprop.Explainer; relprop.check; relprop.explain\n"
        "print(*[n for n in relprop.__all__ if isinstance(getattr(relprop, n), types.ModuleType)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_files_are_short(file: Path) -> None:
    """One idea a file: none beyond 400 lines."""
    assert len(file.read_text().splitlines()) <= 400
