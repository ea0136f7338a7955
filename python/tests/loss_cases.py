"""Tensors for tests of losses, and comparisons of values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ndimage = pytest.importorskip("scipy.ndimage")

from plimsoll.torch import (  # noqa: E402
    BoundaryL1Loss,
    BoundaryLoss,
    HausdorffDTLoss,
    SkeletonRecallLoss,
    SoftClDiceLoss,
    SurfaceDistanceLoss,
)

SHAPES = [(2, 3, 6, 9, 7), (2, 3, 12, 9)]
LOSSES = [BoundaryLoss, SurfaceDistanceLoss, HausdorffDTLoss, SoftClDiceLoss, SkeletonRecallLoss, BoundaryL1Loss]


def smooth(shape: tuple[int, ...], seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(shape)
    blurred = ndimage.gaussian_filter(noise, (0, 0, *(1.5,) * (len(shape) - 2)))
    return 3 * blurred / blurred.std()


def case(shape: tuple[int, ...], kind: str = "blobs", dtype: torch.dtype = torch.float32) -> tuple:
    """Return logits that require a gradient, and labels."""
    logits = torch.tensor(smooth(shape, 0), dtype=dtype).requires_grad_()
    labels = torch.tensor(smooth(shape, 1)).argmax(1, keepdim=True)
    if kind != "blobs":
        labels[0] = {"empty": 0, "full": 1}[kind]
        logits.data[0, 1] += {"empty": -40, "full": 40}[kind]
    return logits, labels


def value_and_gradient(loss: Callable, logits: torch.Tensor, target: torch.Tensor) -> tuple:
    logits.grad = None
    value = loss(logits, target)
    value.sum().backward()
    return value.detach(), logits.grad.clone()


def assert_equal(found: tuple, expected: tuple, tolerance: float = 1e-5) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        scale = max(float(theirs.abs().max()), 1e-12)
        assert float((ours.double() - theirs.double()).abs().max()) <= tolerance * scale


def one_hot(labels: torch.Tensor, classes: int = 3) -> torch.Tensor:
    return torch.cat([labels == label for label in range(classes)], 1).float()


def images(**changes: object) -> dict:
    return {"input": torch.rand(1, 3, 4, 5, requires_grad=True), "target": torch.zeros(1, 1, 4, 5), **changes}
