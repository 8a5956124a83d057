"""The command line's reference, from the commands themselves: `tools/pages.py` puts it on docs/cli.md.

python tools/cli_page.py    # print it
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from relprop.cli import app

MARK = "<!-- every command: python tools/cli_page.py -->"


def reference() -> str:
    """All commands, each under a heading of its own."""
    return "\n".join(_sections(get_command(app), "relprop"))


def _sections(command: Any, path: str) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if not children:
        yield _section(command, path)
    for name, child in children.items():
        yield from _sections(child, f"{path} {name}")


def _section(command: Any, path: str) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join([path, *(_name(one) for one in arguments), "[OPTIONS]"])
    lines = [f"## {path}", "", command.help or "", "", "```", usage, "```", "", "| | default | |", "|---|---|---|"]
    lines += [f"| `{_name(one)}` | {_default(one)} | {_cell(one.help)} |" for one in arguments]
    for one in options:
        lines.append(f"| `{', '.join([*one.opts, *one.secondary_opts])}` | {_default(one)} | {_cell(one.help)} |")
    return "\n".join(lines) + "\n"


def _name(argument: Any) -> str:
    return argument.metavar or (argument.name.upper() if argument.required else f"[{argument.name.upper()}]")


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or value == () or value == [] or callable(value):
        return "required" if parameter.required else ""
    return f"`{value}`"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    print(reference())
