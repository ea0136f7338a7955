//! The verifier: whether a plan computes what its program says. It shares nothing with the planner but the types.
//!
//! Two questions. Does the scheduled program compute the same values as the given one, op for op ([`equivalent`])? And when
//! it is run in the arena, does every read see the value it should ([`verify`])? The second is answered by running it with
//! names instead of numbers: each byte remembers who wrote it last.

use std::collections::{BTreeMap, HashMap};

use plimsoll_graph::ops::{ChannelSum, CompositeLossGrad, Head, HeadGrad, Load, NormAct};
use plimsoll_graph::{Op, Program, Role, TensorId};

use crate::{Block, Layout, PlanError, ProgramPlan};

/// Checks a plan against the program that it is for.
///
/// # Errors
/// At the first fault.
pub fn verify(given: &Program, plan: &ProgramPlan, layout: &dyn Layout) -> Result<(), PlanError> {
    plan.program.validate()?;
    equivalent(given, &plan.program)?;
    copies(given, plan)?;
    memory(plan, layout)
}

/// Who wrote each byte of the arena last; absent bytes are nobody's.
#[derive(Default)]
struct Bytes {
    /// Disjoint stretches by their start: their end, and whose they are (none: scratch).
    stretches: BTreeMap<usize, (usize, Option<TensorId>)>,
}

impl Bytes {
    fn write(&mut self, block: Block, writer: Option<TensorId>) {
        let before =
            self.stretches.range(..block.offset).next_back().map(|(start, stretch)| (*start, *stretch));
        if let Some((start, (end, owner))) = before
            && end > block.offset
        {
            self.stretches.insert(start, (block.offset, owner));
            if end > block.end() {
                self.stretches.insert(block.end(), (end, owner));
            }
        }
        let covered: Vec<usize> =
            self.stretches.range(block.offset..block.end()).map(|(start, _)| *start).collect();
        for start in covered {
            if let Some((end, owner)) = self.stretches.remove(&start)
                && end > block.end()
            {
                self.stretches.insert(block.end(), (end, owner));
            }
        }
        if block.bytes > 0 {
            self.stretches.insert(block.offset, (block.end(), writer));
        }
    }

    fn is_whole(&self, block: Block, tensor: TensorId) -> bool {
        let mut at = block.offset;
        let before = self.stretches.range(..=at).next_back().map(|(start, _)| *start).unwrap_or(at);
        for (start, (end, owner)) in self.stretches.range(before..block.end()) {
            if *end <= at {
                continue;
            }
            if *start > at || *owner != Some(tensor) {
                return false;
            }
            at = *end;
        }
        at >= block.end()
    }
}

