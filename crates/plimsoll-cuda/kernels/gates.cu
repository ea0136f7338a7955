// Features times learned or computed factors: for each channel, for each voxel, or for each element, and learned vectors that are added to them.
#include "pack.cuh"

// Features, and a number or a vector for each of `period` elements in turn.
struct Scaled {
    const void* x;
    const float* factors;
    void* y;
    u32 period;    // 1: one factor for all
    u32 count;
};

template <class T>
__device__ inline void channel_scale(const Scaled& p) {
    const u32 first = first_of_pack<T>();
    if (first >= p.count) return;
    float x[Pack<T>::SIZE];
    load_pack<T>(p.x, first, p.count, x);
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) x[k] *= p.factors[(first + k) % p.period];
    store_pack<T>(p.y, first, p.count, x);
}
BY_STORAGE(channel_scale, Scaled)

template <class T>
__device__ inline void add_positions(const Scaled& p) {
    const u32 first = first_of_pack<T>();
    if (first >= p.count) return;
    float x[Pack<T>::SIZE];
    load_pack<T>(p.x, first, p.count, x);
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) x[k] += p.factors[(first + k) % p.period];
    store_pack<T>(p.y, first, p.count, x);
}
BY_STORAGE(add_positions, Scaled)

// A thread for each of `period` elements: their sum over samples.
template <class T>
__device__ inline void add_positions_grad(const Scaled& p) {
    const u32 i = element();
    if (i >= p.period) return;
    float sum = 0.0f;
    for (u32 place = i; place < p.count; place += p.period) sum += load((const T*)p.x, place);
    ((float*)p.y)[i] = sum;
}
BY_STORAGE(add_positions_grad, Scaled)

// A leaky ReLU whose slope is in memory.
struct Prelu {
    const void* dz;        // of the gradient; else null
    const void* x;
    const float* slope;
    void* y;
    u32 count;
    u32 length;            // elements whose products a block sums
};

template <class T>
__device__ inline void prelu(const Prelu& p) {
    const u32 first = first_of_pack<T>();
    if (first >= p.count) return;
    const float slope = p.slope[0];
    float x[Pack<T>::SIZE];
    load_pack<T>(p.x, first, p.count, x);
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) x[k] = x[k] > 0.0f ? x[k] : slope * x[k];
    store_pack<T>(p.y, first, p.count, x);
}
BY_STORAGE(prelu, Prelu)

template <class T>
__device__ inline void prelu_grad(const Prelu& p) {
    const u32 first = first_of_pack<T>();
    if (first >= p.count) return;
    const float slope = p.slope[0];
    float dz[Pack<T>::SIZE], x[Pack<T>::SIZE];
    load_pack<T>(p.dz, first, p.count, dz);
    load_pack<T>(p.x, first, p.count, x);
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) dz[k] = x[k] > 0.0f ? dz[k] : slope * dz[k];
    store_pack<T>(p.y, first, p.count, dz);
}
BY_STORAGE(prelu_grad, Prelu)

// A block for each part of the elements: the sum of dz times x where x is below zero.
template <class T>
__device__ inline void prelu_slope_parts(const Prelu& p) {
    const u32 first = blockIdx.x * p.length, end = min(first + p.length, p.count);
    double sum = 0.0;
    for (u32 i = first + threadIdx.x; i < end; i += BLOCK) {
        sum += (double)(load((const T*)p.dz, i) * fminf(load((const T*)p.x, i), 0.0f));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) ((float*)p.y)[blockIdx.x] = (float)sum;
}
BY_STORAGE(prelu_slope_parts, Prelu)

// Features, and a factor for each voxel.
struct VoxelGate {
    const void* x;
    const void* other;    // the factors; of the gradient, the features
    void* y;
    u32 channels;
    u32 count;
};

template <class T>
__device__ inline void voxel_gate(const VoxelGate& p) {
    const u32 i = element();
    if (i >= p.count) return;
    store((T*)p.y, i, load((const T*)p.x, i) * load((const T*)p.other, i / p.channels));
}
BY_STORAGE(voxel_gate, VoxelGate)

// A warp for each of `count` voxels, whose lanes have every 32nd channel.
template <class T>
__device__ inline void voxel_gate_grad(const VoxelGate& p) {
    const u32 voxel = element() / 32, lane = threadIdx.x % 32;
    if (voxel >= p.count) return;
    float sum = 0.0f;
    for (u32 c = lane; c < p.channels; c += 32) {
        const u32 i = voxel * p.channels + c;
        sum = fmaf(load((const T*)p.x, i), load((const T*)p.other, i), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) store((T*)p.y, voxel, sum);
}
BY_STORAGE(voxel_gate_grad, VoxelGate)

struct SwiGlu {
    const void* dz;        // of the gradient; else null
    const void* gate;
    const void* values;
    void* y;               // the result, or the gradient of the gate
    void* of_values;       // the gradient of the values
    u32 count;
    u32 unused;
};

template <class T>
__device__ inline void swiglu(const SwiGlu& p) {
    const u32 first = first_of_pack<T>();
    if (first >= p.count) return;
    float gate[Pack<T>::SIZE], values[Pack<T>::SIZE];
    load_pack<T>(p.gate, first, p.count, gate);
    load_pack<T>(p.values, first, p.count, values);
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) values[k] *= gate[k] / (1.0f + expf(-gate[k]));
    store_pack<T>(p.y, first, p.count, values);
}
BY_STORAGE(swiglu, SwiGlu)

template <class T>
__device__ inline void swiglu_grad(const SwiGlu& p) {
    const u32 first = first_of_pack<T>();
    if (first >= p.count) return;
    float dz[Pack<T>::SIZE], gate[Pack<T>::SIZE], values[Pack<T>::SIZE];
    load_pack<T>(p.dz, first, p.count, dz);
    load_pack<T>(p.gate, first, p.count, gate);
    load_pack<T>(p.values, first, p.count, values);
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) {
        const float share = 1.0f / (1.0f + expf(-gate[k]));
        values[k] *= dz[k] * share * fmaf(gate[k], 1.0f - share, 1.0f);
        dz[k] *= gate[k] * share;
    }
    store_pack<T>(p.y, first, p.count, values);
    store_pack<T>(p.of_values, first, p.count, dz);
}
BY_STORAGE(swiglu_grad, SwiGlu)
