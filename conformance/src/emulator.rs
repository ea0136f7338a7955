//! The emulator of PTX as a device of the CUDA backend, with as much memory as a test gives its card.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_cuda::{
    Architecture, CardMemory, CudaBackend, Device, DeviceError, DeviceSource, Launch, Opened, Sizes, ptx,
};
use plimsoll_memory::Bytes;
use plimsoll_plan::{DeviceMemory, DriverUse};
use plimsoll_ptx::{Counts, Launch as Emulated, Memory, Module, Order};

/// In which order blocks, and warps of a block, are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// As they are counted.
    Ascending,
    /// By chance, another order for each launch.
    Shuffled(u64),
}

/// Bytes of an emulated card that no context holds.
const CARD: usize = 1 << 30;

/// Memory is mapped in pieces of this size, as the driver's.
const PIECE: usize = 2 << 20;

/// Bytes of an emulated card that its kernels take, from when the first device is opened until the card is dropped.
pub const KERNELS: Bytes = Bytes::mib(6);

/// A launch that was asked for, to be altered before it runs.
pub struct Altered {
    /// As [`Launch::kernel`].
    pub kernel: String,
    /// As [`Launch::grid`].
    pub grid: [u32; 3],
    /// As [`Launch::block`].
    pub block: [u32; 3],
    /// As [`Launch::parameters`].
    pub parameters: Vec<u8>,
    /// As [`Launch::reads`].
    pub reads: Vec<Range<u64>>,
    /// As [`Launch::writes`].
    pub writes: Vec<Range<u64>>,
}

impl From<&Launch> for Altered {
    fn from(launch: &Launch) -> Altered {
        Altered {
            kernel: launch.kernel().into(),
            grid: launch.grid(),
            block: launch.block(),
            parameters: launch.parameters().into(),
            reads: launch.reads().into(),
            writes: launch.writes().into(),
        }
    }
}

/// What kernels did, by their names.
pub type Tally = Arc<Mutex<BTreeMap<String, Counts>>>;

/// The bytes of a card that are held now, by its devices and for its kernels.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<usize>>);

impl Held {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An emulated card.
pub struct Emulator {
    architecture: Architecture,
    blocks: Blocks,
    kernels: Arc<Kernels>,
    /// What is done to launches before they run.
    altered: fn(&mut Altered),
    tally: Tally,
    held: Held,
}

impl Emulator {
    /// Devices with the kernels of an architecture.
    pub fn new(architecture: Architecture, blocks: Blocks) -> Emulator {
        static KERNELS: Mutex<Vec<(Architecture, Arc<Kernels>)>> = Mutex::new(Vec::new());
        let mut known = KERNELS.lock().unwrap();
        let found = known.iter().find(|(of, _)| *of == architecture).map(|(_, kernels)| kernels.clone());
        let kernels = found.unwrap_or_else(|| {
            let kernels = Arc::new(Kernels::new(&ptx(architecture).collect::<Result<Vec<_>, _>>().unwrap()));
            known.push((architecture, kernels.clone()));
            kernels
        });
        Emulator {
            architecture,
            blocks,
            kernels,
            altered: |_| (),
            tally: Tally::default(),
            held: Held::default(),
        }
    }

    /// With other PTX, of which there is one piece.
    pub fn with_ptx(self, piece: &str) -> Emulator {
        Emulator { kernels: Arc::new(Kernels::new(&[piece.to_string()])), ..self }
    }

    /// With launches that are not those that were asked for.
    pub fn altered(self, altered: fn(&mut Altered)) -> Emulator {
        Emulator { altered, ..self }
    }

    /// What kernels will have done.
    pub fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// The backend on it, whose memory is unwritten wherever nothing is to be read.
    pub fn backend(self) -> CudaBackend {
        CudaBackend::new(Arc::new(self)).poisoned()
    }
}

/// The backend on an emulator of compute capability 8.0, the first with all kernels.
pub fn backend(blocks: Blocks) -> CudaBackend {
    Emulator::new(Architecture::new(8, 0).unwrap(), blocks).backend()
}

/// The same with a line of the card's memory, of which a context takes 4 MiB and the kernels [`KERNELS`].
///
/// # Panics
/// If the line is below that.
pub fn backend_within(line: Bytes) -> CudaBackend {
    let driver = DriverUse { context: Bytes::mib(4) + KERNELS, host: Bytes::ZERO, is_measured: true };
    backend(Blocks::Ascending).within(DeviceMemory::new(line, driver).unwrap())
}

/// Modules, and in which of them each kernel is.
struct Kernels {
    modules: Vec<Module>,
    by_name: BTreeMap<String, usize>,
}

impl Kernels {
    fn new(pieces: &[String]) -> Kernels {
        let parsed = |piece: &String| Module::parse(piece).unwrap_or_else(|error| panic!("{error}"));
        let mut by_name = BTreeMap::new();
        for (number, piece) in pieces.iter().enumerate() {
            let names =
                piece.lines().filter_map(|line| line.strip_prefix(".visible .entry ")?.strip_suffix('('));
            by_name.extend(names.map(|name| (name.to_string(), number)));
        }
        Kernels { modules: pieces.iter().map(parsed).collect(), by_name }
    }

