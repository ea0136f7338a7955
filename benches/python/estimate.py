"""The memory that `plimsoll.estimate` predicts against the memory of real steps.

    python benches/python/estimate.py [--threads 2] [--networks unet dynunet swinunetr segresnet] [--checkpoints 3]

Needs the package `plimsoll`, torch and monai. Every step runs on the CPU. The measurement shares no code with the estimate: `torch.profiler` counts
each allocation and release of PyTorch's CPU allocator during an undisturbed step. "measured" is the most that exists when an op returns, which is
the memory of tensors; "allocator" also counts what the kernels of this CPU allocate and release within one op, which an estimate cannot see. The
second table has the savings that the estimate promises for each checkpoint, and those of a step with the checkpoints in place.
"""

import argparse
import bisect
import copy
import functools
import gc
import time
import warnings

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import plimsoll

warnings.filterwarnings("ignore")


class Double(torch.nn.Sequential):
    """Two convolutions with batch normalisation, the first half of every U-Net in a tutorial."""

    def __init__(self, inside, outside):
        layers = []
        for width in (inside, outside):
            layers += [torch.nn.Conv3d(width, outside, 3, padding=1, bias=False)]
            layers += [torch.nn.BatchNorm3d(outside), torch.nn.ReLU(inplace=True)]
        super().__init__(*layers)


class UNet(torch.nn.Module):
    """A hand-written U-Net."""

    def __init__(self, widths=(16, 32, 64, 128)):
        super().__init__()
        self.down = torch.nn.ModuleList(map(Double, (1, *widths), widths))
        upwards = widths[:0:-1]
        self.transposed = torch.nn.ModuleList(torch.nn.ConvTranspose3d(width, width // 2, 2, 2) for width in upwards)
        self.up = torch.nn.ModuleList(Double(width, width // 2) for width in upwards)
        self.head = torch.nn.Conv3d(widths[0], 3, 1)

    def forward(self, x):
        skips = []
        for down in self.down[:-1]:
            skips.append(down(x))
            x = torch.nn.functional.max_pool3d(skips[-1], 2)
        x = self.down[-1](x)
        for transposed, up in zip(self.transposed, self.up):
            x = up(torch.cat([skips.pop(), transposed(x)], 1))
        return self.head(x)


def networks():
    """Return a function that builds each network, and the shapes of its batches."""
    from monai.networks.nets import DynUNet, SegResNet, SwinUNETR

    kernels, strides, filters = [3] * 4, [1, 2, 2, 2], [16, 32, 64, 128]
    return {
        "unet": (UNet, [(2, 1, 32, 32, 32), (1, 1, 48, 64, 64)]),
        "dynunet": (
            lambda: DynUNet(3, 1, 3, kernels, strides, strides[1:], filters=filters, res_block=True),
            [(2, 1, 32, 32, 32), (1, 1, 48, 64, 64)],
        ),
        "swinunetr": (
            lambda: SwinUNETR(in_channels=1, out_channels=3, feature_size=12),
            [(1, 1, 64, 64, 64), (2, 1, 32, 64, 64)],
        ),
        "segresnet": (
            lambda: SegResNet(init_filters=8, in_channels=1, out_channels=3, dropout_prob=0.2),
            [(2, 1, 32, 32, 32), (1, 1, 48, 64, 64)],
        ),
    }


class Names(TorchDispatchMode):
    """Collects the names of the ops that PyTorch runs below autograd."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.name().split(".")[0])
        return func(*args, **(kwargs or {}))


def measure(net, shape):
    """Return the peak of tensor memory and of the allocator in the second step of a network, in bytes."""
    optimizer = torch.optim.AdamW(net.parameters())
    batch = torch.zeros(shape)

    def step():
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()

    with Names() as ops:
        step()
    optimizer.zero_grad()
    gc.collect()
    lasting = [batch, *net.parameters(), *net.buffers()]
    lasting += [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    base = sum(tensor.untyped_storage().nbytes() for tensor in lasting)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    events = profiled.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    times, held = [time for time, _ in changes], [base]
    for _, change in changes:
        held.append(held[-1] + change)
    intervals = sorted((event.start_ns(), -event.duration_ns()) for event in events if event.name() in ops.names)
    tensors, end = base, 0
    for start, duration in intervals:
        # An op that another one calls has returned before that one returns.
        if start >= end:
            end = start - duration
            tensors = max(tensors, held[bisect.bisect_right(times, end)])
    return tensors, max(held)


def checkpointed(net, names):
    """Return a copy of a network with checkpoints around some submodules."""
    net = copy.deepcopy(net)
    for name in names:
        child = net.get_submodule(name)
        child.forward = functools.partial(checkpoint, child.forward, use_reentrant=False)
    return net


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--networks", nargs="+", default=list(networks()))
    parser.add_argument("--checkpoints", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    savings = []
    print(
        "network    batch               estimate   measured  difference  allocator  lower bound      least    trace   search"
    )
    for name in arguments.networks:
        build, shapes = networks()[name]
        for shape in shapes:
            torch.manual_seed(0)
            net = build()
            start = time.perf_counter()
            plain = plimsoll.estimate(net, shape, device="cpu", checkpoints=0)
            middle = time.perf_counter()
            found = plimsoll.estimate(net, shape, device="cpu", checkpoints=arguments.checkpoints)
            assert found.peak == plain.peak
            tensors, allocator = measure(copy.deepcopy(net), shape)
            print(
                f"{name:<10} {'×'.join(map(str, shape)):<17} {found.peak / 1e6:>8.2f} MB {tensors / 1e6:>7.2f} MB"
                f" {100 * (found.peak / tensors - 1):>+9.2f} % {allocator / 1e6:>7.2f} MB {found.lower_bound / 1e6:>9.2f} MB"
                f" {found.least / 1e6:>7.2f} MB {middle - start:>6.2f} s {time.perf_counter() - middle:>6.2f} s",
                flush=True,
            )
            before = tensors
            for count, row in enumerate(found.checkpoints, 1):
                names = [row.module for row in found.checkpoints[:count]]
                after, _ = measure(checkpointed(net, names), shape)
                savings.append((name, shape, row, before - after))
                before = after
    print("\ncheckpoint, in addition to those above it       batch               promised   measured  operations")
    for name, shape, row, saved in savings:
        print(
            f"{name + ': ' + row.module:<47} {'×'.join(map(str, shape)):<17} {row.saved / 1e6:>8.2f} MB {saved / 1e6:>7.2f} MB"
            f" {100 * row.recomputed_flops:>+8.1f} %"
        )


if __name__ == "__main__":
    main()
