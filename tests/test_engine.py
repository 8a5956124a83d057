"""The engine: the model's own outputs, the rules' own flow, and what is seen on the way."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from models import CLASSIFIERS, tiny
from relprop.attribution import attribute, rules
from relprop.engine.capture import CaptureOptions
from relprop.engine.model_call import call
from relprop.engine.module_stack import stacks
from relprop.engine.passes import propagate
from relprop.engine.propagation import Propagation
from relprop.engine.sources import Sources
from relprop.errors import InputError, ModelError, UnknownNameError, UnruledOpError
from relprop.rulebook.rulesets import RULESETS, ruleset
from tiny_models import logits_of

OTHERS = (
    "GPT2LMHeadModel",
    "LlamaForCausalLM",
    "MixtralForCausalLM",
    "MambaForCausalLM",
    "BloomForCausalLM",
    "BertForQuestionAnswering",
    "T5ForQuestionAnswering",
    "ViTForImageClassification",
    "SwinForImageClassification",
    "ResNetForImageClassification",
    "LongformerForSequenceClassification",
    "PerceiverForSequenceClassification",
)
GRADIENT_CARRYING = [name for name, rules in RULESETS.items() if rules.carries == "gradient"]


def distance(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max() / expected.abs().max())


# Outputs.


@pytest.mark.sliced
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["f64", "f32"])
@pytest.mark.parametrize("architecture", CLASSIFIERS + OTHERS)
def test_outputs_do_not_change(architecture: str, dtype: torch.dtype, tolerance: float) -> None:
    """Under every rule set, fused or with maps, all logits are the plain model's."""
    model, inputs = tiny(architecture, dtype)
    with torch.no_grad():
        plain = logits_of(call(model, inputs))
    for each in (*RULESETS.values(), ruleset("lrp_ah_ln").with_maps()):
        sources = Sources(inputs)
        given = sources.live_inputs(inputs)
        with Propagation(each, [sources]):
            logits = logits_of(call(model, given))
        assert sources.placed, "nothing was live, so nothing was tested"
        assert distance(logits.detach(), plain) < tolerance, each


@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "LlamaForSequenceClassification"])
@pytest.mark.parametrize("name", GRADIENT_CARRYING)
def test_the_bare_context_is_the_method(architecture: str, name: str) -> None:
    """`with rules(...)` on inputs_embeds gives the scores of `attribute` at the word embeddings."""
    model, inputs = tiny(architecture)
    x = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    mask = {"attention_mask": inputs["attention_mask"]}
    if "Llama" in architecture:  # the classification head looks for padding in the ids
        mask = {}
        inputs = {"input_ids": inputs["input_ids"]}
    with rules(name):
        logits = model(inputs_embeds=x, **mask).logits
    (grad,) = torch.autograd.grad(logits[:, 1].sum(), x)
    method = "gradient_x_input" if name == "gradient" else name
    expected = attribute(model, inputs, 1, method, at="word_embeddings").scores
    assert distance((x * grad).sum(-1).detach(), expected) < 1e-10


def test_the_context_ends_where_it_ends() -> None:
    """Outside the context the same model has its plain gradient, also after an exception inside."""
    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    (plain,) = torch.autograd.grad(x.softmax(-1).square().sum(), x)
    with pytest.raises(ZeroDivisionError), rules("lrp_ah"):
        _ = 1 / 0
    with rules("lrp_ah"):
        assert not x.softmax(-1).requires_grad
    assert torch.equal(torch.autograd.grad(x.softmax(-1).square().sum(), x)[0], plain)


def test_unknown_rule_sets_are_named() -> None:
    """The message repeats the name and offers the nearest."""
    with pytest.raises(UnknownNameError, match='"lrp_ah_lm" is unknown; did you mean "lrp_ah_ln"'):
        rules("lrp_ah_lm")


# Capture.


@pytest.mark.parametrize("name", ["gradient", "lrp_ah_ln", "lrp_conservative", "attn_lrp", "zplus"])
@pytest.mark.parametrize(
    "architecture",
    ["BertForSequenceClassification", "GPT2LMHeadModel", "LlamaForCausalLM", "ViTForImageClassification"],
)
def test_maps_of_eager_and_fused_attention_are_equal(architecture: str, name: str) -> None:
    """Fused attention, spelled out for the capture, shows the eager model's own maps and what flows back to them."""
    found = {}
    exact = architecture.startswith(("Bert", "GPT2"))  # the eager softmax of the others is in float32
    for implementation in ("eager", "sdpa"):
        model, inputs = tiny(architecture)
        model.set_attn_implementation(implementation)
        found[implementation] = propagate(model, inputs, 1, ruleset(name), capture=CaptureOptions()).captured.maps
        if implementation == "eager":
            with torch.no_grad():
                own = model(**inputs, output_attentions=True).attentions
    assert len(found["eager"]) == len(found["sdpa"]) == len(own) == model.config.num_hidden_layers
    for block, (eager, fused, attention) in enumerate(zip(found["eager"], found["sdpa"], own, strict=True)):
        assert eager.block == fused.block == block
        assert distance(eager.weights, attention.to(eager.weights)) < 1e-6
        assert distance(fused.weights, eager.weights) < (1e-12 if exact else 1e-6)
        if name in {"gradient", "attn_lrp", "zplus"}:
            assert distance(fused.arrived, eager.arrived) < (1e-9 if exact else 1e-4)
            assert fused.arrived.any()
        else:  # a constant is not on the way back
            assert fused.arrived is eager.arrived is None


