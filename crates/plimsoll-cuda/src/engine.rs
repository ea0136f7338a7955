//! The engine: launches that are bound to the arena of a device, and copies in and out of it.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_graph::{DType, TensorId, TensorInfo};
use plimsoll_memory::{Bytes, MapError, Reservation};
use plimsoll_plan::{
    Block, DeviceState, Engine, EngineError, HostSlice, HostSliceMut, ProgramId, RunsAhead, SumsPlanes,
    Timings, VerifiedPlan,
};

use crate::Architecture;
use crate::ahead::Ahead;
use crate::architecture::is_worth_recording;
use crate::backend::{cost, within_watchdog};
use crate::copies::{read_values, write_values};
use crate::device::{Device, DeviceError, DeviceSource, Launch, Opened, Recorded, RecordedTask, Sizes};
use crate::fuse::fuse;
use crate::lower::{Context, Operand};
use crate::plane_sums::OpenSums;

/// A plan over the arena of a device.
pub(crate) struct CudaEngine {
    pub(crate) plan: VerifiedPlan,
    source: Arc<dyn DeviceSource>,
    pub(crate) architecture: Architecture,
    /// Used by one thread at a time.
    pub(crate) device: Mutex<Box<dyn Device>>,
    pub(crate) programs: Vec<BoundProgram>,
    pub(crate) timings: Timings,
    pub(crate) poison: bool,
    used: usize,
    /// The decrease of the device's free memory by the arena and the recordings alone.
    taken: Bytes,
    /// Sums beside the arena.
    pub(crate) sums: Option<OpenSums>,
    /// The inputs of the next run, and the runs that are under way; none if every run is waited for.
    pub(crate) ahead: Option<Ahead>,
    /// The reservations of memory of the device and of this process.
    _memory: Memory,
}

/// The reservations of an engine.
pub(crate) struct Memory {
    /// Device memory.
    pub(crate) arena: Reservation,
    /// Memory of this process.
    pub(crate) staging: Option<Reservation>,
    /// Device memory for the inputs of the next run.
    pub(crate) ahead: Option<Reservation>,
}

/// A program of a plan, bound to its places.
pub(crate) struct BoundProgram {
    nodes: Vec<BoundNode>,
    /// The number of nodes before the first that changes what outlives a run; all of them where runs are never begun in parts.
    own: usize,
    /// The number of its runs.
    pub(crate) runs: u64,
    recording: Recording,
}

/// The state of a program's recording, whose launches are replayed as one.
enum Recording {
    /// They are not: the device has no room, or they take too small a part of the program's time.
    OneByOne,
    /// They will be: the first run loads the kernels.
    AfterTheFirst,
    /// They are, each part under its number: a part without one has no launches, or the device has no room for it.
    Recorded([Option<usize>; 2]),
}

/// A part of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The nodes that change nothing but values of their run.
    First,
    /// The nodes behind them.
    Second,
}

impl Part {
    const ALL: [Part; 2] = [Part::First, Part::Second];
}

/// The schedule of measurements of a recorded program: the first runs, and one in every n later ones, are launched one
/// by one, to measure each node.
const MEASURED: (u64, u64) = (2, 16);

impl BoundProgram {
    /// Returns `true` if each node of the next run is to be measured where a program is recorded, or not waited for.
    pub(crate) fn is_measured(&self) -> bool {
        let (first, every) = MEASURED;
        self.runs < first || self.runs.is_multiple_of(every)
    }

    /// Returns the recordings that the next run replays; none if its launches are issued one by one.
    fn replayed(&self) -> Option<[Option<usize>; 2]> {
        match self.recording {
            Recording::Recorded(numbers) if !self.is_measured() => Some(numbers),
            _ => None,
        }
    }

    /// The nodes of a part.
    fn nodes(&self, part: Part) -> &[BoundNode] {
        let (first, second) = self.nodes.split_at(self.own.min(self.nodes.len()));
        match part {
            Part::First => first,
            Part::Second => second,
        }
    }

    /// Begins a part of a run without marks, and without waiting for it.
    pub(crate) fn begin(
        &self,
        device: &mut dyn Device,
        part: Part,
        is_poisoned: bool,
    ) -> Result<(), DeviceError> {
        match self.replayed().and_then(|numbers| numbers[part as usize]) {
            Some(number) => device.replay(number),
            None => self.nodes(part).iter().try_for_each(|node| node.launch(device, is_poisoned)),
        }
    }

