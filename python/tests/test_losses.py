"""Losses against MONAI, and against formulas on SciPy's distances and scikit-image's skeletons."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ndimage = pytest.importorskip("scipy.ndimage")

from loss_cases import LOSSES, SHAPES, assert_equal, case, one_hot, smooth, value_and_gradient  # noqa: E402

from plimsoll.torch import (  # noqa: E402
    BoundaryLoss,
    HausdorffDTLoss,
    LogHausdorffDTLoss,
    SkeletonRecallLoss,
    SoftClDiceLoss,
    SurfaceDistanceLoss,
)


@pytest.mark.parametrize("kind", ["blobs", "empty", "full"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "arguments",
    [
        {"softmax": True, "to_onehot_y": True},
        {"softmax": True, "to_onehot_y": True, "alpha": 1.5, "include_background": True},
        {"softmax": True, "to_onehot_y": True, "reduction": "none"},
        {"softmax": True, "to_onehot_y": True, "reduction": "none", "batch": True},
        {"softmax": True, "to_onehot_y": True, "reduction": "sum", "batch": True},
        {"other_act": torch.tanh, "to_onehot_y": True},
    ],
)
def test_the_hausdorff_loss_is_monais(shape: tuple, kind: str, arguments: dict) -> None:
    losses = pytest.importorskip("monai.losses")
    logits, labels = case(shape, kind)
    for ours, theirs in [
        (HausdorffDTLoss, losses.HausdorffDTLoss),
        (LogHausdorffDTLoss, losses.LogHausdorffDTLoss),
    ]:
        expected = value_and_gradient(theirs(**arguments), logits, labels)
        assert_equal(value_and_gradient(ours(**arguments), logits, labels), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_regions_with_sigmoids_are_monais(shape: tuple) -> None:
    losses = pytest.importorskip("monai.losses")
    logits, labels = case(shape)
    regions = torch.cat([labels > 0, labels > 1, labels == 1], 1).float()
    arguments = {"sigmoid": True, "include_background": True}
    for ours, theirs in [(HausdorffDTLoss, losses.HausdorffDTLoss), (SoftClDiceLoss, losses.SoftclDiceLoss)]:
        expected = value_and_gradient(theirs(**arguments), logits, regions)
        assert_equal(value_and_gradient(ours(**arguments), logits, regions), expected)
        for target in (regions.bool(), regions.byte(), regions.long()):
            assert_equal(value_and_gradient(ours(**arguments), logits, target), expected)
        logit = logits.detach()[:, :1].clone().requires_grad_()
        expected = value_and_gradient(theirs(**arguments), logit, regions[:, :1])
        assert_equal(value_and_gradient(ours(sigmoid=True), logit, regions[:, :1]), expected)


@pytest.mark.parametrize("kind", ["blobs", "empty", "full"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "arguments",
    [
        {"softmax": True, "to_onehot_y": True},
        {"softmax": True, "to_onehot_y": True, "include_background": False, "iter_": 1, "smooth_nr": 0.5},
        {"sigmoid": True, "to_onehot_y": True, "reduction": "none", "smooth_dr": 0.25, "smooth": 0.01, "iter_": 0},
        {"other_act": torch.sigmoid, "to_onehot_y": True, "reduction": "sum"},
    ],
)
def test_soft_cldice_is_monais(shape: tuple, kind: str, arguments: dict) -> None:
    losses = pytest.importorskip("monai.losses")
    logits, labels = case(shape, kind)
    expected = value_and_gradient(losses.SoftclDiceLoss(**arguments), logits, labels)
    assert_equal(value_and_gradient(SoftClDiceLoss(**arguments), logits, labels), expected)


def scipys(mask: torch.Tensor, sampling: tuple, kind: str) -> torch.Tensor:
    """Return signed distances, 0 without another side, or distances from outside, infinite for an empty mask."""
    found = np.zeros(mask.shape)
    for index in np.ndindex(mask.shape[:2]):
        inside = mask[index].numpy() > 0.5
        if kind == "outside":
            found[index] = ndimage.distance_transform_edt(~inside, sampling) if inside.any() else np.inf
        elif inside.any() and not inside.all():
            found[index] = ndimage.distance_transform_edt(~inside, sampling)
            found[index] -= ndimage.distance_transform_edt(inside, sampling)
    return torch.tensor(found)


@pytest.mark.parametrize("kind", ["blobs", "empty", "full"])
@pytest.mark.parametrize("shape", SHAPES)
def test_boundary_and_surface_losses_are_their_formulas_on_scipys_distances(shape: tuple, kind: str) -> None:
    logits, labels = case(shape, kind)
    sampling = (2.5, 0.8, 1.25)[: len(shape) - 2]
    tolerance = 1.75
    arguments = {"softmax": True, "to_onehot_y": True, "spacing": sampling}

    def bounded(mask: torch.Tensor) -> torch.Tensor:
        return (scipys(mask, sampling, "outside") / tolerance).clamp(max=1)

    def boundary(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (scipys(one_hot(y)[:, 1:], sampling, "signed") * x.softmax(1)[:, 1:]).mean()

    def surface(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p, t = x.softmax(1)[:, 1:], one_hot(y)[:, 1:]
        return (bounded(t) * p).mean() + (bounded(p.detach()) * t * (1 - p)).mean()

    def published(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p, t = x.softmax(1)[:, 1:], one_hot(y)[:, 1:]
        return (bounded(t) * (1 - p)).mean() + (bounded(p.detach()) * t).mean()

    as_published = SurfaceDistanceLoss(**arguments, tolerance=tolerance, form="as_published")
    for ours, formula in [
        (BoundaryLoss(**arguments), boundary),
        (SurfaceDistanceLoss(**arguments, tolerance=tolerance), surface),
        (as_published, published),
    ]:
        expected = value_and_gradient(formula, logits, labels)
        assert_equal(value_and_gradient(ours, logits, labels), expected)


@pytest.mark.parametrize("arguments", [{}, {"batch": True, "smooth_nr": 1.0, "smooth_dr": 1.0}])
@pytest.mark.parametrize("depth", [24, None])
def test_skeleton_recall_is_its_authors_plus_1(depth: int | None, arguments: dict) -> None:
    morphology = pytest.importorskip("skimage.morphology")
    z, y, x = np.indices((depth or 1, 20, 22))
    centre = 10 + 4 * np.sin(z / 5) if depth else 3 + 0.7 * x
    tube = (np.hypot(y - centre, x - 11) < 3) if depth else np.abs(y - centre) < 3
    labels = torch.tensor(np.stack([tube * (1 + (x > 11)), np.roll(tube, 3, 2)]).astype(np.int64))[:, None]
    labels = labels if depth else labels[:, :, 0]
    logits = torch.tensor(smooth((2, 3, *labels.shape[2:]), 0)).requires_grad_()

    def reference(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        tubed = torch.zeros_like(target)
        for sample, labels in enumerate(target[:, 0].numpy()):
            skeleton = morphology.skeletonize(labels > 0, method="lee").astype(np.uint8)
            wide = morphology.dilation(morphology.dilation(skeleton))
            tubed[sample, 0] = torch.from_numpy(wide.astype(np.int64) * labels)
        skeletons = one_hot(tubed)[:, 1:]
        axes = [0, *range(2, target.dim())] if arguments else list(range(2, target.dim()))
        smoothing = 1.0 if arguments else 1e-5
        overlap, size = (skeletons * prediction.softmax(1)[:, 1:]).sum(axes), skeletons.sum(axes)
        return 1 - ((overlap + smoothing) / (size + smoothing)).mean()

    expected = value_and_gradient(reference, logits, labels)
    loss = SkeletonRecallLoss(softmax=True, to_onehot_y=True, **arguments)
    assert_equal(value_and_gradient(loss, logits, labels), expected)


def test_blocks_of_extents_that_the_scale_does_not_divide_are_means_of_their_voxels() -> None:
    logits = torch.tensor(smooth((1, 1, 5, 7), 0)).requires_grad_()
    target = (torch.tensor(smooth((1, 1, 5, 7), 1)) > 0).float()
    p = torch.stack(
        [
            torch.stack(
                [
                    torch.sigmoid(logits[..., 5 * i // 3 : 5 * (i + 1) // 3, 7 * j // 4 : 7 * (j + 1) // 4]).mean()
                    for j in range(4)
                ]
            )
            for i in range(3)
        ]
    )[None, None]
    rows, columns = [(2 * i + 1) * 5 // 6 for i in range(3)], [(2 * j + 1) * 7 // 8 for j in range(4)]
    t = target[:, :, rows][..., columns]
    distances = scipys(t, (2.0 * 5 / 3, 0.5 * 7 / 4), "signed")
    found = BoundaryLoss(sigmoid=True, spacing=(2.0, 0.5), scale=2)(logits, target)
    torch.testing.assert_close(found, (distances * p).mean(), rtol=1e-6, atol=0)


def test_lower_precisions_have_finite_losses() -> None:
    target = torch.ones(1, 1, 48, 48, 48)
    for dtype in (torch.float16, torch.bfloat16):
        logits = torch.zeros(1, 1, 48, 48, 48, dtype=dtype, requires_grad=True)
        for kind in LOSSES:
            value = kind(sigmoid=True)(logits, target)
            value.backward()
            assert value.isfinite() and logits.grad.isfinite().all(), kind


def test_channels_last_tensors_have_the_same_loss() -> None:
    logits, labels = case((2, 3, 6, 9, 7))
    target = one_hot(labels)
    for kind in LOSSES:
        loss = kind(softmax=True)
        expected = value_and_gradient(loss, logits, target)
        layout = torch.channels_last_3d
        other = logits.detach().contiguous(memory_format=layout).requires_grad_()
        assert_equal(value_and_gradient(loss, other, target.contiguous(memory_format=layout)), expected, 1e-6)


def test_tensors_with_metadata_have_the_same_loss() -> None:
    data = pytest.importorskip("monai.data")
    logits, labels = case(SHAPES[0])
    for kind in LOSSES:
        loss = kind(softmax=True, to_onehot_y=True)
        expected = value_and_gradient(loss, logits, labels)
        found = value_and_gradient(loss, logits, data.MetaTensor(labels, affine=torch.eye(4)))
        assert type(found[0]) is torch.Tensor
        assert_equal(found, expected, 1e-7)
        assert type(loss(data.MetaTensor(logits.detach()), labels)) is torch.Tensor
