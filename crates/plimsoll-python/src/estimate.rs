//! The memory of a training step of another program, from a recording of its storages and operations.
//!
//! A recording lists every operation of the step in order with the storages that it reads and writes, and the operations between which
//! each storage existed. The memory that the step had follows from these lifetimes alone ([`StepTrace::memory`]). For the memory that it
//! could have, each storage becomes one value per write, because a value of the planner has one maker, and the planner chooses which
//! values to free and recompute ([`StepTrace::plan`]).

use std::cmp::Reverse;

use plimsoll_graph::{Cost, DType, Kind, Program, Role, Shape, TensorId, TensorInfo};
use plimsoll_plan::place::place;
use plimsoll_plan::search::{Choice, Search};
use plimsoll_plan::{LoweredNode, LoweredProgram};

use crate::Failure;

/// The most bytes of a recording: more than any machine has, and few enough that sums of them do not overflow.
const MOST_BYTES: u64 = 1 << 46;
/// The rates by which operations are compared, per second. Their ratio, 10 operations per byte, is typical of GPUs without tensor cores; it
/// decides what is recomputed first, and no memory depends on the absolute values.
const FLOPS: f64 = 1e13;
const BYTES: f64 = 1e12;

/// The purpose of a storage in a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageRole {
    /// Learned values.
    Parameter,
    /// Values of the module that are not learned, such as running statistics.
    Buffer,
    /// Moments and other state of the optimizer.
    OptimizerState,
    /// The batch and its target.
    Input,
    /// The gradient of a parameter.
    Gradient,
    /// Any other storage, allocated and freed within the step.
    Intermediate,
}

impl StorageRole {
    /// All roles, in the order of their numbers in Python.
    pub const ALL: [StorageRole; 6] = [
        StorageRole::Parameter,
        StorageRole::Buffer,
        StorageRole::OptimizerState,
        StorageRole::Input,
        StorageRole::Gradient,
        StorageRole::Intermediate,
    ];

    /// The role of the value in a program; none for a storage that the step allocates.
    fn declared(self) -> Option<Role> {
        match self {
            StorageRole::Parameter => Some(Role::Parameter),
            StorageRole::Buffer | StorageRole::OptimizerState => Some(Role::State),
            StorageRole::Input => Some(Role::Input),
            StorageRole::Gradient | StorageRole::Intermediate => None,
        }
    }

    fn is_persistent(self) -> bool {
        self.declared().is_some_and(Role::is_persistent)
    }
}

/// The memory of one or more tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Its size.
    pub bytes: u64,
    /// Its purpose.
    pub role: StorageRole,
    /// The operation that allocates it. Storages that no step allocates exist from the first operation to the last.
    pub born: usize,
    /// The first operation after it was freed.
    pub end: usize,
}

/// One operation of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The storages of its operands, each once.
    pub reads: Vec<usize>,
    /// The storages that it writes, each once. A storage that was written before is changed in place.
    pub writes: Vec<usize>,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes of its operands and results.
    pub moved: u64,
    /// `true` if it has the same results whenever it is run.
    pub is_repeatable: bool,
}

/// The operations and storages of a training step, in order of execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTrace {
    storages: Vec<Storage>,
    operations: Vec<Operation>,
    backward_starts: Vec<usize>,
}

/// The parts of a step's memory at one operation, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Parameters.
    pub parameters: u64,
    /// Buffers of the module.
    pub buffers: u64,
    /// The optimizer's state.
    pub optimizer: u64,
    /// The batch and its target.
    pub inputs: u64,
    /// Gradients of parameters.
    pub gradients: u64,
    /// Results of the forward pass that the backward pass reads.
    pub activations: u64,
    /// All other results.
    pub temporaries: u64,
}

/// The memory of a step as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepMemory {
    /// The bytes that existed at each operation, with its results.
    pub live: Vec<u64>,
    /// The operation with the most bytes; the first if there are several.
    pub peak: usize,
    /// The parts of the bytes at the peak.
    pub parts: Parts,
    /// The most activations that existed when a backward pass began.
    pub activations: u64,
}

