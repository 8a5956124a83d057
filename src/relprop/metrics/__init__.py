"""How good are scores? Functions of a model, inputs and scores: they never know which method made the scores."""

from relprop.metrics.classes import ClassSensitivity, class_sensitivity
from relprop.metrics.hiding import Hidden, logits_without
from relprop.metrics.perturbation import Perturbation, normalise, pixel_perturbation, pixel_perturbations
from relprop.metrics.pointing import Pointing, pointing_game
from relprop.metrics.results import METRICS, Metric, merged
from relprop.metrics.segmentation import Segmentation, average_precision, segment
from relprop.metrics.segmentation_data import Example, read_folder, read_imagenet_segmentation

__all__ = [
    "METRICS",
    "ClassSensitivity",
    "Example",
    "Hidden",
    "Metric",
    "Perturbation",
    "Pointing",
    "Segmentation",
    "average_precision",
    "class_sensitivity",
    "logits_without",
    "merged",
    "normalise",
    "pixel_perturbation",
    "pixel_perturbations",
    "pointing_game",
    "read_folder",
    "read_imagenet_segmentation",
    "segment",
]
