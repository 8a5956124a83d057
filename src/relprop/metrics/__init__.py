"""How good are scores? Functions of a model, inputs and scores: they never know which method made the scores."""

from relprop.metrics.ceiling import ceiling, greedy_scores
from relprop.metrics.classes import ClassSensitivity, class_sensitivity
from relprop.metrics.conserved import Conservation, conservation
from relprop.metrics.curves import Curve
from relprop.metrics.hiding import Hidden, logits_without
from relprop.metrics.nodes import Nodes, relevance_mass
from relprop.metrics.perturbation import Perturbation, normalise, pixel_perturbation, pixel_perturbations
from relprop.metrics.plans import FAITHFULNESS, Plan, plan
from relprop.metrics.pointing import Pointing, pointing_game
from relprop.metrics.randomisation import Randomisation, model_randomisation
from relprop.metrics.rationales import PrecisionAtK, TokenF1, precision_at_k, token_f1, word_scores
from relprop.metrics.results import METRICS, Metric, merged
from relprop.metrics.segmentation import Segmentation, average_precision, segment
from relprop.metrics.segmentation_data import Example, read_folder, read_imagenet_segmentation
from relprop.metrics.token_perturbation import (
    aopc,
    au_mse,
    auac,
    comprehensiveness,
    faithfulness,
    log_odds,
    sufficiency,
)
from relprop.metrics.tokens import Tokens, token_logits

__all__ = [
    "FAITHFULNESS",
    "METRICS",
    "ClassSensitivity",
    "Conservation",
    "Curve",
    "Example",
    "Hidden",
    "Metric",
    "Nodes",
    "Perturbation",
    "Plan",
    "Pointing",
    "PrecisionAtK",
    "Randomisation",
    "Segmentation",
    "TokenF1",
    "Tokens",
    "aopc",
    "au_mse",
    "auac",
    "average_precision",
    "ceiling",
    "class_sensitivity",
    "comprehensiveness",
    "conservation",
    "faithfulness",
    "greedy_scores",
    "log_odds",
    "logits_without",
    "merged",
    "model_randomisation",
    "normalise",
    "pixel_perturbation",
    "pixel_perturbations",
    "plan",
    "pointing_game",
    "precision_at_k",
    "read_folder",
    "read_imagenet_segmentation",
    "relevance_mass",
    "segment",
    "sufficiency",
    "token_f1",
    "token_logits",
    "word_scores",
]
