"""Which rows of a batch are padding, from any kind of attention mask; raises where the mask does not say."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relprop.errors import InputError


def real_rows(inputs: Mapping[str, object], batch: int, length: int, name: str = "attention_mask") -> Tensor:
    """[batch, length]: which rows are not padding, by the attention mask. Raises where the mask does not say."""
    mask = inputs.get(name)
    if not isinstance(mask, Tensor):
        return torch.ones(batch, length, dtype=torch.bool)
    allowed = lets_through(mask)
    if bool(allowed.all()):
        return torch.ones(batch, length, dtype=torch.bool, device=mask.device)
    real = allowed if mask.dim() == 2 else _real_by_pairs(allowed, length)
    if real is None or real.shape[1] != length or real.shape[0] not in (1, batch):
        raise InputError(
            f'which of the {length} rows are padding cannot be told from an "{name}" of shape {list(mask.shape)}; '
            f"give one of shape [{batch}, {length}] with 1 for real tokens, or inputs without padding"
        )
    return real.expand(batch, length)


_HIDES = -5e3  # additive masks hide a key with -1e4 or less; distance biases stay above that


def lets_through(mask: Tensor) -> Tensor:
    """Where a mask allows attention: True or 1; in a mask that is added to the scores, no large negative number."""
    if not mask.is_floating_point():
        return mask != 0
    if bool((mask < 0).any()):
        return mask > _HIDES
    return mask != 0 if mask.dim() == 2 else torch.ones_like(mask, dtype=torch.bool)


def _real_by_pairs(allowed: Tensor, length: int) -> Tensor | None:
    """Real rows from a mask [batch, (heads,) queries, keys]: real tokens attend to themselves. None if ambiguous."""
    if allowed.dim() not in (3, 4) or allowed.shape[-1] < length:
        return None
    allowed = allowed[:, None] if allowed.dim() == 3 else allowed
    if not bool((allowed == allowed[:, :1]).all()):  # heads with different masks
        return None
    pairs = allowed[:, 0, :, allowed.shape[-1] - length :]  # without the keys of a cache
    if pairs.shape[1] == 1:
        return pairs[:, 0]
    if pairs.shape[1] != length:
        return None
    own = pairs.diagonal(dim1=1, dim2=2)
    alone = own & (pairs.sum(1) == 1) & (pairs.sum(2) == 1)  # padding that attends to itself, or a lone token
    return None if bool(alone.any()) else own


def last_real_row(inputs: Mapping[str, object], length: int, batch: int) -> Tensor:
    """The index of each example's last row that is not padding, for logits of the last `length` tokens."""
    name = padding_mask_name(inputs)
    mask = inputs.get(name)
    if isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape[1] > length:
        tail = mask[:, mask.shape[1] - length :]
        if bool(lets_through(mask)[:, -length:].all()):
            return torch.full((batch,), length - 1)
        if any(inputs.get(key) is not None for key in ("past_key_values", "logits_to_keep")):
            inputs = {name: tail}
    real = real_rows(inputs, batch, length, name)
    if not bool(real.any(1).all()):
        raise InputError("an example of the batch is all padding: there is nothing to explain in it")
    return (torch.arange(length, device=real.device) * real).argmax(1)


def padding_mask_name(inputs: Mapping[str, object]) -> str:
    """The name of the mask of the output's rows: that of the decoder, if there is one."""
    decoder = any(inputs.get(name) is not None for name in ("decoder_input_ids", "decoder_inputs_embeds"))
    return "decoder_attention_mask" if decoder else "attention_mask"
