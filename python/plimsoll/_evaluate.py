"""Scores of predictions in memory and in files, and comparisons of models."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy.typing as npt

from ._arrays import tolerance_of
from ._call import Memory, PathLike, as_bytes, as_path, call, names_of, optional_path, paths_of, plain
from ._events import Callbacks
from ._memory import Budget
from ._metrics import Group, Scores, Surface, groups_of, score_arrays

if TYPE_CHECKING:
    import pandas

Missing = Literal["ignore", "worst", "diagonal"]


class CaseScores(NamedTuple):
    """The scores of a case.

    Attributes
    ----------
    prediction_file, reference_file : str
        The files that were compared.
    scores : Scores
        The scores of each label.
    """

    prediction_file: str
    reference_file: str
    scores: Scores


class Evaluation:
    """The scores of predictions in files: of each case, and their means.

    Attributes
    ----------
    cases : list of CaseScores
        The scores of each case.
    mean : Scores
        The mean over cases for each label.
    foreground_mean : dict of str to float
        The mean over foreground labels of these means.
    names : dict of int to str
        The names of labels, where the data set has them.
    summary : dict
        The whole summary in the format of nnU-Net's ``summary.json``.
    """

    def __init__(self, summary: Mapping[str, Any], names: Mapping[str, str] | None = None) -> None:
        self.summary = summary
        self.names = {int(label): name for label, name in (names or {}).items()}
        self.foreground_mean = _numbers(summary["foreground_mean"])
        self.mean = _scores(summary["mean"])
        self.cases = [
            CaseScores(case["prediction_file"], case["reference_file"], _scores(case["metrics"]))
            for case in summary["metric_per_case"]
        ]

    @classmethod
    def read(cls, path: PathLike) -> Evaluation:
        """Read a ``summary.json`` of Plimsoll or nnU-Net."""
        return cls(json.loads(Path(path).read_text(encoding="utf-8")))

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a table with a row for each case and label, and a column for each score. Needs pandas."""
        import pandas

        rows = [
            {"case": Path(case.prediction_file).name, "label": label, "name": self.names.get(label), **scores}
            for case in self.cases
            for label, scores in case.scores.items()
        ]
        table = pandas.DataFrame(rows)
        return table if table.empty else table.set_index(["case", "label"])

    def __repr__(self) -> str:
        dice = self.foreground_mean.get("Dice", float("nan"))
        return f"<Evaluation of {len(self.cases)} cases and {len(self.mean)} labels: mean Dice {dice:.4f}>"


