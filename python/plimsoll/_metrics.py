"""Scores of segmentations in arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _plimsoll
from ._arrays import Array, Mask, as_array, ledger_of, threads_of, tolerance_of
from ._memory import Budget

if TYPE_CHECKING:
    import pandas

Group = Literal["overlap", "surface", "topology", "lesion"]
Surface = Literal["elements", "voxels"]

GROUPS: tuple[Group, ...] = ("overlap", "surface", "topology", "lesion")


class SurfaceDistances(NamedTuple):
    """Distances between the surfaces of two masks, in the unit of the spacing.

    Attributes
    ----------
    hausdorff : float
        The largest distance. Infinite if one mask is empty, NaN if both are.
    hausdorff_95 : float
        The greater 95th percentile of both directions.
    average_symmetric : float
        The mean over both surfaces (ASSD).
    average_from_prediction, average_from_reference : float
        The means of both directions.
    surface_dice : float
        The share of both surfaces within the tolerance of the other (NSD).
    """

    hausdorff: float
    hausdorff_95: float
    average_symmetric: float
    average_from_prediction: float
    average_from_reference: float
    surface_dice: float


class Scores(Mapping[int, dict[str, float]]):
    """The scores of each label, by the names of nnU-Net's ``summary.json``. An undefined score is NaN."""

    def __init__(self, scores: dict[int, dict[str, float]]) -> None:
        self._scores = scores

    def __getitem__(self, label: int) -> dict[str, float]:
        return self._scores[label]

    def __iter__(self) -> Iterator[int]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)

    def __repr__(self) -> str:
        return f"Scores({self._scores!r})"

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a table with a row for each label and a column for each score. Needs pandas."""
        import pandas

        table = pandas.DataFrame.from_dict(self._scores, orient="index")
        table.index.name = "label"
        return table


def score_arrays(
    pred: npt.ArrayLike,
    ref: npt.ArrayLike,
    spacing: float | npt.ArrayLike | None,
    labels: Iterable[int] | None,
    metrics: Group | Literal["all"] | Sequence[Group],
    *,
    surface: Surface,
    tolerance: float,
    ignore: int | None,
    threads: int | None,
    budget: Budget | None,
) -> Scores:
    """Score a label map against a reference, as `evaluate` does."""
    ledger, threads, surface = ledger_of(budget), threads_of(threads), surface_of(surface)
    prediction, reference = _maps(pred, ref, budget)
    if labels is None:
        present = np.union1d(np.unique(prediction.voxels), np.unique(reference.voxels))
        chosen = [int(label) for label in present if label not in (0, ignore)]
    else:
        chosen = [_label(label, "labels") for label in labels]
    groups = groups_of(metrics)
    tolerance = tolerance_of(tolerance)
    scores = _plimsoll.score(
        prediction.voxels,
        reference.voxels,
        prediction.spacing(spacing, "spacing"),
        chosen,
        groups,
        surface,
        tolerance,
        None if ignore is None else _label(ignore, "ignore"),
        ledger,
        threads,
    )
    named = {
        label: {name: float("nan") if score is None else score for name, score in found.items()}
        for label, found in scores.items()
    }
    return Scores(named)


def surface_distances(
    pred: npt.ArrayLike,
    ref: npt.ArrayLike,
    spacing: float | npt.ArrayLike | None = None,
    *,
    surface: Surface = "elements",
    tolerance: float = 1.0,
    threads: int | None = None,
    budget: Budget | None = None,
) -> SurfaceDistances:
    """Measure the distances between the surfaces of two masks.

    Parameters
    ----------
    pred, ref : array_like
        Masks of integers or booleans, of the same shape with 2 or 3 axes. Every label but 0 is foreground.
    spacing, surface, tolerance, threads, budget
        As in `evaluate`.

    Returns
    -------
    SurfaceDistances
    """
    ledger, threads, tolerance = ledger_of(budget), threads_of(threads), tolerance_of(tolerance)
    prediction, reference = (as_array(value, name) != 0 for value, name in ((pred, "pred"), (ref, "ref")))
    first, second = _maps(prediction, reference, budget)
    numbers = first.spacing(spacing, "spacing")
    surface = surface_of(surface)
    found = _plimsoll.measure_surfaces(first.voxels, second.voxels, numbers, surface, tolerance, ledger, threads)
    return SurfaceDistances(*found)


def surface_of(surface: Surface) -> Surface:
    """Return a definition of surfaces."""
    if surface not in ("elements", "voxels"):
        raise ValueError(f"surface is {surface!r}, but must be 'elements' or 'voxels'")
    return surface


def _maps(pred: npt.ArrayLike, ref: npt.ArrayLike, budget: Budget | None) -> tuple[Mask, Mask]:
    """Return two label maps of bytes in C order."""
    arrays = [as_array(value, name) for value, name in ((pred, "pred"), (ref, "ref"))]
    if arrays[0].shape != arrays[1].shape:
        raise ValueError(f"pred has the shape {arrays[0].shape}, but ref has {arrays[1].shape}")
    prediction, reference = (
        Mask(_bytes(array, name), name, budget, any_order=False)
        for array, name in zip(arrays, ("pred", "ref"), strict=True)
    )
    return prediction, reference


def _bytes(array: Array, name: str) -> Array:
    """Return labels as bytes."""
    if array.dtype.itemsize == 1 and array.dtype != np.int8:
        return array
    if array.size > 0 and (int(array.min()) < 0 or int(array.max()) > 255):
        raise ValueError(f"{name} has labels from {int(array.min())} to {int(array.max())}; 0 to 255 are supported")
    return array.astype(np.uint8)


def _label(label: Any, name: str) -> int:
    number = int(label)
    if number != label or not 0 <= number <= 255:
        raise ValueError(f"{name} has {label!r}; labels are integers from 0 to 255")
    return number


def groups_of(metrics: Group | Literal["all"] | Sequence[Group]) -> list[str]:
    """Return the names of groups of scores."""
    if metrics == "all":
        return list(GROUPS)
    if not isinstance(metrics, Iterable):
        raise TypeError(f"metrics must be a name or a sequence of names, not {type(metrics).__name__}")
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        raise ValueError(f"metrics has {unknown[0]!r}, but must be of {', '.join(GROUPS)} or 'all'")
    return [str(name) for name in names]
