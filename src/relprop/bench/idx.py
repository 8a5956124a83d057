"""MNIST's own file format, idx: two zero bytes, type, number of dimensions, the dimensions, the bytes."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relprop.errors import InputError

Bytes = NDArray[np.uint8]


def read_idx(path: Path) -> Bytes:
    """The array in a file, gzipped or not."""
    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if path.suffix == ".gz" else raw
        shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
        return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)
    except (OSError, EOFError, IndexError, ValueError, zlib.error) as error:
        raise InputError(f'"{path}" is no file of MNIST: {error}') from error
