"""Reference values and gradients of losses made of soft morphology for conformance/tests/soft_losses.rs, in f64.

    python oracles/soft_losses.py

Versions that made the committed file: torch 2.15.0, monai 1.6.1, scikit-image 0.26.0. clDice is MONAI's; what no
package has is implemented here with max_pool3d. Logits and labels are given by formulas that the test shares. Images of
depth 1 go through the references as images.
"""

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from monai.losses import SoftclDiceLoss, SoftDiceclDiceLoss
from monai.networks.utils import one_hot
from skimage.morphology import dilation, skeletonize

from losses import noise

OUT = Path(__file__).with_suffix(".json")
BATCH, CLASSES, IGNORED = 2, 3, 2
EXTENTS = [(3, 5, 6), (1, 7, 9)]


def inputs():
    """Extent, name of the labels, name of the logits, logits, labels. Logits are multiples of 1/128."""
    for extent in EXTENTS:
        voxels = int(np.prod(extent))
        shape = (BATCH, CLASSES, *extent)
        d, h, w = np.meshgrid(*(np.arange(n) for n in extent), indexing="ij")
        tube = (np.abs(h - w) <= 1).ravel()
        count = BATCH * voxels
        masks = {
            "random": np.floor((noise(2, count) + 1) / 2 * CLASSES),
            "empty": np.zeros(count),
            "full": np.ones(count),
            "one_voxel": np.arange(count) == 4,
            "border": np.tile((h < 2).ravel(), BATCH),
            "tube": np.tile(tube * (1 + (w.ravel() > 3)), BATCH),
        }
        at_random = noise(1, int(np.prod(shape)))
        # Three levels in one class: equal values everywhere, in any arithmetic.
        levels = np.zeros(shape)
        levels[:, 1] = np.round(1.5 * noise(3, count)).reshape(BATCH, *extent)
        all_logits = {
            "moderate": np.round(at_random * 2 * 128) / 128,
            "large": np.round(at_random * 12 * 128) / 128,
            "flat": 0 * at_random,
            "levels": levels,
        }
        for mask, labels in masks.items():
            for name, logits in all_logits.items():
                if name in ("flat", "levels") and mask not in ("random", "one_voxel", "tube"):
                    continue
                yield (extent, mask, name, torch.tensor(logits.reshape(shape)),
                       torch.tensor(labels.reshape(BATCH, 1, *extent).astype(np.int64)))


def volumes(x, y, ignore):
    """Probabilities and one-hot labels of the foreground, zero where the label is ignored; where it counts."""
    counts = (y != ignore) if ignore is not None else torch.ones_like(y, dtype=torch.bool)
    t = one_hot(torch.where(counts, y, 0), CLASSES).double() * counts
    p = x.softmax(1) * counts
    p, t = p[:, 1:], t[:, 1:]
    return (p[:, :, 0], t[:, :, 0], counts[:, :, 0]) if x.shape[2] == 1 else (p, t, counts)


