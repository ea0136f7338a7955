// Tiles of the results of a convolution, and the boxes of voxels that they are made of.
//
// A tile is `rows` times 8 places along the width: eight places side by side are eight rows of a matrix. The box is staged in
// chunks of channels, 32 bytes a voxel: sixteen channels, or eight of f32. Its voxels lie in their order, except that along the width those under the places of one tap
// come side by side also where places are several voxels apart: first all that are a multiple of the stride, then those one
// further, and so on. So one voxel after the other is read whatever the stride, and the banks do not collide.
#pragma once
#include "tensor_core.cuh"

#define MOST_SOURCES 4
#define VOXEL_BYTES 32u

// Channels that are staged at once.
template <class H>
constexpr u32 CHUNK = VOXEL_BYTES / sizeof(H);

struct Tiling {
    u32 places[3];    // results along each axis
    u32 tiles[3];     // along each axis
    u32 taps[3];
    u32 input[3];     // extent of the sources
    int first[3];     // the voxel of the sources under the first tap of the first place
    u32 stride[3];    // voxels of the sources from a place to the next
    u32 box[3];       // extent of a box
    u32 phase;        // box[2] / stride[2]
    u32 longer;       // box[2] % stride[2]
    u32 rows;         // of a tile
    u32 height;       // rows of a tile side by side along the height, as a power of two
    u32 voxels;           // of a box
    u32 reciprocal[2];    // 2^20 / box[1] and 2^20 / box[2], rounded up
    u32 unused;
};

// The first place of a tile.
struct Tile {
    u32 sample, d, h, w;
    __device__ __forceinline__ Tile(const Tiling& t, u32 number) {
        w = number % t.tiles[2] * 8;
        number /= t.tiles[2];
        h = (number % t.tiles[1]) << t.height;
        number /= t.tiles[1];
        d = number % t.tiles[0] * (t.rows >> t.height);
        sample = number / t.tiles[0];
    }
};

// Where the voxels begin, along the width of a box, that are so many further than a multiple of the stride.
__device__ __forceinline__ u32 phase_start(const Tiling& t, u32 further) {
    return further * t.phase + min(further, t.longer);
}

// The voxel along the width of a box that lies at a place.
__device__ __forceinline__ u32 voxel_at(const Tiling& t, u32 place) {
    if (t.stride[2] == 1) return place;
    if (t.stride[2] == 2) {
        // Without divisions: first those of even numbers.
        const u32 even = t.phase + t.longer;
        return place < even ? 2 * place : 2 * (place - even) + 1;
    }
    // The phases of one voxel more come first. Where there are others they are not empty.
    const u32 long_ones = t.longer * (t.phase + 1);
    if (place < long_ones) return place % (t.phase + 1) * t.stride[2] + place / (t.phase + 1);
    const u32 rest = place - long_ones;
    return rest % t.phase * t.stride[2] + t.longer + rest / t.phase;
}

// How far the voxel under a tap lies from the one under the first.
__device__ __forceinline__ u32 tap_shift(const Tiling& t, u32 tap) {
    const u32 w = tap % t.taps[2], h = tap / t.taps[2] % t.taps[1], d = tap / t.taps[2] / t.taps[1];
    return (d * t.box[1] + h) * t.box[2] + phase_start(t, w % t.stride[2]) + w / t.stride[2];
}

// The voxel of a box under the first tap of a place of a tile.
__device__ __forceinline__ u32 under_place(const Tiling& t, u32 row, u32 w) {
    const u32 d = row >> t.height, h = row & ((1u << t.height) - 1);
    return (d * t.stride[0] * t.box[1] + h * t.stride[1]) * t.box[2] + w;
}

