//! Residual blocks of convolutions, on what the encoder hands on and on the way up.

use plimsoll_graph::ops::Over;
use plimsoll_graph::{GraphError, TensorId};

use super::{EPSILON, PATCH, STAGES, SwinUnetr, names};
use crate::networks::builder::{ConvShape, NetBuilder, NormActOptions, Statistics};

/// The slope of the leaky ReLUs.
const SLOPE: f32 = 0.01;

impl SwinUnetr {
    /// The way up from the coarsest map to logits. `maps` come from [`encode`](SwinUnetr::encode), the finest first.
    pub(super) fn decode(
        &self,
        builder: &mut NetBuilder<'_>,
        image: TensorId,
        maps: &[TensorId],
    ) -> Result<TensorId, GraphError> {
        // Levels of the decoder: 0 has the resolution of the image, 1 of the first tokens.
        let of_image = self.residual(builder, &names::encoder(0), &[image], self.feature_size)?;
        let mut skips = vec![of_image];
        for (stage, map) in maps.iter().enumerate().take(STAGES) {
            // The tokens of the last stage are a skip as they are.
            skips.push(match stage + 1 {
                STAGES => *map,
                level => self.residual(builder, &names::encoder(level), &[*map], self.features_of(stage))?,
            });
        }
        let mut map =
            self.residual(builder, &names::encoder(STAGES), &[maps[STAGES]], self.features_of(STAGES))?;
        for (level, skip) in skips.iter().enumerate().rev() {
            let name = names::decoder(level);
            let features = builder.program().shape(*skip).channels();
            let stride = self.along_axes(PATCH);
            let up = builder.up(&format!("{name}.transp_conv.conv"), map, features, stride, false)?;
            map = self.residual(builder, &format!("{name}.conv_block"), &[up, *skip], features)?;
        }
        builder.head(names::HEAD, map, self.classes)
    }

    /// Two convolutions with instance normalisation beside a skip, which is a convolution itself where the channels change.
    pub(super) fn residual(
        &self,
        builder: &mut NetBuilder<'_>,
        name: &str,
        sources: &[TensorId],
        features: usize,
    ) -> Result<TensorId, GraphError> {
        let channels: usize = sources.iter().map(|id| builder.program().shape(*id).channels()).sum();
        let shape = |kernel| ConvShape::same(features, kernel, [1; 3]);
        let wide = self.along_axes(3);
        let options = NormActOptions {
            statistics: Statistics::Own(Over::Instance),
            epsilon: EPSILON,
            slope: SLOPE,
            affine: false,
            conv_bias: false,
        };
        let first = builder.conv(&format!("{name}.conv1.conv"), sources, shape(wide), false)?;
        let first = builder.norm_act(&format!("{name}.conv1"), first, options)?;
        let second = builder.conv(&format!("{name}.conv2.conv"), &[first], shape(wide), false)?;
        let second = builder.norm(&format!("{name}.conv2"), second, options)?;
        let skip = match sources {
            [source] if channels == features => *source,
            _ => {
                let skip = builder.conv(&format!("{name}.conv3.conv"), sources, shape([1; 3]), false)?;
                builder.norm(&format!("{name}.conv3"), skip, options)?
            }
        };
        builder.add_act(name, second, skip, SLOPE)
    }
}
