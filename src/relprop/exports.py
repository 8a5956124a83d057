"""Explanations in the shapes of other packages: pandas' frames, SHAP's explanations, Gradio's highlighted texts."""

from __future__ import annotations

from typing import Any

from relprop.errors import InputError, RelpropError
from relprop.part import Part, only
from relprop.render.text.part import TextPart

Pair = tuple[str, float | None]


def to_frame(explanation: Any) -> Any:
    """A pandas frame: one row per unit, with its place and score; then the rows of `account`, named in `beside`."""
    try:
        import pandas
    except ImportError:
        raise RelpropError('to_frame needs the pandas package: pip install "relprop[pandas]"') from None
    frames = []
    for part in explanation.parts:
        same = {"method": explanation.method, "target": explanation.target, "value": explanation.value}
        same |= {"part": part.name} if len(explanation.parts) > 1 else {}
        columns = {**part.columns(), "beside": None, **same}
        frames.append(pandas.DataFrame(columns).astype(dict.fromkeys(part.whole_columns, "Int64")))
    if explanation.account:
        kinds = frames[-1].dtypes
        blank = {name: {"bool": True, "int64": 0}.get(str(kind)) for name, kind in kinds.items()}
        told = {"method": explanation.method, "target": explanation.target, "value": explanation.value}
        rows = [{**blank, **told, "score": share, "beside": name} for name, share in explanation.account]
        frames.append(pandas.DataFrame(rows, columns=kinds.index).astype(kinds))
    return frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)


def to_shap(explanation: Any) -> Any:
    """A `shap.Explanation` of the only part: base value + sum of the values = the explained number."""
    import numpy as np

    from relprop.methods.shapley import shap_package

    shap = shap_package("to_shap")

    part = only(explanation.parts, "values of SHAP")
    if explanation.ledger is None:
        raise InputError(
            f'SHAP\'s values are shares of a number, and the scores of "{explanation.method}" are not: take a method '
            "with a ledger, such as lrp_conservative or shapley"
        )
    values = np.array(part.columns()["score"], dtype=np.float64)
    names = np.array(unit_names(part), dtype=object)
    base = explanation.value - values.sum()  # biases, positions and other constants, or the method's baseline
    found = shap.Explanation(values, base_values=base, data=names, feature_names=names.tolist())
    found.output_names = explanation.target  # the constructor takes a name for several outputs only
    return found


def unit_names(part: Part) -> list[str]:
    """A name for every row of `part.columns()`. Units of a text keep the blanks behind them, as SHAP joins them."""
    if isinstance(part, TextPart):
        return [_with_blanks(part, i) for i in range(len(part.units))]
    columns = part.columns()
    count = len(columns["score"])
    if "row" in columns:
        places = zip(columns["row"], columns["column"], strict=True)
        return ["other tokens" if row is None else f"row {row}, column {column}" for row, column in places]
    named = columns.get("name") or columns.get("node") or range(count)
    return ["other units" if one is None else str(one) for one in named]


def _with_blanks(part: TextPart, i: int) -> str:
    unit = part.units[i]
    if unit.start is None or unit.end is None:
        return unit.text
    text = part.text[unit.segment]
    rest = text[unit.end :]
    return text[unit.start : unit.end] + rest[: len(rest) - len(rest.lstrip())]


def highlighted(explanation: Any) -> list[Pair]:
    """Pairs of a stretch of text and its score for Gradio's `HighlightedText`; None where there is no score.

    Joined, the stretches are the texts, one per line. Scores are divided by the largest, so that they lie between -1
    and 1; special tokens stand nowhere in a text and are left out.
    """
    texts = [(part, segment) for part in explanation.texts for segment in range(len(part.text))]
    if not texts:
        raise InputError("highlighted texts are of texts, and this explanation has none")
    pairs: list[Pair] = []
    for part, segment in texts:
        pairs += [("\n", None)] if pairs else []
        pairs += _stretches(part, segment)
    largest = max((abs(score) for _, score in pairs if score is not None), default=0.0) or 1.0
    return [(text, None if score is None else score / largest) for text, score in pairs]


def _stretches(part: TextPart, segment: int) -> list[Pair]:
    """The units of one text and what lies between them."""
    text, done = part.text[segment], 0
    pairs: list[Pair] = []
    for unit, score in zip(part.units, part.scores, strict=True):
        if unit.special or unit.segment != segment:
            continue
        if unit.start is None or unit.end is None:
            raise InputError("the tokenizer gives no places in the text (use a fast tokenizer)")
        start = max(unit.start, done)  # byte pieces of one character share it
        pairs += [(text[done:start], None)] if start > done else []
        pairs.append((text[start : unit.end], score))
        done = max(done, unit.end)
    if done < len(text):
        pairs.append((text[done:], None))
    return pairs
