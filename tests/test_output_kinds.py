"""Which of a model's outputs is explained: the one that is meant, or a sentence that says what to pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import relprop
from relprop.attribution import attribute
from relprop.engine.model_call import fills_masks, generates, rows_read
from relprop.errors import InputError, TargetError
from relprop.outputs import logits_of
from relprop.padding import last_real_row, real_rows
from relprop.targets import AtMask, TokenAt, chosen_target
from tokenizers_for_tests import wordpiece

BERT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
MASK = 5


def ids(*shape: int) -> Tensor:
    return torch.randint(20, 99, shape, generator=torch.Generator().manual_seed(0))


def bert(kind: str, **config: Any) -> Any:
    torch.manual_seed(0)
    return getattr(hf, f"BertFor{kind}")(hf.BertConfig(**BERT, **config)).eval()


# Masked language models


def masked(*places: int) -> dict[str, Tensor]:
    tokens = ids(len(places), 7)
    for row, place in enumerate(places):
        tokens[row, place] = MASK
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def test_a_masked_language_model_is_not_explained_at_its_last_token() -> None:
    """`attribute` knows no tokenizer: it says how to name the mask."""
    with pytest.raises(TargetError, match=r"AtMask\(tokenizer.mask_token_id\) for a masked one"):
        attribute(bert("MaskedLM"), masked(3, 4))


@pytest.mark.parametrize("method", ["lrp_ah_ln", "occlusion", "integrated_gradients", "rollout", "random"])
def test_a_masked_language_model_is_read_at_its_mask(method: str) -> None:
    model, inputs = bert("MaskedLM"), masked(3, 4)
    logits = model(**inputs).logits.detach()
    best = [int(logits[0, 3].argmax()), int(logits[1, 4].argmax())]
    found = attribute(model, inputs, AtMask(MASK), method)
    assert found.target == tuple(map(str, best))
    assert torch.allclose(found.value, torch.stack([logits[0, 3, best[0]], logits[1, 4, best[1]]]), atol=1e-5)
    pairs = attribute(model, inputs, [AtMask(MASK, (7, 8)), AtMask(MASK, 9)], method)
    expected = torch.stack([logits[0, 3, 7] - logits[0, 3, 8], logits[1, 4, 9]])
    assert torch.allclose(pairs.value, expected, atol=1e-5)
    assert pairs.target == ("7 - 8", "9")


def test_a_config_that_names_the_mask_is_enough() -> None:
    torch.manual_seed(0)
    model = hf.EsmForMaskedLM(hf.EsmConfig(**BERT, mask_token_id=MASK, pad_token_id=1)).eval()
    inputs = masked(2, 5)
    logits = model(**inputs).logits.detach()
    found = attribute(model, inputs)
    assert torch.allclose(found.value, torch.stack([logits[0, 2].max(), logits[1, 5].max()]), atol=1e-5)


@pytest.mark.parametrize("count", [0, 2])
def test_no_mask_or_several_are_refused(count: int) -> None:
    inputs = masked(3)
    inputs["input_ids"][0, :7] = 30
    inputs["input_ids"][0, :count] = MASK
    with pytest.raises(TargetError, match=f"example 0 holds {count} mask tokens .*TokenAt"):
        attribute(bert("MaskedLM"), inputs, AtMask(MASK))


def test_the_explainer_knows_the_mask() -> None:
    tokenizer = wordpiece()
    torch.manual_seed(0)
    model = hf.BertForMaskedLM(hf.BertConfig(**{**BERT, "vocab_size": len(tokenizer)})).eval()
    explainer = relprop.Explainer(model, tokenizer)
    text = "the movie was [MASK] and witty"
    logits = model(**tokenizer(text, return_tensors="pt")).logits[0, 4].detach()
    good, bad = tokenizer.convert_tokens_to_ids(["good", "bad"])
    assert explainer(text, target="good").value == pytest.approx(logits[good].item(), abs=1e-5)
    pair = explainer(text, target=("good", "bad"))
    assert pair.value == pytest.approx((logits[good] - logits[bad]).item(), abs=1e-5)
    assert pair.target == "'good' - 'bad'"
    predicted = explainer(text)
    assert predicted.target == predicted.prediction == repr(tokenizer.decode([int(logits.argmax())]))
    with pytest.raises(TargetError, match="a masked-token target is one"):
        explainer(text, target="good movie")


def test_what_writes_text_and_what_fills_masks() -> None:
    causal = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=99, n_embd=32, n_layer=1, n_head=4))
    assert (generates(causal), fills_masks(causal)) == (True, False)
    assert (generates(bert("MaskedLM")), fills_masks(bert("MaskedLM"))) == (False, True)
    for kind in ("SequenceClassification", "TokenClassification", "QuestionAnswering"):
        assert (generates(bert(kind)), fills_masks(bert(kind))) == (False, False)


def test_a_config_may_say_that_a_model_is_not_causal() -> None:
    """XLM can generate by its class; by its config it fills masks."""
    for causal in (False, True):
        config = hf.XLMConfig(vocab_size=99, emb_dim=32, n_layers=2, n_heads=4, causal=causal, mask_token_id=MASK)
        torch.manual_seed(0)
        model = hf.XLMWithLMHeadModel(config).eval()
        assert (generates(model), fills_masks(model)) == (causal, not causal)
        logits = model(**masked(3, 4)).logits
        rows = logits[:, -1] if causal else torch.stack([logits[0, 3], logits[1, 4]])
        assert torch.allclose(attribute(model, masked(3, 4), method="random").value, rows.max(-1).values, atol=1e-5)


# Rows that are no next token


def test_a_box_is_not_chosen_for_the_user() -> None:
    torch.manual_seed(0)
    small = {name: BERT[name] for name in list(BERT)[1:5]}
    config = hf.YolosConfig(**small, image_size=[32, 32], patch_size=8, num_detection_tokens=5, num_labels=3)
    model = hf.YolosForObjectDetection(config).eval()
    inputs = {"pixel_values": torch.randn(2, 3, 32, 32)}
    with pytest.raises(TargetError, match=r"4 scores for each of 5 boxes.*lambda outputs: outputs.logits\[:, 3, 1\]"):
        attribute(model, inputs)
    given = attribute(model, inputs, lambda outputs: outputs.logits[:, 2, 1])
    assert torch.allclose(given.value, model(**inputs).logits[:, 2, 1], atol=1e-5)


def test_a_frame_is_not_chosen_for_the_user() -> None:
    torch.manual_seed(0)
    small = {name: BERT[name] for name in list(BERT)[1:5]}
    convolutions = {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_feat_extract_layers": 2}
    config = hf.Wav2Vec2Config(vocab_size=30, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, **small,
                               **convolutions)  # fmt: skip
    with pytest.raises(TargetError, match="30 scores for each of 39 frames"):
        attribute(hf.Wav2Vec2ForCTC(config).eval(), {"input_values": torch.randn(2, 400)})


def test_a_number_per_token_is_no_class() -> None:
    """[batch, tokens] looks like [batch, classes]: ELECTRA's discriminator."""
    model = hf.ElectraForPreTraining(hf.ElectraConfig(**BERT, embedding_size=16)).eval()
    with pytest.raises(TargetError, match="one number for each of 7 tokens"):
        attribute(model, {"input_ids": ids(2, 7)})


