"""Assembles the PTX for every generation of cards by an assembler of NVIDIA, and compares the kernels with resources.csv. It needs no GPU.

    pip install nvidia-cuda-nvcc-cu12==12.9.86
    python assemble.py                          # the assembler of this environment
    python assemble.py --ptxas PATH sm_90 sm_120
    python assemble.py --cubins FOLDER          # keeps what a program may have beside the PTX, see `build.rs`

Hot kernels keep nothing in local memory. On a card of the table a multiprocessor holds at least three quarters of the blocks that the table has. On every card kernels have at most a quarter
more instructions than on the closest one of the table, in all and for each product of the innermost loop.

Assemblers differ in what they know: 11.8 knows cards up to 9.0 and no PTX of warp groups, 13 no card before 7.5. Such pairs are listed as not known. Drivers
contain an assembler of their version, so an old and a new one show what users will meet.
"""
import argparse
import csv
import importlib.metadata
import importlib.util
import pathlib
import re
import subprocess
import sys

import resources

CARDS = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
UNKNOWN = re.compile(r"is not defined for option|Unsupported \.version|not supported on|Value 'sm_\d+a?' is not")

# Cards whose machine code a program may have. 8.9 runs that of 8.6, which has the same instructions.
BUILT_IN = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]

# Kernels that may keep something in local memory, since they are a small part of every step: arrays that are indexed by numbers of the launch.
COLD = ("attention", "composite_loss", "max_pool_grad")

# The allowed ratios to the table, which one assembler has made for four cards, and instructions that do not count: of short kernels they are many.
BLOCKS, INSTRUCTIONS, FEW = 0.75, 1.25, 16


def installed():
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations if spec else []:
        for found in pathlib.Path(root).glob("*/bin/ptxas"):
            return found
    sys.exit("there is no assembler: pip install nvidia-cuda-nvcc-cu12==12.9.86")


def pieces(card):
    """The files that a card gets, as `src/pieces.rs` chooses them."""
    yield "kernels"
    yield "tensor80" if card >= 80 else "tensor75" if card >= 75 else "tensor70"
    if card == 90:
        yield "tensor90"


def table(folder):
    """The lines of resources.csv by card and kernel."""
    lines = [line for line in (folder / "resources.csv").read_text().splitlines() if not line.startswith("#")]
    return {(int(row["architecture"].removeprefix("sm_")), row["kernel"]): row for row in csv.DictReader(lines)}


def compare(name, of, known, card):
    """The reasons against a kernel."""
    if (of["stack"] or of["spilled"] or of["local"]) and not name.startswith(COLD):
        yield f"{of['stack']} bytes in local memory with {of['local']} accesses"
    if card in resources.CARDS:
        blocks = resources.resident(card, of["threads"], of["registers"], of["shared"])[0]
        if blocks < BLOCKS * int(known["blocks"]):
            yield f"{blocks} blocks instead of {known['blocks']}"
    if of["instructions"] > INSTRUCTIONS * int(known["instructions"]) + FEW:
        yield f"{of['instructions']} instructions instead of {known['instructions']}"
    each = known["instructions of a product"]
    if each and (of["each"] is None or of["each"] > INSTRUCTIONS * float(each)):
        yield f"{of['each']} instructions of a product instead of {each}"


def check(ptxas, path, card, lines):
    """Returns the number of kernels, or None if the assembler does not know the target or the version of the PTX."""
    messages, cubin = resources.assemble(ptxas, path, card)
    if cubin is None:
        if UNKNOWN.search(messages):
            return None
        sys.exit(f"{path.name} for sm_{card}: {messages}")
    closest = max(number for number in resources.CARDS if number <= card)
    measured = resources.measure(path, messages, cubin, card)
    faults = [f"{name}: {fault}" for name, of in measured.items() for fault in compare(name, of, lines[closest, name], card)]
    if faults:
        sys.exit(f"{path.name} for sm_{card}:\n" + "\n".join(faults))
    return len(measured)


def keep(ptxas, folder, to):
    """Writes the machine code for each card that has one, and the digest of the PTX that it is of."""
    if importlib.metadata.version("nvidia-cuda-nvcc-cu12") != resources.NVCC:
        sys.exit(f"machine code is made by one assembler: pip install nvidia-cuda-nvcc-cu12=={resources.NVCC}")
    to.mkdir(parents=True, exist_ok=True)
    for card in (int(name.removeprefix("sm_")) for name in BUILT_IN):
        for name in pieces(card):
            messages, cubin = resources.assemble(ptxas, folder / f"{name}.ptx", card)
            if cubin is None:
                sys.exit(messages)
            (to / f"{name}.sm_{card}.cubin").write_bytes(cubin)
    # The same digest as in the first line of the table.
    (to / "ptx").write_text((folder / "resources.csv").read_text().splitlines()[0].removeprefix("# ") + "\n")
    print(f"{to}: {sum(path.stat().st_size for path in to.glob('*.cubin'))} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", type=pathlib.Path)
    parser.add_argument("--cubins", type=pathlib.Path)
    parser.add_argument("cards", nargs="*", default=CARDS)
    given = parser.parse_args()
    ptxas = given.ptxas or installed()
    release = re.search(r"release ([\d.]+)", subprocess.run([ptxas, "--version"], capture_output=True, text=True).stdout)
    folder = pathlib.Path(__file__).resolve().parent
    if given.cubins:
        keep(ptxas, folder, given.cubins)
        return
    lines = table(folder)
    known = 0
    for card in (int(name.removeprefix("sm_")) for name in given.cards):
        for name in pieces(card):
            path = folder / f"{name}.ptx"
            count = check(ptxas, path, card, lines)
            known += count is not None
            print(f"{release.group(1)} {resources.target_of(path, card)} {name}: {'not known' if count is None else f'{count} kernels'}", flush=True)
    if not known:
        sys.exit("the assembler knows none of these cards")


if __name__ == "__main__":
    main()
