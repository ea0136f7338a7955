//! The emulator of PTX as a device of the CUDA backend, with as much memory as a test gives its card.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_cuda::{
    Architecture, Beside, CardMemory, CudaBackend, Device, DeviceError, DeviceSource, Launch, Opened,
    Recorded, RecordedTask, RecordingRoom, Sizes, Work, ptx,
};
use plimsoll_memory::Bytes;
use plimsoll_plan::{DeviceMemory, DeviceState, DriverUse};
use plimsoll_ptx::{Counts, Launch as Emulated, Memory, Module, Order};

/// In which order blocks, and warps of a block, are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// In ascending order.
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

/// Bytes of an emulated card that threads of kernels have as local memory, from the first launch until the card is dropped.
pub const LOCAL: Bytes = Bytes::mib(2);

/// Bytes of an emulated card that a launch takes which is recorded.
const RECORDED_LAUNCH: usize = 4 << 10;

/// The memory that recordings may take of an emulated card: it is taken in pieces, and each recording may begin a new
/// one.
pub const RECORDINGS: Bytes = Bytes::mib(16);

/// A launch that was asked for, to be altered before it runs.
pub struct Altered {
    /// The kernel, as [`Launch::kernel`].
    pub kernel: String,
    /// The grid, as [`Launch::grid`].
    pub grid: [u32; 3],
    /// The block, as [`Launch::block`].
    pub block: [u32; 3],
    /// The parameters, as [`Launch::parameters`].
    pub parameters: Vec<u8>,
    /// The ranges that it reads, as [`Launch::reads`].
    pub reads: Vec<Range<u64>>,
    /// The ranges that it writes, as [`Launch::writes`].
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

/// A launch with its counts.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The kernel, as [`Launch::kernel`].
    pub kernel: String,
    /// Its warps, as [`plimsoll_cuda::Effort::warps`].
    pub warps: u64,
    /// The turns of its loops, as [`plimsoll_cuda::Effort::loops`].
    pub loops: Vec<u64>,
    /// The counts of the emulator.
    pub counts: Counts,
}

/// All launches of a card.
pub type Samples = Arc<Mutex<Vec<Sample>>>;

/// The counts of kernels, by their names.
pub type Tally = Arc<Mutex<BTreeMap<String, Counts>>>;

/// The remaining memory of a card, and the use of its recordings.
#[derive(Clone)]
struct Held(Arc<Mutex<HeldNow>>);

struct HeldNow {
    /// The bytes that are allocated now, by its devices and for its kernels.
    bytes: usize,
    room: RecordingRoom,
    /// `true` if any kernel was launched.
    has_launched: bool,
    replays: usize,
    downloaded: usize,
}

