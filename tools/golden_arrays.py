"""Which array of the golden files is what in relprop: the one table behind the parity tests and docs/released.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from golden_cases import (
    MASKS,
    Case,
    arrays,
    block_shares,
    constant_mean,
    flows,
    gae_matrix,
    gamma,
    gamma_model,
    gradient_times,
    head_contributions,
    keys,
    mask_lrp_with_slip,
    mean_attention,
    mean_of_rows,
    parsed,
    passed,
    relevance_of_values,
    rolled,
    token_vectors,
    with_residual,
    without_cls,
)
from relprop.attribution import attribute
from relprop.methods.decomposition import Measure

TOLERANCES = {"bert": 1e-6, "ali_bert": 1e-6, "bert_qa": 1e-9, "vit": 1e-4}


@dataclass(frozen=True)
class Line:
    """An array (or several, as a pattern), what gives it in relprop, and why it is no method, if it is none."""

    file: str
    array: str
    says: str
    found: Callable[[Case], Any] | None  # None: compared elsewhere, `reason` says where
    reason: str = ""
    others: bool = False  # all entries but the first, which the released code overwrites
    within: float | None = None

    @property
    def folder(self) -> str:
        return self.file.split("/")[0]

    @property
    def tolerance(self) -> float:
        return self.within or TOLERANCES[self.folder]

    @property
    def keys(self) -> list[str]:
        return [key for key in keys(self.file) if fnmatch(parsed(key)[1], self.array)]

    def difference(self, key: str, attention: str) -> float:
        """Largest difference, relative to the largest golden number."""
        assert self.found is not None
        found = np.asarray(self.found(Case(self.folder, attention, parsed(key)[0])))
        golden = arrays(self.file)[key].reshape(found.shape)
        if self.others:
            found, golden = found[..., 1:], golden[..., 1:]
        return float(np.abs(found - golden).max() / max(np.abs(golden).max(), 1e-12))


def _by_method(
    file: str, array: str, method: str, *, drop_cls: bool = False, others: bool = False, **options: Any
) -> Line:
    """Scores of a method. `drop_cls`: the array has no class token."""
    said = ", ".join(f"{name}={value}" if name == "mask" else f"{name}={value!r}" for name, value in options.items())

    def found(case: Case) -> Tensor:
        given = {name: MASKS[value] if name == "mask" else value for name, value in options.items()}
        scores = attribute(case.model, case.inputs, case.target, method, **given).scores[0]
        return scores[1:] if drop_cls else scores

    within = 5e-2 if array.startswith("full_") and file.startswith("vit") else None
    says = f"`{method}`" + (f" ({said})".replace("'", '"') if said else "")
    return Line(file, array, says + (", all but [CLS]" if others else ""), found, others=others, within=within)


def _output(name: str, case: Case) -> Any:
    return getattr(case.model(**case.inputs), name).detach()


def _rollout_up_to(blocks: int, case: Case) -> Any:
    return rolled(with_residual(case)[:blocks])


def _flow_from(row: int | None, blocks: int, case: Case) -> Any:
    """From one row, or the sum over all."""
    return flows(case, blocks).sum(0) if row is None else flows(case, blocks)[row]


def _tables() -> Iterator[Line]:
    yield from _bert()
    yield from _formulas()
    yield from _alti()
    yield from _abnar()
    yield from _ali()
    yield from _vit()
    yield from _question_answering()


def _bert() -> Iterator[Line]:
    file = "bert/golden.npz"
    yield Line(file, "logits", "the model's output", partial(_output, "logits"))
    yield from _maps(file, "chefer/")
    yield Line(
        file, "chefer/relprop_ours_encoder_input", "relevance at the first block", lambda c: passed(c, "paper").source
    )
    yield Line(
        file, "chefer/relprop_orig_encoder_input", "the same, released rules", lambda c: passed(c, "released").source
    )
    for start in (0, 1, 2):
        yield _by_method(
            file, f"chefer/transformer_attribution_start{start}", "transformer_attribution", variant="released",
            start_block=start,
        )  # fmt: skip
    for start in (0, 1):
        yield _by_method(file, f"chefer/rollout_start{start}", "rollout", variant="released", start_block=start)
    for array, method in {
        "chefer/full_lrp": "lrp", "chefer/partial_lrp": "partial_lrp", "chefer/attn_gradcam": "grad_cam",
        "chefer/raw_attention": "attention_last", "masklrp/RawAtt": "attention_last", "masklrp/Rollout": "rollout",
        "masklrp/GradCAM_attn": "grad_cam", "masklrp/CAM_gradcam": "cam",
    }.items():  # fmt: skip
        yield _by_method(file, array, method, variant="released")
    for array, method in {
        "chefer/full_lrp_ours_rules": "lrp", "chefer/partial_lrp_ours_rules": "partial_lrp",
        "chefer/rollout_start0": "rollout", "chefer/raw_attention": "attention_last",
        "masklrp/LRP_full": "lrp", "masklrp/PartialLRP": "partial_lrp", "masklrp/RawAtt": "attention_last",
        "masklrp/Rollout": "rollout", "masklrp/CAM_gradcam": "cam",
    }.items():  # fmt: skip
        yield _by_method(file, array, method, others=True)
    yield Line(file, "gae/R", "`gae` before its row is read", gae_matrix)
    yield _by_method(file, "attcat/attcat", "attcat")
    yield _by_method(file, "masklrp/AttCAT", "attcat")
    yield _by_method(file, "masklrp/GAE", "mask_lrp", variant="released")
    yield _by_method(file, "masklrp/MGAE_nomask", "mask_lrp", variant="released")
    yield Line(file, "masklrp/MGAE_nomask_head_contrs", "mean of G_b * R_b a head", head_contributions(None, 1))
    for mask in MASKS:
        yield from _masked(file, mask)


def _masked(file: str, mask: str) -> Iterator[Line]:
    yield _by_method(file, f"masklrp/MGAE_{mask}", "mask_lrp", variant="released", mask=mask)
    yield _by_method(file, f"masklrp/MGAE_{mask}_start1", "mask_lrp", variant="released", mask=mask, start_block=1)
    yield Line(
        file,
        f"masklrp/MGAE_{mask}_head_contrs",
        f"mean of 2 G_b * R_b a head, mask={mask}",
        head_contributions(mask, 2),
    )
    yield Line(
        file, f"masklrp/attn_cam_{mask}", f"2 R_b, released masking, mask={mask}",
        lambda c: 2 * passed(c, "paper", mask).arrived,
    )  # fmt: skip
    yield Line(
        file, f"masklrp/full_lrp_{mask}", f"`lrp` under the released masking, mask={mask}",
        lambda c: without_cls(passed(c, "paper", mask).source.sum(-1)),
    )  # fmt: skip


def _maps(file: str, prefix: str = "") -> Iterator[Line]:
    yield Line(file, f"{prefix}attn", "A_b", lambda c: passed(c, "gradient").weights)
    yield Line(file, f"{prefix}attn_grad", "G_b", lambda c: passed(c, "gradient").arrived)
    if file.startswith(("bert/", "vit/")):
        yield Line(file, f"{prefix}attn_cam_ours", "R_b", lambda c: passed(c, "paper").arrived)
        yield Line(file, f"{prefix}attn_cam_orig", "R_b, released rules", lambda c: passed(c, "released").arrived)


ALI = {"gradient_x_input": "gi", "lrp_ah": "lrp_ah", "lrp_ln": "lrp_ln_std", "lrp_ah_ln": "lrp_ah_ln_std"}
_CONSTANT_MEAN = (
    "no method: [Ali22]'s LN-rule leaves the mean differentiable; matched by the rule of docs/add-a-rule.md"
)


def _formulas() -> Iterator[Line]:
    file = "bert/formula_ali_gradsam.npz"
    for method, array in ALI.items():
        yield _by_method(file, f"{array}/embeddings_output", method)
        yield _by_method(file, f"{array}/word_embeddings", method, at="word_embeddings")
    says = "`lrp_ah_ln` with a constant mean"
    yield Line(file, "lrp_ah_ln_meanstd/embeddings_output", says, constant_mean(), _CONSTANT_MEAN)
    yield Line(
        file, "lrp_ah_ln_meanstd/word_embeddings", f'{says} (at="word_embeddings")',
        constant_mean("word_embeddings"), _CONSTANT_MEAN,
    )  # fmt: skip
    yield _by_method(file, "gradsam_colmean", "grad_sam")
    yield _by_method(file, "gradsam_rowmean", "grad_sam", mean_over="keys")


_SECOND_NORM = "no method: ALTI is of the attention block alone; these take in the norm after the feed-forward layer"
_DISTANCE = "matched, but torch's distance adds 1e-6 to every difference; with that to 1e-11 in tests/test_alti.py"


def _alti() -> Iterator[Line]:
    file = "bert/golden_alti_flow.npz"
    yield _by_method(file, "alti/cls", "alti")
    yield _by_method(file, "alti_l2/cls", "alti", measure="l2")
    yield _by_method(file, "norm_rollout_kobayashi/cls", "alti", measure="norm")
    for array, measure in _MEASURES.items():
        says = f'`alti` (measure="{measure}")'
        for part, how, found in (
            ("layer_contributions", ", block by block", block_shares(measure)),
            ("rollout", " up to every block, all rows", partial(_rolled_shares, measure)),
        ):
            yield Line(file, f"{array}/{part}", says + how, found, _DISTANCE, within=1e-5)
    yield Line(file, "alti_raw/resultants", "y_i of `alti`", lambda c: torch.stack([y for _, y in token_vectors(c)]))
    yield Line(
        file, "alti_raw/transformed_vectors_norm", "length of T_ij of `alti`",
        lambda c: torch.stack([t.norm(dim=-1) for t, _ in token_vectors(c)]),
    )  # fmt: skip
    for name, p in (("contributions", 1), ("contributions_l2", 2)):
        yield Line(
            file, f"alti_raw/{name}", f"minus the L{p} distance of T_ij from y_i of `alti`", partial(_nearness, p)
        )
    for pattern in ("alti_ln2/*", "globenc_norm2/cls", "alti_raw/*2"):
        yield Line(file, pattern, "", None, _SECOND_NORM)
    yield _by_method(file, "alti_repo/raw_cls", "attention_last")
    yield _by_method(file, "alti_repo/rollout_cls", "rollout")


_MEASURES: dict[str, Measure] = {"alti": "l1", "alti_l2": "l2"}


def _rolled_shares(measure: Measure, case: Case) -> Any:
    layers = block_shares(measure)(case)
    return np.stack([rolled(layers[: block + 1]) for block in range(len(layers))])


def _nearness(p: int, case: Case) -> Any:
    return torch.stack([-(t - y[:, None]).norm(p, -1) for t, y in token_vectors(case)])


_SCRIPT = "no method: a script's own reading, by maximum over rows; made here from what `{}` is made of"


def _abnar() -> Iterator[Line]:
    file = "bert/golden_alti_flow.npz"
    for blocks in (1, 2, 3):
        yield Line(
            file, f"abnar/rollout_layer{blocks - 1}", f"`rollout` up to block {blocks - 1}, all rows",
            partial(_rollout_up_to, blocks),
        )  # fmt: skip
        for row in (0, 3):
            yield Line(
                file, f"abnar/flow_out{row}_layer{blocks - 1}", f"`attention_flow` up to block {blocks - 1}, row {row}",
                partial(_flow_from, row, blocks),
            )  # fmt: skip
    yield _by_method(file, "abnar/flow_out0_layer2", "attention_flow")
    yield _by_method(file, "abnar/joint_out0", "rollout")
    yield _by_method(file, "abnar/raw_out0", "attention_last")
    for array, name, found in (
        ("flow", "attention_flow", lambda c: flows(c, 3).max(0)),
        ("joint", "rollout", lambda c: rolled(with_residual(c)).max(0)),
        ("nores_joint", "rollout", lambda c: rolled(mean_attention(c)).max(0)),
        ("raw", "attention_last", lambda c: mean_attention(c)[-1].max(0)),
    ):
        says = f"`{name}`, maximum over rows" + (", no residual" if "nores" in array else "")
        yield Line(file, f"abnar/sst_{array}_max_layer2", says, found, _SCRIPT.format(name))


_GAMMA = "no method: [Ali22]'s IMDB script changes the model's own weights with it (its logits differ)"


def _ali() -> Iterator[Line]:
    file = "ali_bert/golden.npz"
    yield Line(file, "logits", "the model's output", partial(_output, "logits"))
    yield from _maps(file)
    for method, array in ALI.items():
        yield _by_method(file, array, method)
    yield Line(file, "lrp_ah_ln_meanstd", "`lrp_ah_ln` with a constant mean", constant_mean(), _CONSTANT_MEAN)
    for method in ("lrp_ah", "lrp_ah_ln"):
        array = f"{ALI[method]}_gamma0.01"
        yield Line(file, array, f"`{method}` with its gamma rule", gamma(method), _GAMMA)
        yield Line(
            file, f"{array}_logits", "the output of the changed model",
            lambda c: gamma_model(c)(**c.inputs).logits.detach(), _GAMMA,
        )  # fmt: skip
    yield _by_method(file, "gae_run_imdb", "gae", variant="released")
    yield _by_method(file, "gae_run_sst", "gae", variant="released", readout="all")
    yield _by_method(file, "a_last", "attention_last", readout="all")
    yield _by_method(file, "rollout_2", "rollout", readout="all")
    for block in (0, 2):
        yield Line(
            file, f"attention_flow_{block}", f"`attention_flow` up to block {block}, sum of all rows",
            partial(_flow_from, None, block + 1),
        )  # fmt: skip


def _vit() -> Iterator[Line]:
    file = "vit/golden.npz"
    yield Line(file, "logits", "the model's output", partial(_output, "logits"))
    yield from _maps(file)
    yield Line(file, "v_cam_ours", "R at the values", relevance_of_values)
    for start in (0, 1, 2):
        yield _by_method(
            file, f"transformer_attribution_start{start}", "transformer_attribution", start_block=start, drop_cls=True
        )
    for start in (0, 1):
        yield _by_method(
            file, f"lrp_rollout_start{start}", "transformer_attribution", ablate="gradient", start_block=start,
            drop_cls=True,
        )  # fmt: skip
        yield _by_method(file, f"rollout_start{start}", "rollout", start_block=start, drop_cls=True)
    for block, name in ((-1, "last"), (1, "second")):
        yield _by_method(
            file, f"{name}_layer_ours", "transformer_attribution", ablate="gradient", only_block=block, drop_cls=True
        )
        yield _by_method(
            file, f"{name}_layer_ablation_ours", "transformer_attribution", only_block=block, drop_cls=True
        )
        yield Line(
            file, f"{name}_layer_ablation_orig", f"E_h (G_b * R_b)+ of block {block}, released rules",
            gradient_times("released", block),
        )  # fmt: skip
    yield Line(
        file, "second_layer_orig", "E_h (R_b)+ of block 1, released rules",
        lambda c: passed(c, "released").arrived[1].clamp_min(0).mean(0)[0, 1:],
    )  # fmt: skip
    yield _by_method(file, "last_layer_orig", "partial_lrp", variant="released", drop_cls=True)
    yield _by_method(file, "last_layer_attn", "attention_last", drop_cls=True)
    yield _by_method(file, "gae", "gae", drop_cls=True)
    yield Line(file, "gae_R", "`gae` before its row is read", gae_matrix)
    yield _by_method(file, "attn_gradcam", "grad_cam", weigh_by="row", variant="released", drop_cls=True)
    yield _by_method(file, "full_ours", "lrp", at="input")
    yield _by_method(file, "full_orig", "lrp", at="input", variant="released")
    for method, array in ALI.items():
        yield _by_method("vit/formula_ali.npz", f"{array}/encoder_input", method)


_READ_ALL = 'read off every row though the answer is one row; `readout="all"` gives the same but for scale and [CLS]'
_SLIP = "a bug, not copied: the answer row's R goes to every row; these numbers come with that slip put into our rules"


def _question_answering() -> Iterator[Line]:
    file = "bert_qa/golden.npz"
    for part in ("start", "end"):
        yield Line(
            file, f"{part}_logits", "the model's output",
            partial(_output, f"{part}_logits"),
        )  # fmt: skip
    yield Line(
        file, "index", "the row that is read",
        lambda c: getattr(c.model(**c.inputs), f"{c.target}_logits").argmax(-1)[0],
    )  # fmt: skip
    yield from _maps(file)
    yield _by_method(file, "AttCAT", "attcat")
    yield Line(
        file, "generate_rollout", "`rollout`, mean over rows, [CLS] on [CLS] set to 0",
        lambda c: mean_of_rows(rolled(with_residual(c))), _READ_ALL,
    )  # fmt: skip
    yield Line(
        file, "generate_attn_last_layer", "`attention_last`, mean over rows, [CLS] on [CLS] set to 0",
        lambda c: mean_of_rows(mean_attention(c)[-1]), _READ_ALL,
    )  # fmt: skip
    for array, says, found in (  # its stabiliser, which the paper's rules do not have, moves these
        ("attn_cam_nomask", "R_b", lambda c: passed(c, "broadcast").arrived),
        ("attn_cam_M1", "2 R_b, mask=M1", lambda c: 2 * passed(c, "broadcast", "M1").arrived),
        ("relprop_input", "relevance at the first block", lambda c: passed(c, "broadcast").source),
    ):
        yield Line(file, array, says, found, _SLIP, within=1e-6)
    yield Line(file, "MGAE_nomask", "`mask_lrp`", mask_lrp_with_slip(None, 1), _SLIP)
    yield Line(file, "MGAE_M1", "`mask_lrp` (mask=M1)", mask_lrp_with_slip("M1", 2), _SLIP)


LINES = tuple(_tables())
