// Sums over the voxels of a part of a volume, channel by channel, by a block: each thread loads packs of some channels, 16 bytes, of every voxel of its
// group. So neighbouring threads read neighbouring memory, and each has several loads under way.
#pragma once
#include "pack.cuh"

template <class T>
struct Columns {
    static const u32 SIZE = Pack<T>::SIZE;
    u32 packs;      // of a voxel, at most as many as threads
    u32 groups;     // of threads: each has every `groups`-th voxel
    u32 group;      // of this thread; none if it is not below `groups`
    u32 channel;    // the first of this thread

    __device__ inline Columns(u32 channels)
        : packs(channels / SIZE), groups(BLOCK / packs), group(threadIdx.x / packs), channel(threadIdx.x % packs * SIZE) {}

    // Calls `add` for each voxel of this thread from `first` to `end`.
    template <class F>
    __device__ inline void for_each_voxel(u32 first, u32 end, F add) const {
        if (group >= groups) return;
#pragma unroll 4
        for (u32 voxel = first + group; voxel < end; voxel += groups) add(voxel);
    }

    // Adds up what the threads of a channel have, in their order, and calls `store` with each channel and its sums. All threads must call it, once in
    // a kernel.
    template <u32 SUMS, class F>
    __device__ inline void sum(const float (&own)[SUMS][SIZE], F store) const {
        // Rows are four banks apart, so that threads of neighbouring channels read different ones.
        __shared__ float of_threads[SUMS * SIZE][BLOCK + 4];
#pragma unroll
        for (u32 n = 0; n < SUMS; n++) {
#pragma unroll
            for (u32 k = 0; k < SIZE; k++) of_threads[n * SIZE + k][threadIdx.x] = own[n][k];
        }
        __syncthreads();
#pragma unroll 1
        for (u32 c = threadIdx.x; c < packs * SIZE; c += BLOCK) {
            float sums[SUMS] = {};
#pragma unroll 1
            for (u32 g = 0; g < groups; g++) {
#pragma unroll
                for (u32 n = 0; n < SUMS; n++) sums[n] += of_threads[n * SIZE + c % SIZE][g * packs + c / SIZE];
            }
            store(c, sums);
        }
    }
};
