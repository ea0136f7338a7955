"""Memory grows until epoch 38: bound it before the first step, and look at it epoch by epoch.

Training loops hold lists of losses with their graphs, caches without a bound, and copies in workers. Here the plan
states all memory before the first step, the arena is allocated once, and the cache and the loader share what is left.
The resident memory of each epoch is part of the run's metrics, so that growth would be seen.

Usage: ``python memory_grows_until_epoch_38.py [DATASET]``; without a data set, one is made up.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import plimsoll

#: A small network and a short schedule, so that the example takes seconds.
SETTINGS: dict[str, Any] = {
    "epochs": 38,
    "iterations_per_epoch": 2,
    "validation_iterations": 1,
    "patch_size": (16, 16, 16),
    "net": "dynunet",
    "features": [8, 16],
}


def watch(event: plimsoll.Event) -> None:
    """Print every tenth epoch."""
    if isinstance(event, plimsoll.EpochEnd) and event.epoch % 10 == 0:
        resident = event.cost["resident_bytes"] or 0
        print(f"epoch {event.epoch}: loss {event.numbers['train_loss']:.3f}, {resident / 2**20:.0f} MiB resident")


def main(folder: Path) -> None:
    """Train, and compare the memory of the first epochs with the memory of the last."""
    dataset = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "dataset"
    if len(sys.argv) == 1:
        plimsoll.write_phantoms(dataset, size=(32, 40))

    plan = plimsoll.plan(dataset, ram="1GiB", patches=False, **SETTINGS)
    for name, held in plan.parts.items():
        print(f"{name}: {held / 2**20:.1f} MiB")

    run = plimsoll.train(
        dataset, out=folder / "run", ram="1GiB", skip_validation=True, callbacks=watch, progress=False, **SETTINGS
    )
    resident = run.metrics["resident_bytes"]
    growth = resident[-1] - resident[4]
    print(f"epochs 5 to 38: {growth / 2**20:+.1f} MiB")
    if growth > plan.parts["cache"] + 2**21:
        raise SystemExit("memory grew by more than the cache may hold")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
