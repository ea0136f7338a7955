// Tensor cores by warps: products of 16x16 by 16x8 numbers of bf16 or f16 with sums of f32, and what feeds them.
//
// For compute capability 8.0; and for 7.5 (Turing), which has products of 16x8 by 8x8 numbers of f16 alone, no copies in the background, and 64
// KiB of shared memory for a multiprocessor: there a block has one stage instead of two, and other blocks multiply while it copies.
//
// The layouts of fragments are those of NVIDIA's PTX manual, "Warp-level matrix instructions".
#pragma once
#include "common.cuh"

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

// Four matrices of 8x8; each eight lanes give the rows of one.
__device__ __forceinline__ void load_matrices(u32* r, u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}

// The same, each matrix transposed.
__device__ __forceinline__ void load_transposed(u32* r, u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}

#if AMPERE
__device__ __forceinline__ void multiply(const Bf16*, float* sums, const u32* a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply(const F16*, float* sums, const u32* a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
// In two halves of the sum: the fragments of 16x8 are the first and the second half of those of 16x16.
__device__ __forceinline__ void multiply(const F16*, float* sums, const u32* a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
}
#endif

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
