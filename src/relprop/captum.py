"""Captum: relprop's rules as a layer attribution, `LayerLRP`, which Captum's own language-model classes accept."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from relprop.attribution import rules
from relprop.errors import InputError, RelpropError, RelpropWarning
from relprop.rulebook.rulesets import RuleSet, log_outputs, ruleset

try:
    from captum._utils.common import _run_forward, _select_targets
    from captum.attr import LayerGradientXActivation
except ImportError:
    raise RelpropError('relprop.captum needs the captum package: pip install "relprop[captum]"') from None


class LayerLRP(LayerGradientXActivation):  # type: ignore[misc]
    """Relevance at a layer by relprop's rules, in Captum's shapes: [batch, tokens, hidden], to be summed over hidden.

    `LayerLRP(model, model.get_input_embeddings())`, then `.attribute(ids, target=1)` or, for a language model,
    `captum.attr.LLMGradientAttribution(layer_lrp, tokenizer)`, whose log-probabilities get the relevance of their
    logits. `rules`: a set that carries a gradient, by name.
    """

    def __init__(
        self,
        forward_func: Any,
        layer: nn.Module | list[nn.Module],
        rules: str | RuleSet = "lrp_conservative",
        device_ids: list[int] | None = None,
    ) -> None:
        super().__init__(forward_func, layer, device_ids)
        self.rules = ruleset(rules)
        if self.rules.carries != "gradient":
            raise InputError(
                f'LayerLRP multiplies inputs and gradients, and "{self.rules.name}" carries relevance itself: take '
                "lrp_conservative, lrp_ah_ln or attn_lrp"
            )

    def attribute(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Any = None,
        additional_forward_args: object = None,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
        return_convergence_delta: bool = False,
    ) -> Any:
        """As Captum's; the convergence delta [batch] is what the layer's relevance leaves of the explained number."""
        with rules(self.rules | log_outputs) as running:
            found = super().attribute(inputs, target, additional_forward_args, attribute_to_layer_input, grad_kwargs)
        for sentence in running.warnings:
            warnings.warn(sentence, RelpropWarning, stacklevel=2)
        if not return_convergence_delta:
            return found
        with torch.no_grad():
            output = _run_forward(self.forward_func, inputs, None, additional_forward_args)
        return found, self.compute_convergence_delta(found, _select_targets(output, target)).detach()

    def has_convergence_delta(self) -> bool:
        return True

    def compute_convergence_delta(self, attributions: Any, output: Tensor) -> Tensor:
        """Explained number minus relevance, as Captum's own LRP has it: biases, constants, and what is read below."""
        if isinstance(attributions, list):
            raise InputError("each layer has relevance of its own: ask for the convergence delta of one layer")
        every = attributions if isinstance(attributions, tuple) else (attributions,)
        reached = torch.stack([one.flatten(1).sum(1) for one in every]).sum(0)
        return output.detach().flatten() - reached
