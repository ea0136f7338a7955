// Sums over many elements: parts into scratch, then the parts in order. No atomics: the same bits always.
#include "columns.cuh"

struct ChannelSum {
    const void* x;
    float* parts;
    u32 voxels;    // of all samples
    u32 channels;
    u32 length;    // voxels of a part
    u32 count;     // parts times channels
};

// A thread for each part and channel, the channels side by side.
template <class T>
__device__ inline void channel_sum(const ChannelSum& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels, first = i / p.channels * p.length;
    const u32 end = min(first + p.length, p.voxels);
    float total = 0.0f;
    for (u32 run = first; run < end; run += RUN) {
        float sum = 0.0f;
        for (u32 voxel = run; voxel < min(run + RUN, end); voxel++) sum += load((const T*)p.x, voxel * p.channels + channel);
        total += sum;
    }
    p.parts[i] = total;
}
BY_STORAGE(channel_sum, ChannelSum)

// The same by a block for each part, where packs fill the channels of a voxel.
template <class T>
__device__ inline void channel_sum_packs(const ChannelSum& p) {
    typedef Columns<T> Own;
    const Own columns(p.channels);
    const u32 first = blockIdx.x * p.length, end = min(first + p.length, p.voxels);
    float sums[1][Own::SIZE] = {};
    columns.for_each_voxel(first, end, [&](u32 voxel) {
        float values[Own::SIZE];
        Pack<T>::load((const T*)p.x + (voxel * p.channels + columns.channel), values);
#pragma unroll
        for (u32 k = 0; k < Own::SIZE; k++) sums[0][k] += values[k];
    });
    columns.sum(sums, [&](u32 channel, const float (&all)[1]) { p.parts[blockIdx.x * p.channels + channel] = all[0]; });
}
BY_STORAGE(channel_sum_packs, ChannelSum)

struct SumParts {
    const float* parts;    // [parts][count]
    void* y;
    u32 count;
    u32 parts_count;
};

// A thread for each sum: for few parts.
template <class T>
__device__ inline void add_parts(const SumParts& p) {
    const u32 i = element();
    if (i >= p.count) return;
    double sum = 0.0;
    for (u32 part = 0; part < p.parts_count; part++) sum += (double)p.parts[part * p.count + i];
    store((T*)p.y, i, (float)sum);
}
KERNEL(sum_few_parts, SumParts) { add_parts<float>(p); }
KERNEL(sum_few_parts_bf16, SumParts) { add_parts<Bf16>(p); }
KERNEL(sum_few_parts_f16, SumParts) { add_parts<F16>(p); }

// A block for each sum of a sample, `blockIdx.y`: for many parts, [samples][parts][count].
KERNEL(sum_many_parts, SumParts) {
    const float* parts = p.parts + (u64)blockIdx.y * p.parts_count * p.count;
    double sum = 0.0;
    for (u32 part = threadIdx.x; part < p.parts_count; part += BLOCK) sum += (double)parts[part * p.count + blockIdx.x];
    sum = block_sum(sum);
    if (threadIdx.x == 0) ((float*)p.y)[blockIdx.y * p.count + blockIdx.x] = (float)sum;
}

// Elements whose squares a block sums.
#define SQUARES 4096u

struct Squares {
    const float* x;
    double* parts;
    u32 count;
    u32 unused;
};

KERNEL(squares, Squares) {
    const u32 first = blockIdx.x * SQUARES, end = min(first + SQUARES, p.count);
    double sum = 0.0;
    for (u32 i = first + threadIdx.x; i < end; i += BLOCK) sum += (double)p.x[i] * (double)p.x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) p.parts[blockIdx.x] = sum;
}

struct GradNorm {
    const double* parts;
    const float* loss;    // none: null
    float* y;
    u32 count;
    u32 unused;
};

KERNEL(grad_norm, GradNorm) {
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < p.count; i += BLOCK) sum += p.parts[i];
    sum = block_sum(sum);
    if (threadIdx.x != 0) return;
    float norm = (float)sqrt(sum);
    // More than f32 holds; a NaN is not.
    if (sum > 3.4028234663852886e38) norm = __uint_as_float(0x7f800000u);
    if (p.loss && !is_finite(p.loss[0])) norm = __uint_as_float(0x7fc00000u);
    p.y[0] = norm;
}
