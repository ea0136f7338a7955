//! A launch of a kernel.

use std::ops::Range;

use crate::counts::Counts;
use crate::fault::{Fault, What};
use crate::machine::Machine;
use crate::machine::ranges::Ranges;
use crate::memory::Memory;
use crate::module::Module;

/// A launch of a kernel, with the memory that it may access.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Its name.
    pub kernel: &'a str,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes, beyond what the kernel declares itself.
    pub shared_bytes: u32,
    /// The values of all parameters, each at the next multiple of its alignment: what a driver is given as the parameter buffer.
    pub parameters: &'a [u8],
    /// Addresses that the kernel may read.
    pub reads: &'a [Range<u64>],
    /// Addresses that the kernel may write, and read.
    pub writes: &'a [Range<u64>],
}

/// In which order blocks run, and warps within a block when several can. A right kernel gives the same bits in any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By their numbers.
    Ascending,
    /// A permutation that depends on the seed.
    Shuffled(u64),
}

impl Module {
    /// Runs a kernel to its end. Blocks run one after the other; what they do does not depend on it unless the kernel is at
    /// fault.
    ///
    /// # Errors
    /// The first thing that the kernel did wrong; or that the launch is impossible. The memory is left as it was then.
    pub fn launch(&self, memory: &mut Memory, launch: &Launch<'_>, order: Order) -> Result<Counts, Fault> {
        let impossible = |what: String| Fault {
            kernel: launch.kernel.to_owned(),
            line: 0,
            instruction: "".into(),
            block: [0; 3],
            thread: [0; 3],
            what: What::Launch(what),
        };
        let kernel = self
            .kernels
            .get(launch.kernel)
            .ok_or_else(|| impossible("there is no kernel of this name".to_owned()))?;
        self.check(launch, memory).map_err(impossible)?;
        Machine::new(self, kernel, launch, memory).run(order)
    }

    fn check(&self, launch: &Launch<'_>, memory: &Memory) -> Result<(), String> {
        let Some(kernel) = self.kernels.get(launch.kernel) else { return Ok(()) };
        let product = |sizes: [u32; 3]| sizes.iter().map(|&size| u64::from(size)).product::<u64>();
        let threads = product(launch.block);
        let most = kernel.max_threads.unwrap_or(1024).min(1024);
        if threads == 0 || threads > most.into() || launch.block[2] > 64 {
            return Err(format!("blocks of {:?} threads; the kernel takes up to {most}", launch.block));
        }
        if kernel.required_threads.is_some_and(|required| required != launch.block) {
            return Err(format!("blocks of {:?} threads, not {:?}", launch.block, kernel.required_threads));
        }
        let [x, y, z] = launch.grid;
        if product(launch.grid) == 0 || x > 0x7fff_ffff || y > 0xffff || z > 0xffff {
            return Err(format!(
                "a grid of {:?} blocks; each axis has at least one, y and z at most 65,535",
                launch.grid
            ));
        }
        if product(launch.grid) >= u64::from(u32::MAX) {
            return Err(format!("a grid of {:?} blocks is more than the interpreter counts", launch.grid));
        }
        let shared = kernel.shared_bytes as u64 + u64::from(launch.shared_bytes);
        if shared > self.most_shared() {
            return Err(format!(
                "{shared} bytes of shared memory; a block of {} has up to {}",
                self.target,
                self.most_shared()
            ));
        }
        let (given, needed) = (launch.parameters.len(), kernel.parameter_bytes);
        // A struct on the host is padded to its alignment, which is 16 bytes at most.
        if given < needed || given >= needed + 16 {
            return Err(format!("{given} bytes of parameters; the kernel takes {needed}"));
        }
        let all = memory.base()..memory.base() + memory.len() as u64;
        match launch
            .reads
            .iter()
            .chain(launch.writes)
            .find(|range| !range.is_empty() && (range.start < all.start || range.end > all.end))
        {
            Some(range) => Err(format!("declares {range:x?}, which is not all within the memory, {all:x?}")),
            None => Ok(()),
        }
    }

    /// The most shared memory of a block, in bytes (table of technical specifications in the CUDA programming guide).
    fn most_shared(&self) -> u64 {
        let digits: String = self.target.chars().filter(char::is_ascii_digit).collect();
        let kilobytes = match digits.parse::<u32>().unwrap_or(0) {
            70 | 72 => 96,
            75 => 64,
            80 | 87 => 163,
            86 | 89 | 120 | 121 => 99,
            90..=110 => 227,
            _ => 48,
        };
        kilobytes * 1024
    }
}

impl Launch<'_> {
    /// Returns the ranges that may be read, including those that may be written.
    pub(crate) fn readable(&self) -> Ranges {
        Ranges::new(self.reads.iter().chain(self.writes))
    }

    /// Returns the ranges that may be written.
    pub(crate) fn writable(&self) -> Ranges {
        Ranges::new(self.writes.iter())
    }
}
