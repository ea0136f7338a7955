//! Faults of a kernel.

use std::ops::Range;

/// A kernel was stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel {kernel}, PTX line {line} (`{instruction}`), block {block:?}, thread {thread:?}: {what}")]
pub struct Fault {
    /// Its name.
    pub kernel: String,
    /// Line of the PTX, counted from 1; 0 if the launch itself is impossible.
    pub line: usize,
    /// The text of that line.
    pub instruction: Box<str>,
    /// Index of the block: x, y, z.
    pub block: [u32; 3],
    /// Index of the thread in its block: x, y, z. If many are at fault, the first.
    pub thread: [u32; 3],
    /// The kind of fault.
    pub what: What,
}

/// The kind of fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// The launch is impossible.
    #[error("{0}")]
    Launch(String),
    /// An access outside of what the launch declares.
    #[error("{} {bytes} bytes at {address:#x}, which the launch does not declare; nearest is {nearest:x?}",
        if *write { "writes" } else { "reads" })]
    Outside {
        /// The address of the access.
        address: u64,
        /// The size of the access.
        bytes: usize,
        /// `true` if it is a write.
        write: bool,
        /// The declared range that is nearest, if there is any.
        nearest: Option<Range<u64>>,
    },
    /// A read of global memory that nobody ever wrote.
    #[error(
        "reads {bytes} bytes at {address:#x} (byte {offset} of the memory), not all of which were ever written"
    )]
    Unwritten {
        /// The address of the access.
        address: u64,
        /// Relative to the start of the memory.
        offset: u64,
        /// The size of the access.
        bytes: usize,
    },
    /// A read of shared memory that the block never wrote.
    #[error("reads {bytes} bytes at {offset} of shared memory, not all of which the block has written")]
    UnwrittenShared {
        /// In shared memory, in bytes.
        offset: u64,
        /// The size of the access.
        bytes: usize,
    },
    /// A read of local memory that the thread never wrote.
    #[error("reads {bytes} bytes at {offset} of local memory, not all of which the thread has written")]
    UnwrittenLocal {
        /// In the thread's local memory, in bytes.
        offset: u64,
        /// The size of the access.
        bytes: usize,
    },
    /// An operand that was never assigned.
    #[error("reads {register}, which was never assigned")]
    Unassigned {
        /// Its name in the PTX.
        register: String,
    },
    /// An address that is no multiple of what is accessed.
    #[error("accesses {bytes} bytes at {address:#x}, which is no multiple of {bytes}")]
    Misaligned {
        /// The address in the instruction.
        address: u64,
        /// The size of the whole access, all elements of a vector together.
        bytes: usize,
    },
    /// An access beyond the shared memory of the block.
    #[error("accesses {bytes} bytes at {offset} of {size} bytes of shared memory")]
    OutsideShared {
        /// In bytes.
        offset: u64,
        /// The size of the access.
        bytes: usize,
        /// The size of the block's shared memory.
        size: usize,
    },
    /// An access beyond the local memory or the parameters.
    #[error("accesses {bytes} bytes at {offset} of {size} bytes of local memory or parameters")]
    OutsideLocal {
        /// In bytes.
        offset: u64,
        /// The size of the access.
        bytes: usize,
        /// The size of the memory.
        size: usize,
    },
    /// Two threads, at least one write, nothing that orders them.
    #[error("{} byte {offset} of shared memory, which thread {other} {}, with no barrier between",
        if *write { "writes" } else { "reads" }, if *other_write { "wrote" } else { "read" })]
    SharedRace {
        /// In bytes.
        offset: u64,
        /// `true` if the later access is a write.
        write: bool,
        /// The thread of the earlier access: its number in the block, x fastest.
        other: u32,
        /// `true` if that was a write.
        other_write: bool,
    },
    /// Two threads of a launch, at least one write, nothing that orders them.
    #[error("{} the byte at {address:#x}, which thread {other} of block number {other_block} {}, and nothing orders them",
        if *write { "writes" } else { "reads" }, if *other_write { "wrote" } else { "read" })]
    GlobalRace {
        /// The address of the byte.
        address: u64,
        /// `true` if the later access is a write.
        write: bool,
        /// The block of the earlier access: its number in the grid, x fastest.
        other_block: u32,
        /// The thread of the earlier access: its number in the block, x fastest.
        other: u32,
        /// `true` if that was a write.
        other_write: bool,
    },
    /// A read through the path for constant data of what the launch itself has written.
    #[error("reads {address:#x} as constant data (ld.global.nc), though this launch has written it")]
    NotConstant {
        /// The address of the access.
        address: u64,
    },
    /// A sum of floats of more than one thread: another order gives another result.
    #[error(
        "adds a float to {address:#x}, to which another thread has added: the result depends on the order"
    )]
    OrderDependent {
        /// The address of the sum.
        address: u64,
    },
    /// An access to bytes that an asynchronous copy may still change.
    #[error("accesses byte {offset} of shared memory while a cp.async of thread {other} to it is under way")]
    InFlight {
        /// In bytes.
        offset: u64,
        /// The thread that has not waited yet: its number in the block, x fastest.
        other: u32,
    },
    /// A product of a warp group without a fence before it, or behind an access to one of its registers.
    #[error("multiplies with no wgmma.fence {}", match register {
        Some(register) => format!("behind an access to {register}"),
        None => "before it".to_owned(),
    })]
    Unfenced {
        /// The register that was accessed since the last fence.
        register: Option<String>,
    },
    /// An access to a register that a product of the warp group uses.
    #[error("accesses {register} while a product of the warp group that uses it is under way")]
    Multiplying {
        /// Its name in the PTX.
        register: String,
    },
    /// A write to what a product of a warp group reads.
    #[error("writes byte {offset} of shared memory while a product of a warp group reads it")]
    Multiplied {
        /// In bytes.
        offset: u64,
    },
    /// A product of a warp group reads what it may not see yet.
    #[error(
        "multiplies byte {offset} of shared memory, which thread {other} wrote, with no fence.proxy.async of that thread between"
    )]
    Unpublished {
        /// In bytes.
        offset: u64,
        /// The thread that wrote: its number in the block, x fastest.
        other: u32,
    },
    /// The four warps of a warp group do not reach the same instructions of it.
    #[error(
        "is an instruction of a warp group, of which not all four warps come to the same with the same operands"
    )]
    GroupDivergence,
    /// Lanes that an instruction needs together are elsewhere, have returned, or give different masks.
    #[error("needs lanes {needed:#010x} of the warp together, and has {arrived:#010x}")]
    WarpDivergence {
        /// A bit for each lane.
        needed: u32,
        /// A bit for each lane.
        arrived: u32,
    },
    /// A lane that is not in the mask it gives.
    #[error("takes part with the mask {mask:#010x}, in which its own lane is not")]
    NotInMask {
        /// A bit for each lane.
        mask: u32,
    },
    /// A shuffle from a lane that does not take part.
    #[error("shuffles from lane {lane}, which does not take part")]
    ShuffleFromAbsent {
        /// The source.
        lane: usize,
    },
    /// A barrier that not all threads of the block reach, or not at the same instruction.
    #[error("waits at barrier {barrier}, which not all threads of the block reach here")]
    BarrierDivergence {
        /// Its number.
        barrier: u64,
    },
    /// All warps wait, and nothing can end it.
    #[error("waits at barrier {barrier} for threads that wait elsewhere")]
    Deadlock {
        /// Its number.
        barrier: u64,
    },
    /// An impossible operand: the number of a barrier, the size of a copy.
    #[error("{0}")]
    Operand(String),
    /// A warp ran so many instructions that it is treated as an endless loop.
    #[error("ran {limit} instructions without an end")]
    Runaway {
        /// The limit of instructions of one warp.
        limit: u64,
    },
    /// `trap`: a failed assertion.
    #[error("a trap of the kernel's own")]
    Trap,
}

/// A fault, and the lane of the running warp that caused it.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub lane: usize,
    pub what: What,
}

impl Trouble {
    pub fn new(lane: usize, what: What) -> Trouble {
        Trouble { lane, what }
    }
}
