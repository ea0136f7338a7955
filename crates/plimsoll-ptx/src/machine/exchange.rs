//! Instructions that exchange values between the lanes of a warp.

use super::Machine;
use super::warp::Warp;
use crate::fault::{Trouble, What};
use crate::instruction::{Flag, Operation, ShuffleMode, Update, VoteMode};
use crate::lanes::{Lanes, Slot, WARP, lanes};

/// The operands of `shfl.sync`.
pub(super) struct ShuffleRequest {
    pub to: Slot,
    pub inside: Option<Slot>,
    pub a: Slot,
    pub lane: Slot,
    pub clamp: Slot,
    pub mode: ShuffleMode,
}

impl Machine<'_> {
    /// The lanes without which an instruction cannot run; none for most.
    pub(super) fn needed(&self, warp: &Warp, operation: &Operation, active: u32) -> Result<u32, Trouble> {
        let mask = match *operation {
            Operation::WarpBarrier { mask }
            | Operation::Shuffle { mask, .. }
            | Operation::Vote { mask, .. }
            | Operation::MatchAny { mask, .. }
            | Operation::MatchAll { mask, .. }
            | Operation::ReduceWarp { mask, .. } => mask,
            Operation::Barrier { .. }
            | Operation::LoadMatrix { .. }
            | Operation::Mma(_)
            | Operation::Warpgroup(_) => {
                return Ok(warp.live);
            }
            _ => return Ok(0),
        };
        let masks = warp.read(mask, active, self.kernel)?;
        let mut needed = 0;
        for lane in lanes(active) {
            let mask = masks[lane] as u32;
            if mask >> lane & 1 == 0 {
                return Err(Trouble::new(lane, What::NotInMask { mask }));
            }
            needed |= mask & warp.live;
        }
        Ok(needed)
    }

    /// The lanes that take part together, which are those that gave the same mask, of an instruction whose lanes are all
    /// there.
    pub(super) fn parties(&self, warp: &Warp, mask: Slot, active: u32) -> Result<Vec<u32>, Trouble> {
        let masks = warp.read(mask, active, self.kernel)?;
        let mut parties = Vec::new();
        let mut left = active;
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let mask = masks[first] as u32;
            let members =
                lanes(left).filter(|&lane| masks[lane] as u32 == mask).fold(0, |sum, lane| sum | 1 << lane);
            let needed = mask & warp.live;
            if members != needed {
                return Err(Trouble::new(first, What::WarpDivergence { needed, arrived: members }));
            }
            parties.push(members);
            left &= !members;
        }
        Ok(parties)
    }

    pub(super) fn shuffle(
        &self,
        warp: &mut Warp,
        request: &ShuffleRequest,
        party: u32,
    ) -> Result<(), Trouble> {
        let kernel = self.kernel;
        let distance = *warp.read(request.lane, party, kernel)?;
        let clamps = *warp.read(request.clamp, party, kernel)?;
        let (values, assigned) = warp.peek(request.a);
        let mut results: Lanes = [0; WARP];
        let mut inside = 0_u32;
        for lane in lanes(party) {
            let own = lane as i64;
            let by = (distance[lane] & 31) as i64;
            // The third operand holds the clamp in bits 0 to 4 and the mask of the segment in bits 8 to 12.
            let (clamp, segment) = ((clamps[lane] & 31) as i64, (clamps[lane] >> 8 & 31) as i64);
            let first = own & segment;
            let last = first | (clamp & !segment);
            let (source, valid) = match request.mode {
                ShuffleMode::Up => (own - by, own - by >= last),
                ShuffleMode::Down => (own + by, own + by <= last),
                ShuffleMode::Butterfly => (own ^ by, own ^ by <= last),
                ShuffleMode::Index => {
                    let source = first | (by & !segment);
                    (source, source <= last)
                }
            };
            let source = if valid { source as usize } else { lane };
            if party >> source & 1 == 0 {
                return Err(Trouble::new(lane, What::ShuffleFromAbsent { lane: source }));
            }
            if assigned >> source & 1 == 0 {
                let register = kernel.register_names[request.a].clone();
                return Err(Trouble::new(source, What::Unassigned { register }));
            }
            results[lane] = values[source] & 0xffff_ffff;
            inside |= u32::from(valid) << lane;
        }
        warp.write(request.to, party, &results);
        if let Some(flag) = request.inside {
            warp.set(flag, party, inside);
        }
        Ok(())
    }

    pub(super) fn vote(
        &self,
        warp: &mut Warp,
        to: Slot,
        flag: Flag,
        mode: VoteMode,
        party: u32,
    ) -> Result<(), Trouble> {
        let holds = warp.test(flag, party, self.kernel)?;
        let truth = match mode {
            VoteMode::All => holds == party,
            VoteMode::Any => holds != 0,
            VoteMode::Uniform => holds == 0 || holds == party,
            VoteMode::Ballot => {
                warp.write(to, party, &[holds.into(); WARP]);
                return Ok(());
            }
        };
        warp.set(to, party, if truth { party } else { 0 });
        Ok(())
    }

    pub(super) fn match_any(&self, warp: &mut Warp, to: Slot, a: Slot, party: u32) -> Result<(), Trouble> {
        let values = *warp.read(a, party, self.kernel)?;
        let results: Lanes = std::array::from_fn(|lane| {
            let same = lanes(party).filter(|&other| values[other] == values[lane]);
            u64::from(same.fold(0_u32, |mask, other| mask | 1 << other))
        });
        warp.write(to, party, &results);
        Ok(())
    }

    pub(super) fn match_all(
        &self,
        warp: &mut Warp,
        to: Slot,
        same: Option<Slot>,
        a: Slot,
        party: u32,
    ) -> Result<(), Trouble> {
        let values = warp.read(a, party, self.kernel)?;
        let first = values[party.trailing_zeros() as usize % WARP];
        let all = lanes(party).all(|lane| values[lane] == first);
        let result = if all { party } else { 0 };
        warp.write(to, party, &[result.into(); WARP]);
        if let Some(flag) = same {
            warp.set(flag, party, result);
        }
        Ok(())
    }

    pub(super) fn reduce_warp(
        &self,
        warp: &mut Warp,
        to: Slot,
        a: Slot,
        update: Update,
        party: u32,
    ) -> Result<(), Trouble> {
        let values = warp.read(a, party, self.kernel)?;
        let result = lanes(party)
            .map(|lane| values[lane] & 0xffff_ffff)
            .reduce(|sum, value| update(sum, value, value) & 0xffff_ffff);
        warp.write(to, party, &[result.unwrap_or(0); WARP]);
        Ok(())
    }
}
