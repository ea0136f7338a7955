// Products of matrices by warp groups, which cards of compute capability 9.0 have alone: four warps multiply 64x16 by 16xN numbers out of shared memory,
// and go on meanwhile.
//
// Both matrices are given by descriptors: where they begin, and two strides. They consist of core matrices, 128 bytes in succession: eight rows of A, or
// columns of B, of eight numbers each. The layouts are those of NVIDIA's PTX manual, "Asynchronous warpgroup level matrix instructions", without
// swizzling; the sums lie in lanes as those of products by warps do, the rows 16 w to 16 w + 15 in warp w.
#pragma once
#include "tensor_conv.cuh"

// The lower half of a descriptor, by the bytes from the first eight numbers of a row or column to the second; all strides are multiples of 16 bytes.
__device__ __forceinline__ u32 matrix_at(u32 address, u32 to_second_half) {
    return address / 16 | to_second_half / 16 << 16;
}

// A descriptor, by the bytes from eight rows or columns to the next eight.
__device__ __forceinline__ u64 descriptor(u32 matrix, u32 to_next_eight) {
    u64 whole;
    asm("mov.b64 %0, {%1,%2};\n" : "=l"(whole) : "r"(matrix), "r"(to_next_eight / 16));
    return whole;
}

// What this thread has written to shared memory, also by copies that it has awaited, is there for products of threads that pass a barrier behind it.
__device__ __forceinline__ void publish_to_products() {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Until here sums may be read and written, and from here on products change them.
__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Keeps the compiler from reading or writing sums that products change before they are awaited: it does not know what these do.
template <int EIGHTS>
__device__ __forceinline__ void pin(float (&sums)[EIGHTS][4]) {
#pragma unroll
    for (int j = 0; j < EIGHTS; j += 2) {
        asm volatile(""
                     : "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3]), "+f"(sums[j + 1][0]), "+f"(sums[j + 1][1]),
                       "+f"(sums[j + 1][2]), "+f"(sums[j + 1][3])::"memory");
    }
}

// Waits for all products of this warp group.
template <int ROWS, int EIGHTS>
__device__ __forceinline__ void await_products(float (&sums)[ROWS][EIGHTS][4]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
#pragma unroll
    for (int i = 0; i < ROWS; i++) pin(sums[i]);
}

#define FOUR_SUMS(s, j) "+f"(s[j][0]), "+f"(s[j][1]), "+f"(s[j][2]), "+f"(s[j][3])
#define SUMS_OF_32(s, j) \
    FOUR_SUMS(s, j), FOUR_SUMS(s, j + 1), FOUR_SUMS(s, j + 2), FOUR_SUMS(s, j + 3), FOUR_SUMS(s, j + 4), FOUR_SUMS(s, j + 5), FOUR_SUMS(s, j + 6), FOUR_SUMS(s, j + 7)
#define NAMES_OF_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"

// Adds a product of 64x16 by 16x64 numbers, when it is awaited.
#define ADD_PRODUCT(H, type)                                                                                                     \
    __device__ __forceinline__ void add_product(const H*, float (&sums)[8][4], u64 a, u64 b) {                                   \
        asm volatile("{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"                                                              \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" NAMES_OF_32 "}, %32, %33, add, 1, 1, 0, 0;\n}\n" \
                     : SUMS_OF_32(sums, 0)                                                                                       \
                     : "l"(a), "l"(b)                                                                                            \
                     : "memory");                                                                                                \
    }
ADD_PRODUCT(Bf16, "bf16")
ADD_PRODUCT(F16, "f16")
