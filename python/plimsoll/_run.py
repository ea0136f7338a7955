"""Runs on disk: their state, their curves, their scores, and pages about them."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ._call import Memory, PathLike, as_bytes, as_path, call, optional_path
from ._evaluate import Evaluation

if TYPE_CHECKING:
    import pandas

Numbers = npt.NDArray[Any]
FoldName = int | Literal["all"]


class Status(NamedTuple):
    """The state and the progress of a fold.

    Attributes
    ----------
    fold : str
        The name of the fold.
    state : {"running", "ended", "died"}
        A process trains it; the last process ended in order; or the last process ended without an error message.
    why : str or None
        Why the last process ended: ``"finished"``, ``"early"``, ``"signal"`` or ``"error"``.
    detail : str
        More about it, such as the error.
    epochs_done, epochs : int
        Finished epochs, and epochs of the run.
    seconds_left : float or None
        The time left by the last epochs.
    resident : int or None
        The resident memory at the last sample in bytes.
    planned, ram : int or None
        The planned memory and the memory limit in bytes.
    last_warning : str or None
        The last warning.
    """

    fold: str
    state: Literal["running", "ended", "died"]
    why: str | None
    detail: str
    epochs_done: int
    epochs: int
    seconds_left: float | None
    resident: int | None
    planned: int | None
    ram: int | None
    last_warning: str | None


@dataclass(frozen=True)
class Fold:
    """A fold of a run.

    Attributes
    ----------
    folder : str
        Its folder.
    status : Status
        Its state.
    metrics : dict of str to ndarray
        The numbers of each epoch by name: ``epoch``, ``steps``, ``learning_rate``, ``train_loss``, ``validation_loss``,
        ``mean_pseudo_dice``, ``pseudo_dice`` (epochs × classes), ``seconds``, ``peak_resident_bytes`` and others. A
        missing number is NaN.
    """

    folder: str
    status: Status
    metrics: Mapping[str, Numbers]
    _record: str
    _validation: str

    @property
    def record(self) -> dict[str, Any] | None:
        """The record of its last process, as in ``run.json``; `None` before the first has ended."""
        return _json(self._record)

    @property
    def validation(self) -> Evaluation | None:
        """The scores of its validation cases, predicted whole; `None` before they are validated."""
        summary = Path(self._validation) / "summary.json"
        return Evaluation.read(summary) if summary.is_file() else None


class Run:
    """A run on disk, which this process or another one trains or has trained.

    Every access reads the files of the run, so that a running training can be observed.

    Parameters
    ----------
    path : path
        The folder of the run, of one of its folds, or of a sweep.

    Attributes
    ----------
    path : str
        The folder.
    result : dict or None
        The result of the training that returned this object, as ``plimsoll train --json`` prints it.

    Raises
    ------
    Error
        If the folder holds no run.

    Examples
    --------
    >>> run = plimsoll.Run("runs/aorta")
    >>> run.metrics["train_loss"]
    array([1.21, 0.83, 0.64])
    """

    def __init__(self, path: PathLike, *, result: Mapping[str, Any] | None = None) -> None:
        self.path = as_path(path, "path")
        self.result = result
        self._read()

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = call("read_run", {"path": self.path})
        return found

    @property
    def folds(self) -> dict[str, Fold]:
        """The folds that are begun, by name; of a sweep by their folders in it."""
        folds = [_fold(found) for found in self._read()["folds"]]
        names = [fold.status.fold for fold in folds]
        if len(set(names)) < len(names):
            names = [Path(os.path.relpath(fold.folder, self.path)).as_posix() for fold in folds]
        return dict(zip(names, folds, strict=True))

    @property
    def metrics(self) -> Mapping[str, Numbers]:
        """The numbers of each epoch of the run's only fold, as in `Fold.metrics`.

        Raises
        ------
        ValueError
            If several folds are begun: ``run.folds["0"].metrics`` names one.
        """
        folds = self.folds
        if len(folds) != 1:
            first = next(iter(folds))
            raise ValueError(f"the run has the folds {', '.join(folds)}; choose one: run.folds[{first!r}].metrics")
        return next(iter(folds.values())).metrics

    @property
    def status(self) -> list[Status]:
        """The states of its folds."""
        return [fold.status for fold in self.folds.values()]

    @property
    def scores(self) -> dict[str, Any] | None:
        """The scores over all validated folds; `None` if fewer than two are validated."""
        return _json(self._read()["scores"])

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a table with a row for each fold and epoch. Needs pandas."""
        import pandas

        tables = []
        for name, fold in self.folds.items():
            columns = {key: values for key, values in fold.metrics.items() if values.ndim == 1}
            for key, values in fold.metrics.items():
                if values.ndim == 2:
                    columns.update({f"{key}_{place + 1}": values[:, place] for place in range(values.shape[1])})
            tables.append(pandas.DataFrame(columns).assign(fold=name))
        return pandas.concat(tables, ignore_index=True).set_index(["fold", "epoch"])

    def report(
        self,
        output: PathLike,
        *,
        dataset: PathLike | None = None,
        allow_outside: bool = False,
        cases: int = 3,
        volumes: int = 0,
        ram: Memory = None,
    ) -> str:
        """Write a page about the run, which needs no network to be read.

        Parameters
        ----------
        output : path
            The file of the page.
        dataset : path, optional
            The data set, for pictures of cases; by default the one that the run was trained on.
        allow_outside : bool, optional
            Let lists name files outside of the data set's folder.
        cases, volumes : int, optional
            The number of the worst cases that have pictures, and of the best; and of those with volumes to turn.
        ram : str or int, optional
            The memory limit.

        Returns
        -------
        str
            The file of the page.
        """
        arguments = {
            "run": self.path,
            "output": as_path(output, "output"),
            "dataset": optional_path(dataset, "dataset"),
            "allow_outside": allow_outside,
            "cases": cases,
            "volumes": volumes,
            "ram": as_bytes(ram, "ram"),
        }
        page: str = call("report", arguments)["page"]
        return page

    def __repr__(self) -> str:
        states = ", ".join(f"fold {status.fold} {_state(status)}" for status in self.status)
        return f"<Run {self.path}: {states}>"

    def _repr_html_(self) -> str:
        cells = [(html.escape(status.fold), html.escape(_state(status))) for status in self.status]
        rows = "".join(f"<tr><td>{fold}</td><td>{state}</td></tr>" for fold, state in cells)
        return f"<p>{html.escape(self.path)}</p><table><tr><th>fold</th><th>state</th></tr>{rows}</table>"


