"""Builds a tiny random model of every architecture of four tasks, so that a sweep needs neither network nor memory."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from readings import Reading, reading_of
from tiny_configs import shrink
from tiny_inputs import STRIPS, collate, examples, pad_of
from tiny_pictures import IMAGE
from tiny_subject import FIRST_PLAIN_TOKEN, LENGTHS, Subject

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

MAX_PARAMETERS = 20_000_000
LABELS = 3
TOKENS = 7
POSITIONS = 128  # room for the long texts and their pictures
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}  # between an example alone and in a batch

NORMS = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.LayerNorm, torch.nn.GroupNorm)
# Tasks by the mapping that registers their heads. A pair that several mappings hold belongs to the first of these.
_MAPPINGS = (
    "text-classification=SEQUENCE_CLASSIFICATION question-answering=QUESTION_ANSWERING causal-lm=CAUSAL_LM "
    "image-classification=IMAGE_CLASSIFICATION token-classification=TOKEN_CLASSIFICATION "
    "multiple-choice=MULTIPLE_CHOICE next-sentence=NEXT_SENTENCE_PREDICTION seq2seq-lm=SEQ_TO_SEQ_CAUSAL_LM "
    "speech-seq2seq=SPEECH_SEQ_2_SEQ masked-lm=MASKED_LM image-text-to-text=IMAGE_TEXT_TO_TEXT "
    "document-question-answering=DOCUMENT_QUESTION_ANSWERING table-question-answering=TABLE_QUESTION_ANSWERING "
    "visual-question-answering=VISUAL_QUESTION_ANSWERING retrieval=RETRIEVAL "
    "audio-classification=AUDIO_CLASSIFICATION audio-frame-classification=AUDIO_FRAME_CLASSIFICATION "
    "audio-xvector=AUDIO_XVECTOR ctc=CTC rnnt=RNNT tdt=TDT "
    "video-classification=VIDEO_CLASSIFICATION object-detection=OBJECT_DETECTION "
    "zero-shot-image-classification=ZERO_SHOT_IMAGE_CLASSIFICATION "
    "zero-shot-object-detection=ZERO_SHOT_OBJECT_DETECTION semantic-segmentation=SEMANTIC_SEGMENTATION "
    "instance-segmentation=INSTANCE_SEGMENTATION universal-segmentation=UNIVERSAL_SEGMENTATION "
    "image-segmentation=IMAGE_SEGMENTATION mask-generation=MASK_GENERATION depth-estimation=DEPTH_ESTIMATION "
    "normal-estimation=NORMAL_ESTIMATION pointmap-estimation=POINTMAP_ESTIMATION pose-estimation=POSE_ESTIMATION "
    "keypoint-detection=KEYPOINT_DETECTION keypoint-matching=KEYPOINT_MATCHING image-matting=IMAGE_MATTING "
    "image-to-image=IMAGE_TO_IMAGE masked-image-modeling=MASKED_IMAGE_MODELING "
    "causal-image-modeling=CAUSAL_IMAGE_MODELING text-recognition=TEXT_RECOGNITION "
    "table-recognition=TABLE_RECOGNITION text-to-spectrogram=TEXT_TO_SPECTROGRAM text-to-waveform=TEXT_TO_WAVEFORM "
    "time-series-classification=TIME_SERIES_CLASSIFICATION time-series-prediction=TIME_SERIES_PREDICTION "
    "time-series-regression=TIME_SERIES_REGRESSION multimodal-lm=MULTIMODAL_LM pretraining=PRETRAINING"
)
TASKS = {task: f"MODEL_FOR_{name}_MAPPING_NAMES" for task, name in (one.split("=") for one in _MAPPINGS.split())}

FLOAT_MASKS = {"prophetnet", "splinter"}  # an integer mask times float64's smallest number is NaN in these
# Special tokens that question answering looks for in the text: the config field that names the token, and the places.
PLANTED = {"longformer": ("sep_token_id", [1, 3, 5]), "splinter": ("question_token_id", [1])}

_DRAFTER = "It drafts for a larger model and needs that model's hidden states and key-value cache as inputs."
_OVERFLOW = "It puts float64's smallest number into a float32 mask, which overflows; it builds in float32."
REFUSALS = {  # by model type
    "dinat": "It needs the package natten.",
    "gemma3n": "Its vision tower needs the package timm.",
    "gemma4_assistant": _DRAFTER,
    "gemma4_unified_assistant": _DRAFTER,
    "layoutlmv2": "It needs the package detectron2.",
    "mra": "Without its CUDA kernels the library returns zeros for every attention, so there is nothing to explain.",
    "bark": "It has no forward pass: it only generates, with its parts in turn.",
    "edgetam": "Its vision tower needs the package timm.",
    "edgetam_video": "Its vision tower needs the package timm.",
    "fast_vlm": "Its vision tower needs the package timm.",
    "perception_lm": "Its vision tower needs the package timm.",
    "qwen2_5_omni": "It has no forward pass: it only generates, with its parts in turn.",
    "qwen3_omni_moe": "It has no forward pass: it only generates, with its parts in turn.",
    "timm_wrapper": "It needs the package timm.",
}
REFUSALS_IN_FLOAT64 = {"canine": _OVERFLOW, "fsmt": _OVERFLOW, "xglm": _OVERFLOW}


@dataclass(frozen=True)
class Case:
    """One architecture under one task, named as the library names them."""

    task: str
    architecture: str
    model_type: str


class CannotBuild(Exception):  # noqa: N818 - the sweep reads better with the plain verb
    """A case no tiny model exists for, with the reason in one sentence."""


def cases() -> list[Case]:
    """Every head class the installed library registers for a model type, so that no sweep picks its own."""
    from transformers.models.auto import modeling_auto

    found: dict[tuple[str, str], Case] = {}
    for task, mapping in TASKS.items():
        for model_type, names in getattr(modeling_auto, mapping, {}).items():
            for name in (names,) if isinstance(names, str) else names:
                found.setdefault((model_type, name), Case(task, name, model_type))
    return sorted(found.values(), key=lambda case: (case.task, case.architecture, case.model_type))


def _refill(model: PreTrainedModel) -> None:
    """Replaces degenerate parameters, since zeros, constants and tiny weights let wrong explanations pass."""
    seen: set[int] = set()
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen and parameter.is_floating_point() and parameter.numel():
                seen.add(id(parameter))
                if isinstance(module, NORMS) and parameter is module.weight:
                    parameter.data.fill_(1.0)  # some architectures start these gains near zero
                _refill_one(parameter.data, isinstance(module, torch.nn.modules.conv._ConvNd))


def _refill_one(data: Tensor, convolution: bool) -> None:
    """Makes one parameter finite, not constant, and large enough to matter at its fan-in."""
    fan_in = data[0].numel() if convolution and data.dim() > 1 else data.shape[-1] if data.dim() else 1
    wanted = min(0.2, 1.2 / math.sqrt(fan_in))
    vector = data.numel() == max(data.shape, default=1)
    if not bool(data.isfinite().all()) or bool((data.abs() > 1e4).any()):
        data.normal_(0.0, wanted)
    elif bool((data == data.flatten()[0]).all()):
        data.add_(torch.randn_like(data), alpha=0.1 if vector else wanted)
    elif not vector and data.std() < wanted / 2:
        data.mul_(wanted / data.std())


def _calibrate(model: PreTrainedModel, inputs: dict[str, Any]) -> None:
    """Gives batch norms the statistics of random inputs, without which deep convolutions fade to a constant."""
    norms = [module for module in model.modules() if isinstance(module, NORMS[0])]
    if not norms:
        return
    if set(inputs) == {"pixel_values"}:
        one = inputs["pixel_values"][:1]
        inputs = {"pixel_values": torch.randn_like(one.expand(16, *(-1 for _ in one.shape[1:])))}
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = None  # plain average, that is the statistics of the one batch below
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.eval()
            norm.momentum = momentum


@contextmanager
def _construction(seed: int) -> Iterator[None]:
    """A fixed seed, and NaN in all uninitialised memory so that `_refill` can find it."""
    before = torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)


def _pixels(config: PreTrainedConfig, dtype: torch.dtype, batch: int) -> dict[str, Tensor]:
    """Random pixels, cut into patches for the one family that takes patches with their shape."""
    if hasattr(vision := getattr(config, "vision_config", config), "num_patches") and config.model_type == "siglip2":
        side = math.isqrt(vision.num_patches)
        patches = torch.randn(batch, side**2, 3 * vision.patch_size**2, dtype=dtype)
        mask = torch.ones(batch, side**2, dtype=torch.long)
        return {"pixel_values": patches, "pixel_attention_mask": mask, "spatial_shapes": torch.full((batch, 2), side)}
    side = config.image_size if type(getattr(config, "image_size", None)) is int else IMAGE
    return {"pixel_values": torch.randn(batch, 3, side, side, dtype=dtype)}


def inputs_for(case: Case, config: PreTrainedConfig, dtype: torch.dtype, shape: tuple[int, int]) -> dict[str, Tensor]:
    """The least a plain forward pass needs: unpadded tokens that end in the end token, or pixels."""
    if case.task == "image-classification" and case.model_type != "imagegpt":
        return _pixels(config, dtype, shape[0])
    text = config.get_text_config()
    books = getattr(text, "num_codebooks", 1) if case.model_type.startswith("musicgen") else 1
    ids = torch.randint(FIRST_PLAIN_TOKEN, getattr(text, "vocab_size", 99), (shape[0] * books, shape[1]))
    if isinstance(eos := getattr(text, "eos_token_id", None), int):
        ids[:, -1] = eos
    if case.task == "question-answering" and case.model_type in PLANTED:
        field, places = PLANTED[case.model_type]
        ids[:, places] = getattr(text, field)
    mask_dtype = dtype if case.model_type in FLOAT_MASKS else torch.long
    return {"input_ids": ids, "attention_mask": torch.ones(shape, dtype=mask_dtype)}


def build(
    case: Case, seed: int = 0, dtype: torch.dtype = torch.float64, shape: tuple[int, int] = (2, TOKENS)
) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    """A tiny random model in eval mode and inputs it has already run on, so that a later failure is the caller's."""
    refusals = REFUSALS | REFUSALS_IN_FLOAT64 if dtype is torch.float64 else REFUSALS
    if case.model_type in refusals:
        raise CannotBuild(refusals[case.model_type])
    try:
        with _construction(seed):
            model = _sized(_construct(case)).to(dtype).eval()
            _refill(model)
            inputs = inputs_for(case, model.config, dtype, shape)
            _calibrate(model, inputs)
        with torch.no_grad():
            logits = logits_of(model(**inputs))
    except CannotBuild:
        raise
    except Exception as error:
        text = str(error).strip().split("\n")[0]
        raise CannotBuild(f"The library raises {type(error).__name__}: {text}") from error
    if not bool(logits.isfinite().all()):
        raise CannotBuild("Its logits are not finite.")
    return model, inputs


