"""Shrinks the config of any model type, so that a random model of it is built in a moment."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

IMAGE = 32  # pixels of a side, where the architecture allows

POSITIONS = r"max_.*positions?|max_.*position_embeddings|n_positions|n_ctx|max_seq_len|context_length"
# The first pattern that matches a whole config field name caps the field (never raises it).
CAPS: list[tuple[str, int]] = [
    (r".*vocab_size.*", 99),
    (r"original_max_position_embeddings", 32),
    (POSITIONS, 64),
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
    (r"num_queries|num_detection_tokens", 12),
    (r"xvector_output_dim|fusion_hidden_size|reassemble_hidden_size", 16),
]

LISTS = {"tdnn_dim": 16, "conv_dim": 16, "image_size": IMAGE}  # whose entries are sizes, each capped
# Fields that some configs leave at None although their model computes with them.
NEEDED = {"head_dim": 8, "num_key_value_heads": 2, "vocab_size": 99}
NEEDED |= {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1}

_STAGES = {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1]}
_SWIN = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 4, "num_layers": 2}
_MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
_HGNET_IN = {"stem_channels": [3, 8, 16], "stage_in_channels": [16, 24, 32, 40], "stage_mid_channels": [8, 8, 16, 16]}
_HGNET_OUT = {"stage_out_channels": [24, 32, 40, 48], "stage_num_blocks": [1] * 4, "stage_numb_of_layers": [2] * 4}

_RESNET = {"model_type": "resnet", "out_features": ["stage4"]}
_STAGES4 = ["stage1", "stage2", "stage3", "stage4"]
_DETR = {"backbone_config": _RESNET, "use_timm_backbone": False, "use_pretrained_backbone": False}
_SWIN4 = {"model_type": "swin", "image_size": 64, "embed_dim": 8, "depths": [1] * 4, "num_heads": [1, 1, 2, 2]}
_SWIN4 |= {"window_size": 4, "patch_size": 4, "out_features": ["stage1", "stage2", "stage3", "stage4"]}
_DINO = {"model_type": "dinov2", "image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2}
_DINO |= {"out_features": ["stage1", "stage2"], "reshape_hidden_states": False}
_DEPTH = {"backbone_config": _DINO, "patch_size": 8, "reassemble_hidden_size": 32, "neck_hidden_sizes": [16, 16]}
_DEPTH |= {"reassemble_factors": [4, 2], "fusion_hidden_size": 16}
_HGNET4 = {"model_type": "hgnet_v2", "hidden_sizes": [24, 32, 40, 48], "out_features": ["stage2", "stage3", "stage4"]}
_RTDETR = {"encoder_hidden_dim": 32, "encoder_in_channels": [32, 40, 48], "decoder_in_channels": [32, 32, 32]}
_RTDETR |= {"num_queries": 12, "num_denoising": 0, "d_model": 32, "image_size": 64, "anchor_image_size": None}
_RTRESNET: dict[str, Any] = {"model_type": "rt_detr_resnet", "hidden_sizes": [24, 32, 40, 48], "depths": [1, 1, 1, 1]}
_RTRESNET |= {"embedding_size": 16, "out_features": ["stage2", "stage3", "stage4"]}
_SAM = {"image_size": 32, "patch_size": 4}
_SAM_PARTS: dict[str, Any] = {
    "vision_config": _SAM | {"output_channels": 32, "num_pos_feats": 16, "window_size": 4, "mlp_dim": 48}
}
_SAM_PARTS |= {"prompt_encoder_config": _SAM | {"hidden_size": 32, "image_embedding_size": 8, "mask_input_channels": 4}}
_SAM_PARTS |= {"mask_decoder_config": {"hidden_size": 32, "mlp_dim": 48, "iou_head_hidden_dim": 32}}
_SAM2: dict[str, Any] = {
    "vision_config": {"backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]], "fpn_hidden_size": 32}
    | {"backbone_channel_list": [64, 32, 16, 8]}
    | {"backbone_config": {"hidden_size": 8, "image_size": [128, 128], "embed_dim_per_stage": [8, 16, 32, 64]}}
}
_SAM2 |= {"prompt_encoder_config": {"hidden_size": 32, "image_size": 128, "patch_size": 16, "mask_input_channels": 8}}
_SAM2 |= {"mask_decoder_config": {"hidden_size": 32, "mlp_dim": 48, "iou_head_hidden_dim": 32}}
_LCNET4 = [[[3, 16, 16, 1, False]], [[3, 16, 16, 2, False]], [[3, 16, 16, 2, False]], [[5, 16, 16, 2, True]]]
_LCNET5 = [*_LCNET4, [[5, 16, 16, 2, True]]]
_LCNET_REC = [
    [[3, 16, 16, 1, False]],
    [[3, 16, 16, 1, False]],
    [[3, 16, 16, [2, 1], False]],
    [[3, 16, 16, [1, 2], False]],
]
_LCNET_REC += [[[5, 16, 16, [2, 1], True]]]
_LC4 = {"model_type": "pp_lcnet_v4", "block_configs": _LCNET4, "stem_channels": [3, 16, 16], "depths": [1, 1, 1, 1]}
_LC4 |= {"stage_out_channels": [16] * 4, "out_features": ["stage1", "stage2", "stage3", "stage4"]}
_FOUR = {"out_features": ["stage2", "stage3", "stage4", "stage5"]}
_MEL = {"num_mel_bins": 16, "max_source_positions": 32}
_MIMI = {"hidden_size": 16, "num_filters": 8, "upsampling_ratios": [8, 4], "codebook_size": 16, "codebook_dim": 16}
_MIMI |= {"num_quantizers": 4, "vector_quantization_hidden_dimension": 16, "upsample_groups": 16}

_WRITER = {"model_type": "bert", "is_decoder": True, "add_cross_attention": True}

# What the caps cannot know, per model type: sizes that must fit each other and lists with one entry per stage.
OVERRIDES: dict[str, dict[str, Any]] = {
    "align": {"projection_dim": 80},
    "align_vision_model": {"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320, "image_size": 64},
    "aria": {"projector_patch_to_query_dict": {16: 4}},
    "audio-spectrogram-transformer": {"max_length": 24, "num_mel_bins": 16, "patch_size": 8},
    "audioflamingo3_encoder": _MEL,
    "bamba": {"attn_layer_indices": [1]},
    "beit": {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4], "pool_scales": [1, 2]},
    "bit": {"embedding_size": 16, "hidden_sizes": [32, 48, 64, 80], "depths": [1, 1, 1, 1], "num_groups": 4},
    "blip_2_qformer": {"use_qformer_text_input": True, "cross_attention_frequency": 1},
    "blt": {"encoder_hash_byte_group_vocab": 99, "use_cache": False},
    "blt_global_transformer": {"hidden_size": 64},
    "blt_local_decoder": {"hidden_size_global": 64},
    "blt_local_encoder": {"hidden_size_global": 64},
    "bros": {"hidden_size": 64},
    "chameleon": {"vocabulary_map": {"<image>": 4} | {f"IMGIMG{chr(65 + i)}Z": 40 + i for i in range(10)}}
    | {"image_token_id": 4},
    "chameleon_vqgan": {"embed_dim": 16, "num_embeddings": 10, "latent_channels": 16, "base_channels": 32}
    | {"channel_multiplier": [1, 2], "resolution": 32, "num_res_blocks": 1},
    "chmv2": {"reassemble_factors": [4, 2], "post_process_channels": [16, 16], "head_hidden_size": 16}
    | {
        "backbone_config": {"model_type": "dinov3_vit", "num_hidden_layers": 2, "out_features": ["stage1", "stage2"]}
        | {"return_class_token": True, "reshape_hidden_states": True}
    }
    | {"patch_size": 8, "number_output_channels": 4, "reassemble_hidden_size": 32},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _MROPE, "sliding_attention": _MROPE}},
    "conditional_detr": _DETR,
    "convnext": _STAGES,
    "convnextv2": _STAGES,
    "cosmos3_edge_text": {"rope_parameters": _MROPE},
    "csm": {"num_codebooks": 4, "vocab_size": 99, "text_vocab_size": 99, "codec_config": {"model_type": "mimi"}}
    | {"depth_decoder_config": {"num_codebooks": 4, "backbone_hidden_size": 32}},
    "cvt": {"embed_dim": [16, 32, 48], "num_heads": [1, 2, 4], "depth": [1, 2, 3]},
    "d_fine": _RTDETR
    | {"backbone_config": _HGNET4, "decoder_n_points": [3, 6, 3], "feat_strides": [8, 16, 32]}
    | {"encode_proj_layers": [2]},
    "dab-detr": _DETR,
    "data2vec-vision": {"num_hidden_layers": 4, "out_indices": [0, 1, 2, 3], "pool_scales": [1, 2]},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8}}
    | {"ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2}},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"]},
    "deformable_detr": _DETR | {"backbone_config": _RESNET | {"out_features": ["stage2", "stage3", "stage4"]}},
    "deimv2": _RTDETR
    | {"backbone_config": _HGNET4, "decoder_n_points": [3, 6, 3], "feat_strides": [8, 16, 32]}
    | {"encode_proj_layers": [2]},
    "depth_anything": _DEPTH,
    "depth_pro": {"patch_size": 16, "intermediate_hook_ids": [1, 0], "intermediate_feature_dims": [16, 16]}
    | {"scaled_images_ratios": [0.5, 1.0], "scaled_images_overlap_ratios": [0.0, 0.2]}
    | {"scaled_images_feature_dims": [16, 16]}
    | {f"{name}_model_config": _DINO | {"image_size": 16} for name in ("image", "patch", "fov")},
    "detr": _DETR
    | {"backbone_config": _RESNET | {"out_features": _STAGES4}}
    | {"encoder_attention_heads": 8, "decoder_attention_heads": 8},
    "diffusion_gemma": {"vision_config": {"model_type": "gemma4_vision"}},
    "donut-swin": _SWIN,
    "dpt": {"neck_hidden_sizes": [16, 16], "reassemble_factors": [4, 2], "backbone_out_indices": [0, 1]}
    | {"fusion_hidden_size": 16},
    "efficientloftr": {"stage_num_blocks": [1, 1], "out_features": [16, 16], "stage_stride": [2, 1], "hidden_size": 16}
    | {"num_attention_layers": 1, "num_attention_heads": 2, "q_aggregation_kernel_size": 1}
    | {"kv_aggregation_kernel_size": 1, "q_aggregation_stride": 1, "kv_aggregation_stride": 1, "fine_kernel_size": 2}
    | {"coarse_matching_threshold": 0.0, "coarse_matching_border_removal": 0, "fine_fusion_dims": [16]},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320, "image_size": 64},
    "emu3": {"image_token_id": 4}
    | {"vocabulary_map": {"<image>": 4, "<|extra_200|>": 5} | {f"<|visual token{i:06}|>": 40 + i for i in range(16)}},
    "emu3_vqgan": {"codebook_size": 16, "base_channels": 32, "channel_multiplier": [1, 2, 1], "attn_resolutions": []}
    | {"hidden_size": 32, "latent_channels": 4, "embed_dim": 4},
    "ernie4_5_vl_moe_text": {"rope_parameters": _MROPE | {"mrope_section": [1, 1, 2]}},
    "encoder-decoder": {"encoder": {"model_type": "bert"}, "decoder": _WRITER},
    "exaone4_5_vision": {"window_size": 32},
    "fastspeech2_conformer": {"encoder_linear_units": 48, "decoder_linear_units": 48, "encoder_layers": 1}
    | {"decoder_layers": 1, "speech_decoder_postnet_units": 16, "num_mel_bins": 8, "duration_predictor_channels": 16}
    | {"energy_predictor_channels": 16, "pitch_predictor_channels": 16, "encoder_num_attention_heads": 2}
    | {"decoder_num_attention_heads": 2},
    "fastspeech2_conformer_hifigan": {"model_in_dim": 8, "upsample_initial_channel": 32},
    "florence2": {"text_config": {"model_type": "bart", "max_position_embeddings": 256}},
    "florence_vision": {"embed_dim": [16], "depths": [1], "patch_size": [7], "patch_stride": [4], "patch_padding": [3]}
    | {"patch_prenorm": [False], "num_heads": [1], "num_groups": [1], "projection_dim": 32},
    "fun_asr_nano": {"adaptor_config": {"intermediate_size": 8}},
    "fuyu": {"patch_size": 8},
    "gemma3": {"mm_tokens_per_image": 4},
    "gemma4": {"vision_config": {"model_type": "gemma4_vision"}},
    "gemma4_unified": {"vision_config": {"model_type": "gemma4_unified_vision"}},
    "glm4v_moe_text": {"rope_parameters": _MROPE | {"mrope_section": [2, 1, 1], "partial_rotary_factor": 1.0}},
    "glm4v_text": {"rope_parameters": _MROPE},
    "glm_ocr_text": {"rope_parameters": _MROPE},
    "glmasr_encoder": {"num_mel_bins": 16, "intermediate_size": 128},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gradium_phonon_tts": {"flow_head_config": {"condition_dim": 32}},
    "granite4_vision": {"image_grid_pinpoints": [[IMAGE, IMAGE]], "downsample_rate": "1/2"}
    | {"deepstack_layer_map": [[1, 0]]}
    | {"vision_config": {"model_type": "clip_vision_model", "hidden_size": 64}}
    | {"text_config": {"model_type": "granite", "hidden_size": 64}}
    | {"qformer_config": {"hidden_size": 64, "num_attention_heads": 1, "encoder_hidden_size": 64}},
    "granite_speech": {"window_size": 15, "encoder_config": {"hidden_dim": 32}},
    "granite_speech_plus": {"window_size": 15, "encoder_config": {"hidden_dim": 32}},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "grounding-dino": {"backbone_config": _SWIN4, "use_timm_backbone": False, "max_text_len": 128, "num_queries": 12},
    "hgnet_v2": {"hidden_sizes": [24, 32, 40, 48], "embedding_size": 16} | _HGNET_IN | _HGNET_OUT,
    "hiera": {"embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8], "image_size": [64, 64]}
    | {"decoder_hidden_size": 16, "decoder_depth": 1, "decoder_num_heads": 2},
    "hunyuan_vl_text": {"rope_parameters": _MROPE | {"mrope_section": [1, 1, 1, 1]}},
    # Their late tokens must reach the picture in front, which a window of four does not.
    "idefics2": {"text_config": {"model_type": "mistral", "sliding_window": None}},
    "mistral3": {"text_config": {"model_type": "mistral", "sliding_window": None}},
    "instructblipvideo": {"num_query_tokens": 8},
    "inkling_audio": {"n_mel_bins": 4, "mel_vocab_size": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "janus_vqgan": {"embed_dim": 16, "num_embeddings": 16, "latent_channels": 16, "base_channels": 32}
    | {"channel_multiplier": [1, 1], "num_patches": 4, "projection_dim": 16},
    "kosmos-2": {"latent_query_num": 8},
    "kosmos-2.5": {"latent_query_num": 8},
    "kyutai_speech_to_text": {"codec_config": _MIMI, "ffn_dim": 48},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4},
    "levit": {"image_size": 64, "patch_size": 16, "depths": [1, 1, 1], "key_dim": [8, 8, 8]}
    | {"hidden_sizes": [16, 32, 48], "num_attention_heads": [2, 2, 4]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lightglue": {"descriptor_dim": 32, "num_hidden_layers": 2, "depth_confidence": -1.0, "width_confidence": -1.0}
    | {"keypoint_detector_config": {"descriptor_decoder_dim": 32}},
    "lilt": {"hidden_size": 48},
    "llama4_vision_model": {"vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32}
    | {"intermediate_size": 128},
    "llava_next": {"image_grid_pinpoints": [[IMAGE, IMAGE]]},
    "llava_next_video": {"image_grid_pinpoints": [[IMAGE, IMAGE]], "spatial_pool_stride": 2},
    "llava_onevision": {"image_grid_pinpoints": [[IMAGE, IMAGE]]},
    "lw_detr": {
        "backbone_config": {"model_type": "lw_detr_vit", "image_size": 64, "patch_size": 4, "num_windows": 4}
        | {"out_features": ["stage1", "stage2"], "num_hidden_layers": 2}
    }
    | {"num_queries": 12, "group_detr": 1},
    "mamba2": {"head_dim": 16},
    "mask2former": {"backbone_config": _SWIN4, "feature_size": 32, "mask_feature_size": 32, "hidden_dim": 32}
    | {"encoder_feedforward_dim": 32, "dim_feedforward": 32, "num_queries": 12, "decoder_layers": 2},
    "maskformer": {"backbone_config": _SWIN4, "fpn_feature_size": 32, "mask_feature_size": 32}
    | {"decoder_config": {"model_type": "detr"} | _DETR},
    "mimi": _MIMI,
    "mllama_text_model": {"cross_attention_layers": [1], "num_hidden_layers": 2},
    "mllama_vision_model": {"intermediate_layers_indices": [0], "vision_output_dim": 64, "num_global_layers": 1},
    "mm-grounding-dino": {"backbone_config": _SWIN4, "use_timm_backbone": False, "max_text_len": 128}
    | {"num_queries": 12},
    "mobilevit": {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 48]},
    "mobilevitv2": {"image_size": 64, "aspp_out_channels": 32, "width_multiplier": 0.25},
    "molmo2": {"adapter_config": {"vision_feature_layer": [1, 0]}},
    "molmo2_vision": {"image_size": [32, 32]},
    "moonshine_streaming": {"num_key_value_heads": 4, "head_dim": 8},
    "muse_glimmer": {"out_hidden_size": 128, "projector_hidden_size": 32},
    "nemotron3_diarization": {"chunk_length": 340},
    "neomme": {"head_dim": 16},
    "omdet-turbo": {"backbone_config": _SWIN4 | {"out_features": ["stage2", "stage3", "stage4"]}, "image_size": 64}
    | {"use_timm_backbone": False, "apply_layernorm_after_vision_backbone": False, "text_projection_in_dim": 32}
    | {"text_projection_out_dim": 32, "task_encoder_hidden_dim": 32, "class_embed_dim": 32, "num_queries": 12}
    | {"vision_features_channels": [32, 32, 32], "encoder_in_channels": [16, 32, 64], "encoder_hidden_dim": 32}
    | {"decoder_hidden_dim": 16, "encoder_dim_feedforward": 48, "decoder_dim_feedforward": 48, "decoder_num_layers": 2},
    "oneformer": {"backbone_config": _SWIN4, "num_queries": 12, "text_encoder_width": 32, "conv_dim": 32}
    | {"text_encoder_vocab_size": 99, "text_encoder_n_ctx": 4, "mask_dim": 32, "hidden_dim": 32}
    | {"encoder_feedforward_dim": 32, "dim_feedforward": 32, "max_seq_len": 77, "decoder_layers": 2},
    "paddleocr_vl_text": {"rope_parameters": _MROPE},
    "perceiver": {"num_cross_attention_heads": 1},
    "pocket_tts": {"flow_head_config": {"condition_dim": 32}},
    "poolformer": _STAGES,
    "pp_doclayout_v2": _RTDETR | {"backbone_config": _HGNET4, "class_thresholds": [0.0] * 3, "class_order": [0, 1, 2]},
    "pp_doclayout_v3": _RTDETR
    | {"backbone_config": _HGNET4 | {"out_features": [f"stage{i}" for i in range(1, 5)]}}
    | {"mask_feature_channels": [16, 16], "x4_feat_dim": 24},
    "pp_doclayout_v4": _RTDETR
    | {"backbone_config": _HGNET4 | {"out_features": [f"stage{i}" for i in range(1, 5)]}}
    | {"mask_feature_channels": [16, 16], "x4_feat_dim": 24},
    "pp_ocrv5_mobile_det": {
        "backbone_config": {"model_type": "pp_lcnet_v3", "block_configs": _LCNET5, "divisor": 16} | _FOUR
    }
    | {"layer_list_out_channels": [16] * 4, "neck_out_channels": 16},
    "pp_ocrv5_mobile_rec": {"backbone_config": {"model_type": "pp_lcnet_v3", "block_configs": _LCNET_REC}}
    | {"hidden_size": 12, "num_attention_heads": 2},
    "pp_ocrv6_medium_det": {"backbone_config": _LC4, "neck_out_channels": 16},
    "pp_ocrv6_small_det": {"backbone_config": _LC4, "layer_list_out_channels": [16] * 4, "neck_out_channels": 16},
    "prompt_depth_anything": _DEPTH,
    "pvt": {"hidden_sizes": [16, 32, 48, 64], "num_attention_heads": [1, 2, 4, 4], "depths": [1, 1, 1, 1]},
    "qwen2_5_omni_text": {"rope_parameters": _MROPE},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 11},
    "qwen2_5_omni_vision_encoder": {"window_size": 32},
    "qwen2_5_vl_text": {"rope_parameters": _MROPE},
    "qwen2_5_vl_vision": {"window_size": 32},
    "qwen2_audio_encoder": _MEL,
    "qwen2_vl_text": {"rope_parameters": _MROPE},
    "qwen3_asr_encoder": {"num_mel_bins": 16, "downsample_hidden_size": 8, "output_dim": 32},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 11},
    "qwen4_exp_text": {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8}
    | {"indexer_budget": 4, "indexer_compress_ratio": 2},
    "reformer": {
        "axial_pos_embds_dim": [16, 16],
        "axial_pos_shape": [16, 8],
        "attn_layers": ["local", "lsh"],
        "hash_seed": 0,
    },
    "regnet": _STAGES | {"embedding_size": 16, "groups_width": 8},
    "resnet": _STAGES | {"embedding_size": 16},
    "rf_detr": {"backbone_config": {"image_size": 64, "patch_size": 8, "num_windows": 2, "num_hidden_layers": 4}}
    | {"num_queries": 12, "group_detr": 1},
    "rt_detr": _RTDETR | {"backbone_config": _RTRESNET},
    "rt_detr_v2": _RTDETR | {"backbone_config": _RTRESNET},
    "sam": _SAM_PARTS,
    "sam2": _SAM2,
    "sam2_video": _SAM2,
    "sam3_tracker": {
        "vision_config": {"fpn_hidden_size": 32, "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]]}
        | {"scale_factors": [2.0, 1.0, 0.5]}
        | {"backbone_config": {"model_type": "sam3_vit_model", "image_size": 128, "patch_size": 8, "window_size": 8}}
    }
    | {"prompt_encoder_config": {"hidden_size": 32, "image_size": 128, "patch_size": 16, "mask_input_channels": 8}}
    | {"mask_decoder_config": {"hidden_size": 32, "mlp_dim": 48, "iou_head_hidden_dim": 32}},
    "sam_hq": _SAM_PARTS
    | {"mask_decoder_config": {"hidden_size": 32, "mlp_dim": 48, "iou_head_hidden_dim": 32, "vit_dim": 32}},
    "sapiens2": {
        "patch_size": 8,
        "num_key_value_heads_per_layer": [4, 4],
        "num_labels": 4,
        "head_config": {"upsample_out_channels": [8, 8], "upsample_kernel_sizes": [4, 4], "conv_out_channels": [8]}
        | {"conv_kernel_sizes": [1], "scale_conv_out_channels": [8], "scale_conv_kernel_sizes": [1]}
        | {"scale_final_input_size": 32, "scale_final_hidden_sizes": [8, 8]},
    },
    "shieldgemma2": {"mm_tokens_per_image": 4, "yes_token_index": 30, "no_token_index": 31},
    "siglip2_vision_model": {"num_patches": 16},
    "speecht5": {"speech_decoder_prenet_dropout": 0.0},
    "squeezebert": {"embedding_size": 32},
    "step3p5": {"sliding_window": 16},
    "superglue": {"hidden_size": 32, "keypoint_encoder_sizes": [16, 32], "gnn_layers_types": ["self", "cross"]}
    | {"keypoint_detector_config": {"descriptor_decoder_dim": 32}},
    "swin": _SWIN | {"encoder_stride": 8},
    "swinv2": _SWIN | {"encoder_stride": 8},
    "t5": {"decoder_start_token_id": 0},
    "t5gemma2_encoder": {"mm_tokens_per_image": 4},
    "table-transformer": _DETR,
    "textnet": {"stem_out_channels": 16, "hidden_sizes": [16, 16, 24, 32, 48], "image_size": 64},
    "timesfm": {"context_length": 64, "horizon_length": 16, "patch_length": 16},
    "timesfm2_5": {"context_length": 64, "horizon_length": 16, "patch_length": 16, "output_quantile_len": 16},
    "tipsv2_dpt": {"neck_hidden_sizes": [8, 8], "fusion_hidden_size": 8, "reassemble_factors": [4, 2]}
    | {
        "backbone_config": {"out_features": ["stage1", "stage2"], "patch_size": 8, "num_hidden_layers": 2}
        | {"reshape_hidden_states": False}
    },
    "upernet": {"backbone_config": {"model_type": "convnext", "out_features": [f"stage{i}" for i in range(1, 5)]}}
    | {"auxiliary_in_channels": 32, "auxiliary_channels": 16, "pool_scales": [1, 2], "hidden_size": 32},
    "vibevoice_acoustic_tokenizer_encoder": {"downsampling_ratios": [2, 2], "depths": [1, 1, 1], "n_filters": 4},
    "vibevoice_asr": {"acoustic_tokenizer_chunk_size": 64},
    "vipllava": {"vision_feature_layers": [-1, 0, 1]},
    "speech-encoder-decoder": {"encoder": {"model_type": "wav2vec2"}, "decoder": _WRITER},
    "vision-encoder-decoder": {"encoder": {"model_type": "vit"}, "decoder": _WRITER},
    "vitmatte": {"fusion_hidden_sizes": [16, 16, 16, 16], "hidden_size": 32}
    | {"backbone_config": {"model_type": "vitdet", "num_channels": 4, "image_size": 64, "patch_size": 16}},
    "vitpose": {"backbone_config": {"image_size": [32, 24], "patch_size": [8, 8], "hidden_size": 32}},
    "vits": {
        "noise_scale": 0.0,
        "noise_scale_duration": 0.0,
        "flow_size": 16,
        "spectrogram_bins": 8,
        "upsample_initial_channel": 16,
        "upsample_rates": [8, 2],
    }
    | {"upsample_kernel_sizes": [16, 4], "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]]}
    | {
        "duration_predictor_filter_channels": 16,
        "posterior_encoder_num_wavenet_layers": 2,
        "depth_separable_num_layers": 1,
    },
    "voxtral_encoder": _MEL | {"intermediate_size": 128},
    "xlstm": {"hidden_size": 128},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2},
    "zoedepth": {"backbone_config": _DINO, "neck_hidden_sizes": [16, 16], "reassemble_factors": [4, 2]}
    | {"fusion_hidden_size": 16, "bottleneck_features": 16, "num_out_features": [8, 8]},
}


def _capped(name: str, value: Any, positions: int = 64) -> Any:
    """The value, capped by the first pattern that fits its name, since later patterns are the broader ones."""
    if isinstance(value, list | tuple) and name in LISTS:
        return type(value)(min(LISTS[name], one) for one in value)
    if type(value) is not int or value <= 0:
        return value
    caps = [positions if pattern == POSITIONS else cap for pattern, cap in CAPS if re.fullmatch(pattern, name)]
    return min([value, *caps[:1]])


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


def shrink(config_class: type[PreTrainedConfig], positions: int = 64, **given: Any) -> PreTrainedConfig:
    """The class's default config with every size capped, nested configs included; `positions` for as many tokens."""
    default = config_class()
    fields = {field.name: _default(field) for field in dataclasses.fields(config_class)}
    small: dict[str, Any] = _special_tokens(list(fields))
    overrides = OVERRIDES.get(config_class.model_type, {}) | given
    for name, value in fields.items():
        if (capped := _capped(name, value, positions)) is not value:
            small[name] = capped
        elif name in NEEDED and _peek(default, name) is None:
            small[name] = NEEDED[name]
        if name not in overrides and _is_config(nested := _peek(default, name)):
            small[name] = shrink(type(nested), positions)
    if "kv_lora_rank" in fields:  # latent attention expands to all heads, whatever the field says
        small["num_key_value_heads"] = small["num_attention_heads"]
    small |= _layer_lists(default, list(fields))
    for name, value in overrides.items():
        small[name] = _nested(value, _peek(default, name), positions)
    return config_class(**small)


def _nested(value: Any, default: Any, positions: int) -> Any:
    """A config where the override is a dict for one: of the type it names, or of the default's."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if not isinstance(value, dict):
        return value
    if "model_type" in value:
        rest = {name: one for name, one in value.items() if name != "model_type"}
        return shrink(CONFIG_MAPPING[value["model_type"]], positions, **rest)
    return shrink(type(default), positions, **value) if _is_config(default) else value


def _is_config(value: Any) -> bool:
    return hasattr(value, "model_type") and hasattr(value, "to_dict")
