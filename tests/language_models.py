"""Tiny language models that fit a small real tokenizer, and the real one where it is there."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from relprop.embedded import EMBEDDED
from relprop.explainer import Explainer
from tiny_models import Case, _construction, _refill, build, shrink

WORDS = 99  # as many as the tiny models know
SEQ2SEQ = ("T5ForConditionalGeneration", "BartForConditionalGeneration")
# stories15m: the one that comes with relprop, and the original where it is at hand.
_ORIGINAL = Path(os.environ.get("RELPROP_STORIES", Path(__file__).parents[2] / "shared/data/model-stories15m"))
STORIES = [name for name in ("stories",) if name in EMBEDDED] + ([str(_ORIGINAL)] if _ORIGINAL.is_dir() else [])


def words(ending: str = "") -> Any:
    """A word a token, special tokens below 20: "w20 w21"; `ending` closes every text, as encoders have it."""
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    names = [*special, *(f"x{i}" for i in range(4, 20)), *(f"w{i}" for i in range(20, WORDS))]
    core = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if ending:
        core.post_processor = processors.TemplateProcessing(single=f"$A {ending}", special_tokens=[(ending, 2)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


@cache
def explainer_of(architecture: str, dtype: torch.dtype = torch.float64) -> Explainer:
    """A tiny random model and a tokenizer for it, made once: tests must leave it as it is."""
    if architecture in SEQ2SEQ:
        return Explainer(seq2seq(architecture, dtype), words("</s>"))
    kinds = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    kind = next(kind for kind, name in kinds.items() if name == architecture)
    return Explainer(build(Case("causal-lm", architecture, kind), dtype=dtype)[0], words())


def seq2seq(architecture: str, dtype: torch.dtype) -> Any:
    cls = getattr(transformers, architecture)
    with _construction(0):
        model = cls(shrink(cls.config_class)).to(dtype).eval()
        _refill(model)
    return model


@cache
def stories(where: str) -> Explainer:
    """In float32, whatever it was saved in."""
    explainer = Explainer(where)
    explainer.model.float()
    return explainer
