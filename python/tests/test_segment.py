"""TotalSegmentator's tasks, with small models in the places of its own."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest

import plimsoll

ORACLES = pathlib.Path(__file__).resolve().parents[2] / "oracles" / "total_segmentator"
pytestmark = pytest.mark.skipif(not ORACLES.is_dir(), reason="reference models are in the repository alone")
nibabel = pytest.importorskip("nibabel")

CT = ORACLES / "ct.nii.gz"
OPTIONS: dict[str, Any] = {"weights": ORACLES / "weights", "ram": "300MiB", "threads": 2}


def stored(path: pathlib.Path) -> Any:
    return np.asarray(nibabel.load(path).dataobj)


def assert_alike(found: Any, name: str) -> None:
    """At most one voxel in ten thousand differs."""
    expected = stored(ORACLES / name)
    assert found.shape == expected.shape and (found != expected).sum() * 10_000 <= expected.size


def test_labels_of_an_image_of_nibabel_are_those_of_totalsegmentator() -> None:
    image = nibabel.load(CT)
    labels = plimsoll.segment("total", image, fast=True, **OPTIONS)
    assert isinstance(labels, nibabel.Nifti1Image)
    assert_alike(np.asarray(labels.dataobj), "fast.nii.gz")
    np.testing.assert_array_equal(labels.affine, image.affine)


def test_arrays_and_paths_without_output_return_labels() -> None:
    image = nibabel.load(CT)
    of_array = plimsoll.segment("total", np.asarray(image.dataobj), affine=image.affine, fast=True, **OPTIONS)
    of_path = plimsoll.segment("total", CT, fast=True, **OPTIONS)
    np.testing.assert_array_equal(of_array, of_path.T)
    assert_alike(of_array, "fast.nii.gz")


def test_files_are_written_beside_each_other(tmp_path: pathlib.Path) -> None:
    to = tmp_path / "labels.nii.gz"
    found = plimsoll.segment(
        "total", CT, to, ml=True, roi_subset=["liver", "rib_left_1"], statistics=True, report=True, **OPTIONS
    )
    assert found == to
    assert_alike(stored(to), "subset.nii.gz")
    statistics = json.loads((tmp_path / "labels.statistics.json").read_text())
    assert "liver" in json.dumps(statistics)
    columns, *rows = (tmp_path / "labels.report.csv").read_text().splitlines()
    assert "mesh_volume_mm3" in columns and [row.split(",")[0] for row in rows] == ["liver", "rib_left_1"]
    masks = plimsoll.segment("total", CT, tmp_path / "masks", fast=True, **OPTIONS)
    names = plimsoll.segmentation_labels("total")
    assert sorted(path.name for path in masks.iterdir()) == sorted(f"{name}.nii.gz" for name in names.values())
    assert names[5] == "liver" and len(names) == 117


def test_arguments_without_effect_are_refused(tmp_path: pathlib.Path) -> None:
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"task": "heart"}, plimsoll.Error, "heart"),
        ({"fast": True, "fastest": True}, ValueError, "fastest"),
        ({"preview": True}, ValueError, "preview has no effect"),
        ({"model_size": "small"}, ValueError, "model_size"),
        ({"roi_subset": ["livre"]}, plimsoll.Error, "livre"),
        ({"task": ["total", "body"]}, ValueError, "several tasks, which need output"),
        ({"task": []}, ValueError, "task names no task"),
        ({"task": "breasts", "roi_subset": ["liver"]}, ValueError, "roi_subset"),
        ({"segmentation_type": "binary"}, ValueError, "segmentation_type"),
        ({"statistics_exclude_masks_at_border": False}, ValueError, "statistics_exclude_masks_at_border"),
        ({"no_derived_masks": True}, ValueError, "no_derived_masks"),
        ({"robust_crop": True}, plimsoll.Error, "robust_crop"),
        ({"weights": tmp_path}, plimsoll.Error, "Dataset"),
        ({"ram": "1MiB"}, plimsoll.OverLimit, "needs"),
        ({"spacing": 1.0}, ValueError, "spacing"),
    ]
    for options, error, text in refused:
        arguments = {"task": "total", **OPTIONS, **options}
        with pytest.raises(error, match=text):
            plimsoll.segment(arguments.pop("task"), CT, **arguments)
    with pytest.raises(ValueError, match="output"):
        plimsoll.segment("total", np.zeros((4, 4, 4)), tmp_path / "a.nii.gz", ml=True, **OPTIONS)
    with pytest.raises(ValueError, match="2 channels"):
        plimsoll.segment("total", np.zeros((2, 4, 4, 4)), **OPTIONS)
    with pytest.raises(ValueError, match="task is 'heart'"):
        plimsoll.segmentation_labels("heart")
