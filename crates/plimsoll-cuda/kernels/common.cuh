// What all kernels share: how elements are stored, which element a thread has, and sums in a fixed order.
//
// Tensors have fewer than 2^31 elements, so that indices are 32 bits. Volumes lie channels last, [n][d][h][w][c]; the host decides
// that in `layout.rs`. Every kernel takes one struct, whose twin in Rust stands beside the code that launches it.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Threads of a block, as `lower.rs` has it.
#define BLOCK 128u

// f32 sums are taken in runs of this many terms, and then of the runs: the rounding error grows with the length of both, not with
// their product.
#define RUN 256u

// bf16 by its bits: the upper half of an f32. Arithmetic is f32.
struct Bf16 {
    u16 bits;
};

__device__ inline float load(const float* x, u32 i) {
    return x[i];
}

__device__ inline float load(const Bf16* x, u32 i) {
    return __uint_as_float((u32)x[i].bits << 16);
}

__device__ inline void store(float* x, u32 i, float value) {
    x[i] = value;
}

// To the nearest, ties to even; a NaN stays one.
__device__ inline u32 rounded_bits(const Bf16*, float value) {
    const u32 bits = __float_as_uint(value);
    const u32 nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return value == value ? nearest : (bits >> 16) | 0x40u;
}

__device__ inline void store(Bf16* x, u32 i, float value) {
    x[i].bits = (u16)rounded_bits(x, value);
}

// IEEE 754 half precision by its bits. Arithmetic is f32.
struct F16 {
    u16 bits;
};

__device__ inline float half_value(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ inline float load(const F16* x, u32 i) {
    return half_value(x[i].bits);
}

// To the nearest, ties to even; infinite beyond 65504, as the training's scale of the loss counts on.
__device__ inline u32 rounded_bits(const F16*, float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ inline void store(F16* x, u32 i, float value) {
    x[i].bits = (u16)rounded_bits(x, value);
}

// The numbers of a pair of 16 bits each, that of the lower half first.
__device__ inline void numbers_of(const Bf16*, u32 pair, float& first, float& second) {
    first = __uint_as_float(pair << 16);
    second = __uint_as_float(pair & 0xffff0000u);
}

__device__ inline void numbers_of(const F16*, u32 pair, float& first, float& second) {
    first = half_value((u16)pair);
    second = half_value((u16)(pair >> 16));
}

// The element of this thread, where there is one for each.
__device__ inline u32 element() {
    return blockIdx.x * BLOCK + threadIdx.x;
}

__device__ inline bool is_finite(float x) {
    return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// The sum over the lanes of a warp, in the order of a tree, for all of them. All 32 must call it.
template <class T>
__device__ inline T warp_sum(T value) {
#pragma unroll
    for (u32 distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

// The sum over the threads of a block, warp by warp, for all of them. All must call it.
template <class T>
__device__ inline T block_sum(T value) {
    __shared__ T of_warps[BLOCK / 32];
    value = warp_sum(value);
    // Not before all have read the sums of the call before.
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    T sum = of_warps[0];
#pragma unroll
    for (u32 warp = 1; warp < BLOCK / 32; warp++) sum += of_warps[warp];
    return sum;
}

#define KERNEL(name, Parameters) extern "C" __global__ void __launch_bounds__(BLOCK) name(const __grid_constant__ Parameters p)

// The same with registers for at least eight blocks of a multiprocessor, and for no more: the assembler would spill some to have one block more.
#define EIGHT_BLOCKS_KERNEL(name, Parameters) \
    extern "C" __global__ void __launch_bounds__(BLOCK, 8) name(const __grid_constant__ Parameters p)

// A kernel for each way in which its volumes may be stored.
#define BY_STORAGE(name, Parameters)              \
    KERNEL(name##_f32, Parameters) { name<float>(p); } \
    KERNEL(name##_bf16, Parameters) { name<Bf16>(p); } \
    KERNEL(name##_f16, Parameters) { name<F16>(p); }

// The same where operands and result may be stored differently; bf16 and f16 never meet.
#define BY_TWO_STORAGES(name, Parameters)                                      \
    EIGHT_BLOCKS_KERNEL(name##_f32_f32, Parameters) { name<float, float>(p); } \
    EIGHT_BLOCKS_KERNEL(name##_f32_bf16, Parameters) { name<float, Bf16>(p); } \
    EIGHT_BLOCKS_KERNEL(name##_bf16_f32, Parameters) { name<Bf16, float>(p); } \
    EIGHT_BLOCKS_KERNEL(name##_bf16_bf16, Parameters) { name<Bf16, Bf16>(p); } \
    EIGHT_BLOCKS_KERNEL(name##_f32_f16, Parameters) { name<float, F16>(p); }   \
    EIGHT_BLOCKS_KERNEL(name##_f16_f32, Parameters) { name<F16, float>(p); }   \
    EIGHT_BLOCKS_KERNEL(name##_f16_f16, Parameters) { name<F16, F16>(p); }
