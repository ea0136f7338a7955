"""Segmentation of objects that prompts mark."""

from __future__ import annotations

import json
import operator
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from . import _plimsoll
from ._arrays import threads_of
from ._call import as_path
from ._images import Array, volume_of
from ._memory import Budget, _bytes
from ._model import _flat, _limit

Box: TypeAlias = "tuple[slice, slice, slice]"
Progress: TypeAlias = Callable[[int, int], object]


class InteractiveSession:
    """A session with a model of nnInteractive: an image, prompts that mark an object in it, and its segmentation.

    Prompts add up until `reset`. Every prompt is followed by a prediction, unless `predict` is False. Coordinates are
    voxels in the order depth, height, width, from 0.

    Parameters
    ----------
    model : path-like
        The folder of a model: ``plans.json``, ``dataset.json``, ``inference_info.json`` and ``fold_0``.
    fold : int or str, optional
        The fold, if the folder has several.
    auto_zoom : bool
        Zoom out if the object continues beyond a patch, and refine the result.
    device : str or torch.device
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
    vram : str or int, optional
        The limit of the device's own memory.
    threads : int, optional
        The number of threads; all processors by default.
    ram : str, int or Budget, optional
        The limit of the memory that the session takes. By default what the machine leaves.

    Examples
    --------
    >>> session = InteractiveSession("nnInteractive_v1.0", ram="8GiB")  # doctest: +SKIP
    >>> session.set_image(image)  # doctest: +SKIP
    >>> changed = session.add_point((40, 120, 96))  # doctest: +SKIP
    >>> mask = session.segmentation()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        fold: int | str | None = None,
        auto_zoom: bool = True,
        device: Any = "cpu",
        vram: str | int | None = None,
        threads: int | None = None,
        ram: str | int | Budget | None = None,
    ) -> None:
        self._session = _plimsoll.InteractiveSession(
            as_path(model, "model"),
            fold=None if fold is None else str(fold),
            auto_zoom=bool(auto_zoom),
            threads=threads_of(threads),
            device=str(device),
            vram=None if vram is None else _bytes(vram, "vram"),
            **_limit(ram),
        )
        self._description: dict[str, Any] = json.loads(self._session.description())

    @property
    def path(self) -> pathlib.Path:
        """The folder of the model."""
        return pathlib.Path(self._description["path"])

    @property
    def license(self) -> str | None:
        """The licence of the weights; None if it is unknown."""
        found = self._description["license"]
        return None if found is None else str(found)

    @property
    def kinds(self) -> list[str]:
        """The kinds of prompts that the model knows."""
        return list(self._description["prompts"])

    @property
    def patch_size(self) -> tuple[int, int, int]:
        """Depth, height, width of a patch."""
        depth, height, width = self._description["patch"]
        return depth, height, width

    @property
    def scribble_thickness(self) -> tuple[float, float, float]:
        """The thickness in voxels along each axis that scribbles should have."""
        depth, height, width = self._description["scribble_thickness"]
        return depth, height, width

    @property
    def prompts(self) -> int:
        """The number of prompts of the object."""
        return self._session.prompts()

    def __repr__(self) -> str:
        lines = "; ".join(" ".join(line.split()) for line in self._description["lines"])
        return f"<plimsoll.InteractiveSession {self.path}: {lines}>"

    def close(self) -> None:
        """Free the network and the image."""
        self._session.close()

    def __enter__(self) -> InteractiveSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan(self, shape: Sequence[int]) -> dict[str, Any]:
        """Plan the memory of an image of a shape (depth, height, width).

        Returns
        -------
        dict
            Bytes by use; ``total_bytes`` is their sum.

        Raises
        ------
        OverLimit
            If the limit is too low.
        """
        planned: dict[str, Any] = json.loads(self._session.plan(_three(shape, "shape")))
        return planned

    def set_image(self, image: Any) -> dict[str, Any]:
        """Set an image, and remove the earlier one with its prompts and its segmentation.

        Parameters
        ----------
        image : array or tensor
            Intensities (depth, height, width) as they are stored, without windowing or normalisation. It is copied.

        Returns
        -------
        dict
            The plan of the memory, as `plan` returns it.

        Raises
        ------
        OverLimit
            If the limit is too low.
        Error
            If the image has several channels or no contrast.
        """
        volume = volume_of(image, 1.0)
        if len(volume.channels) != 1:
            raise ValueError(f"image has {len(volume.channels)} channels; pass one")
        planned: dict[str, Any] = json.loads(
            self._session.set_image(volume.shape, volume.element, _flat(volume.channels[0]))
        )
        return planned

    def set_auto_zoom(self, auto_zoom: bool) -> None:
        """Turn zooming out on or off for later predictions."""
        self._session.set_auto_zoom(bool(auto_zoom))

    def add_point(
        self, point: Sequence[int], include: bool = True, *, predict: bool = True, progress: Progress | None = None
    ) -> Box | None:
        """Add a voxel of the object or, without `include`, of its surroundings.

        Returns
        -------
        tuple of slice, optional
            The box in which the segmentation may have changed; None without `predict`.
        """
        self._session.add_point(_three(point, "point"), bool(include))
        return self._after(predict, progress)

    def add_box(
        self,
        box: Sequence[Sequence[int]],
        include: bool = True,
        *,
        predict: bool = True,
        progress: Progress | None = None,
    ) -> Box | None:
        """Add a box, ``((start, end), (start, end), (start, end))``, whose ends are past its last voxels.

        Returns
        -------
        tuple of slice, optional
            The box in which the segmentation may have changed; None without `predict`.
        """
        ranges = [tuple(operator.index(end) for end in ends) for ends in box]
        if len(ranges) != 3 or any(len(ends) != 2 for ends in ranges):
            raise ValueError("box must be three pairs of a start and an end")
        (d0, d1), (h0, h1), (w0, w1) = ranges
        self._session.add_box((d0, h0, w0), (d1, h1, w1), bool(include))
        return self._after(predict, progress)

    def add_scribble(
        self,
        mask: Any,
        include: bool = True,
        *,
        start: Sequence[int] = (0, 0, 0),
        predict: bool = True,
        progress: Progress | None = None,
    ) -> Box | None:
        """Add lines in a slice: a mask (depth, height, width) whose first voxel is the voxel `start` of the image.

        Lines should be about as thick as `scribble_thickness`.

        Returns
        -------
        tuple of slice, optional
            The box in which the segmentation may have changed; None without `predict`.
        """
        return self._add_mask(False, mask, include, start, predict, progress)

    def add_lasso(
        self,
        mask: Any,
        include: bool = True,
        *,
        start: Sequence[int] = (0, 0, 0),
        predict: bool = True,
        progress: Progress | None = None,
    ) -> Box | None:
        """Add a filled contour in a slice, as `add_scribble` adds lines.

        Returns
        -------
        tuple of slice, optional
            The box in which the segmentation may have changed; None without `predict`.
        """
        return self._add_mask(True, mask, include, start, predict, progress)

    def add_initial_segmentation(
        self, segmentation: Any, *, predict: bool = False, progress: Progress | None = None
    ) -> Box | None:
        """Begin with a segmentation (depth, height, width) of the whole image, and remove all prompts.

        Parameters
        ----------
        segmentation : array
            The object where it is not 0.
        predict : bool
            Refine all of it now.
        progress : callable, optional
            A function of the numbers of finished passes and of all known passes.
        """
        self._session.add_initial_segmentation(_flat(_mask(segmentation, "segmentation")))
        return self._after(predict, progress)

    def predict(self, *, progress: Progress | None = None) -> Box | None:
        """Predict the object with all prompts, around the newest one.

        Returns
        -------
        tuple of slice, optional
            The box in which the segmentation may have changed; None if no prompt was added since the last prediction.
        """
        found = self._session.predict(progress=progress)
        if found is None:
            return None
        starts, ends = found
        depth, height, width = (slice(start, end) for start, end in zip(starts, ends, strict=True))
        return depth, height, width

    def segmentation(self, out: Array | None = None) -> Array:
        """Return the segmentation (depth, height, width): 1 for the object, else 0.

        Parameters
        ----------
        out : numpy.ndarray, optional
            An array of 8 bits in C order to write to.
        """
        shape = self._session.shape()
        if out is None:
            out = np.empty((0,) if shape is None else shape, np.uint8)
        elif out.dtype.itemsize != 1 or not out.flags.c_contiguous or out.shape != shape:
            raise ValueError(f"out must be an array of 8 bits in C order with the shape {shape}")
        self._session.write_segmentation(_flat(out))
        return out

    def undo(self) -> bool:
        """Return to the state before the last prompt; False if there is none or it was undone already."""
        return self._session.undo()

    def reset(self) -> None:
        """Remove all prompts and the segmentation, for another object of the same image."""
        self._session.reset()

    def _add_mask(
        self, lasso: bool, mask: Any, include: bool, start: Sequence[int], predict: bool, progress: Progress | None
    ) -> Box | None:
        voxels = _mask(mask, "mask")
        depth, height, width = voxels.shape
        self._session.add_mask(lasso, _three(start, "start"), (depth, height, width), _flat(voxels), bool(include))
        return self._after(predict, progress)

    def _after(self, predict: bool, progress: Progress | None) -> Box | None:
        return self.predict(progress=progress) if predict else None


def _three(value: Sequence[int], name: str) -> tuple[int, int, int]:
    """Return three integers."""
    numbers = [operator.index(number) for number in value]
    if len(numbers) != 3:
        raise ValueError(f"{name} has {len(numbers)} numbers; pass depth, height, width")
    return numbers[0], numbers[1], numbers[2]


def _mask(value: Any, name: str) -> Array:
    """Return a mask as bytes: 1 where it is not 0."""
    array = np.asarray(value)
    if array.ndim != 3:
        raise ValueError(f"{name} has {array.ndim} axes; pass (depth, height, width)")
    return np.ascontiguousarray(array != 0).view(np.uint8)
