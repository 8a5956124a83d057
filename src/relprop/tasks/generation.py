"""Language models: what each token of a continuation is made of, from one forward pass for all where that is right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from relprop.attribution import attribute, ledger_of, with_warnings
from relprop.engine.model_call import call, evaluating
from relprop.engine.plain_calls import stoppable
from relprop.engine.restoring import restoring
from relprop.errors import InputError, ModelError, TargetError
from relprop.explanation import Explanation
from relprop.library_logging import quiet
from relprop.outputs import logits_of
from relprop.part import Part, joined_parts
from relprop.progress import tracked
from relprop.readers import Reader, tokens
from relprop.readers.product import ProductReader
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow
from relprop.registry import METHODS
from relprop.render.generation.layout import continuation_target
from relprop.render.text.part import TextPart
from relprop.targets import Several, TokenAt, quantity_of
from relprop.tasks.task import Task
from relprop.tasks.token import TokenScore
from relprop.types import Attribution, ExplainedStep, Ledger, Unit

TOGETHER = 32  # tokens explained from one forward pass: what flows back to each is kept until all have
UNTIL_ITS_END = 200  # tokens at most, where the model is to write until it ends by itself
RUNNER_UP = "runner-up"
WritingReader = TextReader | ProductReader  # of a model that writes text
# How far logits may differ, relative to the largest, and still be called the same.
_SAME = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class Generation:
    """What is to be explained: a continuation that the model writes, or a given one; perhaps against other tokens."""

    generate: int | dict[str, object] | None = None  # how many tokens, True, or settings of the model's `generate`
    continuation: str | None = None
    against: int | str | None = None  # a token by id or text, or "runner-up": the likeliest other one
    batch_size: int = 32
    max_length: int | None = None

    def __post_init__(self) -> None:
        if self.generate is not None and self.continuation is not None:
            raise InputError("give either generate or continuation, not both")
        if self.continuation == "":
            raise InputError("the continuation is empty: there is nothing to explain")
        if self.generate is not None and (not isinstance(self.count, int) or self.count < 1):
            raise InputError(
                f"generate is a number of tokens from 1 on, or settings with max_new_tokens, got {self.count}"
            )

    @property
    def count(self) -> Any:
        return self.settings["max_new_tokens"]

    @property
    def settings(self) -> dict[str, Any]:
        """For the model's `generate`: greedy, and no token forced at the end, unless told otherwise."""
        count = UNTIL_ITS_END if self.generate is True else self.generate
        own = self.generate if isinstance(self.generate, dict) else {"max_new_tokens": count}
        return {"max_new_tokens": 20, "do_sample": False, "num_beams": 1, "forced_eos_token_id": None, **own}


def continued(
    reader: Reader[Any],
    task: Task,
    prompt: object,
    wanted: Generation,
    methods: dict[str, dict[str, object]],
    progress: bool | None,
) -> list[Explanation]:
    """One continuation of a prompt, explained by each method with its options."""
    if getattr(reader, "writer", None) is None:
        raise InputError(f"generate, continuation and against are for language models, not for models of {reader.name}")
    assert isinstance(reader, TextReader | ProductReader)
    if not isinstance(task, TokenScore) or not task.generates:
        raise ModelError("the model writes no text: generate, continuation and against are for language models")
    row: Any = reader.prompt(prompt, wanted.max_length)
    ids = _given(reader, row, wanted) if wanted.generate is None else _generated(reader, row, wanted)
    written, units = _units(reader, row, ids)
    prefixes, logits, causal = _prefixes(reader, row, ids, units)
    others = _others(task, wanted.against, logits, ids)
    targets = [TokenAt(-1, *pair) for pair in zip(ids, others, strict=True)]
    before = reader.text_of(row).texts[-1]
    whole = replace(reader.text_of(_longer(reader, row, ids, units)), texts=(before + written,))
    certain = list(_generated_tokens(task, logits, ids, others))
    found = []
    for method, options in methods.items():
        work = _Work(reader, prefixes, targets, method, options)
        shared = causal and _takes_several(method, options)
        steps = work.steps(shared, wanted.batch_size, progress)
        generated = tuple(
            replace(token, value=step.value, ledger=step.ledger, baseline=step.baseline)
            for token, step in zip(certain, steps, strict=True)
        )
        found.append(
            Explanation(
                parts=_parts(whole, len(before), steps),
                method=METHODS[method].name,
                target=continuation_target(len(steps)),
                value=sum(step.value for step in generated),
                signed=METHODS[method].signed,
                quantity=quantity_of(targets[0]) if targets else "",
                steps=generated,
                passes="shared" if shared else "single",
                warnings=tuple(dict.fromkeys(sentence for step in steps for sentence in step.warnings)),
            )
        )
    return found


