"""TotalSegmentator's tasks."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from . import _plimsoll
from ._arrays import threads_of
from ._call import as_flag, as_path, names_of
from ._images import Array, paths_of, volume_of
from ._memory import _bytes
from ._model import Path, Progress, _expect_no_geometry, _expect_none_failed, _flat, _warn


def segment(
    task: str | Sequence[str],
    image: Any,
    output: Path | None = None,
    *,
    ml: bool = False,
    fast: bool = False,
    fastest: bool = False,
    roi_subset: Sequence[str] | None = None,
    roi_subset_robust: Sequence[str] | None = None,
    body_seg: bool = False,
    robust_crop: bool = False,
    higher_order_resampling: bool = False,
    remove_small_blobs: bool | float = False,
    no_derived_masks: bool = False,
    statistics: bool = False,
    statistics_exclude_masks_at_border: bool = True,
    report: bool = False,
    preview: bool = False,
    model_size: Literal["big", "small"] = "big",
    segmentation_type: Literal["labelmap", "binary", "rtstruct"] | None = None,
    spacing: Any = None,
    affine: Any = None,
    weights: Path | None = None,
    overwrite: bool = False,
    part: str | None = None,
    device: Any = "cpu",
    vram: str | int | None = None,
    threads: int | None = None,
    ram: str | int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Segment an image as TotalSegmentator does it, with its weights.

    Names follow `totalsegmentator.python_api.totalsegmentator` where they coincide. Nothing is downloaded: the
    weights come from an installed TotalSegmentator.

    Parameters
    ----------
    task : str or sequence of str
        The task: ``"total"``, ``"total_mr"``, ``"lung_vessels"`` and so on. Several need `output`, a folder into which
        each writes under its name; they share the image and the search for regions of interest.
    image : array, tensor, image or path
        An image as in `Model.predict`, or a folder of images or a DICOM series as a path.
    output : path-like, optional
        For an image that is given as a path: the folder of masks, or with `ml` the label map. Without it, labels are
        returned.
    ml : bool
        Write one label map instead of a mask for each label. Returned labels are always one map.
    fast, fastest : bool
        Segment at 3 mm or 6 mm, if the task has a model for it.
    roi_subset : sequence of str, optional
        The labels that are wanted, of tasks of the whole body.
    roi_subset_robust : sequence of str, optional
        The same with `robust_crop`.
    body_seg : bool
        Cut the image to the body first.
    robust_crop : bool
        Find the region of interest at 3 mm instead of 6 mm.
    higher_order_resampling : bool
        Resample logits to the grid of the image instead of labels.
    remove_small_blobs : bool or float
        Remove components of labels of up to 200 mm³, or of this volume.
    no_derived_masks : bool
        Write no masks that are derived from others, of the task ``"body"``.
    statistics : bool
        Write the volume and the mean intensity of each label beside `output`.
    statistics_exclude_masks_at_border : bool
        Measure no labels that touch the border of the image.
    report : bool
        Write a table beside `output` with a row for each label: PyRadiomics' features of its shape, and the first-order
        features of the intensities inside it.
    preview : bool
        Draw a picture beside `output`.
    model_size : {"big", "small"}
        The size of the networks of ``"total_v3"``.
    segmentation_type : {"labelmap", "binary", "rtstruct"}, optional
        The form of an `output` that ends in ``.dcm``; a label map by default.
    spacing, affine : optional
        The geometry of an array, as in `Model.predict`.
    weights : path-like, optional
        The folder of weights; by default the one that TotalSegmentator uses: ``TOTALSEG_WEIGHTS_PATH``, or
        ``nnunet/results`` in ``TOTALSEG_HOME_DIR`` or ``~/.totalsegmentator``.
    overwrite : bool
        Replace existing files; otherwise they are kept.
    part : str, optional
        The part of a folder of images to segment, like ``"2/4"``; by default all. Several processes segment the parts
        into the same folder.
    device, vram, threads, ram, progress
        As in `Model` and `Model.predict`. With ``device="gpu"``, as TotalSegmentator names it, ``"cuda"`` is used.

    Returns
    -------
    object
        Without `output` the labels in the kind of the image, as `Model.predict` returns them. With it the path of the
        label map, of the folder of masks, or of the folder of several tasks.

    Raises
    ------
    Error
        If the task or a label is unknown, weights are missing, an option has no effect on the task, or an image cannot
        be segmented.

    Examples
    --------
    >>> labels = segment("total", nibabel.load("ct.nii.gz"), fast=True, ram="4GiB")  # doctest: +SKIP
    >>> names = segmentation_labels("total")
    >>> names[5]
    'liver'
    """
    if not isinstance(task, (str, Sequence)):
        raise TypeError(f"task must be a name or a sequence of names, not {type(task).__name__}")
    tasks = names_of(task, "task")
    if not tasks:
        raise ValueError("task names no task; pass a name, like 'total'")
    if len(tasks) > 1 and output is None:
        raise ValueError("task names several tasks, which need output, a folder")
    flags = {
        "ml": ml,
        "fast": fast,
        "fastest": fastest,
        "body_seg": body_seg,
        "robust_crop": robust_crop,
        "higher_order_resampling": higher_order_resampling,
        "no_derived_masks": no_derived_masks,
        "statistics": statistics,
        "statistics_exclude_masks_at_border": statistics_exclude_masks_at_border,
        "report": report,
        "preview": preview,
        "overwrite": overwrite,
    }
    for name, value in flags.items():
        as_flag(value, name)
    if isinstance(remove_small_blobs, str) or not hasattr(remove_small_blobs, "__float__"):
        raise TypeError(f"remove_small_blobs must be a volume in mm³, not {type(remove_small_blobs).__name__}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function, not {type(progress).__name__}")
    threads = threads_of(threads)
    if fast and fastest:
        raise ValueError("fast and fastest are both given; pass one of them")
    if roi_subset and roi_subset_robust:
        raise ValueError("roi_subset and roi_subset_robust are both given; pass one of them")
    if model_size not in ("big", "small"):
        raise ValueError(f"model_size is {model_size!r}; it must be 'big' or 'small'")
    subset = names_of(roi_subset_robust, "roi_subset_robust") or names_of(roi_subset, "roi_subset")
    is_dicom = output is not None and as_path(output, "output").lower().endswith(".dcm")
    without_effect = {
        "roi_subset": bool(subset) and not all(name.startswith("total") for name in tasks),
        "model_size": model_size == "small" and tasks != ["total_v3"],
        "no_derived_masks": no_derived_masks and ("body" not in tasks or ml or is_dicom or output is None),
        "statistics_exclude_masks_at_border": not statistics_exclude_masks_at_border and not statistics,
        "segmentation_type": segmentation_type is not None and not is_dicom,
    }
    _expect_effects(without_effect, f"with the task {', '.join(tasks)} and these arguments")
    blobs = 200.0 if remove_small_blobs is True else float(remove_small_blobs)
    options: dict[str, Any] = {
        "mode": "fast" if fast else "fastest" if fastest else "default",
        "subset": subset,
        "body_seg": body_seg,
        "robust_crop": robust_crop or bool(roi_subset_robust),
        "by_logits": higher_order_resampling,
        "small": model_size == "small",
        "remove_small_blobs": blobs if remove_small_blobs is not False else None,
        "derived": not no_derived_masks,
        "statistics": statistics,
        "incomplete": not statistics_exclude_masks_at_border,
        "report": report,
        "preview": preview,
        "dicom": segmentation_type or "labelmap",
        "weights": as_path(weights, "weights") if weights is not None else _weights_folder(),
        "overwrite": overwrite,
        "part": part,
        "device": str(device).replace("gpu", "cuda"),
        "vram": None if vram is None else _bytes(vram, "vram"),
        "threads": threads,
        "ram": None if ram is None else _bytes(ram, "ram"),
        "progress": progress,
    }
    paths = paths_of(image)
    if paths is not None:
        _expect_no_geometry(spacing, affine)
        if len(paths) != 1:
            raise ValueError(f"image is a list of {len(paths)} paths; tasks take images of one channel")
    if output is not None:
        if paths is None:
            raise ValueError("output needs an image that is given as a path; save the returned labels instead")
        return _to_files(tasks, paths[0], pathlib.Path(output), {**options, "one_file": ml or is_dicom})
    files = {
        "statistics": statistics,
        "report": report,
        "preview": preview,
        "overwrite": overwrite,
        "part": part is not None,
    }
    _expect_effects(files, "without output")
    return _labels(tasks, image, spacing, affine, {**options, "one_file": True})


