"""The distance transform of the Python package against SciPy and `edt`, alternating in one process.

    python benches/python/distances.py [--rounds 5] [--scipy-rounds 1] [--threads 2]

Needs the package `plimsoll`, numpy, scipy and edt. First it compares results: squared distances of isotropic grids equal SciPy's exactly, others
within 3·10⁻⁷, those of label maps for each label. Then each round calls every program on the same array in turn. The table has medians, with the output
as a new array and in an array of the caller, and the ratios of the other programs' times to the first. SciPy measures one label; for a label map
its time is that of all foreground at once. The last columns are the growth of the process's peak memory beyond input and output, in a fresh process,
with a new array and with the caller's.
"""

import argparse
import ctypes
import statistics
import subprocess
import sys
import time

import numpy as np
import scipy.ndimage as ndi

import plimsoll

SAMPLING = (5.0, 1.0, 1.0)
SHAPES = [(72, 136, 136), (256, 256, 256)]
KINDS = ["mask", "labels"]
TOLERANCE = 3e-7


def array(kind, shape):
    """A mask of blobs, or a map of three labels and background."""
    noise = ndi.gaussian_filter(np.random.default_rng(0).standard_normal(shape).astype(np.float32), 3)
    return noise > 0 if kind == "mask" else np.digitize(noise, [-0.03, 0.0, 0.03]).astype(np.uint16)


def to(kind):
    return "background" if kind == "mask" else "labels"


def timed(call):
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def compare(kind, values):
    """Compare with SciPy, label by label, with and without sampling; and check that the caller's array is written in place."""
    for sampling in (None, SAMPLING):
        expected = np.zeros(values.shape)
        for label in np.unique(values[values != 0]):
            expected += ndi.distance_transform_edt(values == label, sampling)
        if sampling is None:
            squared = plimsoll.distance_transform(values, squared=True, to=to(kind))
            np.testing.assert_array_equal(squared, np.rint(expected**2))
        out = np.empty(values.shape, np.float32)
        pointer = out.ctypes.data
        assert plimsoll.distance_transform(values, sampling, distances=out, to=to(kind)) is None
        assert out.ctypes.data == pointer
        np.testing.assert_allclose(out, expected, rtol=TOLERANCE)
        found = plimsoll.distance_transform(values, sampling, to=to(kind))
        np.testing.assert_array_equal(found, out)


def status(name):
    with open("/proc/self/status") as lines:
        return int(next(line for line in lines if line.startswith(name)).split()[1])


def print_peak(kind, shape, given, threads):
    """Print by how many KiB a call lets the peak grow beyond its input and its output."""
    values = array(kind, shape)
    plimsoll.distance_transform(values[:2, :2, :2], SAMPLING, to=to(kind), threads=threads)
    # Written once, so that its memory exists.
    out = np.ones(shape, np.float32) if given else None
    # Memory that the making of the array freed must not serve the call.
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS:")
    plimsoll.distance_transform(values, SAMPLING, distances=out, to=to(kind), threads=threads)
    print(status("VmHWM:") - before - (0 if given else 4 * values.size // 1024))


def peak(kind, shape, given, threads):
    command = [sys.executable, __file__, "--threads", str(threads), "--peak", kind, str(int(given)), *map(str, shape)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def row(kind, shape, arguments):
    import edt

    values = array(kind, shape)
    compare(kind, values)
    out = np.zeros(shape, np.float32)
    threads = arguments.threads
    calls = {
        "new": lambda: plimsoll.distance_transform(values, SAMPLING, to=to(kind), threads=threads),
        "given": lambda: plimsoll.distance_transform(values, SAMPLING, distances=out, to=to(kind), threads=threads),
        "edt": lambda: edt.edt(values, anisotropy=SAMPLING, parallel=threads),
    }
    times = {name: [] for name in calls}
    for _ in range(arguments.rounds):
        for name, call in calls.items():
            times[name].append(timed(call))
    new, given, peer = (statistics.median(times[name]) for name in ("new", "given", "edt"))
    scipy = statistics.median(timed(lambda: ndi.distance_transform_edt(values, SAMPLING)) for _ in range(arguments.scipy_rounds))
    beyond = [peak(kind, shape, given_, threads) for given_ in (False, True)]
    text = [f"{kind} {'×'.join(map(str, shape))}", f"{new:.2f}", f"{given:.2f}", f"{peer:.1f}", f"{scipy:.0f}"]
    text += [f"{peer / new:.1f}", f"{scipy / new:.0f}", *map(str, beyond)]
    print("| " + " | ".join(text) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scipy-rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peak", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak is not None:
        kind, given, *shape = arguments.peak
        print_peak(kind, tuple(map(int, shape)), bool(int(given)), arguments.threads)
        return
    head = ["array", "new ms", "given ms", "edt ms", "SciPy ms", "edt / new", "SciPy / new", "beyond, new KiB", "beyond, given KiB"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for shape in SHAPES:
        for kind in KINDS:
            row(kind, shape, arguments)


if __name__ == "__main__":
    main()
