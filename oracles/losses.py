"""Reference values and gradients of losses for conformance/tests/losses.rs, from MONAI and PyTorch in f64.

    python oracles/losses.py

Versions that made the committed file: torch 2.15.0, monai 1.6.1. Logits and labels are given by formulas that the test shares,
so only values and gradients are stored.
"""

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from monai.losses import DiceCELoss, DiceFocalLoss, DiceLoss, FocalLoss, GeneralizedDiceLoss, TverskyLoss
from monai.networks.utils import one_hot

# MONAI's FocalLoss and the weights of its GeneralizedDiceLoss go through f32; here everything must be f64.
torch.Tensor.float = torch.Tensor.double

OUT = Path(__file__).with_suffix(".json")
BATCH, CLASSES, EXTENT = 2, 3, (1, 3, 2)
VOXELS = int(np.prod(EXTENT))
IGNORED = 2


def noise(seed, count):
    """conformance::noise: numbers in (-1, 1), exactly the same as in Rust."""
    x = (np.uint64(seed) << np.uint64(32)) ^ np.arange(count, dtype=np.uint64) ^ np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for m in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            x = (x ^ (x >> np.uint64(30))) * np.uint64(m)
    return (x >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def inputs():
    """Name, logits, labels. Logits are multiples of 1/128, which f32 holds exactly."""
    random = np.floor((noise(2, BATCH * VOXELS) + 1) / 2 * CLASSES)
    one = np.zeros(BATCH * VOXELS)
    one[4] = 1
    masks = {"random": random, "empty": 0 * random, "full": 0 * random + 1, "one_voxel": one}
    for name, labels in masks.items():
        for scale in (2, 12):
            logits = np.round(noise(1, BATCH * CLASSES * VOXELS) * scale * 128) / 128
            logits = torch.tensor(logits.reshape(BATCH, CLASSES, *EXTENT))
            labels_ = torch.tensor(labels.reshape(BATCH, 1, *EXTENT), dtype=torch.int64)
            yield name, scale, logits, labels_


def log_cosh_dice(x, y):
    return torch.log(torch.cosh(DiceLoss(softmax=True, to_onehot_y=True)(x, y)))


def focal_tversky(x, y):
    loss = TverskyLoss(softmax=True, to_onehot_y=True, alpha=0.3, beta=0.7, reduction="none")
    return (loss(x, y) ** 0.75).mean()


def bce_softmax(x, y):
    """For two classes: one logit, the difference. For three: by definition; log(1 − p) from the other logits."""
    t = one_hot(y, CLASSES)
    log_p = x.log_softmax(1)
    others = [torch.logsumexp(x[:, [o for o in range(CLASSES) if o != c]], 1) for c in range(CLASSES)]
    log_rest = torch.stack(others, 1) - torch.logsumexp(x, 1, keepdim=True)
    return -(2.8 * t * log_p + (1 - t) * log_rest)[:, 1:].mean()


W = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
SOFT = {"softmax": True, "to_onehot_y": True}


def losses():
    """Name; components as in a configuration; the ignored label; the loss of logits and labels."""
    def dice(**options):
        return DiceLoss(**SOFT, **options)

    yield "dice", [{"name": "soft_dice"}], None, dice()
    yield "dice_batch", [{"name": "soft_dice", "batch": True, "include_background": False}], None, dice(
        batch=True, include_background=False)
    yield "dice_squared", [{"name": "soft_dice", "squared": True}], None, dice(squared_pred=True)
    yield "dice_weighted", [{"name": "soft_dice", "class_weights": W.tolist()}], None, dice(weight=W)
    yield "dice_ignore", [{"name": "soft_dice"}], IGNORED, dice(ignore_index=IGNORED)
    for kind in ("square", "simple", "uniform"):
        yield f"generalized_{kind}", [{"name": "generalized_dice", "volume_weight": kind}], None, (
            GeneralizedDiceLoss(**SOFT, w_type=kind))
    yield "generalized_batch", [{"name": "generalized_dice", "batch": True, "include_background": False}], None, (
        GeneralizedDiceLoss(**SOFT, batch=True, include_background=False))
    yield "tversky", [{"name": "tversky", "alpha": 0.3, "beta": 0.7}], None, (
        TverskyLoss(**SOFT, alpha=0.3, beta=0.7))
    yield "tversky_batch", [{"name": "tversky", "alpha": 0.8, "beta": 0.1, "batch": True}], IGNORED, (
        TverskyLoss(**SOFT, alpha=0.8, beta=0.1, batch=True, ignore_index=IGNORED))
    yield "focal_tversky", [{"name": "focal_tversky"}], None, focal_tversky
    yield "log_cosh_dice", [{"name": "log_cosh_dice"}], None, log_cosh_dice
    yield "cross_entropy", [{"name": "cross_entropy"}], None, lambda x, y: F.cross_entropy(x, y[:, 0])
    yield "cross_entropy_weighted", [{"name": "cross_entropy", "class_weights": W.tolist()}], IGNORED, (
        lambda x, y: F.cross_entropy(x, y[:, 0], weight=W, ignore_index=IGNORED))
    yield "cross_entropy_smooth", [{"name": "cross_entropy", "label_smoothing": 0.1}], None, (
        lambda x, y: F.cross_entropy(x, y[:, 0], label_smoothing=0.1))
    yield "cross_entropy_smooth_weighted", [
        {"name": "soft_dice", "weight": 0.5}, {"name": "soft_dice", "squared": True, "weight": 0.5},
        {"name": "cross_entropy", "class_weights": W.tolist(), "label_smoothing": 0.3}
    ], None, lambda x, y: 0.5 * dice()(x, y) + 0.5 * dice(squared_pred=True)(x, y) + F.cross_entropy(
        x, y[:, 0], weight=W, label_smoothing=0.3)
    yield "bce_sigmoid", [
        {"name": "weighted_bce", "pos_weight": 2.8, "activation": "sigmoid", "include_background": True}
    ], None, lambda x, y: F.binary_cross_entropy_with_logits(
        x, one_hot(y, CLASSES).double(), pos_weight=torch.tensor(2.8, dtype=torch.float64))
    yield "bce_softmax", [{"name": "weighted_bce", "pos_weight": 2.8}], None, bce_softmax
    yield "focal_softmax", [{"name": "focal"}], None, FocalLoss(to_onehot_y=True, use_softmax=True)
    yield "focal_softmax_alpha", [
        {"name": "focal", "gamma": 1.5, "alpha": 0.25, "class_weights": W.tolist()}
    ], None, FocalLoss(to_onehot_y=True, use_softmax=True, gamma=1.5, alpha=0.25, weight=W)
    yield "focal_sigmoid", [
        {"name": "focal", "alpha": 0.25, "activation": "sigmoid", "include_background": False}
    ], None, FocalLoss(to_onehot_y=True, alpha=0.25, include_background=False)
    # MONAI divides by the voxels that count, but not by the classes, where a label is ignored.
    yield "focal_ignore", [{"name": "focal", "activation": "sigmoid"}], IGNORED, (
        lambda x, y: FocalLoss(to_onehot_y=True, ignore_index=IGNORED)(x, y) / CLASSES)
    yield "dice_ce", [{"name": "soft_dice", "weight": 0.6}, {"name": "cross_entropy", "weight": 1.4}], None, (
        DiceCELoss(**SOFT, lambda_dice=0.6, lambda_ce=1.4))
    yield "dice_focal", [
        {"name": "soft_dice", "weight": 0.6}, {"name": "focal", "activation": "sigmoid", "weight": 1.4}
    ], None, DiceFocalLoss(**SOFT, lambda_dice=0.6, lambda_focal=1.4)
    yield "dice_bce", [
        {"name": "soft_dice", "weight": 0.5}, {"name": "soft_dice", "squared": True, "weight": 0.15},
        {"name": "weighted_bce", "pos_weight": 2.8, "weight": 0.35},
    ], None, lambda x, y: 0.5 * dice()(x, y) + 0.15 * dice(squared_pred=True)(x, y) + 0.35 * bce_softmax(x, y)


def main():
    cases = []
    for mask, scale, logits, labels in inputs():
        for name, components, ignore, loss_of in losses():
            x = logits.clone().requires_grad_()
            loss = loss_of(x, labels)
            loss.backward()
            gradient = [float(f"{g:.9g}") for g in x.grad.ravel().tolist()]
            cases.append({
                "name": name, "mask": mask, "scale": scale,
                "loss": {"components": components, "ignore": ignore},
                "value": float(loss.detach()), "gradient": gradient,
            })
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
