//! One instruction of a warp.

use super::Machine;
use super::barrier::Request;
use super::exchange::ShuffleRequest;
use super::warp::Warp;
use crate::fault::{Trouble, What};
use crate::instruction::{Logic, Operation};
use crate::lanes::{ALL, Lanes, WARP, lanes, low};

/// The next instruction of the lanes.
pub(super) enum Flow {
    Next,
    Jump(usize),
    /// Each at its own place.
    Scatter(Box<Lanes>),
    Exit,
    /// Here, once the rest of the warp has come.
    Wait,
    /// Behind a barrier, once the rest of the block has come.
    Barrier,
}

impl Machine<'_> {
    /// Runs `operation` in the lanes of `mask`, of which there is at least one.
    pub(super) fn step(
        &mut self,
        warp: &mut Warp,
        operation: &Operation,
        mask: u32,
    ) -> Result<Flow, Trouble> {
        let kernel = self.kernel;
        match operation {
            Operation::Unary { to, a, function } => {
                let result = function(warp.read(*a, mask, kernel)?);
                warp.write(*to, mask, &result);
            }
            Operation::Binary { to, a, b, function } => {
                let result = function(warp.read(*a, mask, kernel)?, warp.read(*b, mask, kernel)?);
                warp.write(*to, mask, &result);
            }
            Operation::Ternary { to, a, b, c, function } => {
                let (a, b) = (warp.read(*a, mask, kernel)?, warp.read(*b, mask, kernel)?);
                let result = function(a, b, warp.read(*c, mask, kernel)?);
                warp.write(*to, mask, &result);
            }
            Operation::Quaternary { to, a, b, c, d, function } => {
                let (a, b) = (warp.read(*a, mask, kernel)?, warp.read(*b, mask, kernel)?);
                let result = function(a, b, warp.read(*c, mask, kernel)?, warp.read(*d, mask, kernel)?);
                warp.write(*to, mask, &result);
            }
            Operation::Move { to, from, keep } => {
                let (values, assigned) = warp.peek(*from);
                let values = values.map(|value| value & keep);
                warp.write_partly(*to, mask, &values, assigned);
            }
            Operation::Select { to, a, b, flag, keep } => {
                let chosen = warp.test(*flag, mask, kernel)?;
                let ((a, a_assigned), (b, b_assigned)) = (warp.peek(*a), warp.peek(*b));
                let values: Lanes = std::array::from_fn(|lane| {
                    keep & if chosen >> lane & 1 == 1 { a[lane] } else { b[lane] }
                });
                warp.write_partly(*to, mask, &values, chosen & a_assigned | !chosen & b_assigned);
            }
            Operation::Pack { to, from, bits } => {
                let mut values: Lanes = [0; WARP];
                let mut known = ALL;
                for (index, &slot) in from.iter().enumerate() {
                    let (part, assigned) = warp.peek(slot);
                    known &= assigned;
                    for (value, part) in values.iter_mut().zip(part) {
                        *value |= (part & low(*bits)) << (bits * index as u32);
                    }
                }
                warp.write_partly(*to, mask, &values, known);
            }
            Operation::Unpack { to, from, bits } => {
                let (values, assigned) = warp.peek(*from);
                let values = *values;
                for (index, &slot) in to.iter().enumerate() {
                    let part = values.map(|value| value >> (bits * index as u32) & low(*bits));
                    warp.write_partly(slot, mask, &part, assigned);
                }
            }
            _ => return self.step_flags(warp, operation, mask),
        }
        Ok(Flow::Next)
    }

    /// Runs an operation that compares values or combines flags.
    fn step_flags(&mut self, warp: &mut Warp, operation: &Operation, mask: u32) -> Result<Flow, Trouble> {
        let kernel = self.kernel;
        match operation {
            Operation::Compare { to, opposite, a, b, test, also } => {
                let holds = test(warp.read(*a, mask, kernel)?, warp.read(*b, mask, kernel)?);
                let combined = |holds: u32| match also {
                    Some((logic, flag)) => Ok(combine(*logic, holds, warp.test(*flag, mask, kernel)?)),
                    None => Ok(holds),
                };
                let (first, second) = (combined(holds)?, combined(!holds)?);
                warp.set(*to, mask, first);
                if let Some(slot) = opposite {
                    warp.set(*slot, mask, second);
                }
            }
            Operation::CompareBoth { to, a, b, tests } => {
                let (a, b) = (*warp.read(*a, mask, kernel)?, *warp.read(*b, mask, kernel)?);
                for (slot, test) in to.iter().zip(tests) {
                    warp.set(*slot, mask, test(&a, &b));
                }
            }
            Operation::Set { to, a, b, test, yes } => {
                let holds = test(warp.read(*a, mask, kernel)?, warp.read(*b, mask, kernel)?);
                let values = std::array::from_fn(|lane| if holds >> lane & 1 == 1 { *yes } else { 0 });
                warp.write(*to, mask, &values);
            }
            Operation::Combine { to, a, b, logic } => {
                let ((a, a_assigned), (b, b_assigned)) = (warp.peek_flag(*a), warp.peek_flag(*b));
                // False and true decide a conjunction and a disjunction whatever the other side is.
                let known = a_assigned & b_assigned
                    | match logic {
                        Logic::And => a_assigned & !a | b_assigned & !b,
                        Logic::Or => a_assigned & a | b_assigned & b,
                        Logic::Xor | Logic::First => 0,
                    };
                warp.set_partly(*to, mask, combine(*logic, a, b), known);
            }
            Operation::ActiveMask { to } => warp.write(*to, mask, &[mask.into(); WARP]),
            _ => return self.step_alone(warp, operation, mask),
        }
        Ok(Flow::Next)
    }

    /// Runs an operation on memory or on the flow of lanes, each of which runs it alone.
    fn step_alone(&mut self, warp: &mut Warp, operation: &Operation, mask: u32) -> Result<Flow, Trouble> {
        let kernel = self.kernel;
        match operation {
            Operation::Branch { target } => return Ok(Flow::Jump(*target)),
            Operation::Switch { index, targets } => {
                let indices = warp.read(*index, mask, kernel)?;
                let mut places = Box::new([0; WARP]);
                for lane in lanes(mask) {
                    let index = (indices[lane] & 0xffff_ffff) as usize;
                    let target = targets.get(index).ok_or_else(|| {
                        let what = format!("jumps to target {index} of {}", targets.len());
                        Trouble::new(lane, What::Operand(what))
                    })?;
                    places[lane] = *target as u64;
                }
                return Ok(Flow::Scatter(places));
            }
            Operation::Exit => return Ok(Flow::Exit),
            Operation::Trap => return Err(Trouble::new(mask.trailing_zeros() as usize, What::Trap)),
            Operation::Nothing => {}
            Operation::ProxyFence => self.timeline.publish(warp.number, mask),
            Operation::Load(access) => self.load(warp, access, mask)?,
            Operation::Store(access) => self.store(warp, access, mask)?,
            Operation::IsSpace { to, a, space } => {
                let holds = self.is_space(warp.read(*a, mask, kernel)?, *space);
                warp.set(*to, mask, holds);
            }
            Operation::Atomic { space, address, bytes, to, operands, update, float_sum } => {
                let place = (*space, *address, *bytes);
                self.atomic(warp, place, *to, *operands, *update, *float_sum, mask)?;
            }
            Operation::CopyAsync(copy) => self.copy_async(warp, copy, mask)?,
            Operation::CommitGroup => warp.copies.commit(mask),
            Operation::WaitGroup(keep) => self.wait_for_copies(warp, Some(*keep), mask)?,
            Operation::WaitAll => self.wait_for_copies(warp, None, mask)?,
            _ => return self.step_together(warp, operation, mask),
        }
        Ok(Flow::Next)
    }

    /// Instructions that lanes run together.
    fn step_together(&mut self, warp: &mut Warp, operation: &Operation, mask: u32) -> Result<Flow, Trouble> {
        if self.needed(warp, operation, mask)? & !mask != 0 {
            return Ok(Flow::Wait);
        }
        match *operation {
            Operation::Barrier { id, threads, reduce, arrive } => {
                let waits = self.barrier(warp, &Request { id, threads, reduce, arrive }, mask)?;
                return Ok(if waits { Flow::Barrier } else { Flow::Next });
            }
            Operation::WarpBarrier { mask: members } => {
                for party in self.parties(warp, members, mask)? {
                    self.timeline.join_lanes(warp.number, party, warp.live);
                }
            }
            Operation::Shuffle { to, inside, a, lane, clamp, mask: members, mode } => {
                let request = ShuffleRequest { to, inside, a, lane, clamp, mode };
                for party in self.parties(warp, members, mask)? {
                    self.shuffle(warp, &request, party)?;
                }
            }
            Operation::Vote { to, flag, mask: members, mode } => {
                for party in self.parties(warp, members, mask)? {
                    self.vote(warp, to, flag, mode, party)?;
                }
            }
            Operation::MatchAny { to, a, mask: members } => {
                for party in self.parties(warp, members, mask)? {
                    self.match_any(warp, to, a, party)?;
                }
            }
            Operation::MatchAll { to, same, a, mask: members } => {
                for party in self.parties(warp, members, mask)? {
                    self.match_all(warp, to, same, a, party)?;
                }
            }
            Operation::ReduceWarp { to, a, mask: members, update } => {
                for party in self.parties(warp, members, mask)? {
                    self.reduce_warp(warp, to, a, update, party)?;
                }
            }
            Operation::LoadMatrix { ref to, address, transposed, space } => {
                whole(mask)?;
                self.load_matrix(warp, to, address, transposed, space)?;
            }
            Operation::Mma(ref mma) => {
                whole(mask)?;
                self.multiply(warp, mma)?;
            }
            Operation::Warpgroup(ref operation) => {
                whole(mask)?;
                self.warpgroup(warp, operation)?;
            }
            _ => {}
        }
        Ok(Flow::Next)
    }
}

fn combine(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
        Logic::First => a,
    }
}

/// All 32 lanes have to be there.
fn whole(mask: u32) -> Result<(), Trouble> {
    if mask == ALL {
        return Ok(());
    }
    let lane = mask.trailing_zeros() as usize;
    Err(Trouble::new(lane, What::WarpDivergence { needed: ALL, arrived: mask }))
}