def test_the_only_row_needs_no_choice() -> None:
    """A model that gives logits [batch, 1, classes]."""
    found = chosen_target(None, torch.tensor([[[1.0, 3.0]], [[5.0, 2.0]]]), {})
    assert found.value.tolist() == [3, 5]


def test_a_language_model_of_the_users_own_is_told_how_to_name_the_next_token() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(99, 8), nn.Linear(8, 99)

        def forward(self, input_ids: Tensor) -> Tensor:
            return self.head(self.embed(input_ids))

    with pytest.raises(TargetError, match=r"TokenAt\(-1, token\) for the next token of a language model"):
        attribute(Own(), {"input_ids": ids(2, 7)})
    assert attribute(Own(), {"input_ids": ids(2, 7)}, TokenAt(-1, 5)).target == ("5", "5")


def test_boxes_are_explained_by_pixels() -> None:
    """Queries of boxes are learned: only the picture has scores, one per number of its pixels."""
    torch.manual_seed(0)
    backbone = hf.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[1] * 4, out_features=["stage4"]
    )
    config = hf.DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, backbone=None, d_model=32, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
        num_queries=5, num_labels=3,
    )  # fmt: skip
    model, inputs = hf.DetrForObjectDetection(config).eval(), {"pixel_values": torch.randn(1, 3, 64, 64)}
    with pytest.raises(TargetError, match="4 scores for each of 5 boxes"):
        attribute(model, inputs)
    found = attribute(model, inputs, lambda outputs: outputs.logits[:, 2, 1])
    assert {name: scores.shape[0] for name, scores in found.parts.items()} == {"pixel_values": 1}
    assert found.scores.any()


@pytest.mark.parametrize("additive", [False, True])
def test_a_mask_that_hides_everything_is_refused(additive: bool) -> None:
    for mask in (torch.zeros(2, 7), by_pairs(torch.zeros(2, 7), additive=additive)):
        with pytest.raises(InputError, match="row 0 of the batch is all padding"):
            attribute(bert("SequenceClassification"), {"input_ids": ids(2, 7), "attention_mask": mask}, 1)


