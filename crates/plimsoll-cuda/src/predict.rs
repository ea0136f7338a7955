//! Predicted times of launches.
//!
//! A launch takes as long as the resource that it needs the longest: scalar arithmetic, tensor cores, instructions, or passes over shared memory. The first two
//! follow from the operation, the last two from counts of the emulator ([`counts`]). Memory is predicted for a node as a whole, from the bytes of its operands.
//! This is the roofline (Williams, Waterman and Patterson 2009) with two more roofs, and with multiprocessors that have unequal numbers of blocks.

use std::cmp::Ordering;

use plimsoll_graph::Cost;
use plimsoll_plan::{Bound, Rates};

use crate::architecture::{GROUP_RATE, LAUNCH, TENSOR_RATE};
use crate::counts::{Counted, counted};
use crate::lower::Work;
use crate::{Architecture, Launch};

/// The names of the rates of instructions of warps, and of passes over shared memory.
pub(crate) const INSTRUCTION_RATE: &str = "instructions";
pub(crate) const SHARED_RATE: &str = "shared memory";

/// Instructions of a warp for each multiply-add of its lanes, of kernels that were not counted: loads, addresses, and the multiply-add.
const UNCOUNTED: f64 = 4.0;

/// Instructions that a warp issues in a cycle, if it is alone: an instruction that needs the result before it waits four cycles (Jia et al. 2018, "Dissecting the NVIDIA
/// Volta GPU Architecture via Microbenchmarking"), and about every other one does. An estimate, as the shares of peaks are.
const OF_WARP: f64 = 0.5;

/// Instructions that a multiprocessor can issue in a cycle: it has four schedulers.
const OF_MULTIPROCESSOR: f64 = 4.0;

/// Idle multiprocessors are named as the limit if they take this share of the time of a launch.
const IDLE: f64 = 1.5;

/// A predicted time with its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prediction {
    pub(crate) seconds: f64,
    pub(crate) bound: Bound,
}

impl Prediction {
    fn new(seconds: f64, bound: Bound) -> Prediction {
        Prediction { seconds, bound }
    }

    fn longer(self, other: Prediction) -> Prediction {
        match self.seconds.total_cmp(&other.seconds) {
            Ordering::Less => other,
            Ordering::Equal | Ordering::Greater => self,
        }
    }
}

/// Predicts the time of a node with some work on a card.
pub(crate) fn predict(architecture: Architecture, rates: &Rates, cost: Cost, work: &Work) -> Prediction {
    // A node without tensor cores has its operations in one launch, the first one of the most warps.
    let plain = if work.is_on_tensor_cores() { 0 } else { cost.flops };
    let most = work.launches.iter().map(|launch| launch.effort().warps).max();
    let main = work.launches.iter().position(|launch| Some(launch.effort().warps) == most);
    let each = work.launches.iter().enumerate().map(|(place, launch)| {
        let flops = if main == Some(place) { plain as f64 } else { 0.0 };
        of_launch(architecture, rates, flops, launch)
    });
    let each: Vec<Prediction> = each.collect();
    let memory = Prediction::new(cost.bytes as f64 / rates.bytes, Bound::Memory);
    let on_card = match each.iter().copied().reduce(Prediction::longer) {
        Some(longest) => {
            Prediction::new(each.iter().map(|of| of.seconds).sum(), longest.bound).longer(memory)
        }
        None => memory,
    };
    let launches = LAUNCH * work.launches.len() as f64;
    let bound = if launches > on_card.seconds { Bound::Launches } else { on_card.bound };
    Prediction { seconds: on_card.seconds + launches, bound }
}

/// Predicts the time of each launch of a node with some work at nominal rates, as if it had the most of that.
pub(crate) fn each_alone(architecture: Architecture, cost: Cost, work: &Work) -> Vec<f64> {
    work.launches.iter().map(|launch| of_part(architecture, cost, work, (launch, launch))).collect()
}

/// Predicts the time of a part of a launch of a node at nominal rates.
pub(crate) fn of_part(
    architecture: Architecture,
    cost: Cost,
    work: &Work,
    (whole, part): (&Launch, &Launch),
) -> f64 {
    let rates = architecture.rates();
    let share = part.blocks() as f64 / whole.blocks().max(1) as f64;
    // Launches that can be divided have all operations of scalar units. Where there is none, any launch may have them. Each has an equal share of the bytes.
    let is_beside =
        whole.first_thread.is_none() && work.launches.iter().any(|launch| launch.first_thread.is_some());
    let plain = if work.is_on_tensor_cores() || is_beside { 0.0 } else { cost.flops as f64 * share };
    let bytes = cost.bytes as f64 * share / work.launches.len().max(1) as f64;
    of_launch(architecture, &rates, plain, part).seconds.max(bytes / rates.bytes)
}

