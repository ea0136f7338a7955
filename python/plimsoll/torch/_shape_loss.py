"""The common part of losses that see shapes: arguments, activations, targets, scales and means."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .._arrays import spacing_of
from ._ops import one_hot

Reduction = Literal["mean", "sum", "none"]
Spacing = float | Sequence[float] | None

LARGEST_SCALE = 8


class Pair(NamedTuple):
    """Probabilities and their target on the grid of the loss.

    Attributes
    ----------
    probabilities : Tensor
        Of the classes of the loss, ``[N, K, ...]``.
    target : Tensor
        Of the same shape; 1 in a class. 0 where a voxel does not count.
    counted : Tensor or None
        The voxels that count ``[N, 1, ...]``, or `None` if all do.
    steps : tuple of float
        The distance between voxels along each axis, in voxels of the input.
    """

    probabilities: Tensor
    target: Tensor
    counted: Tensor | None
    steps: tuple[float, ...]

    def numbers(self) -> Tensor:
        """Return the target as floating-point numbers."""
        return self.target if self.target.is_floating_point() else self.target.to(self.probabilities.dtype)

    def zero_where_ignored(self) -> Tensor:
        """Return the probabilities, 0 where a voxel does not count."""
        if self.counted is None:
            return self.probabilities
        return self.probabilities * self.counted


class ShapeLoss(torch.nn.Module):
    """A loss of probabilities and a target, with the arguments of MONAI's losses.

    Parameters
    ----------
    include_background : bool
        Count the first channel, unless it is the only one, which always counts.
    to_onehot_y : bool
        The target has labels ``[N, 1, ...]`` instead of a channel for each class.
    sigmoid, softmax : bool
        Apply the function to the input.
    other_act : callable, optional
        Another function to apply to the input.
    reduction : {"mean", "sum", "none"}
        How the values of samples and classes are reduced.
    ignore_index : int, optional
        The label of the target whose voxels do not count.
    scale : int
        By how much probabilities and target are downsampled along each axis.
    threads : int, optional
        The number of threads; all processors by default.
    """

    def __init__(
        self,
        *,
        include_background: bool,
        to_onehot_y: bool,
        sigmoid: bool,
        softmax: bool,
        other_act: Callable[[Tensor], Tensor] | None,
        reduction: Reduction,
        ignore_index: int | None,
        scale: int,
        threads: int | None,
    ) -> None:
        super().__init__()
        if other_act is not None and not callable(other_act):
            raise TypeError(f"other_act must be a function or None, not {type(other_act).__name__}")
        if int(bool(sigmoid)) + int(bool(softmax)) + int(other_act is not None) > 1:
            raise ValueError("sigmoid, softmax and other_act exclude each other; pass one of them")
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction is {reduction!r}, but must be 'mean', 'sum' or 'none'")
        self.include_background = bool(include_background)
        self.to_onehot_y = bool(to_onehot_y)
        self.sigmoid = bool(sigmoid)
        self.softmax = bool(softmax)
        self.other_act = other_act
        self.reduction = str(reduction)
        self.ignore_index = None if ignore_index is None else whole_number("ignore_index", ignore_index, None)
        self.scale = whole_number("scale", scale, 1)
        if self.scale > LARGEST_SCALE:
            raise ValueError(f"scale is {scale}, but must be at most {LARGEST_SCALE}")
        self.threads = None if threads is None else whole_number("threads", threads, 1)

    def common_arguments(self) -> dict[str, Any]:
        """Return the arguments that another loss needs for the same probabilities and target."""
        names = ("include_background", "to_onehot_y", "sigmoid", "softmax", "other_act", "reduction")
        return {name: getattr(self, name) for name in (*names, "ignore_index", "scale", "threads")}

    def _pair(self, input: Tensor, target: Tensor) -> Pair:
        """Check both, and return probabilities and target of the classes of the loss at its scale."""
        input, target = _plain_tensor("input", input), _plain_tensor("target", target)
        self._check(input, target)
        fine = tuple(input.shape[2:])
        coarse = tuple(-(-extent // self.scale) for extent in fine)
        probabilities = self._probabilities(input)
        channels = input.shape[1]
        first = 0 if self.include_background or channels == 1 else 1
        target = nearest(target, coarse)
        counted = None if self.ignore_index is None else target != self.ignore_index
        if self.to_onehot_y and channels > 1:
            target = one_hot(target, channels, first, self.ignore_index)
        else:
            target = target[:, first:]
            if counted is not None:
                target = target.masked_fill(~counted, 0)
        probabilities = mean_pool(probabilities[:, first:], coarse)
        steps = tuple(of_fine / of_coarse for of_fine, of_coarse in zip(fine, coarse, strict=True))
        return Pair(probabilities, target, counted, steps)

    def _check(self, input: Tensor, target: Tensor) -> None:
        if input.dim() not in (4, 5):
            raise ValueError(f"input has the shape {shape_text(input)}, but must have [N, C, H, W] or [N, C, D, H, W]")
        if not input.is_floating_point():
            raise TypeError(f"input has the type {input.dtype}; pass floating-point logits or probabilities")
        if target.is_complex():
            raise TypeError(f"target has the type {target.dtype}; pass real numbers")
        if input.numel() == 0:
            raise ValueError(f"input has the shape {shape_text(input)} and no elements")
        channels = input.shape[1]
        is_of_labels = self.to_onehot_y and channels > 1
        expected = (input.shape[0], 1 if is_of_labels else channels, *input.shape[2:])
        if tuple(target.shape) != expected:
            hint = "" if is_of_labels or target.shape[1:2] != (1,) else "; pass to_onehot_y=True if it has labels"
            raise ValueError(f"target has the shape {shape_text(target)}, but must have {list(expected)}{hint}")
        if target.device != input.device:
            raise ValueError(f"target is on {target.device}, but input is on {input.device}")
        if self.ignore_index is not None and channels > 1 and not self.to_onehot_y:
            raise ValueError("ignore_index needs a target of labels: pass to_onehot_y=True")
        if channels == 1 and (self.softmax or self.to_onehot_y):
            name = "softmax" if self.softmax else "to_onehot_y"
            warnings.warn(f"input has one channel; {name}=True is ignored, as by MONAI", stacklevel=4)

    def _probabilities(self, input: Tensor) -> Tensor:
        if self.sigmoid:
            return torch.sigmoid(input)
        if self.softmax and input.shape[1] > 1:
            return torch.softmax(input, 1)
        if self.other_act is None:
            return input
        probabilities = self.other_act(input)
        if not isinstance(probabilities, Tensor) or probabilities.shape != input.shape:
            raise ValueError("other_act must return a tensor of the shape of input")
        return probabilities

    def _mean_of_voxels(self, values: Tensor, counted: Tensor | None, batch: bool = False) -> Tensor:
        """Reduce values of voxels: their means for each sample and class, or for each class if `batch`.

        Without `counted`, these are reduced as MONAI does. Otherwise the mean is that of all counted voxels.
        """
        axes = list(range(0 if batch else 2, values.dim()))
        if batch:
            axes.remove(1)
        if counted is None:
            if self.reduction == "mean":
                return values.mean()
            return self._reduced(values.mean(axes, keepdim=True))
        values = values * counted
        if self.reduction == "mean":
            return values.sum() / (counted.sum().clamp(min=1) * values.shape[1])
        return self._reduced(values.sum(axes, keepdim=True) / counted.sum(axes, keepdim=True).clamp(min=1))

    def _reduced(self, values: Tensor) -> Tensor:
        if self.reduction == "mean":
            return values.mean()
        return values.sum() if self.reduction == "sum" else values


def sum_of(values: Tensor, first_axis: int, like: Tensor) -> Tensor:
    """Return the sums over the axes from `first_axis` on in the type of `like`, but at least float32.

    float16 ends at 65504, which volumes exceed.
    """
    return values.flatten(first_axis).sum(first_axis, dtype=torch.promote_types(like.dtype, torch.float32))


def spacing_argument(value: Spacing) -> tuple[float, ...] | float | None:
    """Check a spacing before the number of axes is known."""
    if value is None:
        return None
    if isinstance(value, (bool, str)):
        raise TypeError("spacing must be a number or a sequence of 2 or 3 numbers")
    if isinstance(value, (int, float, np.number)):
        return spacing_of(value, 1, "spacing")[0]
    rank = len(value) if hasattr(value, "__len__") else 0
    if rank not in (2, 3):
        raise ValueError(f"spacing has {rank} numbers, but must have one for each of 2 or 3 axes")
    return spacing_of(tuple(float(number) for number in value), rank, "spacing")


def sampling_of(spacing: tuple[float, ...] | float | None, steps: Sequence[float]) -> list[float]:
    """Return the distance between voxels along each axis of a grid; 1 without a spacing."""
    if spacing is None:
        return [1.0] * len(steps)
    if not isinstance(spacing, tuple):
        spacing = (spacing,) * len(steps)
    if len(spacing) != len(steps):
        raise ValueError(f"spacing has {len(spacing)} numbers, but input has {len(steps)} axes of space")
    return [distance * step for distance, step in zip(spacing, steps, strict=True)]


def positive(name: str, value: float) -> float:
    """Return a number that is positive and finite."""
    number = real(name, value)
    if number <= 0:
        raise ValueError(f"{name} is {value}, but must be positive")
    return number


def not_negative(name: str, value: float) -> float:
    """Return a number that is finite and not negative."""
    number = real(name, value)
    if number < 0:
        raise ValueError(f"{name} is {value}, but must not be negative")
    return number


def real(name: str, value: float) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}, but must be finite")
    return float(value)


def whole_number(name: str, value: int, least: int | None) -> int:
    """Return a whole number that is not less than `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if least is not None and value < least:
        raise ValueError(f"{name} is {value}, but must be at least {least}")
    return int(value)


def shape_text(tensor: Tensor) -> str:
    """Return the shape of a tensor for a message."""
    return str(list(tensor.shape))


def nearest(values: Tensor, extent: tuple[int, ...]) -> Tensor:
    """Return the value of the nearest voxel at each place of a coarser grid, as PyTorch's ``nearest-exact``."""
    for axis, (fine, coarse) in enumerate(zip(values.shape[2:], extent, strict=True), start=2):
        if fine != coarse:
            place = torch.arange(coarse, device=values.device)
            values = values.index_select(axis, (2 * place + 1) * fine // (2 * coarse))
    return values


def mean_pool(values: Tensor, extent: tuple[int, ...]) -> Tensor:
    """Return the means of blocks: block i of m has the voxels from ⌊i n / m⌋ to ⌊(i + 1) n / m⌋ along each axis."""
    fine = tuple(values.shape[2:])
    if fine == extent:
        return values
    if all(of_fine % of_coarse == 0 for of_fine, of_coarse in zip(fine, extent, strict=True)):
        size = tuple(of_fine // of_coarse for of_fine, of_coarse in zip(fine, extent, strict=True))
        return functional.avg_pool2d(values, size) if len(size) == 2 else functional.avg_pool3d(values, size)
    for axis, (of_fine, of_coarse) in enumerate(zip(fine, extent, strict=True), start=2):
        starts = torch.arange(of_coarse + 1, device=values.device) * of_fine // of_coarse
        blocks = torch.bucketize(torch.arange(of_fine, device=values.device), starts[1:], right=True)
        shape = (*values.shape[:axis], of_coarse, *values.shape[axis + 1 :])
        sums = values.new_zeros(shape).index_add(axis, blocks, values)
        counts = (starts[1:] - starts[:-1]).to(values.dtype)
        values = sums / counts.reshape(-1, *(1 for _ in shape[axis + 1 :]))
    return values


def _plain_tensor(name: str, value: Tensor) -> Tensor:
    """Return a tensor without the metadata of a subclass, as MONAI's `MetaTensor`; its memory is shared."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, not {type(value).__name__}")
    # Subclasses that implement operators, as those that PyTorch traces with, stay as they are.
    has_operators = getattr(type(value), "__torch_dispatch__", None) is not getattr(Tensor, "__torch_dispatch__", None)
    return value if type(value) is Tensor or has_operators else value.as_subclass(Tensor)
