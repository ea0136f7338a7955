//! The emulator of PTX as a device of the CUDA backend.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use plimsoll_cuda::{Architecture, CudaBackend, Device, DeviceError, DeviceSource, Launch, PTX};
use plimsoll_ptx::{Launch as Emulated, Memory, Module, Order};

/// In which order blocks, and warps of a block, are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    Ascending,
    /// By chance, another order for each launch.
    Shuffled(u64),
}

/// Emulated devices.
pub struct Emulator {
    blocks: Blocks,
}

/// The backend on an emulator whose memory is unwritten wherever nothing is to be read.
pub fn backend(blocks: Blocks) -> CudaBackend {
    CudaBackend::new(Arc::new(Emulator { blocks })).poisoned()
}

fn module() -> &'static Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    MODULE.get_or_init(|| Module::parse(PTX).unwrap_or_else(|error| panic!("{error}")))
}

impl DeviceSource for Emulator {
    fn architecture(&self) -> Architecture {
        Architecture::new(8, 0).unwrap()
    }

    fn open(&self, bytes: usize, marks: usize) -> Result<Box<dyn Device>, DeviceError> {
        let memory = Memory::new(bytes);
        Ok(Box::new(EmulatedDevice {
            memory,
            blocks: self.blocks,
            launches: 0,
            marks: vec![Instant::now(); marks],
        }))
    }
}

struct EmulatedDevice {
    memory: Memory,
    blocks: Blocks,
    launches: u64,
    marks: Vec<Instant>,
}

impl EmulatedDevice {
    fn check(&self, range: &Range<usize>) -> Result<(), DeviceError> {
        let (start, end, arena) = (range.start, range.end, self.memory.len());
        if start <= end && end <= arena { Ok(()) } else { Err(DeviceError::Outside { start, end, arena }) }
    }
}

impl Device for EmulatedDevice {
    fn base(&self) -> u64 {
        self.memory.base()
    }

    fn upload(&mut self, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check(&(offset..offset + bytes.len()))?;
        self.memory.write(offset, bytes);
        Ok(())
    }

    fn download(&self, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.check(&(offset..offset + bytes.len()))?;
        self.memory.read(offset, bytes);
        Ok(())
    }

    fn clear(&mut self, range: Range<usize>) -> Result<(), DeviceError> {
        self.check(&range)?;
        self.memory.write(range.start, &vec![0; range.len()]);
        Ok(())
    }

    fn poison(&mut self, range: Range<usize>) -> Result<(), DeviceError> {
        self.check(&range)?;
        self.memory.write(range.start, &vec![0xff; range.len()]);
        self.memory.forget(range);
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        self.launches += 1;
        let order = match self.blocks {
            Blocks::Ascending => Order::Ascending,
            Blocks::Shuffled(seed) => Order::Shuffled(seed.wrapping_add(self.launches)),
        };
        let emulated = Emulated {
            kernel: &launch.kernel,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: 0,
            parameters: &launch.parameters,
            reads: &launch.reads,
            writes: &launch.writes,
        };
        match module().launch(&mut self.memory, &emulated, order) {
            Ok(_) => Ok(()),
            Err(fault) => Err(DeviceError::Failed {
                device: "the emulator".into(),
                doing: format!("run {}", launch.kernel),
                source: Box::new(fault),
            }),
        }
    }

    fn mark(&mut self, mark: usize) -> Result<(), DeviceError> {
        self.marks[mark] = Instant::now();
        Ok(())
    }

    fn since_last(&mut self, mark: usize) -> Result<Duration, DeviceError> {
        Ok(self.marks[mark] - self.marks[mark - 1])
    }
}
