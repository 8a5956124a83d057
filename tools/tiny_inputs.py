"""Inputs of every modality for a tiny model: two examples of uneven length, and the batch they make."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import tiny_pictures as pictures
import tiny_signals as signals
from tiny_subject import FIRST_PLAIN_TOKEN, LENGTHS, Example, Maker, Subject, field, number, text_config, words

DECODER_TOKENS = 9
CHOICES = 3


def segments(length: int) -> Tensor:
    """Token types of a pair of texts."""
    return (torch.arange(length) >= length // 2).long()[None]


def boxes(length: int) -> Tensor:
    """Places on a page: left, top, right, bottom."""
    corner, size = torch.randint(0, 60, (1, length, 2)), torch.randint(1, 60, (1, length, 2))
    return torch.cat([corner, corner + size], -1)


def longest(subject: Subject) -> int:
    """How many positions the text model has."""
    text = text_config(subject)
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "text_seq_length")
    room = number(text, *names, default=10**6)
    return room - 4 if room > 0 else 10**6  # some begin to count behind the padding id


def text(subject: Subject, length: int) -> Example:
    """Tokens with all that belongs to them."""
    takes, config = subject.takes, subject.config
    length = min(length, longest(subject) - (max(LENGTHS) - length))
    books = number(text_config(subject), "num_codebooks", default=1) if subject.case.architecture in CODEBOOKS else 1
    if subject.case.model_type in FRAMED:
        width = number(config, "num_codebooks", default=4) + (subject.case.model_type != "csm")
        ids = torch.randint(FIRST_PLAIN_TOKEN, 99, (1, length, width))
        return {"input_ids": ids, "attention_mask": torch.ones(1, length, dtype=torch.long)}
    found: Example = {"input_ids": torch.cat([words(subject, length) for _ in range(books)])}
    if "attention_mask" in takes:
        dtype = subject.dtype if subject.case.model_type in FLOAT_MASKS else torch.long
        found["attention_mask"] = torch.ones(1, length, dtype=dtype)
    if subject.case.model_type in PLANTED:
        name, places = PLANTED[subject.case.model_type]
        found["input_ids"][:, places] = getattr(subject.config, name)
    if "token_type_ids" in takes and number(config, "type_vocab_size", default=0) > 1:
        found["token_type_ids"] = segments(length)
    if "bbox" in takes:
        found["bbox"] = boxes(length)
    return found


def decoder(subject: Subject, length: int) -> Example:
    """The beginning of what an encoder-decoder writes."""
    config = subject.sub("decoder", "text_config", "decoder_config")
    books = number(config, "num_codebooks", default=1) if subject.case.model_type.startswith("musicgen") else 1
    return {"decoder_input_ids": torch.cat([words(subject, DECODER_TOKENS, config) for _ in range(books)])}


# ------------------------------------------------------------------------------- pictures and sounds inside of a text

MEDIA = {  # argument -> the method that embeds it, and the config fields that name its placeholder
    "pixel_values": ("get_image_features", ("image_token_id", "image_token_index", "media_placeholder_token_id")),
    "input_features": ("get_audio_features", ("audio_token_id", "audio_token_index")),
    "input_values": ("get_audio_features", ("audio_token_id", "audio_token_index")),
    "pixel_values_videos": ("get_video_features", ("video_token_id", "video_token_index")),
}


def placeholders(subject: Subject, media: Example) -> list[int]:
    """As many placeholder tokens as the model makes of its pictures and sounds."""
    found: list[int] = []
    if (count := MARKS.get(subject.case.model_type)) is not None:
        return count(subject)
    for name, (method, tokens) in MEDIA.items():
        owner = _owner(subject.model, method)
        token = field(subject.config, *tokens, default=field(field(subject.config, "vlm_config"), *tokens))
        if name in media and owner is not None and token is not None:
            taken = inspect.signature(getattr(owner, method)).parameters
            with torch.no_grad():
                features = getattr(owner, method)(**{n: v for n, v in media.items() if n in taken})
            found += [int(token)] * rows_of(features)
    return found


def _owner(model: Any, method: str) -> Any:
    """The innermost module with this method: outer ones may pass on anything without naming it."""
    inner = [getattr(model, name, None) for name in ("vlm", "model")]
    found = [
        one for one in (*(_owner(i, method) for i in inner if isinstance(i, torch.nn.Module)), model) if one is not None
    ]
    return next((one for one in found if hasattr(one, method)), None)


def rows_of(features: Any) -> int:
    """How many tokens a picture's features are."""
    pooled = getattr(features, "pooler_output", None)
    if deep := getattr(features, "deepstack_features", None):
        pooled = deep[0][1]
    if pooled is None:
        pooled = getattr(features, "last_hidden_state", features)
    if isinstance(pooled, Tensor):
        return pooled.shape[:-1].numel()
    return sum(rows_of(one) for one in pooled if isinstance(one, Tensor | list | tuple))