@pytest.mark.parametrize(
    "architecture",
    [
        "BertForSequenceClassification",
        "AlbertForSequenceClassification",
        "GPT2ForSequenceClassification",
        "LlamaForCausalLM",
        "ViTForImageClassification",
    ],
)
def test_block_inputs(architecture: str) -> None:
    """One entry a block, in order: the hidden states that the model itself reports, and their gradient."""
    model, inputs = tiny(architecture)
    captured = propagate(model, inputs, 1, ruleset("gradient"), capture=CaptureOptions()).captured
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states
    assert len(captured.blocks) == model.config.num_hidden_layers == len(states) - 1
    for index, (block, state) in enumerate(zip(captured.blocks, states, strict=False)):
        assert block.index == index
        assert distance(block.input.detach(), state) < 1e-12
        assert block.arrived.shape == state.shape
    x = captured.blocks[0]
    scores = attribute(model, inputs, 1, "gradient_x_input").scores
    assert distance((x.input.detach() * x.arrived).sum(-1), scores) < 1e-10


class MeanPooled(nn.Module):
    """A classifier that reads all rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(30, 8)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(8, 3)
        self.double().eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


IDS = torch.tensor([[4, 9, 2, 7, 7], [1, 3, 29, 0, 5]])


def readout(model: nn.Module, inputs: dict[str, Tensor], rules: str = "gradient") -> list[list[int]]:
    """Per example the rows of the last block's output that the target reads."""
    last = propagate(model, inputs, 1, ruleset(rules), capture=CaptureOptions()).captured.last
    return [torch.nonzero(one.abs().sum(-1)).flatten().tolist() for one in last.arrived]


