"""`relprop explain --smiles`, and what else the command line must know of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relprop.errors import InputError

if TYPE_CHECKING:
    from relprop.explainer import Explainer

SENTENCE = "a gorgeous, witty, seductive movie."
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


def check(smiles: str | None, **given: Any) -> None:
    """A molecule is all that is asked about."""
    for name, value in given.items():
        if smiles is not None and value is not None:
            kind = "a text" if name == "text" else f"--{name}"
            raise InputError(f"give either --smiles or {kind}, not both")


def check_model(explainer: Explainer, smiles: str | None, **given: Any) -> None:
    """Does the model read molecules, and is nothing asked that graphs do not have?"""
    domain = explainer.domain
    if smiles is not None and domain.name != "graphs":
        raise InputError(f"--smiles needs a model of graphs, this one reads {domain.name}: leave out --model")
    for name, value in given.items():
        if domain.name == "graphs" and value:
            raise InputError(f"--{name} is not for graphs")


def example(explainer: Explainer) -> Any:
    """What a model is checked with, unless something is given; for superpixels a bright stroke on black."""
    reads = getattr(explainer.domain, "reads", None)
    if reads is None:
        return SENTENCE
    import numpy as np

    known = {"smiles": ASPIRIN, "superpixels": np.pad(np.ones((20, 4)), ((4, 4), (12, 12)))}
    if reads not in known:
        raise InputError("the model does not say what it reads: check it in Python, relprop.check(model, inputs)")
    return known[reads]
