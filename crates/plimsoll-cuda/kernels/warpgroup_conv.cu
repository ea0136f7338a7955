// Convolutions by products of warp groups, for cards of compute capability 9.0: see tensor_conv.cu, which the places, channels, boxes and sums are of.
//
// Boxes and weights are multiplied where they lie in shared memory. A box is staged as two planes, of the first and of the second eight channels of its
// voxels, 16 bytes each. So eight voxels side by side along the width are a core matrix wherever the first one lies: a tap is the same matrix of places,
// some voxels further. Its 64 rows are eight rows of places that lie equally far apart: along the height, or along the depth.
#include "warpgroup_products.cuh"

#define COLUMNS 64u

// Bytes of the weights of a tap: sixteen channels by all columns.
#define TAP_BYTES (COLUMNS * VOXEL_BYTES)

// Taps that are multiplied between two barriers, while the weights of as many are copied.
#define TAPS_AT_ONCE 2u

// The words of the weights of a tap: first those of eight channels, a core matrix of eight columns after the other, then those of the other eight.
struct MatrixWord {
    u32 rows, eight, column;
    __device__ __forceinline__ MatrixWord(u32 i, u32 pairs) {
        const u32 each = pairs * 64, word = i % (2 * each);
        rows = word / each * 4 + word % 4;
        eight = word % each / 32;
        column = word / 4 % 8;
    }
};

// The planes of a box, which begin in different banks: a copy of eight lanes is of four voxels of both.
template <u32 VOXELS>
struct PlaneAfterPlane {
    static constexpr u32 BYTES = VOXELS * 16, EACH = 16;
    static_assert(BYTES % 128 == 64, "both planes begin in the same banks");
    static __device__ __forceinline__ u32 at(u32 box, u32 place, u32 half) {
        return box + half * BYTES + place * 16;
    }
};

// The taps in their order, by how far the voxel under each lies from the one under the first.
struct Taps {
    u32 w = 0, h = 0, row = 0, further = 0, whole = 0, shift = 0;
    __device__ __forceinline__ u32 next(const Tiling& t) {
        const u32 tap = row + shift;
        if (++w == t.taps[2]) {
            w = further = whole = shift = 0;
            row += t.box[2];
            if (++h == t.taps[1]) {
                h = 0;
                row += (t.box[1] - t.taps[1]) * t.box[2];
            }
        } else if (++further < t.stride[2]) {
            shift += t.phase + (further <= t.longer ? 1 : 0);
        } else {
            further = 0;
            shift = ++whole;
        }
        return tap;
    }
};

// Stages the weights of some taps, which lie as they are multiplied.
__device__ __forceinline__ void stage_weights(u32 to, const uint4* weights, u32 taps) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < taps * (TAP_BYTES / 16); i += BLOCK) copy_piece(to + i * 16, weights + i, true);
}

// Adds the products of a tap: of matrices of places that begin at `under`, with its weights.
template <class H, int MATRICES>
__device__ __forceinline__ void add_tap(float (&sums)[MATRICES][COLUMNS / 8][4], u32 places, const u32 (&under)[MATRICES], u32 to_next_row, u32 columns) {
#pragma unroll
    for (int i = 0; i < MATRICES; i++) {
        add_product((const H*)nullptr, sums[i], descriptor(places + under[i], to_next_row), descriptor(columns, 128));
    }
}