@pytest.mark.parametrize("rules", ["gradient", "zplus"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("architecture", "rows", "padded_rows"),
    [
        ("BertForSequenceClassification", [[0], [0]], [[0], [0]]),
        ("GPT2ForSequenceClassification", [[6], [6]], [[6], [4]]),
        ("LlamaForSequenceClassification", [[6], [6]], [[6], [4]]),
        ("LlamaForCausalLM", [[6], [6]], [[6], [4]]),
    ],
)
def test_readout_row(
    architecture: str, rows: list[list[int]], padded_rows: list[list[int]], padded: bool, rules: str
) -> None:
    """The row the head reads is found by the flow: [CLS], or the last real token."""
    model, inputs = tiny(architecture)
    if padded:
        inputs["attention_mask"][1, 5:] = 0
        inputs["input_ids"][1, 5:] = model.config.pad_token_id
    assert readout(model, inputs, rules) == (padded_rows if padded else rows)


def test_readout_of_a_mean() -> None:
    """Mean pooling reads every row."""
    assert readout(MeanPooled(), {"input_ids": IDS}) == [[0, 1, 2, 3, 4]] * 2


# Checkpointing.


@pytest.mark.parametrize("name", RULESETS)
@pytest.mark.parametrize(
    "architecture",
    [
        "BertForSequenceClassification",
        "AlbertForSequenceClassification",
        "LlamaForCausalLM",
        "BartForSequenceClassification",
        "ViTForImageClassification",
    ],
)
def test_checkpointing_changes_nothing(architecture: str, name: str) -> None:
    """Blocks that are run again in the backward pass give bitwise the same flow."""
    model, inputs = tiny(architecture)
    plain = propagate(model, inputs, 1, ruleset(name))
    again = propagate(model, inputs, 1, ruleset(name), checkpoint=True)
    for one, other in zip(plain.arrived, again.arrived, strict=True):
        assert one.any()
        assert torch.equal(one, other)


def saved_bytes(model: nn.Module, inputs: dict[str, Tensor], checkpoint: bool) -> int:
    """What autograd keeps between the passes, by storage."""
    kept: dict[int, int] = {}
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    propagate(model, inputs, 1, ruleset("lrp_ah_ln"), checkpoint=checkpoint)  # surveyed, and its examples proved
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        propagate(model, inputs, 1, ruleset("lrp_ah_ln"), checkpoint=checkpoint)
    return sum(kept.values())


def test_checkpointing_keeps_less() -> None:
    """With checkpoint=True nothing inside the blocks is kept for the backward pass."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=8, num_attention_heads=4, intermediate_size=64)
    model = BertForSequenceClassification(config).eval()
    inputs = {"input_ids": torch.randint(0, 50, (2, 64))}
    assert saved_bytes(model, inputs, checkpoint=True) < 0.1 * saved_bytes(model, inputs, checkpoint=False)


def test_checkpointing_leaves_no_hooks_after_an_error() -> None:
    """An error inside a block closes its segment: tensors saved later are kept as they are."""
    model, inputs = tiny("BertForSequenceClassification")
    handle = model.bert.encoder.layer[1].output.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ModelError, match="ZeroDivisionError"):
        propagate(model, inputs, 1, ruleset("lrp_ah_ln"), checkpoint=True)
    handle.remove()
    x = torch.ones(3, requires_grad=True)
    assert x.exp().grad_fn._raw_saved_result.data.shape == (3,)
    assert propagate(model, inputs, 1, ruleset("lrp_ah_ln"), checkpoint=True).arrived[0].any()


# Operations without a rule.


class WithCumprod(nn.Module):
    """`cumprod` has no z+ rule: here on the way of relevance, or only behind a gate."""

    def __init__(self, stopped: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.stopped = nn.Linear(4, 4).double(), nn.Linear(4, 2).double(), stopped

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        product = h.cumprod(-1)
        return self.last(h * product.square().sum(-1, keepdim=True).rsqrt() if self.stopped else product)


def test_relevance_at_an_unruled_operation_is_an_error() -> None:
    """The message names the operation, the module and the rule set."""
    with pytest.raises(UnruledOpError, match='"cumprod" in "WithCumprod", for which the rule set "zplus"'):
        propagate(WithCumprod(stopped=False), {"x": torch.ones(2, 4).double()}, 1, ruleset("zplus"))


def test_an_unruled_operation_on_a_stopped_branch_is_harmless() -> None:
    """Relevance that never arrives there needs no rule."""
    x = torch.ones(2, 4).double()
    flow = propagate(WithCumprod(stopped=True), {"x": x}, 1, ruleset("zplus"))
    assert flow.arrived[0].sum().item() == pytest.approx(2.0, abs=1e-10)


@pytest.mark.parametrize("architecture", CLASSIFIERS)
def test_zplus_keeps_the_total_or_says_why_not(architecture: str) -> None:
    """On a whole model the relevance at the first block is 1 an example, or the missing rule is named; never junk."""
    model, inputs = tiny(architecture)
    # XLNet has its sequence first, so that a batch would be one example: `lrp` takes them one by one.
    batch = [] if architecture.startswith("XLNet") else [inputs]
    for part in (*batch, *({name: value[i : i + 1] for name, value in inputs.items()} for i in range(2))):
        try:
            flow = propagate(model, part, 1, ruleset("zplus"))
        except UnruledOpError:
            return
        lost = 1e-3 if architecture.startswith("XLNet") else 1e-6
        single = len(part["input_ids" if "input_ids" in part else "pixel_values"]) == 1
        totals = sum(one.sum()[None] if single else one.flatten(1).sum(1) for one in flow.arrived)
        assert (totals - 1).abs().max() < lost


# Other models.


def test_torchs_own_encoder() -> None:
    """No Hugging Face: tokens in, GI at the first layer's input as by hand."""
    model = MeanPooled()
    x = model.table(IDS).detach().requires_grad_()
    h = model.layers[1](model.layers[0](x))
    (grad,) = torch.autograd.grad(model.head(h.mean(1))[:, 2].sum(), x)
    found = attribute(model, IDS, 2, "gradient_x_input")
    assert distance(found.scores, (x * grad).sum(-1).detach()) < 1e-10
    assert distance(found.value, model(IDS)[:, 2].detach()) < 1e-12


@pytest.mark.parametrize("name", ["x", "anything"])
def test_a_plain_network_on_numbers(name: str) -> None:
    """A linear model of a float tensor: the scores are w * x, exactly, whatever the argument is called."""
    torch.manual_seed(0)
    layer = nn.Linear(5, 3).double()
    space: dict[str, Any] = {"nn": nn, "layer": layer}
    exec(f"class M(nn.Module):\n    def forward(self, {name}): return layer({name})", space)
    x = torch.randn(2, 5, dtype=torch.float64)
    for inputs in (x, {name: x}):
        found = attribute(space["M"](), inputs, 1, "lrp_conservative")
        assert distance(found.scores, (x * layer.weight[1]).detach()) < 1e-12


def test_a_small_network_without_biases_conserves() -> None:
    """ReLU network, no biases: lrp_conservative hands all of the output to the input."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16, bias=False), nn.ReLU(), nn.Linear(16, 3, bias=False)).double()
    x = torch.randn(4, 5, dtype=torch.float64)
    found = attribute(model, x, 0, "lrp_conservative")
    assert found.scores.shape == x.shape
    assert distance(found.scores.sum(1), found.value) < 1e-12
    assert distance(found.value, model(x)[:, 0].detach()) < 1e-12


@pytest.mark.parametrize("inplace", [False, True])
def test_activations_in_place(inplace: bool) -> None:
    """nn.ReLU(inplace=True) is nn.ReLU()."""
    torch.manual_seed(0)
    linear = [nn.Linear(5, 5) for _ in range(3)]
    x = torch.randn(4, 5, dtype=torch.float64)
    scores = []
    for flag in (False, inplace):
        parts = [linear[0], nn.ReLU(flag), linear[1], nn.SiLU(flag), linear[2], nn.Hardswish(flag)]
        model = nn.Sequential(*parts).double()
        methods = ("gradient_x_input", "lrp_ah_ln", "lrp_conservative")
        scores += [attribute(model, x, 0, method, at="input").scores for method in methods]
    assert all(torch.equal(a, b) for a, b in zip(scores[:3], scores[3:], strict=True))


@pytest.mark.parametrize(
    "architecture",
    ["T5ForSequenceClassification", "BartForSequenceClassification", "T5ForQuestionAnswering"],
)
@pytest.mark.parametrize("method", ["gradient", "lrp_ah_ln", "integrated_gradients"])
def test_encoder_decoder(architecture: str, method: str) -> None:
    """One score for each token of the text, though two stacks read it; no token is left out."""
    model, inputs = tiny(architecture)
    found = attribute(model, inputs, None, method)
    assert found.scores.shape == inputs["input_ids"].shape
    assert found.scores.all()
    assert len(stacks(model)) == 2


class Halved(MeanPooled):
    """Its blocks see pairs of tokens."""

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids).unflatten(1, (-1, 2)).mean(2)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def test_blocks_that_do_not_see_tokens_are_passed_over() -> None:
    """Where the first block's rows are no tokens, scores are read at the word embeddings; asked for, it is refused."""
    model, ids = Halved(), {"input_ids": torch.arange(12).view(2, 6)}
    found = attribute(model, ids, 1)
    assert found.scores.shape == (2, 6)
    assert torch.equal(found.scores, attribute(model, ids, 1, at="word_embeddings").scores)
    with pytest.raises(InputError, match=r'at="block": its rows could not be shown'):
        attribute(model, ids, 1, at="block")


def test_a_place_that_does_not_exist() -> None:
    """An unknown place, and a place that this model lacks."""
    model, inputs = tiny("BertForSequenceClassification")
    with pytest.raises(UnknownNameError, match='did you mean "block"'):
        attribute(model, inputs, 1, at="blok")
    with pytest.raises(InputError, match='token ids are no numbers; try at="word_embeddings"'):
        attribute(model, inputs, 1, at="input")


def test_block_and_embedding_scores_agree_where_nothing_lies_between() -> None:
    """Llama's first block reads the word embeddings themselves."""
    model, inputs = tiny("LlamaForCausalLM")
    block, words = (attribute(model, inputs, 1, at=at).scores for at in ("block", "word_embeddings"))
    assert distance(block, words) < 1e-12


class Unmodelled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).softmax(-1)


