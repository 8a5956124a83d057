"""Train relprop's embedded image model: a small ViT that tells cats from dogs, taught by a small CNN.

    python training/pets.py --data ../shared/data             # train, 55 minutes on less than a core
    python training/pets.py --data ../shared/data --evaluate  # print the embedded model's accuracy

On 3,310 pictures of the Oxford-IIIT Pets a ViT alone learns slowly and a CNN fast. So there are two stages, each kept
in the work folder:
1. teacher: a residual CNN learns the 37 breeds;
2. student: the ViT learns the teacher's breeds and species on mixed pictures, and its patches learn the teacher's
   features at the same place. Most batches see only a part of the patches (the patch dropout of Liu et al. 2022):
   that is faster, and teaches the model what missing patches do.

Ten pictures a breed of the official training set make the dev set; the official test set is read once, at the end. The
trimaps are never read in training.
"""

import io
import json
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import ViTForImageClassification

from vision import (
    Student,
    Teacher,
    as_input,
    distance,
    evidence,
    load_model,
    new_vit,
    options,
    predict,
    save_model,
    share_on,
    train,
)

SPECIES = {0: "cat", 1: "dog"}
SIDE, PATCH, WIDTH, LAYERS, HEADS = 96, 12, 192, 6, 3
WIDTHS, SMALL = (24, 48, 96, 192), 64  # of the CNN, and the side of the pictures it sees
KEPT = (0.25, 0.5, 0.5, 1.0)  # shares of the patches that a batch may see
GUIDANCE = 10.0  # weight of the CNN's features in the student's loss
BATCH, DEV = 32, 10
STRIDE = 15  # maps are made of every 15th test picture
ARCHIVE = "pets_96px_all.zip"
SAMPLES = (  # test pictures of which the model is sure
    "Abyssinian_29",
    "Ragdoll_53",
    "Russian_Blue_76",
    "beagle_77",
    "english_cocker_spaniel_5",
    "shiba_inu_44",
)


class Pets(NamedTuple):
    """Bytes (n, 96, 96, 3), breed 0..36, species 0 (cat) or 1 (dog)."""

    images: Tensor
    breeds: Tensor
    species: Tensor

    def take(self, rows: Tensor) -> "Pets":
        return Pets(self.images[rows], self.breeds[rows], self.species[rows])


def read_list(folder: Path, part: str) -> list[list[str]]:
    """Rows of name, breed from 1, species from 1, breed within the species."""
    return [line.split() for line in (folder / f"{part}.txt").read_text().splitlines()]


def read_pets(folder: Path, part: str) -> Pets:
    """The pictures that `part`.txt lists."""
    rows = read_list(folder, part)
    with zipfile.ZipFile(folder / ARCHIVE) as archive:
        pictures = [Image.open(io.BytesIO(archive.read(f"images/{row[0]}.jpg"))).convert("RGB") for row in rows]
    breeds, species = (torch.tensor([int(row[k]) - 1 for row in rows]) for k in (1, 2))
    return Pets(torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures])), breeds, species)


def split_dev(pets: Pets) -> tuple[Pets, Pets]:
    """The last pictures of every breed are the dev set."""
    dev = torch.zeros(len(pets.breeds), dtype=torch.bool)
    for breed in pets.breeds.unique():
        dev[(pets.breeds == breed).nonzero().flatten()[-DEV:]] = True
    return pets.take(~dev), pets.take(dev)


def augment(images: Tensor, side: int, rng: np.random.Generator) -> Tensor:
    """Random crop of 30 to 100 % of the area, flip, brightness, contrast and saturation."""
    number = len(images)
    area, stretch = rng.uniform(0.3, 1.0, number), np.exp(rng.uniform(-0.2, 0.2, number))
    size = np.minimum(np.sqrt(area) * np.stack([stretch, 1 / stretch]), 1.0)
    centre = rng.uniform(-1, 1, (2, number)) * (1 - size)
    size[0] *= rng.choice([-1.0, 1.0], number)
    box = np.zeros((number, 2, 3), np.float32)
    box[:, 0, 0], box[:, 1, 1], box[:, :, 2] = size[0], size[1], centre.T
    grid = F.affine_grid(torch.from_numpy(box), [number, 3, side, side], align_corners=False)
    out = F.grid_sample(as_input(images), grid, align_corners=False, padding_mode="reflection")
    light, contrast, colour = torch.from_numpy(rng.uniform(0.7, 1.3, (3, number, 1, 1, 1)).astype(np.float32))
    grey = out.mean(1, keepdim=True)
    out = grey + (out - grey) * colour
    middle = out.mean((1, 2, 3), keepdim=True)
    changed: Tensor = middle + (out - middle) * contrast + light - 1
    return changed.clamp(-1, 1)


