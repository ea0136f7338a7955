//! Trials that train at the same time, in one process and below one limit.
//!
//! The machine is divided into equal parts, as many as may train at once; a trial of an arm that does not fit one part takes several. Each
//! begins in its turn as soon as its parts are free: a slow one holds up nobody but who needs its parts, and a large one is not
//! overtaken, so it does not starve. How many train at once changes no bit of what they come to.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use plimsoll_memory::{Reservation, forget_heap_peak, forget_resident_peak};
use plimsoll_run::{RunRecord, StopReason, Trial};
use plimsoll_train::{Siblings, TrainError};

use super::Sweep;
use super::planning::{PlannedArm, width};
use super::trials::no_arm;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::at_once::{STACK, lead, part_of, share};
use crate::jobs::memory_limit::driver_bytes;

/// A trial that has ended.
struct Ending {
    trial: Trial,
    width: usize,
    /// Or what its thread panicked with.
    trained: thread::Result<Result<RunRecord, TrainError>>,
}

/// The share of the machine that the trials of a sweep have together.
struct Pool {
    all: usize,
    free: usize,
    sender: Sender<Ending>,
    endings: Receiver<Ending>,
    /// The reservation of shared memory; `None` while no trial runs.
    common: Option<Reservation>,
    trained: Vec<(Trial, RunRecord)>,
}

impl Sweep<'_> {
    /// Trains trials, of which those are returned that are to be validated.
    pub(super) fn side_by_side(
        &mut self,
        todo: &[Trial],
        context: &Context,
    ) -> Outcome<Vec<(Trial, RunRecord)>> {
        // Each trial's own would begin it anew for all.
        forget_heap_peak();
        forget_resident_peak();
        let all = self.job.parallel.min(self.asked_trials().len()).max(1);
        let (sender, endings) = channel();
        let mut pool = Pool { all, free: all, sender, endings, common: None, trained: Vec::new() };
        self.opened.memory.give_overhead_back();
        let went = thread::scope(|scope| -> Outcome {
            for trial in todo {
                let parts = self.arm(trial).ok_or_else(|| no_arm(trial))?.parts;
                while pool.free < width(all, parts) {
                    pool.wait(self, context)?;
                }
                if context.stop.is_asked() {
                    break;
                }
                if self.is_elsewhere(trial).is_some() {
                    continue;
                }
                if parts == 1 {
                    // It has the whole machine, and all others have ended.
                    pool.common = None;
                    self.opened.memory.hold_overhead()?;
                    let went = self.train_and_validate(trial, context);
                    self.opened.memory.give_overhead_back();
                    self.conclude(trial, went, context)?;
                } else if let Err(failure) = self.begin(trial, scope, &mut pool, context) {
                    self.conclude(trial, Err(failure), context)?;
                }
            }
            while pool.free < all {
                pool.wait(self, context)?;
            }
            Ok(())
        });
        pool.common = None;
        self.opened.memory.hold_overhead()?;
        went.map(|()| pool.trained)
    }

    /// Begins a trial in a thread of its own. Its memory is reserved before it is planned, since planning takes memory too.
    fn begin<'scope, 'env>(
        &mut self,
        trial: &Trial,
        scope: &'scope thread::Scope<'scope, 'env>,
        pool: &mut Pool,
        context: &'env Context,
    ) -> Outcome {
        let budget = self.opened.memory.budget.clone();
        let PlannedArm { numbers, parts, .. } = self.arm(trial).ok_or_else(|| no_arm(trial))?;
        let (parts, overhead) = (*parts, numbers.overhead);
        let driver = driver_bytes(&*self.job.plan.backend);
        let common = match pool.common.take() {
            Some(common) => common,
            None => budget.reserve("overhead", overhead.code + driver)?,
        };
        pool.common = Some(common);
        let own = budget.reserve("overhead", overhead.heap + overhead.stacks + STACK)?;
        let part = budget.part(&trial.to_string(), part_of(numbers))?;
        let planned_bytes = share(parts, &self.opened, driver).together(numbers.total_bytes);
        let (request, prepared) = self.prepare(trial, parts)?;
        let siblings = Siblings { folds: parts, planned_bytes };
        let job = prepared.trial(&request, &self.opened, Some(siblings))?;
        drop(prepared);
        context.keep_results();
        let (title, sender, width) = (trial.to_string(), pool.sender.clone(), width(pool.all, parts));
        let trial = trial.clone();
        let monitors = request.monitoring.open(&request.run);
        let leader = move || {
            let trained = catch_unwind(AssertUnwindSafe(|| lead(job, &part, &title, &monitors, context)));
            drop((part, own));
            // Whoever waits for it lives as long as this thread.
            let _ = sender.send(Ending { trial, width, trained });
        };
        thread::Builder::new()
            .name("trial".into())
            .stack_size(STACK.0 as usize)
            .spawn_scoped(scope, leader)?;
        pool.free -= width;
        Ok(())
    }
}

impl Pool {
    /// Waits until a trial ends.
    fn wait(&mut self, sweep: &Sweep<'_>, context: &Context) -> Outcome {
        let Ending { trial, width, trained } = self.endings.recv().map_err(|problem| {
            Error::new(problem, "this is a bug: report it with the command and this message")
        })?;
        self.free += width;
        match trained.unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(record) if record.ended == StopReason::Signal => Ok(()),
            Ok(record) => {
                context.note(format_args!("{trial}: {}", record.ended));
                self.trained.push((trial, record));
                Ok(())
            }
            Err(problem) => sweep.conclude(&trial, Err(problem.into()), context),
        }
    }
}
