//! Gradients of convolutions by their weights: which kernel, and its tiling.

use plimsoll_graph::Window;
use plimsoll_plan::Unsupported;

use super::heads::head_weight_grad;
use super::{FusedWeightGrad, expect_grid, flops, weight_blocks};
use crate::isolated::{ConvKind, ConvNode, Isolated};
use crate::kernel::{DotKernel, Kernel, Machine, Ptr};
use crate::kernels::cross_group::ClearCrossGroup;
use crate::kernels::dot::direct_grad::{DirectGrad, DirectGradTiling};
use crate::kernels::dot::winograd_grad::{self, StripGrad, StripGradTiling};
use crate::kernels::geometry::TapGrid;
use crate::kernels::patch::Source;
use crate::kernels::weight_grad::{GradTiling, SumParts, WeightGrad};
use crate::kernels::winograd::cube::weight_grad::{CubeGradTiling, CubeWeightGrad};
use crate::kernels::winograd::weight_grad::{WinogradGradTiling, WinogradWeightGrad};
use crate::kernels::winograd::{self, cube};
use crate::layout::{Layout, WeightBlocks};
use crate::lower::{BoundNode, Context, Kernels, Lower, by_storage, bytes_of, product};
use crate::ops::forward::{CUBE_OUTPUTS, DOT_WINOGRAD_SHARE, WINOGRAD_SHARE, direct_share, features, pace};
use crate::ops::source::{SourceRef, channels_of, stored_blocks};

/// Partial sums, then their sum, less what belongs to no group.
pub(super) struct Partial<K> {
    pub(super) sums: K,
    pub(super) add: Option<SumParts>,
    pub(super) clear: Option<ClearCrossGroup>,
}

impl<K: Kernel + Send> BoundNode for Partial<K> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; each kernel
        // has ended before the next begins.
        unsafe {
            machine.launch(&self.sums);
            if let Some(add) = &self.add {
                machine.launch(add);
            }
            if let Some(clear) = &self.clear {
                machine.launch(clear);
            }
        }
    }
}

/// The same where products are of bf16.
struct DotPartial<K> {
    sums: K,
    add: Option<SumParts>,
}

impl<K: DotKernel + Send> BoundNode for DotPartial<K> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; each kernel
        // has ended before the next begins.
        unsafe {
            machine.launch_dot(&self.sums);
            if let Some(add) = &self.add {
                machine.launch(add);
            }
        }
    }
}

/// The share of its peak that the weight gradient of [`cube`] reaches: its transforms are shared by few pairs of
/// blocks, so that the sums of these stay in the second-level cache.
const CUBE_GRAD_SHARE: f64 = 0.5;

/// The kernel that runs, and its tiling.
enum BackwardTiling {
    Direct(Box<GradTiling>),
    Winograd(Box<WinogradGradTiling>),
    Cube(Box<CubeGradTiling>),
    DotDirect(Box<DirectGradTiling>),
    DotWinograd(Box<StripGradTiling>),
}

impl BackwardTiling {
    /// The kernel for a gradient of this grid and window. Products are of bf16 with `dot`; `is_plain` convolutions are between
    /// features and have no groups.
    fn choose(
        grid: &TapGrid,
        window: &Window,
        batch: usize,
        blocks: WeightBlocks,
        dot: bool,
        is_plain: bool,
    ) -> BackwardTiling {
        let [_, height, width] = grid.result;
        let (reach, outputs) = (blocks.reach, blocks.out_blocks());
        if dot {
            return match winograd_grad::pays(window, grid.result) {
                true => {
                    BackwardTiling::DotWinograd(Box::new(StripGradTiling::new(grid, batch, reach, outputs)))
                }
                false => {
                    BackwardTiling::DotDirect(Box::new(DirectGradTiling::new(grid, batch, reach, outputs)))
                }
            };
        }
        if is_plain && outputs >= CUBE_OUTPUTS && cube::pays(window, grid.result) {
            return BackwardTiling::Cube(Box::new(CubeGradTiling::new(grid, batch, reach, outputs)));
        }
        if is_plain && winograd::pays_for_weights(window, height, width) {
            return BackwardTiling::Winograd(Box::new(WinogradGradTiling::new(grid, batch, reach, outputs)));
        }
        BackwardTiling::Direct(Box::new(GradTiling::new(grid, batch, blocks, window.taps())))
    }

    /// The share of the multiply-add peak, for a result of this extent. `direct` is the share of direct sums in f32.
    fn share(&self, direct: f64, pace: f64, result: [usize; 3]) -> f64 {
        match self {
            BackwardTiling::Direct(_) | BackwardTiling::DotDirect(_) => pace * direct,
            BackwardTiling::Winograd(_) => WINOGRAD_SHARE / winograd::products(result[2]),
            BackwardTiling::Cube(_) => CUBE_GRAD_SHARE / cube::products(result),
            BackwardTiling::DotWinograd(_) => pace * DOT_WINOGRAD_SHARE / winograd_grad::products(result),
        }
    }