def pool(x, size):
    max_pool = F.max_pool2d if x.dim() == 4 else F.max_pool3d
    return max_pool(x, size, 1, size // 2)


def erode(x, size):
    return -pool(-x, size)


def morphological_skeleton(x, iterations):
    """The soft morphological skeleton (Lantuéjoul): the union, over all erosions, of what opening each removes, with relu for differences."""
    skeleton = torch.zeros_like(x)
    for _ in range(iterations):
        eroded = erode(x, 3)
        removed = F.relu(x - pool(eroded, 3))
        skeleton = skeleton + F.relu(removed - skeleton)
        x = eroded
    return skeleton


def mean(x, counts):
    """Over the voxels that count of each sample and class."""
    axes = list(range(2, x.dim()))
    return (x * counts).sum(axes) / counts.sum(axes).clamp(min=1)


def cldice(**options):
    def loss(x, y, ignore):
        p, t, _ = volumes(x, y, ignore)
        return SoftclDiceLoss(**options)(p, t)
    return loss


def dice_cldice(x, y, ignore):
    p, t, _ = volumes(x, y, ignore)
    return SoftDiceclDiceLoss(alpha=0.3)(p, t)


def morph_skeleton(iterations=3):
    def loss(x, y, ignore):
        p, t, counts = volumes(x, y, ignore)
        skeletons = (morphological_skeleton(v, iterations) for v in (p, t))
        return mean(torch.abs(next(skeletons) - next(skeletons)), counts).mean()
    return loss


def toploss_simple(threshold=0.2):
    def loss(x, y, ignore):
        p, t, counts = volumes(x, y, ignore)
        a, b = erode(p, 5), erode(t, 5)
        holes = mean(F.relu(threshold - a), counts) - mean(F.relu(threshold - b), counts)
        return (mean(torch.abs(a - b), counts) + torch.abs(holes)).mean()
    return loss


def tubed_skeleton(y, ignore):
    """Labels on the skeleton of the foreground, dilated by two voxels, as by the authors of the loss."""
    y = y.numpy()
    y = np.where(y == ignore, 0, y) if ignore is not None else y
    tubes = [dilation(dilation(skeletonize(sample > 0, method="lee").astype(np.uint8))) for sample in y[:, 0]]
    return torch.tensor(np.stack(tubes)[:, None].astype(np.int64) * y)


def skeleton_recall(batch=False, smooth=1e-5):
    def loss(x, y, ignore):
        t = one_hot(tubed_skeleton(y, ignore), CLASSES)[:, 1:].double()
        overlap, size = ((v * t).sum((2, 3, 4)) for v in (x.softmax(1)[:, 1:], torch.ones_like(t)))
        if batch:
            overlap, size = overlap.sum(0), size.sum(0)
        return 1 - ((overlap + smooth) / (size + smooth)).mean()
    return loss


def losses():
    """Name; components as in a configuration; the ignored label; the loss."""
    yield "cldice", [{"name": "cldice"}], None, cldice()
    yield "cldice_smooth", [
        {"name": "cldice", "iterations": 1, "smooth_numerator": 0.5, "smooth_denominator": 0.25, "smooth": 0.01}
    ], None, cldice(iter_=1, smooth_nr=0.5, smooth_dr=0.25, smooth=0.01)
    yield "cldice_ignore", [{"name": "cldice", "iterations": 2}], IGNORED, cldice(iter_=2)
    yield "dice_cldice", [
        {"name": "soft_dice", "weight": 0.7, "include_background": False, "smooth_numerator": 1,
         "smooth_denominator": 1},
        {"name": "cldice", "weight": 0.3},
    ], None, dice_cldice
    yield "morph_skeleton", [{"name": "morph_skeleton"}], None, morph_skeleton()
    yield "morph_skeleton_ignore", [{"name": "morph_skeleton", "iterations": 2}], IGNORED, morph_skeleton(2)
    yield "toploss_simple", [{"name": "toploss_simple"}], None, toploss_simple()
    yield "toploss_simple_ignore", [
        {"name": "toploss_simple", "threshold": 0.5}
    ], IGNORED, toploss_simple(0.5)
    yield "skeleton_recall", [{"name": "skeleton_recall"}], None, skeleton_recall()
    yield "skeleton_recall_batch", [
        {"name": "skeleton_recall", "batch": True, "smooth_numerator": 1, "smooth_denominator": 1}
    ], IGNORED, skeleton_recall(True, 1.0)


def main():
    cases = []
    for extent, mask, scale, logits, labels in inputs():
        for name, components, ignore, loss_of in losses():
            x = logits.clone().requires_grad_()
            loss = loss_of(x, labels, ignore)
            loss.backward()
            gradient = [float(f"{g:.7g}") if g else 0 for g in x.grad.ravel().tolist()]
            case = {
                "name": name, "extent": extent, "mask": mask, "logits": scale,
                "loss": {"components": components, "ignore": ignore},
                "value": float(loss.detach()), "gradient": gradient,
            }
            if components[0]["name"] == "skeleton_recall":
                case["skeleton"] = tubed_skeleton(labels, ignore).ravel().tolist()
            cases.append(case)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
