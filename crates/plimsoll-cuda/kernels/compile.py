"""Compiles the kernels to PTX: CUDA C++ by NVRTC, which needs neither a GPU nor a CUDA toolkit.

    python3 -m venv /tmp/nvrtc && /tmp/nvrtc/bin/pip install nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-nvcc-cu12==12.9.86
    /tmp/nvrtc/bin/python crates/plimsoll-cuda/kernels/compile.py

Writes kernels.ptx for compute capability 7.0, tensor70.ptx, tensor75.ptx and tensor80.ptx of the sources tensor_*.cu for 7.0, 7.5 and 8.0, tensor90.ptx of warpgroup_*.cu for 9.0,
and kernels.key, by which a test knows whether they are those of the sources; and resources.csv, see resources.py. PTX runs on every later card, too: the driver compiles it for
the one it finds. But tensor90.ptx runs on no other: `compute_90a` has instructions that later cards do not have. NVRTC names its own
version of PTX, which only drivers of its age read. The instructions here are all older, so the version is set back to one that each driver
reads which the rest of this crate runs with, 470 (CUDA 11.4, 2021) and later, and hints that are newer (which bytes of a load are used) are
left out. Products of warp groups came with 8.0, which drivers since 525 (CUDA 12.0, 2022) read.
"""
import ctypes
import importlib.metadata
import importlib.util
import pathlib
import re
import sys

import resources

NVRTC = "12.9.86"
PTX = "7.0"
WARPGROUP_PTX = "8.0"
OPTIONS = ["--std=c++17", "--fmad=true", "--prec-div=true", "--prec-sqrt=true", "--ftz=false"]

folder = pathlib.Path(__file__).parent
sources = sorted(path for path in folder.iterdir() if path.suffix in (".cu", ".cuh"))
# FNV-1a of this file and the sources, as `tests/compiled.rs` computes it.
key = 0xCBF29CE484222325
for path in [pathlib.Path(__file__), *sources]:
    for byte in path.name.encode() + b"\0" + path.read_bytes() + b"\0":
        key = (key ^ byte) * 0x100000001B3 % 2**64

found = importlib.metadata.version("nvidia-cuda-nvrtc-cu12")
if found != NVRTC:
    sys.exit(f"NVRTC is {found}, but the PTX is made by {NVRTC}")
root = pathlib.Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)))
nvrtc = ctypes.CDLL(str(next(root.glob("cuda_nvrtc/lib/libnvrtc.so.12"))))


def text_of(kind, program):
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{kind}")(program, text)
    return text.value.decode()


def strings(texts):
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])


def compile(units, architecture, version=PTX):
    program = ctypes.c_void_p()
    whole = "".join(f'#include "{path.name}"\n' for path in units).encode()
    names, texts = strings([path.name for path in sources]), strings([path.read_text() for path in sources])
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), whole, b"kernels.cu", len(sources), texts, names)
    options = [f"--gpu-architecture={architecture}", *OPTIONS]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), strings(options))
    log = text_of("ProgramLog", program).strip()
    if log:
        print(log)
    if failed:
        sys.exit(1)
    ptx, versions = re.subn(r"(?m)^\.version .*$", f".version {version}", text_of("PTX", program))
    ptx = re.sub(r'(?m)^\s*\.pragma "used_bytes_mask.*\n', "", ptx)
    if versions != 1:
        sys.exit(f"the PTX names {versions} versions of itself, not one")
    print(f"{architecture}: {ptx.count('.entry')} kernels, {len(ptx)} bytes")
    return ptx


units = [path for path in sources if path.suffix == ".cu"]
named = lambda start: [path for path in units if path.name.startswith(start)]
tensor, warpgroup = named("tensor_"), named("warpgroup_")
pieces = {"kernels.ptx": compile([path for path in units if path not in tensor + warpgroup], "compute_70")}
pieces |= {f"tensor{number}.ptx": compile(tensor, f"compute_{number}") for number in (70, 75, 80)}
pieces["tensor90.ptx"] = compile(warpgroup, "compute_90a", WARPGROUP_PTX)
for name, ptx in pieces.items():
    (folder / name).write_text(ptx)
(folder / "kernels.key").write_text(f"{key:016x}\n")
resources.write(folder)
