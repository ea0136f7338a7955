"""Classes of images by trained classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ._call import Memory, PathLike, as_bytes, as_path, call, optional_path, paths_of
from ._events import Callbacks

if TYPE_CHECKING:
    import pandas


class Classification:
    """The classes of images.

    Attributes
    ----------
    classes : list of str
        The names of the classes.
    cases : list of str
        The images.
    labels : list of str
        The known class of each image; empty where it is unknown. Several are separated by ``"|"``.
    predicted : list of str
        The predicted class of each image, or several.
    probabilities : ndarray of float64
        The probability of each class, of shape (images, classes).
    pairs : dict of str to ndarray
        With `pair_columns` the probabilities of the classifier of each pair, by names such as ``"b vs a"``.
    failed : list of str
        The images that could not be read, with reasons.
    result : dict
        The result as ``plimsoll predict --json`` prints it.
    """

    def __init__(self, result: Mapping[str, Any], table: Path) -> None:
        import csv

        self.result = result
        self.failed: list[str] = result["failed"]
        with table.open(encoding="utf-8", newline="") as text:
            header, *rows = csv.reader(text)
        last = header.index("predicted")
        self.classes = header[2:last]
        self.cases = [row[0] for row in rows]
        self.labels = [row[1] for row in rows]
        self.predicted = [row[last] for row in rows]
        self.probabilities = _columns(rows, slice(2, last))
        votes = _columns(rows, slice(last + 1, len(header)))
        self.pairs: dict[str, npt.NDArray[np.float64]] = {
            name: votes[:, place] for place, name in enumerate(header[last + 1 :])
        }

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a table with a row for each image: its label, the probability of each class, the prediction."""
        import pandas

        columns: dict[str, Any] = {"label": self.labels}
        columns.update({name: self.probabilities[:, place] for place, name in enumerate(self.classes)})
        columns.update({"predicted": self.predicted, **self.pairs})
        return pandas.DataFrame(columns, index=pandas.Index(self.cases, name="case"))

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"<Classification of {len(self.cases)} images into {', '.join(self.classes)}{failed}>"


def classify(
    model: PathLike | Sequence[PathLike],
    images: PathLike,
    output: PathLike | None = None,
    *,
    checkpoint: Literal["final", "best", "latest"] = "final",
    mirror: bool = False,
    votes: Literal["sum", "majority", "coupling", "weighted"] | None = None,
    pair_columns: bool = False,
    mistakes: int | None = None,
    overwrite: bool = False,
    ram: Memory = None,
    threads: int | None = None,
    device: str = "cpu",
    vram: Memory = None,
    callbacks: Callbacks = None,
    progress: bool | None = None,
) -> Classification:
    """Give images classes with a trained classifier.

    Parameters
    ----------
    model : path or sequence of path
        The folder of a run of a classifier, whose folds are averaged, of one fold, or of the classifiers of
        ``train(one_vs_one=True)``; or several models, whose probabilities are averaged.
    images : path
        An image, a folder of images, a folder with a folder for each class, or a table of images.
    output : path, optional
        The file of the table of probabilities. By default none is kept.
    checkpoint : {"final", "best", "latest"}, optional
        The checkpoint of each fold.
    mirror : bool, optional
        Average the probabilities of mirrored images, too.
    votes : {"sum", "majority", "coupling", "weighted"}, optional
        The rule by which classifiers of pairs vote: mean probabilities (default), pairs won, the method of Wu, Lin and
        Weng (2004), or means weighted by accuracy and confidence.
    pair_columns : bool, optional
        Also return the probabilities of each pair.
    mistakes : int, optional
        The number of images with the largest errors that are drawn into a file beside `output`, with the regions that
        the network bases its answer on. Needs images with known classes.
    overwrite : bool, optional
        Replace an existing `output`.
    ram, threads, device, vram, callbacks, progress
        As for `train`.

    Returns
    -------
    Classification
        Images that cannot be read are part of the result: see `Classification.failed`.

    Raises
    ------
    Error
        If a model labels voxels, models have different classes, or `output` exists.

    Examples
    --------
    >>> found = plimsoll.classify("runs/retina", "images/test")
    >>> dict(zip(found.cases, found.predicted))
    {'eye_1.png': 'healthy'}
    """
    import tempfile

    if mistakes is not None and output is None:
        raise ValueError("mistakes has no effect without output: the drawing lies beside it")
    if overwrite and output is None:
        raise ValueError("overwrite has no effect without output")
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        table = Path(folder) / "classes.csv" if output is None else Path(as_path(output, "output"))
        arguments = {
            "models": paths_of(model, "model"),
            "images": as_path(images, "images"),
            "output": optional_path(table, "output"),
            "checkpoint": checkpoint,
            "mirror": mirror,
            "votes": votes,
            "pair_columns": pair_columns,
            "mistakes": mistakes,
            "overwrite": overwrite,
            "machine": {
                "ram": as_bytes(ram, "ram"),
                "threads": threads,
                "device": device,
                "vram": as_bytes(vram, "vram"),
            },
        }
        result = call("classify", arguments, callbacks=callbacks, progress=progress)
        return Classification(result, table)


def _columns(rows: list[list[str]], columns: slice) -> npt.NDArray[np.float64]:
    numbers = [[float(cell) for cell in row[columns]] for row in rows]
    return np.array(numbers, np.float64).reshape(len(rows), columns.stop - columns.start)
