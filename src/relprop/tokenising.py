"""Calls of tokenizers, one thread at a time.

A fast tokenizer keeps the settings of a call (truncation, padding) in itself: another thread's text would be cut too.
"""

from __future__ import annotations

import threading
from typing import Any

_lock = threading.RLock()


def tokenise(tokenizer: Any, *texts: str, **options: Any) -> Any:
    """`tokenizer(*texts, **options)`."""
    with _lock:
        return tokenizer(*texts, **options)