/// The memory of a step with some values recomputed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The bytes of an arena that holds every value at a fixed offset, and of parameters, buffers and state.
    pub bytes: u64,
    /// Additional floating-point operations, as a fraction of the step's.
    pub recomputed_flops: f64,
    /// The number of operations that are run again.
    pub recomputed_operations: usize,
}

/// The memory that a step could have.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan {
    /// The bytes of the step if each value is freed after its last use and nothing is recomputed: the least that any allocator needs
    /// for the recorded order.
    pub lower_bound: u64,
    /// Memory against recomputation, from the fastest to the smallest.
    pub curve: Vec<CurvePoint>,
}

impl StepTrace {
    /// Checks a recording. `backward_starts` has the first operation of each backward pass.
    ///
    /// # Errors
    /// Returns an error if an operation names a storage that does not exist, a storage ends before it is allocated or after the step, the
    /// recording has no operation, or all storages together have more bytes than any machine.
    pub fn new(
        storages: Vec<Storage>,
        operations: Vec<Operation>,
        backward_starts: Vec<usize>,
    ) -> Result<StepTrace, Failure> {
        let (known, count) = (storages.len(), operations.len());
        if count == 0 || u32::try_from(known).is_err() {
            let message = format!("has {count} operations and {known} storages");
            return Err(Failure::argument("operations", message));
        }
        for (index, operation) in operations.iter().enumerate() {
            let mut named = operation.reads.iter().chain(&operation.writes);
            if let Some(unknown) = named.find(|storage| **storage >= known) {
                let message = format!("names storage {unknown} of {known} at operation {index}");
                return Err(Failure::argument("operations", message));
            }
        }
        if let Some(Storage { born, end, .. }) =
            storages.iter().find(|storage| storage.born > storage.end || storage.end > count)
        {
            let message = format!("has a storage from operation {born} to {end} of {count}");
            return Err(Failure::argument("storages", message));
        }
        let total = storages.iter().fold(0_u64, |sum, storage| sum.saturating_add(storage.bytes));
        if total > MOST_BYTES {
            return Err(Failure::argument("storages", format!("has {total} bytes, more than any machine")));
        }
        Ok(StepTrace { storages, operations, backward_starts })
    }

    /// Returns the memory of the step as it was recorded.
    pub fn memory(&self) -> StepMemory {
        let count = self.operations.len();
        let (mut allocated, mut freed) = (vec![0_u64; count], vec![0_u64; count + 1]);
        for storage in &self.storages {
            let (born, end) = self.lifetime(storage);
            if born < end {
                allocated[born] += storage.bytes;
                freed[end] += storage.bytes;
            }
        }
        let mut now = 0;
        let changes = allocated.into_iter().zip(freed);
        let live: Vec<u64> = changes
            .map(|(allocated, freed)| {
                now = now + allocated - freed;
                now
            })
            .collect();
        let peak = (0..count).max_by_key(|operation| (live[*operation], Reverse(*operation))).unwrap_or(0);
        let starts = self.backward_starts.iter();
        let activations = starts.map(|start| self.parts(*start).activations).max().unwrap_or(0);
        StepMemory { live, peak, parts: self.parts(peak), activations }
    }

    /// The first operation at which a storage exists, and the first at which it does not.
    fn lifetime(&self, storage: &Storage) -> (usize, usize) {
        match storage.role.declared() {
            Some(_) => (0, self.operations.len()),
            None => (storage.born, storage.end),
        }
    }

    /// The storages that exist at an operation.
    fn parts(&self, operation: usize) -> Parts {
        let mut parts = Parts::default();
        for storage in &self.storages {
            let (born, end) = self.lifetime(storage);
            if operation < born || end <= operation {
                continue;
            }
            let is_saved = || self.backward_starts.iter().any(|start| born < *start && *start < end);
            *match storage.role {
                StorageRole::Parameter => &mut parts.parameters,
                StorageRole::Buffer => &mut parts.buffers,
                StorageRole::OptimizerState => &mut parts.optimizer,
                StorageRole::Input => &mut parts.inputs,
                StorageRole::Gradient => &mut parts.gradients,
                StorageRole::Intermediate if is_saved() => &mut parts.activations,
                StorageRole::Intermediate => &mut parts.temporaries,
            } += storage.bytes;
        }
        parts
    }

