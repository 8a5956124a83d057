"""What --target says: classes, labels of words, places of a picture."""

from __future__ import annotations

import re


def class_target(target: str | None, labels: dict[int, str]) -> object:
    """'positive', '1', or 'positive,negative' for a difference. A class name may hold commas itself."""
    if target is None or target in labels.values():
        return target
    parts = [int(part) if re.fullmatch(r"\s*-?[0-9]+\s*", part) else part for part in target.split(",")]
    return parts[0] if len(parts) == 1 else tuple(parts)


def label_target(target: str, labels: dict[int, str]) -> object:
    """'B-LOC' alone, 'Berlin,B-LOC', '16:22,B-LOC' by characters, 'Berlin,B-LOC,O' for a difference.

    The word may hold commas itself.
    """
    *rest, last = target.split(",")
    if not rest or target in labels.values():
        return target
    label: object = last.strip()
    if len(rest) > 1 and rest[-1].strip() in labels.values():
        label = (rest.pop().strip(), label)
    word = ",".join(rest)
    characters = re.fullmatch(r"([0-9]+):([0-9]+)", word.strip())
    return (int(characters[1]), int(characters[2])) if characters else word, label


def place_target(target: str, labels: dict[int, str]) -> object:
    """'cat' alone, '3,cat' for an object, '120:80,cat' at a point, '10:20:90:60,cat' in a box; 'cat,dog' at either end.

    A place may stand alone.
    """
    where, *classes = (part.strip() for part in target.split(","))
    if target in labels.values() or not re.fullmatch(r"[0-9]+|[0-9.]+(:[0-9.]+){1,3}", where):
        return class_target(target, labels)
    numbers = tuple(float(one) if "." in one else int(one) for one in where.split(":"))
    label = classes[0] if len(classes) == 1 else tuple(classes)
    if len(numbers) == 1:
        return (numbers[0], label) if classes else numbers[0]
    return (numbers, label) if classes else numbers
