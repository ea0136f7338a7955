"""The distance transform of the Python package against SciPy and `edt`, alternating in one process.

    python benches/python/distances.py [--rounds 5] [--threads 2]

Needs the package `plimsoll`, numpy, scipy and edt. Each round calls every program on the same mask in turn. The table has medians, the ratios of
the other programs' times, and what the process held beside the arrays of the call at most.
"""

import argparse
import statistics
import threading
import time

import edt
import numpy as np
import scipy.ndimage as ndi

import plimsoll

SAMPLING = (5.0, 1.0, 1.0)


def masks():
    """Yield names, masks and label maps: random vessels, and blobs of several labels."""
    for shape in [(72, 136, 136), (256, 256, 256)]:
        rng = np.random.default_rng(0)
        noise = ndi.gaussian_filter(rng.standard_normal(shape).astype(np.float32), 3)
        yield f"blobs {shape}", noise > 0
        yield f"labels {shape}", np.digitize(noise, [-0.03, 0.0, 0.03]).astype(np.uint16)


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def resident():
    with open("/proc/self/status") as status:
        return 1024 * int(next(line for line in status if line.startswith("VmRSS:")).split()[1])


def peak_of(call):
    """The largest resident size while a call runs, less that before it."""
    before, peak, done = resident(), 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident())
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    done.set()
    watcher.join()
    return max(peak, resident()) - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    head = ["mask", "plimsoll ms", "edt ms", "SciPy ms", "edt / plimsoll", "SciPy / plimsoll", "working memory KiB"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for name, mask in masks():
        out = np.zeros(mask.shape, np.float32)
        is_labels = mask.dtype != bool
        to = "labels" if is_labels else "background"
        # SciPy measures one label; its time for several is a multiple of it.
        call = lambda: plimsoll.distance_transform(mask, SAMPLING, distances=out, to=to, threads=arguments.threads)
        other = lambda: edt.edt(mask, anisotropy=SAMPLING, parallel=arguments.threads)
        scipy = lambda: ndi.distance_transform_edt(mask, SAMPLING)
        times = {"ours": [], "edt": [], "scipy": []}
        for _ in range(arguments.rounds):
            for label, function in (("ours", call), ("edt", other), ("scipy", scipy)):
                times[label].append(timed(function)[0])
        expected = other() if is_labels else scipy()
        np.testing.assert_allclose(out, expected, rtol=1e-6)
        ours, edts, scipys = (1e3 * statistics.median(times[label]) for label in ("ours", "edt", "scipy"))
        memory = peak_of(call) / 1024
        row = [name, f"{ours:.2f}", f"{edts:.1f}", f"{scipys:.0f}", f"{edts / ours:.1f}×", f"{scipys / ours:.0f}×", f"{memory:.0f}"]
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
