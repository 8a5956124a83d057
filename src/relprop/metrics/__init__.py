"""How good are scores? Functions of a model, inputs and scores; none knows the method that computed the scores."""

from relprop.metrics.ceiling import ceiling, greedy_scores, limits
from relprop.metrics.class_sensitivity import ClassSensitivity, class_sensitivity
from relprop.metrics.conservation import Conservation, conservation
from relprop.metrics.curves import Curve
from relprop.metrics.f_fidelity import FFidelity, f_fidelity
from relprop.metrics.hidden_units import Hidden, logits_without
from relprop.metrics.hiding_plans import FAITHFULNESS, HidingPlan, plan
from relprop.metrics.metric_table import METRICS, Metric, merged
from relprop.metrics.nodes import Nodes
from relprop.metrics.pixel_perturbation import Perturbation, normalise, pixel_perturbation, pixel_perturbations
from relprop.metrics.pointing_game import Pointing, pointing_game
from relprop.metrics.randomisation import Randomisation, model_randomisation
from relprop.metrics.rationales import (
    MarkedWords,
    PrecisionAtK,
    TokenF1,
    marked_words,
    precision_at_k,
    token_f1,
    word_scores,
)
from relprop.metrics.segmentation import Segmentation, average_precision, relevance_mass, segment
from relprop.metrics.segmentation_data import SegmentedPicture, read_folder, read_imagenet_segmentation
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

Plan, Example = HidingPlan, SegmentedPicture  # their names before version 0.2

__all__ = [
    "FAITHFULNESS",
    "METRICS",
    "ClassSensitivity",
    "Conservation",
    "Curve",
    "FFidelity",
    "Hidden",
    "HidingPlan",
    "MarkedWords",
    "Metric",
    "Nodes",
    "Perturbation",
    "Pointing",
    "PrecisionAtK",
    "Randomisation",
    "Segmentation",
    "SegmentedPicture",
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
    "f_fidelity",
    "faithfulness",
    "greedy_scores",
    "limits",
    "log_odds",
    "logits_without",
    "marked_words",
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
