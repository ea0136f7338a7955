//! Values that are freed and recomputed instead of held.
//!
//! Between two uses a value need not be in memory: its place is free if its node is run again before the next use. The
//! copy is made by the same kernel from the same operands, so it has the same bits. Operands that are freed themselves
//! are recomputed first, and a copy serves all uses until the value is freed again. A node whose results nobody reads
//! before they are freed is not run there at all: it is deferred.

use plimsoll_graph::{Program, Role, TensorId};
use serde::{Deserialize, Serialize};

use crate::liveness::{Flow, FlowNode, FlowValue};
use crate::{LoweredNode, LoweredProgram};

/// The most runs per node of a schedule, on average: with more, recomputation takes longer than all else.
const MOST_RUNS: usize = 6;

/// A value is freed until its next use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Release {
    /// The lowered node, in the order of the program, that touches it last before.
    pub after: usize,
    /// The value.
    pub tensor: TensorId,
}

/// The lowered nodes of a program in the order in which they are run, some of them more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The runs, in order.
    pub runs: Vec<Run>,
    /// The tensor that each value is a copy of, for the values behind the program's own.
    pub copies: Vec<TensorId>,
    /// The operands and results of all runs, one run after the other.
    operands: Vec<TensorId>,
}

/// One run of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The node.
    pub node: usize,
    /// Before or at which node of the program it is run.
    pub place: usize,
    first: usize,
    inputs: usize,
    outputs: usize,
}

impl Schedule {
    /// The tensors a run reads.
    pub fn inputs(&self, run: &Run) -> &[TensorId] {
        &self.operands[run.first..run.first + run.inputs]
    }

    /// The tensors a run writes.
    pub fn outputs(&self, run: &Run) -> &[TensorId] {
        &self.operands[run.first + run.inputs..run.first + run.inputs + run.outputs]
    }

    /// The input of the liveness analysis. `values` are the values of the program; nodes work in place according to
    /// `in_place`.
    pub(crate) fn flow<'a>(
        &'a self,
        values: &[FlowValue],
        in_place: impl Fn(&Run) -> &'a [(usize, usize)],
    ) -> Flow<'a> {
        let node = |run: &Run| FlowNode {
            inputs: self.inputs(run),
            outputs: self.outputs(run),
            in_place: in_place(run),
        };
        let copies = self.copies.iter().map(|id| values[id.index()]);
        let mut all = Vec::with_capacity(values.len() + self.copies.len());
        all.extend(values.iter().copied().chain(copies));
        Flow { nodes: self.runs.iter().map(node).collect(), values: all }
    }
}

/// The origin of the values of a program, and the nodes that touch them.
#[derive(Debug)]
pub struct Recomputation {
    lowered: LoweredProgram,
    roles: Vec<Role>,
    /// The node that makes a tensor, where it may be run again.
    maker: Vec<Option<usize>>,
    /// The nodes that touch each tensor, in order.
    touches: Vec<Vec<usize>>,
    /// The nodes that write each parameter and state.
    writes: Vec<Vec<usize>>,
}

impl Recomputation {
    /// Looks at a lowered program.
    pub fn new(program: &Program, lowered: LoweredProgram) -> Recomputation {
        let roles: Vec<Role> = program.tensors.iter().map(|tensor| tensor.role).collect();
        let mut maker = vec![None; roles.len()];
        let mut touches = vec![Vec::new(); roles.len()];
        let mut writes = vec![Vec::new(); roles.len()];
        for (place, node) in lowered.nodes.iter().enumerate() {
            for id in node.inputs.iter().chain(&node.outputs) {
                let touches: &mut Vec<usize> = &mut touches[id.index()];
                if touches.last() != Some(&place) {
                    touches.push(place);
                }
            }
            let again = may_run_again(&roles, node);
            for id in &node.outputs {
                if roles[id.index()].is_persistent() {
                    writes[id.index()].push(place);
                }
                maker[id.index()] = again.then_some(place);
            }
        }
        Recomputation { lowered, roles, maker, touches, writes }
    }

    /// The lowered program.
    pub fn lowered(&self) -> &LoweredProgram {
        &self.lowered
    }

    /// The role of each tensor in the program.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// The node that makes a tensor, where it may be run again.
    pub fn maker(&self, tensor: TensorId) -> Option<usize> {
        self.maker.get(tensor.index()).copied().flatten()
    }

    /// The nodes that touch a tensor, in order.
    pub(crate) fn touches(&self, tensor: TensorId) -> &[usize] {
        self.touches.get(tensor.index()).map_or(&[], Vec::as_slice)
    }

    /// Freeing a tensor before a node, where that is possible: some node touches it before and makes it or reads it.
    pub fn release_before(&self, tensor: TensorId, place: usize) -> Option<Release> {
        self.maker(tensor)?;
        let touches = self.touches.get(tensor.index())?;
        let before = touches.partition_point(|touch| *touch < place);
        Some(Release { after: *touches.get(before.checked_sub(1)?)?, tensor })
    }

