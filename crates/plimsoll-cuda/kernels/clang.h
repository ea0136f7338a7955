// The names of CUDA C++ that the plain kernels use, for clang without a CUDA toolkit. NVRTC has them built in.
//
// Exponentials and logarithms follow from the card's approximate instructions.
#pragma once

#define __device__ __attribute__((device, always_inline))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__

#define BUILT_IN static __device__ inline

typedef __SIZE_TYPE__ size_t;

struct Coordinates {
    unsigned x, y;
};
#define COORDINATES(of) (Coordinates{(unsigned)__nvvm_read_ptx_sreg_##of##_x(), (unsigned)__nvvm_read_ptx_sreg_##of##_y()})
#define threadIdx COORDINATES(tid)
#define blockIdx COORDINATES(ctaid)
#define gridDim COORDINATES(nctaid)

struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
BUILT_IN uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
BUILT_IN float2 make_float2(float x, float y) { return {x, y}; }
BUILT_IN float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class T>
BUILT_IN T min(T a, T b) { return b < a ? b : a; }
template <class T>
BUILT_IN T max(T a, T b) { return a < b ? b : a; }
BUILT_IN unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
BUILT_IN unsigned min(int a, unsigned b) { return min((unsigned)a, b); }

BUILT_IN unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
BUILT_IN float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
BUILT_IN float __fmul_rn(float a, float b) { return __nvvm_mul_rn_f(a, b); }
BUILT_IN float __fadd_rn(float a, float b) { return __nvvm_add_rn_f(a, b); }
BUILT_IN float sqrtf(float x) { return __nvvm_sqrt_rn_f(x); }
BUILT_IN double sqrt(double x) { return __nvvm_sqrt_rn_d(x); }
BUILT_IN float fminf(float a, float b) { return __nvvm_fmin_f(a, b); }
BUILT_IN float fmaxf(float a, float b) { return __nvvm_fmax_f(a, b); }
BUILT_IN float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
BUILT_IN double fmax(double a, double b) { return __nvvm_fmax_d(a, b); }
BUILT_IN double rint(double x) { return __builtin_rint(x); }
BUILT_IN float fabsf(float x) { return __builtin_fabsf(x); }

BUILT_IN float __shfl_xor_sync(unsigned lanes, float value, unsigned distance) {
    return __nvvm_shfl_sync_bfly_f32(lanes, value, distance, 31);
}
BUILT_IN int __shfl_xor_sync(unsigned lanes, int value, unsigned distance) {
    return (int)__nvvm_shfl_sync_bfly_i32(lanes, value, distance, 31);
}
BUILT_IN unsigned __shfl_xor_sync(unsigned lanes, unsigned value, unsigned distance) {
    return __nvvm_shfl_sync_bfly_i32(lanes, value, distance, 31);
}
BUILT_IN unsigned long long __shfl_xor_sync(unsigned lanes, unsigned long long value, unsigned distance) {
    const unsigned low = __shfl_xor_sync(lanes, (unsigned)value, distance), high = __shfl_xor_sync(lanes, (unsigned)(value >> 32), distance);
    return (unsigned long long)high << 32 | low;
}
BUILT_IN double __shfl_xor_sync(unsigned lanes, double value, unsigned distance) {
    return __builtin_bit_cast(double, __shfl_xor_sync(lanes, __builtin_bit_cast(unsigned long long, value), distance));
}
BUILT_IN void __syncwarp() { __nvvm_bar_warp_sync(0xffffffffu); }
BUILT_IN unsigned atomicOr(unsigned* at, unsigned bits) { return __nvvm_atom_or_gen_i((int*)at, (int)bits); }

// A power of two by its whole part, which scales exactly, and its remainder.
BUILT_IN float expf(float x) {
    if (x != x) return x;
    // Beyond these it is zero or infinite.
    x = fminf(fmaxf(x, -120.0f), 120.0f);
    const float whole = __nvvm_round_f(x * 1.44269504f);
    const float rest = __builtin_fmaf(whole, -1.9046542e-9f, __builtin_fmaf(whole, -0.693147182f, x));
    const float power = __nvvm_ex2_approx_f(rest * 1.44269504f);
    const float half = __nvvm_round_f(whole * 0.5f);
    return power * __nvvm_ex2_approx_f(half) * __nvvm_ex2_approx_f(whole - half);
}
BUILT_IN float logf(float x) { return __nvvm_lg2_approx_f(x) * 0.693147182f; }
BUILT_IN float powf(float x, float y) { return __nvvm_ex2_approx_f(y * __nvvm_lg2_approx_f(x)); }
BUILT_IN float log1pf(float x) { return fabsf(x) < 1e-3f ? x - x * x * (0.5f - x * (1.0f / 3.0f)) : logf(1.0f + x); }
BUILT_IN float expm1f(float x) { return fabsf(x) < 1e-2f ? x + x * x * (0.5f + x * (1.0f / 6.0f + x * (1.0f / 24.0f))) : expf(x) - 1.0f; }
BUILT_IN double exp(double x) { return expf((float)x); }
BUILT_IN double log1p(double x) { return log1pf((float)x); }
BUILT_IN double log(double x) { return logf((float)x); }

// Series of the part of a quarter turn that remains.
BUILT_IN void sincospif(float x, float* sine, float* cosine) {
    const float quarters = __nvvm_round_f(2.0f * x);
    const float r = (x - 0.5f * quarters) * 3.14159274f, r2 = r * r;
    const float s = r * (1.0f + r2 * (-1.0f / 6 + r2 * (1.0f / 120 + r2 * (-1.0f / 5040 + r2 / 362880))));
    const float c = 1.0f + r2 * (-0.5f + r2 * (1.0f / 24 + r2 * (-1.0f / 720 + r2 / 40320)));
    const int quarter = (int)quarters & 3;
    *sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
    *cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
}

// The normal distribution, by a series near zero and a continued fraction beyond it.
BUILT_IN float normcdff(float x) {
    const float size = fabsf(x), density = 0.398942280f * expf(-0.5f * x * x);
    if (size < 2.5f) {
        float term = x, sum = x;
        for (int k = 1; k < 40; k++) {
            term *= x * x / (2.0f * k + 1.0f);
            sum += term;
        }
        return 0.5f + density * sum;
    }
    float fraction = size;
    for (int k = 30; k > 0; k--) fraction = size + k / fraction;
    return x < 0.0f ? density / fraction : 1.0f - density / fraction;
}
