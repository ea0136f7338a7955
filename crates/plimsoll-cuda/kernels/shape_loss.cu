// Losses that are means of a term over voxels that count and foreground classes, [sample][voxel][class - 1]: of distances, or of how far
// boundaries are apart.
#include "place.cuh"
#include "voxels.cuh"

// Elements of a thread, and of a block, that sums terms of voxels.
#define TERMS_OF_THREAD 8
#define TERMS_OF_BLOCK (BLOCK * TERMS_OF_THREAD)

enum { NO_TERM, BOUNDARY, HAUSDORFF, SURFACE, SURFACE_AS_PUBLISHED };

struct ShapeLoss {
    const float* probabilities;
    const u8* labels;
    const float* target;       // distances to it; none: null
    const float* predicted;    // distances to it; none: null
    const float* factor;       // of the gradient
    double* parts;             // [part][2]: the sum of the terms, and of voxels that count
    u8* codes;                 // of the gradient of boundaries
    float* gradient;
    u32 extent[3];
    u32 classes;               // the background among them
    u32 ignore;
    u32 count;                 // elements
    u32 term;
    float number;              // alpha, or the tolerance
};

// The term of a voxel and class and its derivative by p.
__device__ inline void distance_term(const ShapeLoss& p, u32 i, bool here, float* value, float* slope) {
    const float of_class = p.probabilities[i], t = here ? 1.0f : 0.0f;
    float target = p.target[i], predicted = p.predicted ? p.predicted[i] : 0.0f;
    if (p.term == BOUNDARY || p.term == HAUSDORFF) {
        if (!is_finite(target)) target = 0.0f;
        if (!is_finite(predicted)) predicted = 0.0f;
    } else {
        target = fminf(fmaxf(target, 0.0f) / p.number, 1.0f);
        predicted = fminf(fmaxf(predicted, 0.0f) / p.number, 1.0f);
    }
    if (p.term == BOUNDARY) {
        *value = target * of_class;
        *slope = target;
    } else if (p.term == HAUSDORFF) {
        const float distance = power(fabsf(predicted), p.number) + power(fabsf(target), p.number), error = of_class - t;
        *value = error * error * distance;
        *slope = 2.0f * error * distance;
    } else if (p.term == SURFACE) {
        *value = fmaf(target, of_class, predicted * t * (1.0f - of_class));
        *slope = target - predicted * t;
    } else {
        *value = fmaf(target, 1.0f - of_class, predicted * t);
        *slope = -target;
    }
}

// Where the k-th of a voxel and those that share a face with it is, in the order in which the least is searched for: itself, then
// by memory. Beyond an edge it is the voxel itself.
#define FACES 7u

__device__ inline u32 face_of(const u32* extent, const Place& at, u32 k) {
    u32 d = at.d, h = at.h, w = at.w;
    if (k == 1 && d > 0) d--;
    if (k == 2 && h > 0) h--;
    if (k == 3 && w > 0) w--;
    if (k == 4 && w + 1 < extent[2]) w++;
    if (k == 5 && h + 1 < extent[1]) h++;
    if (k == 6 && d + 1 < extent[0]) d++;
    return voxel(at.sample, d, h, w, extent);
}

// The difference of the soft boundaries of prediction and target at an element, and which neighbour is the least of the prediction.
__device__ inline float boundary_difference(const ShapeLoss& p, u32 i, u32* least) {
    const u32 foreground = p.classes - 1, c = i % foreground + 1;
    const Place at(i / foreground, p.extent);
    float own = 0.0f, lowest = 0.0f, own_target = 0.0f, lowest_target = 0.0f;
#pragma unroll
    for (u32 k = 0; k < FACES; k++) {
        const u32 place = face_of(p.extent, at, k), label = p.labels[place];
        const bool counts = label_counts(label, p.classes, p.ignore);
        const float value = counts ? p.probabilities[place * foreground + c - 1] : 0.0f;
        const float target = counts && label == c ? 1.0f : 0.0f;
        if (k == 0) {
            own = lowest = value;
            own_target = lowest_target = target;
            *least = 0;
        } else if (value < lowest) {
            lowest = value;
            *least = k;
        }
        lowest_target = fminf(lowest_target, target);
    }
    return own - lowest - (own_target - lowest_target);
}

