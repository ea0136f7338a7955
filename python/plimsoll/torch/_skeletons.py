"""Losses of skeletons."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from ._boundary import minima_along_axes
from ._ops import dilated_skeleton
from ._shape_loss import Reduction, ShapeLoss, not_negative, positive, sum_of, whole_number

DILATIONS = 2
"""How often the skeleton of the target is dilated, as by the authors of the loss."""


class SoftClDiceLoss(ShapeLoss):
    """Soft clDice [1]_, with the arguments and numbers of `monai.losses.SoftclDiceLoss`.

    The loss is 1 − 2 P R / (P + R + ε) with P = (Σ S(p) t + n) / (Σ S(p) + d) and R = (Σ S(t) p + n) / (Σ S(t) + d), S
    being the soft skeleton. Sums are over voxels and classes of a sample. The library's name in configurations is
    ``cldice``, which never counts the background.

    Parameters
    ----------
    iter_ : int, optional
        The number of erosions of a skeleton.
    smooth_nr, smooth_dr : float, optional
        n and d.
    smooth : float, optional
        ε.
    include_background : bool, optional
        Count the first channel, unless it is the only one, which always counts.
    to_onehot_y : bool, optional
        The target has labels ``[N, 1, ...]`` instead of a channel for each class.
    sigmoid, softmax : bool, optional
        Apply the function to the input.
    other_act : callable, optional
        Another function to apply to the input.
    reduction : {"mean", "sum", "none"}, optional
        The mean or the sum over samples, or the value of each.
    ignore_index : int, optional
        The label of the target whose voxels do not count.
    scale : int, optional
        Take means of blocks of `scale` voxels along each axis of the probabilities, and the nearest labels.

    References
    ----------
    .. [1] S. Shit et al., "clDice: a novel topology-preserving loss function for tubular structure segmentation",
       CVPR 2021.

    Examples
    --------
    >>> import torch
    >>> from plimsoll.torch import SoftClDiceLoss
    >>> loss = SoftClDiceLoss(sigmoid=True)
    >>> logits = torch.zeros(1, 1, 4, 8, 8, requires_grad=True)
    >>> loss(logits, torch.ones(1, 1, 4, 8, 8)).backward()
    """

    def __init__(
        self,
        iter_: int = 3,
        smooth_nr: float = 1.0,
        smooth_dr: float = 1.0,
        smooth: float = 1e-4,
        include_background: bool = True,
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
        self.iter = whole_number("iter_", iter_, 0)
        self.smooth_nr = not_negative("smooth_nr", smooth_nr)
        self.smooth_dr = not_negative("smooth_dr", smooth_dr)
        self.smooth = positive("smooth", smooth)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits or probabilities and a target; shapes as in `BoundaryLoss.forward`."""
        pair = self._pair(input, target)
        prediction, target = pair.zero_where_ignored(), pair.numbers()
        precision = self._share(soft_skeleton(prediction, self.iter), target, prediction)
        recall = self._share(soft_skeleton(target, self.iter), prediction, prediction)
        return self._reduced(1 - 2 * precision * recall / (precision + recall + self.smooth))

    def _share(self, skeleton: Tensor, other: Tensor, like: Tensor) -> Tensor:
        """Return the share of each sample's skeleton that lies in the other volumes."""
        return (sum_of(skeleton * other, 1, like) + self.smooth_nr) / (sum_of(skeleton, 1, like) + self.smooth_dr)


class SkeletonRecallLoss(ShapeLoss):
    """Skeleton recall [1]_: 1 minus the share of the target's skeleton, two voxels wider, that the prediction has.

    The loss is 1 − (Σ s p + n) / (Σ s + d), s being the skeleton of all classes together, dilated twice, of which each
    class has the voxels with its label. The skeleton is exact, keeps the topology, and is a constant for the gradient.
    The first channel does not count unless it is the only one. The authors' value is less by 1. The library's name in
    configurations is ``skeleton_recall``.

    Parameters
    ----------
    to_onehot_y : bool, optional
        The target has labels ``[N, 1, ...]`` instead of a channel for each class.
    sigmoid, softmax : bool, optional
        Apply the function to the input.
    other_act : callable, optional
        Another function to apply to the input.
    reduction : {"mean", "sum", "none"}, optional
        The mean or the sum over samples and classes, or the value of each.
    batch : bool, optional
        Take the sums of a class over all samples before the quotient.
    smooth_nr, smooth_dr : float, optional
        n and d.
    ignore_index : int, optional
        The label of the target whose voxels do not count.
    scale : int, optional
        Take means of blocks of `scale` voxels along each axis of the probabilities, and the nearest labels.
    threads : int, optional
        The number of threads; all processors by default.

    References
    ----------
    .. [1] Y. Kirchhoff et al., "Skeleton recall loss for connectivity conserving and resource efficient segmentation of
       thin tubular structures", ECCV 2024.

    Examples
    --------
    >>> import torch
    >>> from plimsoll.torch import SkeletonRecallLoss
    >>> loss = SkeletonRecallLoss(softmax=True, to_onehot_y=True)
    >>> logits = torch.zeros(1, 2, 4, 8, 8, requires_grad=True)
    >>> loss(logits, torch.ones(1, 1, 4, 8, 8)).backward()
    """

    def __init__(
        self,
        to_onehot_y: bool = False,
        sigmoid: bool = False,
        softmax: bool = False,
        other_act: Callable[[Tensor], Tensor] | None = None,
        reduction: Reduction = "mean",
        batch: bool = False,
        smooth_nr: float = 1e-5,
        smooth_dr: float = 1e-5,
        *,
        ignore_index: int | None = None,
        scale: int = 1,
        threads: int | None = None,
    ) -> None:
        super().__init__(
            include_background=False,
            to_onehot_y=to_onehot_y,
            sigmoid=sigmoid,
            softmax=softmax,
            other_act=other_act,
            reduction=reduction,
            ignore_index=ignore_index,
            scale=scale,
            threads=threads,
        )
        self.batch = bool(batch)
        self.smooth_nr = not_negative("smooth_nr", smooth_nr)
        self.smooth_dr = positive("smooth_dr", smooth_dr)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits or probabilities and a target; shapes as in `BoundaryLoss.forward`."""
        pair = self._pair(input, target)
        foreground = pair.target.amax(1, keepdim=True)
        skeleton = pair.numbers() * dilated_skeleton(foreground, foreground.dim() - 2, DILATIONS, self.threads)
        like = pair.probabilities
        overlap, size = sum_of(skeleton * like, 2, like), sum_of(skeleton, 2, like)
        if self.batch:
            overlap, size = overlap.sum(0), size.sum(0)
        return self._reduced(1 - (overlap + self.smooth_nr) / (size + self.smooth_dr))


def soft_skeleton(values: Tensor, iterations: int) -> Tensor:
    """Return the soft skeleton of clDice: what openings remove from volumes and from their erosions, joined."""
    skeleton = None
    for _ in range(iterations + 1):
        eroded = _eroded(values)
        removed = functional.relu(values - _dilated(eroded))
        skeleton = removed if skeleton is None else skeleton + functional.relu(removed - skeleton * removed)
        values = eroded
    assert skeleton is not None
    return skeleton


def _eroded(values: Tensor) -> Tensor:
    first, *others = minima_along_axes(values)
    for other in others:
        first = torch.minimum(first, other)
    return first


def _dilated(values: Tensor) -> Tensor:
    pool = functional.max_pool2d if values.dim() == 4 else functional.max_pool3d
    return pool(values, 3, 1, 1)
