"""Models whose reason is known by construction: a tagger, a CLIP, a vision-language model and a detector.

    python training/known_truth.py [tagger clip vlm detector]

One unit decides, a word or a patch, and all others are drawn by chance: other words, their number and order, the place
of the coloured square, the greys around it. The models learn numbers, not decisions: the output should be 1 where the
unit is there and 0 where it is not, by squared error. (By cross-entropy what the chance words add costs nothing once
the answer is right, and stays in the output: relevance on it is no mistake of a method.) Whether a model obeys is seen
by hiding units one by one; what the methods say is only then measured. Targets are differences of two classes. Nothing
is written. Each model takes a minute or two of one core.

Share of the deciding units in the positive relevance of all units (patches and words), mean of 20 examples; in brackets
in that of everything, marks of ends and the model's own tokens too:

    method              tagger       CLIP         detector     vision-language model
    lrp_conservative    .959 (.959)  .967 (.962)  .982 (.595)  .970 (.970)
    lrp_ah_ln           .959 (.959)  .980 (.975)  .981 (.586)  .969 (.969)
    attn_lrp            .916 (.916)  .965 (.876)  .987 (.462)  .946 (.946)

The detector's own token asks the question (is there red?), differs from the others' by need, and keeps the rest.

Hidden, a deciding unit takes at least .998, .992, 1.97 (the detector's changes its sign) and .992 of the value; another
one moves it by .023, .004, .003 and .033 at most. On other examples (seed 7 instead of 1) lrp_conservative has .986 on
the tagger, .972 (.967) on CLIP and .959 (.959) on the vision-language model.

What leaked before, and how that was told. Longer training alone did not help: CLIP obeyed better (another unit moved
the value by .003 instead of .011) and its share stayed (.927, from .937): 15 greys had .005 each, evenly. What is there
in every example can stand in for a bias, at no cost. So nothing is: pictures have any number of patches (CLIP: they are
of other sizes; vision-language model: hidden by the attention mask), which made .972 of CLIP's .927 at the same error.
The last word, at which a vision-language model answers, was the second such thing; a mark follows it now, as in chats.
The mark then held up to four tenths of the positive relevance, so the marks at which an answer is read are silent:
zeros that are not learnt (CLIP's end of text and class token, whose first norm has no bias; the answer's mark).

One colour of the CLIP was told by the absence of the others (no picture was without a square; hiding the square changed
nothing). 32 numbers per word instead of 64: the tagger's own word scored, .925. With two heads, none of which can find
all colours among greys, CLIP did not learn all of them. The vision-language model's language model was a Llama first
(.50), then a GPT-NeoX with its feed-forward layer beside attention (.63), which cannot quieten what attention lets
through; now that layer comes after it. A Llama's feed-forward layer multiplies two inputs, whose product is shared by
halves; how much of the .50 is due to that was not told apart. A detector of two squares in two of three colours could
know the third by the others; here each is there or not by itself.

The tasks and models were rebuilt three to six times each with these shares in view, each trained with one seed: this
shows that such models exist, it is no estimate for others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from relprop import Explainer, Explanation

COLOURS = {"red": (230, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 230), "yellow": (220, 220, 20)}
NAMES = list(COLOURS)
FILLERS = ["what", "is", "the", "of", "a", "photo", "left", "right", "side", "on", "there", "and", "with", "some"]
SPECIAL = ["<pad>", "</s>", "<s>", "<unk>", "<image>"]
VOCABULARY = [*SPECIAL, *FILLERS, *NAMES]
PATCH, GRID = 8, 4
SIZE = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
WORDS = {**SIZE, "vocab_size": len(VOCABULARY), "max_position_embeddings": 48}
IDS = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
METHODS = ["lrp_conservative", "lrp_ah_ln", "attn_lrp", "gradient_x_input"]
Pixels = NDArray[np.uint8]
Asked = tuple[Any, Any]  # what is explained, and the target


class Example(NamedTuple):
    """What is explained, the target, the units that decide, and the same example with each unit hidden in turn."""

    given: Any
    target: Any
    deciding: list[tuple[int, int]]  # part, unit
    hidden: dict[tuple[int, int], Asked]


def tokenizer() -> Any:
    """One token per word."""
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens(SPECIAL)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def sentence(rng: np.random.Generator, *keys: str) -> list[str]:
    """Three to seven words drawn by chance, and the given ones among them, anywhere."""
    words = [*rng.choice(FILLERS, int(rng.integers(3, 8))).tolist(), *keys]
    return [words[i] for i in rng.permutation(len(words))]


def replaced(words: list[str], place: int) -> list[str]:
    """The words with another filler in place of one."""
    return [*words[:place], "some" if words[place] == "the" else "the", *words[place + 1 :]]


def picture(rng: np.random.Generator, squares: dict[int, str], grid: int = GRID) -> Pixels:
    """Patches in greys drawn by chance; those of the given places are coloured."""
    grey = rng.integers(60, 200, (grid**2, 1, 1, 1))
    patches = np.broadcast_to(grey, (grid**2, PATCH, PATCH, 3)).copy()
    for place, colour in squares.items():
        patches[place] = COLOURS[colour]
    patches = np.clip(patches + rng.integers(-15, 16, patches.shape), 0, 255).reshape(grid, grid, PATCH, PATCH, 3)
    pixels: Pixels = patches.swapaxes(1, 2).reshape(grid * PATCH, -1, 3).astype(np.uint8)
    return pixels


def greyed(pixels: Pixels, place: int) -> Pixels:
    """The picture with one patch in a grey of the middle."""
    changed, (row, column) = pixels.copy(), divmod(place, GRID)
    changed[row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH] = 128
    return changed


def tensor(pixels: list[Pixels]) -> Tensor:
    return torch.tensor(np.stack(pixels)).permute(0, 3, 1, 2) / 127.5 - 1


def squared(outputs: Tensor, truth: Tensor) -> Tensor:
    """The squared error, summed over classes."""
    return (outputs - truth).square().sum(-1).mean()


def fit(model: Any, loss: Callable[[np.random.Generator], Tensor], steps: int, rate: float = 3e-3) -> Any:
    """The model after so many steps of AdamW on what `loss` draws."""
    rng = np.random.default_rng(0)
    optimiser = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    began = time.process_time()
    for step in range(steps):
        value = loss(rng)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        schedule.step()
        if step % 200 == 0 or step == steps - 1:
            print(f"step {step}: {value.item():.5f}, {time.process_time() - began:.0f} s", flush=True)
    return model.eval()


def started(model: Any, positions: float = 0.05, *, matrices: bool = True) -> Any:
    """Tables drawn at 0.5, positions by their use, and matrices at width^-0.5 where small ones would take long."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            table = parameter.dim() == 3 or ("embed" in name and parameter.dim() == 2)
            if parameter.numel() and (table or (matrices and parameter.dim() > 1)):
                spread = 0.5 if table else parameter[0].numel() ** -0.5
                parameter.normal_(0, positions if "position" in name else spread)
    return model


