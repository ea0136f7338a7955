//! A parsed file of PTX.

use std::collections::BTreeMap;

use crate::instruction::Instruction;
use crate::lanes::Slot;

/// The kernels of one file of PTX, ready to be launched.
pub struct Module {
    pub(crate) target: String,
    pub(crate) kernels: BTreeMap<String, Kernel>,
    /// The text, line by line, for messages.
    pub(crate) lines: Vec<String>,
    /// The bytes of all `.const` and `.global` variables, which kernels may read.
    pub(crate) constants: Vec<u8>,
    /// Instructions that one warp may run.
    pub(crate) limit: u64,
}

impl Module {
    /// The names of all kernels, sorted.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }

    /// The architecture that the PTX was compiled for: `sm_70`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Lets each warp run at most `instructions`, after which it is taken to loop for ever. A hundred million unless set.
    pub fn with_limit(mut self, instructions: u64) -> Module {
        self.limit = instructions;
        self
    }

    /// Bytes of shared memory that this kernel declares itself, without what a launch adds; `None` if there is no such
    /// kernel.
    pub fn static_shared(&self, kernel: &str) -> Option<usize> {
        self.kernels.get(kernel).map(|kernel| kernel.shared_bytes)
    }
}

/// One kernel.
#[derive(Default)]
pub(crate) struct Kernel {
    pub code: Vec<Instruction>,
    /// Names of the instructions' opcodes, each once.
    pub opcodes: Vec<String>,
    /// Names of the registers, for messages.
    pub register_names: Vec<String>,
    /// Names of the predicates, for messages.
    pub predicate_names: Vec<String>,
    /// Registers that hold one value throughout.
    pub constants: Vec<(Slot, u64)>,
    pub specials: Vec<(Slot, Special)>,
    /// Registers that are operands of products of warp groups; some perhaps several times.
    pub multiplied: Vec<Slot>,
    /// Bytes of all parameters, each at a multiple of its alignment.
    pub parameter_bytes: usize,
    /// Statically declared shared memory, in bytes.
    pub shared_bytes: usize,
    /// Bytes of local memory for each thread.
    pub local_bytes: usize,
    /// The most threads of a block that it was compiled for.
    pub max_threads: Option<u32>,
    /// The block that it was compiled for.
    pub required_threads: Option<[u32; 3]>,
}

/// The predicate register that is never true.
pub(crate) const FALSE: Slot = 0;
/// The predicate register that is always true.
pub(crate) const TRUE: Slot = 1;

/// Registers that the machine sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// Index of the thread in its block, along axis 0 (x) to 2 (z).
    Thread(usize),
    /// Threads of a block.
    Threads(usize),
    /// Index of the block in the grid.
    Block(usize),
    /// Blocks of the grid.
    Blocks(usize),
    Lane,
    Warp,
    Warps,
    LanesEqual,
    LanesBelow,
    LanesUpTo,
    LanesAbove,
    LanesFrom,
    DynamicShared,
    TotalShared,
}

impl Special {
    /// The special register of this name.
    pub fn named(name: &str) -> Option<Special> {
        let name = name.strip_prefix('%')?;
        if let Some((name, axis)) = name.split_once('.') {
            let axis = ["x", "y", "z"].iter().position(|&known| known == axis)?;
            return match name {
                "tid" => Some(Special::Thread(axis)),
                "ntid" => Some(Special::Threads(axis)),
                "ctaid" => Some(Special::Block(axis)),
                "nctaid" => Some(Special::Blocks(axis)),
                _ => None,
            };
        }
        match name {
            "laneid" => Some(Special::Lane),
            "warpid" => Some(Special::Warp),
            "nwarpid" => Some(Special::Warps),
            "lanemask_eq" => Some(Special::LanesEqual),
            "lanemask_lt" => Some(Special::LanesBelow),
            "lanemask_le" => Some(Special::LanesUpTo),
            "lanemask_gt" => Some(Special::LanesAbove),
            "lanemask_ge" => Some(Special::LanesFrom),
            "dynamic_smem_size" => Some(Special::DynamicShared),
            "total_smem_size" => Some(Special::TotalShared),
            _ => None,
        }
    }
}
