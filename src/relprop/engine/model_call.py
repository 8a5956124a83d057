"""Calls the user's model, unmodified and in eval mode; failures become one-sentence errors."""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.leaves import batch_of as batch_of
from relprop.engine.leaves import describes_other_inputs, explained_parts
from relprop.engine.plain_calls import stoppable
from relprop.engine.restoring import lock, restoring, undoing
from relprop.engine.sources import MisfitError, Sources
from relprop.engine.wrappers import arguments_of, rows_of_tokens, virtual_tokens
from relprop.errors import ModelError, RelpropError
from relprop.model_config import config_value
from relprop.padding import padding_mask_name
from relprop.rulebook.relevance_flow import GradientCutError
from relprop.targets import AtMask, ChosenTarget, Labels, Several, TokenAt, chosen_target, is_own_function

_ANY: Any = lambda outputs: outputs  # noqa: E731  (a target that may read every row)


def call(model: nn.Module, inputs: Mapping[str, Any], target: Any = _ANY, *, cache: bool = False) -> Any:
    """`model(**inputs)`, only with the logits that the target reads; with a key-value cache only where it matters."""
    settings: dict[str, Any] = {} if cache or model in _cache_matters else {"use_cache": False}
    if generates(model) and (rows := rows_read(target, inputs)) is not None:
        settings["logits_to_keep"] = rows
    taken = arguments_of(model)
    extra = {name: value for name, value in settings.items() if name in taken and name not in inputs}
    try:
        with stoppable():
            outputs = model(**copied_inputs(inputs), **extra)
            own = target is not _ANY and is_own_function(target)  # reads what the model itself returns
            return outputs if own else rows_of_tokens(model, outputs, inputs)
    except (RelpropError, MisfitError, GradientCutError):
        raise
    except Exception as error:
        raise ModelError(_failure(model, {**inputs, **extra}, error)) from error


_cache_matters: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # models whose output differs without their cache


@restoring
def check_cache(model: nn.Module, inputs: Mapping[str, Any], target: Any) -> None:
    """Test whether the model gives the same output without its key-value cache; if not, the cache stays on."""
    if model in _cache_matters or "use_cache" in inputs:
        return
    if "use_cache" not in arguments_of(model):
        return
    with torch.no_grad(), evaluating(model):
        without = read_target(model, target, call(model, cloned_inputs(inputs), target), inputs).value
        plain = read_target(model, target, call(model, cloned_inputs(inputs), target, cache=True), inputs).value
    scale = plain.abs().max().clamp_min(1e-30)
    same = plain.shape == without.shape
    if not same or not (plain - without).abs().max() <= 1e3 * torch.finfo(plain.dtype).eps * scale:
        _cache_matters.add(model)


def _failure(model: nn.Module, inputs: Mapping[str, Any], error: Exception) -> str:
    """The error message: the model fails by itself, or only under relprop."""
    reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    try:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            model(**copied_inputs(cloned_inputs(inputs)))
    except Exception:
        return f"running the model failed: {reason}"
    return f"the model runs by itself, but relprop cannot follow it: {reason}"


def cloned_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with every tensor copied: a model may write to them."""
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in inputs.items()}


def copied_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs; objects that hold tensors (a key-value cache) as copies, because a model may write to them."""
    return {name: value if isinstance(value, Tensor) else _copied(value) for name, value in inputs.items()}


def _copied(value: Any) -> Any:
    tensors = tensors_in(value)
    if not tensors:
        return value
    return copy.deepcopy(value, {id(one): one if one.requires_grad else one.clone() for one in tensors})


def tensors_in(value: Any, visited: set[int] | None = None) -> list[Tensor]:
    """Every tensor that an input holds: a key-value cache, an encoder's outputs, a list, a dict."""
    visited = set() if visited is None else visited
    if id(value) in visited or isinstance(value, nn.Module | type):
        return []
    visited.add(id(value))
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        parts: Iterable[Any] = value.values()
    else:
        parts = value if isinstance(value, list | tuple | set) else getattr(value, "__dict__", {}).values()
    return [one for part in parts for one in tensors_in(part, visited)]


