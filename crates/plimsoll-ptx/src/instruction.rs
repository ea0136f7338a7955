//! The content of a kernel once it is parsed: instructions whose operands are numbers of registers.

use crate::lanes::{Lanes, Slot};

/// A function of registers, applied to all lanes at once.
pub(crate) type Unary = Box<dyn Fn(&Lanes) -> Lanes + Send + Sync>;
/// A function of two registers.
pub(crate) type Binary = Box<dyn Fn(&Lanes, &Lanes) -> Lanes + Send + Sync>;
/// A function of three registers.
pub(crate) type Ternary = Box<dyn Fn(&Lanes, &Lanes, &Lanes) -> Lanes + Send + Sync>;
/// A function of four registers.
pub(crate) type Quaternary = Box<dyn Fn(&Lanes, &Lanes, &Lanes, &Lanes) -> Lanes + Send + Sync>;
/// A comparison of two registers: a bit for each lane.
pub(crate) type Test = Box<dyn Fn(&Lanes, &Lanes) -> u32 + Send + Sync>;
/// Old value and operands of an atomic operation to the new value.
pub(crate) type Update = fn(u64, u64, u64) -> u64;

/// One instruction.
pub(crate) struct Instruction {
    /// Lanes where this does not hold skip it.
    pub guard: Option<Flag>,
    pub operation: Operation,
    /// Line of the PTX, from 1.
    pub line: usize,
    /// Index into [`Kernel::opcodes`](crate::module::Kernel::opcodes).
    pub opcode: usize,
}

/// A predicate register, or its opposite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub slot: Slot,
    pub negated: bool,
}

/// Combines two predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
    /// The first alone: a move.
    First,
}

/// The state space of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
    Local,
    Constant,
    Parameter,
    /// Any of them; the address itself says which.
    Generic,
}

/// A register plus a constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub base: Slot,
    pub offset: i64,
}

/// A load or a store of one to four neighbouring elements.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub space: Space,
    pub address: Address,
    /// Bytes of one element.
    pub bytes: usize,
    /// The registers.
    pub slots: Vec<Slot>,
    /// Bits of the register to which a loaded element is extended with its sign.
    pub extend: Option<u32>,
    /// Loaded through the path for data that nobody writes during the launch.
    pub constant: bool,
}

/// The lane that a shuffle reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

/// The result of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

/// The reduction of a barrier over the predicates of its threads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reduction {
    Count(Slot),
    And(Slot),
    Or(Slot),
}

/// One copy of `cp.async`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyAsync {
    pub to: Address,
    pub from: Address,
    /// 4, 8 or 16.
    pub bytes: usize,
    /// The number of bytes that are read; the rest is filled with zeros.
    pub read: Option<Slot>,
    /// Reads nothing where it holds.
    pub ignore: Option<Flag>,
}

/// The number formats of `mma.sync` and its shape.
#[derive(Clone, Debug)]
pub(crate) struct Mma {
    pub shape: MmaShape,
    pub operands: MmaType,
    /// `true` if C and D are f32; f16 otherwise.
    pub sums_f32: (bool, bool),
    /// `true` if A is column-major and B row-major, which only m8n8k4 allows.
    pub transposed: (bool, bool),
    pub d: Vec<Slot>,
    pub a: Vec<Slot>,
    pub b: Vec<Slot>,
    pub c: Vec<Slot>,
}

/// Rows of A, columns of B, and what is summed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MmaShape {
    M16N8K4,
    M16N8K8,
    M16N8K16,
    M8N8K4,
}

/// Elements of A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MmaType {
    Half,
    Bfloat,
    Tf32,
    /// An f32: only sums.
    Whole,
}

/// An instruction of a warp group.
#[derive(Clone, Debug)]
pub(crate) enum Warpgroup {
    /// Orders what was done to registers before it and what products do to them behind it.
    Fence,
    Multiply(WarpgroupMma),
    /// Closes a group of products.
    Commit,
    /// Waits until at most this many groups of products are under way.
    Wait(usize),
}

/// The location of the rows of A.
#[derive(Clone, Debug)]
pub(crate) enum RowsOfA {
    Registers(Vec<Slot>),
    /// Behind a descriptor.
    Shared(Slot),
}

