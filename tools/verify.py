"""Everything that must hold before a commit: format, lint, types, tests. `--slow` adds the long, real runs."""

import argparse
import os
import subprocess
import sys

CHECKS = (
    ("format", ["ruff", "format", "--check", "."]),
    ("lint", ["ruff", "check", "."]),
    ("types", ["mypy"]),
    ("tests", ["pytest", "-q", "-n", "2", "--dist", "worksteal"]),  # the last files are shared out too
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", action="store_true", help="also run the tests marked slow (whole sweep, benchmarks)")
    args = parser.parse_args()
    checks = [*CHECKS, ("slow tests", ["pytest", "-q", "-m", "slow"])] if args.slow else CHECKS
    for name, command in checks:
        print(f"== {name}", flush=True)
        # One thread per process: two processes of two threads each wait for one another on two cores.
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "HF_HUB_OFFLINE": "1"}
        done = subprocess.run([sys.executable, "-m", *command], check=False, env=environment)
        if done.returncode:
            sys.exit(f"{name} failed")


if __name__ == "__main__":
    main()
