// A product of matrices by tensor cores: three stages of cp.async, swizzled shared memory, ldmatrix, mma.sync.
// For tests of the interpreter; small rather than fast.
// NVRTC 12.9.86: --gpu-architecture=compute_80 --std=c++17
typedef unsigned int u32;
typedef unsigned short u16;

constexpr int ROWS = 64, COLUMNS = 32, DEPTH = 32, STAGES = 3;

// Where piece c (8 elements) of a row lies: pieces of neighbouring rows are exchanged, so that eight rows of one column
// of pieces lie in different banks.
__device__ __forceinline__ u32 place(int row, int c, u32 swizzle) {
    return row * DEPTH * 2 + ((c ^ ((row >> 1) & swizzle)) << 4);
}

__device__ __forceinline__ void copy16(u32 to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(there ? 16 : 0));
}

__device__ __forceinline__ void load_matrices(u32* r, u32 a) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
}

__device__ __forceinline__ void multiply(float* d, const u32* a, const u32* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// y (m x n, bf16) = x (m x k, bf16) times w (n x k, bf16) transposed. k is a multiple of 32, n of 32; m is any.
// The swizzles of writing and reading are parameters so that a test can get them wrong.
extern "C" __global__ void __launch_bounds__(128)
product(const u16* x, const u16* w, u16* y, int m, int n, int k, u32 written, u32 read) {
    __shared__ __align__(128) unsigned char xs[STAGES][ROWS * DEPTH * 2];
    __shared__ __align__(128) unsigned char ws[STAGES][COLUMNS * DEPTH * 2];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    int m0 = blockIdx.x * ROWS, n0 = blockIdx.y * COLUMNS;
    float sums[4][4] = {};
    int steps = k / DEPTH;
    auto load = [&](int step) {
        u32 xa = (u32)__cvta_generic_to_shared(xs[step % STAGES]), wa = (u32)__cvta_generic_to_shared(ws[step % STAGES]);
        for (int i = t; i < ROWS * 4; i += 128) {
            int row = i >> 2, c = i & 3;
            bool there = m0 + row < m;
            copy16(xa + place(row, c, written), x + (long long)(there ? m0 + row : 0) * k + step * DEPTH + c * 8, there);
        }
        int row = t >> 2, c = t & 3;
        copy16(wa + place(row, c, written), w + (long long)(n0 + row) * k + step * DEPTH + c * 8, true);
    };
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < steps) load(s);
        asm volatile("cp.async.commit_group;\n");
    }
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;\n" ::"n"(STAGES - 2));
        __syncthreads();
        if (step + STAGES - 1 < steps) load(step + STAGES - 1);
        asm volatile("cp.async.commit_group;\n");
        u32 xa = (u32)__cvta_generic_to_shared(xs[step % STAGES]), wa = (u32)__cvta_generic_to_shared(ws[step % STAGES]);
#pragma unroll
        for (int kk = 0; kk < DEPTH / 16; ++kk) {
            u32 a[4], b[2][4];
            load_matrices(a, xa + place(warp * 16 + (lane & 15), kk * 2 + (lane >> 4), read));
#pragma unroll
            for (int j = 0; j < 2; ++j)
                load_matrices(b[j], wa + place(j * 16 + (lane & 7) + ((lane >> 4) << 3), kk * 2 + ((lane >> 3) & 1), read));
#pragma unroll
            for (int j = 0; j < 4; ++j) multiply(sums[j], a, &b[j >> 1][(j & 1) * 2]);
        }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int q = 0; q < 2; ++q) {
            int row = m0 + warp * 16 + (lane >> 2) + q * 8, column = n0 + j * 8 + (lane & 3) * 2;
            u32 pair;
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(sums[j][q * 2 + 1]), "f"(sums[j][q * 2]));
            if (row < m) *(u32*)(y + (long long)row * n + column) = pair;
        }
}
