// Updates of parameters: a thread for each number. Where the norm of the gradients is not finite, nothing but a gradient that is to be
// cleared changes.
#include "common.cuh"

struct Update {
    float* parameter;
    float* gradient;
    float* first;         // the first moment, or the momentum
    float* second;        // the second moment, of AdamW
    const float* rates;   // learning rate; 1 - beta1^t; 1 - beta2^t; 1 / the scale of the loss
    const float* norm;    // none: null
    u32 count;
    float beta1;          // or the momentum's decay
    float beta2;
    float epsilon;
    float weight_decay;
    float rate_factor;
    float largest_norm;   // none: 0
    u32 coupled;
    u32 clear;
    u32 unused;
};

// What gradients are multiplied by; false if the step is refused.
__device__ inline bool gradient_scale(const Update& p, float* scale) {
    *scale = p.rates[3];
    if (!p.norm) return true;
    if (!is_finite(p.norm[0])) return false;
    if (p.largest_norm > 0.0f) *scale *= fminf(p.largest_norm / (p.norm[0] * p.rates[3] + 1e-6f), 1.0f);
    return true;
}

KERNEL(adamw, Update) {
    const u32 i = element();
    if (i >= p.count) return;
    float scale;
    if (gradient_scale(p, &scale)) {
        const float rate = p.rates[0] * p.rate_factor, parameter = p.parameter[i];
        const float g = p.gradient[i] * scale + (p.coupled ? p.weight_decay * parameter : 0.0f);
        const float m = p.beta1 * p.first[i] + (1.0f - p.beta1) * g;
        const float v = p.beta2 * p.second[i] + (1.0f - p.beta2) * g * g;
        const float decayed = p.coupled ? parameter : parameter * (1.0f - rate * p.weight_decay);
        p.parameter[i] = decayed - rate * (m / p.rates[1] / (sqrtf(v / p.rates[2]) + p.epsilon));
        p.first[i] = m;
        p.second[i] = v;
    }
    if (p.clear) p.gradient[i] = 0.0f;
}

// With Nesterov momentum.
KERNEL(sgd, Update) {
    const u32 i = element();
    if (i >= p.count) return;
    float scale;
    if (gradient_scale(p, &scale)) {
        const float rate = p.rates[0] * p.rate_factor, parameter = p.parameter[i];
        const float g = p.gradient[i] * scale + p.weight_decay * parameter;
        const float b = p.beta1 * p.first[i] + g;
        p.parameter[i] = parameter - rate * (g + p.beta1 * b);
        p.first[i] = b;
    }
    if (p.clear) p.gradient[i] = 0.0f;
}

struct Ema {
    float* average;
    const float* parameter;
    const float* norm;    // none: null
    u32 count;
    float decay;
};

KERNEL(ema, Ema) {
    const u32 i = element();
    if (i >= p.count || (p.norm && !is_finite(p.norm[0]))) return;
    p.average[i] = p.decay * p.average[i] + (1.0f - p.decay) * p.parameter[i];
}
