// Tables of the voxels of boxes, for blocks that stage one box after the other of the same shape. An entry has how far a voxel lies behind the first one of its
// box in memory, and its coordinates in the box, which limits of a tile are compared with.
#pragma once
#include "tensor_tile.cuh"

#define ENTRY_BYTES 8u

// Bytes from a piece that a thread stages to its next: a block stages 128 pieces at once. No swizzle changes by that.
#define STAGED_AT_ONCE (BLOCK * 16)

// Coordinates in one word: seven bits for depth and height, ten for the width, and a guard above each, which a difference below zero clears. A box of at most 768
// voxels has eight of them along the width, so that there are at most 96 along the others.
#define GUARDS 0x04008080u

__device__ __forceinline__ u32 coordinates(u32 d, u32 h, u32 w) {
    return d + (h << 8) + (w << 16);
}

// The voxels of a box that are in a volume: those from `low` to `high` along each axis.
struct Limits {
    u32 low, high;

    // By the extent of the volume and the first voxel of the box, which wraps around where it lies before the volume.
    __device__ __forceinline__ Limits(const u32 (&extent)[3], u32 d, u32 h, u32 w)
        : low(coordinates(before(d, 127), before(h, 127), before(w, 1023))),
          high(coordinates(until(extent[0], d, 128), until(extent[1], h, 128), until(extent[2], w, 1024)) + (2 * GUARDS - coordinates(1, 1, 1))) {}

    __device__ __forceinline__ static u32 before(u32 first, int most) {
        return (u32)min(max(-(int)first, 0), most);
    }

    __device__ __forceinline__ static u32 until(u32 extent, u32 first, int most) {
        return (u32)min(max((int)(extent - first), 0), most);
    }

    // `guards`: those that are to remain; others than all of them for a thread that has no channels.
    __device__ __forceinline__ bool have(u32 place, u32 guards) const {
        return ((place - low) & (high - place) & GUARDS) == guards;
    }
};

// Sets an entry: a voxel this far behind the first in memory, at these coordinates.
__device__ __forceinline__ void set_entry(u32 table, u32 entry, u32 behind, u32 d, u32 h, u32 w) {
    asm volatile("st.shared.v2.b32 [%0], {%1,%2};\n" ::"r"(table + entry * ENTRY_BYTES), "r"(behind), "r"(coordinates(d, h, w) | GUARDS) : "memory");
}

// Calls `of` with the address of each piece of this thread, how far its voxel lies behind the first one, and whether there is such a voxel. Between `entry` and `end`
// lie the entries from the first one of this thread on; each of its next ones is EACH further.
template <u32 EACH, class F>
__device__ __forceinline__ void for_each_entry(u32 entry, u32 end, u32 to, const Limits& limits, u32 guards, F of) {
#pragma unroll 1
    for (; entry < end; entry += EACH * ENTRY_BYTES, to += STAGED_AT_ONCE) {
        u32 behind, place;
        asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];\n" : "=r"(behind), "=r"(place) : "r"(entry) : "memory");
        of(to, behind, limits.have(place, guards));
    }
}
