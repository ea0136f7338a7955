"""A training step on a simulated hybrid processor: one of two threads has half of a core.

    python benches/step/hybrid.py PLIMSOLL [--size 64] [--features 32,64,128,256] [--rounds 5]

Prints the time on two whole cores, the time with one thread at half speed, and the latter in terms of the ideal split, in which both threads end
together: the time on two whole cores times 2 / 1.5. Then it trains once on two whole cores and once with the slow thread, and compares the bytes
of the checkpoints. A control group (version 1, controller `cpu`) lets the slow thread run for one millisecond of every two, so this needs Linux, root
and an idle machine.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# The name of the second thread of the pool for kernels.
SLOW = "kernel-1"
PERIOD_US, QUOTA_US = 2000, 1000
GROUP = Path("/sys/fs/cgroup/cpu/plimsoll-hybrid")

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("plimsoll", type=Path)
parser.add_argument("--size", default="64")
parser.add_argument("--features", default="32,64,128,256")
parser.add_argument("--rounds", type=int, default=5)
args = parser.parse_args()


def slow_down(process: subprocess.Popen[str], moved: set[str]) -> None:
    """Move each thread of that name to the group as soon as it exists, until the process ends."""
    tasks = Path(f"/proc/{process.pid}/task")
    while process.poll() is None:
        for task in tasks.glob("*"):
            try:
                if task.name not in moved and (task / "comm").read_text().strip() == SLOW:
                    (GROUP / "tasks").write_text(task.name)
                    moved.add(task.name)
            except OSError:
                continue  # The thread has ended.
        time.sleep(0.002)


def run(arguments: list[str], is_hybrid: bool) -> str:
    """Run the program and return its output."""
    process = subprocess.Popen([str(args.plimsoll), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    moved: set[str] = set()
    watcher = threading.Thread(target=slow_down, args=(process, moved))
    if is_hybrid:
        watcher.start()
    output, errors = process.communicate()
    if is_hybrid:
        watcher.join()
        if not moved:
            sys.exit(f"error: no thread was called {SLOW}")
    if process.returncode:
        sys.exit(errors)
    return output


def step(is_hybrid: bool) -> float:
    """Return the seconds of a step."""
    arguments = ["bench", "step", "--json", "--threads", "2", "--size", args.size, "--features", args.features, "--steps", "5"]
    return json.loads(run(arguments, is_hybrid))["seconds_per_step"]


def make_data(folder: Path) -> None:
    """Let the demonstration write its data set, and stop it then."""
    process = subprocess.Popen([str(args.plimsoll), "demo", "--out", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (folder / "dataset" / "dataset.json").exists():
        time.sleep(0.1)
    process.kill()
    process.wait()


def checkpoint(folder: Path, is_hybrid: bool) -> bytes:
    """Train on the data in a folder, and return the bytes of the last checkpoint."""
    out = folder / ("hybrid" if is_hybrid else "whole")
    network = ["--net", "dynunet", "--features", "8,16,24", "--patch-size", "32,32,32"]
    length = ["--epochs", "2", "--iterations", "8", "--skip-validation"]
    run(
        ["train", str(folder / "demo" / "dataset"), "--fold", "all", "--ram", "1GiB", "--out", str(out), "--threads", "2", *network, *length],
        is_hybrid,
    )
    return (out / "fold_all" / "checkpoint_final.safetensors").read_bytes()


GROUP.mkdir(exist_ok=True)
try:
    (GROUP / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (GROUP / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(args.rounds):
        for is_hybrid in (False, True):
            times[is_hybrid].append(step(is_hybrid))
    whole, hybrid = (statistics.median(times[is_hybrid]) for is_hybrid in (False, True))
    pairs = [slow / (fast * 2 / 1.5) for fast, slow in zip(times[False], times[True], strict=True)]
    print(f"two whole cores {whole:.3f} s, one of them half {hybrid:.3f} s: {statistics.median(pairs):.2f} of the ideal split")
    with tempfile.TemporaryDirectory() as work:
        make_data(Path(work) / "demo")
        same = checkpoint(Path(work), False) == checkpoint(Path(work), True)
    print("the checkpoints have the same bytes" if same else "the checkpoints differ")
    sys.exit(0 if same else 1)
finally:
    GROUP.rmdir()
