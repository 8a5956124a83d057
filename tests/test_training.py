"""A small real slice of the training script: it learns, prunes and distils; the whole run is training/sentiment.py."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

import sentiment

GOOD, BAD = "a good film", "a bad film"
WORDS = ["a", "good", "bad", "film", "##s", "the", "of", "un", "##like", "##ly", *sentiment.SPECIAL]


@pytest.fixture
def teacher(tmp_path: Path) -> tuple[BertForSequenceClassification, Any]:
    vocabulary = tmp_path / "vocab.txt"
    characters = [prefix + chr(code) for code in range(33, 127) for prefix in ("", "##")]
    vocabulary.write_text("\n".join(dict.fromkeys(WORDS + characters)))
    tokenizer = BertTokenizerFast(vocab=str(vocabulary), vocab_file=str(vocabulary))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=80,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        pad_token_id=tokenizer.pad_token_id,
    )
    return BertForSequenceClassification(config), tokenizer


def test_pruned_tokenizer_reads_any_text(teacher: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frequent pieces and all characters stay, rare ones go, and no ASCII text becomes unknown."""
    monkeypatch.setattr(sentiment, "VOCABULARY", 5 + 2 * 94 - 1 + 4)
    monkeypatch.setattr(sentiment, "TELLING", 2)
    _, tokenizer = teacher
    rows = [(GOOD, 1), (BAD, 0)] * 3
    kept = sentiment.prune_tokenizer(tokenizer, ["a film films"] * 3 + ["the of"], rows, tmp_path / "student")
    student = BertTokenizerFast.from_pretrained(tmp_path / "student")
    assert student.tokenize("good films!") == ["good", "film", "##s", "!"]
    assert "the" not in student.get_vocab()
    assert student.unk_token_id not in student("the of Unlikely ~ #")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(kept) == student.convert_ids_to_tokens(range(len(student)))


def test_student_keeps_the_teachers_strongest_parts(teacher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing to leave out the student computes what the teacher computes; else its weights are the teacher's."""
    monkeypatch.setattr(sentiment, "FEED_FORWARD", 32)
    model, tokenizer = teacher
    model.eval()
    ids = torch.tensor([tokenizer(GOOD)["input_ids"]])
    whole = sentiment.new_student(model, list(range(len(tokenizer)))).eval()
    assert torch.allclose(whole(input_ids=ids).logits, model(input_ids=ids).logits, atol=1e-6)
    monkeypatch.setattr(sentiment, "FEED_FORWARD", 8)
    small = sentiment.new_student(model, [3, 5, 8])
    assert torch.equal(
        small.bert.embeddings.word_embeddings.weight, model.bert.embeddings.word_embeddings.weight[[3, 5, 8]]
    )
    rows = small.bert.encoder.layer[0].intermediate.dense.weight
    assert len(rows) == 8
    assert all((row == model.bert.encoder.layer[0].intermediate.dense.weight).all(1).any() for row in rows)


def test_student_learns_the_teachers_labels(teacher: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps of distillation separate two sentences that differ in one word."""
    monkeypatch.setattr(sentiment, "FEED_FORWARD", 16)
    model, tokenizer = teacher
    kept = sentiment.prune_tokenizer(tokenizer, [GOOD, BAD], [(GOOD, 1), (BAD, 0)], tmp_path / "student")
    words = BertTokenizerFast.from_pretrained(tmp_path / "student")
    student = sentiment.new_student(model, kept)
    rows = [(GOOD, 1), (BAD, 0)] * 8
    soft = torch.tensor([[0.1, 0.9], [0.9, 0.1]] * 8)
    texts = [text for text, _ in rows]
    sentiment.fit(student, words, texts, soft, rows, epochs=8, rate=1e-3, batch_size=4, seed=0)
    assert sentiment.accuracy(student, words, rows) == 1.0


def test_masked_copies_hide_about_a_fifth_of_the_words() -> None:
    rng = random.Random(0)
    copy = sentiment.masked_copy("word " * 1000, rng).split()
    assert 150 < copy.count("[MASK]") < 250
    assert set(copy) == {"[MASK]", "word"}
