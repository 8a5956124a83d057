"""`lrp_full`: relevance at every block's input, and the proof that the rows there are the units."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import relprop
from models import CLASSIFIERS, tiny
from relprop.attribution import attribute
from relprop.embedded import EMBEDDED
from relprop.errors import InputError
from relprop.targets import Several

RULES = ("lrp_conservative", "lrp_carried", "lrp_softmax", "lrp_gamma", "attn_lrp")
BLOCKS: dict[str, Callable[[Any], Sequence[nn.Module]]] = {
    "BertForSequenceClassification": lambda model: model.bert.encoder.layer,
    "GPT2ForSequenceClassification": lambda model: model.transformer.h,
    "LlamaForSequenceClassification": lambda model: model.model.layers,
    "ViTForImageClassification": lambda model: model.vit.layers,
}


def rows_at_every_block(model: nn.Module, blocks: Sequence[nn.Module], inputs: dict[str, Tensor], rules: str) -> Tensor:
    """[blocks, batch, rows]: input x gradient at each block's input, kept by hooks."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["hidden_states"]
        kept.append(x)

    handles = [block.register_forward_pre_hook(keep, with_kwargs=True) for block in blocks]
    with relprop.rules(rules):
        embedded = {name: value for name, value in inputs.items() if name != "input_ids"}
        if "input_ids" in inputs:
            embedded["inputs_embeds"] = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
            if "pad_token_id" in vars(model.config):
                model.config.pad_token_id = None
        else:
            embedded["pixel_values"] = inputs["pixel_values"].clone().requires_grad_()
        value = model(**embedded).logits[:, 0].sum()
    for handle in handles:
        handle.remove()
    gradients = torch.autograd.grad(value, kept)
    return torch.stack([(x * g).sum(-1).detach() for x, g in zip(kept, gradients, strict=True)])


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("architecture", BLOCKS)
def test_it_is_the_mean_over_blocks(architecture: str, rules: str) -> None:
    model, inputs = tiny(architecture)
    one = {name: value[:1] for name, value in inputs.items()}
    found = attribute(model, one, 0, "lrp_full", rules=rules)
    rows = rows_at_every_block(model, BLOCKS[architecture](model), one, rules)
    assert len(rows) == 2
    expected = rows.mean(0)[:, rows.shape[-1] - found.scores.shape[-1] :]  # without the class token of a picture
    assert torch.allclose(found.scores, expected, rtol=1e-5, atol=1e-9)
    assert set(found.place.values()) == {"2 blocks"}
    assert not found.warnings


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("architecture", CLASSIFIERS)
def test_the_ledger_closes_with_the_mean_of_what_each_block_misses(architecture: str, rules: str) -> None:
    model, inputs = tiny(architecture)
    found = attribute(
        model, {name: value[:1] for name, value in inputs.items()}, 0, "lrp_full", rules=rules, ledger=True
    )
    assert found.ledger is not None
    (ledger,) = found.ledger
    assert ledger.inputs == pytest.approx(found.scores.sum().item())
    assert ledger.value == pytest.approx(found.value.item())
    (untraced,) = (entry.value for entry in ledger.entries if entry.op == "not traced")
    assert abs(untraced) < 1e-5 * max(abs(ledger.value), abs(ledger.inputs), abs(ledger.biases))
    assert ledger.closes(1e-5) or rules == "attn_lrp"  # whose softmax has a share of its own


def test_biases_are_those_above_each_block_averaged() -> None:
    """What the first block takes weighs half in a model of two; what lies above both weighs all."""
    model, inputs = tiny("BertForSequenceClassification")
    one = {name: value[:1] for name, value in inputs.items()}
    first = attribute(model, one, 0, "lrp_carried", ledger=True).ledger
    mean = attribute(model, one, 0, "lrp_full", ledger=True).ledger
    assert first is not None
    assert mean is not None

    def taken(entries: Any, prefix: str) -> float:
        return sum(entry.value for entry in entries if entry.module.startswith(prefix))

    for prefix, weight in {"bert.encoder.layer.0": 0.5, "bert.encoder.layer.1": 1.0, "classifier": 1.0}.items():
        alone = taken(first[0].entries, prefix)
        assert abs(alone) > 1e-3
        assert taken(mean[0].entries, prefix) == pytest.approx(weight * alone)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("architecture", BLOCKS)
