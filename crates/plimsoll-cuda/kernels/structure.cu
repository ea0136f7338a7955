// What losses of shapes are made of: probabilities and labels as volumes of foreground classes, [sample][voxel][class - 1], and their
// means over blocks.
#include "place.cuh"
#include "voxels.cuh"

struct Foreground {
    const void* x;       // logits, or a volume of foreground classes
    const float* g;      // of the gradient: of the probabilities; else null
    const u8* labels;    // none: null
    float* y;
    u32 classes;         // the background among them
    u32 ignore;
    u32 count;           // threads
    u32 unused;
};

// A thread for each voxel.
KERNEL(probabilities, Foreground) {
    const u32 i = element();
    if (i >= p.count) return;
    const Voxel v = voxel_of((const float*)p.x + i * p.classes, p.classes, 0, 0);
    for (u32 c = 1; c < p.classes; c++) p.y[i * (p.classes - 1) + c - 1] = class_of(v, c).p;
}

// A thread for each voxel. By the most probable class, whose mean has no large terms that cancel; that of another class differs by
// the difference of their gradients, since probabilities add up to 1.
KERNEL(probabilities_grad, Foreground) {
    const u32 i = element();
    if (i >= p.count) return;
    const Voxel v = voxel_of((const float*)p.x + i * p.classes, p.classes, 0, 0);
    const float* g = p.g + i * (p.classes - 1);
    const float of_best = v.best > 0 ? g[v.best - 1] : 0.0f;
    float mean = 0.0f;
    for (u32 c = 0; c < p.classes; c++) {
        if (c != v.best) mean = fmaf(class_of(v, c).p, of_best - (c > 0 ? g[c - 1] : 0.0f), mean);
    }
    for (u32 c = 0; c < p.classes; c++) {
        const float difference = c == v.best ? mean : ((c > 0 ? g[c - 1] : 0.0f) - of_best) + mean;
        p.y[i * p.classes + c] = class_of(v, c).p * difference;
    }
}

// A thread for each element.
KERNEL(one_hot, Foreground) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 c = i % (p.classes - 1) + 1;
    p.y[i] = p.labels[i / (p.classes - 1)] == c && c != p.ignore ? 1.0f : 0.0f;
}

// A thread for each element.
KERNEL(counted, Foreground) {
    const u32 i = element();
    if (i >= p.count) return;
    p.y[i] = label_counts(p.labels[i / (p.classes - 1)], p.classes, p.ignore) ? ((const float*)p.x)[i] : 0.0f;
}

struct MeanPool {
    const float* from;
    float* to;
    u32 fine[3];
    u32 coarse[3];
    u32 channels;
    u32 count;
};

// Where a block begins along an axis; the one behind the last begins at the end.
__device__ inline u32 block_start(const MeanPool& p, u32 block, u32 axis) {
    return (u32)((u64)block * p.fine[axis] / p.coarse[axis]);
}

// The block that a place along an axis is in.
__device__ inline u32 block_of(const MeanPool& p, u32 place, u32 axis) {
    return (u32)(((u64)(place + 1) * p.coarse[axis] - 1) / p.fine[axis]);
}

// A thread for each element of the coarse side: rows in f32, their sum in f64.
KERNEL(mean_pool, MeanPool) {
    const u32 i = element();
    if (i >= p.count) return;
    const Place at(i / p.channels, p.coarse);
    const u32 d = block_start(p, at.d, 0), h = block_start(p, at.h, 1), w = block_start(p, at.w, 2);
    const u32 end_d = block_start(p, at.d + 1, 0), end_h = block_start(p, at.h + 1, 1), end_w = block_start(p, at.w + 1, 2);
    double total = 0.0;
    for (u32 z = d; z < end_d; z++) {
        for (u32 y = h; y < end_h; y++) {
            for (u32 run = w; run < end_w; run += RUN) {
                float sum = 0.0f;
                for (u32 x = run; x < min(run + RUN, end_w); x++) {
                    sum += p.from[voxel(at.sample, z, y, x, p.fine) * p.channels + i % p.channels];
                }
                total += (double)sum;
            }
        }
    }
    p.to[i] = (float)(total / ((double)(end_d - d) * (double)(end_h - h) * (double)(end_w - w)));
}

// A thread for each element of the fine side.
KERNEL(mean_pool_grad, MeanPool) {
    const u32 i = element();
    if (i >= p.count) return;
    const Place at(i / p.channels, p.fine);
    const u32 d = block_of(p, at.d, 0), h = block_of(p, at.h, 1), w = block_of(p, at.w, 2);
    float voxels = (float)(block_start(p, d + 1, 0) - block_start(p, d, 0));
    voxels *= (float)(block_start(p, h + 1, 1) - block_start(p, h, 1));
    voxels *= (float)(block_start(p, w + 1, 2) - block_start(p, w, 2));
    p.to[i] = p.from[voxel(at.sample, d, h, w, p.coarse) * p.channels + i % p.channels] / voxels;
}
