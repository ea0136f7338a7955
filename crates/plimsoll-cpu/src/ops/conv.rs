//! Convolutions of all directions: which kernel, over which blocks.

use plimsoll_graph::Window;
use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad};
use plimsoll_plan::Unsupported;

use super::forward::{
    CUBE_OUTPUTS, DOT_WINOGRAD_SHARE, Forward, Packed, WINOGRAD_SHARE, direct_share, features, pace,
};
use super::source::{Load, SourceRef, all_views, channels_of, stored_blocks};
use crate::isolated::{ConvKind, ConvNode, Isolated};
use crate::kernel::{DotKernel, Kernel, Machine, Ptr};
use crate::kernels::cross_group::ClearCrossGroup;
use crate::kernels::dot::direct_grad::{DirectGrad, DirectGradTiling};
use crate::kernels::dot::winograd_grad::{self, StripGrad, StripGradTiling};
use crate::kernels::dot::{DotHead, PackHeadWeights};
use crate::kernels::geometry::TapGrid;
use crate::kernels::head::{HeadBack, HeadLogits, HeadWeightGrad};
use crate::kernels::patch::Source;
use crate::kernels::tap_conv::{Destination, Operands};
use crate::kernels::transpose_weights::TransposeWeights;
use crate::kernels::weight_grad::{GradTiling, SumParts, WeightGrad};
use crate::kernels::winograd::cube::weight_grad::{CubeGradTiling, CubeWeightGrad};
use crate::kernels::winograd::weight_grad::{WinogradGradTiling, WinogradWeightGrad};
use crate::kernels::winograd::{self, cube};
use crate::layout::rule::VolumeRule;
use crate::layout::{Layout, VolumeLayout, WeightBlocks, blocks};
use crate::lower::{
    BoundNode, Context, Kernels, Lower, NodeOperands, Places, by_storage, bytes_of, is_bf16, product,
};
use crate::simd::{Bf16, Element, LANES};

/// The most channels of an image that is convolved.
const IMAGE_CHANNELS: usize = LANES;

/// A convolution whose sources are read by its loads. Operands: those of each load, weights, where it has one a bias
/// and, with `added`, a volume to which the result is added.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FusedConv {
    pub(crate) conv: Conv,
    pub(crate) loads: Vec<Load>,
    pub(crate) added: bool,
}

/// A transposed convolution whose source is read by its load. Operands: those of the load, weights, where it has one a
/// bias and, with `added`, a volume to which the result is added.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FusedTranspose {
    pub(crate) conv: ConvTranspose,
    pub(crate) load: Load,
    pub(crate) added: bool,
}

/// A gradient by weights whose sources, and the gradient of the result, are read as its loads say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FusedWeightGrad {
    pub(crate) grad: ConvWeightGrad,
    pub(crate) loads: Vec<Load>,
    pub(crate) result_load: Load,
}

fn is_point(window: &Window, groups: usize) -> bool {
    *window == Window::point() && groups == 1
}

/// Returns `true` if sources may be an image.
fn may_be_image(of: &NodeOperands<'_>, sources: usize) -> bool {
    sources == 1 && of.input(0).shape.channels() <= IMAGE_CHANNELS && !is_bf16(of.input(0))
}

impl Lower for Conv {
    fn volumes(&self, of: &NodeOperands<'_>) -> VolumeRule {
        let sources = self.sources(of.node.inputs.len());
        // Rows of bf16 are for the host: no kernel reads them.
        let may_be_rows = !is_bf16(of.program.tensor(of.node.outputs[0])) || !of.is_read();
        let point = is_point(&self.window, self.groups) && may_be_rows;
        VolumeRule::Conv { sources, image: may_be_image(of, sources), point }
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let loads = vec![Load::Plain; self.sources(cx.inputs.len())];
        FusedConv { conv: self.clone(), loads, added: false }.lower(cx)
    }
}

