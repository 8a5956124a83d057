"""A CLIP of known truth: a coloured square on black, and its colour among words drawn by chance. Trained in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from relprop import Explainer

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "yellow": (255, 255, 0),
           "purple": (255, 0, 255), "white": (255, 255, 255)}  # fmt: skip
NAMES = list(COLOURS)
FILLERS = ["what", "is", "the", "of", "thing", "?", "a", "photo", "left", "right", "side", "on", ":", "square", "there"]
VOCABULARY = ["<pad>", "</s>", "<s>", "<unk>", *FILLERS, *NAMES]
STEPS = 1400


def tokenizer() -> Any:
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens([word for word in VOCABULARY if word.startswith("<")])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def pixels(colour: str, patch: int) -> Any:
    drawn = np.zeros((32, 32, 3), np.uint8)
    row, column = divmod(patch, 4)
    drawn[row * 8 + 1 : row * 8 + 7, column * 8 + 1 : column * 8 + 7] = COLOURS[colour]
    return drawn


def text(colour: str, rng: np.random.Generator) -> str:
    words = list(rng.choice(FILLERS, rng.integers(2, 6)))
    words.insert(int(rng.integers(len(words) + 1)), colour)
    return " ".join(words) + " </s>"


def trained(rng: np.random.Generator) -> tuple[Any, Any]:
    """Black patches are zero at the first block, as positions and biases there are: the square alone can speak."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    words = {**size, "vocab_size": len(VOCABULARY), "max_position_embeddings": 16}
    config = transformers.CLIPConfig(
        text_config={**words, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1},
        vision_config={**size, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    model: Any = transformers.CLIPModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embedding" in name:
                parameter.normal_(0, 0.5)
            if "position" in name or name.endswith("pre_layrnorm.bias"):
                parameter.zero_().requires_grad_(False)
    own = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, encode = torch.optim.AdamW(own, lr=2e-3, weight_decay=0.3), tokenizer()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        truth = rng.integers(0, len(NAMES), 48)
        drawn = np.stack([pixels(NAMES[i], int(rng.integers(16))) for i in truth])
        tokens = encode([text(name, rng) for name in NAMES], padding=True, return_tensors="pt")
        given = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        logits = model(**given, pixel_values=torch.tensor(drawn).permute(0, 3, 1, 2) / 255).logits_per_image
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, torch.tensor(truth)).backward()
        optimizer.step()
        schedule.step()
    plain = {"do_resize": False, "do_center_crop": False, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}
    processor = transformers.CLIPProcessor(transformers.CLIPImageProcessor(**plain), encode)
    return model.eval(), processor


@pytest.mark.slow
def test_the_square_and_its_colour_decide() -> None:
    """Of the positive relevance, the square's patch has all of the picture's, and the colour most of the words'.

    Measured: 1.00 and 0.94. The words that were drawn by chance keep a little; 0.95 is not reached.
    """
    rng = np.random.default_rng(0)
    explainer = Explainer(*trained(rng))
    patches, words, right = [], [], 0
    for number in range(24):
        colour, patch = NAMES[number % 6], int(rng.integers(16))
        texts = [text(name, rng) for name in NAMES]
        found = explainer((Image.fromarray(pixels(colour, patch)), texts))
        right += found.prediction == repr(texts[number % 6])
        image, said = found.parts
        grid = image.scores.clip(0)
        patches.append(grid.flat[patch] / grid.sum())
        scored = [(u.text, max(0.0, s)) for u, s in zip(said.units, said.scores, strict=True) if not u.special]
        words.append(sum(s for word, s in scored if word == colour) / sum(s for _, s in scored))
    assert right == 24
    assert np.mean(patches) > 0.99
    assert np.mean(words) > 0.92, words
