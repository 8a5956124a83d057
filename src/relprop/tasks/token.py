"""Tokens: the score of the next token of a language model, or of the token at [MASK] of a masked one."""

from __future__ import annotations

from torch import nn

from relprop.engine.model_call import generates
from relprop.errors import TargetError
from relprop.readers.text import TextReader
from relprop.targets import AtMask
from relprop.tasks.classes import ClassScore


class TokenScore(ClassScore):
    """The logit of a token. `target`: a token by its text or id, None for the likeliest, a pair for a difference."""

    def __init__(self, model: nn.Module, reader: TextReader) -> None:
        super().__init__(model, reader)
        self.tokenizer = reader.tokenizer
        self.generates = generates(model)

    def target(self, target: object) -> object:
        """A token as its id, a pair as both; of a masked language model at its [MASK]."""
        if self.generates:
            return self._token(target)
        asked = target is None or isinstance(target, str | int | tuple)
        return AtMask(self.tokenizer.mask_token_id, self._token(target)) if asked else target

    def _token(self, target: object) -> object:
        if isinstance(target, tuple):
            return tuple(self._token(one) for one in target)
        if not isinstance(target, str):
            return target
        ids = self.tokenizer(target, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            kind = "next-token" if self.generates else "masked-token"
            raise TargetError(
                f"target {target!r} is {len(ids)} tokens; a {kind} target is one (mind the leading space)"
            )
        return ids[0]

    def class_name(self, index: int) -> str:
        return repr(self.tokenizer.decode([index]))

    def target_name(self, name: str) -> str:
        """Ids as the tokens they stand for."""
        parts = name.split(" - ")
        return " - ".join(self.class_name(int(part)) if part.isdigit() else part for part in parts)
