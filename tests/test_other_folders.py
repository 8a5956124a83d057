"""Folders that are not plain: GGUF files, and models that come with code of their author."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import relprop
from relprop.errors import ModelError
from relprop.loading import load
from tokenizers_for_tests import bert, byte_level, saved, wordpiece

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
NAMES = {  # of llama.cpp, for those of transformers
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


def tiny_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(byte_level()), num_key_value_heads=4, max_position_embeddings=64, **SIZES)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def written(folder: Path, model: Any, quantised: bool = False) -> Path:
    """The model as a GGUF file, with a byte-level tokenizer."""
    gguf = pytest.importorskip("gguf")
    folder.mkdir(exist_ok=True)
    file = folder / "tiny.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_attention_heads"])
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(model.config.vocab_size)
    tokenizer = json.loads(byte_level().backend_tokenizer.to_str())
    vocabulary = sorted(
        {**tokenizer["model"]["vocab"], "<|endoftext|>": len(byte_level()) - 1}.items(), key=lambda x: x[1]
    )
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([1] * len(vocabulary))
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(len(vocabulary) - 1)
    writer.add_eos_token_id(len(vocabulary) - 1)
    for name, tensor in model.state_dict().items():
        array = tensor.numpy().astype(np.float32)
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        if name.endswith(("attn_q.weight", "attn_k.weight")):  # llama.cpp turns pairs of neighbours, not halves
            heads, width = SIZES["num_attention_heads"], array.shape[1]
            array = array.reshape(heads, 2, -1, width).swapaxes(1, 2).reshape(-1, width)
        kind = gguf.GGMLQuantizationType.Q8_0
        if quantised and array.ndim == 2 and "blk" in name:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("quantised", [False, True], ids=["float32", "q8_0"])
def test_a_gguf_file_is_the_model_that_was_written(quantised: bool, tmp_path: Path) -> None:
    """By its own name and by its folder's; 8 bits change numbers a little, the right model shows all the same."""
    model, tokenizer = tiny_llama(), byte_level()
    file = written(tmp_path / "model", model, quantised)
    found, by_folder = relprop.Explainer(file)("a good film"), relprop.Explainer(file.parent)("a good film")
    assert found.scores == by_folder.scores
    own = relprop.Explainer(model, tokenizer)("a good film")
    assert [unit.text for unit in found.units] == [unit.text for unit in own.units]
    assert found.value == pytest.approx(own.value, rel=0.05 if quantised else 1e-4)
    assert np.corrcoef(found.scores, own.scores)[0, 1] > (0.98 if quantised else 0.9999)


def test_gguf_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them, half of one, and no package for them: one sentence each."""
    file = written(tmp_path / "model", tiny_llama())
    (tmp_path / "half.gguf").write_bytes(file.read_bytes()[: file.stat().st_size // 3])
    with pytest.raises(ModelError, match="cannot be loaded") as told:
        load(tmp_path / "half.gguf")
    assert "\n" not in str(told.value)
    (file.parent / "other.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"holds 2 GGUF files \(other.gguf, tiny.gguf\): name one of them"):
        load(file.parent)
    with pytest.raises(ModelError, match="there is no folder"):
        load(tmp_path / "none.gguf")
    monkeypatch.setattr("relprop.gguf_files.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r'needs the gguf package: pip install "relprop\[gguf\]"'):
        load(file)


CODE = "raise SystemExit('code of the author ran')"


def of_an_author(folder: Path, known_type: bool) -> Path:
    """A classifier whose config points to Python files beside it."""
    tokenizer = wordpiece()
    saved(folder, bert(tokenizer), tokenizer)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "architectures": ["TheirForSequenceClassification"],
        "auto_map": {
            "AutoConfig": "theirs.TheirConfig",
            "AutoModelForSequenceClassification": "theirs.TheirForSequenceClassification",
        },
    }
    if not known_type:
        config["model_type"] = "theirs"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "theirs.py").write_text(CODE)
    return folder


@pytest.mark.parametrize("known_type", [True, False])
def test_code_of_an_author_is_not_run(known_type: bool, tmp_path: Path) -> None:
    """The refusal names the way out."""
    folder = of_an_author(tmp_path / "theirs", known_type)
    with pytest.raises(ModelError, match=r"runs none.*trust_remote_code=True and pass Explainer\(model, tokenizer\)"):
        relprop.Explainer(folder)


def test_an_author_s_code_that_transformers_has_too_is_not_needed(tmp_path: Path) -> None:
    """Older folders still point to files that became part of transformers."""
    folder = of_an_author(tmp_path / "theirs", True)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertForSequenceClassification"]}))
    assert relprop.Explainer(folder)("a good film").scores
