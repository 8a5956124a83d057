"""Makes relprop's list of gendered first names from the lists of the 1990 census of the United States.

The three lists (name, percent, ...) are in the source archive of the package `names` (0.3.0) on PyPI:

python tools/first_names.py names/dist.female.first names/dist.male.first names/dist.all.last \
    src/relprop/audit/data/first_names.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

RATIO = 10  # a name is of one gender where it is at least so many times as frequent as in the other


def read_census(path: Path) -> dict[str, float]:
    """Percent of the people who bear each name."""
    lines = [line.split() for line in path.read_text("ascii").splitlines() if line.strip()]
    return {line[0].capitalize(): float(line[1]) for line in lines}


def gendered(
    female: Mapping[str, float], male: Mapping[str, float], surnames: Mapping[str, float]
) -> list[tuple[str, str]]:
    """Name and group, in order of both: names clearly of one gender that more people bear in front than behind."""
    found = []
    for name in {*female, *male}:
        women, men = female.get(name, 0.0), male.get(name, 0.0)
        group = "female" if women >= RATIO * men else "male" if men >= RATIO * women else ""
        if group and (women + men) / 2 > surnames.get(name, 0.0):  # half of the people are of either gender
            found.append((name, group))
    return sorted(found, key=lambda pair: (pair[1], pair[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("female", type=Path, help="dist.female.first")
    parser.add_argument("male", type=Path, help="dist.male.first")
    parser.add_argument("surnames", type=Path, help="dist.all.last")
    parser.add_argument("output", type=Path, help="the CSV of term,group")
    args = parser.parse_args()
    names = gendered(read_census(args.female), read_census(args.male), read_census(args.surnames))
    args.output.write_text("term,group\n" + "".join(f"{name},{group}\n" for name, group in names), "ascii")
    counts = {group: sum(one == group for _, one in names) for group in ("female", "male")}
    print(f"{args.output}: {args.output.stat().st_size:,} bytes, {counts}")


if __name__ == "__main__":
    main()
