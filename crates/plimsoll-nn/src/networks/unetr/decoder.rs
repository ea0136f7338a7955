//! Maps of the decoder's stages from tokens, and the way up.

use plimsoll_graph::{GraphError, TensorId};

use super::encoder::Encoded;
use super::{SKIPS, Unetr, names};
use crate::networks::builder::NetBuilder;
use crate::networks::residual_unit::residual_unit;
use crate::networks::segresnet_stages::along;

impl Unetr {
    /// The logits of what the encoder makes.
    pub(super) fn decode(
        &self,
        builder: &mut NetBuilder<'_>,
        image: TensorId,
        encoded: Encoded,
    ) -> Result<TensorId, GraphError> {
        let kernel = along(self.dimensions, 3);
        let of_image = format!("{}.layer", names::encoder(0));
        let mut maps = vec![residual_unit(builder, &of_image, &[image], self.features_of(0), kernel)?];
        for (place, tokens) in encoded.skips.into_iter().enumerate() {
            maps.push(self.upsampled(builder, place + 1, tokens)?);
        }
        let mut map = encoded.coarsest;
        for (stage, skip) in maps.into_iter().enumerate().rev() {
            let (name, features) = (names::decoder(stage), self.features_of(stage));
            let up = self.up(builder, &format!("{name}.transp_conv"), map, features)?;
            map = residual_unit(builder, &format!("{name}.conv_block"), &[up, skip], features, kernel)?;
        }
        builder.head(names::HEAD, map, self.classes)
    }

    /// The map of a stage from tokens: a transposed convolution, and one with a residual unit for each doubling that remains.
    fn upsampled(
        &self,
        builder: &mut NetBuilder<'_>,
        stage: usize,
        tokens: TensorId,
    ) -> Result<TensorId, GraphError> {
        let (name, features) = (names::encoder(stage), self.features_of(stage));
        let kernel = along(self.dimensions, 3);
        let mut map = self.up(builder, &format!("{name}.transp_conv_init"), tokens, features)?;
        for layer in 0..SKIPS.len() - stage {
            let block = format!("{name}.blocks.{layer}");
            map = self.up(builder, &format!("{block}.0"), map, features)?;
            map = residual_unit(builder, &format!("{block}.1"), &[map], features, kernel)?;
        }
        Ok(map)
    }

    /// A transposed convolution that doubles extents.
    fn up(
        &self,
        builder: &mut NetBuilder<'_>,
        name: &str,
        map: TensorId,
        features: usize,
    ) -> Result<TensorId, GraphError> {
        builder.up(&format!("{name}.conv"), map, features, along(self.dimensions, 2), false)
    }
}
