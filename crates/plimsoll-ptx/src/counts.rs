//! Counts of the operations of a launch.

use std::collections::BTreeMap;

/// The number of times that an opcode ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// By warps, whatever the number of lanes.
    pub instructions: u64,
    /// By lanes that their guard let through.
    pub lanes: u64,
}

/// Counts of a launch: the numbers that limit its speed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions that warps issued.
    pub instructions: u64,
    /// Instructions times the lanes that their guard let through.
    pub lane_instructions: u64,
    /// `mma.sync` instructions.
    pub mma: u64,
    /// `wgmma.mma_async` instructions, warp by warp: four for each product of a warp group.
    pub warpgroup_mma: u64,
    /// Atomic operations, lane by lane.
    pub atomics: u64,
    /// Sectors of 32 bytes of global memory, summed over the loads of warps: each load counts the sectors that its lanes
    /// touch. `cp.async` is among them.
    pub sectors_loaded: u64,
    /// The same of stores and atomic operations.
    pub sectors_stored: u64,
    /// Instructions that load from global memory.
    pub global_loads: u64,
    /// Instructions that store to global memory.
    pub global_stores: u64,
    /// Passes over shared memory beyond the least, because lanes need different words of one of its 32 banks. Accesses
    /// of 8 bytes per lane are made by half a warp, and accesses of 16 by a quarter of a warp at a time.
    pub bank_conflicts: u64,
    /// Bytes that lanes load from global memory.
    pub global_bytes_loaded: u64,
    /// Bytes that lanes store to global memory.
    pub global_bytes_stored: u64,
    /// Bytes that lanes load from shared memory.
    pub shared_bytes_loaded: u64,
    /// Bytes that lanes store to shared memory.
    pub shared_bytes_stored: u64,
    /// Bytes that lanes load from or store to local memory: spilled registers and arrays with an index.
    pub local_bytes: u64,
    /// By opcode with all its modifiers.
    pub by_opcode: BTreeMap<String, Count>,
}
