// Convolutions: a thread for each element of the result, a loop over taps and channels.
//
// Weights lie [tap][input][output]. "Input" is the side that the kernel slides over, "output" the strided side, in all three
// directions, as in the definition of the convolution.
#include "place.cuh"

#define MOST_SOURCES 4

struct Geometry {
    u32 batch;
    u32 input[3];
    u32 output[3];
    u32 kernel[3];
    u32 stride[3];
    u32 padding[3];
    u32 dilation[3];
    u32 outputs;    // channels of the strided side
    u32 width;      // inputs of a group
    u32 groups;
};

struct Conv {
    const void* sources[MOST_SOURCES];
    u32 channels[MOST_SOURCES];
    const float* weights;
    const float* bias;    // none: null
    void* y;
    u32 source_count;
    u32 count;
    Geometry g;
};

template <class T, class U>
__device__ inline void conv(const Conv& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const Geometry& g = p.g;
    const u32 o = i % g.outputs;
    const Place at(i / g.outputs, g.output);
    // More than one group have a single source.
    const u32 first = o / (g.outputs / g.groups) * g.width;
    float sum = p.bias ? p.bias[o] : 0.0f;
    for (u32 kd = 0; kd < g.kernel[0]; kd++) {
        const u32 d = at.d * g.stride[0] + kd * g.dilation[0] - g.padding[0];
        // What is before the first voxel wraps around to large numbers.
        if (d >= g.input[0]) continue;
        for (u32 kh = 0; kh < g.kernel[1]; kh++) {
            const u32 h = at.h * g.stride[1] + kh * g.dilation[1] - g.padding[1];
            if (h >= g.input[1]) continue;
            for (u32 kw = 0; kw < g.kernel[2]; kw++) {
                const u32 w = at.w * g.stride[2] + kw * g.dilation[2] - g.padding[2];
                if (w >= g.input[2]) continue;
                const u32 tap = (kd * g.kernel[1] + kh) * g.kernel[2] + kw;
                const u32 from = voxel(at.sample, d, h, w, g.input);
                const float* weight = p.weights + (tap * g.width * g.outputs + o);
                for (u32 s = 0; s < p.source_count; s++) {
                    const T* x = (const T*)p.sources[s] + (from * p.channels[s] + first);
                    const u32 channels = g.groups > 1 ? g.width : p.channels[s];
                    for (u32 c = 0; c < channels; c++) {
                        sum = fmaf(load(x, c), *weight, sum);
                        weight += g.outputs;
                    }
                }
            }
        }
    }
    store((U*)p.y, i, sum);
}
BY_TWO_STORAGES(conv, Conv)

struct ConvTranspose {
    const void* source;
    const float* weights;
    const float* bias;    // none: null
    void* x;
    u32 first_channel;
    u32 channels;         // of the result
    u32 count;
    u32 unused;
    Geometry g;
};

// The strided place that meets a place under a tap, whose distance from the first tap is given; false if there is none.
__device__ inline bool meets(u32 place, u32 tap, u32 stride, u32 padding, u32 extent, u32* strided) {
    const u32 offset = place + padding - tap;
    *strided = offset / stride;
    return place + padding >= tap && *strided * stride == offset && *strided < extent;
}

template <class T, class U>
__device__ inline void conv_transpose(const ConvTranspose& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const Geometry& g = p.g;
    const u32 channel = i % p.channels;
    const Place at(i / p.channels, g.input);
    // More than one group have all channels.
    const u32 group = g.groups > 1 ? channel / g.width : 0;
    const u32 input = p.first_channel + channel - group * g.width;
    const u32 outputs = g.outputs / g.groups, first = group * outputs;
    float sum = p.bias ? p.bias[channel] : 0.0f;
    for (u32 kd = 0; kd < g.kernel[0]; kd++) {
        u32 d, h, w;
        if (!meets(at.d, kd * g.dilation[0], g.stride[0], g.padding[0], g.output[0], &d)) continue;
        for (u32 kh = 0; kh < g.kernel[1]; kh++) {
            if (!meets(at.h, kh * g.dilation[1], g.stride[1], g.padding[1], g.output[1], &h)) continue;
            for (u32 kw = 0; kw < g.kernel[2]; kw++) {
                if (!meets(at.w, kw * g.dilation[2], g.stride[2], g.padding[2], g.output[2], &w)) continue;
                const u32 tap = (kd * g.kernel[1] + kh) * g.kernel[2] + kw;
                const u32 from = voxel(at.sample, d, h, w, g.output);
                const T* y = (const T*)p.source + (from * g.outputs + first);
                const float* weight = p.weights + ((tap * g.width + input) * g.outputs + first);
                for (u32 o = 0; o < outputs; o++) sum = fmaf(load(y, o), weight[o], sum);
            }
        }
    }
    store((U*)p.x, i, sum);
}
BY_TWO_STORAGES(conv_transpose, ConvTranspose)

struct ConvWeightGrad {
    const void* sources[MOST_SOURCES];
    u32 channels[MOST_SOURCES];
    const void* dy;
    float* parts;      // [parts][tap][input][output]
    u32 source_count;
    u32 weights;       // how many
    u32 places;        // of dy, in all samples
    u32 length;        // places of a part
    u32 count;         // parts times weights
    u32 unused;
    Geometry g;
};

// A thread for each part of the places and each weight, the outputs side by side.
template <class T, class U>
__device__ inline void conv_weight_grad(const ConvWeightGrad& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const Geometry& g = p.g;
    const u32 weight = i % p.weights, part = i / p.weights;
    const u32 o = weight % g.outputs, tap = weight / g.outputs / g.width;
    const u32 kw = tap % g.kernel[2], kh = tap / g.kernel[2] % g.kernel[1], kd = tap / g.kernel[2] / g.kernel[1];
    u32 channel = weight / g.outputs % g.width + o / (g.outputs / g.groups) * g.width;
    u32 s = 0;
    while (channel >= p.channels[s]) {
        channel -= p.channels[s];
        s++;
    }
    const T* x = (const T*)p.sources[s] + channel;
    const u32 channels = p.channels[s];
    const u32 first = part * p.length, end = min(first + p.length, p.places);
    float total = 0.0f;
    for (u32 run = first; run < end; run += RUN) {
        float sum = 0.0f;
        for (u32 place = run; place < min(run + RUN, end); place++) {
            const Place at(place, g.output);
            const u32 d = at.d * g.stride[0] + kd * g.dilation[0] - g.padding[0];
            const u32 h = at.h * g.stride[1] + kh * g.dilation[1] - g.padding[1];
            const u32 w = at.w * g.stride[2] + kw * g.dilation[2] - g.padding[2];
            if (d >= g.input[0] || h >= g.input[1] || w >= g.input[2]) continue;
            const u32 from = voxel(at.sample, d, h, w, g.input);
            sum = fmaf(load(x, from * channels), load((const U*)p.dy, place * g.outputs + o), sum);
        }
        total += sum;
    }
    p.parts[i] = total;
}
BY_TWO_STORAGES(conv_weight_grad, ConvWeightGrad)
