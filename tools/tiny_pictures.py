"""Pictures, videos and what else is cut from them, in each of the layouts that models read."""

from __future__ import annotations

import math

import torch

from tiny_subject import Example, Subject, field, number, words

IMAGE = 32  # pixels of a side, where the config does not say
FRAMES = 4  # of a video
# Model types that read each picture's size before it was padded.
SIZED = {"emu3", "granite4_vision", "lighton_ocr", "llava_next", "llava_next_video", "llava_onevision"}
SIZED |= {"mistral3", "mistral_large4"}
# Pictures that must be larger, where no config field says so.
SIDES = {"deformable_detr": (128, 128), "grounding-dino": (128, 128), "mm-grounding-dino": (128, 128)}
SIDES |= {f"pp_doclayout_v{i}": (128, 128) for i in (2, 3, 4)} | {"slanet": (128, 128)}
SIDES |= {f"pp_ocr{name}_rec": (48, 96) for name in ("v5_mobile", "v5_server", "v6_small", "v6_tiny")}
SIDES |= {"vitmatte": (64, 64), "sam2": (128, 128), "sam2_video": (128, 128), "sam3_tracker": (128, 128)}


def sides_of(subject: Subject) -> tuple[int, int]:
    """Height and width of the model's pictures."""
    if (given := SIDES.get(subject.case.model_type)) is not None:
        return given
    configs = [subject.sub("vision_config", "backbone_config", "encoder", "vlm_config"), subject.config]
    configs.insert(1, field(configs[0], "vision_config", "backbone_config", default=configs[0]))
    size = next((size for one in configs if (size := field(one, "image_size")) is not None), IMAGE)
    size = size if isinstance(size, list | tuple) else (size, size)
    return (int(size[0]), int(size[-1])) if isinstance(size[0], int) else (IMAGE, IMAGE)


def side_of(subject: Subject) -> int:
    return sides_of(subject)[0]


def channels_of(subject: Subject) -> int:
    return number(subject.sub("vision_config", "backbone_config"), "num_channels", "in_channels", default=3)


def image(subject: Subject, length: int) -> Example:
    found: Example = {"pixel_values": subject.noise(1, channels_of(subject), *sides_of(subject))}
    if subject.case.model_type in SIZED:
        found["image_sizes"] = torch.tensor([sides_of(subject)])
    return found


def patches_with_grid(subject: Subject, length: int) -> Example:
    """The flat patches of the Qwen2-VL family, of all images one after the other, and each image's grid."""
    vision = subject.sub("vision_config")
    patch = number(vision, "patch_size", default=8)
    time = number(vision, "temporal_patch_size", "patch_temporal", default=1)
    merge = number(vision, "spatial_merge_size", "merge_size", "merge_kernel_size", default=2)
    size = channels_of(subject) * time * patch * patch
    return {
        "pixel_values": subject.noise(4 * merge**2, size),
        "image_grid_thw": torch.tensor([[1, 2 * merge, 2 * merge]]),
    }


def square_patches_with_grid(subject: Subject, length: int) -> Example:
    """The same with patches that keep their shape."""
    found, patch = patches_with_grid(subject, length), number(subject.sub("vision_config"), "patch_size", default=8)
    return found | {"pixel_values": found["pixel_values"].view(-1, channels_of(subject), patch, patch)}


def patches_with_merge_sizes(subject: Subject, length: int) -> Example:
    return patches_with_grid(subject, length) | {"image_merge_sizes": torch.tensor([2])}


def batched_patches_with_grid(subject: Subject, length: int) -> Example:
    """The same with one row of patches per picture."""
    vlm = Subject(subject.case, subject.model.vlm, subject.dtype)
    found = patches_with_grid(vlm, length)
    return found | {"pixel_values": found["pixel_values"][None]}


def tiles(subject: Subject, length: int) -> Example:
    """A picture and the one tile it is cut into, as LLaVA-NeXT has them."""
    return image(subject, length) | {"pixel_values": subject.noise(1, 2, channels_of(subject), *sides_of(subject))}


