// Fragments of products by whole warps, on Turing and later: `mma.sync.m16n8k16`, or twice `m16n8k8`; `m16n8k8` of tf32.
//
// The layouts are those of NVIDIA's PTX manual, "Warp-level matrix instructions". Lanes give the rows of matrices to `ldmatrix`.
#pragma once
#include "tensor_tile.cuh"

// Words of numbers that a lane has of sixteen rows of a chunk, and pieces of four words that it has of sixteen columns of one.
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

// The layout of fragments is that of two numbers of bf16 for each of tf32.
__device__ __forceinline__ void multiply(const float*, float* sums, const u32* a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
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

// The weights of a convolution: the word `word` of piece `piece` of the 32 that sixteen columns have of a chunk holds rows of a column, as many as
// numbers make a word. A lane has the words of one piece: its column of both eights.
struct PackedWord {
    u32 rows, eight, column;    // rows: the words of the column before this one
    __device__ __forceinline__ PackedWord(u32 piece, u32 word) : rows(piece % 4 + word % 2 * 4), eight(word / 2), column(piece / 4) {}
};

__device__ __forceinline__ u32 first_piece(u32 lane) {
    return lane;
}

// Where a lane begins to read sixteen rows of a chunk, which are two rows of eight places: of which it gives the address of a voxel, and half of it.
// Lanes give 8 places, the 8 after them, both again with the other half of the channels.
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
template <class H>
struct PlacesOfBox {
    u32 at;

    // Lanes give the rows of matrices, which are voxels: channels 0 to 7 and 8 to 15 of 8 places, then of the 8 after them.
    __device__ __forceinline__ PlacesOfBox(const Tiling& t, u32 box, u32 first_row, u32 lane)
        : at(box + under_place(t, first_row + lane / 16, lane % 8) * VOXEL_BYTES + lane / 8 % 2 * 16) {}

    __device__ __forceinline__ void load(u32* rows, u32 shift) const {
        load_transposed(rows, swizzled_32(at + shift));
    }
};

// Words of a lane, of sixteen places with 32 channels.
template <class H>
constexpr u32 PLACE_WORDS = 16 / NUMBERS<H>;

// Sixteen places of 32 channels, from row `first_row` of eight places on: here the other way around, columns 0 to 7 of 8 places and of the 8 after
// them, then the next columns.
template <class H>
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

// Of those sums, two by two, the channel of the box that they belong to, and the first of two channels of the places in succession.
template <class H>
__device__ __forceinline__ u32 input_of_sums(u32 lane, u32 two) {
    return lane / 4 + two % 2 * 8;
}

template <class H>
__device__ __forceinline__ u32 output_of_sums(u32 lane, u32 two) {
    return two / 2 * 8 + lane % 4 * 2;
}

#if AMPERE
// Of f32, which `ldmatrix` cannot transpose. A chunk has eight channels, so that here the places give the rows of matrices, sixteen of their channels at once, and
// the box the columns. A lane loads its numbers one by one: one channel of every fourth place.
__device__ __forceinline__ u32 load_one(u32 from) {
    u32 word;
    asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(word) : "r"(from) : "memory");
    return word;
}

template <>
struct PlacesOfBox<float> {
    u32 at[2];    // of the two rows

    __device__ __forceinline__ PlacesOfBox(const Tiling& t, u32 box, u32 first_row, u32 lane) {
#pragma unroll
        for (u32 k = 0; k < 2; k++) at[k] = box + under_place(t, first_row + k, lane % 4) * VOXEL_BYTES + lane / 4 * 4;
    }

    __device__ __forceinline__ void load(u32* columns, u32 shift) const {
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            const u32 first = swizzled_32(at[k] + shift);
            columns[2 * k] = load_one(first);
            // Four voxels further, whose pieces are exchanged if those of the first are not.
            columns[2 * k + 1] = load_one((first ^ 16) + 4 * VOXEL_BYTES);
        }
    }
};

// Of two rows of places the sixteen words that are multiplied: [row][sixteen channels][4].
template <>
__device__ __forceinline__ void load_places<float>(u32* rows, u32 places, u32 first_row, u32 lane) {
#pragma unroll
    for (u32 i = 0; i < 16; i++) {
        const u32 place = (first_row + i / 8) * 8 + lane % 4 + i / 2 % 2 * 4, channel = lane / 4 + i % 2 * 8 + i / 4 % 2 * 16;
        rows[i] = load_one(swizzled_128(places + place * 128 + channel * 4));
    }
}

template <>
__device__ __forceinline__ void multiply_places<float>(float (*sums)[4], const u32* columns, const u32* rows) {
#pragma unroll
    for (int i = 0; i < 4; i++) multiply((const float*)nullptr, sums[i % 2], rows + 4 * i, columns[i / 2 * 2], columns[i / 2 * 2 + 1]);
}

// Here they belong to one channel of the places and two of the box in succession, of which this is the first.
template <>
__device__ __forceinline__ u32 input_of_sums<float>(u32 lane, u32) {
    return lane % 4 * 2;
}

template <>
__device__ __forceinline__ u32 output_of_sums<float>(u32 lane, u32 two) {
    return two * 8 + lane / 4;
}
#endif
