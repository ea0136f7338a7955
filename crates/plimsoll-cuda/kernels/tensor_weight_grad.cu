// The gradient of weights on tensor cores: for each tap a product of matrices whose rows are channels of the sources, whose columns are
// channels of the result, and whose sum goes over all places.
//
// A block has a chunk of rows, 32 columns, up to 28 taps and a part of the tiles. Warps share the taps; where taps are few, some warps share
// the rows of places instead, and each of those has a part of its own. All parts are added up afterwards, in their order.
//
// Boxes of all tiles have one shape, so that a block makes tables once: for the voxels of a box, and for the places of a tile.
#include "tensor_fragments.cuh"
#include "tensor_table.cuh"

#define TAPS_OF_WARP 7
#define COLUMNS 32u

// Of a block, for its stages and tables.
#if AMPERE
#define SHARED_BYTES 49152u
#else
#define SHARED_BYTES 31744u
#endif

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
    u32 stage_bytes;
    u32 table_at;          // bytes before the entries of the voxels of a box, behind which those of the places of a tile lie
    Tiling t;
};

// Pieces of a place.
template <class H>
constexpr u32 PIECES = COLUMNS / PIECE<H>;

// Whether operands may be stored as f32: on Volta there are no registers for that, and plain kernels are for them.
template <class H>
constexpr bool STAGES_WIDE = !ROUNDS<H> && !VOLTA;

// What a thread stages of boxes, or of the places of tiles: pieces of the same channels of a source, EACH voxels apart. `entry` and `end`: the first of its
// entries, and where they end.
template <class H, u32 EACH>
struct Staged {
    const Sources& from;
    u32 source, channel, entry, end, to;

    // `first`: the first voxel of the box, by its place in memory.
    __device__ __forceinline__ void stage(u32 stage, u32 first, const Limits& limits) const {
        const u32 channels = from.channels[source], left = channels_left(channels, channel), at = first * channels + channel;
        const u32 guards = left > 0 ? GUARDS : 0xffffffffu;
        if constexpr (STAGES_WIDE<H>) {
            if (from.is_wide[source]) {
                const float* x = (const float*)from.maps[source];
                for_each_entry<EACH>(entry, end, stage + to, limits, guards, [&](u32 to, u32 behind, bool there) {
                    stage_rounded<H>(to, x + (at + behind), left, there);
                });
                return;
            }
        }
        const H* x = (const H*)from.maps[source];
        if (channels % PIECE<H> == 0) {
            for_each_entry<EACH>(entry, end, stage + to, limits, guards, [&](u32 to, u32 behind, bool there) {
                copy_piece(to, there ? x + (at + behind) : x, there);
            });
        } else {
            for_each_entry<EACH>(entry, end, stage + to, limits, guards, [&](u32 to, u32 behind, bool there) {
                stage_numbers(to, x + (at + behind), left, there);
            });
        }
    }

    // Finishes what this thread has staged; the zeros around the volume remain.
    __device__ __forceinline__ void finish(u32 stage, u32 sample, const Limits& limits) const {
        const Activation<H> activation(from, source, sample, channel);
        if (!ROUNDS<H> && !activation.statistics) return;
        for_each_entry<EACH>(entry, end, stage + to, limits, GUARDS, [&](u32 to, u32, bool there) {
            if (there) finish_piece(to, activation);
        });
    }
};

// What all threads of a block need to know of a tile. One of them finds it out before the barrier after which the others read it: registers are scarce.
struct TileFacts {
    Limits box, places;
    u32 sample, first_of_box, first_of_places;    // the first voxels, by their place in memory

    __device__ __forceinline__ TileFacts(const Tiling& t, const Tile& tile, const BoxStart& start)
        : box(t.input, start.d, start.h, start.w),
          places(t.places, tile.d, tile.h, tile.w),
          sample(tile.sample),
          first_of_box(((tile.sample * t.input[0] + start.d) * t.input[1] + start.h) * t.input[2] + start.w),
          first_of_places(((tile.sample * t.places[0] + tile.d) * t.places[1] + tile.h) * t.places[2] + tile.w) {}