# Several outputs


LOGITS = torch.tensor([[1.0, 3.0], [5.0, 2.0]])
LOSS, HIDDEN = torch.tensor(0.7), torch.zeros(2, 7, 4)


@pytest.mark.parametrize(
    "outputs",
    [
        (LOSS, LOGITS),
        (None, LOGITS, (HIDDEN, HIDDEN)),
        {"loss": LOSS, "scores": LOGITS},
        {"logits": LOGITS, "last_hidden_state": HIDDEN},
        (torch.arange(2), LOGITS),
    ],
    ids=["loss first", "tuple of states", "dict", "named logits", "integers"],
)
def test_logits_that_are_the_only_candidate(outputs: Any) -> None:
    assert torch.equal(logits_of(outputs), LOGITS)


@pytest.mark.parametrize(
    ("outputs", "listed"),
    [
        ((torch.zeros(2, 8), LOGITS), r"\[0\] \[2, 8\], \[1\] \[2, 2\]"),
        ({"pooled": HIDDEN[:, 0], "scores": LOGITS}, r"pooled \[2, 4\], scores \[2, 2\]"),
        (SimpleNamespace(a=LOGITS, b=LOGITS), r"a \[2, 2\], b \[2, 2\]"),
        ((LOSS,), "no tensor of numbers"),
        ({"ids": torch.arange(2)}, "no tensor of numbers"),
        ({"pooler_output": LOGITS}, "only hidden states"),
        ({"text_embeds": LOGITS}, "only hidden states"),
    ],
)
def test_logits_that_would_be_a_guess_are_refused(outputs: Any, listed: str) -> None:
    with pytest.raises(TargetError, match=listed):
        chosen_target(None, outputs, {})


class TwoOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(99, 8), nn.Linear(8, 3)

    def forward(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        pooled = self.embed(input_ids).mean(1)
        return pooled, self.head(pooled)


def test_a_tuple_of_two_is_read_by_a_function() -> None:
    model, inputs = TwoOutputs().eval(), {"input_ids": ids(2, 7)}
    with pytest.raises(TargetError, match=r"tuple without logits \(\[0\] \[2, 8\], \[1\] \[2, 3\]\)"):
        attribute(model, inputs)
    found = attribute(model, inputs, lambda outputs: outputs[1][:, 2])
    assert torch.allclose(found.value, model(**inputs)[1][:, 2])


def test_an_encoder_has_nothing_to_explain() -> None:
    model = hf.BertModel(hf.BertConfig(**BERT)).eval()
    with pytest.raises(TargetError, match=r"last_hidden_state \[2, 7, 32\], pooler_output \[2, 32\]"):
        attribute(model, {"input_ids": ids(2, 7)})


def test_a_function_gives_one_number_per_example() -> None:
    """Also a 1-d tensor may be the wrong one: the classes of the first example."""
    model, inputs = bert("SequenceClassification", num_labels=4), {"input_ids": ids(2, 7)}
    with pytest.raises(TargetError, match="it gave 4 for 2 examples"):
        attribute(model, inputs, lambda outputs: outputs.logits[0])


def test_scores_are_of_the_examples() -> None:
    """An input without a batch gives scores that look like a batch of their own."""
    with pytest.raises(TargetError, match="the model must give scores per example, it gave 2 for 3 examples"):
        attribute(nn.Linear(3, 2), torch.ones(3), 0)


def test_a_row_or_token_that_is_not_there() -> None:
    for target, message in ((TokenAt(9, 1), "there is no row 9"), (TokenAt(1, 99), "target 99 is out of range")):
        with pytest.raises(TargetError, match=message):
            attribute(bert("MaskedLM"), masked(3, 4), target)
    with pytest.raises(TargetError, match=r"shape \[2, 2\]: there is no row 1 of tokens"):
        attribute(bert("SequenceClassification"), masked(3, 4), TokenAt(1, 1))


def test_choices_are_the_classes_of_multiple_choice() -> None:
    """Named by index: the two default labels of the config are not theirs."""
    tokens = ids(2, 3, 7)
    logits = torch.tensor([[1.0, 5, 2], [9, 1, 1]])
    labels = {0: "LABEL_0", 1: "LABEL_1"}
    found = chosen_target(None, SimpleNamespace(logits=logits), {"input_ids": tokens}, labels)
    assert (found.value.tolist(), found.names) == ([5, 9], ("1", "0"))


# Padding


def by_pairs(mask: Tensor, causal: bool = False, additive: bool = False) -> Tensor:
    """The same mask as [batch, 1, queries, keys]."""
    length = mask.shape[1]
    pairs = (mask != 0)[:, None, None, :].expand(-1, 1, length, -1)
    pairs = pairs & torch.ones(length, length, dtype=torch.bool).tril() if causal else pairs
    return torch.where(pairs, 0.0, -torch.inf) if additive else pairs


PADDED = torch.tensor([[1, 1, 1, 1, 0], [0, 0, 1, 1, 1], [1, 0, 1, 1, 1], [1, 1, 1, 1, 1]])


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_rows_are_real_in_every_kind_of_mask(causal: bool, additive: bool) -> None:
    for mask in (PADDED, PADDED.bool(), PADDED.float(), by_pairs(PADDED, causal, additive)):
        inputs = {"attention_mask": mask}
        assert torch.equal(real_rows(inputs, 4, 5), PADDED != 0)
        assert last_real_row(inputs, 5, 4).tolist() == [3, 4, 4, 4]
    assert rows_read(None, {"attention_mask": by_pairs(PADDED[1:], causal, additive)}) is None  # read them all
    assert rows_read(None, {"attention_mask": PADDED[1:]}) == 1


@pytest.mark.parametrize(
    "mask",
    [
        torch.tensor([[1, 1, 0]]),  # of other units
        torch.eye(4, dtype=torch.bool)[None, None],  # each by itself: padding that sees itself?
        torch.stack([torch.ones(4, 4), torch.ones(4, 4).tril()])[None].bool().logical_and(torch.arange(4) > 0),
        torch.zeros(1, 1, 2, 4, dtype=torch.bool),
    ],
    ids=["other length", "alone", "heads differ", "other queries"],
)
def test_rows_that_a_mask_does_not_tell_are_refused(mask: Tensor) -> None:
    with pytest.raises(InputError, match="which of the 4 rows are padding cannot be told"):
        real_rows({"attention_mask": mask}, 1, 4)


def test_a_decoder_is_read_by_its_own_mask() -> None:
    own = torch.tensor([[1, 1, 0], [1, 1, 1]])
    inputs = {"attention_mask": torch.ones(2, 3), "decoder_attention_mask": own, "decoder_input_ids": ids(2, 3)}
    assert last_real_row(inputs, 3, 2).tolist() == [1, 2]
    assert rows_read(None, inputs) is None
    assert last_real_row({"attention_mask": own, "decoder_input_ids": ids(2, 3)}, 3, 2).tolist() == [2, 2]


def test_a_mask_over_a_cache_ends_with_the_given_tokens() -> None:
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    assert last_real_row({"attention_mask": mask, "past_key_values": object()}, 3, 2).tolist() == [1, 2]
    with pytest.raises(InputError, match="which of the 3 rows are padding"):
        last_real_row({"attention_mask": mask}, 3, 2)


@pytest.mark.parametrize("side", ["left", "right", "gap"])
def test_padding_answers_no_question(side: str) -> None:
    """Whichever side it is on, and though its logits are the largest."""
    mask = {"left": [0, 1, 1, 1], "right": [1, 1, 1, 0], "gap": [1, 0, 1, 1]}[side]
    padding = mask.index(0)
    start, end = torch.tensor([[1.0, 2, 3, 4]]), torch.tensor([[4.0, 3, 2, 1]])
    start[0, padding] = end[0, padding] = 100.0
    outputs, inputs = SimpleNamespace(start_logits=start, end_logits=end), {"attention_mask": torch.tensor([mask])}
    found = chosen_target(None, outputs, inputs)
    real = [i for i in range(4) if i != padding]
    first, last = max(real, key=lambda i: float(start[0, i])), max(real, key=lambda i: float(end[0, i]))
    assert found.names == (f"span {first}-{last}",)
    with pytest.raises(TargetError, match=f"target {padding} is out of range: that token is padding"):
        chosen_target((padding, last), outputs, inputs)


def test_a_left_padded_question_is_answered_as_without_padding() -> None:
    model, tokens = bert("QuestionAnswering"), ids(1, 7)
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), tokens], 1)
    mask = (padded != 0).long()
    positions = torch.tensor([[0, 0, 0, *range(7)]])
    alone = attribute(model, {"input_ids": tokens})
    found = attribute(model, {"input_ids": padded, "attention_mask": mask, "position_ids": positions})
    assert torch.allclose(found.value, alone.value, atol=1e-5)
    assert torch.allclose(found.scores[:, 3:], alone.scores, atol=1e-5)


def test_a_token_is_named_by_its_id() -> None:
    assert TokenAt(-1, 7).__name__ == "7"
    assert TokenAt(-1, 7, 8).__name__ == "7 - 8"
