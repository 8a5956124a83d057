"""The served models: loaded in the background, told about, and asked by the worker alone."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Sequence
from typing import Any

from relprop.domains.text import TruncationWarning
from relprop.engine.forward_passes import predict
from relprop.errors import InputError, ModelError, RelpropError
from relprop.explainer import Explainer
from relprop.heads import known_heads
from relprop.questions import Asked
from relprop.serve.body import Wish
from relprop.serve.limits import RefusedError
from relprop.texts import Texts, class_name

LOADING = "is being loaded"
LIKELIEST = 10  # of a prediction, so many classes are told
log = logging.getLogger("relprop.serve")


class OutOfTimeError(BaseException):
    """Every request of a batch has been given up. No error of the model, which the engine would put in a sentence."""


class Served:
    """A model under its name. `problem` says why it is not ready."""

    def __init__(self, name: str, source: Any) -> None:
        self.name = name
        self.problem: str | None = LOADING
        self._source = source
        self._explainer: Explainer | None = None
        self._heads: Any = None

    def load(self) -> None:
        """In the worker, and once; whatever goes wrong is what readiness says."""
        try:
            explainer = self._source if isinstance(self._source, Explainer) else Explainer(self._source)
            self._heads = known_heads(explainer.model) if isinstance(explainer.domain, Texts) else None
            self._explainer, self.problem = explainer, None
        except RelpropError as error:
            self.problem = f"cannot be served: {error}"
        except Exception as error:
            log.exception("loading %s failed", self.name)
            self.problem = f"cannot be served: {type(error).__name__}: {error}"
        if self.problem is not None:
            log.error('model "%s" %s', self.name, self.problem)

    @property
    def loading(self) -> bool:
        return self.problem == LOADING

    @property
    def ready(self) -> Explainer:
        if self._explainer is None:
            raise RefusedError(503, f'the model "{self.name}" {self.problem}', retry_after=5)
        return self._explainer

    @property
    def kind(self) -> str:
        """What it reads: texts, questions, images, graphs; "language" for texts that it continues."""
        domain = self.ready.domain
        return "language" if isinstance(domain, Texts) and domain.generates else domain.name

    def about(self) -> dict[str, Any]:
        """For KServe its name and whether it is ready; for a page what can be asked of it."""
        told: dict[str, Any] = {"name": self.name, "ready": self.problem is None}
        if self._explainer is None:
            return {**told, "reason": self.problem}
        has_classes = self.kind not in ("language", "questions")
        heads = self._heads and {"kinds": self._heads.kinds(), "corpus": self._heads.corpus}
        labels = list(self._explainer.labels.values()) if has_classes else []
        return {**told, "kind": self.kind, "input": self._input, "labels": labels, "heads": heads}

    @property
    def _input(self) -> str:
        """What to ask a person for: a graph is made of a SMILES, or of a picture's superpixels."""
        reads = getattr(getattr(self.ready.model, "config", None), "reads", "")
        known = {"texts": "text", "language": "text", "questions": "question", "images": "picture"}
        return known.get(self.kind) or ("picture" if reads == "superpixels" else "smiles")

    def check(self, wish: Wish, words: bool) -> None:
        """What can be said before any work."""
        if words and self.kind not in ("texts", "questions", "language"):
            raise InputError(f"words are made of texts; {self.name} reads {self.kind}")
        if self._heads is None and isinstance(wish.arguments.get("mask"), str):
            raise ModelError(
                f"which heads of {self.name} are syntactic or positional is not known here: find them once with "
                "`relprop heads FOLDER --save FOLDER/heads.json`, or give a mask as a table"
            )

    def answer(self, wish: Wish, given: Sequence[Any], targets: Sequence[Any], until: float) -> list[Any]:
        """One batch: for each input the explanations by every method, or the prediction.

        Methods of many passes end at `until`, when nobody waits for them any more.
        """

        def in_time(*_: Any) -> None:
            if time.monotonic() > until:
                raise OutOfTimeError

        hook = self.ready.model.register_forward_pre_hook(in_time)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TruncationWarning)  # an explanation says itself what was cut off
                return self._explained(wish, given, targets) if wish.methods else self._predicted(given)
        finally:
            hook.remove()

    def _explained(self, wish: Wish, given: Sequence[Any], targets: Sequence[Any]) -> list[Any]:
        found: list[Any] = self.ready(
            list(given), target=list(targets), batch_size=len(given), progress=False, **wish.arguments
        )
        return found

    def _predicted(self, given: Sequence[Any]) -> list[Any]:
        explainer = self.ready
        rows: Any
        rows, _ = explainer.domain.prepared(given, [None] * len(given))
        told: dict[int, dict[str, Any]] = {
            i: {"prediction": row.prediction, "probability": row.probability}
            for i, row in enumerate(rows)
            if isinstance(row, Asked)
        }
        batches = [] if told else explainer.domain.batches(rows, len(rows))
        for batch in batches:
            chosen = predict(explainer.model, explainer.domain.inputs([rows[i] for i in batch]), None)
            assert chosen.rows is not None
            told.update({i: self._likeliest(logits) for i, logits in zip(batch, chosen.rows, strict=True)})
        return [told[i] for i in range(len(rows))]

    def _likeliest(self, logits: Any) -> dict[str, Any]:
        model, name = self.ready.model, self._name_of
        if len(logits) < 2:
            return {"prediction": "", "probability": None, "value": logits[0].item()}
        several = getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification"
        probabilities = logits.double().sigmoid() if several else logits.double().softmax(-1)
        best, places = probabilities.topk(min(LIKELIEST, len(probabilities)))
        each = [{"label": name(i), "probability": p} for p, i in zip(best.tolist(), places.tolist(), strict=True)]
        return {"prediction": each[0]["label"], "probability": each[0]["probability"], "probabilities": each}

    def _name_of(self, index: int) -> str:
        explainer = self.ready
        return (
            repr(explainer.tokenizer.decode([index])) if self.kind == "language" else class_name(explainer.model, index)
        )
