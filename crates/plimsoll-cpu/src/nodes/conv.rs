//! Convolutions of all directions: which kernel, over which blocks.

use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad, Load, SourceOperands};
use plimsoll_graph::{DType, Node, Op, Program, Side, TensorId, Window};
use plimsoll_plan::Unsupported;

use super::{Context, Memory, Step, bytes_of, single, total};
use crate::blocks::blocks;
use crate::kernel::{Machine, Ptr};
use crate::kernels::geometry::TapGrid;
use crate::kernels::head::{Head, HeadBack, HeadWeightGrad};
use crate::kernels::patch::{BlockNorm, Blocks, ImageSource, Source, SourceBlock};
use crate::kernels::strangers::ClearStrangers;
use crate::kernels::tap_conv::{Cut, Destination, Operands, TapConv};
use crate::kernels::transpose_weights::TransposeWeights;
use crate::kernels::weight_grad::{GradCut, SumParts, WeightGrad};
use crate::kernels::winograd;
use crate::kernels::winograd::conv::WinogradConv;
use crate::kernels::winograd::weight_grad::WinogradWeightGrad;
use crate::simd::{Element, LANES};
use crate::weight_blocks::WeightBlocks;

/// The most channels of an image that is convolved.
const IMAGE_CHANNELS: usize = LANES;

pub(super) fn supports(cx: &Context<'_>) -> Result<(), Unsupported> {
    let image = cx.input(0);
    let side = image.kind.side();
    let (window, groups, from, to) = match &cx.node.op {
        Op::Conv(conv) => (&conv.window, conv.groups, side, Some(conv.to)),
        Op::ConvTranspose(conv) => (&conv.window, conv.groups, side, Some(conv.to)),
        Op::ConvWeightGrad(conv) => (&conv.window, conv.groups, Some(conv.from), Some(conv.to)),
        _ => return Ok(()),
    };
    let point = *window == Window::point() && groups == 1;
    let transposed = matches!(cx.node.op, Op::ConvTranspose(_));
    match (from, to) {
        (Some(Side::Features), Some(Side::Features)) => Ok(()),
        (Some(Side::Features), Some(Side::Image)) if point && !transposed => Ok(()),
        (Some(Side::Image), Some(Side::Features)) if transposed && point => Ok(()),
        (Some(Side::Image), Some(Side::Features)) if !transposed => {
            let loads = match &cx.node.op {
                Op::Conv(conv) => conv.loads.as_slice(),
                Op::ConvWeightGrad(conv) => conv.loads.as_slice(),
                _ => &[],
            };
            match (image.shape.channels(), loads) {
                (..=IMAGE_CHANNELS, [Load::Plain]) => Ok(()),
                (channels, _) => Err(cx.unsupported(format!(
                    "an image of {channels} channels; one plain image of at most {IMAGE_CHANNELS} is possible"
                ))),
            }
        }
        _ => Err(cx
            .unsupported(format!("{from:?} to {to:?} with a kernel {:?} in {groups} groups", window.kernel))),
    }
}

/// The width of the rows that a node computes as [`winograd`] convolutions do, if it does, which is a matter of shapes.
pub(crate) fn winograd_width(program: &Program, node: &Node) -> Option<usize> {
    let spatial = |id: TensorId| program.shape(id).spatial();
    let from_features = || program.tensor(node.inputs[0]).kind.side() == Some(Side::Features);
    let (pays, width) = match &node.op {
        Op::Conv(conv) if conv.groups == 1 => {
            let [_, _, width] = spatial(node.outputs[0]);
            let between_features = from_features() && conv.to == Side::Features;
            (between_features && winograd::pays(&conv.window, width), width)
        }
        Op::ConvTranspose(conv) if conv.groups == 1 => {
            let [_, _, width] = spatial(node.outputs[0]);
            (from_features() && winograd::pays(&conv.window, width), width)
        }
        Op::ConvWeightGrad(conv) if conv.groups == 1 => {
            let [_, height, width] = conv.window.output(spatial(node.inputs[0]))?;
            let between_features = (conv.from, conv.to) == (Side::Features, Side::Features);
            (between_features && winograd::pays_for_weights(&conv.window, height, width), width)
        }
        _ => return None,
    };
    pays.then_some(width)
}