impl Lower for ConvTranspose {
    fn volumes(&self, of: &NodeOperands<'_>) -> VolumeRule {
        // The kernel for rows is that of a head's gradient: of all channels, without a bias.
        let is_whole = self.channels == of.input(1).shape.dim(1) && !self.bias;
        VolumeRule::Transpose { point: is_point(&self.window, self.groups) && is_whole }
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        FusedTranspose { conv: self.clone(), load: Load::Plain, added: false }.lower(cx)
    }
}

impl Lower for ConvWeightGrad {
    fn volumes(&self, of: &NodeOperands<'_>) -> VolumeRule {
        let sources = of.node.inputs.len() - 1;
        let point = is_point(&self.window, self.groups);
        VolumeRule::Conv { sources, image: may_be_image(of, sources), point }
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let loads = vec![Load::Plain; cx.inputs.len() - 1];
        FusedWeightGrad { grad: self.clone(), loads, result_load: Load::Plain }.lower(cx)
    }
}

/// Weights of a convolution to blocks lie in blocks; those of one to rows are a head's. Any other layout is an error of
/// this backend, for which there is no remedy.
fn weight_blocks(cx: &Context<'_>, layout: &Layout) -> Result<WeightBlocks, Unsupported> {
    match layout {
        Layout::Weights(blocks) => Ok(WeightBlocks::clone(blocks)),
        other => Err(cx.unsupported(format!("internal error: its weights lie as {other:?}"))),
    }
}

/// The place of the result of a node, and of a volume that it is added to.
fn destination(places: &Places, bf16: bool, added_to: Option<usize>) -> Destination {
    match bf16 {
        true => Destination::Bf16(places.output(0), added_to.map(|operand| places.input(operand))),
        false => Destination::F32(places.output(0), added_to.map(|operand| places.input(operand))),
    }
}

impl Lower for FusedConv {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let conv = &self.conv;
        let (sources, weights) = SourceRef::all(cx, &self.loads);
        let inputs: usize = sources.iter().map(|source| source.channels).sum();
        let flops = flops(cx.output(0).shape.count(), inputs / conv.groups, &conv.window);
        let added_to = self.added.then(|| weights + 1 + usize::from(conv.bias));
        if *cx.output_layout(0) == Layout::Given {
            if self.added {
                return Err(cx.unsupported("internal error: logits that are added to something"));
            }
            let operands = HeadOperands { sources, weights, bias: conv.bias };
            // Logits of bf16 are those of predictions, where products go by shapes alone.
            let kernels = match (is_bf16(cx.output(0)), cx.dot.filter(|_| is_bf16(cx.input(0)))) {
                (true, Some(level)) => {
                    let share = Forward::dot_share(level, direct_share(&conv.window, 1, ConvKind::Forward));
                    dot_head(cx, operands).share(share)
                }
                (true, None) => by_storage!(cx.input(0), bf16_head(cx, operands)),
                (false, _) => by_storage!(cx.input(0), f32_head(cx, operands)),
            };
            return Ok(kernels.cost(cx.cost(flops)));
        }
        let blocks = weight_blocks(cx, cx.input_layout(weights))?;
        let (from, result) = (cx.input(0).shape.spatial(), &cx.output(0).shape);
        let is_image = *cx.input_layout(0) == Layout::Given;
        let grid = TapGrid::convolution(&conv.window, from, result.spatial());
        let (bias, bf16) = (conv.bias, is_bf16(cx.output(0)));
        let isolated = Isolated::new(ConvNode {
            kind: ConvKind::Forward,
            input: cx.input(0),
            output: cx.output(0),
            input_layout: cx.input_layout(0),
            channels: &channels_of(&sources),
            window: conv.window,
            groups: conv.groups,
            flops,
        });
        let forward = Forward::new(cx, grid, result.batch(), blocks, &conv.window, conv.groups, &isolated);
        let share = forward.share(direct_share(&conv.window, conv.groups, ConvKind::Forward));
        let isolated = isolated.with_bf16_products(forward.has_bf16_products());
        let kernels = Kernels::new([forward.patches(cx.threads), forward.packed()], move |places| {
            let source = match is_image {
                true => Source::Image(sources[0].image(places)),
                false => Source::Features(stored_blocks(&sources, places)),
            };
            let operands = Operands {
                source,
                weights: places.input(weights),
                bias: bias.then(|| places.input(weights + 1)),
                result: destination(places, bf16, added_to),
                patches: places.scratch(0),
            };
            forward.kernel(operands, places.scratch(1))
        });
        let in_place: Vec<(usize, usize)> = added_to.iter().map(|operand| (0, *operand)).collect();
        Ok(kernels.in_place(in_place).cost(cx.cost(flops)).share(share).isolated(isolated))
    }
}

