//! The memory and the time of a sweep before it begins.

use std::collections::BTreeMap;

use plimsoll_memory::Bytes;
use plimsoll_run::{ArmRequest, Resolved, RunError, RunPlan, Trial, setting_changes};
use serde::Serialize;

use super::Sweep;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::train::prepare_part;

/// An arm whose trials are planned.
pub struct PlannedArm {
    pub asked: ArmRequest,
    pub resolved: Resolved,
    /// The plan of each trial.
    pub numbers: RunPlan,
    /// The number of equal parts of the machine, of which a trial takes one: as many as may train at the same time, or fewer if it does
    /// not fit.
    pub parts: usize,
}

/// The plan of a sweep, for people and as JSON.
#[derive(Serialize)]
pub struct SweepReport {
    /// The memory limit.
    pub ram_budget_bytes: Bytes,
    /// The arms of the requested trials; all arms of a sweep that begins or grows.
    pub arms: Vec<ArmReport>,
    /// The number of seeds.
    pub seeds: usize,
    /// The number of folds.
    pub folds: usize,
    /// The number of requested trials.
    pub trials: usize,
    /// The number of all trials.
    pub all_trials: usize,
    /// The largest number of trials that train at the same time.
    pub parallel: usize,
    /// Predicted time of all of them, but for predicting validation cases.
    pub predicted_seconds: f64,
}

/// The plan of the trials of an arm.
#[derive(Serialize)]
pub struct ArmReport {
    /// The name of the arm.
    pub name: String,
    /// The settings of the arm that differ from the others.
    pub settings: BTreeMap<String, serde_json::Value>,
    /// `true` if it fits the limit.
    pub fits: bool,
    /// The most memory that was planned.
    pub planned_bytes: Bytes,
    /// The least memory limit that suffices.
    pub minimum_ram_bytes: Bytes,
    /// The planned memory of the device; `None` on the processor.
    pub planned_vram_bytes: Option<Bytes>,
    /// The patch as (depth, height, width) in voxels.
    pub patch_size: [usize; 3],
    /// Samples of a step.
    pub batch_size: usize,
    /// Samples that are computed together.
    pub micro_batch: usize,
    /// Steps of a trial.
    pub steps: u64,
    /// The predicted time of a step.
    pub predicted_seconds_per_step: f64,
    /// The predicted time of one trial.
    pub predicted_seconds: f64,
    /// The number of equal parts of the machine, of which a trial takes one.
    pub parts: usize,
    /// The allowed changes that made it fit.
    pub changes: Vec<String>,
    /// Why it does not fit.
    pub problem: Option<String>,
}

impl Sweep<'_> {
    /// Plans a trial of each arm. The error lists the problems of all arms.
    pub(super) fn plan(&mut self, context: &Context) -> Outcome {
        let trials = self.asked_trials();
        let most = self.job.parallel.min(trials.len()).max(1);
        // A task of one trial need not plan the arms of others, once they are written down. Whoever adds to a sweep writes its request
        // anew, so all arms in it are held against those that the sweep began with.
        let is_added_to = self.stored.as_ref() != Some(&self.trials);
        let is_needed =
            |arm: &&ArmRequest| is_added_to || trials.iter().any(|trial| trial.arm == arm.arm.name);
        let asked: Vec<&ArmRequest> = self.job.asked.arms.iter().filter(is_needed).collect();
        let progress = context.work("planning", asked.len() as u64);
        let mut problems: Vec<Error> = Vec::new();
        for (number, arm) in asked.into_iter().enumerate() {
            progress.set(number as u64, arm.arm.name.clone());
            match self.plan_arm(arm, most) {
                Ok(planned) => self.arms.push(planned),
                Err(problem) => {
                    let message = format!("arm `{}`: {}", arm.arm.name, problem.line());
                    problems.push(Error::new(message, problem.remedy().clone()));
                }
            }
        }
        drop(progress);
        join_errors(problems)
    }

    /// Plans an arm for the smallest part of the machine that it fits, of at most `most` parts; for the whole machine if it fits none.
    fn plan_arm(&mut self, asked: &ArmRequest, most: usize) -> Outcome<PlannedArm> {
        let (seed, fold) = match (self.trials.seeds.first(), self.trials.folds.first()) {
            (Some(seed), Some(fold)) => (*seed, *fold),
            _ => return Err(Error::new("no folds are chosen", "name some in `folds`")),
        };
        let trial = Trial { arm: asked.arm.name.clone(), seed, fold };
        let like = match self.is_stored(asked) {
            true => Some(self.job.folder.read_resolved(&trial.arm)?),
            false => None,
        };
        if let Some(like) = like.as_ref().filter(|like| like.settings != asked.settings) {
            let changes = setting_changes(&like.settings, &asked.settings)?;
            let folder = self.job.folder.path().join(&trial.arm);
            return Err(RunError::OtherSpecification { folder, changes }.into());
        }
        let mut parts = most;
        loop {
            let (request, checked) = self.request(asked, like.clone(), &trial)?;
            match prepare_part(&request, checked, &mut self.opened, parts) {
                Ok(prepared) if prepared.planned.numbers.feasible || parts == 1 => {
                    let planned = prepared.planned;
                    let config = planned.config;
                    let resolved =
                        like.unwrap_or_else(|| Resolved { settings: asked.settings.clone(), config });
                    return Ok(PlannedArm {
                        asked: asked.clone(),
                        resolved,
                        numbers: planned.numbers,
                        parts,
                    });
                }
                Err(problem) if parts == 1 => return Err(problem),
                // A larger part may solve the problem.
                Ok(_) | Err(_) => parts -= 1,
            }
        }
    }

    /// The plan of the requested trials.
    pub fn report(&self) -> SweepReport {
        let trials = self.asked_trials();
        let parallel = self.job.parallel.min(trials.len()).max(1);
        let takes = trials.iter().filter_map(|trial| {
            let arm = self.arm(trial)?;
            Some((width(parallel, arm.parts), arm.numbers.predicted_seconds))
        });
        SweepReport {
            ram_budget_bytes: self.opened.memory.limits.limit,
            seeds: self.trials.seeds.len(),
            folds: self.trials.folds.len(),
            trials: trials.len(),
            all_trials: self.trials.each().count(),
            parallel,
            predicted_seconds: makespan(takes, parallel),
            arms: self.arms.iter().map(PlannedArm::report).collect(),
        }
    }

    /// Checks that every arm fits.
    pub fn expect_all_fit(&self) -> Outcome {
        let problems = self.arms.iter().filter_map(|arm| {
            let problem = Error::from(arm.numbers.check().err()?);
            let message = format!("arm `{}` does not fit: {}", arm.asked.arm.name, problem.line());
            Some(Error::new(message, problem.remedy().clone()))
        });
        join_errors(problems.collect())
    }

    /// The arm of a trial.
    pub(super) fn arm(&self, trial: &Trial) -> Option<&PlannedArm> {
        self.arms.iter().find(|arm| arm.asked.arm.name == trial.arm)
    }
}

