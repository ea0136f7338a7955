// The loss of some sums, and its derivatives by them, in f64 by one thread: there are a few numbers for each class.
#include "voxels.cuh"

#define MOST_COMPONENTS 16
#define MOST_CLASS_WEIGHTS 512

enum { SOFT_DICE, LOG_COSH_DICE, GENERALIZED_DICE, TVERSKY, FOCAL_TVERSKY, CROSS_ENTROPY, OWN_SUM };
enum { VOLUME_SQUARE, VOLUME_SIMPLE, VOLUME_UNIFORM };

struct Component {
    u32 kind;
    float weight;
    u32 batch;             // whether sums run over all samples
    u32 first_class;
    u32 squared;
    u32 volume_weight;
    float smooth_numerator;
    float smooth_denominator;
    float alpha;
    float beta;
    float power;
    float smoothing;
    u32 own_row;           // the row of the sum that is its own; none: 0
    u32 own;               // which of all such sums it is
    u32 class_weights;     // where they begin
    u32 has_class_weights;
};

struct CompositeLoss {
    const float* sums;        // [sample][class][rows]
    const float* upstream;    // of the gradient; else null
    float* loss;
    float* parts;
    double* slopes;           // of the gradient: [sample][class][3], [class], [own sum][class]
    u32 batch;
    u32 classes;
    u32 rows;
    u32 squares_row;          // the row of the sum of p squared
    u32 components_count;
    u32 own_count;
    u32 regions;              // whether each class is a region, of which a voxel may be in several: then row 3 counts voxels
    u32 unused;
    Component components[MOST_COMPONENTS];
    float class_weights[MOST_CLASS_WEIGHTS];
};

__device__ inline double sum_at(const CompositeLoss& p, u32 sample, u32 c, u32 row) {
    return (double)p.sums[(sample * p.classes + c) * p.rows + row];
}

// A sum of a class in a group of samples: one, or all of them.
__device__ inline double total(const CompositeLoss& p, const Component& k, u32 group, u32 c, u32 row) {
    if (!k.batch) return sum_at(p, group, c, row);
    double sum = 0.0;
#pragma unroll 1
    for (u32 n = 0; n < p.batch; n++) sum += sum_at(p, n, c, row);
    return sum;
}

__device__ inline double class_weight(const CompositeLoss& p, const Component& k, u32 c) {
    return k.has_class_weights ? (double)p.class_weights[k.class_weights + c] : 1.0;
}

// The sum over samples and classes of a row, each class times its weight.
__device__ inline double weighted(const CompositeLoss& p, const Component& k, u32 row) {
    double sum = 0.0;
    for (u32 n = 0; n < p.batch; n++) {
#pragma unroll 1
        for (u32 c = k.first_class; c < p.classes; c++) sum += class_weight(p, k, c) * sum_at(p, n, c, row);
    }
    return sum;
}

// The voxels that count.
__device__ inline double voxels_of(const CompositeLoss& p) {
    const Component none = {};
    // Of classes each voxel has one.
    if (!p.regions) return weighted(p, none, 2);
    double sum = 0.0;
#pragma unroll 1
    for (u32 n = 0; n < p.batch; n++) sum += sum_at(p, n, 0, 3);
    return sum;
}

// x to a power of at most 1, and its slope, continued by a straight line to zero where that has no bound.
__device__ inline void bounded_power(double x, double power, double* value, double* slope) {
    const double straight = 1e-6;
    if (power < 1.0 && x < straight) {
        *slope = exp(log(straight) * (power - 1.0));
        *value = *slope * x;
        return;
    }
    // Rounding of the sums may bring x below zero.
    x = x > 0.0 ? x : 0.0;
    if (x == 0.0) {
        *value = 0.0;
        *slope = power == 1.0 ? 1.0 : 0.0;
        return;
    }
    *slope = power * exp(log(x) * (power - 1.0));
    *value = exp(log(x) * power);
}

// Adds derivatives by the overlap and by one of the sizes to those of a class of a group.
__device__ inline void pass_on(const CompositeLoss& p, const Component& k, u32 group, u32 c, double by_overlap, double by_size) {
    const u32 first = k.batch ? 0 : group, end = k.batch ? p.batch : group + 1;
#pragma unroll 1
    for (u32 n = first; n < end; n++) {
        double* slopes = p.slopes + 3 * (n * p.classes + c);
        slopes[0] += by_overlap;
        slopes[k.squared ? 2 : 1] += by_size;
    }
}

