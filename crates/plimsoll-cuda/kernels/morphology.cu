// Grey morphology of f32 volumes, a channel by itself: extremes of cubes, axis by axis, the erosion of soft skeletons, and their steps.
#include "place.cuh"

struct AxisWindow {
    const float* from;
    float* to;          // none: null
    u8* codes;          // which of a window its extreme is, from 0 to twice the radius; none: null
    u32 extent[3];
    u32 axis;
    u32 channels;
    u32 count;
    u32 radius;
    u32 is_max;
    float factor;
    u32 unused;
};

// An element's place along an axis, and how far apart such places are in memory.
struct AlongAxis {
    u32 place, length, step;
    __device__ AlongAxis(const AxisWindow& p, u32 i) {
        const Place at(i / p.channels, p.extent);
        place = p.axis == 0 ? at.d : p.axis == 1 ? at.h : at.w;
        length = p.extent[p.axis];
        step = p.channels * (p.axis == 0 ? p.extent[1] * p.extent[2] : p.axis == 1 ? p.extent[2] : 1);
    }
};

// A thread for each element: the extreme of its window along an axis, the first of equals. Axis by axis, width first, that is the
// first of a cube in the order of depth, height and width.
KERNEL(window_extreme, AxisWindow) {
    const u32 i = element();
    if (i >= p.count) return;
    const AlongAxis at(p, i);
    const u32 first = at.place - min(at.place, p.radius), last = min(at.place + p.radius, at.length - 1);
    const float* line = p.from + (i - at.place * at.step);
    float best = line[first * at.step];
    u32 which = first;
    for (u32 other = first + 1; other <= last; other++) {
        const float value = line[other * at.step];
        if (p.is_max ? value > best : value < best) {
            best = value;
            which = other;
        }
    }
    if (p.to) p.to[i] = best;
    if (p.codes) p.codes[i] = (u8)(which + p.radius - at.place);
}

// A thread for each element: the sum of what belongs to the windows along an axis whose extreme it is.
KERNEL(window_extreme_grad, AxisWindow) {
    const u32 i = element();
    if (i >= p.count) return;
    const AlongAxis at(p, i);
    const u32 first = at.place - min(at.place, p.radius), last = min(at.place + p.radius, at.length - 1);
    const u32 start = i - at.place * at.step;
    float sum = 0.0f;
    for (u32 middle = first; middle <= last; middle++) {
        const u32 place = start + middle * at.step;
        if (middle + p.codes[place] == at.place + p.radius) sum += p.from[place];
    }
    p.to[i] = p.factor * sum;
}

struct Cross {
    const float* x;
    const float* g;
    u16* codes;
    float* y;
    u32 extent[3];
    u32 channels;
    u32 count;
    u32 unused;
};

// The smallest along each axis of an element and its neighbours, the first of equals: values, and 0, 1 or 2 for which of them.
__device__ inline void smallest_along(const Cross& p, u32 i, float* values, u32* which) {
    const Place at(i / p.channels, p.extent);
    const u32 places[3] = {at.d, at.h, at.w};
    const u32 steps[3] = {p.extent[1] * p.extent[2] * p.channels, p.extent[2] * p.channels, p.channels};
    const float own = p.x[i];
#pragma unroll
    for (u32 axis = 0; axis < 3; axis++) {
        values[axis] = own;
        which[axis] = 1;
        if (places[axis] > 0 && p.x[i - steps[axis]] <= own) {
            values[axis] = p.x[i - steps[axis]];
            which[axis] = 0;
        }
        if (places[axis] + 1 < p.extent[axis] && p.x[i + steps[axis]] < values[axis]) {
            values[axis] = p.x[i + steps[axis]];
            which[axis] = 2;
        }
    }
}

KERNEL(cross_erosion, Cross) {
    const u32 i = element();
    if (i >= p.count) return;
    float values[3];
    u32 which[3];
    smallest_along(p, i, values, which);
    p.y[i] = fminf(values[0], fminf(values[1], values[2]));
}