def with_media(subject: Subject, media: Example, length: int) -> Example:
    """Text that holds the placeholders of its pictures and sounds behind its first token."""
    marks = placeholders(subject, media)
    found = text(subject, length)
    if marks:
        longer = torch.cat([found["input_ids"][:, :1], torch.tensor([marks]), found["input_ids"][:, 1:]], 1)
        found["input_ids"] = longer
        for name in ("attention_mask", "token_type_ids"):
            if name in found:
                found[name] = torch.cat([found[name][:, :1].expand(-1, len(marks)), found[name]], 1)
        if "mm_token_type_ids" in subject.takes:
            found["mm_token_type_ids"] = torch.isin(found["input_ids"], torch.tensor(marks)).long()
    return {**found, **media}


def cross_attention(subject: Subject, found: Example) -> Example:
    """Which token looks at which tile: all at all."""
    return {"cross_attention_mask": torch.ones(1, found["input_ids"].shape[1], 1, 4, dtype=torch.long)}


def image_attention(subject: Subject, found: Example) -> Example:
    """Which token looks at which picture: all at the only one."""
    return {"image_attention_mask": torch.ones(1, found["input_ids"].shape[1], 1, dtype=torch.long)}


def image_places(subject: Subject, found: Example) -> Example:
    """Where in the text the picture stands."""
    mask = torch.zeros_like(found["input_ids"])
    mask[:, 1 : 1 + subject.config.latent_query_num] = 1
    return {"image_embeds_position_mask": mask}


def modality_types(subject: Subject, found: Example) -> Example:
    """0 for text, 1 for the picture, and once more for the experts."""
    return {"moe_mm_token_type_ids": found["mm_token_type_ids"]}


# What depends on the finished text, by model type.
AFTER: dict[str, Callable[[Subject, Example], Example]] = {
    "ernie4_5_vl_moe": modality_types,
    "idefics": image_attention,
    "kosmos-2": image_places,
    "kosmos-2.5": image_places,
    "mllama": cross_attention,
}

# Model types whose placeholders cannot be counted by embedding the picture first.
MARKS: dict[str, Callable[[Subject], list[int]]] = {
    "idefics": lambda subject: [],
    "kosmos-2": lambda subject: [],
    "kosmos-2.5": lambda subject: [],
    "mllama": lambda subject: [subject.config.image_token_index],
    "instructblipvideo": lambda subject: [subject.config.video_token_index] * subject.config.num_query_tokens * 4,
    "musicflamingo": lambda subject: [subject.config.audio_token_id] * 16,
    "qwen2_audio": lambda subject: [field(subject.config, "audio_token_id", "audio_token_index")] * 16,
    "t5gemma2": lambda subject: [subject.config.image_token_index] * 4,
    "pi0": lambda subject: [subject.config.vlm_config.image_token_index] * 16,
    "colqwen2": lambda subject: [subject.config.vlm_config.image_token_id] * 4,
}

