"""Every number that a result's `summary` may hold, and how the results of several batches become one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import numpy as np

from relprop.errors import InputError


@dataclass(frozen=True)
class Metric:
    """One number of a result's `summary`: which direction is better, what it measures, and its source."""

    better: Literal["higher", "lower"]
    meaning: str
    citation: str


METRICS: dict[str, Metric] = {
    "positive_auc_target": Metric("lower", "top-1 accuracy, most relevant pixels hidden first", "Chefer et al. 2021"),
    "negative_auc_target": Metric("higher", "top-1 accuracy, least relevant pixels hidden first", "Chefer et al. 2021"),
    "positive_auc_predicted": Metric("lower", "the prediction stays, most relevant first", "Chefer et al. 2021"),
    "negative_auc_predicted": Metric("higher", "the prediction stays, least relevant first", "Chefer et al. 2021"),
    "pixel_accuracy": Metric("higher", "pixels on the right side of the map's mean", "Chefer et al. 2021"),
    "mean_iou": Metric("higher", "intersection over union, mean of object and background", "Chefer et al. 2021"),
    "mean_ap": Metric("higher", "average precision of the map itself, mean over images", "Chefer et al. 2021"),
    "relevance_mass": Metric("higher", "share of positive relevance on the object", "Arras et al. 2022"),
    "pointing_game": Metric("higher", "the map's maximum falls on the object", "Zhang et al. 2018"),
    "label_positive_auc_target": Metric("lower", "the same by the true class's map", "Chefer et al. 2021"),
    "label_negative_auc_target": Metric("higher", "the same by the true class's map", "Chefer et al. 2021"),
    "label_relevance_mass": Metric("higher", "the same of the true class's map", "Arras et al. 2022"),
    "label_pointing_game": Metric("higher", "the same of the true class's map", "Zhang et al. 2018"),
    "auac": Metric("higher", "p of the class while tokens return, most relevant first", "Ali et al. 2022"),
    "au_mse": Metric("lower", "squared change of the logits while tokens go, least relevant first", "Ali et al. 2022"),
    "aopc": Metric("higher", "drop of p while the most relevant tokens go", "Song et al. 2024"),
    "log_odds": Metric("lower", "log ratio of p while the most relevant tokens go", "Song et al. 2024"),
    "comprehensiveness": Metric("higher", "drop of p without the most relevant tokens", "DeYoung et al. 2020"),
    "sufficiency": Metric("lower", "drop of p with the most relevant tokens alone", "DeYoung et al. 2020"),
    "token_f1": Metric("higher", "the best words against those that people marked", "DeYoung et al. 2020"),
    "marked_precision": Metric("higher", "share of marked words among the best, as many", "Bastings et al. 2022"),
    "marked_reciprocal_rank": Metric("higher", "1 / the place of the best marked word", "Bastings et al. 2022"),
    "marked_auprc": Metric("higher", "precision over recall of marked words", "Bastings et al. 2022"),
    "naopc": Metric("higher", "AOPC between its lower and upper limit", "Edin et al. 2025"),
    "f_fidelity_plus": Metric("higher", "fall of the accuracy, some of the relevant units hidden", "Zheng et al. 2025"),
    "f_fidelity_minus": Metric("lower", "fall of the accuracy, some of the other units hidden", "Zheng et al. 2025"),
    "precision_at_k": Metric("higher", "share of the k best tokens that are in the answer", "Song et al. 2024"),
    "pooled_recall_at_k": Metric("higher", "share of all answers' tokens among the k best", "Song et al. 2024"),
    "conservation_correlation": Metric("higher", "correlation of sum R and y", "Ali et al. 2022"),
    "conservation_gap": Metric("lower", "mean |sum R - y| in units of mean |y|", "Ali et al. 2022"),
    "conservation_wrong_sign": Metric("lower", "share of examples where sum R has another sign than y", "relprop"),
    "conservation_median_miss": Metric("lower", "median of |sum R - y| / |y|", "relprop"),
    "randomised_spearman": Metric("lower", "rank correlation with a random model's scores", "Adebayo et al. 2018"),
    "randomised_spearman_absolute": Metric("lower", "the same of absolute scores", "Adebayo et al. 2018"),
    "class_pearson": Metric("lower", "correlation of two classes' maps", "Chefer et al. 2021"),
    "class_spearman": Metric("lower", "rank correlation of two classes' maps", "Chefer et al. 2021"),
}

R = TypeVar("R")


def merged(parts: Iterable[R]) -> R:
    """One result with the examples of all results, in order; fields that are not per example must be equal in all."""
    results: list[Any] = list(parts)
    if not results:
        raise InputError("there is no result to merge")
    joined = {}
    for field in fields(results[0]):
        values = [getattr(result, field.name) for result in results]
        if all(isinstance(value, np.ndarray) for value in values):
            joined[field.name] = np.concatenate(values)
        elif any(isinstance(value, np.ndarray) or value != values[0] for value in values):
            raise InputError(f"results that differ in {field.name} cannot be merged")
    whole: R = replace(results[0], **joined)
    return whole
