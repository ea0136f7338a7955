"""Models of any origin: runs, nnU-Net, MONAI, TotalSegmentator."""

from __future__ import annotations

import json
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from . import _plimsoll
from ._arrays import ledger_of, threads_of
from ._call import as_path
from ._errors import Error
from ._images import Array, Volume, paths_of, volume_of
from ._memory import Budget, _bytes

if TYPE_CHECKING:
    import tempfile

Path: TypeAlias = "str | os.PathLike[str]"
Ram: TypeAlias = "str | int | Budget | None"
Progress: TypeAlias = Callable[[int, int], object]


@dataclass(frozen=True)
class Plan:
    """The memory and the time of a prediction.

    Attributes
    ----------
    total_bytes : int
        The memory of the prediction within the limit.
    least_ram_bytes : int
        The lowest limit that suffices.
    windows : int
        The number of windows over all folds.
    strips : int
        The number of strips in which the image is passed through: 1 if the limit has room for sums of whole planes.
    predicted_seconds : float
        The predicted time of all forward passes, at nominal rates of the processor.
    parts : dict of str to int
        The bytes of each part of the total.
    details : dict
        All numbers of the plan.
    """

    total_bytes: int
    least_ram_bytes: int
    windows: int
    strips: int
    predicted_seconds: float
    parts: dict[str, int]
    details: dict[str, Any] = field(repr=False)

    @classmethod
    def _of(cls, text: str) -> Plan:
        found = json.loads(text)
        plan = found["plan"]
        names = ("overhead", "arena", "window", "logits", "preparation", "decoding", "cache", "spool", "queue", "ahead")
        return cls(
            total_bytes=plan["total_bytes"],
            least_ram_bytes=found["least_ram_bytes"],
            windows=plan["windows"],
            strips=plan["strips"],
            predicted_seconds=plan["predicted_seconds"],
            parts={name: plan[f"{name}_bytes"] for name in names if plan[f"{name}_bytes"]},
            details=plan,
        )


