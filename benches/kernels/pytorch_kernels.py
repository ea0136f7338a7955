"""Single convolutions in PyTorch: milliseconds of each pass, the best of some rounds, as lines of `plimsoll bench kernels --json`.

    python benches/kernels/pytorch_kernels.py LAYERS.json [--precision bf16] [--rounds 5]

The layers are read from the file, the output of `plimsoll bench kernels --json`. Data and weight gradients are computed
by `aten::convolution_backward` separately. Tensors are in PyTorch's fastest layout on a CPU: the better of contiguous
and channels last, for each pass.
"""

import argparse
import json
import time
from pathlib import Path

import torch

parser = argparse.ArgumentParser()
parser.add_argument("layers", type=Path)
parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()
torch.set_num_threads(args.threads)
torch.manual_seed(0)
PASSES = {"data gradient": [True, False, False], "weight gradient": [False, True, False]}


def milliseconds(call):
    call()
    best = float("inf")
    for _ in range(args.rounds):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def measured(row, layout):
    flat = row["extent"][0] == 1 and row["kernel"][0] == 1
    axes = slice(1, None) if flat else slice(None)
    kernel, stride = row["kernel"][axes], row["stride"][axes]
    padding = [(k - 1) // 2 if k % 2 else 0 for k in kernel]
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    x = torch.randn(row["batch"], row["channels"], *row["extent"][axes], dtype=dtype)
    w = torch.randn(row["features"], row["channels"] // row["groups"], *kernel, dtype=dtype)
    if layout == "channels last":
        order = torch.channels_last if flat else torch.channels_last_3d
        x, w = x.to(memory_format=order), w.to(memory_format=order)
    forward = lambda: torch.convolution(
        x, w, None, stride, padding, [1] * len(kernel), False, [0] * len(kernel), row["groups"]
    )
    if row["pass"] == "forward":
        return milliseconds(forward)
    dy = torch.randn_like(forward())
    return milliseconds(
        lambda: torch.ops.aten.convolution_backward(
            dy, x, w, None, stride, padding, [1] * len(kernel), False, [0] * len(kernel), row["groups"], PASSES[row["pass"]]
        )
    )


with torch.no_grad():
    rows = json.loads(args.layers.read_text())
    for row in rows:
        row["milliseconds"] = min(measured(row, layout) for layout in ["contiguous", "channels last"])
print(json.dumps(rows))
