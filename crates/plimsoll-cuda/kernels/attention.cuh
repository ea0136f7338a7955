// What attention of tokens within shifted windows (Liu et al. 2021, arXiv:2103.14030) and its gradient share.
//
// The matrix of a window is never stored: what needs its rows makes them again, keys (or queries) in tiles of KEY_TILE, from queries, keys
// and the logarithms of the rows' sums of exponentials. Neighbouring threads have neighbouring queries of one window, so they read
// the same key at the same time. A thread makes CHANNEL_CHUNK channels of a result.
#pragma once
#include "random.cuh"

#define KEY_TILE 8u
#define CHANNEL_CHUNK 16u

// Voxels of a token of the padding begin here.
#define PADDING_TOKENS 0x80000000u
#define OTHER_REGION -100.0f

// A token of a window.
struct WindowToken {
    u32 voxel;        // in the grid of a sample; of the padding, PADDING_TOKENS + its number
    u32 position;     // its relative position's code and, in the lowest five bits, its region
};

struct Attention {
    const void* qkv;              // [sample][voxel][3 * channels]
    const float* table;           // [row][head]
    const float* bias;            // [3 * channels], what tokens of the padding have; none: null
    const float* noise;           // none: null
    const WindowToken* tokens;
    const void* upstream;         // of the gradient: [sample][voxel][channels]
    float* logs;                  // [sample][head][voxel]
    float* deltas;                // of the gradient, like the logarithms
    void* result;
    float* padding;               // of the gradient: [sample][padding][2 * channels], what keys and values of the padding get
    u32 heads;
    u32 head_channels;
    u32 windows;
    u32 window_tokens;
    u32 voxels;                   // of a sample
    u32 paddings;                 // tokens of the padding of a sample
    u32 chunks;                   // of a head's channels; 1 where a thread has all of them
    u32 count;                    // threads
    u32 centre;
    u32 layer;
    u32 threshold;
    float kept_scale;
    float scale;
    u32 unused;
};

// What a thread is about: a token of a window, for a head of a sample, and which channels.
struct Subject {
    const WindowToken* tokens;
    u32 token, chunk, window, head, sample;
    __device__ Subject(const Attention& p, u32 i) {
        token = i % p.window_tokens;
        i /= p.window_tokens;
        chunk = i % p.chunks;
        i /= p.chunks;
        window = i % p.windows;
        head = i / p.windows % p.heads;
        sample = i / p.windows / p.heads;
        tokens = p.tokens + window * p.window_tokens;
    }
};

enum { QUERY, KEY, VALUE };

// The channels of a head of a token's query, key or value: in the volume, or for the padding in the bias.
template <class T>
struct TokenVector {
    const T* stored;
    const float* padding;
    __device__ inline float at(u32 c) const {
        return stored ? load(stored, c) : padding ? padding[c] : 0.0f;
    }
    // Adds CHANNEL_CHUNK channels times a weight to some sums; channels beyond the last are as that.
    __device__ inline void add(float weight, u32 first, u32 last, float* sums) const {
        if (stored) {
#pragma unroll
            for (u32 c = 0; c < CHANNEL_CHUNK; c++) sums[c] = fmaf(weight, load(stored, min(first + c, last)), sums[c]);
        } else if (padding) {
#pragma unroll
            for (u32 c = 0; c < CHANNEL_CHUNK; c++) sums[c] = fmaf(weight, padding[min(first + c, last)], sums[c]);
        }
    }
};

template <class T>
__device__ inline TokenVector<T> vector_of(const Attention& p, const Subject& s, const WindowToken& token, u32 part) {
    const u32 channels = p.heads * p.head_channels, first = part * channels + s.head * p.head_channels;
    TokenVector<T> vector = {0, p.bias ? p.bias + first : 0};
    if (token.voxel < PADDING_TOKENS) vector.stored = (const T*)p.qkv + ((s.sample * p.voxels + token.voxel) * 3 * channels + first);
    return vector;
}

