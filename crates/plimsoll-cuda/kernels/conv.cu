// Convolutions: a thread for a few results side by side along the width, a loop over taps and channels.
//
// Weights lie [tap][input][output]. "Input" is the side that the kernel slides over, "output" the strided side, in all three
// directions, as in the definition of the convolution.
#include "pack.cuh"
#include "place.cuh"

#define MOST_SOURCES 4

// Results along the width, or channels, that a thread computes at once: what it loads for one serves all. `ABREAST` of `ops/conv/plain.rs`.
#define ABREAST 4

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
    u32 count;            // threads: of [n][d][h][results abreast][output]
    u32 abreast;          // of a row
    u32 first;            // thread of the launch, which may be one of several
    Geometry g;
};

// Whether some channels, from `first` on, of voxels with `all` channels are whole packs.
template <class T>
__device__ inline bool are_packs(u32 channels, u32 all, u32 first) {
    return (channels | all | first) % Pack<T>::SIZE == 0;
}

// Adds the products of channels, whole packs of voxels that lie `step` apart, with weights that lie `stride` apart.
template <class T>
__device__ inline void add_packs(float (&sums)[ABREAST], const T* x, u32 step, u32 channels, const float* weight, u32 stride) {
    const T* voxels[ABREAST];
#pragma unroll
    for (int j = 0; j < ABREAST; j++) voxels[j] = x + j * step;
#pragma unroll 1
    for (u32 c = 0; c < channels; c += Pack<T>::SIZE) {
        float values[ABREAST][Pack<T>::SIZE];
#pragma unroll
        for (int j = 0; j < ABREAST; j++) {
            Pack<T>::load(voxels[j], values[j]);
            voxels[j] += Pack<T>::SIZE;
        }
#pragma unroll
        for (u32 k = 0; k < Pack<T>::SIZE; k++) {
            const float by = *weight;
            weight += stride;
#pragma unroll
            for (int j = 0; j < ABREAST; j++) sums[j] = fmaf(values[j][k], by, sums[j]);
        }
    }
}

template <class T, class U>
__device__ inline void conv(const Conv& p) {
    const u32 i = p.first + element();
    if (i >= p.count) return;
    const Geometry& g = p.g;
    const u32 o = i % g.outputs;
    const u32 extent[3] = {g.output[0], g.output[1], p.abreast};
    const Place at(i / g.outputs, extent);
    const u32 first_w = at.w * ABREAST;
    // More than one group have a single source.
    const u32 first = o / (g.outputs / g.groups) * g.width;
    float sums[ABREAST];
#pragma unroll
    for (int j = 0; j < ABREAST; j++) sums[j] = p.bias ? p.bias[o] : 0.0f;
#pragma unroll 1
    for (u32 kd = 0; kd < g.kernel[0]; kd++) {
        const u32 d = at.d * g.stride[0] + kd * g.dilation[0] - g.padding[0];
        // What is before the first voxel wraps around to large numbers.
        if (d >= g.input[0]) continue;
#pragma unroll 1
        for (u32 kh = 0; kh < g.kernel[1]; kh++) {
            const u32 h = at.h * g.stride[1] + kh * g.dilation[1] - g.padding[1];
            if (h >= g.input[1]) continue;
            const u32 row = voxel(at.sample, d, h, 0, g.input);
            const float* weight = p.weights + ((kd * g.kernel[1] + kh) * g.kernel[2] * g.width * g.outputs + o);
            u32 w = first_w * g.stride[2] - g.padding[2];
#pragma unroll 1
            for (u32 kw = 0; kw < g.kernel[2]; kw++, w += g.dilation[2]) {
                // The first may lie before the volume, where an index is negative; it is not read there.
                bool there[ABREAST], all = true;
#pragma unroll
                for (int j = 0; j < ABREAST; j++) {
                    there[j] = w + j * g.stride[2] < g.input[2];
                    all = all && there[j];
                }
#pragma unroll 1
                for (u32 s = 0; s < p.source_count; s++) {
                    const u32 step = g.stride[2] * p.channels[s];
                    const T* x = (const T*)p.sources[s] + (int)((row + w) * p.channels[s] + first);
                    const u32 channels = g.groups > 1 ? g.width : p.channels[s];
                    if (all && are_packs<T>(channels, p.channels[s], first)) {
                        add_packs(sums, x, step, channels, weight, g.outputs);
                    } else {
#pragma unroll 1
                        for (u32 c = 0; c < channels; c++) {
                            const float by = weight[c * g.outputs];
#pragma unroll
                            for (int j = 0; j < ABREAST; j++) {
                                if (there[j]) sums[j] = fmaf(load(x + j * step, c), by, sums[j]);
                            }
                        }
                    }
                    weight += channels * g.outputs;
                }
            }
        }
    }
    const u32 y = voxel(at.sample, at.d, at.h, first_w, g.output) * g.outputs + o;
#pragma unroll
    for (int j = 0; j < ABREAST; j++) {
        if (first_w + j < g.output[2]) store((U*)p.y, y + j * g.outputs, sums[j]);
    }
}
BY_TWO_STORAGES(conv, Conv)

