// Ops of single elements: one thread for each element of the result.
#include "common.cuh"

struct Pointwise {
    const void* a;
    const void* b;
    void* y;
    u32 count;
    float slope;
};

template <class T>
__device__ inline void add(const Pointwise& p) {
    const u32 i = element();
    if (i >= p.count) return;
    store((T*)p.y, i, load((const T*)p.a, i) + load((const T*)p.b, i));
}
BY_STORAGE(add, Pointwise)

template <class T>
__device__ inline void leaky_relu(const Pointwise& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const float x = load((const T*)p.a, i);
    store((T*)p.y, i, x > 0.0f ? x : p.slope * x);
}
BY_STORAGE(leaky_relu, Pointwise)

template <class T>
__device__ inline void leaky_relu_grad(const Pointwise& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const float dz = load((const T*)p.a, i);
    store((T*)p.y, i, load((const T*)p.b, i) > 0.0f ? dz : p.slope * dz);
}
BY_STORAGE(leaky_relu_grad, Pointwise)

template <class T>
__device__ inline void sigmoid(const Pointwise& p) {
    const u32 i = element();
    if (i < p.count) store((T*)p.y, i, 1.0f / (1.0f + expf(-load((const T*)p.a, i))));
}
BY_STORAGE(sigmoid, Pointwise)

template <class T>
__device__ inline void sigmoid_grad(const Pointwise& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const float s = load((const T*)p.b, i);
    store((T*)p.y, i, load((const T*)p.a, i) * s * (1.0f - s));
}
BY_STORAGE(sigmoid_grad, Pointwise)

struct Fill {
    float* y;
    u32 count;
    float value;
};

KERNEL(fill, Fill) {
    const u32 i = element();
    if (i < p.count) p.y[i] = p.value;
}

// Of tables: as many as ops take at once.
#define MOST_TABLES 32

struct WeightedSum {
    const float* x[MOST_TABLES];
    float weights[MOST_TABLES];
    float* y;
    u32 tables;
    u32 count;
};

KERNEL(weighted_sum, WeightedSum) {
    const u32 i = element();
    if (i >= p.count) return;
    double sum = 0.0;
    for (u32 table = 0; table < p.tables; table++) sum += (double)p.weights[table] * (double)p.x[table][i];
    p.y[i] = (float)sum;
}

struct Join {
    const float* x[MOST_TABLES];
    u32 counts[MOST_TABLES];
    float* y;
    u32 tables;
    u32 count;
};

KERNEL(join, Join) {
    const u32 i = element();
    if (i >= p.count) return;
    u32 table = 0, place = i;
    while (place >= p.counts[table]) {
        place -= p.counts[table];
        table++;
    }
    p.y[i] = p.x[table][place];
}

struct Dropout {
    const void* x;
    const float* noise;
    void* y;
    u32 count;
    u32 channels;
    u32 voxels;
    u32 threshold;
    u32 layer;
    u32 whole_channels;
    float scale;
    u32 unused;
};

// Philox4x32-10 of one counter (Salmon et al. 2011); one of its four words.
__device__ inline u32 philox(u32 counter0, u32 counter1, u32 counter2, u32 counter3, u64 key, u32 word) {
    u32 key0 = (u32)key, key1 = (u32)(key >> 32);
    for (u32 round = 0; round < 10; round++) {
        const u64 product = (u64)counter0 * 0xD2511F53u, other = (u64)counter2 * 0xCD9E8D57u;
        counter0 = (u32)(other >> 32) ^ counter1 ^ key0;
        counter2 = (u32)(product >> 32) ^ counter3 ^ key1;
        counter1 = (u32)other;
        counter3 = (u32)product;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    const u32 low = word & 1u ? counter1 : counter0, high = word & 1u ? counter3 : counter2;
    return word & 2u ? high : low;
}

// The key of a table of noise, in four parts of 16 bits.
__device__ inline u64 key_of(const float* noise) {
    u64 key = 0;
    for (u32 part = 0; part < 4; part++) key |= (u64)(u32)noise[part] << (16 * part);
    return key;
}

template <class T>
__device__ inline void dropout(const Dropout& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels, voxel = i / p.channels % p.voxels, sample = i / p.channels / p.voxels;
    const u32 counter = p.whole_channels ? 0u : voxel;
    const u32 random = philox(counter, channel / 4, (u32)p.noise[4] + sample, p.layer, key_of(p.noise), channel % 4);
    store((T*)p.y, i, load((const T*)p.x, i) * (random < p.threshold ? 0.0f : p.scale));
}
BY_STORAGE(dropout, Dropout)

// Whole samples are dropped or kept.
template <class T>
__device__ inline void sample_drop(const Dropout& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 sample = i / p.channels / p.voxels;
    const u32 random = philox(0u, 0u, (u32)p.noise[4] + sample, p.layer, key_of(p.noise), 0u);
    store((T*)p.y, i, load((const T*)p.x, i) * (random < p.threshold ? 0.0f : p.scale));
}
BY_STORAGE(sample_drop, Dropout)

struct DownsampleLabels {
    const u8* x;
    u8* y;
    u32 from[3];
    u32 to[3];
    u32 count;
    u32 unused;
};

__device__ inline u32 nearest(u32 place, u32 to, u32 from) {
    const u32 source = (u32)((u64)(2 * place + 1) * from / (2 * to));
    return source < from ? source : from - 1;
}

KERNEL(downsample_labels, DownsampleLabels) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 w = i % p.to[2], h = i / p.to[2] % p.to[1], rest = i / p.to[2] / p.to[1];
    const u32 d = rest % p.to[0], sample = rest / p.to[0];
    const u32 z = nearest(d, p.to[0], p.from[0]), y = nearest(h, p.to[1], p.from[1]), x = nearest(w, p.to[2], p.from[2]);
    p.y[i] = p.x[((sample * p.from[0] + z) * p.from[1] + y) * p.from[2] + x];
}

// The logits (0, x) of two classes, and the way back; `count` voxels.
KERNEL(zero_class, Pointwise) {
    const u32 i = element();
    if (i >= p.count) return;
    ((float*)p.y)[2 * i] = 0.0f;
    ((float*)p.y)[2 * i + 1] = ((const float*)p.a)[i];
}

KERNEL(zero_class_grad, Pointwise) {
    const u32 i = element();
    if (i >= p.count) return;
    ((float*)p.y)[i] = ((const float*)p.a)[2 * i + 1];
}
