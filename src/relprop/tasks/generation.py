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
from relprop.loading import quiet
from relprop.outputs import logits_of
from relprop.progress import tracked
from relprop.readers import Reader, tokens
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow
from relprop.registry import METHODS
from relprop.render.generation.layout import continuation_target
from relprop.render.text.part import TextPart
from relprop.targets import Several, TokenAt
from relprop.tasks.task import Task
from relprop.tasks.token import TokenScore
from relprop.types import Attribution, ExplainedStep, Ledger, Unit

TOGETHER = 32  # tokens explained from one forward pass: what flows back to each is kept until all have
RUNNER_UP = "runner-up"
# How far logits may differ, relative to the largest, and still be called the same.
_SAME = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class Generation:
    """What is to be explained: a continuation that the model writes, or a given one; perhaps against other tokens."""

    generate: int | dict[str, object] | None = None  # how many tokens, or settings of the model's `generate`
    continuation: str | None = None
    against: int | str | None = None  # a token by id or text, or "runner-up": the likeliest other one
    batch_size: int = 32
    max_length: int | None = None

    def __post_init__(self) -> None:
        if self.generate is None and self.continuation is None:
            raise InputError(
                "against goes with generate or continuation; for the next token alone give target=(this, that)"
            )
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
        own = self.generate if isinstance(self.generate, dict) else {"max_new_tokens": self.generate}
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
    if not isinstance(reader, TextReader):
        raise InputError(f"generate, continuation and against are for language models, not for models of {reader.name}")
    if not isinstance(task, TokenScore) or not task.generates:
        raise ModelError("the model writes no text: generate, continuation and against are for language models")
    if not isinstance(prompt, str):
        raise InputError(f"a prompt is a text, got {prompt!r:.80}")
    row = _prompt(reader, prompt, wanted)
    ids = _given(reader, prompt, row, wanted) if wanted.generate is None else _generated(reader, row, wanted)
    written, units = _units(reader, prompt, row, ids)
    prefixes = [_longer(row, ids[:i], units[:i]) for i in range(len(ids))]
    logits, causal = _logits(reader, prefixes)
    others = _others(task, wanted.against, logits, ids)
    targets = [TokenAt(-1, *pair) for pair in zip(ids, others, strict=True)]
    texts = (prompt, written) if _two_sided(reader) else (prompt + written,)
    whole = replace(_longer(row, ids, units), texts=texts)
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
                parts=_parts(reader, whole, prompt, steps),
                method=METHODS[method].name,
                target=continuation_target(len(steps)),
                value=sum(step.value for step in generated),
                signed=METHODS[method].signed,
                steps=generated,
                passes="shared" if shared else "single",
            )
        )
    return found


def _two_sided(reader: TextReader) -> bool:
    """Whether what is written is a text of its own, beside the one that is read."""
    return len(reader.ids) > 1


def _parts(reader: TextReader, whole: TokenRow, prompt: str, steps: Sequence[_StepScores]) -> tuple[TextPart, ...]:
    """The texts with all units, and for every step the scores of what came before it."""
    counts = _counts(reader, whole)
    starts = [sum(counts[:k]) for k in range(len(counts))]
    parts = []
    for k, name in enumerate(reader.ids):
        units = tuple(replace(unit, segment=0) for unit in whole.units[starts[k] : starts[k] + counts[k]])
        by_step = tuple((*step.scores[k], *(0.0,) * (counts[k] - len(step.scores[k]))) for step in steps)
        sums = tuple(sum(column) for column in zip(*by_step, strict=True)) or (0.0,) * counts[k]
        last = k == len(counts) - 1
        begin = (0 if _two_sided(reader) else len(prompt)) if last else None
        parts.append(TextPart(name, whole.texts[k : k + 1], units, sums, by_step, written_from=begin))
    return tuple(parts)


def _counts(reader: TextReader, row: TokenRow) -> list[int]:
    """How many of a row's units belong to each argument of token ids."""
    return [len(row.ids[name]) for name in reader.ids]


def _prompt(reader: TextReader, prompt: str, wanted: Generation) -> TokenRow:
    """The prompt as the model reads it."""
    if _two_sided(reader):  # what is read and what is written have a limit each
        return reader.read(prompt, wanted.max_length)
    return tokens.encode(reader.tokenizer, prompt, None)


def _check_room(reader: TextReader, row: TokenRow, count: int, wanted: Generation) -> None:
    """The last token need not be read."""
    limit, before = reader.limit(wanted.max_length), len(row.own_ids)
    if limit is not None and before + count - 1 > limit:
        room = max(0, limit - before + 1)
        raise InputError(
            f"the prompt has {before} tokens and the model reads {limit}: "
            f"there is room for {room} more, not for {count}"
        )