impl PlannedArm {
    fn report(&self) -> ArmReport {
        let numbers = &self.numbers;
        let problem = numbers.check().err();
        ArmReport {
            name: self.asked.arm.name.clone(),
            settings: self.asked.arm.settings.clone(),
            fits: problem.is_none(),
            planned_bytes: numbers.total_bytes,
            minimum_ram_bytes: numbers.minimum_ram_bytes,
            planned_vram_bytes: numbers.device.as_ref().map(|device| device.total_bytes),
            patch_size: numbers.patch_size,
            batch_size: numbers.batch_size,
            micro_batch: numbers.micro_batch,
            steps: numbers.steps,
            predicted_seconds_per_step: numbers.predicted_seconds_per_step,
            predicted_seconds: numbers.predicted_seconds,
            parts: self.parts,
            changes: numbers.changes.clone(),
            problem: problem.map(|problem| problem.to_string()),
        }
    }
}

/// Joins several errors into one; succeeds if there are none.
fn join_errors(problems: Vec<Error>) -> Outcome {
    let Some(first) = problems.first() else { return Ok(()) };
    let lines: Vec<String> = problems.iter().map(Error::line).collect();
    Err(Error::new(lines.join("; also: "), first.remedy().clone()))
}

/// The number of `all` equal parts of the machine that a trial with one of `parts` parts takes.
pub(super) fn width(all: usize, parts: usize) -> usize {
    all.div_ceil(parts.max(1))
}

/// The total time of trials that begin in order, each as soon as enough of `all` parts are free; `(parts, seconds)` of each.
fn makespan(trials: impl Iterator<Item = (usize, f64)>, all: usize) -> f64 {
    // When each that runs ends, with its parts.
    let mut running: Vec<(f64, usize)> = Vec::new();
    let (mut now, mut free, mut last) = (0.0_f64, all, 0.0_f64);
    for (parts, seconds) in trials {
        running.sort_by(|(one, _), (other, _)| one.total_cmp(other).reverse());
        while free < parts.min(all) {
            let Some((end, back)) = running.pop() else { break };
            (now, free) = (now.max(end), free + back);
        }
        free -= parts.min(free);
        running.push((now + seconds, parts));
        last = last.max(now + seconds);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_take_whole_parts_whose_sum_is_never_more_than_the_machine() {
        for all in 1..=16 {
            for parts in 1..=all {
                let width = width(all, parts);
                assert!(width <= all && width * parts >= all, "{parts} of {all}: {width}");
            }
        }
    }

    #[test]
    fn trials_begin_in_order_as_soon_as_there_is_room() {
        let takes = |trials: &[(usize, f64)], all| makespan(trials.iter().copied(), all);
        assert_eq!(takes(&[], 2), 0.0);
        assert_eq!(takes(&[(1, 3.0), (1, 4.0)], 1), 7.0);
        // The third begins where the first ends.
        assert_eq!(takes(&[(1, 3.0), (1, 4.0), (1, 3.0)], 2), 6.0);
        // A large one waits for both, and none that comes later overtakes it.
        assert_eq!(takes(&[(1, 3.0), (1, 10.0), (2, 5.0), (1, 1.0)], 2), 16.0);
    }
}
