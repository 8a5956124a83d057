"""Tiny encoders of texts with random weights, and the embedded tokenizer."""

from typing import Any

import torch
import transformers

import relprop
from relprop.encoders import TextEncoder

PAIR = ("a movie about music", "the film has good songs in it")
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def tokenizer() -> Any:
    return relprop.Explainer("sentiment").tokenizer


def bert(seed: int = 0, biases: bool = True, **more: Any) -> Any:
    """A BERT without a head in float64; its biases are not zero, or all of them are."""
    torch.manual_seed(seed)
    config = transformers.BertConfig(vocab_size=len(tokenizer()), **SMALL, **more)
    model = transformers.BertModel(config, add_pooling_layer=False).eval().double()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, 0.0, 0.1 if biases else 0.0)
        elif "LayerNorm" not in name:
            torch.nn.init.normal_(parameter, 0.0, 0.2)
    return model


def explainer(pooling: str = "mean", **more: Any) -> relprop.Explainer:
    return relprop.Explainer(TextEncoder(bert(), pooling, **more), tokenizer())
