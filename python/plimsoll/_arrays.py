"""Checks and conversions of arguments, which name the argument in their errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _plimsoll
from ._memory import Budget

Array = npt.NDArray[Any]

_NATIVE = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def as_array(value: object, name: str) -> Array:
    """Return an argument as an array of two or three axes of integers or booleans.

    Tensors and images with an array interface are not copied.
    """
    try:
        array = np.asarray(value)
    except Exception as error:
        raise TypeError(f"{name} cannot be read as an array: {error}") from error
    if array.dtype.kind not in "biu":
        raise TypeError(f"{name} has the type {array.dtype}; pass integers or booleans, for example {name} > 0.5")
    if array.ndim not in (2, 3):
        raise ValueError(f"{name} has {array.ndim} axes; arrays of 2 or 3 axes are supported")
    return array


class Mask:
    """A mask as the kernels read it: three axes in C order, and a native unsigned type.

    Arrays in C order are used where they are. With `any_order`, for functions whose result does not depend on the order
    of axes, so are arrays in Fortran order, whose axes are reversed. Others are copied once; the copy is reserved from
    the budget. Without `labels`, for functions that tell background and foreground apart alone, a copy to another type
    has one byte per voxel. With `any_layout`, for kernels that read any strides and also integers of 64 bits, arrays
    of the machine's byte order are never copied.
    """

    def __init__(
        self,
        value: object,
        name: str,
        budget: Budget | None,
        *,
        any_order: bool = True,
        labels: bool = False,
        any_layout: bool = False,
    ) -> None:
        array = as_array(value, name)
        self.shape: tuple[int, ...] = array.shape
        self.rank = array.ndim
        self._held: list[object] = []
        native = self._native(array, name, budget, labels, any_layout)
        aligned, in_order = native.flags.aligned, native.flags.c_contiguous
        self.is_reversed = any_order and aligned and native.flags.f_contiguous and not in_order
        if self.is_reversed:
            native = native.T
        elif not aligned or not (in_order or (any_layout and _has_whole_strides(native))):
            self._reserve(budget, f"copy of {name}", native.nbytes)
            native = np.require(native, requirements=("C", "A"))
        self.voxels: Array = native.reshape((1,) * (3 - self.rank) + native.shape)

    def _reserve(self, budget: Budget | None, holder: str, nbytes: int) -> None:
        if budget is not None:
            self._held.append(budget._ledger.reserve(holder, nbytes))

    def _native(self, array: Array, name: str, budget: Budget | None, labels: bool, any_layout: bool) -> Array:
        """Return the array in an unsigned type, which tells labels apart as the array does.

        It has at most 32 bits, or 64 with `any_layout`.
        """
        if any_layout and array.dtype.isnative and array.dtype.itemsize == 8:
            if labels:
                _expect_labels_of_32_bits(array, name)
            return array.view(np.uint64)
        if not labels and not (array.dtype.isnative and array.dtype.itemsize in _NATIVE):
            self._reserve(budget, f"copy of {name}", array.size)
            foreground: Array = array != 0
            return foreground.view(np.uint8)
        if not array.dtype.isnative:
            self._reserve(budget, f"copy of {name}", array.nbytes)
            array = array.astype(array.dtype.newbyteorder("="))
        native = _NATIVE.get(array.dtype.itemsize)
        if native is not None:
            # Labels of the same bits are the same labels.
            return array.view(native)
        _expect_labels_of_32_bits(array, name)
        self._reserve(budget, f"copy of {name}", array.nbytes // 2)
        return array.astype(np.uint32)

    def spacing(self, value: object, name: str) -> tuple[float, float, float]:
        """Return a spacing for each axis of `voxels`."""
        numbers = spacing_of(value, self.rank, name)
        if self.is_reversed:
            numbers = numbers[::-1]
        first, second, third = (1.0,) * (3 - self.rank) + numbers
        return first, second, third

    def output(self, dtype: npt.DTypeLike) -> tuple[Array, Array]:
        """Return a new array of the mask's shape and order, and its voxels as the kernels write them."""
        voxels = np.empty(self.voxels.shape, dtype)
        return self.as_given(voxels), voxels

    def as_given(self, voxels: Array) -> Array:
        """Return voxels that the kernels wrote in the shape and the order of axes of the mask."""
        inner = voxels.reshape(voxels.shape[3 - self.rank :])
        return inner.T if self.is_reversed else inner

    def output_into(self, out: object, dtype: npt.DTypeLike, name: str) -> Array | None:
        """Return the voxels of an output array if the kernels can write to it, and `None` if its order differs."""
        if not isinstance(out, np.ndarray) or out.dtype != np.dtype(dtype):
            raise TypeError(f"{name} must be an array of type {np.dtype(dtype)}")
        if out.shape != self.shape:
            raise ValueError(f"{name} has the shape {out.shape}, but the input has {self.shape}")
        if not out.flags.writeable:
            raise ValueError(f"{name} is read-only")
        ordered = out.T if self.is_reversed else out
        if not ordered.flags.c_contiguous:
            return None
        return ordered.reshape(self.voxels.shape)


