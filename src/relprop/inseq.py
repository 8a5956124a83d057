"""Inseq: importing this registers relprop's rules as its methods, `inseq.load_model(model, "lrp_conservative")`.

What is explained is the logit, as relprop has it, where Inseq's own default is the probability.
"""

from __future__ import annotations

import warnings
from typing import Any

from relprop.attribution import rules
from relprop.errors import RelpropError, RelpropWarning, TargetError
from relprop.registry import METHODS
from relprop.rulebook.rulesets import RULESETS, RuleSet, log_outputs

try:
    from captum.attr import InputXGradient
    from inseq.attr.feat.gradient_attribution import GradientAttributionRegistry
    from inseq.utils import Registry
except ImportError:
    raise RelpropError('relprop.inseq needs the inseq package: pip install "relprop[inseq]"') from None


class _RulesMethod(GradientAttributionRegistry, Registry):  # type: ignore[misc]
    """Input times gradient under a rule set; a registry itself, so that Inseq lists only the methods made of it."""

    rules: RuleSet

    def __init__(self, attribution_model: Any, **options: Any) -> None:
        super().__init__(attribution_model, **options)
        self.method = InputXGradient(self.attribution_model)

    def hook(self, **options: Any) -> None:
        self._default = self.attribution_model.default_attributed_fn_id
        self.attribution_model._default_attributed_fn_id = "logit"  # its public setter does not work in inseq 0.7
        super().hook(**options)

    def unhook(self, **options: Any) -> None:
        self.attribution_model._default_attributed_fn_id = self._default
        super().unhook(**options)

    def prepare_and_attribute(self, *args: Any, **options: Any) -> Any:
        try:
            return super().prepare_and_attribute(*args, **options)
        finally:
            if self.attribution_model.attribution_method is not self:  # asked for once, beside the model's own method
                self.attribution_model._default_attributed_fn_id = self._default

    def attribute_step(self, attribute_fn_main_args: Any, attribution_args: dict[str, Any] | None = None) -> Any:
        with rules(self.rules | log_outputs) as running:
            try:
                found = super().attribute_step(attribute_fn_main_args, attribution_args or {})
            except RuntimeError as error:
                if "does not require grad" not in str(error):
                    raise
                raise TargetError(
                    f'no relevance flows back from what Inseq was asked to explain under "{self.method_name}": take '
                    'attributed_fn="logit", which is the default here, not a probability'
                ) from None
        for sentence in running.warnings:
            warnings.warn(sentence, RelpropWarning, stacklevel=2)
        return found


REGISTERED: dict[str, type[Any]] = {  # kept here, as Inseq finds them by their being there
    name: type(name, (_RulesMethod,), {"method_name": name, "rules": one, "__doc__": METHODS[name].summary})
    for name, one in RULESETS.items()
    if one.carries == "gradient" and name in METHODS.names() and METHODS[name].family == "relevance"
}
