"""Exact geometry and scores of medical images inside a memory limit."""

from ._errors import Error, InternalError, OverLimit
from ._geometry import (
    BettiNumbers,
    betti_numbers,
    connected_components,
    distance_transform,
    fill_holes,
    largest_component,
    skeletonize,
)
from ._memory import Budget, Holder, memory
from ._metrics import Scores, SurfaceDistances, evaluate, surface_distances
from ._model import Model, Plan
from ._plimsoll import __version__
from ._segment import segment, segmentation_labels
from ._sliding_window import sliding_window

__all__ = [
    "BettiNumbers",
    "Budget",
    "Error",
    "Holder",
    "InternalError",
    "Model",
    "OverLimit",
    "Plan",
    "Scores",
    "SurfaceDistances",
    "__version__",
    "betti_numbers",
    "connected_components",
    "distance_transform",
    "evaluate",
    "fill_holes",
    "largest_component",
    "memory",
    "segment",
    "segmentation_labels",
    "skeletonize",
    "sliding_window",
    "surface_distances",
]
