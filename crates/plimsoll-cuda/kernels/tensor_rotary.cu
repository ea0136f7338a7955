// Attention of all voxels to each other, with rotary positions, and its gradient: products on tensor cores, from Turing on.
//
// Channels are turned and rounded once, by `tensor_rotary_pack`, and lie in scratch as the products take them. A warp has sixteen rows of a product: queries,
// or keys where sums go over queries. A block goes through the others in tiles, [chunk of sixteen channels][token][channel] in shared memory. Probabilities and
// their slopes go from sums of one product to rows of the next without leaving a lane, rounded to the type of the volumes.
#include "rotary.cuh"
#include "tensor_fragments.cuh"

#if !VOLTA
#define MOST_CHUNKS (MOST_HEAD_CHANNELS / 16)
// Bytes and pieces of sixteen channels of a token.
#define CHUNK_BYTES 32u
#define CHUNK_PIECES 2u
// Tokens of a block, sixteen for each warp; of a tile of keys, and of one of queries.
#define BLOCK_TOKENS (BLOCK / 32 * 16)
#define TILE_KEYS 32u
#define TILE_QUERIES 16u
#define TILE_PIECES(tokens) ((tokens) * CHUNK_PIECES * MOST_CHUNKS)

// What is packed.
#define PACKED_QUERIES 0u
#define PACKED_KEYS 1u
#define PACKED_VALUES 2u
#define PACKED_UPSTREAM 3u

// A thread for each piece of 16 bytes, and a row of blocks for each of the volumes. Queries are multiplied by the scale.
template <class H>
__device__ __forceinline__ void tensor_rotary_pack(const Rotary& p) {
    const u32 pieces = CHUNK_PIECES * p.chunks, rows = p.samples * p.heads * p.voxels, i = element(), volume = blockIdx.y;
    if (i >= rows * pieces) return;
    const u32 first = i % pieces * 4, row = i / pieces;
    const u32 token = row % p.voxels, head = row / p.voxels % p.heads, sample = row / p.voxels / p.heads;
    const void* volumes = volume == PACKED_QUERIES ? p.queries : volume == PACKED_KEYS ? p.keys : volume == PACKED_VALUES ? p.values : p.upstream;
    const u32* from = (const u32*)volumes + ((sample * p.voxels + token) * p.heads + head) * (p.head_channels / 2);
    const Turns turns(p, token);
    const float factor = volume == PACKED_QUERIES ? p.scale : 1.0f;
    u32 words[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        const u32 pair = first + k;
        words[k] = 0;
        if (pair >= p.head_channels / 2) continue;
        words[k] = from[pair];
        if (volume > PACKED_KEYS) continue;
        float x, y;
        numbers_of((const H*)nullptr, words[k], x, y);
        const float* angle = turns.of(p, pair);
        words[k] = pair_of((const H*)nullptr, factor * (x * angle[0] - y * angle[1]), factor * (y * angle[0] + x * angle[1]));
    }
    ((uint4*)p.packed)[(u64)volume * rows * pieces + i] = make_uint4(words[0], words[1], words[2], words[3]);
}

// What a block is about, and where its lanes are.
struct RotaryBlock {
    u32 first, head, sample;
    u32 lane, row;     // row: the first of the sixteen of a warp, of the block's
    // Where a lane reads pieces of sixteen tokens: rows of a product, columns of one, and columns of one whose sums go over tokens.
    u32 rows, columns, sums;

