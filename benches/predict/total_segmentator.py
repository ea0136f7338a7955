"""A scan segmented here and by TotalSegmentator 2.18 on the CPU, with models of its sizes.

    python benches/predict/total_segmentator.py [--shape 255,178,256] [--spacing 1.5,1.5,1.5] [--fast] [--ram 2GiB] [--precision bf16] [--peer halves singles] [--keep DIR]

Makes weights of the sizes that TotalSegmentator's have (five models of six stages at 1.5 mm; with --fast one of five stages at 3 mm), at
random, and a scan of ellipsoids. Needs cargo, and torch and nnunetv2 in the Python that runs this; with --peer TotalSegmentator itself, whose
labels are compared: as it is, with logits summed in halves, or with sums in single precision, as they are here. Memory is
what ours says of itself, and of TotalSegmentator the most that all of its processes have at a time, each page counted once.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nibabel
import numpy
from processes import measured

ROOT = Path(__file__).parents[2]

parser = argparse.ArgumentParser()
parser.add_argument("--shape", default="255,178,256")
parser.add_argument("--spacing", default="1.5,1.5,1.5", help="in mm, of each axis")
parser.add_argument("--fast", action="store_true")
parser.add_argument("--ram", default="2GiB")
parser.add_argument("--precision", help="of features: f32 or bf16")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--peer", nargs="+", choices=["halves", "singles"], default=[], help="what TotalSegmentator sums logits in")
parser.add_argument("--keep", help="a folder for weights and scan, made again only if it is not there")
parser.add_argument("--binary", type=Path, help="this one of ours, in place of building it")
args = parser.parse_args()

# A process for itself, so that its memory is TotalSegmentator's alone.
PEER = """
import sys
scan, labels, sums, fast = sys.argv[1:]
if sums == "singles":
    sys.path.insert(0, ORACLES)
    from total_segmentator import sum_in_single_precision
    sum_in_single_precision()
import os
os.environ.update(TOTALSEG_HOME_DIR=HOME, TOTALSEG_WEIGHTS_PATH=WEIGHTS)
from totalsegmentator.python_api import totalsegmentator
totalsegmentator(scan, labels, ml=True, fast=fast == "True", device="cpu", quiet=True, nr_thr_saving=1)
"""


def oracle():
    spec = importlib.util.spec_from_file_location("total_segmentator_oracle", ROOT / "oracles" / "total_segmentator.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_weights(folder):
    """The small models of the oracle, with the features and windows of the real ones."""
    made = oracle()
    wanted = [297] if args.fast else [291, 292, 293, 294, 295]
    stages, made.PATCH = (5, [112, 112, 128]) if args.fast else (6, [128, 128, 128])
    made.FEATURES = [min(32 * 2**stage, 320) for stage in range(stages)]
    made.CONVOLUTIONS = 2
    made.MODELS = {number: of for number, of in made.MODELS.items() if number in wanted}
    made.WEIGHTS = folder
    made.write_models()


def make_scan(path):
    shape = [int(voxels) for voxels in args.shape.split(",")]
    rng = numpy.random.default_rng(3)
    grid = numpy.stack(numpy.meshgrid(*[numpy.linspace(-1, 1, n, dtype="f4") for n in shape], indexing="ij"))
    scan = numpy.full(shape, -1000, "f4")
    scan[(grid**2).sum(0) < 0.9] = 20
    for _ in range(60):
        middle, radius = rng.uniform(-0.7, 0.7, 3), rng.uniform(0.05, 0.3, 3)
        inside = (((grid - middle[:, None, None, None].astype("f4")) / radius[:, None, None, None].astype("f4")) ** 2).sum(0) < 1
        scan[inside] = rng.uniform(-800, 1200)
    scan += rng.normal(0, 15, shape)
    right, front, up = [float(spacing) for spacing in args.spacing.split(",")]
    nibabel.save(nibabel.Nifti1Image(scan.astype(numpy.int16), numpy.diag([-right, -front, up, 1])), path)


def main():
    binary = args.binary or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "plimsoll"
    if args.binary is None:
        subprocess.run(["cargo", "build", "--release", "-p", "plimsoll-cli"], cwd=ROOT, check=True)
    folder = Path(args.keep or tempfile.mkdtemp())
    weights, scan = folder / ("fast" if args.fast else "full"), folder / "ct.nii.gz"
    if not weights.exists():
        make_weights(weights)
    if not scan.exists():
        make_scan(scan)
    command = [binary, "segment", "total", "-i", scan, "-o", folder / "ours.nii.gz", "--ml", "--overwrite", "--json"]
    command += ["--weights", weights, "--ram", args.ram, "--threads", str(args.threads)] + (["--fast"] if args.fast else [])
    command += ["--precision", args.precision] if args.precision else []
    out, seconds, _ = measured(command, {})
    report = json.loads(out)
    planned = report["images"][0]["planned_bytes"]
    print(f"plimsoll: {seconds:.1f} s, planned {planned / 2**20:.0f} MiB, resident {report['peak_rss_bytes'] / 2**20:.0f} MiB")
    ours = labels(folder / "ours.nii.gz")
    for sums in args.peer:
        told = {"ORACLES": str(ROOT / "oracles"), "HOME": tempfile.mkdtemp(), "WEIGHTS": str(weights)}
        call = "".join(f"{name} = {value!r}\n" for name, value in told.items()) + PEER
        command = [sys.executable, "-c", call, scan, folder / "theirs.nii.gz", sums, args.fast]
        _, seconds, held = measured(command, {"OMP_NUM_THREADS": str(args.threads)})
        equal = (ours == labels(folder / "theirs.nii.gz")).mean()
        print(f"TotalSegmentator, sums in {sums}: {seconds:.1f} s, resident {held / 2**20:.0f} MiB; labels equal in {100 * equal:.4f} % of voxels")


def labels(path):
    return numpy.asarray(nibabel.load(path).dataobj)


if __name__ == "__main__":
    main()
