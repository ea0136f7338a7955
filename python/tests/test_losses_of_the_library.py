"""Losses against the library's reference values: the same name has the same number."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from loss_cases import value_and_gradient  # noqa: E402

from plimsoll.torch import (  # noqa: E402
    BoundaryL1Loss,
    BoundaryLoss,
    HausdorffDTLoss,
    LogHausdorffDTLoss,
    SkeletonRecallLoss,
    SoftClDiceLoss,
    SurfaceDistanceLoss,
)

ORACLES = Path(__file__).parents[2] / "oracles"


def noise(seed: int, count: int) -> np.ndarray:
    """Return the numbers that the library's tests and its reference values are made from."""
    numbers = (np.uint64(seed) << np.uint64(32)) ^ np.arange(count, dtype=np.uint64) ^ np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(factor)
    return (numbers >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def reference_cases(file: str) -> list[dict]:
    path = ORACLES / file
    if not path.exists():
        pytest.skip(f"{path} is part of the source tree only")
    return json.loads(path.read_text())


def distance_case(case: dict) -> tuple:
    batch, classes, extent = 2, 3, (4, 4, 4)
    voxels = math.prod(extent)
    z, y, x = np.indices(extent)
    masks = {
        "random": np.floor((noise(2, batch * voxels) + 1) / 2 * classes),
        "empty": np.zeros(batch * voxels),
        "full": np.ones(batch * voxels),
        "one_voxel": np.arange(batch * voxels) == voxels // 2 + 3,
        "corner": np.tile((z < 2) & (y < 3) & (x > 2), (batch, 1, 1, 1)),
    }
    logits = np.round(noise(1, batch * classes * voxels) * case["logits"] * 128) / 128
    logits = logits.reshape(batch, classes, *extent)
    if case["favoured"] is not None:
        logits[:, case["favoured"]] += 8
    labels = np.asarray(masks[case["mask"]]).reshape(batch, 1, *extent).astype(np.int64)
    return torch.tensor(logits).requires_grad_(), torch.tensor(labels)


def distance_loss(case: dict) -> torch.nn.Module:
    spacing = (2.5, 0.8, 1.0) if case["unit"] == "mm" else None
    arguments = {"softmax": True, "to_onehot_y": True, "ignore_index": case["ignore"], "scale": case["scale"]}
    term = case["term"]
    if term is None:
        return BoundaryL1Loss(**arguments)
    if term == "Boundary":
        return BoundaryLoss(**arguments, spacing=spacing)
    if "Hausdorff" in term:
        kind = LogHausdorffDTLoss if term["Hausdorff"]["log"] else HausdorffDTLoss
        return kind(**arguments, spacing=spacing, alpha=term["Hausdorff"]["alpha"])
    return SurfaceDistanceLoss(**arguments, spacing=spacing, **term["Surface"])


def test_losses_of_distances_have_reference_values_of_the_library() -> None:
    names = set()
    for case in reference_cases("shape_losses.json"):
        logits, labels = distance_case(case)
        value, gradient = value_and_gradient(distance_loss(case), logits, labels)
        expected = torch.tensor(case["gradient"], dtype=torch.float64).reshape(gradient.shape)
        assert abs(float(value) - case["value"]) <= 1e-6 * max(abs(case["value"]), 0.01), case["name"]
        assert float((gradient - expected).abs().max()) <= 1e-5 * max(float(expected.abs().max()), 1e-9), case["name"]
        names.add(case["name"])
    assert len(names) == 14


def soft_case(case: dict) -> tuple:
    batch, classes, extent = 2, 3, tuple(case["extent"])
    voxels, shape = math.prod(extent), (batch, classes, *extent)
    _, h, w = np.meshgrid(*(np.arange(n) for n in extent), indexing="ij")
    tube = (np.abs(h - w) <= 1).ravel()
    masks = {
        "random": np.floor((noise(2, batch * voxels) + 1) / 2 * classes),
        "empty": np.zeros(batch * voxels),
        "full": np.ones(batch * voxels),
        "one_voxel": np.arange(batch * voxels) == 4,
        "border": np.tile((h < 2).ravel(), batch),
        "tube": np.tile(tube * (1 + (w.ravel() > 3)), batch),
    }
    levels = np.zeros(shape)
    levels[:, 1] = np.round(1.5 * noise(3, batch * voxels)).reshape(batch, *extent)
    at_random = noise(1, math.prod(shape))
    logits = {
        "moderate": np.round(at_random * 2 * 128) / 128,
        "large": np.round(at_random * 12 * 128) / 128,
        "flat": 0 * at_random,
        "levels": levels,
    }[case["logits"]].reshape(shape)
    labels = masks[case["mask"]].reshape(batch, 1, *extent).astype(np.int64)
    if extent[0] == 1:
        logits, labels = logits[:, :, 0], labels[:, :, 0]
    return torch.tensor(logits).requires_grad_(), torch.tensor(labels)


def test_losses_of_skeletons_have_reference_values_of_the_library() -> None:
    names: dict[str, int] = {}
    for case in reference_cases("soft_losses.json"):
        components = case["loss"]["components"]
        options = {key: value for key, value in components[0].items() if key != "name"}
        short = {"iterations": "iter_", "smooth_numerator": "smooth_nr", "smooth_denominator": "smooth_dr"}
        arguments = {short.get(key, key): value for key, value in options.items()}
        arguments |= {"softmax": True, "to_onehot_y": True, "ignore_index": case["loss"]["ignore"]}
        logits, labels = soft_case(case)
        if components[0]["name"] == "cldice":
            loss = SoftClDiceLoss(include_background=False, **arguments)
        elif components[0]["name"] == "skeleton_recall" and case["mask"] != "random":
            # Of noise, scikit-image's skeleton does not keep the topology.
            loss = SkeletonRecallLoss(**arguments)
        else:
            continue
        value, gradient = value_and_gradient(loss, logits, labels)
        expected = torch.tensor(case["gradient"], dtype=torch.float64).reshape(gradient.shape)
        assert abs(float(value) - case["value"]) <= 1e-6 * max(abs(case["value"]), 0.01), case["name"]
        assert float((gradient - expected).abs().max()) <= 1e-5 * max(float(expected.abs().max()), 1e-9), case["name"]
        names[case["name"]] = names.get(case["name"], 0) + 1
    assert set(names) == {"cldice", "cldice_smooth", "cldice_ignore", "skeleton_recall", "skeleton_recall_batch"}
