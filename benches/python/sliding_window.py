"""Sliding windows of the Python package against MONAI's, for a SegResNet of many classes.

    python benches/python/sliding_window.py [--size 250 250 280] [--roi 96 96 96] [--classes 118] [--filters 8]
        [--overlap 0.25] [--mode gaussian] [--batch 1] [--budget 2GiB] [--threads 2] [--rounds 1]

Needs the package `plimsoll`, torch and monai. Each program runs in processes of its own, in alternating rounds: the network with the same
random weights, the same image, and labels as the result; MONAI's logits are compared with `argmax`. Memory is the highest resident size of
the process. "In the network" is the highest resident size of a process that only runs the network on one batch: what is above it is due to
the sums and to what PyTorch's allocator keeps. "A fixed result" is the same call with a function that returns one tensor made before, so that
PyTorch allocates nothing: above it stands what Plimsoll holds alone. Labels are compared at all voxels, and at those where the two largest of MONAI's logits differ by more than 1e-4.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

PROGRAMS = ("plimsoll", "monai", "network", "fixed", "fixed, network")


def network(arguments):
    import torch
    from monai.networks.nets import SegResNet

    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    module = SegResNet(
        spatial_dims=3, init_filters=arguments.filters, in_channels=1, out_channels=arguments.classes, blocks_down=(1, 2, 2), blocks_up=(1, 1)
    )
    return module.eval()


def image(arguments):
    import torch

    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(1, 1, *(max(size // 16, 2) for size in arguments.size), generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, tuple(arguments.size), mode="trilinear")
    return smooth + 0.05 * torch.rand(smooth.shape, generator=generator)


def run(arguments):
    """Run one program, write its labels, and print seconds and the peak of resident memory."""
    import torch

    volume = image(arguments)
    if arguments.run.startswith("fixed"):
        fixed = torch.rand(arguments.batch, arguments.classes, *arguments.roi)
        module = lambda windows: fixed[: len(windows)]  # noqa: E731
    else:
        module = network(arguments)
    options = {
        "roi_size": tuple(arguments.roi),
        "sw_batch_size": arguments.batch,
        "overlap": arguments.overlap,
        "mode": arguments.mode,
    }
    clear = None
    start = time.perf_counter()
    if arguments.run in ("plimsoll", "fixed"):
        import plimsoll

        labels = plimsoll.sliding_window(volume, module, budget=arguments.budget, threads=arguments.threads, **options)
    elif arguments.run == "monai":
        from monai.inferers import sliding_window_inference

        with torch.no_grad():
            logits = sliding_window_inference(volume, predictor=module, **options)
            labels = logits.argmax(1)
    else:
        with torch.no_grad():
            module(torch.zeros(arguments.batch, 1, *arguments.roi))
        labels = torch.zeros(1)
    seconds = time.perf_counter() - start
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if arguments.run == "monai":
        # After the measurement: plane by plane, so that it takes little memory.
        clear = np.concatenate([_is_clear(logits[0, :, plane]) for plane in range(logits.shape[2])])
        np.save(arguments.folder / "clear.npy", clear)
    np.save(arguments.folder / f"{arguments.run}.npy", labels.numpy().astype(np.uint8))
    print(json.dumps({"seconds": seconds, "peak": peak}))


def _is_clear(logits):
    largest = logits.topk(2, dim=0).values
    return (largest[0] - largest[1] > 1e-4).numpy().reshape(-1)


def started(program, folder):
    command = [sys.executable, __file__, *sys.argv[1:], "--run", program, "--folder", str(folder)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(finished.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=3, default=[250, 250, 280])
    parser.add_argument("--roi", type=int, nargs=3, default=[96, 96, 96])
    parser.add_argument("--classes", type=int, default=118)
    parser.add_argument("--filters", type=int, default=8)
    parser.add_argument("--overlap", type=float, default=0.25)
    parser.add_argument("--mode", default="gaussian")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--budget", default=None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--run", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        found = {program: [] for program in PROGRAMS}
        for _ in range(arguments.rounds):
            for program in found:
                found[program].append(started(program, folder))
        ours, theirs, clear = (np.load(folder / f"{name}.npy").reshape(-1) for name in ("plimsoll", "monai", "clear"))
    print(f"image {arguments.size}, windows {arguments.roi}, {arguments.classes} classes, logits {4 * ours.size * arguments.classes / 2**30:.2f} GiB")
    print("| program | seconds | peak GiB | above the network GiB |\n|---|---|---|---|")
    base = statistics.median(run["peak"] for run in found["network"])
    for program in ("plimsoll", "monai"):
        seconds, peak = (statistics.median(run[name] for run in found[program]) for name in ("seconds", "peak"))
        print(f"| {program} | {seconds:.1f} | {peak / 2**30:.2f} | {(peak - base) / 2**30:.2f} |")
    print(f"the network alone: {base / 2**30:.2f} GiB")
    held, before = (statistics.median(run["peak"] for run in found[program]) for program in ("fixed", "fixed, network"))
    print(f"with a fixed result: {(held - before) / 2**30:.2f} GiB above the process, with a budget of {arguments.budget or 'no limit'}")
    same = ours == theirs
    print(f"equal labels: {100 * same.mean():.5f} % of {same.size} voxels; where two logits are not equal: {100 * same[clear].mean():.5f} % of {clear.sum()}")


if __name__ == "__main__":
    main()
