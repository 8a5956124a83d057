"""The named combinations of rules: immutable mappings from operation to rule, combined with `|`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Literal

from relprop import ops
from relprop.errors import unknown_name
from relprop.rulebook import (
    attention,
    elementwise,
    expansions,
    gamma,
    norm,
    product,
    quantised,
    recurrent,
    softmax,
    zplus,
    zplus_sums,
)
from relprop.rulebook.linear_operations import HARMLESS, LINEAR
from relprop.rulebook.relevance_flow import DEFAULT, FlowSettings, Phase
from relprop.rulebook.treatments import ByWeights, Expand, Rule, Treatment
from relprop.rulebook.zplus_attention import zplus_attention

Carries = Literal["gradient", "relevance"]


class RuleSet(Mapping[str, Any]):
    """Operation -> rule. `carries`: the backward pass carries the gradient (score = input x gradient) or relevance."""

    def __init__(
        self,
        name: str,
        rules: Mapping[str, Treatment],
        carries: Carries = "gradient",
        settings: FlowSettings = DEFAULT,
    ) -> None:
        self.name = name
        self.carries = carries
        self.settings = settings
        self._rules = MappingProxyType(_consistent(rules))

    def __getitem__(self, operation: str) -> Any:
        rule = self._rules[operation]
        if self.settings is DEFAULT:
            return rule
        if isinstance(rule, Expand) and rule.fused is zplus_attention:
            return replace(rule, fused=partial(rule.fused, settings=self.settings))
        return partial(rule, settings=self.settings) if rule in zplus.RULES | zplus_sums.RULES else rule

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __or__(self, other: RuleSet) -> RuleSet:
        if self.carries != other.carries:
            raise ValueError(f"{self.name} carries {self.carries}, {other.name} {other.carries}: they do not combine")
        return RuleSet(f"{self.name}|{other.name}", {**self._rules, **other._rules}, self.carries, self.settings)

    def with_maps(self, fused: bool = False) -> RuleSet:
        """The same rules with attention written out, so that its weights can be captured; or with `fused` attention."""
        written_out: dict[str, Treatment] = {
            "multi_head_attention_forward": Expand(ops.multi_head_attention, always=True)
        }
        written_out["scaled_dot_product_attention"] = Expand(
            ops.plain_attention, not fused, fused=_native if fused else None
        )
        return RuleSet(self.name, {**self._rules, **written_out}, self.carries, self.settings)

    @property
    def captures_fused(self) -> bool:
        """Whether maps can be captured from fused attention under these rules."""
        rule = self._rules.get("scaled_dot_product_attention")
        return rule is None if self.carries == "gradient" else isinstance(rule, Expand) and rule.fused is not None

    def two_way(self, phase: Phase) -> RuleSet:
        """Relevance-carrying rules that let the gradient flow back too; `phase` switches between the two."""
        return RuleSet(self.name, self._rules, self.carries, replace(self.settings, phase=phase))

    @property
    def conserves(self) -> bool:
        """Whether every operation hands on what arrives, but for biases and other constants."""
        return self.carries == "gradient" and "mul" in self and "exp" in self

    def takes_gradient_of(self, operation: str) -> bool:
        """Whether relevance passes this operation by its gradient although the other rules conserve relevance.

        The gradient conserves it where the operation is linear, or selects; of anything else this is to be told.
        """
        return self.conserves and operation not in self and operation not in LINEAR

    def lacks(self, operation: str) -> bool:
        """Whether this kind of attention, softmax or norm has no rule here, although other kinds have one."""
        if operation in self or operation in HARMLESS:
            return False
        attention = "scaled_dot_product_attention" in self and "attention" in operation
        softmax = "softmax" in self and "softmax" in operation
        return attention or softmax or ("layer_norm" in self and operation.endswith(("_norm", "_norm_fwd")))

    def __repr__(self) -> str:
        return f"RuleSet({self.name!r}, {len(self)} rules, carries {self.carries})"


def _consistent(rules: Mapping[str, Treatment]) -> dict[str, Treatment]:
    """Attention stays fused only where the fused rule equals the rules of its single operations."""
    attention = rules.get("scaled_dot_product_attention")
    parts = (rules.get("matmul"), rules.get("softmax"))
    if not isinstance(attention, Expand) or attention.fused is not zplus_attention:
        return dict(rules)
    fused = attention.fused if parts == (zplus.matmul, zplus.to_first) else None
    return {**rules, "scaled_dot_product_attention": replace(attention, fused=fused)}


def _native(func: Rule, *args: Any, **kwargs: Any) -> Any:
    return func(*args, **kwargs)


def _all(names: tuple[str, ...] | list[str], rule: Treatment) -> dict[str, Treatment]:
    return dict.fromkeys(names, rule)


# Splits as single slices: autograd lets a model write to these in place.
_VIEWS: dict[str, Treatment] = {
    "batch_norm": norm.batch_norm,
    "split": Expand(expansions.split, exact=True),
    "chunk": Expand(expansions.chunk, exact=True),
    "unbind": Expand(expansions.unbind, exact=True),
}
_NORMS: dict[str, Treatment] = {
    "normalize": Expand(ops.normalize),
    "renorm": Expand(ops.renorm),
    "cosine_similarity": Expand(expansions.cosine_similarity),
    "instance_norm": Expand(expansions.instance_norm),
    "native_layer_norm": Expand(expansions.native_layer_norm),
}
_ADDITIONS: dict[str, Treatment] = {
    "lerp": Expand(ops.lerp),
    "addcmul": Expand(ops.addcmul),
    "addcdiv": Expand(ops.addcdiv),
    "baddbmm": Expand(ops.baddbmm),
    "addbmm": Expand(ops.addbmm),
    "addmv": Expand(ops.addmv),
    "addr": Expand(ops.addr),
}
EXPANSIONS: dict[str, Treatment] = {
    "multi_head_attention_forward": Expand(ops.multi_head_attention),
    "glu": Expand(ops.glu),
    "lstm": Expand(recurrent.lstm),
    "gru": Expand(recurrent.gru),
    "rnn_tanh": Expand(recurrent.rnn_tanh),
    "rnn_relu": Expand(recurrent.rnn_relu),
    "lstm_cell": Expand(recurrent.lstm_cell),
    "gru_cell": Expand(recurrent.gru_cell),
    "rnn_tanh_cell": Expand(recurrent.rnn_tanh_cell),
    "rnn_relu_cell": Expand(recurrent.rnn_relu_cell),
    **_NORMS,
    **_ADDITIONS,
    **_VIEWS,
}

# The same under all rule sets.
QUANTISED = {
    "quantized::linear_dynamic": Expand(quantised.linear_dynamic),
    "quantized::linear_dynamic_fp16": Expand(quantised.linear_dynamic_fp16),
}

# Rules that turn a live tensor into a constant on purpose.
CUTS = (
    elementwise.gate, elementwise.power, elementwise.quotient, elementwise.solution, elementwise.constant_grid,
    elementwise.log_sum, elementwise.variance_and_mean, norm.small_power, attention.constant_weights, zplus.zplus_gate,
    zplus.zplus_variance_and_mean, zplus.zplus_power, zplus.zplus_quotient, zplus.sampled_map,
)  # fmt: skip

# [Ali22] AH-rule: every softmax is a gate, in fused attention and outside.
_ah: dict[str, Treatment] = {
    "scaled_dot_product_attention": attention.constant_weights,
    **_all(["softmax", "softmin", "gumbel_softmax"], elementwise.gate),
    "multi_head_attention_forward": Expand(ops.multi_head_attention),
    "normalize": Expand(ops.normalize),  # of an exponential it is a softmax
    **_VIEWS,
}

# [Ali22] LN-rule: 1/std is constant, in fused norms and in norms written by hand.
_ln: dict[str, Treatment] = {
    "layer_norm": norm.layer_norm,
    "rms_norm": norm.rms_norm,
    "group_norm": norm.group_norm,
    "pow": norm.small_power,
    **_NORMS,
    **_VIEWS,
    "batch_norm": norm.constant_batch_norm,
    **_all(["rsqrt", "sqrt", "var", "std", "norm"], elementwise.gate),
    **_all(["var_mean", "std_mean"], elementwise.variance_and_mean),
}

_contractions = ["matmul", "einsum", "tensordot", "inner", "linalg_vecdot"]
_chains = ["linalg_multi_dot", "chain_matmul"]
_layers = ["linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]
_products: dict[str, Treatment] = {
    **_all(["mul", "outer", "ger", "kron", "cross", "linalg_cross", *_contractions, *_chains], product.equal_shares),
    **_all(_layers, product.layer),
}

# [AttnLRP] Eq. 9 (activations as x * constant), Prop. 3.4 (constant denominators), Prop. 3.2-3.3 (equal shares).
_homogeneous: dict[str, Treatment] = {
    **EXPANSIONS,
    **_all(elementwise.ACTIVATIONS, elementwise.constant_ratio),
    "pow": elementwise.power,
    "gate_sum": elementwise.gate,
    "div": elementwise.quotient,
    "reciprocal": elementwise.gate,
    "linalg_solve_triangular": elementwise.solution,
    "linalg_solve": elementwise.solution,
    "grid_sample": elementwise.constant_grid,
    **_products,
    "addmm": Expand(ops.addmm),
    "bilinear": Expand(expansions.bilinear),
}

gradient = RuleSet("gradient", _VIEWS)
lrp_ah = RuleSet("lrp_ah", _ah)
lrp_ln = RuleSet("lrp_ln", _ln)
lrp_ah_ln = RuleSet("lrp_ah_ln", {**_ah, **_ln})
lrp_conservative = RuleSet(
    "lrp_conservative",
    {
        **_homogeneous,
        **_all(elementwise.GATES, elementwise.gate),
        "logaddexp": elementwise.log_sum,
        **_ah,
        **_ln,
        "pow": elementwise.power,
        "norm": _native,  # a length is of degree 1 and keeps its relevance; as a denominator it is a gate anyway
    },
)
lrp_carried = RuleSet(
    "lrp_carried",
    {
        **lrp_conservative,
        "layer_norm": norm.carrying_layer_norm,
        "group_norm": norm.carrying_group_norm,
        "batch_norm": norm.carrying_batch_norm,
        "norm_bias": norm.carried_bias,  # of a norm written by hand, which starts with "centre"
        "centre": _native,
    },
)
# [AttnLRP]: the softmax keeps its gradient (Prop. 3.1), the rest as above.
attn_lrp = RuleSet(
    "attn_lrp",
    {
        **_homogeneous,
        **_ln,
        "pow": elementwise.power,
        "inverse_sum": _native,  # a part of a softmax
        "scaled_dot_product_attention": Expand(ops.plain_attention, fused=attention.shared_weights),
    },
)

# `lrp_conservative`, but a softmax passes relevance on to its logits, and so to queries and keys.
lrp_softmax = RuleSet(
    "lrp_softmax",
    {
        **lrp_conservative,
        "softmax": softmax.secant_softmax,
        "normalize": Expand(ops.normalize, always=True),  # of an exponential, a gate, it is a softmax
        "softmin": Expand(expansions.softmin),
        "mul": softmax.mul,
        "matmul": softmax.matmul,
        "einsum": softmax.einsum,
        "scaled_dot_product_attention": Expand(ops.plain_attention, fused=softmax.secant_attention),
    },
)


@cache  # one rule set per gamma: passes are shared where rule sets are the same
def gamma_rules(value: float) -> RuleSet:
    """`lrp_conservative` with the gamma rule in linear layers, convolutions and other products with weights."""
    layer = ByWeights(partial(gamma.layer, gamma=value), product.layer)
    contraction = ByWeights(partial(gamma.contraction, gamma=value), product.equal_shares)
    own = {**_all(_layers, layer), **_all(_contractions, contraction), **_all(_chains, Expand(expansions.chain))}
    return RuleSet("lrp_gamma", {**lrp_conservative, **own, "weighted_sum": contraction.rule})


lrp_gamma = gamma_rules(gamma.GAMMA)

# [GIM]: 1/std constant, products in equal shares, the softmax at temperature 2; activations keep their gradient.
gim = RuleSet(
    "gim",
    {
        **_ln,
        **_products,
        "div": product.equal_shares,
        "same_root_product": _native,  # an activation written by hand
        "addmm": Expand(ops.addmm),
        "bilinear": Expand(expansions.bilinear),
        "glu": Expand(ops.glu),
        **_ADDITIONS,
        "lerp": softmax.constant_lerp,
        "multi_head_attention_forward": Expand(ops.multi_head_attention),
        "softmax": softmax.tempered_softmax,
        "softmin": Expand(expansions.softmin),
        "scaled_dot_product_attention": Expand(ops.plain_attention, fused=softmax.tempered_attention),
    },
)

_moves = [
    "view", "view_as", "reshape", "reshape_as", "transpose", "swapaxes", "swapdims", "permute", "movedim", "t",
    "T", "mT", "H", "mH", "getitem", "select", "narrow", "slice", "squeeze", "unsqueeze", "flatten", "unflatten",
    "ravel", "expand", "expand_as", "broadcast_to", "chunk", "split", "split_with_sizes", "tensor_split", "unbind",
    "cat", "stack", "hstack", "vstack", "contiguous", "clone", "to", "type", "type_as", "float", "double", "half",
    "bfloat16", "cpu", "cuda", "index_select", "gather", "take_along_dim", "masked_select", "roll", "flip", "tril",
    "triu", "diagonal", "unfold", "repeat", "repeat_interleave", "tile", "index_put", "index_add", "index_copy",
    "scatter", "copy", "where", "masked_fill", "pad", "alias", "detach", "real", "nan_to_num", "dropout",
    "atleast_1d", "meshgrid", "rounding", "maximum", "minimum",
]  # fmt: skip

# [Chefer21] Eq. 4-6.
zplus_rules = RuleSet(
    "zplus",
    {
        **_all(_moves, _native),
        **EXPANSIONS,
        "scaled_dot_product_attention": Expand(ops.plain_attention, fused=zplus_attention),
        "linear": zplus.linear,
        **_all(["conv1d", "conv2d", "conv3d"], zplus.convolution),
        "addmm": zplus.add_matmul,
        "matmul": zplus.matmul,
        "einsum": zplus.einsum,
        "bilinear": zplus.bilinear,
        "grid_sample": zplus.sampled_map,
        "logsumexp": zplus_sums.soft_maximum,
        "add": zplus.add,
        "sub": zplus.subtract,
        **_all(["mul", "neg", "layer_norm", "rms_norm", "group_norm", "batch_norm", "same_root_sum"], zplus.unchanged),
        **_all(["softmax", "softmin", "log_softmax", "centre", "shift"], zplus.to_first),
        "sum_of_products": zplus_sums.sum_of_products,
        "weighted_sum": zplus_sums.weighted_sum,
        "div": zplus.zplus_quotient,
        "pow": zplus.zplus_power,
        **_all(elementwise.ACTIVATIONS, zplus.unchanged),
        **_all(elementwise.POINTWISE_GATES, zplus.unchanged),
        **_all(["rsqrt", "sqrt", "var", "std", "norm", "reciprocal"], zplus.zplus_gate),
        **_all(["var_mean", "std_mean"], zplus.zplus_variance_and_mean),
        **_all(["mean", "sum", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "avg_pool2d"], zplus_sums.pool),
    },
    carries="relevance",
)

# The released code of [Chefer21] and [Song24]: the same rules with a stabiliser, and its LRP baseline.
zplus_stabilised = RuleSet(
    "zplus_stabilised",
    {**zplus_rules, "softmax": zplus.stabilised_softmax},
    carries="relevance",
    settings=FlowSettings(stabiliser=1e-9),
)
zplus_released = zplus_stabilised | RuleSet(
    "released",
    {
        **_all(["linear", "conv1d", "conv2d", "conv3d"], zplus.split_linear),
        "add": zplus.plain_add,
        "sub": zplus.plain_subtract,
        "softmax": zplus.plain_softmax,
    },
    carries="relevance",
)

# For outputs that are log-probabilities, beside another set: elsewhere a model's log softmax is a gate.
log_outputs = RuleSet("log_outputs", {"log_softmax": elementwise.logit_of_log_softmax})

RULESETS = {
    rules.name: rules
    for rules in (
        gradient, lrp_ah, lrp_ln, lrp_ah_ln, lrp_conservative, lrp_carried, lrp_softmax, lrp_gamma, attn_lrp, gim,
        zplus_rules,
    )
}  # fmt: skip


def ruleset(name: str | RuleSet) -> RuleSet:
    """The rule set of that name; a rule set is returned as it is."""
    if isinstance(name, RuleSet):
        return name
    if not isinstance(name, str) or name.replace("-", "_") not in RULESETS:
        raise unknown_name("rule set", name, RULESETS)
    return RULESETS[name.replace("-", "_")]
