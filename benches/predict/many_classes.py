"""Prediction of a case with 118 classes here and by MONAI's sliding windows over the same network, alternating in one run.

    python benches/predict/many_classes.py [--shape 180,130,150] [--rounds 3]

Makes a data set, trains one step to have a model, and predicts one case in windows of 112 × 112 × 128 that overlap by half. Needs cargo, and
torch, monai, dynamic-network-architectures, nibabel and numpy in the Python that runs this. If libjemalloc is available, PyTorch is also
measured with it. The peer reads the case, normalises it, sums the logits of the windows and writes labels, with random weights: neither time nor
memory depends on them.
"""

import argparse
import ctypes.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

ROOT = Path(__file__).parents[2]
CLASSES, WINDOW, FEATURES = 118, (112, 112, 128), (32, 64, 128, 256, 320)

parser = argparse.ArgumentParser()
parser.add_argument("--shape", default="180,130,150")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--peer", help="predict this file, and write labels beside it")
args = parser.parse_args()


def peer():
    import nibabel
    import torch
    from dynamic_network_architectures.architectures.unet import PlainConvUNet
    from monai.inferers import sliding_window_inference
    from torch import nn

    torch.set_num_threads(args.threads)
    net = PlainConvUNet(
        1, 5, FEATURES, nn.Conv3d, 3, [1, 2, 2, 2, 2], 2, CLASSES, 2, True, nn.InstanceNorm3d, {"affine": True}, None, None,
        nn.LeakyReLU, {"inplace": True},
    ).eval()
    start = time.perf_counter()
    file = nibabel.load(args.peer)
    image = torch.from_numpy(numpy.asarray(file.dataobj, numpy.float32).T.copy())
    image = (image - image.mean()) / image.std()
    with torch.inference_mode():
        logits = sliding_window_inference(image[None, None], WINDOW, 1, net, overlap=0.5, mode="gaussian")
    labels = logits[0].argmax(0).numpy().astype(numpy.uint8).T
    nibabel.save(nibabel.Nifti1Image(labels, file.affine), str(args.peer) + ".labels.nii.gz")
    print(json.dumps({"seconds": time.perf_counter() - start, "bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))


def make(folder):
    import nibabel

    random = numpy.random.default_rng(0)

    def save(array, path):
        nibabel.save(nibabel.Nifti1Image(array, numpy.diag([1.5, 1.5, 1.5, 1])), folder / path)

    for part in ("imagesTr", "labelsTr", "imagesTs"):
        (folder / part).mkdir()
    shape = (128, 112, 112)
    i, j, k = numpy.indices(shape)
    for case in range(3):
        labels = (i // 26 * 25 + j // 24 * 5 + k // 23) % CLASSES
        save((3.0 * labels + random.normal(0, 20, shape)).astype(numpy.float32), f"imagesTr/c{case}_0000.nii.gz")
        save(labels.astype(numpy.uint8), f"labelsTr/c{case}.nii.gz")
    case = random.normal(0, 100, [int(n) for n in args.shape.split(",")])
    save(case.astype(numpy.float32), "imagesTs/t_0000.nii.gz")
    labels = {"background": 0, **{f"organ {i}": i for i in range(1, CLASSES)}}
    description = {"channel_names": {"0": "CT"}, "labels": labels, "numTraining": 3, "file_ending": ".nii.gz"}
    (folder / "dataset.json").write_text(json.dumps(description))


def main():
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    plimsoll = str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/plimsoll")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder)
        run, threads = folder / "run", ["--threads", str(args.threads)]
        train = [plimsoll, "train", folder, "--net", "plain", "--features", ",".join(map(str, FEATURES)), "--spacing", "1.5,1.5,1.5"]
        train += ["--patch-size", ",".join(map(str, WINDOW)), "--batch-size", "1", "--epochs", "1", "--iterations", "1", "--out", run, "--json"]
        subprocess.run([*train, *threads], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        case = folder / "imagesTs/t_0000.nii.gz"
        environments = {"PyTorch": {}}
        if jemalloc := ctypes.util.find_library("jemalloc"):
            environments["PyTorch + jemalloc"] = {"LD_PRELOAD": jemalloc}
        results = {name: [] for name in ["plimsoll", *environments]}
        for _ in range(args.rounds):
            start = time.perf_counter()
            command = [plimsoll, "predict", run, "-i", case, "-o", folder / "out", "--overwrite", "--ram", "8GiB", "--json", *threads]
            report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
            results["plimsoll"].append((time.perf_counter() - start, report["peak_rss_bytes"]))
            for name, environment in environments.items():
                command = [sys.executable, __file__, "--peer", case, *threads]
                said = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | environment).stdout
                said = json.loads(said.splitlines()[-1])
                results[name].append((said["seconds"], said["bytes"]))
    for name, found in results.items():
        ratios = [statistics.median(theirs[i] / own[i] for theirs, own in zip(found, results["plimsoll"])) for i in (0, 1)]
        seconds, size = (statistics.median(values) for values in zip(*found))
        print(f"{name:20} {seconds:7.1f} s {size / 2**20:8.0f} MiB   {ratios[0]:.2f}× {ratios[1]:.2f}×")


peer() if args.peer else main()
