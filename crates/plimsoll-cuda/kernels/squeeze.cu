// Vectors for each sample that are made of features, and features that are weighted by them: squeeze-and-excitation, stochastic depth.
#include "common.cuh"

struct PlaneSums {
    const void* x;
    const void* g;    // what x is multiplied with; none: null
    float* parts;     // [sample][part][channel]
    u32 voxels;       // of a sample
    u32 channels;
    u32 length;       // voxels of a part
    u32 parts_count;  // of a sample
    u32 count;        // samples times parts times channels
    float factor;     // of the sums
};

template <class T>
__device__ inline void plane_sums(const PlaneSums& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels, part = i / p.channels % p.parts_count, sample = i / p.channels / p.parts_count;
    const u32 base = sample * p.voxels * p.channels + channel;
    const u32 first = part * p.length, end = min(first + p.length, p.voxels);
    float total = 0.0f;
    for (u32 run = first; run < end; run += RUN) {
        float sum = 0.0f;
        for (u32 voxel = run; voxel < min(run + RUN, end); voxel++) {
            const u32 place = base + voxel * p.channels;
            sum = fmaf(load((const T*)p.x, place), p.g ? load((const T*)p.g, place) : 1.0f, sum);
        }
        total += sum;
    }
    p.parts[i] = total * p.factor;
}
BY_STORAGE(plane_sums, PlaneSums)

// Elements of a volume, with a number for each channel of each sample.
struct ByPlane {
    const void* x;
    const float* planes;
    void* y;
    u32 voxels;
    u32 channels;
    u32 count;
    float factor;
};

template <class T>
__device__ inline void gate(const ByPlane& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const float of_plane = p.planes[i / p.channels / p.voxels * p.channels + i % p.channels];
    store((T*)p.y, i, load((const T*)p.x, i) * of_plane);
}
BY_STORAGE(gate, ByPlane)

template <class T>
__device__ inline void global_mean_grad(const ByPlane& p) {
    const u32 i = element();
    if (i >= p.count) return;
    store((T*)p.y, i, p.planes[i / p.channels / p.voxels * p.channels + i % p.channels] * p.factor);
}
BY_STORAGE(global_mean_grad, ByPlane)
