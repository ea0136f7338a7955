//! Initial values: those that PyTorch gives layers by itself.

use plimsoll_graph::{Kind, TensorInfo};

use super::{PATCH, STAGES, SwinUnetr, names};
use crate::init::{truncated_normal, uniform};

/// The standard deviation of the tables of biases.
const TABLE_DEVIATION: f32 = 0.02;

impl SwinUnetr {
    /// The number of inputs that an output of the layer of a bias is a sum over; none if the bias belongs to a normalisation.
    fn bias_fan(&self, bias: &str) -> Option<usize> {
        if bias == format!("{}.bias", names::HEAD) {
            return Some(self.feature_size);
        }
        if bias == format!("{}.proj.bias", names::EMBEDDING) {
            return Some(self.in_channels * self.along_axes(PATCH).iter().product::<usize>());
        }
        let stage = (0..STAGES).find(|stage| bias.starts_with(&format!("{}.", names::stage(*stage))))?;
        let is_of = |layer: &str| bias.ends_with(&format!(".{layer}.bias"));
        if is_of("mlp.linear2") {
            return Some(self.hidden(stage));
        }
        let reads_tokens = ["attn.qkv", "attn.proj", "mlp.linear1"].iter().any(|layer| is_of(layer));
        reads_tokens.then(|| self.features_of(stage))
    }

    /// See [`Architecture::initialise`](crate::Architecture::initialise).
    pub(super) fn initial(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        let fan = match parameter.kind {
            Kind::Table => return truncated_normal(parameter, TABLE_DEVIATION, seed, values),
            Kind::Weights => Some(parameter.shape.count() / parameter.shape.dim(0)),
            _ => self.bias_fan(&parameter.name),
        };
        uniform(parameter, fan, seed, values);
    }
}
