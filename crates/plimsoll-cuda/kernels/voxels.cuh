// One voxel of logits and its label: probabilities, and the terms of single voxels that losses sum.
//
// Probabilities near 1 are the difficulty. 1 - p of the most probable class is carried along as the sum of all others, so that no
// logarithm, power or quotient of it is one of rounding errors; of any other class it is at least one half, and exact enough.
#pragma once
#include "common.cuh"

#define MOST_SUMS 16
#define LEAST 1.17549435e-38f

// As `VoxelSum` of the graph.
enum { SQUARES_SUM = 0, MINUS_LOG = 1, FOCAL = 2, BCE = 3 };
enum { SOFTMAX = 0, SIGMOID = 1 };

struct VoxelSum {
    u32 kind;
    u32 activation;
    float number;    // gamma, or the weight of voxels of the class
    float alpha;     // below zero: none
};

struct Voxel {
    const float* logits;
    u32 classes;
    u32 label;
    bool counts;
    u32 best;        // the first class with the largest logit
    float top;       // that logit
    float total;     // sum of exp(logit - top)
    float others;    // the same without `best`
};

// Whether a voxel with this label counts; `ignore` is above all labels where none is ignored.
__device__ inline bool label_counts(u32 label, u32 classes, u32 ignore) {
    return label < classes && label != ignore;
}

__device__ inline Voxel voxel_of(const float* logits, u32 classes, u32 label, u32 ignore) {
    Voxel v;
    v.logits = logits;
    v.classes = classes;
    v.label = label;
    v.counts = label_counts(label, classes, ignore);
    v.best = 0;
    v.top = logits[0];
#pragma unroll 1
    for (u32 c = 1; c < classes; c++) {
        if (logits[c] > v.top) {
            v.top = logits[c];
            v.best = c;
        }
    }
    v.others = 0.0f;
#pragma unroll 1
    for (u32 c = 0; c < classes; c++) {
        if (c != v.best) v.others += expf(logits[c] - v.top);
    }
    v.total = 1.0f + v.others;
    return v;
}

// A class of a voxel.
struct ClassOf {
    float x, p, rest;
    bool here;
};

__device__ inline ClassOf class_of(const Voxel& v, u32 c) {
    ClassOf k;
    k.x = v.logits[c];
    k.here = c == v.label;
    if (c == v.best) {
        k.p = 1.0f / v.total;
        k.rest = fmaxf(v.others / v.total, LEAST);
    } else {
        k.p = expf(k.x - v.top) / v.total;
        k.rest = 1.0f - k.p;
    }
    return k;
}

// -log p of a class, also where p itself is too small for a number.
__device__ inline float minus_log(const Voxel& v, u32 c) {
    return c == v.best ? log1pf(v.others) : log1pf(v.others) - (v.logits[c] - v.top);
}

// -log(1 - p) of a class.
__device__ inline float minus_log_rest(const Voxel& v, u32 c, const ClassOf& k) {
    return c == v.best ? -logf(k.rest) : -log1pf(-k.p);
}

__device__ inline float power(float x, float exponent) {
    if (exponent == 2.0f) return x * x;
    if (exponent == 1.0f) return x;
    return powf(x, exponent);
}

// Of x: the sigmoid of -x, and log(1 + exp(-x)).
__device__ inline void sigmoid_terms(float x, float* wrong, float* entropy) {
    const float e = expf(-fabsf(x));
    *wrong = (x > 0.0f ? e : 1.0f) / (1.0f + e);
    *entropy = fmaxf(-x, 0.0f) + log1pf(e);
}

__device__ inline float class_alpha(float alpha, bool here) {
    return alpha < 0.0f ? 1.0f : (here ? alpha : 1.0f - alpha);
}

// What is summed of a logit for itself, by a sum of sigmoids.
__device__ inline float sigmoid_value(const VoxelSum& sum, float x, bool here) {
    float wrong, entropy;
    sigmoid_terms(here ? x : -x, &wrong, &entropy);
    if (sum.kind == FOCAL) return class_alpha(sum.alpha, here) * power(wrong, sum.number) * entropy;
    return here ? sum.number * entropy : entropy;
}

// The derivative of it by the logit; of squares by p, so that these have none here.
__device__ inline float sigmoid_slope(const VoxelSum& sum, float x, bool here) {
    if (sum.kind != FOCAL && sum.kind != BCE) return 0.0f;
    float wrong, entropy;
    sigmoid_terms(here ? x : -x, &wrong, &entropy);
    float slope;
    if (sum.kind == FOCAL) {
        slope = class_alpha(sum.alpha, here) * power(wrong, sum.number) * (sum.number * (1.0f - wrong) * entropy + wrong);
    } else {
        slope = here ? sum.number * wrong : wrong;
    }
    return here ? -slope : slope;
}

// What is summed.
__device__ inline float voxel_value(const VoxelSum& sum, const Voxel& v, u32 c) {
    const ClassOf k = class_of(v, c);
    switch (sum.kind) {
    case SQUARES_SUM:
        return k.p * k.p;
    case MINUS_LOG:
        return minus_log(v, c);
    case FOCAL:
        if (sum.activation == SOFTMAX) {
            if (!k.here) return 0.0f;
            return class_alpha(sum.alpha, c != 0) * power(k.rest, sum.number) * minus_log(v, c);
        }
        return sigmoid_value(sum, k.x, k.here);
    default:
        if (sum.activation == SOFTMAX) {
            return k.here ? sum.number * minus_log(v, c) : minus_log_rest(v, c, k);
        }
        return sigmoid_value(sum, k.x, k.here);
    }
}

// p times the derivative by the softmax p of the class, and the derivative by its logit where the term is of that.
__device__ inline void voxel_slopes(const VoxelSum& sum, const Voxel& v, u32 c, const ClassOf& k, float* by_p, float* by_logit) {
    *by_p = 0.0f;
    *by_logit = 0.0f;
    switch (sum.kind) {
    case SQUARES_SUM:
        *by_p = 2.0f * k.p * k.p;
        return;
    case MINUS_LOG:
        *by_p = -1.0f;
        return;
    case FOCAL:
        if (sum.activation == SOFTMAX) {
            if (!k.here) return;
            const float slope = sum.number * k.p / k.rest * minus_log(v, c) + 1.0f;
            *by_p = -class_alpha(sum.alpha, c != 0) * power(k.rest, sum.number) * slope;
            return;
        }
        *by_logit = sigmoid_slope(sum, k.x, k.here);
        return;
    default:
        if (sum.activation == SOFTMAX) {
            *by_p = k.here ? -sum.number : k.p / k.rest;
            return;
        }
        *by_logit = sigmoid_slope(sum, k.x, k.here);
    }
}