/// Runs the plan with names for values.
fn memory(plan: &ProgramPlan, layout: &dyn Layout) -> Result<(), PlanError> {
    let program = &plan.program;
    let wrong = |node: usize, fault: String| PlanError::Wrong { program: program.name.clone(), node, fault };
    let name = |id: TensorId| &program.tensor(id).name;
    let place = |node: usize, id: TensorId| {
        let needed = layout.bytes(program.tensor(id));
        match plan.places.get(id.index()).copied().flatten() {
            None => Err(wrong(node, format!("`{}` has no place", name(id)))),
            Some(block) if block.bytes < needed || block.end() > plan.arena_bytes => {
                Err(wrong(node, format!("`{}` needs {needed} bytes, its place is {block:?}", name(id))))
            }
            Some(block) if !block.offset.is_multiple_of(layout.alignment()) => {
                Err(wrong(node, format!("`{}` is not aligned: {block:?}", name(id))))
            }
            Some(block) => Ok(block),
        }
    };
    let mut bytes = Bytes::default();
    for id in program.ids() {
        let role = program.tensor(id).role;
        if role == Role::Input || role.is_persistent() {
            let block = place(0, id)?;
            for other in program.ids().take(id.index()).filter(|other| {
                let role = program.tensor(*other).role;
                role == Role::Input || role.is_persistent()
            }) {
                if place(0, other)?.meets(&block) {
                    return Err(wrong(0, format!("`{}` overlaps `{}`", name(id), name(other))));
                }
            }
            bytes.write(block, Some(id));
        }
    }
    for (at, node) in program.nodes.iter().enumerate() {
        for id in &node.inputs {
            if !bytes.is_whole(place(at, *id)?, *id) {
                return Err(wrong(at, format!("`{}` was overwritten before it is read", name(*id))));
            }
        }
        let scratch = plan.scratch.get(at).copied().unwrap_or_default();
        let needed = layout.scratch(program, node);
        if scratch.bytes < needed || scratch.end() > plan.arena_bytes {
            return Err(wrong(at, format!("the scratch needs {needed} bytes, its place is {scratch:?}")));
        }
        if let Some(id) = node
            .inputs
            .iter()
            .chain(&node.outputs)
            .find(|id| plan.places[id.index()].is_some_and(|block| block.meets(&scratch)))
        {
            return Err(wrong(at, format!("the scratch overlaps `{}`", name(*id))));
        }
        let pairs = node.op.rule().in_place();
        for (result, id) in node.outputs.iter().enumerate() {
            let block = place(at, *id)?;
            if let Some(other) = node.outputs[..result]
                .iter()
                .find(|other| plan.places[other.index()].is_some_and(|place| place.meets(&block)))
            {
                return Err(wrong(at, format!("`{}` overlaps `{}`", name(*id), name(*other))));
            }
            for (operand, input) in node.inputs.iter().enumerate().filter(|(_, input)| *input != id) {
                let input_block = place(at, *input)?;
                let allowed = pairs.contains(&(result, operand)) && input_block == block;
                if input_block.meets(&block) && !allowed {
                    return Err(wrong(
                        at,
                        format!("`{}` overwrites its operand `{}`", name(*id), name(*input)),
                    ));
                }
            }
        }
        bytes.write(scratch, None);
        for id in &node.outputs {
            bytes.write(place(at, *id)?, Some(*id));
        }
    }
    let end = program.nodes.len();
    for id in program.ids() {
        let role = program.tensor(id).role;
        if (role.is_persistent() || role == Role::Output) && !bytes.is_whole(place(end, id)?, id) {
            return Err(wrong(end, format!("`{}` does not survive to the end", name(id))));
        }
    }
    Ok(())
}

/// Checks that two programs leave the same values in every output, parameter and state: that the same ops are applied to
/// the same values to make them, where reading through a normalising load is the same as reading the normalised, and a folded
/// head the same as its logits.
///
/// # Errors
/// Naming the first that differs.
pub fn equivalent(given: &Program, scheduled: &Program) -> Result<(), PlanError> {
    let mut values = Values::default();
    let first = values.results(given);
    let second = values.results(scheduled);
    for (name, value) in &first {
        if second.get(name) != Some(value) {
            return Err(PlanError::Wrong {
                program: given.name.clone(),
                node: scheduled.nodes.len(),
                fault: format!("`{name}` is not computed as the program says"),
            });
        }
    }
    Ok(())
}

/// Checks that each tensor that a node makes is what it stands for: the given program's tensor of the same id, or the
/// one that it is a copy of.
fn copies(given: &Program, plan: &ProgramPlan) -> Result<(), PlanError> {
    let mut values = Values::default();
    let (first, second) = (values.of(given), values.of(&plan.program));
    for (node, id) in
        plan.program.nodes.iter().enumerate().flat_map(|(at, n)| n.outputs.iter().map(move |id| (at, id)))
    {
        if first.get(&plan.origin(*id)) != second.get(id) {
            let fault = format!("`{}` is not what it stands for", plan.program.tensor(*id).name);
            return Err(PlanError::Wrong { program: given.name.clone(), node, fault });
        }
    }
    Ok(())
}

/// A number for each distinct value: two values made by the same op from the same values are one.
#[derive(Default)]
struct Values {
    known: HashMap<(String, Vec<usize>), usize>,
}

impl Values {
    fn number(&mut self, made_by: String, of: Vec<usize>) -> usize {
        let next = self.known.len();
        *self.known.entry((made_by, of)).or_insert(next)
    }

    /// The values of all outputs, parameters and states after the program, by name.
    fn results(&mut self, program: &Program) -> HashMap<String, usize> {
        let values = self.of(program);
        program
            .ids()
            .filter(|id| program.tensor(*id).role != Role::Intermediate)
            .filter_map(|id| Some((program.tensor(id).name.clone(), *values.get(&id)?)))
            .collect()
    }

