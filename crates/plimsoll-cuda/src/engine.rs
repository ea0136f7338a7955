//! The engine: launches that are bound to the arena of a device, and copies in and out of it.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use half::{bf16, f16};
use plimsoll_graph::{DType, TensorId, TensorInfo};
use plimsoll_memory::{Bytes, MapError, Reservation};
use plimsoll_plan::{
    Block, DeviceState, Engine, EngineError, HostSlice, HostSliceMut, ProgramId, SumsPlanes, Timings,
    VerifiedPlan,
};

use crate::Architecture;
use crate::architecture::is_worth_recording;
use crate::device::{Device, DeviceError, DeviceSource, Launch, Opened, Recorded, RecordedTask, Sizes};
use crate::fuse::fuse;
use crate::layout::{Run, runs, stored_span};
use crate::lower::{Context, Operand};
use crate::plane_sums::OpenSums;

/// A plan over the arena of a device.
pub(crate) struct CudaEngine {
    pub(crate) plan: VerifiedPlan,
    source: Arc<dyn DeviceSource>,
    pub(crate) architecture: Architecture,
    /// Used by one thread at a time.
    pub(crate) device: Mutex<Box<dyn Device>>,
    programs: Vec<BoundProgram>,
    timings: Timings,
    poison: bool,
    used: usize,
    /// The decrease of the device's free memory by the arena and the recordings alone.
    taken: Bytes,
    /// Sums beside the arena.
    pub(crate) sums: Option<OpenSums>,
    /// The reservation of device memory.
    _arena: Reservation,
    /// The reservation of memory of this process.
    _staging: Option<Reservation>,
}

/// A program of a plan, bound to its places.
struct BoundProgram {
    nodes: Vec<BoundNode>,
    /// The number of its runs.
    runs: u64,
    recording: Recording,
}

/// The state of a program's recording, whose launches are replayed as one.
enum Recording {
    /// They are not: the device has no room, or they take too small a part of the program's time.
    OneByOne,
    /// They will be: the first run loads the kernels.
    AfterTheFirst,
    /// They are, under this number.
    Recorded(usize),
}

/// The schedule of measurements of a recorded program: the first runs, and one in every n later ones, are launched one
/// by one, to measure each node.
const MEASURED: (u64, u64) = (2, 16);

impl BoundProgram {
    /// Returns the recording that the next run replays; none if its launches are issued one by one.
    fn replayed(&self) -> Option<usize> {
        let (first, every) = MEASURED;
        match self.recording {
            Recording::Recorded(number) if self.runs >= first && !self.runs.is_multiple_of(every) => {
                Some(number)
            }
            _ => None,
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
            for launch in &node.launches {
                device.launch(launch)?;
            }
            device.mark(at + 1)?;
            for dead in node.dead.iter().filter(|_| is_poisoned) {
                device.poison(dead.clone())?;
            }
        }
        Ok(())
    }

