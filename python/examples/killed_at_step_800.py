"""My workers are killed at step 800: replace the data loader, and keep the training loop.

Worker processes of a data loader hold copies of volumes, and caches have no bound in bytes. `plimsoll.torch.Patches`
has no worker processes: its threads, its cache and the waiting batches share one budget, and a case that does not fit
the cache is read patch by patch. Two lines of the loop change.

Usage: ``python killed_at_step_800.py [DATASET]``; without a data set, one is made up. Needs PyTorch.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import plimsoll
from plimsoll.torch import Patches


def main(folder: Path) -> None:
    """Train a small network of PyTorch for 900 steps."""
    dataset = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "dataset"
    if len(sys.argv) == 1:
        plimsoll.write_phantoms(dataset, size=(32, 40))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv3d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv3d(4, 2, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()

    # Before: CacheDataset(...) and DataLoader(dataset, batch_size=2, num_workers=4).
    patches = Patches(dataset, (16, 16, 16), batch_size=2, budget="96MiB", seed=0, iterations_per_epoch=900)
    batches = DataLoader(patches, batch_size=None, num_workers=0)

    for step, batch in enumerate(batches, 1):
        loss = criterion(model(batch["image"]), batch["label"][:, 0].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 300 == 0:
            budget = patches.budget
            print(f"step {step}: loss {loss.item():.3f}; {budget.peak / 2**20:.1f} of {budget.limit / 2**20:.0f} MiB")
    if patches.budget.peak > patches.budget.limit:
        raise SystemExit("the loader held more than its budget")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
