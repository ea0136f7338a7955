// Attention of all voxels to each other, with rotary positions (Su et al. 2021, arXiv:2104.09864), and its gradient.
//
// The matrix of probabilities is never stored (Dao et al. 2022, arXiv:2205.14135): a block has TOKENS queries, or keys, of a head, and
// goes through the others in tiles. Tiles lie in shared memory with the tokens of a channel side by side, so that all products read four tokens at
// once.
#include "rotary.cuh"

// Tokens of a tile, and from one channel of it to the next: a multiple of four whose rows begin in other banks.
#define TOKENS 32u
#define PITCH 36u
#define MOST_BANDS 16u
// Threads that share a token's channels of a sum, tokens that each has, and channels of each.
#define LANES 16u
#define ROWS 4u
#define SLOTS (MOST_HEAD_CHANNELS / LANES)

struct RotaryAngles {
    float* angles;                  // [places along each axis, one axis behind the other][band]: cosine and sine
    double half_turns[MOST_BANDS];  // angles from one place to the next, in units of pi
    u32 extent[3];
    u32 bands;
    u32 count;
    u32 unused;
};

// A thread for each place and band.
KERNEL(rotary_angles, RotaryAngles) {
    const u32 i = element();
    if (i >= p.count) return;
    u32 place = i / p.bands;
    if (place >= p.extent[0]) place -= place >= p.extent[0] + p.extent[1] ? p.extent[0] + p.extent[1] : p.extent[0];
    double half_turns = (double)place * p.half_turns[i % p.bands];
    half_turns -= 2.0 * rint(0.5 * half_turns);
    sincospif((float)half_turns, &p.angles[2 * i + 1], &p.angles[2 * i]);
}

// Channels of TOKENS tokens.
typedef float Tile[MOST_HEAD_CHANNELS][PITCH];
typedef float Weights[TOKENS][PITCH];

// What a block is about.
struct Part {
    u32 first, head, sample;
    __device__ Part(const Rotary& p) {
        const u32 tiles = (p.voxels + TOKENS - 1) / TOKENS;
        first = blockIdx.x % tiles * TOKENS;
        head = blockIdx.x / tiles % p.heads;
        sample = blockIdx.x / tiles / p.heads;
    }
    // Of a token: its channels in a volume, and its number in a table of all heads.
    __device__ inline u32 channels_of(const Rotary& p, u32 token) const {
        return ((sample * p.voxels + token) * p.heads + head) * p.head_channels;
    }
    __device__ inline u32 row_of(const Rotary& p, u32 token) const {
        return (sample * p.heads + head) * p.voxels + token;
    }
};

// Copies TOKENS tokens from one on to a tile, times a factor; beyond the last they are zero. Waits until all threads have read the tile, and until all
// have written it.
template <class T, bool TURNED>
__device__ inline void stage(const Rotary& p, const Part& part, const void* from, u32 first, float factor, Tile& tile) {
    const u32 column = threadIdx.x % TOKENS, token = first + column;
    const bool is_token = token < p.voxels;
    const Turns turns(p, token);
    const u32 place = part.channels_of(p, token);
    __syncthreads();
    for (u32 pair = threadIdx.x / TOKENS; pair < p.head_channels / 2; pair += BLOCK / TOKENS) {
        float a = 0.0f, b = 0.0f;
        if (is_token) {
            const float x = load((const T*)from, place + 2 * pair), y = load((const T*)from, place + 2 * pair + 1);
            a = x;
            b = y;
            if (TURNED) {
                const float* angle = turns.of(p, pair);
                a = x * angle[0] - y * angle[1];
                b = y * angle[0] + x * angle[1];
            }
        }
        tile[2 * pair][column] = factor * a;
        tile[2 * pair + 1][column] = factor * b;
    }
    __syncthreads();
}

