"""Classifiers of images: trained, for each pair of classes too, and asked for classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from png import write_png

import plimsoll

#: A small network and a short schedule.
SMALL: dict[str, Any] = {
    "batch_size": 4,
    "epochs": 1,
    "network": {"features": [128, 128, 128, 128]},
    "images": {"size": [32, 32]},
}

CLASSES = ["bright", "dark", "striped"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes with a few pictures each, divided by folders."""
    folder = tmp_path_factory.mktemp("data") / "pictures"
    rng = np.random.default_rng(0)
    for split, count in {"train": 4, "val": 2, "test": 2}.items():
        for name, level in zip(CLASSES, (200, 40, 120), strict=True):
            for number in range(count):
                pixels = level + rng.integers(-20, 20, (24, 24))
                pixels[:, :: 4 if name == "striped" else 24] = 0
                write_png(folder / split / name / f"{split}_{number}.png", pixels)
    return folder


@pytest.fixture(scope="module")
def pairs(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> plimsoll.Run:
    """A classifier for each pair of classes."""
    out = tmp_path_factory.mktemp("runs") / "pairs"
    return plimsoll.train(pictures, out=out, one_vs_one=True, ram="512MiB", threads=1, progress=False, **SMALL)


def test_a_classifier_is_trained_for_each_pair_of_classes(pairs: plimsoll.Run) -> None:
    assert list(pairs.folds) == ["pair_0_1/fold_0", "pair_0_2/fold_0", "pair_1_2/fold_0"]
    assert pairs.result is not None and [pair["pair"] for pair in pairs.result["pairs"]] == [[0, 1], [0, 2], [1, 2]]
    assert all(fold.status.epochs_done == 1 for fold in pairs.folds.values())


def test_pairs_vote_for_the_classes_of_images(pairs: plimsoll.Run, pictures: Path, tmp_path: Path) -> None:
    found = plimsoll.classify(pairs.path, pictures / "test", pair_columns=True, threads=1, progress=False)
    assert found.classes == CLASSES and len(found.cases) == 6 and found.failed == []
    assert found.labels == [case.split("/")[-2] for case in found.cases]
    assert found.probabilities.shape == (6, 3) and set(found.predicted) <= set(CLASSES)
    np.testing.assert_allclose(found.probabilities.sum(1), 1.0, atol=1e-5)
    assert list(found.pairs) == ["dark vs bright", "striped vs bright", "striped vs dark"]
    table = tmp_path / "classes.csv"
    most = plimsoll.classify(pairs.path, pictures / "test", table, votes="majority", threads=1, progress=False)
    assert table.is_file() and most.pairs == {} and most.cases == found.cases
    with pytest.raises(plimsoll.Error, match="overwrite=True"):
        plimsoll.classify(pairs.path, pictures / "test", table, threads=1)
    pandas = pytest.importorskip("pandas")
    frame = found.to_dataframe()
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns[:5]) == ["label", *CLASSES, "predicted"]


def test_options_without_an_effect_are_refused(pictures: Path, tmp_path: Path, run: plimsoll.Run) -> None:
    for arguments in ({"folds": [0, 1]}, {"parallel": 2}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            plimsoll.train(pictures, out=tmp_path / "run", one_vs_one=True, **arguments, **SMALL)
    for arguments in ({"mistakes": 3}, {"overwrite": True}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            plimsoll.classify("model", pictures, **arguments)
    with pytest.raises(plimsoll.Error, match="labels voxels"):
        plimsoll.classify(run.path, pictures / "test")


def test_volumes_have_no_pairs_of_classes(dataset: Path, small: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(plimsoll.Error, match="one_vs_one"):
        plimsoll.train(dataset, out=tmp_path / "run", one_vs_one=True, threads=1, **small)
