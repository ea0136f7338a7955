// Kernels with one mistake each, which the interpreter has to find.
// NVRTC 12.9.86: --gpu-architecture=compute_70 --std=c++17
typedef unsigned int u32;

// Reads what another warp writes, without a barrier.
extern "C" __global__ void no_barrier(const float* x, float* y) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    y[t] = s[127 - t];
}

// Reads what another lane of its warp writes, without __syncwarp.
extern "C" __global__ void lockstep(const float* x, float* y) {
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    y[t] = s[31 - t];
}

// The same with it: no mistake.
extern "C" __global__ void in_step(const float* x, float* y) {
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp();
    y[t] = s[31 - t];
}

// Writes the next tile before all have read the last.
extern "C" __global__ void one_barrier_short(const float* x, float* y, int tiles) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < tiles; ++i) {
        s[t] = x[i * 64 + t];
        __syncthreads();
        sum += s[63 - t];
    }
    y[t] = sum;
}

// Leaves an element of shared memory out.
extern "C" __global__ void lane_left_out(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t != 40) s[t] = x[t];
    __syncthreads();
    y[t] = s[63 - t];
}

// No check of the number of elements.
extern "C" __global__ void no_bound(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * x[i];
}

// Neighbouring blocks write one element in common.
extern "C" __global__ void overlap(const float* x, float* y) {
    int i = blockIdx.x * (blockDim.x - 1) + threadIdx.x;
    y[i] = x[i];
}

// A sum whose order is left to chance.
extern "C" __global__ void float_sum(const float* x, float* y) { atomicAdd(y, x[blockIdx.x * blockDim.x + threadIdx.x]); }

// A vector load from an address that is a multiple of 4 only.
extern "C" __global__ void unaligned(const float* x, float4* y, int start) {
    y[threadIdx.x] = *(const float4*)(x + start + 4 * threadIdx.x);
}

// Threads return before a barrier.
extern "C" __global__ void early_return(const float* x, float* y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t >= n) return;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[n - 1 - t];
}

// Half of a warp shuffles with a mask of all.
extern "C" __global__ void half_a_warp(const int* x, int* y) {
    int t = threadIdx.x;
    int v = x[t];
    if (t < 16) v += __shfl_xor_sync(0xffffffffu, v, 1);
    __syncthreads();
    y[t] = v;
}

// Waits for another block.
extern "C" __global__ void wait_for_ever(volatile u32* flag) {
    if (threadIdx.x == 0) while (*flag == 0) {}
}

// Reads through the constant path what it has written.
extern "C" __global__ void constant_path(float* y) {
    y[threadIdx.x] = 1.0f;
    __syncthreads();
    float v;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(y + 63 - threadIdx.x));
    y[threadIdx.x + 64] = v;
}

// Uses an element of a local array that it never set.
extern "C" __global__ void unset(const int* x, int* y) {
    int a[8];
    for (int i = 0; i < 7; ++i) a[x[i] & 7] = i;
    y[threadIdx.x] = a[x[threadIdx.x] & 7];
}
