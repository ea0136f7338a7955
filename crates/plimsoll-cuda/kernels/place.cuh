// Voxels by their coordinates and by their number over all samples.
#pragma once
#include "common.cuh"

struct Place {
    u32 sample, d, h, w;
    __device__ Place(u32 i, const u32* extent) {
        w = i % extent[2];
        h = i / extent[2] % extent[1];
        const u32 rest = i / extent[2] / extent[1];
        d = rest % extent[0];
        sample = rest / extent[0];
    }
};

__device__ inline u32 voxel(u32 sample, u32 d, u32 h, u32 w, const u32* extent) {
    return ((sample * extent[0] + d) * extent[1] + h) * extent[2] + w;
}
