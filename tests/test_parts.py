"""Parts: each explained input has scores of its own, at its own units, wherever and however it enters the model."""

import warnings
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as F

from models import tiny
from relprop.attribution import attribute
from relprop.errors import InputError, ModelError
from relprop.metrics import conservation
from tiny_models import build_whole, cases

GRADIENT = ("gradient_x_input", "lrp_ah_ln", "lrp_conservative")


def built(architecture: str) -> Any:
    return build_whole(next(case for case in cases() if case.architecture == architecture))


def distance(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-30))


class Embedded:
    """Gradient x input at the results of given modules, by hooks and plain autograd: an oracle without relprop."""

    def __init__(self, model: nn.Module, *modules: nn.Module) -> None:
        self.model, self.modules = model, modules

    def __call__(self, inputs: dict[str, Any], target: Any) -> list[Tensor]:
        seen: list[Tensor] = []

        def keep(_module: nn.Module, _args: Any, result: Tensor) -> Tensor:
            seen.append(result.detach().requires_grad_())
            return seen[-1].clone()

        hooks = [module.register_forward_hook(keep) for module in self.modules]
        try:
            value = target(self.model(**inputs))
        finally:
            for hook in hooks:
                hook.remove()
        return [x.detach() * g for x, g in zip(seen, torch.autograd.grad(value.sum(), seen), strict=True)]


# Plain PyTorch, written in many ways.


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.outer(F.gelu(self.inner(self.second(x))))


