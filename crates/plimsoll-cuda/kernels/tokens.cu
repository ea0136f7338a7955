// Tokens: the channels of a voxel, one behind the other. Their normalisation, blocks of voxels that become one token, and tokens that become blocks.
#include "place.cuh"

struct TokenNorm {
    const void* g;         // of the gradient; else null
    const void* x;
    const float* scale;    // none: null
    const float* shift;
    void* z;
    float* numbers;        // of the gradient, for each token: mean, 1 / deviation, and the means of the scaled g and of it times x̂
    u32 tokens;
    u32 channels;
    float epsilon;
    u32 unused;
};

// The mean of a token and the reciprocal of its deviation: a lane has every 32nd channel.
template <class T>
__device__ inline void token_moments(const TokenNorm& p, const T* x, u32 lane, float* mean, float* deviation) {
    float sum = 0.0f, squares = 0.0f;
    for (u32 c = lane; c < p.channels; c += 32) sum += load(x, c);
    *mean = warp_sum(sum) / (float)p.channels;
    for (u32 c = lane; c < p.channels; c += 32) {
        const float distance = load(x, c) - *mean;
        squares = fmaf(distance, distance, squares);
    }
    *deviation = 1.0f / sqrtf(warp_sum(squares) / (float)p.channels + p.epsilon);
}

// A warp for each token.
template <class T>
__device__ inline void token_norm(const TokenNorm& p) {
    const u32 token = element() / 32, lane = threadIdx.x % 32;
    if (token >= p.tokens) return;
    const T* x = (const T*)p.x + token * p.channels;
    float mean, deviation;
    token_moments(p, x, lane, &mean, &deviation);
    for (u32 c = lane; c < p.channels; c += 32) {
        const float standard = (load(x, c) - mean) * deviation;
        store((T*)p.z, token * p.channels + c, p.scale ? fmaf(standard, p.scale[c], p.shift[c]) : standard);
    }
}
BY_STORAGE(token_norm, TokenNorm)

// A warp for each token: what its gradient, and those of scale and shift, are made of.
template <class T>
__device__ inline void token_norm_numbers(const TokenNorm& p) {
    const u32 token = element() / 32, lane = threadIdx.x % 32;
    if (token >= p.tokens) return;
    const T* x = (const T*)p.x + token * p.channels;
    const T* gradient = (const T*)p.g + token * p.channels;
    float mean, deviation;
    token_moments(p, x, lane, &mean, &deviation);
    float sum = 0.0f, products = 0.0f;
    for (u32 c = lane; c < p.channels; c += 32) {
        const float g = load(gradient, c) * (p.scale ? p.scale[c] : 1.0f);
        sum += g;
        products = fmaf(g, (load(x, c) - mean) * deviation, products);
    }
    sum = warp_sum(sum) / (float)p.channels;
    products = warp_sum(products) / (float)p.channels;
    if (lane == 0) {
        p.numbers[4 * token] = mean;
        p.numbers[4 * token + 1] = deviation;
        p.numbers[4 * token + 2] = sum;
        p.numbers[4 * token + 3] = products;
    }
}
BY_STORAGE(token_norm_numbers, TokenNorm)

template <class T>
__device__ inline void token_norm_grad(const TokenNorm& p) {
    const u32 i = element();
    if (i >= p.tokens * p.channels) return;
    const float* numbers = p.numbers + 4 * (i / p.channels);
    const float standard = (load((const T*)p.x, i) - numbers[0]) * numbers[1];
    const float g = load((const T*)p.g, i) * (p.scale ? p.scale[i % p.channels] : 1.0f);
    store((T*)p.z, i, numbers[1] * (g - fmaf(standard, numbers[3], numbers[2])));
}
BY_STORAGE(token_norm_grad, TokenNorm)

struct TokenNormParts {
    const void* g;
    const void* x;
    const float* numbers;
    float* scales;    // [part][channel]: the sums of g times x̂
    float* shifts;    // of g
    u32 tokens;
    u32 channels;
    u32 length;       // tokens of a part
    u32 count;        // parts times channels
};

