// Global response normalisation (Woo et al. 2023, arXiv:2301.00808), of the sums over voxels that `plane_sums` makes.
#include "common.cuh"

struct Responses {
    const float* squares;     // [sample][channel]: the sums of squares over voxels
    const float* products;    // the sums of dz times x; null without a gradient
    const float* scale;       // [channel]
    float* numbers;           // [sample][channel][3]: the factor of x (of dz in the gradient), of x in the gradient, and the channel's share of the gradient of the scale
    u32 channels;
    float epsilon;
};

// A block for each sample.
KERNEL(responses, Responses) {
    const u32 first = blockIdx.x * p.channels;
    double norms = 0.0, weighted = 0.0;
    for (u32 c = threadIdx.x; c < p.channels; c += BLOCK) {
        const double norm = sqrt((double)p.squares[first + c]);
        norms += norm;
        if (p.products) weighted += (double)p.scale[c] * (double)p.products[first + c] * norm;
    }
    const double mean = block_sum(norms) / (double)p.channels + (double)p.epsilon;
    const double shared = block_sum(weighted) / ((double)p.channels * mean * mean);
    for (u32 c = threadIdx.x; c < p.channels; c += BLOCK) {
        const double norm = sqrt((double)p.squares[first + c]), scale = (double)p.scale[c];
        const double product = p.products ? (double)p.products[first + c] : 0.0;
        float* numbers = p.numbers + 3 * (first + c);
        numbers[0] = (float)(1.0 + scale * norm / mean);
        numbers[1] = norm > 0.0 ? (float)((scale * product / mean - shared) / norm) : 0.0f;
        numbers[2] = (float)(product * norm / mean);
    }
}

struct ResponseNorm {
    const void* dz;           // of the gradient; else null
    const void* x;
    const float* numbers;
    const float* shift;
    void* y;
    u32 voxels;
    u32 channels;
    u32 count;
    u32 unused;
};

template <class T>
__device__ inline void response_norm(const ResponseNorm& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    const float factor = p.numbers[3 * (i / p.channels / p.voxels * p.channels + channel)];
    store((T*)p.y, i, fmaf(factor, load((const T*)p.x, i), p.shift[channel]));
}
BY_STORAGE(response_norm, ResponseNorm)

template <class T>
__device__ inline void response_norm_grad(const ResponseNorm& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const float* numbers = p.numbers + 3 * (i / p.channels / p.voxels * p.channels + i % p.channels);
    store((T*)p.y, i, fmaf(numbers[0], load((const T*)p.dz, i), numbers[1] * load((const T*)p.x, i)));
}
BY_STORAGE(response_norm_grad, ResponseNorm)

struct ResponseScaleGrad {
    const float* numbers;
    float* y;
    u32 channels;
    u32 samples;
};

// A thread for each channel.
KERNEL(response_scale_grad, ResponseScaleGrad) {
    const u32 channel = element();
    if (channel >= p.channels) return;
    double sum = 0.0;
    for (u32 sample = 0; sample < p.samples; sample++) sum += (double)p.numbers[3 * (sample * p.channels + channel) + 2];
    p.y[channel] = (float)sum;
}
