"""Nothing that users import needs a certain system: no modules, calls or paths that only Linux or only Unix has."""

from __future__ import annotations

import ast
import ctypes
import os
import sys
from pathlib import Path

import pytest

from relprop.cli.bench import usable_cores
from relprop.serve.worker import release_freed_memory

SOURCE = Path(__file__).parents[1] / "src" / "relprop"
MODULES = {"fcntl", "grp", "posix", "pwd", "pty", "resource", "select", "syslog", "termios", "tty"}
CALLS = {
    "os": {"fork", "getuid", "geteuid", "killpg", "mkfifo", "nice", "sched_getaffinity", "setsid", "statvfs", "uname"},
    "signal": {"SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "alarm", "pause", "setitimer"},
}
PATHS = ("/proc/", "/sys/", "/dev/", "/tmp", "/etc/")


def only_unix(tree: ast.AST) -> list[str]:
    """Modules, attributes and paths that other systems lack."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            found += [node.module] if node.module in MODULES else sorted(names & CALLS.get(node.module or "", set()))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [node.attr] if node.attr in CALLS.get(node.value.id, ()) else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] if node.value.startswith(PATHS) else []
    return found


def test_what_only_unix_has_is_found() -> None:
    code = "import fcntl\nfrom os import fork\nos.sched_getaffinity(0)\nsignal.SIGKILL\nopen('/proc/self/status')"
    assert set(only_unix(ast.parse(code))) == {"fcntl", "fork", "/proc/self/status", "sched_getaffinity", "SIGKILL"}


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_file_needs_unix(file: Path) -> None:
    assert only_unix(ast.parse(file.read_text())) == []


def test_cores_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert usable_cores() == os.cpu_count()


def test_memory_where_the_c_library_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows cannot load "the program itself"."""

    def no_name(name: object) -> None:
        raise TypeError("bad argument type for built-in operation")

    monkeypatch.setattr(ctypes, "CDLL", no_name)
    monkeypatch.setattr(sys, "platform", "win32")
    release_freed_memory()