def unexplained_inputs(inputs: Mapping[str, Any]) -> list[str]:
    """One sentence per input that no score covers: an object or list that holds numbers, a flag, a single number."""
    sentences = []
    parts = explained_parts(inputs)
    for name, value in inputs.items():
        if name in parts or describes_other_inputs(name, inputs):
            continue
        numbers = isinstance(value, list | tuple) and _holds_numbers(value)
        if numbers or any(tensor.numel() for tensor in tensors_in(value)):
            sentences.append(
                f'the input "{name}" ({type(value).__name__}) holds numbers that feed the output, and no score covers '
                "them: the scores are of the other inputs alone"
            )
    return sentences


def warnings_of(sources: Sources, inputs: Mapping[str, Any], warnings: Sequence[str] = ()) -> tuple[str, ...]:
    """What the scores do not cover, one sentence each."""
    lost = [
        f'the output depends on "{part}" in a way that could not be followed: no score covers it'
        for part in sources.unfollowed
    ]
    mixed = [
        f'"{part}" also enters the model in a way whose units could not be determined: the scores leave that share out'
        for part in sorted({*sources.mixed, *sources.enters_elsewhere})
    ]
    return (*lost, *mixed, *unexplained_inputs(inputs), *warnings)


def _holds_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def rows_read(target: Any, inputs: Mapping[str, Any]) -> int | None:
    """How many of the last rows of its logits a language model must compute; None for all.

    A next token is read from the last row, unless an example of the batch ends in padding.
    """
    if isinstance(target, Several | list):
        each = [rows_read(one, inputs) for one in (target.targets if isinstance(target, Several) else target)]
        counts = [rows for rows in each if rows is not None]
        return max(counts, default=None) if len(counts) == len(each) else None
    if isinstance(target, TokenAt):
        return -target.row if target.row < 0 else None
    if callable(target) or isinstance(target, AtMask) or inputs.get("labels") is not None:  # a loss reads every row
        return None
    mask = inputs.get(padding_mask_name(inputs))
    last_are_real = not isinstance(mask, Tensor) or (mask.dim() == 2 and bool((mask[:, -1] > 0).all()))
    return 1 if last_are_real else None


def read_target(model: nn.Module, target: Any, outputs: Any, inputs: Mapping[str, Any]) -> ChosenTarget:
    """The target, read from the outputs with the labels and mask token of the model's config."""
    mask_token = config_value(model, "mask_token_id")
    return chosen_target(
        target,
        outputs,
        inputs,
        labels_of(model),
        next_token=generates(model),
        mask_token=mask_token if isinstance(mask_token, int) else None,
    )


def labels_of(model: nn.Module) -> Labels | None:
    labels = config_value(model, "id2label")
    return {int(index): str(name) for index, name in labels.items()} if isinstance(labels, dict) else None


def generates(model: nn.Module) -> bool:
    """Whether it is a language model: its last row scores the next token.

    XLM and FlauBERT can generate by their class, but are masked language models unless their config says "causal".
    """
    causal = config_value(model, "causal", True)
    return causal is not False and bool(getattr(model, "can_generate", lambda: False)())


def fills_masks(model: nn.Module) -> bool:
    """Whether it is a masked language model: it scores a vocabulary at every token, but does not generate text."""
    head = getattr(model, "get_output_embeddings", lambda: None)()
    return head is not None and not generates(model)


def answers_questions(model: nn.Module) -> bool:
    """Whether the model has a question-answering head: it then takes `start_positions` in training."""
    return "start_positions" in arguments_of(model)


def is_tagger(model: nn.Module) -> bool:
    """Whether the model labels every token: transformers tells it by the name of the class alone."""
    return _is_for(model, "TokenClassification")


def chooses(model: nn.Module) -> bool:
    """Whether the model scores choices that stand beside each other: it reads [batch, choices, tokens]."""
    return _is_for(model, "MultipleChoice")


def predicts_next_sentence(model: nn.Module) -> bool:
    """Whether the model says if a text follows another."""
    return _is_for(model, "NextSentencePrediction")


def is_ctc(model: nn.Module) -> bool:
    """Whether the model writes down speech with one row of characters per frame."""
    return _is_for(model, "CTC")


def gives_numbers(model: nn.Module) -> bool:
    """Whether the model forecasts a series, or reads numbers off it."""
    return _is_for(model, "Prediction") or _is_for(model, "Regression")


def detects_objects(model: nn.Module) -> bool:
    """Whether the model proposes boxes, each with its class."""
    return _is_for(model, "ObjectDetection")


def segments(model: nn.Module) -> bool:
    """Whether the model gives every pixel a class."""
    return any(_is_for(model, f"{kind}Segmentation") for kind in ("Semantic", "Universal", "Instance"))


