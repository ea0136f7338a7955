"""Compiles the plain kernels by clang instead of NVRTC: a second reader of the sources, whose PTX the emulator runs beside the definitions.

    apt-get install clang-19
    python with_clang.py FILE       writes the PTX

Neither a GPU nor a toolkit of CUDA is needed: `clang.h` has what the kernels use of one. Kernels with tensor cores consist of instructions that are written out,
so a second compiler would show nothing.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# With which versions this was run: others have other names of built-in functions.
OLDEST, NEWEST = 19, 19
# Variables begin as zero: clang computes with values that nobody uses, where the emulator faults. It finds variables that are read too early in the PTX of NVRTC.
OPTIONS = ["-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_70", "--cuda-feature=+ptx70", "-nocudainc", "-nocudalib", "-std=c++17", "-O3", "-S",
           "-ffp-contract=fast", "-ftrivial-auto-var-init=zero", "-Wall", "-Werror", "-Wno-unknown-cuda-version", "-Wno-ignored-attributes", "-Wno-unused-function", "-Wno-pass-failed"]


def clang():
    """Returns the newest clang of this machine, or ends with the reason why there is none."""
    versions = [f"clang-{number}" for number in range(NEWEST, OLDEST - 1, -1)]
    found = next(filter(None, map(shutil.which, versions)), None)
    if found is None:
        sys.exit(f"there is no clang-{OLDEST} to clang-{NEWEST}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, nargs="?", help="the PTX; without it, and with --find, nothing is compiled")
    parser.add_argument("--find", action="store_true", help="print the compiler")
    given = parser.parse_args()
    if given.find or given.file is None:
        print(clang())
        return
    folder = pathlib.Path(__file__).resolve().parent
    units = sorted(path.name for path in folder.glob("*.cu") if not path.name.startswith(("tensor_", "warpgroup_")))
    with tempfile.TemporaryDirectory() as scratch:
        whole = pathlib.Path(scratch) / "kernels.cu"
        whole.write_text("".join(f'#include "{name}"\n' for name in units))
        command = [clang(), *OPTIONS, "-include", str(folder / "clang.h"), f"-I{folder}", str(whole), "-o", str(given.file)]
        subprocess.run(command, check=True)
    ptx = given.file.read_text()
    entries = set(re.findall(r"(?m)^\.visible \.entry (\w+)\(", ptx))
    expected = set(re.findall(r"(?m)^\.visible \.entry (\w+)\(", (folder / "kernels.ptx").read_text()))
    if entries != expected:
        sys.exit(f"kernels of one compiler alone: {sorted(entries ^ expected)}")
    print(f"{len(entries)} kernels, {len(ptx)} bytes")


if __name__ == "__main__":
    main()
