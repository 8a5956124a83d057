"""What a recipe's model learns: the class of a text or picture, where a context answers a question, the asked value."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from relprop.bench.datasets import AnsweredQuestion, AskedValue, Dataset, Example, GreyImage
from relprop.bench.key_values import ASKS
from relprop.errors import InputError
from relprop.readers.context_windows import context_windows
from relprop.readers.tokens import TokenRow
from relprop.tasks.spans import WindowLogits, no_answer_span, span_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

Processor = Any  # a tokenizer or an image processor of transformers
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True)
class TrainingRow:
    """The input of a model and its target: a class, the first and last token of an answer, or a token per token."""

    ids: dict[str, Any]  # lists of token ids, or a picture
    target: tuple[int, ...]

    @property
    def length(self) -> int:
        """Rows of similar length share a batch; pictures are all of one size."""
        return len(self.ids["input_ids"]) if "input_ids" in self.ids else 0


class TextTask:
    """What tasks about texts share."""

    def load_processor(self, start: str) -> Processor:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(start, trust_remote_code=False)

    def new_processor(self, config: PretrainedConfig, examples: Sequence[Example]) -> Processor:
        """The processor of a model that begins with random weights."""
        raise InputError("a model of this task starts from a trained one, not from a config")

    def inputs(self, processor: Processor, rows: Sequence[TrainingRow]) -> dict[str, Tensor]:
        return dict(processor.pad([row.ids for row in rows], return_tensors="pt"))

    def targets(self, rows: Sequence[TrainingRow]) -> Tensor:
        return torch.tensor([row.target for row in rows])


class ClassificationTask(TextTask):
    """The class of a text, or of a pair of texts."""

    head = "AutoModelForSequenceClassification"  # of transformers: puts a new head on a pretrained start

    def settings(self, data: Dataset) -> dict[str, object]:
        """The settings of the head."""
        names = dict(enumerate(data.classes))
        return {"id2label": names, "label2id": {name: number for number, name in names.items()}}

    def rows(
        self, tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_length: int
    ) -> list[TrainingRow]:
        rows = []
        for example in examples:
            parts = example.text if isinstance(example.text, tuple) else (example.text,)
            rows.append(TrainingRow(dict(tokenizer(*parts, truncation=True, max_length=max_length)), (example.label,)))
        return rows

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.logits, targets[:, 0])

    def evaluate(
        self, model: PreTrainedModel, processor: Processor, examples: Sequence[Example], max_length: int
    ) -> dict[str, float]:
        rows = self.rows(processor, examples, max_length)
        hits = 0
        for batch, outputs in batch_outputs(self, model, processor, rows):
            hits += int((outputs.logits.argmax(-1) == torch.tensor([rows[i].target[0] for i in batch])).sum())
        return {"accuracy": hits / len(rows)}


class PictureTask(ClassificationTask):
    """The class of a picture."""

    head = "AutoModelForImageClassification"

    def load_processor(self, start: str) -> Processor:
        from transformers import AutoImageProcessor

        return AutoImageProcessor.from_pretrained(start, trust_remote_code=False)

    def new_processor(self, config: PretrainedConfig, examples: Sequence[Example]) -> Processor:
        """Pictures of any size become those that the model reads; black is -1, and white 1."""
        import transformers

        # The one that needs no torchvision; before version 5 it has the plain name.
        kind = getattr(transformers, "ViTImageProcessorPil", None) or transformers.ViTImageProcessor
        size = {"height": config.image_size, "width": config.image_size}
        return kind(size=size, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_convert_rgb=True)

    def rows(self, processor: Processor, examples: Sequence[Example], max_length: int) -> list[TrainingRow]:
        return [TrainingRow({"picture": example.text}, (example.label,)) for example in examples]

    def inputs(self, processor: Processor, rows: Sequence[TrainingRow]) -> dict[str, Tensor]:
        pictures = [Image.fromarray(np.asarray(row.ids["picture"])).convert("RGB") for row in rows]
        return {"pixel_values": processor(images=pictures, return_tensors="pt")["pixel_values"]}


class AnsweringTask(TextTask):
    """Where a context answers a question. The target of a window without the answer is the token for no answer."""

    head = "AutoModelForQuestionAnswering"

    def settings(self, data: Dataset) -> dict[str, object]:
        return {}

    def rows(
        self, tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_length: int
    ) -> list[TrainingRow]:
        return [
            TrainingRow(window.ids, self._target(tokenizer, example, window))
            for example in examples
            for window in context_windows(tokenizer, *_pair(example), max_length, max_length // 4)
        ]

    def _target(self, tokenizer: PreTrainedTokenizerBase, example: Example, window: TokenRow) -> tuple[int, int]:
        span = span_of(window, *answer) if (answer := _answer(example)) else None
        span = span or no_answer_span(tokenizer, window)
        return span.first, span.last

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        parts = zip((outputs.start_logits, outputs.end_logits), targets.T, strict=True)
        return torch.stack([F.cross_entropy(logits, place) for logits, place in parts]).mean()

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_length: int
    ) -> dict[str, float]:
        """Exact match and F1 of words, as SQuAD counts them."""
        found = [context_windows(tokenizer, *_pair(example), max_length, max_length // 4) for example in examples]
        owners = [(number, window) for number, every in enumerate(found) for window in every]
        rows = [TrainingRow(window.ids, ()) for _, window in owners]
        best: dict[int, tuple[float, str]] = {}
        for batch, outputs in batch_outputs(self, model, tokenizer, rows):
            for k, i in enumerate(batch):
                number, window = owners[i]
                count = len(window.units)
                start, end = outputs.start_logits[k, :count], outputs.end_logits[k, :count]
                one = WindowLogits(window, start, end, no_answer_span(tokenizer, window))
                lead = one.lead(one.best) if one.best else -torch.inf
                if one.best and lead > best.get(number, (-torch.inf, ""))[0]:
                    first, last = window.units[one.best.first], window.units[one.best.last]
                    best[number] = lead, _pair(examples[number])[1][first.start : last.end] if lead > 0 else ""
        right = [_pair(one)[1][slice(*answer)] if (answer := _answer(one)) else "" for one in examples]
        pairs = [(best[i][1] if i in best else "", text) for i, text in enumerate(right)]
        return {
            "accuracy": sum(_words(a) == _words(b) for a, b in pairs) / len(pairs),
            "f1": sum(_word_f1(_words(a), _words(b)) for a, b in pairs) / len(pairs),
        }


class RecallTask(TextTask):
    """The word that follows each question of a prompt."""

    head = "AutoModelForCausalLM"

    def settings(self, data: Dataset) -> dict[str, object]:
        return {}

    def new_processor(self, config: PretrainedConfig, examples: Sequence[Example]) -> Processor:
        """One token per word of the prompts; the model's config learns how many there are."""
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        words = sorted({word for example in examples for word in _prompt(example).split()})
        vocabulary = {word: number for number, word in enumerate(("<pad>", "<unk>", *words))}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        config.vocab_size, config.pad_token_id = len(vocabulary), 0
        config.bos_token_id = config.eos_token_id = None
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", padding_side="right"
        )

    def rows(
        self, tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_length: int
    ) -> list[TrainingRow]:
        """A target per token: the next one at the key of a question, else none."""
        asks, found = tokenizer.convert_tokens_to_ids(ASKS), []
        for example in examples:
            ids = tokenizer(_prompt(example))["input_ids"]
            if len(ids) - 1 > max_length:
                raise InputError(f"a prompt has {len(ids) - 1} tokens, and max_length is {max_length}")
            before = [_NO_TARGET, *ids[:-2]]
            target = [own if asked == asks else _NO_TARGET for asked, own in zip(before, ids[1:], strict=True)]
            found.append(TrainingRow({"input_ids": ids[:-1], "attention_mask": [1] * (len(ids) - 1)}, tuple(target)))
        return found

    def targets(self, rows: Sequence[TrainingRow]) -> Tensor:
        """Padded on the right, as the tokens are."""
        longest = max(len(row.target) for row in rows)
        return torch.tensor([[*row.target, *[_NO_TARGET] * (longest - len(row.target))] for row in rows])

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.logits.flatten(0, 1), targets.flatten(), ignore_index=_NO_TARGET)

    def evaluate(
        self, model: PreTrainedModel, processor: Processor, examples: Sequence[Example], max_length: int
    ) -> dict[str, float]:
        """How often the last question is answered."""
        rows = self.rows(processor, examples, max_length)
        hits = 0
        for batch, outputs in batch_outputs(self, model, processor, rows):
            for number, i in enumerate(batch):
                hits += int(outputs.logits[number, rows[i].length - 1].argmax()) == rows[i].target[-1]
        return {"accuracy": hits / len(rows)}


