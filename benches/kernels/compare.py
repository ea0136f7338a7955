"""Single convolutions here and in PyTorch (oneDNN), alternating in one run: the best of all rounds, and the ratio.

    python benches/kernels/compare.py [--precision bf16] [--axes 2] [--rounds 3]

Needs cargo, and torch in the Python that runs this. Each round is one process of each program with `--best-of` runs of
each pass.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

parser = argparse.ArgumentParser()
parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
parser.add_argument("--axes", type=int, choices=[2, 3], help="only layers of so many dimensions")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--best-of", type=int, default=5)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()

subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
shared = ["--precision", args.precision, "--threads", str(args.threads), "--rounds", str(args.best_of)]
ours = [str(ROOT / "target/release/plimsoll"), "bench", "kernels", "--json", *shared, *(["--axes", str(args.axes)] if args.axes else [])]


def rows(command):
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)


own, theirs = [], []
with tempfile.NamedTemporaryFile("w+", suffix=".json") as layers:
    peer = [sys.executable, str(Path(__file__).with_name("pytorch_kernels.py")), layers.name, *shared]
    for _ in range(args.rounds):
        own.append(rows(ours))
        layers.seek(0)
        json.dump(own[0], layers)
        layers.truncate()
        layers.flush()
        theirs.append(rows(peer))

print(f"{'layer':44} {'pass':16} {'plimsoll':>9} {'of peak':>8} {'PyTorch':>9}   PyTorch / plimsoll")
for i, row in enumerate(own[0]):
    extent, kernel, stride = ("×".join(map(str, row[name])) for name in ["extent", "kernel", "stride"])
    groups = f" in {row['groups']}" if row["groups"] > 1 else ""
    layer = f"{row['channels']}→{row['features']}{groups}, {row['batch']} of {extent}, {kernel}/{stride}"
    best = min(run[i]["milliseconds"] for run in own)
    peer = min(run[i]["milliseconds"] for run in theirs)
    peak = max(run[i]["fraction_of_peak"] for run in own)
    print(f"{layer:44} {row['pass']:16} {best:6.2f} ms {100 * peak:6.0f} % {peer:6.2f} ms {peer / best:8.2f}×")
