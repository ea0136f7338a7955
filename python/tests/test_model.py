"""Models of several origins, for images of several kinds."""

from __future__ import annotations

import json
import pathlib
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import plimsoll

ORACLES = pathlib.Path(__file__).resolve().parents[2] / "oracles"
pytestmark = pytest.mark.skipif(not ORACLES.is_dir(), reason="reference models are in the repository alone")
nibabel = pytest.importorskip("nibabel")

NNUNET = ORACLES / "nnunet" / "fullres"
RUN = ORACLES / "exported" / "plain"
Labels = npt.NDArray[np.uint8]


def stored(path: pathlib.Path) -> Labels:
    """Return voxels (depth, height, width) as they lie in a file."""
    return np.asarray(nibabel.load(path).dataobj).T


def agreement(found: Any, expected: Any) -> float:
    assert found.shape == expected.shape
    return float((np.asarray(found) == np.asarray(expected)).mean())


def channels(folder: pathlib.Path, case: str) -> list[pathlib.Path]:
    return sorted(folder.glob(f"{case}_*.nii*"))


@pytest.fixture(scope="module")
def nnunet() -> plimsoll.Model:
    return plimsoll.Model(NNUNET / "results" / "Dataset101_Fullres", threads=2)


@pytest.fixture(scope="module")
def run() -> plimsoll.Model:
    return plimsoll.Model(RUN / "run", use_mirroring=True, threads=2)


def test_a_model_is_described(nnunet: plimsoll.Model, run: plimsoll.Model) -> None:
    assert nnunet.kind == "nnunet" and nnunet.folds == 2 and len(nnunet.channels) == 2
    assert nnunet.labels["background"] == 0 and len(nnunet.patch_size) == 3
    assert run.kind == "run" and run.folds == 1 and "run" in repr(run)
    assert plimsoll.Model(NNUNET / "results" / "Dataset101_Fullres", folds=1).folds == 1


def test_labels_of_files_are_those_of_nnunet(nnunet: plimsoll.Model) -> None:
    for case in ("first", "second"):
        labels = nnunet.predict(channels(NNUNET / "images", case), ram="512MiB")
        expected = stored(NNUNET / "expected" / "3d_fullres" / f"{case}.nii.gz")
        assert labels.dtype == np.uint8 and agreement(labels, expected) > 0.999
        assert len(np.unique(expected)) > 1


@pytest.mark.parametrize("case", ["straight", "turned"])
def test_every_kind_of_image_has_the_labels_of_its_file_and_keeps_its_geometry(run: plimsoll.Model, case: str) -> None:
    paths = channels(ORACLES / "exported" / "images", case)
    expected = run.predict(paths)
    assert agreement(expected, stored(RUN / "expected" / f"{case}.nii")) > 0.999
    images = [nibabel.load(path) for path in paths]
    affine = images[0].affine
    data = np.stack([np.asarray(image.dataobj) for image in images])

    by_affine = run.predict(data, affine=affine)
    np.testing.assert_array_equal(by_affine, expected.transpose(2, 1, 0))

    both = nibabel.Nifti1Image(np.moveaxis(data, 0, 3), affine)
    both.set_sform(affine, 2)
    of_nibabel = run.predict(both)
    assert isinstance(of_nibabel, nibabel.Nifti1Image) and of_nibabel.get_data_dtype() == np.uint8
    np.testing.assert_array_equal(np.asarray(of_nibabel.dataobj), by_affine)
    np.testing.assert_array_equal(of_nibabel.affine, affine)
    assert int(of_nibabel.header["sform_code"]) == 2

    sitk = pytest.importorskip("SimpleITK")
    image = sitk.Compose([sitk.ReadImage(str(path), sitk.sitkFloat32) for path in paths])
    of_itk = run.predict(image)
    np.testing.assert_array_equal(sitk.GetArrayFromImage(of_itk), expected)
    assert (of_itk.GetSpacing(), of_itk.GetOrigin(), of_itk.GetDirection()) == (
        image.GetSpacing(),
        image.GetOrigin(),
        image.GetDirection(),
    )

    torch = pytest.importorskip("torch")
    monai = pytest.importorskip("monai.data")
    tensor = torch.from_numpy(np.ascontiguousarray(data, np.float32))
    meta = run.predict(monai.MetaTensor(tensor, affine=torch.from_numpy(affine)))
    assert isinstance(meta, monai.MetaTensor) and meta.shape == (1, *data.shape[1:])
    np.testing.assert_array_equal(meta[0].numpy(), by_affine)
    np.testing.assert_array_equal(meta.affine.numpy(), affine)


