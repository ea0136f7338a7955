//! The machine that runs kernels.

mod access;
mod barrier;
mod copies;
mod exchange;
mod global;
pub(crate) mod ranges;
mod shadow;
mod shared;
mod step;
mod tensor;
mod timeline;
mod traffic;
mod warp;
mod warpgroup;

use crate::counts::{Count, Counts};
use crate::fault::{Fault, Trouble, What};
use crate::lanes::WARP;
use crate::launch::{Launch, Order};
use crate::memory::Memory;
use crate::module::{Kernel, Module};

pub(crate) use access::copy;

use barrier::Barriers;
use global::Global;
use shadow::Stamp;
use shared::Shared;
use timeline::Timeline;
use warp::{State, Warp};

/// The windows of the spaces in generic addresses. They are far apart, so that no index leads from one into another.
pub(crate) mod windows {
    /// Bits of an address within a window.
    pub const BITS: u32 = 40;
    pub const SHARED: u64 = 1 << BITS;
    pub const LOCAL: u64 = 2 << BITS;
    pub const PARAMETERS: u64 = 3 << BITS;
    pub const VARIABLES: u64 = 4 << BITS;
    pub const GLOBAL: u64 = 5 << BITS;
}

/// A launch that is under way.
pub(crate) struct Machine<'a> {
    module: &'a Module,
    kernel: &'a Kernel,
    launch: &'a Launch<'a>,
    global: Global<'a>,
    shared: Shared,
    timeline: Timeline,
    barriers: Barriers,
    /// The progress of each warp group.
    groups: Vec<warpgroup::Log>,
    counts: Counts,
    by_opcode: Vec<Count>,
    /// Number of the block in the grid.
    block: u32,
}

impl<'a> Machine<'a> {
    /// For a launch that was checked.
    pub fn new(
        module: &'a Module,
        kernel: &'a Kernel,
        launch: &'a Launch<'a>,
        memory: &'a mut Memory,
    ) -> Machine<'a> {
        Machine {
            module,
            kernel,
            launch,
            global: Global::new(memory, &module.constants, launch),
            shared: Shared::new(kernel.shared_bytes + launch.shared_bytes as usize),
            timeline: Timeline::new(0),
            barriers: Barriers::default(),
            groups: Vec::new(),
            counts: Counts::default(),
            by_opcode: vec![Count::default(); kernel.opcodes.len()],
            block: 0,
        }
    }

    /// Runs all blocks.
    pub fn run(mut self, order: Order) -> Result<Counts, Fault> {
        let [x, y, z] = self.launch.grid;
        let blocks = x * y * z;
        let threads: u32 = self.launch.block.iter().product();
        let count = (threads as usize).div_ceil(WARP);
        let mut warps: Vec<Warp> =
            (0..count).map(|number| Warp::new(number, threads as usize, self.kernel)).collect();
        let mut permutation = Permutation::new(order);
        let mut warp_order: Vec<usize> = (0..count).collect();
        for block in permutation.apply((0..blocks).collect()) {
            self.block = block;
            self.timeline = Timeline::new(count);
            self.barriers = Barriers::default();
            self.groups = vec![Vec::new(); count.div_ceil(4)];
            for warp in &mut warps {
                warp.start(self.kernel, self.launch, block);
            }
            warp_order = permutation.apply(warp_order);
            self.run_block(&mut warps, &warp_order)?;
        }
        for (name, count) in self.kernel.opcodes.iter().zip(&self.by_opcode) {
            if count.instructions > 0 {
                self.counts.by_opcode.insert(name.clone(), *count);
                self.counts.instructions += count.instructions;
                self.counts.lane_instructions += count.lanes;
            }
        }
        Ok(self.counts)
    }

    fn run_block(&mut self, warps: &mut [Warp], order: &[usize]) -> Result<(), Fault> {
        loop {
            let mut progress = false;
            for &number in order {
                let Some(warp) = warps.get_mut(number) else { continue };
                if !matches!(warp.state, State::Ready) {
                    continue;
                }
                progress = true;
                if let Err(trouble) = self.run_warp(warp) {
                    return Err(self.fault(&warps[number], trouble));
                }
                self.release(warps).map_err(|(number, trouble)| self.fault(&warps[number], trouble))?;
            }
            if warps.iter().all(|warp| matches!(warp.state, State::Done)) {
                return self
                    .check_groups(warps)
                    .map_err(|(number, trouble)| self.fault(&warps[number], trouble));
            }
            if !progress {
                let (number, trouble) = self.stuck(warps);
                return Err(self.fault(&warps[number], trouble));
            }
        }
    }

    fn fault(&self, warp: &Warp, trouble: Trouble) -> Fault {
        let [x, y, _] = self.launch.grid;
        let [threads_x, threads_y, _] = self.launch.block;
        let thread = (warp.number * WARP + trouble.lane) as u32;
        let line = self.kernel.code.get(warp.at).map_or(0, |instruction| instruction.line);
        Fault {
            kernel: self.launch.kernel.to_owned(),
            line,
            instruction: self.module.lines.get(line.saturating_sub(1)).map_or("", String::as_str).into(),
            block: [self.block % x, self.block / x % y, self.block / x / y],
            thread: [thread % threads_x, thread / threads_x % threads_y, thread / threads_x / threads_y],
            what: trouble.what,
        }
    }

    /// Returns the stamp that records an access of this lane.
    fn stamp(&self, warp: &Warp, lane: usize) -> Stamp {
        Stamp {
            block: self.block + 1,
            time: self.timeline.now(warp.number),
            thread: (warp.number * WARP + lane) as u16,
            atomic: false,
        }
    }

    /// The warp has run more instructions than it may.
    fn runaway(&self) -> Trouble {
        Trouble::new(0, What::Runaway { limit: self.module.limit })
    }
}

/// Permutations of a seed, one after the other.
struct Permutation {
    state: Option<u64>,
}

impl Permutation {
    fn new(order: Order) -> Permutation {
        Permutation {
            state: match order {
                Order::Ascending => None,
                Order::Shuffled(seed) => Some(seed),
            },
        }
    }

    /// Fisher and Yates, with numbers of SplitMix64 (Steele, Lea and Flood 2014).
    fn apply<T>(&mut self, mut items: Vec<T>) -> Vec<T> {
        let Some(state) = &mut self.state else { return items };
        for end in (1..items.len()).rev() {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = *state;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            items.swap(end, (mixed % (end as u64 + 1)) as usize);
        }
        items
    }
}
