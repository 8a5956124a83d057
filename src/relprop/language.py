"""Language models: what each token of a continuation is made of, from one forward pass for all where that is right."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from relprop.attribution import attribute
from relprop.continuation import Continuation, Generated
from relprop.domains import text as texts
from relprop.domains.text import Encoded
from relprop.engine.model_call import call, evaluating, generates
from relprop.errors import InputError, ModelError, TargetError
from relprop.loading import quiet
from relprop.outputs import logits_of
from relprop.registry import METHODS
from relprop.targets import Several, TokenAt
from relprop.texts import Texts, plain_ledger, scores_of, warned
from relprop.types import Attribution, Ledger, Unit

TOGETHER = 32  # tokens explained from one forward pass: what flows back to each is kept until all have
RUNNER_UP = "runner-up"
# How far logits may differ, relative to the largest, and still be called the same.
_SAME = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}

Track = Callable[[list[list[int]]], Iterable[list[int]]]  # the work's parts, perhaps with a progress bar


@dataclass(frozen=True)
class Wish:
    """What is to be explained: a continuation that the model writes, or a given one; perhaps against other tokens."""

    generate: int | dict[str, Any] | None = None  # how many tokens, or settings of the model's `generate`
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


class EncoderDecoder(Texts):
    """A model that reads one text and writes another: the units are the text's tokens, then the decoder's."""

    def encode(self, given: Sequence[Any], max_length: int | None = None) -> list[Encoded]:
        """The texts, each with the tokens that the decoder starts from."""
        start = self._start
        units = tuple(Unit(token, special=True, segment=1) for token in self.tokenizer.convert_ids_to_tokens(start))
        return [
            replace(row, ids={**row.ids, "decoder_input_ids": start}, units=(*row.units, *units))
            for row in super().encode(given, max_length)
        ]

    @property
    def _start(self) -> list[int]:
        configs = [getattr(self.model, "generation_config", None), self.model.config]

        def named(name: str) -> list[int]:
            return [one for config in configs if isinstance(one := getattr(config, name, None), int)]

        start = named("decoder_start_token_id") or named("bos_token_id")
        if not start:
            raise ModelError("the model does not say which token its decoder starts from (decoder_start_token_id)")
        return start[:1] + named("forced_bos_token_id")[:1]

    @property
    def _even_only(self) -> bool:
        return True  # so that the decoder's units lie at the same places

    def inputs(self, rows: Sequence[Encoded]) -> dict[str, Tensor]:
        """Both sides, each padded on its own; the decoder's on the right."""
        own = [_own(row) for row in rows]
        batch = super().inputs([_source(row) for row in rows])
        width, device = max(map(len, own)), batch["input_ids"].device
        pad = self.padding or 0
        batch["decoder_input_ids"] = torch.tensor([ids + [pad] * (width - len(ids)) for ids in own], device=device)
        if "decoder_attention_mask" in inspect.signature(self.model.forward).parameters:
            mask = [[1] * len(ids) + [0] * (width - len(ids)) for ids in own]
            batch["decoder_attention_mask"] = torch.tensor(mask, device=device)
        return batch

    def tokens(self, *_: Any) -> Any:
        raise InputError("evaluate is for models that read one text, not for an encoder-decoder that writes another")


def _source(row: Encoded) -> Encoded:
    """The text without the decoder's tokens."""
    ids = {name: values for name, values in row.ids.items() if name != "decoder_input_ids"}
    return replace(row, ids=ids, units=row.units[: len(ids["input_ids"])])


def reads_and_writes(model: Any) -> bool:
    """Is it an encoder-decoder that generates text?"""
    return generates(model) and bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def continued(
    domain: Texts, prompt: Any, wish: Wish, methods: dict[str, dict[str, Any]], track: Track
) -> list[Continuation]:
    """One continuation of a prompt, explained by each method with its options."""
    if not domain.generates:
        raise ModelError("the model writes no text: generate, continuation and against are for language models")
    if not isinstance(prompt, str):
        raise InputError(f"a prompt is a text, got {prompt!r:.80}")
    row = _prompt(domain, prompt, wish)
    tokens = _given(domain, prompt, row, wish) if wish.generate is None else _generated(domain, row, wish)
    written, units = _units(domain, prompt, row, tokens)
    prefixes = [_longer(row, tokens[:i], units[:i]) for i in range(len(tokens))]
    rows, causal = _rows(domain, prefixes)
    others = _others(domain, wish.against, rows, tokens)
    targets = [TokenAt(-1, *pair) for pair in zip(tokens, others, strict=True)]
    count = len(row.units) + len(units)
    found = []
    for method, options in methods.items():
        work = _Work(domain, prefixes, targets, method, options)
        shared = causal and _takes_several(method, options)
        parts = work.shared(track) if shared else work.single(track, wish.batch_size)
        found.append(
            Continuation(
                prompt=prompt,
                continuation=written,
                units=(*row.units, *units),
                given=len(row.units),
                generated=tuple(map(_generated_token, parts, _sureness(domain, rows, tokens, others))),
                scores=tuple((*part.scores, *(0.0,) * (count - len(part.scores))) for part in parts),
                method=METHODS[method].name,
                passes="shared" if shared else "single",
                two_sided=isinstance(domain, EncoderDecoder),
            )
        )
    return found


