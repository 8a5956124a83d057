"""relprop: what a Transformer's output is made of.

>>> import relprop
>>> relprop.explain("a gorgeous, witty, seductive movie.").show()
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

# Loaded on first use: `import relprop` imports neither torch nor transformers.
_HOMES = {
    "explain": "relprop.explainer",
    "Explainer": "relprop.explainer",
    "Explanation": "relprop.explanation",
    "attribute": "relprop.attribution",
    "check": "relprop.checking",
    "compare": "relprop.explanation_list",
    "load": "relprop.explanation_list",
    "methods": "relprop",
    "rules": "relprop.attribution",
    "Attribution": "relprop.types",
    "Ledger": "relprop.types",
    "Unit": "relprop.types",
    "Document": "relprop.readers.boxed_words",
    "WordList": "relprop.readers.words",
    "RelpropError": "relprop.errors",
}

__all__ = [
    "Attribution",
    "Document",
    "Explainer",
    "Explanation",
    "Ledger",
    "RelpropError",
    "Unit",
    "WordList",
    "__version__",
    "attribute",
    "check",
    "compare",
    "explain",
    "load",
    "methods",
    "rules",
]

if TYPE_CHECKING:
    from relprop.attribution import attribute, rules
    from relprop.checking import check
    from relprop.errors import RelpropError
    from relprop.explainer import Explainer, explain
    from relprop.explanation import Explanation
    from relprop.explanation_list import compare, load
    from relprop.methods import methods
    from relprop.readers.boxed_words import Document
    from relprop.readers.words import WordList
    from relprop.types import Attribution, Ledger, Unit


# Before 0.2 every kind of input had a class of its own.
_FORMER = dict.fromkeys(("Continuation", "ImageExplanation", "GraphExplanation"), "Explanation")


def __getattr__(name: str) -> object:
    name = _FORMER.get(name, name)
    if name not in _HOMES:
        raise AttributeError(f"module 'relprop' has no attribute {name!r}")
    if name == "methods":  # the package, which can be called
        return import_module("relprop.methods")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
