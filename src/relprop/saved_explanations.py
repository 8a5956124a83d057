"""Explanations saved as JSON, whatever version of relprop wrote them, in the form that is written today.

A class of parts of another package joins by the entry point group "relprop.parts", under its `kind`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib import import_module
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from relprop.errors import InputError, unknown_name
from relprop.part import Part
from relprop.plugins import plugins
from relprop.render.generation.layout import continuation_target
from relprop.types import Ledger, Unit

SCHEMA_VERSION = 2
Saved = dict[str, Any]
_COMMON = ("method", "target", "value", "prediction", "probability", "ledger", "baseline")

_PARTS = {
    "text": "relprop.render.text.part:TextPart",
    "document": "relprop.render.document.part:DocumentPart",
    "image": "relprop.render.image.part:ImagePart",
    "video": "relprop.render.video.part:VideoPart",
    "graph": "relprop.render.graph.part:GraphPart",
    "audio": "relprop.render.audio.part:AudioPart",
    "series": "relprop.render.series.part:SeriesPart",
    "features": "relprop.render.features.part:FeaturePart",
    "pairs": "relprop.render.pairs.part:PairPart",
}


def part_class(kind: str) -> type[Part]:
    """The class of a kind of part; raises for a kind that is not installed."""
    if kind in _PARTS:
        module, _, name = _PARTS[kind].partition(":")
        found: type[Part] = getattr(import_module(module), name)
        return found
    others = {point.name: point for point in plugins("relprop.parts")}
    if kind not in others:
        raise unknown_name("kind of part", kind, (*_PARTS, *others))
    loaded: type[Part] = others[kind].load()
    return loaded


def part_reviver(image: object, sound: object) -> Callable[[Saved], Part]:
    """Makes parts of what was saved, on the picture or sound that they are drawn on."""
    if image is not None:
        from relprop.readers.picture import opened_picture

        image = opened_picture(image)

    def revived(data: Saved) -> Part:
        kind = data.pop("kind")
        attached: object = image
        if kind == "audio":
            from relprop.readers.sound import opened_sound

            attached = None if sound is None else opened_sound(sound, data["rate"])
        return part_class(kind).from_dict(data, attached)

    return revived


def upgraded(text: str) -> Saved:
    """The explanation that a JSON text holds; version 1 in the form of version 2. Raises with the reason."""
    if not isinstance(text, str):
        raise InputError(f"a saved explanation is a text of JSON, got {type(text).__name__}")
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is no explanation saved by relprop: it is not JSON ({error})") from None
    if not isinstance(data, dict) or "schema_version" not in data:
        raise InputError("this is no explanation saved by relprop: it has no schema_version")
    data.pop("row", None)  # of the table that it came from: `relprop explain --out`
    data.pop("account", None)  # which a service adds, and an explanation knows by itself
    version = data.pop("schema_version")
    if isinstance(version, bool) or version not in (1, SCHEMA_VERSION):
        raise InputError(
            f"the explanation has schema version {version!r:.80}; this relprop reads 1 and {SCHEMA_VERSION}"
        )
    with damaged():
        return _UPGRADES[data.pop("kind", "text")](data) if version == 1 else data


@contextmanager
def damaged() -> Iterator[None]:
    """What JSON of another shape than relprop writes makes go wrong, in one sentence."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(f"the saved explanation is damaged ({type(error).__name__}: {error!s:.300})") from None


def check_types(value: Any, hint: Any, name: str = "explanation") -> None:
    """Raise ValueError where a value, or a field of a dataclass inside it, is not of the type that it is declared with.

    Numbers must be finite.
    """
    if is_dataclass(value) and not isinstance(value, type):
        try:
            hints = get_type_hints(type(value))
        except NameError:  # a part of another package, with names that only type checkers see
            return
        for field in fields(value):
            check_types(getattr(value, field.name), hints[field.name], field.name)
    elif hasattr(value, "dtype"):
        if not all(map(isfinite, value.ravel().tolist())):
            raise ValueError(f"{name} has a number that is not finite")
    elif get_origin(hint) is tuple and isinstance(value, tuple):
        kinds = get_args(hint)
        every = [kinds[0]] * len(value) if kinds[-1] is Ellipsis else kinds
        for one, kind in zip(value, every, strict=True):
            check_types(one, kind, name)
    elif get_origin(hint) in (Union, UnionType):
        fitting = [kind for kind in get_args(hint) if (kind is NoneType) == (value is None)]
        if not fitting:
            raise ValueError(f"{name} is {value!r:.80}")
        check_types(value, fitting[0], name)
    elif not _is_a(value, hint):
        raise ValueError(f"{name} is {value!r:.80}")


