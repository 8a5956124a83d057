"""The command line: `relprop explain`, `check`, `methods`, `heads`, `bench`, `audit`, `serve`."""

from relprop.cli.app import app, main

__all__ = ["app", "main"]
