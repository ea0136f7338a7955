//! What predicting a case holds, and how long it takes: planned from the shapes of its images alone, before anything is allocated for it.

use std::fmt::Write;

use plimsoll_graph::{DType, Program};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{Backend, DeviceMemory, Options, Planner, VerifiedPlan, engine_bytes};
use serde::Serialize;

use crate::InferError;
use crate::sums::RingStorage;

/// What predicting a case holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictPlan {
    /// The memory line.
    pub ram_budget_bytes: Bytes,
    /// Code, heap and stacks.
    pub overhead_bytes: Bytes,
    /// Parameters, features and kernels' scratch: of a device, only what is copied to it through.
    pub arena_bytes: Bytes,
    /// What is held of a device with memory of its own, the arena and the driver's context; none on the processor.
    pub device_bytes: Option<Bytes>,
    /// Windows on their way in and out, and what they are read through.
    pub window_bytes: Bytes,
    /// Logits being summed, and a plane of labels; of probabilities, where they are wanted.
    pub logits_bytes: Bytes,
    /// What has to be known of all of a case before any window: its mask, and the ranges of its slices. 0 of models of our own runs.
    pub preparation_bytes: Bytes,
    /// What decoding the pictures of the case takes; 0 of volumes.
    pub decoding_bytes: Bytes,
    /// Decoded images: the whole case, or what is left of the line.
    pub cache_bytes: Bytes,
    /// Planes of labels that wait for being written; 0 where the line leaves no room for any, so that each is written at once.
    pub queue_bytes: Bytes,
    /// What the next case is inspected and decoded in meanwhile; 0 where there is none, or the line leaves no room for it.
    pub ahead_bytes: Bytes,
    /// All of these.
    pub total_bytes: Bytes,
    /// The least line that would do with this arena and these sums: without a cache, a queue and the next case.
    pub minimum_ram_bytes: Bytes,
    /// How sums of logits are stored.
    pub ring: RingStorage,
    /// The least line in which they would be stored in single precision, with the same arena.
    pub f32_ring_ram_bytes: Bytes,
    /// How features are stored.
    pub precision: DType,
    /// Windows, each fold counted. Of images that are cut to what is not zero, as many as there are at most.
    pub windows: usize,
    /// How often each of these is looked at: mirrored in all ways, or once.
    pub looks: usize,
    /// What all forward passes are predicted to take.
    pub predicted_seconds: f64,
}

/// What a case would hold and take, as far as the headers of its images say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseEstimate {
    /// What it would hold below the line.
    pub plan: PredictPlan,
    /// The least line that would do, with the least arena that is found and sums that take least.
    pub least_ram_bytes: Bytes,
}

impl PredictPlan {
    /// The parts of what is held of this process's memory, with what each is.
    pub fn parts(&self) -> [(&'static str, Bytes); 9] {
        [
            ("overhead", self.overhead_bytes),
            ("arena", self.arena_bytes),
            ("windows", self.window_bytes),
            ("logits", self.logits_bytes),
            ("preparation", self.preparation_bytes),
            ("decoding", self.decoding_bytes),
            ("cache", self.cache_bytes),
            ("queue", self.queue_bytes),
            ("next case", self.ahead_bytes),
        ]
    }
}

/// What a case needs beside the arena.
#[derive(Clone, Debug)]
pub(crate) struct CaseNeeds {
    /// Its name.
    pub(crate) case: String,
    /// Logits being summed, in single precision and in half.
    pub(crate) in_f32: Bytes,
    pub(crate) in_f16: Bytes,
    /// How sums have to be stored; none where it is single precision if the line has room for that.
    pub(crate) ring: Option<RingStorage>,
    pub(crate) preparation: Bytes,
    pub(crate) decoding: Bytes,
    /// Decoded images.
    pub(crate) decoded: Bytes,
    /// Planes of labels that may wait for being written, and the fewest that are of use.
    pub(crate) queue: Bytes,
    pub(crate) least_queue: Bytes,
    /// What the next case is inspected and decoded in; 0 without one.
    pub(crate) ahead: Bytes,
    pub(crate) windows: usize,
    pub(crate) looks: usize,
}

impl CaseNeeds {
    fn logits(&self, ring: RingStorage) -> Bytes {
        match ring {
            RingStorage::F32 => self.in_f32,
            RingStorage::F16 => self.in_f16,
        }
    }

