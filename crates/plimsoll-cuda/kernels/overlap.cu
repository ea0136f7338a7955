// How two f32 volumes overlap and differ, and losses of that.
#include "voxels.cuh"

// For sums, a sample is a table: a row of voxels along the width with all their channels, and all such rows below each other. Threads
// side by side sum columns, whatever the number of channels.
struct OverlapSums {
    const float* a;
    const float* b;
    float* parts;      // [sample][part][column][2]: the sums of a times b, and of a
    u32 rows;          // of a sample
    u32 columns;
    u32 length;        // rows of a part
    u32 parts_count;   // of a sample
    u32 count;         // threads
    u32 unused;
};

// A thread for each sample, part and column, the columns side by side.
KERNEL(overlap_parts, OverlapSums) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 column = i % p.columns, part = i / p.columns % p.parts_count, sample = i / p.columns / p.parts_count;
    const u32 base = sample * p.rows * p.columns + column, first = part * p.length, end = min(first + p.length, p.rows);
    float total = 0.0f, total_products = 0.0f;
    for (u32 run = first; run < end; run += RUN) {
        float sum = 0.0f, products = 0.0f;
        for (u32 row = run; row < min(run + RUN, end); row++) {
            const float a = p.a[base + row * p.columns];
            sum += a;
            products = fmaf(a, p.b[base + row * p.columns], products);
        }
        total += sum;
        total_products += products;
    }
    p.parts[2 * i] = total_products;
    p.parts[2 * i + 1] = total;
}

struct OverlapSumsGrad {
    const float* sums;    // their gradient, [sample][column][2]
    const float* other;
    float* y;
    u32 elements;         // of a sample
    u32 columns;
    u32 by_first;
    u32 count;
};

// A thread for each element.
KERNEL(overlap_sums_grad, OverlapSumsGrad) {
    const u32 i = element();
    if (i >= p.count) return;
    const float* sums = p.sums + 2 * (i / p.elements * p.columns + i % p.columns);
    p.y[i] = fmaf(sums[0], p.other[i], p.by_first ? sums[1] : 0.0f);
}

#define LEAST_DOUBLE 2.2250738585072014e-308

struct SumLoss {
    const float* upstream;      // of the gradient
    const float* precision;     // sums [sample][class][2]; of clDice, of one class
    const float* sensitivity;   // of clDice
    float* loss;                // of the gradient, that of the first sums
    float* dsensitivity;
    u32 samples;
    u32 classes;
    u32 batch;                  // whether sums run over all samples
    float smooth_numerator;
    float smooth_denominator;
    float smooth;
};

// A quotient of smoothed sums, and its derivatives by both. Without smoothing, nothing of nothing is nothing.
struct Quotient {
    double value, by_overlap, by_size;
    __device__ Quotient(const SumLoss& p, const float* sums) {
        const double size = fmax((double)sums[1] + (double)p.smooth_denominator, LEAST_DOUBLE);
        value = ((double)sums[0] + (double)p.smooth_numerator) / size;
        by_overlap = 1.0 / size;
        by_size = -value / size;
    }
};

// One thread: there are a few numbers for each sample.
KERNEL(cldice, SumLoss) {
    if (threadIdx.x != 0) return;
    double loss = 0.0;
#pragma unroll 1
    for (u32 n = 0; n < p.samples; n++) {
        const Quotient a(p, p.precision + 2 * n), b(p, p.sensitivity + 2 * n);
        const double sum = fmax(a.value + b.value + (double)p.smooth, LEAST_DOUBLE);
        loss += (1.0 - 2.0 * a.value * b.value / sum) / (double)p.samples;
    }
    p.loss[0] = (float)loss;
}

// A thread for each sample.
KERNEL(cldice_grad, SumLoss) {
    const u32 n = element();
    if (n >= p.samples) return;
    const Quotient a(p, p.precision + 2 * n), b(p, p.sensitivity + 2 * n);
    const double sum = fmax(a.value + b.value + (double)p.smooth, LEAST_DOUBLE);
    const double factor = (double)p.upstream[0] / (double)p.samples * -2.0 / (sum * sum);
    const double by_a = factor * b.value * (sum - a.value), by_b = factor * a.value * (sum - b.value);
    p.loss[2 * n] = (float)(by_a * a.by_overlap);
    p.loss[2 * n + 1] = (float)(by_a * a.by_size);
    p.dsensitivity[2 * n] = (float)(by_b * b.by_overlap);
    p.dsensitivity[2 * n + 1] = (float)(by_b * b.by_size);
}

// The sums of a class over a group of samples: one, or all of them.
__device__ inline void recall_sums(const SumLoss& p, u32 group, u32 c, double* overlap, double* size) {
    const u32 together = p.batch ? p.samples : 1;
    *overlap = (double)p.smooth_numerator;
    *size = (double)p.smooth_denominator;
#pragma unroll 1
    for (u32 n = group * together; n < (group + 1) * together; n++) {
        *overlap += (double)p.precision[2 * (n * p.classes + c)];
        *size += (double)p.precision[2 * (n * p.classes + c) + 1];
    }
    *size = fmax(*size, LEAST_DOUBLE);
}

