//! From a node to kernels: everything that is decided about a node before it runs, decided in one place.
//!
//! [`Lower::lower`] chooses the kernels of a node and cuts their work; from that follow the scratch, the cost, and, once the
//! arena is there, the kernels bound to their places. Both come from the same values, so they cannot disagree.

use std::collections::BTreeSet;

use plimsoll_graph::{Cost, DType, Node, Program, TensorId, TensorInfo};
use plimsoll_plan::Unsupported;

use crate::isolated::Isolated;
use crate::kernel::{Kernel, Machine, Ptr};
use crate::layout::Layout;
use crate::layout::rule::VolumeRule;
use crate::simd::dot::DotLevel;

/// Offsets are multiples of a cache line.
pub(crate) const ALIGNMENT: usize = 64;

/// More bytes than any machine has: sizes beyond it are refused, so that sums of a few cannot overflow.
const MOST_BYTES: usize = 1 << 56;

/// The lowering of an op, or of several that are fused.
pub(crate) trait Lower {
    /// The layouts that volumes may have: for most ops, rows.
    fn volumes(&self, _of: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Rows
    }

    /// Returns `true` if weights among the operands and results are combined element by element, so that all must lie alike.
    fn combines_weights(&self) -> bool {
        true
    }

    /// Chooses the kernels.
    ///
    /// # Errors
    /// Returns an error if there are no kernels for these operands.
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported>;
}

/// A node of a program, before its layout is known.
pub(crate) struct NodeOperands<'a> {
    pub(crate) program: &'a Program,
    pub(crate) node: &'a Node,
}

impl<'a> NodeOperands<'a> {
    pub(crate) fn input(&self, operand: usize) -> &'a TensorInfo {
        self.program.tensor(self.node.inputs[operand])
    }

    /// Returns `true` if any node of the program reads a result.
    pub(crate) fn is_read(&self) -> bool {
        let is_result = |id: &TensorId| self.node.outputs.contains(id);
        self.program.nodes.iter().any(|node| node.inputs.iter().any(is_result))
    }
}

/// There are no kernels for an op.
pub(crate) fn unsupported(op: &'static str, why: impl Into<String>) -> Unsupported {
    Unsupported { backend: "the CPU".into(), op, why: why.into() }
}

/// A node with all that is known before there is memory.
pub(crate) struct Context<'a> {
    /// The kind of kernel, as reports name it.
    pub(crate) name: &'static str,
    pub(crate) program: &'a Program,
    pub(crate) layouts: &'a [Layout],
    pub(crate) inputs: &'a [TensorId],
    pub(crate) outputs: &'a [TensorId],
    pub(crate) threads: usize,
    /// The level of dot products of bf16, if convolutions between features stored as bf16 multiply bf16.
    pub(crate) dot: Option<DotLevel>,
    /// The convolutions that multiply f32 all the same, by their names.
    pub(crate) in_f32: &'a BTreeSet<String>,
}

impl<'a> Context<'a> {
    /// The level of dot products of bf16 in a convolution, if its products are of bf16.
    pub(crate) fn dot_of(&self, isolated: &Isolated) -> Option<DotLevel> {
        let stored = is_bf16(self.input(0));
        self.dot.filter(|_| stored && (self.in_f32.is_empty() || !self.in_f32.contains(&isolated.name())))
    }

