// Attention of all voxels to each other with rotary positions: its parameters, and where channels are turned to.
#pragma once
#include "common.cuh"

#define MOST_HEAD_CHANNELS 96u

struct Rotary {
    const void* queries;    // [sample][voxel][head][channel], as all volumes here
    const void* keys;
    const void* values;
    const void* upstream;   // of the gradient: that of the result
    const float* angles;
    float* logs;            // [sample][head][voxel]: logarithms of the sums of exponentials
    float* deltas;          // of the gradient, like them: sums of probabilities times their gradients
    void* result;           // the result, or the gradient of queries or of keys
    void* of_values;        // the gradient of values
    void* packed;           // for tensor cores: [queries, keys, values, upstream][sample][head][voxel][channel], in the type of the volumes
    u32 heads;
    u32 head_channels;
    u32 voxels;             // of a sample
    u32 bands;
    u32 extent[3];
    float scale;
    u32 chunks;             // of sixteen channels, of a packed head: zeros fill the last one up
    u32 samples;
};

// The place of a token in the tables of angles, along an axis.
struct Turns {
    u32 place[3];
    __device__ Turns(const Rotary& p, u32 token) {
        place[0] = token / (p.extent[1] * p.extent[2]);
        place[1] = p.extent[0] + token / p.extent[2] % p.extent[1];
        place[2] = p.extent[0] + p.extent[1] + token % p.extent[2];
    }
    // The cosine and the sine of a pair of channels.
    __device__ inline const float* of(const Rotary& p, u32 pair) const {
        const u32 axis = pair / p.bands, row = axis == 0 ? place[0] : axis == 1 ? place[1] : place[2];
        return p.angles + 2 * (row * p.bands + pair - axis * p.bands);
    }
};
