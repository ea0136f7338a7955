// Logits of windows, added with their shares of the mean to planes of a case: what the processor does with them, with the same bits.
#include "common.cuh"

// Sums lie [plane][class][voxel of the plane], of as many planes as are held. A voxel of the window is named by its place along the axis
// along which planes pass, and along the first and the second axis of a plane.
struct WindowSums {
    const void* logits;     // [d][h][w][class]
    void* sums;
    const float* shares;    // of the depths of the window, of its heights, of its widths: that of a voxel is their product
    u32* refused;           // becomes 1 where a logit cannot be summed
    u32 axes[3];            // which axis of the window each of the three is
    u32 from[3];            // the first place of the window along each that is held
    u32 extent[3];          // how many are
    u32 window[3];          // depth, height, width
    u32 mirrored[3];        // whether the network saw each of these from its other end
    u32 turn;               // that of the place 0, in the order of passing, among the planes that are held
    u32 step;               // from a place to the next: 1, or the planes less one where they pass backwards
    u32 planes;
    u32 origin[2];          // where the place 0 lies along the axes of what is held of a plane; below 0 it wraps
    u32 line;               // voxels along the second axis of what is held
    u32 plane;              // voxels of what is held
    u32 classes;
    float limit;            // logits from here on are refused
    u32 count;              // threads: voxels of the window that are held
    u32 unused;
};

// A thread for each voxel, which adds all of its classes. Threads side by side have voxels side by side in a plane.
template <class Logit, class Sum>
__device__ inline void window_sums(const WindowSums& p) {
    u32 rest = element();
    if (rest >= p.count) return;
    u32 place[3], at[3];
    place[2] = p.from[2] + rest % p.extent[2];
    rest /= p.extent[2];
    place[1] = p.from[1] + rest % p.extent[1];
    place[0] = p.from[0] + rest / p.extent[1];
    float share[3];
    const float* shares = p.shares;
#pragma unroll
    for (u32 axis = 0; axis < 3; axis++) {
        const u32 along = p.axes[0] == axis ? place[0] : p.axes[1] == axis ? place[1] : place[2];
        share[axis] = shares[along];
        shares += p.window[axis];
        at[axis] = p.mirrored[axis] ? p.window[axis] - 1 - along : along;
    }
    // In the order of the processor's products, each rounded by itself: that of the second axis of a plane is the last factor.
    const bool by_width = p.axes[2] == 2;
    const float others = __fmul_rn(share[0], by_width ? share[1] : share[2]);
    const float of_voxel = __fmul_rn(others, by_width ? share[2] : share[1]);
    const u32 slot = (p.turn + place[0] * p.step) % p.planes;
    const u32 in_plane = (p.origin[0] + place[1]) * p.line + p.origin[1] + place[2];
    const Logit* logits = (const Logit*)p.logits + (size_t)((at[0] * p.window[1] + at[1]) * p.window[2] + at[2]) * p.classes;
    Sum* sums = (Sum*)p.sums + (size_t)(slot * p.classes) * p.plane + in_plane;
    bool all = true;
    for (u32 c = 0; c < p.classes; c++) {
        const float logit = load(logits, c);
        store(sums, 0, __fadd_rn(load(sums, 0), __fmul_rn(logit, of_voxel)));
        sums += p.plane;
        // False for NaN.
        all = all && fabsf(logit) < p.limit;
    }
    if (!all) atomicOr(p.refused, 1u);
}

#define OF(logits, sums, Logit, Sum) \
    KERNEL(window_sums_##logits##_##sums, WindowSums) { window_sums<Logit, Sum>(p); }

OF(f32, f32, float, float)
OF(f32, f16, float, F16)
OF(bf16, f32, Bf16, float)
OF(bf16, f16, Bf16, F16)
OF(f16, f32, F16, float)
OF(f16, f16, F16, F16)
