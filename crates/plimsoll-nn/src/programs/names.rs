//! Names of inputs and outputs.

/// Input of every program: the image `[N, C, D, H, W]`.
pub const IMAGE: &str = "image";
/// Input when training and validating: class numbers `[N, 1, D, H, W]`, or of images as a whole `[N, 1, 1, 1, 1]`.
pub const LABELS: &str = "labels";
/// Input of programs whose loss is of soft targets t: y − t `[N, C, D, H, W]`, y being 1 for the class of the label and else 0.
pub const TARGET_SHIFT: &str = "target shift";
/// Input of the update: see [`Optimizer::rates`](crate::Optimizer::rates).
pub const RATES: &str = "rates";
/// Input of a training pass whose features are stored in halves: what the loss is multiplied by before gradients are taken `[1]`.
/// [`RATES`] hold its reciprocal; [`LOSS`] is without it.
pub const LOSS_SCALE: &str = "loss scale";
/// Input of an update that is a program of its own and guarded: the loss of the step `[1]`, which is the mean of its
/// micro-batches'.
pub const STEP_LOSS: &str = "step loss";
/// Input of a training pass with dropout: a [`Noise`](plimsoll_graph::ops::Noise).
pub const NOISE: &str = "noise";
/// Output: the loss that is minimised `[1]`.
pub const LOSS: &str = "loss";
/// Output: the components of the loss of the finest head, without their weights, in the order of
/// [`Objective::parts`](crate::Objective::parts), or [`Objective::parts_by_batch_sums`](crate::Objective::parts_by_batch_sums) where
/// [`batch_sums`] are read.
pub const LOSS_PARTS: &str = "loss parts";
/// Input of a training pass with running statistics, where a batch has several shards: 0 for the first shard, whose statistics count, and NaN
/// for the others `[1]`.
pub const RUNNING_GUARD: &str = "running guard";
/// Output of the program that updates, be it a program of its own or not, where [`Training::max_grad_norm`] is set or there is a
/// [`LOSS_SCALE`], by which it is too large: the norm of all gradients `[1]`. The step was refused if and only if it is not finite ([`was_refused`]): then loss or gradients were not,
/// and all parameters, moments and averages have the bits that they had before. Accumulated gradients are zero either way. Where a batch
/// has several shards it is an input of the update with the same meaning, since no process may have all gradients.
///
/// [`Training::max_grad_norm`]: crate::Training::max_grad_norm
pub const GRAD_NORM: &str = "gradient norm";
/// Output of the program of sums: what the loss of a head that counts, of this number among them, is made of, for each sample and class
/// `[N, C, rows]`.
pub fn sums(head: usize) -> String {
    format!("sums of head {head}")
}

/// Input of a training pass of a part of a batch, if the loss needs the sums of the batch, `[N, C, rows]`: the first sample has the [`sums`]
/// of all samples of the batch added up, the others have zeros.
pub fn batch_sums(head: usize) -> String {
    format!("sums of head {head} over the batch")
}

/// Output of validation: true positives, false positives, false negatives of each class `[C, 3]`, f64.
pub const COUNTS: &str = "counts";
/// Output of prediction: logits `[N, C, D, H, W]`, or of images as a whole `[N, C, 1, 1, 1]`, of which validation has them too.
pub const LOGITS: &str = "logits";
/// Output of a prediction without its head ([`Headless`](crate::Headless)): what the head reads `[N, F, D, H, W]`.
pub const HEAD_INPUT: &str = "input of the head";
/// Input of an explanation: the weight of each output in the score that is explained, like [`LOGITS`].
pub const SCORE: &str = "weights of the score";
/// Output of an explanation: the map that the image is classified by the mean of, `[1, F, D, H, W]`.
pub const FEATURES: &str = "features";
/// Output of an explanation: the gradient of the score with respect to the mean of each of the [`FEATURES`], `[1, F, 1, 1, 1]`.
pub const FEATURE_WEIGHTS: &str = "weights of the features";

/// Returns `true` if a step was refused, by its [`GRAD_NORM`].
pub fn was_refused(norm: f32) -> bool {
    !norm.is_finite()
}

/// The state that is the average of a parameter over the steps, where [`Training::ema`](crate::Training::ema) is set. It has
/// the parameter's shape and is kept in checkpoints under this name.
pub fn average(parameter: &str) -> String {
    format!("{parameter}/ema")
}

/// The state that holds the accumulated gradient of a parameter, where a step has several micro-batches.
pub fn gradient(parameter: &str) -> String {
    format!("{parameter}/grad")
}
