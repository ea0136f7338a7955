// Convolutions on tensor cores: an implicit product of matrices. Rows are places of the result, columns its channels, and the sum goes over
// taps and the channels of the sources. A box of voxels is staged once for all taps; the weights are packed before, in the order in
// which lanes take them.
//
// A transposed convolution of stride s is s x s x s convolutions of stride 1, one for the results of each remainder by s (each sees
// the taps of its own remainder), and is launched so.
#include "tensor_fragments.cuh"

struct TensorPack {
    const float* weights;
    u32* packed;           // [block of columns][chunk][tap][pair of eight columns][piece][4]: see `PackedWord`
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

// A thread for each word of weights.
template <class H>
__device__ __forceinline__ void tensor_pack(const TensorPack& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const PackedWord word(i / 4 % 32, i % 4);
    u32 rest = i / 128 / p.pairs;
    u32 tap = rest % (p.taps[0] * p.taps[1] * p.taps[2]);
    rest /= p.taps[0] * p.taps[1] * p.taps[2];
    u32 chunk = rest % p.chunks;
    const u32 column = rest / p.chunks * p.pairs * 16 + channel_of_column(i / 128 % p.pairs * 2 + word.eight, word.column);
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
#define TENSOR_PACK(name, H) \
    KERNEL(tensor_pack_##name, TensorPack) { tensor_pack<H>(p); }
BY_MULTIPLIED(TENSOR_PACK)

struct TensorConv {
    Sources sources;
    const uint4* weights;
    const float* bias;    // none: null
    void* y;
    u32 chunks;           // of channels of one source
    u32 outputs;
    u32 result[3];        // extent of y
    u32 spread[3];        // voxels of y from a place to the next
    u32 offset[3];        // the voxel of y of the first place
    Tiling t;
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

// A block of four warps has a tile of 64 * SIXTEENS places and 8 * EIGHTS channels; each warp 16 * SIXTEENS of the places. A box has at
// most VOXELS voxels.
template <int SIXTEENS, int EIGHTS, int VOXELS, class H, class U>
__device__ __forceinline__ void tensor_conv(const TensorConv& p) {
    __shared__ __align__(256) unsigned char boxes[STAGES][VOXELS * VOXEL_BYTES];
    const Tiling& t = p.t;
    const Tile tile(t, blockIdx.x);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 first_output = blockIdx.y * 8 * EIGHTS;
    constexpr int PIECES = EIGHTS / 2 * COLUMN_PIECES;
    float sums[SIXTEENS][EIGHTS][4];
#pragma unroll
    for (int j = 0; j < EIGHTS; j++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const u32 output = first_output + channel_of_column(j, eight_of_sums(lane) * 2 + k);
            const float start = p.bias && output < p.outputs ? p.bias[output] : 0.0f;
#pragma unroll
            for (int i = 0; i < SIXTEENS; i++) sums[i][j][k] = sums[i][j][k + 2] = start;
        }
    }
    u32 under[SIXTEENS];
#pragma unroll
    for (int i = 0; i < SIXTEENS; i++) {
        under[i] = under_place(t, (warp * SIXTEENS + i) * 2 + given_row(lane), given_place(lane)) * VOXEL_BYTES + given_half(lane) * 16;
    }
    // The weights of a tap are loaded while those of the tap before it are used.
    u32 left = p.chunks * t.taps[0] * t.taps[1] * t.taps[2];
    const uint4* weights = p.weights + ((u64)blockIdx.y * left * (EIGHTS / 2) * 32 + first_piece(lane));
    uint4 next[PIECES];
    if (left > 0) {
#pragma unroll
        for (int j = 0; j < PIECES; j++) next[j] = weights[j * (32 / COLUMN_PIECES)];
    }
    u32 source = 0, channel = 0;
    if (p.chunks > 0) stage_box<H>(shared_address(boxes[0]), t, tile, p.sources, 0, 0);
    commit_copies();
#pragma unroll 1
    for (u32 chunk = 0; chunk < p.chunks; chunk++) {
        // All of this chunk is there for everyone, and no one still reads the chunk before, whose place the next one takes.
        u32 at = shared_address(boxes[chunk % STAGES]);
        await_copies();
        finish_box<H>(at, t, tile, p.sources, source, channel);
        __syncthreads();
        channel += CHUNK<H>;
        if (channel >= p.sources.channels[source]) {
            source++;
            channel = 0;
        }
        if (STAGES > 1) {
            if (chunk + 1 < p.chunks) {
                stage_box<H>(shared_address(boxes[(chunk + 1) % STAGES]), t, tile, p.sources, source, channel);
            }
            commit_copies();
        }
#pragma unroll 1
        for (u32 d = 0; d < t.taps[0]; d++) {
#pragma unroll 1
            for (u32 h = 0; h < t.taps[1]; h++) {
                const u32 row = at + (d * t.box[1] + h) * t.box[2] * VOXEL_BYTES;
                u32 further = 0, whole = 0, shift = 0;
#pragma unroll 1
                for (u32 w = 0; w < t.taps[2]; w++) {
                    uint4 columns[PIECES];
#pragma unroll
                    for (int j = 0; j < PIECES; j++) columns[j] = next[j];
                    weights += EIGHTS / 2 * 32;
                    if (--left > 0) {
#pragma unroll
                        for (int j = 0; j < PIECES; j++) next[j] = weights[j * (32 / COLUMN_PIECES)];
                    }
                    const u32 tap = row + shift * VOXEL_BYTES;
#pragma unroll
                    for (int i = 0; i < SIXTEENS; i++) {
                        u32 rows[ROW_WORDS];
                        load_rows(rows, tap + under[i]);
#pragma unroll
                        for (int j = 0; j < EIGHTS / 2; j++) multiply_pair<H>(&sums[i][2 * j], rows, columns + j * COLUMN_PIECES);
                    }
                    // As `tap_shift`, without a division.
                    if (++further < t.stride[2]) {
                        shift += t.phase + (further <= t.longer ? 1 : 0);
                    } else {
                        further = 0;
                        shift = ++whole;
                    }
                }
            }
        }
        if (STAGES == 1 && chunk + 1 < p.chunks) {
            // No one still reads the chunk, whose place the next one takes.
            __syncthreads();
            stage_box<H>(at, t, tile, p.sources, source, channel);
        }
    }
#pragma unroll
    for (int i = 0; i < SIXTEENS; i++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const u32 row = (warp * SIXTEENS + i) * 2 + row_of_sums(lane, k);
            const u32 d = tile.d + (row >> t.height), h = tile.h + (row & ((1u << t.height) - 1)), w = tile.w + place_of_sums(lane, k);
            if (d >= t.places[0] || h >= t.places[1] || w >= t.places[2]) continue;
            const u32 to_d = tile.sample * p.result[0] + d * p.spread[0] + p.offset[0];
            const u32 voxel = (to_d * p.result[1] + h * p.spread[1] + p.offset[1]) * p.result[2] + w * p.spread[2] + p.offset[2];
#pragma unroll
            for (int j = 0; j < EIGHTS / 4; j++) {
                float values[8];
#pragma unroll
                for (int e = 0; e < 8; e++) values[e] = sums[i][j * 4 + e / 2][k * 2 + e % 2];
                store_eight((U*)p.y, voxel, p.outputs, first_output + j * 32 + eight_of_sums(lane) * 8, values);
            }
        }
    }
}

// The numbers are those of `TILES` in `ops/conv/tensor.rs`.
#define TENSOR_CONV(tile, sixteens, eights, voxels, name, H, result, U) \
    KERNEL(tensor_conv_##tile##_##name##_##result, TensorConv) { tensor_conv<sixteens, eights, voxels, H, U>(p); }
#define TENSOR_CONVS(name, H, result, U)                 \
    TENSOR_CONV(256x32, 4, 4, 640, name, H, result, U)   \
    TENSOR_CONV(128x64, 2, 8, 640, name, H, result, U)   \
    TENSOR_CONV(64x64, 1, 8, 768, name, H, result, U)    \
    TENSOR_CONV(64x32, 1, 4, 768, name, H, result, U)
#define TENSOR_CONVS_ALIKE(name, H) TENSOR_CONVS(name, H, name, H)
BY_MULTIPLIED(TENSOR_CONVS_ALIKE)
// What is stored in two bytes may give results in f32.
TENSOR_CONVS(f16, F16, f32, float)
#if AMPERE
TENSOR_CONVS(bf16, Bf16, f32, float)
#endif
