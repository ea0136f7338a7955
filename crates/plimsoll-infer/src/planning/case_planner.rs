//! Fits the needs of a case below the memory limit, before anything is allocated for it.

use std::fmt::Write;

use plimsoll_graph::{DType, Program};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{Backend, Options, Planner, VerifiedPlan, engine_bytes};

use crate::error::{Alternative, InferError};
use crate::options::RingStorage;
use crate::planning::engines::{LeastWith, Otherwise, arena_room, left_there};
use crate::planning::needs::{CaseNeeds, DeviceLogits, LogitsNeeds, SpoolNeeds, StripNeeds};
use crate::planning::plan::PredictPlan;
use crate::summing::device_sums::HostSums;
use crate::summing::rows::Strips;

/// A way in which logits of a case may be summed.
#[derive(Clone, Copy)]
struct Way<'a> {
    ring: RingStorage,
    /// The bytes of this process.
    logits: Bytes,
    /// The bytes of the device that sums them, if one does.
    on_device: Option<Bytes>,
    /// None for whole planes.
    strips: Option<&'a StripNeeds>,
}

/// The memory of a device with an engine.
#[derive(Clone, Copy)]
struct DeviceRoom {
    /// The bytes of the arena and the driver.
    arena: Bytes,
    /// The limit.
    limit: Bytes,
}

/// A way of summing that fits, with its engine.
struct Fit<'a> {
    way: Way<'a>,
    /// The arena in this process.
    arena: Bytes,
    /// The least limit of this process that would do.
    minimum: Bytes,
    device: Option<DeviceRoom>,
    host_sums: Option<HostSums>,
    /// The predicted seconds of a run of the network.
    seconds_of_run: f64,
}

/// The bytes between the least limit of a case and the limit, by their use.
#[derive(Clone, Copy)]
struct Spare {
    cache: Bytes,
    /// Labels that wait in memory, whether the least limit counts them or not.
    spool: Bytes,
    /// Labels and probabilities that wait on the disk.
    spool_file: Bytes,
    queue: Bytes,
    ahead: Bytes,
    /// All that is taken beyond the least limit.
    taken: Bytes,
}

impl Spare {
    /// Distributes `left` bytes: decoded images come first, then labels that wait, then planes to be written, then the next case. A use
    /// that would get less than is of use to it gets nothing.
    fn distribute(needs: &CaseNeeds, is_spooled: bool, mut left: Bytes) -> Spare {
        let spare = left;
        let mut take = |wanted: Bytes, least: Bytes| {
            let taken = if least <= left { wanted.min(left) } else { Bytes::ZERO };
            left = left - taken;
            taken
        };
        let cache = take(needs.decoded, Bytes::ZERO);
        let SpoolNeeds { labels, is_in_memory, probabilities } = needs.spool;
        let (spool, spool_file) = match (is_spooled, is_in_memory) {
            (false, _) => (Bytes::ZERO, Bytes::ZERO),
            // The least limit counts them.
            (true, true) => (labels, probabilities),
            (true, false) => {
                let taken = take(labels, labels);
                (taken, labels - taken + probabilities)
            }
        };
        let queue = take(needs.queue, needs.least_queue);
        let ahead = take(needs.ahead, needs.ahead);
        Spare { cache, spool, spool_file, queue, ahead, taken: spare - left }
    }
}

/// The memory of an engine.
#[derive(Clone, Copy)]
struct EngineNeeds {
    /// The arena in this process.
    arena: Bytes,
    /// The bytes that a device has left beside its arena.
    left_there: Bytes,
}

/// The result of trying a traversal below the memory limit.
enum Tried {
    Fits(Box<PlannedCase>),
    /// With the engine that would be needed.
    TooLarge {
        engine: EngineNeeds,
    },
    /// The device has no room for sums beside the arena, but would have below a limit of its memory.
    NoRoomThere {
        vram: Bytes,
    },
}

/// Plans for cases under a limit.
pub(crate) struct CasePlanner<'a> {
    pub(crate) budget: &'a Budget,
    pub(crate) backend: &'a dyn Backend,
    pub(crate) program: &'a Program,
    /// The type in which the program stores features.
    pub(crate) precision: DType,
    /// The least needs of the same program with a change; `None` if the change is in effect already.
    pub(crate) least_with: &'a dyn Fn(Otherwise) -> Result<Option<LeastWith>, InferError>,
    /// A plan that is there already, of the engine or of another case.
    pub(crate) running: Option<&'a VerifiedPlan>,
    /// The bytes that are reserved for an engine now.
    pub(crate) held_by_engine: Bytes,
    pub(crate) overhead: Bytes,
    /// The bytes that are reserved for the case now, which the plan counts as available.
    pub(crate) held_for_case: Bytes,
}

