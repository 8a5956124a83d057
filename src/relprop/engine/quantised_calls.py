"""Replacements for calls without a gradient or with a wrong one, also where no rule applies."""

from functools import partial

from torch.nn import functional as F

from relprop.rulebook import norm
from relprop.rulebook.rulesets import QUANTISED

WITHOUT_RULES = {name: rule.function for name, rule in QUANTISED.items()} | {
    "batch_norm": partial(norm.batch_norm, F.batch_norm)
}
