// What feeds tensor cores, and which those of an architecture are: products of bf16 or f16 with sums of f32.
//
// From compute capability 8.0 on a warp multiplies 16x16 by 16x8 numbers; on 7.5 (Turing) 16x8 by 8x8 numbers of f16 alone, on 7.0 (Volta) four
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

// Eight channels of a voxel into shared memory: from `channel` on, zeros where there are none. `x` is a multiple of 16 bytes.
template <class H>
__device__ __forceinline__ void stage_piece(u32 to, const H* x, u32 voxel, u32 channels, u32 channel, bool there) {
    there = there && channel < channels;
    if (channels % 8 == 0) {
        copy_piece(to, there ? x + (voxel * channels + channel) : x, there);
        return;
    }
    // Voxels that begin at no multiple of 16 bytes, number by number.
    u32 pairs[4] = {0, 0, 0, 0};
    if (there) {
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            if (channel + k < channels) pairs[k / 2] |= (u32)x[voxel * channels + channel + k].bits << (k % 2 * 16);
        }
    }
    store_piece(to, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
}

// Defines a kernel for each type of numbers that the tensor cores of the architecture multiply.
#if AMPERE
#define BY_MULTIPLIED(define) define(bf16, Bf16) define(f16, F16)
#else
#define BY_MULTIPLIED(define) define(f16, F16)
#endif