_NO_TARGET = -100


def _prompt(example: Example) -> str:
    """The prompt with what follows it."""
    assert isinstance(example, AskedValue)
    return f"{example.text} {example.value}"


def _pair(example: Example) -> tuple[str, str]:
    """The question and its context."""
    assert isinstance(example.text, tuple)
    return example.text


def _answer(example: Example) -> tuple[int, int] | None:
    return example.answer if isinstance(example, AnsweredQuestion) else None


def _words(text: str) -> list[str]:
    """The words without case, punctuation and articles."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return _ARTICLES.sub(" ", plain).split()


def _word_f1(predicted: list[str], right: list[str]) -> float:
    if not predicted or not right:
        return float(predicted == right)
    common = (Counter(predicted) & Counter(right)).total()
    return 2 * common / (len(predicted) + len(right))


TrainingTask = ClassificationTask | AnsweringTask | RecallTask


def training_task_for(data: Dataset, examples: Sequence[Example]) -> TrainingTask:
    """Told by the data: answers, drawn prompts, pictures, or texts with a class."""
    if data.answer is not None:
        return AnsweringTask()
    if data.recall is not None:
        return RecallTask()
    return PictureTask() if isinstance(examples[0].text, GreyImage) else ClassificationTask()


def shuffled_batches(lengths: Sequence[int], size: int, seed: int) -> list[list[int]]:
    """Indices in batches of similar length, in random order."""
    rng = random.Random(seed)
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], rng.random()))
    batches = [order[k : k + size] for k in range(0, len(order), size)]
    rng.shuffle(batches)
    return batches


@torch.no_grad()
def batch_outputs(
    task: TrainingTask, model: PreTrainedModel, processor: Processor, rows: Sequence[TrainingRow]
) -> Iterator[tuple[list[int], Any]]:
    """The row numbers and the model's outputs of every batch."""
    model.eval()
    for batch in shuffled_batches([row.length for row in rows], 64, 0):
        yield batch, model(**task.inputs(processor, [rows[i] for i in batch]))
