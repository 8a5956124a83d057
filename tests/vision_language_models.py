"""Tiny models that read a picture and a text, with processors made of tiny tokenizers."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

_WORDS = """
<pad> <s> </s> <unk> <image> what is the colour of thing ? red green blue dark bright a photo square circle USER
ASSISTANT : left right cat dog yes no <|vision_start|> <|vision_end|> <fake_token_around_image> <global-img>
<end_of_utterance> <row_1_col_1> <start_of_image> <end_of_image>
"""
VOCABULARY = _WORDS.split()
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
PATCHES = {**SIZES, "image_size": 32, "patch_size": 8}
SQUARE = {"height": 32, "width": 32}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WORDS = {**SIZES, "vocab_size": len(VOCABULARY), "max_position_embeddings": 256, **SPECIAL}
LLAMA = {**WORDS, "num_key_value_heads": 2}
QUESTION = "what is the colour of the thing ?"
TEMPLATE = (
    "USER : {% for c in messages[0]['content'] %}{% if c['type'] == 'image' %}PLACE {% else %}{{ c['text'] }} "
    "{% endif %}{% endfor %}ASSISTANT :"
)
TEMPLATES = {place: TEMPLATE.replace("PLACE", place) for place in ("<image>", "<start_of_image>")}


def word_tokenizer(**special: Any) -> Any:
    """One token per word."""
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens([word for word in VOCABULARY if word.startswith("<")])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>", **special
    )


def picture(seed: int = 0, size: tuple[int, int] = (48, 32)) -> Image.Image:
    width, height = size
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8))


def _built(kind: Any, config: Any) -> Any:
    """Random weights far from zero, and gates open, so that every input counts."""
    torch.manual_seed(0)
    model = kind(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3 / parameter.shape[-1] ** 0.25)
            elif "alpha" in name:
                parameter.fill_(1.0)
    return model.eval().double()


def _clip() -> tuple[Any, Any]:
    text = {**WORDS, "max_position_embeddings": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config=PATCHES, projection_dim=16)
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=SQUARE)
    return _built(transformers.CLIPModel, config), transformers.CLIPProcessor(images, word_tokenizer())


def _siglip() -> tuple[Any, Any]:
    """Trained with padding that it reads: its tokenizer makes no mask."""
    text = {**WORDS, "max_position_embeddings": 16}
    tokenizer = word_tokenizer(model_max_length=16)
    tokenizer.model_input_names = ["input_ids"]
    images = transformers.SiglipImageProcessor(size=SQUARE)
    config = transformers.SiglipConfig(text_config=text, vision_config=PATCHES)
    return _built(transformers.SiglipModel, config), transformers.SiglipProcessor(images, tokenizer)


def _vilt() -> tuple[Any, Any]:
    config = transformers.ViltConfig(**{**WORDS, **PATCHES}, num_labels=3)
    images = transformers.ViltImageProcessor(size={"shortest_edge": 32}, size_divisor=8)
    return _built(transformers.ViltForQuestionAnswering, config), transformers.ViltProcessor(images, word_tokenizer())


def _llava() -> tuple[Any, Any]:
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**PATCHES),
        text_config=transformers.LlamaConfig(**LLAMA),
        image_token_index=4,
    )
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=SQUARE)
    processor = transformers.LlavaProcessor(
        images, word_tokenizer(), patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1
    )
    return _built(transformers.LlavaForConditionalGeneration, config), processor


class PackedProcessor:
    """As Qwen2-VL's: patches of a picture in a row, and as many places for them in the text, four patches to one."""

    chat_template = TEMPLATE.replace("PLACE", "<|vision_start|> <image> <|vision_end|>")

    def __init__(self) -> None:
        size = {"shortest_edge": 256, "longest_edge": 4096}
        self.image_processor = transformers.Qwen2VLImageProcessor(
            patch_size=4, merge_size=2, temporal_patch_size=2, size=size
        )
        self.tokenizer = word_tokenizer()

    def apply_chat_template(self, messages: Any, **options: Any) -> Any:
        return self.tokenizer.apply_chat_template(messages, chat_template=self.chat_template, **options)

    def __call__(self, images: Any, text: Any, return_tensors: str) -> dict[str, Any]:
        pixels = self.image_processor(images=images, return_tensors=return_tensors)
        places = int(pixels["image_grid_thw"].prod()) // 4
        expanded = [one.replace("<image>", "<image> " * places) for one in text]
        tokens = self.tokenizer(expanded, return_tensors=return_tensors)
        return {**pixels, **tokens, "mm_token_type_ids": (tokens["input_ids"] == 4).long()}


