"""The service: KServe's V1 protocol and a page, by FastAPI. `relprop serve MODEL`, or `application(...)` in code."""

from relprop.serve.app import application
from relprop.serve.limits import Limits

__all__ = ["Limits", "application"]