/// The time of a launch with a number of operations of scalar units, without its accesses to the device's memory, and without its start.
fn of_launch(architecture: Architecture, rates: &Rates, flops: f64, launch: &Launch) -> Prediction {
    // Cards without warp groups have no rate of them, and no work for them.
    let rate = |name: &str| rates.kernels.get(name).copied().unwrap_or(f64::INFINITY);
    let effort = launch.effort();
    let counted = counted(architecture, launch).unwrap_or(Counted {
        instructions: UNCOUNTED * flops / 2.0 / 32.0,
        passes: 0.0,
        blocks: 1,
    });
    let busy = Busy::new(architecture, launch, counted.blocks);
    let tensor =
        effort.tensor_flops as f64 / rate(TENSOR_RATE) + effort.group_flops as f64 / rate(GROUP_RATE);
    let issued = counted.instructions / rate(INSTRUCTION_RATE) * busy.waiting;
    let longest = [
        (flops / rates.flops, Bound::Arithmetic),
        (tensor, Bound::TensorCores),
        (issued, Bound::Instructions),
        (counted.passes / rate(SHARED_RATE), Bound::SharedMemory),
    ]
    .into_iter()
    .map(|(seconds, bound)| Prediction::new(seconds, bound))
    .reduce(Prediction::longer);
    let longest = longest.unwrap_or(Prediction::new(0.0, Bound::Arithmetic));
    let bound = if busy.waves >= IDLE { Bound::Blocks } else { longest.bound };
    Prediction { seconds: longest.seconds * busy.waves, bound }
}

/// The use of a card's multiprocessors by a launch.
struct Busy {
    /// The time of a launch in units of the time in which all multiprocessors would have done it together.
    waves: f64,
    /// The time of its instructions in units of the time at which they are issued if there are enough warps.
    waiting: f64,
}

impl Busy {
    fn new(architecture: Architecture, launch: &Launch, resident: u32) -> Busy {
        let effort = launch.effort();
        let multiprocessors = architecture.multiprocessors() as f64;
        let blocks = launch.blocks().max(1) as f64;
        let of_one = (blocks / multiprocessors).ceil();
        let warps = effort.warps as f64 / blocks * of_one.min(f64::from(resident));
        Busy {
            waves: of_one * multiprocessors / blocks,
            waiting: (OF_MULTIPROCESSOR / (OF_WARP * warps)).max(1.0),
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::device::Effort;
    use crate::lower::Context;

    const A100: &str = "sm_80";

    /// A launch of this number of blocks, each of which multiplies as much on tensor cores.
    fn launch(blocks: u32) -> Launch {
        let effort = Effort {
            warps: 4 * u64::from(blocks),
            tensor_flops: u64::from(blocks) << 24,
            ..Effort::default()
        };
        Launch {
            kernel: "none that is counted".into(),
            grid: [blocks, 1, 1],
            block: [128, 1, 1],
            parameters: Vec::new(),
            first_thread: None,
            reads: Vec::new(),
            writes: Vec::new(),
            effort,
        }
    }

    /// Predicts a node of one launch.
    fn predicted(blocks: u32, bytes: u64) -> Prediction {
        let architecture: Architecture = A100.parse().unwrap_or_else(|error| panic!("{error}"));
        let cx = Context { name: "node", architecture, inputs: vec![], outputs: vec![], scratch: 0 };
        let mut work = Work::new(&cx);
        work.launches.push(launch(blocks));
        predict(architecture, &architecture.rates(), Cost { flops: 0, bytes }, &work)
    }

    #[test]
    fn blocks_that_do_not_fill_a_card_take_as_long_as_those_that_do() {
        let [one, all, few_more] = [1, 108, 109].map(|blocks| predicted(blocks, 0));
        assert!((one.seconds / all.seconds - 1.0).abs() < 1e-9, "{one:?}, {all:?}");
        assert_eq!((one.bound, all.bound), (Bound::Blocks, Bound::TensorCores));
        // A multiprocessor has two of them.
        assert!(few_more.seconds - LAUNCH > 1.99 * (all.seconds - LAUNCH), "{few_more:?}");
        assert_eq!(few_more.bound, Bound::Blocks);
    }

    #[test]
    fn the_longest_launch_has_a_share_of_the_bytes_and_all_operations() {
        let architecture: Architecture = A100.parse().unwrap_or_else(|error| panic!("{error}"));
        let cx = Context { name: "node", architecture, inputs: vec![], outputs: vec![], scratch: 0 };
        let mut work = Work::new(&cx);
        // An effort that belongs to no launch is an error, so that no time is predicted without it.
        assert!(work.effort(Effort::default()).is_err() && work.each_turns(1).is_err());
        work.launches = vec![launch(108), launch(216)];
        let rates = architecture.rates();
        let longest = |bytes| {
            let each = each_alone(architecture, Cost { flops: 0, bytes }, &work);
            each.into_iter().fold(0.0, f64::max)
        };
        assert!((longest(0) / (predicted(216, 0).seconds - LAUNCH) - 1.0).abs() < 1e-9);
        assert!((longest(2 << 40) / ((1u64 << 40) as f64 / rates.bytes) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_resource_that_takes_the_longest_is_the_limit() {
        let of_memory = predicted(108, 1 << 30);
        assert_eq!(of_memory.bound, Bound::Memory);
        // A GiB at four fifths of 1.555 TB/s.
        assert!((of_memory.seconds - LAUNCH - (1 << 30) as f64 / (0.8 * 1.555e12)).abs() < 1e-9);
        assert!(of_memory.seconds < predicted(108, 2 << 30).seconds);
    }
}
