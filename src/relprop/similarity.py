"""Similarity as a target: of an encoder's embedding to another text's, which is held constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.errors import TargetError
from relprop.outputs import output_field

COSINE, DOT, MAXSIM, MEAN_MAXSIM = "cosine", "dot", "maxsim", "meanmaxsim"
SIMILARITIES = (COSINE, DOT, MAXSIM, MEAN_MAXSIM)
LATE = (MAXSIM, MEAN_MAXSIM)  # late interaction: tokens are compared, not texts


def embedding_of(outputs: object, tokens: bool = False) -> Tensor:
    """The embedding of each text [batch, numbers], or of each of its tokens [batch, tokens, numbers]."""
    found = output_field(outputs, "token_embeddings" if tokens else "sentence_embedding")
    if found is None:
        raise TargetError(
            "the encoder gives no embeddings of tokens: compare texts by cosine or dot"
            if tokens
            else f"the encoder gives no embedding of the text: compare tokens, with {MAXSIM}"
        )
    return found


@dataclass(frozen=True, eq=False)
class SimilarTo:
    """How similar a text is to another one, of which only the embedding is known.

    `other`: its embedding [numbers], or of late interaction those of its tokens [tokens, numbers]. There the first
    text asks and the second is searched: each token of the first counts with its best match among those of the second
    ([Khattab20] Eq. 3). `second`: the explained text is the one that is searched; `keep`: its tokens that may match.
    """

    other: Tensor
    kind: str = COSINE
    second: bool = False
    keep: tuple[bool, ...] | None = None
    per_example: ClassVar[bool] = True  # holds for any example alone, in whatever batch

    def __call__(self, outputs: object) -> Tensor:
        own = embedding_of(outputs, self.kind in LATE)
        other = self.other.to(device=own.device, dtype=own.dtype)
        if self.kind == DOT:
            return (own * other).sum(-1)
        if self.kind == COSINE:
            return (F.normalize(own, dim=-1) * F.normalize(other, dim=-1)).sum(-1)
        mask = output_field(outputs, "attention_mask")
        real = torch.ones(own.shape[:2], device=own.device).bool() if mask is None else mask.bool().to(own.device)
        return self._best_of_second(own, other, real) if self.second else self._of_first(own, other, real)

    def _of_first(self, own: Tensor, other: Tensor, real: Tensor) -> Tensor:
        """Each token of the explained text with its best match, which is constant."""
        best = other[(own.detach() @ other.T).argmax(-1)]
        score = ((own * best).sum(-1) * real.to(own.dtype)).sum(-1)
        return score / real.sum(-1).to(own.dtype) if self.kind == MEAN_MAXSIM else score

    def _best_of_second(self, own: Tensor, other: Tensor, real: Tensor) -> Tensor:
        """Each token of the other text with its best match in the explained one."""
        if self.keep is not None:
            width = min(len(self.keep), real.shape[1])
            keep = torch.zeros_like(real)
            # Padding stands on one side alone: the row's own tokens are the first ones or the last.
            left = bool((real[:, -1] & ~real[:, 0]).any())
            keep[:, slice(-width, None) if left else slice(width)] = torch.tensor(self.keep[:width], device=real.device)
            real = real & keep
        scores = (other @ own.detach().transpose(-1, -2)).masked_fill(~real.unsqueeze(1), -torch.inf)
        rows = torch.arange(len(own), device=own.device).unsqueeze(1)
        score = (own[rows, scores.argmax(-1)] * other).sum((-1, -2))
        return score / len(other) if self.kind == MEAN_MAXSIM else score

    @property
    def __name__(self) -> str:
        return self.kind


@dataclass(frozen=True)
class EmbeddingNumber:
    """One number of a text's embedding: the same of all examples, or one index per example."""

    index: int | tuple[int, ...]

    def __call__(self, outputs: object) -> Tensor:
        embedding = embedding_of(outputs)
        indices = (self.index,) * len(embedding) if isinstance(self.index, int) else self.index
        for index in indices:
            if not 0 <= index < embedding.shape[1]:
                raise TargetError(f"the embedding has numbers 0 to {embedding.shape[1] - 1}, not {index}")
        return embedding[range(len(embedding)), list(indices)]

    @property
    def __name__(self) -> str:
        return f"number {self.index} of the embedding"
