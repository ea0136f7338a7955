//! The emulator of PTX as a device of the CUDA backend, with as much memory as a test gives its card.

mod device;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_cuda::{
    Architecture, CardMemory, CudaBackend, DeviceError, DeviceSource, Launch, Opened, RecordingRoom, Sizes,
    ptx,
};
use plimsoll_memory::Bytes;
use plimsoll_plan::{DeviceMemory, DeviceState, DriverUse};
use plimsoll_ptx::{Counts, Module};

use self::device::EmulatedDevice;

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
    /// Copies of inputs that were made while work of an earlier run was still to be done.
    overlapped: usize,
    /// Results that were waited for while work of a later run was already launched.
    outpaced: usize,
}

impl Held {
    fn new(room: RecordingRoom) -> Held {
        Held(Arc::new(Mutex::new(HeldNow {
            bytes: 0,
            room,
            has_launched: false,
            replays: 0,
            downloaded: 0,
            overlapped: 0,
            outpaced: 0,
        })))
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

    /// Returns the number of copies of inputs that were made while work of an earlier run was still to be done.
    pub fn overlapped_copies(&self) -> usize {
        self.0.lock().overlapped
    }

    /// Returns the number of results that were waited for while work of a later run was already launched.
    pub fn outpaced_results(&self) -> usize {
        self.0.lock().outpaced
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
    watchdog: Option<f64>,
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
            watchdog: None,
            held: Held::new(RecordingRoom::ALL),
        }
    }

    /// With room for other recordings than a card has.
    pub fn recording(self, room: RecordingRoom) -> Emulator {
        Emulator { held: Held::new(room), ..self }
    }

    /// With a display, whose watchdog lets launches be that are predicted to take this number of seconds.
    pub fn with_watchdog(self, seconds: f64) -> Emulator {
        Emulator { watchdog: Some(seconds), ..self }
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

    fn watchdog(&self) -> Option<f64> {
        self.watchdog
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
        let taken = sizes.bytes.next_multiple_of(PIECE) + sizes.ahead.next_multiple_of(PIECE);
        let mut held = self.held.lock();
        // Nothing is held before the first device is opened, and the kernels from then on.
        held.bytes = taken + held.bytes.max(KERNELS.0 as usize);
        drop(held);
        let device = Box::new(EmulatedDevice::new(self, sizes, taken));
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
