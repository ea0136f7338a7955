"""Two ranks of one thread each on two hosts, against one process of one thread and against the plan.

    sudo python benches/ranks/two_hosts.py [--rate 1gbit] [--delay 0ms] [--size 96] [--steps 6] [--rounds 3] [--binary target/release/plimsoll]

The hosts are network namespaces of this machine with an interface each, whose rate `tc` limits (`tbf`), and whose delay it sets (`netem`, which some
kernels do not have). Needs root, iproute2, and numpy, nibabel and mpich (`pip install mpich`) in the Python that runs this. Trains MONAI's DynUNet on generated
volumes, with a batch of two samples that are two shards. One process computes both; each of the two ranks computes one. Rounds alternate. The
first step of a run is left out. Both trainings must end with the same bytes of parameters. Two processes that train one sample each at the same time, and
exchange nothing, show what a core loses beside another one: no communication, however fast, makes two ranks faster than them.

Prints beside the measured times those that `plimsoll plan --ranks 2 --network` predicts for the same settings on this machine, and a time line of a
step of two ranks: whether the first rank computes, and whether its interface sends.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nibabel
import numpy as np

ROOT = Path(__file__).parents[2]
NAMES = ("plimsoll-a", "plimsoll-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LINKS = ("plimsoll-va", "plimsoll-vb")
# Seconds between two looks at a rank and its interface.
LOOK = 0.02
# Letters of a time line.
COLUMNS = 100
# Half a ping-pong of two processes without any delay, in ms: what the plan takes for a network without a latency of its own.
OWN_LATENCY = 0.05
UNITS = {"gbit": "Gbit", "mbit": "Mbit"}

# `mpiexec` calls it as it would call ssh: options, the host, and a command.
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
case "$1" in %s) name=%s ;; %s) name=%s ;; *) exit 1 ;; esac
shift
exec ip netns exec "$name" sh -c "$*"
""" % (ADDRESSES[0], NAMES[0], ADDRESSES[1], NAMES[1])


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def limited(name, link, rate, delay):
    """Limits what an interface sends."""
    def tc(*words):
        subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", link, *words], check=True)

    place = ["root"]
    if milliseconds(delay) > 0:
        tc("root", "handle", "1:", "netem", "delay", delay, "limit", "20000")
        place = ["parent", "1:1"]
    tc(*place, "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")


@contextlib.contextmanager
def hosts(rate, delay):
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
            limited(name, link, rate, delay)
        yield
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "delete", name])


def milliseconds(delay):
    return float(delay.removesuffix("ms"))


def network(rate, delay):
    """The link as `plimsoll plan` reads it."""
    unit = next(unit for unit in UNITS if rate.endswith(unit))
    return f"{rate.removesuffix(unit)}{UNITS[unit]},{milliseconds(delay) + OWN_LATENCY:g}ms"


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


def settings_file(arguments, folder, samples=2):
    settings = folder / f"plimsoll-{samples}.toml"
    settings.write_text(f"""
shards = {samples}
batch_size = {samples}
patch_size = [{arguments.size}, {arguments.size}, {arguments.size}]
epochs = 1
iterations_per_epoch = {arguments.steps}
validation_iterations = 1
[network]
net = "dynunet"
""")
    return settings


def train_command(arguments, data, settings, run):
    subprocess.run(["rm", "-rf", str(run)], check=True)
    command = [str(arguments.binary), "train", str(data), "--fold", "all", "--config", str(settings), "--out", str(run), "--ram", "4GiB"]
    return [*command, "--threads", "1", "--skip-validation", "--log-steps"]


def later_steps(run):
    """The records of the steps after the first."""
    return [json.loads(line) for line in next(run.rglob("steps.jsonl")).read_text().splitlines()][1:]


def trained_apart(arguments, folder, data):
    """Train one sample on each host at the same time, without messages, and return the seconds of a step of the slower one."""
    settings = settings_file(arguments, folder, samples=1)
    runs = [folder / f"run-of-{name}" for name in NAMES]
    commands = [["ip", "netns", "exec", name, *train_command(arguments, data, settings, run)] for name, run in zip(NAMES, runs)]
    for process in [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands]:
        output, _ = process.communicate()
        if process.returncode != 0:
            sys.exit(f"{output}The run ended with {process.returncode}")
    return max(statistics.median(step["seconds"] for step in later_steps(run)) for run in runs)


def trained(arguments, folder, data, ranks):
    """Train, and return the records of the steps after the first, the digest of the parameters, and looks at the first rank."""
    run = folder / f"run-{ranks}"
    command = train_command(arguments, data, settings_file(arguments, folder), run)
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
    looks = folder / f"looks-{ranks}"
    with looks.open("w") as out:
        look = ["ip", "netns", "exec", NAMES[0], sys.executable, __file__, "--look", str(arguments.binary)]
        looker = subprocess.Popen(look, stdout=out)
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        looker.terminate()
        looker.wait()
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}The command ended with {done.returncode}")
    checkpoint = next(run.rglob("checkpoint_final*"), None) or next(run.rglob("*.safetensors"))
    digest = subprocess.run(["sha256sum", str(checkpoint)], capture_output=True, text=True, check=True).stdout.split()[0]
    return later_steps(run), digest, [json.loads(line) for line in looks.read_text().splitlines()]


