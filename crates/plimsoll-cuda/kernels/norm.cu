// Normalisation: statistics of parts of planes, their union in f64, and the element-wise passes. A plane is the voxels of a channel of
// a sample; the planes of a set share their statistics.
#include "columns.cuh"

// How a volume is cut into parts, and its planes into sets of `samples` by `channels`.
struct Planes {
    u32 batch;
    u32 voxels;      // of a plane
    u32 channels;
    u32 length;      // voxels of a part
    u32 parts;       // of a plane
    u32 set_samples;
    u32 set_channels;
    u32 unused;
};

struct NormStatsParts {
    const void* x;
    float* parts;    // [sample][part][channel][3]: an offset, and the sums of x - offset and of its square
    Planes planes;
};

// A thread for each sample, part and channel, the channels side by side. The offset is the first value: sums of numbers that
// lie far from zero would lose the digits in which they differ.
template <class T>
__device__ inline void norm_stats_parts(const NormStatsParts& p) {
    const Planes& s = p.planes;
    const u32 i = element();
    if (i >= s.batch * s.parts * s.channels) return;
    const u32 channel = i % s.channels, part = i / s.channels % s.parts, sample = i / s.channels / s.parts;
    const T* x = (const T*)p.x + (sample * s.voxels * s.channels + channel);
    const u32 first = part * s.length, end = min(first + s.length, s.voxels);
    const float offset = load(x, first * s.channels);
    float total = 0.0f, total_squares = 0.0f;
    for (u32 run = first; run < end; run += RUN) {
        float sum = 0.0f, squares = 0.0f;
        for (u32 voxel = run; voxel < min(run + RUN, end); voxel++) {
            const float value = load(x, voxel * s.channels) - offset;
            sum += value;
            squares = fmaf(value, value, squares);
        }
        total += sum;
        total_squares += squares;
    }
    p.parts[3 * i] = offset;
    p.parts[3 * i + 1] = total;
    p.parts[3 * i + 2] = total_squares;
}
BY_STORAGE(norm_stats_parts, NormStatsParts)

// The same by a block for each sample and part, where packs fill the channels of a voxel.
template <class T>
__device__ inline void norm_stats_packs(const NormStatsParts& p) {
    typedef Columns<T> Own;
    const Planes& s = p.planes;
    const Own columns(s.channels);
    const u32 part = blockIdx.x % s.parts, sample = blockIdx.x / s.parts;
    const u32 first = part * s.length, end = min(first + s.length, s.voxels);
    const T* x = (const T*)p.x + (sample * s.voxels * s.channels + columns.channel);
    float offset[Own::SIZE], sums[2][Own::SIZE] = {};
    Pack<T>::load(x + first * s.channels, offset);
    columns.for_each_voxel(first, end, [&](u32 voxel) {
        float values[Own::SIZE];
        Pack<T>::load(x + voxel * s.channels, values);
#pragma unroll
        for (u32 k = 0; k < Own::SIZE; k++) {
            const float value = values[k] - offset[k];
            sums[0][k] += value;
            sums[1][k] = fmaf(value, value, sums[1][k]);
        }
    });
    columns.sum(sums, [&](u32 channel, const float (&all)[2]) {
        float* to = p.parts + 3 * (blockIdx.x * s.channels + channel);
        to[0] = load((const T*)p.x, (sample * s.voxels + first) * s.channels + channel);
        to[1] = all[0];
        to[2] = all[1];
    });
}
BY_STORAGE(norm_stats_packs, NormStatsParts)

struct NormStats {
    const float* parts;
    float* statistics;    // [sample][channel][2]
    float* variances;     // [channel], over a batch; else null
    float epsilon;
    u32 unused;
    Planes planes;
};

// Number, mean, and sum of squared distances from it, of some values; their union by Chan, Golub and LeVeque (1983).
struct Moments {
    double count, mean, squares;
    __device__ void join(const Moments& other) {
        if (other.count == 0.0) return;
        const double all = count + other.count, distance = other.mean - mean;
        mean += distance * (other.count / all);
        squares += other.squares + distance * distance * (count * (other.count / all));
        count = all;
    }
};

