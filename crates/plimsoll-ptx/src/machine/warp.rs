//! The state of a warp, and which of its lanes run next.
//!
//! Each lane has a position in the program. Of the lanes that can run, those at the lowest position do, until they
//! reach the position of others, which then run with them, or jump past them. Loops and branches that a compiler laid
//! out forwards reconverge where they end.

use super::Machine;
use super::copies::Copies;
use super::step::Flow;
use super::warpgroup::Products;
use crate::fault::{Trouble, What};
use crate::instruction::{Flag, Operation};
use crate::lanes::{ALL, Lanes, Slot, WARP, lanes, low};
use crate::launch::Launch;
use crate::module::{Kernel, Special, TRUE};

/// The state of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// At a barrier of this number.
    Waiting(u64),
    Done,
}

/// A warp.
pub(crate) struct Warp {
    /// In its block.
    pub number: usize,
    pub state: State,
    /// Lanes that are threads of the block: all, except in the last warp.
    pub threads: u32,
    /// Lanes that have not returned.
    pub live: u32,
    /// Lanes that wait for others of the warp.
    pub waiting: u32,
    /// The next instruction of each lane.
    places: [usize; WARP],
    /// The instruction that runs, for messages.
    pub at: usize,
    registers: Vec<Lanes>,
    /// Lanes in which a register was assigned.
    assigned: Vec<u32>,
    predicates: Vec<u32>,
    predicates_assigned: Vec<u32>,
    /// Local memory, lane after lane.
    pub local: Vec<u8>,
    pub local_written: Vec<bool>,
    pub copies: Copies,
    /// Those of its warp group.
    pub products: Products,
    /// Instructions so far.
    ran: u64,
}

impl Warp {
    /// The warp of a block with this number of threads.
    pub fn new(number: usize, threads: usize, kernel: &Kernel) -> Warp {
        Warp {
            number,
            state: State::Done,
            threads: low((threads - number * WARP).min(WARP) as u32) as u32,
            live: 0,
            waiting: 0,
            places: [0; WARP],
            at: 0,
            registers: vec![[0; WARP]; kernel.register_names.len()],
            assigned: vec![0; kernel.register_names.len()],
            predicates: vec![0; kernel.predicate_names.len()],
            predicates_assigned: vec![0; kernel.predicate_names.len()],
            local: vec![0; kernel.local_bytes * WARP],
            local_written: vec![false; kernel.local_bytes * WARP],
            copies: Copies::default(),
            products: Products::default(),
            ran: 0,
        }
    }

    /// At the start of a block.
    pub fn start(&mut self, kernel: &Kernel, launch: &Launch<'_>, block: u32) {
        self.state = State::Ready;
        self.live = self.threads;
        self.waiting = 0;
        self.places = [0; WARP];
        self.ran = 0;
        self.copies = Copies::default();
        self.products = Products::new(kernel);
        self.assigned.fill(0);
        self.predicates_assigned.fill(0);
        self.local_written.fill(false);
        self.predicates[TRUE] = ALL;
        self.predicates_assigned[..=TRUE].fill(ALL);
        for &(slot, value) in &kernel.constants {
            self.registers[slot] = [value; WARP];
            self.assigned[slot] = ALL;
        }
        for &(slot, special) in &kernel.specials {
            self.registers[slot] = special_values(special, self.number, kernel, launch, block);
            self.assigned[slot] = ALL;
        }
    }

    /// The values of a register, which has to be assigned in these lanes.
    #[inline]
    pub fn read(&self, slot: Slot, mask: u32, kernel: &Kernel) -> Result<&Lanes, Trouble> {
        self.products.note(slot);
        let missing = mask & !self.assigned[slot];
        if missing != 0 {
            let register = kernel.register_names[slot].clone();
            return Err(Trouble::new(missing.trailing_zeros() as usize, What::Unassigned { register }));
        }
        Ok(&self.registers[slot])
    }

    /// The values of a register and in which lanes it was assigned.
    pub fn peek(&self, slot: Slot) -> (&Lanes, u32) {
        self.products.note(slot);
        self.operand(slot)
    }

    /// The same for a product of the warp group, which has the register.
    pub fn operand(&self, slot: Slot) -> (&Lanes, u32) {
        (&self.registers[slot], self.assigned[slot])
    }

