"""Losses of distances to the boundaries of the target and of the prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ._ops import distance_transform
from ._shape_loss import Pair, Reduction, ShapeLoss, Spacing, positive, sampling_of, spacing_argument


class DistanceLoss(ShapeLoss):
    """A loss of distances: see `ShapeLoss`, and for `spacing` and `batch` its subclasses."""

    def __init__(
        self,
        include_background: bool = False,
        to_onehot_y: bool = False,
        sigmoid: bool = False,
        softmax: bool = False,
        other_act: Callable[[Tensor], Tensor] | None = None,
        reduction: Reduction = "mean",
        batch: bool = False,
        *,
        spacing: Spacing = None,
        ignore_index: int | None = None,
        scale: int = 1,
        threads: int | None = None,
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
            threads=threads,
        )
        self.batch = bool(batch)
        self.spacing = spacing_argument(spacing)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss.

        Parameters
        ----------
        input : Tensor
            Logits or probabilities ``[N, C, H, W]`` or ``[N, C, D, H, W]``.
        target : Tensor
            0 and 1 of the same shape, or labels ``[N, 1, ...]`` with `to_onehot_y`.

        Raises
        ------
        ValueError, TypeError
            If a shape, type or label does not fit; the message names the argument.
        """
        pair = self._pair(input, target)
        return self._mean_of_voxels(self._values(pair), pair.counted, self.batch)

    def _values(self, pair: Pair) -> Tensor:
        """Return the value of each voxel and class."""
        raise NotImplementedError

    def _distances(self, pair: Pair, values: Tensor, to: str, squared: bool = False) -> Tensor:
        sampling = sampling_of(self.spacing, pair.steps)
        distances: Tensor = distance_transform(values.detach(), sampling, to, squared, self.threads)
        return distances


class BoundaryLoss(DistanceLoss):
    """Boundary loss: the mean of D p, D being the signed distance to the target's boundary, positive outside [1]_.

    Where the target has no voxel of a class, or no other, D is 0. Distances are constants for the gradient. The
    library's name in configurations is ``boundary``.

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
    batch : bool, optional
        Take the means over voxels for all samples together.
    spacing : float or sequence of float, optional
        The distance between voxels along each axis, for example in millimetres; 1 by default.
    ignore_index : int, optional
        The label of the target whose voxels do not count.
    scale : int, optional
        Take means of blocks of `scale` voxels along each axis of the probabilities, and the nearest labels, as the
        setting `scale` of the library.
    threads : int, optional
        The number of threads; all processors by default.

    References
    ----------
    .. [1] H. Kervadec et al., "Boundary loss for highly unbalanced segmentation", MIDL 2019.

    Examples
    --------
    >>> import torch
    >>> from plimsoll.torch import BoundaryLoss
    >>> loss = BoundaryLoss(softmax=True, to_onehot_y=True, spacing=(5.0, 1.0, 1.0))
    >>> logits = torch.zeros(1, 2, 4, 8, 8, requires_grad=True)
    >>> labels = torch.zeros(1, 1, 4, 8, 8)
    >>> labels[..., 2:5, 2:5] = 1
    >>> loss(logits, labels).backward()
    """

    def _values(self, pair: Pair) -> Tensor:
        return self._distances(pair, pair.target, "boundary") * pair.probabilities


