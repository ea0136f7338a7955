//! The choice of the kernel of a convolution to features, or its transpose, and of its tiles.

use plimsoll_graph::Window;

use crate::isolated::{ConvKind, Isolated};
use crate::kernel::{DotKernel, Machine, Ptr};
use crate::kernels::dot::direct::{DirectConv, DirectTiling};
use crate::kernels::dot::winograd::{StripConv, StripTiling, plane_taps};
use crate::kernels::dot::{self, DotOperands, PackWeights, PackWinogradWeights};
use crate::kernels::geometry::TapGrid;
use crate::kernels::patch::{Blocks, Source};
use crate::kernels::tap_conv::{ConvTiling, Operands, TapConv};
use crate::kernels::winograd;
use crate::kernels::winograd::conv::{WinogradConv, WinogradTiling};
use crate::kernels::winograd::cube::conv::CubeConv;
use crate::kernels::winograd::cube::{self, CubeTiling};
use crate::layout::{Lanes, WeightBlocks};
use crate::lower::{BoundNode, Context, bytes_of, product, single};
use crate::simd::dot::DotLevel;

/// Blocks of outputs from which on transforms along three axes are used: they cost the same for one, and a narrow network, whose few sums
/// round little, keeps that.
pub(super) const CUBE_OUTPUTS: usize = 2;

/// The share of the peak that direct kernels reach.
pub(super) fn direct_share(window: &Window, groups: usize, kind: ConvKind) -> f64 {
    match kind {
        // Narrow groups take two instructions for a multiply-add.
        _ if groups > 1 => 0.5,
        // With few taps there is little to do between loads and stores.
        _ if window.taps() <= 8 => 0.6,
        ConvKind::WeightGrad => 0.9,
        ConvKind::Forward | ConvKind::Transposed => 0.95,
    }
}

/// The share of the peak at which products are summed where [`winograd`] makes them fewer.
pub(super) const WINOGRAD_SHARE: f64 = 0.72;

/// The same of [`cube`], whose transforms are a larger part of the work.
const CUBE_SHARE: f64 = 0.65;

/// The same of [`dot::winograd`], where an instruction does two multiply-adds of f32.
pub(super) const DOT_WINOGRAD_SHARE: f64 = 0.8;

/// The kernel that runs, and its tiling.
#[derive(Clone)]
enum ForwardTiling {
    Direct(Box<ConvTiling>),
    Winograd(Box<WinogradTiling>),
    Cube(Box<CubeTiling>),
    DotDirect(Box<DirectTiling>),
    DotWinograd(Box<StripTiling>),
}

/// A convolution or transposed convolution to blocks: its grid, how it is cut, how its weights lie.
#[derive(Clone)]
pub(super) struct Forward {
    grid: TapGrid,
    tiling: ForwardTiling,
    batch: usize,
    pub(super) blocks: WeightBlocks,
    taps: usize,
    /// Products of bf16 that are computed in the time of one of f32.
    pace: f64,
}

/// Products of bf16 in the time of one of f32: an instruction does two, or several do one.
const NATIVE_PACE: f64 = 2.0;
const STEPWISE_PACE: f64 = 0.15;

/// The pace of products of bf16, or of f32.
pub(super) fn pace(dot: Option<DotLevel>) -> f64 {
    match dot {
        None => 1.0,
        Some(level) if level.is_native() => NATIVE_PACE,
        Some(_) => STEPWISE_PACE,
    }
}

impl Forward {
    /// Chooses the kernel for a grid over the first operand of a node, with weights of these blocks and window. The
    /// choice depends on shapes and on the type of products alone, and on no measurement, so that it is the same each
    /// time.
    pub(super) fn new(
        cx: &Context<'_>,
        grid: TapGrid,
        batch: usize,
        blocks: WeightBlocks,
        window: &Window,
        groups: usize,
        isolated: &Isolated,
    ) -> Forward {
        // Images and narrow groups, whose inputs are no pairs of a block, are multiplied in f32, and so are dilated windows.
        let dot = cx.dot_of(isolated).filter(|_| blocks.lanes == Lanes::Blocks && window.is_dense());
        let is_plain = groups == 1 && !matches!(blocks.lanes, Lanes::Image(_));
        let [_, _, width] = grid.result;
        let (reach, outputs) = (blocks.reach, blocks.out_blocks());
        let tiling = match dot {
            Some(_) if is_plain && dot::winograd::pays(window, grid.result) => {
                ForwardTiling::DotWinograd(Box::new(StripTiling::new(&grid, batch, reach, outputs)))
            }
            Some(_) => ForwardTiling::DotDirect(Box::new(DirectTiling::new(&grid, batch, &blocks))),
            None if is_plain && outputs >= CUBE_OUTPUTS && cube::pays(window, grid.result) => {
                ForwardTiling::Cube(Box::new(CubeTiling::new(&grid, batch, reach, outputs)))
            }
            None if is_plain && winograd::pays(window, width) => {
                ForwardTiling::Winograd(Box::new(WinogradTiling::new(&grid, batch, reach, outputs)))
            }
            None => ForwardTiling::Direct(Box::new(ConvTiling::new(&grid, batch, &blocks))),
        };
        let pace = pace(dot);
        Forward { grid, tiling, batch, blocks, taps: window.taps(), pace }
    }