def silent(table: Tensor, index: int) -> None:
    """A row of a table is 0 and stays so: a mark that says nothing, so that it cannot stand in for a bias."""
    with torch.no_grad():
        table[index] = 0
    table.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor(index), 0))


# A tagger: the label of a word is the colour that stands right before it, else O. The word itself is drawn by chance,
# and a colour as well as any.

LABELS = ["O", *NAMES]


def tagger(steps: int = 800) -> Explainer:
    torch.manual_seed(0)
    encode = tokenizer()
    config = transformers.BertConfig(
        **{**WORDS, "num_attention_heads": 2}, pad_token_id=0, id2label=dict(enumerate(LABELS))
    )
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    model = started(transformers.BertForTokenClassification(config), positions=0.5, matrices=False)

    def loss(rng: np.random.Generator) -> Tensor:
        drawn = [coloured(rng) for _ in range(48)]
        wanted = [label(words, i) for words in drawn for i in range(len(words))]
        tokens = encode([" ".join(words) for words in drawn], padding=True, return_tensors="pt")
        given = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        truth = torch.nn.functional.one_hot(torch.tensor(wanted), len(LABELS)).float()
        return squared(model(**given).logits[given["attention_mask"].bool()], truth)

    return Explainer(fit(model, loss, steps), encode)


