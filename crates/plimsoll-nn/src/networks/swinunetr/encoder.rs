//! The encoder: tokens of patches, and stages of transformer blocks.

use plimsoll_graph::ops::{Conv, SpaceToDepth};
use plimsoll_graph::{GraphError, TensorId, Window};

use super::{EPSILON, PATCH, STAGES, SwinUnetr, names};
use crate::networks::builder::NetBuilder;

impl SwinUnetr {
    /// Returns the skip connections of the encoder: the tokens before the first stage and behind each.
    pub(super) fn encode(
        &self,
        builder: &mut NetBuilder<'_>,
        image: TensorId,
    ) -> Result<Vec<TensorId>, GraphError> {
        let mut tokens = self.embed(builder, image)?;
        let mut maps = vec![self.skipped(builder, tokens)?];
        let blocks: Vec<(usize, usize)> = self.blocks().collect();
        for stage in 0..STAGES {
            if self.use_v2 {
                let name = names::stage_convolutions(stage);
                tokens = self.residual(builder, &name, &[tokens], self.features_of(stage))?;
            }
            for (place, (_, block)) in blocks.iter().enumerate().filter(|(_, at)| at.0 == stage) {
                // Equal steps from the first block to the last of all stages.
                let share = place as f32 / (blocks.len() - 1).max(1) as f32;
                tokens = self.block(builder, stage, *block, self.path_dropout * share, tokens)?;
            }
            tokens = self.merge(builder, stage, tokens)?;
            maps.push(self.skipped(builder, tokens)?);
        }
        Ok(maps)
    }

    /// Patches of the image as tokens.
    fn embed(&self, builder: &mut NetBuilder<'_>, image: TensorId) -> Result<TensorId, GraphError> {
        let name = format!("{}.proj", names::EMBEDDING);
        let window = Window::blocks(self.along_axes(PATCH));
        let weights = builder.weights(&name, self.feature_size, self.in_channels, window.kernel);
        let bias = builder.channels(format!("{name}.bias"), self.feature_size);
        let conv = Conv::new(window, true, builder.precision());
        let mut tokens = builder.push(&name, conv, &[image, weights, bias])?;
        if self.patch_norm {
            tokens = builder.token_norm(tokens, EPSILON, Some(&format!("{}.norm", names::EMBEDDING)))?;
        }
        builder.dropout(tokens, self.dropout)
    }

    fn skipped(&self, builder: &mut NetBuilder<'_>, tokens: TensorId) -> Result<TensorId, GraphError> {
        match self.normalize {
            true => builder.token_norm(tokens, EPSILON, None),
            false => Ok(tokens),
        }
    }

    /// The voxels of blocks one behind the other, normalised, and mixed into half as many channels.
    fn merge(
        &self,
        builder: &mut NetBuilder<'_>,
        stage: usize,
        tokens: TensorId,
    ) -> Result<TensorId, GraphError> {
        let name = format!("{}.downsample", names::stage(stage));
        let merging =
            SpaceToDepth { block: self.along_axes(2), offsets: self.merging.offsets(self.dimensions) };
        let merged = builder.push(&format!("{name} merged"), merging, &[tokens])?;
        let normalised = builder.token_norm(merged, EPSILON, Some(&format!("{name}.norm")))?;
        builder.linear(&format!("{name}.reduction"), normalised, self.features_of(stage + 1), false)
    }
}
