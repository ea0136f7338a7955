// The gradient of weights on tensor cores: for each tap a product of matrices whose rows are channels of the sources, whose columns are
// channels of the result, and whose sum goes over all places.
//
// A block has a chunk of rows, 32 columns, up to 28 taps and a part of the tiles. Warps share the taps; where taps are few, some warps share
// the rows of places instead, and each of those has a part of its own. All parts are added up afterwards, in their order.
#include "tensor_fragments.cuh"

#define TAPS_OF_WARP 7
#define COLUMNS 32u
#define STAGE_BYTES 24576u

struct TensorWeightGrad {
    Sources sources;
    Sources result;        // one: the gradient of the result
    float* parts;          // [parts][tap][input][output]
    u32 width;             // channels of all sources
    u32 weights;           // how many
    u32 all_taps;
    u32 tap_warps;         // warps that share the taps: 1, 2 or 4
    u32 column_blocks;
    u32 chunks;
    u32 tiles;             // of all samples
    u32 length;            // tiles of a part
    u32 dy_at;             // bytes of a stage before dy
    Tiling t;
};

// Pieces of a place.
template <class H>
constexpr u32 PIECES = COLUMNS / PIECE<H>;

// Calls `of` with the address, the voxel, and whether there is such a voxel, for each piece of the places of a tile that this thread stages:
// always the same of the pieces of a place, and of a row.
template <class H, class F>
__device__ __forceinline__ void for_each_place(u32 to, const Tiling& t, const Tile& tile, F of) {
    const u32 w = threadIdx.x / PIECES<H> % 8, piece = threadIdx.x % PIECES<H>, at_w = tile.w + w;
#pragma unroll 1
    for (u32 row = threadIdx.x / (8 * PIECES<H>); row < t.rows; row += BLOCK / (8 * PIECES<H>)) {
        const u32 d = tile.d + (row >> t.height), h = tile.h + (row & ((1u << t.height) - 1));
        const bool there = d < t.places[0] && h < t.places[1] && at_w < t.places[2];
        const u32 voxel = ((tile.sample * t.places[0] + d) * t.places[1] + h) * t.places[2] + at_w;
        const u32 at = to + ((row * 8 + w) * PIECES<H> + piece) * 16;
        of(ROUNDS<H> ? swizzled_128(at) : swizzled_64(at), voxel, there);
    }
}

// Whether operands may be stored as f32: on Volta there are no registers for that, and plain kernels are for them.
template <class H>
constexpr bool STAGES_WIDE = !ROUNDS<H> && !VOLTA;

// Stages 32 channels of the places of a tile.
template <class H>
__device__ __forceinline__ void stage_places(u32 to, const Tiling& t, const Tile& tile, const Sources& from, u32 output) {
    const u32 own = output + threadIdx.x % PIECES<H> * PIECE<H>;
    if constexpr (STAGES_WIDE<H>) {
        if (from.is_wide[0]) {
            for_each_place<H>(to, t, tile, [&](u32 at, u32 voxel, bool there) {
                stage_rounded<H>(at, (const float*)from.maps[0], voxel, from.channels[0], own, there);
            });
            return;
        }
    }
    for_each_place<H>(to, t, tile, [&](u32 at, u32 voxel, bool there) {
        stage_piece(at, (const H*)from.maps[0], voxel, from.channels[0], own, there);
    });
}

// Finishes what this thread has staged of them.
template <class H>
__device__ __forceinline__ void finish_places(u32 to, const Tiling& t, const Tile& tile, const Sources& from, u32 output) {
    const Activation<H> activation(from, 0, tile.sample, output + threadIdx.x % PIECES<H> * PIECE<H>);
    if (!ROUNDS<H> && !activation.statistics) return;
    for_each_place<H>(to, t, tile, [&](u32 at, u32, bool there) {
        if (there) finish_piece(at, activation);
    });
}

