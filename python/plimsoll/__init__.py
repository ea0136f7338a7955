"""Medical-image networks, geometry and scores inside a memory limit."""

from ._classify import Classification, classify
from ._errors import Error, InternalError, OverLimit
from ._estimate import Checkpoint, CurvePoint, Estimate, estimate
from ._evaluate import CaseScores, Comparison, Evaluation, compare, evaluate
from ._events import EpochEnd, Event, Message, Planned, Progress
from ._find_bin import find_plimsoll_bin
from ._geometry import (
    BettiNumbers,
    betti_numbers,
    connected_components,
    distance_transform,
    fill_holes,
    largest_component,
    skeletonize,
)
from ._jobs import Inspection, Sweep, export, inspect, plan, sweep, train, write_phantoms
from ._memory import Budget, Holder, memory
from ._metrics import Scores, SurfaceDistances, surface_distances
from ._model import Model, Plan
from ._plan import PatchCost, RunPlan, RunPoint, WayOut
from ._plimsoll import __version__
from ._run import Fold, Run, Status
from ._segment import segment, segmentation_labels
from ._sliding_window import sliding_window

__all__ = [
    "BettiNumbers",
    "Budget",
    "CaseScores",
    "Checkpoint",
    "Classification",
    "Comparison",
    "CurvePoint",
    "EpochEnd",
    "Error",
    "Estimate",
    "Evaluation",
    "Event",
    "Fold",
    "Holder",
    "Inspection",
    "InternalError",
    "Message",
    "Model",
    "OverLimit",
    "PatchCost",
    "Plan",
    "Planned",
    "Progress",
    "Run",
    "RunPlan",
    "RunPoint",
    "Scores",
    "Status",
    "SurfaceDistances",
    "Sweep",
    "WayOut",
    "__version__",
    "betti_numbers",
    "classify",
    "compare",
    "connected_components",
    "distance_transform",
    "estimate",
    "evaluate",
    "export",
    "fill_holes",
    "find_plimsoll_bin",
    "inspect",
    "largest_component",
    "memory",
    "plan",
    "segment",
    "segmentation_labels",
    "skeletonize",
    "sliding_window",
    "surface_distances",
    "sweep",
    "train",
    "write_phantoms",
]
