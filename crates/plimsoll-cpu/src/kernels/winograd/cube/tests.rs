//! Rounding, against sums in f64 and against F(4, 3) along the width.

use super::conv::CubeConv;
use super::weight_grad::{CubeGradTiling, CubeWeightGrad};
use super::*;
use crate::kernel::{Kernel, Ptr};
use crate::kernels::patch::{Blocks, Source, SourceBlock};
use crate::kernels::tap_conv::{Destination, Operands};
use crate::kernels::winograd::conv::{WinogradConv, WinogradTiling};
use crate::kernels::winograd::weight_grad::{WinogradGradTiling, WinogradWeightGrad};
use crate::simd::{LANES, Portable};

const EXTENT: [usize; 3] = [4, 4, 8];
const VOXELS: usize = 4 * 4 * 8;
const TAPS: usize = 27;

/// Values between −1 and 1, as a small generator makes them.
fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// A convolution of some blocks to one block.
struct Layer {
    source_blocks: usize,
    features: Vec<f32>,
    weights: Vec<f32>,
}

impl Layer {
    /// The result of a kernel that is built from operands, with this number of floats of scratch.
    fn run<K: Kernel>(&mut self, scratch: usize, kernel: impl Fn(Operands) -> K) -> Vec<f32> {
        let (mut result, mut scratch) = (vec![f32::NAN; VOXELS * LANES], vec![f32::NAN; scratch]);
        let kernel = kernel(Operands {
            source: Source::Features(blocks(&mut self.features)),
            weights: Ptr(self.weights.as_mut_ptr()),
            bias: None,
            result: Destination::F32(Ptr(result.as_mut_ptr()), None),
            patches: Ptr(scratch.as_mut_ptr()),
        });
        run(&kernel);
        result
    }

    /// The sum for a result in f64.
    fn exact(&self, [d, h, w]: [usize; 3], out: usize) -> f64 {
        let mut sum = 0.0;
        for tap in 0..TAPS {
            let place = [d + tap / 9, h + tap / 3 % 3, w + tap % 3];
            if (0..3).any(|axis| place[axis] < 1 || place[axis] > EXTENT[axis]) {
                continue;
            }
            let voxel = ((place[0] - 1) * EXTENT[1] + place[1] - 1) * EXTENT[2] + place[2] - 1;
            for block in 0..self.source_blocks {
                for lane in 0..LANES {
                    let x = self.features[(block * VOXELS + voxel) * LANES + lane];
                    let w = self.weights[((block * TAPS + tap) * LANES + lane) * LANES + out];
                    sum += f64::from(x) * f64::from(w);
                }
            }
        }
        sum
    }

    /// The root mean square of the errors, relative to the root mean square of the results.
    fn error(&self, found: &[f32]) -> f64 {
        let (mut off, mut all) = (0.0, 0.0);
        for (i, found) in found.iter().enumerate() {
            let (voxel, out) = (i / LANES, i % LANES);
            let exact = self.exact([voxel / 32, voxel / 8 % 4, voxel % 8], out);
            off += (f64::from(*found) - exact).powi(2);
            all += exact.powi(2);
        }
        (off / all).sqrt()
    }
}

#[test]
fn rounding_is_less_than_that_of_tiles_along_the_width() {
    for source_blocks in [2, 18] {
        let channels = source_blocks * LANES;
        let mut layer = Layer {
            source_blocks,
            features: values(channels * VOXELS, 1).into_iter().map(|x| x.max(0.01 * x)).collect(),
            weights: values(channels * TAPS * LANES, 2),
        };
        let grid = TapGrid::convolution(&Window::same([WIDTH; 3], [1; 3]), EXTENT, EXTENT);
        let tiling = CubeTiling::new(&grid, 1, source_blocks, 1);
        let cubes = layer.run(tiling.per_thread(), |operands| CubeConv::new(&grid, tiling.clone(), operands));
        let tiling = WinogradTiling::new(&grid, 1, source_blocks, 1);
        let rows =
            layer.run(tiling.per_thread(), |operands| WinogradConv::new(tiling.clone(), TAPS, operands));
        let (cubes, rows) = (layer.error(&cubes), layer.error(&rows));
        assert!(cubes < rows && rows < 1e-6, "{channels} channels: {cubes:e} and {rows:e}");
    }
}

