"""Steps on finished label maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ._call import Memory, PathLike, as_bytes, as_path, call, optional_path, plain
from ._events import Callbacks

Unit = Literal["um", "mm", "m"]


class ProcessedFile(NamedTuple):
    """A label map that was written.

    Attributes
    ----------
    file : str
        The file.
    changed_voxels : int
        Voxels that changed, counted step by step.
    resampled : bool
        Whether it is on another grid now.
    """

    file: str
    changed_voxels: int
    resampled: bool


class Postprocessing(NamedTuple):
    """The result of `postprocess`.

    Attributes
    ----------
    steps : list of dict
        The steps.
    files : list of ProcessedFile
        The files that were written.
    kept : list of str
        Those that existed already.
    numbers : dict
        All numbers, as ``plimsoll postprocess --json`` prints them.
    """

    steps: list[dict[str, Any]]
    files: list[ProcessedFile]
    kept: list[str]
    numbers: Mapping[str, Any]


class DiceGain(NamedTuple):
    """The effect of steps on a label.

    Attributes
    ----------
    before, after : float or None
        The mean Dice over validation cases without the steps and with them; `None` of a label that is in no case.
    """

    before: float | None
    after: float | None


class PostprocessingChoice(NamedTuple):
    """The result of `choose_postprocessing`.

    Attributes
    ----------
    file : str
        The file of the steps, ``postprocessing.toml`` in the run.
    steps : list of dict
        The steps that help; empty if none does.
    gains : dict of str to DiceGain
        The effect on each label, by its name.
    numbers : dict
        All numbers, as ``plimsoll postprocess --choose --json`` prints them.
    """

    file: str
    steps: list[dict[str, Any]]
    gains: Mapping[str, DiceGain]
    numbers: Mapping[str, Any]


def postprocess(
    input: PathLike,
    output: PathLike,
    *,
    steps: PathLike | Sequence[Mapping[str, Any]] | None = None,
    orthogonal: bool = False,
    unit: Unit | None = None,
    overwrite: bool = False,
    ram: Memory = None,
    threads: int | None = None,
    callbacks: Callbacks = None,
    progress: bool | None = None,
) -> Postprocessing:
    """Do steps on label maps in files, of any origin: keep components, drop small ones, fill holes, close gaps.

    Parameters
    ----------
    input : path
        A label map, or a folder of them.
    output : path
        The same: another file or another folder.
    steps : path or sequence of mapping, optional
        The steps, in order: ``[{"step": "keep_largest", "labels": [1, 2]}, ...]`` with the keys of a file of steps; or
        such a file, or nnU-Net's ``postprocessing.json``.
    orthogonal : bool, optional
        Instead of steps: write label maps whose axes are not at right angles on orthogonal grids.
    unit : {"um", "mm", "m"}, optional
        The unit of lengths in headers, whatever they state.
    overwrite : bool, optional
        Replace existing files; otherwise they are kept.
    ram : str or int, optional
        The memory limit.
    threads : int, optional
        The number of threads.
    callbacks, progress
        As for `inspect`.

    Returns
    -------
    Postprocessing

    Raises
    ------
    Error
        If a file cannot be read or written.
    ValueError
        If a step is impossible.

    Examples
    --------
    >>> steps = [{"step": "drop_small", "labels": [1], "min_mm3": 120.0}, {"step": "fill_holes", "labels": [1]}]
    >>> plimsoll.postprocess("labels", "cleaned", steps=steps).files[0].changed_voxels
    311
    """
    arguments = {
        "input": as_path(input, "input"),
        "output": as_path(output, "output"),
        "steps": _steps(steps),
        "orthogonal": orthogonal,
        "unit": unit,
        "overwrite": overwrite,
        "ram": as_bytes(ram, "ram"),
        "threads": threads,
    }
    found = call("postprocess", arguments, callbacks=callbacks, progress=progress)
    files = [ProcessedFile(**file) for file in found["files"]]
    return Postprocessing(found["steps"], files, found["kept"], found)


def choose_postprocessing(
    run: PathLike,
    *,
    unit: Unit | None = None,
    ram: Memory = None,
    threads: int | None = None,
    callbacks: Callbacks = None,
    progress: bool | None = None,
) -> PostprocessingChoice:
    """Try steps on the validation cases of all folds of a run, and write those that help into it.

    Steps are kept if they raise the Dice of a label and lower none. Predictions with the run then apply them.

    Parameters
    ----------
    run : path
        The folder of a run whose folds are trained and validated.
    unit, ram, threads, callbacks, progress
        As for `postprocess`.

    Returns
    -------
    PostprocessingChoice

    Raises
    ------
    Error
        If a fold is not validated, or a file cannot be read or written.

    Examples
    --------
    >>> plimsoll.choose_postprocessing("runs/aorta").gains
    {'aorta': DiceGain(before=0.913, after=0.921)}
    """
    arguments = {"run": as_path(run, "run"), "unit": unit, "ram": as_bytes(ram, "ram"), "threads": threads}
    found = call("choose_postprocessing", arguments, callbacks=callbacks, progress=progress)
    labels = (found.get("chosen") or {"labels": []})["labels"]
    names = {int(label): name for label, name in found["names"].items()}
    gains = {
        names[gain["label"]]: DiceGain(gain.get("dice_before"), gain.get("dice_after"))
        for gain in labels
        if gain["label"] in names
    }
    return PostprocessingChoice(found["file"], found["steps"], gains, found)


def _steps(steps: object) -> Any:
    """Return steps as JSON has them: the path of a file, or a list."""
    if isinstance(steps, Mapping):
        raise TypeError("steps must be a path or a sequence of dictionaries, not one dictionary")
    if isinstance(steps, Sequence) and not isinstance(steps, str):
        return plain(steps, "steps")
    return optional_path(steps, "steps")