def _parts(whole: TokenRow, begin: int, steps: Sequence[_StepScores]) -> tuple[Part, ...]:
    """What was read with the scores of every step; the written text, the last part, with all of its units."""
    *given, texts = zip(*(step.parts for step in steps), strict=True)
    last = texts[0]
    assert isinstance(last, TextPart)
    units = (*texts[-1].units, whole.units[-1])  # each text ends before the token that its step explains
    rows = [(*text.scores, *(0.0,) * (len(units) - len(text.units))) for text in texts]
    text = TextPart(last.name, whole.texts, units, rows[0], written_from=begin, truncated=last.truncated)
    return (*map(joined_parts, given), text.with_steps([(row,) for row in rows]))


def _check_room(reader: WritingReader, row: Any, count: int, wanted: Generation) -> None:
    """The last token need not be read."""
    assert reader.writer is not None
    limit, before = reader.writer.limit(wanted.max_length), len(reader.text_of(row).own_ids)
    if limit is not None and before + count - 1 > limit:
        room = max(0, limit - before + 1)
        raise InputError(
            f"the prompt has {before} tokens and the model reads {limit}: "
            f"there is room for {room} more, not for {count}"
        )


def _longer(
    reader: WritingReader, row: Any, written: Sequence[int], units: Sequence[Unit], kind: int | None = None
) -> Any:
    """The prompt and what is written of the continuation; `kind`: its token type, None for that of the last token."""
    text, count = reader.text_of(row), len(written)
    ids = {name: [*own, *own[-1:] * count] for name, own in text.ids.items()}
    if kind is not None:
        ids |= {name: [*text.ids[name], *[kind] * count] for name in ids if name.endswith("type_ids")}
    ids |= {name: [*text.own_ids, *written] for name in ids if name.endswith("input_ids")}
    return reader.with_text(row, replace(text, ids=ids, units=(*text.units, *units)))


@restoring
def _generated(reader: WritingReader, row: Any, wanted: Generation) -> list[int]:
    """What the model writes, up to its end token."""
    _check_room(reader, row, wanted.count, wanted)
    settings = wanted.settings
    seed = settings.pop("seed", None)
    with evaluating(reader.model), stoppable(), torch.random.fork_rng(enabled=seed is not None), quiet():
        if seed is not None:
            torch.manual_seed(seed)
        try:
            sequences = reader.model.generate(**reader.inputs([row]), **settings)  # type: ignore[operator]
        except (TypeError, ValueError) as error:
            raise InputError(f"the model cannot generate so: {str(error).splitlines()[0]}") from error
    if not isinstance(sequences, Tensor) or len(sequences) != 1:
        raise InputError("generate must give one continuation (no num_return_sequences, no return_dict_in_generate)")
    ids, own = sequences[0].tolist(), reader.text_of(row).own_ids
    if ids[: len(own)] == own:
        return ids[len(own) :]
    if len(ids) > wanted.count:
        raise InputError("the model's own generate changes the prompt: give the text that it writes as continuation")
    return ids  # some models give what they wrote alone


