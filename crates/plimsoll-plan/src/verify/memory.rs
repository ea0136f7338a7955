//! The check that every read returns the right value when launches run in the arena.

use std::collections::BTreeMap;

use plimsoll_graph::{Program, Role, TensorId};

use crate::{Block, Launch, LoweredProgram, PlanError, ProgramPlan};

/// A program with its lowering and its schedule.
pub(super) struct Scheduled<'a> {
    pub(super) program: &'a Program,
    pub(super) lowered: &'a LoweredProgram,
    pub(super) schedule: &'a ProgramPlan,
    pub(super) alignment: usize,
}

/// The last writer of each byte of the arena; absent bytes have none.
#[derive(Default)]
struct Owners {
    /// Disjoint stretches by their start: their end, and whose they are (none: scratch).
    stretches: BTreeMap<usize, (usize, Option<TensorId>)>,
}

impl Owners {
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
        let before = self.stretches.range(..=at).next_back().map_or(at, |(start, _)| *start);
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

impl Scheduled<'_> {
    pub(super) fn wrong(&self, launch: usize, fault: String) -> PlanError {
        PlanError::Wrong { program: self.program.name.clone(), launch, fault }
    }

    /// The name of a tensor or copy.
    pub(super) fn name(&self, id: TensorId) -> String {
        match self.schedule.origin(id).and_then(|origin| self.program.tensors.get(origin.index())) {
            Some(tensor) if id.index() < self.program.tensors.len() => format!("`{}`", tensor.name),
            Some(tensor) => format!("a copy of `{}`", tensor.name),
            None => id.to_string(),
        }
    }

    /// Checks that everything that the schedule names is there: tensors, copies, lowered nodes and their operands.
    pub(super) fn check_form(&self) -> Result<(), PlanError> {
        let (tensors, copies) = (self.program.tensors.len(), self.schedule.copies.len());
        if self.schedule.places.len() != tensors + copies || self.lowered.bytes.len() != tensors {
            let places = self.schedule.places.len();
            return Err(self.wrong(0, format!("{places} places for {tensors} tensors and {copies} copies")));
        }
        // A copy is of a value of this run: what keeps its value, or is read after the run, has one place.
        let is_copied = |id: &TensorId| {
            self.program.tensors.get(id.index()).is_some_and(|tensor| tensor.role == Role::Intermediate)
        };
        if let Some(id) = self.schedule.copies.iter().find(|id| !is_copied(id)) {
            return Err(self.wrong(0, format!("{id} has a copy, but is no value of the run")));
        }
        for (at, launch) in self.schedule.launches.iter().enumerate() {
            let Some(node) = self.lowered.nodes.get(launch.node) else {
                return Err(self.wrong(at, format!("there is no lowered node {}", launch.node)));
            };
            if (launch.inputs.len(), launch.outputs.len()) != (node.inputs.len(), node.outputs.len()) {
                return Err(self.wrong(at, "it has another number of operands than its node".into()));
            }
            let alike = |(id, own): (&TensorId, &TensorId)| self.schedule.origin(*id) == Some(*own);
            let inputs = launch.inputs.iter().zip(&node.inputs);
            if !inputs.chain(launch.outputs.iter().zip(&node.outputs)).all(alike) {
                return Err(self.wrong(at, "an operand is not that of its node, or a copy of it".into()));
            }
            let writes_input = |id: &&TensorId| {
                self.program.tensors.get(id.index()).is_some_and(|tensor| tensor.role == Role::Input)
            };
            if let Some(id) = launch.outputs.iter().find(writes_input) {
                return Err(self.wrong(at, format!("it writes the input {}", self.name(*id))));
            }
        }
        Ok(())
    }

    /// Bytes of a tensor or copy.
    fn bytes(&self, id: TensorId) -> Option<usize> {
        self.lowered.bytes.get(self.schedule.origin(id)?.index()).copied()
    }

    /// The place of a tensor, which must be large enough, aligned, and in the arena.
    fn place(&self, launch: usize, id: TensorId, arena: usize) -> Result<Block, PlanError> {
        let (Some(block), Some(needed)) = (self.schedule.place(id), self.bytes(id)) else {
            return Err(self.wrong(launch, format!("{} has no place", self.name(id))));
        };
        self.check_block(launch, block, needed, arena, || self.name(id))?;
        Ok(block)
    }

    fn check_block(
        &self,
        launch: usize,
        block: Block,
        needed: usize,
        arena: usize,
        name: impl Fn() -> String,
    ) -> Result<(), PlanError> {
        let is_inside = block.offset.checked_add(block.bytes).is_some_and(|end| end <= arena);
        if block.bytes < needed || !is_inside {
            let name = name();
            return Err(
                self.wrong(launch, format!("{name} needs {needed} bytes, its place is {block:?} of {arena}"))
            );
        }
        if !block.offset.is_multiple_of(self.alignment) {
            return Err(self.wrong(launch, format!("{} is not aligned: {block:?}", name())));
        }
        Ok(())
    }

