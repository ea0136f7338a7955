"""One volume becomes 7.9 GB: find it, and train on it without resampling it.

A case whose voxels are five times as large as the others' has 125 times as many voxels at the spacing of training. A
pipeline that resamples volumes holds them all. Plimsoll computes patches from the stored voxels, so that the case costs
what its patch costs.

Usage: ``python one_volume_becomes_7_9_gb.py [DATASET]``; without a data set, one is made up.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import plimsoll

#: A small network and a short schedule, so that the example takes seconds.
SETTINGS: dict[str, Any] = {
    "epochs": 1,
    "iterations_per_epoch": 4,
    "validation_iterations": 1,
    "patch_size": (16, 16, 16),
    "net": "dynunet",
    "features": [8, 16, 24],
}


def resampled_bytes(shape: list[int], spacing: list[float], target: list[float]) -> float:
    """Return the bytes of a channel at the spacing of training, in 32-bit floats."""
    voxels = 1.0
    for length, own, wanted in zip(shape, spacing, target, strict=True):
        voxels *= length * own / wanted
    return 4 * voxels


def main(folder: Path) -> None:
    """Find the case, and train on the data set."""
    dataset = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "dataset"
    if len(sys.argv) == 1:
        plimsoll.write_phantoms(dataset, size=(32, 40))

    found = plimsoll.inspect(dataset)
    assert found.fingerprint is not None
    target = found.fingerprint["target_spacing"]
    for case, spacing in zip(found.fingerprint["cases"], found.fingerprint["spacings"], strict=True):
        stored, resampled = case["stored_bytes"], resampled_bytes(case["geometry"]["shape"], spacing, target)
        print(f"{case['id']}: {stored / 2**20:.1f} MiB stored, {resampled / 2**20:.1f} MiB resampled whole")
    for problem in found.problems:
        print(f"{problem['severity']}: {problem['text']}")

    plan = plimsoll.plan(dataset, ram="1GiB", **SETTINGS)
    print(f"{plan!r}")
    print(f"all patches that are made and wait take {plan.parts['loader'] / 2**20:.1f} MiB")
    run = plimsoll.train(dataset, out=folder / "run", ram="1GiB", skip_validation=True, **SETTINGS)
    print(f"trained: loss {run.metrics['train_loss'][-1]:.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