// One thread.
KERNEL(soft_recall, SumLoss) {
    if (threadIdx.x != 0) return;
    const u32 groups = p.batch ? 1 : p.samples;
    double loss = 1.0, overlap, size;
#pragma unroll 1
    for (u32 i = 0; i < groups * p.classes; i++) {
        recall_sums(p, i / p.classes, i % p.classes, &overlap, &size);
        loss -= overlap / size / (double)(groups * p.classes);
    }
    p.loss[0] = (float)loss;
}

// A thread for each sample and class. The other sum is of the target.
KERNEL(soft_recall_grad, SumLoss) {
    const u32 i = element();
    if (i >= p.samples * p.classes) return;
    const u32 groups = p.batch ? 1 : p.samples;
    double overlap, size;
    recall_sums(p, p.batch ? 0 : i / p.classes, i % p.classes, &overlap, &size);
    p.loss[2 * i] = (float)(-(double)p.upstream[0] / (size * (double)(groups * p.classes)));
    p.loss[2 * i + 1] = 0.0f;
}

struct MeanDifference {
    const float* a;
    const float* b;
    const u8* labels;
    float* parts;           // [sample][part][column][3]: the sums of |a - b|, of what a lacks more than b, and of voxels
    double* values;         // [sample][channel], what each adds to the loss
    float* loss;
    float* factors;         // [sample][channel][2]
    const float* upstream;  // of the gradient
    float* gradient;
    u32 voxels;             // of a sample
    u32 channels;
    u32 rows;               // as of `OverlapSums`
    u32 columns;
    u32 length;             // rows of a part
    u32 parts_count;        // of a sample
    u32 count;              // threads
    u32 planes;
    u32 classes;
    u32 ignore;
    u32 has_threshold;
    float threshold;
};

// What a number lacks to the threshold.
__device__ inline float below(const MeanDifference& p, float x) {
    return p.has_threshold ? fmaxf(p.threshold - x, 0.0f) : 0.0f;
}

// A thread for each sample, part and column, the columns side by side.
KERNEL(mean_difference_parts, MeanDifference) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 column = i % p.columns, part = i / p.columns % p.parts_count, sample = i / p.columns / p.parts_count;
    const u32 base = sample * p.rows * p.columns + column, first = part * p.length, end = min(first + p.length, p.rows);
    float totals[3] = {0.0f, 0.0f, 0.0f};
    for (u32 run = first; run < end; run += RUN) {
        float apart = 0.0f, lacking = 0.0f, counted = 0.0f;
        for (u32 row = run; row < min(run + RUN, end); row++) {
            const u32 place = base + row * p.columns;
            if (!label_counts(p.labels[place / p.channels], p.classes, p.ignore)) continue;
            apart += fabsf(p.a[place] - p.b[place]);
            lacking += below(p, p.a[place]) - below(p, p.b[place]);
            counted += 1.0f;
        }
        totals[0] += apart;
        totals[1] += lacking;
        totals[2] += counted;
    }
    for (u32 row = 0; row < 3; row++) p.parts[3 * i + row] = totals[row];
}

// A block for each sample and channel.
KERNEL(mean_difference_factors, MeanDifference) {
    const u32 channel = blockIdx.x % p.channels, sample = blockIdx.x / p.channels;
    double sums[3] = {0.0, 0.0, 0.0};
    // Of each part, the columns of a channel.
    const u32 of_channel = p.parts_count * (p.columns / p.channels);
    for (u32 part = threadIdx.x; part < of_channel; part += BLOCK) {
        const float* parts = p.parts + 3 * ((sample * of_channel + part) * p.channels + channel);
        for (u32 row = 0; row < 3; row++) sums[row] += (double)parts[row];
    }
    for (u32 row = 0; row < 3; row++) sums[row] = block_sum(sums[row]);
    if (threadIdx.x != 0) return;
    const double factor = sums[2] > 0.0 ? 1.0 / (sums[2] * (double)p.planes) : 0.0;
    const double sign = !p.has_threshold || sums[1] == 0.0 ? 0.0 : sums[1] > 0.0 ? 1.0 : -1.0;
    p.values[blockIdx.x] = factor * (sums[0] + sign * sums[1]);
    p.factors[2 * blockIdx.x] = (float)factor;
    p.factors[2 * blockIdx.x + 1] = (float)(factor * sign);
}

// One block.
KERNEL(mean_difference, MeanDifference) {
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < p.planes; i += BLOCK) sum += p.values[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) p.loss[0] = (float)sum;
}

// A thread for each element.
KERNEL(mean_difference_grad, MeanDifference) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 sample = i / p.channels / p.voxels;
    const float* factors = p.factors + 2 * (sample * p.channels + i % p.channels);
    const float a = p.a[i], b = p.b[i], apart = a == b ? 0.0f : a > b ? 1.0f : -1.0f;
    const float slope = factors[0] * apart - (below(p, a) > 0.0f ? factors[1] : 0.0f);
    p.gradient[i] = label_counts(p.labels[i / p.channels], p.classes, p.ignore) ? p.upstream[0] * slope : 0.0f;
}
