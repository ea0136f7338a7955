// Fragments of products on Volta: `mma.m8n8k4`, four products of 8x4 by 4x8 numbers at once, each by eight lanes, the "quad pair" of
// lanes 4q to 4q + 3 and 4q + 16 to 4q + 19. The layouts are those of NVIDIA's PTX manual, "Matrix Fragments for mma.m8n8k4".
//
// Here the four make a product of 16x4 by 4x16: quad pairs 0 and 1 have the first eight rows, 2 and 3 the second eight; 0 and 2 have the
// first eight columns, 1 and 3 the second eight. A lane has sixteen numbers of one row and of one column, or, where sums go over places,
// four rows and four columns of one place: it loads them itself, without `ldmatrix`, which came with Turing.
#pragma once
#include "tensor_tile.cuh"

// As in tensor_warp.cuh.
#define ROW_WORDS 8
#define COLUMN_PIECES 2

__device__ __forceinline__ u32 row_group(u32 lane) {
    return lane / 8 % 2;
}

__device__ __forceinline__ u32 column_group(u32 lane) {
    return lane / 4 % 2;
}

// Which lanes of a quad pair: those below 16 or the others.
__device__ __forceinline__ u32 upper_lanes(u32 lane) {
    return lane / 16;
}

__device__ __forceinline__ void load_two(u32* r, u32 from) {
    asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];\n" : "=r"(r[0]), "=r"(r[1]) : "r"(from) : "memory");
}

// Adds a product of 16x4 by 4x16 numbers, whose rows and columns lie with the sum's index in succession.
__device__ __forceinline__ void multiply_rows(const F16*, float (*sums)[4], const u32* a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9}, {%10,%11}, {%0,%1,%2,%3,%4,%5,%6,%7};\n"
                 : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]), "+f"(sums[1][1]),
                   "+f"(sums[1][2]), "+f"(sums[1][3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0), "r"(b1));
}

// The same where rows and columns lie in succession.
__device__ __forceinline__ void multiply_columns(const F16*, float (*sums)[4], const u32* a, const u32* b) {
    asm volatile("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9}, {%10,%11}, {%0,%1,%2,%3,%4,%5,%6,%7};\n"
                 : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]), "+f"(sums[1][1]),
                   "+f"(sums[1][2]), "+f"(sums[1][3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]));
}

// A lane has one column of sixteen, whose rows are in two pieces. The column is numbered such that its sums are where those of later cards
// are: see `eight_of_sums`.
struct PackedWord {
    u32 rows, eight, column;
    __device__ __forceinline__ PackedWord(u32 piece, u32 word) : rows(piece / 16 * 4 + word), eight(piece / 8 % 2), column(piece % 8) {}
};

__device__ __forceinline__ u32 first_piece(u32 lane) {
    return upper_lanes(lane) * 8 + lane % 8;
}

// A lane has one place, and all sixteen channels of its voxel.
__device__ __forceinline__ u32 given_row(u32 lane) {
    return row_group(lane);
}

__device__ __forceinline__ u32 given_place(u32 lane) {
    return lane % 4 + upper_lanes(lane) * 4;
}

__device__ __forceinline__ u32 given_half(u32) {
    return 0;
}

__device__ __forceinline__ void load_rows(u32* rows, u32 at) {
    const u32 first = swizzled_32(at);
    load_four(rows, first);
    load_four(rows + 4, first ^ 16);
}

template <class H>
__device__ __forceinline__ void multiply_pair(float (*sums)[4], const u32* rows, const uint4* columns) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
        multiply_rows((const H*)nullptr, sums, rows + 4 * k, columns[k].x, columns[k].y);
        multiply_rows((const H*)nullptr, sums, rows + 4 * k + 2, columns[k].z, columns[k].w);
    }
}

__device__ __forceinline__ u32 row_of_sums(u32 lane, u32) {
    return row_group(lane);
}

__device__ __forceinline__ u32 place_of_sums(u32 lane, u32 k) {
    return lane % 2 + k * 2 + upper_lanes(lane) * 4;
}

__device__ __forceinline__ u32 eight_of_sums(u32 lane) {
    return column_group(lane) * 2 + lane / 2 % 2;
}

// A lane has four channels of each fourth place.
template <class H>
struct PlacesOfBox {
    u32 at[2];    // of the two rows

    __device__ __forceinline__ PlacesOfBox(const Tiling& t, u32 box, u32 first_row, u32 lane) {
        const u32 channels = box + row_group(lane) * 16 + upper_lanes(lane) * 8;
#pragma unroll
        for (u32 k = 0; k < 2; k++) at[k] = channels + under_place(t, first_row + k, lane % 4) * VOXEL_BYTES;
    }

    __device__ __forceinline__ void load(u32* rows, u32 shift) const {
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            const u32 first = swizzled_32(at[k] + shift);
            load_two(rows + 4 * k, first);
            // Four voxels further, whose pieces are exchanged if those of the first are not.
            load_two(rows + 4 * k + 2, (first ^ 16) + 4 * VOXEL_BYTES);
        }
    }
};

template <class H>
constexpr u32 PLACE_WORDS = 16;

// A lane has eight channels of each fourth place: four of the first sixteen columns and four of the second. Its eights are numbered such that the banks
// of four places do not collide.
template <class H>
__device__ __forceinline__ void load_places(u32* columns, u32 places, u32 first_row, u32 lane) {
    const u32 eight = column_group(lane) * 2 + upper_lanes(lane);
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        load_four(columns + 4 * k, swizzled_64(places + (first_row * 8 + k * 4 + lane % 4) * 64 + eight * 16));
    }
}

template <class H>
__device__ __forceinline__ void multiply_places(float (*sums)[4], const u32* rows, const u32* columns) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
        multiply_columns((const H*)nullptr, sums, rows + 2 * k, columns + 4 * k);
        multiply_columns((const H*)nullptr, sums + 2, rows + 2 * k, columns + 4 * k + 2);
    }
}

template <class H>
__device__ __forceinline__ u32 input_of_sums(u32 lane, u32 two) {
    return row_group(lane) * 8 + lane % 2 + two % 2 * 2 + upper_lanes(lane) * 4;
}

template <class H>
__device__ __forceinline__ u32 output_of_sums(u32 lane, u32 two) {
    return column_group(lane) * 16 + two / 2 % 2 * 8 + two / 4 * 4 + lane / 2 % 2 * 2;
}
