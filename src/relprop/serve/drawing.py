"""Drawing in a process of its own, which can be killed: rdkit holds the interpreter for as long as it lays out."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, TypeVar

T = TypeVar("T")
COMMAND = (sys.executable, "-c", "from relprop.serve.drawing import main; main()")


class DrawingError(Exception):
    """The process ended before it had drawn: it was killed when its time was over, or it crashed."""


class DrawingProcess:
    """A Python process that draws one thing at a time; started when first needed, and again after it was killed."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: Callable[[], T], seconds: float) -> T:
        """`function()`, computed in the process, which is killed after so many seconds."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        stop = threading.Timer(max(0.0, seconds), process.kill)
        stop.start()
        try:
            _send(process.stdin, pickle.dumps(function))
            kind, result = pickle.loads(_receive(process.stdout))
        except (OSError, EOFError):
            self.close()
            raise DrawingError("the drawing was stopped") from None
        finally:
            stop.cancel()
            stop.join()  # so that it cannot kill the process in the next call
        if kind == "error":
            raise result
        value: T = result if kind == "value" else function()
        return value

    def close(self) -> None:
        """End the process, in whatever state it is."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process


def _send(stream: IO[bytes], content: bytes) -> None:
    stream.write(struct.pack("!Q", len(content)) + content)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    """One message; EOFError at the end of the stream."""
    head = stream.read(8)
    content = stream.read(struct.unpack("!Q", head)[0]) if len(head) == 8 else b""
    if not content:
        raise EOFError
    return content


def main() -> None:
    """The process: answers calls until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service ends it
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    while True:
        try:
            content = _receive(calls)
        except EOFError:
            return
        _send(answers, _answered(content))


def _answered(content: bytes) -> bytes:
    try:
        function = pickle.loads(content)
    except (ImportError, AttributeError):  # a class of the user's own script, which only the service knows
        return pickle.dumps(("unreadable", None))
    try:
        return pickle.dumps(("value", function()))
    except Exception as error:
        return pickle.dumps(("error", error))
