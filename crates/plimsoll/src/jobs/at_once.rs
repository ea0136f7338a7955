//! Folds that train at the same time, in one process and within one memory limit.
//!
//! Shared memory counts once: the program's code and the index of the data set. Each fold gets the same part of the remaining memory and
//! of the threads. Neither changes the result of a fold.

use std::sync::Arc;
use std::thread;

use plimsoll_memory::{Budget, Bytes, Overhead, forget_heap_peak, forget_resident_peak, resident};
use plimsoll_plan::Backend;
use plimsoll_run::{Machine, RunPlan, RunRecord};
use plimsoll_train::{Job, Observer, PlannedRun, Siblings, TrainError, train};

use super::memory_limit::{MemoryLimit, driver_bytes};
use super::plan::{Opened, PlanRequest};
use crate::backend::DeviceName;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::folds_at_once::AtOnce;
use crate::monitors::Monitors;
use crate::watcher::Watcher;

/// The stack of the thread that leads a fold; the stacks of kernels and loaders are in the plan.
pub(super) const STACK: Bytes = Bytes::mib(2);

/// A limit for each of several folds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    folds: usize,
    /// Code, the index of the data set, and what the driver of a device holds of this process.
    common: Bytes,
}

impl Share {
    fn each(self, limit: Bytes) -> Bytes {
        let rest = limit - self.common - Bytes(STACK.0 * self.folds as u64);
        self.common + Bytes(rest.0 / self.folds as u64)
    }

    /// The memory of all folds if each takes `each`, shared memory included.
    pub(super) fn together(self, each: Bytes) -> Bytes {
        self.common + Bytes((each - self.common + STACK).0 * self.folds as u64)
    }
}

/// Plans runs of folds that train at the same time: `plan(folds)` gets the part of the machine and the backend of each fold.
pub struct Sharing<'a> {
    request: &'a PlanRequest,
    device: DeviceName,
    whole: Machine,
}

impl<'a> Sharing<'a> {
    /// The sharing of a machine on which a data set is open.
    pub fn new(request: &'a PlanRequest, device: DeviceName, opened: &Opened) -> Sharing<'a> {
        Sharing { request, device, whole: opened.machine }
    }

    /// The part of the machine that each of `folds` folds gets.
    pub fn part(&self, folds: usize, opened: &Opened) -> Machine {
        if folds == 1 {
            return self.whole;
        }
        let limit = share(folds, opened, driver_bytes(&*self.request.backend)).each(self.whole.limit);
        Machine { limit, ..self.whole }
    }

    /// Plans one of `folds` folds with `plan`, which gets a request and a data set for its part of the machine.
    pub(super) fn planned(
        &self,
        folds: usize,
        opened: &mut Opened,
        plan: &impl Fn(&PlanRequest, &Opened) -> Outcome<PlannedRun>,
    ) -> Outcome<PlannedRun> {
        if folds == 1 {
            opened.machine = self.whole;
            return plan(self.request, opened);
        }
        let threads = (self.whole.threads / folds).max(1);
        let loader_threads = match self.request.loader_threads {
            Some(asked) => (asked / folds).max(1),
            None => 1 + threads / 8,
        };
        let limit = share(folds, opened, driver_bytes(&*self.request.backend)).each(self.whole.limit);
        opened.machine = Machine { limit, threads, loader_threads };
        let backend: Arc<dyn Backend> = self.device.open_part(&*self.request.backend, folds, threads)?;
        plan(&PlanRequest { threads, backend, ..self.request.clone() }, opened)
    }

    /// Plans one of `folds` folds that must fit together.
    ///
    /// # Errors
    /// Returns an error if they do not fit; the error names the largest number of folds that does.
    pub fn plan(
        &self,
        folds: usize,
        opened: &mut Opened,
        plan: impl Fn(&PlanRequest, &Opened) -> Outcome<PlannedRun>,
    ) -> Outcome<PlannedRun> {
        let planned = self.planned(folds, opened, &plan)?;
        if folds == 1 || planned.numbers.feasible {
            return Ok(planned);
        }
        let RunPlan { minimum_ram_bytes, ram_budget_bytes, ref device, .. } = planned.numbers;
        for fewer in (1..folds).rev() {
            let other = self.planned(fewer, opened, &plan)?;
            if other.numbers.feasible {
                let of_device =
                    device.as_ref().map(|device| (device.minimum_vram_bytes, device.vram_budget_bytes));
                let (which, flag, needed, part) = match of_device.filter(|(needed, part)| needed > part) {
                    Some((needed, part)) => ("the device's limit".into(), "‹vram›", needed, part),
                    None => {
                        let limit = format!("the limit of {}", self.whole.limit);
                        (limit, "‹ram›", minimum_ram_bytes, ram_budget_bytes)
                    }
                };
                let message = format!(
                    "{folds} folds at once do not fit {which}: each needs {needed}, but its part is {part}, shared memory included"
                );
                return Err(Error::new(message, format!("‹parallel={fewer}› fits, or raise {flag}")));
            }
            if fewer == 1 {
                // Not even one alone: it says why.
                other.numbers.check()?;
            }
        }
        Ok(planned)
    }
}

/// Divides the memory limit among `folds` folds of a data set.
pub(super) fn share(folds: usize, opened: &Opened, driver: Bytes) -> Share {
    let code = Overhead::new(opened.machine.threads).code;
    Share { folds, common: code + opened.data.index_bytes() + opened.folds.held + driver }
}

impl AtOnce {
    /// The memory of `folds` folds with this plan.
    pub fn new(folds: usize, opened: &Opened, planned: &PlannedRun) -> AtOnce {
        let each = planned.numbers.total_bytes;
        AtOnce {
            folds,
            threads_each: opened.machine.threads,
            planned_bytes_each: each,
            planned_bytes: share(folds, opened, driver_bytes(&*planned.backend)).together(each),
            ram_budget_bytes: opened.memory.limits.limit,
            peak_rss_bytes: None,
        }
    }