    pub(crate) fn input(&self, operand: usize) -> &'a TensorInfo {
        self.program.tensor(self.inputs[operand])
    }

    pub(crate) fn output(&self, result: usize) -> &'a TensorInfo {
        self.program.tensor(self.outputs[result])
    }

    pub(crate) fn input_layout(&self, operand: usize) -> &'a Layout {
        &self.layouts[self.inputs[operand].index()]
    }

    pub(crate) fn output_layout(&self, result: usize) -> &'a Layout {
        &self.layouts[self.outputs[result].index()]
    }

    /// Stored elements of an operand.
    pub(crate) fn input_count(&self, operand: usize) -> usize {
        self.input_layout(operand).count(self.input(operand))
    }

    /// Stored elements of a result.
    pub(crate) fn output_count(&self, result: usize) -> usize {
        self.output_layout(result).count(self.output(result))
    }

    pub(crate) fn unsupported(&self, why: impl Into<String>) -> Unsupported {
        unsupported(self.name, why)
    }

    /// The cost of a pass over all operands and results with this number of operations.
    pub(crate) fn cost(&self, flops: u64) -> Cost {
        let infos = |ids: &[TensorId]| -> Vec<&TensorInfo> {
            ids.iter().map(|id| self.program.tensor(*id)).collect()
        };
        Cost { flops, ..Cost::streaming(&infos(self.inputs), &infos(self.outputs)) }
    }

    /// The cost of one operation per element of each result.
    pub(crate) fn streaming(&self) -> Cost {
        let counts = self.outputs.iter().map(|id| self.program.shape(*id).count() as u64);
        self.cost(counts.sum())
    }
}

/// The kernels of a node that were chosen.
pub(crate) struct Kernels {
    /// Bytes of the pieces of scratch.
    pub(crate) scratch: Vec<usize>,
    /// Pairs (result, operand) that may share one place, see [`plimsoll_plan::LoweredNode::in_place`].
    pub(crate) in_place: Vec<(usize, usize)>,
    /// The cost, if it is not the one of the op's definition.
    pub(crate) cost: Option<Cost>,
    /// The share of the multiply-add peak at which the kernels compute, measured.
    pub(crate) share: f64,
    /// The convolution that is measured to find their speed, if that is worth measuring.
    pub(crate) isolated: Option<Isolated>,
    /// Binds them to places.
    pub(crate) bind: Bind,
}

/// A function that binds kernels to places in the arena, once for each launch.
pub(crate) type Bind = Box<dyn Fn(&Places) -> Box<dyn BoundNode>>;

/// The share of the peak that kernels reach which are not convolutions and were not measured.
const USUAL_SHARE: f64 = 0.6;

impl Kernels {
    pub(crate) fn new(
        scratch: impl Into<Vec<usize>>,
        bind: impl Fn(&Places) -> Box<dyn BoundNode> + 'static,
    ) -> Kernels {
        Kernels {
            scratch: scratch.into(),
            in_place: Vec::new(),
            cost: None,
            share: USUAL_SHARE,
            isolated: None,
            bind: Box::new(bind),
        }
    }

    /// One kernel without scratch.
    pub(crate) fn single<K: Kernel + Send + 'static>(bind: impl Fn(&Places) -> K + 'static) -> Kernels {
        Kernels::new([], move |places| single(bind(places)))
    }

    pub(crate) fn in_place(self, in_place: impl Into<Vec<(usize, usize)>>) -> Kernels {
        Kernels { in_place: in_place.into(), ..self }
    }

    pub(crate) fn cost(self, cost: Cost) -> Kernels {
        Kernels { cost: Some(cost), ..self }
    }

    pub(crate) fn share(self, share: f64) -> Kernels {
        Kernels { share, ..self }
    }

    pub(crate) fn isolated(self, isolated: Isolated) -> Kernels {
        Kernels { isolated: Some(isolated), ..self }
    }

    /// Bytes of all scratch, each piece aligned; none if there are more than any machine has.
    pub(crate) fn scratch_bytes(&self) -> Option<usize> {
        self.scratch
            .iter()
            .try_fold(0usize, |sum, bytes| sum.checked_add(bytes.checked_next_multiple_of(ALIGNMENT)?))
            .filter(|bytes| *bytes <= MOST_BYTES)
    }
}

/// The places of the operands, results and scratch of one launch.
pub(crate) struct Places {
    /// The arena.
    pub(crate) base: Ptr<u8>,
    /// Offsets of operands and of results.
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    /// Offsets of the pieces of scratch.
    pub(crate) scratch: Vec<usize>,
}

