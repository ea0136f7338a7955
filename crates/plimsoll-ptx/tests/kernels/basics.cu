// Kernels of everyday CUDA C++, for tests of the interpreter.
// NVRTC 12.9.86: --gpu-architecture=compute_70 --std=c++17
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// y = a x + y.
extern "C" __global__ void saxpy(const float* __restrict__ x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}

// The sum of each block's 256 values: within warps by shuffles, then over warps in shared memory.
extern "C" __global__ void block_sums(const float* x, float* sums, int n) {
    __shared__ float partial[8];
    float v = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
    if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < 8 ? partial[threadIdx.x] : 0.0f;
        for (int d = 4; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
        if (threadIdx.x == 0) sums[blockIdx.x] = v;
    }
}

// A transpose through a tile of shared memory with a column of padding.
extern "C" __global__ void transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x;
    for (int r = threadIdx.y; r < 32; r += 8) {
        int row = blockIdx.y * 32 + r;
        if (row < rows && c < columns) tile[r][threadIdx.x] = x[(u64)row * columns + c];
    }
    __syncthreads();
    int row = blockIdx.y * 32 + threadIdx.x;
    for (int r = threadIdx.y; r < 32; r += 8) {
        int column = blockIdx.x * 32 + r;
        if (column < columns && row < rows) y[(u64)column * rows + row] = tile[threadIdx.x][r];
    }
}

// How often each byte occurs, by atomic operations in dynamic shared memory and then in global memory.
extern "C" __global__ void histogram(const u8* x, u32* counts, int n) {
    extern __shared__ u32 local[];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) if (local[i]) atomicAdd(&counts[i], local[i]);
}

struct Shape { int n; int stride; double scale; float4 shift; };

// Special functions, doubles, vectors, a structure as parameter.
extern "C" __global__ void mixture(const float4* x, double* y, Shape s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= s.n) return;
    float4 v = x[i * s.stride];
    float e = expf(v.x) + logf(fabsf(v.y) + 1.0f) + sqrtf(fabsf(v.z)) + tanhf(v.w);
    e += 1.0f / (1.0f + __expf(-v.x)) + erff(v.y) + rsqrtf(fabsf(v.z) + 0.5f) + s.shift.y;
    y[i] = s.scale * (double)e + sqrt(fabs((double)v.w)) / (1.0 + (double)v.x * v.x) + exp((double)v.y);
}

// The steps of the Collatz sequence: lanes part and meet again.
extern "C" __global__ void collatz(const u32* x, u32* steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 v = x[i];
    u32 count = 0;
    while (v != 1) {
        if (v & 1) v = 3 * v + 1;
        else v /= 2;
        ++count;
    }
    switch (count % 7) {
        case 0: count += 100; break;
        case 1: count *= 3; break;
        case 2: count ^= 0x55; break;
        case 3: count = __popc(count); break;
        case 4: count = __clz(count); break;
        case 5: count = __brev(count); break;
        default: count -= 7;
    }
    steps[i] = count;
}

// A window of its neighbours in an array with an index: local memory.
extern "C" __global__ void median(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float w[9];
    for (int k = 0; k < 9; ++k) { int j = i + k - 4; w[k] = x[j < 0 ? 0 : j >= n ? n - 1 : j]; }
    for (int a = 1; a < 9; ++a) {
        float v = w[a];
        int b = a;
        while (b > 0 && w[b - 1] > v) { w[b] = w[b - 1]; --b; }
        w[b] = v;
    }
    y[i] = w[4];
}

__constant__ float taps[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};

// A blur with weights in constant memory; bytes in, bytes out.
extern "C" __global__ void blur(const u8* __restrict__ x, u8* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = 0.0f;
    for (int k = 0; k < 5; ++k) { int j = min(max(i + k - 2, 0), n - 1); s += taps[k] * x[j]; }
    y[i] = (u8)__float2int_rn(s);
}
