//! From nodes to kernels: what scratch a node needs, and the kernels bound to their places in the arena.

mod conv;
mod elementwise;
mod head;
mod loss;
mod morphology;
mod norm;
mod structure;
mod update;

pub(crate) use conv::winograd_width;

use plimsoll_graph::{DType, Node, Op, Program, TensorId, TensorInfo};
use plimsoll_plan::{Block, ProgramPlan, Unsupported};

use crate::blocks::stored_count;
use crate::kernel::{Machine, Ptr};
use crate::layout::ALIGNMENT;
use crate::simd::Bf16;

/// A node bound to memory, ready to run any number of times.
pub(crate) trait Step: Send {
    /// Runs the node.
    ///
    /// # Safety
    /// The arena that the step is bound to must be alive and untouched by others until this returns.
    unsafe fn run(&self, machine: &Machine);
}

/// A node with what is known before memory is.
pub(crate) struct Context<'a> {
    pub(crate) program: &'a Program,
    pub(crate) node: &'a Node,
    pub(crate) threads: usize,
}

impl<'a> Context<'a> {
    fn input(&self, operand: usize) -> &'a TensorInfo {
        self.program.tensor(self.node.inputs[operand])
    }

    fn output(&self, result: usize) -> &'a TensorInfo {
        self.program.tensor(self.node.outputs[result])
    }

    fn unsupported(&self, why: impl Into<String>) -> Unsupported {
        Unsupported { backend: "the CPU".into(), op: self.node.op.rule().name(), why: why.into() }
    }
}

/// Where a node's tensors and scratch are.
pub(crate) struct Memory<'a> {
    /// The arena.
    pub(crate) base: Ptr<u8>,
    pub(crate) plan: &'a ProgramPlan,
    pub(crate) scratch: Block,
}

impl Memory<'_> {
    /// A tensor's place.
    fn tensor<T>(&self, id: TensorId) -> Ptr<T> {
        let offset = self.plan.places[id.index()].map_or(0, |block| block.offset);
        // SAFETY: the verifier has found every tensor of every node to have a place inside the arena.
        unsafe { self.base.add(offset) }.cast()
    }

    /// The pieces of the scratch, in the order in which they were declared.
    fn pieces<const N: usize>(&self, bytes: [usize; N]) -> [Ptr<u8>; N] {
        let mut offset = self.scratch.offset;
        bytes.map(|bytes| {
            // SAFETY: the scratch is as large as the sum of its pieces, which is what was declared to the planner.
            let piece = unsafe { self.base.add(offset) };
            offset += bytes.next_multiple_of(ALIGNMENT);
            piece
        })
    }
}

/// Bytes of some pieces of scratch.
fn total<const N: usize>(bytes: [usize; N]) -> usize {
    bytes.iter().map(|bytes| bytes.next_multiple_of(ALIGNMENT)).sum()
}

/// Bytes of `count` elements.
fn bytes_of<T>(count: usize) -> usize {
    count * size_of::<T>()
}

/// Whether there are kernels for a node.
pub(crate) fn supports(cx: &Context<'_>) -> Result<(), Unsupported> {
    match &cx.node.op {
        Op::Conv(_) | Op::ConvTranspose(_) | Op::ConvWeightGrad(_) => conv::supports(cx),
        Op::NormStats(_) | Op::NormAct(_) | Op::NormActGrad(_) => norm::supports(cx),
        Op::SoftmaxStats(_) | Op::CompositeLoss(_) | Op::CompositeLossGrad(_) | Op::HardCounts(_) => Ok(()),
        Op::HeadStats(_) | Op::HeadCounts(_) | Op::HeadGrad(_) => Ok(()),
        Op::BoxExtreme(_)
        | Op::BoxExtremeGrad(_)
        | Op::ClDice(_)
        | Op::ClDiceGrad(_)
        | Op::Counted(_)
        | Op::CrossErosion(_)
        | Op::CrossErosionGrad(_)
        | Op::MeanDifference(_)
        | Op::MeanDifferenceGrad(_)
        | Op::OneHot(_)
        | Op::OverlapSums(_)
        | Op::OverlapSumsGrad(_)
        | Op::SkeletonStep(_)
        | Op::SkeletonStepGrad(_)
        | Op::SoftRecall(_)
        | Op::SoftRecallGrad(_) => morphology::supports(cx),
        Op::AdamW(_) | Op::Sgd(_) | Op::GradNorm(_) | Op::Accumulate(_) => Ok(()),
        Op::Probabilities(_)
        | Op::ProbabilitiesGrad(_)
        | Op::PredictedDistance(_)
        | Op::DistanceLoss(_)
        | Op::DistanceLossGrad(_)
        | Op::BoundaryL1(_)
        | Op::BoundaryL1Grad(_)
        | Op::MeanPool(_)
        | Op::MeanPoolGrad(_)
        | Op::Join(_) => structure::supports(cx),
        Op::Add(_)
        | Op::LeakyRelu(_)
        | Op::LeakyReluGrad(_)
        | Op::ChannelSum(_)
        | Op::DownsampleLabels(_)
        | Op::Dropout(_)
        | Op::Fill(_)
        | Op::WeightedSum(_) => Ok(()),
    }
}