/// Operations of a convolution, from the elements on its strided side and the channels of a group on the other.
fn flops(strided: usize, other_channels: usize, window: &Window) -> u64 {
    (2 * strided as u64).saturating_mul((other_channels * window.taps()) as u64)
}

/// Transposes the weights, then convolves with them.
struct Transposed {
    transpose: TransposeWeights,
    conv: Box<dyn BoundNode>,
}

impl BoundNode for Transposed {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; the
        // convolution begins when all weights are transposed.
        unsafe {
            machine.launch(&self.transpose);
            self.conv.run(machine);
        }
    }
}

impl Lower for FusedTranspose {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let conv = &self.conv;
        let source = SourceRef::new(cx, self.load, 0);
        let weights = self.load.operands();
        let added_to = self.added.then(|| weights + 1 + usize::from(conv.bias));
        let in_place: Vec<(usize, usize)> = added_to.iter().map(|operand| (0, *operand)).collect();
        let flops = flops(cx.input(0).shape.count(), conv.channels / conv.groups, &conv.window);
        if *cx.input_layout(0) == Layout::Given {
            if conv.bias || *cx.input_layout(weights) != Layout::HeadWeights(vec![conv.channels]) {
                return Err(cx.unsupported("rows to some of several sources, or with a bias"));
            }
            let kernels = by_storage!(cx.output(0), head_back(cx, added_to));
            return Ok(kernels.in_place(in_place).cost(cx.cost(flops)));
        }
        let taps = conv.window.taps();
        let own = weight_blocks(cx, cx.input_layout(weights))?;
        let result = &cx.output(0).shape;
        let grid = TapGrid::transposed(&conv.window, cx.input(0).shape.spatial(), conv.output);
        let of_transposed =
            WeightBlocks::new(conv.channels, &[source.channels], conv.groups, VolumeLayout::Blocks);
        let transposed_bytes = bytes_of::<f32>(of_transposed.count(taps));
        // The source whose channels are wanted begins at a block of its own: layouts are assigned so.
        let first = own.block_of(conv.first_channel);
        let (bias, bf16) = (conv.bias, is_bf16(cx.output(0)));
        let isolated = Isolated::new(ConvNode {
            kind: ConvKind::Transposed,
            input: cx.input(0),
            output: cx.output(0),
            input_layout: cx.input_layout(0),
            channels: &[conv.channels],
            window: conv.window,
            groups: conv.groups,
            flops,
        });
        let (window, groups, batch) = (&conv.window, conv.groups, result.batch());
        let forward = Forward::new(cx, grid, batch, of_transposed, window, groups, &isolated);
        let share = forward.share(direct_share(&conv.window, conv.groups, ConvKind::Transposed));
        let isolated = isolated.with_bf16_products(forward.has_bf16_products());
        let scratch = [forward.patches(cx.threads), transposed_bytes, forward.packed()];
        let kernels = Kernels::new(scratch, move |places| {
            let transpose = TransposeWeights {
                weights: places.input(weights),
                blocks: own.clone(),
                transposed: places.scratch(1),
                transposed_blocks: forward.blocks.clone(),
                first,
                taps,
            };
            let operands = Operands {
                source: Source::Features(stored_blocks(&[source], places)),
                weights: places.scratch(1),
                bias: bias.then(|| places.input(weights + 1)),
                result: destination(places, bf16, added_to),
                patches: places.scratch(0),
            };
            Box::new(Transposed { transpose, conv: forward.kernel(operands, places.scratch(2)) })
        });
        Ok(kernels.in_place(in_place).cost(cx.cost(flops)).share(share).isolated(isolated))
    }
}

