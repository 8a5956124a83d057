"""Tensors stay on the model's device: shown with one that is not there, as machines without an accelerator can."""

import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

CHECKS = Path(__file__).parent / "remote_device_checks.py"


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this version of torch takes no device written in Python",
)
def test_nothing_leaves_the_device() -> None:
    """In a process of its own, as a device once registered stays."""
    run = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=short", "-p", "no:cacheprovider", str(CHECKS)]
    ended = subprocess.run(run, cwd=CHECKS.parents[1], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