def test_the_blend_is_half_at_the_input(architecture: str, rules: str) -> None:
    """The mean of the first block's rows and of the mean over blocks; of two blocks, three quarters and a quarter."""
    model, inputs = tiny(architecture)
    one = {name: value[:1] for name, value in inputs.items()}
    found = attribute(model, one, 0, "lrp_blend", rules=rules, ledger=True)
    first, second = rows_at_every_block(model, BLOCKS[architecture](model), one, rules)
    expected = (0.75 * first + 0.25 * second)[:, first.shape[-1] - found.scores.shape[-1] :]
    assert torch.allclose(found.scores, expected, rtol=1e-5, atol=1e-9)
    assert found.ledger is not None
    (ledger,) = found.ledger
    (untraced,) = (entry.value for entry in ledger.entries if entry.op == "not traced")
    assert abs(untraced) < 1e-5 * max(abs(ledger.value), abs(ledger.inputs), abs(ledger.biases))


def test_the_blend_refuses_rules_that_blocks_cannot_share() -> None:
    model, inputs = tiny("BertForSequenceClassification")
    with pytest.raises(InputError, match="which blocks cannot share"):
        attribute(model, inputs, 0, "lrp_blend", rules="zplus")


def test_several_targets_and_checkpoints_change_nothing() -> None:
    model, inputs = tiny("LlamaForCausalLM")
    one = {name: value[:1] for name, value in inputs.items()}
    targets = [lambda out, i=i: out.logits[:, i, 5] for i in (2, 4)]
    each = [attribute(model, one, target, "lrp_full").scores[0] for target in targets]
    together = attribute(model, one, Several(tuple(targets)), "lrp_full").scores
    assert torch.allclose(together, torch.stack(each), rtol=1e-4)
    saved = attribute(model, one, targets[0], "lrp_full", checkpoint=True)
    assert torch.allclose(saved.scores[0], each[0], rtol=1e-4)
    assert saved.place == {"input_ids": "2 blocks"}


def test_rules_that_carry_relevance_are_refused() -> None:
    model, inputs = tiny("BertForSequenceClassification")
    with pytest.raises(InputError, match='rules="zplus" carries relevance, which blocks cannot share; take one of'):
        attribute(model, inputs, 0, "lrp_full", rules="zplus")


# Whose row is it? Models that move, merge, drop or add rows between their blocks.


class Block(nn.Module):
    def __init__(self, in_place: bool = False) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.in_place = in_place

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        mixed = self.out((q @ k.transpose(-1, -2) / 3).softmax(-1) @ v)
        if self.in_place:
            x += mixed
            x += self.mlp(x)
            return x
        x = x + mixed
        return x + self.mlp(x)


class Moving(nn.Module):
    """Three blocks without positions; `between` changes the state before the second."""

    def __init__(self, between: Callable[[Tensor], Tensor], in_place: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)
        self.blocks = nn.ModuleList(Block(in_place) for _ in range(3))
        self.between = between
        self.double()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.words(input_ids)
        for number, block in enumerate(self.blocks):
            x = block(self.between(x) if number == 1 else x)
        return self.head(x.mean(1))


IDS = {"input_ids": torch.tensor([[3, 9, 4, 15, 7, 5], [8, 2, 6, 11, 13, 1]])}


def sorted_by_content(x: Tensor) -> Tensor:
    order = x[..., 0].argsort(1)
    return x.gather(1, order[..., None].expand_as(x))


MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "flipped": lambda x: x.flip(1),
    "rolled": lambda x: x.roll(2, 1),
    "sorted by content": sorted_by_content,
    "indexed": lambda x: x[:, [5, 0, 3, 1, 4, 2]],
    "windows": lambda x: x.view(2, 3, 2, 8).flip(2).reshape(2, 6, 8),
    "sequence first and back": lambda x: x.transpose(0, 1).flip(0).transpose(0, 1),
    "normalised": lambda x: torch.cat([x[:, 3:], x[:, :3]], 1),
}


@pytest.mark.parametrize("name", MOVES)
def test_moved_rows_are_followed(name: str) -> None:
    """The model does not care for the order of rows: its scores must not either."""
    still = attribute(Moving(lambda x: x), IDS, 0, "lrp_full")
    moved = attribute(Moving(MOVES[name]), IDS, 0, "lrp_full")
    assert moved.place == still.place == {"input_ids": "3 blocks"}
    assert torch.allclose(moved.scores, still.scores, rtol=1e-8)
    assert not moved.warnings