/// Which kernel runs, and how its work is cut.
enum ForwardCut {
    Direct(Cut),
    Winograd(Box<winograd::conv::Cut>),
}

/// A convolution or transposed convolution to features: its grid, how it is cut, how its weights lie.
struct Forward {
    grid: TapGrid,
    cut: ForwardCut,
    batch: usize,
    blocks: WeightBlocks,
    /// Floats of weights that are turned round, for a transposed convolution.
    turned: usize,
}

impl Forward {
    fn of(cx: &Context<'_>) -> Forward {
        let result = &cx.output(0).shape;
        let source = cx.input(0);
        let spatial = source.shape.spatial();
        let side = source.kind.side().unwrap_or(Side::Features);
        let (grid, channels, groups, taps) = match &cx.node.op {
            Op::ConvTranspose(conv) => {
                let grid = TapGrid::transposed(&conv.window, spatial, conv.output);
                (grid, vec![source.shape.channels()], conv.groups, conv.window.taps())
            }
            Op::Conv(conv) => {
                let grid = TapGrid::convolution(&conv.window, spatial, result.spatial());
                (grid, channels_of(&sources_of(&conv.loads, cx), cx), conv.groups, 0)
            }
            op => unreachable!("{} has no result that is convolved", op.rule().name()),
        };
        let blocks = WeightBlocks::new(result.channels(), &channels, groups, side);
        let cut = if winograd_width(cx.program, cx.node).is_some() {
            let cut = winograd::conv::Cut::new(&grid, result.batch(), blocks.reach, blocks.out_blocks());
            ForwardCut::Winograd(Box::new(cut))
        } else {
            ForwardCut::Direct(Cut::new(&grid, result.batch(), &blocks))
        };
        let turned = blocks.count(taps);
        Forward { grid, cut, batch: result.batch(), blocks, turned }
    }

    /// The kernel of a convolution of `taps` taps in all.
    fn kernel(self, taps: usize, operands: Operands) -> Box<dyn Step> {
        match self.cut {
            ForwardCut::Direct(cut) => {
                single(TapConv::new(&self.grid, cut, self.batch, taps, self.blocks, operands))
            }
            ForwardCut::Winograd(cut) => single(WinogradConv::new(*cut, taps, operands)),
        }
    }

    fn pieces(&self, threads: usize) -> [usize; 2] {
        let per_thread = match &self.cut {
            ForwardCut::Direct(cut) => cut.patch,
            ForwardCut::Winograd(cut) => cut.per_thread(),
        };
        [bytes_of::<f32>(threads * per_thread), bytes_of::<f32>(self.turned)]
    }
}

/// The weight gradient of a convolution to features.
struct Backward {
    grid: TapGrid,
    cut: BackwardCut,
}

/// Which kernel runs, and how its work is cut.
enum BackwardCut {
    Direct(Box<GradCut>),
    Winograd(Box<winograd::weight_grad::GradCut>),
}

impl Backward {
    fn of(cx: &Context<'_>, conv: &ConvWeightGrad) -> Backward {
        let (sources, gradient) = split(conv, cx);
        let source = cx.program.shape(sources[0].value);
        let result = cx.program.shape(gradient.value);
        let grid = TapGrid::convolution(&conv.window, source.spatial(), result.spatial());
        let blocks = WeightBlocks::new(result.channels(), &channels_of(&sources, cx), conv.groups, conv.from);
        let cut = if winograd_width(cx.program, cx.node).is_some() {
            let (sources, results) = (blocks.reach, blocks.out_blocks());
            let cut = winograd::weight_grad::GradCut::new(&grid, result.batch(), sources, results);
            BackwardCut::Winograd(Box::new(cut))
        } else {
            BackwardCut::Direct(Box::new(GradCut::new(&grid, result.batch(), blocks, conv.window.taps())))
        };
        Backward { grid, cut }
    }

    fn pieces(&self, threads: usize) -> [usize; 2] {
        let (partial, per_thread) = match &self.cut {
            BackwardCut::Direct(cut) => (cut.partial(), cut.per_thread()),
            BackwardCut::Winograd(cut) => (cut.partial(), cut.per_thread()),
        };
        [bytes_of::<f32>(partial), bytes_of::<f32>(threads * per_thread)]
    }
}