impl Places {
    fn at<T>(&self, offset: usize) -> Ptr<T> {
        // SAFETY: the plan was verified: every offset belongs to a block inside the arena.
        unsafe { self.base.add(offset) }.cast()
    }

    /// An operand.
    pub(crate) fn input<T>(&self, operand: usize) -> Ptr<T> {
        self.at(self.inputs[operand])
    }

    /// A result.
    pub(crate) fn output<T>(&self, result: usize) -> Ptr<T> {
        self.at(self.outputs[result])
    }

    /// A piece of the scratch.
    pub(crate) fn scratch<T>(&self, piece: usize) -> Ptr<T> {
        self.at(self.scratch[piece])
    }
}

/// Bytes of `count` elements; more than any machine has if that overflows.
pub(crate) fn bytes_of<T>(count: usize) -> usize {
    count.saturating_mul(size_of::<T>())
}

/// The product of some sizes; `usize::MAX`, which no scratch may have, if it overflows.
pub(crate) fn product(sizes: impl IntoIterator<Item = usize>) -> usize {
    sizes.into_iter().fold(1, usize::saturating_mul)
}

/// A node bound to memory, ready to run any number of times.
pub(crate) trait BoundNode: Send + Sync {
    /// Runs the node.
    ///
    /// # Safety
    /// The arena that the node is bound to must be alive and untouched by others until this returns, and what the node reads
    /// must have been written.
    unsafe fn run(&self, machine: &Machine);
}

/// A node that is one kernel.
struct Single<K>(K);

impl<K: Kernel + Send> BoundNode for Single<K> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says.
        unsafe { machine.launch(&self.0) };
    }
}

/// Boxes a kernel as a node.
pub(crate) fn single<K: Kernel + Send + 'static>(kernel: K) -> Box<dyn BoundNode> {
    Box::new(Single(kernel))
}

/// A node of a few operations on small tables, by one thread. Only [`serial`] makes one.
struct Serial<F>(F);

impl<F: Fn() + Send + Sync> BoundNode for Serial<F> {
    unsafe fn run(&self, _machine: &Machine) {
        // The closure is safe to call here: this contract is the one that `serial` names.
        (self.0)();
    }
}

/// Boxes operations of one thread as a node, which calls them only inside [`BoundNode::run`].
///
/// # Safety
/// Under the contract of [`BoundNode::run`], every call of `run` must be sound: it accesses only operands, results and scratch of
/// its node, each within its size, and writes only to results and scratch.
pub(crate) unsafe fn serial(run: impl Fn() + Send + Sync + 'static) -> Box<dyn BoundNode> {
    Box::new(Serial(run))
}

/// Kernels one after the other, of up to four kinds.
macro_rules! sequence {
    ($name:ident: $($kernel:ident $field:tt),+) => {
        /// Kernels that run one after the other.
        pub(crate) struct $name<$($kernel),+>($(pub(crate) $kernel),+);

        impl<$($kernel: Kernel + Send),+> BoundNode for $name<$($kernel),+> {
            unsafe fn run(&self, machine: &Machine) {
                // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says;
                // each kernel has ended before the next begins.
                unsafe { $(machine.launch(&self.$field);)+ }
            }
        }
    };
}

sequence!(InTurn2: A 0, B 1);
sequence!(InTurn3: A 0, B 1, C 2);
sequence!(InTurn4: A 0, B 1, C 2, D 3);

/// Returns `true` if a volume is stored as bf16; it is f32 otherwise.
pub(crate) fn is_bf16(tensor: &TensorInfo) -> bool {
    tensor.dtype == DType::Bf16
}

/// Calls a function that is generic over how features are stored, for the dtype of a tensor.
macro_rules! by_storage {
    ($tensor:expr, $function:ident $args:tt) => {
        match $crate::lower::is_bf16($tensor) {
            true => $function::<$crate::simd::Bf16> $args,
            false => $function::<f32> $args,
        }
    };
}

pub(crate) use by_storage;