// The products of two tokens of a tile with four of another: eight neighbouring threads have the same two.
struct Products {
    float of[2][4];
    u32 rows, columns;
    __device__ inline Products() : rows(threadIdx.x / 8 * 2), columns(threadIdx.x % 8 * 4) {}
    __device__ inline void multiply(const Tile& a, const Tile& b, u32 channels) {
#pragma unroll
        for (u32 i = 0; i < 8; i++) of[i / 4][i % 4] = 0.0f;
        for (u32 first = 0; first < channels; first += 2) {
#pragma unroll
            for (u32 c = first; c < first + 2; c++) {
                const float2 x = *(const float2*)&a[c][rows];
                const float4 y = *(const float4*)&b[c][columns];
                of[0][0] = fmaf(x.x, y.x, of[0][0]);
                of[0][1] = fmaf(x.x, y.y, of[0][1]);
                of[0][2] = fmaf(x.x, y.z, of[0][2]);
                of[0][3] = fmaf(x.x, y.w, of[0][3]);
                of[1][0] = fmaf(x.y, y.x, of[1][0]);
                of[1][1] = fmaf(x.y, y.y, of[1][1]);
                of[1][2] = fmaf(x.y, y.z, of[1][2]);
                of[1][3] = fmaf(x.y, y.w, of[1][3]);
            }
        }
    }
    __device__ inline void write(Weights& weights) const {
#pragma unroll
        for (u32 row = 0; row < 2; row++) {
            *(float4*)&weights[rows + row][columns] = make_float4(of[row][0], of[row][1], of[row][2], of[row][3]);
        }
    }
};