def coloured(rng: np.random.Generator) -> list[str]:
    """Five to nine words, three in ten of them colours."""
    return [str(rng.choice(NAMES if rng.random() < 0.3 else FILLERS)) for _ in range(int(rng.integers(5, 10)))]


def label(words: list[str], place: int) -> int:
    before = words[place - 1] if place else ""
    return LABELS.index(before) if before in NAMES else 0


def tagged(rng: np.random.Generator) -> Example:
    """A word after a colour; the others, and the word itself, are hidden by a filler."""
    words = coloured(rng)
    place = int(rng.integers(1, len(words)))
    words[place - 1], other = rng.permutation(NAMES)[:2].tolist()
    target = (spans(words)[place], (words[place - 1], other))
    hidden = {}
    for i in range(len(words)):
        changed = replaced(words, i)
        hidden[0, i] = (" ".join(changed), (spans(changed)[place], target[1]))
    return Example(" ".join(words), target, [(0, place - 1)], hidden)


def spans(words: list[str]) -> list[tuple[int, int]]:
    """The characters of each word in the text."""
    ends = np.cumsum([len(word) + 1 for word in words]).tolist()
    return [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]


# A CLIP: the text that names the square's colour fits by 1, any other by 0, and so does any text without a colour or
# picture without a square: else one colour may be told by the absence of the others. Pictures are of several sizes
# while it learns: else greys, always as many, may stand in for a bias.

VISION = {**SIZE, "image_size": GRID * PATCH, "patch_size": PATCH}
PLAIN = {"do_resize": False, "do_center_crop": False, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def clip(steps: int = 1600) -> Explainer:
    torch.manual_seed(0)
    encode = tokenizer()
    config = transformers.CLIPConfig(
        text_config={**WORDS, **IDS}, vision_config=VISION, projection_dim=32, logit_scale_init_value=0.0
    )
    model = started(transformers.CLIPModel(config))
    model.logit_scale.requires_grad_(False)  # the cosine itself
    silent(model.text_model.embeddings.token_embedding.weight, VOCABULARY.index("</s>"))
    silent(model.vision_model.embeddings.position_embedding.weight, 0)
    for parameter in (model.vision_model.embeddings.class_embedding, model.vision_model.pre_layrnorm.bias):
        parameter.requires_grad_(False).zero_()

    def loss(rng: np.random.Generator) -> Tensor:
        seen, told = (rng.choice([*NAMES, ""], count) for count in (32, 16))  # "": no square, no colour named
        grid = int(rng.integers(1, GRID + 1))
        drawn = [picture(rng, {int(rng.integers(grid**2)): name} if name else {}, grid) for name in seen]
        texts = [" ".join(sentence(rng, *[name] * bool(name))) + " </s>" for name in told]
        tokens = encode(texts, padding=True, return_tensors="pt")
        given = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        truth = torch.tensor((seen[:, None] == told) & (seen[:, None] != "")).float()
        found = model(**given, pixel_values=tensor(drawn), interpolate_pos_encoding=True)
        return squared(found.logits_per_image, truth)

    processor = transformers.CLIPProcessor(transformers.CLIPImageProcessorPil(**PLAIN), encode)
    return Explainer(fit(model, loss, steps), processor)


def matched(rng: np.random.Generator) -> Example:
    """Two texts of two colours on a picture of one of them: why the one rather than the other."""
    colour, other = rng.permutation(NAMES)[:2].tolist()
    place = int(rng.integers(GRID**2))
    pixels, words, wrong = picture(rng, {place: colour}), sentence(rng, colour), sentence(rng, other)

    def given(seen: Pixels, said: list[str]) -> Asked:
        return (Image.fromarray(seen), [" ".join(one) + " </s>" for one in (said, wrong)]), (0, 1)

    hidden = {(0, i): given(greyed(pixels, i), words) for i in range(GRID**2)}
    hidden |= {(1, i): given(pixels, replaced(words, i)) for i in range(len(words))}
    shown, target = given(pixels, words)
    return Example(shown, target, [(0, place), (1, words.index(colour))], hidden)


# A vision-language model: it writes the colour that is seen or named. Half of the time it is a square of the picture,
# half of the time a word of the text, never both. Patches are hidden by chance while it learns: else the others, always
# as many, may stand in for a bias. The answer is read at a silent mark behind the text.


def vlm(steps: int = 1500) -> Explainer:
    torch.manual_seed(0)
    encode = tokenizer()
    language = transformers.GPTNeoXConfig(**WORDS, **IDS, use_parallel_residual=False)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION), text_config=language,
        image_token_index=VOCABULARY.index("<image>"), vision_feature_layer=-2,
    )  # fmt: skip
    model = started(transformers.LlavaForConditionalGeneration(config))
    silent(model.get_input_embeddings().weight, VOCABULARY.index("<s>"))

    def loss(rng: np.random.Generator) -> Tensor:
        pictures, texts, truth = [], [], torch.zeros(64, len(VOCABULARY))
        kept = torch.tensor(rng.random((64, GRID**2)) < rng.random((64, 1)))
        for row, patches in zip(truth, kept, strict=True):
            colour, where, place = str(rng.choice(NAMES)), rng.random(), int(rng.integers(GRID**2))
            seen, named = where < 0.4, where > 0.6
            pictures.append(picture(rng, {place: colour} if seen else {}))
            texts.append(" ".join([*["<image>"] * GRID**2, *sentence(rng, *[colour] * named), "<s>"]))
            row[VOCABULARY.index(colour)] = float(seen or named)
            patches[place] |= seen
        tokens = encode(texts, padding=True, padding_side="left", return_tensors="pt")
        given = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        given["attention_mask"][given["input_ids"] == VOCABULARY.index("<image>")] = kept.flatten().long()
        return squared(model(**given, pixel_values=tensor(pictures)).logits[:, -1], truth)

    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessorPil(**PLAIN), encode, patch_size=PATCH, vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )  # fmt: skip
    return Explainer(fit(model, loss, steps), processor)