    /// The bytes of the partial sums, and of the buffers that threads gather into.
    fn bytes(&self, threads: usize) -> [usize; 2] {
        let (partial, per_thread) = match self {
            BackwardTiling::Direct(tiling) => (tiling.partial(), bytes_of::<f32>(tiling.per_thread())),
            BackwardTiling::Winograd(tiling) => (tiling.partial(), bytes_of::<f32>(tiling.per_thread())),
            BackwardTiling::Cube(tiling) => (tiling.partial(), bytes_of::<f32>(tiling.per_thread())),
            BackwardTiling::DotDirect(tiling) => (tiling.partial(), tiling.per_thread()),
            BackwardTiling::DotWinograd(tiling) => (tiling.partial(), tiling.per_thread()),
        };
        [bytes_of::<f32>(partial), product([threads, per_thread])]
    }
}

impl Lower for FusedWeightGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let grad = &self.grad;
        let (sources, gradient) = SourceRef::all(cx, &self.loads);
        let gradient = SourceRef::new(cx, self.result_load, gradient);
        let result = &cx.input(self.loads.iter().map(|load| load.operands()).sum()).shape;
        let flops = flops(result.count(), cx.output(0).shape.dim(1), &grad.window);
        if let Layout::HeadWeights(_) = cx.output_layout(0) {
            let kernels = by_storage!(cx.input(0), head_weight_grad(cx, sources, gradient, result.batch()));
            return Ok(kernels.cost(cx.cost(flops)));
        }
        expect_grid(cx, &grad.window)?;
        let blocks = weight_blocks(cx, cx.output_layout(0))?;
        let is_image = *cx.input_layout(0) == Layout::Given;
        let grid = TapGrid::convolution(&grad.window, cx.input(0).shape.spatial(), result.spatial());
        let is_plain = grad.groups == 1 && !is_image;
        let (batch, taps) = (result.batch(), grad.window.taps());
        let clear = blocks.connects_groups().then(|| blocks.clone());
        let isolated = Isolated::new(ConvNode {
            kind: ConvKind::WeightGrad,
            input: cx.input(0),
            output: cx.output(0),
            input_layout: cx.input_layout(0),
            channels: &channels_of(&sources),
            window: grad.window,
            groups: grad.groups,
            flops,
        });
        let dot = cx.dot_of(&isolated).filter(|_| is_plain && grad.window.is_dense());
        let tiling = BackwardTiling::choose(&grid, &grad.window, batch, blocks, dot.is_some(), is_plain);
        let direct = direct_share(&grad.window, grad.groups, ConvKind::WeightGrad);
        let share = tiling.share(direct, pace(dot), result.spatial());
        let isolated = isolated.with_bf16_products(dot.is_some());
        let scratch = tiling.bytes(cx.threads);
        let kernels = Kernels::new(scratch, move |places| {
            let source = match is_image {
                true => Source::Image(sources[0].image(places)),
                false => Source::Features(stored_blocks(&sources, places)),
            };
            let result: Ptr<f32> = places.output(0);
            let gradient = stored_blocks(&[gradient], places);
            let partial: Ptr<f32> = places.scratch(0);
            let scratch: Ptr<f32> = places.scratch(1);
            match &tiling {
                BackwardTiling::Direct(tiling) => {
                    let add = SumParts::new(tiling, partial, result);
                    let clear = clear.clone().map(|blocks| ClearCrossGroup { weights: result, blocks, taps });
                    let tiling = GradTiling::clone(tiling);
                    let sums = WeightGrad::new(&grid, tiling, source, gradient, result, partial, scratch);
                    Box::new(Partial { sums, add, clear })
                }
                BackwardTiling::Winograd(tiling) => {
                    let tiling = WinogradGradTiling::clone(tiling);
                    let (sums, add) =
                        WinogradWeightGrad::new(tiling, source, gradient, result, partial, scratch);
                    Box::new(Partial { sums, add, clear: None })
                }
                BackwardTiling::Cube(tiling) => {
                    let tiling = CubeGradTiling::clone(tiling);
                    let (sums, add) =
                        CubeWeightGrad::new(tiling, features(source), gradient, result, partial, scratch);
                    Box::new(Partial { sums, add, clear: None })
                }
                BackwardTiling::DotDirect(tiling) => {
                    let tiling = DirectGradTiling::clone(tiling);
                    let (sums, add) =
                        DirectGrad::new(tiling, features(source), gradient, result, partial, scratch.cast());
                    Box::new(DotPartial { sums, add })
                }
                BackwardTiling::DotWinograd(tiling) => {
                    let tiling = StripGradTiling::clone(tiling);
                    let (sums, add) =
                        StripGrad::new(tiling, features(source), gradient, result, partial, scratch.cast());
                    Box::new(DotPartial { sums, add })
                }
            }
        });
        Ok(kernels.cost(cx.cost(flops)).share(share).isolated(isolated))
    }
}
