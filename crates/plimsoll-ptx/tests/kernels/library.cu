// Functions of CUDA's mathematical library, which NVRTC inlines, for tests of the interpreter.
// NVRTC 12.9.86: --gpu-architecture=compute_70 --std=c++17
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

extern "C" __global__ void singles(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], p = fabsf(v) + 0.01f;
    float results[] = {sinf(v), cosf(v), sinf(v * 1e6f), tanf(v), expf(v), exp2f(v), logf(p), log2f(p), log10f(p), powf(p, 2.3f),
        sqrtf(p), cbrtf(v), atan2f(v, 2.0f), asinf(v / 16.0f), sinhf(v), tanhf(v), log1pf(p), expm1f(v), floorf(v), ceilf(v),
        roundf(v), rintf(v), truncf(v), fmodf(v, 0.3f), hypotf(v, 3.0f), ldexpf(v, 5), copysignf(p, v), rsqrtf(p),
        __fdividef(v, p), 1.0f / p, fminf(v, 1.0f), fmaxf(v, -1.0f)};
#pragma unroll
    for (int k = 0; k < 32; ++k) y[i * 32 + k] = results[k];
}

extern "C" __global__ void doubles(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i], p = fabs(v) + 0.01;
    double results[] = {exp(v), log(p), tanh(v), cbrt(v), atan(v), fmod(v, 0.3), round(v), floor(v), sqrt(p), rint(v), exp2(v), 1.0 / p,
        log1p(p), expm1(v), hypot(v, 3.0), rsqrt(p)};
#pragma unroll
    for (int k = 0; k < 16; ++k) y[i * 16 + k] = results[k];
}

extern "C" __global__ void integers(const u32* x, u64* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 a = x[2 * i], b = x[2 * i + 1] | 1;
    u64 c = (u64)a * 0x9e3779b97f4a7c15ull + b;
    s64 d = (s64)c;
    u64 results[] = {__umulhi(a, b), (u64)(s64)__mulhi((int)a, (int)b), __umul64hi(c, ~c), c / b, c % b, (u64)(d / (int)b), (u64)(d % (int)b),
        (u64)__popcll(c), (u64)__clzll(c), (u64)__ffs(a), __brevll(c), __byte_perm(a, b, 0x3724), __funnelshift_l(a, b, a),
        (u64)__usad(a, b, 7u), c >> (b & 63), (u64)(d >> (b & 63)), (u64)(s64)(signed char)a, (u64)(s64)(short)b, (u64)(d / 7), c % 1000003,
        (u64)(float)c, (u64)(s64)(int)(float)(int)a, a / 10u, (u64)(s64)((int)a % 10)};
#pragma unroll
    for (int k = 0; k < 24; ++k) y[i * 24 + k] = results[k];
}
