"""A window of a prediction here, and of the same network in PyTorch, ONNX Runtime and OpenVINO, alternating in one run.

    python benches/predict/compare.py [--size 128] [--features 32,64,128,256,320,320] [--classes 25] [--rounds 3]
    python benches/predict/compare.py --size 112,112,128 --features 32,64,128,256,320 --classes 118

The network is nnU-Net's PlainConvUNet with random weights. Ours is the whole prediction of a case, from pulled windows to written labels,
divided by its windows (`plimsoll bench predict`), the median of three cases, of which the first touches memory first, as a window
that is not timed does for the others; of those it is the network alone, without sums of logits. Needs cargo, and torch,
dynamic-network-architectures, onnxruntime and openvino in the Python that runs this. If libjemalloc is available, PyTorch runs with it.
"""

import argparse
import ctypes.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

parser = argparse.ArgumentParser()
numbers = lambda text: [int(number) for number in text.split(",")]
parser.add_argument("--size", type=numbers, default=[128])
parser.add_argument("--features", type=numbers, default=[32, 64, 128, 256, 320, 320])
parser.add_argument("--classes", type=int, default=25)
parser.add_argument("--ours", default="f32,bf16,bf16-dot", help="precisions of ours")
parser.add_argument("--peers", default="pytorch-f32,pytorch-bf16,onnxruntime-f32,openvino-f32,openvino-bf16")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--runs", type=int, default=3, help="windows that are timed in each round, after one that is not")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--binary", type=Path, help="this one of ours, in place of building it")
parser.add_argument("--peer", help="measure this one, and print it")
parser.add_argument("--onnx", help="the network, for those that read it")
args = parser.parse_args()
size = args.size * 3 if len(args.size) == 1 else args.size


def network():
    import torch
    from dynamic_network_architectures.architectures.unet import PlainConvUNet
    from torch import nn

    torch.manual_seed(0)
    stages = len(args.features)
    strides = [1] + [2] * (stages - 1)
    return PlainConvUNet(
        1, stages, args.features, nn.Conv3d, 3, strides, 2, args.classes, 2, True, nn.InstanceNorm3d, {"affine": True}, None, None,
        nn.LeakyReLU, {"inplace": True},
    ).eval()


def runner():
    """A function that computes the logits of a window."""
    import numpy

    window = numpy.random.default_rng(0).normal(size=[1, 1, *size]).astype(numpy.float32)
    program, precision = args.peer.split("-")
    if program == "pytorch":
        import torch

        torch.set_num_threads(args.threads)
        net, image = network(), torch.from_numpy(window)

        def run():
            with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                net(image)

        return run
    if program == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = args.threads
        session = onnxruntime.InferenceSession(args.onnx, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"image": window})
    import openvino

    hints = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": args.threads, "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.compile_model(args.onnx, "CPU", hints).create_infer_request()
    return lambda: request.infer([window])


def peer():
    run = runner()
    run()
    seconds = []
    for _ in range(args.runs):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    # Not getrusage: what it says includes the process that started this one.
    status = Path("/proc/self/status").read_text()
    peak = 1024 * int(status.split("VmHWM:")[1].split()[0])
    print(json.dumps({"seconds_per_window": statistics.median(seconds), "peak_rss_bytes": peak}))


def write_onnx(path):
    import torch

    torch.onnx.export(
        network(), torch.zeros([1, 1, *size]), path, input_names=["image"], output_names=["logits"], opset_version=17, dynamo=False
    )


def main():
    binary = args.binary
    if binary is None:
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
        binary = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/plimsoll"
    text = lambda values: ",".join(map(str, values))
    shared = ["--size", text(size), "--features", text(args.features), "--classes", str(args.classes), "--threads", str(args.threads)]
    contenders = {}
    for precision in args.ours.split(","):
        command = [str(binary), "bench", "predict", "--json", "--rounds", "3", "--net", "plain", "--precision", precision, *shared]
        contenders[f"plimsoll {precision}"] = (command, {})
    with tempfile.TemporaryDirectory() as folder:
        onnx = str(Path(folder) / "network.onnx")
        if "onnx" in args.peers or "openvino" in args.peers:
            write_onnx(onnx)
        jemalloc = ctypes.util.find_library("jemalloc")
        for name in filter(None, args.peers.split(",")):
            command = [sys.executable, __file__, "--peer", name, "--onnx", onnx, "--runs", str(args.runs), *shared]
            environment = {"LD_PRELOAD": jemalloc} if jemalloc and name.startswith("pytorch") else {}
            contenders[name] = (command, environment | {"OMP_NUM_THREADS": str(args.threads)})
        runs = {name: [] for name in contenders}
        for _ in range(args.rounds):
            for name, (command, environment) in contenders.items():
                said = subprocess.run(command, env=os.environ | environment, check=True, stdout=subprocess.PIPE, text=True).stdout
                runs[name].append(json.loads(said if name.startswith("plimsoll") else said.splitlines()[-1]))
    first = next(iter(runs.values()))
    print(f"{'':20} {'s a window':>10} {'peak RSS':>10}   of the first, median of {args.rounds} pairs")
    for name, results in runs.items():
        seconds = statistics.median(run["seconds_per_window"] for run in results)
        mebibytes = statistics.median(run["peak_rss_bytes"] for run in results) / 2**20
        slower = statistics.median(run["seconds_per_window"] / own["seconds_per_window"] for run, own in zip(results, first))
        print(f"{name:20} {seconds:10.3f} {mebibytes:6.0f} MiB {slower:7.2f}×")


peer() if args.peer else main()