    /// Assigns these lanes.
    #[inline]
    pub fn write(&mut self, slot: Slot, mask: u32, values: &Lanes) {
        self.products.note(slot);
        self.put(slot, mask, values);
    }

    /// The same for a product of the warp group, which has the register.
    #[inline]
    pub fn put(&mut self, slot: Slot, mask: u32, values: &Lanes) {
        let register = &mut self.registers[slot];
        if mask == ALL {
            *register = *values;
        } else {
            for lane in lanes(mask) {
                register[lane] = values[lane];
            }
        }
        self.assigned[slot] |= mask;
    }

    /// Assigns these lanes values of which only those in `known` were assigned themselves.
    pub fn write_partly(&mut self, slot: Slot, mask: u32, values: &Lanes, known: u32) {
        self.write(slot, mask, values);
        self.assigned[slot] &= !mask | known;
    }

    /// Assigns one lane.
    #[inline]
    pub fn write_lane(&mut self, slot: Slot, lane: usize, value: u64) {
        self.products.note(slot);
        self.registers[slot][lane] = value;
        self.assigned[slot] |= 1 << lane;
    }

    /// The lanes of `mask` in which a predicate holds.
    #[inline]
    pub fn test(&self, flag: Flag, mask: u32, kernel: &Kernel) -> Result<u32, Trouble> {
        let missing = mask & !self.predicates_assigned[flag.slot];
        if missing != 0 {
            let register = kernel.predicate_names[flag.slot].clone();
            return Err(Trouble::new(missing.trailing_zeros() as usize, What::Unassigned { register }));
        }
        let value = self.predicates[flag.slot];
        Ok(mask & if flag.negated { !value } else { value })
    }

    /// A predicate in all lanes, and in which it was assigned.
    pub fn peek_flag(&self, flag: Flag) -> (u32, u32) {
        let value = self.predicates[flag.slot];
        (if flag.negated { !value } else { value }, self.predicates_assigned[flag.slot])
    }

    /// Assigns a predicate in these lanes.
    pub fn set(&mut self, slot: Slot, mask: u32, value: u32) {
        self.set_partly(slot, mask, value, mask);
    }

    /// Assigns a predicate in these lanes; only those in `known` were assigned themselves.
    pub fn set_partly(&mut self, slot: Slot, mask: u32, value: u32, known: u32) {
        let predicate = &mut self.predicates[slot];
        *predicate = *predicate & !mask | value & mask;
        let assigned = &mut self.predicates_assigned[slot];
        *assigned = *assigned & !mask | known & mask;
    }

    fn place(&mut self, mask: u32, at: usize) {
        for lane in lanes(mask) {
            self.places[lane] = at;
        }
    }

    fn together(&self, at: usize) -> u32 {
        lanes(self.live).filter(|&lane| self.places[lane] == at).fold(0, |mask, lane| mask | 1 << lane)
    }

    fn lowest(&self, mask: u32) -> Option<usize> {
        lanes(mask).map(|lane| self.places[lane]).min()
    }
}

