"""`Heads`: the counts of a model's heads, which of them are syntactic or positional, and their file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from relprop.engine.wrappers import has_adapter, unwrapped
from relprop.errors import InputError, ModelError, unknown_name
from relprop.files import write_text, writing
from relprop.heads.attention_counts import TO_GOVERNOR, Variant
from relprop.heads.masks import Mask, corrupted, random_mask
from relprop.heads.treebank import offset_shares
from relprop.model_config import config_value

SCHEMA_VERSION = 1
XI_POS, XI_SYNT = 0.8, 0.1  # [Song24]
KINDS = ("both", "syntactic", "positional", "random")
FILE = "heads.json"  # in a model's folder

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HeadFinding:
    """One reason why a head counts as syntactic or positional."""

    block: int
    head: int
    kind: Literal["positional", "syntactic"]
    what: str  # the offset, or the relation and its direction
    share: float
    threshold: float


@dataclass(frozen=True)
class Heads:
    """Counts of what a model's heads attend to most, over parsed sentences, and the thresholds of [Song24].

    `heads.at(xi_pos=0.7)` applies other thresholds to the same counts. Tuples are [blocks][heads] and deeper.
    """

    model: str
    corpus: str
    sentences: int
    skipped: int  # sentences longer than the model can read
    words: int
    rows: int  # tokens whose strongest attention was counted
    offset: tuple[tuple[int, ...], ...]  # per head: the most frequent offset
    offset_rows: tuple[tuple[int, ...], ...]  # per head: how many rows have it
    arcs: Mapping[str, int]  # per relation
    hits: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]  # per head, relation, direction: arcs that are followed
    relation_offsets: Mapping[str, Mapping[int, int]]  # per relation: how often it has each offset
    xi_pos: float = XI_POS
    xi_synt: float = XI_SYNT
    variant: Variant = "paper"

    def __post_init__(self) -> None:
        blocks, heads = np.shape(self.offset)
        wanted = {"offset_rows": (blocks, heads), "hits": (blocks, heads, len(self.arcs), 2)}
        for name, shape in wanted.items():
            counts = np.array(getattr(self, name))
            if counts.shape != shape or counts.dtype.kind != "i":
                raise InputError(f"{name} should be whole numbers of shape {shape}, not {counts.dtype} {counts.shape}")
        if set(self.relation_offsets) != set(self.arcs):
            raise InputError(f"relations differ: {list(self.arcs)} and {list(self.relation_offsets)}")
        check_thresholds(self.xi_pos, self.xi_synt)

    @property
    def relations(self) -> tuple[str, ...]:
        return tuple(self.arcs)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of blocks, and of heads per block."""
        return len(self.offset), len(self.offset[0])

    @property
    def offset_share(self) -> Floats:
        """[blocks, heads]: share of rows with the head's most frequent offset."""
        return np.array(self.offset_rows) / max(1, self.rows)

    @property
    def alpha(self) -> Floats:
        """[blocks, heads, relations, directions]: share of arcs that a head follows, to the governor and from it."""
        arcs = np.maximum(1, list(self.arcs.values()))
        return np.asarray(np.array(self.hits) / arcs[:, None])

    @property
    def chance(self) -> Floats:
        """[relations]: max_i lambda_k(i), the best that a head with one fixed offset reaches."""
        return np.array([max(offset_shares(self.relation_offsets[k]).values(), default=1.0) for k in self.relations])

    @property
    def positional(self) -> Mask:
        """[blocks, heads]: one offset in more than xi_pos of all rows."""
        return np.asarray(self.offset_share > self.xi_pos)

    @property
    def follows(self) -> Mask:
        """[blocks, heads, relations]: alpha of the better direction > max_i lambda_k(i) + xi_synt."""
        return np.asarray(self.alpha.max(-1) > self.chance + self.xi_synt)

    @property
    def syntactic(self) -> Mask:
        """[blocks, heads]: heads that follow at least one relation."""
        return np.asarray(self.follows.any(-1))

    @property
    def both(self) -> Mask:
        """[blocks, heads]: syntactic or positional, the mask of Mask-LRP."""
        return self.syntactic | self.positional

    def mask(self, kind: str = "both", *, corrupt: float = 0.0, seed: int = 0) -> Mask:
        """The mask of a kind; "random" has as many heads as "both". For `corrupt` see `corrupted`.

        A mask without heads would let no relevance through, and is refused.
        """
        if kind not in KINDS:
            raise unknown_name("head mask", kind, KINDS)
        chosen: Mask = random_mask(self.both, seed) if kind == "random" else getattr(self, kind)
        if not chosen.any():
            raise InputError(f"the {kind} mask of {self.model} is empty: {self.nearest()}; try heads.at(xi_pos=...)")
        return corrupted(chosen, corrupt, seed)

    def nearest(self) -> str:
        """A sentence about the heads nearest to the thresholds."""
        block, head = np.unravel_index(self.offset_share.argmax(), self.shape)
        offset = f"offset {self.offset[block][head]:+d} in {self.offset_share.max():.3f} of the rows"
        over = (self.alpha.max(-1) - self.chance).max()
        return (
            f"no head keeps to one offset in more than {self.xi_pos} of the rows or follows a relation {self.xi_synt} "
            f"above chance (nearest: block {block} head {head}, {offset}; relations {over:+.3f})"
        )

    def at(self, *, xi_pos: float | None = None, xi_synt: float | None = None) -> Heads:
        """The same counts with other thresholds."""
        new = {name: value for name, value in (("xi_pos", xi_pos), ("xi_synt", xi_synt)) if value is not None}
        return replace(self, **new)  # type: ignore[arg-type]

    def kinds(self) -> list[list[str]]:
        """[blocks][heads]: "positional", "syntactic", "positional and syntactic" or "neither"."""
        names = np.array([["neither", "syntactic"], ["positional", "positional and syntactic"]])
        kinds: list[list[str]] = names[self.positional.astype(int), self.syntactic.astype(int)].tolist()
        return kinds

    def findings(self) -> list[HeadFinding]:
        """Every reason why a head is in the mask, block by block."""
        findings = []
        for block, head in np.argwhere(self.both).tolist():
            if self.positional[block, head]:
                what = f"offset {self.offset[block][head]:+d}"
                share = float(self.offset_share[block, head])
                findings.append(HeadFinding(block, head, "positional", what, share, self.xi_pos))
            findings += [
                self._followed_relation(block, head, k) for k in np.flatnonzero(self.follows[block, head]).tolist()
            ]
        return findings

    def _followed_relation(self, block: int, head: int, k: int) -> HeadFinding:
        alpha = self.alpha[block, head, k]
        direction = "dependent to governor" if alpha.argmax() == TO_GOVERNOR else "governor to dependent"
        threshold = float(self.chance[k]) + self.xi_synt
        return HeadFinding(block, head, "syntactic", f"{self.relations[k]}, {direction}", float(alpha.max()), threshold)

    def to_json(self) -> str:
        """JSON with its schema version, one field per line."""
        data = {"schema_version": SCHEMA_VERSION, **{field.name: getattr(self, field.name) for field in fields(self)}}
        lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in data.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str, where: str = "this") -> Heads:
        """The heads that `to_json` wrote, equal to the original."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} is no file of heads saved by relprop: it is not JSON ({error})") from None
        if not isinstance(data, dict) or "schema_version" not in data:
            raise InputError(f"{where} is no file of heads saved by relprop: it has no schema_version")
        version = data.pop("schema_version")
        if version != SCHEMA_VERSION:
            raise InputError(f"{where} has schema version {version}; this relprop reads {SCHEMA_VERSION}")
        try:
            return cls(**_fields_of(data))
        except (InputError, AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise InputError(f"{where} is damaged ({type(error).__name__}: {error})") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the counts to a file, whole or not at all."""
        path = Path(path)
        with writing(path):
            write_text(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Heads:
        """The heads that `save` wrote."""
        where = f'"{os.fspath(path)}"'
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"), where)
        except UnicodeDecodeError:
            raise InputError(f"{where} is no file of heads saved by relprop: it is not UTF-8 text") from None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {where}: {getattr(error, 'strerror', None) or error}") from None


def check_thresholds(xi_pos: float, xi_synt: float) -> None:
    for name, value in (("xi_pos", xi_pos), ("xi_synt", xi_synt)):
        if not 0 <= value <= 1:
            raise InputError(f"{name} is a number from 0 to 1, got {value}")


def _fields_of(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of `Heads` from JSON: lists become tuples, and keys of offsets numbers."""
    by_relation = data["relation_offsets"].items()
    return {
        **{name: nested_tuples(value) for name, value in data.items()},
        "relation_offsets": {k: {int(i): int(n) for i, n in counts.items()} for k, counts in by_relation},
    }


def nested_tuples(value: Any) -> Any:
    """Lists, however deep, as tuples."""
    return tuple(map(nested_tuples, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value


def known_heads(model: nn.Module) -> Heads | None:
    """The heads from heads.json in the folder that the model was loaded from, if there is one."""
    if has_adapter(model := unwrapped(model)):  # its heads are no longer those of the folder
        return None
    folder = Path(config_value(model, "name_or_path") or "")
    return Heads.load(folder / FILE) if folder.parts and (folder / FILE).is_file() else None


def heads_of(model: nn.Module) -> Heads:
    """`known_heads`; raises with the command that identifies them where there are none."""
    heads = known_heads(model)
    if heads is None:
        raise ModelError(
            "which heads of this model are syntactic or positional is not known: identify them once with `relprop "
            f"heads FOLDER --save FOLDER/{FILE}`, or give your own mask, such as "
            "relprop.heads.identify(model, tokenizer).both"
        )
    return heads
