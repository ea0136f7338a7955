// Neighbouring elements that a thread loads and stores at once, 16 bytes of them: the most that an instruction moves.
//
// Tensors begin at multiples of 256 bytes, so that packs of one that is dense are aligned.
#pragma once
#include "common.cuh"

template <class T>
struct Pack;

template <>
struct Pack<float> {
    static const u32 SIZE = 4;
    __device__ static inline void load(const float* x, float* values) {
        const float4 four = *(const float4*)x;
        values[0] = four.x;
        values[1] = four.y;
        values[2] = four.z;
        values[3] = four.w;
    }
    __device__ static inline void store(float* x, const float* values) {
        *(float4*)x = make_float4(values[0], values[1], values[2], values[3]);
    }
};

// Of numbers of 16 bits, two of them in a word.
template <class H>
struct PackOfPairs {
    static const u32 SIZE = 8;
    __device__ static inline void load(const H* x, float* values) {
        const uint4 pairs = *(const uint4*)x;
        const u32 words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
#pragma unroll
        for (u32 k = 0; k < 4; k++) numbers_of(x, words[k], values[2 * k], values[2 * k + 1]);
    }
    __device__ static inline void store(H* x, const float* values) {
        u32 words[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) words[k] = rounded_bits(x, values[2 * k]) | rounded_bits(x, values[2 * k + 1]) << 16;
        *(uint4*)x = make_uint4(words[0], words[1], words[2], words[3]);
    }
};

template <>
struct Pack<Bf16> : PackOfPairs<Bf16> {};

template <>
struct Pack<F16> : PackOfPairs<F16> {};

// A pack of the elements from one on, of `count`; beyond the last they are zero, and not stored.
template <class T>
__device__ inline void load_pack(const void* x, u32 first, u32 count, float* values) {
    if (first + Pack<T>::SIZE <= count) {
        Pack<T>::load((const T*)x + first, values);
    } else {
#pragma unroll
        for (u32 k = 0; k < Pack<T>::SIZE; k++) values[k] = first + k < count ? load((const T*)x, first + k) : 0.0f;
    }
}

template <class T>
__device__ inline void store_pack(void* x, u32 first, u32 count, const float* values) {
    if (first + Pack<T>::SIZE <= count) {
        Pack<T>::store((T*)x + first, values);
    } else {
#pragma unroll
        for (u32 k = 0; k < Pack<T>::SIZE; k++) {
            if (first + k < count) store((T*)x, first + k, values[k]);
        }
    }
}

// As many numbers as there is room for, a multiple of four, from a place that is one as well.
template <u32 N>
__device__ inline void load_numbers(const float* x, float (&values)[N]) {
#pragma unroll
    for (u32 k = 0; k < N; k += 4) Pack<float>::load(x + k, values + k);
}

// The first element of this thread, where each has a pack.
template <class T>
__device__ inline u32 first_of_pack() {
    return element() * Pack<T>::SIZE;
}