def test_arrays_with_a_spacing_are_in_the_order_of_nnunet(nnunet: plimsoll.Model) -> None:
    paths = channels(NNUNET / "images", "first")
    expected = nnunet.predict(paths)
    data = np.stack([stored(path) for path in paths])
    spacing = nibabel.load(paths[0]).header.get_zooms()[::-1]
    np.testing.assert_array_equal(nnunet.predict(data, spacing=spacing), expected)
    np.testing.assert_array_equal(nnunet.predict(data.astype(">f8"), spacing=list(spacing)), expected)
    strided = np.moveaxis(np.ascontiguousarray(np.moveaxis(data, 0, 3)), 3, 0)
    assert not strided.flags.c_contiguous
    np.testing.assert_array_equal(nnunet.predict(strided, spacing=spacing), expected)
    torch = pytest.importorskip("torch")
    tensor = nnunet.predict(torch.from_numpy(np.ascontiguousarray(data, np.float32)), spacing=spacing)
    assert tensor.dtype == torch.uint8
    np.testing.assert_array_equal(tensor.numpy(), expected)


def test_probabilities_have_their_largest_where_labels_are(nnunet: plimsoll.Model) -> None:
    paths = channels(NNUNET / "images", "first")
    labels, probabilities = nnunet.predict(paths, probabilities=True)
    assert probabilities.shape == (len(nnunet.labels), *labels.shape) and probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(0), 1.0, atol=1e-5)
    assert agreement(probabilities.argmax(0), labels) > 0.9999
    image = nibabel.load(paths[0])
    data = np.stack([np.asarray(nibabel.load(path).dataobj) for path in paths])
    of_array, turned = nnunet.predict(data, affine=image.affine, probabilities=True)
    np.testing.assert_array_equal(turned, probabilities.transpose(0, 3, 2, 1))
    np.testing.assert_array_equal(of_array, labels.transpose(2, 1, 0))


