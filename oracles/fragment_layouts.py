"""Places of the elements of matrices in lanes, registers and shared memory, as NVIDIA's CuTe defines them.

    git clone --depth 1 --branch v4.7.0 https://github.com/NVIDIA/cutlass
    python oracles/fragment_layouts.py cutlass      writes oracles/fragment_layouts.json

Reads the layouts in the headers of CUTLASS 4.7.0 below `include/cute` (`MMA_Traits`, `Copy_Traits`, `GmmaDescriptor`) and evaluates them; it needs nothing
else. A layout maps coordinates, the first of which varies the fastest, to the sum of coordinates times strides. A fragment's layout maps (thread, value) to
`row + rows * column`; B has columns of the product in the place of rows.
"""

import json
import re
import sys
from pathlib import Path

VERSION = (4, 7, 0)

# The instructions of the kernels, and the atoms of CuTe that have them.
PRODUCTS = {
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32": "SM70_8x8x4_F32F16F16F32_TN",
    "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32": "SM70_8x8x4_F32F16F16F32_NT",
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32": "SM75_16x8x8_F32F16F16F32_TN",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": "SM80_16x8x16_F32F16F16F32_TN",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": "SM80_16x8x16_F32BF16BF16F32_TN",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": "SM80_16x8x8_F32TF32TF32F32_TN",
}
GROUP_PRODUCTS = {
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16": "SM90_64x64x16_F32F16F16_RS",
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16": "SM90_64x64x16_F32BF16BF16_RS",
}
LOADS = {
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": "SM75_U32x4_LDSM_N",
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16": "SM75_U16x8_LDSM_T",
}


def flat(value):
    """The numbers of a nested tuple in their order."""
    return [number for part in value for number in flat(part)] if isinstance(value, tuple) else [value]


def evaluate(shape, stride):
    """The values of a layout for the coordinates of its first mode, and of its second mode for each."""
    def of_mode(shape, stride):
        values = [0]
        for extent, step in zip(flat(shape), flat(stride)):
            values = [value + at * step for at in range(extent) for value in values]
        return values

    first, second = (of_mode(shape[mode], stride[mode]) for mode in (0, 1))
    return [[a + b for b in second] for a in first]