def estimates_depth(model: nn.Module) -> bool:
    """Whether the model gives every pixel a distance."""
    return _is_for(model, "DepthEstimation")


def reads_videos(model: nn.Module) -> bool:
    """Whether the model reads frames one after the other."""
    return _is_for(model, "VideoClassification")


def compares(model: nn.Module) -> bool:
    """Whether it has a tower for pictures and one for texts, and says how well a text fits a picture."""
    return hasattr(model, "get_image_features") and hasattr(model, "get_text_features")


def _is_for(model: nn.Module, task: str) -> bool:
    """Whether it is, or derives from, a class of transformers for this task."""
    return any(kind.__name__.endswith(f"For{task}") for kind in type(model).__mro__)


def positions_of(model: nn.Module) -> int | None:
    """How many tokens the model has positions for; None where it does not say."""
    text = config_value(model, "text_config")  # of a model that reads other things too
    count = config_value(model, "max_position_embeddings", getattr(text, "max_position_embeddings", None))
    if not isinstance(count, int) or count <= 0:
        return None
    for name, module in model.named_modules():  # RoBERTa's positions start after the padding index
        if isinstance(module, nn.Embedding) and "position" in name and module.padding_idx is not None:
            count -= module.padding_idx + 1
            break
    return count - virtual_tokens(model)


def device_of(model: nn.Module) -> torch.device:
    """The device for its inputs. A dispatched model moves them further by itself."""
    tensors = (*model.parameters(), *model.buffers())
    return next((tensor.device for tensor in tensors if not tensor.is_meta), torch.device("cpu"))


def check_finite(model: nn.Module, chosen: ChosenTarget) -> None:
    numbers = chosen.value if chosen.rows is None else chosen.rows
    if not torch.isfinite(numbers).all():
        broken = [name for name, p in model.named_parameters() if not p.is_meta and not torch.isfinite(p).all()]
        cause = f'its parameter "{broken[0]}" is not finite' if broken else "its weights are finite: check the input"
        raise ModelError(f"the model's output is not a finite number; {cause}")


def why_unreached(chosen: ChosenTarget) -> str:
    """Why an explained number without a graph cannot be explained, in one sentence."""
    return (
        "no relevance can flow from the target to the input: under these rules the explained number does not "
        f"depend on any explained input ({_why_constant(chosen)})"
    )


def _why_constant(chosen: ChosenTarget) -> str:
    numbers = (chosen.value if chosen.rows is None else chosen.rows).detach()
    if not numbers.is_floating_point():
        return f"it is of type {str(numbers.dtype).removeprefix('torch.')}: explain the scores before they are rounded"
    if bool(((numbers >= 0) & (numbers <= 1)).all()):
        return "it lies between 0 and 1: if it is a probability, explain the logit before the softmax or sigmoid"
    return "the model may not use that input, or detach its output or compute it under no_grad"


# By the id of each module in training: the running passes that hold it in eval mode. The last one restores its flag.
_evaluating: dict[int, tuple[nn.Module, set[object]]] = {}
_eager: set[object] = set()  # the running passes that hold compiled models in eager mode
_stance: list[Any] = []  # the setting before the first of these


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, and compiled modules run eagerly, so that their torch calls can be intercepted.

    Afterwards each module's flag is restored by the last of the passes that share it: in other threads, or of another
    model that holds the same module.
    """
    running = object()
    with undoing(lambda: _release(running)):
        _hold(running, model)
        yield


def _hold(running: object, model: nn.Module) -> None:
    with lock:
        for module in model.modules():
            if module.training or id(module) in _evaluating:
                _evaluating.setdefault(id(module), (module, set()))[1].add(running)
                module.training = False
        if "torch._dynamo" in sys.modules:  # else nothing can have been compiled
            if not _eager:
                _stance[:] = [sys.modules["torch._dynamo"].eval_frame._stance]
            _eager.add(running)
            torch.compiler.set_stance("force_eager")


def _release(running: object) -> None:
    """Undo `_hold`, as far as it came. Flags are restored before the note of them is dropped."""
    with lock:
        for key, (module, holders) in list(_evaluating.items()):
            if holders <= {running}:
                module.training = True
                del _evaluating[key]
            else:
                holders.discard(running)
        if running in _eager:
            if len(_eager) == 1:
                sys.modules["torch._dynamo"].eval_frame._set_stance(_stance[0])
            _eager.discard(running)
