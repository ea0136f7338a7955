"""A training step here and in PyTorch, alternating in one run: medians, and the ratio of the pairs.

    python benches/step/compare.py --size 64 [--net plain] [--features 32,64,128,256] [--precision bf16-dot] [--checkpoint] [--arena 500MiB] [--rounds 5]
    python benches/step/compare.py --net seresnext50 --size 1,224,224 --batch 8 [--forward]
    python benches/step/compare.py --size 64 --simd avx2

Needs cargo, and torch, monai and timm in the Python that runs this. If libjemalloc is available, PyTorch is also measured with it.
"""

import argparse
import ctypes.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

parser = argparse.ArgumentParser()
parser.add_argument("--net", choices=["dynunet", "plain", "resenc", "segresnet", "swinunetr", "unetr", "mednext", "attentionunet", "stunet", "primus", "seresnext50"], default="dynunet")
parser.add_argument("--features", help="channels of each stage; of a SegResNet or MedNeXt those of the finest, of a SwinUNETR or UNETR its feature size; of a Primus its tokens'; a UNETR or Primus takes --size 96; of a STU-Net PyTorch needs its authors' file")
parser.add_argument("--size", default="64", help="edge of the patch, or depth,height,width")
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--arena", help="what ours may take; values are recomputed instead of held")
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--precision", choices=["f32", "bf16", "bf16-dot"], default="f32")
parser.add_argument("--checkpoint", action="store_true", help="the peer computes activations again")
parser.add_argument("--forward", action="store_true", help="predict logits alone")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--simd", choices=["avx2"], help="instructions of all contenders, at most: what a processor without the others would do")
parser.add_argument("--binary", type=Path, help="this one of ours, in place of building it")
args = parser.parse_args()

if args.binary is None:
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
shared = ["--net", args.net, "--size", args.size, "--steps", str(args.steps), "--batch", str(args.batch), "--threads", str(args.threads)]
if args.forward:
    shared += ["--forward"]
if args.features:
    shared += ["--features", args.features]
# Autocast multiplies bf16 either way.
autocast = args.precision.removesuffix("-dot")
target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
ours = [str(args.binary or target / "release/plimsoll"), "bench", "step", "--json", *shared, "--precision", args.precision, *(["--arena", args.arena] if args.arena else [])]
peer = [sys.executable, str(Path(__file__).with_name("pytorch_step.py")), *shared, "--precision", autocast, *(["--checkpoint"] if args.checkpoint else [])]
# Names of the same instructions: of ours, of PyTorch's own kernels, of oneDNN's (convolutions) and of MKL's.
at_most = {
    None: ({}, {}),
    "avx2": ({"PLIMSOLL_SIMD": "avx2"}, {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
}
our_limit, peer_limit = at_most[args.simd]
contenders = {"plimsoll": (ours, our_limit), "PyTorch": (peer, peer_limit)}
jemalloc = ctypes.util.find_library("jemalloc")
if jemalloc:
    unbounded = {"LD_PRELOAD": jemalloc, "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1"}
    contenders["PyTorch + jemalloc"] = (peer, peer_limit | unbounded)

runs = {name: [] for name in contenders}
for _ in range(args.rounds):
    for name, (command, environment) in contenders.items():
        output = subprocess.run(command, env=os.environ | environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        runs[name].append(json.loads(output.stdout.strip().splitlines()[-1] if name != "plimsoll" else output.stdout))

print(f"{'':20} {'s per step':>10} {'peak RSS':>10} {'time':>8} {'memory':>8}   of plimsoll's, medians of {args.rounds} pairs")
for name, results in runs.items():
    seconds = statistics.median(run["seconds_per_step"] for run in results)
    mebibytes = statistics.median(run["peak_rss_bytes"] for run in results) / 2**20
    pairs = list(zip(results, runs["plimsoll"]))
    slower = statistics.median(theirs["seconds_per_step"] / own["seconds_per_step"] for theirs, own in pairs)
    larger = statistics.median(theirs["peak_rss_bytes"] / own["peak_rss_bytes"] for theirs, own in pairs)
    print(f"{name:20} {seconds:10.3f} {mebibytes:6.0f} MiB {slower:7.2f}× {larger:7.2f}×")
