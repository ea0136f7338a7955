"""Medical-image networks, geometry and scores inside a memory limit."""

from typing import TYPE_CHECKING

from ._errors import Error, InternalError, OverLimit
from ._memory import Budget, Holder, memory
from ._plimsoll import __version__

if TYPE_CHECKING:
    from ._classify import Classification, classify
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
    from ._interactive import InteractiveSession
    from ._jobs import Inspection, Sweep, inspect, plan, sweep, train, write_phantoms
    from ._machine import Machine, MemoryLimit, doctor
    from ._metrics import Scores, SurfaceDistances, surface_distances
    from ._model import Model, Plan
    from ._models import ImportedModels, ShownModel, export, import_models, show_models, verify_model
    from ._plan import PatchCost, RunPlan, RunPoint, WayOut
    from ._postprocess import (
        DiceGain,
        Postprocessing,
        PostprocessingChoice,
        ProcessedFile,
        choose_postprocessing,
        postprocess,
    )
    from ._run import Fold, Run, Status
    from ._segment import segment, segmentation_labels
    from ._sliding_window import sliding_window
else:
    #: The modules of names that are imported when they are first used, so that `import plimsoll` stays short.
    _MODULES = {
        "_classify": ("Classification", "classify"),
        "_estimate": ("Checkpoint", "CurvePoint", "Estimate", "estimate"),
        "_evaluate": ("CaseScores", "Comparison", "Evaluation", "compare", "evaluate"),
        "_events": ("EpochEnd", "Event", "Message", "Planned", "Progress"),
        "_find_bin": ("find_plimsoll_bin",),
        "_geometry": (
            "BettiNumbers",
            "betti_numbers",
            "connected_components",
            "distance_transform",
            "fill_holes",
            "largest_component",
            "skeletonize",
        ),
        "_interactive": ("InteractiveSession",),
        "_jobs": ("Inspection", "Sweep", "inspect", "plan", "sweep", "train", "write_phantoms"),
        "_machine": ("Machine", "MemoryLimit", "doctor"),
        "_metrics": ("Scores", "SurfaceDistances", "surface_distances"),
        "_model": ("Model", "Plan"),
        "_models": ("ImportedModels", "ShownModel", "export", "import_models", "show_models", "verify_model"),
        "_plan": ("PatchCost", "RunPlan", "RunPoint", "WayOut"),
        "_postprocess": (
            "DiceGain",
            "Postprocessing",
            "PostprocessingChoice",
            "ProcessedFile",
            "choose_postprocessing",
            "postprocess",
        ),
        "_run": ("Fold", "Run", "Status"),
        "_segment": ("segment", "segmentation_labels"),
        "_sliding_window": ("sliding_window",),
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

    def __getattr__(name: str) -> object:
        """Import a public name from its module."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Return all names, those that are not imported yet too."""
        return sorted({*globals(), *__all__})


__all__ = [
    "BettiNumbers",
    "Budget",
    "CaseScores",
    "Checkpoint",
    "Classification",
    "Comparison",
    "CurvePoint",
    "DiceGain",
    "EpochEnd",
    "Error",
    "Estimate",
    "Evaluation",
    "Event",
    "Fold",
    "Holder",
    "ImportedModels",
    "Inspection",
    "InteractiveSession",
    "InternalError",
    "Machine",
    "MemoryLimit",
    "Message",
    "Model",
    "OverLimit",
    "PatchCost",
    "Plan",
    "Planned",
    "Postprocessing",
    "PostprocessingChoice",
    "ProcessedFile",
    "Progress",
    "Run",
    "RunPlan",
    "RunPoint",
    "Scores",
    "ShownModel",
    "Status",
    "SurfaceDistances",
    "Sweep",
    "WayOut",
    "__version__",
    "betti_numbers",
    "choose_postprocessing",
    "classify",
    "compare",
    "connected_components",
    "distance_transform",
    "doctor",
    "estimate",
    "evaluate",
    "export",
    "fill_holes",
    "find_plimsoll_bin",
    "import_models",
    "inspect",
    "largest_component",
    "memory",
    "plan",
    "postprocess",
    "segment",
    "segmentation_labels",
    "show_models",
    "skeletonize",
    "sliding_window",
    "surface_distances",
    "sweep",
    "train",
    "verify_model",
    "write_phantoms",
]
