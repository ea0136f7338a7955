"""Models on disk: export, import, descriptions and checks."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ._call import Memory, PathLike, as_bytes, as_path, call
from ._events import Callbacks
from ._run import FoldName


class ShownModel(NamedTuple):
    """A description of a model.

    Attributes
    ----------
    folder : str
        The folder or the file of the model.
    lines : list of str
        Its network, channels, labels and folds in words; empty if it cannot be used.
    error : str or None
        Why it cannot be used; `None` if it can.
    """

    folder: str
    lines: list[str]
    error: str | None


class ImportedModels(NamedTuple):
    """Models that were imported.

    Attributes
    ----------
    folder : str
        The folder that they were put into.
    files : int
        The number of files.
    bytes : int
        The length of all files.
    licences : list of str
        Files with the text of a licence.
    models : list of ShownModel
        The models.
    """

    folder: str
    files: int
    bytes: int
    licences: list[str]
    models: list[ShownModel]


def export(
    model: PathLike,
    output: PathLike,
    *,
    format: Literal["safetensors", "nnunet", "onnx", "plimsoll"] = "safetensors",
    fold: FoldName | None = None,
    checkpoint: Literal["latest", "previous", "best", "final"] | None = None,
    external_data: bool = False,
    overwrite: bool = False,
    ram: Memory = None,
) -> dict[str, Any]:
    """Write a model for other programs, or all of it in one file.

    Parameters
    ----------
    model : path
        The folder of a run or of one of its folds; as ONNX also any other model that labels voxels.
    output : path
        The file that is written, or the folder for nnU-Net.
    format : {"safetensors", "nnunet", "onnx", "plimsoll"}, optional
        Weights under the names of the network's authors, a model folder of nnU-Net with all folds, a graph, or all
        folds in one file, which `Model` opens and `verify_model` checks.
    fold : int or "all", optional
        The fold, where the model has several and the format one.
    checkpoint : {"latest", "previous", "best", "final"}, optional
        The checkpoint of a run; ``"final"`` by default.
    external_data : bool, optional
        Write weights into a file beside the graph; ONNX only.
    overwrite : bool, optional
        Replace an existing file.
    ram : str or int, optional
        The memory limit.

    Returns
    -------
    dict
        A description of what was written, such as the number of tensors.

    Raises
    ------
    Error
        If the model cannot be opened, the format cannot represent it, or the output exists.

    Examples
    --------
    >>> plimsoll.export("runs/aorta", "aorta.plimsoll", format="plimsoll")["folds"]
    5
    """
    arguments = {
        "model": as_path(model, "model"),
        "output": as_path(output, "output"),
        "format": format,
        "fold": None if fold is None else str(fold),
        "checkpoint": checkpoint,
        "external_data": external_data,
        "overwrite": overwrite,
        "ram": as_bytes(ram, "ram"),
    }
    result: dict[str, Any] = call("export", arguments)
    return result


def verify_model(
    path: PathLike, *, ram: Memory = None, callbacks: Callbacks = None, progress: bool | None = None
) -> dict[str, Any]:
    """Read all of a model in one file, and check that every tensor is as it was written.

    Parameters
    ----------
    path : path
        The file that ``export(format="plimsoll")`` wrote.
    ram : str or int, optional
        The memory limit.
    callbacks, progress
        As for `inspect`.

    Returns
    -------
    dict
        ``folds``, ``tensors`` and ``digest``.

    Raises
    ------
    Error
        If the file is no model, cannot be read, or has damaged tensors, which the message names.
    """
    arguments = {"path": as_path(path, "path"), "ram": as_bytes(ram, "ram")}
    result: dict[str, Any] = call("verify_model", arguments, callbacks=callbacks, progress=progress)
    return result


def show_models(path: PathLike, *, ram: Memory = None) -> list[ShownModel]:
    """Describe a model of any kind, or all models of nnU-Net in a folder.

    Parameters
    ----------
    path : path
        A run, a ``.plimsoll`` file, a model of nnU-Net, weights or a bundle of MONAI; or a folder with models of
        nnU-Net.
    ram : str or int, optional
        The memory limit.

    Returns
    -------
    list of ShownModel

    Raises
    ------
    Error
        If there is no model, or the only one cannot be opened.
    """
    found = call("show_models", {"path": as_path(path, "path"), "ram": as_bytes(ram, "ram")})
    return [ShownModel(**model) for model in found]


def import_models(
    archive: PathLike,
    output: PathLike,
    *,
    ram: Memory = None,
    callbacks: Callbacks = None,
    progress: bool | None = None,
) -> ImportedModels:
    """Unpack an archive of nnU-Net, copy models of a folder, or convert a MeshNet of brainchop, HD-BET or deepbet.

    Parameters
    ----------
    archive : path
        The archive, a folder with models in it, a MeshNet of TensorFlow.js (its ``model.json`` or its folder), or the
        folder of HD-BET's folds, of deepbet's networks or of the package of one.
    output : path
        The folder that they are put into, as ``nnUNet_results``.
    ram : str or int, optional
        The memory limit.
    callbacks, progress
        As for `inspect`.

    Returns
    -------
    ImportedModels
        A model that cannot be used is part of the result: see `ShownModel.error`.

    Raises
    ------
    Error
        If there is no model in it, or a file cannot be read or written.
    """
    arguments = {
        "archive": as_path(archive, "archive"),
        "output": as_path(output, "output"),
        "ram": as_bytes(ram, "ram"),
    }
    found = call("import_models", arguments, callbacks=callbacks, progress=progress)
    models = [ShownModel(**model) for model in found.pop("models")]
    return ImportedModels(models=models, **found)