    /// How sums may be stored, what is to be preferred first.
    fn rings(&self) -> impl Iterator<Item = RingStorage> + use<> {
        let ring = self.ring;
        RingStorage::ALL.into_iter().filter(move |storage| ring.is_none_or(|ring| ring == *storage))
    }
}

/// Plans for cases under a line.
pub(crate) struct CasePlanner<'a> {
    pub(crate) budget: &'a Budget,
    pub(crate) backend: &'a dyn Backend,
    pub(crate) program: &'a Program,
    /// How the program stores features.
    pub(crate) precision: DType,
    /// The least arena of the same program with features in 16 bits; none where they are already.
    pub(crate) halved: &'a dyn Fn() -> Result<Option<Bytes>, InferError>,
    /// A plan that is there already, of the engine or of another case.
    pub(crate) running: Option<&'a VerifiedPlan>,
    /// What is held for an engine now.
    pub(crate) held_by_engine: Bytes,
    pub(crate) overhead: Bytes,
    /// What is held now for the case itself: it is planned for as if it were not.
    pub(crate) held_for_case: Bytes,
}

/// A case that fits.
pub(crate) struct PlannedCase {
    pub(crate) plan: PredictPlan,
    /// The plan of an engine that has to take the place of the one that is there, if it has to.
    pub(crate) next: Option<VerifiedPlan>,
}

/// What a case would need if something were done otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instead {
    /// The flag that says so, with its value.
    pub flag: &'static str,
    /// The least line that would do.
    pub needed: Bytes,
}

/// The least arena that is found for a program: of a device, what is copied through.
///
/// # Errors
/// If the program cannot be planned.
pub(crate) fn least_arena(program: &Program, backend: &dyn Backend) -> Result<Bytes, InferError> {
    let room = backend.device_memory().map_or(0, DeviceMemory::room);
    let planned =
        Planner::new(std::slice::from_ref(program), backend, Options::default())?.plan(Some(room))?;
    Ok(engine_bytes(backend, &planned))
}

