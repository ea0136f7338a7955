"""What the kernels take of a multiprocessor, as NVIDIA's assembler finds it: registers, spilled bytes, shared memory, and the warps that are
resident because of them. `compile.py` calls it; it needs no GPU either.

Writes resources.csv. `tests/compiled.rs` checks that it is of the PTX beside it.
"""
import importlib.metadata
import importlib.util
import pathlib
import re
import subprocess
import sys

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


def assembled(ptxas, path, architecture):
    # What 9.0 has alone is of a target of its own.
    target = re.search(r"(?m)^\.target (sm_\d+a)$", path.read_text())
    name = target.group(1) if target else f"sm_{architecture}"
    command = [ptxas, "-v", f"-arch={name}", str(path), "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    # It warns where products of warp groups wait for each other, which it says under no other name.
    serialised = re.findall(r".*wgmma.*serialized.*", done.stderr)
    if serialised:
        sys.exit("\n".join(serialised))
    threads = dict(re.findall(r"\.entry (\w+)\([^{]*?\.maxntid (\d+)", path.read_text()))
    for text in done.stderr.split("Compiling entry function '")[1:]:
        name = text[: text.index("'")]
        number = lambda pattern: sum(map(int, re.findall(pattern, text)))
        registers, shared = number(r"Used (\d+) registers"), number(r"(\d+) bytes smem")
        spilled = number(r"(\d+) bytes spill (?:stores|loads)")
        blocks, warps, most = resident(architecture, int(threads[name]), registers, shared)
        yield f"sm_{architecture},{name},{registers},{spilled},{shared},{blocks},{100 * blocks * warps // most}"


def write(folder):
    root = pathlib.Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)))
    ptxas = root / "cuda_nvcc" / "bin" / "ptxas"
    if not ptxas.exists() or importlib.metadata.version("nvidia-cuda-nvcc-cu12") != NVCC:
        sys.exit(f"resources.csv needs the assembler: pip install nvidia-cuda-nvcc-cu12=={NVCC}")
    pieces = [folder / name for name in ["kernels.ptx", "tensor70.ptx", "tensor75.ptx", "tensor80.ptx", "tensor90.ptx"]]
    plain, tensor70, tensor75, tensor80, tensor90 = pieces
    lines = [f"# {fnv1a(pieces):016x}", "architecture,kernel,registers,spilled bytes,shared bytes,blocks,occupancy %"]
    for architecture in CARDS:
        tensor = tensor80 if architecture >= 80 else tensor75 if architecture >= 75 else tensor70
        for path in [plain, tensor] + [tensor90] * (architecture == 90):
            lines += sorted(assembled(ptxas, path, architecture))
    (folder / "resources.csv").write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 2} lines of resources.csv")