# ------------------------------------------------------------------------------------------------------- which of them


def modalities(subject: Subject) -> tuple[Maker, ...]:
    """What the model reads, by the names of its arguments."""
    takes, kind = subject.takes, subject.case.model_type
    if kind in MAKERS:
        return MAKERS[kind]
    found: list[Maker] = []
    if "input_points" in takes:
        found.append(pictures.prompt_points)
    elif "image_grid_thw" in takes:
        found.append(pictures.patches_with_grid)
    elif "spatial_shapes" in takes:
        found.append(pictures.padded_patches)
    elif "pixel_attention_mask" in takes:
        found.append(pictures.several_images)
    elif "pixel_values" in takes:
        found.append(pictures.image)
    elif "pixel_values_videos" in takes:
        found.append(pictures.video)
    if "input_values" in takes:
        found.append(signals.waveform)
    elif "input_features" in takes:
        found.append(signals.spectrogram)
    if "past_values" in takes:
        found.append(signals.series)
    return tuple(found)


# Tasks whose encoder-decoders write their decoder's input themselves: the text, shifted by one.
SHIFTED = ("text-classification", "question-answering", "token-classification")

# Model types whose arguments do not say by their names what they hold.
MAKERS: dict[str, tuple[Maker, ...]] = {
    "whisper": (signals.whole_spectrogram,),
    "audio-spectrogram-transformer": (signals.patch_spectrogram,),
    "audioflamingo3": (signals.masked_mel,),
    "colqwen2": (pictures.batched_patches_with_grid,),
    "colmodernvbert": (pictures.several_images,),
    "efficientloftr": (pictures.image_pair,),
    "flava": (pictures.image_and_codebook,),
    "fuyu": (pictures.flat_patches,),
    "gemma4": (pictures.placed_patches,),
    "gemma4_unified": (pictures.placed_patches,),
    "glmasr": (signals.masked_mel,),
    "granite4_vision": (pictures.tiles,),
    "hiera": (pictures.noisy_image,),
    "idefics": (pictures.several_images,),
    "instructblip": (pictures.image_and_question,),
    "instructblipvideo": (pictures.image_and_question,),
    "kimi_k25": (pictures.square_patches_with_grid,),
    "kosmos-2.5": (pictures.numbered_patches,),
    "lightglue": (pictures.image_pair,),
    "llava_next": (pictures.tiles,),
    "llava_next_video": (pictures.tiles,),
    "llava_onevision": (pictures.tiles,),
    "lxmert": (pictures.region_features,),
    "minicpm_ocr": (pictures.packed_patches,),
    "minicpmv4_6": (pictures.packed_patches,),
    "minicpmv4_7": (pictures.packed_patches,),
    "mllama": (pictures.aspect_tiles,),
    "moss_transcribe_diarize": (signals.masked_mel,),
    "musicflamingo": (signals.masked_mel,),
    "inkling_mm_model": (pictures.clip_cubes,),
    "vibevoice_asr": (signals.one_channel,),
    "fun_asr_nano": (signals.masked_spectrogram,),
    "granite_speech5_ctc": (signals.stacked_spectrogram,),
    "csm": (),
    "musicgen": (),
    "musicgen_melody": (),
    "nemo_speechlm": (signals.masked_spectrogram,),
    "neomme": (pictures.loose_patches,),
    "omdet-turbo": (pictures.image_and_classes,),
    "oneformer": (pictures.image_and_task,),
    "paddleocr_vl": (pictures.square_patches_with_grid,),
    "pi0": (pictures.robot,),
    "pix2struct": (pictures.numbered_patches,),
    "pop2piano": (signals.embedded_frames,),
    "prompt_depth_anything": (pictures.image_and_depth,),
    "qwen2_5_omni_thinker": (pictures.patches_with_grid,),
    "qwen2_audio": (signals.masked_mel,),
    "qwen3_asr": (signals.masked_mel,),
    "qwen3_omni_moe_thinker": (pictures.patches_with_grid,),
    "speecht5": (signals.spoken_prefix,),
    "superglue": (pictures.image_pair,),
    "timesfm": (signals.plain_series,),
    "timesfm2_5": (signals.plain_series,),
    "timesformer": (pictures.video,),
    "video_llama_3": (pictures.patches_with_merge_sizes,),
    "videomae": (pictures.masked_video,),
    "visual_bert": (pictures.region_embeds,),
    "vit_mae": (pictures.noisy_image,),
    "vivit": (pictures.video,),
    "voxtral": (signals.whole_spectrogram,),
}
STRIPS = dict.fromkeys(("minicpm_ocr", "minicpmv4_6", "minicpmv4_7"), "pixel_values")
NO_DECODER = ("blip-2", "instructblip", "instructblipvideo")  # by default their text model is a decoder alone
NO_TEXT = ("pix2struct", "pop2piano", "pp_formulanet")  # their text argument is an alternative to the features
# Special tokens that a task looks for in the text: the config field that names the token, and the places.
PLANTED = {"longformer": ("sep_token_id", [1, 30, 50]), "splinter": ("question_token_id", [1])}
FRAMED = ("csm", "kyutai_speech_to_text")  # each frame holds a text token and one of every codebook
CODEBOOKS = ("MusicgenForCausalLM", "MusicgenMelodyForCausalLM")  # several rows of ids per example
FLOAT_MASKS = ("prophetnet", "splinter")  # an integer mask times float64's smallest number is NaN in these