impl CasePlanner<'_> {
    /// Plans what a case holds. Sums are stored in the first of the ways for which the line has room beside the least arena; the arena
    /// takes what is left beside them: the engine that is there stays if it fits, else there is a new one, which recomputes more.
    ///
    /// # Errors
    /// If the line is too low for all of them, or the program cannot be planned.
    pub(crate) fn plan(&self, needs: &CaseNeeds) -> Result<PlannedCase, InferError> {
        let line = self.budget.line();
        let device = self.backend.device_memory();
        let arena = |plan: &VerifiedPlan| engine_bytes(self.backend, plan);
        let running = self.running.map_or(Bytes::ZERO, arena);
        let fixed = self.fixed();
        let beside = needs.preparation + needs.decoding;
        let mut planner: Option<Planner<'_>> = None;
        let mut refused = None;
        for ring in needs.rings() {
            let logits_bytes = needs.logits(ring);
            let of_case = logits_bytes + beside;
            let room = line - (fixed + of_case);
            let mut next = None;
            let is_kept = self.running.is_some() && running <= room;
            if !is_kept {
                let room = usize::try_from(room.0).unwrap_or(usize::MAX);
                let room = device.map_or(room, DeviceMemory::room);
                let programs = std::slice::from_ref(self.program);
                let planner = match &mut planner {
                    Some(planner) => planner,
                    none => none.insert(Planner::new(programs, self.backend, Options::default())?),
                };
                next = Some(planner.plan(Some(room))?);
            }
            let arena_bytes = next.as_ref().map_or(running, arena);
            let minimum_ram_bytes = fixed + arena_bytes + of_case;
            if minimum_ram_bytes > line {
                refused = Some((ring, logits_bytes, arena_bytes));
                continue;
            }
            let of_device =
                |plan: &VerifiedPlan| device.map(|device| (device.needed(plan.arena_bytes), device.line()));
            let chosen = next.as_ref().or(self.running).ok_or_else(lost)?;
            let on_device = of_device(chosen);
            if let Some((needed, line)) = on_device.filter(|(needed, line)| needed > line) {
                return Err(InferError::InfeasibleOnDevice { needed, line });
            }
            let schedule = chosen.schedules.first().ok_or_else(lost)?;
            let mut left = line - minimum_ram_bytes;
            // What there is less room for than the least that is of use gets none.
            let mut take = |wanted: Bytes, least: Bytes| {
                let taken = if least <= left { wanted.min(left) } else { Bytes::ZERO };
                left = left - taken;
                taken
            };
            let cache_bytes = take(needs.decoded, Bytes::ZERO);
            let queue_bytes = take(needs.queue, needs.least_queue);
            let ahead_bytes = take(needs.ahead, needs.ahead);
            let plan = PredictPlan {
                ram_budget_bytes: line,
                overhead_bytes: self.overhead,
                arena_bytes,
                device_bytes: on_device.map(|(needed, _)| needed),
                window_bytes: fixed - self.overhead,
                logits_bytes,
                preparation_bytes: needs.preparation,
                decoding_bytes: needs.decoding,
                cache_bytes,
                queue_bytes,
                ahead_bytes,
                total_bytes: minimum_ram_bytes + cache_bytes + queue_bytes + ahead_bytes,
                minimum_ram_bytes,
                ring,
                f32_ring_ram_bytes: minimum_ram_bytes - logits_bytes + needs.in_f32,
                precision: self.precision,
                windows: needs.windows,
                looks: needs.looks,
                predicted_seconds: schedule.predicted_seconds * needs.windows as f64 * needs.looks as f64,
            };
            return Ok(PlannedCase { plan, next });
        }
        let (ring, logits, arena) = refused.ok_or_else(lost)?;
        Err(self.infeasible(needs, (ring, logits), (fixed, arena))?)
    }

    /// What is held now for no case and no engine.
    fn fixed(&self) -> Bytes {
        self.budget.used() - self.held_by_engine - self.held_for_case
    }

    /// The least line for a case, with an arena and the sums that take least.
    pub(crate) fn least_line(&self, needs: &CaseNeeds, arena: Bytes) -> Bytes {
        let logits = needs.rings().map(|ring| needs.logits(ring)).min();
        self.fixed() + arena + logits.unwrap_or(needs.in_f32) + needs.preparation + needs.decoding
    }

    /// Says what a case needs at least, and with what it would need less.
    fn infeasible(
        &self,
        needs: &CaseNeeds,
        (ring, logits): (RingStorage, Bytes),
        (fixed, arena): (Bytes, Bytes),
    ) -> Result<InferError, InferError> {
        let of_case = logits + needs.preparation + needs.decoding;
        let needed = fixed + arena + of_case;
        let mut parts = String::new();
        let window_bytes = fixed - self.overhead;
        let all = [
            ("arena", arena),
            ("logits", logits),
            ("windows", window_bytes),
            ("preparation", needs.preparation),
            ("decoding", needs.decoding),
            ("overhead", self.overhead),
        ];
        for (number, (part, bytes)) in all.into_iter().enumerate() {
            let between = if number == 0 { "" } else { ", " };
            // Writing to a text does not fail.
            let _ = write!(parts, "{between}{part} {bytes}");
        }
        let mut instead = Vec::new();
        if ring == RingStorage::F32 {
            instead.push(Instead { flag: "--ring f16", needed: needed - logits + needs.in_f16 });
        }
        if self.backend.device_memory().is_none()
            && let Some(halved) = (self.halved)()?
            && halved < arena
        {
            instead.push(Instead { flag: "--precision bf16", needed: fixed + halved + of_case });
        }
        let (case, line) = (needs.case.clone(), self.budget.line());
        Ok(InferError::Infeasible { case, needed, line, parts, instead })
    }
}

fn lost() -> InferError {
    plimsoll_plan::EngineError::Internal("a case was planned without a program".into()).into()
}
