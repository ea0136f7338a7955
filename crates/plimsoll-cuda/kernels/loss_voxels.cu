// Passes over logits and labels: the sums that losses are made of, their gradient, and counts of right and wrong voxels.
#include "voxels.cuh"

// Voxels of a thread, whose largest logit and sum of exponentials it keeps in registers, and of a block.
#define OF_THREAD 8
#define OF_BLOCK (BLOCK * OF_THREAD)

struct SoftmaxStats {
    const float* logits;
    const u8* labels;
    float* parts;    // [sample][part][class][rows]
    u32 voxels;      // of a sample
    u32 classes;
    u32 ignore;
    u32 squared;
    u32 extra;
    u32 unused;
    VoxelSum sums[MOST_SUMS];
};

// A block for each part (`blockIdx.x`) of a sample (`blockIdx.y`).
KERNEL(softmax_stats_parts, SoftmaxStats) {
    const u32 rows = 4 + p.extra, sample = blockIdx.y;
    const float* logits = p.logits + sample * p.voxels * p.classes;
    const u8* labels = p.labels + sample * p.voxels;
    float* parts = p.parts + (sample * gridDim.x + blockIdx.x) * p.classes * rows;
    Voxel own[OF_THREAD];
#pragma unroll
    for (u32 j = 0; j < OF_THREAD; j++) {
        const u32 voxel = blockIdx.x * OF_BLOCK + j * BLOCK + threadIdx.x;
        const Voxel none = {};
        own[j] = none;
        if (voxel < p.voxels) own[j] = voxel_of(logits + voxel * p.classes, p.classes, labels[voxel], p.ignore);
    }
    for (u32 c = 0; c < p.classes; c++) {
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (u32 j = 0; j < OF_THREAD; j++) {
            if (!own[j].counts) continue;
            const ClassOf k = class_of(own[j], c);
            sums[1] += p.squared ? k.p * k.p : k.p;
            if (k.here) {
                sums[0] += k.p;
                sums[2] += 1.0f;
                sums[3] += minus_log(own[j], c);
            }
        }
#pragma unroll
        for (u32 row = 0; row < 4; row++) {
            const float sum = block_sum(sums[row]);
            if (threadIdx.x == 0) parts[c * rows + row] = sum;
        }
        for (u32 extra = 0; extra < p.extra; extra++) {
            float sum = 0.0f;
#pragma unroll 1
            for (u32 j = 0; j < OF_THREAD; j++) {
                const u32 voxel = blockIdx.x * OF_BLOCK + j * BLOCK + threadIdx.x;
                if (voxel >= p.voxels) continue;
                const Voxel v = voxel_of(logits + voxel * p.classes, p.classes, labels[voxel], p.ignore);
                if (v.counts) sum += voxel_value(p.sums[extra], v, c);
            }
            sum = block_sum(sum);
            if (threadIdx.x == 0) parts[c * rows + 4 + extra] = sum;
        }
    }
}

struct CompositeLossGrad {
    const float* logits;
    const u8* labels;
    const double* slopes;    // [sample][class][3], [class], [own sum][class], see `composite_loss.cu`
    float* dlogits;
    u32 voxels;              // of a sample
    u32 classes;
    u32 ignore;
    u32 own;
    u32 batch;
    u32 count;               // voxels of all samples
    VoxelSum sums[MOST_SUMS];
};

// For a class: p times the derivative by p of what is summed, and the derivative by its logit itself.
__device__ inline void class_slopes(const CompositeLossGrad& p, const Voxel& v, u32 sample, u32 c, const ClassOf& k,
                                    float* by_p, float* direct) {
    const double* slopes = p.slopes + 3 * (sample * p.classes + c);
    const double* entropy = p.slopes + 3 * p.batch * p.classes;
    const double* factors = entropy + p.classes;
    const float overlap = k.here ? (float)slopes[0] : 0.0f;
    *by_p = k.p * (overlap + (float)slopes[1] + 2.0f * k.p * (float)slopes[2]);
    *direct = (float)entropy[v.label] * (k.here ? -k.rest : k.p);
    for (u32 own = 0; own < p.own; own++) {
        float through_p, by_logit;
        const float factor = (float)factors[own * p.classes + c];
        voxel_slopes(p.sums[own], v, c, k, &through_p, &by_logit);
        *by_p += factor * through_p;
        *direct += factor * by_logit;
    }
}

// A thread for each voxel.
KERNEL(composite_loss_grad, CompositeLossGrad) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 sample = i / p.voxels;
    const Voxel v = voxel_of(p.logits + i * p.classes, p.classes, p.labels[i], p.ignore);
    float* dlogits = p.dlogits + i * p.classes;
    // Of the most probable class, and of all others: apart, as in `Voxel`.
    float of_best = 0.0f, of_others = 0.0f;
    for (u32 c = 0; c < p.classes && v.counts; c++) {
        float by_p, direct;
        class_slopes(p, v, sample, c, class_of(v, c), &by_p, &direct);
        if (c == v.best) {
            of_best = by_p;
        } else {
            of_others += by_p;
        }
    }
    for (u32 c = 0; c < p.classes; c++) {
        float by_p, direct;
        if (!v.counts) {
            dlogits[c] = 0.0f;
            continue;
        }
        const ClassOf k = class_of(v, c);
        class_slopes(p, v, sample, c, k, &by_p, &direct);
        const float others = c == v.best ? of_others : of_best + (of_others - by_p);
        dlogits[c] = by_p * k.rest - k.p * others + direct;
    }
}

struct HardCounts {
    const float* logits;
    const u8* labels;
    u32* parts;    // [part][class][3]
    u32 count;     // voxels of all samples
    u32 classes;
    u32 ignore;
    u32 unused;
};

// A block for each part: the classes of its voxels, then a thread for each of the counts.
KERNEL(hard_counts_parts, HardCounts) {
    const u32 NONE = 0xffffffffu;
    __shared__ u32 pairs[OF_BLOCK];
    for (u32 j = threadIdx.x; j < OF_BLOCK; j += BLOCK) {
        const u32 voxel = blockIdx.x * OF_BLOCK + j;
        pairs[j] = NONE;
        if (voxel >= p.count) continue;
        const u32 label = p.labels[voxel];
        const float* logits = p.logits + voxel * p.classes;
        u32 best = 0;
        for (u32 c = 1; c < p.classes; c++) {
            if (logits[c] > logits[best]) best = c;
        }
        if (label_counts(label, p.classes, p.ignore)) pairs[j] = best << 8 | label;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 3 * p.classes; i += BLOCK) {
        const u32 c = i / 3, kind = i % 3;
        u32 sum = 0;
        for (u32 j = 0; j < OF_BLOCK; j++) {
            if (pairs[j] == NONE) continue;
            const bool is_best = pairs[j] >> 8 == c, is_label = (pairs[j] & 0xffu) == c;
            if (kind == 0 ? is_best && is_label : kind == 1 ? is_best && !is_label : is_label && !is_best) sum++;
        }
        p.parts[blockIdx.x * 3 * p.classes + i] = sum;
    }
}

struct SumCounts {
    const u32* parts;
    double* y;
    u32 count;
    u32 parts_count;
};

KERNEL(hard_counts, SumCounts) {
    const u32 i = element();
    if (i >= p.count) return;
    u64 sum = 0;
    for (u32 part = 0; part < p.parts_count; part++) sum += p.parts[part * p.count + i];
    p.y[i] = (double)sum;
}
