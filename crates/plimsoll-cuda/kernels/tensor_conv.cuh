// What convolutions on tensor cores have in common, whichever instructions multiply: their parameters, how weights are packed for them, and what becomes
// of the sums.
#pragma once
#include "tensor_fragments.cuh"

struct TensorPack {
    const float* weights;
    u32* packed;           // [block of columns][chunk][tap] and the words of a tap, in the order that `Word` has
    u32 channels[MOST_SOURCES];
    u32 chunks;
    u32 columns;           // channels of the result
    u32 pairs;             // pairs of eight columns in a block of them
    u32 taps[3];
    u32 kernel[3];
    u32 first_tap[3];
    int tap_step[3];
    u32 tap_stride;        // weights from a tap to the next
    u32 row_stride;        // from a channel of the sources to the next
    u32 column_stride;     // from a channel of the result to the next
    u32 first;
    u32 count;
};

// The channel of the result that a column stands for: a lane's columns of four eights become eight channels in succession, which it can store
// at once.
__device__ __forceinline__ u32 channel_of_column(u32 eight, u32 column) {
    return eight / 4 * 32 + column / 2 * 8 + eight % 4 * 2 + column % 2;
}

// A thread for each word of weights; a `Word` says which one of those of a tap, by its number.
template <class H, class Word>
__device__ __forceinline__ void tensor_pack(const TensorPack& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const Word word(i, p.pairs);
    u32 rest = i / 128 / p.pairs;
    u32 tap = rest % (p.taps[0] * p.taps[1] * p.taps[2]);
    rest /= p.taps[0] * p.taps[1] * p.taps[2];
    u32 chunk = rest % p.chunks;
    const u32 column = rest / p.chunks * p.pairs * 16 + channel_of_column(word.eight, word.column);
    u32 s = 0, start = 0;
    while (chunk * CHUNK<H> >= p.channels[s]) {
        chunk -= (p.channels[s] + CHUNK<H> - 1) / CHUNK<H>;
        start += p.channels[s];
        s++;
    }
    u32 at = 0;
#pragma unroll
    for (u32 axis = 0; axis < 3; axis++) {
        const u32 after = (axis < 1 ? p.taps[1] : 1) * (axis < 2 ? p.taps[2] : 1);
        at = at * p.kernel[axis] + p.first_tap[axis] + tap / after * p.tap_step[axis];
        tap %= after;
    }
    const u32 row = chunk * CHUNK<H> + word.rows * NUMBERS<H>;
    float weights[NUMBERS<H>];
#pragma unroll
    for (u32 k = 0; k < NUMBERS<H>; k++) {
        const bool there = row + k < p.channels[s] && column < p.columns;
        weights[k] = there ? p.weights[p.first + at * p.tap_stride + (start + row + k) * p.row_stride + column * p.column_stride] : 0.0f;
    }
    p.packed[i] = word_of<H>(weights);
}
struct TensorConv {
    Sources sources;
    const uint4* weights;
    const float* bias;    // none: null
    void* y;
    u64 part_elements;    // elements of y from a part of the sums to the next
    u32 chunks;           // of channels of one source
    u32 outputs;
    u32 column_blocks;    // blocks of channels of the result
    u32 length;           // chunks of a part of the sums
    u32 result[3];        // extent of y
    u32 spread[3];        // voxels of y from a place to the next
    u32 offset[3];        // the voxel of y of the first place
    Tiling t;
};

// What a block sums: some columns, over a part of the chunks. Where there are several parts each has results of its own, which are added up afterwards; the bias
// is in the first.
struct SummedPart {
    u32 columns, number, first, chunks;
    u32 source, channel;    // of the first chunk

    __device__ __forceinline__ SummedPart(const TensorConv& p, u32 channels_of_chunk)
        : columns(blockIdx.y % p.column_blocks), number(blockIdx.y / p.column_blocks), first(number * p.length), chunks(min(p.length, p.chunks - first)), source(0), channel(0) {
        u32 before = first;
#pragma unroll 1
        for (; before > 0;) {
            const u32 own = (p.sources.channels[source] + channels_of_chunk - 1) / channels_of_chunk;
            if (before < own) break;
            before -= own;
            source++;
        }
        channel = before * channels_of_chunk;
    }
};

// Stores eight channels from `channel` on.
__device__ __forceinline__ void store_eight(float* y, u32 voxel, u32 channels, u32 channel, const float* values) {
    float* to = y + ((u64)voxel * channels + channel);
    if (channels % 8 == 0) {
        if (channel >= channels) return;
        ((float4*)to)[0] = make_float4(values[0], values[1], values[2], values[3]);
        ((float4*)to)[1] = make_float4(values[4], values[5], values[6], values[7]);
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (channel + k < channels) to[k] = values[k];
    }
}

template <class H>
__device__ __forceinline__ void store_eight(H* y, u32 voxel, u32 channels, u32 channel, const float* values) {
    H* to = y + ((u64)voxel * channels + channel);
    u32 pairs[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) pairs[k] = pair_of(y, values[2 * k], values[2 * k + 1]);
    if (channels % 8 == 0) {
        if (channel < channels) *(uint4*)to = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (channel + k < channels) to[k].bits = (u16)(pairs[k / 2] >> (k % 2 * 16));
    }
}

// Begins the sums of 8 * EIGHTS channels of some rows of places with their bias.
template <int ROWS, int EIGHTS>
__device__ __forceinline__ void start_sums(const TensorConv& p, u32 part, u32 first_output, u32 lane, float (&sums)[ROWS][EIGHTS][4]) {
#pragma unroll
    for (int j = 0; j < EIGHTS; j++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const u32 output = first_output + channel_of_column(j, eight_of_sums(lane) * 2 + k);
            const float start = p.bias && part == 0 && output < p.outputs ? p.bias[output] : 0.0f;
#pragma unroll
            for (int i = 0; i < ROWS; i++) sums[i][j][k] = sums[i][j][k + 2] = start;
        }
    }
}

// Stores those of a part, as far as there are such places; `row_of` gives the row of the tile that the k-th two of the sums `i` belong to.
template <class U, int ROWS, int EIGHTS, class F>
__device__ __forceinline__ void store_sums(const TensorConv& p, u32 part, const Tile& tile, u32 first_output, u32 lane, const float (&sums)[ROWS][EIGHTS][4], F row_of) {
    const Tiling& t = p.t;
    U* const y = (U*)p.y + part * p.part_elements;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const u32 row = row_of(i, k);
            const u32 d = tile.d + (row >> t.height), h = tile.h + (row & ((1u << t.height) - 1)), w = tile.w + place_of_sums(lane, k);
            if (d >= t.places[0] || h >= t.places[1] || w >= t.places[2]) continue;
            const u32 to_d = tile.sample * p.result[0] + d * p.spread[0] + p.offset[0];
            const u32 voxel = (to_d * p.result[1] + h * p.spread[1] + p.offset[1]) * p.result[2] + w * p.spread[2] + p.offset[2];
#pragma unroll
            for (int j = 0; j < EIGHTS / 4; j++) {
                float values[8];
#pragma unroll
                for (int e = 0; e < 8; e++) values[e] = sums[i][j * 4 + e / 2][k * 2 + e % 2];
                store_eight(y, voxel, p.outputs, first_output + j * 32 + eight_of_sums(lane) * 8, values);
            }
        }
    }
}
