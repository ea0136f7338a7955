"""Interactive sessions, against what nnInteractive makes of the same prompts."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import plimsoll

ORACLE = pathlib.Path(__file__).resolve().parents[2] / "oracles" / "nninteractive"
pytestmark = pytest.mark.skipif(not ORACLE.is_dir(), reason="reference models are in the repository alone")


def image() -> npt.NDArray[Any]:
    with np.load(ORACLE / "image.npz") as arrays:
        return np.asarray(arrays["image"])


def expected(sequence: str, step: int) -> npt.NDArray[Any]:
    """Return the segmentation of nnInteractive after a step."""
    shape = image().shape
    with np.load(ORACLE / f"{sequence}.npz") as arrays:
        return np.unpackbits(arrays[f"step_{step}"], count=int(np.prod(shape))).reshape(shape)


@pytest.fixture
def session() -> plimsoll.InteractiveSession:
    session = plimsoll.InteractiveSession(ORACLE / "model", threads=2, ram="1GiB")
    session.set_image(image())
    return session


def test_a_session_describes_its_model_and_plans_its_memory(session: plimsoll.InteractiveSession) -> None:
    assert session.license == "CC0 1.0" and session.patch_size == (72, 80, 76)
    assert "points" in session.kinds and "solid boxes" not in session.kinds
    assert session.scribble_thickness == (2.0, 2.0, 2.0) and "patches" in repr(session)
    plan = session.plan((96, 128, 104))
    assert plan["total_bytes"] <= 1 << 30 and plan["image_bytes"] >= 4 * 96 * 128 * 104
    with pytest.raises(plimsoll.OverLimit):
        plimsoll.InteractiveSession(ORACLE / "model", ram="1GiB").plan((2000, 2000, 2000))


def test_points_without_zoom_give_the_labels_of_nninteractive(session: plimsoll.InteractiveSession) -> None:
    session.set_auto_zoom(False)
    steps = json.loads((ORACLE / "sequences.json").read_text())["sequences"]["still"]["steps"]
    out = np.empty(image().shape, np.uint8)
    passes: list[tuple[int, int]] = []
    for number, step in enumerate(steps):
        changed = session.add_point(step["at"], step["include"], progress=lambda *at: passes.append(at))
        assert changed == tuple(slice(start, end) for start, end in step["changed"])
        assert session.segmentation(out) is out and passes == [(1, 1)] * (number + 1)
        np.testing.assert_array_equal(out, expected("still", number))
    assert session.prompts == 2 and session.undo() and not session.undo()
    np.testing.assert_array_equal(session.segmentation(), expected("still", 0))
    session.reset()
    assert session.prompts == 0 and not session.segmentation().any() and session.predict() is None


def test_prompts_may_be_added_before_a_prediction(session: plimsoll.InteractiveSession) -> None:
    session.set_auto_zoom(False)
    mask = np.zeros((1, 9, 9), bool)
    mask[0, 3:6, 3:6] = True
    assert session.add_lasso(mask, start=(30, 30, 30), predict=False) is None
    assert session.add_scribble(mask, False, start=(30, 50, 60), predict=False) is None
    assert session.add_box(((30, 31), (24, 46), (25, 47)), predict=False) is None
    assert session.prompts == 3 and session.predict() is not None
    assert session.add_initial_segmentation(image() > 450) is None
    np.testing.assert_array_equal(session.segmentation(), image() > 450)


def test_wrong_arguments_are_named_with_a_remedy(session: plimsoll.InteractiveSession) -> None:
    with pytest.raises(plimsoll.Error, match="outside of the image") as found:
        session.add_point((96, 0, 0))
    assert found.value.remedy is not None and "depth, height, width" in found.value.remedy
    with pytest.raises(plimsoll.Error, match="marks no voxel"):
        session.add_scribble(np.zeros((1, 4, 4)))
    with pytest.raises(plimsoll.Error, match="solid box"):
        session.add_box(((1, 4), (1, 4), (1, 4)))
    with pytest.raises(plimsoll.Error, match="has no voxel"):
        session.add_box(((1, 1), (1, 4), (1, 4)))
    with pytest.raises(ValueError, match="point has 2 numbers"):
        session.add_point((1, 2))
    with pytest.raises(ValueError, match="channels"):
        session.set_image(np.zeros((2, 4, 4, 4), np.float32))
    with pytest.raises(plimsoll.Error, match="inference_info.json"):
        plimsoll.InteractiveSession(ORACLE)
    session.close()
    with pytest.raises(plimsoll.Error, match="closed"):
        session.undo()