// A block for each set.
KERNEL(norm_stats, NormStats) {
    __shared__ Moments of_threads[BLOCK];
    const Planes& s = p.planes;
    const u32 across = s.channels / s.set_channels;
    const u32 first_sample = blockIdx.x / across * s.set_samples, first_channel = blockIdx.x % across * s.set_channels;
    Moments own = {0.0, 0.0, 0.0};
    for (u32 item = threadIdx.x; item < s.set_samples * s.set_channels * s.parts; item += BLOCK) {
        const u32 channel = first_channel + item % s.set_channels, part = item / s.set_channels % s.parts;
        const u32 sample = first_sample + item / s.set_channels / s.parts;
        const float* sums = p.parts + 3 * ((sample * s.parts + part) * s.channels + channel);
        const double count = (double)(min((part + 1) * s.length, s.voxels) - part * s.length);
        const double mean = (double)sums[1] / count;
        const double squares = (double)sums[2] - (double)sums[1] * mean;
        const Moments next = {count, (double)sums[0] + mean, squares > 0.0 ? squares : 0.0};
        own.join(next);
    }
    of_threads[threadIdx.x] = own;
    __syncthreads();
    for (u32 half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) of_threads[threadIdx.x].join(of_threads[threadIdx.x + half]);
        __syncthreads();
    }
    const Moments all = of_threads[0];
    const float mean = (float)all.mean, deviation = (float)(1.0 / sqrt(all.squares / all.count + (double)p.epsilon));
    for (u32 item = threadIdx.x; item < s.set_samples * s.set_channels; item += BLOCK) {
        const u32 sample = first_sample + item / s.set_channels, channel = first_channel + item % s.set_channels;
        p.statistics[2 * (sample * s.channels + channel)] = mean;
        p.statistics[2 * (sample * s.channels + channel) + 1] = deviation;
    }
    if (p.variances && threadIdx.x == 0) p.variances[first_channel] = (float)(all.squares / (all.count - 1.0));
}

struct Normalise {
    const void* y;
    const float* statistics;
    const float* scale;    // none: null
    const float* shift;
    void* u;
    u32 voxels;
    u32 channels;
    u32 count;
    float slope;           // of a leaky ReLU; 1: none
};

// A thread for each element.
template <class T>
__device__ inline void normalise(const Normalise& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels, plane = i / p.channels / p.voxels * p.channels + channel;
    float u = (load((const T*)p.y, i) - p.statistics[2 * plane]) * p.statistics[2 * plane + 1];
    if (p.scale) u = fmaf(u, p.scale[channel], p.shift[channel]);
    store((T*)p.u, i, u > 0.0f ? u : u * p.slope);
}
BY_STORAGE(normalise, Normalise)

// A thread for each pack, where packs fill the channels of a voxel.
template <class T>
__device__ inline void normalise_packs(const Normalise& p) {
    const u32 first = first_of_pack<T>();
    if (first >= p.count) return;
    const u32 channel = first % p.channels, plane = first / p.channels / p.voxels * p.channels + channel;
    float values[Pack<T>::SIZE], statistics[2 * Pack<T>::SIZE], scale[Pack<T>::SIZE], shift[Pack<T>::SIZE];
    Pack<T>::load((const T*)p.y + first, values);
    load_numbers(p.statistics + 2 * plane, statistics);
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) values[k] = (values[k] - statistics[2 * k]) * statistics[2 * k + 1];
    if (p.scale) {
        load_numbers(p.scale + channel, scale);
        load_numbers(p.shift + channel, shift);
#pragma unroll
        for (u32 k = 0; k < Pack<T>::SIZE; k++) values[k] = fmaf(values[k], scale[k], shift[k]);
    }
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) values[k] = values[k] > 0.0f ? values[k] : values[k] * p.slope;
    Pack<T>::store((T*)p.u + first, values);
}
BY_STORAGE(normalise_packs, Normalise)

// The gradient by what was normalised, and scaled and shifted, of the gradient by what a leaky ReLU made of it.
__device__ inline float before_activation(float g, float standard, const float* scale, const float* shift, u32 channel, float slope) {
    const float u = scale ? fmaf(standard, scale[channel], shift[channel]) : standard;
    return u > 0.0f ? g : g * slope;
}

struct NormaliseGradParts {
    const void* g;
    const void* y;
    const float* statistics;
    const float* scale;    // none: null
    const float* shift;
    float* parts;          // [sample][part][channel][2]: the sums of g and of g times the normalised y
    Planes planes;
    float slope;           // of a leaky ReLU that g is the gradient of; 1: none
    u32 unused;
};