    /// The memory and the number of all folds, for the training of each.
    pub fn siblings(&self) -> Siblings {
        Siblings { folds: self.folds, planned_bytes: self.planned_bytes }
    }

    /// Trains folds at the same time, each in its own part of the limit, until all have ended.
    ///
    /// # Errors
    /// The error of the first fold that failed; the others train to their ends first.
    pub fn train(
        &mut self,
        jobs: Vec<Job>,
        memory: &mut MemoryLimit,
        monitors: &Monitors,
        context: &Context,
    ) -> Outcome<Vec<RunRecord>> {
        // Each fold's own would begin it anew for all.
        forget_heap_peak();
        forget_resident_peak();
        let folds = self.folds as u64;
        let records = memory.lend_overhead(|budget| {
            let Some(numbers) = jobs.first().map(|job| job.planned.numbers.clone()) else {
                return Ok(Vec::new());
            };
            let overhead = numbers.overhead;
            let driver = numbers.device.as_ref().map_or(Bytes::ZERO, |device| device.driver.host);
            let own = overhead.heap + overhead.stacks + STACK;
            let _overhead = budget.reserve("overhead", overhead.code + driver + Bytes(own.0 * folds))?;
            let each = part_of(&numbers);
            let mut parts = Vec::new();
            for job in jobs {
                parts.push((budget.part(&format!("fold {}", job.folder.name()), each)?, job));
            }
            thread::scope(|scope| {
                let mut leaders = Vec::new();
                for (part, job) in parts {
                    let name = format!("fold {}", job.folder.name());
                    let title = name.clone();
                    let lead = move || lead(job, &part, &title, monitors, context);
                    let builder = thread::Builder::new().name(name).stack_size(STACK.0 as usize);
                    leaders.push(builder.spawn_scoped(scope, lead)?);
                }
                let ended: Vec<_> = leaders
                    .into_iter()
                    .map(|leader| leader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                    .collect();
                Ok(ended.into_iter().collect::<Result<Vec<_>, _>>()?)
            })
        })?;
        self.peak_rss_bytes = self.peak_rss_bytes.max(resident().ok().map(|resident| resident.peak));
        Ok(records)
    }
}

/// The budget of one of several folds: its part of the limit without the overhead of the process and without shared memory.
pub(super) fn part_of(numbers: &RunPlan) -> Bytes {
    let driver = numbers.device.as_ref().map_or(Bytes::ZERO, |device| device.driver.host);
    numbers.ram_budget_bytes - numbers.overhead.total() - numbers.index_bytes - driver
}

/// Trains a fold that is one of several, in its part of the limit; what is printed of it begins with its title.
pub(super) fn lead(
    job: Job,
    part: &Budget,
    title: &str,
    monitors: &Monitors,
    context: &Context,
) -> Result<RunRecord, TrainError> {
    let mut watcher = Watcher::with_title(title, &job.folder, &job.planned, monitors, context);
    let trained = train(job, part, context.stop.flag(), &mut watcher);
    if let Err(problem) = &trained {
        watcher.warning(&format!("ended with an error: {problem}"));
    }
    trained
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_limit_are_never_more_than_it_together() {
        for folds in 1..=7 {
            let share = Share { folds, common: Bytes::mib(13) };
            for limit in [100, 333, 1000].map(Bytes::mib) {
                let together = share.together(share.each(limit));
                assert!(together <= limit && limit - together < Bytes(8), "{folds} of {limit}: {together}");
            }
        }
    }
}
