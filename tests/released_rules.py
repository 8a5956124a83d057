"""A second writing of the released rules of [Chefer21] and [Song24] for BERT: layer by layer, one example, no engine.

The released code divides by b + 1e-9, and does so also where a tensor is only copied or selected, which multiplies its
relevance by x / (x + 1e-9). `stabiliser` is that number; with 0 these are the rules themselves.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Rules:
    """The paper's rules ("ours") or those of the released LRP baseline."""

    ours: bool
    stabiliser: float = 1e-9

    def divided(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.where(b == 0, 0, a / (b + self.stabiliser))

    def copied(self, x: Tensor, *shares: Tensor) -> Tensor:
        """A tensor that is used several times gets what all its uses got."""
        return x * sum(self.divided(share, x) for share in shares)

    def linear(self, layer: Any, x: Tensor, r: Tensor) -> Tensor:
        up, down = layer.weight.clamp_min(0), layer.weight.clamp_max(0)
        active, inactive = F.linear(x.clamp_min(0), up), F.linear(x.clamp_max(0), down)
        s, t = (active + inactive,) * 2 if self.ours else (active, inactive)
        return x.clamp_min(0) * (self.divided(r, s) @ up) + x.clamp_max(0) * (self.divided(r, t) @ down)

    def add(self, u: Tensor, v: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        s = self.divided(r, u + v)
        a, b = u * s, v * s
        if not self.ours:
            return a, b
        size = a.sum().abs() + b.sum().abs()
        first, second = (self.divided(self.divided(one.sum().abs(), size) * r.sum(), one.sum()) for one in (a, b))
        return a * first, b * second

    def product(self, a: Tensor, b: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        s = self.divided(r, a @ b)
        return a * (s @ b.mT), b * (a.mT @ s)


@dataclass(frozen=True)
class Released:
    """Relevance at every A_b, as the released code keeps it, and at the first block's input."""

    maps: Tensor
    source: Tensor


@torch.no_grad()
def released_bert(
    model: Any, ids: Tensor, target: int, rules: Rules, mask: Tensor | None = None, padding: Tensor | None = None
) -> Released:
    """`ids`: [1, tokens]. `mask` [blocks, heads] as [Song24]'s code has it: maps kept before it, and not halved.

    `padding` [1, tokens] is 0 at padding: -10,000 is added to its scores.
    """
    x = model.bert.embeddings(ids)
    added = torch.zeros(1, 1, 1, ids.shape[1], dtype=x.dtype)
    added = added if padding is None else added.masked_fill(padding[:, None, None] == 0, -1e4)
    inputs = []
    for layer in model.bert.encoder.layer:
        inputs.append(x)
        x = layer(x, added.expand(1, 1, ids.shape[1], -1))
        x = x if isinstance(x, Tensor) else x[0]
    r = torch.zeros(1, model.config.num_labels, dtype=x.dtype)
    r[0, target] = 1
    r = rules.linear(model.classifier, model.bert.pooler(x), r)
    top = rules.linear(model.bert.pooler.dense, x[:, 0], r)
    r = torch.zeros_like(x)
    r[:, 0] = rules.copied(x[:, 0], top)
    maps = []
    for index in reversed(range(len(inputs))):
        layer, heads = model.bert.encoder.layer[index], None if mask is None else mask[index].view(1, -1, 1, 1)
        kept, r = _block(layer, rules, inputs[index], r, heads, added)
        maps.insert(0, kept)
    return Released(torch.cat(maps), r)


def _block(
    layer: Any, rules: Rules, x: Tensor, r: Tensor, heads: Tensor | None, added: Tensor
) -> tuple[Tensor, Tensor]:
    own, out = layer.attention.self, layer.attention.output
    q, k, v = (_by_head(linear(x), own) for linear in (own.query, own.key, own.value))
    scores = q @ k.mT / own.attention_head_size**0.5
    a = (scores + added).softmax(-1)
    context = (a @ v).transpose(1, 2).flatten(2)
    attended = out.dense(context)
    middle = out.LayerNorm(attended + x)
    wide = layer.intermediate(middle)
    back = layer.output.dense(wide)

    to_back, to_middle = rules.add(back, middle, r)
    to_wide = rules.linear(layer.output.dense, wide, to_back)
    to_middle = rules.copied(middle, rules.linear(layer.intermediate.dense, middle, to_wide), to_middle)
    to_attended, to_x = rules.add(attended, x, to_middle)
    to_context = _by_head(rules.linear(out.dense, context, to_attended), own)
    unmasked, _ = rules.product(a, v, to_context)
    to_a, to_v = rules.product(a, v, to_context if heads is None else to_context * heads)
    kept = unmasked / 2 if heads is None else unmasked
    to_q, to_k = rules.product(q, k.mT, rules.add(scores, added.expand_as(scores), to_a / 2)[0])
    shares = (own.query, to_q / 2), (own.key, to_k.mT / 2), (own.value, to_v / 2)
    parts = [rules.linear(linear, x, share.transpose(1, 2).flatten(2)) for linear, share in shares]
    return kept, rules.copied(x, rules.copied(x, *parts), to_x)


def _by_head(x: Tensor, own: Any) -> Tensor:
    return x.unflatten(-1, (own.num_attention_heads, own.attention_head_size)).transpose(1, 2)
