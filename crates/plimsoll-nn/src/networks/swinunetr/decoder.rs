//! Residual blocks of convolutions, on what the encoder hands on and on the way up.

use plimsoll_graph::{GraphError, TensorId};

use super::{PATCH, STAGES, SwinUnetr, names};
use crate::networks::builder::NetBuilder;
use crate::networks::residual_unit::residual_unit;

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

    /// See [`residual_unit`].
    pub(super) fn residual(
        &self,
        builder: &mut NetBuilder<'_>,
        name: &str,
        sources: &[TensorId],
        features: usize,
    ) -> Result<TensorId, GraphError> {
        residual_unit(builder, name, sources, features, self.along_axes(3))
    }
}