    __device__ __forceinline__ static TileFacts of(const Tiling& t, u32 number) {
        const Tile tile(t, number);
        return TileFacts(t, tile, BoxStart(t, tile));
    }
};

#define FACTS_BYTES 64u    // of two tiles

// Of a tile whose pieces are finished: on Volta there are no registers for them.
#if VOLTA
typedef const TileFacts& StagedFacts;
#else
typedef const TileFacts StagedFacts;
#endif

// Makes the tables of this block.
__device__ __forceinline__ void make_tables(u32 table, const Tiling& t, u32 channels, u32 outputs) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < t.voxels; i += BLOCK) {
        const StagedPlace of(t, i);
        const u32 w = voxel_at(t, of.w);
        set_entry(table, i, ((of.d * t.input[1] + of.h) * t.input[2] + w) * channels, of.d, of.h, w);
    }
    table += t.voxels * ENTRY_BYTES;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < t.rows * 8; i += BLOCK) {
        const u32 d = i / 8 >> t.height, h = i / 8 & ((1u << t.height) - 1), w = i % 8;
        set_entry(table, i, ((d * t.places[1] + h) * t.places[2] + w) * outputs, d, h, w);
    }
}

template <class H>
__device__ __forceinline__ void tensor_weight_grad(const TensorWeightGrad& p) {
    __shared__ __align__(512) unsigned char shared[SHARED_BYTES];
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

    const u32 stages = shared_address(shared), table = stages + p.table_at, places_table = table + t.voxels * ENTRY_BYTES;
    TileFacts* const facts = (TileFacts*)(shared + SHARED_BYTES - FACTS_BYTES);
    const u32 first = blockIdx.x * p.length, end = min(first + p.length, p.tiles);
    make_tables(table, t, channels, outputs);
    if (threadIdx.x == BLOCK - 1) facts[first % 2] = TileFacts::of(t, first);
    __syncthreads();
    const u32 piece = threadIdx.x % PIECES<H>, place = threadIdx.x / PIECES<H>, place_at = p.dy_at + threadIdx.x * 16;
    const Staged<H, BLOCK / 2> boxes = {p.sources, source, channel + threadIdx.x % 2 * PIECE<H>, table + threadIdx.x / 2 * ENTRY_BYTES, places_table,
                                        swizzled_32(threadIdx.x * 16)};
    const Staged<H, BLOCK / PIECES<H>> results = {p.result, 0, first_output + piece * PIECE<H>, places_table + place * ENTRY_BYTES,
                                                  places_table + t.rows * 8 * ENTRY_BYTES, ROUNDS<H> ? swizzled_128(place_at) : swizzled_64(place_at)};
    const auto stage = [&](u32 to, u32 number) {
        const TileFacts of = facts[number % 2];
        boxes.stage(to, of.first_of_box, of.box);
        results.stage(to, of.first_of_places, of.places);
    };
    if (first < end) stage(stages, first);
    commit_copies();
    u32 box = stages;
#pragma unroll 1
    for (u32 i = first; i < end; i++) {
        // All of this tile is there for everyone, and no one still reads the tile before, whose place the next one takes.
        const u32 dy = box + p.dy_at;
        if (threadIdx.x == BLOCK - 1) facts[(i + 1) % 2] = TileFacts::of(t, i + 1);
        await_copies();
        StagedFacts of = facts[i % 2];
        boxes.finish(box, of.sample, of.box);
        results.finish(box, of.sample, of.places);
        __syncthreads();
        // The other of two stages.
        const u32 other = STAGES > 1 && box == stages ? stages + p.stage_bytes : stages;
        if (STAGES > 1) {
            if (i + 1 < end) stage(other, i + 1);
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
            stage(stages, i + 1);
        }
        box = other;
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
