//! A device of an emulated card. Its work is queued, and done when someone waits for it, so that whoever reads or overwrites too early is found out.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_cuda::{
    Architecture, Beside, Device, DeviceError, KEPT, Launch, Recorded, RecordedTask, Sizes, Work,
};
use plimsoll_ptx::{Launch as Emulated, Memory, Order};

use super::{
    Altered, Blocks, Emulator, Held, Kernels, LOCAL, PIECE, RECORDED_LAUNCH, Sample, Samples, Tally, add,
};

/// A device of an emulated card.
pub(super) struct EmulatedDevice {
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
    /// Work that was asked for and is not done yet. It is done when someone waits for it: the latest that a card may do it.
    queue: VecDeque<Queued>,
    /// The number of works that were ever asked for, and that were done.
    asked: u64,
    done: u64,
    /// The times at which marks were passed, and the works before each.
    marks: Vec<(Instant, u64)>,
    /// Values that are copied ahead, and the works before the last of them was taken.
    ahead: Vec<u8>,
    taken_after: u64,
    /// Kept results, and the works before each.
    kept: [(Vec<u8>, u64); KEPT],
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

/// Work in the order in which it was asked for.
enum Queued {
    Step(Step),
    /// Zeros.
    Clear(Range<usize>),
    Write(usize, Vec<u8>),
    Take {
        from: usize,
        to: Range<usize>,
    },
    Keep {
        number: usize,
        ranges: Vec<Range<usize>>,
    },
    Mark(usize),
}

/// A step of what was recorded.
#[derive(Clone)]
enum Step {
    Launch(Launch),
    Poison(Range<u64>),
}

fn launches(steps: &[Step]) -> usize {
    steps.iter().filter(|step| matches!(step, Step::Launch(_))).count()
}

impl EmulatedDevice {
    /// A device of an emulated card, which holds `taken` bytes of it.
    pub(super) fn new(card: &Emulator, sizes: Sizes, taken: usize) -> EmulatedDevice {
        let Sizes { bytes, staging, marks, ahead } = sizes;
        EmulatedDevice {
            memory: Memory::new(bytes),
            arena: bytes,
            beside: 0,
            staging: vec![0; staging],
            architecture: card.architecture,
            blocks: card.blocks,
            kernels: card.kernels.clone(),
            altered: card.altered,
            tally: card.tally.clone(),
            samples: card.samples.clone(),
            launches: 0,
            queue: VecDeque::new(),
            asked: 0,
            done: 0,
            marks: vec![(Instant::now(), 0); marks],
            ahead: vec![0; ahead],
            taken_after: 0,
            kept: [(Vec::new(), 0), (Vec::new(), 0)],
            recordings: Vec::new(),
            taken,
            held: card.held.clone(),
        }
    }

    fn push(&mut self, work: Queued) {
        self.queue.push_back(work);
        self.asked += 1;
    }

    /// Does all work up to a number of it.
    fn finish(&mut self, until: u64) -> Result<(), DeviceError> {
        while self.done < until {
            let Some(work) = self.queue.pop_front() else { break };
            self.done += 1;
            self.work(work)?;
        }
        Ok(())
    }

    fn work(&mut self, work: Queued) -> Result<(), DeviceError> {
        match work {
            Queued::Step(Step::Launch(launch)) => self.run_launch(&launch)?,
            Queued::Step(Step::Poison(range)) => self.run_poison(range)?,
            Queued::Clear(range) => self.memory.write(range.start, &vec![0; range.len()]),
            Queued::Write(start, values) => self.memory.write(start, &values),
            Queued::Take { from, to } => self.memory.write(to.start, &self.ahead[from..from + to.len()]),
            Queued::Keep { number, ranges } => {
                let values = &mut self.kept[number].0;
                values.clear();
                for range in ranges {
                    let begins = values.len();
                    values.resize(begins + range.len(), 0);
                    self.memory.read(range.start, &mut values[begins..]);
                }
            }
            Queued::Mark(mark) => self.marks[mark].0 = Instant::now(),
        }
        Ok(())
    }

    fn run_launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
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

    fn run_poison(&mut self, range: Range<u64>) -> Result<(), DeviceError> {
        let range = self.offsets(range)?;
        self.memory.write(range.start, &vec![0xff; range.len()]);
        self.memory.forget(range);
        Ok(())
    }

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
        self.finish(self.asked)?;
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
        let values = self.staging[..bytes].to_vec();
        self.push(Queued::Write(range.start, values));
        Ok(())
    }

    fn download(&mut self, from: u64, bytes: usize) -> Result<(), DeviceError> {
        let range = self.offsets(from..from + bytes as u64)?;
        self.finish(self.asked)?;
        self.memory.read(range.start, &mut self.staging[..bytes]);
        self.held.lock().downloaded += bytes;
        Ok(())
    }

    fn clear(&mut self, range: Range<u64>) -> Result<(), DeviceError> {
        let range = self.offsets(range)?;
        self.push(Queued::Clear(range));
        Ok(())
    }

    fn poison(&mut self, range: Range<u64>) -> Result<(), DeviceError> {
        self.push(Queued::Step(Step::Poison(range)));
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        self.push(Queued::Step(Step::Launch(launch.clone())));
        Ok(())
    }

    fn measured(&mut self, work: &mut Work<'_>) -> Result<usize, DeviceError> {
        let mut held = self.held.lock();
        // With the first kernel that is launched on a card.
        let taken = if std::mem::replace(&mut held.has_launched, true) { 0 } else { LOCAL.0 as usize };
        held.bytes += taken;
        drop(held);
        work(self)?;
        self.finish(self.asked)?;
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
        let steps = self.recordings[number].clone();
        steps.into_iter().for_each(|step| self.push(Queued::Step(step)));
        Ok(())
    }

    fn upload_ahead(&mut self, to: usize, bytes: usize) -> Result<(), DeviceError> {
        // As early as a card may copy it.
        self.finish(self.taken_after)?;
        if !self.queue.is_empty() {
            self.held.lock().overlapped += 1;
        }
        self.ahead[to..to + bytes].copy_from_slice(&self.staging[..bytes]);
        Ok(())
    }

    fn take_ahead(&mut self, from: usize, to: u64, bytes: usize) -> Result<(), DeviceError> {
        let to = self.offsets(to..to + bytes as u64)?;
        self.push(Queued::Take { from, to });
        self.taken_after = self.asked;
        Ok(())
    }

    fn keep(&mut self, number: usize, ranges: &[Range<u64>]) -> Result<(), DeviceError> {
        let ranges = ranges.iter().map(|range| self.offsets(range.clone())).collect::<Result<_, _>>()?;
        self.push(Queued::Keep { number, ranges });
        self.kept[number].1 = self.asked;
        Ok(())
    }

    fn kept(&mut self, number: usize) -> Result<&[u8], DeviceError> {
        self.finish(self.kept[number].1)?;
        if !self.queue.is_empty() {
            self.held.lock().outpaced += 1;
        }
        Ok(&self.kept[number].0)
    }

    fn mark(&mut self, mark: usize) -> Result<(), DeviceError> {
        self.push(Queued::Mark(mark));
        self.marks[mark].1 = self.asked;
        Ok(())
    }

    fn since_last(&mut self, mark: usize) -> Result<Duration, DeviceError> {
        self.finish(self.marks[mark].1)?;
        Ok(self.marks[mark].0 - self.marks[mark - 1].0)
    }
}