class Plain(nn.Module):
    """Blocks in a list, called as modules are."""

    def __init__(self, way: str = "list", width: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.places = nn.Embedding(30, width), nn.Embedding(16, width)
        first, second = Block(width), Block(width)
        if way == "attributes":
            self.first, self.second = first, second
            self.blocks: Any = ()
        else:
            self.blocks = [first, second] if way == "python list" else nn.ModuleList([first, second])
        self.way, self.head = way, nn.Linear(width, 3)
        self.double()
        for block in self.blocks if way == "python list" else ():
            block.double()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.places(torch.arange(ids.shape[1]))
        if self.way == "sequence first":
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        if self.way == "attributes":
            return self.head(self.second(self.first(x))[:, 0])
        for block in self.blocks:
            x = block.forward(x) if self.way == "forward" else block(x)
        return self.head(x[:, 0])


IDS = torch.tensor([[3, 5, 7, 9, 2], [4, 4, 8, 1, 6]])


@pytest.mark.parametrize("method", [*GRADIENT, "rollout", "gae", "attcat", "transformer_attribution", "lrp"])
@pytest.mark.parametrize("way", ["forward", "attributes", "python list"])
def test_blocks_are_found_however_they_are_held_and_called(way: str, method: str) -> None:
    """By `.forward`, as plain attributes, or in a list that torch does not know of."""
    expected = attribute(Plain(), IDS, 1, method)
    found = attribute(Plain(way), IDS, 1, method)
    assert found.place == expected.place == {"ids": "block"}
    assert distance(found.scores, expected.scores) < 1e-10


class Siamese(nn.Module):
    """One encoder, called twice; the cosine of what it makes of two texts."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Plain()

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(first), self.encoder(second)


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp_conservative", "integrated_gradients", "occlusion", "lrp"])
def test_an_encoder_called_twice_has_two_parts(method: str) -> None:
    """Each text has its own scores: those that it has alone, where the other enters as a constant."""
    model, other = Siamese(), torch.tensor([[9, 8, 7], [6, 5, 4]])
    weights = torch.randn(2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def summed(outputs: tuple[Tensor, Tensor]) -> Tensor:
        return (outputs[0] * weights[0]).sum(1) + (outputs[1] * weights[1]).sum(1)

    found = attribute(model, {"first": IDS, "second": other}, summed, method)
    assert {name: tuple(scores.shape) for name, scores in found.parts.items()} == {"first": (2, 5), "second": (2, 3)}
    for number, (name, ids) in enumerate({"first": IDS, "second": other}.items()):
        own = weights[number]
        alone = attribute(model.encoder, ids, lambda outputs, own=own: (outputs * own).sum(1), method)
        if method != "lrp":  # of relevance each text gets what the sum gives it
            assert distance(found.parts[name], alone.scores) < 1e-9
        assert found.parts[name].any()
    with pytest.raises(InputError, match=r'2 inputs that are never added: take .parts.* "first", "second"'):
        _ = found.scores


def test_two_inputs_that_are_added_are_read_where_they_enter() -> None:
    """Unlike things in one row: neither is read there."""

    class Added(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.other = Plain(), nn.Embedding(5, 8, dtype=torch.float64)

        def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
            x = self.encoder.table(ids) + self.other(kinds)
            for block in self.encoder.blocks:
                x = block(x)
            return self.encoder.head(x[:, 0])

    model, inputs = Added(), {"ids": IDS, "kinds": IDS % 5}
    found = attribute(model, inputs, 1, "gradient_x_input")
    assert found.place == {"ids": "word_embeddings", "kinds": "word_embeddings"}
    oracle = Embedded(model, model.encoder.table, model.other)(inputs, lambda outputs: outputs[:, 1])
    for scores, expected in zip(found.parts.values(), oracle, strict=True):
        assert distance(scores, expected.sum(-1)) < 1e-10


@pytest.mark.parametrize("length", [5, 2])  # 2: as many rows as examples
@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_own_transformer_has_two_parts(batch_first: bool, length: int) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of torch's fast path
        model = nn.Transformer(8, 2, 1, 1, 16, batch_first=batch_first, dtype=torch.float64).eval()
    source, target = torch.randn(2, length, 8, dtype=torch.float64), torch.randn(2, 3, 8, dtype=torch.float64)
    shaped = [one if batch_first else one.transpose(0, 1) for one in (source, target)]
    weights = torch.randn(8, dtype=torch.float64)

    def read(outputs: Tensor) -> Tensor:
        last = outputs[:, -1] if batch_first else outputs[-1]
        return last @ weights

    leaves = [one.clone().requires_grad_() for one in shaped]
    slopes = torch.autograd.grad(read(model(*leaves)).sum(), leaves)
    found = attribute(model, dict(zip(("src", "tgt"), shaped, strict=True)), read, "gradient_x_input")
    for scores, leaf, slope in zip(found.parts.values(), leaves, slopes, strict=True):
        expected = (leaf * slope).sum(-1).detach()
        assert distance(scores, expected if batch_first else expected.t()) < 1e-10


# Models of transformers.


@pytest.mark.parametrize(
    "architecture",
    ["GPT2ForSequenceClassification", "GPT2LMHeadModel", "OpenAIGPTForSequenceClassification", "CTRLLMHeadModel"],
)
def test_token_types_do_not_take_the_tokens_place(architecture: str) -> None:
    """GPT-2 looks its token types up in the table of words."""
    model, inputs = tiny(architecture)
    inputs["token_type_ids"] = torch.ones_like(inputs["input_ids"])
    found = attribute(model, inputs, 1, "gradient_x_input", at="word_embeddings")
    assert set(found.parts) == {"input_ids"}
    assert found.scores.all()
    words = model.get_input_embeddings()
    first, _types = Embedded(model, words)(inputs, lambda o: _row(o.logits)[:, 1])
    assert distance(found.scores, first.sum(-1)) < 1e-10


def _row(logits: Tensor) -> Tensor:
    return logits[:, -1] if logits.dim() == 3 else logits


@pytest.mark.parametrize(
    ("architecture", "parts"),
    [
        ("WhisperForConditionalGeneration", {"input_features", "decoder_input_ids"}),
        ("VisionEncoderDecoderModel", {"pixel_values", "decoder_input_ids"}),
        ("CLIPModel", {"input_ids", "pixel_values"}),
        ("SiglipModel", {"input_ids", "pixel_values"}),
        ("LlavaForConditionalGeneration", {"input_ids", "pixel_values"}),
        ("Qwen2VLForConditionalGeneration", {"input_ids", "pixel_values"}),
        ("DeepseekV4ForCausalLM", {"input_ids"}),
        ("HYV4ForCausalLM", {"input_ids"}),
        ("Sam2Model", {"input_points", "pixel_values"}),
        ("SwinForImageClassification", {"pixel_values"}),
        ("PatchTSTForClassification", {"past_values"}),
        ("PerceiverForSequenceClassification", {"input_ids"}),
        ("CpmAntForCausalLM", {"input_ids"}),
        ("BertForMultipleChoice", {"input_ids"}),
    ],
)
def test_every_input_has_its_part(architecture: str, parts: set[str]) -> None:
    """Gradient x input of each part, read where it enters, is what plain autograd gives; the batch is one by one."""
    one = built(architecture)
    alone = [attribute(one.model, example, one.target, "gradient_x_input") for example in one.examples]
    found = attribute(one.model, one.batch, one.target, "gradient_x_input")
    assert set(found.parts) == parts
    assert not found.warnings
    for name, scores in found.parts.items():
        assert scores.any()
        for number, other in enumerate(alone):
            choices = one.batch[name].shape[1:-1] if name == "input_ids" else ()
            alike, own = (each.reshape(*choices, -1) for each in (other.parts[name][0], scores[number]))
            assert distance(own[..., : alike.shape[-1]], alike) < 1e-6
    conservative = attribute(one.model, one.examples[0], one.target, ledger=True)
    assert conservative.ledger is not None
    assert conservative.ledger[0].closes()
    lines = {entry.op: entry.value for entry in conservative.ledger[0].entries if entry.kind == "input"}
    if len(parts) > 1:
        assert set(lines) == parts
        assert all(abs(lines[name] - scores.sum()) < 1e-9 for name, scores in conservative.parts.items())


def test_floats_are_read_at_the_input_and_tokens_where_they_are_looked_up() -> None:
    """at="input" with token ids beside pixels: no pixel stands for a token."""
    one = built("CLIPModel")
    found = attribute(one.model, one.batch, one.target, "gradient_x_input", at="input")
    assert found.place == {"pixel_values": "input", "input_ids": "word_embeddings"}
    pixels = one.batch["pixel_values"].clone().requires_grad_()
    value = one.target(one.model(**{**one.batch, "pixel_values": pixels}))
    (slope,) = torch.autograd.grad(value.sum(), pixels)
    assert distance(found.parts["pixel_values"], (pixels * slope).sum(1).flatten(1).detach()) < 1e-9


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_frames_of_sound_are_windows_of_it(norm: str) -> None:
    """A two-layer Hubert has more convolutions than blocks: rows are frames, and each tells its samples.

    Positions are told by a convolution over many frames: scores are read before it. A norm over all of time mixes the
    frames from the start: scores are read at the samples.
    """
    torch.manual_seed(0)
    config = hf.HubertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, num_labels=2,
        conv_dim=(8, 8, 8), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_conv_pos_embeddings=32,
        num_conv_pos_embedding_groups=2, classifier_proj_size=8, feat_extract_norm=norm,
    )  # fmt: skip
    model = hf.HubertForSequenceClassification(config).double().eval()
    sound = torch.randn(2, 400, dtype=torch.float64)
    found = attribute(model, {"input_values": sound}, 1)
    if norm == "group":
        assert (found.place, found.scores.shape) == ({"input_values": "input"}, (2, 400))
        return
    assert found.place == {"input_values": "features"}
    windows = found.windows["input_values"]
    frames = windows.shape[1]
    assert found.scores.shape == (2, frames)
    assert windows[0, :3, 0].tolist() == [[0, 39], [20, 59], [40, 79]]


# What may move the place.


@pytest.mark.parametrize("change", ["checkpointing", "require grads"])
def test_settings_of_training_do_not_move_the_place(change: str) -> None:
    model, inputs = tiny("BertForSequenceClassification")
    expected = attribute(model, inputs, 1)
    if change == "checkpointing":
        model.gradient_checkpointing_enable()
    else:
        model.enable_input_require_grads()
    found = attribute(model, inputs, 1)
    assert found.place == expected.place
    assert torch.equal(found.scores, expected.scores)


def test_embeddings_that_require_grad_are_left_alone() -> None:
    model, inputs = tiny("BertForSequenceClassification")
    embedded = model.get_input_embeddings()(inputs["input_ids"]).detach()
    given = {"inputs_embeds": embedded, "attention_mask": inputs["attention_mask"]}
    expected = attribute(model, given, 1)
    assert expected.scores.shape == inputs["input_ids"].shape
    asked = {**given, "inputs_embeds": embedded.clone().requires_grad_()}
    found = attribute(model, asked, 1)
    assert (found.place, found.parts.keys()) == (expected.place, {"inputs_embeds"})
    assert torch.equal(found.scores, expected.scores)
    assert asked["inputs_embeds"].grad is None


@pytest.mark.parametrize("method", ["rollout", "attention_last", "gae", "grad_sam", "transformer_attribution"])
def test_a_stack_that_runs_twice_counts_twice(method: str) -> None:
    """ALBERT's one block, fused attention or not."""
    model, inputs = tiny("AlbertForSequenceClassification")
    model.config._attn_implementation = "eager"
    expected = attribute(model, inputs, 1, method).scores
    model.config._attn_implementation = "sdpa"
    assert distance(attribute(model, inputs, 1, method).scores, expected) < 1e-9


# The target under the rules.


def test_a_target_of_the_callers_is_explained_too() -> None:
    """A cosine's norms are constants under the rules, so that the scores sum to it; those of a plain gradient to 0."""
    torch.manual_seed(0)
    table = torch.randn(5, 8, dtype=torch.float64)

    class Bag(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(1)

    x = torch.randn(2, 3, 8, dtype=torch.float64)

    def cosine(outputs: Tensor) -> Tensor:
        return F.cosine_similarity(outputs, table[:1].expand_as(outputs), dim=-1)

    found = attribute(Bag(), x, cosine, "lrp_conservative")
    assert distance(found.scores.sum(1), found.value) < 1e-10
    plain = attribute(Bag(), x, cosine, "gradient_x_input")
    assert plain.scores.sum(1).abs().max() < 1e-10


def test_a_norm_is_explained() -> None:
    model, inputs = tiny("BertForSequenceClassification")

    def length(outputs: Any) -> Tensor:
        return outputs.logits.norm(dim=-1)

    found = attribute(model, {k: v[:1] for k, v in inputs.items()}, length, "lrp_conservative", ledger=True)
    assert found.ledger is not None
    assert found.ledger[0].closes()
    assert found.scores.any()


# Guards.


def test_a_part_that_nothing_flows_back_to_is_told() -> None:
    """A softmax between an input and the rest is a constant under the rules: its zeros are no finding."""
    torch.manual_seed(0)

    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.words = Plain(), nn.Linear(4, 8, dtype=torch.float64)

        def forward(self, ids: Tensor, picture: Tensor) -> Tensor:
            x = self.encoder.table(ids) + self.words(picture.softmax(-1))[:, None]
            for block in self.encoder.blocks:
                x = block(x)
            return self.encoder.head(x[:, 0])

    inputs = {"ids": IDS, "picture": torch.randn(2, 4, dtype=torch.float64)}
    found = attribute(Chosen(), inputs, 1, "lrp_conservative")
    assert not found.parts["picture"].any()
    assert any('nothing flows back to "picture"' in one for one in found.warnings)
    assert not attribute(Chosen(), inputs, 1, "gradient_x_input").warnings


def test_a_cache_of_the_callers_is_told_and_left_alone() -> None:
    model, inputs = tiny("LlamaForCausalLM")
    ids = inputs["input_ids"][:1]
    with torch.no_grad():
        cache = model(input_ids=ids[:, :4], use_cache=True).past_key_values
    before = cache.get_seq_length()
    found = attribute(model, {"input_ids": ids[:, 4:], "past_key_values": cache}, 1)
    assert cache.get_seq_length() == before
    assert any('"past_key_values"' in one and "no score covers" in one for one in found.warnings)


@pytest.mark.parametrize("training_steps", [0, 1])
def test_batch_norm_of_one_example(training_steps: int) -> None:
    """Its gradient in eval mode is weight / sqrt(var + eps), whatever the strides of what flows back."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(6).double()
    for _ in range(training_steps):
        norm(torch.randn(4, 6, 2, 2, dtype=torch.float64) * 3 + 1)
    norm.eval()
    nn.init.normal_(norm.weight)
    weights = torch.randn(4, 6, dtype=torch.float64)

    class Moved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = norm

        def forward(self, x: Tensor) -> Tensor:
            return (self.norm(x).flatten(2).transpose(1, 2) * weights).sum((1, 2))[:, None]

    x = torch.randn(1, 6, 2, 2, dtype=torch.float64)
    slope = weights.t().view(6, 2, 2) * (norm.weight / (norm.running_var + norm.eps).sqrt())[:, None, None]
    found = attribute(Moved(), x, 0, "gradient_x_input", at="input")
    assert distance(found.scores.sum(1), (x[0] * slope).sum()[None].detach()) < 1e-10


class Grid(nn.Module):
    """Patches in rows and columns, features last: windows attend, then all is pooled (as Swin's blocks are called)."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cut, self.last = nn.Conv2d(3, 8, 4, 4, dtype=torch.float64), last
        self.blocks, self.head = nn.ModuleList([Block().double(), Block().double()]), nn.Linear(8, 3).double()

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.cut(pixel_values)
        x = x.permute(0, 2, 3, 1) if self.last else x
        x = x * 1.5
        for block in self.blocks:
            rows = x if self.last else x.permute(0, 2, 3, 1)
            mixed = block(rows.flatten(0, 1)).view_as(rows)  # each row of patches is a window
            x = mixed if self.last else mixed.permute(0, 3, 1, 2)
        return self.head(x.mean((1, 2) if self.last else (2, 3)))


@pytest.mark.parametrize("last", [True, False])
def test_states_of_four_dimensions(last: bool) -> None:
    """[batch, height, width, features] and [batch, features, height, width]: a patch's score is its features' sum."""
    model, pixels = Grid(last), torch.randn(2, 3, 12, 16, dtype=torch.float64)
    found = attribute(model, pixels, 1, "gradient_x_input")
    assert found.place == {"pixel_values": "block"}
    assert found.windows["pixel_values"][1, 5].tolist() == [[0, 2], [4, 7], [4, 7]]
    (expected,) = Embedded(model, model.cut)({"pixel_values": pixels}, lambda outputs: outputs[:, 1])
    assert distance(found.scores, expected.sum(1).flatten(1)) < 1e-10
    for method in ("rollout", "gae"):
        with pytest.raises(ModelError, match=r"needs one map of all tokens|one sequence per example"):
            attribute(model, pixels, 1, method)


def test_sums_over_parts_are_conserved() -> None:
    """The metric takes all parts of an attribution: only together they make the value."""
    one = built("CLIPModel")
    found = attribute(one.model, one.batch, one.target, "lrp_conservative")
    pair = conservation(found.parts, found.value)
    assert torch.allclose(torch.as_tensor(pair.totals), sum(scores.sum(1) for scores in found.parts.values()))


class SequenceFirst(nn.Module):
    """Token ids [tokens, batch]."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Plain()

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids.t())


def test_one_tensor_for_two_arguments() -> None:
    """The same text on both sides is two parts all the same."""
    model = Siamese()

    def first(outputs: tuple[Tensor, Tensor]) -> Tensor:
        return outputs[0][:, 0] + 2 * outputs[1][:, 1]

    found = attribute(model, {"first": IDS, "second": IDS}, first, "gradient_x_input")
    apart = attribute(model, {"first": IDS, "second": IDS.clone()}, first, "gradient_x_input")
    assert set(found.parts) == {"first", "second"}
    for name, scores in found.parts.items():
        assert torch.equal(scores, apart.parts[name])


@pytest.mark.parametrize("method", ["gradient_x_input", "rollout", "gae", "lrp", "occlusion", "integrated_gradients"])
def test_as_many_tokens_as_examples(method: str) -> None:
    """Two axes of one length: which one is the examples' is shown, sequence first or not."""

    square = torch.tensor([[3, 5, 7], [9, 2, 4], [8, 1, 6]])
    expected = attribute(Plain(), square, 1, method)
    alone = torch.cat([attribute(Plain(), square[i : i + 1], 1, method).scores for i in range(3)])
    assert distance(expected.scores, alone) < 1e-9
    if method in ("occlusion", "integrated_gradients"):  # they take examples out of a batch along its first axis
        return
    assert distance(attribute(SequenceFirst(), square.t(), 1, method).scores, expected.scores) < 1e-9


@pytest.mark.parametrize("method", ["integrated_gradients", "occlusion", "lrp", "random", "lrp_conservative"])
def test_a_batch_along_another_axis_is_not_taken_apart(method: str) -> None:
    """Methods that go example by example say so, rather than take tokens for examples."""

    options = {"ledger": True} if method == "lrp_conservative" else {}
    if method == "lrp":  # in one pass
        expected = attribute(Plain(), IDS, 1, method).scores
        assert distance(attribute(SequenceFirst(), IDS.t(), 1, method).scores, expected) < 1e-9
        return
    with pytest.raises(InputError, match="does not have its 2 examples along the first axis"):
        attribute(SequenceFirst(), IDS.t(), 1, method, **options)


def test_an_input_that_became_plain_numbers_is_told() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.other = Plain(), nn.Embedding(9, 3, dtype=torch.float64)

        def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
            return self.model(ids) + self.other(torch.tensor(kinds.tolist()))[:, 0]

    found = attribute(Listed(), {"ids": IDS, "kinds": torch.tensor([[1, 2], [3, 4]])}, 1)
    assert set(found.parts) == {"ids"}
    assert any('the output depends on "kinds"' in one for one in found.warnings)


def test_scores_that_the_mask_hides_are_told() -> None:
    """A head that reads a token which the mask hides: all there is to score stands at padding, where scores are 0."""

    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(30, 8), nn.Linear(8, 3)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.head(self.table(input_ids)[:, 0])

    found = attribute(Alone(), {"input_ids": IDS, "attention_mask": torch.tensor([[0, 1, 1, 1, 1]] * 2)}, 1)
    assert not found.scores.any()
    assert any("only to units that the mask hides" in one for one in found.warnings)