/// Partial sums, then their sum, less what belongs to no group.
struct Partial<K> {
    sums: K,
    add: Option<SumParts>,
    clear: Option<ClearCrossGroup>,
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
        let dot = cx.dot_of(&isolated).filter(|_| is_plain);
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

/// The operands of a head.
struct HeadOperands {
    sources: Vec<SourceRef>,
    /// The place of the weights among the operands; a bias follows them.
    weights: usize,
    bias: bool,
}

fn f32_head<T: Element>(cx: &Context<'_>, operands: HeadOperands) -> Kernels {
    head::<T, f32>(cx, operands)
}

fn bf16_head<T: Element>(cx: &Context<'_>, operands: HeadOperands) -> Kernels {
    head::<T, Bf16>(cx, operands)
}

/// A convolution to rows.
fn head<T: Element, O: Element>(
    cx: &Context<'_>,
    HeadOperands { sources, weights, bias }: HeadOperands,
) -> Kernels {
    let shape = cx.output(0).shape.clone();
    Kernels::single(move |places| HeadLogits::<T, O> {
        source: all_views(&sources, places),
        weights: places.input(weights),
        bias: bias.then(|| places.input(weights + 1)),
        logits: places.output(0),
        batch: shape.batch(),
        classes: shape.channels(),
        voxels: shape.voxels(),
    })
}

/// The same of products of bf16.
fn dot_head(cx: &Context<'_>, HeadOperands { sources, weights, bias }: HeadOperands) -> Kernels {
    let shape = cx.output(0).shape.clone();
    let blocks: usize = sources.iter().map(|source| blocks(source.channels)).sum();
    let packed = bytes_of::<u16>(product([shape.channels(), blocks, LANES]));
    Kernels::new([packed], move |places| {
        let (packed, classes) = (places.scratch(0), shape.channels());
        Box::new(Packed {
            pack: PackHeadWeights { weights: places.input(weights), packed, classes, blocks },
            conv: DotHead {
                source: all_views(&sources, places),
                packed,
                bias: bias.then(|| places.input(weights + 1)),
                logits: places.output(0),
                batch: shape.batch(),
                classes,
                voxels: shape.voxels(),
            },
        })
    })
}

/// The gradient of a head by its map. Operands: the gradient in rows, weights, and what the result is added to.
fn head_back<T: Element>(cx: &Context<'_>, added_to: Option<usize>) -> Kernels {
    let (logits, blocks) = (cx.input(0).shape.clone(), blocks(cx.output(0).shape.channels()));
    Kernels::single(move |places| HeadBack::<T> {
        logits: places.input(0),
        weights: places.input(1),
        added_to: added_to.map(|operand| places.input(operand)),
        features: places.output(0),
        batch: logits.batch(),
        classes: logits.channels(),
        blocks,
        voxels: logits.voxels(),
        block_stride: logits.voxels(),
    })
}

/// The gradient of a head by its weights.
fn head_weight_grad<T: Element>(
    cx: &Context<'_>,
    sources: Vec<SourceRef>,
    gradient: SourceRef,
    batch: usize,
) -> Kernels {
    let parts = HeadWeightGrad::<T>::parts(batch, gradient.voxels);
    let count = cx.output_count(0);
    let classes = gradient.channels;
    Kernels::new([bytes_of::<f32>(product([parts, count]))], move |places| {
        let partial: Ptr<f32> = places.scratch(0);
        let sums = HeadWeightGrad {
            source: all_views::<T>(&sources, places),
            logits: gradient.image(places).data,
            partial,
            batch,
            classes,
            voxels: gradient.voxels,
        };
        let add = Some(SumParts { partial, result: places.output(0), parts, count });
        Box::new(Partial { sums, add, clear: None })
    })
}