@overload
def evaluate(  # type: ignore[overload-overlap]
    pred: PathLike,
    ref: PathLike,
    spacing: None = None,
    labels: Iterable[int | str] | str | None = None,
    metrics: Group | Literal["all"] | Sequence[Group] = "overlap",
    *,
    surface: Surface = "elements",
    tolerance: float = 1.0,
    ignore: int | None = None,
    threads: int | None = None,
    lesion_overlap: float = 0.0,
    missing: Missing = "ignore",
    partial: bool = False,
    part: str | None = None,
    output: PathLike | None = None,
    images: PathLike | None = None,
    pictures: PathLike | None = None,
    unit: Literal["um", "mm", "m"] | None = None,
    config: PathLike | None = None,
    allow_outside: bool = False,
    ram: Memory = None,
    callbacks: Callbacks = None,
    progress: bool | None = None,
    **settings: Any,
) -> Evaluation: ...
@overload
def evaluate(
    pred: npt.ArrayLike,
    ref: npt.ArrayLike,
    spacing: float | npt.ArrayLike | None = None,
    labels: Iterable[int] | None = None,
    metrics: Group | Literal["all"] | Sequence[Group] = "overlap",
    *,
    surface: Surface = "elements",
    tolerance: float = 1.0,
    ignore: int | None = None,
    threads: int | None = None,
    budget: Budget | None = None,
) -> Scores: ...
def evaluate(
    pred: Any,
    ref: Any,
    spacing: Any = None,
    labels: Any = None,
    metrics: Any = "overlap",
    *,
    surface: Surface = "elements",
    tolerance: float = 1.0,
    ignore: int | None = None,
    threads: int | None = None,
    **options: Any,
) -> Scores | Evaluation:
    """Score label maps against references.

    Parameters
    ----------
    pred, ref : array_like or path
        Two label maps of integers or booleans from 0 to 255, of the same shape with 2 or 3 axes; two files; or a folder
        of predictions and a folder or data set of references.
    spacing : float or sequence of float, optional
        The distance between voxels along each axis of arrays, in millimetres; 1 by default. Files have their own.
    labels : iterable of int or str, optional
        The labels to score. By default, of arrays all but 0 and `ignore`; of files all of the data set. In files,
        names of the data set are allowed, and ``"1+2"`` scores two labels as one.
    metrics : str or sequence of str, optional
        Groups of scores: ``"overlap"``, ``"surface"``, ``"topology"``, ``"lesion"``, or ``"all"``.
    surface : {"elements", "voxels"}, optional
        The definition of a surface: DeepMind's surface elements, or MONAI's edge voxels.
    tolerance : float, optional
        The tolerance of the normalised surface distance in millimetres.
    ignore : int, optional
        The label of the reference whose voxels are not annotated; no score counts them.
    threads : int, optional
        The number of threads; all processors by default.
    budget : Budget, optional
        Arrays only: the budget for working memory.
    lesion_overlap : float, optional
        Files only: the share of a lesion that must be covered for it to be found; 0 for any voxel.
    missing : {"ignore", "worst", "diagonal"}, optional
        Files only: the treatment, in means, of scores that are undefined because one side lacks a class.
    partial : bool, optional
        Files only: leave out references without a prediction.
    part : str, optional
        Files only: the part of the cases to score, like ``"2/4"``; by default all. It needs `output`. Several processes
        score the parts, and the last one to finish merges their scores into `output`; the others return the scores of
        their part.
    output : path, optional
        Files only: the file of the scores, with a table and plots beside it. By default none is written.
    images, pictures : path, optional
        Files only: the folder of images, and a folder into which a picture of each case is written.
    unit : {"um", "mm", "m"}, optional
        Files only: the unit of lengths in headers, whatever they state.
    config, allow_outside, ram, callbacks, progress, **settings
        Files only: as for `inspect`.

    Returns
    -------
    Scores or Evaluation
        Of arrays a mapping of labels to scores by name; of files the scores of all cases and their means.

    Raises
    ------
    Error
        If a file cannot be read, or a reference has no prediction.
    OverLimit
        If memory does not suffice.
    TypeError, ValueError
        If an argument is wrong.

    Examples
    --------
    >>> plimsoll.evaluate(pred, ref, spacing=(3, 1, 1), metrics="all")[1]["Dice"]
    0.93
    >>> plimsoll.evaluate("labels", "Dataset001_Aorta/labelsTs").foreground_mean["Dice"]
    0.91
    """
    common: dict[str, Any] = {"surface": surface, "tolerance": tolerance, "ignore": ignore, "threads": threads}
    are_paths = [isinstance(value, (str, os.PathLike)) for value in (pred, ref)]
    if not any(are_paths):
        unknown = [name for name in options if name != "budget"]
        if unknown:
            raise TypeError(f"{unknown[0]} is an argument for files, but pred and ref are arrays")
        return score_arrays(pred, ref, spacing, labels, metrics, **common, budget=options.get("budget"))
    if not all(are_paths):
        raise TypeError("pred and ref must both be arrays or both be paths")
    if spacing is not None:
        raise ValueError("spacing is an argument for arrays: files have their own")
    if "budget" in options:
        raise TypeError("budget is an argument for arrays; ram limits the memory for files")
    return _score_files(pred, ref, labels, metrics, **common, **options)


def _score_files(
    pred: PathLike,
    ref: PathLike,
    labels: Any,
    metrics: Any,
    *,
    surface: Surface,
    tolerance: float,
    ignore: int | None,
    threads: int | None,
    lesion_overlap: float = 0.0,
    missing: Missing = "ignore",
    partial: bool = False,
    part: str | None = None,
    output: PathLike | None = None,
    images: PathLike | None = None,
    pictures: PathLike | None = None,
    unit: str | None = None,
    config: PathLike | None = None,
    allow_outside: bool = False,
    ram: Memory = None,
    callbacks: Callbacks = None,
    progress: bool | None = None,
    **settings: Any,
) -> Evaluation:
    if part is not None and output is None:
        raise ValueError("part needs output, into which the scores of all parts are merged")
    arguments = {
        "predictions": as_path(pred, "pred"),
        "references": as_path(ref, "ref"),
        "labels": None if labels is None else names_of(labels, "labels"),
        "metrics": groups_of(metrics),
        "surface": surface,
        "tolerance": tolerance_of(tolerance),
        "lesion_overlap": lesion_overlap,
        "missing": missing,
        "ignore": ignore,
        "unit": unit,
        "settings": plain(settings, ""),
        "config": optional_path(config, "config"),
        "allow_outside": allow_outside,
        "partial": partial,
        "part": part,
        "images": optional_path(images, "images"),
        "pictures": optional_path(pictures, "pictures"),
        "output": optional_path(output, "output"),
        "ram": as_bytes(ram, "ram"),
        "threads": threads,
    }
    result = call("evaluate", arguments, callbacks=callbacks, progress=progress)
    return Evaluation(result["summary"], result["names"])


