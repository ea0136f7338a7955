//! The inputs and outputs of a run's programs.

use plimsoll_graph::TensorId;
use plimsoll_nn::{TargetInput, Variant, names};
use plimsoll_plan::ProgramId;

use crate::{PlannedRun, RunPrograms, TrainError};

/// The inputs and outputs of a run's programs.
pub(super) struct RunTensors {
    /// One for each variant of the loss.
    pub(super) gradients: Vec<LossTensors>,
    /// The sums of a micro-batch, if gradients are computed from the sums of the whole batch.
    pub(super) sums: Option<SumsTensors>,
    /// The update, where it is a program of its own.
    pub(super) update: Option<UpdateTensors>,
    pub(super) validate: LossTensors,
    pub(super) counts: TensorId,
    /// The logits of validated images; `None` for volumes.
    pub(super) logits: Option<TensorId>,
}

/// The inputs and outputs of an update that is a program of its own.
pub(super) struct UpdateTensors {
    pub(super) program: ProgramId,
    pub(super) rates: TensorId,
    pub(super) norm: UpdateNorm,
}

/// The norm of all gradients in an update that is a program of its own.
#[derive(Clone, Copy)]
pub(super) enum UpdateNorm {
    /// An output, computed of the accumulated gradients and of an input, the mean loss of the micro-batches.
    Computed { norm: TensorId, loss: TensorId },
    /// An input.
    Given { norm: TensorId },
}

/// The inputs of a pass through the network.
pub(super) struct PassTensors {
    pub(super) program: ProgramId,
    pub(super) image: TensorId,
    pub(super) labels: TensorId,
    /// The table of random numbers for dropout, if there is any.
    pub(super) noise: Option<TensorId>,
}

/// The inputs and outputs of a program that computes the sums of a loss.
pub(super) struct SumsTensors {
    pub(super) pass: PassTensors,
    /// The sums of each head that counts in the loss.
    pub(super) tables: Vec<TensorId>,
}

/// The inputs and outputs of a program with a loss.
pub(super) struct LossTensors {
    pub(super) pass: PassTensors,
    /// The sums of the whole batch of each head, if the loss is computed by these.
    pub(super) batch_sums: Vec<TensorId>,
    /// The difference between the label's target and the soft target, if there are soft targets.
    pub(super) shift: Option<TensorId>,
    /// Maps of the labels, by their place in the batch.
    pub(super) targets: Vec<(usize, TensorId)>,
    /// The rates and the gradient norm of a program that updates parameters.
    pub(super) update: Option<(TensorId, TensorId)>,
    /// The factor of the loss, if features are stored in half precision.
    pub(super) loss_scale: Option<TensorId>,
    /// The guard of running statistics, if a batch has several shards and there are such statistics.
    pub(super) running_guard: Option<TensorId>,
    pub(super) loss: TensorId,
    /// The parts of the loss, and which they are.
    pub(super) parts: (TensorId, Vec<usize>),
}

fn find(programs: &RunPrograms, program: ProgramId, name: &str) -> Result<TensorId, TrainError> {
    let program = &programs[program];
    program.find(name).ok_or_else(|| {
        let (program, tensor) = (program.name.clone(), name.to_string());
        TrainError::Plan(plimsoll_graph::GraphError::MissingValue { program, tensor }.into())
    })
}

/// The tensors of all heads, which are numbered.
fn of_heads(programs: &RunPrograms, program: ProgramId, name: fn(usize) -> String) -> Vec<TensorId> {
    (0..).map_while(|head| programs[program].find(&name(head))).collect()
}

impl PassTensors {
    fn new(programs: &RunPrograms, program: ProgramId) -> Result<PassTensors, TrainError> {
        Ok(PassTensors {
            program,
            image: find(programs, program, names::IMAGE)?,
            labels: find(programs, program, names::LABELS)?,
            noise: programs[program].find(names::NOISE),
        })
    }
}

impl LossTensors {
    /// The tensors of a program that has `parts` of the loss.
    fn new(programs: &RunPrograms, program: ProgramId, parts: Vec<usize>) -> Result<LossTensors, TrainError> {
        let if_there = |name: &str| programs[program].find(name);
        let target = |(map, target): (usize, &TargetInput)| Some((map, if_there(&target.name)?));
        Ok(LossTensors {
            pass: PassTensors::new(programs, program)?,
            batch_sums: of_heads(programs, program, names::batch_sums),
            shift: if_there(names::TARGET_SHIFT),
            targets: programs.targets().iter().enumerate().filter_map(target).collect(),
            update: if_there(names::RATES).zip(if_there(names::GRAD_NORM)),
            loss_scale: if_there(names::LOSS_SCALE),
            running_guard: if_there(names::RUNNING_GUARD),
            loss: find(programs, program, names::LOSS)?,
            parts: (find(programs, program, names::LOSS_PARTS)?, parts),
        })
    }
}

impl RunTensors {
    pub(super) fn new(planned: &PlannedRun) -> Result<RunTensors, TrainError> {
        let (programs, training) = (&planned.programs, &planned.config.training);
        let objective = &training.loss;
        let of_variant = |(program, variant): (&ProgramId, &Variant)| {
            let parts = match training.exchanges_sums() {
                true => objective.parts_by_batch_sums(variant),
                false => objective.parts(variant),
            };
            LossTensors::new(programs, *program, parts)
        };
        let sums = programs.sums().map(|program| {
            let pass = PassTensors::new(programs, program)?;
            Ok::<_, TrainError>(SumsTensors { pass, tables: of_heads(programs, program, names::sums) })
        });
        let gradients = programs.gradients().iter().zip(programs.variants());
        let in_shards = training.shards > 1;
        let update = programs.update().map(|update| {
            let norm = find(programs, update, names::GRAD_NORM)?;
            let norm = match in_shards {
                true => UpdateNorm::Given { norm },
                false => UpdateNorm::Computed { norm, loss: find(programs, update, names::STEP_LOSS)? },
            };
            Ok::<_, TrainError>(UpdateTensors {
                program: update,
                rates: find(programs, update, names::RATES)?,
                norm,
            })
        });
        let validate = programs.validate();
        Ok(RunTensors {
            gradients: gradients.map(of_variant).collect::<Result<_, _>>()?,
            sums: sums.transpose()?,
            update: update.transpose()?,
            validate: LossTensors::new(programs, validate, objective.parts(&objective.validation()))?,
            counts: find(programs, validate, names::COUNTS)?,
            logits: programs[validate].find(names::LOGITS),
        })
    }
}
