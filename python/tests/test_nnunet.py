"""The predictor with nnU-Net's interface."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import plimsoll
from plimsoll.nnunet import Predictor

ORACLES = pathlib.Path(__file__).resolve().parents[2] / "oracles" / "nnunet"
pytestmark = pytest.mark.skipif(not ORACLES.is_dir(), reason="reference models are in the repository alone")
nibabel = pytest.importorskip("nibabel")

FULLRES = ORACLES / "fullres"
TRAINED = FULLRES / "results" / "Dataset101_Fullres" / "nnUNetTrainer__nnUNetPlans__3d_fullres"


def stored(path: pathlib.Path) -> Any:
    return np.asarray(nibabel.load(path).dataobj).T


def expected(case: str) -> Any:
    return stored(FULLRES / "expected" / "3d_fullres" / f"{case}.nii.gz")


def is_same(found: Any, reference: Any) -> bool:
    return found.shape == reference.shape and float((found == reference).mean()) > 0.999


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    predictor = Predictor(threads=2, ram="512MiB", allow_tqdm=False, perform_everything_on_device=False)
    predictor.initialize_from_trained_model_folder(TRAINED, use_folds=(0, 1))
    return predictor


def test_a_folder_is_predicted_into_a_folder(predictor: Predictor, tmp_path: pathlib.Path) -> None:
    assert predictor.predict_from_files(str(FULLRES / "images"), str(tmp_path), save_probabilities=True) is None
    for case in ("first", "second"):
        assert is_same(stored(tmp_path / f"{case}.nii.gz"), expected(case))
        assert (tmp_path / f"{case}.npz").is_file()


def test_lists_of_files_are_predicted_in_parts_or_returned(predictor: Predictor, tmp_path: pathlib.Path) -> None:
    cases = [[FULLRES / "images" / f"{case}_{channel:04}.nii.gz" for channel in (0, 1)] for case in ("first", "second")]
    outputs = [tmp_path / "one", tmp_path / "two"]
    predictor.predict_from_files(cases, outputs, num_parts=2, part_id=1)
    assert [path.name for path in tmp_path.iterdir()] == ["two.nii.gz"]
    assert is_same(stored(tmp_path / "two.nii.gz"), expected("second"))
    written = (tmp_path / "two.nii.gz").stat().st_mtime_ns
    predictor.predict_from_files_sequential(cases, outputs, overwrite=False)
    assert (tmp_path / "two.nii.gz").stat().st_mtime_ns == written
    assert is_same(stored(tmp_path / "one.nii.gz"), expected("first"))
    returned = predictor.predict_from_files(str(FULLRES / "images"), None, save_probabilities=True)
    assert returned is not None and len(returned) == 2
    labels, probabilities = returned[0]
    assert is_same(labels, expected("first")) and is_same(probabilities.argmax(0), labels)
    folder = tmp_path / "folder"
    predictor.predict_from_files(cases, folder, num_parts=2, part_id=0)
    assert [path.name for path in folder.iterdir()] == ["first.nii.gz"]


def test_an_array_is_predicted_with_the_properties_of_nnunets_readers(
    predictor: Predictor, tmp_path: pathlib.Path
) -> None:
    paths = [FULLRES / "images" / f"first_{channel:04}.nii.gz" for channel in (0, 1)]
    image = np.stack([stored(path) for path in paths]).astype(np.float32)
    spacing = [float(length) for length in nibabel.load(paths[0]).header.get_zooms()[::-1]]
    labels = predictor.predict_single_npy_array(image, {"spacing": spacing})
    assert is_same(labels, expected("first"))
    labels, probabilities = predictor.predict_single_npy_array(image, {"spacing": spacing}, None, None, True)
    assert probabilities.shape == (len(predictor.model.labels), *labels.shape)
    sitk = pytest.importorskip("SimpleITK")
    first = sitk.ReadImage(str(paths[0]))
    stuff = {"spacing": first.GetSpacing(), "origin": first.GetOrigin(), "direction": first.GetDirection()}
    properties = {"spacing": spacing, "sitk_stuff": stuff}
    assert predictor.predict_single_npy_array(image, properties, None, tmp_path / "labels") is None
    written = sitk.ReadImage(str(tmp_path / "labels.nii.gz"))
    np.testing.assert_array_equal(sitk.GetArrayFromImage(written), labels)
    for found, given in [(written.GetOrigin(), first.GetOrigin()), (written.GetDirection(), first.GetDirection())]:
        np.testing.assert_allclose(found, given, atol=1e-5)


def test_a_cascade_takes_the_labels_of_its_earlier_stage(tmp_path: pathlib.Path) -> None:
    cascade = ORACLES / "cascade"
    predictor = Predictor(threads=2, allow_tqdm=False)
    folder = cascade / "results" / "Dataset105_Cascade" / "nnUNetTrainer__nnUNetPlans__3d_cascade_fullres"
    predictor.initialize_from_trained_model_folder(folder, use_folds=None)
    predictor.predict_from_files(
        str(cascade / "images"),
        str(tmp_path),
        folder_with_segs_from_prev_stage=str(cascade / "expected" / "3d_lowres"),
    )
    assert is_same(
        stored(tmp_path / "first.nii.gz"), stored(cascade / "expected" / "3d_cascade_fullres" / "first.nii.gz")
    )


def test_what_cannot_be_done_is_explained(predictor: Predictor, tmp_path: pathlib.Path, capsys: Any) -> None:
    with pytest.raises(RuntimeError, match="initialize_from_trained_model_folder"):
        Predictor().predict_from_files("a", "b")
    with pytest.raises(ValueError, match="part_id"):
        predictor.predict_from_files([], None, num_parts=2, part_id=2)
    with pytest.raises(ValueError, match="folder_with_segs_from_prev_stage"):
        predictor.predict_from_files([], None, folder_with_segs_from_prev_stage="a")
    with pytest.raises(ValueError, match="1 output files are named for 2 cases"):
        predictor.predict_from_files([["a"], ["b"]], ["c"])
    image = np.zeros((2, 4, 4, 4), np.float32)
    with pytest.raises(ValueError, match="segmentation_previous_stage"):
        predictor.predict_single_npy_array(image, {"spacing": [1, 1, 1]}, image[0])
    with pytest.raises(ValueError, match="axes"):
        predictor.predict_single_npy_array(image[0], {"spacing": [1, 1, 1]})
    with pytest.raises(plimsoll.Error, match="checkpoint_best"):
        Predictor().initialize_from_trained_model_folder(TRAINED, (0,), "checkpoint_best.pth")
    Predictor(verbose=True).initialize_from_trained_model_folder(TRAINED, "0")
    assert "nnUNetTrainer" in capsys.readouterr().out