/// A case that fits.
pub(crate) struct PlannedCase {
    pub(crate) plan: PredictPlan,
    /// The plan of an engine that has to take the place of the one that is there, if it has to.
    pub(crate) next: Option<VerifiedPlan>,
    /// The strips of its traversal, or `None` for whole planes.
    pub(crate) strips: Option<Strips>,
    /// `true` if labels have to be put in order.
    pub(crate) is_spooled: bool,
    /// The bytes that a device has left beside the arena, for sums.
    pub(crate) left_there: Bytes,
}

/// The additional time that the network may take for a smaller arena, as a share of the fastest plan: if a few cheap values are recomputed, the memory it
/// needs falls by far more than this.
const SPARING: f64 = 0.01;

impl CasePlanner<'_> {
    /// Plans what a case holds. Sums are stored in the first of the ways for which the limit has room beside the least arena; the arena
    /// takes what is left beside them: the engine that is there stays if it fits, else there is a new one, which recomputes more. Where
    /// there is no room for the sums of whole planes, the case is passed through in the fewest strips that fit.
    ///
    /// # Errors
    /// Returns an error if the limit is too low for all of them, or the program cannot be planned.
    pub(crate) fn plan(&self, needs: &CaseNeeds) -> Result<PlannedCase, InferError> {
        let mut planner: Option<Planner<'_>> = None;
        let mut refused = None;
        let mut no_room = None;
        // What is stored decides over labels, and who adds does not: so that comes first.
        for (ring, on_device) in needs.rings().flat_map(|ring| [(ring, true), (ring, false)]) {
            let Some((logits, there)) = needs.logits.stored_as(ring, on_device) else { continue };
            let way = Way { ring, logits, on_device: there, strips: None };
            match self.attempt(needs, way, no_room, &mut planner)? {
                Tried::Fits(planned) => return Ok(*planned),
                Tried::TooLarge { engine } => refused = Some((ring, engine)),
                Tried::NoRoomThere { vram } => no_room = Some(vram),
            }
        }
        // Sums that take least, in as few strips as there is room for.
        let (ring, engine) = refused.ok_or_else(lost)?;
        let beside = self.fixed() + self.beside(needs, true) + engine.arena;
        for (strips, on_device) in needs.strips.iter().flat_map(|strips| [(strips, true), (strips, false)]) {
            let Some((logits, there)) = strips.logits.stored_as(ring, on_device) else { continue };
            if beside + logits > self.budget.limit() {
                continue;
            }
            let way = Way { ring, logits, on_device: there, strips: Some(strips) };
            match self.attempt(needs, way, no_room, &mut planner)? {
                Tried::Fits(planned) => return Ok(*planned),
                Tried::TooLarge { .. } => break,
                Tried::NoRoomThere { vram } => no_room = Some(vram),
            }
        }
        Err(self.infeasible(needs, ring, engine)?)
    }

    /// Returns the bytes of a case beside the arena and the logits.
    fn beside(&self, needs: &CaseNeeds, is_spooled: bool) -> Bytes {
        let has_to_wait = is_spooled && needs.spool.is_in_memory;
        let spool = if has_to_wait { needs.spool.labels } else { Bytes::ZERO };
        needs.preparation + needs.decoding + spool
    }

    /// Plans a case in one of the ways. `no_room` is the limit of the device's memory with which it would have had room for sums.
    fn attempt<'b>(
        &'b self,
        needs: &CaseNeeds,
        way: Way<'_>,
        no_room: Option<Bytes>,
        planner: &mut Option<Planner<'b>>,
    ) -> Result<Tried, InferError> {
        let limit = self.budget.limit();
        let is_spooled = needs.slab_axis != 0 || way.strips.is_some();
        let beside_arena = self.fixed() + (way.logits + self.beside(needs, is_spooled));
        let next = self.next_engine(limit - beside_arena, planner)?;
        let chosen = next.as_ref().or(self.running).ok_or_else(lost)?;
        let arena = engine_bytes(self.backend, chosen);
        // A device that has no room for the arena either is reported once this process has room.
        let left_there = left_there(self.backend, chosen).unwrap_or(Bytes::ZERO);
        let minimum = beside_arena + arena;
        if minimum > limit {
            return Ok(Tried::TooLarge { engine: EngineNeeds { arena, left_there } });
        }
        let device = self.device_room(needs, chosen)?;
        let sums_there = way.on_device.unwrap_or(Bytes::ZERO);
        if let Some(device) = device
            && device.arena + sums_there > device.limit
        {
            return Ok(Tried::NoRoomThere { vram: device.arena + sums_there });
        }
        let host_sums = match (device, way.on_device, no_room) {
            (None, ..) | (_, Some(_), _) => None,
            (Some(_), None, Some(vram_bytes)) => Some(HostSums::NoRoom { vram_bytes }),
            (Some(_), None, None) => Some(HostSums::Weights),
        };
        let schedule = chosen.schedules.first().ok_or_else(lost)?;
        let fit = Fit { way, arena, minimum, device, host_sums, seconds_of_run: schedule.predicted_seconds };
        let spare = Spare::distribute(needs, is_spooled, limit - minimum);
        let plan = self.plan_of(needs, &fit, spare);
        let strips = way.strips.map(|strips| strips.strips);
        Ok(Tried::Fits(Box::new(PlannedCase { plan, next, strips, is_spooled, left_there })))
    }

    /// Returns the plan of an engine whose arena takes at most `room`; `None` if the engine that exists does.
    fn next_engine<'b>(
        &'b self,
        room: Bytes,
        planner: &mut Option<Planner<'b>>,
    ) -> Result<Option<VerifiedPlan>, InferError> {
        if self.running.is_some_and(|running| engine_bytes(self.backend, running) <= room) {
            return Ok(None);
        }
        let programs = std::slice::from_ref(self.program);
        let planner = match planner {
            Some(planner) => planner,
            none => none.insert(Planner::new(programs, self.backend, Options::default())?),
        };
        Ok(Some(planner.sparing_plan(Some(arena_room(self.backend, room)), SPARING)?))
    }

    /// Returns the memory of the device of an engine, or `None` without a device.
    ///
    /// # Errors
    /// Returns an error if the device has no room for the arena.
    fn device_room(
        &self,
        needs: &CaseNeeds,
        engine: &VerifiedPlan,
    ) -> Result<Option<DeviceRoom>, InferError> {
        let Some(device) = self.backend.device_memory() else { return Ok(None) };
        let (arena, limit) = (device.needed(engine.arena_bytes), device.limit());
        if arena > limit {
            let windows = needs.window_batch;
            return Err(InferError::InfeasibleOnDevice { needed: arena, limit, windows });
        }
        Ok(Some(DeviceRoom { arena, limit }))
    }

    /// Returns the plan of a case that fits.
    fn plan_of(&self, needs: &CaseNeeds, fit: &Fit<'_>, spare: Spare) -> PredictPlan {
        let Fit { way: Way { ring, logits, on_device, strips }, arena, minimum, device, .. } = *fit;
        let (limit, fixed) = (self.budget.limit(), self.fixed());
        let device_logits_bytes = on_device.unwrap_or(Bytes::ZERO);
        let windows = strips.map_or(needs.windows, |strips| strips.windows);
        // Sums in f32 would be of whole planes: strips are for limits that have no room for these in f16 either.
        let beside_planes = fixed + arena + self.beside(needs, needs.slab_axis != 0);
        let f32_ring_ram_bytes = match ring {
            RingStorage::F32 => minimum,
            RingStorage::F16 => beside_planes + needs.logits.by_host.in_f32,
        };
        let f32_ring_vram_bytes =
            device.zip(needs.logits.by_device).and_then(|(device, DeviceLogits { here, there })| {
                (beside_planes + here.in_f32 <= limit).then_some(device.arena + there.in_f32)
            });
        PredictPlan {
            ram_budget_bytes: limit,
            overhead_bytes: self.overhead,
            arena_bytes: arena,
            device_bytes: device.map(|device| device.arena + device_logits_bytes),
            device_logits_bytes,
            host_sums: fit.host_sums,
            window_bytes: fixed - self.overhead,
            logits_bytes: logits,
            preparation_bytes: needs.preparation,
            decoding_bytes: needs.decoding,
            cache_bytes: spare.cache,
            decompressed_file_bytes: if spare.cache < needs.decoded { needs.compressed } else { Bytes::ZERO },
            spool_bytes: spare.spool,
            spool_file_bytes: spare.spool_file,
            queue_bytes: spare.queue,
            ahead_bytes: spare.ahead,
            total_bytes: minimum + spare.taken,
            minimum_ram_bytes: minimum,
            summed: needs.summed,
            ring,
            f32_ring_ram_bytes,
            f32_ring_vram_bytes,
            precision: self.precision,
            slab_axis: needs.slab_axis,
            strips: strips.map_or(1, |strips| strips.count),
            windows,
            repeated_windows: windows.saturating_sub(needs.windows),
            looks: needs.looks,
            window_batch: needs.window_batch,
            // In strips, a row's last run is as full as in whole planes.
            predicted_seconds: fit.seconds_of_run * needs.runs as f64 * windows as f64
                / needs.windows.max(1) as f64,
        }
    }

    /// Returns the bytes that are reserved now for neither a case nor an engine.
    fn fixed(&self) -> Bytes {
        self.budget.used() - self.held_by_engine - self.held_for_case
    }

    /// The least limit for a case, with an arena and the sums that take least, beside which a device has something left.
    pub(crate) fn least_limit(&self, needs: &CaseNeeds, arena: Bytes, left_there: Bytes) -> Bytes {
        let of_ring = |ring| self.least(needs, &|sums| sums.least(sums.by_host, ring, left_there));
        let least = needs.rings().map(of_ring).min_by_key(|(all, _)| *all);
        let of_case = least.map_or(Bytes(u64::MAX), |(all, _)| all);
        self.fixed() + (arena + of_case).max(needs.inspection)
    }

    /// Refuses a case that the limit has no room to inspect, which comes before any engine. `least` is the least limit for the case.
    pub(crate) fn expect_inspection(&self, needs: &CaseNeeds, least: Bytes) -> Result<(), InferError> {
        let (fixed, limit) = (self.fixed(), self.budget.limit());
        if fixed + needs.inspection <= limit {
            return Ok(());
        }
        let (inspection, windows, overhead) = (needs.inspection, fixed - self.overhead, self.overhead);
        let parts = format!("inspection {inspection}, windows {windows}, overhead {overhead}");
        let (case, alternatives) = (needs.case.clone(), Vec::new());
        Err(InferError::Infeasible { case, needed: least, limit, parts, alternatives })
    }

    /// The least that a case takes beside the arena, and the logits of that: of whole planes, or of the strips that take least. `here` says
    /// what this process holds of logits.
    fn least(&self, needs: &CaseNeeds, here: &dyn Fn(&LogitsNeeds) -> Bytes) -> (Bytes, Bytes) {
        let whole = here(&needs.logits);
        let whole = (whole + self.beside(needs, needs.slab_axis != 0), whole);
        let in_strips = needs.strips.iter().map(|strips| here(&strips.logits)).min();
        let in_strips = in_strips.map(|logits| (logits + self.beside(needs, true), logits));
        in_strips.map_or(whole, |in_strips| in_strips.min(whole))
    }

    /// Says what a case needs at least, and with what it would need less.
    fn infeasible(
        &self,
        needs: &CaseNeeds,
        ring: RingStorage,
        EngineNeeds { arena, left_there }: EngineNeeds,
    ) -> Result<InferError, InferError> {
        let fixed = self.fixed();
        let of_ring = |ring| self.least(needs, &|sums| sums.least(sums.by_host, ring, left_there));
        let with =
            |fixed: Bytes, arena: Bytes, of_case: Bytes| fixed + (arena + of_case).max(needs.inspection);
        let (of_case, logits) = of_ring(ring);
        let needed = with(fixed, arena, of_case);
        let mut parts = String::new();
        let window_bytes = fixed - self.overhead;
        let all = [
            ("arena", arena),
            ("logits", logits),
            ("windows", window_bytes),
            ("preparation", needs.preparation),
            ("decoding", needs.decoding),
            ("spool", of_case - (logits + needs.preparation + needs.decoding)),
            ("overhead", self.overhead),
        ];
        for (number, (part, bytes)) in all.into_iter().enumerate() {
            let between = if number == 0 { "" } else { ", " };
            // Writing to a text does not fail.
            let _ = write!(parts, "{between}{part} {bytes}");
        }
        let mut alternatives = Vec::new();
        if ring == RingStorage::F32 {
            let (in_f16, _) = of_ring(RingStorage::F16);
            alternatives.push(Alternative { setting: "‹ring=f16›", needed: with(fixed, arena, in_f16) });
        }
        if let Some(one) = (self.least_with)(Otherwise::OneWindow)? {
            let LeastWith { arena, saved, left_there } = one;
            let (of_case, _) = self.least(needs, &|sums| sums.least(sums.by_host_of_one, ring, left_there));
            alternatives.push(Alternative {
                setting: "‹window_batch=1›",
                needed: with(fixed - saved, arena, of_case),
            });
        }
        if self.backend.device_memory().is_none()
            && let Some(LeastWith { arena, .. }) = (self.least_with)(Otherwise::Halved)?
        {
            alternatives
                .push(Alternative { setting: "‹precision=bf16›", needed: with(fixed, arena, of_case) });
        }
        alternatives.retain(|alternative| alternative.needed < needed);
        let (case, limit) = (needs.case.clone(), self.budget.limit());
        Ok(InferError::Infeasible { case, needed, limit, parts, alternatives })
    }
}

fn lost() -> InferError {
    plimsoll_plan::EngineError::Internal("a case was planned without a program".into()).into()
}
