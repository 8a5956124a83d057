"""The shape of the source tree: imports point down the ranks of DESIGN.md, `import relprop` is light, files short."""

import ast
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

import relprop.methods  # noqa: F401  (tells the registry where the methods are)

SOURCE = Path(__file__).parents[1] / "src" / "relprop"
FILES = sorted(SOURCE.rglob("*.py"))
HEAVY = ("torch", "transformers", "matplotlib", "rich", "numpy", "scipy", "PIL", "typer")

# DESIGN.md, "Layout": what stands in a row imports only from the rows above it. A name is a module of the root, or a
# package with all that is in it.
ROWS = (
    "errors plugins deadline progress bootstrap model_config library_logging tokenising",
    "stored_weights embedded",
    "adapter_folders gguf_files loaded_weights paired_processor",
    "types registry part files text_tables listing ops outputs padding graph",
    "targets rulebook render similarity",
    "engine",
    "heads metrics encoders",
    "methods readers loading evaluation",
    "attribution saved_explanations drawings exports widget",
    "explanation checking",
    "explanation_list",
    "tasks",
    "explainer captum inseq quantus",
    "bench",
    "audit serve",
    "cli",
    "__main__",
)
RANKS = {name: rank for rank, row in enumerate(ROWS) for name in row.split()}
# The package's own face: it names everything and imports nothing until asked.
FACE = "relprop"
Imports = dict[str, set[str]]


def name_of(file: Path) -> str:
    return str(file.relative_to(SOURCE))


