"""Instructions of assembled kernels, without a disassembler: there is none for all cards from 7.0 on.

Instructions have 16 bytes since Volta. The lower 9 bits are the operation, three more the form of its operands. Numbers of operations and the places of a
branch's distance are those that `nvdisasm` 13.5 prints for 7.5, 8.0 and 9.0; all branches of the kernels lead to its labels.
"""
import struct
from dataclasses import dataclass

BRANCH, NOTHING, MULTIPLY_ADD = 0x147, 0x118, 0x023
# Loads from local memory, and stores to it.
LOCAL = {0x183, 0x187}
# Of tensor cores: on Volta; on later cards by warps and by warp groups.
OLD_PRODUCTS, PRODUCTS = {0x036}, {0x03C, 0x1F0}


def products(kernel, card):
    """The operations of which a kernel consists at best; none if it does something else."""
    if kernel.startswith(("tensor_", "warpgroup_")):
        return OLD_PRODUCTS if card < 75 else PRODUCTS
    return {MULTIPLY_ADD} if kernel.startswith("conv") else set()


@dataclass(frozen=True)
class Instruction:
    operation: int
    # The number of the instruction that a branch leads to.
    target: int | None


def sections(cubin):
    """The names and contents of an ELF file's sections."""
    (first,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, of_names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, first + number * size) for number in range(count)]
    names = headers[of_names][4]
    for name, _, _, _, offset, length in headers:
        start = names + name
        yield cubin[start : cubin.index(b"\0", start)].decode(), cubin[offset : offset + length]


def decode(code, card):
    """The instructions of a kernel for a card, such as 90."""
    found = []
    for at in range(0, len(code), 16):
        low, high = struct.unpack_from("<QQ", code, at)
        operation, target = low & 0x1FF, None
        if operation == BRANCH:
            distance = (low >> 34) | (high & 0x3FFFF) << 30
            distance -= (distance >> 47) << 48
            # Since Hopper eight bits more below the others.
            distance = distance << 8 | (low >> 16) & 0xFF if card >= 90 else distance
            target = (at + 16 + 4 * distance) // 16
        found.append(Instruction(operation, target))
    return found


def kernels(cubin, card):
    """The instructions of each kernel of an assembled file."""
    for name, content in sections(cubin):
        if name.startswith(".text."):
            yield name.removeprefix(".text."), decode(content, card)


def per_product(instructions, operations):
    """Instructions for each of some operations in the innermost loop that has the most of them; None if no loop has one."""
    loops = [(found.target, at) for at, found in enumerate(instructions) if found.target is not None and found.target < at]
    counts = []
    for first, last in loops:
        body = [found for found in instructions[first : last + 1] if found.operation != NOTHING]
        inner = [loop for loop in loops if first <= loop[0] and loop[1] <= last and loop != (first, last)]
        count = sum(found.operation in operations for found in body)
        # A loop around others says nothing: how often these turn is not known.
        if count and not any(instructions[at].operation in operations for loop in inner for at in range(loop[0], loop[1] + 1)):
            counts.append((count, len(body) / count))
    return max(counts, key=lambda loop: (loop[0], -loop[1]))[1] if counts else None