def asked(rng: np.random.Generator) -> Example:
    colour, other = rng.permutation(NAMES)[:2].tolist()
    seen, place = bool(rng.random() < 0.5), int(rng.integers(GRID**2))
    pixels, words = picture(rng, {place: colour} if seen else {}), sentence(rng, *[colour] * (not seen))

    def given(pixels: Pixels, words: list[str]) -> Asked:
        return (Image.fromarray(pixels), " ".join(["<image>", *words, "<s>"])), (colour, other)

    hidden = {(0, i): given(greyed(pixels, i), words) for i in range(GRID**2)}
    hidden |= {(1, i): given(pixels, replaced(words, i)) for i in range(len(words))}
    shown, target = given(pixels, words)
    return Example(shown, target, [(0, place) if seen else (1, words.index(colour))], hidden)


# A detector: every colour is there or not, whatever the others are, and has a detection token that looks for it.

FOUND = 5.0  # logit of the class where it is there, and of "no object" where it is not


def detector(steps: int = 1000) -> Explainer:
    torch.manual_seed(0)
    config = transformers.YolosConfig(
        **SIZE, image_size=[GRID * PATCH] * 2, patch_size=PATCH, num_detection_tokens=len(NAMES),
        id2label=dict(enumerate(NAMES)), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = started(transformers.YolosForObjectDetection(config), positions=0.5)

    def loss(rng: np.random.Generator) -> Tensor:
        drawn = [placed(rng) for _ in range(32)]
        there = torch.tensor([[name in squares.values() for name in NAMES] for squares in drawn])
        classes = torch.where(there, torch.arange(len(NAMES)), len(NAMES))
        boxes = torch.tensor([[box(squares, name) for name in NAMES] for squares in drawn])
        found = model(pixel_values=tensor([picture(rng, squares) for squares in drawn]))
        truth = FOUND * torch.nn.functional.one_hot(classes, len(NAMES) + 1)
        aside: Tensor = (found.pred_boxes - boxes)[there].abs().mean()
        return squared(found.logits, truth) / FOUND**2 + aside

    size = {"height": GRID * PATCH, "width": GRID * PATCH}
    processor = transformers.ViTImageProcessorPil(size=size, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    return Explainer(fit(model, loss, steps), processor)


def placed(rng: np.random.Generator) -> dict[int, str]:
    """Each colour with a probability of one half, at places of their own."""
    places = rng.permutation(GRID**2).tolist()
    return {place: name for place, name in zip(places, NAMES, strict=False) if rng.random() < 0.5}


def box(squares: dict[int, str], name: str) -> tuple[float, float, float, float]:
    """Middle and sizes of a colour's square, in shares of the picture; zeros where it is not there."""
    place = next((place for place, own in squares.items() if own == name), None)
    row, column = divmod(place or 0, GRID)
    return ((column + 0.5) / GRID, (row + 0.5) / GRID, 1 / GRID, 1 / GRID) if place is not None else (0.0,) * 4


def detected(rng: np.random.Generator) -> Example:
    squares: dict[int, str] = {}
    while not squares:
        squares = placed(rng)
    place = int(rng.choice(list(squares)))
    target, pixels = (NAMES.index(squares[place]), (squares[place], "no object")), picture(rng, squares)
    hidden = {(0, i): (Image.fromarray(greyed(pixels, i)), target) for i in range(GRID**2)}
    return Example(Image.fromarray(pixels), target, [(0, place)], hidden)


KINDS: dict[str, tuple[Callable[[], Explainer], Callable[[np.random.Generator], Example]]] = {
    "tagger": (tagger, tagged), "clip": (clip, matched), "detector": (detector, detected), "vlm": (vlm, asked)
}  # fmt: skip


def explained(explain: Explainer, given: Any, target: Any, method: str = METHODS[0]) -> Explanation:
    found: Any = explain(given, target=target, method=method, ledger=False)
    assert isinstance(found, Explanation)
    return found


def share(found: Explanation, deciding: list[tuple[int, int]]) -> tuple[float, float]:
    """The share of the deciding units in the positive relevance of the units of all parts, and in that of everything.

    Units are patches and words. Everything is also what the model puts beside them: marks of ends, class and detection
    tokens (those of a picture by their sum).
    """
    units, parts = found.without_special().parts, found.parts
    right = sum(max(0.0, units[part].unit_scores()[unit]) for part, unit in deciding)
    of_units = sum(part.unit_scores().clip(0).sum() for part in units)
    of_all = sum(part.unit_scores().clip(0).sum() + max(0.0, getattr(part, "rest", 0.0)) for part in parts)
    return float(right / max(of_units, 1e-30)), float(right / max(of_all, 1e-30))


def obeyed(explain: Explainer, example: Example) -> tuple[float, float]:
    """The least share of the value that falls with a deciding unit hidden, and the most that another one moves it."""
    whole = explained(explain, example.given, example.target).value
    moved = {key: 1 - explained(explain, *asked).value / whole for key, asked in example.hidden.items()}
    return (
        min(moved[key] for key in example.deciding),
        max(abs(share) for key, share in moved.items() if key not in example.deciding),
    )


def main(names: list[str]) -> None:
    for name in names or list(KINDS):
        train, draw = KINDS[name]
        explain, rng = train(), np.random.default_rng(1)
        falls, moves = zip(*(obeyed(explain, draw(rng)) for _ in range(4)), strict=True)
        print(
            f"{name}: hidden, a deciding unit takes {min(falls):.3f} of the value, another one moves {max(moves):.3f}"
        )
        examples = [draw(rng) for _ in range(20)]
        for method in METHODS:
            shares = [share(explained(explain, one.given, one.target, method), one.deciding) for one in examples]
            of_units, of_all = np.transpose(shares)
            print(
                f"  {method}: {of_units.mean():.3f} (least {of_units.min():.3f}), of all {of_all.mean():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