struct TurnWeights {
    const float* weights;    // [tap][input][output]
    float* turned;           // [tap][output][input]
    u32 inputs;
    u32 outputs;
    u32 count;
    u32 unused;
};

// Weights by which a transposed convolution multiplies, in the order in which its threads, a channel of the input side each, take them.
KERNEL(turn_weights, TurnWeights) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 input = i % p.inputs, output = i / p.inputs % p.outputs, tap = i / p.inputs / p.outputs;
    p.turned[i] = p.weights[(tap * p.inputs + input) * p.outputs + output];
}

struct ConvTranspose {
    const void* source;
    const float* weights; // turned
    const float* bias;    // none: null
    void* x;
    u32 first_channel;
    u32 channels;         // of the result
    u32 count;            // threads: of [n][d][h][results abreast][channel]
    u32 abreast;          // of a row, for each remainder by the stride
    Geometry g;
    u32 first;            // as of `Conv`
    u32 unused;
};

// The strided place that meets a place under a tap, whose distance from the first tap is given; false if there is none.
__device__ inline bool meets(u32 place, u32 tap, u32 stride, u32 padding, u32 extent, u32* strided) {
    const u32 offset = place + padding - tap;
    *strided = offset / stride;
    return place + padding >= tap && *strided * stride == offset && *strided < extent;
}

// Results abreast are a stride apart, so that the same taps meet them.
template <class T, class U>
__device__ inline void conv_transpose(const ConvTranspose& p) {
    const u32 i = p.first + element();
    if (i >= p.count) return;
    const Geometry& g = p.g;
    const u32 channel = i % p.channels;
    const u32 extent[3] = {g.input[0], g.input[1], p.abreast * g.stride[2]};
    const Place at(i / p.channels, extent);
    const u32 remainder = at.w % g.stride[2], first_w = at.w / g.stride[2] * ABREAST * g.stride[2] + remainder;
    // More than one group have all channels.
    const u32 group = g.groups > 1 ? channel / g.width : 0;
    const u32 input = p.first_channel + channel - group * g.width;
    const u32 outputs = g.outputs / g.groups, first = group * outputs;
    float sums[ABREAST];
#pragma unroll
    for (int j = 0; j < ABREAST; j++) sums[j] = p.bias ? p.bias[channel] : 0.0f;
#pragma unroll 1
    for (u32 kd = 0; kd < g.kernel[0]; kd++) {
        u32 d, h;
        if (!meets(at.d, kd * g.dilation[0], g.stride[0], g.padding[0], g.output[0], &d)) continue;
#pragma unroll 1
        for (u32 kh = 0; kh < g.kernel[1]; kh++) {
            if (!meets(at.h, kh * g.dilation[1], g.stride[1], g.padding[1], g.output[1], &h)) continue;
            const u32 row = voxel(at.sample, d, h, 0, g.output);
#pragma unroll 1
            for (u32 kw = 0; kw < g.kernel[2]; kw++) {
                const int offset = (int)(first_w + g.padding[2]) - (int)(kw * g.dilation[2]), stride = (int)g.stride[2];
                if (offset % stride != 0) continue;
                // What is before the first place wraps around to large numbers.
                const u32 w = (u32)(offset / stride);
                bool there[ABREAST], all = true;
#pragma unroll
                for (int j = 0; j < ABREAST; j++) {
                    there[j] = w + j < g.output[2];
                    all = all && there[j];
                }
                const u32 tap = (kd * g.kernel[1] + kh) * g.kernel[2] + kw;
                const T* y = (const T*)p.source + (int)((row + w) * g.outputs + first);
                const float* weight = p.weights + ((tap * g.outputs + first) * g.width + input);
                if (all && are_packs<T>(outputs, g.outputs, first)) {
                    add_packs(sums, y, g.outputs, outputs, weight, g.width);
                } else {
#pragma unroll 1
                    for (u32 o = 0; o < outputs; o++) {
                        const float by = weight[o * g.width];
#pragma unroll
                        for (int j = 0; j < ABREAST; j++) {
                            if (there[j]) sums[j] = fmaf(load(y + j * g.outputs, o), by, sums[j]);
                        }
                    }
                }
            }
        }
    }
    const u32 x = voxel(at.sample, at.d, at.h, first_w, g.input) * p.channels + channel;
#pragma unroll
    for (int j = 0; j < ABREAST; j++) {
        if (first_w + j * g.stride[2] < g.input[2]) store((U*)p.x, x + j * g.stride[2] * p.channels, sums[j]);
    }
}
BY_TWO_STORAGES(conv_transpose, ConvTranspose)

