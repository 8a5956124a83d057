"""Makes the sample picture of a cat and a dog, and docs/images/cat-and-dog.jpg, its maps as the README shows them.

python tools/cat_and_dog.py            # write both
python tools/cat_and_dog.py --count    # how often the halves of such a picture are told apart
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

import relprop
from relprop.embedded import EMBEDDED
from relprop.methods import default_method

SAMPLES = EMBEDDED["pets"] / "samples"
CATS = tuple(sorted(path.name for path in SAMPLES.glob("[A-Z]*.jpg")))  # breeds of cats are written with capitals
DOGS = tuple(sorted(path.name for path in SAMPLES.glob("[a-z]*_*.jpg")))
HALVES = ("Russian_Blue_76.jpg", "shiba_inu_44.jpg")
SAMPLE = SAMPLES / "cat-and-dog.jpg"
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "cat-and-dog.jpg"
SIDE = 224
METHODS = [default_method("images"), "rollout"]


def join(halves: tuple[str, str] = HALVES) -> Image.Image:
    """The middle halves of two pictures, side by side."""
    both = Image.new("RGB", (SIDE, SIDE))
    for number, name in enumerate(halves):
        whole = Image.open(SAMPLES / name).resize((SIDE, SIDE))
        both.paste(whole.crop((SIDE // 4, 0, SIDE * 3 // 4, SIDE)), (number * SIDE // 2, 0))
    return both


def count() -> None:
    """Of all pairs of a cat and a dog: where a class's scores sum to + on its own half and to - on the other."""
    explainer = relprop.Explainer("pets")
    pairs = list(product(CATS, DOGS))
    for own, target in enumerate(("cat", "dog")):
        told = 0
        for pair in pairs:
            patches = np.array(explainer(join(pair), target=target).scores)
            halves = patches.reshape(len(patches), 2, -1).sum((0, 2))
            told += bool(halves[own] > 0 > halves[1 - own])
        print(f"{target}: {told} of {len(pairs)} pairs")


def write() -> None:
    join().save(SAMPLE, quality=90)
    explainer = relprop.Explainer("pets")
    found = [one for target in ("cat", "dog") for one in explainer(SAMPLE, target=target, method=METHODS)]
    with TemporaryDirectory() as folder:  # the README's copy is a JPEG: a fifth of the bytes
        relprop.compare(found).save(drawn := Path(folder) / "maps.png")
        Image.open(drawn).convert("RGB").save(PICTURE, quality=88, optimize=True)
    print(f"wrote {SAMPLE} and {PICTURE} ({PICTURE.stat().st_size:,} bytes)")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", action="store_true", help="count the pairs that are told apart, and write nothing")
    (count if parser.parse_args().count else write)()


if __name__ == "__main__":
    main()
