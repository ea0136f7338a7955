"""TotalSegmentator without a GPU: stream any network over a scan, so that the logits of the scan never exist.

With the weights of TotalSegmentator on this machine, ``plimsoll.segment("total", image, ram="4GiB")`` does the whole
job. With a network of your own, `plimsoll.sliding_window` takes the place of `monai.inferers.sliding_window_inference`:
it has the same arguments, and returns labels instead of logits. 118 classes of a scan of 250 × 250 × 280 voxels are
8 GB of logits, and 17 MB of labels.

Usage: ``python totalsegmentator_without_a_gpu.py [IMAGE]``. Needs PyTorch; with an image, nibabel and the weights too.
"""

from __future__ import annotations

import sys

import torch

import plimsoll

CLASSES = 118


def segment_file(path: str) -> None:
    """Segment a scan as TotalSegmentator does."""
    import nibabel

    labels = plimsoll.segment("total", nibabel.load(path), fast=True, ram="4GiB")
    nibabel.save(labels, "labels.nii.gz")


def segment_noise() -> None:
    """Run a network of PyTorch with 118 classes over a made-up scan."""
    torch.manual_seed(0)
    network = torch.nn.Conv3d(1, CLASSES, 3, padding=1)
    image = torch.randn(1, 1, 48, 64, 64)
    budget = plimsoll.Budget("64MiB")
    labels = plimsoll.sliding_window(image, network, (16, 32, 32), overlap=0.5, mode="gaussian", budget=budget)
    logits = 4 * CLASSES * image[0, 0].numel()
    print(f"{tuple(labels.shape)} labels of {int(labels.max()) + 1} classes")
    print(f"{budget.peak / 2**20:.1f} MiB held at most; the logits would be {logits / 2**20:.1f} MiB")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        segment_file(sys.argv[1])
    else:
        segment_noise()
