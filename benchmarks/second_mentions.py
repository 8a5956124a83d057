"""Does the explanation of a name's second mention point at the first? On a real language model, method by method.

    python benchmarks/second_mentions.py [MODEL]

Each story names someone once; the next word is the name again, whether the model would have said it or not. Counted is
how often the first mention is the strongest of all words before (special tokens and marks are no words).
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import product

import torch

import relprop

METHODS = ("lrp_conservative", "lrp_blend", "lrp_full", "attn_lrp", "lrp_ah_ln", "lrp_ah", "gradient_x_input")
GIRLS = ("Lily", "Sue", "Lucy", "Anna", "Mia", "Sara", "Amy")
BOYS = ("Tom", "Tim", "Ben", "Max", "Jack", "Sam", "Bob")
DOGS = ("Spot", "Max", "Buddy", "Rex")
STORIES = (
    (GIRLS, "Once upon a time, there was a little girl named {}. She loved to play outside. One day, she went to the "
            "park with her mom. Her mom said to"),
    (GIRLS, "One day, a girl named {} went to the park. She saw a big dog. The dog ran to"),
    (BOYS, "Once upon a time, there was a little boy named {}. He liked to play with his red ball. One day, his mom "
           "called him and said, \"Hello,"),
    (BOYS, "There was a boy named {}. He had a big blue car. One day the car broke and he was very sad. His friend "
           "wanted to help"),
    (DOGS, "Once upon a time, there was a dog named {}. He loved to run and play. One day, a cat came to the yard and "
           "said, \"Hello,"),
)  # fmt: skip


def strongest_word(explainer: relprop.Explainer, prompt: str, name: str, method: str) -> str:
    """The word before the second mention that weighs most for it."""
    mention = explainer(prompt, continuation=f" {name}", method=method).words().token(0)
    scored = zip(mention.scores, mention.units, strict=True)
    return str(max((score, unit.text) for score, unit in scored if not unit.special and unit.text.isalpha())[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", default="stories", help="an embedded model's name or a folder")
    args = parser.parse_args()
    torch.set_num_threads(1)
    explainer = relprop.Explainer(args.model)
    explainer.model.float()
    cases = [(story.format(name), name) for names, story in STORIES for name in names]
    hits = Counter(
        method for method, (prompt, name) in product(METHODS, cases)
        if strongest_word(explainer, prompt, name, method) == name
    )  # fmt: skip
    print(f"{'method':<20}first mention on top, of {len(cases)}")
    for method in METHODS:
        print(f"{method:<20}{hits[method]}")


if __name__ == "__main__":
    main()
