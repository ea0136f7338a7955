"""Reference values and gradients of losses of shapes for conformance/tests/shape_losses.rs, from MONAI, SciPy and PyTorch in f64.

    python oracles/shape_losses.py

Versions that made the committed file: torch 2.15.0, monai 1.6.1, scipy 1.17.1. Logits and labels are given by formulas
that the test shares, so only values and gradients are stored.
"""

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from monai.losses import HausdorffDTLoss, LogHausdorffDTLoss
from monai.networks.utils import one_hot
from scipy.ndimage import distance_transform_edt

from losses import noise

torch.Tensor.float = torch.Tensor.double

OUT = Path(__file__).with_suffix(".json")
BATCH, CLASSES, EXTENT = 2, 3, (4, 4, 4)
VOXELS = int(np.prod(EXTENT))
SPACING = (2.5, 0.8, 1.0)
IGNORED = 2


def inputs():
    """Mask, favoured class, logits, labels. Logits are multiples of 1/128, which f32 holds exactly."""
    z, y, x = np.indices(EXTENT)
    corner = np.tile((z < 2) & (y < 3) & (x > 2), (BATCH, 1, 1, 1)).astype(float)
    one = np.zeros(BATCH * VOXELS)
    one[VOXELS // 2 + 3] = 1
    masks = {
        "random": np.floor((noise(2, BATCH * VOXELS) + 1) / 2 * CLASSES),
        "empty": np.zeros(BATCH * VOXELS),
        "full": np.ones(BATCH * VOXELS),
        "one_voxel": one,
        "corner": corner,
    }
    for name, labels in masks.items():
        # With class 0 favoured by 8 all voxels are predicted as class 0, with class 1 as class 1.
        for scale, favoured in ((2, None), (12, None), (2, 0), (2, 1)):
            logits = np.round(noise(1, BATCH * CLASSES * VOXELS) * scale * 128) / 128
            logits = torch.tensor(logits.reshape(BATCH, CLASSES, *EXTENT))
            if favoured is not None:
                logits[:, favoured] += 8
            labels_ = torch.tensor(np.asarray(labels).reshape(BATCH, 1, *EXTENT), dtype=torch.int64)
            yield name, scale, favoured, logits, labels_


def signed(masks, spacing):
    """Signed distances of a stack of masks, infinite where one side is empty."""
    out = np.empty(masks.shape)
    for at in np.ndindex(masks.shape[:2]):
        mask = masks[at].numpy().astype(bool)
        if mask.all() or not mask.any():
            out[at] = -np.inf if mask.any() else np.inf
        else:
            out[at] = distance_transform_edt(~mask, spacing) - distance_transform_edt(mask, spacing)
    return torch.tensor(out)


def parts(x, y, spacing, ignore, scale):
    """p and t of the foreground classes, which voxels count, and the signed distances to target and prediction."""
    p = x.softmax(1)[:, 1:]
    if scale > 1:
        p = F.avg_pool3d(p, scale)
        # The label of the nearest voxel: of two, the second.
        y = F.interpolate(y.double(), size=p.shape[2:], mode="nearest-exact").long()
        spacing = tuple(scale * s for s in spacing)
    counts = (y != ignore) if ignore is not None else torch.ones_like(y, dtype=torch.bool)
    t = one_hot(y, CLASSES)[:, 1:].double() * counts
    target = signed(t > 0.5, spacing)
    predicted = signed((p.detach() > 0.5) & counts, spacing)
    return p, t, counts.expand_as(p), target, predicted


def finite(d):
    return torch.where(d.isfinite(), d, torch.zeros_like(d))


def boundary(spacing=SPACING, ignore=None, scale=1):
    def loss(x, y):
        p, _, counts, target, _ = parts(x, y, spacing, ignore, scale)
        return (finite(target) * p)[counts].mean()
    return loss


def hausdorff(alpha, log=False, spacing=SPACING, ignore=None, scale=1):
    def loss(x, y):
        p, t, counts, target, predicted = parts(x, y, spacing, ignore, scale)
        field = finite(predicted).abs() ** alpha + finite(target).abs() ** alpha
        mean = ((p - t) ** 2 * field)[counts].mean()
        return torch.log(mean + 1) if log else mean
    return loss


def surface(tolerance, as_published=False, ignore=None, scale=1):
    def loss(x, y):
        p, t, counts, target, predicted = parts(x, y, SPACING, ignore, scale)
        target, predicted = ((d.clamp(min=0) / tolerance).clamp(max=1) for d in (target, predicted))
        if as_published:
            return (target * (1 - p))[counts].mean() + (predicted * t)[counts].mean()
        return (target * p)[counts].mean() + (predicted * t * (1 - p))[counts].mean()
    return loss


def boundary_l1(ignore=None, scale=1):
    def inner(x):
        # Out of bounds there is nothing to find: max_pool3d pads with -inf.
        pools = [F.max_pool3d(-x, k, 1, tuple(n // 2 for n in k)) for k in ((3, 1, 1), (1, 3, 1), (1, 1, 3))]
        return x + torch.stack(pools).amax(0)

    def loss(x, y):
        p, t, counts, _, _ = parts(x, y, SPACING, ignore, scale)
        return (inner(p * counts) - inner(t)).abs()[counts].mean()
    return loss


def losses():
    """Name; term, unit, ignored label and scale as the test knows them; the loss of logits and labels."""
    monai = {"softmax": True, "to_onehot_y": True, "include_background": False}
    plain = {"Hausdorff": {"alpha": 2.0, "log": False}}
    logarithm = {"Hausdorff": {"alpha": 2.0, "log": True}}
    yield "monai_hausdorff", plain, "voxels", None, 1, HausdorffDTLoss(**monai)
    yield "monai_hausdorff_1.5", {"Hausdorff": {"alpha": 1.5, "log": False}}, "voxels", None, 1, (
        HausdorffDTLoss(**monai, alpha=1.5))
    yield "monai_log_hausdorff", logarithm, "voxels", None, 1, LogHausdorffDTLoss(**monai)
    yield "hausdorff_mm", plain, "mm", None, 1, hausdorff(2.0)
    yield "log_hausdorff_ignore", logarithm, "mm", IGNORED, 1, hausdorff(2.0, True, ignore=IGNORED)
    yield "boundary", "Boundary", "mm", None, 1, boundary()
    yield "boundary_voxels", "Boundary", "voxels", None, 1, boundary((1, 1, 1))
    yield "boundary_ignore_coarse", "Boundary", "mm", IGNORED, 2, boundary(ignore=IGNORED, scale=2)
    for ignore, scale in ((None, 1), (IGNORED, 1), (None, 2)):
        symmetric = {"Surface": {"tolerance": 2.0, "form": "symmetric"}}
        yield f"surface_{ignore}_{scale}", symmetric, "mm", ignore, scale, surface(2.0, False, ignore, scale)
    published = {"Surface": {"tolerance": 2.0, "form": "as_published"}}
    yield "surface_published", published, "mm", None, 1, surface(2.0, True)
    yield "boundary_l1", None, "mm", None, 1, boundary_l1()
    yield "boundary_l1_ignore_coarse", None, "mm", IGNORED, 2, boundary_l1(IGNORED, 2)


def main():
    cases = []
    for mask, scale, favoured, logits, labels in inputs():
        for name, term, unit, ignore, downsampled, loss_of in losses():
            x = logits.clone().requires_grad_()
            loss = loss_of(x, labels)
            gradient = torch.autograd.grad(loss, x, allow_unused=True)[0]
            gradient = torch.zeros_like(x) if gradient is None else gradient
            cases.append({
                "name": name, "mask": mask, "logits": scale, "favoured": favoured, "term": term, "unit": unit,
                "ignore": ignore, "scale": downsampled, "value": float(loss.detach()),
                "gradient": [float(f"{g:.8g}") for g in gradient.ravel().tolist()],
            })
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