template <class T>
__device__ inline void normalise_grad_parts(const NormaliseGradParts& p) {
    const Planes& s = p.planes;
    const u32 i = element();
    if (i >= s.batch * s.parts * s.channels) return;
    const u32 channel = i % s.channels, part = i / s.channels % s.parts, sample = i / s.channels / s.parts;
    const u32 plane = sample * s.channels + channel, base = sample * s.voxels * s.channels + channel;
    const float mean = p.statistics[2 * plane], deviation = p.statistics[2 * plane + 1];
    const u32 first = part * s.length, end = min(first + s.length, s.voxels);
    float total = 0.0f, total_products = 0.0f;
    for (u32 run = first; run < end; run += RUN) {
        float sum = 0.0f, products = 0.0f;
        for (u32 voxel = run; voxel < min(run + RUN, end); voxel++) {
            const float standard = (load((const T*)p.y, base + voxel * s.channels) - mean) * deviation;
            const float after = load((const T*)p.g, base + voxel * s.channels);
            const float g = before_activation(after, standard, p.scale, p.shift, channel, p.slope);
            sum += g;
            products = fmaf(g, standard, products);
        }
        total += sum;
        total_products += products;
    }
    p.parts[2 * i] = total;
    p.parts[2 * i + 1] = total_products;
}
BY_STORAGE(normalise_grad_parts, NormaliseGradParts)

// The same by a block for each sample and part, where packs fill the channels of a voxel.
template <class T>
__device__ inline void normalise_grad_parts_packs(const NormaliseGradParts& p) {
    typedef Columns<T> Own;
    const Planes& s = p.planes;
    const Own columns(s.channels);
    const u32 part = blockIdx.x % s.parts, sample = blockIdx.x / s.parts;
    const u32 first = part * s.length, end = min(first + s.length, s.voxels);
    const u32 base = sample * s.voxels * s.channels + columns.channel;
    float statistics[2 * Own::SIZE], scale[Own::SIZE], shift[Own::SIZE], sums[2][Own::SIZE] = {};
    load_numbers(p.statistics + 2 * (sample * s.channels + columns.channel), statistics);
    if (p.scale) {
        load_numbers(p.scale + columns.channel, scale);
        load_numbers(p.shift + columns.channel, shift);
    }
    columns.for_each_voxel(first, end, [&](u32 voxel) {
        float before[Own::SIZE], after[Own::SIZE];
        Pack<T>::load((const T*)p.y + (base + voxel * s.channels), before);
        Pack<T>::load((const T*)p.g + (base + voxel * s.channels), after);
#pragma unroll
        for (u32 k = 0; k < Own::SIZE; k++) {
            const float standard = (before[k] - statistics[2 * k]) * statistics[2 * k + 1];
            const float g = before_activation(after[k], standard, p.scale ? scale : nullptr, shift, k, p.slope);
            sums[0][k] += g;
            sums[1][k] = fmaf(g, standard, sums[1][k]);
        }
    });
    columns.sum(sums, [&](u32 channel, const float (&all)[2]) {
        float* to = p.parts + 2 * (blockIdx.x * s.channels + channel);
        to[0] = all[0];
        to[1] = all[1];
    });
}
BY_STORAGE(normalise_grad_parts_packs, NormaliseGradParts)

struct NormaliseGradSums {
    const float* parts;
    double* sums;    // [sample][channel][2]
    Planes planes;
};

// A block for each plane.
KERNEL(normalise_grad_sums, NormaliseGradSums) {
    const Planes& s = p.planes;
    const u32 channel = blockIdx.x % s.channels, sample = blockIdx.x / s.channels;
    double sum = 0.0, products = 0.0;
    for (u32 part = threadIdx.x; part < s.parts; part += BLOCK) {
        const float* sums = p.parts + 2 * ((sample * s.parts + part) * s.channels + channel);
        sum += (double)sums[0];
        products += (double)sums[1];
    }
    sum = block_sum(sum);
    products = block_sum(products);
    if (threadIdx.x == 0) {
        p.sums[2 * blockIdx.x] = sum;
        p.sums[2 * blockIdx.x + 1] = products;
    }
}

struct NormaliseGradMeans {
    const double* sums;
    const float* scale;    // none: null
    float* means;          // [sample][channel][2]: of the scaled g, and of it times the normalised y, over the set
    float* dscale;         // none: null
    float* dshift;
    Planes planes;
};

// A thread for each plane.
KERNEL(normalise_grad_means, NormaliseGradMeans) {
    const Planes& s = p.planes;
    const u32 plane = element();
    if (plane >= s.batch * s.channels) return;
    const u32 channel = plane % s.channels, sample = plane / s.channels;
    const u32 first_sample = sample / s.set_samples * s.set_samples;
    const u32 first_channel = channel / s.set_channels * s.set_channels;
    double sum = 0.0, products = 0.0;
    for (u32 n = first_sample; n < first_sample + s.set_samples; n++) {
#pragma unroll 1
        for (u32 c = first_channel; c < first_channel + s.set_channels; c++) {
            const double scale = p.scale ? (double)p.scale[c] : 1.0;
            sum += scale * p.sums[2 * (n * s.channels + c)];
            products += scale * p.sums[2 * (n * s.channels + c) + 1];
        }
    }
    const double count = (double)s.set_samples * (double)s.set_channels * (double)s.voxels;
    p.means[2 * plane] = (float)(sum / count);
    p.means[2 * plane + 1] = (float)(products / count);
    if (!p.dscale || sample > 0) return;
    double dshift = 0.0, dscale = 0.0;
#pragma unroll 1
    for (u32 n = 0; n < s.batch; n++) {
        dshift += p.sums[2 * (n * s.channels + channel)];
        dscale += p.sums[2 * (n * s.channels + channel) + 1];
    }
    p.dshift[channel] = (float)dshift;
    p.dscale[channel] = (float)dscale;
}