impl Machine<'_> {
    /// Runs a warp until it has returned or waits at a barrier.
    pub(super) fn run_warp(&mut self, warp: &mut Warp) -> Result<(), Trouble> {
        while warp.live != 0 {
            let at = match warp.lowest(warp.live & !warp.waiting) {
                Some(at) => at,
                None => self.resume(warp)?,
            };
            let mask = warp.together(at);
            warp.waiting &= !mask;
            if self.run_lanes(warp, mask, at)? {
                return Ok(());
            }
        }
        warp.state = State::Done;
        Ok(())
    }

    /// All lanes wait for others of the warp. Some may have what they need, because others have returned.
    fn resume(&self, warp: &mut Warp) -> Result<usize, Trouble> {
        let mut left = warp.live;
        let mut trouble = None;
        while let Some(at) = warp.lowest(left) {
            let mask = warp.together(at);
            left &= !mask;
            let instruction = &self.kernel.code[at];
            let active = match instruction.guard {
                Some(guard) => warp.test(guard, mask, self.kernel)?,
                None => mask,
            };
            warp.at = at;
            let needed = self.needed(warp, &instruction.operation, active)?;
            if needed & !active == 0 {
                return Ok(at);
            }
            if trouble.is_none() {
                let lane = active.trailing_zeros() as usize;
                let what = match instruction.operation {
                    Operation::Barrier { id, .. } => {
                        What::BarrierDivergence { barrier: warp.read(id, active, self.kernel)?[lane] }
                    }
                    _ => What::WarpDivergence { needed, arrived: active },
                };
                trouble = Some((at, Trouble::new(lane, what)));
            }
        }
        let (at, trouble) =
            trouble.unwrap_or((0, Trouble::new(0, What::Operand("no lane is left".to_owned()))));
        warp.at = at;
        Err(trouble)
    }

    /// Runs lanes that are at the same place until they part, meet others or wait. True at a barrier.
    fn run_lanes(&mut self, warp: &mut Warp, mut mask: u32, mut at: usize) -> Result<bool, Trouble> {
        let kernel = self.kernel;
        let meet = warp.lowest(warp.live & !mask).unwrap_or(usize::MAX);
        loop {
            let instruction = &kernel.code[at];
            warp.at = at;
            warp.ran += 1;
            if warp.ran > self.module.limit {
                return Err(self.runaway());
            }
            let active = match instruction.guard {
                Some(guard) => warp.test(guard, mask, kernel)?,
                None => mask,
            };
            let count = &mut self.by_opcode[instruction.opcode];
            count.instructions += 1;
            count.lanes += u64::from(active.count_ones());
            // Jumps of no lane are no jumps; other instructions of no lane do nothing.
            let flow =
                if active == 0 { Flow::Next } else { self.step(warp, &instruction.operation, active)? };
            if let Some(slot) = warp.products.take_early() {
                let what = What::Multiplying { register: kernel.register_names[slot].clone() };
                return Err(Trouble::new(active.trailing_zeros() as usize % WARP, what));
            }
            let rest = mask & !active;
            match flow {
                Flow::Next => at += 1,
                Flow::Jump(target) if rest == 0 => {
                    at = target;
                    if at < meet {
                        continue;
                    }
                }
                Flow::Jump(target) => {
                    warp.place(active, target);
                    warp.place(rest, at + 1);
                    return Ok(false);
                }
                Flow::Scatter(targets) => {
                    for lane in lanes(active) {
                        warp.places[lane] = targets[lane] as usize;
                    }
                    warp.place(rest, at + 1);
                    return Ok(false);
                }
                Flow::Exit => {
                    warp.live &= !active;
                    mask = rest;
                    if mask == 0 {
                        return Ok(false);
                    }
                    at += 1;
                }
                Flow::Wait => {
                    let count = &mut self.by_opcode[instruction.opcode];
                    count.instructions -= 1;
                    count.lanes -= u64::from(active.count_ones());
                    warp.place(active, at);
                    warp.place(rest, at + 1);
                    warp.waiting |= active;
                    return Ok(false);
                }
                Flow::Barrier => {
                    warp.place(mask, at + 1);
                    return Ok(true);
                }
            }
            if at >= meet {
                warp.place(mask, at);
                return Ok(false);
            }
        }
    }
}

fn special_values(special: Special, warp: usize, kernel: &Kernel, launch: &Launch<'_>, block: u32) -> Lanes {
    let [x, y, _] = launch.block;
    let [blocks_x, blocks_y, _] = launch.grid;
    let threads: u32 = launch.block.iter().product();
    let split = |number: u32, x: u32, y: u32, axis: usize| match axis {
        0 => number % x,
        1 => number / x % y,
        _ => number / x / y,
    };
    std::array::from_fn(|lane| {
        let thread = (warp * WARP + lane) as u32;
        let own = 1_u32 << lane;
        u64::from(match special {
            Special::Thread(axis) => split(thread, x, y, axis),
            Special::Threads(axis) => launch.block[axis],
            Special::Block(axis) => split(block, blocks_x, blocks_y, axis),
            Special::Blocks(axis) => launch.grid[axis],
            Special::Lane => lane as u32,
            Special::Warp => warp as u32,
            Special::Warps => threads.div_ceil(WARP as u32),
            Special::LanesEqual => own,
            Special::LanesBelow => own - 1,
            Special::LanesUpTo => own | (own - 1),
            Special::LanesAbove => !(own | (own - 1)),
            Special::LanesFrom => !(own - 1),
            Special::DynamicShared => launch.shared_bytes,
            Special::TotalShared => kernel.shared_bytes as u32 + launch.shared_bytes,
        })
    })
}
