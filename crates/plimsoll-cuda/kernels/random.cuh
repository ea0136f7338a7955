// Random numbers that follow from counters alone.
#pragma once
#include "common.cuh"

// The four words of Philox4x32-10 for one counter (Salmon et al. 2011).
__device__ inline uint4 philox(u32 counter0, u32 counter1, u32 counter2, u32 counter3, u64 key) {
    u32 key0 = (u32)key, key1 = (u32)(key >> 32);
#pragma unroll 1
    for (u32 round = 0; round < 10; round++) {
        const u64 product = (u64)counter0 * 0xD2511F53u, other = (u64)counter2 * 0xCD9E8D57u;
        counter0 = (u32)(other >> 32) ^ counter1 ^ key0;
        counter2 = (u32)(product >> 32) ^ counter3 ^ key1;
        counter1 = (u32)other;
        counter3 = (u32)product;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return make_uint4(counter0, counter1, counter2, counter3);
}

// One of the four.
__device__ inline u32 word_of(uint4 words, u32 word) {
    const u32 low = word & 1u ? words.y : words.x, high = word & 1u ? words.w : words.z;
    return word & 2u ? high : low;
}

// The key of a table of noise, in four parts of 16 bits.
__device__ inline u64 key_of(const float* noise) {
    u64 key = 0;
    for (u32 part = 0; part < 4; part++) key |= (u64)(u32)noise[part] << (16 * part);
    return key;
}