// A thread for each part of the tokens and channel, the channels side by side.
template <class T>
__device__ inline void token_norm_parts(const TokenNormParts& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels, first = i / p.channels * p.length, end = min(first + p.length, p.tokens);
    float scale = 0.0f, shift = 0.0f;
    for (u32 run = first; run < end; run += RUN) {
        float products = 0.0f, sum = 0.0f;
        for (u32 token = run; token < min(run + RUN, end); token++) {
            const u32 place = token * p.channels + channel;
            const float g = load((const T*)p.g, place);
            const float standard = (load((const T*)p.x, place) - p.numbers[4 * token]) * p.numbers[4 * token + 1];
            products = fmaf(g, standard, products);
            sum += g;
        }
        scale += products;
        shift += sum;
    }
    p.scales[i] = scale;
    p.shifts[i] = shift;
}
BY_STORAGE(token_norm_parts, TokenNormParts)

#define MOST_OFFSETS 64

struct SpaceToDepth {
    const void* from;
    void* to;
    u32 fine[3];
    u32 coarse[3];
    u32 block[3];
    u32 channels;    // of the fine side
    u32 offsets_count;
    u32 count;       // elements of the result
    u32 offsets[MOST_OFFSETS][3];
};

// A thread for each element of the coarse side.
template <class T>
__device__ inline void space_to_depth(const SpaceToDepth& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 across = i % (p.channels * p.offsets_count), channel = across % p.channels;
    const u32* offset = p.offsets[across / p.channels];
    const Place at(i / (p.channels * p.offsets_count), p.coarse);
    const u32 d = at.d * p.block[0] + offset[0], h = at.h * p.block[1] + offset[1], w = at.w * p.block[2] + offset[2];
    float value = 0.0f;
    if (d < p.fine[0] && h < p.fine[1] && w < p.fine[2]) {
        value = load((const T*)p.from, voxel(at.sample, d, h, w, p.fine) * p.channels + channel);
    }
    store((T*)p.to, i, value);
}
BY_STORAGE(space_to_depth, SpaceToDepth)

// A thread for each element of the fine side.
template <class T>
__device__ inline void space_to_depth_grad(const SpaceToDepth& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, p.fine);
    const u32 d = at.d / p.block[0], h = at.h / p.block[1], w = at.w / p.block[2];
    const u32 place = voxel(at.sample, d, h, w, p.coarse) * p.offsets_count;
    float sum = 0.0f;
    for (u32 k = 0; k < p.offsets_count; k++) {
        const u32* offset = p.offsets[k];
        if (offset[0] != at.d - d * p.block[0] || offset[1] != at.h - h * p.block[1]) continue;
        if (offset[2] == at.w - w * p.block[2]) sum += load((const T*)p.from, (place + k) * p.channels + channel);
    }
    store((T*)p.to, i, sum);
}
BY_STORAGE(space_to_depth_grad, SpaceToDepth)

struct DepthToSpace {
    const void* from;
    const float* shift;    // of the gradient: null
    void* to;
    u32 fine[3];
    u32 coarse[3];
    u32 block[3];
    u32 channels;          // of the fine side
    u32 count;             // elements of the result
    u32 unused;
};

// A thread for each element of the fine side.
template <class T>
__device__ inline void depth_to_space(const DepthToSpace& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels, voxels = p.block[0] * p.block[1] * p.block[2];
    const Place at(i / p.channels, p.fine);
    const u32 d = at.d / p.block[0], h = at.h / p.block[1], w = at.w / p.block[2];
    const u32 part = voxel(0, at.d - d * p.block[0], at.h - h * p.block[1], at.w - w * p.block[2], p.block);
    const u32 place = (voxel(at.sample, d, h, w, p.coarse) * p.channels + channel) * voxels + part;
    store((T*)p.to, i, load((const T*)p.from, place) + p.shift[channel]);
}
BY_STORAGE(depth_to_space, DepthToSpace)

// A thread for each element of the coarse side.
template <class T>
__device__ inline void depth_to_space_grad(const DepthToSpace& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 voxels = p.block[0] * p.block[1] * p.block[2], part = i % voxels, channel = i / voxels % p.channels;
    const Place at(i / voxels / p.channels, p.coarse), within(part, p.block);
    const u32 d = at.d * p.block[0] + within.d, h = at.h * p.block[1] + within.h, w = at.w * p.block[2] + within.w;
    store((T*)p.to, i, load((const T*)p.from, voxel(at.sample, d, h, w, p.fine) * p.channels + channel));
}
BY_STORAGE(depth_to_space_grad, DepthToSpace)
