"""CUDA out of memory with SwinUNETR: ask how much a step needs, how low it can go, and what to checkpoint.

`plimsoll.estimate` traces a step of the module on tensors without memory, and answers on any machine, without a GPU and
without running the step.

Usage: ``python swinunetr_out_of_memory.py``. Needs PyTorch; with MONAI the network is its SwinUNETR.
"""

from __future__ import annotations

import torch

import plimsoll


def network() -> tuple[torch.nn.Module, tuple[int, ...]]:
    """Return the network and the shape of a batch."""
    try:
        from monai.networks.nets import SwinUNETR
    except ImportError:
        layers: list[torch.nn.Module] = []
        for inner, outer in ((1, 32), (32, 32), (32, 32), (32, 2)):
            layers += [torch.nn.Conv3d(inner, outer, 3, padding=1), torch.nn.InstanceNorm3d(outer)]
            layers.append(torch.nn.LeakyReLU())
        return torch.nn.Sequential(*layers), (2, 1, 96, 96, 96)
    return SwinUNETR(in_channels=1, out_channels=2, feature_size=24), (1, 1, 64, 64, 64)


def main() -> None:
    """Print the estimate, and the submodules whose checkpoints save the most."""
    module, shape = network()
    estimate = plimsoll.estimate(module, shape, optimizer="adamw")
    print(estimate)
    print()
    print(f"eager PyTorch needs {estimate.peak / 2**30:.2f} GiB, at {estimate.peak_at}")
    print(f"with recomputation as little as {estimate.least / 2**30:.2f} GiB is enough")
    for checkpoint in estimate.checkpoints[:3]:
        print(f"checkpoint {checkpoint.module}: the peak is {checkpoint.peak / 2**30:.2f} GiB then")
    for text in estimate.unseen:
        print(f"not included: {text}")


if __name__ == "__main__":
    main()
