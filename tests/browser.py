"""A real browser for tests, steered over a pipe: Chromium if it is there, and no package for it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from base64 import b64decode
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")


def _pipe() -> tuple[int, int]:
    """Out of the way of descriptors 3 and 4."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


class Page:
    """One page of a headless browser: pointed at, typed into, asked, and looked at."""

    def __init__(
        self, path: Path, width: int = 900, height: int = 700, dark: bool = False, script: bool = True
    ) -> None:
        assert CHROMIUM is not None
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (there, self._write), (self._read, back) = _pipe(), _pipe()
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={self._folder.name}", f"--window-size={width},{height}"]
        # Chromium reads commands from descriptor 3 and answers on descriptor 4.
        shell = ["bash", "-c", f'exec "$@" 3<&{there} 4>&{back}', "bash", *command]
        self._process = subprocess.Popen(
            shell, pass_fds=(there, back), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(there)
        os.close(back)
        self._buffer, self._count, self._session = b"", 0, ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Emulation.setScriptExecutionDisabled", value=not script)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=features)
        self._call("Page.enable")
        self._call("Page.navigate", url=path.resolve().as_uri())
        self._until("Page.loadEventFired")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(600)
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        return self._call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def point(self, selector: str, click: bool = False) -> None:
        """Move the pointer to the middle of an element; perhaps click."""
        box = f"(e => {{const b = e.getClientRects()[0]; return [b.x + b.width / 2, b.y + b.height / 2]}})({selector})"
        x, y = self.ask(box)
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key)

    def look(self, path: Path) -> None:
        """Save what is seen as a picture."""
        path.write_bytes(b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _until(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._read, 1 << 16)
            assert more, "the browser has gone"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