    /// Returns the memory that the step could have.
    pub fn plan(&self) -> StepPlan {
        let persistent = self.storages.iter().filter(|storage| storage.role.is_persistent());
        let persistent: u64 = persistent.map(|storage| storage.bytes).sum();
        let (program, lowered) = self.lowered();
        let search = Search::new(&program, lowered, 1);
        let mut curve: Vec<CurvePoint> = Vec::new();
        for choice in search.curve() {
            let Some(mut point) = self.point(&search, &choice) else { continue };
            point.bytes += persistent;
            if curve.last().is_none_or(|last| point.bytes < last.bytes) {
                // The search counts time, in which a point that needs more memory may also need more operations.
                while curve.pop_if(|last| point.recomputed_flops <= last.recomputed_flops).is_some() {}
                curve.push(point);
            }
        }
        StepPlan { lower_bound: persistent + search.peak() as u64, curve }
    }

    /// Places the values of a choice.
    fn point(&self, search: &Search, choice: &Choice) -> Option<CurvePoint> {
        let schedule = search.schedule(choice)?;
        let (_, items) = search.items(&schedule, true);
        let before: u64 = self.operations.iter().map(|operation| operation.flops).sum();
        let after: u64 = schedule.runs.iter().map(|run| self.operations[run.node].flops).sum();
        Some(CurvePoint {
            bytes: place(&items).bytes as u64,
            recomputed_flops: if before > 0 { after as f64 / before as f64 - 1.0 } else { 0.0 },
            recomputed_operations: schedule.runs.len().saturating_sub(self.operations.len()),
        })
    }

    /// The step as a program of the planner, with a value for each write of a storage. No op is named: the planner reads lifetimes, sizes
    /// and costs alone, and the program is not run.
    fn lowered(&self) -> (Program, LoweredProgram) {
        let mut values = Values::new(&self.storages);
        let nodes = self.operations.iter().map(|operation| values.node(operation)).collect();
        let mut program = Program::new("step");
        program.tensors = values.tensors;
        (program, LoweredProgram { bytes: values.bytes, nodes })
    }
}

/// The values of storages while operations are read in order.
struct Values<'a> {
    storages: &'a [Storage],
    /// The value of each storage; none before its first write.
    current: Vec<Option<TensorId>>,
    tensors: Vec<TensorInfo>,
    bytes: Vec<usize>,
}