def test_in_place_sums_are_followed() -> None:
    still, written = (attribute(Moving(lambda x: x, one), IDS, 0, "lrp_full") for one in (False, True))
    assert written.place == {"input_ids": "3 blocks"}
    assert torch.allclose(written.scores, still.scores, rtol=1e-8)


OTHER_ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "pooled": lambda x: x.view(2, 3, 2, 8).mean(2),
    "merged": lambda x: x + x.roll(1, 1),
    "merged features": lambda x: torch.cat([x[..., :4].flip(1), x[..., 4:]], -1),
    "dropped": lambda x: x[:, :4],
    "doubled": lambda x: torch.cat([x, x], 1),
    "written over": lambda x: x.index_copy(1, torch.tensor([0]), x[:, 1:2]),
    "a row more": lambda x: torch.cat([x.new_ones(2, 1, 8), x], 1),
    "mixed by a matrix": lambda x: x.flip(1) @ torch.eye(8, dtype=x.dtype),
}


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_rows_that_are_no_longer_the_units_are_not_read(name: str) -> None:
    """Only the first block is read then, which gives the scores of the rules themselves; the result says so."""
    model = Moving(OTHER_ROWS[name])
    found = attribute(model, IDS, 0, "lrp_full")
    assert torch.allclose(found.scores, attribute(model, IDS, 0, "lrp_carried").scores)
    assert found.place == {"input_ids": "block"}


def test_a_path_around_a_block_input_is_seen() -> None:
    """The second block's input is no cut: the first state also reaches the head directly."""

    class Skipping(Moving):
        def forward(self, input_ids: Tensor) -> Tensor:
            first = self.words(input_ids)
            x = self.blocks[0](first)
            x = self.blocks[1](x)
            return self.head((self.blocks[2](x) + first).mean(1))

    model = Skipping(lambda x: x)
    found = attribute(model, IDS, 0, "lrp_full")
    assert found.place == {"input_ids": "block"}
    assert torch.allclose(found.scores, attribute(model, IDS, 0, "lrp_carried").scores)


def test_parts_do_not_share_a_state() -> None:
    """Two texts through the same blocks are read each in its own run of them, and not where they have met."""

    class TwoTexts(Moving):
        def forward(self, input_ids: Tensor, other_ids: Tensor) -> Tensor:
            x, y = (self.blocks[1](self.blocks[0](self.words(ids))) for ids in (input_ids, other_ids))
            return self.head(self.blocks[2](x + y).mean(1))

    model = TwoTexts(lambda x: x)
    inputs = {**IDS, "other_ids": IDS["input_ids"].flip(0)}
    found = attribute(model, {name: ids[:1] for name, ids in inputs.items()}, 0, "lrp_full", ledger=True)
    assert found.place == {"input_ids": "2 blocks", "other_ids": "2 blocks"}
    assert found.ledger is not None
    assert found.ledger[0].closes(1e-10)
    assert not found.warnings


def test_at_reads_one_place_in_place_of_every_block() -> None:
    model, inputs = tiny("BertForSequenceClassification")
    found = attribute(model, inputs, 0, "lrp_full", at="word_embeddings")
    assert found.place == {"input_ids": "word_embeddings"}
    own = attribute(model, inputs, 0, "lrp_carried", at="word_embeddings").scores
    assert torch.allclose(found.scores, own)


PET = EMBEDDED["pets"] / "samples" / "cat-and-dog.jpg"


@pytest.mark.parametrize(
    ("model", "given", "method"),
    [
        ("sentiment", "a film", "lrp_blend"),
        ("stories", "Once upon a time", "lrp_conservative"),
        ("pets", PET, "lrp_full"),
        ("molecules", "CCO", "lrp_conservative"),
    ],
    ids=["class of a text", "next token", "picture", "molecule"],
)
def test_the_default_goes_by_what_a_model_reads_and_is_asked(model: str, given: object, method: str) -> None:
    explainer = relprop.Explainer(model)
    assert explainer(given).method == explainer(given, method=None).method == method
    assert [one.method for one in explainer(given, method=[method])] == [method]
    assert explainer.default_method == method
