"""The distance transform against SciPy and the `edt` package, alternating in one run.

    python benches/morphology/edt_peers.py [--threads 1 2] [--rounds 5] [--scipy-rounds 1] [--kinds vessels] [--shapes 72,136,136] [--in-a-row 10]

Needs numpy, scipy and edt beside cargo. Every round runs ours and `edt` in turn, each so often in a row, on the same mask and with as many
threads, and SciPy once; the table has the medians and the ratios of the peers' times. It also checks that the results agree. With
`--in-a-row 1` no transform finds its memory in the caches. On a small volume the second thread may start too late: kernels of some virtual
machines leave a new thread on its starter's processor for the first ten milliseconds and more. With 300 in a row it is there in most of them.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import edt
import numpy as np
import scipy.ndimage as ndi

ROOT = Path(__file__).parents[2]
KINDS = ["blobs", "vessels", "borders", "sparse", "noise", "one"]


class Ours:
    """The example `edt_bench`, which reads commands from its standard input."""

    def __init__(self):
        build = ["cargo", "build", "--release", "-q", "-p", "plimsoll-morphology", "--example", "edt_bench"]
        subprocess.run(build, cwd=ROOT, check=True)
        run = ["cargo", "run", "--release", "-q", "-p", "plimsoll-morphology", "--example", "edt_bench", "--", "--serve"]
        self.process = subprocess.Popen(run, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scipy-rounds", type=int, default=1)
    parser.add_argument("--in-a-row", type=int, default=10)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    shape = lambda text: tuple(int(length) for length in text.split(","))
    parser.add_argument("--shapes", type=shape, nargs="+", default=[(72, 136, 136), (256, 256, 256)])
    arguments = parser.parse_args()
    ours = Ours()
    head = ["mask", "shape", "what", "threads", "ours ms", "edt ms", "SciPy ms", "edt/ours", "SciPy/ours"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    with tempfile.TemporaryDirectory() as folder:
        for shape in arguments.shapes:
            for what in ["binary", "labels"]:
                for kind in arguments.kinds:
                    for threads in arguments.threads:
                        row(ours, Path(folder), shape, what, kind, threads, arguments)


def row(ours, folder, shape, what, kind, threads, arguments):
    file = folder / "mask.u8"
    ours(f"mask {kind} {' '.join(map(str, shape))} 1 1 1 {what} {threads} {file}")
    mask = np.fromfile(file, np.uint8).reshape(shape)
    if what == "binary":
        mask = (mask > 0).astype(np.uint8)
    own, peer, scipy = [], [], []
    for number in range(arguments.rounds):
        own += map(float, ours(f"run {arguments.in_a_row}").split())
        for _ in range(arguments.in_a_row):
            seconds, expected = timed(lambda: edt.edt(mask, black_border=False, parallel=threads))
            peer.append(seconds)
        if what == "binary" and number < arguments.scipy_rounds:
            scipy.append(timed(lambda: ndi.distance_transform_edt(mask))[0])
    ours(f"save {folder / 'distances.f32'}")
    found = np.fromfile(folder / "distances.f32", np.float32).reshape(shape)
    assert np.allclose(found, expected, atol=1e-4), (kind, what)
    own, peer = np.median(own), np.median(peer)
    scipy = np.median(scipy) if scipy else float("nan")
    times = [f"{seconds * 1e3:.2f}" for seconds in (own, peer, scipy)]
    ratios = [f"{peer / own:.1f}", f"{scipy / own:.0f}"]
    print("| " + " | ".join([kind, "×".join(map(str, shape)), what, str(threads)] + times + ratios) + " |", flush=True)


if __name__ == "__main__":
    main()
