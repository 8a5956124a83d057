"""The release: what the wheel and the sdist hold, one version everywhere, and commands that the reference tells."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from typer.main import get_command

import cli_page
import pages
import relprop
from relprop.cli import app
from relprop.embedded import MODELS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, made without a network."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def tracked(*under: str) -> set[str]:
    """The files of the source tree that git knows; skips where there is no git."""
    done = subprocess.run(["git", "ls-files", *under], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout:
        pytest.skip("not a git repository")
    return set(done.stdout.splitlines())


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    """Code, weights, templates, scripts of the page, type marker, licences."""
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"relprop-{relprop.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if not name.endswith("/")}
        metadata = file.read(f"relprop-{relprop.__version__}.dist-info/METADATA").decode()
    assert {f"src/{name}" for name in names if name.startswith("relprop/")} == tracked("src/relprop")
    for name in ("relprop/py.typed", "relprop/serve/page/index.html", "relprop/__main__.py"):
        assert name in names
    for model in MODELS:
        weights = [name for name in names if name.startswith(f"relprop/models/{model.name}/model")]
        assert any(name.endswith(".safetensors") for name in weights)
    others = {name.partition("/")[0] for name in names}
    assert others == {"relprop", f"relprop-{relprop.__version__}.dist-info"}
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert "License-Expression: Apache-2.0" in metadata
    assert "Description-Content-Type: text/markdown" in metadata
    assert wheel.stat().st_size < 60e6  # PyPI takes 100 MB


def test_the_sdist_holds_what_tests_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    wanted = tracked("src", "tests", "tools", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE")
    assert wanted <= names


def test_one_version() -> None:
    """In the package, the project, the citation and the changelog."""
    version = relprop.__version__
    assert PROJECT["version"] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version} - " in (ROOT / "CHANGELOG.md").read_text()


def test_extras_are_there_and_pinned() -> None:
    """What messages tell users to install exists; what developers install is pinned."""
    told = {
        extra
        for file in (ROOT / "src").rglob("*.py")
        for extra in re.findall(r"relprop\[(\w+)\]", file.read_text(encoding="utf-8"))
    }
    assert told <= set(PROJECT["optional-dependencies"])
    pinned = {re.split("[=<>;]", line)[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    names = {re.split(r"[\[<>=; ]", one)[0].lower() for one in wanted} - {"relprop"}
    assert {name.replace("_", "-") for name in names} <= {name.replace("_", "-") for name in pinned}


def test_workflows_are_yaml_and_name_files_that_exist() -> None:
    yaml = pytest.importorskip("yaml")
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        content = workflow.read_text()
        assert yaml.safe_load(content)["jobs"]
        for name in re.findall(r"(?:tests|tools)/\w+\.py", content):
            assert (ROOT / name).exists(), name


def test_the_reference_tells_every_option() -> None:
    """Of every command, with its help; the page has its place for it, and the site puts it there."""
    text = cli_page.reference()

    def told(command: object, path: str) -> None:
        for name, child in getattr(command, "commands", {}).items():
            told(child, f"{path} {name}")
        if not hasattr(command, "commands"):
            section = text.partition(f"## {path}\n")[2].partition("\n## ")[0]
            for parameter in command.params:  # type: ignore[attr-defined]
                assert parameter.opts[0] in section or parameter.param_type_name == "argument", (path, parameter.name)
                assert (parameter.help or "").replace("|", "\\|") in section, (path, parameter.name)

    told(get_command(app), "relprop")
    page = (ROOT / "docs" / "cli.md").read_text()

    class At:
        class file:  # noqa: N801
            src_uri = "cli.md"

    assert page.count(cli_page.MARK) == 1
    assert "## relprop explain" in pages.on_page_markdown(page, At)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_a_clean_environment(built: Path, tmp_path: Path, kind: str) -> None:
    """Installed into an environment of its own, away from the source: the command explains a sentence."""
    (package,) = built.glob(kind)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "clean")], check=True)
    programs = tmp_path / "clean" / ("Scripts" if sys.platform == "win32" else "bin")
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([programs / "pip", "install", "-q", *constraints, str(package)], check=True, cwd=tmp_path)
    command = [programs / "relprop", "explain", "a gorgeous, witty, seductive movie."]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, env=clean()
    )
    assert "gorgeous" in done.stdout
    typed = "import relprop, pathlib; print(pathlib.Path(relprop.__file__).with_name('py.typed').exists())"
    done = subprocess.run([programs / "python", "-c", typed], check=True, capture_output=True, text=True, env=clean())
    assert done.stdout == "True\n"


def clean() -> dict[str, str]:
    """An environment in which the source tree is not found."""
    import os

    return {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, "HF_HUB_OFFLINE": "1"}
