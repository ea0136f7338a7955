//! Initial values, as `dynamic_network_architectures` draws them.

use plimsoll_graph::{Kind, TensorInfo};

use super::{Primus, names};
use crate::init::{kaiming_normal, normal, truncated_normal};

/// The standard deviation of linear layers and of positions.
const DEVIATION: f32 = 0.02;
/// The factors of branches.
const BRANCH: f32 = 0.1;
/// The factors of maps that are added to the tokens.
const SKIP: f32 = 1e-5;
/// The slope for which the weights of convolutions are drawn.
const SLOPE: f32 = 0.01;

impl Primus {
    /// Writes initial values. The layers that end a branch are divided by √(2 · number of the block), counted from 1.
    pub(super) fn initial(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        let name = parameter.name.as_str();
        if name.contains(".gamma_") {
            return values.fill(BRANCH);
        }
        if name.contains(".scale_proj_to_tokens.") {
            return values.fill(SKIP);
        }
        let is_weights = matches!(parameter.kind, Kind::Weights);
        if name == names::POSITIONS {
            return truncated_normal(parameter, DEVIATION, seed, values);
        }
        if let Some(block) = block_of(name).filter(|_| is_weights) {
            let ends = [".attn.proj.weight", ".mlp.fc2.weight"].iter().any(|end| name.ends_with(end));
            let shrink = if ends { (2.0 * (block + 1) as f32).sqrt() } else { 1.0 };
            truncated_normal(parameter, DEVIATION, seed, values);
            return values.iter_mut().for_each(|value| *value /= shrink);
        }
        if names::is_exchanged(name) {
            // Transposed convolutions count the voxels of their outputs.
            let fan = parameter.shape.dim(0) as f32;
            return normal(parameter, (2.0 / ((1.0 + SLOPE * SLOPE) * fan)).sqrt(), seed, values);
        }
        kaiming_normal(parameter, SLOPE, seed, values);
    }
}

/// The transformer block of a parameter.
fn block_of(name: &str) -> Option<usize> {
    name.strip_prefix("eva.blocks.")?.split('.').next()?.parse().ok()
}
