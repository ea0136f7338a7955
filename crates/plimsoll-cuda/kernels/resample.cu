// Coarser and finer grids: pools, interpolation, and channels that become voxels. A thread for each element of the result, which gathers
// what it is made of.
#include "place.cuh"

// `fine` and `coarse` are the extents of the two grids, whichever of them is the operand's. Of a pool, `window` is its step along each
// axis; where a grid is doubled, it is 2.
struct Resample {
    const void* from;
    void* to;
    u32 fine[3];
    u32 coarse[3];
    u32 window[3];
    u32 channels;    // of the result
    u32 count;
    u32 unused;
};

template <class T>
__device__ inline void avg_pool(const Resample& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, p.coarse);
    float sum = 0.0f;
    for (u32 d = at.d * p.window[0]; d < (at.d + 1) * p.window[0]; d++) {
        for (u32 h = at.h * p.window[1]; h < (at.h + 1) * p.window[1]; h++) {
            for (u32 w = at.w * p.window[2]; w < (at.w + 1) * p.window[2]; w++) {
                sum += load((const T*)p.from, voxel(at.sample, d, h, w, p.fine) * p.channels + channel);
            }
        }
    }
    store((T*)p.to, i, sum / (float)(p.window[0] * p.window[1] * p.window[2]));
}
BY_STORAGE(avg_pool, Resample)

template <class T>
__device__ inline void avg_pool_grad(const Resample& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, p.fine);
    const u32 d = at.d / p.window[0], h = at.h / p.window[1], w = at.w / p.window[2];
    float value = 0.0f;
    // What fills no window is left out.
    if (d < p.coarse[0] && h < p.coarse[1] && w < p.coarse[2]) {
        value = load((const T*)p.from, voxel(at.sample, d, h, w, p.coarse) * p.channels + channel);
    }
    store((T*)p.to, i, value / (float)(p.window[0] * p.window[1] * p.window[2]));
}
BY_STORAGE(avg_pool_grad, Resample)

// One of the two places of a coarse axis that a place of the fine axis is made of, and its weight.
__device__ inline u32 tap_of(u32 fine, u32 tap, u32 coarse, u32 factor, float* weight) {
    if (factor == 1) {
        *weight = tap == 0 ? 1.0f : 0.0f;
        return fine;
    }
    const u32 half = fine / 2;
    *weight = (fine + tap) % 2 == 0 ? 0.25f : 0.75f;
    if (fine % 2 == 0) return tap == 0 ? (half > 0 ? half - 1 : 0) : half;
    return tap == 0 ? half : min(half + 1, coarse - 1);
}

template <class T>
__device__ inline void upsample2(const Resample& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, p.fine);
    float sum = 0.0f;
    for (u32 tap = 0; tap < 8; tap++) {
        float of_d, of_h, of_w;
        const u32 d = tap_of(at.d, tap / 4, p.coarse[0], p.window[0], &of_d);
        const u32 h = tap_of(at.h, tap / 2 % 2, p.coarse[1], p.window[1], &of_h);
        const u32 w = tap_of(at.w, tap % 2, p.coarse[2], p.window[2], &of_w);
        const float weight = of_d * of_h * of_w;
        if (weight == 0.0f) continue;
        sum = fmaf(weight, load((const T*)p.from, voxel(at.sample, d, h, w, p.coarse) * p.channels + channel), sum);
    }
    store((T*)p.to, i, sum);
}
BY_STORAGE(upsample2, Resample)

// The weight of a place of the coarse axis in one of the fine axis.
__device__ inline float weight_in(u32 fine, u32 place, u32 coarse, u32 factor) {
    float first, second;
    const u32 of_first = tap_of(fine, 0, coarse, factor, &first), of_second = tap_of(fine, 1, coarse, factor, &second);
    return (of_first == place ? first : 0.0f) + (of_second == place ? second : 0.0f);
}

// The places of the fine axis that a place of the coarse axis may be part of.
__device__ inline void reach(u32 place, u32 fine, u32 factor, u32* first, u32* end) {
    *first = factor == 1 ? place : (place > 0 ? 2 * place - 1 : 0);
    *end = factor == 1 ? place + 1 : min(2 * place + 3, fine);
}

