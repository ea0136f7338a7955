"""Kills random ranks of trainings at random times, and resumes with other numbers of ranks.

    python benches/ranks/kills.py [--kills 20] [--seed 0] [--precision f32] [--binary target/release/plimsoll]

Needs numpy, nibabel and mpich (`pip install mpich`) in the Python that runs this. A DynUNet is trained on generated volumes with a batch of four
samples that are four shards, by one process and, again and again, by 1, 2 or 4 ranks of which one is killed. Every training must end with the
bytes of parameters of the undisturbed one.
"""

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nibabel
import numpy as np

ROOT = Path(__file__).parents[2]


def data_set(folder):
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


class Job:
    """A training that several processes may continue."""

    def __init__(self, arguments, folder):
        self.binary, self.folder, self.data = arguments.binary, folder, folder / "data"
        data_set(self.data)
        self.settings = folder / "plimsoll.toml"
        self.settings.write_text(f"""
shards = 4
batch_size = 4
patch_size = [16, 16, 16]
precision = "{arguments.precision}"
epochs = 4
iterations_per_epoch = 10
[network]
net = "dynunet"
features = [8, 16, 32]
""")

    def start(self, run, ranks, more=()):
        command = [str(self.binary), "train", str(self.data), "--fold", "all", "--config", str(self.settings), "--out", str(run)]
        command += ["--ram", "1GiB", "--threads", "1", "--skip-validation", "--log-steps", *more]
        if ranks > 1:
            command = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks), *command]
        environment = os.environ | {"LD_LIBRARY_PATH": str(Path(sys.prefix) / "lib")}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def processes(self, run):
        """The ranks that train into a folder."""
        found = []
        for process in Path("/proc").iterdir():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except (NotADirectoryError, FileNotFoundError, ProcessLookupError):
                continue
            if words[0] == str(self.binary).encode() and str(run).encode() in words:
                found.append(int(process.name))
        return found


def digest(run):
    checkpoint = next(run.rglob("checkpoint_final*"), None) or next(run.rglob("*.safetensors"))
    return hashlib.sha256(checkpoint.read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/plimsoll")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(arguments, Path(folder))
        whole = job.folder / "whole"
        start = time.monotonic()
        undisturbed = job.start(whole, 1)
        text, _ = undisturbed.communicate()
        if undisturbed.returncode != 0:
            sys.exit(f"{text}The run ended with {undisturbed.returncode}")
        length, expected = time.monotonic() - start, digest(whole)
        kills, runs, longest = 0, 0, 0.0
        while kills < arguments.kills:
            run, runs, more = job.folder / f"run-{runs}", runs + 1, ()
            while True:
                ranks = chance.choice((1, 2, 4))
                process = job.start(run, ranks, more)
                try:
                    process.wait(timeout=chance.uniform(0.2, 1.0) * length)
                except subprocess.TimeoutExpired:
                    alive = job.processes(run)
                    if alive and kills < arguments.kills:
                        os.kill(chance.choice(alive), signal.SIGKILL)
                        killed, kills = time.monotonic(), kills + 1
                        process.wait(timeout=60)
                        while job.processes(run):
                            time.sleep(0.01)
                        longest = max(longest, time.monotonic() - killed)
                text, _ = process.communicate()
                if process.returncode == 0:
                    break
                more = ("--resume",) if next(run.rglob("specification.json"), None) else ()
            found = digest(run)
            print(f"run {runs}: {kills} kills so far, the parameters are {'the same' if found == expected else 'OTHERS'}", flush=True)
            if found != expected:
                sys.exit("the parameters differ")
    print(f"{kills} kills in {runs} trainings; all ranks had ended within {longest:.1f} s")


if __name__ == "__main__":
    main()
