"""Builds a tiny random model of every architecture of four tasks, so that a sweep needs neither network nor memory."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

MAX_PARAMETERS = 5_000_000
LABELS = 3
TOKENS = 7
IMAGE = 32
FIRST_PLAIN_TOKEN = 20  # ids below are kept for special tokens, so that drawn text never holds one by accident

NORMS = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.LayerNorm, torch.nn.GroupNorm)
TASKS = {
    "text-classification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "question-answering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
    "causal-lm": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "image-classification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
}

# The first pattern that matches a whole config field name caps the field (never raises it).
CAPS: list[tuple[str, int]] = [
    (r".*vocab_size.*", 99),
    (r"original_max_position_embeddings", 32),
    (r"max_.*positions?|max_.*position_embeddings|n_positions|n_ctx|max_seq_len|context_length", 64),
    (r"num_kv_shared_layers", 0),
    (r"num_dense_layers|first_k_dense_replace|.*shared_experts|topk_group|moe_layer_start_index", 1),
    (r"num_key_value_heads|num_kv_heads|swa_num_key_value_heads|n_groups?|o_groups", 2),
    (r"num_experts_per_tok|moe_k|moe_topk|num_.*layers.*|n_layers?|.*_layers|num_blocks|num_self_attends_per_block", 2),
    (r".*experts|num_codebooks|zero_expert_num|.*_heads|n_head", 4),
    (r".*head_dim|d_kv|d_head|dim_head|attention_head_size|kv_channels|rotary_dim|query_pre_attn_scalar", 8),
    (r".*intermediate_size.*|.*ffn_dim|.*ffn_hidden_size|d_inner|d_ff|dff|dim_ff|hidden_dim|feed_forward_size", 48),
    (r".*hidden_size|d_model|n_embd|dim|emb_dim|embed_dim|d_latents|projection_dim|lru_width", 32),
    (r".*_rank|hidden_size_per_layer_input|.*embedding_size|.*embed_dim|.*emb_size", 16),
    (r".*sliding_window|sliding_window_size|attention_window.*|attention_chunk_size|window_size|local_attention", 4),
    (r".*state_size|mamba_d_state|.*chunk_size|.*chunk_length|block_size|patch_size", 8),
    (r"image_size|input_size", IMAGE),
    (r"depth", 1),
]

# Fields that some configs leave at None although their model computes with them.
NEEDED = {"head_dim": 8, "num_key_value_heads": 2, "vocab_size": 99}
NEEDED |= {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1}

_STAGES = {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1]}
_SWIN = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 4}
_MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
_HGNET_IN = {"stem_channels": [3, 8, 16], "stage_in_channels": [16, 24, 32, 40], "stage_mid_channels": [8, 8, 16, 16]}
_HGNET_OUT = {"stage_out_channels": [24, 32, 40, 48], "stage_num_blocks": [1] * 4, "stage_numb_of_layers": [2] * 4}

# What the caps cannot know, per model type: sizes that must fit each other and lists with one entry per stage.
OVERRIDES: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "bit": {"embedding_size": 16, "hidden_sizes": [32, 48, 64, 80], "depths": [1, 1, 1, 1], "num_groups": 4},
    "blt": {"encoder_hash_byte_group_vocab": 99, "use_cache": False},
    "blt_local_decoder": {"hidden_size_global": 64},
    "blt_local_encoder": {"hidden_size_global": 64},
    "blt_global_transformer": {"hidden_size": 64},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _MROPE, "sliding_attention": _MROPE}},
    "convnext": _STAGES,
    "convnextv2": _STAGES,
    "cvt": {"embed_dim": [16, 32, 48], "num_heads": [1, 2, 4], "depth": [1, 2, 3]},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8}}
    | {"ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2}},
    "donut-swin": _SWIN,
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320, "image_size": 64},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "hgnet_v2": {"hidden_sizes": [24, 32, 40, 48], "embedding_size": 16} | _HGNET_IN | _HGNET_OUT,
    "hiera": {"embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8], "image_size": [32, 32]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4},
    "levit": {"image_size": 64, "patch_size": 16, "depths": [1, 1, 1], "key_dim": [8, 8, 8]}
    | {"hidden_sizes": [16, 32, 48], "num_attention_heads": [2, 2, 4]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lilt": {"hidden_size": 48},
    "mamba2": {"head_dim": 16},
    "mobilevit": {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 48]},
    "mobilevitv2": {"image_size": 64},
    "perceiver": {"num_cross_attention_heads": 1},
    "poolformer": _STAGES,
    "pvt": {"hidden_sizes": [16, 32, 48, 64], "num_attention_heads": [1, 2, 4, 4], "depths": [1, 1, 1, 1]},
    "qwen4_exp_text": {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8}
    | {"indexer_budget": 4, "indexer_compress_ratio": 2},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 8], "attn_layers": ["local", "lsh"]},
    "regnet": _STAGES | {"embedding_size": 16, "groups_width": 8},
    "resnet": _STAGES | {"embedding_size": 16},
    "siglip2_vision_model": {"num_patches": 16},
    "squeezebert": {"embedding_size": 32},
    "swin": _SWIN,
    "swinv2": _SWIN,
    "t5": {"decoder_start_token_id": 0},
    "textnet": {"stem_out_channels": 16, "hidden_sizes": [16, 16, 24, 32, 48], "image_size": 64},
    "xlstm": {"hidden_size": 128},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2},
}

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
    "lxmert": "It needs features of detected image regions beside the text, and picks an answer from a list.",
    "mra": "Without its CUDA kernels the library returns zeros for every attention, so there is nothing to explain.",
    "shieldgemma2": "It needs an image and a text prompt together.",
    "timm_wrapper": "It needs the package timm.",
}
REFUSALS_IN_FLOAT64 = {"canine": _OVERFLOW, "xglm": _OVERFLOW}


@dataclass(frozen=True)
class Case:
    """One architecture under one task, named as the library names them."""

    task: str
    architecture: str
    model_type: str


class CannotBuild(Exception):  # noqa: N818 - the sweep reads better with the plain verb
    """A case no tiny model exists for, with the reason in one sentence."""


def cases() -> list[Case]:
    """Every pair of task and architecture the installed library registers, so that no sweep picks its own."""
    from transformers.models.auto import modeling_auto

    found = set()
    for task, mapping in TASKS.items():
        for model_type, names in getattr(modeling_auto, mapping).items():
            for name in (names,) if isinstance(names, str) else names:
                found.add(Case(task, name, model_type))
    return sorted(found, key=lambda case: (case.task, case.architecture, case.model_type))


def _capped(name: str, value: Any) -> Any:
    """The value, capped by the first pattern that fits its name, since later patterns are the broader ones."""
    if type(value) is not int or value <= 0:
        return value
    return min([value, *[cap for pattern, cap in CAPS if re.fullmatch(pattern, name)][:1]])


def _special_tokens(names: list[str]) -> dict[str, int]:
    """Small distinct ids for every special token, since the defaults lie outside the small vocabulary."""
    fixed = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    rest = sorted(n for n in names if re.fullmatch(r".*token_(id|index)", n) and n not in fixed)
    return {n: v for n, v in fixed.items() if n in names} | {n: 3 + i for i, n in enumerate(rest)}


def _default(field: dataclasses.Field[Any]) -> Any:
    """A field's declared default, which (unlike the instance's value) still says what is derived later."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _layer_lists(default: PreTrainedConfig, names: list[str]) -> dict[str, Any]:
    """One layer of each kind a hybrid model mixes, so that capping the depth does not drop a kind."""
    depth = getattr(default, "num_hidden_layers", None)
    values = {name: _peek(default, name) for name in names}
    lists = {name: v for name, v in values.items() if isinstance(v, list | tuple) and len(v) == depth and depth > 2}
    if not lists:
        return {}
    kinds = list(zip(*lists.values(), strict=True))
    first = sorted({kind: -index for index, kind in reversed(list(enumerate(map(repr, kinds))))}.values(), reverse=True)
    picked = [-index for index in first] if len(first) > 1 else [0, 1]
    return {name: [_capped(name, v[i]) for i in picked] for name, v in lists.items()} | {
        "num_hidden_layers": len(picked)
    }