/// `wgmma.mma_async.m64nNk16` with sums of f32.
#[derive(Clone, Debug)]
pub(crate) struct WarpgroupMma {
    /// N.
    pub columns: usize,
    pub factors: MmaType,
    /// D, which is read as well where `add` holds.
    pub sums: Vec<Slot>,
    pub a: RowsOfA,
    /// The descriptor of B.
    pub b: Slot,
    pub add: Flag,
    /// `true` if the product is subtracted: one of A and B is negated.
    pub negative: bool,
    /// `true` if A and B are stored with the rows of A, and the columns of B, side by side.
    pub transposed: [bool; 2],
}

impl WarpgroupMma {
    /// The registers of A, if it is there.
    pub fn rows_in_registers(&self) -> &[Slot] {
        match &self.a {
            RowsOfA::Registers(slots) => slots,
            RowsOfA::Shared(_) => &[],
        }
    }

    /// The registers that it uses until it is waited for.
    pub fn registers(&self) -> impl Iterator<Item = Slot> {
        self.sums.iter().chain(self.rows_in_registers()).copied()
    }
}

/// An operation. `to` is written, all other slots are read.
pub(crate) enum Operation {
    Unary {
        to: Slot,
        a: Slot,
        function: Unary,
    },
    Binary {
        to: Slot,
        a: Slot,
        b: Slot,
        function: Binary,
    },
    Ternary {
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
        function: Ternary,
    },
    Quaternary {
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
        d: Slot,
        function: Quaternary,
    },
    /// Moves of values that were never assigned are no faults: what uses them is.
    Move {
        to: Slot,
        from: Slot,
        keep: u64,
    },
    Select {
        to: Slot,
        a: Slot,
        b: Slot,
        flag: Flag,
        keep: u64,
    },
    Pack {
        to: Slot,
        from: Vec<Slot>,
        bits: u32,
    },
    Unpack {
        to: Vec<Slot>,
        from: Slot,
        bits: u32,
    },
    Compare {
        to: Slot,
        opposite: Option<Slot>,
        a: Slot,
        b: Slot,
        test: Test,
        also: Option<(Logic, Flag)>,
    },
    /// For each half of a pair of f16 a predicate.
    CompareBoth {
        to: [Slot; 2],
        a: Slot,
        b: Slot,
        tests: [Test; 2],
    },
    /// A comparison as a number: `yes` or zero.
    Set {
        to: Slot,
        a: Slot,
        b: Slot,
        test: Test,
        yes: u64,
    },
    Combine {
        to: Slot,
        a: Flag,
        b: Flag,
        logic: Logic,
    },
    Branch {
        target: usize,
    },
    Switch {
        index: Slot,
        targets: Vec<usize>,
    },
    Exit,
    Trap,
    /// Fences, prefetches, hints: nothing that this machine's order of memory needs.
    Nothing,
    /// Makes what a thread has written to shared memory visible to products of warp groups.
    ProxyFence,
    Load(Access),
    Store(Access),
    IsSpace {
        to: Slot,
        a: Slot,
        space: Space,
    },
    Atomic {
        space: Space,
        address: Address,
        bytes: usize,
        to: Option<Slot>,
        operands: [Slot; 2],
        update: Update,
        /// Additions of floats, whose result depends on their order.
        float_sum: bool,
    },
    Barrier {
        id: Slot,
        threads: Option<Slot>,
        reduce: Option<(Reduction, Flag)>,
        arrive: bool,
    },
    WarpBarrier {
        mask: Slot,
    },
    Shuffle {
        to: Slot,
        inside: Option<Slot>,
        a: Slot,
        lane: Slot,
        clamp: Slot,
        mask: Slot,
        mode: ShuffleMode,
    },
    Vote {
        to: Slot,
        flag: Flag,
        mask: Slot,
        mode: VoteMode,
    },
    MatchAny {
        to: Slot,
        a: Slot,
        mask: Slot,
    },
    MatchAll {
        to: Slot,
        same: Option<Slot>,
        a: Slot,
        mask: Slot,
    },
    ReduceWarp {
        to: Slot,
        a: Slot,
        mask: Slot,
        update: Update,
    },
    ActiveMask {
        to: Slot,
    },
    CopyAsync(CopyAsync),
    CommitGroup,
    /// Waits until at most this many groups of the lane are under way.
    WaitGroup(usize),
    /// Waits for all copies, committed or not.
    WaitAll,
    LoadMatrix {
        to: Vec<Slot>,
        address: Address,
        transposed: bool,
        space: Space,
    },
    Mma(Mma),
    Warpgroup(Warpgroup),
}