@dataclass(frozen=True)
class Built:
    """A tiny random model in eval mode, two examples it has run on, the batch they make, and what to explain."""

    model: PreTrainedModel
    examples: list[dict[str, Any]]
    batch: dict[str, Any]
    target: Reading
    note: str = ""  # where the model itself treats a batch otherwise than its examples
    task: str = ""  # the case's


def build_whole(case: Case, seed: int = 0, dtype: torch.dtype = torch.float64) -> Built:
    """The model with inputs of every modality it reads: token types, more than 64 tokens, uneven lengths."""
    refusals = REFUSALS | REFUSALS_IN_FLOAT64 if dtype is torch.float64 else REFUSALS
    if case.model_type in refusals:
        raise CannotBuild(refusals[case.model_type])
    try:
        with _construction(seed):
            return _with_inputs(case, _sized(_construct(case, POSITIONS)).to(dtype).eval(), dtype)
    except CannotBuild:
        raise
    except Exception as error:
        text = str(error).strip().split("\n")[0]
        raise CannotBuild(f"The library raises {type(error).__name__}: {text}") from error


def _with_inputs(case: Case, model: PreTrainedModel, dtype: torch.dtype) -> Built:
    """Uneven lengths, unless the model itself then gives an example another answer in a batch than alone."""
    _refill(model)
    subject = Subject(case, model, dtype)
    pad = pad_of(subject)
    for lengths in (LENGTHS, LENGTHS[:1] * len(LENGTHS)):
        each = examples(subject, lengths)
        batch = collate(each, pad, STRIPS.get(case.model_type))
        if lengths == LENGTHS:
            _calibrate(model, batch)
        with torch.no_grad():
            singles, again = [model(**one) for one in each], model(**each[0])
            target = reading_of(singles)
            alone = torch.cat([target(one) for one in singles])
            if not bool(alone.isfinite().all()):
                raise CannotBuild("Its outputs are not finite.")
            if not torch.allclose(target(again), target(singles[0]), rtol=TOLERANCE[dtype]):
                raise CannotBuild("Its forward pass is random: the same input gives another output.")
            try:
                together = target(model(**batch))
            except Exception as error:
                note = f"the model does not take a batch of two: {type(error).__name__}"
                continue
        if together.shape != alone.shape:
            note = f"its outputs {tuple(together.shape)} are not one per example"
        elif torch.allclose(together, alone, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]):
            return Built(model, each, batch, target)
        else:
            note = "the model itself gives an example another answer in a batch than alone"
    return Built(model, each, batch, target, note)


