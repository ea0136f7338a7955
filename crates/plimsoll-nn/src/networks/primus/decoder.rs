//! From tokens to logits.

use plimsoll_graph::ops::{Conv, DepthToSpace, Gelu};
use plimsoll_graph::{DType, GraphError, TensorId, Window};

use super::{Primus, STAGES, names};
use crate::networks::builder::NetBuilder;

/// Added to the variances of maps between transposed convolutions.
const EPSILON: f32 = 1e-6;

impl Primus {
    /// Channels behind each transposed convolution: they fall by equal factors, rounded to multiples of eight. The last are the classes.
    pub(super) fn decoder_features(&self) -> [usize; STAGES] {
        let tokens = self.hidden_size as f64;
        let factor = (tokens / (2.0 * self.classes as f64)).powf(1.0 / STAGES as f64);
        let rounded = |stage: usize| {
            let exact = tokens / factor.powf((stage + 1) as f64);
            let eighths = ((exact + 1e-6) / 8.0).round_ties_even();
            (eighths.max(1.0) * 8.0) as usize
        };
        let mut features = [0, 1, 2].map(rounded);
        features[STAGES - 1] = self.classes;
        features
    }

    /// The logits of tokens: transposed convolutions that double the extent, all but the last with layer normalisation and GELU.
    pub(super) fn decode(
        &self,
        builder: &mut NetBuilder<'_>,
        tokens: TensorId,
    ) -> Result<TensorId, GraphError> {
        let mut map = tokens;
        let features = self.decoder_features();
        for (stage, features) in features.into_iter().enumerate().take(STAGES - 1) {
            let [up, norm] = names::decoder(stage);
            map = builder.up(&up, map, features, [2; 3], true)?;
            map = builder.token_norm(map, EPSILON, Some(&norm))?;
            map = builder.push(&format!("{norm} activated"), Gelu, &[map])?;
        }
        self.logits(builder, map)
    }

    /// The last transposed convolution, as a convolution of one voxel to a channel for each voxel of a block, so that logits lie in rows.
    fn logits(&self, builder: &mut NetBuilder<'_>, map: TensorId) -> Result<TensorId, GraphError> {
        let inputs = builder.program().shape(map).channels();
        let block = [2; 3];
        let outputs = self.classes * block.iter().product::<usize>();
        let weights = builder.weights(names::HEAD, outputs, inputs, [1; 3]);
        let conv = Conv::new(Window::point(), false, DType::F32);
        let parts = builder.push(&format!("{} parts", names::HEAD), conv, &[map, weights])?;
        let bias = builder.channels(format!("{}.bias", names::HEAD), self.classes);
        builder.push(&format!("{} logits", names::HEAD), DepthToSpace { block }, &[parts, bias])
    }
}
