"""Steps of a narrow DynUNet on 72×136×136 with six losses in PyTorch, MONAI and SciPy: seconds per step, those in
distance transforms, and peak resident memory, as a line of JSON.

    python benches/losses/pytorch_composite.py [--every 4] [--steps 6]

Equivalent to `plimsoll train` with the components in `composite.toml`: weighted BCE, Dice, clDice, morphological skeletons,
surface distance by exact distance transforms of target and prediction, and the simple topology loss.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy
import torch
from monai.losses import DiceLoss, SoftclDiceLoss
from monai.networks.nets import DynUNet
from scipy.ndimage import distance_transform_edt
from torch.nn.functional import binary_cross_entropy_with_logits, max_pool3d, relu

SPACING = (1.5, 1.0, 1.0)
PATCH = (72, 136, 136)
FEATURES = [8, 16, 32, 64]
TOLERANCE = 2.0


def erosion(volume, side):
    return -max_pool3d(-volume, side, 1, side // 2)


def dilation(volume, side):
    return max_pool3d(volume, side, 1, side // 2)


def skeleton(volume, iterations=3):
    """The morphological skeleton: the union of what openings remove from a volume and its erosions."""
    union = torch.zeros_like(volume)
    for _ in range(iterations):
        eroded = erosion(volume, 3)
        residue = relu(volume - dilation(eroded, 3))
        union = union + relu(residue - union)
        volume = eroded
    return union


def topology(p, t, threshold=0.2):
    ep, et = erosion(p, 5), erosion(t, 5)
    holes = relu(threshold - ep).mean() - relu(threshold - et).mean()
    return (ep - et).abs().mean() + holes.abs()


def distances(masks):
    """Distances to each mask, clipped to the tolerance, as a share of it."""
    maps = [distance_transform_edt(~mask, sampling=SPACING) if mask.any() else numpy.full(PATCH, numpy.inf) for mask in masks]
    return torch.from_numpy(numpy.minimum(numpy.stack(maps) / TOLERANCE, 1.0)).float()[:, None]


def peak_rss_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


parser = argparse.ArgumentParser()
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(0)
strides = [1] + [2] * (len(FEATURES) - 1)
model = DynUNet(3, 1, 2, [3] * len(FEATURES), strides, strides[1:], filters=FEATURES, norm_name="INSTANCE")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
grid = numpy.indices(PATCH)
tube = numpy.hypot(grid[1] - 68 - 30 * numpy.sin(grid[0] / 12), grid[2] - 68) < 6
labels = torch.from_numpy(numpy.stack([tube, numpy.roll(tube, 20, 1)]).astype(numpy.float32))[:, None]
image = labels + 0.4 * torch.randn(labels.shape)
dice, cldice = DiceLoss(), SoftclDiceLoss(iter_=3)

seconds, transforms = [], []
for step in range(1 + args.steps):
    start, transform = time.perf_counter(), 0.0
    optimizer.zero_grad(set_to_none=True)
    logits = model(image)
    logit = logits[:, 1:] - logits[:, :1]
    p = torch.sigmoid(logit)
    loss = 0.35 * binary_cross_entropy_with_logits(logit, labels, pos_weight=torch.tensor(2.8))
    loss = loss + 0.25 * dice(p, labels) + 0.15 * cldice(labels, p)
    loss = loss + 0.1 * (skeleton(p) - skeleton(labels)).abs().mean() + 0.08 * topology(p, labels)
    if step % args.every == 0:
        before = time.perf_counter()
        of_target = distances(labels[:, 0].numpy() > 0.5)
        of_prediction = distances(p.detach()[:, 0].numpy() > 0.5)
        transform = time.perf_counter() - before
        loss = loss + 0.07 * ((of_target * p).mean() + (of_prediction * labels * (1 - p)).mean())
    loss.backward()
    optimizer.step()
    seconds.append(time.perf_counter() - start)
    transforms.append(transform)
print(
    json.dumps(
        {
            "seconds_per_step": statistics.mean(seconds[1:]),
            "transform_seconds_per_step": statistics.mean(transforms[1:]),
            "peak_rss_bytes": peak_rss_bytes(),
        }
    )
)