def _longer(row: TokenRow, written: Sequence[int], units: Sequence[Unit]) -> TokenRow:
    """The prompt and what is written of the continuation."""
    if "decoder_input_ids" in row.ids:
        ids = {**row.ids, "decoder_input_ids": [*row.own_ids, *written]}
    else:  # token types and the like stay what they were
        ids = {name: [*own, *own[-1:] * len(written)] for name, own in row.ids.items()}
        ids["input_ids"] = [*row.own_ids, *written]
    return replace(row, ids=ids, units=(*row.units, *units))


@restoring
def _generated(reader: TextReader, row: TokenRow, wanted: Generation) -> list[int]:
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
    return sequences[0, len(row.own_ids) :].tolist()


def _given(reader: TextReader, prompt: str, row: TokenRow, wanted: Generation) -> list[int]:
    """The tokens of a continuation given as text."""
    assert wanted.continuation is not None

    def ids(**text: str) -> list[int]:
        return reader.tokenizer(**text, add_special_tokens=False, verbose=False)["input_ids"]  # type: ignore[no-any-return]

    if _two_sided(reader):
        written = ids(text_target=wanted.continuation)
    else:
        before, whole = ids(text=prompt), ids(text=prompt + wanted.continuation)
        written = whole[len(before) :]
        if whole[: len(before)] != before or not written:
            raise InputError(
                f"the continuation {wanted.continuation!r:.60} changes the prompt's last token: begin it where a word "
                "begins, with the blank before it"
            )
    _check_room(reader, row, len(written), wanted)
    return written


def _units(reader: TextReader, prompt: str, row: TokenRow, ids: Sequence[int]) -> tuple[str, list[Unit]]:
    """What the tokens spell, and where in it each lies."""
    two_sided = _two_sided(reader)
    tokenizer, before = reader.tokenizer, [] if two_sided else row.own_ids[-8:]  # some decode a first token otherwise

    def spelt(count: int) -> str:
        return tokenizer.decode([*before, *ids[:count]], skip_special_tokens=True, clean_up_tokenization_spaces=False)  # type: ignore[no-any-return]

    base = len(spelt(0))
    written = spelt(len(ids))[base:]
    text, shift, segment = (written, 0, 1) if two_sided else (prompt + written, len(prompt), 0)
    ends, special = tokens.word_ends(text), set(tokenizer.all_special_ids)
    names = tokenizer.convert_ids_to_tokens(list(ids))
    units = [Unit(name, special=token in special, segment=segment) for token, name in zip(ids, names, strict=True)]
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
            units[number] = tokens.unit_at(text, ends, start + shift, end + shift, segment)
        waiting, start = [], end
    return written, units


def _logits(reader: TextReader, prefixes: Sequence[TokenRow]) -> tuple[Tensor, bool]:
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
def _last_rows(reader: TextReader, row: TokenRow, count: int) -> Tensor:
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
    """What was found of one token: per text the scores of the units before it."""

    scores: tuple[tuple[float, ...], ...]
    value: float
    ledger: Ledger | None
    baseline: float | None


@dataclass(frozen=True)
class _Work:
    """Tokens to be explained by one method: each at the end of its own prefix."""

    reader: TextReader
    prefixes: list[TokenRow]
    targets: list[TokenAt]
    method: str
    options: dict[str, object]

    def steps(self, shared: bool, size: int, progress: bool | None) -> list[_StepScores]:
        """One forward pass for many tokens, over the longest of their prefixes, where they can share it.

        Else a pass for each token over its own prefix; several in a batch where the model knows padding.
        """
        padded = self.reader.padding is not None and not tokens.pads_left(self.reader.tokenizer)
        size = TOGETHER if shared else size if padded and not self.options.get("ledger") else 1
        every, parts = range(len(self.prefixes)), []
        for batch in tracked([every[k : k + size] for k in every[::size]], "explaining", progress):
            behind = [replace(self.targets[i], row=i - batch[-1] - 1) for i in batch]
            rows = [self.prefixes[batch[-1]]] if shared else [self.prefixes[i] for i in batch]
            found = self._attribute(rows, Several(tuple(behind)) if shared else behind)
            parts += [self._step(found, number, i) for number, i in enumerate(batch)]
        return parts

    def _attribute(self, rows: list[TokenRow], target: object) -> Attribution:
        inputs = self.reader.inputs(rows)
        settled = self.reader.options(METHODS[self.method].options, self.options, rows, inputs)
        return with_warnings(attribute(self.reader.model, inputs, target, self.method, **settled))

    def _step(self, found: Attribution, number: int, i: int) -> _StepScores:
        counts = _counts(self.reader, self.prefixes[i])
        scores = tuple(
            tuple(found.parts[name][number, :count].double().tolist())
            for name, count in zip(self.reader.ids, counts, strict=True)
        )
        baseline = None if found.baseline is None else found.baseline[number].item()
        ledger = ledger_of(found, number, sum(map(sum, scores)))
        return _StepScores(scores, found.value[number].item(), ledger, baseline)


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
