"""brainchop's trained MeshNets on a real head: labels, time and memory here and in PyTorch.

    python benches/predict/real_heads.py MODELS HEAD.nii.gz [--models model5_gw_ae,...] [--limits 512MiB,2GiB] [--precisions f32,bf16,bf16-dot]
        [--brain BRAIN.nii.gz]

MODELS is a folder with a folder of TensorFlow.js for each model (`public/models` of https://github.com/neuroneural/brainchop, MIT), and HEAD a
T1 of up to 256³ voxels of 1 mm (`public/t1_crop.nii.gz` there, or `ch2.nii.gz` of Debian's package mricron-data, whose `ch2bet.nii.gz` can be the
BRAIN: its voxels that are not 0). Needs torch, nibabel and numpy, and `plimsoll` or cargo.

PyTorch computes all of the image in one pass, as brainchop does, with axes to the left, downwards and forwards and padded with 0 to 256³; it has no way to
take less memory. Plimsoll imports the model and predicts below
each limit in each precision. Equal labels and Dice are against PyTorch's labels in f32. Each program runs in a process of its own, and memory is
the largest resident size of it.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

parser = argparse.ArgumentParser()
parser.add_argument("models", type=Path)
parser.add_argument("head", type=Path)
parser.add_argument("--models", dest="names", default="model5_gw_ae,model18cls,model21_104class,mindgrab")
parser.add_argument("--limits", default="512MiB,2GiB")
parser.add_argument("--precisions", default="f32,bf16,bf16-dot")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--binary", type=Path, help="this one, in place of building it")
parser.add_argument("--out", type=Path, help="keep label maps here, and use existing ones of PyTorch")
parser.add_argument("--brain", type=Path, help="a mask whose Dice with all labels but background is printed")
parser.add_argument("--peer", help=argparse.SUPPRESS)
args = parser.parse_args()


def layers_and_tensors(folder):
    import numpy as np

    model = json.loads((folder / "model.json").read_text())
    topology = model["modelTopology"]
    layers = topology.get("model_config", topology)["config"]["layers"]
    tensors = {}
    for group in model["weightsManifest"]:
        numbers = b"".join((folder / path).read_bytes() for path in group["paths"])
        begin = 0
        for entry in group["weights"]:
            count = int(np.prod(entry["shape"]))
            tensors[entry["name"]] = np.frombuffer(numbers, "<f4", count, begin).reshape(entry["shape"])
            begin += 4 * count
    return layers, tensors


def peer(name, to):
    """Writes the labels that PyTorch computes, and prints seconds."""
    import nibabel
    import numpy as np
    import torch

    torch.set_num_threads(args.threads)
    head = nibabel.as_closest_canonical(nibabel.load(args.head))
    image = np.asarray(head.dataobj).astype(np.float32)
    begin = time.time()
    image = (image - image.min()) / (image.max() - image.min())
    around = [((256 - n) // 2, 256 - n - (256 - n) // 2) for n in image.shape]
    # To the left, downwards and forwards.
    image = np.ascontiguousarray(np.pad(image, around).transpose(0, 2, 1)[::-1, ::-1])
    layers, tensors = layers_and_tensors(args.models / name)
    functions = torch.nn.functional
    with torch.inference_mode():
        map = torch.from_numpy(image)[None, None]
        for layer in layers:
            config, kind = layer["config"], layer["class_name"]
            if kind == "Conv3D":
                kernel = torch.from_numpy(tensors[config["name"] + "/kernel"].transpose(4, 3, 0, 1, 2).copy())
                bias = tensors.get(config["name"] + "/bias")
                bias = None if bias is None else torch.from_numpy(bias.copy())
                dilation = config["dilation_rate"]
                padding = [d * (k // 2) for d, k in zip(dilation, config["kernel_size"])]
                map = functions.conv3d(map, kernel, bias, padding=padding, dilation=dilation)
                # brainchop's `LayerNormInPlace`.
                if config["name"].endswith("_gn"):
                    map = functions.instance_norm(map, eps=1e-5)
            elif kind == "Activation":
                map = getattr(functions, config["activation"])(map)
        labels = map[0].argmax(0).numpy().astype(np.uint8)
    print(time.time() - begin)
    inside = tuple(slice(before, 256 - behind) for before, behind in around)
    labels = labels[::-1, ::-1].transpose(0, 2, 1)[inside]
    nibabel.save(nibabel.Nifti1Image(labels, head.affine), to)


def run(command):
    """Runs a command; its standard output, seconds and largest resident bytes."""
    begin = time.time()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    return output, errors, os.waitstatus_to_exitcode(status), time.time() - begin, usage.ru_maxrss * 1024


def compare(found, expected):
    import nibabel
    import numpy as np

    found, expected = (
        np.asarray(nibabel.as_closest_canonical(nibabel.load(path)).dataobj).astype(int) for path in (found, expected)
    )
    dice = []
    for label in range(1, expected.max() + 1):
        one, other = found == label, expected == label
        if one.any() or other.any():
            dice.append(2 * (one & other).sum() / (one.sum() + other.sum()))
    return (found == expected).mean(), float(np.mean(dice)), float(np.min(dice))


def of_brain(labels):
    """The Dice of all labels but background with the brain, in words."""
    if not args.brain:
        return ""
    import nibabel
    import numpy as np

    one, other = (np.asarray(nibabel.as_closest_canonical(nibabel.load(path)).dataobj) != 0 for path in (labels, args.brain))
    return f"  with {args.brain.name} {2 * (one & other).sum() / (one.sum() + other.sum()):.5f}"


def main():
    binary = args.binary or ROOT / "target/release/plimsoll"
    if not args.binary:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "plimsoll-cli"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = args.out or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        images = Path(temporary) / "images"
        images.mkdir()
        (images / "head_0000.nii.gz").symlink_to(args.head.resolve())
        for name in args.names.split(","):
            folder = args.models / name
            files = json.loads((folder / "model.json").read_text())["weightsManifest"]
            numbers = b"".join((folder / path).read_bytes() for group in files for path in group["paths"])
            print(f"{name}, SHA-256 {hashlib.sha256(numbers).hexdigest()}")
            expected = work / f"{name}_pytorch.nii.gz"
            again = [sys.executable, __file__, args.models, args.head, "--peer", name, "--out", expected, "--threads", args.threads]
            if not expected.exists():
                output, errors, status, _, memory = run(again)
                if status:
                    sys.exit(f"{errors}PyTorch ended with {status}")
                print(f"  PyTorch f32                {float(output):7.1f} s  {memory / 2**20:7.0f} MiB{of_brain(expected)}")
            model = Path(temporary) / name
            subprocess.run([binary, "models", "import", folder, "-o", model], check=True, stdout=subprocess.DEVNULL)
            for limit in args.limits.split(","):
                for precision in args.precisions.split(","):
                    labels = work / f"{name}_{precision}_{limit}"
                    command = [binary, "predict", "-m", model / "model.toml", "-i", images, "-o", labels, "--ram", limit]
                    command += ["--precision", precision, "--threads", args.threads, "--overwrite"]
                    _, errors, status, seconds, memory = run(command)
                    if status:
                        print(f"  {precision:9} below {limit:8}  {errors.strip().splitlines()[-2]}")
                        continue
                    equal, dice, least = compare(labels / "head.nii.gz", expected)
                    print(
                        f"  {precision:9} below {limit:8}  {seconds:7.1f} s  {memory / 2**20:7.0f} MiB  equal {equal:9.5%}  "
                        f"Dice mean {dice:.5f} least {least:.5f}{of_brain(labels / 'head.nii.gz')}",
                        flush=True,
                    )


if args.peer:
    peer(args.peer, args.out)
else:
    main()