class Comparison:
    """A comparison of models that were scored on the same cases.

    Attributes
    ----------
    candidates : list of str
        The names of the candidates.
    cases : list of str
        The cases that were compared.
    scores : list of dict
        The comparison score by score: means, differences with intervals and tests, the ranking and its stability.
    choice : dict or None
        The choice by the first score: ``candidate`` and ``words``.
    numbers : dict
        All numbers, as ``plimsoll compare --json`` prints them.
    """

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.numbers = result
        comparison = result.get("with_ensembles") or result
        self.candidates = [candidate["name"] for candidate in comparison["candidates"]]
        self.cases: list[str] = comparison["cases"]
        self.scores: list[dict[str, Any]] = comparison["scores"]
        self.choice: dict[str, Any] | None = self.scores[0].get("choice") if self.scores else None

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a table with a row for each pair of candidates, class and score. Needs pandas."""
        import pandas

        rows = [
            {"score": score["metric"], **difference} for score in self.scores for difference in score["differences"]
        ]
        return pandas.json_normalize(rows)

    def __repr__(self) -> str:
        words = "" if self.choice is None else f"; {self.choice['words']}"
        return f"<Comparison of {', '.join(self.candidates)} on {len(self.cases)} cases{words}>"


def compare(
    candidates: PathLike | Sequence[PathLike],
    *more: PathLike,
    metric: str | Sequence[str] = (),
    labels: int | str | Sequence[int | str] = (),
    common_cases: bool = False,
    several_labels: bool = False,
    missing: Missing | None = None,
    resamples: int = 10000,
    seed: int = 0,
    csv: PathLike | None = None,
    picture: PathLike | None = None,
    ensembles: PathLike | None = None,
    data: PathLike | None = None,
    allow_outside: bool = False,
    ram: Memory = None,
    threads: int | None = None,
    device: str = "cpu",
    vram: Memory = None,
    callbacks: Callbacks = None,
    progress: bool | None = None,
) -> Comparison:
    """Compare models by the scores of the same cases.

    Parameters
    ----------
    candidates, *more : path or sequence of path
        Folders of runs, folds, sweeps or scored predictions, and files ``summary.json``.
    metric : str or sequence of str, optional
        Scores by name, or ``"all"``; Dice by default, of classifiers accuracy and AUROC.
    labels : int, str or sequence, optional
        Classes by number or name; all by default.
    common_cases : bool, optional
        Compare the cases that all candidates have, instead of requiring the same.
    several_labels : bool, optional
        The images of tables have any number of labels.
    missing : {"ignore", "worst", "diagonal"}, optional
        The treatment of undefined scores; ``"worst"`` by default.
    resamples, seed : int, optional
        Resamples of cases for intervals, and their seed.
    csv, picture : path, optional
        A table and a picture that are written.
    ensembles : path, optional
        A folder for ensembles of two, which are predicted and ranked as well.
    data : path, optional
        The data set that the candidates were trained on, for `ensembles`.
    allow_outside, ram, threads, device, vram, callbacks, progress
        As for `train`.

    Returns
    -------
    Comparison

    Raises
    ------
    Error
        If candidates have no scores or not the same cases.

    Examples
    --------
    >>> plimsoll.compare("runs/small", "runs/large", metric="dice").choice["words"]
    """
    arguments = {
        "candidates": [*paths_of(candidates, "candidates"), *paths_of(more, "candidates")],
        "metric": names_of(metric, "metric"),
        "class": names_of(labels, "labels"),
        "common_cases": common_cases,
        "several_labels": several_labels,
        "missing": missing,
        "resamples": resamples,
        "seed": seed,
        "csv": optional_path(csv, "csv"),
        "picture": optional_path(picture, "picture"),
        "ensembles": optional_path(ensembles, "ensembles"),
        "data": optional_path(data, "data"),
        "allow_outside": allow_outside,
        "machine": {
            "ram": as_bytes(ram, "ram"),
            "threads": threads,
            "device": device,
            "vram": as_bytes(vram, "vram"),
        },
    }
    return Comparison(call("compare", arguments, callbacks=callbacks, progress=progress))


def _numbers(scores: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float("nan") if score is None else float(score) for name, score in scores.items()}


def _scores(by_label: Mapping[str, Mapping[str, float | None]]) -> Scores:
    return Scores({int(label): _numbers(scores) for label, scores in by_label.items()})