// Where the gradient of an element goes: for each axis, which of the window's three and how many halves of halves, in a code of two
// and of three bits. The windows are compared one after the other, and of equals what is before and the new one have a half each.
KERNEL(cross_erosion_codes, Cross) {
    const u32 i = element();
    if (i >= p.count) return;
    float values[3];
    u32 which[3];
    smallest_along(p, i, values, which);
    // In quarters. In a volume of depth 1 there is no window along the depth.
    u32 shares[3] = {4, 0, 0};
    float smallest = values[0];
    if (p.extent[0] == 1) {
        shares[0] = 0;
        shares[1] = 4;
        smallest = values[1];
    } else if (values[1] <= smallest) {
        shares[1] = values[1] < smallest ? 4 : 2;
        shares[0] = 4 - shares[1];
        smallest = values[1];
    }
    if (values[2] < smallest) {
        shares[0] = shares[1] = 0;
        shares[2] = 4;
    } else if (values[2] == smallest) {
        shares[0] /= 2;
        shares[1] /= 2;
        shares[2] = 2;
    }
    u32 code = 0;
#pragma unroll
    for (u32 axis = 0; axis < 3; axis++) code |= (which[axis] | shares[axis] << 2) << (5 * axis);
    p.codes[i] = (u16)code;
}

// What an element gets of the window along an axis of one that has a code, if it is the `which`-th of it.
__device__ inline float share_of(u32 code, u32 axis, u32 which) {
    const u32 own = code >> (5 * axis) & 31u;
    return (own & 3u) == which ? 0.25f * (float)(own >> 2) : 0.0f;
}

// A thread for each element.
KERNEL(cross_erosion_grad, Cross) {
    const u32 i = element();
    if (i >= p.count) return;
    const Place at(i / p.channels, p.extent);
    const u32 places[3] = {at.d, at.h, at.w};
    const u32 steps[3] = {p.extent[1] * p.extent[2] * p.channels, p.extent[2] * p.channels, p.channels};
    float sum = 0.0f;
#pragma unroll
    for (u32 axis = 0; axis < 3; axis++) {
        sum = fmaf(share_of(p.codes[i], axis, 1), p.g[i], sum);
        if (places[axis] > 0) {
            const u32 before = i - steps[axis];
            sum = fmaf(share_of(p.codes[before], axis, 2), p.g[before], sum);
        }
        if (places[axis] + 1 < p.extent[axis]) {
            const u32 after = i + steps[axis];
            sum = fmaf(share_of(p.codes[after], axis, 0), p.g[after], sum);
        }
    }
    p.y[i] = sum;
}

struct SkeletonStep {
    const float* x;
    const float* eroded;
    const float* skeleton;    // so far; none: null
    const float* g;           // of the gradient
    float* y;                 // the skeleton, or the gradient of x
    float* dskeleton;         // none: null
    u32 extent[3];
    u32 channels;
    u32 count;
    u32 is_maximum;           // the union; else that of probabilities
};

// x without the dilation of its erosion by 3 x 3 x 3.
__device__ inline float residue(const SkeletonStep& p, u32 i) {
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, p.extent);
    float largest = p.eroded[i];
    for (u32 d = at.d - min(at.d, 1u); d <= min(at.d + 1, p.extent[0] - 1); d++) {
        for (u32 h = at.h - min(at.h, 1u); h <= min(at.h + 1, p.extent[1] - 1); h++) {
            for (u32 w = at.w - min(at.w, 1u); w <= min(at.w + 1, p.extent[2] - 1); w++) {
                largest = fmaxf(largest, p.eroded[voxel(at.sample, d, h, w, p.extent) * p.channels + channel]);
            }
        }
    }
    return p.x[i] - largest;
}

// What is added to the skeleton if it is above zero.
__device__ inline float growth(const SkeletonStep& p, float d, float s) {
    return p.is_maximum ? d - s : d - s * d;
}

// A thread for each element.
KERNEL(skeleton_step, SkeletonStep) {
    const u32 i = element();
    if (i >= p.count) return;
    const float d = fmaxf(residue(p, i), 0.0f), s = p.skeleton ? p.skeleton[i] : 0.0f;
    p.y[i] = s + fmaxf(growth(p, d, s), 0.0f);
}

// A thread for each element. The slope of what is cut off at zero is zero there.
KERNEL(skeleton_step_grad, SkeletonStep) {
    const u32 i = element();
    if (i >= p.count) return;
    const float rest = residue(p, i), d = fmaxf(rest, 0.0f), s = p.skeleton ? p.skeleton[i] : 0.0f, g = p.g[i];
    float by_d = 0.0f, by_s = 1.0f;
    if (growth(p, d, s) > 0.0f) {
        by_d = p.is_maximum ? 1.0f : 1.0f - s;
        by_s = p.is_maximum ? 0.0f : 1.0f - d;
    }
    p.y[i] = rest > 0.0f ? g * by_d : 0.0f;
    if (p.dskeleton) p.dskeleton[i] = g * by_s;
}