struct ConvWeightGrad {
    const void* sources[MOST_SOURCES];
    u32 channels[MOST_SOURCES];
    const void* dy;
    float* parts;      // [parts][tap][input][output]
    u32 source_count;
    u32 weights;       // how many
    u32 rows;          // of dy, in all samples
    u32 length;        // rows of a part
    u32 count;         // threads: of [parts][tap][input][channels abreast]
    u32 abreast;       // of the outputs
    Geometry g;
    u32 first;         // as of `Conv`
    u32 unused;
};

// The first place along an axis, and the one behind the last, whose voxel under a tap is one of the input.
__device__ inline void places_under(u32 offset, u32 stride, u32 padding, u32 input, u32 output, u32* first, u32* end) {
    *first = offset >= padding ? 0 : (padding - offset + stride - 1) / stride;
    *end = input + padding > offset ? min(output, (input + padding - offset - 1) / stride + 1) : 0;
}

// A thread for each part of the rows and each tap, input and four outputs. It sums each row by itself, and then the rows.
template <class T, class U>
__device__ inline void conv_weight_grad(const ConvWeightGrad& p) {
    const u32 i = p.first + element();
    if (i >= p.count) return;
    const Geometry& g = p.g;
    const u32 first_output = i % p.abreast * ABREAST;
    u32 rest = i / p.abreast;
    const u32 input = rest % g.width;
    rest /= g.width;
    const u32 taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
    const u32 tap = rest % taps, part = rest / taps;
    const u32 kw = tap % g.kernel[2], kh = tap / g.kernel[2] % g.kernel[1], kd = tap / g.kernel[2] / g.kernel[1];
    const u32 outputs = min(g.outputs - first_output, ABREAST);
    u32 first_w, end_w;
    places_under(kw * g.dilation[2], g.stride[2], g.padding[2], g.input[2], g.output[2], &first_w, &end_w);
    const u32 from_w = first_w * g.stride[2] + kw * g.dilation[2] - g.padding[2];
    const u32 first = part * p.length, end = min(first + p.length, p.rows);
    // Outputs of several groups have inputs of their own, and a source alone.
    const u32 in_group = g.outputs / g.groups;
    const bool alike = first_output / in_group == (first_output + outputs - 1) / in_group;
    float totals[ABREAST] = {};
#pragma unroll 1
    for (u32 row = first; row < end; row++) {
        const u32 h = row % g.output[1] * g.stride[1] + kh * g.dilation[1] - g.padding[1];
        const u32 d = row / g.output[1] % g.output[0] * g.stride[0] + kd * g.dilation[0] - g.padding[0];
        if (d >= g.input[0] || h >= g.input[1]) continue;
        const u32 sample = row / g.output[1] / g.output[0];
        u32 channel = input + first_output / in_group * g.width, s = 0;
        while (channel >= p.channels[s]) {
            channel -= p.channels[s];
            s++;
        }
        const u32 channels = p.channels[s], step = g.stride[2] * channels;
        const T* x = (const T*)p.sources[s] + (voxel(sample, d, h, from_w, g.input) * channels + channel);
        const U* dy = (const U*)p.dy + ((row * g.output[2] + first_w) * g.outputs + first_output);
        float sums[ABREAST] = {};
        if (outputs == ABREAST && alike && sizeof(U) == 4 && g.outputs % ABREAST == 0) {
#pragma unroll 4
            for (u32 w = first_w; w < end_w; w++) {
                const float by = load(x, 0);
                const float4 four = *(const float4*)dy;
                sums[0] = fmaf(by, four.x, sums[0]);
                sums[1] = fmaf(by, four.y, sums[1]);
                sums[2] = fmaf(by, four.z, sums[2]);
                sums[3] = fmaf(by, four.w, sums[3]);
                x += step;
                dy += g.outputs;
            }
        } else if (outputs == ABREAST && alike) {
#pragma unroll 4
            for (u32 w = first_w; w < end_w; w++) {
                const float by = load(x, 0);
#pragma unroll
                for (int j = 0; j < ABREAST; j++) sums[j] = fmaf(by, load(dy, j), sums[j]);
                x += step;
                dy += g.outputs;
            }
        } else {
#pragma unroll 1
            for (u32 w = first_w; w < end_w; w++) {
#pragma unroll
                for (int j = 0; j < ABREAST; j++) {
                    // How far the channel of another group is.
                    const u32 further = ((first_output + j) / in_group - first_output / in_group) * g.width;
                    if (j < outputs) sums[j] = fmaf(load(x, further), load(dy, j), sums[j]);
                }
                x += step;
                dy += g.outputs;
            }
        }
#pragma unroll
        for (int j = 0; j < ABREAST; j++) totals[j] += sums[j];
    }
    float* to = p.parts + (part * p.weights + (tap * g.width + input) * g.outputs + first_output);
#pragma unroll
    for (int j = 0; j < ABREAST; j++) {
        if (j < outputs) to[j] = totals[j];
    }
}
BY_TWO_STORAGES(conv_weight_grad, ConvWeightGrad)