def _peek(config: PreTrainedConfig, name: str) -> Any:
    """A config value, or None where reading it raises (some per-layer fields refuse to be read globally)."""
    try:
        return getattr(config, name, None)
    except Exception:
        return None


def shrink(config_class: type[PreTrainedConfig], **given: Any) -> PreTrainedConfig:
    """The class's default config with every size capped, nested configs included."""
    default = config_class()
    fields = {field.name: _default(field) for field in dataclasses.fields(config_class)}
    small: dict[str, Any] = _special_tokens(list(fields))
    for name, value in fields.items():
        if _capped(name, value) is not value:
            small[name] = _capped(name, value)
        elif name in NEEDED and _peek(default, name) is None:
            small[name] = NEEDED[name]
        nested = _peek(default, name)
        if hasattr(nested, "model_type") and hasattr(nested, "to_dict"):
            small[name] = shrink(type(nested))
    if "kv_lora_rank" in fields:  # latent attention expands to all heads, whatever the field says
        small["num_key_value_heads"] = small["num_attention_heads"]
    small |= _layer_lists(default, list(fields))
    small |= OVERRIDES.get(config_class.model_type, {}) | given
    return config_class(**small)


def _refill(model: PreTrainedModel) -> None:
    """Replaces degenerate parameters, since zeros, constants and tiny weights let wrong explanations pass."""
    seen: set[int] = set()
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen and parameter.is_floating_point():
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


def _calibrate(model: PreTrainedModel, inputs: dict[str, Tensor]) -> None:
    """Gives batch norms the statistics of random images, without which deep convolutions fade to a constant."""
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    if not norms or "pixel_values" not in inputs:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = None  # plain average, that is the statistics of the one batch below
    with torch.no_grad():
        model(pixel_values=torch.randn_like(inputs["pixel_values"][:1].expand(16, -1, -1, -1)))
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
            model = _construct(case).to(dtype).eval()
            if (size := sum(p.numel() for p in model.parameters())) > MAX_PARAMETERS:
                raise CannotBuild(f"It still has {size:,} parameters after shrinking.")
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


def _construct(case: Case) -> PreTrainedModel:
    """The library's own random model of the shrunken config."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.logging.set_verbosity_error()
    model_class = getattr(transformers, case.architecture)
    config = shrink(CONFIG_MAPPING[case.model_type], num_labels=2 if case.task == "question-answering" else LABELS)
    config._experts_implementation = "eager"  # the grouped kernel knows no float64
    if case.task == "causal-lm" and hasattr(config, "is_decoder"):
        config.is_decoder = True  # without it the encoder families look ahead
    wanted = model_class.config_class
    if not isinstance(config, wanted):  # a text-only class of a multimodal family takes the nested text config
        config = next(nested for nested in vars(config).values() if isinstance(nested, wanted))
    return model_class(config)


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
