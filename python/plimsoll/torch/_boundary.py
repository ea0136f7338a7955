"""A cheap loss of boundaries without distances, for the steps between those that compute distances."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from ._shape_loss import Reduction, ShapeLoss


class BoundaryL1Loss(ShapeLoss):
    """The mean of |b(p) − b(t)|, b(x) being x minus the least of x at a voxel and its neighbours that share a face.

    It takes a few passes over the voxels, and is the substitute ``otherwise="boundary_l1"`` of `Component`.

    Parameters
    ----------
    include_background : bool, optional
        Count the first channel, unless it is the only one, which always counts.
    to_onehot_y : bool, optional
        The target has labels ``[N, 1, ...]`` instead of a channel for each class.
    sigmoid, softmax : bool, optional
        Apply the function to the input.
    other_act : callable, optional
        Another function to apply to the input.
    reduction : {"mean", "sum", "none"}, optional
        The mean or the sum over samples and classes of the means over voxels, or these means.
    ignore_index : int, optional
        The label of the target whose voxels do not count.
    scale : int, optional
        Take means of blocks of `scale` voxels along each axis of the probabilities, and the nearest labels.

    Examples
    --------
    >>> import torch
    >>> from plimsoll.torch import BoundaryL1Loss
    >>> loss = BoundaryL1Loss(sigmoid=True)
    >>> logits = torch.zeros(1, 1, 8, 8, requires_grad=True)
    >>> loss(logits, torch.ones(1, 1, 8, 8)).backward()
    """

    def __init__(
        self,
        include_background: bool = False,
        to_onehot_y: bool = False,
        sigmoid: bool = False,
        softmax: bool = False,
        other_act: Callable[[Tensor], Tensor] | None = None,
        reduction: Reduction = "mean",
        *,
        ignore_index: int | None = None,
        scale: int = 1,
    ) -> None:
        super().__init__(
            include_background=include_background,
            to_onehot_y=to_onehot_y,
            sigmoid=sigmoid,
            softmax=softmax,
            other_act=other_act,
            reduction=reduction,
            ignore_index=ignore_index,
            scale=scale,
            threads=None,
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits or probabilities and a target; shapes as in `BoundaryLoss.forward`."""
        pair = self._pair(input, target)
        difference = inner_boundary(pair.zero_where_ignored()) - inner_boundary(pair.numbers())
        return self._mean_of_voxels(difference.abs(), pair.counted)


def inner_boundary(values: Tensor) -> Tensor:
    """Return values minus the least value at a voxel and the neighbours that share a face with it.

    Of equal values, the voxel itself has the gradient.
    """
    least = values
    for pooled in minima_along_axes(values):
        least = torch.where(pooled < least, pooled, least)
    return values - least


def minima_along_axes(values: Tensor) -> list[Tensor]:
    """Return, for each axis of space, the least value at a voxel and its two neighbours along the axis."""
    axes = values.dim() - 2
    pool = functional.max_pool2d if axes == 2 else functional.max_pool3d
    minima = []
    for axis in range(axes):
        size = tuple(3 if other == axis else 1 for other in range(axes))
        padding = tuple(extent // 2 for extent in size)
        minima.append(-pool(-values, size, 1, padding))
    return minima