def aspect_tiles(subject: Subject, length: int) -> Example:
    """Mllama's: four tiles of one picture, with the aspect ratio they make up."""
    pixels = subject.noise(1, 1, 4, channels_of(subject), *sides_of(subject))
    ratio = {"aspect_ratio_ids": torch.tensor([[6]]), "aspect_ratio_mask": torch.ones(1, 1, 4, dtype=torch.long)}
    return {"pixel_values": pixels, **ratio}


def packed_patches(subject: Subject, length: int) -> Example:
    """MiniCPM's: all patches of a picture side by side in one strip, with the grid they come from."""
    patch = number(subject.sub("vision_config"), "patch_size", default=8)
    return {"pixel_values": subject.noise(1, 3, patch, patch * 16), "target_sizes": torch.tensor([[4, 4]])}


def placed_patches(subject: Subject, length: int) -> Example:
    """Gemma 4's: flat patches with their places in the picture."""
    vision = subject.sub("vision_config")
    patch, pool = number(vision, "patch_size", default=8), number(vision, "pooling_kernel_size", default=2)
    side = 2 * pool
    if subject.case.model_type == "gemma4_unified":  # which pools by taking larger patches
        patch, side = patch * pool, 4
    places = torch.cartesian_prod(torch.arange(side), torch.arange(side)).flip(-1)[None]
    return {"pixel_values": subject.noise(1, side**2, 3 * patch**2).sigmoid(), "image_position_ids": places}


def flat_patches(subject: Subject, length: int) -> Example:
    """Fuyu's: a linear map reads the patches."""
    config = subject.config
    return {"pixel_values": subject.noise(1, 4, config.num_channels * config.patch_size**2)}


def clip_cubes(subject: Subject, length: int) -> Example:
    """Inkling's: patches of two frames each, colours last."""
    vision = subject.sub("vision_config")
    patch, frames = number(vision, "patch_size", default=8), number(vision, "temporal_patch_size", default=2)
    return {"pixel_values": subject.noise(4, frames, patch, patch, 3)}


def loose_patches(subject: Subject, length: int) -> Example:
    """NeoMME's: flat patches of all pictures, one after the other."""
    return {"pixel_values": subject.noise(4, subject.config.patch_dim)}


def numbered_patches(subject: Subject, length: int) -> Example:
    """Pix2Struct's: each patch behind its row and column, counted from one."""
    vision = subject.sub("vision_config")
    places = torch.cartesian_prod(torch.arange(1, 5), torch.arange(1, 5)).to(subject.dtype)[None]
    width = 3 * vision.patch_size**2 if hasattr(vision, "patch_size") else vision.patch_embed_hidden_size
    pixels = subject.noise(1, 16, width)
    mask = {"attention_mask": torch.ones(1, 16, dtype=torch.long)} if subject.case.model_type == "pix2struct" else {}
    return {"flattened_patches": torch.cat([places, pixels], -1), **mask}


def image_pair(subject: Subject, length: int) -> Example:
    """Two pictures whose points are to be matched."""
    return {"pixel_values": subject.noise(1, 2, 3, 64, 64)}


def region_features(subject: Subject, length: int) -> Example:
    """LXMERT's: features and boxes of regions that a detector found in the picture."""
    config = subject.config
    boxes = torch.rand(1, 5, config.visual_pos_dim, dtype=subject.dtype)
    return {"visual_feats": subject.noise(1, 5, config.visual_feat_dim), "visual_pos": boxes}


def region_embeds(subject: Subject, length: int) -> Example:
    """VisualBERT's: features of regions."""
    return {"visual_embeds": subject.noise(1, 5, subject.config.visual_embedding_dim)}


def image_and_task(subject: Subject, length: int) -> Example:
    """OneFormer's: the picture, and the task in words."""
    return image(subject, length) | {"task_inputs": torch.randint(1, 99, (1, 77))}


def image_and_classes(subject: Subject, length: int) -> Example:
    """OmDet's: the picture, two classes and the task in words."""
    found = image(subject, length) | {"classes_input_ids": torch.randint(20, 99, (2, 7))}
    found |= {"tasks_input_ids": torch.randint(20, 99, (1, 7)), "classes_structure": torch.tensor([2])}
    masks = {f"{name}_attention_mask": torch.ones_like(found[f"{name}_input_ids"]) for name in ("classes", "tasks")}
    return found | masks