// The sum and the maximum over the eight threads that have the same rows of products.
__device__ inline float row_sum(float value) {
#pragma unroll
    for (u32 distance = 4; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

__device__ inline float row_max(float value) {
#pragma unroll
    for (u32 distance = 4; distance > 0; distance /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

// Sums over the tokens of tiles, times their weights: ROWS rows of weights, and every LANES-th channel.
struct Sums {
    float of[ROWS][SLOTS];
    u32 rows, lane;
    __device__ inline Sums() : rows(threadIdx.x / LANES * ROWS), lane(threadIdx.x % LANES) {
#pragma unroll
        for (u32 i = 0; i < ROWS * SLOTS; i++) of[i / SLOTS][i % SLOTS] = 0.0f;
    }
    __device__ inline void add(const Weights& weights, const Tile& tile, u32 channels) {
        for (u32 k = 0; k < TOKENS; k += 4) {
            float4 weight[ROWS];
#pragma unroll
            for (u32 row = 0; row < ROWS; row++) weight[row] = *(const float4*)&weights[rows + row][k];
#pragma unroll
            for (u32 slot = 0; slot < SLOTS; slot++) {
                if (slot * LANES >= channels) break;
                const float4 x = *(const float4*)&tile[min(slot * LANES + lane, channels - 1)][k];
#pragma unroll
                for (u32 row = 0; row < ROWS; row++) {
                    const float4 w = weight[row];
                    of[row][slot] = fmaf(w.x, x.x, fmaf(w.y, x.y, fmaf(w.z, x.z, fmaf(w.w, x.w, of[row][slot]))));
                }
            }
        }
    }
    // Writes them to a volume, times a factor of each row. TURNED turns them back.
    template <class T, bool TURNED>
    __device__ inline void write(const Rotary& p, const Part& part, void* to, const float (&factors)[ROWS]) const {
#pragma unroll
        for (u32 row = 0; row < ROWS; row++) {
            const u32 token = part.first + rows + row;
            const Turns turns(p, token);
            const u32 place = part.channels_of(p, token);
            // The other channel of a pair is the neighbouring thread's. All threads exchange them, also those without a token.
            float others[SLOTS];
#pragma unroll
            for (u32 slot = 0; slot < SLOTS; slot++) {
                others[slot] = TURNED ? factors[row] * __shfl_xor_sync(0xffffffffu, of[row][slot], 1) : 0.0f;
            }
#pragma unroll
            for (u32 slot = 0; slot < SLOTS; slot++) {
                const u32 channel = slot * LANES + lane;
                if (token >= p.voxels || channel >= p.head_channels) break;
                float value = factors[row] * of[row][slot];
                if (TURNED) {
                    const float* angle = turns.of(p, channel / 2);
                    value = value * angle[0] + (channel % 2 == 0 ? others[slot] : -others[slot]) * angle[1];
                }
                store((T*)to, place + channel, value);
            }
            // The exchange of the next row is everyone's again.
            __syncwarp();
        }
    }
};

template <class T>
__device__ inline void rotary_attention(const Rotary& p) {
    __shared__ __align__(16) Tile queries;
    __shared__ __align__(16) Tile others;
    __shared__ __align__(16) Weights weights;
    __shared__ float factors[TOKENS];
    const Part part(p);
    stage<T, true>(p, part, p.queries, part.first, p.scale, queries);
    float top[2], sum[2] = {0.0f, 0.0f};
    top[0] = top[1] = __uint_as_float(0xff800000u);
    Products logits;
    Sums result;
    for (u32 first = 0; first < p.voxels; first += TOKENS) {
        stage<T, true>(p, part, p.keys, first, 1.0f, others);
        logits.multiply(queries, others, p.head_channels);
#pragma unroll
        for (u32 row = 0; row < 2; row++) {
            float next = top[row], all = 0.0f;
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                if (first + logits.columns + k >= p.voxels) logits.of[row][k] = __uint_as_float(0xff800000u);
                next = fmaxf(next, logits.of[row][k]);
            }
            next = row_max(next);
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                logits.of[row][k] = expf(logits.of[row][k] - next);
                all += logits.of[row][k];
            }
            const float factor = expf(top[row] - next);
            sum[row] = fmaf(sum[row], factor, row_sum(all));
            top[row] = next;
            if (threadIdx.x % 8 == 0) factors[logits.rows + row] = factor;
        }
        logits.write(weights);
        stage<T, false>(p, part, p.values, first, 1.0f, others);
#pragma unroll
        for (u32 row = 0; row < ROWS; row++) {
            const float factor = factors[result.rows + row];
#pragma unroll
            for (u32 slot = 0; slot < SLOTS; slot++) result.of[row][slot] *= factor;
        }
        result.add(weights, others, p.head_channels);
    }
    __syncthreads();
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        const u32 query = part.first + logits.rows + row;
        if (threadIdx.x % 8 != 0) continue;
        factors[logits.rows + row] = 1.0f / sum[row];
        if (query < p.voxels) p.logs[part.row_of(p, query)] = top[row] + logf(sum[row]);
    }
    __syncthreads();
    float of_rows[ROWS];
#pragma unroll
    for (u32 row = 0; row < ROWS; row++) of_rows[row] = factors[result.rows + row];
    result.write<T, false>(p, part, p.result, of_rows);
}
BY_STORAGE(rotary_attention, Rotary)

// The gradient of queries, and what keys need of it.
template <class T>
__device__ inline void rotary_query_grad(const Rotary& p) {
    __shared__ __align__(16) Tile queries;
    __shared__ __align__(16) Tile upstream;
    __shared__ __align__(16) Tile others;
    __shared__ __align__(16) Weights weights;
    const Part part(p);
    stage<T, true>(p, part, p.queries, part.first, p.scale, queries);
    stage<T, false>(p, part, p.upstream, part.first, 1.0f, upstream);
    Products logits, slopes;
    Sums result;
    float logs[2], deltas[2] = {0.0f, 0.0f};
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        const u32 query = part.first + logits.rows + row;
        logs[row] = query < p.voxels ? p.logs[part.row_of(p, query)] : 0.0f;
    }
    for (u32 first = 0; first < p.voxels; first += TOKENS) {
        stage<T, true>(p, part, p.keys, first, 1.0f, others);
        logits.multiply(queries, others, p.head_channels);
        stage<T, false>(p, part, p.values, first, 1.0f, others);
        slopes.multiply(upstream, others, p.head_channels);
#pragma unroll
        for (u32 row = 0; row < 2; row++) {
            float sum = 0.0f;
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                if (first + logits.columns + k < p.voxels) sum = fmaf(expf(logits.of[row][k] - logs[row]), slopes.of[row][k], sum);
            }
            deltas[row] += sum;
        }
    }
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        deltas[row] = row_sum(deltas[row]);
        const u32 query = part.first + logits.rows + row;
        if (threadIdx.x % 8 == 0 && query < p.voxels) p.deltas[part.row_of(p, query)] = deltas[row];
    }
    for (u32 first = 0; first < p.voxels; first += TOKENS) {
        stage<T, false>(p, part, p.values, first, 1.0f, others);
        slopes.multiply(upstream, others, p.head_channels);
        stage<T, true>(p, part, p.keys, first, 1.0f, others);
        logits.multiply(queries, others, p.head_channels);
#pragma unroll
        for (u32 row = 0; row < 2; row++) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                const float slope = expf(logits.of[row][k] - logs[row]) * (slopes.of[row][k] - deltas[row]);
                logits.of[row][k] = first + logits.columns + k < p.voxels ? slope : 0.0f;
            }
        }
        logits.write(weights);
        __syncthreads();
        result.add(weights, others, p.head_channels);
    }
    const float scales[ROWS] = {p.scale, p.scale, p.scale, p.scale};
    result.write<T, true>(p, part, p.result, scales);
}
BY_STORAGE(rotary_query_grad, Rotary)