    /// Every release that the program allows.
    pub fn releases(&self) -> Vec<Release> {
        let all = (0..self.roles.len()).map(|index| TensorId(index as u32));
        let made = all.filter(|tensor| self.maker(*tensor).is_some());
        let of = |tensor: TensorId| {
            self.touches[tensor.index()].iter().map(move |after| Release { after: *after, tensor })
        };
        let mut all: Vec<Release> = made.flat_map(of).collect();
        all.sort_unstable();
        all
    }

    /// The order of execution without releases: the program's.
    pub fn unchanged(&self) -> Schedule {
        let mut writer = Writer::new(self, 0);
        for (place, node) in self.lowered.nodes.iter().enumerate() {
            writer.run(place, place, &node.outputs);
        }
        writer.schedule
    }

    /// The order of execution with some releases, which stand in ascending order. None if there is no such tensor, or a
    /// value would have to be recomputed from a parameter or state that has changed since, or there would be more than
    /// `MOST_RUNS` runs for each node.
    pub fn schedule(&self, releases: &[Release]) -> Option<Schedule> {
        let nodes = &self.lowered.nodes;
        if releases.iter().any(|release| release.tensor.index() >= self.roles.len()) {
            return None;
        }
        let mut writer = Writer::new(self, releases.len());
        let mut releases = releases.iter().peekable();
        for (place, node) in nodes.iter().enumerate() {
            for id in &node.inputs {
                writer.make(*id, place)?;
            }
            writer.run(place, place, &node.outputs);
            if writer.schedule.runs.len() > MOST_RUNS * nodes.len() {
                return None;
            }
            for id in &node.outputs {
                writer.current[id.index()] = Some(*id);
            }
            while let Some(release) = releases.next_if(|release| release.after <= place) {
                writer.current[release.tensor.index()] = None;
            }
        }
        let mut schedule = writer.schedule;
        if schedule.runs.len() > nodes.len() {
            self.defer(&mut schedule);
        }
        Some(schedule)
    }

    /// Takes out the runs whose results nobody reads any more.
    fn defer(&self, schedule: &mut Schedule) {
        let mut is_read = vec![false; self.roles.len() + schedule.copies.len()];
        let mut is_kept = vec![true; schedule.runs.len()];
        for (run, is_kept) in schedule.runs.iter().zip(&mut is_kept).rev() {
            let node = &self.lowered.nodes[run.node];
            let has_maker = node.outputs.iter().all(|id| self.maker(*id).is_some());
            // What nobody reads in the program either is left alone.
            let is_useful = node.outputs.iter().any(|id| self.touches[id.index()].len() > 1);
            let is_dead = schedule.outputs(run).iter().all(|id| !is_read[id.index()]);
            *is_kept = !(has_maker && is_useful && is_dead);
            if *is_kept {
                for id in schedule.inputs(run) {
                    is_read[id.index()] = true;
                }
            }
        }
        let mut is_kept = is_kept.into_iter();
        schedule.runs.retain(|_| is_kept.next() != Some(false));
    }
}

/// Returns `true` if a node has the same results whenever it is run, and they are used within the run alone.
fn may_run_again(roles: &[Role], node: &LoweredNode) -> bool {
    node.may_be_recomputed && node.outputs.iter().all(|id| roles[id.index()] == Role::Intermediate)
}

/// A schedule that is being written.
struct Writer<'a> {
    of: &'a Recomputation,
    /// The value of each tensor; none if it was freed.
    current: Vec<Option<TensorId>>,
    schedule: Schedule,
}

impl<'a> Writer<'a> {
    /// The state in which no tensor is freed, with room for the recomputations of this number of releases.
    fn new(of: &'a Recomputation, releases: usize) -> Writer<'a> {
        let nodes = of.lowered.nodes.len();
        Writer {
            of,
            current: (0..of.roles.len()).map(|index| Some(TensorId(index as u32))).collect(),
            schedule: Schedule {
                runs: Vec::with_capacity(nodes + 2 * releases),
                copies: Vec::new(),
                operands: Vec::with_capacity(6 * (nodes + releases)),
            },
        }
    }

    /// Makes sure that a tensor is there before node `place`.
    fn make(&mut self, tensor: TensorId, place: usize) -> Option<()> {
        if self.current[tensor.index()].is_some() {
            return Some(());
        }
        let maker = self.of.maker(tensor)?;
        let node = &self.of.lowered.nodes[maker];
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
            let copy = TensorId((self.of.roles.len() + self.schedule.copies.len()) as u32);
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
        let inputs = &self.of.lowered.nodes[node].inputs;
        let operands = &mut self.schedule.operands;
        let (first, current) = (operands.len(), &self.current);
        operands.extend(inputs.iter().filter_map(|id| current[id.index()]));
        operands.extend_from_slice(outputs);
        let (inputs, outputs) = (inputs.len(), outputs.len());
        self.schedule.runs.push(Run { node, place, first, inputs, outputs });
    }
}
