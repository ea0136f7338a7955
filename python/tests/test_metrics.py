"""Scores against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import plimsoll


def test_overlap_is_counted_for_each_label() -> None:
    ref = np.array([[1, 1, 0], [2, 2, 0]])
    pred = np.array([[1, 0, 0], [2, 2, 2]])
    scores = plimsoll.evaluate(pred, ref)
    assert list(scores) == [1, 2] and len(scores) == 2
    assert scores[1]["Dice"] == 2 / 3 and scores[2]["Dice"] == 4 / 5
    assert scores[1]["TP"] == 1 and scores[1]["FN"] == 1 and scores[2]["FP"] == 1


def test_ignored_voxels_are_not_counted() -> None:
    ref = np.array([[1, 1, 3], [3, 0, 0]], np.int16)
    pred = np.array([[1, 0, 1], [0, 0, 0]], np.int16)
    scores = plimsoll.evaluate(pred, ref, ignore=3)
    assert list(scores) == [1]
    assert scores[1]["TP"] + scores[1]["FP"] + scores[1]["FN"] + scores[1]["TN"] == 4


def test_surfaces_of_shifted_cubes_are_a_shift_apart() -> None:
    ref, pred = np.zeros((12, 12, 12), bool), np.zeros((12, 12, 12), bool)
    ref[2:6, 2:6, 2:6] = True
    pred[5:9, 2:6, 2:6] = True
    found = plimsoll.surface_distances(pred, ref, spacing=(2.0, 1.0, 1.0), surface="voxels", tolerance=6.0)
    assert found.hausdorff == pytest.approx(6.0) and found.surface_dice == 1.0
    scores = plimsoll.evaluate(pred, ref, spacing=(2.0, 1.0, 1.0), metrics=["surface"], surface="voxels")
    assert scores[1]["HD"] == pytest.approx(found.hausdorff)
    assert scores[1]["ASSD"] == pytest.approx(found.average_symmetric)


def test_empty_masks_follow_monai() -> None:
    mask = np.ones((3, 3, 3), bool)
    assert math.isinf(plimsoll.surface_distances(mask, ~mask).hausdorff)
    assert math.isnan(plimsoll.surface_distances(~mask, ~mask).hausdorff)
    assert math.isnan(plimsoll.evaluate(~mask, ~mask, labels=[1])[1]["Dice"])


def test_all_groups_have_scores() -> None:
    mask = np.zeros((20, 9, 9), np.uint8)
    mask[2:18, 3:6, 3:6] = 4
    scores = plimsoll.evaluate(mask, mask, metrics="all")[4]
    assert scores["Dice"] == 1.0 and scores["HD95"] == 0.0 and scores["clDice"] == 1.0 and scores["Betti0Error"] == 0.0


def test_a_table_has_a_row_for_each_label() -> None:
    pytest.importorskip("pandas")
    table = plimsoll.evaluate(np.array([[1, 2]]), np.array([[1, 2]])).to_dataframe()
    assert list(table.index) == [1, 2] and table.loc[2, "Dice"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"pred": np.zeros((3, 3), int)}, ValueError, "pred has the shape"),
        ({"pred": np.zeros((3, 4))}, TypeError, "pred"),
        ({"ref": np.full((3, 4), 300)}, ValueError, "ref has labels from 300 to 300"),
        ({"labels": [1.5]}, ValueError, "labels"),
        ({"ignore": 256}, ValueError, "ignore"),
        ({"metrics": "dice"}, ValueError, "metrics"),
        ({"surface": "mesh"}, ValueError, "surface"),
        ({"spacing": (1.0, float("inf"))}, ValueError, "spacing"),
        ({"tolerance": float("nan")}, ValueError, "tolerance"),
    ],
)
def test_bad_arguments_are_named(arguments: dict, error: type, named: str) -> None:
    call = {"pred": np.ones((3, 4), int), "ref": np.ones((3, 4), int), **arguments}
    with pytest.raises(error, match=named):
        plimsoll.evaluate(**call)
