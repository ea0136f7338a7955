"""Errors of losses name the argument."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from loss_cases import LOSSES, images  # noqa: E402

from plimsoll.torch import (  # noqa: E402
    BoundaryLoss,
    Component,
    CompositeLoss,
    HausdorffDTLoss,
    SkeletonRecallLoss,
    SoftClDiceLoss,
    SurfaceDistanceLoss,
)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"input": np.zeros((1, 3, 4, 5))}, TypeError, "input must be a torch.Tensor"),
        ({"input": torch.zeros(1, 3, 4, 5, dtype=torch.int64)}, TypeError, "input has the type"),
        ({"input": torch.zeros(3, 4, 5)}, ValueError, "input has the shape"),
        ({"input": torch.zeros(1, 3, 2, 2, 4, 5)}, ValueError, "input has the shape"),
        ({"input": torch.zeros(0, 3, 4, 5), "target": torch.zeros(0, 1, 4, 5)}, ValueError, "input has the shape"),
        ({"input": torch.zeros(1, 3, 0, 5), "target": torch.zeros(1, 1, 0, 5)}, ValueError, "input has the shape"),
        ({"target": np.zeros((1, 1, 4, 5))}, TypeError, "target must be a torch.Tensor"),
        ({"target": torch.zeros(1, 1, 4, 5, dtype=torch.complex64)}, TypeError, "target has the type"),
        ({"target": torch.zeros(1, 3, 4, 5)}, ValueError, "target has the shape"),
        ({"target": torch.zeros(1, 1, 4, 6)}, ValueError, "target has the shape"),
        ({"target": torch.zeros(1, 4, 5)}, ValueError, "target has the shape"),
        ({"target": torch.full((1, 1, 4, 5), 3)}, ValueError, "target has labels from 3 to 3"),
        ({"target": torch.full((1, 1, 4, 5), -1)}, ValueError, "target has labels from -1 to -1"),
        ({"target": torch.full((1, 1, 4, 5), math.nan)}, ValueError, "target has labels"),
        ({"target": torch.full((1, 1, 4, 5), 0.5)}, ValueError, "target has labels that are not whole"),
        ({"target": torch.zeros(1, 1, 4, 5, device="meta")}, ValueError, "target is on meta"),
    ],
)
def test_bad_tensors_are_named(kind: type, changes: dict, error: type, named: str) -> None:
    with pytest.raises(error, match=named):
        kind(softmax=True, to_onehot_y=True)(**images(**changes))


def test_labels_without_one_hot_are_explained() -> None:
    for kind in LOSSES:
        with pytest.raises(ValueError, match="target has the shape .* pass to_onehot_y=True"):
            kind(softmax=True)(**images())
        with pytest.raises(ValueError, match="ignore_index needs"):
            kind(softmax=True, ignore_index=2)(**images(target=torch.zeros(1, 3, 4, 5)))
        with pytest.warns(UserWarning, match="softmax=True is ignored"):
            kind(softmax=True)(torch.rand(1, 1, 4, 5), torch.zeros(1, 1, 4, 5))
    with pytest.raises(ValueError, match="spacing has 3 numbers"):
        BoundaryLoss(softmax=True, to_onehot_y=True, spacing=(1, 1, 1))(**images())


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"sigmoid": True, "softmax": True}, ValueError, "sigmoid, softmax and other_act"),
        ({"other_act": "tanh"}, TypeError, "other_act"),
        ({"reduction": "median"}, ValueError, "reduction is 'median'"),
        ({"scale": 0}, ValueError, "scale is 0"),
        ({"scale": 9}, ValueError, "scale is 9"),
        ({"scale": 1.5}, TypeError, "scale"),
        ({"ignore_index": "none"}, TypeError, "ignore_index"),
    ],
)
def test_bad_common_arguments_are_named(kind: type, arguments: dict, error: type, named: str) -> None:
    with pytest.raises(error, match=named):
        kind(**arguments)


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda: BoundaryLoss(spacing=(1.0, math.nan, 1.0)), ValueError, "spacing"),
        (lambda: BoundaryLoss(spacing=0.0), ValueError, "spacing"),
        (lambda: BoundaryLoss(spacing="1"), TypeError, "spacing"),
        (lambda: BoundaryLoss(spacing=object()), (TypeError, ValueError), "spacing"),
        (lambda: BoundaryLoss(spacing=(1.0,)), ValueError, "spacing has 1 numbers"),
        (lambda: BoundaryLoss(threads=0), ValueError, "threads is 0"),
        (lambda: SurfaceDistanceLoss(tolerance=0), ValueError, "tolerance is 0"),
        (lambda: SurfaceDistanceLoss(tolerance=math.nan), ValueError, "tolerance is nan"),
        (lambda: SurfaceDistanceLoss(form="other"), ValueError, "form is 'other'"),
        (lambda: HausdorffDTLoss(alpha=-1), ValueError, "alpha is -1"),
        (lambda: HausdorffDTLoss(alpha="2"), TypeError, "alpha"),
        (lambda: SoftClDiceLoss(iter_=-1), ValueError, "iter_ is -1"),
        (lambda: SoftClDiceLoss(iter_=1.0), TypeError, "iter_"),
        (lambda: SoftClDiceLoss(smooth=0), ValueError, "smooth is 0"),
        (lambda: SoftClDiceLoss(smooth_nr=-1), ValueError, "smooth_nr is -1"),
        (lambda: SkeletonRecallLoss(smooth_dr=0), ValueError, "smooth_dr is 0"),
        (lambda: Component(1.0), TypeError, "loss must be"),
        (lambda: Component(BoundaryLoss), TypeError, "loss must be"),
        (lambda: Component(BoundaryLoss(), weight=-1), ValueError, "weight is -1"),
        (lambda: Component(BoundaryLoss(), every=0), ValueError, "every is 0"),
        (lambda: Component(BoundaryLoss(), every=2, phase=2), ValueError, "phase is 2"),
        (lambda: Component(BoundaryLoss(), from_epoch=-1), ValueError, "from_epoch is -1"),
        (lambda: Component(BoundaryLoss(), mode="test"), ValueError, "mode is 'test'"),
        (lambda: Component(BoundaryLoss(), rescale=True), ValueError, "rescale has no effect"),
        (lambda: Component(BoundaryLoss(), otherwise="boundary_l1"), ValueError, "otherwise has no effect"),
        (lambda: Component(BoundaryLoss(), every=2, otherwise="l1"), ValueError, "otherwise is 'l1'"),
        (lambda: Component(max, every=2, otherwise="boundary_l1"), ValueError, "otherwise='boundary_l1' needs"),
        (lambda: Component(BoundaryLoss(), mode="validation", every=2), ValueError, "every has no effect"),
        (
            lambda: Component(BoundaryLoss(), every=2, rescale=True, otherwise="boundary_l1"),
            ValueError,
            "rescale excludes otherwise",
        ),
        (lambda: CompositeLoss(BoundaryLoss()), TypeError, "components must be"),
        (lambda: CompositeLoss([]), ValueError, "components"),
        (lambda: CompositeLoss([1.0]), TypeError, r"components\[0\]"),
        (lambda: CompositeLoss([Component(max, weight=0)]), ValueError, "components are all off"),
        (lambda: CompositeLoss([Component(max, every=2)]), ValueError, "components are all off on step 1"),
        (lambda: CompositeLoss([Component(max, mode="train")]), ValueError, "components are all off in validation"),
        (lambda: CompositeLoss([max, Component(max, from_epoch=1)]), ValueError, "steps_per_epoch"),
        (
            lambda: CompositeLoss([max, Component(max, every=99_991), Component(max, every=2)]),
            ValueError,
            "repeat after 199982 steps",
        ),
    ],
)
def test_bad_arguments_of_losses_are_named(make: Callable, error: type, named: str) -> None:
    with pytest.raises(error, match=named):
        make()