pub(super) fn scratch(cx: &Context<'_>) -> usize {
    match &cx.node.op {
        Op::Conv(Conv { to: Side::Image, .. }) => 0,
        Op::ConvTranspose(_) if cx.input(0).kind.side() == Some(Side::Image) => 0,
        Op::ConvWeightGrad(conv) if conv.to == Side::Image => total([head_partial(cx, conv)]),
        Op::ConvWeightGrad(conv) => total(Backward::of(cx, conv).pieces(cx.threads)),
        _ => total(Forward::of(cx).pieces(cx.threads)),
    }
}

/// Bytes of the partial sums of a head's weight gradient.
fn head_partial(cx: &Context<'_>, conv: &ConvWeightGrad) -> usize {
    let (sources, gradient) = split(conv, cx);
    let shape = cx.program.shape(gradient.value);
    let blocks: usize = sources.iter().map(|s| blocks(cx.program.shape(s.value).channels())).sum();
    let parts = HeadWeightGrad::<f32>::parts(shape.batch(), shape.voxels());
    bytes_of::<f32>(parts * shape.channels() * blocks * LANES)
}

pub(super) fn sources_of(loads: &[Load], cx: &Context<'_>) -> Vec<SourceOperands<TensorId>> {
    Load::take_all(loads, &cx.node.inputs).map(|(sources, _)| sources).unwrap_or_default()
}

fn channels_of(sources: &[SourceOperands<TensorId>], cx: &Context<'_>) -> Vec<usize> {
    sources.iter().map(|source| cx.program.shape(source.value).channels()).collect()
}

/// The operands behind those of the sources.
fn rest_of<'a>(loads: &[Load], cx: &'a Context<'_>) -> &'a [TensorId] {
    Load::take_all(loads, &cx.node.inputs).map(|(_, rest)| rest).unwrap_or_default()
}

/// The sources of the convolution, and the gradient of its result.
fn split(
    conv: &ConvWeightGrad,
    cx: &Context<'_>,
) -> (Vec<SourceOperands<TensorId>>, SourceOperands<TensorId>) {
    let mut loads = conv.loads.clone();
    loads.push(conv.result_load);
    let mut sources = sources_of(&loads, cx);
    let first = cx.node.inputs[0];
    let plain = SourceOperands { value: first, statistics: None, affine: None, slope: 1.0 };
    let gradient = sources.pop().unwrap_or(plain);
    (sources, gradient)
}

/// The blocks of a source of features.
fn source_views<T: Element>(
    source: &SourceOperands<TensorId>,
    cx: &Context<'_>,
    memory: &Memory<'_>,
) -> Vec<SourceBlock<T>> {
    let shape = cx.program.shape(source.value);
    let count = blocks(shape.channels());
    let norms = block_norms(source, cx, memory);
    let block_elements = shape.voxels() * LANES;
    (0..count)
        .map(|block| SourceBlock {
            // SAFETY: the tensor has `count` blocks in each sample.
            data: unsafe { memory.tensor::<T>(source.value).add(block * block_elements) },
            sample_stride: count * block_elements,
            norm: norms.get(block).copied(),
        })
        .collect()
}

/// How the blocks of a source are normalised, where they are.
pub(super) fn block_norms(
    source: &SourceOperands<TensorId>,
    cx: &Context<'_>,
    memory: &Memory<'_>,
) -> Vec<BlockNorm> {
    let Some(statistics) = source.statistics else { return Vec::new() };
    let count = blocks(cx.program.shape(source.value).channels());
    let statistics = memory.tensor::<f32>(statistics);
    let affine = source.affine.map(|(a, b)| (memory.tensor::<f32>(a), memory.tensor::<f32>(b)));
    (0..count)
        // SAFETY: statistics, scale and shift have `count` blocks.
        .map(|block| unsafe {
            BlockNorm {
                statistics: statistics.add(block * 2 * LANES),
                statistics_stride: count * 2 * LANES,
                affine: affine.map(|(a, b)| (a.add(block * LANES), b.add(block * LANES))),
                slope: source.slope,
            }
        })
        .collect()
}

pub(super) fn all_views<T: Element>(
    sources: &[SourceOperands<TensorId>],
    cx: &Context<'_>,
    memory: &Memory<'_>,
) -> Vec<SourceBlock<T>> {
    sources.iter().flat_map(|source| source_views(source, cx, memory)).collect()
}