def test_a_broken_weight_is_named() -> None:
    """NaN in, an error that names the parameter out; never NaN scores."""
    model = Unmodelled()
    model.layer.weight.data[0, 0] = float("nan")
    with pytest.raises(ModelError, match=r'not finite numbers: its parameter "layer\.weight"'):
        attribute(model, torch.ones(1, 3), 0, "gradient_x_input")


def test_zplus_where_a_model_writes_to_a_layers_result() -> None:
    """The rule reads the result again on the way back: as it was, not as it was written over."""
    model, inputs = tiny("FunnelForSequenceClassification")
    flow = propagate(model, {name: value[:1] for name, value in inputs.items()}, 1, ruleset("zplus"))
    assert sum(arrived.sum().item() for arrived in flow.arrived) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    "capture", [CaptureOptions(), CaptureOptions(fold=lambda one: one.weights.sum(), last=True)], ids=["all", "last"]
)
def test_a_pass_leaves_no_tensor_behind(capture: CaptureOptions) -> None:
    """Hooks of the graph hold the capture: what it keeps must not hold the graph, or neither is ever freed."""
    model, inputs = tiny("BertForSequenceClassification")
    captured = propagate(model, inputs, 1, ruleset("gradient"), capture=capture).captured
    assert captured is not None
    assert captured.last is not None
    assert all(block.input.grad_fn is None for block in (*captured.blocks, captured.last))
