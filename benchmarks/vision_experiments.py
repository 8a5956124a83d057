"""What the suites of [Chefer21] leave open: species against breeds, shares on digits, cost, and a picture for print.

    python benchmarks/vision_experiments.py heads --data ../shared/data --limit 120         # of species and of breeds
    python benchmarks/vision_experiments.py digits --data ../shared/data                    # figure 3, in numbers
    python benchmarks/vision_experiments.py cost                                            # ViT-B, 224 pixels, batch 8
    python benchmarks/vision_experiments.py picture --data ../shared/data                   # figures 2 and 3

Tables 1 to 3 are `relprop bench run chefer21-pets` and `relprop bench run chefer21-pets-ablation`. With --out FOLDER a
table is saved as Markdown and JSON. Each takes minutes on one thread.
"""

from __future__ import annotations

import argparse
import io
import sys
import zipfile
from pathlib import Path

import torch
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification

sys.path.append(str(Path(__file__).resolve().parents[1] / "training"))  # how pets are listed and canvases drawn

import on_breeds
import on_digits
import relprop
from cost import paired_ratios
from picture_maps import digest
from relprop import explanation
from reporting import Number, Table, command, markdown, numbers, save

OURS = on_breeds.OURS
AS_PRINTED = ("rollout", "attention_last", "grad_cam:weigh_by=row", "lrp:at=input", "partial_lrp", OURS)
METHODS = (
    *AS_PRINTED,
    "grad_cam",
    "lrp",
    "gae",
    "lrp_ah_ln",
    "lrp_conservative",
    "attn_lrp",
    "gradient_x_input",
    "integrated_gradients:steps=20",
    "random",
)
ABLATIONS = (f"{OURS}:ablate=gradient", f"{OURS}:only_block=-1", f"{OURS}:only_block=1")
ASKED = (*AS_PRINTED, "gae", "lrp_ah_ln", "lrp_conservative", "attn_lrp", *ABLATIONS)
SHOWN = ("attention_last", "rollout", "grad_cam", "partial_lrp", "transformer_attribution", "lrp_ah_ln", "attn_lrp")
PETS = ("Ragdoll_53", "Bengal_27", "keeshond_43", "boxer_63")


def heads_table(args: argparse.Namespace) -> Table:
    heads = on_breeds.two_heads(args.checkpoint)
    pets = on_breeds.draw_both(heads, args.data, args.limit, args.seed)
    facts = {
        "weights": f"{digest(heads.species.model)} and {digest(heads.breeds.model)}",
        "images": f"{len(pets)}, of {args.limit} whose breed is predicted rightly those whose species is too",
        "seed": args.seed,
    }
    rows = numbers(on_breeds.by_head(heads, pets, args.methods), len(pets), args.seed)
    return Table(args.kind, args.command, facts, rows)


def digits_table(args: argparse.Namespace) -> Table:
    explainer = relprop.Explainer(args.model)
    pairs = on_digits.draw(explainer, args.data / "mnist", args.limit, args.seed)
    facts = {
        "model": f"{args.model} (weights {digest(explainer.model)})",
        "canvases": f"{len(pairs.images)}, of {pairs.looked_at} looked at the ones read exactly",
        "seed": args.seed,
    }
    found = on_digits.on_own_digit(explainer, pairs, args.methods)
    return Table(args.kind, args.command, facts, numbers(found, len(pairs.images), args.seed))


def cost_table(args: argparse.Namespace) -> Table:
    torch.manual_seed(args.seed)
    model = ViTForImageClassification(ViTConfig(attn_implementation="sdpa", num_labels=1000)).eval()
    column = "time / plain forward + backward"
    ratios = {name: time_ratio(model, name, args.batch, args.rounds) for name in args.methods}
    rows = {name: {column: Number(one, one, one)} for name, one in ratios.items()}
    facts = {"model": "ViT-B/16, 224 pixels, random", "batch": args.batch, "rounds": args.rounds}
    return Table(args.kind, args.command, {**facts, "threads": args.threads}, rows)


def time_ratio(model: ViTForImageClassification, method: str, batch: int, rounds: int) -> float:
    """Time over that of plain forward + backward to the first block's input, frozen: the median of paired rounds."""
    model.requires_grad_(False)
    side = model.config.image_size
    images = torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(1))

    def plain() -> None:
        first = x = model.vit.embeddings(images).requires_grad_()
        for layer in model.vit.layers:
            x = layer(x)
        logits = model.classifier(model.vit.layernorm(x)[:, 0])
        torch.autograd.grad(logits[:, 1].sum(), first)

    def run() -> None:
        relprop.attribute(model, images, 1, method)

    return paired_ratios(run, plain, rounds)


def picture(args: argparse.Namespace) -> None:
    """Pets of the test set, 224 pixels wide, and both classes of the first canvas with two digits."""
    pets, digits = relprop.Explainer(args.model), relprop.Explainer("digits")
    drawn = []
    with zipfile.ZipFile(args.data / "oxford-pets" / "pets_224px_6perclass.zip") as archive:
        for name in args.pets:
            image = Image.open(io.BytesIO(archive.read(f"images/{name}.jpg")))
            drawn += pets(image, method=list(args.methods), ledger=False)
    pairs = on_digits.draw(digits, args.data / "mnist", 1, args.seed)
    for label in pairs.classes[0].tolist():
        drawn += digits(pairs.images[0], target=label, method=list(args.methods), ledger=False)
    explanation.save(drawn, args.out)
    with Image.open(args.out) as whole:  # for print: a page shows less
        small = whole.convert("RGB").resize((whole.width * 2 // 3, whole.height * 2 // 3), Image.Resampling.LANCZOS)
    small.save(args.out, optimize=True)


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    methods = {"cost": ("lrp_ah_ln",), "heads": ASKED, "picture": SHOWN}
    for kind in ("heads", "digits", "cost", "picture"):
        one = kinds.add_parser(kind)
        one.add_argument("--methods", nargs="+", default=methods.get(kind, METHODS), help="NAME or NAME:OPTION=VALUE")
        one.add_argument("--threads", type=int, default=1)
        one.add_argument("--seed", type=int, default=0)
        if kind == "picture":
            one.add_argument("--out", type=Path, default=Path("docs/images/vision.png"), help="a PNG")
            one.add_argument("--pets", nargs="+", default=PETS, help="names of test pictures")
        else:
            one.add_argument("--out", type=Path, help="folder for the table as Markdown and JSON")
        if kind == "cost":
            one.add_argument("--batch", type=int, default=8)
            one.add_argument("--rounds", type=int, default=9)
        else:
            one.add_argument("--data", type=Path, required=True, help="folder with oxford-pets and mnist")
        if kind == "heads":
            one.add_argument(
                "--checkpoint", type=Path, default=Path("build/pets/student.pt"), help="of training/pets.py"
            )
        elif kind != "cost":
            own = "digits" if kind == "digits" else "pets"
            one.add_argument("--model", default=own, help="an embedded one, or a folder")
        if kind not in ("cost", "picture"):
            one.add_argument("--limit", type=int, default=200, help="so many images")
    return parser


def main(arguments: list[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    args = options().parse_args(given)
    torch.set_num_threads(args.threads)
    if args.kind == "picture":
        picture(args)
        return
    args.command = command(__file__, given)
    tables = {"heads": heads_table, "digits": digits_table, "cost": cost_table}
    table = tables[args.kind](args)
    print(markdown(table))
    if args.out:
        save(table, args.out, f"vision_{args.kind}")


if __name__ == "__main__":
    main()