    /// Bytes of patches for all threads.
    pub(super) fn patches(&self, threads: usize) -> usize {
        let per_thread = match &self.tiling {
            ForwardTiling::Direct(tiling) => bytes_of::<f32>(tiling.patch),
            ForwardTiling::Winograd(tiling) => bytes_of::<f32>(tiling.per_thread()),
            ForwardTiling::Cube(tiling) => bytes_of::<f32>(tiling.per_thread()),
            ForwardTiling::DotDirect(tiling) => tiling.per_thread(),
            ForwardTiling::DotWinograd(tiling) => tiling.per_thread(),
        };
        product([threads, per_thread])
    }

    /// Bytes of packed weights.
    pub(super) fn packed(&self) -> usize {
        match &self.tiling {
            ForwardTiling::Direct(_) | ForwardTiling::Winograd(_) | ForwardTiling::Cube(_) => 0,
            ForwardTiling::DotDirect(_) => bytes_of::<u16>(self.blocks.count(self.taps)),
            ForwardTiling::DotWinograd(tiling) => bytes_of::<u16>(tiling.packed()),
        }
    }

    pub(super) fn has_bf16_products(&self) -> bool {
        matches!(self.tiling, ForwardTiling::DotDirect(_) | ForwardTiling::DotWinograd(_))
    }

    /// The share of the multiply-add peak of f32 at which products of bf16 are computed where products of f32 would run at `direct`.
    pub(super) fn dot_share(level: DotLevel, direct: f64) -> f64 {
        pace(Some(level)) * direct
    }

    /// The share of the multiply-add peak of f32 at which it computes, where a direct kernel would at `direct`.
    pub(super) fn share(&self, direct: f64) -> f64 {
        let [_, _, width] = self.grid.result;
        match &self.tiling {
            ForwardTiling::Direct(_) => direct,
            ForwardTiling::Winograd(_) => WINOGRAD_SHARE / winograd::products(width),
            ForwardTiling::Cube(_) => CUBE_SHARE / cube::products(self.grid.result),
            ForwardTiling::DotDirect(_) => self.pace * direct,
            ForwardTiling::DotWinograd(_) => {
                self.pace * DOT_WINOGRAD_SHARE / dot::winograd::products(self.grid.result)
            }
        }
    }

    /// Binds it to operands, and to a place of [`Forward::packed`] bytes.
    pub(super) fn kernel(&self, operands: Operands, packed: Ptr<u16>) -> Box<dyn BoundNode> {
        match &self.tiling {
            ForwardTiling::Direct(tiling) => {
                let tiling = ConvTiling::clone(tiling);
                single(TapConv::new(&self.grid, tiling, self.batch, self.taps, self.blocks.clone(), operands))
            }
            ForwardTiling::Winograd(tiling) => {
                single(WinogradConv::new(WinogradTiling::clone(tiling), self.taps, operands))
            }
            ForwardTiling::Cube(tiling) => {
                single(CubeConv::new(&self.grid, CubeTiling::clone(tiling), operands))
            }
            ForwardTiling::DotDirect(tiling) => {
                let pairs = self.blocks.out_blocks() * self.blocks.reach;
                let pack = PackWeights { weights: operands.weights, packed, pairs, taps: self.taps };
                let (tiling, blocks) = (DirectTiling::clone(tiling), self.blocks.clone());
                let operands = dot_operands(operands, packed);
                let conv = DirectConv::new(&self.grid, tiling, self.batch, self.taps, blocks, operands);
                Box::new(Packed { pack, conv })
            }
            ForwardTiling::DotWinograd(tiling) => {
                let pack = PackWinogradWeights {
                    weights: operands.weights,
                    packed,
                    pairs: self.blocks.out_blocks() * self.blocks.reach,
                    taps: self.taps,
                    planes: plane_taps(&self.grid),
                };
                let conv = StripConv::new(StripTiling::clone(tiling), dot_operands(operands, packed));
                Box::new(Packed { pack, conv })
            }
        }
    }
}

/// A source whose products are of bf16.
pub(super) fn features(source: Source) -> Blocks {
    match source {
        Source::Features(blocks) => blocks,
        Source::Image(_) => unreachable!("images are multiplied in f32"),
    }
}

fn dot_operands(operands: Operands, packed: Ptr<u16>) -> DotOperands {
    let Operands { source, bias, result, patches, .. } = operands;
    DotOperands { source: features(source), packed, bias, result, scratch: patches.cast() }
}

/// Packs weights, then convolves with dot products of bf16.
pub(super) struct Packed<P, C> {
    pub(super) pack: P,
    pub(super) conv: C,
}

impl<P: DotKernel + Send, C: DotKernel + Send> BoundNode for Packed<P, C> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; the convolution
        // begins when all weights are packed.
        unsafe {
            machine.launch_dot(&self.pack);
            machine.launch_dot(&self.conv);
        }
    }
}
