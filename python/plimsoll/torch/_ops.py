"""Operators of PyTorch for exact geometry.

`torch.compile` keeps them as they are. Their results are constants for autograd: a mask and the distances to it change
by jumps only.
"""

# `custom_op` reads the schema, so annotations need not be evaluated.
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _plimsoll
from .._arrays import Mask
from .._geometry import distance_transform as transform
from ._transfer import map_volumes


def _is_mask(values: Tensor) -> bool:
    """Return whether 0 means outside and anything else inside, as the kernels read it."""
    return values.dtype in (torch.bool, torch.uint8)


def _inside(values: Tensor) -> Tensor:
    return values if _is_mask(values) else values > 0.5


def _outside(values: Tensor) -> Tensor:
    return values <= 0.5


@torch.library.custom_op(
    "plimsoll::distance_transform",
    mutates_args=(),
    schema="(Tensor values, float[] sampling, str to, bool squared, int? threads) -> Tensor",
)
def distance_transform(
    values: Tensor, sampling: Sequence[float], to: str, squared: bool, threads: int | None
) -> Tensor:
    """Return the exact distances of voxels to masks, the volumes of which are the voxels above ½.

    Parameters
    ----------
    values : Tensor
        Volumes ``[..., D, H, W]`` or images ``[..., H, W]`` of any type.
    sampling : sequence of float
        The distance between voxels along each axis of a volume.
    to : {"mask", "boundary"}
        Distances from outside to the nearest voxel of the mask: 0 inside, infinite if the mask is empty. Or signed
        distances to the nearest voxel of the other side, negative inside: 0 if there is only one side.
    squared : bool
        Return squares, with the sign of the distance.
    threads : int, optional
        The number of threads; all processors by default.

    Returns
    -------
    Tensor
        Distances in float32, of the shape and on the device of `values`.
    """
    if to not in ("mask", "boundary"):
        raise ValueError(f"to is {to!r}, but must be 'mask' or 'boundary'")
    signed = to == "boundary"

    def write(mask: Tensor, distances: Tensor) -> None:
        found = distances.numpy()
        target: Any = "signed" if signed else "background"
        transform(mask.numpy(), sampling, to=target, squared=squared, distances=found, threads=threads)
        # Without another side, all voxels have the same infinite distance.
        if signed and math.isinf(found.flat[0]):
            found.fill(0)

    return map_volumes(values, len(sampling), _inside if signed else _outside, write, torch.float32)


@distance_transform.register_fake
def _(values: Tensor, sampling: Sequence[float], to: str, squared: bool, threads: int | None) -> Tensor:
    return torch.empty(values.shape, dtype=torch.float32, device=values.device)


@torch.library.custom_op(
    "plimsoll::dilated_skeleton",
    mutates_args=(),
    schema="(Tensor values, int axes, int dilations, int? threads) -> Tensor",
)
def dilated_skeleton(values: Tensor, axes: int, dilations: int, threads: int | None) -> Tensor:
    """Return the skeletons of masks, dilated by the neighbours that share a face.

    Parameters
    ----------
    values : Tensor
        Volumes ``[..., D, H, W]`` or images ``[..., H, W]`` of any type. The mask has the voxels above ½.
    axes : int
        The number of axes of a volume: 2 or 3.
    dilations : int
        The number of dilations.
    threads : int, optional
        The number of threads; all processors by default.

    Returns
    -------
    Tensor
        Booleans, of the shape and on the device of `values`.
    """
    if dilations < 0:
        raise ValueError(f"dilations is {dilations}; it must not be negative")

    def write(mask: Tensor, skeleton: Tensor) -> None:
        voxels = Mask(mask.numpy(), "values", None, any_order=False)
        written = skeleton.numpy().reshape(voxels.voxels.shape)
        _plimsoll.skeletonize(voxels.voxels, voxels.rank, True, dilations, written, threads=threads)

    return map_volumes(values, axes, _inside, write, torch.bool)


@dilated_skeleton.register_fake
def _(values: Tensor, axes: int, dilations: int, threads: int | None) -> Tensor:
    return torch.empty(values.shape, dtype=torch.bool, device=values.device)


@torch.library.custom_op(
    "plimsoll::one_hot",
    mutates_args=(),
    schema="(Tensor labels, int classes, int first, int? ignored) -> Tensor",
)
def one_hot(labels: Tensor, classes: int, first: int, ignored: int | None) -> Tensor:
    """Return 1 where a label names a class and 0 elsewhere.

    Parameters
    ----------
    labels : Tensor
        Labels ``[N, 1, ...]`` of any type.
    classes : int
        The number of classes.
    first : int
        The first class of the result.
    ignored : int, optional
        A label that is 0 in all classes.

    Returns
    -------
    Tensor
        float32 of shape ``[N, classes - first, ...]``.
    """
    counted = labels if ignored is None else labels.masked_fill(labels == ignored, 0)
    if counted.numel() > 0:
        low, high = (bound.item() for bound in counted.aminmax())
        if not (0 <= low and high < classes):
            raise ValueError(f"target has labels from {low:g} to {high:g}, but input has {classes} channels")
        if counted.is_floating_point() and not bool((counted == counted.floor()).all()):
            raise ValueError("target has labels that are not whole numbers; pass labels, or to_onehot_y=False")
    shape = (labels.shape[0], classes - first, *labels.shape[2:])
    result = torch.empty(shape, dtype=torch.float32, device=labels.device)
    for channel in range(classes - first):
        label = first + channel
        if label == ignored:
            result[:, channel] = 0
        else:
            result[:, channel] = labels[:, 0] == label
    return result


@one_hot.register_fake
def _(labels: Tensor, classes: int, first: int, ignored: int | None) -> Tensor:
    shape = (labels.shape[0], classes - first, *labels.shape[2:])
    return torch.empty(shape, dtype=torch.float32, device=labels.device)


def _is_constant(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.mark_non_differentiable(output)


def _no_gradients(count: int) -> Any:
    return lambda ctx, gradient: (None,) * count


distance_transform.register_autograd(_no_gradients(5), setup_context=_is_constant)
dilated_skeleton.register_autograd(_no_gradients(4), setup_context=_is_constant)
one_hot.register_autograd(_no_gradients(4), setup_context=_is_constant)