def _expect_labels_of_32_bits(array: Array, name: str) -> None:
    if array.size > 0 and (int(array.min()) < 0 or int(array.max()) >= 2**32):
        raise ValueError(f"{name} has labels below 0 or above {2**32 - 1}")


def _has_whole_strides(array: Array) -> bool:
    """Return `True` if the strides are multiples of the size of an element, unlike of a field of a record."""
    return all(stride % array.itemsize == 0 for stride in array.strides)


def spacing_of(value: object, rank: int, name: str) -> tuple[float, ...]:
    """Return one positive, finite number for each axis."""
    if value is None:
        return (1.0,) * rank
    if isinstance(value, (str, bytes)) or not isinstance(value, (int, float, np.number, Sequence, np.ndarray)):
        raise TypeError(f"{name} must be a number or a sequence of {rank} numbers")
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a number or a sequence of {rank} numbers: {error}") from error
    numbers = tuple(array.tolist()) if array.ndim == 1 else (float(array),) * rank if array.ndim == 0 else None
    if numbers is None:
        raise ValueError(f"{name} has {array.ndim} axes, but must be a number or a sequence of {rank} numbers")
    if len(numbers) != rank:
        raise ValueError(f"{name} has {len(numbers)} numbers, but the array has {rank} axes")
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        raise ValueError(f"{name} is {tuple(numbers)}; spacings must be positive and finite")
    return tuple(numbers)


def threads_of(threads: int | None) -> int | None:
    """Return a number of threads, or `None` for all processors."""
    if threads is None:
        return None
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise TypeError(f"threads must be a whole number, not {type(threads).__name__}")
    if threads < 1:
        raise ValueError(f"threads is {threads}; pass at least 1")
    return int(threads)


def tolerance_of(tolerance: float) -> float:
    """Return a tolerance of distances, which is finite and not negative."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float, np.number)):
        raise TypeError(f"tolerance must be a number, not {type(tolerance).__name__}")
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise ValueError(f"tolerance is {tolerance}; it must be finite and not negative")
    return float(tolerance)


def connectivity_of(connectivity: int) -> int:
    """Return a number of neighbours, which the kernels check against the number of axes."""
    if isinstance(connectivity, bool) or not isinstance(connectivity, (int, np.integer)):
        raise TypeError(f"connectivity must be a whole number, not {type(connectivity).__name__}")
    if not 0 < connectivity <= 26:
        raise ValueError(f"connectivity is {connectivity}, but must be 4 or 8 for 2 axes, and 6, 18 or 26 for 3")
    return int(connectivity)


def ledger_of(budget: Budget | None) -> _plimsoll.Budget | None:
    """Return the ledger of a budget."""
    if budget is None:
        return None
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a plimsoll.Budget, not {type(budget).__name__}")
    return budget._ledger