    /// Runs the launches with names for values.
    pub(super) fn check_memory(&self, arena: usize) -> Result<(), PlanError> {
        if self.schedule.arena_bytes > arena {
            let own = self.schedule.arena_bytes;
            return Err(self.wrong(0, format!("it needs an arena of {own} bytes, there are {arena}")));
        }
        let arena = self.schedule.arena_bytes;
        self.check_places(arena)?;
        let mut owners = Owners::default();
        self.write_given(&mut owners, arena)?;
        for (at, launch) in self.schedule.launches.iter().enumerate() {
            for id in &launch.inputs {
                if !owners.is_whole(self.place(at, *id, arena)?, *id) {
                    let name = self.name(*id);
                    return Err(self.wrong(at, format!("{name} was overwritten before it is read")));
                }
            }
            self.check_scratch(at, launch, arena)?;
            self.check_outputs(at, launch, arena)?;
            owners.write(launch.scratch, None);
            for id in &launch.outputs {
                owners.write(self.place(at, *id, arena)?, Some(*id));
            }
        }
        let end = self.schedule.launches.len();
        for id in self.program.ids() {
            let role = self.program.tensor(id).role;
            let survives = role.is_persistent() || role == Role::Output;
            if survives && !owners.is_whole(self.place(end, id, arena)?, id) {
                return Err(self.wrong(end, format!("{} does not survive to the end", self.name(id))));
            }
        }
        Ok(())
    }

    /// Every place is sound, also those that no launch touches: the host may read and write them.
    fn check_places(&self, arena: usize) -> Result<(), PlanError> {
        let places = self.schedule.places.iter().enumerate().filter(|(_, place)| place.is_some());
        for (index, _) in places {
            self.place(0, TensorId(index as u32), arena)?;
        }
        Ok(())
    }

    /// Inputs, parameters and states are there before the first launch, each in bytes of its own.
    fn write_given(&self, owners: &mut Owners, arena: usize) -> Result<(), PlanError> {
        let given = self.program.ids().filter(|id| {
            let role = self.program.tensor(*id).role;
            role == Role::Input || role.is_persistent()
        });
        let mut blocks: Vec<(Block, TensorId)> = Vec::new();
        for id in given {
            let block = self.place(0, id, arena)?;
            owners.write(block, Some(id));
            // One without bytes would hide that its neighbours overlap.
            if block.bytes > 0 {
                blocks.push((block, id));
            }
        }
        blocks.sort_by_key(|(block, _)| (block.offset, block.end()));
        for pair in blocks.windows(2) {
            if pair[0].0.meets(&pair[1].0) {
                let (first, second) = (self.name(pair[0].1), self.name(pair[1].1));
                return Err(self.wrong(0, format!("{second} overlaps {first}")));
            }
        }
        Ok(())
    }

    fn check_scratch(&self, at: usize, launch: &Launch, arena: usize) -> Result<(), PlanError> {
        let needed = self.lowered.nodes[launch.node].scratch;
        self.check_block(at, launch.scratch, needed, arena, || "the scratch".into())?;
        for id in launch.inputs.iter().chain(&launch.outputs) {
            if self.place(at, *id, arena)?.meets(&launch.scratch) {
                return Err(self.wrong(at, format!("the scratch overlaps {}", self.name(*id))));
            }
        }
        Ok(())
    }

    /// A result does not overlap the others and the operands, except one whose place it may take.
    fn check_outputs(&self, at: usize, launch: &Launch, arena: usize) -> Result<(), PlanError> {
        let pairs = &self.lowered.nodes[launch.node].in_place;
        for (result, id) in launch.outputs.iter().enumerate() {
            let block = self.place(at, *id, arena)?;
            for other in &launch.outputs[..result] {
                if self.place(at, *other, arena)?.meets(&block) {
                    let (name, other) = (self.name(*id), self.name(*other));
                    return Err(self.wrong(at, format!("{name} overlaps {other}")));
                }
            }
            for (operand, input) in launch.inputs.iter().enumerate().filter(|(_, input)| *input != id) {
                let input_block = self.place(at, *input, arena)?;
                let allowed = pairs.contains(&(result, operand)) && input_block == block;
                if input_block.meets(&block) && !allowed {
                    let (name, input) = (self.name(*id), self.name(*input));
                    return Err(self.wrong(at, format!("{name} overwrites its operand {input}")));
                }
            }
        }
        Ok(())
    }
}
