"""Everything embedded has a licence, and what says so is in the wheel and in the source archive."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from relprop.embedded import EMBEDDED

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "relprop"
NOTICE = (ROOT / "NOTICE").read_text()


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_card_names_its_licence(name: str) -> None:
    card = (EMBEDDED[name] / "README.md").read_text()
    assert "**Licence.**" in card
    assert "Apache-2.0" in card or "MIT" in card


def test_all_that_is_no_code_is_listed() -> None:
    """Folders of data, models and samples; and each file of data by its name."""
    folders = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if _is_data(path)}
    for folder in sorted(folders):
        inside = folder.parts[1:] if folder.parts[0] == "models" else folder.parts
        assert "/".join(inside) in NOTICE, folder
    for path in [*(PACKAGE / "heads" / "data").iterdir(), *(PACKAGE / "audit" / "data").iterdir()]:
        assert path.suffix == ".md" or path.name in NOTICE


def _is_data(path: Path) -> bool:
    return path.is_file() and path.suffix not in (".py", ".pyc", ".typed") and path.name != "catalog.toml"


def test_the_notice_is_shipped(tmp_path: Path) -> None:
    """With the licence, in what pip installs and in what it builds from."""
    pytest.importorskip("hatchling")
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    (source,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    with tarfile.open(source) as archive:
        sources = archive.getnames()
    for name in ("LICENSE", "NOTICE"):
        assert any(one.endswith(f".dist-info/licenses/{name}") for one in names)
        assert any(one.count("/") == 1 and one.endswith(f"/{name}") for one in sources)