impl Held {
    fn new(room: RecordingRoom) -> Held {
        Held(Arc::new(Mutex::new(HeldNow { bytes: 0, room, has_launched: false, replays: 0, downloaded: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, HeldNow> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work that a card has done so far.
#[derive(Clone)]
pub struct Done(Held);

impl Done {
    /// Returns the number of replays of its recordings.
    pub fn replays(&self) -> usize {
        self.0.lock().replays
    }

    /// Bytes that were copied from it.
    pub fn downloaded(&self) -> usize {
        self.0.lock().downloaded
    }
}

/// An emulated card.
pub struct Emulator {
    architecture: Architecture,
    blocks: Blocks,
    kernels: Arc<Kernels>,
    /// The change to each launch before it runs.
    altered: fn(&mut Altered),
    tally: Tally,
    samples: Option<Samples>,
    has_watchdog: bool,
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
            samples: None,
            has_watchdog: false,
            held: Held::new(RecordingRoom::ALL),
        }
    }

    /// With room for other recordings than a card has.
    pub fn recording(self, room: RecordingRoom) -> Emulator {
        Emulator { held: Held::new(room), ..self }
    }

    /// With a display, whose watchdog ends kernels that take long.
    pub fn with_watchdog(self) -> Emulator {
        Emulator { has_watchdog: true, ..self }
    }

    /// Returns a handle to the work that the card will have done.
    pub fn done(&self) -> Done {
        Done(self.held.clone())
    }

    /// With other PTX, of which there is one piece.
    pub fn with_ptx(self, piece: &str) -> Emulator {
        Emulator { kernels: Arc::new(Kernels::new(&[piece.to_string()])), ..self }
    }

    /// With launches that are not those that were asked for.
    pub fn altered(self, altered: fn(&mut Altered)) -> Emulator {
        Emulator { altered, ..self }
    }

    /// With a record of all launches.
    pub fn sampled(self, samples: &Samples) -> Emulator {
        Emulator { samples: Some(samples.clone()), ..self }
    }

    /// Returns a handle to the counts of its kernels.
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

/// The same with a limit of the card's memory, of which a context takes 4 MiB, the kernels [`KERNELS`] and [`LOCAL`], and what is recorded at
/// most [`RECORDINGS`].
///
/// # Panics
/// Panics if the limit is below that.
pub fn backend_within(limit: Bytes) -> CudaBackend {
    within(Emulator::new(Architecture::new(8, 0).unwrap(), Blocks::Ascending), limit)
}

/// The same on an emulator.
///
/// # Panics
/// Panics if the limit is below the memory that the driver takes.
pub fn within(card: Emulator, limit: Bytes) -> CudaBackend {
    beside_ranks(card, limit, Bytes::ZERO)
}

/// The same, of whose memory channels to other ranks take a part.
///
/// # Panics
/// Panics if the limit is below the memory that these and the driver take.
pub fn beside_ranks(card: Emulator, limit: Bytes, ranks: Bytes) -> CudaBackend {
    let context = Bytes::mib(4) + KERNELS;
    let recordings = RECORDINGS + LOCAL;
    let driver = DriverUse { context, recordings, ranks, host: Bytes::ZERO, is_measured: true };
    card.backend().within(DeviceMemory::new(limit, driver).unwrap())
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

    fn has_watchdog(&self) -> bool {
        self.has_watchdog
    }

    fn memory(&self) -> Result<CardMemory, DeviceError> {
        Ok(CardMemory { total: CARD, free: CARD - self.held.lock().bytes })
    }

    fn state(&self) -> Option<DeviceState> {
        let CardMemory { total, free } = self.memory().ok()?;
        Some(DeviceState {
            used_bytes: Some(Bytes::from_len(total - free)),
            total_bytes: Some(Bytes::from_len(total)),
            busy_percent: Some(100),
            // An emulator has none.
            temperature_celsius: None,
        })
    }

    fn open(&self, sizes: Sizes) -> Result<Opened, DeviceError> {
        let Sizes { bytes, staging, marks } = sizes;
        let taken = bytes.next_multiple_of(PIECE);
        let mut held = self.held.lock();
        // Nothing is held before the first device is opened, and the kernels from then on.
        held.bytes = taken + held.bytes.max(KERNELS.0 as usize);
        drop(held);
        let device = Box::new(EmulatedDevice {
            memory: Memory::new(bytes),
            arena: bytes,
            beside: 0,
            staging: vec![0; staging],
            architecture: self.architecture,
            blocks: self.blocks,
            kernels: self.kernels.clone(),
            altered: self.altered,
            tally: self.tally.clone(),
            samples: self.samples.clone(),
            launches: 0,
            marks: vec![Instant::now(); marks],
            recordings: Vec::new(),
            taken,
            held: self.held.clone(),
        });
        Ok(Opened { device, taken })
    }
}

/// Adds up the numbers that tests look at.
fn add(all: &mut Counts, of: &Counts) {
    all.mma += of.mma;
    all.warpgroup_mma += of.warpgroup_mma;
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
    /// Bytes of it that are its own.
    arena: usize,
    /// Bytes of its card that it holds for what is beside them.
    beside: usize,
    staging: Vec<u8>,
    architecture: Architecture,
    blocks: Blocks,
    kernels: Arc<Kernels>,
    altered: fn(&mut Altered),
    tally: Tally,
    samples: Option<Samples>,
    launches: u64,
    marks: Vec<Instant>,
    recordings: Vec<Vec<Step>>,
    /// Bytes that it holds of its card.
    taken: usize,
    held: Held,
}

impl Drop for EmulatedDevice {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        held.bytes -= self.taken;
        self.recordings.iter().for_each(|steps| held.room.give_back(launches(steps)));
    }
}

/// A step of what was recorded.
enum Step {
    Launch(Launch),
    Poison(Range<u64>),
}

fn launches(steps: &[Step]) -> usize {
    steps.iter().filter(|step| matches!(step, Step::Launch(_))).count()
}

impl EmulatedDevice {
    /// The places of addresses in its memory, behind which the memory allocated beside it begins.
    fn offsets(&self, range: Range<u64>) -> Result<Range<usize>, DeviceError> {
        let offset = |address: u64| address.wrapping_sub(self.memory.base()) as usize;
        let (start, end, arena) = (offset(range.start), offset(range.end), self.memory.len());
        if start <= end && end <= arena {
            Ok(start..end)
        } else {
            Err(DeviceError::Outside { start, end, arena })
        }
    }
}

impl Device for EmulatedDevice {
    fn base(&self) -> u64 {
        self.memory.base()
    }

    fn beside(&mut self, bytes: usize) -> Result<Beside, DeviceError> {
        let begins = self.arena.next_multiple_of(256);
        self.memory.resize(self.arena);
        let taken = bytes.next_multiple_of(PIECE);
        let mut held = self.held.lock();
        held.bytes = held.bytes - self.beside + taken;
        self.taken = self.taken - self.beside + taken;
        self.beside = taken;
        if bytes > 0 {
            self.memory.resize(begins + bytes);
        }
        Ok(Beside { address: self.memory.base() + begins as u64, taken })
    }

    fn staging(&mut self) -> Result<&mut [u8], DeviceError> {
        Ok(&mut self.staging)
    }

    fn upload(&mut self, to: u64, bytes: usize) -> Result<(), DeviceError> {
        let range = self.offsets(to..to + bytes as u64)?;
        self.memory.write(range.start, &self.staging[..bytes]);
        Ok(())
    }

    fn download(&mut self, from: u64, bytes: usize) -> Result<(), DeviceError> {
        let range = self.offsets(from..from + bytes as u64)?;
        self.memory.read(range.start, &mut self.staging[..bytes]);
        self.held.lock().downloaded += bytes;
        Ok(())
    }

    fn clear(&mut self, range: Range<u64>) -> Result<(), DeviceError> {
        let range = self.offsets(range)?;
        self.memory.write(range.start, &vec![0; range.len()]);
        Ok(())
    }

    fn poison(&mut self, range: Range<u64>) -> Result<(), DeviceError> {
        let range = self.offsets(range)?;
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
        let (warps, loops) = (launch.effort().warps, launch.effort().loops);
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
                drop(tally);
                if let Some(samples) = &self.samples {
                    let kernel = launch.kernel.clone();
                    samples.lock().unwrap().push(Sample { kernel, warps, loops: loops.into(), counts });
                }
                Ok(())
            }
            Err(fault) => Err(failed(Box::new(fault))),
        }
    }

    fn measured(&mut self, work: &mut Work<'_>) -> Result<usize, DeviceError> {
        let mut held = self.held.lock();
        // With the first kernel that is launched on a card.
        let taken = if std::mem::replace(&mut held.has_launched, true) { 0 } else { LOCAL.0 as usize };
        held.bytes += taken;
        drop(held);
        work(self)?;
        Ok(taken)
    }

    fn record(&mut self, work: &[RecordedTask<'_>]) -> Result<Option<Recorded>, DeviceError> {
        let step = |task: &RecordedTask<'_>| match task {
            RecordedTask::Launch(launch) => Step::Launch((*launch).clone()),
            RecordedTask::Poison(range) => Step::Poison(range.clone()),
        };
        let steps: Vec<Step> = work.iter().map(step).collect();
        let count = launches(&steps);
        let mut held = self.held.lock();
        if !held.room.take(count) {
            return Ok(None);
        }
        let taken = (count * RECORDED_LAUNCH).next_multiple_of(PIECE);
        held.bytes += taken;
        self.taken += taken;
        self.recordings.push(steps);
        Ok(Some(Recorded { number: self.recordings.len() - 1, taken }))
    }

    fn replay(&mut self, number: usize) -> Result<(), DeviceError> {
        self.held.lock().replays += 1;
        let steps = std::mem::take(&mut self.recordings[number]);
        let replayed = steps.iter().try_for_each(|step| match step {
            Step::Launch(launch) => self.launch(launch),
            Step::Poison(range) => self.poison(range.clone()),
        });
        self.recordings[number] = steps;
        replayed
    }

    fn mark(&mut self, mark: usize) -> Result<(), DeviceError> {
        self.marks[mark] = Instant::now();
        Ok(())
    }

    fn since_last(&mut self, mark: usize) -> Result<Duration, DeviceError> {
        Ok(self.marks[mark] - self.marks[mark - 1])
    }
}