def _prompt(domain: Texts, prompt: str, wish: Wish) -> Encoded:
    """The prompt as the model reads it, if there is room for what follows."""
    if isinstance(domain, EncoderDecoder):  # what is read and what is written have a limit each
        return domain.encode([prompt], wish.max_length)[0]
    return texts.encode(domain.tokenizer, prompt, None)


def _check_room(domain: Texts, row: Encoded, count: int, wish: Wish) -> None:
    """The last token need not be read."""
    limit, before = domain.limit(wish.max_length), len(_own(row))
    if limit is not None and before + count - 1 > limit:
        room = max(0, limit - before + 1)
        raise InputError(
            f"the prompt has {before} tokens and the model reads {limit}: "
            f"there is room for {room} more, not for {count}"
        )


def _own(row: Encoded) -> list[int]:
    """The tokens that a continuation continues: a decoder's own, or the text's."""
    return row.ids.get("decoder_input_ids", row.ids["input_ids"])


def _longer(row: Encoded, tokens: Sequence[int], units: Sequence[Unit]) -> Encoded:
    """The prompt and what is written of the continuation."""
    if "decoder_input_ids" in row.ids:
        ids = {**row.ids, "decoder_input_ids": [*_own(row), *tokens]}
    else:  # token types and the like stay what they were
        ids = {name: [*own, *own[-1:] * len(tokens)] for name, own in row.ids.items()}
        ids["input_ids"] = [*_own(row), *tokens]
    return replace(row, ids=ids, units=(*row.units, *units))


def _generated(domain: Texts, row: Encoded, wish: Wish) -> list[int]:
    """What the model writes, up to its end token."""
    _check_room(domain, row, wish.count, wish)
    settings = wish.settings
    seed = settings.pop("seed", None)
    with evaluating(domain.model), torch.random.fork_rng(enabled=seed is not None), quiet():
        if seed is not None:
            torch.manual_seed(seed)
        try:
            sequences = domain.model.generate(**domain.inputs([row]), **settings)
        except (TypeError, ValueError) as error:
            raise InputError(f"the model cannot generate so: {str(error).splitlines()[0]}") from error
    if not isinstance(sequences, Tensor) or len(sequences) != 1:
        raise InputError("generate must give one continuation (no num_return_sequences, no return_dict_in_generate)")
    return sequences[0, len(_own(row)) :].tolist()


def _given(domain: Texts, prompt: str, row: Encoded, wish: Wish) -> list[int]:
    """The tokens of a continuation given as text."""
    assert wish.continuation is not None

    def ids(**text: str) -> list[int]:
        return domain.tokenizer(**text, add_special_tokens=False, verbose=False)["input_ids"]  # type: ignore[no-any-return]

    if isinstance(domain, EncoderDecoder):
        tokens = ids(text_target=wish.continuation)
    else:
        before, whole = ids(text=prompt), ids(text=prompt + wish.continuation)
        tokens = whole[len(before) :]
        if whole[: len(before)] != before or not tokens:
            raise InputError(
                f"the continuation {wish.continuation!r:.60} changes the prompt's last token: begin it where a word "
                "begins, with the blank before it"
            )
    _check_room(domain, row, len(tokens), wish)
    return tokens


def _units(domain: Texts, prompt: str, row: Encoded, tokens: Sequence[int]) -> tuple[str, list[Unit]]:
    """What the tokens spell, and where in it each lies."""
    two_sided = isinstance(domain, EncoderDecoder)
    tokenizer, before = domain.tokenizer, [] if two_sided else _own(row)[-8:]  # some decode a first token otherwise

    def spelt(count: int) -> str:
        ids = [*before, *tokens[:count]]
        return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)  # type: ignore[no-any-return]

    base = len(spelt(0))
    written = spelt(len(tokens))[base:]
    text, shift, segment = (written, 0, 1) if two_sided else (prompt + written, len(prompt), 0)
    ends, special = texts.word_ends(text), set(tokenizer.all_special_ids)
    names = tokenizer.convert_ids_to_tokens(list(tokens))
    units = [Unit(name, special=token in special, segment=segment) for token, name in zip(tokens, names, strict=True)]
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
            units[number] = texts.unit_at(text, ends, start + shift, end + shift, segment)
        waiting, start = [], end
    return written, units


def _rows(domain: Texts, prefixes: Sequence[Encoded]) -> tuple[Tensor, bool]:
    """The logits [tokens, vocabulary] that each token was chosen by, and whether one pass over all gives the same.

    It does where no token sees later ones, and that is tried: the prompt alone must give what it gives among the rest.
    """
    whole = _last_rows(domain, prefixes[-1], len(prefixes))
    if len(prefixes) == 1:
        return whole, True
    alone = _last_rows(domain, prefixes[0], 1)
    if len(whole) == len(prefixes) and (alone[0] - whole[0]).abs().max() <= _SAME[alone.dtype] * alone.abs().max():
        return whole, True
    return torch.cat([alone, *(_last_rows(domain, prefix, 1) for prefix in prefixes[1:])]), False