template <class H>
__device__ __forceinline__ void tensor_weight_grad(const TensorWeightGrad& p) {
    __shared__ __align__(256) unsigned char stages[STAGES][STAGE_BYTES];
    const Tiling& t = p.t;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 which = blockIdx.y;
    const u32 first_output = which % p.column_blocks * COLUMNS;
    which /= p.column_blocks;
    u32 chunk = which % p.chunks;
    const u32 block_taps = which / p.chunks * (4 * TAPS_OF_WARP);
    u32 source = 0, start = 0;
    while (chunk * CHUNK<H> >= p.sources.channels[source]) {
        chunk -= (p.sources.channels[source] + CHUNK<H> - 1) / CHUNK<H>;
        start += p.sources.channels[source];
        source++;
    }
    const u32 channels = p.sources.channels[source], channel = chunk * CHUNK<H>, outputs = p.result.channels[0];

    // This warp's taps, and its share of the rows of places.
    const u32 taps = min(p.all_taps - block_taps, 4u * TAPS_OF_WARP);
    const u32 each = (taps + p.tap_warps - 1) / p.tap_warps;
    const u32 first_tap = min(warp % p.tap_warps * each, taps);
    const u32 own = min(each, taps - first_tap);
    const u32 share = warp / p.tap_warps, shares = 4 / p.tap_warps;
    u32 shifts[TAPS_OF_WARP];
#pragma unroll
    for (u32 k = 0; k < TAPS_OF_WARP; k++) shifts[k] = tap_shift(t, block_taps + first_tap + k) * VOXEL_BYTES;
    constexpr u32 SUMS = CHUNK<H> * COLUMNS / 32;    // of a lane, for a tap
    float sums[TAPS_OF_WARP][SUMS / 4][4];
#pragma unroll
    for (int k = 0; k < TAPS_OF_WARP; k++) {
#pragma unroll
        for (int j = 0; j < SUMS; j++) sums[k][j / 4][j % 4] = 0.0f;
    }

    const u32 first = blockIdx.x * p.length, end = min(first + p.length, p.tiles);
    if (first < end) {
        const Tile tile(t, first);
        stage_box<H, VoxelAfterVoxel, STAGES_WIDE<H>>(shared_address(stages[0]), t, tile, p.sources, source, channel);
        stage_places<H>(shared_address(stages[0]) + p.dy_at, t, tile, p.result, first_output);
    }
    commit_copies();
#pragma unroll 1
    for (u32 i = first; i < end; i++) {
        // All of this tile is there for everyone, and no one still reads the tile before, whose place the next one takes.
        const u32 box = shared_address(stages[(i - first) % STAGES]), dy = box + p.dy_at;
        await_copies();
        const Tile staged(t, i);
        finish_box<H>(box, t, staged, p.sources, source, channel);
        finish_places<H>(dy, t, staged, p.result, first_output);
        __syncthreads();
        if (STAGES > 1) {
            if (i + 1 < end) {
                const Tile tile(t, i + 1);
                const u32 to = shared_address(stages[(i + 1 - first) % STAGES]);
                stage_box<H, VoxelAfterVoxel, STAGES_WIDE<H>>(to, t, tile, p.sources, source, channel);
                stage_places<H>(to + p.dy_at, t, tile, p.result, first_output);
            }
            commit_copies();
        }
#pragma unroll 1
        for (u32 step = share; step < t.rows / 2; step += shares) {
            u32 columns[PLACE_WORDS<H>];
            load_places<H>(columns, dy, step * 2, lane);
            const PlacesOfBox<H> under(t, box, step * 2, lane);
#pragma unroll
            for (u32 k = 0; k < TAPS_OF_WARP; k++) {
                if (k < own) {
                    u32 rows[ROW_WORDS];
                    under.load(rows, shifts[k]);
                    multiply_places<H>(sums[k], rows, columns);
                }
            }
        }
        if (STAGES == 1 && i + 1 < end) {
            // No one still reads this tile, whose place the next one takes.
            __syncthreads();
            const Tile tile(t, i + 1);
            stage_box<H, VoxelAfterVoxel, STAGES_WIDE<H>>(box, t, tile, p.sources, source, channel);
            stage_places<H>(dy, t, tile, p.result, first_output);
        }
    }

    float* part = p.parts + (u64)(blockIdx.x * shares + share) * p.weights;
#pragma unroll
    for (u32 k = 0; k < TAPS_OF_WARP; k++) {
        if (k >= own) break;
        const u32 tap = block_taps + first_tap + k;
#pragma unroll
        for (u32 j = 0; j < SUMS / 4; j++) {
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                const u32 input = channel + input_of_sums<H>(lane, j * 2 + half), output = first_output + output_of_sums<H>(lane, j * 2 + half);
                if (input >= channels) continue;
                float* to = part + ((tap * p.width + start + input) * outputs + output);
                const float* sum = sums[k][j] + half * 2;
                if constexpr (sizeof(H) == 4) {
                    if (output < outputs) to[0] = sum[0];
                    if (output < outputs && input + 1 < channels) to[outputs] = sum[1];
                } else if (outputs % 2 == 0) {
                    if (output < outputs) *(float2*)to = make_float2(sum[0], sum[1]);
                } else {
                    if (output < outputs) to[0] = sum[0];
                    if (output + 1 < outputs) to[1] = sum[1];
                }
            }
        }
    }
}
#define TENSOR_WEIGHT_GRAD(name, H) \
    KERNEL(tensor_weight_grad_##name, TensorWeightGrad) { tensor_weight_grad<H>(p); }
BY_MULTIPLIED(TENSOR_WEIGHT_GRAD)