// A block for each part of the elements.
KERNEL(shape_loss_parts, ShapeLoss) {
    float sum = 0.0f, voxels = 0.0f;
#pragma unroll 1
    for (u32 j = 0; j < TERMS_OF_THREAD; j++) {
        const u32 i = blockIdx.x * TERMS_OF_BLOCK + j * BLOCK + threadIdx.x;
        if (i >= p.count) continue;
        const u32 label = p.labels[i / (p.classes - 1)], c = i % (p.classes - 1) + 1;
        if (!label_counts(label, p.classes, p.ignore)) continue;
        float value, slope;
        u32 least;
        if (p.term == NO_TERM) {
            value = fabsf(boundary_difference(p, i, &least));
        } else {
            distance_term(p, i, label == c, &value, &slope);
        }
        sum += value;
        // A voxel counts once, not once for each class.
        if (c == 1) voxels += 1.0f;
    }
    const double of_block = block_sum((double)sum), counted = block_sum((double)voxels);
    if (threadIdx.x != 0) return;
    p.parts[2 * blockIdx.x] = of_block;
    p.parts[2 * blockIdx.x + 1] = counted;
}

struct ShapeLossMean {
    const double* parts;
    const double* known;       // of the gradient: the sum and the number of voxels
    const float* upstream;     // of the gradient
    float* loss;               // or the factor of all slopes
    double* table;             // the sum and the number of voxels
    u32 parts_count;
    u32 foreground;
    u32 is_log;
    u32 unused;
};

// The loss of the parts, by one block.
KERNEL(shape_loss, ShapeLossMean) {
    double sum = 0.0, voxels = 0.0;
    for (u32 part = threadIdx.x; part < p.parts_count; part += BLOCK) {
        sum += p.parts[2 * part];
        voxels += p.parts[2 * part + 1];
    }
    sum = block_sum(sum);
    voxels = block_sum(voxels);
    if (threadIdx.x != 0) return;
    const double mean = sum / (fmax(voxels, 1.0) * (double)p.foreground);
    p.loss[0] = (float)(p.is_log ? log1p(mean) : mean);
    p.table[0] = sum;
    p.table[1] = voxels;
}

// What the derivatives of all terms are multiplied with.
KERNEL(shape_loss_factor, ShapeLossMean) {
    if (threadIdx.x != 0) return;
    const double elements = fmax(p.known[1], 1.0) * (double)p.foreground;
    const double slope = p.is_log ? 1.0 / (1.0 + p.known[0] / elements) : 1.0;
    p.loss[0] = (float)((double)p.upstream[0] * slope / elements);
}

// A thread for each element.
KERNEL(distance_loss_grad, ShapeLoss) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 label = p.labels[i / (p.classes - 1)];
    float value = 0.0f, slope = 0.0f;
    if (label_counts(label, p.classes, p.ignore)) distance_term(p, i, label == i % (p.classes - 1) + 1, &value, &slope);
    p.gradient[i] = p.factor[0] * slope;
}

// A thread for each element: which neighbour is the least, and which sign the difference has; 0 where there is no slope.
KERNEL(boundary_codes, ShapeLoss) {
    const u32 i = element();
    if (i >= p.count) return;
    u32 code = 0, least;
    if (label_counts(p.labels[i / (p.classes - 1)], p.classes, p.ignore)) {
        const float difference = boundary_difference(p, i, &least);
        code = difference > 0.0f ? 1 + least : difference < 0.0f ? 1 + FACES + least : 0;
    }
    p.codes[i] = (u8)code;
}

// The slope of a code: 1, 0 or -1.
__device__ inline float sign_of(u32 code) {
    return code == 0 ? 0.0f : code <= FACES ? 1.0f : -1.0f;
}

// A thread for each element: what it gives as the middle, without what it takes as the least of others.
KERNEL(boundary_grad, ShapeLoss) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 foreground = p.classes - 1;
    const Place at(i / foreground, p.extent);
    float sum = sign_of(p.codes[i]);
#pragma unroll
    for (u32 k = 0; k < FACES; k++) {
        const u32 place = face_of(p.extent, at, k), code = p.codes[place * foreground + i % foreground];
        // Seen from the neighbour it is on the opposite side.
        const u32 opposite = k == 0 ? 0 : FACES - k;
        if ((k == 0 || place != i / foreground) && code > 0 && (code - 1) % FACES == opposite) sum -= sign_of(code);
    }
    const bool counts = label_counts(p.labels[i / foreground], p.classes, p.ignore);
    p.gradient[i] = counts ? p.factor[0] * sum : 0.0f;
}