def test_files_are_written_with_the_geometry_of_the_image(run: plimsoll.Model, tmp_path: pathlib.Path) -> None:
    paths = channels(ORACLES / "exported" / "images", "turned")
    to = tmp_path / "labels.nii.gz"
    assert run.predict(paths, output=to, probabilities=True) == to
    np.testing.assert_array_equal(stored(to), run.predict(paths))
    np.testing.assert_array_equal(nibabel.load(to).affine, nibabel.load(paths[0]).affine)
    with np.load(tmp_path / "labels.npz") as found:
        assert found["probabilities"].shape[1:] == stored(to).shape
    with pytest.raises(FileExistsError, match="overwrite=True"):
        run.predict(paths, output=to)
    run.predict(paths, output=to, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.nii.gz", "labels.npz"]
    with pytest.raises(ValueError, match="the image itself"):
        run.predict(paths, output=paths[0], overwrite=True)


def test_a_folder_is_predicted_and_what_is_there_is_kept(run: plimsoll.Model, tmp_path: pathlib.Path) -> None:
    seen: list[tuple[int, int]] = []
    found = run.predict_folder(ORACLES / "exported" / "images", tmp_path / "out", progress=lambda *at: seen.append(at))
    assert [path.name for path in found] == ["straight.nii", "turned.nii"]
    for path in found:
        assert agreement(stored(path), stored(RUN / "expected" / path.name)) > 0.999
    assert seen
    before = found[0].stat().st_mtime_ns
    assert run.predict_folder(ORACLES / "exported" / "images", tmp_path / "out") == found
    assert found[0].stat().st_mtime_ns == before
    with pytest.raises(plimsoll.Error, match="nowhere"):
        run.predict_folder(tmp_path / "nowhere", tmp_path / "other")


def test_parts_of_a_folder_are_the_labels_of_one_call(run: plimsoll.Model, tmp_path: pathlib.Path) -> None:
    images, whole, parts = ORACLES / "exported" / "images", tmp_path / "whole", tmp_path / "parts"
    expected = run.predict_folder(images, whole)
    found = [run.predict_folder(images, parts, part=part) for part in ("2/2", "1/2")]
    assert [len(paths) for paths in found] == [1, 1]
    assert sorted(path.name for paths in found for path in paths) == [path.name for path in expected]
    assert all((parts / path.name).read_bytes() == path.read_bytes() for path in expected)
    record = json.loads((parts / "run.json").read_text())
    assert [part["part"] for part in record["parts"]] == ["1/2", "2/2"]
    with pytest.raises(ValueError, match="part .*3/2"):
        run.predict_folder(images, parts, part="3/2")


def test_a_limit_holds_and_its_remedy_works(nnunet: plimsoll.Model) -> None:
    paths = channels(NNUNET / "images", "first")
    data = np.stack([stored(path) for path in paths])
    spacing = nibabel.load(paths[0]).header.get_zooms()[::-1]
    plan = nnunet.plan(data, spacing=spacing, ram="1GiB")
    assert plan.total_bytes <= 1 << 30 and plan.windows > 0 and sum(plan.parts.values()) == plan.total_bytes
    expected = nnunet.predict(data, spacing=spacing, ram="1GiB")
    least = -(-plan.least_ram_bytes // (1 << 20)) << 20
    np.testing.assert_array_equal(nnunet.predict(data, spacing=spacing, ram=least), expected)
    with pytest.raises(plimsoll.OverLimit) as caught:
        nnunet.predict(data, spacing=spacing, ram=plan.least_ram_bytes * 9 // 10)
    assert caught.value.needed > caught.value.available
    assert nnunet.plan(paths, ram="1GiB").windows == plan.windows


def test_a_budget_of_the_caller_is_used_and_given_back(nnunet: plimsoll.Model) -> None:
    paths = channels(NNUNET / "images", "first")
    budget = plimsoll.Budget("512MiB")
    labels = nnunet.predict(paths, ram=budget)
    assert budget.used == 0 and 0 < budget.peak <= budget.limit
    np.testing.assert_array_equal(labels, nnunet.predict(paths, ram="512MiB"))
    nnunet.close()


def test_progress_is_reported_and_an_error_in_it_ends_the_prediction(nnunet: plimsoll.Model) -> None:
    paths = channels(NNUNET / "images", "first")
    seen: list[tuple[int, int]] = []
    nnunet.predict(paths, progress=lambda *at: seen.append(at))
    assert seen[-1][0] == seen[-1][1] > 0 and sorted(seen) == seen

    def fail(done: int, total: int) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        nnunet.predict(paths, progress=fail)
    assert agreement(nnunet.predict(paths), nnunet.predict(paths)) == 1.0


def test_an_archive_of_nnunet_is_opened(tmp_path: pathlib.Path) -> None:
    archive = tmp_path / "model.zip"
    results = NNUNET / "results"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in sorted(results.rglob("*")):
            zipped.write(path, path.relative_to(results))
    model = plimsoll.Model(archive, threads=2)
    paths = channels(NNUNET / "images", "first")
    labels = model.predict(paths)
    assert agreement(labels, stored(NNUNET / "expected" / "3d_fullres" / "first.nii.gz")) > 0.999


def test_a_bundle_of_monai_is_opened() -> None:
    bundle = ORACLES / "monai" / "bundle"
    model = plimsoll.Model(bundle, threads=2)
    assert model.kind == "monai"
    image = nibabel.load(bundle / "images" / "a_0000.nii.gz")
    labels = model.predict(image)
    for options in ({"tile_step_size": 0.5}, {"use_gaussian": True}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} has no effect"):
            plimsoll.Model(bundle, **options)
    assert agreement(np.asarray(labels.dataobj), np.asarray(nibabel.load(bundle / "labels.nii.gz").dataobj)) > 0.999


def test_the_later_stage_of_a_cascade_needs_files(tmp_path: pathlib.Path) -> None:
    cascade = ORACLES / "nnunet" / "cascade"
    folder = cascade / "results" / "Dataset105_Cascade" / "nnUNetTrainer__nnUNetPlans__3d_cascade_fullres"
    model = plimsoll.Model(folder, threads=2)
    with pytest.raises(plimsoll.Error, match="predict_folder"):
        model.predict(cascade / "images" / "first_0000.nii.gz")
    found = model.predict_folder(cascade / "images", tmp_path / "out")
    expected = stored(cascade / "expected" / "3d_cascade_fullres" / "first.nii.gz")
    assert agreement(stored(found[0]), expected) > 0.999


def test_models_and_images_that_cannot_be_used_are_refused_by_name(
    nnunet: plimsoll.Model, run: plimsoll.Model, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(plimsoll.Error, match="nowhere"):
        plimsoll.Model("/nowhere")
    with pytest.raises(plimsoll.Error, match="no"):
        plimsoll.Model(tmp_path)
    folder = NNUNET / "results" / "Dataset101_Fullres"
    unopened: list[tuple[dict[str, Any], str]] = [
        ({"folds": 7}, "7"),
        ({"folds": "first"}, "folds"),
        ({"checkpoint": "best"}, "checkpoint_best"),
        ({"tile_step_size": 0.0}, "step"),
        ({"window_batch": 0}, "window_batch"),
        ({"device": "tpu"}, "device"),
        ({"threads": 0}, "threads"),
    ]
    for arguments, text in unopened:
        with pytest.raises((ValueError, plimsoll.Error), match=text):
            plimsoll.Model(folder, **arguments)
    with pytest.raises(ValueError, match="folds"):
        plimsoll.Model(RUN / "run", folds=(0, 1))
    image = np.zeros((2, 8, 8, 8), np.float32)
    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (image[0], {}, ValueError, "2 channels, but 1"),
        (image.astype(complex), {}, TypeError, "complex"),
        (image.astype(object), {}, TypeError, "object"),
        (image[None], {}, ValueError, "5 axes"),
        (image[:, :0], {}, ValueError, "empty"),
        (image, {"spacing": (1, 1)}, ValueError, "spacing"),
        (image, {"spacing": (1, 1, float("nan"))}, ValueError, "spacing"),
        (image, {"affine": np.eye(3)}, ValueError, "affine"),
        (image, {"affine": np.zeros((4, 4))}, ValueError, "affine"),
        (image, {"affine": np.eye(4), "spacing": 1.0}, ValueError, "both given"),
        (image, {"output": tmp_path / "a.nii"}, ValueError, "output"),
        (image, {"overwrite": True}, ValueError, "overwrite"),
        (image, {"ram": -1}, ValueError, "limit"),
        (3, {}, TypeError, "image"),
        (["a.nii.gz", 3], {}, TypeError, "image"),
        (tmp_path / "missing.nii.gz", {}, plimsoll.Error, "missing"),
        (ORACLES / "exported" / "images", {}, ValueError, "predict_folder"),
    ]
    for given, options, error, text in refused:
        with pytest.raises(error, match=text):
            nnunet.predict(given, **options)