// Volumes that are read as if they stood one behind the other along the channels. One that has statistics is normalised and activated when it
// is staged.
struct Sources {
    const void* maps[MOST_SOURCES];
    const float* statistics[MOST_SOURCES];    // [sample][channel][2]: mean and 1 / deviation; none: null
    const float* scale[MOST_SOURCES];         // none: null
    const float* shift[MOST_SOURCES];
    float slope[MOST_SOURCES];                // of a leaky ReLU
    u32 channels[MOST_SOURCES];
    u32 is_wide[MOST_SOURCES];                // 1: stored as f32, and rounded when it is staged; it has no statistics
};

// Where the pieces of a box lie for products by warps: voxel after voxel, the two pieces of every other four exchanged.
struct VoxelAfterVoxel {
    // Bytes of a place; 64 places change no exchange.
    static constexpr u32 EACH = VOXEL_BYTES;

    static __device__ __forceinline__ u32 at(u32 box, u32 place, u32 half) {
        return swizzled_32(box + place * VOXEL_BYTES + half * 16);
    }
};

// The voxel of the sources that is the first of a box. What is before the first one of all wraps around to large numbers.
struct BoxStart {
    u32 d, h, w;
    __device__ __forceinline__ BoxStart(const Tiling& t, const Tile& tile)
        : d(tile.d * t.stride[0] + t.first[0]), h(tile.h * t.stride[1] + t.first[1]), w(tile.w * t.stride[2] + t.first[2]) {}
};

// A place of a box that a thread stages: all threads of a block of four warps take part, two for a voxel, each always with the same of its two pieces.
struct StagedPlace {
    u32 place, d, h, w;

    // A box has fewer than 1024 voxels, so that quotients by reciprocals are exact.
    __device__ __forceinline__ StagedPlace(const Tiling& t, u32 place) : place(place) {
        const u32 row = place * t.reciprocal[1] >> 20;
        w = place - row * t.box[2];
        d = row * t.reciprocal[0] >> 20;
        h = row - d * t.box[1];
    }

    __device__ __forceinline__ static u32 first() {
        return threadIdx.x / 2;
    }

    // Places from one that a thread stages to its next.
    static const u32 STEP = BLOCK / 2;

    // Calls `of` with the address `to` of the piece of this thread, the voxel, and whether there is such a voxel.
    template <class F>
    __device__ __forceinline__ void stage(u32 to, const Tiling& t, u32 sample, const BoxStart& first, F of) const {
        const u32 from_d = first.d + d, from_h = first.h + h, from_w = first.w + voxel_at(t, w);
        const bool there = from_d < t.input[0] && from_h < t.input[1] && from_w < t.input[2];
        of(to, ((sample * t.input[0] + from_d) * t.input[1] + from_h) * t.input[2] + from_w, there);
    }
};

// Does so for all pieces of a box that this thread stages.
template <class Layout, class F>
__device__ __forceinline__ void for_each_piece(u32 box, const Tiling& t, const Tile& tile, F of) {
    const BoxStart start(t, tile);
    u32 to = Layout::at(box, StagedPlace::first(), threadIdx.x % 2);
#pragma unroll 1
    for (u32 place = StagedPlace::first(); place < t.voxels; place += StagedPlace::STEP, to += StagedPlace::STEP * Layout::EACH) {
        StagedPlace(t, place).stage(to, t, tile.sample, start, of);
    }
}

// Whether what is staged is not yet what is multiplied: f32 is rounded to tf32 then.
template <class H>
constexpr bool ROUNDS = sizeof(H) == 4;