/// Bytes of scratch that a node needs.
pub(crate) fn scratch(cx: &Context<'_>) -> usize {
    match &cx.node.op {
        Op::Conv(_) | Op::ConvTranspose(_) | Op::ConvWeightGrad(_) => conv::scratch(cx),
        Op::NormStats(_) | Op::NormActGrad(_) => norm::scratch(cx),
        Op::SoftmaxStats(_) | Op::CompositeLossGrad(_) | Op::HardCounts(_) => loss::scratch(cx),
        Op::HeadStats(_) | Op::HeadCounts(_) | Op::HeadGrad(_) => head::scratch(cx),
        Op::BoxExtreme(_)
        | Op::BoxExtremeGrad(_)
        | Op::CrossErosion(_)
        | Op::CrossErosionGrad(_)
        | Op::MeanDifference(_)
        | Op::OverlapSums(_)
        | Op::SkeletonStep(_)
        | Op::SkeletonStepGrad(_) => morphology::scratch(cx),
        Op::GradNorm(_) => update::scratch(cx),
        Op::Probabilities(_)
        | Op::ProbabilitiesGrad(_)
        | Op::PredictedDistance(_)
        | Op::DistanceLoss(_)
        | Op::DistanceLossGrad(_)
        | Op::BoundaryL1(_)
        | Op::BoundaryL1Grad(_) => structure::scratch(cx),
        _ => 0,
    }
}

/// The kernels of a node.
pub(crate) fn bind(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    match &cx.node.op {
        Op::Conv(_) | Op::ConvTranspose(_) | Op::ConvWeightGrad(_) => match cx.program.precision {
            DType::Bf16 => conv::bind::<Bf16>(cx, memory),
            _ => conv::bind::<f32>(cx, memory),
        },
        Op::NormStats(_) | Op::NormAct(_) | Op::NormActGrad(_) => match cx.program.precision {
            DType::Bf16 => norm::bind::<Bf16>(cx, memory),
            _ => norm::bind::<f32>(cx, memory),
        },
        Op::SoftmaxStats(_) | Op::CompositeLoss(_) | Op::CompositeLossGrad(_) | Op::HardCounts(_) => {
            loss::bind(cx, memory)
        }
        Op::HeadStats(_) | Op::HeadCounts(_) | Op::HeadGrad(_) => match cx.program.precision {
            DType::Bf16 => head::bind::<Bf16>(cx, memory),
            _ => head::bind::<f32>(cx, memory),
        },
        Op::BoxExtreme(_)
        | Op::BoxExtremeGrad(_)
        | Op::ClDice(_)
        | Op::ClDiceGrad(_)
        | Op::Counted(_)
        | Op::CrossErosion(_)
        | Op::CrossErosionGrad(_)
        | Op::MeanDifference(_)
        | Op::MeanDifferenceGrad(_)
        | Op::OneHot(_)
        | Op::OverlapSums(_)
        | Op::OverlapSumsGrad(_)
        | Op::SkeletonStep(_)
        | Op::SkeletonStepGrad(_)
        | Op::SoftRecall(_)
        | Op::SoftRecallGrad(_) => morphology::bind(cx, memory),
        Op::AdamW(_) | Op::Sgd(_) | Op::GradNorm(_) => update::bind(cx, memory),
        Op::Probabilities(_)
        | Op::ProbabilitiesGrad(_)
        | Op::PredictedDistance(_)
        | Op::DistanceLoss(_)
        | Op::DistanceLossGrad(_)
        | Op::BoundaryL1(_)
        | Op::BoundaryL1Grad(_)
        | Op::MeanPool(_)
        | Op::MeanPoolGrad(_)
        | Op::Join(_) => structure::bind(cx, memory),
        Op::Add(_)
        | Op::Accumulate(_)
        | Op::LeakyRelu(_)
        | Op::LeakyReluGrad(_)
        | Op::ChannelSum(_)
        | Op::DownsampleLabels(_)
        | Op::Dropout(_)
        | Op::Fill(_)
        | Op::WeightedSum(_) => elementwise::bind(cx, memory),
    }
}

/// Stored elements of a tensor.
fn count(tensor: &TensorInfo) -> usize {
    stored_count(tensor)
}

/// A step that is one kernel.
struct Single<K>(K);

impl<K: crate::kernel::Kernel + Send> Step for Single<K> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller.
        unsafe { machine.launch(&self.0) };
    }
}

/// Boxes a kernel as a step.
fn single<K: crate::kernel::Kernel + Send + 'static>(kernel: K) -> Box<dyn Step> {
    Box::new(Single(kernel))
}

/// A step of a few operations on small tables, by one thread.
struct Serial<F>(F);

impl<F: Fn() + Send> Step for Serial<F> {
    unsafe fn run(&self, _machine: &Machine) {
        (self.0)();
    }
}