template <class T>
__device__ inline void upsample2_grad(const Resample& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, p.coarse);
    u32 first[3], end[3];
    reach(at.d, p.fine[0], p.window[0], &first[0], &end[0]);
    reach(at.h, p.fine[1], p.window[1], &first[1], &end[1]);
    reach(at.w, p.fine[2], p.window[2], &first[2], &end[2]);
    float sum = 0.0f;
    for (u32 d = first[0]; d < end[0]; d++) {
        const float of_d = weight_in(d, at.d, p.coarse[0], p.window[0]);
        for (u32 h = first[1]; h < end[1]; h++) {
            const float of_h = of_d * weight_in(h, at.h, p.coarse[1], p.window[1]);
            for (u32 w = first[2]; w < end[2]; w++) {
                const float weight = of_h * weight_in(w, at.w, p.coarse[2], p.window[2]);
                sum = fmaf(weight, load((const T*)p.from, voxel(at.sample, d, h, w, p.fine) * p.channels + channel), sum);
            }
        }
    }
    store((T*)p.to, i, sum);
}
BY_STORAGE(upsample2_grad, Resample)

// Which of the channels that become a block of voxels has the voxel at a place.
__device__ inline u32 part_of(u32 d, u32 h, u32 w, const u32* window) {
    u32 part = 0;
    if (window[0] == 2) part = d % 2;
    if (window[1] == 2) part = part * 2 + h % 2;
    if (window[2] == 2) part = part * 2 + w % 2;
    return part;
}

template <class T>
__device__ inline void subpixel(const Resample& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels, parts = p.window[0] * p.window[1] * p.window[2];
    const Place at(i / p.channels, p.fine);
    float sum = 0.0f;
    for (u32 dd = 0; dd < p.window[0] && dd <= at.d; dd++) {
        for (u32 dh = 0; dh < p.window[1] && dh <= at.h; dh++) {
            for (u32 dw = 0; dw < p.window[2] && dw <= at.w; dw++) {
                const u32 d = at.d - dd, h = at.h - dh, w = at.w - dw, part = part_of(d, h, w, p.window);
                const u32 from = voxel(at.sample, d / p.window[0], h / p.window[1], w / p.window[2], p.coarse);
                sum += load((const T*)p.from, (from * p.channels + channel) * parts + part);
            }
        }
    }
    store((T*)p.to, i, sum / (float)parts);
}
BY_STORAGE(subpixel, Resample)

template <class T>
__device__ inline void subpixel_grad(const Resample& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 parts = p.window[0] * p.window[1] * p.window[2];
    const u32 channels = p.channels / parts, channel = i % p.channels / parts;
    u32 part = i % parts;
    const Place at(i / p.channels, p.coarse);
    // The voxel that this channel becomes: the last axis has the lowest bit.
    u32 d = at.d, h = at.h, w = at.w;
    if (p.window[2] == 2) {
        w = 2 * w + part % 2;
        part /= 2;
    }
    if (p.window[1] == 2) {
        h = 2 * h + part % 2;
        part /= 2;
    }
    if (p.window[0] == 2) d = 2 * d + part;
    float sum = 0.0f;
    for (u32 z = d; z < min(d + p.window[0], p.fine[0]); z++) {
        for (u32 y = h; y < min(h + p.window[1], p.fine[1]); y++) {
            for (u32 x = w; x < min(w + p.window[2], p.fine[2]); x++) {
                sum += load((const T*)p.from, voxel(at.sample, z, y, x, p.fine) * channels + channel);
            }
        }
    }
    store((T*)p.to, i, sum / (float)parts);
}
BY_STORAGE(subpixel_grad, Resample)

struct MaxPool {
    const void* x;
    const void* dz;    // of the gradient
    void* y;
    u32 input[3];
    u32 output[3];
    u32 kernel[3];
    u32 stride[3];
    u32 padding[3];
    u32 channels;
    u32 count;
    u32 unused;
};

// The places of an axis that a window takes.
__device__ inline void places(const MaxPool& p, u32 axis, u32 window, u32* first, u32* end) {
    const u32 begin = window * p.stride[axis], last = begin + p.kernel[axis], padding = p.padding[axis];
    *first = begin > padding ? begin - padding : 0;
    *end = min(last > padding ? last - padding : 0, p.input[axis]);
}

// The first voxel of a window with the largest value; NaN is larger than any number.
template <class T>
__device__ inline u32 largest(const MaxPool& p, u32 sample, u32 d, u32 h, u32 w, u32 channel) {
    u32 first[3], end[3];
    places(p, 0, d, &first[0], &end[0]);
    places(p, 1, h, &first[1], &end[1]);
    places(p, 2, w, &first[2], &end[2]);
    u32 best = voxel(sample, first[0], first[1], first[2], p.input);
    float known = load((const T*)p.x, best * p.channels + channel);
    for (u32 z = first[0]; z < end[0]; z++) {
        for (u32 y = first[1]; y < end[1]; y++) {
            for (u32 x = first[2]; x < end[2]; x++) {
                const u32 next = voxel(sample, z, y, x, p.input);
                const float value = load((const T*)p.x, next * p.channels + channel);
                if (value > known || (value != value && known == known)) {
                    known = value;
                    best = next;
                }
            }
        }
    }
    return best;
}