    /// The values of all tensors after the program.
    fn of(&mut self, program: &Program) -> HashMap<TensorId, usize> {
        let mut current: HashMap<TensorId, usize> = HashMap::new();
        for id in program.ids() {
            let tensor = program.tensor(id);
            if tensor.role == Role::Input || tensor.role.is_persistent() {
                current.insert(id, self.number(format!("given {}", tensor.name), Vec::new()));
            }
        }
        for node in &program.nodes {
            let of: Vec<usize> = node.inputs.iter().filter_map(|id| current.get(id).copied()).collect();
            let results = match &node.op {
                Op::HeadStats(op) => vec![self.of_head(&op.head, &op.stats.clone().into(), &of)],
                Op::HeadCounts(op) => vec![self.of_head(&op.head, &op.counts.into(), &of)],
                Op::HeadGrad(op) => {
                    let map = &program.tensor(node.outputs[0]).shape;
                    self.of_head_grad(op, (map.channels(), map.spatial()), &of)
                }
                op => (0..node.outputs.len()).map(|result| self.apply(op, result, of.clone())).collect(),
            };
            current.extend(node.outputs.iter().copied().zip(results));
        }
        current
    }

    /// A result of an op.
    fn apply(&mut self, op: &Op, result: usize, of: Vec<usize>) -> usize {
        let (op, mut of) = self.unfold(op, of);
        if matches!(op, Op::CompositeLoss(_)) {
            // What else it names is read by its gradient only.
            of.truncate(1);
        }
        self.number(format!("{result} of {op:?}"), of)
    }

    /// An op that reads logits, of a head's.
    fn of_head(&mut self, head: &Head, op: &Op, of: &[usize]) -> usize {
        let (own, rest) = of.split_at(head.operands().min(of.len()));
        let logits = self.apply(&head.conv().into(), 0, own.to_vec());
        self.apply(op, 0, [&[logits], rest].concat())
    }

    /// The gradients of a head, one by one.
    fn of_head_grad(
        &mut self,
        op: &HeadGrad,
        (channels, output): (usize, [usize; 3]),
        of: &[usize],
    ) -> Vec<usize> {
        let own = op.head.operands();
        let (Some(loss), Some(weights)) = (of.get(..own + 3), of.get(op.head.load.operands())) else {
            return Vec::new();
        };
        let gradient = self.of_head(&op.head, &CompositeLossGrad { loss: op.loss.clone() }.into(), loss);
        let (transposed, of_weights) = op.convolutions(channels, output);
        let back = [&[gradient, *weights], &of[own + 3..]].concat();
        let map = [&of[..op.head.load.operands()], &[gradient]].concat();
        let mut all = vec![self.apply(&transposed.into(), 0, back), self.apply(&of_weights.into(), 0, map)];
        if op.head.bias {
            all.push(self.apply(&ChannelSum.into(), 0, vec![gradient]));
        }
        all
    }

    /// The op with plain loads, and the values it then reads.
    fn unfold(&mut self, op: &Op, of: Vec<usize>) -> (Op, Vec<usize>) {
        let mut op = op.clone();
        let mut loads = match &mut op {
            Op::Conv(conv) => conv.loads.iter_mut().collect(),
            Op::ConvTranspose(conv) => vec![&mut conv.load],
            Op::ConvWeightGrad(conv) => {
                let mut loads: Vec<&mut Load> = conv.loads.iter_mut().collect();
                loads.push(&mut conv.result_load);
                loads
            }
            _ => Vec::new(),
        };
        let mut rest = of.as_slice();
        let mut read = Vec::with_capacity(of.len());
        for load in &mut loads {
            let (own, after) = rest.split_at(load.operands().min(rest.len()));
            rest = after;
            match **load {
                Load::Plain => read.extend(own),
                Load::NormAct { slope, affine } => {
                    let norm = Op::from(NormAct { slope, affine });
                    read.push(self.number(format!("0 of {norm:?}"), own.to_vec()));
                    **load = Load::Plain;
                }
            }
        }
        read.extend(rest);
        (op, read)
    }
}
