//! Barriers of a block.

use super::Machine;
use super::timeline::Horizon;
use super::warp::{State, Warp};
use crate::fault::{Trouble, What};
use crate::instruction::{Flag, Reduction};
use crate::lanes::{ALL, Slot, WARP};

/// The 16 barriers of a block.
#[derive(Default)]
pub(crate) struct Barriers {
    barriers: [Barrier; 16],
}

#[derive(Default)]
struct Barrier {
    arrivals: Vec<Arrival>,
    /// Threads that take part, if it was said.
    expected: Option<u64>,
    horizon: Horizon,
}

struct Arrival {
    warp: usize,
    /// The instruction.
    at: usize,
    waits: bool,
    /// The reduction over the predicates, and this warp's: the bits of lanes that take part, and the bits of those
    /// whose predicate is true.
    reduce: Option<(Reduction, u32, u32)>,
}

/// The operands of a barrier instruction.
pub(super) struct Request {
    pub id: Slot,
    pub threads: Option<Slot>,
    pub reduce: Option<(Reduction, Flag)>,
    pub arrive: bool,
}

impl Machine<'_> {
    /// A whole warp arrives. True if it has to wait.
    pub(super) fn barrier(&mut self, warp: &mut Warp, request: &Request, mask: u32) -> Result<bool, Trouble> {
        let lane = mask.trailing_zeros() as usize;
        let id = warp.read(request.id, mask, self.kernel)?[lane];
        let threads = match request.threads {
            Some(slot) => Some(warp.read(slot, mask, self.kernel)?[lane] & 0xffff_ffff),
            None => None,
        };
        let trouble = |what| Trouble::new(lane, what);
        if threads.is_some_and(|threads| threads == 0 || !threads.is_multiple_of(WARP as u64)) {
            let what = format!("waits for {threads:?} threads, which is no multiple of {WARP}");
            return Err(trouble(What::Operand(what)));
        }
        let reduce = match request.reduce {
            Some((reduction, flag)) => Some((reduction, mask, warp.test(flag, mask, self.kernel)?)),
            None => None,
        };
        let Some(barrier) = self.barriers.barriers.get_mut(id as usize) else {
            return Err(trouble(What::Operand(format!("barrier {id}; there are 0 to 15"))));
        };
        // Without a number all threads of the block take part, at one instruction.
        let elsewhere = barrier.arrivals.iter().any(|other| other.at != warp.at);
        let diverged = threads.is_none() && (warp.live != warp.threads || elsewhere);
        if diverged || (!barrier.arrivals.is_empty() && barrier.expected != threads) {
            return Err(trouble(What::BarrierDivergence { barrier: id }));
        }
        barrier.expected = threads;
        self.timeline.arrive(warp.number, &mut barrier.horizon);
        let arrival = Arrival { warp: warp.number, at: warp.at, waits: !request.arrive, reduce };
        barrier.arrivals.push(arrival);
        if !request.arrive {
            warp.state = State::Waiting(id);
        }
        Ok(!request.arrive)
    }

    /// Lets warps go whose barrier is complete.
    pub(super) fn release(&mut self, warps: &mut [Warp]) -> Result<(), (usize, Trouble)> {
        for (id, barrier) in self.barriers.barriers.iter_mut().enumerate() {
            let arrived = (barrier.arrivals.len() * WARP) as u64;
            let needed = barrier.expected.unwrap_or((warps.len() * WARP) as u64);
            if arrived == 0 || arrived < needed {
                continue;
            }
            if let (true, Some(last)) = (arrived > needed, barrier.arrivals.last()) {
                let what = What::BarrierDivergence { barrier: id as u64 };
                return Err((last.warp, Trouble::new(0, what)));
            }
            let gathered = std::mem::take(barrier);
            let given = gathered.arrivals.iter().filter_map(|arrival| arrival.reduce);
            let (count, all) = given.fold((0, true), |(count, all), (_, lanes, holds)| {
                (count + holds.count_ones(), all && holds == lanes)
            });
            for arrival in gathered.arrivals.iter().filter(|arrival| arrival.waits) {
                let Some(warp) = warps.get_mut(arrival.warp) else { continue };
                self.timeline.leave(arrival.warp, &gathered.horizon);
                warp.state = State::Ready;
                let truth = |holds: bool| if holds { ALL } else { 0 };
                match arrival.reduce {
                    Some((Reduction::Count(to), lanes, _)) => {
                        warp.write(to, lanes, &[count.into(); WARP]);
                    }
                    Some((Reduction::And(to), lanes, _)) => warp.set(to, lanes, truth(all)),
                    Some((Reduction::Or(to), lanes, _)) => warp.set(to, lanes, truth(count > 0)),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// No warp can continue: the fault is reported for one, with the reason.
    pub(super) fn stuck(&self, warps: &[Warp]) -> (usize, Trouble) {
        let returned = warps.iter().any(|warp| warp.state == State::Done);
        let waiting = warps.iter().find_map(|warp| match warp.state {
            State::Waiting(barrier) => Some((warp.number, barrier)),
            _ => None,
        });
        let (number, barrier) = waiting.unwrap_or((0, 0));
        let whole_block =
            self.barriers.barriers.get(barrier as usize).is_some_and(|barrier| barrier.expected.is_none());
        let what = if returned && whole_block {
            What::BarrierDivergence { barrier }
        } else {
            What::Deadlock { barrier }
        };
        (number, Trouble::new(0, what))
    }
}