class Headers:
    """The definitions of some headers."""

    def __init__(self, folder, names):
        text = "\n".join((folder / name).read_text() for name in names)
        self.comments = text
        self.text = re.sub(r"//.*", "", text)

    def tuples(self, text):
        """Parses `Shape<_8,Shape<_2,Int<4>>>`, or the same with `Stride`."""
        at = 0

        def item():
            nonlocal at
            word = re.compile(r"\s*(Shape|Stride|Int)\s*<|\s*_(\d+)|\s*(\d+)").match(text, at)
            at = word.end()
            if word.group(1) is None:
                return int(word.group(2) or word.group(3))
            parts = [item()]
            while (mark := re.compile(r"\s*([,>])").match(text, at)).group(1) == ",":
                at = mark.end()
                parts.append(item())
            at = mark.end()
            return parts[0] if word.group(1) == "Int" else tuple(parts)

        return item()

    def layout(self, text):
        """Evaluates a layout, or the name of one; `{}` of a name are its argument."""
        text = text.replace("GMMA::", "").strip()
        while not text.startswith("Layout"):
            name, _, argument = text.partition("<")
            found = re.search(rf"using\s+{re.escape(name.strip())}\s*=\s*([^;]*);", self.text).group(1)
            if argument:
                found = re.sub(r"N/8", str(int(argument.strip(" >")) // 8), found)
            text = found.strip()
        inner = text[text.index("<") + 1 : text.rindex(">")]
        depth = 0
        for place, mark in enumerate(inner):
            depth += {"<": 1, ">": -1}.get(mark, 0)
            if mark == "," and depth == 0:
                return self.tuples(inner[:place]), self.tuples(inner[place + 1 :])
        return (self.tuples(inner),), (1,)

    def traits(self, kind, atom):
        """The members of `MMA_Traits` or `Copy_Traits` of an atom, with those that it inherits."""
        found = re.search(rf"struct {kind}<{atom}(?:<[^>]*>)?>\s*(?::\s*{kind}<(\w+)>)?\s*\{{(.*?)\}};", self.text, re.S)
        members = self.traits(kind, found.group(1)) if found.group(1) else {}
        return members | dict(re.findall(r"using\s+(\w+)\s*=\s*([^;]*);", found.group(2)))

    def product(self, atom):
        members = self.traits("MMA_Traits", atom)
        m, n, k = flat(self.tuples(members["Shape_MNK"]))
        parts = {"shape": [m, n, k]}
        for part in "ABC":
            if "ABLayout" not in members[f"{part}Layout"]:
                parts[part.lower()] = evaluate(*self.layout(members[f"{part}Layout"]))
        return parts


def descriptor(headers):
    """The first bit of each field, and its number of bits."""
    body = re.search(r"union GmmaDescriptor\s*\{(.*?)\}\s*bitfield", headers.text, re.S).group(1)
    fields, at = {}, 0
    for kind, rest in re.findall(r"uint(\d+)_t((?:\s*\w*\s*:\s*\d+\s*,?)+);", body):
        first = at
        for name, bits in re.findall(r"(\w*)\s*:\s*(\d+)", rest):
            if name:
                fields[name.rstrip("_")] = [at, int(bits)]
            at += int(bits)
        assert at - first == int(kind), rest
    assert at == 64
    return fields


def core_matrices(headers):
    """The canonical layouts without a swizzle of numbers of 16 bits, if sums run along lines (`k`) or across (`mn`): for lines and for terms of the sum, extents with
    their strides in bytes, the fastest first. An extent that the shape of the product gives is null, and a stride of the descriptor has its name."""
    names = {"SBO": "stride_byte_offset", "LBO": "leading_byte_offset"}
    in_piece = 8

    def number(text):
        return in_piece if text == "T" else int(text.removesuffix("T")) * (in_piece if text.endswith("T") else 1)

    layouts = {}
    for major, name in (("k", "K"), ("mn", "MN")):
        section = headers.comments.split(f"make_gmma_desc<Major::{name}>", 1)[1]
        line = re.search(r"INTERLEAVE\s*:\s*Swizzle<0,4,3> o smem_ptr o \((\S+)\):\((\S+)\)", section)
        extents, strides = ([part.split(",") for part in re.findall(r"\(([^()]*)\)", text)] for text in line.groups())
        modes = [
            [[None if extent in "mk" else number(extent), names.get(stride) or 2 * number(stride)] for extent, stride in zip(*mode)]
            for mode in zip(extents, strides)
        ]
        layouts[major] = dict(zip(("lines", "terms"), modes))
    return layouts


def main():
    root = Path(sys.argv[1])
    version = (root / "include/cutlass/version.h").read_text()
    found = tuple(int(re.search(rf"#define CUTLASS_{part} (\d+)", version).group(1)) for part in ("MAJOR", "MINOR", "PATCH"))
    if found != VERSION:
        sys.exit(f"CUTLASS is {found}, but the layouts are read from {VERSION}")
    names = [f"mma_traits_sm{number}.hpp" for number in ("70", "75", "80", "90_gmma")] + ["copy_traits_sm75.hpp"]
    headers = Headers(root / "include/cute", [f"atom/{name}" for name in names] + ["arch/mma_sm90_desc.hpp"])
    products = {name: headers.product(atom) for name, atom in PRODUCTS.items()}
    # The lanes of the first of the four products of Volta.
    quad = headers.layout("SM70_QuadPair")
    lanes = [a * quad[1][0] + b * quad[1][1] for b in range(quad[0][1]) for a in range(quad[0][0])]
    loads = {}
    for name, atom in LOADS.items():
        members = headers.traits("Copy_Traits", atom)
        # Bits of the matrices, of which a lane gives a row each, for every second byte that a lane gets.
        loads[name] = [lane[::16] for lane in evaluate(*headers.layout(members["DstLayout"]))]
    written = {
        "source": "CUTLASS " + ".".join(map(str, VERSION)),
        "quad_lanes": lanes,
        "products": products,
        "group_products": {name: headers.product(atom) for name, atom in GROUP_PRODUCTS.items()},
        "loads": loads,
        "descriptor": descriptor(headers),
        "core_matrices": core_matrices(headers),
    }
    to = Path(__file__).with_suffix(".json")
    to.write_text(json.dumps(written, separators=(",", ":")) + "\n")
    print(f"{to}: {len(products)} products, {to.stat().st_size} bytes")


if __name__ == "__main__":
    main()