def _is_a(value: Any, hint: Any) -> bool:
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint in (float, int):
        kinds = (int, float) if hint is float else int
        return isinstance(value, kinds) and not isinstance(value, bool) and isfinite(value)
    return isinstance(value, get_origin(hint) or hint)


def check_places(units: Sequence[Unit], text: Sequence[str]) -> None:
    """Raise ValueError for units that lie outside of their text."""
    for unit in units:
        if not 0 <= unit.segment < len(text):
            raise ValueError(f"a unit is of text {unit.segment} of {len(text)}")
        if unit.start is not None and not 0 <= unit.start <= (unit.end or 0) <= len(text[unit.segment]):
            raise ValueError(f"a unit stands at {unit.start} to {unit.end} of {len(text[unit.segment])} characters")


def check_saved(explanation: object, texts: Iterable[Any], ledgers: Iterable[Ledger | None]) -> None:
    """Raise ValueError for fields, places in texts and ledgers that relprop never writes."""
    check_types(explanation, type(explanation))
    for part in texts:
        check_places(part.units, part.text)
    for ledger in ledgers:
        if ledger is not None:
            check_sum(ledger)


def check_sum(ledger: Ledger) -> None:
    """Raise ValueError for a ledger whose entries are not what its value is made of."""
    values = [entry.value for entry in ledger.entries]
    if abs(sum(values) - ledger.value) > 1e-3 * (1 + sum(map(abs, values))):
        raise ValueError(f"the ledger's entries come to {sum(values):.4g}, not to {ledger.value:.4g}")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a finite number")


def _explanation(data: Mapping[str, Any], part: Saved) -> Saved:
    own = {name: data.get(name) for name in _COMMON}
    own |= {"prediction": data.get("prediction") or "", "signed": _signed(data["method"])}
    own |= {"quantity": data.get("quantity", ""), "warnings": data.get("warnings", [])}
    return {**own, "parts": [part], "steps": []}


def _text(data: Saved) -> Saved:
    own = {name: data.get(name) for name in ("text", "units", "scores", "truncated", "answer")}
    part = {"kind": "text", "name": "input_ids", **own, "merged": bool(data.get("merged"))}
    return _explanation(data, part)


def _image(data: Saved) -> Saved:
    own = {name: data[name] for name in ("size", "scores", "frame", "rest")}
    part = {"kind": "image", "name": "pixel_values", **own, "file": data["name"]}
    return _explanation(data, part)


def _graph(data: Saved) -> Saved:
    own = {name: data[name] for name in ("graph", "scores", "rest")}
    part = {"kind": "graph", "name": "nodes", **own, "edges": data["edge_scores"]}
    return _explanation(data, part)


def _continuation(data: Saved) -> Saved:
    """A matrix of scores: each generated token by all units, which were one text, or a source and a target."""
    units, scores, count = data["units"], data["scores"], len(data["generated"])
    split = sum(unit["segment"] == 0 for unit in units) if data["two_sided"] else len(units)
    ends = [(0, split), (split, len(units))] if data["two_sided"] else [(0, len(units))]
    texts = [data["prompt"], data["continuation"]] if data["two_sided"] else [data["prompt"] + data["continuation"]]
    names = ("input_ids", "decoder_input_ids")
    parts = []
    begins = [None, 0] if data["two_sided"] else [len(data["prompt"])]
    for name, text, (first, stop), begin in zip(names, texts, ends, begins, strict=False):
        by_step = [row[first:stop] for row in scores]
        own = {"units": [{**unit, "segment": 0} for unit in units[first:stop]], "by_step": by_step}
        sums = [sum(column) for column in zip(*by_step, strict=True)] or [0.0] * (stop - first)
        parts.append(
            {
                "kind": "text",
                "name": name,
                "text": [text],
                "scores": sums,
                "merged": data["merged"],
                "written_from": begin,
                **own,
            }
        )
    steps = data["generated"]
    return {
        "method": data["method"],
        "target": continuation_target(count),
        "value": sum(step["value"] for step in steps),
        "ledger": None,
        "signed": _signed(data["method"]),
        "parts": parts,
        "steps": steps,
        "passes": data["passes"],
    }


def _signed(method: str) -> bool:
    """Version 1 left it to the method; one that is not installed is taken for signed."""
    import relprop.methods  # noqa: F401  (fills the registry)
    from relprop.registry import METHODS

    return method not in METHODS.names() or METHODS[method].signed


_UPGRADES = {"text": _text, "image": _image, "graph": _graph, "continuation": _continuation}