    fn module(&self, kernel: &str) -> Option<&Module> {
        self.by_name.get(kernel).and_then(|number| self.modules.get(*number))
    }
}

impl DeviceSource for Emulator {
    fn architecture(&self) -> Architecture {
        self.architecture
    }

    fn memory(&self) -> Result<CardMemory, DeviceError> {
        Ok(CardMemory { total: CARD, free: CARD - *self.held.lock() })
    }

    fn open(&self, sizes: Sizes) -> Result<Opened, DeviceError> {
        let Sizes { bytes, staging, marks } = sizes;
        let taken = bytes.next_multiple_of(PIECE);
        let mut held = self.held.lock();
        // Nothing is held before the first device is opened, and the kernels from then on.
        *held = taken + (*held).max(KERNELS.0 as usize);
        drop(held);
        let device = Box::new(EmulatedDevice {
            memory: Memory::new(bytes),
            staging: vec![0; staging],
            architecture: self.architecture,
            blocks: self.blocks,
            kernels: self.kernels.clone(),
            altered: self.altered,
            tally: self.tally.clone(),
            launches: 0,
            marks: vec![Instant::now(); marks],
            taken,
            held: self.held.clone(),
        });
        Ok(Opened { device, taken })
    }
}

/// Adds up the numbers that tests look at.
fn add(all: &mut Counts, of: &Counts) {
    all.mma += of.mma;
    all.bank_conflicts += of.bank_conflicts;
    all.sectors_loaded += of.sectors_loaded;
    all.sectors_stored += of.sectors_stored;
    all.global_bytes_loaded += of.global_bytes_loaded;
    all.global_bytes_stored += of.global_bytes_stored;
    all.shared_bytes_loaded += of.shared_bytes_loaded;
    all.shared_bytes_stored += of.shared_bytes_stored;
    all.local_bytes += of.local_bytes;
    all.instructions += of.instructions;
}

struct EmulatedDevice {
    memory: Memory,
    staging: Vec<u8>,
    architecture: Architecture,
    blocks: Blocks,
    kernels: Arc<Kernels>,
    altered: fn(&mut Altered),
    tally: Tally,
    launches: u64,
    marks: Vec<Instant>,
    /// Bytes that it holds of its card.
    taken: usize,
    held: Held,
}

impl Drop for EmulatedDevice {
    fn drop(&mut self) {
        *self.held.lock() -= self.taken;
    }
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

    fn staging(&mut self) -> Result<&mut [u8], DeviceError> {
        Ok(&mut self.staging)
    }

    fn upload(&mut self, offset: usize, bytes: usize) -> Result<(), DeviceError> {
        self.check(&(offset..offset + bytes))?;
        self.memory.write(offset, &self.staging[..bytes]);
        Ok(())
    }

    fn download(&mut self, offset: usize, bytes: usize) -> Result<(), DeviceError> {
        self.check(&(offset..offset + bytes))?;
        self.memory.read(offset, &mut self.staging[..bytes]);
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
        let mut launch = Altered::from(launch);
        (self.altered)(&mut launch);
        let emulated = Emulated {
            kernel: &launch.kernel,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: 0,
            parameters: &launch.parameters,
            reads: &launch.reads,
            writes: &launch.writes,
        };
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| DeviceError::Failed {
            device: format!("the emulator of {}", self.architecture),
            doing: format!("run {}", launch.kernel),
            source,
        };
        let module = self.kernels.module(&launch.kernel);
        let module = module.ok_or_else(|| failed("there is no kernel of this name for it".into()))?;
        match module.launch(&mut self.memory, &emulated, order) {
            Ok(counts) => {
                let mut tally = self.tally.lock().unwrap();
                add(tally.entry(launch.kernel.clone()).or_default(), &counts);
                Ok(())
            }
            Err(fault) => Err(failed(Box::new(fault))),
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
