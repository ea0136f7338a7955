//! Convolutions of all directions: which kernel, over which blocks.

mod heads;
mod weight_grad;

use plimsoll_graph::Window;
use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad};
use plimsoll_plan::Unsupported;

use self::heads::{HeadOperands, bf16_head, dot_head, f32_head, head_back};
use super::forward::{Forward, direct_share};
use super::source::{Load, SourceRef, channels_of, stored_blocks};
use crate::isolated::{ConvKind, ConvNode, Isolated};
use crate::kernel::Machine;
use crate::kernels::geometry::{TapGrid, has_grid};
use crate::kernels::patch::Source;
use crate::kernels::tap_conv::{Destination, Operands};
use crate::kernels::transpose_weights::TransposeWeights;
use crate::layout::rule::VolumeRule;
use crate::layout::{Layout, VolumeLayout, WeightBlocks};
use crate::lower::{BoundNode, Context, Kernels, Lower, NodeOperands, Places, by_storage, bytes_of, is_bf16};
use crate::simd::LANES;

/// The most channels of an image that is convolved.
const IMAGE_CHANNELS: usize = LANES;

/// A convolution whose sources are read by its loads. Operands: the operands of each load, weights, where it has one a bias
/// and, with `added`, a volume to which the result is added.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FusedConv {
    pub(crate) conv: Conv,
    pub(crate) loads: Vec<Load>,
    pub(crate) added: bool,
}

/// A transposed convolution whose source is read by its load. Operands: the operands of the load, weights, where it has one a
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
        // The kernel for rows computes a head's gradient: of all channels, without a bias.
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

/// Weights of a convolution to blocks lie in blocks; weights of one to rows are a head's. Any other layout is an error of
/// this backend, for which there is no remedy.
fn weight_blocks(cx: &Context<'_>, layout: &Layout) -> Result<WeightBlocks, Unsupported> {
    match layout {
        Layout::Weights(blocks) => Ok(WeightBlocks::clone(blocks)),
        other => Err(cx.unsupported(format!("internal error: its weights lie as {other:?}"))),
    }
}

/// Refuses a window that has no grid.
fn expect_grid(cx: &Context<'_>, window: &Window) -> Result<(), Unsupported> {
    let refused = || {
        cx.unsupported(
            "a dilated window with a stride, or with a padding that is not a multiple of its dilation",
        )
    };
    if has_grid(window) { Ok(()) } else { Err(refused()) }
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
            // Logits of bf16 occur in predictions, where products depend on shapes alone.
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
        expect_grid(cx, &conv.window)?;
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
        expect_grid(cx, &conv.window)?;
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