    __device__ __forceinline__ RotaryBlock(const Rotary& p) {
        const u32 tiles = (p.voxels + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
        first = blockIdx.x % tiles * BLOCK_TOKENS;
        head = blockIdx.x / tiles % p.heads;
        sample = blockIdx.x / tiles / p.heads;
        lane = threadIdx.x % 32;
        row = threadIdx.x / 32 * 16;
        rows = swizzled_32(lane % 16 * CHUNK_BYTES + lane / 16 * 16);
        columns = swizzled_32((lane % 8 + lane / 16 * 8) * CHUNK_BYTES + lane / 8 % 2 * 16);
        sums = rows;
    }

    // The token of a row that a lane has sums of, the first or the second.
    __device__ __forceinline__ u32 token(u32 second) const {
        return first + row + lane / 4 + 8 * second;
    }

    // Its number in a table of all heads.
    __device__ __forceinline__ u32 number(const Rotary& p, u32 token) const {
        return (sample * p.heads + head) * p.voxels + token;
    }

    // Copies some tokens of a packed volume to shared memory; those beyond the last one are zero.
    template <u32 TOKENS>
    __device__ __forceinline__ void stage(const Rotary& p, u32 volume, u32 from, u32 to) const {
        const u32 pieces = CHUNK_PIECES * p.chunks;
        const u64 before = (u64)((volume * p.samples + sample) * p.heads + head) * p.voxels * pieces;
        const uint4* packed = (const uint4*)p.packed + before;
        for (u32 i = threadIdx.x; i < TOKENS * pieces; i += BLOCK) {
            const u32 token = from + i / CHUNK_PIECES % TOKENS, piece = i / (CHUNK_PIECES * TOKENS) * CHUNK_PIECES + i % CHUNK_PIECES;
            const bool there = token < p.voxels;
            copy_piece(to + swizzled_32(i * 16), packed + (there ? token * pieces + piece : 0), there);
        }
    }

    // Adds products of sixteen rows, sixteen channels of each of which a lane has, by sixteen tokens of a tile.
    template <class H>
    __device__ __forceinline__ void multiply_tokens(float (*to)[4], const u32* a, u32 tile) const {
        u32 b[4];
        load_matrices(b, tile + columns);
        multiply((const H*)nullptr, to[0], a, b[0], b[1]);
        multiply((const H*)nullptr, to[1], a, b[2], b[3]);
    }

    // Adds weights of sixteen tokens times their sixteen channels.
    template <class H>
    __device__ __forceinline__ void add_tokens(float (*to)[4], const u32* weights, u32 tile) const {
        u32 b[4];
        load_transposed(b, tile + sums);
        multiply((const H*)nullptr, to[0], weights, b[0], b[1]);
        multiply((const H*)nullptr, to[1], weights, b[2], b[3]);
    }

    // Writes sums of all channels, times a factor of each row, to a volume. TURNED turns them back.
    template <class H, bool TURNED>
    __device__ __forceinline__ void write(const Rotary& p, void* to, const float (*of)[4], const float (&factors)[2]) const {
#pragma unroll
        for (u32 second = 0; second < 2; second++) {
            const u32 at = token(second);
            if (at >= p.voxels) continue;
            const Turns turns(p, at);
            u32* words = (u32*)to + ((sample * p.voxels + at) * p.heads + head) * (p.head_channels / 2);
#pragma unroll
            for (u32 eight = 0; eight < 2 * MOST_CHUNKS; eight++) {
                const u32 pair = eight * 4 + lane % 4;
                if (pair >= p.head_channels / 2) break;
                const float x = factors[second] * of[eight][2 * second], y = factors[second] * of[eight][2 * second + 1];
                float a = x, b = y;
                if (TURNED) {
                    const float* angle = turns.of(p, pair);
                    a = x * angle[0] + y * angle[1];
                    b = y * angle[0] - x * angle[1];
                }
                words[pair] = pair_of((const H*)nullptr, a, b);
            }
        }
    }
};

template <u32 N>
__device__ __forceinline__ void clear_sums(float (&sums)[N][4]) {
#pragma unroll
    for (u32 i = 0; i < 4 * N; i++) sums[i / 4][i % 4] = 0.0f;
}

// Sixteen columns of sums as rows of the next product.
template <class H>
__device__ __forceinline__ void rows_of_sums(u32* a, const float (*sums)[4]) {
#pragma unroll
    for (u32 k = 0; k < 4; k++) a[k] = pair_of((const H*)nullptr, sums[k / 2][k % 2 * 2], sums[k / 2][k % 2 * 2 + 1]);
}

// The sum and the maximum over the four lanes that have the same rows.
__device__ __forceinline__ float row_sum(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 2);
    return value + __shfl_xor_sync(0xffffffffu, value, 1);
}

__device__ __forceinline__ float row_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
}

// Tiles of two volumes in shared memory, one pair after the other: where the card can copy in the background, the next pair is staged while one is multiplied.
template <u32 TOKENS, u32 A, u32 B>
struct TilePairs {
    static constexpr u32 BYTES = TILE_PIECES(TOKENS) * 16;
    u32 at, stage;