struct NormaliseGrad {
    const void* g;
    const void* y;
    const float* statistics;
    const float* scale;    // none: null
    const float* shift;
    const float* means;
    void* dy;
    u32 voxels;
    u32 channels;
    u32 count;
    float slope;           // as of the parts
};

// A thread for each element.
template <class T>
__device__ inline void normalise_grad(const NormaliseGrad& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels, plane = i / p.channels / p.voxels * p.channels + channel;
    const float mean = p.statistics[2 * plane], deviation = p.statistics[2 * plane + 1];
    const float standard = (load((const T*)p.y, i) - mean) * deviation;
    const float after = load((const T*)p.g, i);
    const float g = before_activation(after, standard, p.scale, p.shift, channel, p.slope) * (p.scale ? p.scale[channel] : 1.0f);
    store((T*)p.dy, i, deviation * (g - fmaf(standard, p.means[2 * plane + 1], p.means[2 * plane])));
}
BY_STORAGE(normalise_grad, NormaliseGrad)

// A thread for each pack, where packs fill the channels of a voxel.
template <class T>
__device__ inline void normalise_grad_packs(const NormaliseGrad& p) {
    const u32 first = first_of_pack<T>();
    if (first >= p.count) return;
    const u32 channel = first % p.channels, plane = first / p.channels / p.voxels * p.channels + channel;
    float g[Pack<T>::SIZE], values[Pack<T>::SIZE], scale[Pack<T>::SIZE], shift[Pack<T>::SIZE];
    float statistics[2 * Pack<T>::SIZE], means[2 * Pack<T>::SIZE];
    Pack<T>::load((const T*)p.g + first, g);
    Pack<T>::load((const T*)p.y + first, values);
    load_numbers(p.statistics + 2 * plane, statistics);
    load_numbers(p.means + 2 * plane, means);
    if (p.scale) {
        load_numbers(p.scale + channel, scale);
        load_numbers(p.shift + channel, shift);
    }
#pragma unroll
    for (u32 k = 0; k < Pack<T>::SIZE; k++) {
        const float standard = (values[k] - statistics[2 * k]) * statistics[2 * k + 1];
        const float* no = nullptr;
        const float before = before_activation(g[k], standard, p.scale ? scale : no, shift, k, p.slope) * (p.scale ? scale[k] : 1.0f);
        values[k] = statistics[2 * k + 1] * (before - fmaf(standard, means[2 * k + 1], means[2 * k]));
    }
    Pack<T>::store((T*)p.dy + first, values);
}
BY_STORAGE(normalise_grad_packs, NormaliseGrad)

struct NormFromRunning {
    const float* mean;
    const float* variance;
    float* statistics;
    u32 channels;
    u32 count;    // planes
    float epsilon;
    u32 unused;
};

KERNEL(norm_from_running, NormFromRunning) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    p.statistics[2 * i] = p.mean[channel];
    p.statistics[2 * i + 1] = 1.0f / sqrtf(p.variance[channel] + p.epsilon);
}

struct RunningFactors {
    const float* variance;
    const float* scale;
    float* factors;
    u32 channels;
    u32 count;    // planes
    float epsilon;
    u32 unused;
};

KERNEL(running_factors, RunningFactors) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 channel = i % p.channels;
    p.factors[i] = p.scale[channel] / sqrtf(p.variance[channel] + p.epsilon);
}

struct RunningUpdate {
    float* mean;
    float* variance;
    float* batches;
    const float* statistics;
    const float* batch_variance;
    const float* norm;    // none: null
    u32 channels;
    float momentum;
};

KERNEL(running_update, RunningUpdate) {
    const u32 i = element();
    if (i >= p.channels || (p.norm && !is_finite(p.norm[0]))) return;
    const float kept = 1.0f - p.momentum;
    p.mean[i] = fmaf(kept, p.mean[i], p.momentum * p.statistics[2 * i]);
    p.variance[i] = fmaf(kept, p.variance[i], p.momentum * p.batch_variance[i]);
    if (i == 0) p.batches[0] += 1.0f;
}