def planned(arguments, folder, data):
    """What the plan predicts for one process and for two ranks."""
    command = [str(arguments.binary), "plan", str(data), "--config", str(settings_file(arguments, folder)), "--ram", "4GiB", "--threads", "1"]
    command += ["--ranks", "2", "--network", network(arguments.rate, arguments.delay), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}The command ended with {done.returncode}")
    return json.loads(done.stdout)["scaling"]["costs"]


def look(binary):
    """Print what the first rank in this network has computed, and its interface has sent, until the end."""
    rank, ticks = None, os.sysconf("SC_CLK_TCK")
    mine = os.stat("/proc/self/ns/net").st_ino
    while True:
        time.sleep(LOOK)
        try:
            if rank is None:
                rank = next(process for process in Path("/proc").glob("[0-9]*") if is_rank(process, binary, mine))
            computed = sum(processor_ticks(thread) for thread in (rank / "task").iterdir())
        except (StopIteration, OSError):
            rank = None
            continue
        interface = next(line for line in Path("/proc/self/net/dev").read_text().splitlines() if LINKS[0] in line)
        sent = int(interface.split(":")[1].split()[8])
        print(json.dumps({"time": time.time(), "computed": computed / ticks, "sent": sent}), flush=True)


def processor_ticks(thread):
    """What a thread of a rank has computed: none by the one that moves messages on."""
    name, fields = (thread / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
    fields = fields.split()
    return 0 if name == "messages" else int(fields[11]) + int(fields[12])


def is_rank(process, binary, network):
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return words[0] == binary.encode() and b"train" in words and os.stat(process / "ns/net").st_ino == network
    except OSError:
        return False


def time_line(looks, steps, rate):
    """Print the last step of two ranks, and how much of it computing and sending have in common."""
    seconds = steps[-1]["seconds"]
    # Each letter is some looks.
    some = max(1, round(seconds / LOOK / COLUMNS))
    looks = looks[::some]
    most = float(rate[:-4]) * {"gbit": 1e9, "mbit": 1e6}[rate[-4:]] / 8
    pairs = [(a, b, b["time"] - a["time"]) for a, b in zip(looks, looks[1:])]
    computes = [(b["computed"] - a["computed"]) > 0.5 * span for a, b, span in pairs]
    sends = [(b["sent"] - a["sent"]) > 0.2 * most * span for a, b, span in pairs]
    # The interface is silent after the last step.
    last = max((at for at, is_sending in enumerate(sends) if is_sending), default=len(pairs) - 1)
    end = pairs[last][1]["time"]
    shown = [at for at, (a, _, _) in enumerate(pairs) if end - seconds <= a["time"] < end]

    def line(marks, letter):
        return "".join(letter if marks[at] else "." for at in shown)

    def share(rule):
        return sum(pairs[at][2] for at in shown if rule(computes[at], sends[at]))

    print(f"the last step of the first rank, a letter for {1000 * LOOK * some:.0f} ms:")
    print("  computes", line(computes, "c"))
    print("  sends   ", line(sends, "s"))
    both, sending = share(lambda c, s: c and s), share(lambda _, s: s)
    print(f"  {sending:.2f} s of sending, {both:.2f} s of them while it computes; {share(lambda c, _: c):.2f} s of computing")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1gbit", help="of the link, in gbit or mbit")
    parser.add_argument("--delay", default="0ms", help="of the link in each direction, in ms; needs netem in the kernel")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/plimsoll")
    parser.add_argument("--look", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.look:
        return look(arguments.look)
    with tempfile.TemporaryDirectory() as folder, hosts(arguments.rate, arguments.delay):
        folder = Path(folder)
        data = folder / "data"
        data_set(data, arguments.size)
        # Before anything else runs: the plan measures the kernels of this machine.
        costs = planned(arguments, folder, data)
        seconds, apart, digests = {1: [], 2: []}, [], set()
        for _ in range(arguments.rounds):
            for ranks in seconds:
                steps, digest, looks = trained(arguments, folder, data, ranks)
                seconds[ranks].append(statistics.median(step["seconds"] for step in steps))
                digests.add(digest)
            apart.append(trained_apart(arguments, folder, data))
        time_line(looks, steps, arguments.rate)
    one, two = (statistics.median(found) for found in seconds.values())
    print(f"one process {one:.2f} s, two ranks {two:.2f} s at {arguments.rate}: {one / two:.2f} times as fast")
    apart = statistics.median(apart)
    print(f"two processes of one sample that exchange nothing: {apart:.2f} s, {one / apart:.2f} times as fast")
    for cost, measured in zip(costs, (one, two)):
        predicted = cost["predicted_seconds_per_step"]
        parts = f"{cost['compute_seconds_per_step']:.2f} s of computing, {cost['communication_seconds_per_step']:.2f} s of communication"
        print(f"planned for {cost['ranks']} rank(s): {predicted:.2f} s ({parts}), {predicted / measured:.2f} of the measured")
    gain = [costs[0]["predicted_seconds_per_step"] / costs[1]["predicted_seconds_per_step"], one / two]
    print(f"the plan predicts {gain[0]:.2f} times as fast, measured are {gain[1]:.2f}: {gain[0] / gain[1]:.2f} of it")
    if len(digests) != 1:
        sys.exit("the parameters differ")
    print("the parameters have the same bytes")


if __name__ == "__main__":
    main()