class Model:
    """A trained model that labels voxels.

    Parameters
    ----------
    path : path-like
        A run of Plimsoll, one of its folds or a ``.plimsoll`` file. Or a results folder of nnU-Net with one trained
        configuration, or a zip archive of one, which is extracted to a temporary folder. Or a model of
        TotalSegmentator, a bundle of MONAI, or a ``model.toml`` that describes weights of MONAI.
    folds : int, str or sequence, optional
        The folds to average; all by default. Several can be chosen of models of nnU-Net.
    checkpoint : str, optional
        ``"final"`` (default), ``"best"`` or the name of a file of nnU-Net.
    tile_step_size : float, optional
        The distance of windows as a share of their extent, above 0 and at most 1; 0.5 by default. Models of MONAI have
        their own.
    use_gaussian : bool, optional
        Weight the voxels of windows by a Gaussian, as by default. Models of MONAI have their own weights.
    use_mirroring : bool, optional
        Average mirrored windows along all axes that the model allows; by default for models of nnU-Net.
    window_batch : int
        The number of windows that the network takes at once.
    postprocessing : bool
        Apply the model's own steps of post-processing, if it has any.
    device : str or torch.device
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
    vram : str or int, optional
        The limit of the device's own memory.
    threads : int, optional
        The number of threads; all processors by default.

    Examples
    --------
    >>> model = Model("nnUNet_results/Dataset004_Hippocampus")  # doctest: +SKIP
    >>> labels = model.predict(image, spacing=(1.0, 1.0, 1.0), ram="2GiB")  # doctest: +SKIP
    """

    def __init__(
        self,
        path: Path,
        *,
        folds: int | str | Sequence[int | str] | None = None,
        checkpoint: str | None = None,
        tile_step_size: float | None = None,
        use_gaussian: bool | None = None,
        use_mirroring: bool | None = None,
        window_batch: int = 1,
        postprocessing: bool = True,
        device: Any = "cpu",
        vram: str | int | None = None,
        threads: int | None = None,
    ) -> None:
        if isinstance(window_batch, bool) or not isinstance(window_batch, int) or window_batch < 1:
            raise ValueError(f"window_batch is {window_batch!r}; it must be at least 1")
        self._extracted: tempfile.TemporaryDirectory[str] | None = None
        self._model = _plimsoll.Model(
            self._folder(path),
            folds=_folds(folds),
            checkpoint=checkpoint,
            step=0.5 if tile_step_size is None else tile_step_size,
            gaussian=use_gaussian is not False,
            mirror=use_mirroring,
            window_batch=window_batch,
            threads=threads_of(threads),
            device=str(device),
            vram=None if vram is None else _bytes(vram, "vram"),
            postprocessing=postprocessing,
        )
        self._description: dict[str, Any] = json.loads(self._model.description())
        for name, value in {"tile_step_size": tile_step_size, "use_gaussian": use_gaussian}.items():
            program = {"monai": "MONAI", "hd-bet": "HD-BET", "deepbet": "deepbet"}.get(self.kind)
            if value is not None and program:
                raise ValueError(f"{name} has no effect: a model of {program} has windows of its own; leave it out")

    def _folder(self, path: Path) -> str:
        """Return the path of a model, extracting an archive."""
        import tempfile
        import zipfile

        given = as_path(path, "path")
        if not (os.path.isfile(given) and zipfile.is_zipfile(given)):
            return given
        self._extracted = tempfile.TemporaryDirectory(prefix="plimsoll-model-")
        models = _plimsoll.import_models(given, os.path.join(self._extracted.name, "models"))
        if len(models) != 1:
            names = ", ".join(os.path.basename(model) for model in models)
            raise ValueError(
                f"path {given} has {len(models)} models ({names}); import them and open one of the folders"
            )
        return os.fspath(models[0])

    @property
    def kind(self) -> str:
        """The origin: ``"run"``, ``"file"``, ``"nnunet"``, ``"monai"``, ``"hd-bet"`` or ``"deepbet"``."""
        return str(self._description["kind"])

    @property
    def path(self) -> pathlib.Path:
        """The folder or the file of the model."""
        return pathlib.Path(self._description["path"])

    @property
    def channels(self) -> list[str]:
        """The names of the channels of its images."""
        return list(self._description["channels"])

    @property
    def labels(self) -> dict[str, int]:
        """The values of its labels by name; of regions, the values that they are written as."""
        return {name: value for name, value in self._description["labels"]}

    @property
    def patch_size(self) -> tuple[int, int, int]:
        """Depth, height, width of a window."""
        depth, height, width = self._description["window"]
        return depth, height, width

    @property
    def folds(self) -> int:
        """The number of networks whose logits are averaged."""
        return int(self._description["folds"])

    def __repr__(self) -> str:
        lines = "; ".join(" ".join(line.split()) for line in self._description["lines"])
        return f"<plimsoll.Model {self.path} ({self.kind}): {lines}>"

    def close(self) -> None:
        """Free the network, which is otherwise kept between predictions with the same `ram`."""
        self._model.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan(
        self, image: Any, *, spacing: Any = None, affine: Any = None, probabilities: bool = False, ram: Ram = None
    ) -> Plan:
        """Plan the memory and the time of a prediction.

        Parameters
        ----------
        image, spacing, affine, ram
            As in `predict`. Of files, only headers are read.
        probabilities : bool
            Plan for probabilities, too. Applies to files.

        Returns
        -------
        Plan

        Raises
        ------
        OverLimit
            If the limit is too low; its remedy names a limit that suffices.
        """
        paths = paths_of(image)
        if paths is not None:
            _expect_no_geometry(spacing, affine)
            return Plan._of(self._model.plan_files(paths, probabilities=probabilities, **_limit(ram)))
        volume = volume_of(image, spacing, affine)
        return Plan._of(self._model.plan_array(volume.shape, volume.affine, volume.element, **_limit(ram)))

    def predict(
        self,
        image: Any,
        *,
        output: Path | None = None,
        spacing: Any = None,
        affine: Any = None,
        probabilities: bool = False,
        overwrite: bool = False,
        ram: Ram = None,
        progress: Progress | None = None,
    ) -> Any:
        """Label the voxels of an image.

        Parameters
        ----------
        image : array, tensor, image or path
            One of

            - an array or tensor (depth, height, width) or (channels, depth, height, width) with its `spacing`, in the
              order of axes of nnU-Net and SimpleITK.
            - an array or tensor (x, y, z) or (channels, x, y, z) with its `affine`, in the order of axes of nibabel and
              MONAI.
            - an image of nibabel or SimpleITK, or a `monai.data.MetaTensor` (channels, x, y, z).
            - a path of a file in any format that Plimsoll reads, or of a DICOM series; or a list of paths, one for each
              channel.
        output : path-like, optional
            The file to write, for an image that is given as a path. Its folder must exist.
        spacing : float or sequence of float, optional
            The distance of voxels along depth, height and width in millimetres; 1 by default.
        affine : array_like, optional
            The matrix (4, 4) from indices (x, y, z, 1) to millimetres towards right, anterior and superior.
        probabilities : bool
            Return probabilities, too, or write them beside `output` as ``.npz``, as nnU-Net does.
        overwrite : bool
            Replace an existing `output`.
        ram : str, int or Budget, optional
            The limit of the memory that Plimsoll takes: the network, windows, sums and the copy of the image. The
            code of the process, the caller's arrays and the returned ones are not counted. By default what the
            machine leaves.
        progress : callable, optional
            A function of the numbers of finished windows and of all windows.

        Returns
        -------
        object
            The labels in the kind of the image, with its geometry: an array for an array, an image of nibabel for
            one, and so on. For a path an array (depth, height, width), or the path of the written file. With
            `probabilities` and without `output` a tuple of the labels and an array (outputs, ...) with the axes of
            the image.

        Raises
        ------
        OverLimit
            If the limit is too low.
        Error
            If the image cannot be read or does not fit the model.
        """
        paths = paths_of(image)
        if output is not None:
            if paths is None:
                raise ValueError("output needs an image that is given as a path; save the returned labels instead")
            return self._predict_file(paths, output, spacing, affine, probabilities, overwrite, ram, progress)
        if overwrite:
            raise ValueError("overwrite has no effect without output")
        with _probabilities_file(probabilities) as file:
            options = {**_limit(ram), "probabilities": file, "progress": progress}
            if paths is not None:
                _expect_no_geometry(spacing, affine)
                labels = self._empty(self._model.shape_of_files(paths))
                self._model.predict_files(paths, _flat(labels), **options)
                return labels if file is None else (labels, _read(file))
            volume = volume_of(image, spacing, affine)
            labels = self._predict_volume(volume, options)
            restored = volume.restore(labels)
            return restored if file is None else (restored, volume.restore_each(_read(file)))

    def _empty(self, shape: tuple[int, int, int]) -> Array:
        return np.empty(shape, np.uint16 if self._model.is_wide else np.uint8)

    def _predict_volume(self, volume: Volume, options: Mapping[str, Any]) -> Array:
        labels = self._empty(volume.shape)
        image = (volume.shape, volume.affine, volume.element, [_flat(channel) for channel in volume.channels])
        self._model.predict_array(image, _flat(labels), **options)
        return labels

    def _predict_file(
        self,
        paths: list[str],
        output: Path,
        spacing: Any,
        affine: Any,
        probabilities: bool,
        overwrite: bool,
        ram: Ram,
        progress: Progress | None,
    ) -> pathlib.Path:
        _expect_no_geometry(spacing, affine)
        to = pathlib.Path(output)
        if to.exists():
            if any(os.path.samefile(path, to) for path in paths if os.path.exists(path)):
                raise ValueError(f"output {to} is the image itself; write to another file")
            if not overwrite:
                raise FileExistsError(f"{to} exists; pass overwrite=True to replace it")
        beside = to.with_name(f"{_stem(to)}.npz") if probabilities else None
        self._model.predict_to_file(paths, os.fspath(to), probabilities=beside, progress=progress, **_limit(ram))
        return to

    def predict_folder(
        self,
        input: Path,
        output: Path,
        *,
        probabilities: bool = False,
        overwrite: bool = False,
        previous_stage: Path | None = None,
        part: str | None = None,
        ram: str | int | None = None,
        progress: Progress | None = None,
    ) -> list[pathlib.Path]:
        """Label all images of a folder, as ``plimsoll predict`` does it.

        Parameters
        ----------
        input : path-like
            A folder of images: ``CASE_0000.nii.gz``, ``CASE_0001.nii.gz`` and so on for the channels of a case, or a
            file for each case.
        output : path-like
            The folder of label maps, which is created. A record of the predictions is written there.
        probabilities, ram, progress
            As in `predict`.
        overwrite : bool
            Replace existing label maps; otherwise they are kept, and their images are not predicted again.
        previous_stage : path-like, optional
            The folder of labels of the earlier stage of a cascade; by default that stage is predicted first.
        part : str, optional
            The part of the images to predict, like ``"2/4"``; by default all. Several processes predict the parts into
            the same folder, and the last one to finish merges their records.

        Returns
        -------
        list of pathlib.Path
            The label maps, of the part if one is named.

        Raises
        ------
        Error
            If an image cannot be predicted; the others are predicted first.
        """
        text, told = self._model.predict_folder(
            os.fspath(input),
            os.fspath(output),
            probabilities=probabilities,
            overwrite=overwrite,
            earlier=None if previous_stage is None else os.fspath(previous_stage),
            part=part,
            ram=None if ram is None else _bytes(ram, "ram"),
            progress=progress,
        )
        _warn(told)
        report = json.loads(text)
        _expect_none_failed(report["failed"], "case")
        return sorted(pathlib.Path(case["file"]) for case in report["cases"] + report["kept"])