def _last_rows(domain: Texts, row: Encoded, count: int) -> Tensor:
    with torch.no_grad(), evaluating(domain.model):
        logits = logits_of(call(domain.model, domain.inputs([row]), TokenAt(-count, 0)))
    if logits.dim() != 3:
        raise ModelError(f"a language model gives logits for every token; this one gave {tuple(logits.shape)}")
    return logits[0, -count:]


def _others(domain: Texts, against: Any, rows: Tensor, tokens: Sequence[int]) -> list[int | None]:
    """For each token the one that it is explained against."""
    if against is None:
        return [None] * len(tokens)
    if against == RUNNER_UP:
        return [_runner_up(row, token) for row, token in zip(rows, tokens, strict=True)]
    other = domain.target(against)
    if not isinstance(other, int) or not 0 <= other < rows.shape[-1]:
        raise TargetError(f'against is a token, its id below {rows.shape[-1]}, or "{RUNNER_UP}", got {against!r}')
    return [other] * len(tokens)


def _runner_up(row: Tensor, token: int) -> int:
    """The likeliest other token."""
    first, second = row.topk(2).indices.tolist()
    return int(second if first == token else first)


def _takes_several(method: str, options: dict[str, Any]) -> bool:
    """Can the method explain many tokens from one pass? A ledger, a checkpoint and the released way take one each."""
    plain = not options.get("ledger") and not options.get("checkpoint") and options.get("variant", "paper") == "paper"
    return METHODS[method].several and plain


@dataclass(frozen=True)
class _Part:
    """What was found of one token."""

    scores: tuple[float, ...]
    value: float
    ledger: Ledger | None
    baseline: float | None


@dataclass(frozen=True)
class _Work:
    """Tokens to be explained by one method: each at the end of its own prefix."""

    domain: Texts
    prefixes: list[Encoded]
    targets: list[TokenAt]
    method: str
    options: dict[str, Any]

    def shared(self, track: Track) -> list[_Part]:
        """One forward pass for many tokens, over the longest of their prefixes."""
        parts = []
        for batch in track(_chunks(len(self.prefixes), TOGETHER)):
            behind = [replace(self.targets[i], row=i - batch[-1] - 1) for i in batch]
            found = self._attribute([self.prefixes[batch[-1]]], Several(tuple(behind)))
            parts += [self._part(found, number, i) for number, i in enumerate(batch)]
        return parts

    def single(self, track: Track, size: int) -> list[_Part]:
        """A pass for each token over its own prefix; several in a batch where the model knows padding."""
        padded = self.domain.padding is not None and not texts.pads_left(self.domain.tokenizer)
        parts = []
        for batch in track(_chunks(len(self.prefixes), size if padded and not self.options.get("ledger") else 1)):
            behind = [replace(self.targets[i], row=i - batch[-1] - 1) for i in batch]
            found = self._attribute([self.prefixes[i] for i in batch], behind)
            parts += [self._part(found, number, i) for number, i in enumerate(batch)]
        return parts

    def _attribute(self, rows: list[Encoded], target: Any) -> Attribution:
        inputs = self.domain.inputs(rows)
        settled = self.domain.options(METHODS[self.method].options, self.options, rows, inputs)
        return warned(attribute(self.domain.model, inputs, target, self.method, **settled))

    def _part(self, found: Attribution, number: int, i: int) -> _Part:
        value = found.value[number].item()
        scores = tuple(scores_of(found)[number, : len(self.prefixes[i].units)].double().tolist())
        baseline = None if found.baseline is None else found.baseline[number].item()
        ledger = found.ledger[number] if found.ledger else plain_ledger(found.method, value, sum(scores), baseline)
        return _Part(scores, value, ledger, baseline)


def _chunks(count: int, size: int) -> list[list[int]]:
    return [list(range(start, min(start + size, count))) for start in range(0, count, size)]


def _sureness(
    domain: Texts, rows: Tensor, tokens: Sequence[int], others: Sequence[int | None]
) -> Iterable[dict[str, Any]]:
    """How likely each token was, and which other one was likeliest."""
    for row, token, other in zip(rows, tokens, others, strict=True):
        probabilities, second = row.double().softmax(-1), _runner_up(row, token)
        yield {
            "tokens": (token,),
            "name": domain.target_name(str(token)),
            "target": domain.target_name(str(token) if other is None else f"{token} - {other}"),
            "probability": probabilities[token].item(),
            "runner_up": domain.target_name(str(second)),
            "runner_up_probability": probabilities[second].item(),
        }


def _generated_token(part: _Part, sureness: dict[str, Any]) -> Generated:
    return Generated(value=part.value, ledger=part.ledger, baseline=part.baseline, **sureness)