def example(subject: Subject, length: int) -> Example:
    """One example, as a batch of one."""
    media: Example = {}
    takes = subject.takes
    for maker in modalities(subject):
        made = maker(subject, length)
        media |= made if set(made) <= takes else {}  # a family's text model reads no pictures
    if "input_ids" in takes and subject.case.model_type not in NO_TEXT:
        found = with_media(subject, media, length) if media else text(subject, length)
    else:
        found = media
    if (after := AFTER.get(subject.case.model_type)) is not None and media:
        found |= after(subject, found)
    if "decoder_input_ids" in takes and subject.case.task not in SHIFTED and subject.case.model_type not in NO_DECODER:
        found |= decoder(subject, length)
    return found


def choices(subject: Subject, length: int) -> Example:
    """Several answers to one question: each argument [1, choices, length]."""
    each = [text(subject, length - 2 * i) for i in range(CHOICES)]
    return {name: value[None] for name, value in collate(each, pad_of(subject)).items()}


def pad_of(subject: Subject) -> int:
    pad = field(text_config(subject), "pad_token_id", default=0)
    return pad if isinstance(pad, int) and pad >= 0 else 0


def collate(examples: list[Example], pad: int, strip: str | None = None) -> Example:
    """The batch: what differs in length is padded on the right, then all examples follow one another.

    A `strip` holds all examples side by side instead.
    """
    joined = {}
    for name in examples[0]:
        values = [one[name] for one in examples]
        joined[name] = (
            torch.cat(values, -1) if name == strip else _joined(values, pad if name.endswith("input_ids") else 0)
        )
    return joined


def _joined(values: list[Any], pad: int) -> Any:
    if not isinstance(values[0], Tensor):
        return values[0]
    if values[0].dim() < 2 or len({value.shape[1:] for value in values}) == 1:
        return torch.cat(values)
    size = [max(sizes) for sizes in zip(*(value.shape[1:] for value in values), strict=True)]
    wide = [value.new_full((len(value), *size), pad) for value in values]
    for room, value in zip(wide, values, strict=True):
        room[(slice(None), *(slice(n) for n in value.shape[1:]))] = value
    return torch.cat(wide)


def examples(subject: Subject, lengths: tuple[int, ...] = LENGTHS) -> list[Example]:
    make = choices if subject.case.task == "multiple-choice" else example
    return [make(subject, length) for length in lengths]
