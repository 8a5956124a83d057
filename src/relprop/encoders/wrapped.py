"""Models as other packages hand them over (sentence-transformers, SetFit): what relprop explains of them.

None of these packages is imported here: whoever has such a model has its package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from relprop.encoders.setfit import setfit_classifier
from relprop.encoders.text_encoder import TextEncoder
from relprop.engine.wrappers import arguments_of
from relprop.errors import ModelError
from relprop.model_config import config_value

_ENCODERS = ("SentenceTransformer", "MultiVectorEncoder")
_KINDS = (*_ENCODERS, "CrossEncoder", "SparseEncoder")


def own_model(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    """The model and tokenizer inside a wrapper of another package; what is no wrapper is returned as it is."""
    kind = _kind(model)
    if kind in _ENCODERS:
        return sentence_encoder(model), _tokenizer(model, tokenizer)
    if kind == "CrossEncoder":
        return model.model, _tokenizer(model, tokenizer)
    if kind == "SparseEncoder":
        raise ModelError("a SparseEncoder gives one number per word of its vocabulary: give Explainer its masked model")
    if hasattr(model, "model_body") and hasattr(model, "model_head"):
        body = model.model_body
        return setfit_classifier(model, sentence_encoder(body)), _tokenizer(body, tokenizer)
    return model, tokenizer


def as_encoder(model: nn.Module, tokenizer: Any) -> nn.Module:
    """A Transformer of texts without a head becomes an encoder, by mean pooling; other models stay as they are."""
    if not hasattr(tokenizer, "convert_ids_to_tokens") or not is_headless(model):
        return model
    if "pixel_values" in arguments_of(model):  # it reads pictures too: its reader says what is missing
        return model
    if config_value(model, "is_encoder_decoder"):
        raise ModelError(f"a {type(model).__name__} gives hidden states of a decoder: give Explainer its encoder alone")
    return TextEncoder(model)


def is_headless(model: nn.Module) -> bool:
    """Whether it is a Transformer of transformers without a head, by the tables of its auto classes."""
    if not type(model).__module__.startswith("transformers."):
        return False
    from transformers.models.auto import modeling_auto as auto

    tables = (auto.MODEL_MAPPING_NAMES, auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES)
    names = {
        name for table in tables for value in table.values() for name in ([value] if isinstance(value, str) else value)
    }
    others = (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    heads = {name for table in others for name in table.values() if isinstance(name, str)}
    return type(model).__name__ in names - heads


def _kind(model: object) -> str | None:
    """Which class of sentence-transformers it is of, or derives from."""
    for kind in type(model).__mro__:
        if kind.__module__.startswith("sentence_transformers.") and kind.__name__ in _KINDS:
            return kind.__name__
    return None


def _tokenizer(model: Any, given: Any) -> Any:
    tokenizer = model.tokenizer if given is None else given
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise ModelError(
            f"the model's tokenizer is a {type(tokenizer).__name__}, not one of transformers: its tokens cannot be "
            "placed in the text"
        )
    return tokenizer


def sentence_encoder(model: Any) -> TextEncoder:
    """A SentenceTransformer or MultiVectorEncoder whole, with all its modules, as an encoder of texts."""
    modules = list(model.modules())
    pooling = [_pooling_name(one) for one in modules if hasattr(one, "pooling_mode_mean_tokens") or _pools(one)]
    if any(getattr(one, "include_prompt", True) is False for one in modules):
        raise ModelError("the encoder leaves its prompt out of the pooling, which relprop does not follow yet")
    if any(getattr(one, "query_expansion", None) is not None for one in modules):
        raise ModelError("the encoder adds tokens to queries (query expansion), which relprop does not follow yet")
    named: dict[str, str] = {name: text or "" for name, text in (getattr(model, "prompts", None) or {}).items()}
    late = _kind(model) == "MultiVectorEncoder"
    default = named.get(getattr(model, "default_prompt_name", None) or "", "")
    prompts = (named.get("query", default), named.get("document", default)) if late else (default, default)
    similarity = getattr(model, "similarity_fn_name", None) or "cosine"
    return TextEncoder(
        _transformer(model, modules),
        " and ".join(pooling) or "no",
        similarity=str(getattr(similarity, "value", similarity)),
        steps=[model],
        max_length=getattr(model, "max_seq_length", None),
        prompts=prompts,
        skipped=tuple(number for one in modules for number in _skipped(one)),
    )


def _transformer(model: nn.Module, modules: Sequence[nn.Module]) -> nn.Module:
    """The Transformer inside, whose config says what is known of its inputs."""
    for one in modules:
        if hasattr(one, "config") and hasattr(one, "get_input_embeddings"):
            return one
    raise ModelError(
        f"the {type(model).__name__} holds no Transformer: there is nothing to propagate relevance through"
    )


def _pools(module: nn.Module) -> bool:
    return isinstance(getattr(module, "pooling_mode", None), str | tuple)


def _pooling_name(module: Any) -> str:
    mode = getattr(module, "pooling_mode", None)
    if isinstance(mode, str | tuple):
        return mode if isinstance(mode, str) else "+".join(mode)
    return str(module.get_pooling_mode_str())  # before version 6


def _skipped(module: nn.Module) -> list[int]:
    ids = getattr(module, "_skiplist_ids", None)
    return [] if ids is None else [int(number) for number in ids.tolist()]
