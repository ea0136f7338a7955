"""Data that several tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plimsoll

#: A small network and a short schedule.
SMALL: dict[str, Any] = {
    "epochs": 2,
    "iterations_per_epoch": 4,
    "validation_iterations": 2,
    "patch_size": (16, 16, 16),
    "net": "dynunet",
    "features": [8, 16, 24],
}


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    return dict(SMALL)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up data set of eight cases."""
    folder = tmp_path_factory.mktemp("data") / "vessels"
    plimsoll.write_phantoms(folder, size=(32, 40))
    return folder


@pytest.fixture(scope="session")
def run(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> plimsoll.Run:
    """A trained run."""
    return plimsoll.train(dataset, out=tmp_path_factory.mktemp("runs") / "small", fold=0, threads=2, **SMALL)
