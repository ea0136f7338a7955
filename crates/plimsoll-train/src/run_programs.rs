//! The programs of a run, by what they are for.

use std::ops::Index;

use plimsoll_graph::Program;
use plimsoll_nn::{ConfigError, RankPlace, TargetInput, Training, TrainingPrograms, Variant, WholePrograms};
use plimsoll_plan::ProgramId;

/// The programs of a run.
#[derive(Clone, Debug)]
pub struct RunPrograms {
    all: Vec<Program>,
    gradients: Vec<ProgramId>,
    sums: Option<ProgramId>,
    update: Option<ProgramId>,
    whole: Option<WholePrograms>,
    validate: ProgramId,
    place: RankPlace,
    variants: Vec<Variant>,
    targets: Vec<TargetInput>,
}

impl RunPrograms {
    /// Writes them for one of the processes that train together.
    ///
    /// # Errors
    /// Returns an error if the configuration is impossible, or micro-batches would change the result.
    pub fn new(training: &Training, place: RankPlace) -> Result<RunPrograms, ConfigError> {
        let TrainingPrograms { gradients, sums, update, whole, validate, targets } =
            training.programs_of(place)?;
        let mut all = Vec::new();
        let mut add = |program| {
            all.push(program);
            ProgramId::new(all.len() - 1)
        };
        Ok(RunPrograms {
            gradients: gradients.into_iter().map(&mut add).collect(),
            sums: sums.map(&mut add),
            update: update.map(&mut add),
            whole,
            place,
            validate: add(validate),
            all,
            variants: training.loss.variants(),
            targets,
        })
    }

    /// All programs, [`fullest`](RunPrograms::fullest) first, because a planner's curve is of its first program.
    pub fn all(&self) -> &[Program] {
        &self.all
    }

    /// Loss and gradients of a micro-batch; where a step is one micro-batch, the update as well. One for each of
    /// [`variants`](RunPrograms::variants), in their order.
    pub fn gradients(&self) -> &[ProgramId] {
        &self.gradients
    }

    /// The program among [`gradients`](RunPrograms::gradients) with the most components of the loss.
    pub fn fullest(&self) -> ProgramId {
        self.gradients[0]
    }

    /// The sums of a micro-batch, if gradients are computed from the sums of the whole batch.
    pub fn sums(&self) -> Option<ProgramId> {
        self.sums
    }

    /// Returns `true` if a step is one run of one program.
    pub fn is_one_run(&self) -> bool {
        self.update.is_none() && self.sums.is_none()
    }

    /// The program after the last micro-batch, if a step has several.
    pub fn update(&self) -> Option<ProgramId> {
        self.update
    }

    /// Loss and counts of samples that are validated, by the averages that this process has and by the parameters of which others have the averages.
    pub fn validate(&self) -> ProgramId {
        self.validate
    }

    /// One that has all parameters and moments.
    pub fn updating(&self) -> ProgramId {
        self.update.unwrap_or(self.fullest())
    }

    /// All parameters and moments, in the order of checkpoints; the program [`updating`](RunPrograms::updating) has the part of this process.
    pub fn stored(&self) -> &Program {
        self.whole.as_ref().map_or(&self[self.updating()], |whole| &whole.update)
    }

    /// The programs of a process that trains alone, if this one does not.
    pub(crate) fn whole(&self) -> Option<&WholePrograms> {
        self.whole.as_ref()
    }

    /// The programs as the specification of the run describes them, which does not depend on the number of processes.
    pub fn specified(&self) -> Vec<Program> {
        let Some(WholePrograms { update, validate }) = &self.whole else { return self.all.clone() };
        let program = |(at, own)| match ProgramId::new(at) {
            at if self.update == Some(at) => update,
            at if self.validate == at => validate,
            _ => own,
        };
        self.all.iter().enumerate().map(program).cloned().collect()
    }

    /// The process that they are for.
    pub fn place(&self) -> RankPlace {
        self.place
    }

    /// The variants of the loss that steps may have.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// Inputs that follow from the labels alone.
    pub fn targets(&self) -> &[TargetInput] {
        &self.targets
    }
}

impl Index<ProgramId> for RunPrograms {
    type Output = Program;

    fn index(&self, id: ProgramId) -> &Program {
        &self.all[id.index()]
    }
}