    /// The same as one list.
    fn tasks(&self, is_poisoned: bool) -> Vec<RecordedTask<'_>> {
        let of_node = |node| {
            let BoundNode { launches, dead, .. }: &BoundNode = node;
            let dead = dead.iter().filter(move |_| is_poisoned).cloned();
            launches.iter().map(RecordedTask::Launch).chain(dead.map(RecordedTask::Poison))
        };
        self.nodes.iter().flat_map(of_node).collect()
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

/// Bytes that are copied at once where nothing was reserved for it: they are brought into the layout, or out of it, on their way.
const STAGE: usize = 1 << 16;

impl CudaEngine {
    /// Allocates the arena on a device, inside a reservation, zeroed, and what is copied through inside another; binds all launches.
    pub(crate) fn new(
        source: Arc<dyn DeviceSource>,
        plan: VerifiedPlan,
        arena: Reservation,
        staging: Option<Reservation>,
        poison: bool,
    ) -> Result<CudaEngine, EngineError> {
        arena.check_covers(Bytes::from_len(plan.arena_bytes)).map_err(MapError::from)?;
        // One before the first node of a program, and one after each.
        let most = plan.schedules.iter().map(|schedule| schedule.launches.len()).max();
        let staged = match &staging {
            Some(staging) => usize::try_from(staging.bytes().0)
                .map_err(|_| EngineError::Internal(format!("{} cannot be staged", staging.bytes())))?,
            None => STAGE,
        };
        let sizes =
            Sizes { bytes: plan.arena_bytes, staging: staged.max(STAGE), marks: 1 + most.unwrap_or(0) };
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
            let nodes = bind(&plan, id, architecture, base)?;
            let launches = nodes.iter().map(|node| node.launches.len()).sum();
            let recording = match is_worth_recording(launches, plan.schedule(id).predicted_seconds) {
                true => Recording::AfterTheFirst,
                false => Recording::OneByOne,
            };
            Ok(BoundProgram { nodes, runs: 0, recording })
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
            _arena: arena,
            _staging: staging,
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
    architecture: Architecture,
    base: u64,
) -> Result<Vec<BoundNode>, EngineError> {
    let (program, schedule) = (plan.program(id), plan.schedule(id));
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
        let work =
            node.op.kernels().lower(&cx).map_err(|problem| EngineError::Internal(problem.to_string()))?;
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

/// A number as it is stored.
trait Stored<const BYTES: usize>: Copy {
    type Host: Copy;
    fn to_bytes(host: Self::Host) -> [u8; BYTES];
    fn from_stored(bytes: [u8; BYTES]) -> Self::Host;
}

macro_rules! stored {
    ($($name:ident $bytes:literal $host:ty: $to:expr, $of:expr;)+) => {$(
        #[derive(Clone, Copy)]
        struct $name;

        impl Stored<$bytes> for $name {
            type Host = $host;

            fn to_bytes(host: $host) -> [u8; $bytes] {
                $to(host)
            }

            fn from_stored(bytes: [u8; $bytes]) -> $host {
                $of(bytes)
            }
        }
    )+};
}

stored! {
    StoredU8 1 u8: |x: u8| [x], |[x]: [u8; 1]| x;
    StoredBf16 2 f32: |x| bf16::from_f32(x).to_le_bytes(), |bytes| bf16::from_le_bytes(bytes).to_f32();
    StoredF16 2 f32: |x| f16::from_f32(x).to_le_bytes(), |bytes| f16::from_le_bytes(bytes).to_f32();
    StoredF32 4 f32: f32::to_le_bytes, f32::from_le_bytes;
    StoredF64 8 f64: f64::to_le_bytes, f64::from_le_bytes;
}

/// Pieces of a stretch of a tensor's elements as they are stored, as many at a time as there is room for.
fn pieces(stored: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = stored.end;
    stored.step_by(most.max(1)).map(move |start| start..end.min(start.saturating_add(most)))
}

/// Copies values to the address where a tensor begins, in its layout. The last copy may go on after the call.
fn upload<const BYTES: usize, S: Stored<BYTES>>(
    device: &mut dyn Device,
    info: &TensorInfo,
    address: u64,
    values: &[S::Host],
    _as: S,
) -> Result<(), EngineError> {
    let most = device.staging()?.len() / BYTES;
    for piece in pieces(0..info.shape.count(), most) {
        let mut stage = device.staging()?.as_chunks_mut::<BYTES>().0.iter_mut();
        for Run { place, stride, count } in runs(info, piece.clone()) {
            let from = values.get(place..).ok_or_else(|| EngineError::missing("a value"))?;
            let from = from.iter().step_by(stride);
            let mut copied = 0;
            for (to, value) in stage.by_ref().take(count).zip(from) {
                *to = S::to_bytes(*value);
                copied += 1;
            }
            if copied < count {
                return Err(EngineError::missing("a value"));
            }
        }
        device.upload(address + (piece.start * BYTES) as u64, piece.len() * BYTES)?;
    }
    Ok(())
}

/// Copies values to some elements of the tensor that begins at an address, from `first` on in the logical order. If these are not all, elements that are
/// stored between them are copied from the device and back.
fn replace<const BYTES: usize, S: Stored<BYTES>>(
    device: &mut dyn Device,
    info: &TensorInfo,
    address: u64,
    first: usize,
    values: &[S::Host],
    stored_as: S,
) -> Result<(), EngineError> {
    if values.len() == info.shape.count() {
        return upload(device, info, address, values, stored_as);
    }
    let most = device.staging()?.len() / BYTES;
    for piece in pieces(stored_span(info, first, values.len()), most) {
        let (start, bytes) = (address + (piece.start * BYTES) as u64, piece.len() * BYTES);
        device.download(start, bytes)?;
        let mut stage = device.staging()?.as_chunks_mut::<BYTES>().0.iter_mut();
        for Run { place, stride, count } in runs(info, piece) {
            let places = (place..).step_by(stride).take(count);
            // The places end first: a stored value that is to be replaced would be lost.
            for (place, stored) in places.zip(stage.by_ref()) {
                if let Some(value) = place.checked_sub(first).and_then(|place| values.get(place)) {
                    *stored = S::to_bytes(*value);
                }
            }
        }
        device.upload(start, bytes)?;
    }
    Ok(())
}

/// Copies values from the start of a tensor, out of its layout: those from `first` on in the logical order. Values that
/// are stored between them are copied too, and skipped; those before and after them are not copied.
fn download<const BYTES: usize, S: Stored<BYTES>>(
    device: &mut dyn Device,
    info: &TensorInfo,
    address: u64,
    first: usize,
    values: &mut [S::Host],
    _as: S,
) -> Result<(), EngineError> {
    let most = device.staging()?.len() / BYTES;
    for piece in pieces(stored_span(info, first, values.len()), most) {
        device.download(address + (piece.start * BYTES) as u64, piece.len() * BYTES)?;
        let mut stage = device.staging()?.as_chunks::<BYTES>().0.iter();
        for Run { place, stride, count } in runs(info, piece) {
            let places = (place..).step_by(stride).take(count);
            // The places end first: a stored value that was asked for and not used would be lost.
            for (place, stored) in places.zip(stage.by_ref()) {
                if let Some(value) = place.checked_sub(first).and_then(|place| values.get_mut(place)) {
                    *value = S::from_stored(*stored);
                }
            }
        }
    }
    Ok(())
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
        match values {
            HostSlice::U8(values) => replace(device, info, to, first, values, StoredU8),
            HostSlice::F64(values) => replace(device, info, to, first, values, StoredF64),
            HostSlice::F32(values) if info.dtype == DType::Bf16 => {
                replace(device, info, to, first, values, StoredBf16)
            }
            HostSlice::F32(values) if info.dtype == DType::F16 => {
                replace(device, info, to, first, values, StoredF16)
            }
            HostSlice::F32(values) => replace(device, info, to, first, values, StoredF32),
        }
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
        match values {
            HostSliceMut::U8(values) => download(device, info, from, first, values, StoredU8),
            HostSliceMut::F64(values) => download(device, info, from, first, values, StoredF64),
            HostSliceMut::F32(values) if info.dtype == DType::Bf16 => {
                download(device, info, from, first, values, StoredBf16)
            }
            HostSliceMut::F32(values) if info.dtype == DType::F16 => {
                download(device, info, from, first, values, StoredF16)
            }
            HostSliceMut::F32(values) => download(device, info, from, first, values, StoredF32),
        }
    }

    fn run(&mut self, program: ProgramId) -> Result<(), EngineError> {
        let bound = self.programs.get(program.index()).ok_or_else(|| EngineError::missing("the program"))?;
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        match bound.replayed() {
            Some(recording) => {
                device.mark(0)?;
                device.replay(recording)?;
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
            bound.recording = match device.record(&bound.tasks(self.poison))? {
                Some(Recorded { number, taken }) => {
                    self.taken += Bytes::from_len(taken);
                    Recording::Recorded(number)
                }
                None => Recording::OneByOne,
            };
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