template <class T>
__device__ inline void max_pool(const MaxPool& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, p.output);
    const u32 best = largest<T>(p, at.sample, at.d, at.h, at.w, channel);
    store((T*)p.y, i, load((const T*)p.x, best * p.channels + channel));
}
BY_STORAGE(max_pool, MaxPool)

// The windows of an axis that may take a place.
__device__ inline void windows(const MaxPool& p, u32 axis, u32 place, u32* first, u32* end) {
    const u32 padded = place + p.padding[axis], kernel = p.kernel[axis], stride = p.stride[axis];
    *first = padded >= kernel ? (padded - kernel) / stride + 1 : 0;
    *end = min(padded / stride + 1, p.output[axis]);
}

template <class T>
__device__ inline void max_pool_grad(const MaxPool& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels, own = i / p.channels;
    const Place at(own, p.input);
    u32 first[3], end[3];
    windows(p, 0, at.d, &first[0], &end[0]);
    windows(p, 1, at.h, &first[1], &end[1]);
    windows(p, 2, at.w, &first[2], &end[2]);
    float sum = 0.0f;
    for (u32 d = first[0]; d < end[0]; d++) {
        for (u32 h = first[1]; h < end[1]; h++) {
            for (u32 w = first[2]; w < end[2]; w++) {
                if (largest<T>(p, at.sample, d, h, w, channel) != own) continue;
                sum += load((const T*)p.dz, voxel(at.sample, d, h, w, p.output) * p.channels + channel);
            }
        }
    }
    store((T*)p.y, i, sum);
}
BY_STORAGE(max_pool_grad, MaxPool)

// Linear interpolation with the outermost voxels fixed: the lower of the two places of a coarse axis, and the share of the upper one.
__device__ inline u32 aligned_tap(u32 fine, u32 coarse, u32 factor, float* share) {
    *share = 0.0f;
    if (factor == 1) return fine;
    const u32 steps = 2 * coarse - 1, lower = fine * (coarse - 1) / steps;
    *share = (float)(fine * (coarse - 1) - lower * steps) / (float)steps;
    return lower;
}

template <class T>
__device__ inline void upsample_aligned(const Resample& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, p.fine);
    float of_d, of_h, of_w, sum = 0.0f;
    const u32 d = aligned_tap(at.d, p.coarse[0], p.window[0], &of_d);
    const u32 h = aligned_tap(at.h, p.coarse[1], p.window[1], &of_h);
    const u32 w = aligned_tap(at.w, p.coarse[2], p.window[2], &of_w);
    for (u32 tap = 0; tap < 8; tap++) {
        const u32 z = tap / 4, y = tap / 2 % 2, x = tap % 2;
        const float weight = (z ? of_d : 1.0f - of_d) * (y ? of_h : 1.0f - of_h) * (x ? of_w : 1.0f - of_w);
        if (weight == 0.0f) continue;
        sum = fmaf(weight, load((const T*)p.from, voxel(at.sample, d + z, h + y, w + x, p.coarse) * p.channels + channel), sum);
    }
    store((T*)p.to, i, sum);
}
BY_STORAGE(upsample_aligned, Resample)

// Planes of zeroes in front of the coarse grid, as many as `window` says, make the fine one.
template <class T>
__device__ inline void pad_front(const Resample& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, p.fine);
    float value = 0.0f;
    if (at.d >= p.window[0] && at.h >= p.window[1] && at.w >= p.window[2]) {
        const u32 place = voxel(at.sample, at.d - p.window[0], at.h - p.window[1], at.w - p.window[2], p.coarse);
        value = load((const T*)p.from, place * p.channels + channel);
    }
    store((T*)p.to, i, value);
}
BY_STORAGE(pad_front, Resample)

template <class T>
__device__ inline void pad_front_grad(const Resample& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, p.coarse);
    const u32 place = voxel(at.sample, at.d + p.window[0], at.h + p.window[1], at.w + p.window[2], p.fine);
    store((T*)p.to, i, load((const T*)p.from, place * p.channels + channel));
}
BY_STORAGE(pad_front_grad, Resample)
