"""A corpus for `relprop audit names` in which every name stands in the same sentences, and what names do in it.

python benchmarks/name_templates.py write ranking.csv templates.txt
relprop audit names MODEL --texts templates.txt --mentions mentions.csv
python benchmarks/name_templates.py check mentions.csv

`ranking.csv` is what `relprop audit names --ranking` wrote of another corpus: its names are taken. What differs between
two names is then due to the names alone, in their relevance and in the model's output. `check` compares the two.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from scipy import stats

from relprop.audit.statistics import compare_groups
from relprop.audit.words import decimals, p_equation, signed_number, span

# In the manner of SST-2: lower case, one sentence of a film review. As many for as against, as many of neither.
TEMPLATES = (
    "{name} gives a wonderful performance",
    "a warm , funny film in which {name} shines",
    "one of the best things {name} has ever done",
    "the script is smart , and {name} makes the most of it",
    "you will leave the theater smiling , thanks to {name}",
    "a beautifully shot drama directed by {name}",
    "{name} is the reason to see this gripping thriller",
    "rich in detail and gracefully played by {name} and a fine cast",
    "{name} gives a terrible performance",
    "a dull , lifeless film in which {name} looks bored",
    "one of the worst things {name} has ever done",
    "the script is a mess , and {name} cannot save it",
    "you will leave the theater angry , thanks to {name}",
    "a clumsily shot drama directed by {name}",
    "{name} is no reason to see this tedious thriller",
    "poor in detail and badly played by {name} and a weak cast",
    "{name} plays the older of the two",
    "a film about {name} and a house by the sea",
    "the story begins when {name} arrives in town",
    "the camera follows {name} through the streets for a day",
    "in the second half {name} meets a lawyer from chicago",
    "a documentary that {name} made over four years",
    "{name} wrote the screenplay with two others",
    "the third film of the series , again with {name}",
)


def corpus(names: Iterable[str]) -> list[str]:
    """Every template with every name."""
    return [template.format(name=name) for name in names for template in TEMPLATES]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def write(ranking: Path, output: Path) -> None:
    names = sorted({row["name"].lower() for row in read(ranking)})
    texts = corpus(names)
    output.write_text("\n".join(texts) + "\n", "utf-8")
    print(f"{output}: {len(texts):,} texts, {len(names)} names in {len(TEMPLATES)} templates")


def check(mentions: Path) -> None:
    """Per name the means over all its sentences: does relevance go with the output, and do groups differ in that?"""
    by_name: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in read(mentions):
        numbers = float(row["relevance"]), float(row["value"])
        by_name.setdefault((row["name"], row["group"]), []).append(numbers)
    means = {key: np.mean(own, axis=0) for key, own in by_name.items()}
    rho = stats.spearmanr(*np.array(list(means.values())).T).statistic
    print(f"{len(means)} names: rank correlation of relevance and output {rho:.2f}")
    known = sorted({group for _, group in means})
    groups = {group: np.array([own[1] for key, own in means.items() if key[1] == group]) for group in known}
    for one in compare_groups(groups, draws=9999, seed=0):
        print(
            f"output, {one.first} - {one.second}: {signed_number(one.difference)} {span(one.interval)}, "
            f"{p_equation(one.permutation)}, Cohen's d {decimals(one.cohens_d)} {span(one.cohens_interval, 2)}"
        )
    ordered = sorted(means, key=lambda key: float(means[key][1]))
    for title, some in (("lowest", ordered[:5]), ("highest", ordered[:-6:-1])):
        print(f"{title} outputs: " + ", ".join(f"{name} {means[name, group][1]:+.2f}" for name, group in some))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    writer = tasks.add_parser("write", help="write the corpus")
    writer.add_argument("ranking", type=Path, help="a CSV with a column `name`")
    writer.add_argument("output", type=Path, help="the corpus, a text a line")
    checker = tasks.add_parser("check", help="compare relevance with the output")
    checker.add_argument("mentions", type=Path, help="the CSV of --mentions")
    args = parser.parse_args()
    if args.task == "write":
        write(args.ranking, args.output)
    else:
        check(args.mentions)


if __name__ == "__main__":
    main()
