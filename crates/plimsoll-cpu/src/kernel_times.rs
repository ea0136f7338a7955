//! How fast the convolutions of a program are on this machine, each measured by itself on a part of its volume.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad, Load};
use plimsoll_graph::{Kind, Node, Op, Program, Role, Shape, Side, TensorId, TensorInfo, Window};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{Engine, HostSlice, Options, plan};

use crate::{CpuEngine, CpuLayout, CpuOptions, EngineError, Rates};

/// Floating-point operations per second of kernels, by what tells one from another.
pub type KernelRates = BTreeMap<String, f64>;

/// What is measured should take some milliseconds at the most.
const FLOPS: u64 = 1 << 30;
/// Extents along depth and height that are not cut further: borders should not count for more than they do.
const EXTENT: usize = 8;
/// Timed runs of each, of which the best counts.
const ROUNDS: usize = 4;

/// A convolution by itself, of plain sources, on as much of its volume as is needed to see how fast it is.
pub(crate) struct Isolated {
    program: Program,
}

impl Isolated {
    /// None for nodes that are no convolution to features or from their gradient: heads are folded, and bound by memory.
    pub(crate) fn of(program: &Program, node: &Node) -> Option<Isolated> {
        // The side of the convolution, transposed or not, that the window is laid over.
        let (window, mut extent) = match &node.op {
            Op::Conv(conv) if conv.to == Side::Features => {
                (conv.window, program.shape(node.inputs[0]).spatial())
            }
            Op::ConvWeightGrad(grad) if grad.to == Side::Features => {
                (grad.window, program.shape(node.inputs[0]).spatial())
            }
            Op::ConvTranspose(conv) if program.tensor(node.inputs[0]).kind == Kind::Features => {
                (conv.window, conv.output)
            }
            _ => return None,
        };
        let mut batch = program.shape(node.inputs[0]).batch();
        let whole = (batch * extent.iter().product::<usize>()) as f64;
        let flops = program.cost(node).flops as f64;
        loop {
            let part = (batch * extent.iter().product::<usize>()) as f64 / whole;
            if flops * part <= FLOPS as f64 {
                break;
            }
            let axis = if extent[0] >= extent[1] { 0 } else { 1 };
            if batch > 1 {
                batch = batch.div_ceil(2);
            } else if extent[axis] > EXTENT {
                extent[axis] = extent[axis].div_ceil(2);
            } else {
                break;
            }
        }
        let part = Part { window, batch, extent };
        part.program(program, node).map(|program| Isolated { program })
    }

    /// What tells it from others.
    pub(crate) fn name(&self) -> String {
        let node = &self.program.nodes[0];
        let shapes: Vec<String> = node.inputs.iter().map(|id| self.program.shape(*id).to_string()).collect();
        format!("{:?} {:?} {}", node.op, self.program.precision, shapes.join(" "))
    }

    /// Its rate, or none if it does not fit `memory` bytes.
    fn measure(&self, threads: usize, memory: usize) -> Result<Option<f64>, EngineError> {
        let program = &self.program;
        let largest = program.tensors.iter().map(|tensor| tensor.shape.count() * size_of::<f32>()).max();
        let layout = CpuLayout::new(threads);
        let Ok(plan) = plan(std::slice::from_ref(program), &layout, Options::default()) else {
            return Ok(None);
        };
        let arena = Bytes::of(plan.arena_bytes.next_multiple_of(4096));
        if arena + Bytes::of(largest.unwrap_or(0)) > Bytes::of(memory) {
            return Ok(None);
        }
        let Ok(reservation) = Budget::new(arena).reserve("a measurement", arena) else { return Ok(None) };
        let mut engine = CpuEngine::new(plan, reservation, CpuOptions::new(threads))?;
        for id in program.with_role(Role::Input) {
            engine.write(0, id, HostSlice::F32(&vec![1.0; program.shape(id).count()]));
        }
        (0..=ROUNDS).for_each(|_| engine.run(0));
        let best = engine.least_times(0).next().map(|(_, seconds)| seconds.max(f64::MIN_POSITIVE));
        Ok(best.map(|best| program.flops() as f64 / best))
    }
}

/// How much of a convolution's volume is taken.
struct Part {
    window: Window,
    batch: usize,
    extent: [usize; 3],
}

impl Part {
    /// None if the part does not fit the op.
    fn program(&self, from: &Program, node: &Node) -> Option<Program> {
        let mut program = Program::new("a convolution", from.precision);
        let strided = self.window.output(self.extent).unwrap_or(self.extent);
        let mut volume = |id: TensorId, spatial: [usize; 3]| {
            let TensorInfo { shape, kind, .. } = from.tensor(id);
            let id =
                program.input("a volume", Shape::volume(self.batch, shape.channels(), spatial), kind.clone());
            if *kind == Kind::Features {
                program.tensors[id.index()].dtype = from.precision;
            }
            id
        };
        let (op, inputs): (Op, Vec<TensorId>) = match &node.op {
            Op::Conv(conv) => {
                let (sources, rest) = Load::take_all(&conv.loads, &node.inputs)?;
                let mut inputs: Vec<TensorId> =
                    sources.iter().map(|source| volume(source.value, self.extent)).collect();
                inputs.push(declare(&mut program, from, rest[0]));
                let plain = vec![Load::Plain; conv.loads.len()];
                (Conv { loads: plain, bias: false, ..conv.clone() }.into(), inputs)
            }
            Op::ConvTranspose(conv) => {
                let source = volume(node.inputs[0], strided);
                let weights = declare(&mut program, from, node.inputs[conv.load.operands()]);
                let op = ConvTranspose {
                    load: Load::Plain,
                    output: self.extent,
                    bias: false,
                    accumulate: false,
                    ..conv.clone()
                };
                (op.into(), vec![source, weights])
            }
            Op::ConvWeightGrad(grad) => {
                let (sources, rest) = Load::take_all(&grad.loads, &node.inputs)?;
                let mut inputs: Vec<TensorId> =
                    sources.iter().map(|source| volume(source.value, self.extent)).collect();
                inputs.push(volume(rest[0], strided));
                let plain = vec![Load::Plain; grad.loads.len()];
                (ConvWeightGrad { loads: plain, result_load: Load::Plain, ..grad.clone() }.into(), inputs)
            }
            op => unreachable!("{} is no convolution", op.rule().name()),
        };
        let result = program.push(op, &inputs).ok()?[0];
        program.mark_output(result, "a result");
        Some(program)
    }
}

fn declare(program: &mut Program, from: &Program, weights: TensorId) -> TensorId {
    let TensorInfo { shape, kind, .. } = from.tensor(weights);
    program.input("weights", shape.clone(), kind.clone())
}

impl Rates {
    /// Measures the convolutions of some programs that are not known yet, each within `memory` bytes; those that need more are
    /// left to be predicted from the multiply-add peak. Whether anything was learned.
    ///
    /// # Errors
    /// If threads cannot be started or the system refuses memory.
    pub fn learn(
        &mut self,
        programs: &[Program],
        threads: usize,
        memory: usize,
    ) -> Result<bool, EngineError> {
        let mut learned = false;
        for program in programs {
            for node in &program.nodes {
                let Some(isolated) = Isolated::of(program, node) else { continue };
                let name = isolated.name();
                if self.kernels.contains_key(&name) {
                    continue;
                }
                if let Some(rate) = isolated.measure(threads, memory)? {
                    self.kernels.insert(name, rate);
                    learned = true;
                }
            }
        }
        Ok(learned)
    }
}