/// Blocks of a map, bound.
fn blocks(values: &mut [f32]) -> Blocks {
    let block =
        |block: &mut [f32]| SourceBlock { data: Ptr(block.as_mut_ptr()), sample_stride: 0, norm: None };
    Blocks::F32(values.chunks_mut(VOXELS * LANES).map(block).collect())
}

/// Runs all tasks of a kernel.
fn run(kernel: &impl Kernel) {
    for task in 0..kernel.tasks() {
        // SAFETY: every machine has the portable level; tasks run one after the other on one thread, over buffers of the lengths that
        // the kernel was bound to.
        unsafe { kernel.task::<Portable>(task, 0) };
    }
}

#[test]
fn weight_gradients_are_the_sums_and_round_less_than_along_the_width() {
    // More blocks than a task has, and not a multiple of them.
    let (source_blocks, out_blocks) = (3, 3);
    let mut features: Vec<f32> = values(source_blocks * VOXELS * LANES, 3);
    let mut gradients = values(out_blocks * VOXELS * LANES, 4);
    let grid = TapGrid::convolution(&Window::same([WIDTH; 3], [1; 3]), EXTENT, EXTENT);
    let count = source_blocks * out_blocks * TAPS * LANES * LANES;
    let (mut cubes, mut rows) = (vec![f32::NAN; count], vec![f32::NAN; count]);

    let tiling = CubeGradTiling::new(&grid, 1, source_blocks, out_blocks);
    let mut scratch = vec![f32::NAN; tiling.per_thread()];
    let (result, partial) = (Ptr(cubes.as_mut_ptr()), Ptr(std::ptr::null_mut()));
    let scratch = Ptr(scratch.as_mut_ptr());
    let (source, gradient) = (blocks(&mut features), blocks(&mut gradients));
    let (kernel, add) = CubeWeightGrad::new(tiling, source, gradient, result, partial, scratch);
    assert!(add.is_none(), "so few tiles are one part");
    run(&kernel);

    let tiling = WinogradGradTiling::new(&grid, 1, source_blocks, out_blocks);
    let mut scratch = vec![f32::NAN; tiling.per_thread()];
    let (result, scratch) = (Ptr(rows.as_mut_ptr()), Ptr(scratch.as_mut_ptr()));
    let (source, gradient) = (Source::Features(blocks(&mut features)), blocks(&mut gradients));
    run(&WinogradWeightGrad::new(tiling, source, gradient, result, partial, scratch).0);

    let (mut off, mut all) = ([0.0; 2], 0.0);
    for i in 0..count {
        let (out, lane, tap, pair) =
            (i % LANES, i / LANES % LANES, i / LANES / LANES % TAPS, i / LANES / LANES / TAPS);
        let (block, source) = (pair / source_blocks, pair % source_blocks);
        let mut exact = 0.0;
        for voxel in 0..VOXELS {
            let [d, h, w] = [voxel / 32 + tap / 9, voxel / 8 % 4 + tap / 3 % 3, voxel % 8 + tap % 3];
            if [d, h, w].iter().zip(EXTENT).all(|(place, extent)| (1..=extent).contains(place)) {
                let read = ((d - 1) * EXTENT[1] + h - 1) * EXTENT[2] + w - 1;
                exact += f64::from(features[(source * VOXELS + read) * LANES + lane])
                    * f64::from(gradients[(block * VOXELS + voxel) * LANES + out]);
            }
        }
        for (off, found) in off.iter_mut().zip([cubes[i], rows[i]]) {
            *off += (f64::from(found) - exact).powi(2);
        }
        all += exact.powi(2);
    }
    let [cubes, rows] = off.map(|off: f64| (off / all).sqrt());
    assert!(cubes < rows && rows < 1e-6, "{cubes:e} and {rows:e}");
}