    /// The end of the highest place that is given to any of its nodes.
    fn end(&self) -> usize {
        self.nodes.iter().map(|node| node.end).fold(0, usize::max)
    }

    /// Launches some of its nodes on a device, one by one, and marks the end of each. What is dead is poisoned if it `is_poisoned`.
    fn launch(
        &self,
        device: &mut dyn Device,
        nodes: Range<usize>,
        is_poisoned: bool,
    ) -> Result<(), DeviceError> {
        device.mark(nodes.start)?;
        for (at, node) in nodes.clone().zip(&self.nodes[nodes]) {
            node.launch(device, is_poisoned)?;
            device.mark(at + 1)?;
        }
        Ok(())
    }

    /// The work of a part as one list.
    fn tasks(&self, part: Part, is_poisoned: bool) -> Vec<RecordedTask<'_>> {
        let of_node = |node| {
            let BoundNode { launches, dead, .. }: &BoundNode = node;
            let dead = dead.iter().filter(move |_| is_poisoned).cloned();
            launches.iter().map(RecordedTask::Launch).chain(dead.map(RecordedTask::Poison))
        };
        self.nodes(part).iter().flat_map(of_node).collect()
    }

    /// Records the parts on a device. Returns the recording, and the bytes of the device that it takes.
    fn record(&self, device: &mut dyn Device, is_poisoned: bool) -> Result<(Recording, usize), DeviceError> {
        let (mut numbers, mut bytes) = ([None; 2], 0);
        for part in Part::ALL {
            let tasks = self.tasks(part, is_poisoned);
            if tasks.is_empty() {
                continue;
            }
            if let Some(Recorded { number, taken }) = device.record(&tasks)? {
                numbers[part as usize] = Some(number);
                bytes += taken;
            }
        }
        let recording = match numbers {
            [None, None] => Recording::OneByOne,
            _ => Recording::Recorded(numbers),
        };
        Ok((recording, bytes))
    }
}

/// A node of a plan, bound to its places.
struct BoundNode {
    launches: Vec<Launch>,
    /// The places that no later node reads.
    dead: Vec<Range<u64>>,
    /// The end of the highest place that it is given, in bytes.
    end: usize,
}

impl BoundNode {
    fn launch(&self, device: &mut dyn Device, is_poisoned: bool) -> Result<(), DeviceError> {
        self.launches.iter().try_for_each(|launch| device.launch(launch))?;
        self.dead.iter().filter(|_| is_poisoned).try_for_each(|dead| device.poison(dead.clone()))
    }
}

/// Bytes that are copied at once where nothing was reserved for it: they are brought into the layout, or out of it, on their way.
const STAGE: usize = 1 << 16;

