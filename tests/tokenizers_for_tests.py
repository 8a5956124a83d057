"""Small real tokenizers and tiny models that fit them, made in a moment and without any download."""

from __future__ import annotations

import string
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertTokenizerFast,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaTokenizerFast,
)

LABELS = {0: "negative", 1: "positive"}
WORDS = ["a", "an", "the", "movie", "film", "plot", "is", "was", "not", "very", "don", "t", "and", "of", "it"]
WORDS += ["gorgeous", "witty", "seductive", "dull", "moment", "good", "bad"]
PIECES = ["play", "walk", "##ing", "##ed", "##s", "##ly", "un", "##believ", "##able"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = string.ascii_lowercase + string.digits + "日本語映画שלוםمرحبا"


def wordpiece(limit: int = 64) -> Any:
    """BERT's: lower case, accents off, words in pieces, unknown emoji."""
    vocabulary = [*SPECIAL, *string.punctuation, *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS, *PIECES]
    core = Tokenizer(
        models.WordPiece({token: i for i, token in enumerate(dict.fromkeys(vocabulary))}, unk_token="[UNK]")
    )
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    cls, sep = core.token_to_id("[CLS]"), core.token_to_id("[SEP]")
    core.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    return BertTokenizerFast(tokenizer_object=core, model_max_length=limit)


def byte_level(**special: str) -> Any:
    """GPT-2's: every byte a token, and a few merges; a word carries the blank before it."""
    core = _bytes()
    core.add_special_tokens(["<|endoftext|>"])
    core.post_processor = processors.ByteLevel(trim_offsets=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        model_max_length=64,
        eos_token="<|endoftext|>",
        model_input_names=["input_ids", "attention_mask"],
        **special,
    )


def roberta_style(limit: int = 10**30) -> Any:
    """RoBERTa's: bytes too, with <s> </s> around, offsets without the blank, and positions that start behind <pad>."""
    core = _bytes(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    core.post_processor = processors.RobertaProcessing(
        ("</s>", core.token_to_id("</s>")), ("<s>", core.token_to_id("<s>")), trim_offsets=True
    )
    return RobertaTokenizerFast(tokenizer_object=core, model_max_length=limit)


def _bytes(special: list[str] | None = None) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", letter) for letter in "abdgimnpstvw"] + [("t", "h"), ("th", "e"), ("Ġt", "h"), ("Ġth", "e")]
    merges += [("o", "o"), ("Ġg", "oo"), ("Ġgoo", "d"), ("Ġb", "a"), ("Ġba", "d")]
    tokens = [*(special or []), *alphabet, *("".join(pair) for pair in merges)]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    core.add_special_tokens(special or [])
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return core


def bert(tokenizer: Any, kind: Any = BertForSequenceClassification, positions: int = 64) -> Any:
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=positions,
        pad_token_id=tokenizer.pad_token_id,
        id2label=LABELS,
    )
    return _strong(kind, config)


def bert_qa(tokenizer: Any) -> Any:
    return bert(tokenizer, BertForQuestionAnswering)


def roberta(tokenizer: Any, positions: int = 40) -> Any:
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=positions,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        type_vocab_size=1,
        id2label=LABELS,
    )
    return _strong(RobertaForSequenceClassification, config)


def gpt2(tokenizer: Any, kind: Any = GPT2ForSequenceClassification) -> Any:
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        id2label=LABELS,
    )
    return _strong(kind, config)


def gpt2_lm(tokenizer: Any) -> Any:
    return gpt2(tokenizer, GPT2LMHeadModel)


def _strong(kind: Any, config: Any) -> Any:
    """Random weights, large enough that the output depends on every token."""
    generator = torch.Generator().manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name.casefold() and "ln_" not in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.25)
    return model


def saved(folder: Path, model: Any, tokenizer: Any) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


MAKERS: dict[str, tuple[Any, Any]] = {
    "bert": (bert, wordpiece),
    "qa": (bert_qa, wordpiece),
    "gpt2": (gpt2, byte_level),
    "lm": (gpt2_lm, byte_level),
    "roberta": (roberta, roberta_style),
}


@cache
def tiny(name: str) -> tuple[Any, Any]:
    """One of MAKERS, made once: tests must leave it as it is."""
    model_of, tokenizer_of = MAKERS[name]
    tokenizer = tokenizer_of()
    return model_of(tokenizer), tokenizer
