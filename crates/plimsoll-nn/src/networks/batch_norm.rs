//! Batch normalisation: of its batch in training, of running statistics in evaluation.

use plimsoll_graph::ops::{NormFromRunning, NormStats, Normalise, Over, RunningUpdate};
use plimsoll_graph::{GraphError, Kind, Program, Shape, TensorId};

/// Added to the variance, PyTorch's default.
pub(crate) const EPSILON: f32 = 1e-5;
/// The share of a new batch in running statistics, PyTorch's default.
const MOMENTUM: f32 = 0.1;

/// The tensors that are kept beside scale and shift, under PyTorch's names.
const RUNNING: [&str; 3] = ["running_mean", "running_var", "num_batches_tracked"];

/// Returns `true` if a parameter of this name is part of running statistics: it follows the batches, and no gradient changes it.
pub(crate) fn is_running(parameter: &str) -> bool {
    parameter.rsplit('.').next().is_some_and(|last| RUNNING.contains(&last))
}

/// Appends the normalisation of a map with scale and shift, as `torch.nn.BatchNorm2d` under `name`. In training with the statistics of
/// the batch, by which running statistics are updated once; else with running statistics.
pub(crate) fn batch_norm(
    program: &mut Program,
    name: &str,
    map: TensorId,
    epsilon: f32,
    training: bool,
) -> Result<TensorId, GraphError> {
    let (batch, channels) = (program.shape(map).batch(), program.shape(map).channels());
    let mut parameter = |last: &str, count: usize, kind: Kind| {
        program.parameter(format!("{name}.{last}"), Shape(vec![count]), kind)
    };
    let [scale, shift, mean, variance] =
        ["weight", "bias", RUNNING[0], RUNNING[1]].map(|last| parameter(last, channels, Kind::Channels));
    let statistics = match training {
        true => {
            let batches = parameter(RUNNING[2], 1, Kind::Table);
            let stats = NormStats { over: Over::Batch, epsilon };
            let [statistics, of_batch] = program.push(stats, &[map])?[..] else {
                return Err(GraphError::OperandCount {
                    op: "norm_stats",
                    expected: "two results".into(),
                    found: 0,
                });
            };
            let update = RunningUpdate { momentum: MOMENTUM, guarded: false };
            program.push(update, &[mean, variance, batches, statistics, of_batch])?;
            statistics
        }
        false => program.push_one(NormFromRunning { batch, epsilon }, &[mean, variance])?,
    };
    let normalised = program.push_one(Normalise { affine: true }, &[map, statistics, scale, shift])?;
    program.rename(normalised, format!("{name} normalised"));
    Ok(normalised)
}