impl CudaEngine {
    /// Allocates the arena on a device, inside a reservation, zeroed, and what is copied through and ahead inside others; binds all launches.
    pub(crate) fn new(
        source: Arc<dyn DeviceSource>,
        plan: VerifiedPlan,
        memory: Memory,
        poison: bool,
    ) -> Result<CudaEngine, EngineError> {
        memory.arena.check_covers(Bytes::from_len(plan.arena_bytes)).map_err(MapError::from)?;
        // One before the first node of a program, and one after each.
        let most = plan.schedules.iter().map(|schedule| schedule.launches.len()).max();
        let bytes = |reserved: &Option<Reservation>| {
            let bytes = reserved.as_ref().map_or(Bytes::ZERO, Reservation::bytes);
            usize::try_from(bytes.0).map_err(|_| EngineError::Internal(format!("{bytes} cannot be copied")))
        };
        let (staging, ahead) = (bytes(&memory.staging)?.max(STAGE), bytes(&memory.ahead)?);
        let sizes = Sizes { bytes: plan.arena_bytes, staging, marks: 1 + most.unwrap_or(0), ahead };
        let Opened { mut device, taken } = source.open(sizes)?;
        let persistent = plan.persistent_bytes();
        let base = device.base();
        let [persistent, end] = [persistent, plan.arena_bytes].map(|bytes| base + bytes as u64);
        device.clear(base..if poison { persistent } else { end })?;
        if poison {
            device.poison(persistent..end)?;
        }
        let architecture = source.architecture();
        let bound = plan.ids().map(|id| {
            let nodes = bind(&plan, id, &*source, base)?;
            let launches = nodes.iter().map(|node| node.launches.len()).sum();
            // Runs begin in parts only where inputs are copied ahead.
            let changes = |node: &BoundNode| {
                node.launches.iter().flat_map(Launch::writes).any(|place| place.start < persistent)
            };
            let own = if ahead > 0 { nodes.iter().position(changes) } else { None };
            let own = own.unwrap_or(nodes.len());
            let recording = match is_worth_recording(launches, plan.schedule(id).predicted_seconds) {
                true => Recording::AfterTheFirst,
                false => Recording::OneByOne,
            };
            Ok(BoundProgram { nodes, own, runs: 0, recording })
        });
        let programs = bound.collect::<Result<Vec<_>, EngineError>>()?;
        let timings = Timings::new(&plan);
        Ok(CudaEngine {
            plan,
            source,
            architecture,
            device: Mutex::new(device),
            programs,
            timings,
            poison,
            used: 0,
            taken: Bytes::from_len(taken),
            sums: None,
            ahead: (ahead > 0).then(Ahead::default),
            _memory: memory,
        })
    }

    /// A tensor of a program and where it begins.
    ///
    /// # Errors
    /// Returns an error if the tensor has no memory, or lacks some of these values of this type from `first` on.
    fn tensor(
        &self,
        program: ProgramId,
        tensor: TensorId,
        first: usize,
        count: usize,
        dtype: DType,
    ) -> Result<(&TensorInfo, usize), EngineError> {
        let (info, place) = self.plan.stored(program, tensor)?;
        let fits =
            dtype == info.dtype || dtype == DType::F32 && matches!(info.dtype, DType::Bf16 | DType::F16);
        if !fits || first.saturating_add(count) > info.shape.count() {
            return Err(EngineError::values(self.plan.program(program), info, count, dtype));
        }
        Ok((info, place.offset))
    }
}

/// Binds all nodes of a program of a plan to an arena at an address.
fn bind(
    plan: &VerifiedPlan,
    id: ProgramId,
    source: &dyn DeviceSource,
    base: u64,
) -> Result<Vec<BoundNode>, EngineError> {
    let (program, schedule, architecture) = (plan.program(id), plan.schedule(id), source.architecture());
    let fused = fuse(program, architecture, plan.inline);
    let operand = |id: &TensorId| {
        let place = schedule.place(*id).ok_or_else(|| EngineError::missing("the place of a tensor"))?;
        let origin = schedule.origin(*id).and_then(|origin| program.tensors.get(origin.index()));
        let info = origin.ok_or_else(|| EngineError::missing("a tensor"))?;
        Ok(Operand::new(info, base + place.offset as u64))
    };
    let all = |ids: &[TensorId]| ids.iter().map(operand).collect::<Result<Vec<Operand<'_>>, EngineError>>();
    let mut nodes = Vec::with_capacity(schedule.launches.len());
    for (at, launch) in schedule.launches.iter().enumerate() {
        let node = fused.get(launch.node).ok_or_else(|| EngineError::missing("a node"))?;
        let cx = Context {
            name: node.op.name(),
            architecture,
            inputs: all(&launch.inputs)?,
            outputs: all(&launch.outputs)?,
            scratch: base + launch.scratch.offset as u64,
        };
        let lowered = node.op.kernels().lower(&cx);
        let divided = lowered.and_then(|work| within_watchdog(source, &cx, cost(program, node), work));
        let (work, _) = divided.map_err(|problem| EngineError::Internal(problem.to_string()))?;
        if work.scratch > launch.scratch.bytes {
            return Err(EngineError::Internal(format!("the scratch of {} does not fit", cx.name)));
        }
        let places = launch.inputs.iter().chain(&launch.outputs).filter_map(|id| schedule.place(*id));
        nodes.push(BoundNode {
            launches: work.launches,
            dead: plan.dead_after(id, at).into_iter().map(|block| addresses(base, block)).collect(),
            end: places.map(|place| place.end()).fold(launch.scratch.end(), usize::max),
        });
    }
    Ok(nodes)
}

