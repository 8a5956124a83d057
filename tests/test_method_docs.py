"""The pages of docs/methods know every registered method, and every option with its default."""

import re
from typing import Any

import pytest

import method_table
from relprop.registry import METHODS, Record

every_record = pytest.mark.parametrize("record", list(METHODS), ids=lambda record: record.name)
PARTS = ("**Good at.**", "**Bad at.**", "**Cost.**", "**Source.**")


def sections(record: Record[Any]) -> dict[str, str]:
    """Heading -> text of the page on which a method is described."""
    _, *parts = re.split(r"^## ", method_table.page_of(record).read_text(), flags=re.MULTILINE)
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}


def as_written(record: Record[Any]) -> set[str]:
    return {f"{name}={default!r}".replace("'", '"') for name, default in record.options.items()}


def test_the_table_is_the_registry() -> None:
    """After a change: python tools/method_table.py --write."""
    assert method_table.on_page(method_table.INDEX.read_text()) == method_table.table()


@every_record
def test_a_method_has_its_section(record: Record[Any]) -> None:
    section = sections(record)[f"`{record.name}`"]
    assert [part for part in PARTS if part not in section] == []
    assert re.search(r"^```text\n", section, re.MULTILINE), "no formula"


@every_record
def test_every_option_is_described_with_its_default(record: Record[Any]) -> None:
    section = sections(record)[f"`{record.name}`"]
    assert set(re.findall(r"^- `(\w+=[^`]*)`:", section, re.MULTILINE)) == as_written(record)


def test_pages_describe_registered_methods_only() -> None:
    described = {heading for record in METHODS for heading in sections(record) if re.fullmatch(r"`\w+`", heading)}
    assert described == {f"`{name}`" for name in METHODS.names()}


def test_the_readme_names_every_method() -> None:
    readme = (method_table.FOLDER.parent.parent / "README.md").read_text()
    assert [name for name in METHODS.names() if f"`{name}`" not in readme] == []


def test_a_bar_does_not_end_a_cell() -> None:
    def method(*, size: float = 1.0) -> None:
        """The length |x|."""

    record = Record("method", method, "gradient", True, False, "someone")
    assert method_table.row(record) == (
        r"| [`method`](gradient.md#method) | gradient | yes |  |  |  | The length \|x\|. | someone |"
    )
