//! Checks that launches compute the values of a program: values are numbered, and two are equal if the same op computed
//! them from the same values.

use std::collections::HashMap;

use plimsoll_graph::{NodeId, Op, Program, Role, TensorId};

use super::memory::Scheduled;
use crate::{LoweredNode, LoweredProgram, PlanError};

/// Checks that the lowered nodes leave the values in every output, parameter and state that the program says, and that
/// the launches do; and that each tensor that a launch writes has the value that it denotes.
pub(super) fn check(of: &Scheduled<'_>) -> Result<(), PlanError> {
    let mut values = Values::new(of.program);
    let given = values.after_program();
    let lowered = values.after_lowered(of.lowered).map_err(|(node, fault)| {
        let fault = format!("its lowered node {node} does not compute what it covers: {fault}");
        PlanError::WrongPlan { fault: format!("in `{}`, {fault}", of.program.name) }
    })?;
    for id in of.program.ids() {
        let tensor = of.program.tensor(id);
        if tensor.role != Role::Intermediate && lowered.get(&id) != given.get(&id) {
            let fault = format!("in `{}`, `{}` is not lowered to what it is", of.program.name, tensor.name);
            return Err(PlanError::WrongPlan { fault });
        }
    }
    let scheduled = values.after_launches(of, &given)?;
    for id in of.program.ids() {
        let tensor = of.program.tensor(id);
        if tensor.role != Role::Intermediate && scheduled.get(&id) != given.get(&id) {
            let fault = format!("`{}` is not computed as the program says", tensor.name);
            return Err(of.wrong(of.schedule.launches.len(), fault));
        }
    }
    Ok(())
}

/// The value that each tensor has.
type Current = HashMap<TensorId, usize>;

/// A number for each distinct value of a program.
struct Values<'a> {
    program: &'a Program,
    /// A number for the op of each node: the same for equal ops.
    ops: Vec<usize>,
    /// By (op, which of its results, the values that it is applied to).
    known: HashMap<(usize, usize, Vec<usize>), usize>,
    next: usize,
}

impl<'a> Values<'a> {
    fn new(program: &'a Program) -> Values<'a> {
        // Ops have no hash. Equal ones are written alike, so each is compared with those that are written like it.
        let mut different: HashMap<String, Vec<(&Op, usize)>> = HashMap::new();
        let mut ops: Vec<usize> = Vec::with_capacity(program.nodes.len());
        for (next, node) in program.nodes.iter().enumerate() {
            let alike = different.entry(format!("{:?}", node.op)).or_default();
            let known = alike.iter().find(|(op, _)| **op == node.op).map(|(_, number)| *number);
            if known.is_none() {
                alike.push((&node.op, next));
            }
            ops.push(known.unwrap_or(next));
        }
        Values { program, ops, known: HashMap::new(), next: program.tensors.len() }
    }

    /// Inputs, parameters and states have themselves as values.
    fn initial(&self) -> Current {
        let given = self.program.ids().filter(|id| {
            let role = self.program.tensor(*id).role;
            role == Role::Input || role.is_persistent()
        });
        given.map(|id| (id, id.index())).collect()
    }

    /// Applies a node of the program to values; none if one that it reads is not there.
    fn apply(&mut self, node: NodeId, current: &mut Current) -> Option<()> {
        let of = &self.program.nodes[node];
        let operands: Vec<usize> =
            of.inputs.iter().map(|id| current.get(id).copied()).collect::<Option<_>>()?;
        for (result, id) in of.outputs.iter().enumerate() {
            let next = self.next;
            let value = *self.known.entry((self.ops[node], result, operands.clone())).or_insert(next);
            self.next += usize::from(value == next);
            current.insert(*id, value);
        }
        Some(())
    }

    /// The values of all tensors after the program.
    fn after_program(&mut self) -> Current {
        let mut current = self.initial();
        for node in 0..self.program.nodes.len() {
            // The program is sound: everything that a node reads is there.
            self.apply(node, &mut current);
        }
        current
    }

    /// The values that a lowered node writes, of those that it reads: what the nodes that it covers make, and nothing else.
    fn after_node(&mut self, node: &LoweredNode, inputs: &[usize]) -> Result<Vec<usize>, String> {
        let mut own: Current = node.inputs.iter().copied().zip(inputs.iter().copied()).collect();
        for covered in &node.covers {
            if *covered >= self.program.nodes.len() {
                return Err(format!("there is no node {covered}"));
            }
            self.apply(*covered, &mut own).ok_or_else(|| format!("node {covered} lacks an operand"))?;
        }
        let written =
            node.outputs.iter().map(|id| own.get(id).copied().ok_or_else(|| format!("{id} is not made")));
        written.collect()
    }

    fn after_lowered(&mut self, lowered: &LoweredProgram) -> Result<Current, (usize, String)> {
        let mut current = self.initial();
        for (at, node) in lowered.nodes.iter().enumerate() {
            let inputs = node.inputs.iter().map(|id| current.get(id).copied());
            let inputs: Vec<usize> =
                inputs.collect::<Option<_>>().ok_or_else(|| (at, "an input is not there".into()))?;
            let written = self.after_node(node, &inputs).map_err(|fault| (at, fault))?;
            current.extend(node.outputs.iter().copied().zip(written));
        }
        Ok(current)
    }

    /// The same for launches, which read and write copies as well. Each that they write must have the value that it
    /// denotes.
    fn after_launches(&mut self, of: &Scheduled<'_>, given: &Current) -> Result<Current, PlanError> {
        let mut current = self.initial();
        for (at, launch) in of.schedule.launches.iter().enumerate() {
            let node = &of.lowered.nodes[launch.node];
            let inputs = launch.inputs.iter().map(|id| current.get(id).copied());
            let inputs: Vec<usize> = inputs
                .collect::<Option<_>>()
                .ok_or_else(|| of.wrong(at, "it reads what was never written".into()))?;
            let written = self.after_node(node, &inputs).map_err(|fault| of.wrong(at, fault))?;
            for (id, value) in launch.outputs.iter().zip(written) {
                let origin = of.schedule.origin(*id);
                let role = origin.map(|origin| self.program.tensor(origin).role);
                let is_it = role.is_some_and(Role::is_persistent)
                    || origin.is_some_and(|origin| given.get(&origin) == Some(&value));
                if !is_it {
                    return Err(of.wrong(at, format!("{} is not what it stands for", of.name(*id))));
                }
                current.insert(*id, value);
            }
        }
        Ok(current)
    }
}
