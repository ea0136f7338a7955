// Ops of single elements: one thread for each element of the result, or for a pack of them.
#include "pack.cuh"
#include "random.cuh"

struct Pointwise {
    const void* a;
    const void* b;
    void* y;
    u32 count;
    float slope;
};

// A function of each element of a.
template <class T, class F>
__device__ inline void of_one(const Pointwise& p, F function) {
    const u32 first = first_of_pack<T>();
    if (first >= p.count) return;
    float a[Pack<T>::SIZE];
    load_pack<T>(p.a, first, p.count, a);
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) a[k] = function(a[k]);
    store_pack<T>(p.y, first, p.count, a);
}

// A function of each element of a and that of b.
template <class T, class F>
__device__ inline void of_two(const Pointwise& p, F function) {
    const u32 first = first_of_pack<T>();
    if (first >= p.count) return;
    float a[Pack<T>::SIZE], b[Pack<T>::SIZE];
    load_pack<T>(p.a, first, p.count, a);
    load_pack<T>(p.b, first, p.count, b);
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) a[k] = function(a[k], b[k]);
    store_pack<T>(p.y, first, p.count, a);
}

template <class T>
__device__ inline void add(const Pointwise& p) {
    of_two<T>(p, [](float a, float b) { return a + b; });
}
BY_STORAGE(add, Pointwise)

template <class T>
__device__ inline void leaky_relu(const Pointwise& p) {
    of_one<T>(p, [&](float x) { return x > 0.0f ? x : p.slope * x; });
}
BY_STORAGE(leaky_relu, Pointwise)

template <class T>
__device__ inline void leaky_relu_grad(const Pointwise& p) {
    of_two<T>(p, [&](float dz, float x) { return x > 0.0f ? dz : p.slope * dz; });
}
BY_STORAGE(leaky_relu_grad, Pointwise)

template <class T>
__device__ inline void elu(const Pointwise& p) {
    of_one<T>(p, [](float x) { return x > 0.0f ? x : expm1f(x); });
}
BY_STORAGE(elu, Pointwise)

template <class T>
__device__ inline void elu_grad(const Pointwise& p) {
    of_two<T>(p, [](float dz, float z) { return z > 0.0f ? dz : dz * (z + 1.0f); });
}
BY_STORAGE(elu_grad, Pointwise)

template <class T>
__device__ inline void sigmoid(const Pointwise& p) {
    of_one<T>(p, [](float x) { return 1.0f / (1.0f + expf(-x)); });
}
BY_STORAGE(sigmoid, Pointwise)

template <class T>
__device__ inline void sigmoid_grad(const Pointwise& p) {
    of_two<T>(p, [](float dz, float s) { return dz * s * (1.0f - s); });
}
BY_STORAGE(sigmoid_grad, Pointwise)

// x times the distribution function of the standard normal distribution, and the derivative of that: a thread for each element, as
// arithmetic takes longer than memory here.
template <class T>
__device__ inline void gelu(const Pointwise& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const float x = load((const T*)p.a, i);
    store((T*)p.y, i, x * normcdff(x));
}
BY_STORAGE(gelu, Pointwise)

template <class T>
__device__ inline void gelu_grad(const Pointwise& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const float x = load((const T*)p.b, i), density = 0.3989422804f * expf(-0.5f * x * x);
    store((T*)p.y, i, load((const T*)p.a, i) * fmaf(x, density, normcdff(x)));
}
BY_STORAGE(gelu_grad, Pointwise)

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

template <class T>
__device__ inline void dropout(const Dropout& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels, voxel = i / p.channels % p.voxels, sample = i / p.channels / p.voxels;
    const u32 counter = p.whole_channels ? 0u : voxel;
    const u32 random = word_of(philox(counter, channel / 4, (u32)p.noise[4] + sample, p.layer, key_of(p.noise)), channel % 4);
    store((T*)p.y, i, load((const T*)p.x, i) * (random < p.threshold ? 0.0f : p.scale));
}
BY_STORAGE(dropout, Dropout)

// Whole samples are dropped or kept.
template <class T>
__device__ inline void sample_drop(const Dropout& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 sample = i / p.channels / p.voxels;
    const u32 random = philox(0u, 0u, (u32)p.noise[4] + sample, p.layer, key_of(p.noise)).x;
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