    // After all threads have read what lies there.
    __device__ __forceinline__ TilePairs(const Rotary& p, const RotaryBlock& block, u32 at) : at(at), stage(0) {
        __syncthreads();
        if (STAGES == 2) copy(p, block, 0);
    }

    __device__ __forceinline__ void copy(const Rotary& p, const RotaryBlock& block, u32 first) const {
        block.stage<TOKENS>(p, A, first, at + stage * 2 * BYTES);
        block.stage<TOKENS>(p, B, first, at + stage * 2 * BYTES + BYTES);
        commit_copies();
    }

    // Waits for the pair that begins at a token, and returns where the first of the two lies.
    __device__ __forceinline__ u32 next(const Rotary& p, const RotaryBlock& block, u32 first) {
        if (STAGES == 1) {
            __syncthreads();
            copy(p, block, first);
        }
        await_copies();
        __syncthreads();
        const u32 ready = at + stage * 2 * BYTES;
        if (STAGES == 2) {
            stage ^= 1;
            if (first + TOKENS < p.voxels) copy(p, block, first + TOKENS);
        }
        return ready;
    }
};

// Rows of a block's tokens, of all channels.
struct RotaryRows {
    u32 of[MOST_CHUNKS][4];

    // They are staged for that in BLOCK_TOKENS tokens of shared memory.
    __device__ __forceinline__ RotaryRows(const Rotary& p, const RotaryBlock& block, u32 volume, u32 at) {
        __syncthreads();
        block.stage<BLOCK_TOKENS>(p, volume, block.first, at);
        commit_copies();
        await_copies();
        __syncthreads();
#pragma unroll
        for (u32 chunk = 0; chunk < MOST_CHUNKS; chunk++) {
            if (chunk >= p.chunks) break;
            load_matrices(of[chunk], at + (chunk * BLOCK_TOKENS + block.row) * CHUNK_BYTES + block.rows);
        }
    }

    template <class H>
    __device__ __forceinline__ void multiply(const Rotary& p, const RotaryBlock& block, float (*to)[4], u32 tile) const {
#pragma unroll
        for (u32 chunk = 0; chunk < MOST_CHUNKS; chunk++) {
            if (chunk >= p.chunks) break;
#pragma unroll
            for (u32 half = 0; half < TILE_KEYS / 16; half++) {
                block.multiply_tokens<H>(to + 2 * half, of[chunk], tile + (chunk * TILE_KEYS + half * 16) * CHUNK_BYTES);
            }
        }
    }
};

// Adds weights of a tile of keys times their channels.
template <class H>
__device__ __forceinline__ void add_keys(const Rotary& p, const RotaryBlock& block, float (*to)[4], const float (*weights)[4], u32 tile) {
    u32 a[TILE_KEYS / 16][4];
#pragma unroll
    for (u32 half = 0; half < TILE_KEYS / 16; half++) rows_of_sums<H>(a[half], weights + 2 * half);
#pragma unroll
    for (u32 chunk = 0; chunk < MOST_CHUNKS; chunk++) {
        if (chunk >= p.chunks) break;
#pragma unroll
        for (u32 half = 0; half < TILE_KEYS / 16; half++) {
            block.add_tokens<H>(to + 2 * chunk, a[half], tile + (chunk * TILE_KEYS + half * 16) * CHUNK_BYTES);
        }
    }
}

// Sets sums of keys beyond the last one.
__device__ __forceinline__ void fill_beyond(const Rotary& p, const RotaryBlock& block, float (*sums)[4], u32 first, float value) {
    if (first + TILE_KEYS <= p.voxels) return;
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 2; i++) {
        if (first + i / 4 * 8 + block.lane % 4 * 2 + i % 2 >= p.voxels) sums[i / 4][i % 4] = value;
    }
}

