"""Reference values and gradients of losses of regions for conformance/tests/region_losses.rs, from nnU-Net's own loss in f64.

    pip install nnunetv2==2.8.1
    python oracles/region_losses.py

Versions that made the committed file: torch 2.15.0, nnunetv2 2.8.1. Logits and labels are given by formulas that the test shares, so
only values and gradients are stored. nnU-Net's trainer makes `DC_and_BCE_loss` so where a data set has regions: Dice of all of them,
over the batch or by sample, and the binary cross-entropy, with the ignored label as the last channel of the target. nnU-Net's Dice is
the negative of ours plus one.
"""

import json
from pathlib import Path

import numpy as np
import torch
from nnunetv2.training.loss.compound_losses import DC_and_BCE_loss
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss

# The target of the cross-entropy goes through f32 there; here everything must be f64.
torch.Tensor.float = torch.Tensor.double
# MemoryEfficientSoftDiceLoss sums in this type.
torch.float32 = torch.float64

OUT = Path(__file__).with_suffix(".json")
BATCH, EXTENT, LABELS = 2, (3, 4, 3), 5
VOXELS = int(np.prod(EXTENT))
SETS = {"nested": [[1, 2, 3], [2, 3], [3]], "overlapping": [[1, 4], [2, 4], [1, 2, 3], [3]]}
IGNORED = 4


def noise(seed, count):
    """conformance::noise: numbers in (-1, 1), exactly the same as in Rust."""
    x = (np.uint64(seed) << np.uint64(32)) ^ np.arange(count, dtype=np.uint64) ^ np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for m in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            x = (x ^ (x >> np.uint64(30))) * np.uint64(m)
    return (x >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def labels_of(mask):
    if mask == "random":
        return np.floor((noise(2, BATCH * VOXELS) + 1) / 2 * LABELS)
    if mask == "one_voxel":
        return np.where(np.arange(BATCH * VOXELS) == 4, 3.0, 0.0)
    return np.full(BATCH * VOXELS, {"empty": 0.0, "full": 3.0, "ignored": float(IGNORED)}[mask])


def main():
    cases = []
    for mask in ("random", "one_voxel", "empty", "full", "ignored"):
        for kind, sets in SETS.items():
            for scale in (2, 12):
                for batch in (False, True):
                    for ignore in (None, IGNORED):
                        count = len(sets)
                        logits = np.round(noise(1, BATCH * count * VOXELS) * scale * 128) / 128
                        x = torch.tensor(logits.reshape(BATCH, count, *EXTENT), requires_grad=True)
                        labels = torch.tensor(labels_of(mask).reshape(BATCH, 1, *EXTENT), dtype=torch.int64)
                        own = [[label for label in region if label != ignore] for region in sets]
                        target = torch.cat([torch.isin(labels, torch.tensor(region)) for region in own], 1)
                        if ignore is not None:
                            target = torch.cat([target, labels == ignore], 1)
                        loss_of = DC_and_BCE_loss(
                            {}, {"batch_dice": batch, "do_bg": True, "smooth": 1e-5, "ddp": False},
                            use_ignore_label=ignore is not None, dice_class=MemoryEfficientSoftDiceLoss)
                        loss = loss_of(x, target)
                        loss.backward()
                        cases.append({
                            "mask": mask, "regions": own, "scale": scale, "batch": batch, "ignore": ignore,
                            "value": float(loss.detach()) + 1.0,
                            "gradient": [float(f"{g:.9g}") for g in x.grad.ravel().tolist()],
                        })
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
