"""The served models: loaded in the background, described, and called by the worker alone. (Calls `Explainer`.)"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from relprop.engine.prediction import predict
from relprop.errors import InputError, ModelError, RelpropError
from relprop.explainer import Explainer
from relprop.explanation import Explanation
from relprop.heads import Heads, known_heads
from relprop.model_config import config_value
from relprop.readers.document import DocumentReader
from relprop.readers.image_text import ImageTextReader
from relprop.readers.text import TextReader
from relprop.readers.tokens import without_truncation_warnings
from relprop.serve.body import ExplainRequest
from relprop.serve.instances import ExplainerInput
from relprop.serve.limits import Limits, RefusedError
from relprop.serve.samples import picture_samples
from relprop.serve.sizes import InputSizes
from relprop.tasks.answers import AnswerSpan
from relprop.tasks.choices import ChoiceScore
from relprop.tasks.classes import ClassScore, is_multi_label
from relprop.tasks.detection import DetectedObject
from relprop.tasks.next_sentence import NAMES, NextSentence
from relprop.tasks.pairs import PairScore
from relprop.tasks.regions import PixelNumber, RegionClass
from relprop.tasks.similarity import Similarity
from relprop.tasks.tags import TokenClass
from relprop.tasks.token import TokenScore

LOADING = "is being loaded"
TOP_CLASSES = 10  # in the answer to a prediction
TEXT_KINDS = ("texts", "masks", "language", "questions", "choices", "two_texts")
log = logging.getLogger(__name__)


ModelSource = str | Explainer
Prediction = dict[str, Any]
Result = list[Explanation] | Prediction  # of one input: an explanation per method, or a prediction


class ServedModel:
    """A model and its name. `problem` is the reason why it is not ready, or None."""

    def __init__(self, name: str, source: ModelSource) -> None:
        self.name = name
        self.problem: str | None = LOADING
        self._source = source
        self._explainer: Explainer | None = None
        self._sizes: InputSizes | None = None
        self._heads: Heads | None = None

    def load(self) -> None:
        """Load the model, once, in the worker; an error becomes the `problem`."""
        try:
            explainer = self._source if isinstance(self._source, Explainer) else Explainer(self._source)
            self._heads = known_heads(explainer.model) if isinstance(explainer.reader, TextReader) else None
            self._sizes = InputSizes(explainer)
            self._explainer, self.problem = explainer, None
        except RelpropError as error:
            self.problem = f"cannot be served: {error}"
        except BaseException as error:  # the others are served all the same
            log.exception("loading %s failed", self.name)
            self.problem = f"cannot be served: {type(error).__name__}: {error}"
        if self.problem is not None:
            log.error('model "%s" %s', self.name, self.problem)

    @property
    def loading(self) -> bool:
        return self.problem == LOADING

    @property
    def explainer(self) -> Explainer:
        """The loaded model; refused while there is none."""
        if self._explainer is None:
            raise RefusedError(503, f'the model "{self.name}" {self.problem}', retry_after=5)
        return self._explainer

    @property
    def kind(self) -> str:
        """What it reads: texts, questions, images, graphs, "pairs" of image and text; "language" for texts that it
        continues, "masks" for texts whose gaps it fills, "choices" of multiple choice, "two_texts" that it compares;
        "documents" for words with boxes, "document_questions" where it answers them."""
        task, reader = self.explainer.task, self.explainer.reader
        if isinstance(reader, DocumentReader):
            return "document_questions" if isinstance(task, AnswerSpan) else "documents"
        if isinstance(reader, ImageTextReader):
            return "pairs"
        if isinstance(task, TokenScore) and isinstance(reader, TextReader):
            return "language" if task.generates else "masks"
        if isinstance(task, Similarity):
            return "two_texts"
        return "choices" if isinstance(task, ChoiceScore) else task.name

    @property
    def default_method(self) -> str:
        """The method that explains it where none is named."""
        return self.explainer.default_method

    def description(self) -> dict[str, Any]:
        """For KServe the name and whether it is ready; for the page its kind of input, classes and heads."""
        about: dict[str, Any] = {"name": self.name, "ready": self.problem is None}
        if self._explainer is None:
            return {**about, "reason": self.problem}
        has_classes = self.kind not in (*TEXT_KINDS[1:], "document_questions") and not self._gives_no_class
        has_classes = has_classes and not isinstance(self.explainer.task, PairScore | TokenScore)
        heads = self._heads and {"kinds": self._heads.kinds(), "corpus": self._heads.corpus}
        task, names = self._explainer.task, list(self._explainer.labels.values()) if has_classes else []
        if isinstance(task, NextSentence):
            names = list(NAMES.values())
        several = isinstance(task, ClassScore) and task.takes_lists
        about |= {"kind": self.kind, "input": self._input, "labels": names, "several": several, "heads": heads}
        sees = self._input in ("picture", "both") and self.kind != "videos"
        samples = picture_samples(self._source) if sees else []
        if self.kind == "masks" and isinstance(self.explainer.reader, TextReader):
            about["mask"] = self.explainer.reader.tokenizer.mask_token
        about |= {"at": self._at, "paired": isinstance(task, NextSentence), "default_method": self.default_method}
        return {**about, "writes": self._writes, "samples": samples}

    @property
    def _at(self) -> str | None:
        """Where a class is read, for the page's field: "word", "mask", "object", "region"; None where it is of all."""
        task = self.explainer.task
        if isinstance(task, TokenScore):
            return "mask" if self.kind == "masks" else None
        kinds = {TokenClass: "word", DetectedObject: "object", PixelNumber: "region"}
        return next((name for kind, name in kinds.items() if isinstance(task, kind)), None)

    @property
    def _writes(self) -> bool:
        """Whether `generate` explains what it writes: a continuation, an answer, or a transcript."""
        return isinstance(self.explainer.task, TokenScore) and self.explainer.task.generates

    @property
    def _gives_no_class(self) -> bool:
        """Whether it gives words or numbers: of a sound or a series, or per pixel."""
        task = self.explainer.task
        if isinstance(task, PixelNumber) and not isinstance(task, RegionClass):
            return True
        plain = isinstance(task, ClassScore) and not isinstance(task, TokenScore)
        return self.kind in ("sounds", "series") and not plain

    @property
    def _input(self) -> str:
        """What the page asks for; a graph comes from a SMILES or a picture's superpixels."""
        reads = config_value(self.explainer.model, "reads", "")
        if self.kind in TEXT_KINDS:
            return "question" if self.kind == "questions" else "text"
        inputs = {"images": "picture", "sounds": "sound", "pairs": "both", "series": "table", "rows": "table"}
        inputs |= {"videos": "picture", "documents": "document", "document_questions": "document"}
        return inputs.get(self.kind) or ("picture" if reads == "superpixels" else "smiles")

    def check(self, request: ExplainRequest, words: bool) -> None:
        """Raise for what the model cannot answer, before any work."""
        if words and self.kind not in (*TEXT_KINDS, "pairs", "documents", "document_questions"):
            raise InputError(f"words need texts; {self.name} reads {self.kind}")
        if self._heads is None and isinstance(request.explainer_arguments.get("mask"), str):
            raise ModelError(
                f"which heads of {self.name} are syntactic or positional is not known here: identify them once with "
                "`relprop heads FOLDER --save FOLDER/heads.json`, or give a mask as a table"
            )

    @property
    def draws_molecules(self) -> bool:
        """Whether its answers hold the places of atoms in a drawing."""
        return self.kind == "graphs" and self._input == "smiles"

    @property
    def sizes(self) -> InputSizes:
        """The sizes of its inputs."""
        assert self._sizes is not None
        return self._sizes

    def answer(
        self, request: ExplainRequest, inputs: Sequence[ExplainerInput], targets: Sequence[Any]
    ) -> Sequence[Result]:
        """The results of one batch."""
        with without_truncation_warnings():  # the explanation has its own note of it
            return self._explanations(request, inputs, targets) if request.methods else self._predictions(inputs)

    def check_work(self, request: ExplainRequest, inputs: Sequence[ExplainerInput], limits: Limits) -> None:
        """Raises if the request takes too much work; texts may be read for it."""
        with without_truncation_warnings():  # the explanation has its own note of it
            self.sizes.check(request, inputs, limits)

    def _explanations(
        self, request: ExplainRequest, inputs: Sequence[ExplainerInput], targets: Sequence[Any]
    ) -> list[list[Explanation]]:
        options = {"batch_size": len(inputs), "progress": False, **request.explainer_arguments}
        if request.generate is not None:
            if any(target is not None for target in targets):
                raise InputError('"generate" explains every token that the model writes: leave out "target"')
            options |= {"generate": request.generate}
        else:
            options |= {"target": list(targets)}
        explanations: list[list[Explanation]] = self.explainer(list(inputs), **options)
        return explanations

    def _predictions(self, inputs: Sequence[ExplainerInput]) -> list[Prediction]:
        reader, task = self.explainer.reader, self.explainer.task
        if self.kind == "series" and self._gives_no_class:  # which of its numbers is asked for is not known
            return [{"prediction": "", "probability": None} for _ in inputs]
        queries = task.queries(inputs, [None] * len(inputs), None)
        predictions: dict[int, Prediction] = {
            i: {
                "prediction": query.answer.prediction,
                "probability": query.answer.probability,
                **({} if query.answer.value is None else {"value": query.answer.value}),
            }
            for i, query in enumerate(queries)
            if query.answer is not None
        }
        open_ones = [i for i in range(len(queries)) if i not in predictions]
        for batch in reader.batches([queries[i].row for i in open_ones], len(queries)):
            own = [open_ones[k] for k in batch]
            given = reader.inputs([queries[i].row for i in own])
            chosen = predict(self.explainer.model, given, [queries[i].target for i in own])
            rows = chosen.value[:, None] if chosen.rows is None else chosen.rows
            predictions.update({i: self._top_classes(logits) for i, logits in zip(own, rows, strict=True)})
        return [predictions[i] for i in range(len(queries))]

    def _top_classes(self, logits: Tensor) -> Prediction:
        if len(logits) < 2:
            return {"prediction": "", "probability": None, "value": logits[0].item()}
        multi_label = is_multi_label(self.explainer.model)
        probabilities = logits.double().sigmoid() if multi_label else logits.double().softmax(-1)
        best, classes = probabilities.topk(min(TOP_CLASSES, len(probabilities)))
        pairs = zip(best.tolist(), classes.tolist(), strict=True)
        top = [{"label": self._class_name(i), "probability": p} for p, i in pairs]
        return {"prediction": top[0]["label"], "probability": top[0]["probability"], "probabilities": top}

    def _class_name(self, index: int) -> str:
        task = self.explainer.task
        return task.class_name(index) if isinstance(task, ClassScore) else str(index)
