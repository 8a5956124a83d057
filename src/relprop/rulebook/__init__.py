"""Propagation rules, one small function per operation; `rulesets` combines them under names.

A rule is called as `rule(func, *args, **kwargs)` in place of the torch call `func(*args, **kwargs)`. It returns the
same value; only the backward flow differs. Each rule names the equation that it implements:

- [Ali22] Ali et al. 2022: AH-rule (attention) and LN-rule (normalisation), against the losses of Propositions 1 and 2.
- [Chefer21] Chefer et al. 2021: the relevance rules of Eq. 4-6, in `zplus` and `zplus_attention`.
- [AttnLRP] Achtibat et al. 2024: Propositions 3.1 to 3.4 and the identity rule, Eq. 9.
"""
