// What feeds tensor cores, and which those of an architecture are: products of bf16, f16 or tf32 with sums of f32.
//
// From compute capability 8.0 on a warp multiplies 16x16 by 16x8 numbers, or 16x8 by 8x8 of tf32, which are stored as f32; on 7.5 (Turing) 16x8 by 8x8 numbers of f16 alone, on 7.0 (Volta) four
// times 8x4 by 4x8 of those. The two have no copies in the background, and 64 and 96 KiB of shared memory for a multiprocessor: there a block has
// one stage instead of two, and other blocks multiply while it copies. What lanes hold of a product, and how they load it, is said in
// tensor_warp.cuh, and for Volta in tensor_quads.cuh, under the same names.
#pragma once
#include "common.cuh"

#define VOLTA (__CUDA_ARCH__ < 750)
#define AMPERE (__CUDA_ARCH__ >= 800)

// Boxes that a block holds at once: where copies go on in the background, one is filled while another is multiplied.
#if AMPERE
#define STAGES 2u
#else
#define STAGES 1u
#endif

__device__ __forceinline__ void store_piece(u32 to, uint4 piece) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};\n" ::"r"(to), "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w)
                 : "memory");
}

__device__ __forceinline__ void load_four(u32* r, u32 from) {
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}

// Copies 16 bytes from global to shared memory, in the background where the card can, or fills with zeros.
__device__ __forceinline__ void copy_piece(u32 to, const void* from, bool there) {
#if AMPERE
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
#else
    store_piece(to, there ? *(const uint4*)from : make_uint4(0, 0, 0, 0));
#endif
}

__device__ __forceinline__ void commit_copies() {
#if AMPERE
    asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

// Waits for all groups of copies of this thread.
__device__ __forceinline__ void await_copies() {
#if AMPERE
    asm volatile("cp.async.wait_group 0;\n" ::: "memory");
#endif
}

// The nearest number of tf32, ties away from zero, as an f32: tensor cores would ignore the bits that it does not have.
__device__ __forceinline__ u32 tf32_bits(float value) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(bits) : "f"(value));
    return bits;
}

// Two numbers to the nearest, ties to even, the first in the lower half.
#if AMPERE
__device__ __forceinline__ u32 pair_of(const Bf16*, float first, float second) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
#endif

__device__ __forceinline__ u32 pair_of(const F16* of, float first, float second) {
    return rounded_bits(of, first) | rounded_bits(of, second) << 16;
}

__device__ __forceinline__ u32 shared_address(const void* at) {
    return (u32)__cvta_generic_to_shared(at);
}

// Where a piece of 16 bytes lies whose place would be `at` in rows of 32 bytes: the two pieces of every other four rows are exchanged, so
// that the same piece of eight rows in succession lies in different banks.
__device__ __forceinline__ u32 swizzled_32(u32 at) {
    return at ^ ((at >> 3) & 16);
}

// The same of rows of 64 bytes.
__device__ __forceinline__ u32 swizzled_64(u32 at) {
    return at ^ ((at >> 3) & 48);
}

// Numbers of a word.
template <class H>
constexpr u32 NUMBERS = 4 / sizeof(H);

// Numbers of a word of weights.
template <class H>
__device__ __forceinline__ u32 word_of(const float* numbers) {
    return pair_of((const H*)nullptr, numbers[0], numbers[1]);
}

template <>
__device__ __forceinline__ u32 word_of<float>(const float* numbers) {
    return tf32_bits(numbers[0]);
}

// Channels of 16 bytes.
template <class H>
constexpr u32 PIECE = 16 / sizeof(H);

// Sets number `k` of a piece to that of `x`.
template <class H>
__device__ __forceinline__ void set_number(u32* piece, u32 k, const H* x) {
    piece[k / 2] |= (u32)x->bits << (k % 2 * 16);
}

__device__ __forceinline__ void set_number(u32* piece, u32 k, const float* x) {
    piece[k] = __float_as_uint(*x);
}

// A piece of a voxel that begins at no multiple of 16 bytes into shared memory, number by number: at most `left` from `x` on, zeros where there are none.
template <class H>
__device__ __forceinline__ void stage_numbers(u32 to, const H* x, u32 left, bool there) {
    u32 piece[4] = {0, 0, 0, 0};
    if (there) {
#pragma unroll
        for (u32 k = 0; k < PIECE<H>; k++) {
            if (k < left) set_number(piece, k, x + k);
        }
    }
    store_piece(to, make_uint4(piece[0], piece[1], piece[2], piece[3]));
}

// The same of a voxel that is stored as f32, whose numbers are rounded to those that are multiplied.
template <class H>
__device__ __forceinline__ void stage_rounded(u32 to, const float* x, u32 left, bool there) {
    // Two numbers at a time: registers are scarce.
#pragma unroll 1
    for (u32 k = 0; k < 4; k++) {
        const float first = there && 2 * k < left ? x[2 * k] : 0.0f, second = there && 2 * k + 1 < left ? x[2 * k + 1] : 0.0f;
        asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(to + 4 * k), "r"(pair_of((const H*)nullptr, first, second)) : "memory");
    }
}

// Channels of a voxel from one on.
__device__ __forceinline__ u32 channels_left(u32 channels, u32 channel) {
    return channel < channels ? channels - channel : 0;
}

// A piece of channels of a voxel into shared memory: from `channel` on, zeros where there are none. `x` is a multiple of 16 bytes.
template <class H>
__device__ __forceinline__ void stage_piece(u32 to, const H* x, u32 voxel, u32 channels, u32 channel, bool there) {
    const u32 at = voxel * channels + channel;
    if (channels % PIECE<H> == 0) {
        there = there && channel < channels;
        copy_piece(to, there ? x + at : x, there);
    } else {
        stage_numbers(to, x + at, channels_left(channels, channel), there);
    }
}

// The same of rows of 128 bytes, where words are read, not pieces: four rows in succession of eight words each.
__device__ __forceinline__ u32 swizzled_128(u32 at) {
    return at ^ ((at >> 2) & 96);
}

// Defines a kernel for each way to store numbers that the tensor cores of the architecture multiply: f32 as tf32.
#if AMPERE
#define BY_MULTIPLIED(define) define(bf16, Bf16) define(f16, F16) define(f32, float)
#else
#define BY_MULTIPLIED(define) define(f16, F16)
#endif
