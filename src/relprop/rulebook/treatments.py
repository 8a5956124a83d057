"""What a rule set holds per operation: a rule, or one of the wrappers that say where which rule applies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Expand:
    """Run this function in place of the operation; the rules apply to its torch calls one by one."""

    function: Rule
    always: bool = False  # also where no argument is live, so that observers see the single calls
    exact: bool = False  # equals the operation to the bit, so that the operation itself need not run
    fused: Rule | None = None  # a rule for fused attention, where query, key and value are live and the mask is not

    def applies(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], live: bool) -> bool:
        if self.fused is None:
            return live or self.always
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        fits = len(args) > 2 and all(one.requires_grad for one in args[:3])
        return live and not (fits and (mask is None or not mask.requires_grad))


@dataclass(frozen=True)
class ByWeights:
    """A rule for layers: it holds where the constant factors of a product are weights, the same for every input.

    Constants that are computed from the explained input, such as the attention weights of the AH-rule, are gates:
    there `gated` holds.
    """

    rule: Rule
    gated: Rule


Treatment = Rule | Expand | ByWeights