// Stages a chunk of channels of the box of a tile. `WIDE`: of sources that may be stored as f32.
template <class H, class Layout = VoxelAfterVoxel, bool WIDE = !ROUNDS<H>>
__device__ __forceinline__ void stage_box(u32 box, const Tiling& t, const Tile& tile, const Sources& from, u32 source, u32 channel) {
    const u32 channels = from.channels[source], own = channel + threadIdx.x % 2 * PIECE<H>;
    if constexpr (WIDE) {
        if (from.is_wide[source]) {
            const float* x = (const float*)from.maps[source];
            for_each_piece<Layout>(box, t, tile, [&](u32 at, u32 voxel, bool there) {
                stage_rounded<H>(at, x + (voxel * channels + own), channels_left(channels, own), there);
            });
            return;
        }
    }
    const H* x = (const H*)from.maps[source];
    if (channels % PIECE<H> == 0) {
        const bool own_there = own < channels;
        for_each_piece<Layout>(box, t, tile, [&](u32 at, u32 voxel, bool there) {
            copy_piece(at, there && own_there ? x + (voxel * channels + own) : x, there && own_there);
        });
    } else {
        for_each_piece<Layout>(box, t, tile, [&](u32 at, u32 voxel, bool there) {
            stage_numbers(at, x + (voxel * channels + own), channels_left(channels, own), there);
        });
    }
}

// A piece of channels of a voxel that are normalised and activated where they are staged.
template <class H>
struct Activation {
    const float4* statistics;    // none: null
    const float4* scale;         // none: null
    const float4* shift;
    const float& slope;    // left where the parameters are: registers are scarce

    // Of the channels from `channel` on, a multiple of a piece.
    __device__ __forceinline__ Activation(const Sources& from, u32 source, u32 sample, u32 channel) : slope(from.slope[source]) {
        const u32 channels = from.channels[source];
        const bool there = from.statistics[source] && channel < channels;
        statistics = there ? (const float4*)(from.statistics[source] + 2 * (sample * channels + channel)) : nullptr;
        scale = from.scale[source] ? (const float4*)(from.scale[source] + channel) : nullptr;
        shift = (const float4*)(from.shift[source] + channel);
    }

    // Two channels, the `k`-th two of a piece, as the kernel that stores normalised maps.
    __device__ __forceinline__ void apply(u32 k, float& first, float& second) const {
        const float4 of = statistics[k];
        first = (first - of.x) * of.y;
        second = (second - of.z) * of.w;
        if (scale) {
            const float4 a = scale[k / 2], b = shift[k / 2];
            first = fmaf(first, k % 2 ? a.z : a.x, k % 2 ? b.z : b.x);
            second = fmaf(second, k % 2 ? a.w : a.y, k % 2 ? b.w : b.y);
        }
        first = first > 0.0f ? first : first * slope;
        second = second > 0.0f ? second : second * slope;
    }
};

// Makes what this thread has staged at an address, when its copy has arrived, what is multiplied: normalised and activated if `activation` is of a source
// that is, and rounded.
template <class H>
__device__ __forceinline__ void finish_piece(u32 at, const Activation<H>& activation) {
    u32 piece[4];
    load_four(piece, at);
    if constexpr (ROUNDS<H>) {
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            float first = __uint_as_float(piece[2 * k]), second = __uint_as_float(piece[2 * k + 1]);
            if (activation.statistics) activation.apply(k, first, second);
            piece[2 * k] = tf32_bits(first);
            piece[2 * k + 1] = tf32_bits(second);
        }
    } else {
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            float first, second;
            numbers_of((const H*)nullptr, piece[k], first, second);
            activation.apply(k, first, second);
            piece[k] = pair_of((const H*)nullptr, first, second);
        }
    }
    store_piece(at, make_uint4(piece[0], piece[1], piece[2], piece[3]));
}

// Finishes what this thread has staged of a box; the zeros around the volume remain.
template <class H, class Layout = VoxelAfterVoxel>
__device__ __forceinline__ void finish_box(u32 box, const Tiling& t, const Tile& tile, const Sources& from, u32 source, u32 channel) {
    const Activation<H> activation(from, source, tile.sample, channel + threadIdx.x % 2 * PIECE<H>);
    if (!ROUNDS<H> && !activation.statistics) return;
    for_each_piece<Layout>(box, t, tile, [&](u32 at, u32, bool there) {
        if (there) finish_piece(at, activation);
    });
}
