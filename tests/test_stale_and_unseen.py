"""What is known of a model must hold in every call, and what enters unseen must be told.

Each test is of a model that gave a wrong number without an error: proofs that were kept too long, parts that vanished,
integers that entered another way, examples that depended on each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import relprop
from relprop import attribute, check
from relprop.errors import InputError, RelpropError, UnruledOpError

IDS = torch.tensor([[3, 5, 7, 9, 2], [4, 4, 8, 1, 6]])


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.other, self.block = nn.Embedding(32, 8), nn.Embedding(32, 8), Block()
        self.head = nn.Linear(8, 3)
        self.double().eval()

    def scored(self, x: Tensor) -> Tensor:
        return self.head(self.block(x).mean(1))


def at_embeddings(model: Base, ids: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
    """Gradient x input at the word embeddings by plain autograd, of class 1."""
    leaf = model.table(ids).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(run(leaf)[:, 1].sum(), leaf)
    return (leaf * gradient).sum(-1).detach()


def warned(found: Any, words: str) -> bool:
    return any(words in one for one in found.warnings)


# What was proved of one call


class Kept(Base):
    def forward(self, ids: Tensor, keep: list[int]) -> Tensor:
        return self.scored(self.table(ids)[:, keep])


def test_another_list_reads_other_tokens() -> None:
    model = Kept()
    attribute(model, {"ids": IDS, "keep": [0, 2]}, 1, "gradient_x_input")
    found = attribute(model, {"ids": IDS, "keep": [1, 4]}, 1, "gradient_x_input")
    expected = at_embeddings(model, IDS, lambda x: model.scored(x[:, [1, 4]]))
    assert torch.allclose(found.parts["ids"], expected, atol=1e-12)


class Permuted(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.arange(5))
        self.mix = nn.Conv1d(8, 8, 3, padding=1).double()
        nn.init.zeros_(self.mix.weight)
        nn.init.zeros_(self.mix.bias)

    def forward(self, ids: Tensor) -> Tensor:
        return self.rest(self.table(ids))

    def rest(self, x: Tensor) -> Tensor:
        return self.scored((x + self.mix(x.mT).mT)[:, self.order])


@pytest.mark.parametrize("change", ["buffer", "weights"])
def test_a_changed_model_is_proved_anew(change: str) -> None:
    model = Permuted()
    attribute(model, IDS, 1, "gradient_x_input")
    with torch.no_grad():
        if change == "buffer":
            model.order.copy_(torch.tensor([4, 2, 0, 1, 3]))
        else:
            nn.init.normal_(model.mix.weight)
    found = attribute(model, IDS, 1, "gradient_x_input")
    assert torch.allclose(found.scores, at_embeddings(model, IDS, model.rest), atol=1e-12)


class Switched(Base):
    def __init__(self) -> None:
        super().__init__()
        self.both = False

    def forward(self, first: Tensor, second: Tensor, task: str = "a") -> Tensor:
        one, two = self.scored(self.table(first)), self.scored(self.other(second))
        return one + two if self.both or task == "both" else one


@pytest.mark.parametrize("switch", ["argument", "attribute", "closure", "partial"])
def test_a_part_that_was_not_used_before(switch: str) -> None:
    model, inputs = Switched(), {"first": IDS, "second": IDS + 1}
    target: Any = 1
    attribute(model, inputs, target, "gradient_x_input")
    if switch == "argument":
        inputs["task"] = "both"
    elif switch == "attribute":
        model.both = True
    else:
        model.both, number = True, {"weight": 0.0}

        def read(outputs: Tensor, weight: float | None = None) -> Tensor:
            return outputs[:, 1] * (number["weight"] if weight is None else weight)

        target = partial(read, weight=1.0) if switch == "partial" else read
        number["weight"] = 1.0
    found = attribute(model, inputs, target, "gradient_x_input")
    assert set(found.parts) == {"first", "second"}
    assert found.parts["second"].any()


class Deep(Base):
    def __init__(self) -> None:
        super().__init__()
        self.depth = 2

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.other(torch.arange(5))
        for _ in range(self.depth):
            x = self.block(x)
        return self.head(x[:, 0])


@pytest.mark.parametrize("method", ["rollout", "attention_flow", "attention_last", "gae", "attcat"])
def test_another_depth_has_other_maps(method: str) -> None:
    model, fresh = Deep(), Deep()
    attribute(model, IDS, 1, method)
    model.depth = fresh.depth = 3
    assert torch.allclose(attribute(model, IDS, 1, method).scores, attribute(fresh, IDS, 1, method).scores)


# Integers that enter another way


class Bag(Base):
    """Sums over tokens: a row of the result is no token, though it may have as many columns as there are."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.wide = kind, nn.EmbeddingBag(32, 5, mode="sum").double()
        self.read = nn.Linear(5, 3).double()

    def forward(self, ids: Tensor) -> Tensor:
        if self.kind == "bag":
            return self.read(self.wide(ids)) + self.scored(self.table(ids))
        if self.kind == "cumsum":
            return self.read(ids.cumsum(1, dtype=torch.float64)) + self.scored(self.table(ids))
        return self.read(ids.softmax(1, dtype=torch.float64)) + self.scored(self.table(ids))