// The mean over groups and classes of a Dice or Tversky term; passes on its slopes times `factor` where that is not zero.
__device__ double quotient_terms(const CompositeLoss& p, const Component& k, double factor) {
    const u32 groups = k.batch ? 1 : p.batch;
    const double terms = (double)groups * (double)(p.classes - k.first_class);
    const double n = (double)k.smooth_numerator, d = (double)k.smooth_denominator;
    const bool is_dice = k.kind == SOFT_DICE || k.kind == LOG_COSH_DICE;
    double mean = 0.0;
    for (u32 group = 0; group < groups; group++) {
        for (u32 c = k.first_class; c < p.classes; c++) {
            const double overlap = total(p, k, group, c, 0), size = total(p, k, group, c, k.squared ? p.squares_row : 1);
            const double target = total(p, k, group, c, 2);
            double value, by_overlap, by_size;
            if (is_dice) {
                const double weight = class_weight(p, k, c), numerator = 2.0 * overlap + n, denominator = size + target + d;
                value = weight * (1.0 - numerator / denominator);
                by_overlap = weight * (-2.0 / denominator);
                by_size = weight * (numerator / (denominator * denominator));
            } else {
                const double alpha = (double)k.alpha, beta = (double)k.beta, numerator = overlap + n;
                const double denominator = overlap + alpha * (size - overlap) + beta * (target - overlap) + d;
                const double square = denominator * denominator;
                value = 1.0 - numerator / denominator;
                by_overlap = (numerator * (1.0 - alpha - beta) - denominator) / square;
                by_size = numerator * alpha / square;
                if (k.kind == FOCAL_TVERSKY) {
                    double slope;
                    bounded_power(value, (double)k.power, &value, &slope);
                    by_overlap *= slope;
                    by_size *= slope;
                }
            }
            mean += value / terms;
            if (factor != 0.0) pass_on(p, k, group, c, factor * by_overlap / terms, factor * by_size / terms);
        }
    }
    return mean;
}

// The weight of a class by its volume; zero if it has none.
__device__ inline double volume_weight(const Component& k, double volume) {
    if (k.volume_weight == VOLUME_UNIFORM) return 1.0;
    if (volume == 0.0) return 0.0;
    return k.volume_weight == VOLUME_SQUARE ? 1.0 / (volume * volume) : 1.0 / volume;
}

__device__ double generalized_dice(const CompositeLoss& p, const Component& k, double factor) {
    const u32 groups = k.batch ? 1 : p.batch;
    double mean = 0.0;
    for (u32 group = 0; group < groups; group++) {
        double largest = 0.0;
        for (u32 c = k.first_class; c < p.classes; c++) largest = fmax(largest, volume_weight(k, total(p, k, group, c, 2)));
        double numerator = (double)k.smooth_numerator, denominator = (double)k.smooth_denominator;
        for (u32 c = k.first_class; c < p.classes; c++) {
            const double volume = total(p, k, group, c, 2), own = volume_weight(k, volume);
            const double weight = own > 0.0 ? own : largest;
            numerator += 2.0 * weight * total(p, k, group, c, 0);
            denominator += weight * (total(p, k, group, c, 1) + volume);
        }
        mean += (1.0 - numerator / denominator) / (double)groups;
        if (factor == 0.0) continue;
        const double share = factor / (double)groups;
        for (u32 c = k.first_class; c < p.classes; c++) {
            const double own = volume_weight(k, total(p, k, group, c, 2)), weight = own > 0.0 ? own : largest;
            pass_on(p, k, group, c, share * (-2.0 * weight / denominator), share * (weight * numerator / (denominator * denominator)));
        }
    }
    return mean;
}

// The value of a component without its weight; passes on its slopes times `factor` where that is not zero.
__device__ double component_value(const CompositeLoss& p, const Component& k, double factor) {
    const double counted = voxels_of(p), voxels = counted > 1.0 ? counted : 1.0;
    double* entropy = p.slopes + 3 * p.batch * p.classes;
    double* own = entropy + p.classes + k.own * p.classes;
    if (k.kind == LOG_COSH_DICE) {
        const double mean = quotient_terms(p, k, 0.0), e = exp(mean), inverse = 1.0 / e;
        if (factor != 0.0) quotient_terms(p, k, factor * ((e - inverse) / (e + inverse)));
        return log(0.5 * (e + inverse));
    }
    if (k.kind == GENERALIZED_DICE) return generalized_dice(p, k, factor);
    if (k.kind == OWN_SUM) {
        const double share = 1.0 / ((double)(p.classes - k.first_class) * voxels);
        if (factor != 0.0) {
            for (u32 c = k.first_class; c < p.classes; c++) own[c] = factor * share * class_weight(p, k, c);
        }
        return share * weighted(p, k, k.own_row);
    }
    if (k.kind != CROSS_ENTROPY) return quotient_terms(p, k, factor);
    const double weights = k.has_class_weights ? weighted(p, k, 2) : voxels, norm = weights > 0.0 ? weights : 1.0;
    const double smoothing = (double)k.smoothing, share = smoothing / ((double)p.classes * norm);
    if (factor != 0.0) {
        for (u32 c = 0; c < p.classes; c++) {
            entropy[c] += factor * (1.0 - smoothing) / norm * class_weight(p, k, c);
            if (k.own_row) own[c] = factor * share * class_weight(p, k, c);
        }
    }
    const double value = (1.0 - smoothing) * weighted(p, k, 3) / norm;
    return k.own_row ? value + share * weighted(p, k, k.own_row) : value;
}

KERNEL(composite_loss, CompositeLoss) {
    if (threadIdx.x != 0) return;
    double loss = 0.0;
    for (u32 i = 0; i < p.components_count; i++) {
        const double value = component_value(p, p.components[i], 0.0);
        p.parts[i] = (float)value;
        loss += (double)p.components[i].weight * value;
    }
    p.loss[0] = (float)loss;
}

KERNEL(composite_loss_slopes, CompositeLoss) {
    if (threadIdx.x != 0) return;
    for (u32 i = 0; i < (3 * p.batch + 1 + p.own_count) * p.classes; i++) p.slopes[i] = 0.0;
    for (u32 i = 0; i < p.components_count; i++) {
        component_value(p, p.components[i], (double)p.upstream[0] * (double)p.components[i].weight);
    }
}