// The products of a vector with those of a tile, read once for all of them.
template <class T>
__device__ inline void products(const TokenVector<T>& own, const TokenVector<T>* tile, u32 channels, float* sums) {
#pragma unroll
    for (u32 k = 0; k < KEY_TILE; k++) sums[k] = 0.0f;
#pragma unroll 1
    for (u32 c = 0; c < channels; c++) {
        const float value = own.at(c);
#pragma unroll
        for (u32 k = 0; k < KEY_TILE; k++) sums[k] = fmaf(value, tile[k].at(c), sums[k]);
    }
}

// The logit of a query and a key whose product is known.
__device__ inline float logit(const Attention& p, const Subject& s, const WindowToken& query, const WindowToken& key, float product) {
    const u32 row = (query.position >> 5) + p.centre - (key.position >> 5);
    const float bias = p.table[row * p.heads + s.head];
    return fmaf(p.scale, product, (query.position & 31u) == (key.position & 31u) ? bias : bias + OTHER_REGION);
}

// Where the numbers of a query are in the table of logarithms.
__device__ inline u32 row_of(const Attention& p, const Subject& s, const WindowToken& query) {
    return (s.sample * p.heads + s.head) * p.voxels + query.voxel;
}

// The random numbers of four keys and a query.
__device__ inline uint4 random_of(const Attention& p, const Subject& s, u32 query, u32 group) {
    const u32 row = query * ((p.window_tokens + 3) / 4) + group;
    return philox(row, s.head * p.windows + s.window, (u32)p.noise[4] + s.sample, p.layer, key_of(p.noise));
}

__device__ inline float factor_of(const Attention& p, uint4 random, u32 key) {
    return word_of(random, key % 4) < p.threshold ? 0.0f : p.kept_scale;
}

// What dropout multiplies the probabilities of a query and a tile of keys with.
__device__ inline void factors_of(const Attention& p, const Subject& s, u32 query, u32 first, float* factors) {
#pragma unroll
    for (u32 k = 0; k < KEY_TILE; k++) factors[k] = 1.0f;
    if (!p.noise) return;
#pragma unroll
    for (u32 group = 0; group < KEY_TILE / 4; group++) {
        const uint4 random = random_of(p, s, query, first / 4 + group);
#pragma unroll
        for (u32 k = 0; k < 4; k++) factors[4 * group + k] = factor_of(p, random, k);
    }
}

// A token of a tile; beyond the last of the window, that.
__device__ inline WindowToken token_of(const Attention& p, const Subject& s, u32 token) {
    return s.tokens[min(token, p.window_tokens - 1)];
}

template <class T>
__device__ inline void vectors_of(const Attention& p, const Subject& s, u32 first, u32 part, TokenVector<T>* vectors) {
#pragma unroll
    for (u32 k = 0; k < KEY_TILE; k++) vectors[k] = vector_of<T>(p, s, token_of(p, s, first + k), part);
}

// The logits of a query and a tile of keys; beyond the last key, below all others.
template <class T>
__device__ inline void logits_of(const Attention& p, const Subject& s, const WindowToken& query, u32 first, float* logits) {
    TokenVector<T> keys[KEY_TILE];
    vectors_of(p, s, first, KEY, keys);
    products(vector_of<T>(p, s, query, QUERY), keys, p.head_channels, logits);
#pragma unroll
    for (u32 k = 0; k < KEY_TILE; k++) {
        const bool is_key = first + k < p.window_tokens;
        logits[k] = is_key ? logit(p, s, query, token_of(p, s, first + k), logits[k]) : __uint_as_float(0xff800000u);
    }
}

// Adds the sum of a part of the tokens of a tile, times their weights, to CHANNEL_CHUNK channels of a result.
template <class T>
__device__ inline void add_tile(const Attention& p, const Subject& s, u32 first, u32 part, const float* weights, float* result) {
    float sums[CHANNEL_CHUNK];
#pragma unroll
    for (u32 c = 0; c < CHANNEL_CHUNK; c++) sums[c] = 0.0f;
#pragma unroll 1
    for (u32 k = 0; k < KEY_TILE; k++) {
        const TokenVector<T> vector = vector_of<T>(p, s, token_of(p, s, first + k), part);
        vector.add(weights[k], s.chunk * CHANNEL_CHUNK, p.head_channels - 1, sums);
    }
#pragma unroll
    for (u32 c = 0; c < CHANNEL_CHUNK; c++) result[c] += sums[c];
}