@pytest.mark.parametrize("kind", ["bag", "cumsum", "softmax"])
def test_sums_of_integers_are_no_lookups(kind: str) -> None:
    model = Bag(kind)
    found = attribute(model, IDS, 1, "gradient_x_input")
    assert warned(found, "also enters the model in a way whose units could not be determined")
    assert torch.allclose(found.scores, at_embeddings(model, IDS, model.scored), atol=1e-12)


class Hashed(Base):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        if self.way == "numbers":
            x = x + self.other(torch.tensor([[7 * one % 31 for one in row] for row in ids.tolist()]))
        elif self.way == "comparison":
            x = x + F.pad((ids > 6).double()[..., None], (0, 7))
        elif self.way == "product":
            x = x * ids[..., None]
        return self.scored(x)


@pytest.mark.parametrize("way", ["numbers", "comparison", "product"])
def test_a_share_that_enters_unseen_is_told(way: str) -> None:
    assert warned(attribute(Hashed(way), IDS, 1, "gradient_x_input"), '"ids" also enters the model')
    assert not attribute(Hashed("not at all"), IDS, 1, "gradient_x_input").warnings


MARKER = 11
MARKED = torch.tensor([[3, 5, MARKER, 7, 9, 12, 8, 2], [4, 4, 8, MARKER, 6, 7, 7, 1]])


class Reading(Base):
    """Reads its ids as plain numbers."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.config = SimpleNamespace(text_config=SimpleNamespace(marker_token_id=MARKER))

    def forward(self, ids: Tensor) -> Tensor:
        numbers = [row.index(MARKER) if self.way == "place" else sum(row) % 5 for row in ids.tolist()]
        return self.scored(self.table(ids) + self.other(torch.tensor(numbers))[:, None])


def test_plain_numbers_that_only_steer_are_no_lost_share() -> None:
    """The place of a token that a config inside the model's config names; not the sum of all tokens."""
    assert not attribute(Reading("place"), MARKED, 1, "gradient_x_input").warnings
    assert warned(attribute(Reading("sum"), MARKED, 1, "gradient_x_input"), '"ids" also enters the model')


