//! Values that are let go of and made again instead of held.
//!
//! Between two uses a value need not be held: its place is free if the node that made it is run once more before the
//! next use. The copy is made by the same op from the same operands, so it has the same bits. Operands that are let
//! go of themselves are made again first, and a copy serves all uses until the value is let go of once more. A node
//! whose results nobody reads before they are let go of is not run there at all: it is put off.

use plimsoll_graph::{Node, Op, Program, Recompute, Role, TensorId};
use serde::{Deserialize, Serialize};

use crate::liveness::{Flow, FlowNode, FlowValue};

/// A value is let go of until its next use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Release {
    /// The node, in the order of the program, that touches it last before.
    pub after: usize,
    /// The value.
    pub tensor: TensorId,
}

/// The nodes of a program in the order in which they are run, some of them more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// What is run.
    pub steps: Vec<Step>,
    /// Of which tensor each value is a copy, for the values that come after the program's own.
    pub copies: Vec<TensorId>,
    /// The operands and results of all steps, one step after the other.
    operands: Vec<TensorId>,
}

/// One run of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which node.
    pub node: usize,
    /// Before or at which node of the program it is run.
    pub place: usize,
    first: usize,
    inputs: usize,
    outputs: usize,
}

impl Schedule {
    /// What a step reads.
    pub fn inputs(&self, step: &Step) -> &[TensorId] {
        &self.operands[step.first..step.first + step.inputs]
    }

    /// What a step writes.
    pub fn outputs(&self, step: &Step) -> &[TensorId] {
        &self.operands[step.first + step.inputs..step.first + step.inputs + step.outputs]
    }

    /// For liveness. `values` are those of the program.
    pub fn flow<'a>(&'a self, values: &[FlowValue], in_place: &'a [Vec<(usize, usize)>]) -> Flow<'a> {
        let node = |step: &Step| FlowNode {
            inputs: self.inputs(step),
            outputs: self.outputs(step),
            in_place: &in_place[step.node],
        };
        let copies = self.copies.iter().map(|id| values[id.index()]);
        let mut all = Vec::with_capacity(values.len() + self.copies.len());
        all.extend(values.iter().copied().chain(copies));
        Flow { nodes: self.steps.iter().map(node).collect(), values: all }
    }

    /// The program that runs these steps.
    pub fn program(&self, of: &Program) -> Program {
        let mut program = of.clone();
        program.tensors.extend(self.copies.iter().map(|id| {
            let mut copy = of.tensor(*id).clone();
            copy.name.push_str(" again");
            copy
        }));
        let node = |step: &Step| Node {
            op: of.nodes[step.node].op.clone(),
            inputs: self.inputs(step).to_vec(),
            outputs: self.outputs(step).to_vec(),
        };
        program.nodes = self.steps.iter().map(node).collect();
        program
    }
}

/// Where the values of a program come from, and who touches them.
#[derive(Debug)]
pub struct Recomputation {
    program: Program,
    /// The node that makes a tensor, where it may be run again.
    maker: Vec<Option<usize>>,
    /// The nodes that touch each tensor, in order.
    touches: Vec<Vec<usize>>,
    /// The nodes that write each parameter and state.
    writes: Vec<Vec<usize>>,
}