class SurfaceDistanceLoss(DistanceLoss):
    """Surface distance with a tolerance τ: false positives and false negatives cost more the further off they are.

    The loss is the mean of c(Dₜ) p + c(Dₚ) t (1 − p). Dₜ and Dₚ are the distances of a voxel to the target and to the
    prediction (p above ½), 0 inside; c(D) = min(D / τ, 1), which is 1 for an empty mask. The published form
    c(Dₜ) (1 − p) + c(Dₚ) t rewards false positives; it exists to repeat experiments. Distances are constants for the
    gradient. The library's name in configurations is ``surface_distance``.

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
    batch : bool, optional
        Take the means over voxels for all samples together.
    tolerance : float, optional
        τ, in the unit of `spacing`.
    form : {"symmetric", "as_published"}, optional
        The formula.
    spacing : float or sequence of float, optional
        The distance between voxels along each axis, for example in millimetres; 1 by default.
    ignore_index : int, optional
        The label of the target whose voxels do not count.
    scale : int, optional
        Take means of blocks of `scale` voxels along each axis of the probabilities, and the nearest labels, as the
        setting `scale` of the library.
    threads : int, optional
        The number of threads; all processors by default.

    Examples
    --------
    >>> import torch
    >>> from plimsoll.torch import SurfaceDistanceLoss
    >>> loss = SurfaceDistanceLoss(sigmoid=True, tolerance=2.0, spacing=(1.5, 1.0, 1.0))
    >>> logits = torch.zeros(1, 1, 4, 8, 8, requires_grad=True)
    >>> loss(logits, torch.ones(1, 1, 4, 8, 8)).backward()
    """

    def __init__(
        self,
        include_background: bool = False,
        to_onehot_y: bool = False,
        sigmoid: bool = False,
        softmax: bool = False,
        other_act: Callable[[Tensor], Tensor] | None = None,
        reduction: Reduction = "mean",
        batch: bool = False,
        *,
        tolerance: float = 2.0,
        form: Literal["symmetric", "as_published"] = "symmetric",
        spacing: Spacing = None,
        ignore_index: int | None = None,
        scale: int = 1,
        threads: int | None = None,
    ) -> None:
        super().__init__(
            include_background,
            to_onehot_y,
            sigmoid,
            softmax,
            other_act,
            reduction,
            batch,
            spacing=spacing,
            ignore_index=ignore_index,
            scale=scale,
            threads=threads,
        )
        self.tolerance = positive("tolerance", tolerance)
        if form not in ("symmetric", "as_published"):
            raise ValueError(f"form is {form!r}, but must be 'symmetric' or 'as_published'")
        self.form = str(form)

    def _values(self, pair: Pair) -> Tensor:
        # The loss is linear in p: its factor is the only tensor kept for the gradient.
        with torch.no_grad():
            factor = self._bounded(pair, pair.target)
            constant = self._bounded(pair, pair.zero_where_ignored()).mul_(pair.target)
            if self.form == "symmetric":
                factor.sub_(constant)
            else:
                constant.add_(factor)
                factor.neg_()
        return torch.addcmul(constant, factor, pair.probabilities)

    def _bounded(self, pair: Pair, values: Tensor) -> Tensor:
        return self._distances(pair, values, "mask").div_(self.tolerance).clamp_(max=1)


class HausdorffDTLoss(DistanceLoss):
    """Hausdorff distance by distance transforms, with the arguments and numbers of `monai.losses.HausdorffDTLoss` [1]_.

    The mean of (p − t)² (Dₚ^α + Dₜ^α), D being the distance to the boundary of the prediction (p above ½) and of the
    target. Where a mask is empty or full, its D is 0. Distances are constants for the gradient. The library's name in
    configurations is ``hausdorff_dt``.

    Parameters
    ----------
    alpha : float, optional
        α.
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
    batch : bool, optional
        Take the means over voxels for all samples together.
    spacing : float or sequence of float, optional
        The distance between voxels along each axis, for example in millimetres; 1 by default, as in MONAI.
    ignore_index : int, optional
        The label of the target whose voxels do not count.
    scale : int, optional
        Take means of blocks of `scale` voxels along each axis of the probabilities, and the nearest labels, as the
        setting `scale` of the library.
    threads : int, optional
        The number of threads; all processors by default.

    References
    ----------
    .. [1] D. Karimi and S. E. Salcudean, "Reducing the Hausdorff distance in medical image segmentation with
       convolutional neural networks", IEEE Transactions on Medical Imaging 39 (2), 2020.

    Examples
    --------
    >>> import torch
    >>> from plimsoll.torch import HausdorffDTLoss
    >>> loss = HausdorffDTLoss(softmax=True, to_onehot_y=True)
    >>> logits = torch.zeros(1, 3, 4, 8, 8, requires_grad=True)
    >>> loss(logits, torch.randint(0, 3, (1, 1, 4, 8, 8))).backward()
    """

    def __init__(
        self,
        alpha: float = 2.0,
        include_background: bool = False,
        to_onehot_y: bool = False,
        sigmoid: bool = False,
        softmax: bool = False,
        other_act: Callable[[Tensor], Tensor] | None = None,
        reduction: Reduction = "mean",
        batch: bool = False,
        *,
        spacing: Spacing = None,
        ignore_index: int | None = None,
        scale: int = 1,
        threads: int | None = None,
    ) -> None:
        super().__init__(
            include_background,
            to_onehot_y,
            sigmoid,
            softmax,
            other_act,
            reduction,
            batch,
            spacing=spacing,
            ignore_index=ignore_index,
            scale=scale,
            threads=threads,
        )
        self.alpha = positive("alpha", alpha)

    def _values(self, pair: Pair) -> Tensor:
        factor = self._power(pair, pair.zero_where_ignored()).add_(self._power(pair, pair.target))
        return (pair.probabilities - pair.numbers()) ** 2 * factor

    def _power(self, pair: Pair, values: Tensor) -> Tensor:
        if self.alpha == 2:
            return self._distances(pair, values, "boundary", squared=True).abs_()
        return self._distances(pair, values, "boundary").abs_().pow_(self.alpha)


class LogHausdorffDTLoss(HausdorffDTLoss):
    """The logarithm of `HausdorffDTLoss` plus 1, as `monai.losses.LogHausdorffDTLoss`.

    The arguments are as for `HausdorffDTLoss`. The library's name in configurations is ``log_hausdorff_dt``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss; the arguments are as for `HausdorffDTLoss.forward`."""
        return torch.log1p(super().forward(input, target))
