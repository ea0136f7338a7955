"""Patches of a volume whose planes lie far apart: MONAI's usual pipeline, which resamples the volume and then crops, beside
`plimsoll bench patch`, on one thread each.

    pip install monai nibabel
    python benches/monai_patches.py FOLDER [--binary PLIMSOLL] [--patches 5] [--spacing 0.99] [--lateral 0.99] [--planes 4.97]

Makes FOLDER with a volume of 512 × 512 × 61 voxels, brings it to a spacing, and takes patches of 96 × 96 × 24 voxels, every second on the
foreground. MONAI loads, orients, resamples, normalises and crops anew for each patch, as without a cache of resampled volumes: that would take
hundreds of megabytes a case. Prints JSON: seconds a patch, peak resident memory, and how many times as many patches a second there are here.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

SHAPE = (61, 512, 512)
PATCH = (24, 96, 96)


def make(folder, lateral, planes):
    import nibabel
    import numpy

    for name in ("raw", "seg"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(3)
    nibabel.openers.Opener.default_compresslevel = 1
    affine = numpy.diag([lateral, lateral, planes, 1.0])
    row, column = numpy.mgrid[: SHAPE[1], : SHAPE[2]]
    for case in range(2):
        image = random.normal(400, 60, SHAPE).astype(numpy.int16)
        label = numpy.zeros(SHAPE, numpy.uint8)
        for plane in range(SHAPE[0]):
            for tube in range(8):
                y, x = (40 + 60 * tube + 2 * plane) % 512, (90 + 55 * tube + 3 * plane) % 512
                label[plane] |= (row - y) ** 2 + (column - x) ** 2 < 60
        image[label > 0] += 500
        nibabel.save(nibabel.Nifti1Image(image.T, affine), folder / "raw" / f"case{case}.nii.gz")
        nibabel.save(nibabel.Nifti1Image(label.T, affine), folder / "seg" / f"case{case}.nii.gz")


def peer(folder, spacing, patches):
    import torch
    from monai.transforms import (
        Compose,
        EnsureChannelFirstd,
        LoadImaged,
        NormalizeIntensityd,
        Orientationd,
        RandCropByPosNegLabeld,
        Spacingd,
    )

    torch.set_num_threads(1)
    keys = ["image", "label"]
    pipeline = Compose(
        [
            LoadImaged(keys),
            EnsureChannelFirstd(keys),
            Orientationd(keys, axcodes="RAS", labels=(("L", "R"), ("P", "A"), ("I", "S"))),
            Spacingd(keys, pixdim=(spacing,) * 3, mode=("bilinear", "nearest")),
            NormalizeIntensityd("image"),
            # MONAI's axes are width, height, depth.
            RandCropByPosNegLabeld(keys, "label", spatial_size=PATCH[::-1], pos=1, neg=1, num_samples=1),
        ]
    )
    pipeline.set_random_state(1)
    cases = [{key: folder / name / f"case{case}.nii.gz" for key, name in zip(keys, ("raw", "seg"))} for case in range(2)]
    pipeline(cases[0])
    start = time.perf_counter()
    for number in range(patches):
        (patch,) = pipeline(cases[number % 2])
        assert patch["image"].shape[1:] == PATCH[::-1], patch["image"].shape
    seconds = (time.perf_counter() - start) / patches
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds_per_patch": seconds, "peak_rss_bytes": peak}))


def ours(binary, folder, spacing, ram):
    what = ["bench", "patch", folder, "--json", "--threads", "1", "--ram", ram, "--batches", "60"]
    how = ["--spacing", ",".join([str(spacing)] * 3), "--patch-size", ",".join(map(str, PATCH)), "--net", "dynunet", "--features", "16,32"]
    with subprocess.Popen([binary, *map(str, what + how)], stdout=subprocess.PIPE, text=True) as child:
        text = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"plimsoll bench patch ended with {child.returncode}")
    found = json.loads(text)["patch"]
    names = ("seconds_per_patch", "hit_share", "cache_bytes", "resident_bytes")
    return {name: found[name] for name in names} | {"peak_rss_bytes": used.ru_maxrss * 1024}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--binary", default="target/release/plimsoll")
    parser.add_argument("--patches", type=int, default=5)
    parser.add_argument("--spacing", type=float, default=0.99)
    parser.add_argument("--lateral", type=float, default=0.99)
    parser.add_argument("--planes", type=float, default=4.97)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.peer:
        return peer(asked.folder, asked.spacing, asked.patches)
    if not (asked.folder / "seg" / "case1.nii.gz").is_file():
        make(asked.folder, asked.lateral, asked.planes)
    again = [sys.executable, __file__, str(asked.folder), "--peer"]
    again += ["--patches", str(asked.patches), "--spacing", str(asked.spacing)]
    warm = ours(asked.binary, asked.folder, asked.spacing, "1GiB")
    monai = subprocess.run(again, stdout=subprocess.PIPE, check=True, text=True).stdout
    monai = json.loads(monai.strip().splitlines()[-1])
    times = monai["seconds_per_patch"] / warm["seconds_per_patch"]
    print(json.dumps({"plimsoll": warm, "monai": monai, "times_the_rate": times}, indent=2))


main()
