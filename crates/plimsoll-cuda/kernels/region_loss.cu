// Passes over logits of regions, each with a sigmoid of its own, and labels: the sums that losses are made of, their gradient, and
// counts of right and wrong voxels.
#include "voxels.cuh"

#define MOST_REGIONS 64

// Voxels of a thread, whose regions it keeps in registers, and of a block.
#define OF_THREAD 8
#define OF_BLOCK (BLOCK * OF_THREAD)

// What regions are: a bit for each of those that voxels with a label belong to.
struct Regions {
    u64 of_label[256];
    u32 labels;        // labels below it are known
    u32 ignore;
};

// A voxel of which nothing but its label is known.
struct Member {
    u64 regions;
    bool counts;
};

__device__ inline Member member_of(const Regions& regions, u32 label) {
    Member m;
    m.counts = label_counts(label, regions.labels, regions.ignore);
    m.regions = m.counts ? regions.of_label[label] : 0;
    return m;
}

__device__ inline bool is_in(const Member& m, u32 region) {
    return (m.regions >> region & 1) != 0;
}

// The sigmoids of x and of -x, both exact where they are small.
__device__ inline void sigmoids(float x, float* p, float* rest) {
    const float e = expf(-fabsf(x)), small = e / (1.0f + e), large = 1.0f / (1.0f + e);
    *p = x > 0.0f ? large : small;
    *rest = x > 0.0f ? small : large;
}

struct RegionStats {
    const float* logits;
    const u8* labels;
    float* parts;    // [sample][part][region][rows]
    u32 voxels;      // of a sample
    u32 count;       // regions
    u32 squared;
    u32 extra;
    VoxelSum sums[MOST_SUMS];
    Regions regions;
};

// A block for each part (`blockIdx.x`) of a sample (`blockIdx.y`).
KERNEL(region_stats_parts, RegionStats) {
    const u32 rows = 4 + p.extra, sample = blockIdx.y;
    const float* logits = p.logits + sample * p.voxels * p.count;
    const u8* labels = p.labels + sample * p.voxels;
    float* parts = p.parts + (sample * gridDim.x + blockIdx.x) * p.count * rows;
    Member own[OF_THREAD];
#pragma unroll
    for (u32 j = 0; j < OF_THREAD; j++) {
        const u32 voxel = blockIdx.x * OF_BLOCK + j * BLOCK + threadIdx.x;
        const Member none = {};
        own[j] = none;
        if (voxel < p.voxels) own[j] = member_of(p.regions, labels[voxel]);
    }
    for (u32 c = 0; c < p.count; c++) {
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (u32 j = 0; j < OF_THREAD; j++) {
            const u32 voxel = blockIdx.x * OF_BLOCK + j * BLOCK + threadIdx.x;
            if (!own[j].counts) continue;
            float probability, rest;
            sigmoids(logits[voxel * p.count + c], &probability, &rest);
            sums[1] += p.squared ? probability * probability : probability;
            sums[3] += 1.0f;
            if (is_in(own[j], c)) {
                sums[0] += probability;
                sums[2] += 1.0f;
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
                const Member m = member_of(p.regions, labels[voxel]);
                if (!m.counts) continue;
                const float x = logits[voxel * p.count + c];
                if (p.sums[extra].kind == SQUARES_SUM) {
                    float probability, rest;
                    sigmoids(x, &probability, &rest);
                    sum += probability * probability;
                } else {
                    sum += sigmoid_value(p.sums[extra], x, is_in(m, c));
                }
            }
            sum = block_sum(sum);
            if (threadIdx.x == 0) parts[c * rows + 4 + extra] = sum;
        }
    }
}

struct RegionLossGrad {
    const float* logits;
    const u8* labels;
    const double* slopes;    // [sample][region][3], [region] of no meaning here, [own sum][region], see `composite_loss.cu`
    float* dlogits;
    u32 voxels;              // of a sample
    u32 count;               // regions
    u32 batch;
    u32 own;
    u32 all;                 // voxels of all samples
    u32 unused;
    VoxelSum sums[MOST_SUMS];
    Regions regions;
};

// A thread for each voxel.
KERNEL(region_loss_grad, RegionLossGrad) {
    const u32 i = element();
    if (i >= p.all) return;
    const u32 sample = i / p.voxels;
    const Member m = member_of(p.regions, p.labels[i]);
    const float* logits = p.logits + i * p.count;
    float* dlogits = p.dlogits + i * p.count;
    const double* factors = p.slopes + (3 * p.batch + 1) * p.count;
    for (u32 c = 0; c < p.count; c++) {
        if (!m.counts) {
            dlogits[c] = 0.0f;
            continue;
        }
        const double* slopes = p.slopes + 3 * (sample * p.count + c);
        const float x = logits[c];
        const bool here = is_in(m, c);
        float probability, rest, direct = 0.0f;
        sigmoids(x, &probability, &rest);
        // The derivative by p of what is summed.
        float by_p = (here ? (float)slopes[0] : 0.0f) + (float)slopes[1] + 2.0f * probability * (float)slopes[2];
        for (u32 own = 0; own < p.own; own++) {
            direct += (float)factors[own * p.count + c] * sigmoid_slope(p.sums[own], x, here);
        }
        dlogits[c] = probability * by_p * rest + direct;
    }
}

struct RegionCounts {
    const float* logits;
    const u8* labels;
    u32* parts;    // [part][region][3]
    u32 all;       // voxels of all samples
    u32 count;     // regions
    Regions regions;
};

// Bits of a count of the voxels of a block: three fit a number of 64.
#define COUNT_BITS 20

// A block for each part.
KERNEL(region_counts_parts, RegionCounts) {
    u32* parts = p.parts + blockIdx.x * 3 * p.count;
    Member own[OF_THREAD];
#pragma unroll
    for (u32 j = 0; j < OF_THREAD; j++) {
        const u32 voxel = blockIdx.x * OF_BLOCK + j * BLOCK + threadIdx.x;
        const Member none = {};
        own[j] = none;
        if (voxel < p.all) own[j] = member_of(p.regions, p.labels[voxel]);
    }
    for (u32 c = 0; c < p.count; c++) {
        u64 counts = 0;
#pragma unroll
        for (u32 j = 0; j < OF_THREAD; j++) {
            const u32 voxel = blockIdx.x * OF_BLOCK + j * BLOCK + threadIdx.x;
            if (!own[j].counts) continue;
            const bool predicted = p.logits[voxel * p.count + c] > 0.0f, here = is_in(own[j], c);
            // True positives, false positives, false negatives.
            if (predicted || here) counts += 1ull << COUNT_BITS * (!predicted ? 2 : !here ? 1 : 0);
        }
        counts = block_sum(counts);
        if (threadIdx.x < 3) parts[c * 3 + threadIdx.x] = (u32)(counts >> COUNT_BITS * threadIdx.x) & ((1u << COUNT_BITS) - 1);
    }
}
