"""Propagation rules: small functions, one operation each. `rulesets` names the combinations.

A rule is called as `rule(func, *args, **kwargs)` in place of the torch call `func(*args, **kwargs)` and returns the
same value; what differs is how that value flows back.
"""