/// The blocks of some sources as the program stores them.
fn stored_blocks(sources: &[SourceOperands<TensorId>], cx: &Context<'_>, memory: &Memory<'_>) -> Blocks {
    match cx.program.precision {
        DType::Bf16 => Blocks::Bf16(all_views(sources, cx, memory)),
        _ => Blocks::F32(all_views(sources, cx, memory)),
    }
}

/// The result of a node, and a volume that it is added to.
fn destination(cx: &Context<'_>, memory: &Memory<'_>, added_to: Option<TensorId>) -> Destination {
    let result = cx.node.outputs[0];
    match cx.program.precision {
        DType::Bf16 => Destination::Bf16(memory.tensor(result), added_to.map(|id| memory.tensor(id))),
        _ => Destination::F32(memory.tensor(result), added_to.map(|id| memory.tensor(id))),
    }
}

fn image(id: TensorId, cx: &Context<'_>, memory: &Memory<'_>) -> ImageSource {
    let shape = cx.program.shape(id);
    ImageSource { data: memory.tensor(id), channels: shape.channels(), voxels: shape.voxels() }
}

pub(super) fn bind<T: Element>(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    match &cx.node.op {
        Op::Conv(conv) if conv.to == Side::Image => head::<T>(cx, memory, conv),
        Op::Conv(conv) => convolution(cx, memory, conv),
        Op::ConvTranspose(conv) if cx.input(0).kind.side() == Some(Side::Image) => {
            head_back::<T>(cx, memory, conv)
        }
        Op::ConvTranspose(conv) => transposed(cx, memory, conv),
        Op::ConvWeightGrad(conv) if conv.to == Side::Image => head_weight_grad::<T>(cx, memory, conv),
        Op::ConvWeightGrad(conv) => weight_grad(cx, memory, conv),
        op => unreachable!("{} is no convolution", op.rule().name()),
    }
}

fn convolution(cx: &Context<'_>, memory: &Memory<'_>, conv: &Conv) -> Box<dyn Step> {
    let forward = Forward::of(cx);
    let [patches, _] = memory.pieces(forward.pieces(cx.threads));
    let rest = rest_of(&conv.loads, cx);
    let source = match cx.input(0).kind.side() {
        Some(Side::Image) => Source::Image(image(cx.node.inputs[0], cx, memory)),
        _ => Source::Features(stored_blocks(&sources_of(&conv.loads, cx), cx, memory)),
    };
    let operands = Operands {
        source,
        weights: memory.tensor(rest[0]),
        bias: conv.bias.then(|| memory.tensor(rest[1])),
        result: destination(cx, memory, None),
        patches: patches.cast(),
    };
    forward.kernel(conv.window.taps(), operands)
}

/// Turns the weights round, then convolves with them.
struct Transposed {
    turn: TransposeWeights,
    conv: Box<dyn Step>,
}

impl Step for Transposed {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller.
        unsafe {
            machine.launch(&self.turn);
            self.conv.run(machine);
        }
    }
}

fn transposed(cx: &Context<'_>, memory: &Memory<'_>, conv: &ConvTranspose) -> Box<dyn Step> {
    let forward = Forward::of(cx);
    let [patches, turned] = memory.pieces(forward.pieces(cx.threads));
    let rest = rest_of(&[conv.load], cx);
    let (weights, taps) = (cx.program.tensor(rest[0]), conv.window.taps());
    let plimsoll_graph::Kind::Weights { sources, .. } = &weights.kind else {
        unreachable!("the op's rule asks for weights")
    };
    // The source whose channels are wanted begins at a block of its own.
    let mut first = (0, 0);
    for channels in sources {
        if first.0 == conv.first_channel {
            break;
        }
        first = (first.0 + channels, first.1 + blocks(*channels));
    }
    let turn = TransposeWeights {
        weights: memory.tensor(rest[0]),
        blocks: WeightBlocks::new(weights.shape.dim(0), sources, conv.groups, Side::Features),
        turned: turned.cast(),
        turned_blocks: forward.blocks.clone(),
        first: first.1,
        taps,
    };
    let operands = Operands {
        source: Source::Features(stored_blocks(&sources_of(&[conv.load], cx), cx, memory)),
        weights: turned.cast(),
        bias: conv.bias.then(|| memory.tensor(rest[1])),
        result: destination(cx, memory, conv.accumulate.then(|| rest[rest.len() - 1])),
        patches: patches.cast(),
    };
    Box::new(Transposed { turn, conv: forward.kernel(taps, operands) })
}

