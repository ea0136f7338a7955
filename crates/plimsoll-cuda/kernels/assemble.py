"""Assembles the PTX for every generation of cards by an assembler of NVIDIA, and checks that kernels with tensor cores spill no registers and keep nothing in
local memory. It needs no GPU.

    pip install nvidia-cuda-nvcc-cu12==12.9.86
    python assemble.py                          # the assembler of this environment
    python assemble.py --ptxas PATH sm_90 sm_120

Assemblers differ in what they know: 11.8 knows cards up to 9.0 and no PTX of warp groups, 13 no card before 7.5. Such pairs are listed as not known. Drivers
contain an assembler of their version, so an old and a new one show what users will meet.
"""
import argparse
import importlib.util
import pathlib
import re
import subprocess
import sys

CARDS = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
UNKNOWN = re.compile(r"is not defined for option|Unsupported \.version|not supported on|Value 'sm_\d+a?' is not")


def installed():
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations if spec else []:
        for found in pathlib.Path(root).glob("*/bin/ptxas"):
            return found
    sys.exit("there is no assembler: pip install nvidia-cuda-nvcc-cu12==12.9.86")


def pieces(card):
    """The files that a card gets, as `src/pieces.rs` chooses them, with the target of each."""
    number = int(card.removeprefix("sm_"))
    tensor = "tensor80" if number >= 80 else "tensor75" if number >= 75 else "tensor70"
    yield "kernels", card
    yield tensor, card
    if number == 90:
        yield "tensor90", "sm_90a"


def check(ptxas, path, target):
    """Returns the number of kernels, or None if the assembler does not know the target or the version of the PTX."""
    command = [ptxas, "-v", f"-arch={target}", str(path), "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        if UNKNOWN.search(done.stderr):
            return None
        sys.exit(f"{path.name} for {target}: {done.stderr}")
    kernels = done.stderr.split("Compiling entry function '")[1:]
    for text in kernels if path.name.startswith("tensor") else []:
        used = sum(map(int, re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads|lmem)", text)))
        if used:
            sys.exit(f"{path.name} for {target}: {text[: text.index(chr(39))]} has {used} bytes in local memory")
    return len(kernels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", type=pathlib.Path)
    parser.add_argument("cards", nargs="*", default=CARDS)
    given = parser.parse_args()
    ptxas = given.ptxas or installed()
    release = re.search(r"release ([\d.]+)", subprocess.run([ptxas, "--version"], capture_output=True, text=True).stdout)
    folder = pathlib.Path(__file__).parent
    known = 0
    for card in given.cards:
        for name, target in pieces(card):
            count = check(ptxas, folder / f"{name}.ptx", target)
            known += count is not None
            print(f"{release.group(1)} {target} {name}: {'not known' if count is None else f'{count} kernels'}", flush=True)
    if not known:
        sys.exit("the assembler knows none of these cards")


if __name__ == "__main__":
    main()