impl Recomputation {
    /// Looks at a program, after folding.
    pub fn of(program: Program) -> Recomputation {
        let mut maker = vec![None; program.tensors.len()];
        let mut touches = vec![Vec::new(); program.tensors.len()];
        let mut writes = vec![Vec::new(); program.tensors.len()];
        for (place, node) in program.nodes.iter().enumerate() {
            for id in node.inputs.iter().chain(&node.outputs) {
                let touches: &mut Vec<usize> = &mut touches[id.index()];
                if touches.last() != Some(&place) {
                    touches.push(place);
                }
            }
            let again = may_run_again(&program, node);
            for id in &node.outputs {
                if program.tensor(*id).role.is_persistent() {
                    writes[id.index()].push(place);
                }
                maker[id.index()] = again.then_some(place);
            }
        }
        Recomputation { program, maker, touches, writes }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The node that makes a tensor, where it may be run again.
    pub fn maker(&self, tensor: TensorId) -> Option<usize> {
        self.maker.get(tensor.index()).copied().flatten()
    }

    /// Letting go of a tensor before a node, where that is possible: some node touches it before and makes it or
    /// reads it.
    pub fn release_before(&self, tensor: TensorId, place: usize) -> Option<Release> {
        self.maker(tensor)?;
        let touches = self.touches.get(tensor.index())?;
        let before = touches.partition_point(|touch| *touch < place);
        Some(Release { after: *touches.get(before.checked_sub(1)?)?, tensor })
    }

    /// Every release that the program allows.
    pub fn releases(&self) -> Vec<Release> {
        let of = |tensor: TensorId| {
            let touches = self.maker(tensor).map(|_| self.touches[tensor.index()].as_slice());
            touches.unwrap_or_default().iter().map(move |after| Release { after: *after, tensor })
        };
        let mut all: Vec<Release> = self.program.ids().flat_map(of).collect();
        all.sort_unstable();
        all
    }

    /// The order of execution with some releases, which stand in ascending order. None if there is no such tensor, or a
    /// value would have to be made again from a parameter or state that has changed since.
    pub fn schedule(&self, releases: &[Release]) -> Option<Schedule> {
        let nodes = &self.program.nodes;
        if releases.iter().any(|release| release.tensor.index() >= self.program.tensors.len()) {
            return None;
        }
        let mut writer = Writer {
            of: self,
            current: self.program.ids().map(Some).collect(),
            schedule: Schedule {
                steps: Vec::with_capacity(nodes.len() + 2 * releases.len()),
                copies: Vec::new(),
                operands: Vec::with_capacity(6 * (nodes.len() + releases.len())),
            },
        };
        let mut releases = releases.iter().peekable();
        for (place, node) in nodes.iter().enumerate() {
            for id in &node.inputs {
                writer.make(*id, place)?;
            }
            writer.run(place, place, &node.outputs);
            for id in &node.outputs {
                writer.current[id.index()] = Some(*id);
            }
            while let Some(release) = releases.next_if(|release| release.after <= place) {
                writer.current[release.tensor.index()] = None;
            }
        }
        let mut schedule = writer.schedule;
        if schedule.steps.len() > nodes.len() {
            self.put_off(&mut schedule);
        }
        Some(schedule)
    }

    /// Takes out the steps whose results nobody reads any more.
    fn put_off(&self, schedule: &mut Schedule) {
        let mut is_read = vec![false; self.program.tensors.len() + schedule.copies.len()];
        let mut is_kept = vec![true; schedule.steps.len()];
        for (step, is_kept) in schedule.steps.iter().zip(&mut is_kept).rev() {
            let node = &self.program.nodes[step.node];
            let has_maker = node.outputs.iter().all(|id| self.maker(*id).is_some());
            // What nobody reads in the program either is left alone.
            let is_useful = node.outputs.iter().any(|id| self.touches[id.index()].len() > 1);
            let is_dead = schedule.outputs(step).iter().all(|id| !is_read[id.index()]);
            *is_kept = !(has_maker && is_useful && is_dead);
            if *is_kept {
                for id in schedule.inputs(step) {
                    is_read[id.index()] = true;
                }
            }
        }
        let mut is_kept = is_kept.into_iter();
        schedule.steps.retain(|_| is_kept.next().unwrap_or(true));
    }
}

/// Whether a node makes the same whenever it is run, and nothing but values that are used within the run.
fn may_run_again(program: &Program, node: &Node) -> bool {
    node.op.rule().recompute() != Recompute::Never
        && node.op.rule().updates().is_empty()
        // A constant is nothing to hold.
        && !matches!(node.op, Op::Fill(_))
        && node.outputs.iter().all(|id| program.tensor(*id).role == Role::Intermediate)
}

/// A schedule that is being written.
struct Writer<'a> {
    of: &'a Recomputation,
    /// The value that stands for each tensor; none where it was let go of.
    current: Vec<Option<TensorId>>,
    schedule: Schedule,
}

impl Writer<'_> {
    /// Sees to it that a tensor is there before node `place`.
    fn make(&mut self, tensor: TensorId, place: usize) -> Option<()> {
        if self.current[tensor.index()].is_some() {
            return Some(());
        }
        let maker = self.of.maker(tensor)?;
        let node = &self.of.program.nodes[maker];
        let is_changed =
            |id: &TensorId| self.of.writes[id.index()].iter().any(|write| (maker..place).contains(write));
        if node.inputs.iter().any(is_changed) {
            return None;
        }
        for id in &node.inputs {
            self.make(*id, place)?;
        }
        let mut copies = Vec::with_capacity(node.outputs.len());
        for id in &node.outputs {
            let copy = TensorId((self.of.program.tensors.len() + self.schedule.copies.len()) as u32);
            self.schedule.copies.push(*id);
            copies.push(copy);
        }
        self.run(maker, place, &copies);
        for (id, copy) in node.outputs.iter().zip(copies) {
            self.current[id.index()].get_or_insert(copy);
        }
        Some(())
    }

    fn run(&mut self, node: usize, place: usize, outputs: &[TensorId]) {
        let inputs = &self.of.program.nodes[node].inputs;
        let operands = &mut self.schedule.operands;
        let (first, current) = (operands.len(), &self.current);
        operands.extend(inputs.iter().filter_map(|id| current[id.index()]));
        operands.extend_from_slice(outputs);
        let (inputs, outputs) = (inputs.len(), outputs.len());
        self.schedule.steps.push(Step { node, place, first, inputs, outputs });
    }
}
