"""Two ranks of one thread each on two hosts, against one process of one thread.

    sudo python benches/ranks/two_hosts.py [--rate 1gbit] [--size 96] [--steps 6] [--rounds 3] [--binary target/release/plimsoll]

The hosts are network namespaces of this machine with an interface each, whose rate `tc` limits (`tbf`). Needs root, iproute2, and numpy, nibabel
and mpich (`pip install mpich`) in the Python that runs this. Trains MONAI's DynUNet on generated volumes, with a batch of two samples that are
two shards. One process computes both; each of the two ranks computes one. Rounds alternate. The first step of a run is left out. Both trainings
must end with the same bytes of parameters.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import nibabel
import numpy as np

ROOT = Path(__file__).parents[2]
NAMES = ("plimsoll-a", "plimsoll-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LINKS = ("plimsoll-va", "plimsoll-vb")

# `mpiexec` calls it as it would call ssh: options, the host, and a command.
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
case "$1" in %s) name=%s ;; %s) name=%s ;; *) exit 1 ;; esac
shift
exec ip netns exec "$name" sh -c "$*"
""" % (ADDRESSES[0], NAMES[0], ADDRESSES[1], NAMES[1])


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def hosts(rate):
    """Two hosts that a link of a rate connects."""
    for name in NAMES:
        subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)
        ip("netns", "add", name)
    try:
        ip("link", "add", LINKS[0], "type", "veth", "peer", "name", LINKS[1])
        for name, link, address in zip(NAMES, LINKS, ADDRESSES):
            ip("link", "set", link, "netns", name)
            ip("-n", name, "address", "add", f"{address}/24", "dev", link)
            for up in (link, "lo"):
                ip("-n", name, "link", "set", up, "up")
            limit = ["tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            subprocess.run(["ip", "netns", "exec", name, *limit], check=True)
        yield
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "delete", name])


def data_set(folder, size):
    """Two volumes with ellipsoids, a little larger than a patch."""
    random = np.random.default_rng(0)
    grid = np.indices((size + 8,) * 3, dtype=np.float32)
    for name in ("raw", "seg"):
        (folder / name).mkdir(parents=True)
    for case in range(2):
        centre = random.uniform(0.3, 0.7, 3) * (size + 8)
        inside = sum(((grid[axis] - centre[axis]) / (size / 4)) ** 2 for axis in range(3)) < 1
        image = (inside + random.normal(0, 0.3, inside.shape)).astype(np.float32)
        for name, voxels in (("raw", image), ("seg", inside.astype(np.uint8))):
            nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), folder / name / f"case_{case}.nii.gz")


def trained(arguments, folder, data, ranks):
    """Train, and return seconds of the steps after the first, and the digest of the parameters."""
    run = folder / f"run-{ranks}"
    subprocess.run(["rm", "-rf", str(run)], check=True)
    settings = folder / "plimsoll.toml"
    settings.write_text(f"""
shards = 2
batch_size = 2
patch_size = [{arguments.size}, {arguments.size}, {arguments.size}]
epochs = 1
iterations_per_epoch = {arguments.steps}
validation_iterations = 1
[network]
net = "dynunet"
""")
    command = [str(arguments.binary), "train", str(data), "--fold", "all", "--config", str(settings), "--out", str(run), "--ram", "4GiB"]
    command += ["--threads", "1", "--skip-validation", "--log-steps"]
    if ranks == 2:
        mpiexec = Path(sys.executable).with_name("mpiexec")
        ssh = folder / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        launcher = ["-launcher", "ssh", "-launcher-exec", str(ssh), "-hosts", ",".join(ADDRESSES), "-iface", LINKS[0], "-n", "2"]
        command = [str(mpiexec), *launcher, *command]
    command = ["ip", "netns", "exec", NAMES[0], *command]
    libraries = Path(sys.prefix) / "lib"
    # UCX, which MPICH sends by, sees one machine and would not use the network.
    environment = os.environ | {"LD_LIBRARY_PATH": str(libraries), "UCX_TLS": "tcp,self"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    steps = [json.loads(line) for line in next(run.rglob("steps.jsonl")).read_text().splitlines()]
    checkpoint = next(run.rglob("checkpoint_final*"), None) or next(run.rglob("*.safetensors"))
    digest = subprocess.run(["sha256sum", str(checkpoint)], capture_output=True, text=True, check=True).stdout.split()[0]
    return steps[1:], digest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1gbit", help="of the link, as `tc` reads it")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/plimsoll")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, hosts(arguments.rate):
        folder = Path(folder)
        data = folder / "data"
        data_set(data, arguments.size)
        seconds, digests = {1: [], 2: []}, set()
        for _ in range(arguments.rounds):
            for ranks in seconds:
                steps, digest = trained(arguments, folder, data, ranks)
                seconds[ranks].append(statistics.median(step["seconds"] for step in steps))
                digests.add(digest)
    one, two = (statistics.median(found) for found in seconds.values())
    print(f"one process {one:.2f} s, two ranks {two:.2f} s at {arguments.rate}: {one / two:.2f} times as fast")
    if len(digests) != 1:
        sys.exit("the parameters differ")
    print("the parameters have the same bytes")


if __name__ == "__main__":
    main()
