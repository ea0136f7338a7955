"""A training loop whose loss takes two SciPy transforms per sample, and the same loop with `SurfaceDistanceLoss`.

    python benches/python/losses.py [--steps 5] [--workers 1 2 4] [--rounds 1]

Needs the package `plimsoll`, numpy, scipy and torch. The loss is the mean of c(Dₜ) p + c(Dₚ) t (1 − p) with p the sigmoid of the logits and
c(D) = min(D / 2 mm, 1), of patches of 72×136×136 voxels in batches of two. First it compares value and gradient of both. Then each round runs each
loop with each number of data-loader workers in a process of its own. The table has the median time of a step and of the loss with its gradient, and
the peak of the memory of the process and its workers together (proportional set size; a page of several processes counts once).
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import distance_transform_edt

from plimsoll.torch import SurfaceDistanceLoss

PATCH = (72, 136, 136)
SPACING = (1.5, 1.0, 1.0)
TOLERANCE = 2.0
BATCH = 2
# Four workers on two processors are what is measured.
warnings.filterwarnings("ignore", message="This DataLoader will create")
ours = SurfaceDistanceLoss(sigmoid=True, tolerance=TOLERANCE, spacing=SPACING)


def distances(masks):
    """Distances from outside to each mask, as a share of the tolerance."""
    maps = [distance_transform_edt(~mask, SPACING) if mask.any() else np.full(PATCH, np.inf) for mask in masks]
    return torch.from_numpy(np.minimum(np.stack(maps) / TOLERANCE, 1.0)).float()[:, None]


def scipys(logits, target):
    p = torch.sigmoid(logits)
    of_target = distances(target[:, 0].numpy() > 0.5)
    of_prediction = distances(p.detach()[:, 0].numpy() > 0.5)
    return (of_target * p).mean() + (of_prediction * target * (1 - p)).mean()


LOSSES = {"SciPy": scipys, "Plimsoll": ours}


class Vessels(torch.utils.data.Dataset):
    """Patches of a winding tube with noise."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        rng = np.random.default_rng(number)
        z, y, x = np.ogrid[tuple(slice(extent) for extent in PATCH)]
        tube = np.hypot(y - 68 - 30 * np.sin((z + number) / 12), x - 68) < 6
        image = tube + 0.4 * rng.standard_normal(PATCH, np.float32)
        return image.astype(np.float32)[None], tube[None].astype(np.float32)


def network():
    layers = [torch.nn.Conv3d(1, 4, 3, padding=1), torch.nn.LeakyReLU(), torch.nn.Conv3d(4, 4, 3, padding=1), torch.nn.LeakyReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Conv3d(4, 1, 1))


def run(name, workers, steps, threads):
    """Train, and print the times as a line of JSON."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    model, loss = network(), LOSSES[name]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(Vessels(BATCH * (steps + 1)), BATCH, num_workers=workers)
    seconds, of_loss, values = [], [], []
    start = time.perf_counter()
    for image, target in loader:
        optimizer.zero_grad(set_to_none=True)
        logits = model(image)
        # The gradient of the logits is computed apart to time it.
        leaf = logits.detach().requires_grad_()
        before = time.perf_counter()
        value = loss(leaf, target)
        value.backward()
        of_loss.append(time.perf_counter() - before)
        logits.backward(leaf.grad)
        optimizer.step()
        values.append(value.item())
        now = time.perf_counter()
        seconds.append(now - start)
        start = now
    result = {"step": statistics.median(seconds[1:]), "loss": statistics.median(of_loss[1:]), "values": values}
    print(json.dumps(result), flush=True)


def family(root):
    """A process and its descendants."""
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                waiting.extend(map(int, (task / "children").read_text().split()))
        except OSError:
            pass
    return found


def proportional_bytes(process):
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def measured(name, workers, arguments):
    command = [sys.executable, __file__, "--run", name, str(workers), "--steps", str(arguments.steps), "--threads", str(arguments.threads)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while child.poll() is None:
        peak = max(peak, sum(map(proportional_bytes, family(child.pid))))
        time.sleep(0.05)
    if child.returncode != 0:
        raise SystemExit(f"{name} with {workers} workers failed")
    return {**json.loads(child.stdout.read()), "peak": peak}


def compare():
    """Compare values and gradients of both losses on a batch."""
    image, target = next(iter(torch.utils.data.DataLoader(Vessels(BATCH), BATCH)))
    torch.manual_seed(0)
    results = []
    for loss in LOSSES.values():
        logits = (4 * image - 2).requires_grad_()
        value = loss(logits, target)
        value.backward()
        results.append((value.item(), logits.grad))
    (value, gradient), (own, own_gradient) = results
    of_gradient = float((gradient - own_gradient).abs().max() / gradient.abs().max())
    print(f"value: {value:.8f} and {own:.8f}, relative difference {abs(own / value - 1):.1e}; gradient: {of_gradient:.1e} of the largest element")
    assert abs(own / value - 1) <= 1e-5 and of_gradient <= 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        run(arguments.run[0], int(arguments.run[1]), arguments.steps, arguments.threads)
        return
    compare()
    print("| workers | loss | step s | loss and gradient s | peak MiB |\n|---|---|---|---|---|")
    for workers in arguments.workers:
        rounds = [{name: measured(name, workers, arguments) for name in LOSSES} for _ in range(arguments.rounds)]
        for name in LOSSES:
            results = [of_round[name] for of_round in rounds]
            step, loss = (statistics.median(result[key] for result in results) for key in ("step", "loss"))
            peak = max(result["peak"] for result in results) / 2**20
            print(f"| {workers} | {name} | {step:.3f} | {loss:.4f} | {peak:.0f} |", flush=True)
        values = [rounds[0][name]["values"] for name in LOSSES]
        np.testing.assert_allclose(*values, rtol=1e-4)


if __name__ == "__main__":
    main()