def _folds(folds: int | str | Sequence[int | str] | None) -> list[str]:
    if folds is None:
        return []
    if isinstance(folds, (int, str)):
        return [str(folds)]
    return [str(fold) for fold in folds]


def _limit(ram: Ram) -> dict[str, Any]:
    """Return the arguments of a limit: bytes, or a budget of the caller."""
    if isinstance(ram, Budget):
        return {"budget": ledger_of(ram)}
    return {"ram": None if ram is None else _bytes(ram, "ram")}


def _flat(array: Array) -> Array:
    """Return the bytes of an array in C order, without a copy."""
    return array.reshape(-1).view(np.uint8)


def _expect_no_geometry(spacing: Any, affine: Any) -> None:
    if spacing is not None or affine is not None:
        raise ValueError("image is a file with a geometry of its own; leave spacing and affine out")


@contextmanager
def _probabilities_file(is_wanted: bool) -> Iterator[str | None]:
    """Return a temporary file for probabilities, if they are wanted."""
    import tempfile

    if not is_wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        yield os.path.join(folder, "probabilities.npz")


def _read(file: str) -> Array:
    with np.load(file) as arrays:
        found: Array = arrays["probabilities"]
    return found


def _stem(path: pathlib.Path) -> str:
    """Return the name of a file without its ending, such as ``.nii.gz``."""
    name = path.name
    name = name[: -len(".gz")] if name.lower().endswith(".gz") else name
    return os.path.splitext(name)[0]


def _warn(texts: list[str]) -> None:
    for text in texts:
        warnings.warn(text, stacklevel=3)


def _expect_none_failed(failed: list[dict[str, Any]], name: str) -> None:
    if failed:
        first = failed[0]
        others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise Error(f"{first[name]} failed{others}: {first['error']}", first["hint"] or None)