/// Partial sums, then their sum, less what belongs to no group.
struct Partial<K> {
    sums: K,
    add: Option<SumParts>,
    clear: Option<ClearStrangers>,
}

impl<K: crate::kernel::Kernel + Send> Step for Partial<K> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller.
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

fn weight_grad(cx: &Context<'_>, memory: &Memory<'_>, conv: &ConvWeightGrad) -> Box<dyn Step> {
    let backward = Backward::of(cx, conv);
    let [partial, gathered] = memory.pieces(backward.pieces(cx.threads)).map(Ptr::cast::<f32>);
    let (sources, gradient) = split(conv, cx);
    let source = match conv.from {
        Side::Image => Source::Image(image(sources[0].value, cx, memory)),
        Side::Features => Source::Features(stored_blocks(&sources, cx, memory)),
    };
    let result = memory.tensor::<f32>(cx.node.outputs[0]);
    let gradient = stored_blocks(&[gradient], cx, memory);
    let places = (result, partial, gathered);
    match backward.cut {
        BackwardCut::Direct(cut) => {
            let add = SumParts::of(&cut, partial, result);
            let blocks = cut.blocks.clone();
            let taps = conv.window.taps();
            let clear = blocks.has_strangers().then_some(ClearStrangers { weights: result, blocks, taps });
            let sums = WeightGrad::new(&backward.grid, *cut, source, gradient, places);
            Box::new(Partial { sums, add, clear })
        }
        BackwardCut::Winograd(cut) => {
            let (sums, add) = WinogradWeightGrad::new(*cut, source, gradient, places);
            Box::new(Partial { sums, add, clear: None })
        }
    }
}

fn head<T: Element>(cx: &Context<'_>, memory: &Memory<'_>, conv: &Conv) -> Box<dyn Step> {
    let rest = rest_of(&conv.loads, cx);
    let shape = &cx.output(0).shape;
    single(Head::<T> {
        source: all_views(&sources_of(&conv.loads, cx), cx, memory),
        weights: memory.tensor(rest[0]),
        bias: conv.bias.then(|| memory.tensor(rest[1])),
        logits: memory.tensor(cx.node.outputs[0]),
        batch: shape.batch(),
        classes: shape.channels(),
        voxels: shape.voxels(),
    })
}

fn head_back<T: Element>(cx: &Context<'_>, memory: &Memory<'_>, conv: &ConvTranspose) -> Box<dyn Step> {
    let rest = rest_of(&[conv.load], cx);
    let (logits, features) = (&cx.input(0).shape, &cx.output(0).shape);
    single(HeadBack::<T> {
        logits: memory.tensor(cx.node.inputs[0]),
        weights: memory.tensor(rest[0]),
        added_to: conv.accumulate.then(|| memory.tensor(rest[rest.len() - 1])),
        features: memory.tensor(cx.node.outputs[0]),
        batch: logits.batch(),
        classes: logits.channels(),
        blocks: blocks(features.channels()),
        voxels: logits.voxels(),
        block_stride: logits.voxels(),
    })
}

fn head_weight_grad<T: Element>(
    cx: &Context<'_>,
    memory: &Memory<'_>,
    conv: &ConvWeightGrad,
) -> Box<dyn Step> {
    let (sources, gradient) = split(conv, cx);
    let shape = cx.program.shape(gradient.value);
    let [partial] = memory.pieces([head_partial(cx, conv)]).map(Ptr::cast::<f32>);
    let source = all_views::<T>(&sources, cx, memory);
    let add = SumParts {
        partial,
        result: memory.tensor(cx.node.outputs[0]),
        parts: HeadWeightGrad::<T>::parts(shape.batch(), shape.voxels()),
        count: shape.channels() * source.len() * LANES,
    };
    let sums = HeadWeightGrad {
        source,
        logits: memory.tensor(gradient.value),
        partial,
        batch: shape.batch(),
        classes: shape.channels(),
        voxels: shape.voxels(),
    };
    Box::new(Partial { sums, add: Some(add), clear: None })
}
