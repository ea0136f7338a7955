"""`plimsoll.torch.Patches` against MONAI's `CacheDataset`, on a folder like MiniVess with an outlier of large voxels.

    python benches/python/patches.py [FOLDER] [--rounds 2] [--seconds 15] [--outlier 1.6]

Needs the package `plimsoll`, torch, monai and nibabel. Makes FOLDER (about 0.2 GB, removed at the end; by default a
temporary one): 12 volumes of 45 × 512 × 512 voxels of 1 × 0.5 × 0.5 µm, and one of voxels `--outlier` µm wide and twice
as deep. At the spacing of the others it takes (outlier / 0.5)² × 2 × outlier times its 47 MB in f32: 1.5 GB, of which
MONAI needs 14 GiB to resample it. Each program runs in a process of its own, in alternating rounds:

- `plimsoll, first`: nothing is known about the data set, which is inspected.
- `plimsoll`: as from the second training on.
- `monai, threads`: `CacheDataset` with everything up to the crop in the cache (orientation, spacing in f32,
  intensities, indices of foreground and background), `copy_cache=False`, `ThreadDataLoader` in the process of the
  training.
- `monai, workers`: the same with `DataLoader(num_workers=2, persistent_workers=True)`.

All take patches of 24 × 96 × 96 voxels, a half of them on the foreground, mirrored at random, in batches of 4. The
first batch counts from the start of the process; the rate counts batches after it. Memory is the largest sum of the
proportional set sizes of the process and its children.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PATCH = (24, 96, 96)
SPACING = (1.0, 0.5, 0.5)
BATCH = 4
PROGRAMS = ("plimsoll, first", "plimsoll", "monai, threads", "monai, workers")


def make(folder, outlier):
    import nibabel
    import numpy as np

    rng = np.random.default_rng(3)
    nibabel.openers.Opener.default_compresslevel = 1
    shape = (45, 512, 512)
    row, column = np.mgrid[: shape[1], : shape[2]]
    # A scanner's noise is correlated, so that files compress.
    noise = rng.normal(0, 1, (8, *shape[1:])).astype(np.float32)
    noise = (noise + np.roll(noise, 1, 1) + np.roll(noise, 1, 2)) * 60
    for case in range(13):
        image, label = np.empty(shape, np.int16), np.zeros(shape, np.uint8)
        tubes = rng.uniform([0, 0, -3, -3, 4], [512, 512, 3, 3, 14], (10, 5))
        for plane in range(shape[0]):
            for y, x, dy, dx, radius in tubes:
                far = (row - (y + dy * plane) % 512) ** 2 + (column - (x + dx * plane) % 512) ** 2
                label[plane] |= far < radius**2
            image[plane] = 400 + noise[(plane + case) % 8] + 700.0 * label[plane]
        width, depth = (outlier, 2 * outlier) if case == 12 else (SPACING[2], SPACING[0])
        affine = np.diag([width, width, depth, 1.0])
        for name, voxels in (("raw", image), ("seg", label)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(voxels.T, affine), folder / name / f"mv{case:02}.nii.gz")


def plimsoll_batches(folder):
    from torch.utils.data import DataLoader

    from plimsoll.torch import Patches

    nothing = ["rotation", "scaling", "gaussian_noise", "gaussian_blur", "brightness", "contrast"]
    nothing += ["low_resolution", "gamma", "inverted_gamma"]
    patches = Patches(
        folder,
        PATCH,
        batch_size=BATCH,
        spacing=SPACING,
        augmentation={f"p_{name}": 0.0 for name in nothing},
        oversample_foreground=0.5,
        budget="2GiB",
        threads=2,
        iterations_per_epoch=None,
    )
    for batch in DataLoader(patches, batch_size=None, num_workers=0):
        assert batch["image"].shape == (BATCH, 1, *PATCH)
        yield


def monai_batches(folder, workers):
    import numpy as np
    import torch
    from monai.data import CacheDataset, DataLoader, ThreadDataLoader
    from monai.transforms import (
        CastToTyped,
        Compose,
        EnsureChannelFirstd,
        EnsureTyped,
        FgBgToIndicesd,
        LoadImaged,
        NormalizeIntensityd,
        Orientationd,
        RandCropByPosNegLabeld,
        RandFlipd,
        Spacingd,
    )

    keys = ["image", "label"]
    pipeline = Compose(
        [
            LoadImaged(keys),
            EnsureChannelFirstd(keys),
            Orientationd(keys, axcodes="RAS", labels=(("L", "R"), ("P", "A"), ("I", "S"))),
            Spacingd(keys, pixdim=SPACING[::-1], mode=("bilinear", "nearest"), dtype=np.float32),
            NormalizeIntensityd("image"),
            CastToTyped("label", dtype=np.uint8),
            EnsureTyped(keys, track_meta=False),
            FgBgToIndicesd("label", fg_postfix="_fg", bg_postfix="_bg"),
            # MONAI's axes are width, height, depth.
            RandCropByPosNegLabeld(
                keys,
                "label",
                spatial_size=PATCH[::-1],
                num_samples=BATCH,
                fg_indices_key="label_fg",
                bg_indices_key="label_bg",
                # As large patches as ours near the border.
                allow_smaller=False,
            ),
            *(RandFlipd(keys, prob=0.5, spatial_axis=axis) for axis in range(3)),
        ]
    )
    names = sorted(path.name for path in (folder / "raw").iterdir())
    cases = [{"image": folder / "raw" / name, "label": folder / "seg" / name} for name in names]
    cached = CacheDataset(cases, pipeline, cache_rate=1.0, num_workers=1, copy_cache=False, progress=False)
    if workers:
        loader = DataLoader(cached, batch_size=1, shuffle=True, num_workers=2, persistent_workers=True)
    else:
        torch.set_num_threads(1)
        loader = ThreadDataLoader(cached, batch_size=1, shuffle=True, num_workers=0, buffer_size=4)
    while True:
        for batch in loader:
            assert batch["image"].shape == (BATCH, 1, *PATCH[::-1])
            yield


def measure(program, folder, seconds, start):
    """Print the time to the first batch and the samples per second."""
    is_ours = program.startswith("plimsoll")
    batches = plimsoll_batches(folder) if is_ours else monai_batches(folder, "workers" in program)
    next(batches)
    first, count, begun = time.time() - start, 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        next(batches)
        count += BATCH
    print(json.dumps({"first": first, "rate": count / (time.perf_counter() - begun)}), flush=True)
    # Workers and threads need no orderly end.
    os._exit(0)


def held(pid):
    """Return the proportional set size of a process and its children, in bytes."""
    try:
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        children = {int(child) for task in tasks for child in task.read_text().split()}
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (OSError, ProcessLookupError):
        return 0
    own = 1024 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return own + sum(held(child) for child in children)


def run(program, folder, cache, seconds):
    if program == "plimsoll, first":
        shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, __file__, str(folder), "--program", program, "--seconds", str(seconds)]
    command += ["--start", str(time.time())]
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    peak = 0

    def watch():
        nonlocal peak
        while child.poll() is None:
            peak = max(peak, held(child.pid))
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    text = child.communicate()[0]
    watcher.join()
    if child.returncode != 0:
        sys.exit(f"{program} ended with {child.returncode}")
    return json.loads(text.strip().splitlines()[-1]) | {"peak": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=2, help="at least 1")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--outlier", type=float, default=1.6)
    parser.add_argument("--programs", nargs="+", default=PROGRAMS, choices=PROGRAMS)
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.program:
        return measure(asked.program, asked.folder, asked.seconds, asked.start)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="patches"))
    cache = folder / "cache"
    try:
        if not (folder / "seg" / "mv12.nii.gz").is_file():
            make(folder, asked.outlier)
        found = {program: [] for program in asked.programs}
        for _ in range(asked.rounds):
            for program in asked.programs:
                found[program].append(run(program, folder, cache, asked.seconds))
                print(program, found[program][-1], file=sys.stderr, flush=True)
    finally:
        if not asked.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print("| program | samples per second | first batch, s | peak memory, GiB |\n|---|---|---|---|")
    for program, rounds in found.items():
        best = max(round_["rate"] for round_ in rounds)
        first = min(round_["first"] for round_ in rounds)
        peak = max(round_["peak"] for round_ in rounds)
        print(f"| {program} | {best:.1f} | {first:.1f} | {peak / 2**30:.2f} |")


if __name__ == "__main__":
    main()
