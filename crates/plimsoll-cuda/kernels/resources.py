"""What the kernels take of a multiprocessor, as NVIDIA's assembler finds it: registers, spilled bytes, shared memory, and the warps that are
resident because of them; and their instructions, of kernels that multiply also for each product in the innermost loop. `compile.py` calls it; it needs no GPU either.

Writes resources.csv. `tests/compiled.rs` checks that it is of the PTX beside it.
"""
import importlib.metadata
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

import machine_code

NVCC = "12.9.86"

# Of a multiprocessor (CUDA programming guide, "Technical specifications per compute capability"): bytes of shared memory, and what of it the
# system takes for each block; warps and blocks. All have 65,536 registers.
CARDS = {
    70: (96 * 1024, 0, 64, 32),
    75: (64 * 1024, 0, 32, 16),
    80: (164 * 1024, 1024, 64, 32),
    90: (228 * 1024, 1024, 64, 32),
}
REGISTERS = 65_536

HEAD = "architecture,kernel,registers,spilled bytes,shared bytes,blocks,occupancy %,instructions,products,instructions of a product"


def fnv1a(files):
    key = 0xCBF29CE484222325
    for path in files:
        for byte in path.read_bytes():
            key = (key ^ byte) * 0x100000001B3 % 2**64
    return key


def resident(architecture, threads, registers, shared):
    """Blocks of a multiprocessor at once, warps of a block and of a multiprocessor. Registers are given to warps, in units of 256."""
    all_shared, reserved, most_warps, most_blocks = CARDS[architecture]
    warps = -(-threads // 32)
    registers_of_warp = -(-registers * 32 // 256) * 256
    limits = [most_blocks, most_warps // warps, REGISTERS // registers_of_warp // warps]
    if shared + reserved > 0:
        limits.append(all_shared // (shared + reserved))
    return min(limits), warps, most_warps


def target_of(path, card):
    """The target of a piece for a card: what 9.0 has alone is of a target of its own."""
    own = re.search(r"(?m)^\.target (sm_\d+a)$", path.read_text())
    return own.group(1) if own else f"sm_{card}"


def assemble(ptxas, path, card):
    """Returns the messages of an assembler, and what it has made; None if there was an error."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as made:
        command = [ptxas, "-v", f"-arch={target_of(path, card)}", str(path), "-o", made.name]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stderr, pathlib.Path(made.name).read_bytes() if done.returncode == 0 else None


def measure(path, messages, cubin, card):
    """The kernels of a piece by their names, with threads of a block, registers, bytes of local memory, spilled bytes, bytes of shared memory, instructions, accesses to local memory, products, and
    instructions for each product."""
    code = dict(machine_code.kernels(cubin, card))
    threads = dict(re.findall(r"\.entry (\w+)\([^{]*?\.maxntid (\d+)", path.read_text()))
    kernels = {}
    for text in messages.split("Compiling entry function '")[1:]:
        name = text[: text.index("'")]
        number = lambda pattern: sum(map(int, re.findall(pattern, text)))
        products = machine_code.products(name, card)
        counted = lambda operations: sum(found.operation in operations for found in code[name])
        kernels[name] = {
            "threads": int(threads[name]),
            "registers": number(r"Used (\d+) registers"),
            "stack": number(r"(\d+) bytes stack frame"),
            "spilled": number(r"(\d+) bytes spill (?:stores|loads)"),
            "shared": number(r"(\d+) bytes smem"),
            "instructions": sum(found.operation != machine_code.NOTHING for found in code[name]),
            "local": counted(machine_code.LOCAL),
            "products": counted(products),
            "each": machine_code.per_product(code[name], products),
        }
    return kernels


def assembled(ptxas, path, architecture):
    messages, cubin = assemble(ptxas, path, architecture)
    if cubin is None:
        sys.exit(messages)
    # It warns where products of warp groups wait for each other, which it says under no other name.
    serialised = re.findall(r".*wgmma.*serialized.*", messages)
    if serialised:
        sys.exit("\n".join(serialised))
    for name, of in measure(path, messages, cubin, architecture).items():
        blocks, warps, most = resident(architecture, of["threads"], of["registers"], of["shared"])
        taken = [of["registers"], of["spilled"], of["shared"], blocks, 100 * blocks * warps // most]
        each = "" if of["each"] is None else f"{of['each']:.2f}"
        yield ",".join(map(str, [f"sm_{architecture}", name, *taken, of["instructions"], of["products"], each]))


def write(folder):
    root = pathlib.Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)))
    ptxas = root / "cuda_nvcc" / "bin" / "ptxas"
    if not ptxas.exists() or importlib.metadata.version("nvidia-cuda-nvcc-cu12") != NVCC:
        sys.exit(f"resources.csv needs the assembler: pip install nvidia-cuda-nvcc-cu12=={NVCC}")
    pieces = [folder / name for name in ["kernels.ptx", "tensor70.ptx", "tensor75.ptx", "tensor80.ptx", "tensor90.ptx"]]
    plain, tensor70, tensor75, tensor80, tensor90 = pieces
    lines = [f"# {fnv1a(pieces):016x}", HEAD]
    for architecture in CARDS:
        tensor = tensor80 if architecture >= 80 else tensor75 if architecture >= 75 else tensor70
        for path in [plain, tensor] + [tensor90] * (architecture == 90):
            lines += sorted(assembled(ptxas, path, architecture))
    (folder / "resources.csv").write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 2} lines of resources.csv")