def _given(reader: WritingReader, row: Any, wanted: Generation) -> list[int]:
    """The tokens of a continuation given as text."""
    assert wanted.continuation is not None
    assert reader.writer is not None
    written = reader.writer.continuation_ids(reader.text_of(row), wanted.continuation)
    _check_room(reader, row, len(written), wanted)
    return written


def _units(reader: WritingReader, row: Any, ids: Sequence[int]) -> tuple[str, list[Unit]]:
    """What the tokens spell, and where in it each lies."""
    prompt = reader.text_of(row)
    tokenizer, before = reader.tokenizer, prompt.own_ids[-8:]  # some decode a first token otherwise

    def spelt(count: int) -> str:
        return tokenizer.decode([*before, *ids[:count]], skip_special_tokens=True, clean_up_tokenization_spaces=False)  # type: ignore[no-any-return]

    base = len(spelt(0))
    written = spelt(len(ids))[base:]
    text, shift = prompt.texts[-1] + written, len(prompt.texts[-1])
    ends, special = tokens.word_ends(text), set(tokenizer.all_special_ids)
    names = tokenizer.convert_ids_to_tokens(list(ids))
    units = [Unit(name, special=token in special) for token, name in zip(ids, names, strict=True)]
    content = [i for i, unit in enumerate(units) if not unit.special]
    waiting: list[int] = []  # tokens that are each a part of one character
    start = 0
    for i in content:
        now = spelt(i + 1)
        waiting.append(i)
        if now.endswith("\ufffd") and i != content[-1]:
            continue
        end = max(start, len(now) - base)
        for number in waiting:
            units[number] = tokens.unit_at(text, ends, start + shift, end + shift)
        waiting, start = [], end
    return written, units


def _prefixes(
    reader: WritingReader, row: Any, ids: Sequence[int], units: Sequence[Unit]
) -> tuple[list[Any], Tensor, bool]:
    """What the model had read before each token, the logits by which it was chosen, and whether one pass gives all.

    A model writes with a cache, so that what it has read does not change by what it writes. Where token types decide
    which tokens see later ones, written tokens have the type under which that holds.
    """
    types = {own[-1] for name, own in reader.text_of(row).ids.items() if name.endswith("type_ids")}
    found = []
    for kind in [None, *({0, 1} - types if types else ())]:
        prefixes = [_longer(reader, row, ids[:i], units[:i], kind) for i in range(len(ids))]
        logits, causal = _logits(reader, prefixes)
        found.append((prefixes, logits, causal))
        if causal:
            return found[-1]
    return found[0]


def _logits(reader: WritingReader, prefixes: Sequence[Any]) -> tuple[Tensor, bool]:
    """The logits [tokens, vocabulary] that each token was chosen by, and whether one pass over all gives the same.

    It does where no token sees later ones, and that is tried: the prompt alone must give what it gives among the rest.
    """
    whole = _last_rows(reader, prefixes[-1], len(prefixes))
    if len(prefixes) == 1:
        return whole, True
    alone = _last_rows(reader, prefixes[0], 1)
    if len(whole) == len(prefixes) and (alone[0] - whole[0]).abs().max() <= _SAME[alone.dtype] * alone.abs().max():
        return whole, True
    return torch.cat([alone, *(_last_rows(reader, prefix, 1) for prefix in prefixes[1:])]), False


@restoring
def _last_rows(reader: WritingReader, row: Any, count: int) -> Tensor:
    with torch.no_grad(), evaluating(reader.model):
        logits = logits_of(call(reader.model, reader.inputs([row]), TokenAt(-count, 0)))
    if logits.dim() != 3:
        raise ModelError(f"a language model gives logits for every token; this one gave {tuple(logits.shape)}")
    return logits[0, -count:]