def mix(images: Tensor, targets: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Mixup (a blend) or CutMix (a box) of each picture with its neighbour, and of their targets."""
    share = float(rng.beta(1.0, 1.0))
    others, side = images.roll(1, 0), images.shape[-1]
    if rng.random() < 0.5:
        mixed = share * images + (1 - share) * others
    else:
        half = round(side * (1 - share) ** 0.5 / 2)
        y, x = rng.integers(side, size=2)
        rows, columns = slice(max(y - half, 0), y + half), slice(max(x - half, 0), x + half)
        mixed = images.clone()
        mixed[:, :, rows, columns] = others[:, :, rows, columns]
        share = 1 - mixed[0, 0, rows, columns].numel() / side**2
    return mixed, share * targets + (1 - share) * targets.roll(1, 0)


class PetStudent(Student):
    """The ViT that knows species, with a head for breeds that only training needs."""

    def __init__(self) -> None:
        super().__init__(new_vit(SPECIES, side=SIDE, patch=PATCH, width=WIDTH, layers=LAYERS, heads=HEADS), WIDTHS)
        self.breeds = nn.Linear(WIDTH, 37)


def species_of(breeds: Tensor, is_dog: Tensor) -> Tensor:
    """Logits of cat and dog from logits of breeds: the sums of their probabilities."""
    return torch.stack([breeds[:, ~is_dog].logsumexp(1), breeds[:, is_dog].logsumexp(1)], 1)


def to_two(breeds: Tensor, is_dog: Tensor) -> Tensor:
    """Probabilities of cat and dog from those of breeds."""
    return torch.stack([breeds[:, ~is_dog].sum(1), breeds[:, is_dog].sum(1)], 1)


def drawn(pets: Pets, side: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """A batch of altered pictures and their breeds, as probabilities."""
    rows = torch.from_numpy(rng.integers(len(pets.breeds), size=BATCH))
    return augment(pets.images[rows], side, rng), F.one_hot(pets.breeds[rows], 37).float()


def shrink(images: Tensor) -> Tensor:
    return F.interpolate(images, size=(SMALL, SMALL), mode="area")


def train_teacher(pets: Pets, dev: Pets, is_dog: Tensor, checkpoint: Path, minutes: float, seed: int) -> Teacher:
    """Cross-entropy to breeds and to species; a third of the batches is mixed."""

    def loss_of(model: Teacher, rng: np.random.Generator) -> Tensor:
        images, targets = drawn(pets, SMALL, rng)
        if rng.random() < 0.3:
            images, targets = mix(images, targets, rng)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(images)[0].float()
        to_species = F.cross_entropy(species_of(logits, is_dog), to_two(targets, is_dog))
        return F.cross_entropy(logits, targets, label_smoothing=0.1) + to_species

    def score(model: Teacher) -> str:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            logits = model(shrink(as_input(dev.images)))[0].float()
        return f"dev {accuracies(species_of(logits, is_dog), logits, dev)}"

    torch.manual_seed(seed)
    return train(
        Teacher(WIDTHS, 37), loss_of, checkpoint, minutes=minutes, rate=2e-3, decay=0.05, seed=seed, score=score
    )


def train_student(
    pets: Pets, dev: Pets, is_dog: Tensor, teacher: Teacher, checkpoint: Path, minutes: float, seed: int
) -> PetStudent:
    """Cross-entropy to the teacher's probabilities and to the labels, half and half; squared error to its features."""

    def loss_of(model: PetStudent, rng: np.random.Generator) -> Tensor:
        images, targets = drawn(pets, SIDE, rng)
        if rng.random() < 0.5:
            images, targets = mix(images, targets, rng)
        patches = torch.from_numpy(rng.permutation((SIDE // PATCH) ** 2))
        patches = patches[: round(rng.choice(KEPT) * len(patches))]
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                taught, features = teacher(shrink(images))
            read, guessed = model(images, patches)
            species, breeds = model.vit.classifier(read), model.breeds(read)
        wanted = (taught.float().softmax(1) + targets) / 2
        learned = F.cross_entropy(breeds.float(), wanted) + F.cross_entropy(species.float(), to_two(wanted, is_dog))
        return learned + GUIDANCE * distance(guessed, features, patches, SIDE // PATCH)

    def score(model: PetStudent) -> str:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            read, _ = model(as_input(dev.images), torch.arange((SIDE // PATCH) ** 2))
        return f"dev {accuracies(model.vit.classifier(read), model.breeds(read), dev)}"

    torch.manual_seed(seed)
    return train(PetStudent(), loss_of, checkpoint, minutes=minutes, rate=1e-3, decay=0.05, seed=seed, score=score)


def accuracies(species: Tensor, breeds: Tensor, pets: Pets) -> str:
    right = [(logits.argmax(1) == wanted) for logits, wanted in ((species, pets.species), (breeds, pets.breeds))]
    return f"species {right[0].float().mean():.4f} breeds {right[1].float().mean():.4f}"


def hide(pets: Pets, hidden: Tensor) -> Tensor:
    """The pictures' input, with the hidden pixels (n, 96, 96) grey."""
    return as_input(pets.images) * ~hidden[:, None]


def read_animals(folder: Path, part: str) -> Tensor:
    """Where the animal is (n, 96, 96), its border included: the trimap is 1 on the pet, 2 around it, 3 between."""
    names = [row[0] for row in read_list(folder, part)]
    with zipfile.ZipFile(folder / ARCHIVE) as archive:
        trimaps = [np.asarray(Image.open(io.BytesIO(archive.read(f"trimaps/{name}.png")))) for name in names]
    return torch.from_numpy(np.stack(trimaps) != 2)


def figures(model: ViTForImageClassification, folder: Path) -> str:
    """Accuracy on dev and test, and on test with the animal or its surroundings hidden."""
    _, dev = split_dev(read_pets(folder, "trainval"))
    test, animals = read_pets(folder, "test"), read_animals(folder, "test")
    lines = []
    for name, pets, inputs in (
        ("dev", dev, as_input(dev.images)),
        ("test", test, as_input(test.images)),
        ("test, surroundings hidden", test, hide(test, ~animals)),
        ("test, animal hidden", test, hide(test, animals)),
    ):
        right = (predict(model, inputs).argmax(1) == pets.species).float()
        each = [right[pets.species == number].mean() for number in SPECIES]
        lines.append(f"{name}: {right.mean():.4f} (cats {each[0]:.4f}, dogs {each[1]:.4f}, mean {sum(each) / 2:.4f})")
    return "\n".join(lines)


def map_figures(model: ViTForImageClassification, folder: Path) -> str:
    """How much of the evidence for the predicted species lies on the animal; a map that knows nothing has its area."""
    test, animals = read_pets(folder, "test"), read_animals(folder, "test")
    inputs, animals = as_input(test.images[::STRIDE]), animals[::STRIDE]
    found = evidence(model, inputs, predict(model, inputs).argmax(1))
    pointed = animals.flatten(1).gather(1, found.flatten(1).argmax(1, keepdim=True)).float().mean()
    area = animals.float().mean()
    return f"evidence on the animal: {share_on(found, animals):.4f}, its peak: {pointed:.4f}, its area: {area:.4f}"


def write_samples(data: Path, folder: Path) -> None:
    """A few test pictures, 224 px wide, as they are in the data."""
    folder.mkdir(parents=True, exist_ok=True)
    species = {row[0]: int(row[2]) - 1 for row in read_list(data, "test")}
    with zipfile.ZipFile(data / "pets_224px_6perclass.zip") as archive:
        for name in SAMPLES:
            (folder / f"{name}.jpg").write_bytes(archive.read(f"images/{name}.jpg"))
    records = [{"file": f"{name}.jpg", "label": SPECIES[species[name]]} for name in SAMPLES]
    (folder / "samples.json").write_text(json.dumps(records, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> None:
    parser = options(__doc__.splitlines()[0], "oxford-pets", "src/relprop/models/pets", 32)
    parser.add_argument("--teacher-minutes", type=float, default=23, help="of training the teacher")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    data = args.data / "oxford-pets"
    if not args.evaluate:
        pets, dev = split_dev(read_pets(data, "trainval"))
        is_dog = torch.zeros(37, dtype=torch.bool)
        is_dog[pets.breeds] = pets.species == 1
        print("teacher", flush=True)
        teacher = train_teacher(pets, dev, is_dog, args.work / "teacher.pt", args.teacher_minutes, args.seed)
        print("student", flush=True)
        student = train_student(pets, dev, is_dog, teacher, args.work / "student.pt", args.minutes, args.seed)
        save_model(student.vit, args.out)
        write_samples(data, args.out / "samples")
    model = load_model(args.out)
    print(figures(model, data))
    print(map_figures(model, data))


if __name__ == "__main__":
    main()