class Marked(Reading):
    """Another value at the place of a token: a picture in a text, for instance."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.scored(torch.where((ids == MARKER)[..., None], 0.5, self.table(ids)))


def test_a_token_named_by_a_config_inside_the_config_is_no_plain_one() -> None:
    assert not attribute(Marked(""), MARKED[:, 1:], 1, "gradient_x_input").warnings


class Offset(Base):
    """Ids with an offset per field, as tabular models have; written in place."""

    def forward(self, ids: Tensor) -> Tensor:
        ids += torch.arange(5)
        return self.scored(self.table(ids))


def test_integers_that_are_written_to() -> None:
    model, ids = Offset(), IDS.clone()
    found = attribute(model, ids, 1, "gradient_x_input")
    assert torch.equal(ids, IDS)
    assert torch.allclose(found.value, model(IDS.clone())[:, 1])
    moved = IDS + torch.arange(5)
    assert torch.allclose(found.scores, at_embeddings(model, moved, model.scored), atol=1e-12)
    hidden = attribute(model, ids, 1, "occlusion", replacement=0).scores  # a shifted table has no token 0: zeros
    embedded = model.table(moved).detach()
    for token in range(5):
        changed = embedded.clone()
        changed[:, token] = 0
        expected = model.scored(embedded)[:, 1] - model.scored(changed)[:, 1]
        assert torch.allclose(hidden[:, token], expected, atol=1e-12)


class Described(Base):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 3).double()

    def forward(self, ids: Tensor, **more: Any) -> Tensor:
        ((_, extra),) = more.items()
        numbers = torch.tensor(extra) if isinstance(extra, list) else extra
        return self.scored(self.table(ids)) + self.lin(numbers.double().expand(len(ids), 4))


@pytest.mark.parametrize("name", ["positions", "petal_length", "house_size", "noise_mask", "bbox", "adjacency"])
def test_floats_are_content_whatever_their_name(name: str) -> None:
    found = attribute(Described(), {"ids": IDS, name: torch.ones(2, 4, dtype=torch.float64)}, 1, "gradient_x_input")
    assert set(found.parts) == {"ids", name}


@pytest.mark.parametrize(
    "extra", [torch.ones(2, 4, dtype=torch.bool), [1, 2, 3, 4], torch.tensor(2.0)], ids=["flags", "list", "number"]
)
def test_inputs_that_no_score_covers_are_told(extra: Any) -> None:
    found = attribute(Described(), {"ids": IDS, "extra": extra}, 1, "gradient_x_input")
    assert warned(found, 'the input "extra"')
    assert 'the input "extra"' in check(Described(), {"ids": IDS, "extra": extra}, 1).verdict


class Language(Base):
    def forward(self, ids: Tensor, language: Tensor) -> Tensor:
        return self.scored(self.table(ids)) * (1 + sum(language.flatten().tolist()))


@pytest.mark.parametrize("language", [[[1]], [[2, 2, 2]], [1]])
def test_a_single_number_that_became_plain_is_told(language: Any) -> None:
    inputs = {"ids": IDS[:1], "language": torch.tensor(language)}
    assert warned(attribute(Language(), inputs, 1, "gradient_x_input"), 'the output depends on "language"')


def test_two_inputs_in_one_call_are_both_named() -> None:
    class Joined(Base):
        def forward(self, first: Tensor, second: Tensor) -> Tensor:
            mixed = self.other(torch.cat([first, second], 1).cumsum(1) % 32).mean(1)
            return self.scored(self.table(first)) + self.scored(self.table(second)) + self.head(mixed)

    found = attribute(Joined(), {"first": IDS, "second": IDS}, 1, "gradient_x_input")
    assert warned(found, '"first" also enters')
    assert warned(found, '"second" also enters')


# Examples, masks and targets


class Pairs(Base):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 3).double()

    def forward(self, ids: Tensor, image: Tensor) -> Tensor:
        return self.lin(image) @ self.scored(self.table(ids)).t()  # [images, texts]


class Coupled(Base):
    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        return self.scored(x - x.mean(0, keepdim=True))


def test_examples_that_depend_on_each_other_are_refused() -> None:
    pictures = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for method in ("gradient_x_input", "lrp_conservative", "transformer_attribution"):
        with pytest.raises(RelpropError, match=r"one example at a time|needs one map"):
            attribute(Pairs(), {"ids": IDS, "image": pictures}, 0, method)
    with pytest.raises(InputError, match='the same unit of "ids"'):
        attribute(Coupled(), IDS, 1)
    with pytest.raises(RelpropError):
        attribute(Base_(), IDS[:1], lambda outputs: outputs[0, :, 1], "gradient_x_input")


class Base_(Base):  # noqa: N801
    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.block(self.table(ids)))


class Sized(Base):
    def forward(self, ids: Tensor, sizes: Tensor) -> Tensor:
        return self.scored(self.table(ids)) / sizes.sum()


def test_an_input_that_is_as_long_as_the_batch() -> None:
    """It holds two numbers for all examples: taken apart with them, the model is another one."""
    inputs = {"ids": IDS, "sizes": torch.tensor([2, 3])}
    for method, options in (("lrp_conservative", {"ledger": True}), ("occlusion", {}), ("integrated_gradients", {})):
        with pytest.raises(InputError, match="when it is taken out of it"):
            attribute(Sized(), inputs, 1, method, **options)


class Seeing(Base):
    def __init__(self, pooled: bool = False) -> None:
        super().__init__()
        self.look, self.pooled = nn.Linear(4, 8).double(), pooled

    def forward(self, input_ids: Tensor, attention_mask: Tensor, boxes: Tensor | None = None) -> Tensor:
        x = self.table(input_ids)
        if boxes is not None:
            return self.scored(self.look(boxes)) + self.head((x * attention_mask[..., None]).mean(1))
        return self.scored(x)


MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


def test_a_mask_belongs_to_its_own_part() -> None:
    boxes = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = attribute(Seeing(), {"input_ids": IDS, "attention_mask": MASK, "boxes": boxes}, 1, "gradient_x_input")
    assert found.parts["boxes"].all()
    assert not found.parts["input_ids"][0, 3:].any()


def test_padding_that_the_model_reads_is_told() -> None:
    found = attribute(Seeing(), {"input_ids": IDS, "attention_mask": MASK}, 1, "gradient_x_input")
    assert warned(found, "the mask calls padding feed the output all the same")
    full = {"input_ids": IDS, "attention_mask": torch.ones_like(MASK)}
    assert not attribute(Seeing(), full, 1, "gradient_x_input").warnings


class Plain(Base):
    def forward(self, ids: Tensor) -> Tensor:
        return self.scored(self.table(ids))


@pytest.mark.parametrize("method", ["occlusion", "integrated_gradients", "smoothgrad"])
def test_a_target_function_of_the_whole_batch(method: str) -> None:
    """It holds one class per example: copies of examples must not be read with the classes of others."""
    labels = torch.tensor([2, 0])
    options = {"occlusion": {}, "integrated_gradients": {"steps": 4}, "smoothgrad": {"samples": 3}}[method]
    whole = attribute(
        Plain(), IDS, lambda outputs: outputs.gather(1, labels[:, None])[:, 0], method, internal_batch_size=2, **options
    )
    assert torch.allclose(whole.scores, attribute(Plain(), IDS, labels, method, **options).scores)


# Computed where no rule applies


def unseen(kind: str) -> Callable[[Tensor], Tensor]:
    if kind == "vmap":
        return torch.vmap(lambda row: row * row.sigmoid())
    return torch.jit.trace(lambda x: x * x.sigmoid(), torch.zeros(2, 3, dtype=torch.float64))


class Last(Base):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.last = unseen(kind)

    def forward(self, ids: Tensor) -> Tensor:
        return self.last(self.scored(self.table(ids)))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("kind", ["vmap", "script"])
def test_a_last_step_that_no_rule_sees_is_told(kind: str) -> None:
    model = Last(kind)
    assert warned(attribute(model, IDS, 1), "was computed where no rule applies")
    with pytest.raises(UnruledOpError, match="computed where no rule applies"):
        attribute(model, IDS, 1, "lrp")


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("kind", ["vmap", "script"])
def test_the_bare_engine_notices_it_too(kind: str) -> None:
    model, step = Plain(), unseen(kind)
    x = model.table(IDS).detach().requires_grad_()
    with relprop.rules("lrp_conservative") as mode:
        step(model.scored(x)) * 1
    assert any("was computed where no rule applies" in one for one in mode.warnings)


def test_an_operation_without_a_rule_is_told() -> None:
    class Exponential(Base):
        def forward(self, ids: Tensor) -> Tensor:
            x = self.table(ids)
            return self.head((torch.linalg.matrix_exp(x @ x.mT / 10) @ x).mean(1))

    assert warned(attribute(Exponential(), IDS, 1), 'has no rule under "lrp_conservative"')


def test_a_checkpoint_inside_the_model_is_refused_in_one_sentence() -> None:
    class Saved(Base):
        def forward(self, ids: Tensor) -> Tensor:
            x = torch.utils.checkpoint.checkpoint(self.block, self.table(ids), use_reentrant=False)
            return self.head(x.mean(1))

    with pytest.raises(RelpropError, match=r"torch.utils.checkpoint|relprop cannot follow it"):
        attribute(Saved(), IDS, 1)


def test_half_precision_proves_no_neighbour() -> None:
    """A row that reads 9 % of its neighbour is not that unit alone."""

    class Leaky(Base):
        def forward(self, ids: Tensor) -> Tensor:
            x = self.table(ids)
            return self.scored(x + 0.09 * x.roll(1, 1))

    found = attribute(Leaky().half(), IDS, 1, "gradient_x_input")
    assert found.place == {"ids": "word_embeddings"}


def test_a_constant_of_a_live_tensors_dtype_is_no_exit() -> None:
    """`constant.to(live)` reads the live tensor's dtype and device alone."""

    class Rotated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 3, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.weight.detach().double().to(x)).sum(1)

    x = torch.randn(2, 4, 3)
    found = relprop.attribute(Rotated(), {"x": x}, 1)
    assert not [one for one in found.warnings if "constant" in one]