def segmentation_labels(task: str) -> dict[int, str]:
    """Return the names of the labels of a task of TotalSegmentator by their values.

    Raises
    ------
    ValueError
        If there is no such task; the message lists all.
    """
    tasks = dict(_plimsoll.segmentation_tasks())
    if task not in tasks:
        raise ValueError(f"task is {task!r}; it must be one of {', '.join(sorted(tasks))}")
    return dict(enumerate(tasks[task], 1))


def _expect_effects(without: dict[str, bool], when: str) -> None:
    """Refuse an argument that is given and has no effect."""
    for name, is_given in without.items():
        if is_given:
            raise ValueError(f"{name} has no effect {when}; leave it out")


def _labels(tasks: list[str], image: Any, spacing: Any, affine: Any, options: dict[str, Any]) -> Any:
    """Return the labels of an image in its kind."""
    import tempfile

    paths = paths_of(image)
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        labels = pathlib.Path(folder) / "labels.nii"
        if paths is not None:
            _to_files(tasks, paths[0], labels, options)
            if labels.is_dir():
                raise ValueError(f"image {paths[0]} is a folder of images; pass output, a folder for their labels")
            return _read_labels(labels)
        volume = volume_of(image, spacing, affine)
        if len(volume.channels) != 1:
            raise ValueError(f"image has {len(volume.channels)} channels; tasks take images of one")
        file = os.path.join(folder, "image.nii")
        _plimsoll.write_image(file, volume.shape, volume.affine, volume.element, _flat(volume.channels[0]))
        return volume.restore(_read_labels(_to_files(tasks, file, labels, options)))


def _to_files(tasks: list[str], image: str, output: pathlib.Path, options: dict[str, Any]) -> pathlib.Path:
    text, told = _plimsoll.segment(tasks, image, os.fspath(output), **options)
    _warn(told)
    _expect_none_failed(json.loads(text)["failed"], "image")
    return output


def _read_labels(file: pathlib.Path) -> Array:
    labels = np.empty(_plimsoll.image_shape(file), np.uint8)
    _plimsoll.read_labels(file, _flat(labels))
    return labels


def _weights_folder() -> str:
    """Return the folder in which TotalSegmentator keeps weights."""
    weights = os.environ.get("TOTALSEG_WEIGHTS_PATH")
    if weights:
        return weights
    home = os.environ.get("TOTALSEG_HOME_DIR") or os.path.join(os.path.expanduser("~"), ".totalsegmentator")
    return os.path.join(home, "nnunet", "results")
