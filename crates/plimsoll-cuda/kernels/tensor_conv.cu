// Convolutions on tensor cores: an implicit product of matrices. Rows are places of the result, columns its channels, and the sum goes over
// taps and the channels of the sources. A box of voxels is staged once for all taps; the weights are packed before, in the order in
// which lanes take them.
//
// A transposed convolution of stride s is s x s x s convolutions of stride 1, one for the results of each remainder by s (each sees
// the taps of its own remainder), and is launched so.
#include "tensor_conv.cuh"

// The words that lanes take: see `PackedWord`.
struct FragmentWord {
    u32 rows, eight, column;
    __device__ __forceinline__ FragmentWord(u32 i, u32 pairs) {
        const PackedWord word(i / 4 % 32, i % 4);
        rows = word.rows;
        eight = i / 128 % pairs * 2 + word.eight;
        column = word.column;
    }
};

#define TENSOR_PACK(name, H) \
    KERNEL(tensor_pack_##name, TensorPack) { tensor_pack<H, FragmentWord>(p); }
BY_MULTIPLIED(TENSOR_PACK)

// A block of four warps has a tile of 64 * SIXTEENS places and 8 * EIGHTS channels; each warp 16 * SIXTEENS of the places. A box has at
// most VOXELS voxels.
template <int SIXTEENS, int EIGHTS, int VOXELS, class H, class U>
__device__ __forceinline__ void tensor_conv(const TensorConv& p) {
    __shared__ __align__(256) unsigned char boxes[STAGES][VOXELS * VOXEL_BYTES];
    const Tiling& t = p.t;
    const Tile tile(t, blockIdx.x);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const SummedPart part(p, CHUNK<H>);
    const u32 first_output = part.columns * 8 * EIGHTS;
    constexpr int PIECES = EIGHTS / 2 * COLUMN_PIECES;
    float sums[SIXTEENS][EIGHTS][4];
    start_sums(p, part.number, first_output, lane, sums);
    u32 under[SIXTEENS];
#pragma unroll
    for (int i = 0; i < SIXTEENS; i++) {
        under[i] = under_place(t, (warp * SIXTEENS + i) * 2 + given_row(lane), given_place(lane)) * VOXEL_BYTES + given_half(lane) * 16;
    }
    // The weights of a tap are loaded while those of the tap before it are used.
    const u32 taps = t.taps[0] * t.taps[1] * t.taps[2];
    u32 left = part.chunks * taps;
    const uint4* weights = p.weights + (((u64)part.columns * p.chunks + part.first) * taps * (EIGHTS / 2) * 32 + first_piece(lane));
    uint4 next[PIECES];
    if (left > 0) {
#pragma unroll
        for (int j = 0; j < PIECES; j++) next[j] = weights[j * (32 / COLUMN_PIECES)];
    }
    u32 source = part.source, channel = part.channel;
    if (part.chunks > 0) stage_box<H>(shared_address(boxes[0]), t, tile, p.sources, source, channel);
    commit_copies();
#pragma unroll 1
    for (u32 chunk = 0; chunk < part.chunks; chunk++) {
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
            if (chunk + 1 < part.chunks) {
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
        if (STAGES == 1 && chunk + 1 < part.chunks) {
            // No one still reads the chunk, whose place the next one takes.
            __syncthreads();
            stage_box<H>(at, t, tile, p.sources, source, channel);
        }
    }
    store_sums<U>(p, part.number, tile, first_output, lane, sums, [&](u32 i, u32 k) { return (warp * SIXTEENS + i) * 2 + row_of_sums(lane, k); });
}

// The numbers are those of `TILES` in `ops/conv/choice.rs`.
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