def _state(status: Status) -> str:
    why = status.why or status.state
    return f"{why} after {status.epochs_done} of {status.epochs} epochs"


def _json(path: str) -> dict[str, Any] | None:
    file = Path(path)
    if not file.is_file():
        return None
    with file.open(encoding="utf-8") as text:
        read: dict[str, Any] = json.load(text)
    return read


def _fold(found: Mapping[str, Any]) -> Fold:
    status = found["status"]
    return Fold(
        folder=found["folder"],
        status=Status(
            fold=str(status["fold"]),
            state=status["state"],
            why=status.get("why"),
            detail=status.get("detail", ""),
            epochs_done=status["epochs_done"],
            epochs=status["epochs"],
            seconds_left=status["seconds_left"],
            resident=status["resident"],
            planned=status["planned"],
            ram=status["limit"],
            last_warning=status["last_warning"],
        ),
        metrics=_metrics(found["epochs"], found["costs"]),
        _record=found["record"],
        _validation=found["validation"],
    )


def _metrics(epochs: list[dict[str, Any]], costs: list[dict[str, Any]]) -> dict[str, Numbers]:
    """Return the numbers of epochs as an array for each name."""
    by_epoch = {cost["epoch"]: cost for cost in costs}
    flat = [dict(_flat(epoch)) | dict(_flat(by_epoch.get(epoch["epoch"], {}))) for epoch in epochs]
    names = dict.fromkeys(name for row in flat for name in row)
    return {name: _array([row.get(name) for row in flat]) for name in names}


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Return the numbers of a record, of parts by their names."""
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}/")
        elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
            yield from _named(name, value)
        elif not isinstance(value, str):
            yield name, value


def _named(name: str, parts: list[dict[str, Any]]) -> Iterable[tuple[str, Any]]:
    seen: dict[str, int] = {}
    for part in parts:
        own = str(part.get("name", part.get("label")))
        seen[own] = seen.get(own, 0) + 1
        unique = own if seen[own] == 1 else f"{own}_{seen[own]}"
        for key, value in part.items():
            if key not in ("name", "label"):
                yield f"{name}/{unique}" if key == "value" else f"{name}/{unique}/{key}", value


def _array(values: list[Any]) -> Numbers:
    """Return numbers as an array of integers if all are, else of floats in which a missing number is NaN."""
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, np.int64)
    width = max((len(value) for value in values if isinstance(value, list)), default=None)
    if width is None:
        return np.array([_number(value) for value in values], np.float64)
    table = np.full((len(values), width), np.nan)
    for row, value in enumerate(values):
        for column, number in enumerate(value or []):
            table[row, column] = _number(number)
    return table


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
