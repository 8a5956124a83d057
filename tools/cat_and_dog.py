"""Makes the sample picture of a cat and a dog, and docs/images/cat-and-dog.jpg, its maps as the README shows them.

python tools/cat_and_dog.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

import relprop
from relprop.embedded import EMBEDDED

SAMPLES = EMBEDDED["pets"] / "samples"
HALVES = ("Russian_Blue_76.jpg", "shiba_inu_44.jpg")
SAMPLE = SAMPLES / "cat-and-dog.jpg"
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "cat-and-dog.jpg"
SIDE = 224
METHODS = ["lrp_conservative", "rollout"]


def join() -> Image.Image:
    """The middle halves of two pictures, side by side."""
    both = Image.new("RGB", (SIDE, SIDE))
    for number, name in enumerate(HALVES):
        whole = Image.open(SAMPLES / name).resize((SIDE, SIDE))
        both.paste(whole.crop((SIDE // 4, 0, SIDE * 3 // 4, SIDE)), (number * SIDE // 2, 0))
    return both


def main() -> None:
    join().save(SAMPLE, quality=90)
    explainer = relprop.Explainer("pets")
    found = [one for target in ("cat", "dog") for one in explainer(SAMPLE, target=target, method=METHODS)]
    with TemporaryDirectory() as folder:  # the README's copy is a JPEG: a fifth of the bytes
        relprop.compare(found).save(drawn := Path(folder) / "maps.png")
        Image.open(drawn).convert("RGB").save(PICTURE, quality=88, optimize=True)
    print(f"wrote {SAMPLE} and {PICTURE} ({PICTURE.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main()