template <class H>
__device__ __forceinline__ void tensor_rotary_attention(const Rotary& p) {
    __shared__ __align__(128) uint4 tiles[STAGES * 2 * TILE_PIECES(TILE_KEYS)];
    const RotaryBlock block(p);
    const u32 at = shared_address(tiles);
    const RotaryRows queries(p, block, PACKED_QUERIES, at);
    float top[2], sum[2] = {0.0f, 0.0f}, result[2 * MOST_CHUNKS][4];
    top[0] = top[1] = __uint_as_float(0xff800000u);
    clear_sums(result);
    TilePairs<TILE_KEYS, PACKED_KEYS, PACKED_VALUES> pairs(p, block, at);
    for (u32 first = 0; first < p.voxels; first += TILE_KEYS) {
        const u32 keys = pairs.next(p, block, first);
        float logits[TILE_KEYS / 8][4];
        clear_sums(logits);
        queries.multiply<H>(p, block, logits, keys);
        fill_beyond(p, block, logits, first, __uint_as_float(0xff800000u));
#pragma unroll
        for (u32 second = 0; second < 2; second++) {
            float next = top[second], all = 0.0f;
#pragma unroll
            for (u32 i = 0; i < TILE_KEYS / 4; i++) next = fmaxf(next, logits[i / 2][2 * second + i % 2]);
            next = row_max(next);
#pragma unroll
            for (u32 i = 0; i < TILE_KEYS / 4; i++) {
                float& logit = logits[i / 2][2 * second + i % 2];
                logit = __expf(logit - next);
                all += logit;
            }
            const float factor = __expf(top[second] - next);
            sum[second] = fmaf(sum[second], factor, all);
            top[second] = next;
#pragma unroll
            for (u32 i = 0; i < 4 * MOST_CHUNKS; i++) result[i / 2][2 * second + i % 2] *= factor;
        }
        add_keys<H>(p, block, result, logits, keys + pairs.BYTES);
    }
    float factors[2];
#pragma unroll
    for (u32 second = 0; second < 2; second++) {
        const float all = row_sum(sum[second]);
        const u32 query = block.token(second);
        factors[second] = 1.0f / all;
        if (block.lane % 4 == 0 && query < p.voxels) p.logs[block.number(p, query)] = top[second] + logf(all);
    }
    block.write<H, false>(p, p.result, result, factors);
}

// The gradient of queries, and what keys need of it: first the sums of probabilities times their gradients.
template <class H>
__device__ __forceinline__ void tensor_rotary_query_grad(const Rotary& p) {
    __shared__ __align__(128) uint4 tiles[STAGES * 2 * TILE_PIECES(TILE_KEYS)];
    const RotaryBlock block(p);
    const u32 at = shared_address(tiles);
    const RotaryRows queries(p, block, PACKED_QUERIES, at), upstream(p, block, PACKED_UPSTREAM, at);
    float logs[2], deltas[2] = {0.0f, 0.0f}, result[2 * MOST_CHUNKS][4];
#pragma unroll
    for (u32 second = 0; second < 2; second++) {
        const u32 query = block.token(second);
        logs[second] = query < p.voxels ? p.logs[block.number(p, query)] : 0.0f;
    }
    clear_sums(result);
#pragma unroll 1
    for (u32 pass = 0; pass < 2; pass++) {
        TilePairs<TILE_KEYS, PACKED_KEYS, PACKED_VALUES> pairs(p, block, at);
        float sums[2] = {0.0f, 0.0f};
        for (u32 first = 0; first < p.voxels; first += TILE_KEYS) {
            const u32 keys = pairs.next(p, block, first);
            float weights[TILE_KEYS / 8][4], slopes[TILE_KEYS / 8][4];
            clear_sums(weights);
            clear_sums(slopes);
            queries.multiply<H>(p, block, weights, keys);
            upstream.multiply<H>(p, block, slopes, keys + pairs.BYTES);
            fill_beyond(p, block, weights, first, __uint_as_float(0xff800000u));
#pragma unroll
            for (u32 i = 0; i < TILE_KEYS / 2; i++) {
                const u32 second = i / 2 % 2;
                float& weight = weights[i / 4][i % 4];
                weight = __expf(weight - logs[second]) * (slopes[i / 4][i % 4] - deltas[second]);
                sums[second] += weight;
            }
            if (pass == 1) add_keys<H>(p, block, result, weights, keys);
        }
        if (pass == 1) break;
#pragma unroll
        for (u32 second = 0; second < 2; second++) {
            deltas[second] = row_sum(sums[second]);
            const u32 query = block.token(second);
            if (block.lane % 4 == 0 && query < p.voxels) p.deltas[block.number(p, query)] = deltas[second];
        }
    }
    const float scales[2] = {p.scale, p.scale};
    block.write<H, true>(p, p.result, result, scales);
}