def _others(task: TokenScore, against: object, logits: Tensor, ids: Sequence[int]) -> list[int | None]:
    """For each token the one that it is explained against."""
    if against is None:
        return [None] * len(ids)
    if against == RUNNER_UP:
        return [_runner_up(row, token) for row, token in zip(logits, ids, strict=True)]
    other = task.target(against)
    if not isinstance(other, int) or not 0 <= other < logits.shape[-1]:
        raise TargetError(f'against is a token, its id below {logits.shape[-1]}, or "{RUNNER_UP}", got {against!r}')
    return [other] * len(ids)


def _runner_up(row: Tensor, token: int) -> int:
    """The likeliest other token."""
    first, second = row.topk(2).indices.tolist()
    return int(second if first == token else first)


def _takes_several(method: str, options: dict[str, object]) -> bool:
    """Whether the method explains many tokens from one pass. A ledger, a checkpoint and released variants take one."""
    plain = not options.get("ledger") and not options.get("checkpoint") and options.get("variant", "paper") == "paper"
    return METHODS[method].several and plain


@dataclass(frozen=True)
class _StepScores:
    """What was found of one token: the parts as far as the model had read them."""

    parts: tuple[Part, ...]
    value: float
    ledger: Ledger | None
    baseline: float | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Work:
    """Tokens to be explained by one method: each at the end of its own prefix."""

    reader: WritingReader
    prefixes: list[Any]
    targets: list[TokenAt]
    method: str
    options: dict[str, object]

    def steps(self, shared: bool, size: int, progress: bool | None) -> list[_StepScores]:
        """One forward pass for many tokens, over the longest of their prefixes, where they can share it.

        Else a pass for each token over its own prefix; several in a batch where the model knows padding.
        """
        size = TOGETHER if shared else size if self.reader.pads_right and not self.options.get("ledger") else 1
        every, parts = range(len(self.prefixes)), []
        for batch in tracked([every[k : k + size] for k in every[::size]], "explaining", progress):
            behind = [replace(self.targets[i], row=i - batch[-1] - 1) for i in batch]
            rows = [self.prefixes[batch[-1]]] if shared else [self.prefixes[i] for i in batch]
            found = self._attribute(rows, Several(tuple(behind)) if shared else behind)
            parts += [self._step(found, number, i) for number, i in enumerate(batch)]
        return parts

    def _attribute(self, rows: list[Any], target: object) -> Attribution:
        inputs = self.reader.inputs(rows)
        settled = self.reader.options(METHODS[self.method].options, self.options, rows, inputs)
        return with_warnings(attribute(self.reader.model, inputs, target, self.method, **settled))

    def _step(self, found: Attribution, number: int, i: int) -> _StepScores:
        row = self.prefixes[i]
        parts = self.reader.parts(row, self._as_read(found, row), number)
        baseline = None if found.baseline is None else found.baseline[number].item()
        ledger = ledger_of(found, number, sum(part.total for part in parts))
        return _StepScores(parts, found.value[number].item(), ledger, baseline, found.warnings)

    def _as_read(self, found: Attribution, row: Any) -> Attribution:
        """Without what comes after the prefix: in a pass that several tokens share, the rest of the text."""
        assert self.reader.writer is not None
        count = len(self.reader.text_of(row).units)
        own = {name: found.parts[name][:, :count] for name in self.reader.writer.explains}
        return replace(found, parts={**found.parts, **own})


def _generated_tokens(
    task: TokenScore, logits: Tensor, ids: Sequence[int], others: Sequence[int | None]
) -> Iterable[ExplainedStep]:
    """How likely each token was, and which other one was likeliest; explained by nothing yet."""
    for row, token, other in zip(logits, ids, others, strict=True):
        probabilities, second = row.double().softmax(-1), _runner_up(row, token)
        yield ExplainedStep(
            tokens=(token,),
            name=task.class_name(token),
            target=task.target_name(str(token) if other is None else f"{token} - {other}"),
            value=math.nan,
            probability=probabilities[token].item(),
            runner_up=task.class_name(second),
            runner_up_probability=probabilities[second].item(),
        )
