"""Run the notebooks of docs/notebooks and keep what they show, without anything that differs from run to run.

python tools/notebooks.py                               # all of them, in place
python tools/notebooks.py docs/notebooks/text.ipynb     # one
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
PATIENCE = 600  # seconds a cell
QUIET = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore:IProgress not found"}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def executed(path: Path) -> Any:
    """The notebook run from top to bottom in an empty folder; the first error ends it."""
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as beside:
        where = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=PATIENCE, coalesce_streams=True, resources=where)
        client.create_kernel_manager().set_trait("transport", "ipc")  # opens no port
        client.km.set_trait("ip", f"{beside}/kernel")
        client.execute(env=QUIET)
    return cleaned(notebook)


def cleaned(notebook: Any) -> Any:
    """No times, versions or paths; beside a drawing, no text that stands in for it."""
    notebook.metadata = METADATA
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if {"text/html", "text/markdown", "image/jpeg", "image/png"} & set(data):
                data.pop("text/plain", None)
    return notebook


def main() -> None:
    import nbformat

    for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        notebook = executed(path)
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