def module_of(file: Path) -> str:
    """`relprop.engine.passes`; a package's `__init__.py` is the package."""
    return ".".join(("relprop", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_of(file): ast.parse(file.read_text()) for file in FILES}


def modules_imported(tree: ast.AST, modules: Collection[str]) -> set[str]:
    """The modules that the code imports, wherever in the file: in functions, in `TYPE_CHECKING` blocks, by name.

    By name: a text that is a module, or "module:object", as tables for `import_module` hold them.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            package = node.module or ""
            inside = {f"{package}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else package for name in inside}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.partition(":")[0])
    return found & set(modules)


def parts_imported(tree: ast.AST) -> set[str]:
    """The parts, as `ROWS` names them, of the modules that the code imports."""
    return {name.split(".")[1] for name in modules_imported(tree, MODULES) - {FACE}}


def circle(graph: Imports) -> list[str]:
    """Modules that import each other in a circle; none is the good answer."""
    while leaves := {name for name, needs in graph.items() if not needs & set(graph)}:
        graph = {name: needs for name, needs in graph.items() if name not in leaves}
    while roots := set(graph) - {one for needs in graph.values() for one in needs}:  # they only lead to a circle
        graph = {name: needs for name, needs in graph.items() if name not in roots}
    return sorted(graph)


def test_reading_imports_finds_every_spelling() -> None:
    """Plain, from, nested and deferred imports, and those by name: else no test here proves anything."""
    code = "\n".join([
        "import relprop.cli", "from relprop import ops, rules", "from relprop.engine.passes import call", "import os",
        "def f():", "    from relprop.heads import x, masks", "if TYPE_CHECKING:", "    import relprop.types",
        "TABLE = {'text': 'relprop.render.text.part:TextPart', 'os': 'os:path'}",
    ])  # fmt: skip
    assert modules_imported(ast.parse(code), MODULES) == {
        "relprop", "relprop.cli", "relprop.ops", "relprop.engine.passes", "relprop.heads", "relprop.heads.masks",
        "relprop.types", "relprop.render.text.part",
    }  # fmt: skip
    assert parts_imported(ast.parse(code)) == {"cli", "ops", "engine", "heads", "types", "render"}


def test_circles_are_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circle({"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set()}) == ["b", "c"]


def test_every_part_has_a_rank() -> None:
    """A new module must be placed in the table, and the table holds no others."""
    assert {name.split(".")[1] for name in MODULES if name != FACE} == set(RANKS)


def test_imports_point_down() -> None:
    """A module imports only from its own part, or from parts of a lower rank."""
    upwards = []
    for module, tree in MODULES.items():
        own = module.split(".")[1] if module != FACE else None
        if own is not None:
            upwards += [f"{module} -> {part}" for part in parts_imported(tree) - {own} if RANKS[part] >= RANKS[own]]
    assert not upwards


def test_no_relative_imports() -> None:
    """Relative imports would pass by the rank test unseen."""
    every = ((module, node) for module, tree in MODULES.items() for node in ast.walk(tree))
    assert not [module for module, node in every if isinstance(node, ast.ImportFrom) and node.level]


def test_no_import_cycle() -> None:
    """Module by module, imports in functions included: a circle that is deferred is a circle all the same."""
    graph = {name: modules_imported(tree, MODULES) - {name, FACE} for name, tree in MODULES.items() if name != FACE}
    found = circle(graph)
    assert not found, f"a circle among {found}"


def test_one_class_name_one_meaning() -> None:
    """No two classes of one name in the package, private or not, and no type of a class's name."""
    homes: dict[str, list[str]] = {}
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(f"{module}.{node.name}")
    for module, tree in MODULES.items():
        for name in types_named(tree) & set(homes):
            homes[name].append(f"{module}.{name}")
    assert not [places for places in homes.values() if len(places) > 1]


def types_named(tree: ast.Module) -> set[str]:
    """`Rule = Callable[..., Any]`: names of a module in the case of classes."""
    names = (one for node in tree.body if isinstance(node, ast.Assign) for one in node.targets)
    return {one.id.lstrip("_") for one in names if isinstance(one, ast.Name) and re.search("^_?[A-Z].*[a-z]", one.id)}


def test_import_is_light() -> None:
    """`import relprop` loads none of the heavy packages, so that the command line answers at once."""
    code = f"import sys, relprop; dir(relprop); print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_scipy_is_imported_where_used() -> None:
    """It takes 0.4 s, and most methods do without. (transformers imports it by itself, with a model.)"""
    code = "import sys, relprop.cli.explain, relprop.explainer; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize(
    "first", ["relprop.attribution", "relprop.explainer", "relprop.checking", "relprop.cli", "relprop"]
)
def test_public_names_are_never_modules(first: str) -> None:
    """A module of the same name as a function (rules, attribute, explain, check) must not take its place."""
    code = (
        f"import {first}, relprop, types; relprop.attribute; relprop.Explainer; relprop.check; relprop.explain\n"
        "print(*[n for n in relprop.__all__ if isinstance(getattr(relprop, n), types.ModuleType)"
        " and not callable(getattr(relprop, n))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_files_are_short() -> None:
    """One idea per file: none beyond 400 lines."""
    assert not [name_of(file) for file in FILES if len(file.read_text().splitlines()) > 400]


def test_a_text_explanation_imports_only_what_it_uses() -> None:
    """Other methods, readers, tasks, renderers, metrics and heads wait until they are asked for."""
    code = "import sys; from relprop.cli import app; app(['explain', 'a witty movie'], standalone_mode=False)\n"
    code += "print('IMPORTED', *[name for name in sys.modules if name.startswith(('relprop.', 'rich.'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.rpartition("IMPORTED ")[2].split())
    assert {"relprop.readers.text", "relprop.tasks.classes", "relprop.methods.relevance"} <= imported
    others = ("metrics", "heads", "evaluation", "bench", "serve", "audit", "saved_explanations")
    others += ("render.image", "render.graph", "render.generation", "readers.image", "readers.graph", "tasks.answers")
    others += ("tasks.generation", "methods.attention", "methods.gradient", "methods.shapley", "render.text.html")
    assert not [name for name in others if f"relprop.{name}" in imported]
    assert "rich.progress" not in imported  # one text has no progress to show


def test_every_method_stands_where_the_registry_looks_for_it() -> None:
    """The table of `relprop.methods` names every method's module, and no other method; the order is the table's."""
    from relprop.registry import METHODS

    homes = {record.name: record.function.__module__ for record in METHODS}
    assert {name: home for name, home in homes.items() if home.startswith("relprop.")} == METHODS.homes
    assert METHODS.names()[: len(METHODS.homes)] == list(METHODS.homes)


def test_a_name_that_is_not_imported_yet_cannot_be_taken() -> None:
    """Else whoever asks first would decide which function the name means."""
    code = (
        "import relprop.methods\nfrom relprop.registry import METHODS\n"
        "def shapley(model, inputs, target): ...\n"
        "METHODS.register(family='baseline', signed=True, gradients=False, citation='')(shapley)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'method "shapley" is registered twice' in done.stderr
