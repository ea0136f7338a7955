"""Exports, descriptions and checks of models, post-processing, and the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plimsoll

nibabel = pytest.importorskip("nibabel")


def write(path: Path, voxels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels.astype(np.uint8), np.diag([1.0, 1.0, 2.0, 1.0])), path)


def labels(path: Path | str) -> np.ndarray:
    return np.asarray(nibabel.load(path).dataobj)


def speckled() -> np.ndarray:
    """A box with a hole, and two specks beside it."""
    voxels = np.zeros((12, 14, 16), np.uint8)
    voxels[2:8, 2:8, 2:8] = 1
    voxels[4, 4, 4] = 0
    voxels[10, 10, 10:12] = 1
    voxels[10, 2, 2] = 2
    return voxels


def test_steps_change_label_maps_as_scipy_does(tmp_path: Path) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    before = speckled()
    for name in ("a", "b"):
        write(tmp_path / "labels" / f"{name}.nii.gz", before)
    steps: list[dict[str, Any]] = [{"step": "keep_largest", "labels": [1]}, {"step": "fill_holes", "labels": [1]}]
    done = plimsoll.postprocess(tmp_path / "labels", tmp_path / "out", steps=steps, threads=1)
    parts, _ = ndimage.label(before == 1, np.ones((3, 3, 3)))
    largest = parts == np.bincount(parts.ravel())[1:].argmax() + 1
    expected = np.where(ndimage.binary_fill_holes(largest), 1, np.where(before == 2, 2, 0))
    assert [Path(file.file).name for file in done.files] == ["a.nii.gz", "b.nii.gz"]
    assert [file.changed_voxels for file in done.files] == [3, 3] and done.steps == steps and done.kept == []
    for file in done.files:
        np.testing.assert_array_equal(labels(file.file), expected)
    again = plimsoll.postprocess(tmp_path / "labels", tmp_path / "out", steps=steps, threads=1)
    assert again.files == [] and len(again.kept) == 2
    replaced = plimsoll.postprocess(tmp_path / "labels", tmp_path / "out", steps=[], overwrite=True, threads=1)
    assert [file.changed_voxels for file in replaced.files] == [0, 0]


def test_steps_may_be_a_file_of_either_program(tmp_path: Path) -> None:
    write(tmp_path / "in.nii.gz", speckled())
    own = tmp_path / "steps.toml"
    own.write_text('[[steps]]\nstep = "drop_small"\nlabels = [1]\nmin_mm3 = 5.0\n')
    plimsoll.postprocess(tmp_path / "in.nii.gz", tmp_path / "own.nii.gz", steps=own)
    given = [{"step": "drop_small", "labels": [1], "min_mm3": 5.0}]
    plimsoll.postprocess(tmp_path / "in.nii.gz", tmp_path / "given.nii.gz", steps=given)
    np.testing.assert_array_equal(labels(tmp_path / "own.nii.gz"), labels(tmp_path / "given.nii.gz"))
    assert labels(tmp_path / "own.nii.gz")[10, 10, 10] == 0
    write(tmp_path / "tilted.nii.gz", speckled())
    made = plimsoll.postprocess(tmp_path / "tilted.nii.gz", tmp_path / "right.nii.gz", orthogonal=True)
    assert [file.resampled for file in made.files] == [False]
    with pytest.raises(plimsoll.Error, match="would replace"):
        plimsoll.postprocess(tmp_path / "in.nii.gz", tmp_path / "in.nii.gz", steps=given, overwrite=True)
    with pytest.raises(plimsoll.Error, match="process itself needs"):
        plimsoll.postprocess(tmp_path / "in.nii.gz", tmp_path / "small.nii.gz", steps=given, ram="1MiB")
    with pytest.raises(ValueError, match="steps is missing"):
        plimsoll.postprocess(tmp_path / "in.nii.gz", tmp_path / "none.nii.gz")


def test_steps_are_chosen_for_a_run_and_written_into_it(run: plimsoll.Run) -> None:
    chosen = plimsoll.choose_postprocessing(run.path, threads=1)
    assert Path(chosen.file) == Path(run.path) / "postprocessing.toml" and Path(chosen.file).is_file()
    try:
        assert list(chosen.gains) == ["vessel"]
        before, after = chosen.gains["vessel"]
        validated = run.folds["0"].validation
        assert validated is not None and before == pytest.approx(validated.mean[1]["Dice"])
        assert before is not None and after is not None and after >= before
        again = plimsoll.choose_postprocessing(run.path, threads=1)
        assert (again.steps, again.gains) == (chosen.steps, chosen.gains)
    finally:
        Path(chosen.file).unlink()
    with pytest.raises(plimsoll.Error, match="no folds"):
        plimsoll.choose_postprocessing(Path(run.path).parent)


def test_a_run_becomes_one_file_that_predicts_as_it_does(run: plimsoll.Run, dataset: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.plimsoll"
    written = plimsoll.export(run.path, file, format="plimsoll")
    assert written["folds"] == 1 and written["tensors"] > 0
    verified = plimsoll.verify_model(file)
    assert verified == {key: written[key] for key in ("folds", "tensors", "digest")}
    image = sorted((dataset / "imagesTs").iterdir())[0]
    found = [plimsoll.Model(model, threads=2).predict(image) for model in (run.path, file)]
    np.testing.assert_array_equal(found[0], found[1])
    (shown,) = plimsoll.show_models(file)
    assert Path(shown.folder) == file and shown.error is None and any("DynUNet" in line for line in shown.lines)
    with pytest.raises(plimsoll.Error, match="already exists"):
        plimsoll.export(run.path, file, format="plimsoll")
    with pytest.raises(plimsoll.Error, match=r"does not end in \.plimsoll"):
        plimsoll.export(run.path, tmp_path / "model.bin", format="plimsoll")
    with pytest.raises(ValueError, match="fold has no effect"):
        plimsoll.export(run.path, file, format="plimsoll", fold=0)
    with pytest.raises(ValueError, match="external_data has no effect"):
        plimsoll.export(run.path, file, format="plimsoll", external_data=True)
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(plimsoll.Error, match=r"model\.plimsoll"):
        plimsoll.verify_model(file)


def test_every_format_is_written(run: plimsoll.Run, tmp_path: Path) -> None:
    assert plimsoll.export(run.path, tmp_path / "w.safetensors", checkpoint="best")["tensors"] > 0
    graph = plimsoll.export(run.path, tmp_path / "g.onnx", format="onnx", fold=0)
    assert graph["image"] == [1, 16, 16, 16] and graph["logits"] == [2, 16, 16, 16]
    outside = plimsoll.export(run.path, tmp_path / "h.onnx", format="onnx", external_data=True)
    assert Path(outside["data"]).parent == tmp_path
    # The networks of nnU-Net alone have a folder there.
    with pytest.raises(plimsoll.Error, match="dynunet|DynUNet"):
        plimsoll.export(run.path, tmp_path / "folder", format="nnunet")


def test_models_of_nnunet_are_exported_imported_and_shown(dataset: Path, small: dict[str, Any], tmp_path: Path) -> None:
    settings = {**small, "net": "plain", "features": [8, 16, 24], "epochs": 1}
    run = plimsoll.train(dataset, out=tmp_path / "run", threads=2, skip_validation=True, progress=False, **settings)
    folder = tmp_path / "results" / "Dataset001_Vessels" / "nnUNetTrainer__nnUNetPlans__3d_fullres"
    written = plimsoll.export(run.path, folder, format="nnunet")
    assert written["folds"] == ["0"] and (folder / "plans.json").is_file()
    (shown,) = plimsoll.show_models(tmp_path / "results")
    assert shown.error is None and shown.lines
    imported = plimsoll.import_models(tmp_path / "results", tmp_path / "imported")
    assert imported.files >= 3 and imported.bytes > 0 and len(imported.models) == 1
    assert imported.models[0].lines == shown.lines and Path(imported.folder) == tmp_path / "imported"
    with pytest.raises(plimsoll.Error, match="nowhere"):
        plimsoll.import_models(tmp_path / "nowhere", tmp_path / "more")
    with pytest.raises(plimsoll.Error, match="nowhere"):
        plimsoll.show_models(tmp_path / "nowhere")


def test_the_machine_has_cores_and_limits() -> None:
    machine = plimsoll.doctor()
    assert machine.version == plimsoll.__version__ and machine.simd
    assert machine.cores and machine.threads >= 1
    assert (machine.gpu is None) == (machine.no_gpu is not None)
    bytes = [limit.bytes for limit in machine.limits]
    assert bytes == sorted(bytes) and all(limit.bytes <= limit.ceiling for limit in machine.limits)
    assert machine.limit <= bytes[0] and machine.numbers["limits"]["limit"] == machine.limit
    assert plimsoll.doctor(ram="1GiB").limit <= 1 << 30