// The gradients of keys and values: a block has keys, and goes through the queries.
template <class T>
__device__ inline void rotary_key_grad(const Rotary& p) {
    __shared__ __align__(16) Tile keys;
    __shared__ __align__(16) Tile values;
    __shared__ __align__(16) Tile others;
    __shared__ __align__(16) Weights weights;
    const Part part(p);
    stage<T, true>(p, part, p.keys, part.first, 1.0f, keys);
    stage<T, false>(p, part, p.values, part.first, 1.0f, values);
    Products probabilities, slopes;
    Sums of_keys, of_values;
    for (u32 first = 0; first < p.voxels; first += TOKENS) {
        float deltas[4];
        stage<T, true>(p, part, p.queries, first, p.scale, others);
        probabilities.multiply(keys, others, p.head_channels);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 query = first + probabilities.columns + k;
            const bool is_query = query < p.voxels;
            const float log = is_query ? p.logs[part.row_of(p, query)] : 0.0f;
            deltas[k] = is_query ? p.deltas[part.row_of(p, query)] : 0.0f;
#pragma unroll
            for (u32 row = 0; row < 2; row++) {
                probabilities.of[row][k] = is_query ? expf(probabilities.of[row][k] - log) : 0.0f;
            }
        }
        probabilities.write(weights);
        stage<T, false>(p, part, p.upstream, first, 1.0f, others);
        slopes.multiply(values, others, p.head_channels);
        of_values.add(weights, others, p.head_channels);
        stage<T, true>(p, part, p.queries, first, p.scale, others);
#pragma unroll
        for (u32 row = 0; row < 2; row++) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) slopes.of[row][k] = probabilities.of[row][k] * (slopes.of[row][k] - deltas[k]);
        }
        slopes.write(weights);
        __syncthreads();
        of_keys.add(weights, others, p.head_channels);
    }
    const float ones[ROWS] = {1.0f, 1.0f, 1.0f, 1.0f};
    of_keys.write<T, true>(p, part, p.result, ones);
    of_values.write<T, false>(p, part, p.of_values, ones);
}
BY_STORAGE(rotary_key_grad, Rotary)
