"""The same application under Ray Serve, as docs/serve.md deploys it: on a cluster of its own, never on another's."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from relprop.explainer import Explainer
from serving_for_tests import HANG, TEXT, Live

PAGE = Path(__file__).parent.parent / "docs" / "serve.md"
# Ray connects to a cluster that runs here already, unless told not to; and it listens everywhere, unless told not to.
ENVIRONMENT = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
BEFORE = """
import ray, sys
from ray import serve
quiet = dict(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
ray.init(address="local", num_cpus=2, object_store_memory=2**27, **quiet)
serve.start(http_options=dict(host="127.0.0.1", port=int(sys.argv[1])))
"""
AFTER = """
print("deployed", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
"""


@contextmanager
def deployed(block: str) -> Iterator[Live]:
    """The page's deployment, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", BEFORE + block + AFTER, str(port)]
    environment = {**os.environ, **ENVIRONMENT}
    environment.pop("RAY_ADDRESS", None)
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert started.stdout is not None
        said = next((line for line in started.stdout if line == "deployed\n"), "")
        assert said, started.communicate()[1]
        yield Live(None, port)
    finally:
        started.communicate("", timeout=HANG)


@pytest.mark.slow
def test_the_documented_deployment_serves() -> None:
    if not all(map(find_spec, ("ray", "grpc"))):
        pytest.skip("needs ray[serve]")
    (block,) = (one for one in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if "ray" in one)
    with deployed(block) as live:
        assert live.get("/v2/health/live").json == {"live": True}
        live.wait()
        found = live.explain(TEXT, method="lrp_ah_ln").json["explanations"][0]
        own = Explainer("sentiment")(TEXT, method="lrp_ah_ln")
        assert found["scores"] == pytest.approx(own.scores, rel=1e-4, abs=1e-6)
        refused = live.explain("")
        assert (refused.status, refused.error) == (400, "the text is empty: there is nothing to explain")