// A block is a warp group and has a tile of 64 * MATRICES places and 64 channels. A box has at most VOXELS voxels.
template <int MATRICES, u32 VOXELS, class H, class U>
__device__ __forceinline__ void warpgroup_conv(const TensorConv& p) {
    typedef PlaneAfterPlane<VOXELS> Planes;
    __shared__ __align__(256) unsigned char boxes[2][2 * Planes::BYTES];
    __shared__ __align__(256) unsigned char weights[2][TAPS_AT_ONCE * TAP_BYTES];
    const Tiling& t = p.t;
    const Tile tile(t, blockIdx.x);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const SummedPart part(p, CHUNK<H>);
    const u32 first_output = part.columns * COLUMNS;
    float sums[MATRICES][COLUMNS / 8][4];
    start_sums(p, part.number, first_output, lane, sums);
    u32 under[MATRICES];
#pragma unroll
    for (int i = 0; i < MATRICES; i++) under[i] = under_place(t, i * 8, 0);
    const u32 to_next_row = under_place(t, 1, 0) * 16;

    const u32 taps = t.taps[0] * t.taps[1] * t.taps[2], steps = (taps + TAPS_AT_ONCE - 1) / TAPS_AT_ONCE;
    const uint4* packed = p.weights + ((u64)part.columns * p.chunks + part.first) * taps * (TAP_BYTES / 16);
    // Of the next box a thread stages so many pieces in each step.
    const u32 pieces = (t.voxels * 2 + BLOCK - 1) / BLOCK, share = (pieces + steps - 1) / steps;
    const BoxStart start(t, tile);
    u32 source = part.source, channel = part.channel;
    if (part.chunks > 0) {
        stage_box<H, Planes>(shared_address(boxes[0]), t, tile, p.sources, source, channel);
        stage_weights(shared_address(weights[0]), packed, min(taps, TAPS_AT_ONCE));
    }
    commit_copies();
    u32 slot = 0;
#pragma unroll 1
    for (u32 chunk = 0; chunk < part.chunks; chunk++) {
        const u32 box = shared_address(boxes[chunk % 2]), next_box = shared_address(boxes[(chunk + 1) % 2]);
        const bool last = chunk + 1 == part.chunks;
        Taps walk;
        u32 place = StagedPlace::first();
#pragma unroll 1
        for (u32 step = 0; step < steps; step++) {
            // All that this step multiplies is there for everyone, and what the step before has multiplied is no longer needed.
            await_copies();
            if (step == 0) {
                finish_box<H, Planes>(box, t, tile, p.sources, source, channel);
                channel += CHUNK<H>;
                if (channel >= p.sources.channels[source]) {
                    source++;
                    channel = 0;
                }
            }
            publish_to_products();
            __syncthreads();

            const u32 now = min(taps - step * TAPS_AT_ONCE, TAPS_AT_ONCE);
            const u32 places = matrix_at(box, Planes::BYTES), columns = matrix_at(shared_address(weights[slot]), TAP_BYTES / 2);
            const u32 first = places + walk.next(t), second = now > 1 ? places + walk.next(t) : 0;
            begin_products();
            add_tap<H>(sums, first, under, to_next_row, columns);
            if (now > 1) add_tap<H>(sums, second, under, to_next_row, columns + TAP_BYTES / 16);
            commit_products();

            slot ^= 1;
            packed += now * (TAP_BYTES / 16);
            const u32 left = step + 1 < steps ? taps - (step + 1) * TAPS_AT_ONCE : last ? 0 : taps;
            stage_weights(shared_address(weights[slot]), packed, min(left, TAPS_AT_ONCE));
            if (!last) {
                const H* x = (const H*)p.sources.maps[source];
                const u32 channels = p.sources.channels[source], own = channel + threadIdx.x % 2 * PIECE<H>;
#pragma unroll 1
                for (u32 i = 0; i < share && place < t.voxels; i++, place += StagedPlace::STEP) {
                    StagedPlace(t, place).stage(Planes::at(next_box, place, threadIdx.x % 2), t, tile.sample, start, [&](u32 at, u32 voxel, bool there) {
                        stage_piece(at, x, voxel, channels, own, there);
                    });
                }
            }
            commit_copies();
            await_products(sums);
        }
    }
    store_sums<U>(p, part.number, tile, first_output, lane, sums, [&](u32 i, u32 k) { return i * 8 + warp * 2 + row_of_sums(lane, k); });
}

// The numbers are those of `TILES` in `ops/conv/choice.rs`; `blocks`: as many as a multiprocessor is to have registers for.
#define WARPGROUP_CONV(tile, matrices, voxels, blocks, name, H, result, U)                                                                       \
    extern "C" __global__ void __launch_bounds__(BLOCK, blocks) warpgroup_conv_##tile##_##name##_##result(const __grid_constant__ TensorConv p) { \
        warpgroup_conv<matrices, voxels, H, U>(p);                                                                                               \
    }
#define WARPGROUP_CONVS(name, H, result, U)                 \
    WARPGROUP_CONV(256x64, 4, 636, 3, name, H, result, U)   \
    WARPGROUP_CONV(128x64, 2, 636, 4, name, H, result, U)   \
    WARPGROUP_CONV(64x64, 1, 636, 4, name, H, result, U)
#define WARPGROUP_KERNELS(name, H)                                                                     \
    KERNEL(warpgroup_pack_##name, TensorPack) { tensor_pack<H, MatrixWord>(p); }                       \
    WARPGROUP_CONVS(name, H, name, H)                                                                  \
    WARPGROUP_CONVS(name, H, f32, float)
WARPGROUP_KERNELS(bf16, Bf16)
WARPGROUP_KERNELS(f16, F16)