// The gradients of keys and values: a block has keys, and goes through the queries.
template <class H>
__device__ __forceinline__ void tensor_rotary_key_grad(const Rotary& p) {
    __shared__ __align__(128) uint4 tiles[2 * TILE_PIECES(BLOCK_TOKENS) + STAGES * 2 * TILE_PIECES(TILE_QUERIES)];
    const RotaryBlock block(p);
    const u32 keys = shared_address(tiles), values = keys + TILE_PIECES(BLOCK_TOKENS) * 16;
    block.stage<BLOCK_TOKENS>(p, PACKED_KEYS, block.first, keys);
    block.stage<BLOCK_TOKENS>(p, PACKED_VALUES, block.first, values);
    commit_copies();
    float of_keys[2 * MOST_CHUNKS][4], of_values[2 * MOST_CHUNKS][4];
    clear_sums(of_keys);
    clear_sums(of_values);
    TilePairs<TILE_QUERIES, PACKED_QUERIES, PACKED_UPSTREAM> pairs(p, block, values + TILE_PIECES(BLOCK_TOKENS) * 16);
    for (u32 first = 0; first < p.voxels; first += TILE_QUERIES) {
        const u32 queries = pairs.next(p, block, first), upstream = queries + pairs.BYTES;
        float weights[2][4], slopes[2][4];
        clear_sums(weights);
        clear_sums(slopes);
#pragma unroll
        for (u32 chunk = 0; chunk < MOST_CHUNKS; chunk++) {
            if (chunk >= p.chunks) break;
            const u32 row = (chunk * BLOCK_TOKENS + block.row) * CHUNK_BYTES + block.rows, tile = chunk * TILE_QUERIES * CHUNK_BYTES;
            u32 a[4];
            load_matrices(a, keys + row);
            block.multiply_tokens<H>(weights, a, queries + tile);
            load_matrices(a, values + row);
            block.multiply_tokens<H>(slopes, a, upstream + tile);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 query = first + i / 2 * 8 + block.lane % 4 * 2 + i % 2;
            const bool is_query = query < p.voxels;
            const float log = is_query ? p.logs[block.number(p, query)] : 0.0f, delta = is_query ? p.deltas[block.number(p, query)] : 0.0f;
#pragma unroll
            for (u32 second = 0; second < 2; second++) {
                float& weight = weights[i / 2][2 * second + i % 2];
                float& slope = slopes[i / 2][2 * second + i % 2];
                weight = __expf(weight - log);
                slope = weight * (slope - delta);
            }
        }
        u32 probabilities[4], gradients[4];
        rows_of_sums<H>(probabilities, weights);
        rows_of_sums<H>(gradients, slopes);
#pragma unroll
        for (u32 chunk = 0; chunk < MOST_CHUNKS; chunk++) {
            if (chunk >= p.chunks) break;
            const u32 tile = chunk * TILE_QUERIES * CHUNK_BYTES;
            block.add_tokens<H>(of_values + 2 * chunk, probabilities, upstream + tile);
            block.add_tokens<H>(of_keys + 2 * chunk, gradients, queries + tile);
        }
    }
    const float ones[2] = {1.0f, 1.0f};
    block.write<H, true>(p, p.result, of_keys, ones);
    block.write<H, false>(p, p.of_values, of_values, ones);
}

// As BY_MULTIPLIED, without tf32. Registers for three blocks of a multiprocessor, where there is shared memory for as many.
#define ROTARY_KERNEL(name, H) \
    extern "C" __global__ void __launch_bounds__(BLOCK, STAGES + 1) name(const __grid_constant__ Rotary p)
#define ROTARY_KERNELS(storage, H)                                                        \
    KERNEL(tensor_rotary_pack_##storage, Rotary) { tensor_rotary_pack<H>(p); }            \
    ROTARY_KERNEL(tensor_rotary_attention_##storage, H) { tensor_rotary_attention<H>(p); } \
    ROTARY_KERNEL(tensor_rotary_query_grad_##storage, H) { tensor_rotary_query_grad<H>(p); } \
    ROTARY_KERNEL(tensor_rotary_key_grad_##storage, H) { tensor_rotary_key_grad<H>(p); }

ROTARY_KERNELS(f16, F16)
#if AMPERE
ROTARY_KERNELS(bf16, Bf16)
#endif
#endif