impl<'a> Values<'a> {
    fn new(storages: &'a [Storage]) -> Values<'a> {
        let mut values =
            Values { storages, current: vec![None; storages.len()], tensors: Vec::new(), bytes: Vec::new() };
        for (index, storage) in storages.iter().enumerate() {
            if let Some(role) = storage.role.declared() {
                values.current[index] = Some(values.add(role, storage.bytes));
            }
        }
        values
    }

    fn add(&mut self, role: Role, bytes: u64) -> TensorId {
        let id = TensorId(self.tensors.len() as u32);
        let (shape, dtype, kind) = (Shape(vec![1]), DType::F32, Kind::Table);
        self.tensors.push(TensorInfo { name: id.to_string(), shape, dtype, role, kind });
        self.bytes.push(bytes as usize);
        id
    }

    fn node(&mut self, operation: &Operation) -> LoweredNode {
        let mut inputs: Vec<TensorId> =
            operation.reads.iter().filter_map(|storage| self.current[*storage]).collect();
        let (mut outputs, mut in_place) = (Vec::new(), Vec::new());
        for storage in &operation.writes {
            let Storage { bytes, role, .. } = self.storages[*storage];
            let before = self.current[*storage];
            if let Some(before) = before
                && !inputs.contains(&before)
            {
                inputs.push(before);
            }
            if let (true, Some(updated)) = (role.is_persistent(), before) {
                outputs.push(updated);
                continue;
            }
            if let Some(operand) = inputs.iter().position(|input| Some(*input) == before) {
                in_place.push((outputs.len(), operand));
            }
            let written = self.add(Role::Intermediate, bytes);
            self.current[*storage] = Some(written);
            outputs.push(written);
        }
        LoweredNode {
            name: String::new(),
            covers: Vec::new(),
            inputs,
            outputs,
            scratch: 0,
            in_place,
            may_be_recomputed: operation.is_repeatable,
            cost: Cost { flops: operation.flops, bytes: operation.moved },
            seconds: operation.flops as f64 / FLOPS + operation.moved as f64 / BYTES,
            bound: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEATURE: u64 = 1000;

    fn operation(reads: &[usize], writes: &[usize]) -> Operation {
        let moved = FEATURE * (reads.len() + writes.len()) as u64;
        Operation { reads: reads.into(), writes: writes.into(), flops: 100, moved, is_repeatable: true }
    }

    fn input(end: usize) -> Storage {
        Storage { bytes: FEATURE, role: StorageRole::Input, born: 0, end }
    }

    fn intermediate(born: usize, end: usize) -> Storage {
        Storage { bytes: FEATURE, role: StorageRole::Intermediate, born, end }
    }

    fn traced(storages: Vec<Storage>, operations: Vec<Operation>, backward_starts: Vec<usize>) -> StepTrace {
        StepTrace::new(storages, operations, backward_starts)
            .unwrap_or_else(|failure| unreachable!("{failure}"))
    }

    /// A step of `depth` layers without parameters: each result is read by the next layer and by the layer's backward pass, whose gradient
    /// replaces the one before. Autograd frees a result after the operation that reads it last.
    fn chain(depth: usize) -> StepTrace {
        let count = 2 * depth;
        let mut storages = vec![input(count)];
        let mut operations = Vec::new();
        for layer in 0..depth {
            let end = if layer + 1 == depth { depth + 1 } else { count - layer - 1 };
            storages.push(intermediate(layer, end));
            operations.push(operation(&[layer], &[layer + 1]));
        }
        let mut gradient = depth;
        for layer in (0..depth).rev() {
            let place = operations.len();
            let end = (place + 2).min(count);
            storages.push(intermediate(place, end));
            operations.push(operation(&[layer, gradient], &[storages.len() - 1]));
            gradient = storages.len() - 1;
        }
        traced(storages, operations, vec![depth])
    }

    #[test]
    fn the_peak_of_a_chain_is_its_input_all_results_and_a_gradient() {
        let memory = chain(8).memory();
        // At the first operation of the backward pass.
        assert_eq!((memory.live[memory.peak], memory.peak), (10 * FEATURE, 8));
        assert_eq!(memory.activations, 8 * FEATURE);
        let Parts { inputs, activations, temporaries, .. } = memory.parts;
        assert_eq!((inputs, activations, temporaries), (FEATURE, 8 * FEATURE, FEATURE));
        let forward: Vec<u64> = (2..10).map(|results| results * FEATURE).collect();
        assert_eq!(memory.live[..8], forward);
    }

    #[test]
    fn a_chain_fits_into_half_if_every_second_result_is_recomputed() {
        let plan = chain(64).plan();
        let first = plan.curve[0];
        assert_eq!((plan.lower_bound, first.bytes), (66 * FEATURE, 66 * FEATURE));
        assert_eq!((first.recomputed_flops, first.recomputed_operations), (0.0, 0));
        // 32 results, the input, two gradients and one recomputed result; 32 of 128 operations are run again.
        let half = |point: &CurvePoint| point.bytes <= 36 * FEATURE && point.recomputed_flops < 0.26;
        assert!(plan.curve.iter().any(half), "{:?}", plan.curve);
        let is_a_trade = |pair: &[CurvePoint]| {
            pair[0].bytes > pair[1].bytes && pair[0].recomputed_flops < pair[1].recomputed_flops
        };
        assert!(plan.curve.windows(2).all(is_a_trade));
    }

    #[test]
    fn random_results_are_not_recomputed() {
        let StepTrace { storages, mut operations, backward_starts } = chain(64);
        operations[..64].iter_mut().for_each(|operation| operation.is_repeatable = false);
        let plan = traced(storages, operations, backward_starts).plan();
        assert_eq!(plan.curve.len(), 1);
        assert_eq!(plan.curve[0].bytes, plan.lower_bound);
    }

    #[test]
    fn a_change_in_place_takes_no_memory() {
        let storages = vec![input(3), intermediate(0, 3), intermediate(2, 3)];
        let operations = vec![operation(&[0], &[1]), operation(&[1], &[1]), operation(&[1], &[2])];
        let trace = traced(storages, operations, vec![2]);
        // The input is read once; a plan may overwrite it afterwards.
        assert_eq!(trace.memory().live, [2 * FEATURE, 2 * FEATURE, 3 * FEATURE]);
        assert_eq!(trace.plan().lower_bound, 2 * FEATURE);
    }

    #[test]
    fn parameters_and_state_are_counted_throughout_and_updated_in_place() {
        let lasting = |role| Storage { bytes: FEATURE, role, born: 0, end: 0 };
        let storages = vec![
            lasting(StorageRole::Parameter),
            lasting(StorageRole::OptimizerState),
            lasting(StorageRole::Buffer),
            Storage { role: StorageRole::Gradient, ..intermediate(0, 2) },
        ];
        let operations = vec![operation(&[0, 2], &[3]), operation(&[0, 1, 3], &[0, 1])];
        let trace = traced(storages, operations, vec![0]);
        assert_eq!(trace.memory().live, [4 * FEATURE, 4 * FEATURE]);
        let parts = trace.memory().parts;
        let of_module = (parts.parameters, parts.optimizer, parts.buffers, parts.gradients);
        assert_eq!(of_module, (FEATURE, FEATURE, FEATURE, FEATURE));
        assert_eq!(trace.plan().lower_bound, 4 * FEATURE);
    }

    #[test]
    fn memory_that_autograd_frees_late_is_in_the_peak_and_not_in_the_lower_bound() {
        let storages = vec![input(3), intermediate(0, 3), intermediate(1, 3), intermediate(2, 3)];
        let operations = vec![operation(&[0], &[1]), operation(&[1], &[2]), operation(&[2], &[3])];
        let trace = traced(storages, operations, vec![2]);
        assert_eq!(trace.memory().live[2], 4 * FEATURE);
        assert_eq!(trace.plan().lower_bound, 2 * FEATURE);
    }

    #[test]
    fn a_step_of_two_thousand_operations_fits_into_a_quarter() {
        let plan = chain(1000).plan();
        assert_eq!(plan.lower_bound, 1002 * FEATURE);
        let quarter =
            |point: &CurvePoint| point.bytes <= plan.lower_bound / 4 && point.recomputed_flops < 0.5;
        assert!(plan.curve.iter().any(quarter));
    }

    #[test]
    fn a_faulty_recording_is_an_error_that_names_the_argument() {
        let one = || vec![operation(&[0], &[1])];
        let two = || vec![input(1), intermediate(0, 1)];
        let named = |storages, operations| match StepTrace::new(storages, operations, vec![0]) {
            Err(Failure::Argument { argument, .. }) => argument,
            other => unreachable!("{other:?}"),
        };
        assert_eq!(named(two(), Vec::new()), "operations");
        assert_eq!(named(vec![input(1)], one()), "operations");
        assert_eq!(named(vec![input(1), intermediate(0, 2)], one()), "storages");
        assert_eq!(named(vec![input(1), intermediate(1, 0)], one()), "storages");
        assert_eq!(named(vec![input(1), Storage { bytes: u64::MAX, ..input(1) }], one()), "storages");
    }
}
