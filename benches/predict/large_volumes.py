"""Volumes whose sums of logits are larger than the limit, predicted below it and with a large limit: labels must be the same, byte for byte.

    python benches/predict/large_volumes.py [--only plane,cube,organs] [--overlap 0] [--large 12GiB] [--sum logits]

    plane     500 × 2000 × 2000 voxels,   2 classes, --ram 1GiB
    cube      600 × 600 × 600 voxels,    14 classes, --ram 2GiB
    organs    531 × 512 × 512 voxels,   117 classes, --ram 4GiB

Makes a data set of noise, trains one step of a tiny network to have a model, and predicts one image, stored uncompressed, in windows of 96³. The lower
limit is also set as the limit of a memory control group where one can be made: what is resident beyond it would end the process. Prints what was
planned, what was resident, seconds, strips and windows. Needs cargo, and numpy in the Python that runs this; the disk needs about 7 GB.
"""

import argparse
import contextlib
import hashlib
import json
import os
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import numpy

ROOT = Path(__file__).parents[2]
VOLUMES = {
    "plane": ((500, 2000, 2000), 2, "1GiB"),
    "cube": ((600, 600, 600), 14, "2GiB"),
    "organs": ((531, 512, 512), 117, "4GiB"),
}
BYTES = {"GiB": 2**30, "MiB": 2**20}

parser = argparse.ArgumentParser()
parser.add_argument("--only", default=",".join(VOLUMES))
parser.add_argument("--overlap", default="0", help="of windows")
parser.add_argument("--large", default="12GiB", help="the limit that labels are compared with")
parser.add_argument("--sum", help="logits or features; as the model suggests it, if it is not given")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--plimsoll", help="the program; built if it is not given")
parser.add_argument("--folder", help="where files are made, and removed again; the system's by default")
args = parser.parse_args()


def header(shape, code, bits):
    """NIfTI-1 of voxels of a millimetre, in RAS."""
    depth, height, width = shape
    bytes_ = bytearray(352)
    struct.pack_into("<i", bytes_, 0, 348)
    struct.pack_into("<8h", bytes_, 40, 3, width, height, depth, 1, 1, 1, 1)
    struct.pack_into("<hh", bytes_, 70, code, bits)
    struct.pack_into("<8f", bytes_, 76, 1, 1, 1, 1, 0, 0, 0, 0)
    struct.pack_into("<f", bytes_, 108, 352)
    struct.pack_into("<B", bytes_, 123, 2)
    struct.pack_into("<hh", bytes_, 252, 0, 1)
    for row in range(3):
        struct.pack_into("<4f", bytes_, 280 + 16 * row, *[1.0 if column == row else 0.0 for column in range(4)])
    bytes_[344:348] = b"n+1\0"
    return bytes(bytes_)


def write(path, shape, planes, dtype):
    """An image, plane by plane."""
    code, bits = {"int16": (4, 16), "uint8": (2, 8)}[dtype]
    with open(path, "wb") as file:
        file.write(header(shape, code, bits))
        for plane in planes:
            file.write(numpy.ascontiguousarray(plane, dtype).tobytes())


def make(folder, classes, shape):
    random = numpy.random.default_rng(0)
    for part in ("imagesTr", "labelsTr", "imagesTs"):
        (folder / part).mkdir()
    small = (96, 96, 96)
    for case in range(3):
        labels = (numpy.indices(small) // 16 * [[[[36]]], [[[6]]], [[[1]]]]).sum(0) % classes
        write(folder / f"imagesTr/c{case}_0000.nii", small, 3 * labels + random.normal(0, 20, small), "int16")
        write(folder / f"labelsTr/c{case}.nii", small, labels, "uint8")
    # Blobs of noise, so that labels are not all the same, and another one in each plane.
    coarse = random.normal(0, 100, [extent // 8 + 2 for extent in shape])

    def planes():
        depth, height, width = shape
        fine = random.normal(0, 30, (height, width))
        for d in range(depth):
            blob = coarse[d // 8].repeat(8, 0).repeat(8, 1)[:height, :width]
            yield numpy.roll(fine, 17 * d, (0, 1)[d % 2]) + blob

    write(folder / "imagesTs/t_0000.nii", shape, planes(), "int16")
    labels = {"background": 0, **{f"organ {i}": i for i in range(1, classes)}}
    description = {"channel_names": {"0": "CT"}, "labels": labels, "numTraining": 3, "file_ending": ".nii"}
    (folder / "dataset.json").write_text(json.dumps(description))


@contextlib.contextmanager
def limited(limit):
    """A control group with this limit, and how a process is put into it; nothing where none can be made."""
    number, unit = limit[:-3], limit[-3:]
    for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"plimsoll_large_{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(str(int(number) * BYTES[unit]))
        except OSError:
            group.rmdir()
            continue
        try:
            yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
        finally:
            group.rmdir()
        return
    print("no control group can be made: nothing enforces the limit")
    yield None


def predict(program, run, folder, limit, more, enter):
    out = folder / f"labels {limit}"
    command = [program, "predict", run, "-i", folder / "imagesTs", "-o", out, "--ram", limit, "--json", "--overlap", args.overlap]
    more = more + (["--sum", args.sum] if args.sum else [])
    start = time.perf_counter()
    done = subprocess.run([*command, "--threads", str(args.threads), *more], stdout=subprocess.PIPE, preexec_fn=enter)
    if done.returncode:
        raise SystemExit(f"{limit}: exit status {done.returncode}")
    seconds, report = time.perf_counter() - start, json.loads(done.stdout)
    plan = report["cases"][0]["plan"]
    mib = lambda size: f"{size / 2**20:.0f} MiB"
    assert report["peak_rss_bytes"] <= report["planned_bytes"] <= plan["ram_budget_bytes"], report
    print(
        f"  --ram {limit:6} planned {mib(report['planned_bytes'])}, resident {mib(report['peak_rss_bytes'])}, {seconds:.0f} s: sums of {plan['summed']} as "
        f"{plan['ring']} along axis {plan['slab_axis']}, {plan['strips']} strips, {plan['windows']} windows of which "
        f"{plan['repeated_windows']} again; waiting {mib(plan['spool_bytes'])} in memory and {mib(plan['spool_file_bytes'])} on the disk",
        flush=True,
    )
    with open(out / "t.nii", "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    found = numpy.bincount(numpy.fromfile(out / "t.nii", numpy.uint8, count=1 << 24, offset=352))
    assert (found > 0).sum() > 1, "all voxels have one label, which proves nothing"
    left = sorted(path.name for path in out.iterdir() if path.name.startswith("."))
    assert not left, left
    (out / "t.nii").unlink()
    return digest, plan["ring"]


program = args.plimsoll
if not program:
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    program = str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/plimsoll")
for name in args.only.split(","):
    shape, classes, low = VOLUMES[name]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        folder = Path(folder)
        make(folder, classes, shape)
        run = folder / "run"
        train = [program, "train", folder, "--net", "plain", "--features", "4,8", "--spacing", "1,1,1", "--patch-size", "96,96,96"]
        train += ["--batch-size", "1", "--epochs", "1", "--iterations", "1", "--out", run, "--json", "--threads", str(args.threads)]
        subprocess.run(train, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(f"{name}: {' × '.join(map(str, shape))} voxels, {classes} classes", flush=True)
        with limited(low) as enter:
            digest, ring = predict(program, run, folder, low, [], enter)
        same, _ = predict(program, run, folder, args.large, ["--ring", ring], None)
        assert digest == same, "the labels are others"
        print("  the labels are the same")
