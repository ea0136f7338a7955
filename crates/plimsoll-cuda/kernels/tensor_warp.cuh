// Fragments of products by whole warps, on Turing and later: `mma.sync.m16n8k16`, or twice `m16n8k8`.
//
// The layouts are those of NVIDIA's PTX manual, "Warp-level matrix instructions". Lanes give the rows of matrices to `ldmatrix`.
#pragma once
#include "tensor_tile.cuh"

// Words of two numbers that a lane has of sixteen rows of a chunk, and pieces of four words that it has of sixteen columns of one.
#define ROW_WORDS 4
#define COLUMN_PIECES 1

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

// The weights of a convolution: the word `word` of piece `piece` of the 32 that sixteen columns have of a chunk holds two rows of a column. A lane has the
// words of one piece: its column of both eights.
struct PackedPair {
    u32 row, eight, column;
    __device__ __forceinline__ PackedPair(u32 piece, u32 word) : row(piece % 4 * 2 + word % 2 * 8), eight(word / 2), column(piece / 4) {}
};

__device__ __forceinline__ u32 first_piece(u32 lane) {
    return lane;
}

// Where a lane begins to read sixteen rows of a chunk, which are two rows of eight places: of which it gives the address of a voxel, and half of it.
// Lanes give 8 places, the 8 after them, both again with the other eight channels.
__device__ __forceinline__ u32 given_row(u32 lane) {
    return lane / 8 % 2;
}

__device__ __forceinline__ u32 given_place(u32 lane) {
    return lane % 8;
}

__device__ __forceinline__ u32 given_half(u32 lane) {
    return lane / 16;
}

__device__ __forceinline__ void load_rows(u32* rows, u32 at) {
    load_matrices(rows, swizzled_32(at));
}

// Adds a product of sixteen rows by two eights of columns.
template <class H>
__device__ __forceinline__ void multiply_pair(float (*sums)[4], const u32* rows, const uint4* columns) {
    multiply((const H*)nullptr, sums[0], rows, columns->x, columns->y);
    multiply((const H*)nullptr, sums[1], rows, columns->z, columns->w);
}

// Of the sums of 32 columns that a lane has, the k-th two of each four are those of a place and of eight columns, which `channel_of_column` makes eight channels in
// succession: which row of eight places, which place of it, and which eight.
__device__ __forceinline__ u32 row_of_sums(u32, u32 k) {
    return k;
}

__device__ __forceinline__ u32 place_of_sums(u32 lane, u32) {
    return lane / 4;
}

__device__ __forceinline__ u32 eight_of_sums(u32 lane) {
    return lane % 4;
}

// For the gradient of weights, whose sums go over places: sixteen places, two rows of eight, of a box and of what is beside it.
struct PlacesOfBox {
    u32 at;

    // Lanes give the rows of matrices, which are voxels: channels 0 to 7 and 8 to 15 of 8 places, then of the 8 after them.
    __device__ __forceinline__ PlacesOfBox(const Tiling& t, u32 box, u32 first_row, u32 lane)
        : at(box + under_place(t, first_row + lane / 16, lane % 8) * VOXEL_BYTES + lane / 8 % 2 * 16) {}

    __device__ __forceinline__ void load(u32* rows, u32 shift) const {
        load_transposed(rows, swizzled_32(at + shift));
    }
};

#define PLACE_WORDS 8    // of a lane, of sixteen places with 32 channels

// Sixteen places of 32 channels, from row `first_row` of eight places on: here the other way around, columns 0 to 7 of 8 places and of the 8 after
// them, then the next columns.
__device__ __forceinline__ void load_places(u32* columns, u32 places, u32 first_row, u32 lane) {
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        load_transposed(columns + 4 * j, swizzled_64(places + (first_row * 8 + lane % 16) * 64 + (j * 2 + lane / 16) * 16));
    }
}

// Adds a product of sixteen channels of a box by 32 of the places.
template <class H>
__device__ __forceinline__ void multiply_places(float (*sums)[4], const u32* rows, const u32* columns) {
#pragma unroll
    for (int j = 0; j < 4; j++) multiply((const H*)nullptr, sums[j], rows, columns[2 * j], columns[2 * j + 1]);
}

// Of those sums the first two of four j belong to a channel of the box, the second two to another, and both to two channels of the places in succession.
__device__ __forceinline__ u32 input_of_sums(u32 lane, u32 half) {
    return lane / 4 + half * 8;
}

__device__ __forceinline__ u32 output_of_sums(u32 lane, u32 j) {
    return j * 8 + lane % 4 * 2;
}