def image_and_depth(subject: Subject, length: int) -> Example:
    return image(subject, length) | {"prompt_depth": torch.rand(1, 1, 8, 8, dtype=subject.dtype)}


def image_and_codebook(subject: Subject, length: int) -> Example:
    """FLAVA's: the picture, and the same for its codebook."""
    side = subject.config.image_config.image_size
    count = (side // subject.config.image_config.patch_size) ** 2
    masked = torch.zeros(1, count, dtype=torch.long)
    masked[:, ::3] = 1
    found = {"pixel_values": subject.noise(1, 3, side, side), "bool_masked_pos": masked}
    return found | {"codebook_pixel_values": subject.noise(1, 3, 32, 32)}


def image_and_question(subject: Subject, length: int) -> Example:
    """InstructBLIP's: the picture, and the question for its Q-Former."""
    make = video if "video" in subject.case.model_type else image
    ids = words(subject, 11, subject.config.qformer_config)
    return make(subject, length) | {"qformer_input_ids": ids, "qformer_attention_mask": torch.ones_like(ids)}


def robot(subject: Subject, length: int) -> Example:
    """pi0's: pictures, the robot's state, and the noisy actions to straighten."""
    config = subject.config
    actions = subject.noise(1, config.chunk_size, config.max_action_dim)
    found = {
        "pixel_values": several_images(subject, length)["pixel_values"],
        "state": subject.noise(1, config.max_state_dim),
    }
    found |= {"pixel_attention_mask": torch.ones(1, 1, dtype=torch.bool), "noise": actions, "actions": actions * 0.5}
    return found | {"timestep": torch.full((1,), 0.5, dtype=subject.dtype)}


def masked_video(subject: Subject, length: int) -> Example:
    """VideoMAE's: the frames, and which tubes of patches it is to fill in."""
    config = subject.config
    count = (config.image_size // config.patch_size) ** 2 * (config.num_frames // config.tubelet_size)
    masked = torch.zeros(1, count, dtype=torch.bool)
    masked[:, ::2] = True
    pretraining = {"bool_masked_pos": masked} if "bool_masked_pos" in subject.takes else {}
    return video(subject, length) | (pretraining if subject.case.task == "pretraining" else {})


def noisy_image(subject: Subject, length: int) -> Example:
    """A masked autoencoder's: the noise decides which patches are hidden, so it is given."""
    found = image(subject, length)
    config = subject.config
    if subject.case.task != "pretraining":
        return found
    if subject.case.model_type == "hiera":
        units = [
            a // (b * c)
            for a, b, c in zip(config.image_size, config.patch_stride, config.masked_unit_size, strict=True)
        ]
        return found | {"noise": torch.linspace(0, 1, units[0] * units[1], dtype=subject.dtype)[None]}
    return found | {
        "noise": torch.linspace(0, 1, (config.image_size // config.patch_size) ** 2, dtype=subject.dtype)[None]
    }


def padded_patches(subject: Subject, length: int) -> Example:
    """Patches with the shape of the picture they are cut from."""
    vision = subject.sub("vision_config")
    side = math.isqrt(number(vision, "num_patches", default=16))
    patches = subject.noise(1, side**2, 3 * vision.patch_size**2)
    mask = torch.ones(1, side**2, dtype=torch.long)
    return {"pixel_values": patches, "pixel_attention_mask": mask, "spatial_shapes": torch.full((1, 2), side)}


def several_images(subject: Subject, length: int) -> Example:
    """One picture in a list of pictures: [1, 1, channels, side, side]."""
    return {"pixel_values": image(subject, length)["pixel_values"][:, None]}


def video(subject: Subject, length: int) -> Example:
    side = side_of(subject)
    name = "pixel_values_videos" if "pixel_values_videos" in subject.takes else "pixel_values"
    vision = subject.sub("vision_config")
    frames = number(vision, "num_frames", "frames_per_clip", default=FRAMES)
    return {name: subject.noise(1, frames, channels_of(subject), side, side)}


def prompt_points(subject: Subject, length: int) -> Example:
    """A picture and one point in it, for models that cut out what the point lies on."""
    points = torch.tensor([[[[0.4, 0.6]]]], dtype=subject.dtype) * side_of(subject)
    return image(subject, length) | {"input_points": points, "input_labels": torch.ones(1, 1, 1, dtype=torch.long)}