def _qwen(version: str, vision: dict[str, Any]) -> tuple[Any, Any]:
    common = {"depth": 2, "num_heads": 4, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    config = getattr(transformers, f"{version}Config")(
        text_config={**LLAMA, "rope_parameters": rope},
        vision_config={**common, **vision},
        image_token_id=4,
        video_token_id=3,
        vision_start_token_id=VOCABULARY.index("<|vision_start|>"),
        vision_end_token_id=VOCABULARY.index("<|vision_end|>"),
    )
    return _built(getattr(transformers, f"{version}ForConditionalGeneration"), config), PackedProcessor()


def _qwen2_vl() -> tuple[Any, Any]:
    return _qwen("Qwen2VL", {"embed_dim": 32, "hidden_size": 32, "mlp_ratio": 2})


def _qwen2_5_vl() -> tuple[Any, Any]:
    own = {"hidden_size": 32, "out_hidden_size": 32, "intermediate_size": 64, "window_size": 16}
    return _qwen("Qwen2_5_VL", {**own, "fullatt_block_indexes": [1]})


def _tiles(version: str) -> tuple[Any, Any]:
    """The picture in tiles, and once more as a whole."""
    config = getattr(transformers, f"{version}Config")(
        text_config=transformers.LlamaConfig(**LLAMA), vision_config=PATCHES, image_token_id=4, scale_factor=2
    )
    images = transformers.Idefics3ImageProcessor(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    processor = transformers.Idefics3Processor(
        images, word_tokenizer(), image_seq_len=4, chat_template=TEMPLATES["<image>"]
    )
    return _built(getattr(transformers, f"{version}ForConditionalGeneration"), config), processor


def _idefics3() -> tuple[Any, Any]:
    return _tiles("Idefics3")


def _smolvlm() -> tuple[Any, Any]:
    return _tiles("SmolVLM")


def _paligemma() -> tuple[Any, Any]:
    config = transformers.PaliGemmaConfig(
        text_config={**LLAMA, "head_dim": 8, "model_type": "gemma"},
        vision_config={**PATCHES, "model_type": "siglip_vision_model", "projection_dim": 32},
        image_token_index=4,
        projection_dim=32,
    )
    images = transformers.SiglipImageProcessor(size=SQUARE)
    images.image_seq_length = 16
    tokenizer = word_tokenizer(extra_special_tokens={"image_token": "<image>"})
    return (
        _built(transformers.PaliGemmaForConditionalGeneration, config),
        transformers.PaliGemmaProcessor(images, tokenizer),
    )


def _gemma3() -> tuple[Any, Any]:
    named = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image>"}
    config = transformers.Gemma3Config(
        text_config={**LLAMA, "head_dim": 8},
        vision_config={**PATCHES, "model_type": "siglip_vision_model"},
        image_token_index=4,
        mm_tokens_per_image=4,
        boi_token_index=VOCABULARY.index("<start_of_image>"),
        eoi_token_index=VOCABULARY.index("<end_of_image>"),
    )
    processor = transformers.Gemma3Processor(
        transformers.Gemma3ImageProcessor(size=SQUARE),
        word_tokenizer(extra_special_tokens=named),
        image_seq_length=4,
        chat_template=TEMPLATES["<start_of_image>"],
    )
    return _built(transformers.Gemma3ForConditionalGeneration, config), processor


def _idefics() -> tuple[Any, Any]:
    """Text that looks at the picture by cross-attention."""
    vision = {"embed_dim": 32, "image_size": 32, "patch_size": 8, "intermediate_size": 64}
    config = transformers.IdeficsConfig(
        **WORDS,
        vision_config={**vision, "num_attention_heads": 4, "num_hidden_layers": 2},
        perceiver_config={"use_resampler": False},
        cross_layer_interval=1,
        additional_vocab_size=0,
    )
    images = transformers.IdeficsImageProcessor(image_size=32)
    return (
        _built(transformers.IdeficsForVisionText2Text, config),
        transformers.IdeficsProcessor(images, word_tokenizer()),
    )


def _blip2() -> tuple[Any, Any]:
    text = transformers.OPTConfig(
        **{**SPECIAL, "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
        vocab_size=len(VOCABULARY),
        max_position_embeddings=256,
        word_embed_proj_dim=32,
    )
    config = transformers.Blip2Config(
        vision_config=PATCHES,
        qformer_config={**WORDS, "encoder_hidden_size": 32},
        text_config=text,
        num_query_tokens=4,
        image_token_index=4,
    )
    images = transformers.BlipImageProcessor(size=SQUARE)
    processor = transformers.Blip2Processor(images, word_tokenizer(), num_query_tokens=4)
    return _built(transformers.Blip2ForConditionalGeneration, config), processor


WRITERS = {
    "llava": _llava, "qwen2_vl": _qwen2_vl, "qwen2_5_vl": _qwen2_5_vl, "smolvlm": _smolvlm, "idefics3": _idefics3,
    "paligemma": _paligemma, "gemma3": _gemma3, "idefics": _idefics, "blip2": _blip2,
}  # fmt: skip
COMPARERS = {"clip": _clip, "siglip": _siglip}
OTHERS = {"vilt": _vilt}


@cache
def model_and_processor(name: str) -> tuple[Any, Any]:
    return {**WRITERS, **COMPARERS, **OTHERS}[name]()


def without(processor: Any, name: str) -> Any:
    """A processor that lacks one of its halves."""
    return SimpleNamespace(**{one: getattr(processor, one) for one in ("image_processor", "tokenizer") if one != name})
