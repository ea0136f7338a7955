//! Launches on a card that drives a display, whose watchdog would end the long ones: each is divided into several that are predicted to be short enough.
//!
//! A part runs a range of the blocks. Its threads compute what they would in the whole launch, so the bits are the same.

use plimsoll_graph::Cost;

use crate::Architecture;
use crate::device::{Effort, Launch};
use crate::lower::{BLOCK, Work};
use crate::predict::{each_alone, of_part};

/// The longest predicted launch in seconds on a card with a watchdog, which ends a kernel after two seconds on Windows and about five under X: predictions may be
/// wrong by a factor.
pub(crate) const LONGEST: f64 = 0.5;

/// A launch that is predicted to take too long, and that cannot be divided far enough: its seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TooLong(pub(crate) f64);

/// Divides the launches of a node that are predicted to take longer than `longest` seconds. Nominal rates decide, so that a plan does not depend on a measurement.
/// Returns the number of launches that were added.
///
/// # Errors
/// Returns an error if one takes longer and cannot be divided.
pub(crate) fn divide(
    architecture: Architecture,
    longest: f64,
    cost: Cost,
    work: &mut Work,
) -> Result<usize, TooLong> {
    let seconds = each_alone(architecture, cost, work);
    if seconds.iter().all(|seconds| *seconds <= longest) {
        return Ok(0);
    }
    let before = work.launches.len();
    let mut launches = Vec::with_capacity(before);
    for (launch, seconds) in work.launches.iter().zip(seconds) {
        if seconds <= longest {
            launches.push(launch.clone());
            continue;
        }
        let blocks = blocks_of_part(architecture, longest, (cost, work), (launch, seconds));
        let parts = blocks.and_then(|blocks| parts(launch, blocks)).ok_or(TooLong(seconds))?;
        launches.extend(parts);
    }
    work.launches = launches;
    Ok(work.launches.len() - before)
}

/// Returns the blocks of a part that is short enough: as many for each multiprocessor. `None` if one for each takes too long.
fn blocks_of_part(
    architecture: Architecture,
    longest: f64,
    (cost, work): (Cost, &Work),
    (launch, seconds): (&Launch, f64),
) -> Option<u32> {
    let multiprocessors = architecture.multiprocessors() as u64;
    let mut of_one = (launch.blocks().div_ceil(multiprocessors) as f64 * longest / seconds) as u64;
    // Fewer blocks may hide less of their latency.
    while of_one > 0 {
        let blocks = u32::try_from(of_one * multiprocessors).ok()?;
        let part = part(launch, 0, blocks.min(launch.grid[0]))?;
        if of_part(architecture, cost, work, (launch, &part)) <= longest {
            return Some(blocks);
        }
        of_one /= 2;
    }
    None
}

/// Returns the parts of a launch with this number of blocks, the last one with the rest. `None` if it cannot be divided.
fn parts(launch: &Launch, blocks: u32) -> Option<Vec<Launch>> {
    let all = launch.grid[0];
    let firsts = (0..all).step_by(blocks as usize);
    firsts.map(|first| part(launch, first, blocks.min(all - first))).collect()
}

/// Returns the part of a launch that begins with a block. `None` if it cannot be divided.
fn part(launch: &Launch, first: u32, blocks: u32) -> Option<Launch> {
    let at = launch.first_thread?;
    let thread = first.checked_mul(BLOCK as u32)?;
    let all = u128::from(launch.grid[0].max(1));
    // The efforts of parts add up to that of the whole.
    let until = |value: u64, block: u32| (u128::from(value) * u128::from(block) / all) as u64;
    let share = |value: u64| until(value, first + blocks) - until(value, first);
    let Effort { warps, loops, tensor_flops, group_flops } = launch.effort;
    let effort = Effort {
        warps: share(warps),
        loops: loops.map(share),
        tensor_flops: share(tensor_flops),
        group_flops: share(group_flops),
    };
    let [_, rows, layers] = launch.grid;
    let mut part = Launch { grid: [blocks, rows, layers], effort, ..launch.clone() };
    part.parameters.get_mut(at..at + size_of::<u32>())?.copy_from_slice(&thread.to_ne_bytes());
    Some(part)
}
