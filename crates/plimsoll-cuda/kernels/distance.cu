// The exact Euclidean distance transform of predicted masks, axis by axis (Felzenszwalb and Huttenlocher 2012 for the decomposition).
//
// Each element carries its squared distance to the other side of its class's mask: positive outside, negative inside. Those of a line
// are enough to go on along the next axis: for what is inside, every element outside has distance zero, and the other way round.
// Elements are [sample][voxel][class - 1], so that neighbouring threads read neighbouring lines.
#include "place.cuh"
#include "voxels.cuh"

struct DistanceAlong {
    const float* probabilities;
    const u8* labels;
    const float* from;
    float* to;
    u32 extent[3];
    u32 axis;
    u32 classes;      // the background among them
    u32 ignore;
    u32 count;
    float spacing;    // along the axis
    u32 is_last;      // whether distances are wanted, not squares
    u32 is_signed;    // whether those inside are wanted
};

#define INFINITE __uint_as_float(0x7f800000u)

// Of an element before the first axis: infinitely far from the other side.
__device__ inline float of_mask(const DistanceAlong& p, u32 i) {
    const bool inside = p.probabilities[i] > 0.5f && label_counts(p.labels[i / (p.classes - 1)], p.classes, p.ignore);
    return inside ? -INFINITE : INFINITE;
}

// A thread for each element, which looks along its line until nothing that is farther can be nearer.
KERNEL(distance_along, DistanceAlong) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 foreground = p.classes - 1;
    const Place at(i / foreground, p.extent);
    const u32 place = p.axis == 0 ? at.d : p.axis == 1 ? at.h : at.w, length = p.extent[p.axis];
    const u32 step = foreground * (p.axis == 0 ? p.extent[1] * p.extent[2] : p.axis == 1 ? p.extent[2] : 1);
    const float own = p.from ? p.from[i] : of_mask(p, i);
    const bool inside = own < 0.0f;
    float nearest = fabsf(own);
    if (!inside || p.is_signed) {
        for (u32 distance = 1; distance < length; distance++) {
            const float along = p.spacing * (float)distance, square = along * along;
            if (square >= nearest) break;
            if (place >= distance) {
                const float other = p.from ? p.from[i - distance * step] : of_mask(p, i - distance * step);
                const float rest = (other < 0.0f) == inside ? fabsf(other) : 0.0f;
                nearest = fminf(nearest, square + rest);
            }
            if (place + distance < length) {
                const float other = p.from ? p.from[i + distance * step] : of_mask(p, i + distance * step);
                const float rest = (other < 0.0f) == inside ? fabsf(other) : 0.0f;
                nearest = fminf(nearest, square + rest);
            }
        }
    }
    if (!p.is_last) {
        p.to[i] = inside ? -nearest : nearest;
    } else if (inside) {
        p.to[i] = p.is_signed ? -sqrtf(nearest) : 0.0f;
    } else {
        p.to[i] = sqrtf(nearest);
    }
}