def _sized(model: PreTrainedModel) -> PreTrainedModel:
    if (size := sum(p.numel() for p in model.parameters())) > MAX_PARAMETERS:
        raise CannotBuild(f"It still has {size:,} parameters after shrinking.")
    return model


def _construct(case: Case, positions: int = 64) -> PreTrainedModel:
    """The library's own random model of the shrunken config."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.logging.set_verbosity_error()
    model_class = getattr(transformers, case.architecture)
    config = shrink(CONFIG_MAPPING[case.model_type], positions, num_labels=_labels(case))
    config._experts_implementation = "eager"  # the grouped kernel knows no float64
    if case.task == "causal-lm" and hasattr(config, "is_decoder"):
        config.is_decoder = True  # without it the encoder families look ahead
        config.causal = True  # as XLM and FlauBERT call it
    wanted = model_class.config_class
    if not isinstance(config, wanted):  # a text-only class of a multimodal family takes the nested text config
        config = next((nested for nested in vars(config).values() if isinstance(nested, wanted)), config)
    return model_class(config)


def _labels(case: Case) -> int:
    """Two ends of an answer; colour and opacity of a matte; else any few classes."""
    return 2 if "question-answering" in case.task else 4 if case.task == "image-matting" else LABELS


def logits_of(output: Any) -> Tensor:
    """The tensor an explanation starts from: logits, start logits, or what PP-LCNet returns in their place."""
    for name in ("logits", "start_logits", "last_hidden_state"):
        if isinstance(value := getattr(output, name, None), Tensor):
            return value
    raise CannotBuild(f"Its {type(output).__name__} holds no logits.")


def main() -> None:
    """Prints how many cases build, and why the others do not."""
    torch.set_num_threads(1)
    built, total, refused = Counter[str](), Counter[str](), list[str]()
    for case in cases():
        total[case.task] += 1
        try:
            build(case)
            built[case.task] += 1
        except CannotBuild as reason:
            refused.append(f"{case.task:<22}{case.architecture:<42}{reason}")
    for task in TASKS:
        print(f"{task:<22}{built[task]:>4} of {total[task]}")
    print(f"{'all':<22}{built.total():>4} of {total.total()}\n")
    print("\n".join(refused))


if __name__ == "__main__":
    main()
