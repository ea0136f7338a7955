"""Steps on far more compressed data than the limit holds: 16 GiB of `.nii.gz` under `--ram 1GiB`, beside the same job on cases that fit the cache.

    pip install nibabel
    python benches/compressed_data_set.py FOLDER [--binary PLIMSOLL] [--gib 16] [--ram 1GiB] [--iterations 60] [--rounds 2]

Makes four volumes of noise (67 MB of int16 each, some 40 MB compressed) in FOLDER/noise, and of hard links to them the data sets FOLDER/large,
of so many GiB, and FOLDER/small, of as many cases as fit the cache. Each is trained for an epoch of so many steps, in turn, in a control group
with so much memory where one can be made (as root), so that files are not read from the system's memory alone. The first command inspects, and
writes access points into FOLDER/cache. Prints JSON: seconds a step and seconds of waiting of each run, and the ratio of the medians.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

SHAPE = (128, 512, 512)
VOLUMES = 4
SMALL = 4


def make(folder, gib):
    import nibabel
    import numpy

    noise = folder / "noise"
    noise.mkdir(parents=True, exist_ok=True)
    nibabel.openers.Opener.default_compresslevel = 1
    random = numpy.random.default_rng(5)
    for volume in range(VOLUMES):
        if (noise / f"label{volume}.nii.gz").is_file():
            continue
        steps = (numpy.arange(SHAPE[0])[:, None, None] // 16 * 40).astype(numpy.int16)
        image = (random.normal(0, 20, SHAPE) + steps).astype(numpy.int16)
        label = numpy.zeros(SHAPE, numpy.uint8)
        label[30:90, 100 + 60 * volume : 220 + 60 * volume, 150:330] = 1
        image[label > 0] += 60
        nibabel.save(nibabel.Nifti1Image(image.T, numpy.eye(4)), noise / f"image{volume}.nii.gz")
        nibabel.save(nibabel.Nifti1Image(label.T, numpy.eye(4)), noise / f"label{volume}.nii.gz")
    size = sum((noise / f"{kind}{volume}.nii.gz").stat().st_size for kind in ("image", "label") for volume in range(VOLUMES))
    large = max(SMALL + 1, round(gib * 2**30 / (size / VOLUMES)))
    for name, cases in (("small", SMALL), ("large", large)):
        shutil.rmtree(folder / name, ignore_errors=True)
        for place, kind in (("raw", "image"), ("seg", "label")):
            (folder / name / place).mkdir(parents=True)
            for case in range(cases):
                os.link(noise / f"{kind}{case % VOLUMES}.nii.gz", folder / name / place / f"case{case:04}.nii.gz")
    return {"large": large, "small": SMALL, "compressed_bytes": round(size / VOLUMES * large)}


class Group:
    """A control group with so much memory, of either version; none where none can be made."""

    def __init__(self, most):
        self.place = None
        for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            place = Path(root) / f"plimsoll-bench-{os.getpid()}"
            try:
                place.mkdir()
                (place / limit).write_text(str(most))
                self.place = place
                return
            except OSError:
                if place.is_dir():
                    place.rmdir()

    def enter(self):
        if self.place:
            (self.place / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        if self.place:
            self.place.rmdir()


def bytes_of(text):
    for end, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if text.endswith(end):
            return int(float(text[: -len(end)]) * factor)
    return int(text)


def train(asked, name, number, group):
    out = asked.folder / "runs" / f"{name}{number}"
    shutil.rmtree(out, ignore_errors=True)
    command = [asked.binary, "train", asked.folder / name, "--out", out, "--ram", asked.ram, "--net", "plain", "--features", asked.features]
    command += ["--patch-size", asked.patch, "--spacing", "1,1,1", "--epochs", "1", "--iterations", asked.iterations]
    command += ["--validation-iterations", "1", "--skip-validation", "--loader-threads", asked.loader_threads]
    environment = os.environ | {"XDG_CACHE_HOME": str((asked.folder / "cache").absolute())}
    done = subprocess.run(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=group.enter
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}The command ended with {done.returncode}")
    run = json.loads((out / "fold_0" / "run.json").read_text())
    return {
        "seconds_per_step": run["seconds_per_step"],
        "predicted_seconds_per_step": run["predicted_seconds_per_step"],
        "waiting_seconds": run["waiting_seconds"],
        "steps": run["steps"],
        "peak_rss_bytes": run["peak_rss_bytes"],
        "cache": run["cache"],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--binary", default="target/release/plimsoll")
    parser.add_argument("--gib", type=float, default=16)
    parser.add_argument("--ram", default="1GiB")
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--patch", default="64,64,64")
    parser.add_argument("--features", default="16,32,64,128")
    parser.add_argument("--loader-threads", type=int, default=1)
    asked = parser.parse_args()
    made = make(asked.folder, asked.gib)
    # The limit, and what the system needs for a process beside what is resident.
    group = Group(bytes_of(asked.ram) + (64 << 20))
    found = {"small": [], "large": []}
    try:
        for number in range(asked.rounds):
            for name, runs in found.items():
                runs.append(train(asked, name, number, group))
                print(name, json.dumps(runs[-1]), file=sys.stderr, flush=True)
    finally:
        group.remove()
    middle = {name: statistics.median(run["seconds_per_step"] for run in runs) for name, runs in found.items()}
    result = {"cases": made, "ram": asked.ram, "control_group": group.place is not None, "runs": found}
    print(json.dumps(result | {"seconds_per_step": middle, "large_over_small": middle["large"] / middle["small"]}, indent=2))


main()