/// Returns the addresses of a block of an arena that begins at `base`.
fn addresses(base: u64, block: Block) -> Range<u64> {
    base + block.offset as u64..base + block.end() as u64
}

impl Engine for CudaEngine {
    fn plan(&self) -> &VerifiedPlan {
        &self.plan
    }

    fn write_at(
        &mut self,
        program: ProgramId,
        tensor: TensorId,
        first: usize,
        values: HostSlice<'_>,
    ) -> Result<(), EngineError> {
        let (count, dtype) = values.extent();
        self.tensor(program, tensor, first, count, dtype)?;
        // The plan is borrowed beside the device.
        let (info, place) = self.plan.stored(program, tensor)?;
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        let to = device.base() + place.offset as u64;
        write_values(device, info, to, first, values)
    }

    fn clear(&mut self, program: ProgramId, tensor: TensorId) -> Result<(), EngineError> {
        let (info, place) = self.plan.stored(program, tensor)?;
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        let start = device.base() + place.offset as u64;
        let bytes = info.shape.count() * info.dtype.bytes();
        Ok(device.clear(start..start + bytes as u64)?)
    }

    fn read_from(
        &self,
        program: ProgramId,
        tensor: TensorId,
        first: usize,
        values: HostSliceMut<'_>,
    ) -> Result<(), EngineError> {
        let (count, dtype) = values.extent();
        let (info, offset) = self.tensor(program, tensor, first, count, dtype)?;
        let device = &mut **self.device.lock().unwrap_or_else(PoisonError::into_inner);
        let from = device.base() + offset as u64;
        read_values(device, info, from, first, values)
    }

    fn run(&mut self, program: ProgramId) -> Result<(), EngineError> {
        let bound = self.programs.get(program.index()).ok_or_else(|| EngineError::missing("the program"))?;
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        match bound.replayed() {
            Some(_) => {
                device.mark(0)?;
                Part::ALL.into_iter().try_for_each(|part| bound.begin(device, part, self.poison))?;
                device.mark(1)?;
                // A launch that has failed says so here.
                device.since_last(1)?;
                self.timings.add_unmeasured(program);
                self.programs[program.index()].runs += 1;
            }
            None => {
                let all = 0..bound.nodes.len();
                self.run_launches(program, all)?;
            }
        }
        let bound = &mut self.programs[program.index()];
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Recording::AfterTheFirst = bound.recording {
            let (recording, taken) = bound.record(device, self.poison)?;
            self.taken += Bytes::from_len(taken);
            bound.recording = recording;
        }
        Ok(())
    }

    fn run_launches(&mut self, program: ProgramId, launches: Range<usize>) -> Result<(), EngineError> {
        let bound = self.programs.get_mut(program.index());
        let bound = bound.ok_or_else(|| EngineError::missing("the program"))?;
        if bound.nodes.get(launches.clone()).is_none() {
            return Err(EngineError::missing("a launch"));
        }
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.used = self.used.max(bound.end());
        match bound.runs {
            0 => {
                let launch =
                    &mut |device: &mut dyn Device| bound.launch(device, launches.clone(), self.poison);
                self.taken += Bytes::from_len(device.measured(launch)?);
            }
            _ => bound.launch(device, launches.clone(), self.poison)?,
        }
        bound.runs += u64::from(launches.end == bound.nodes.len());
        for at in launches {
            self.timings.add(program, at, device.since_last(at + 1)?);
        }
        Ok(())
    }

    fn sums_planes(&mut self) -> Option<&mut dyn SumsPlanes> {
        Some(self)
    }

    fn runs_ahead(&mut self) -> Option<&mut dyn RunsAhead> {
        self.ahead.is_some().then_some(self)
    }

    fn used_bytes(&self) -> usize {
        self.used
    }

    fn device_bytes(&self) -> Option<Bytes> {
        Some(self.taken + self.sums.as_ref().map_or(Bytes::ZERO, |sums| sums.taken))
    }

    fn device_state(&self) -> Option<DeviceState> {
        self.source.state()
    }

    fn timings(&self) -> &Timings {
        &self.timings
    }
}
