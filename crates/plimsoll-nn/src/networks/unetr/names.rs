//! Names of parameters, and how weight files have them.

use plimsoll_graph::Shape;

use super::BLOCKS;
use crate::networks::without_depth;

/// The convolution that makes logits.
pub(super) const HEAD: &str = "out.conv.conv";
/// The convolution that makes tokens.
pub(super) const EMBEDDING: &str = "vit.patch_embedding.patch_embeddings";
/// The vectors of positions.
pub(super) const POSITIONS: &str = "vit.patch_embedding.position_embeddings";
/// The normalisation of the tokens behind the last block.
pub(super) const NORM: &str = "vit.norm";

/// A transformer block.
pub(super) fn block(block: usize) -> String {
    format!("vit.blocks.{block}")
}

/// The layers on the map of a stage from the tokens of a block; of the finest stage, from the image.
pub(super) fn encoder(stage: usize) -> String {
    format!("encoder{}", stage + 1)
}

/// The layers to a stage of the decoder from the next coarser one.
pub(super) fn decoder(stage: usize) -> String {
    format!("decoder{}", stage + 2)
}

/// The parameters of the normalisation before an attention to other tokens, which MONAI's blocks have and UNETR does not use.
pub(super) fn unused() -> impl Iterator<Item = String> {
    let of_block = |of: usize| ["weight", "bias"].map(|part| format!("{}.norm_cross_attn.{part}", block(of)));
    (0..BLOCKS).flat_map(of_block)
}

/// Returns `true` if a tensor belongs to the attention to other tokens, which MONAI's versions 1.4 and 1.5 store though UNETR does not use it.
pub(super) fn is_of_older_versions(tensor: &str) -> bool {
    tensor.contains(".cross_attn.")
}

/// The shape of a parameter, or of a moment or an average behind a slash, in MONAI's files: linear layers have two axes, and positions an
/// axis of samples.
pub(super) fn stored_shape(dimensions: usize, tensor: &str, shape: &Shape) -> Shape {
    let parameter = tensor.split('/').next().unwrap_or(tensor);
    let is_linear =
        [".qkv.", ".out_proj.", ".linear1.", ".linear2."].iter().any(|layer| parameter.contains(layer));
    match shape.0[..] {
        [outputs, inputs, 1, 1, 1] if is_linear => Shape(vec![outputs, inputs]),
        [tokens, channels] if parameter == POSITIONS => Shape(vec![1, tokens, channels]),
        _ => without_depth(dimensions, shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_linear_layers_have_the_shapes_of_monais_files() {
        let stored = |dimensions, tensor: &str, shape: &[usize]| {
            stored_shape(dimensions, tensor, &Shape(shape.to_vec())).0
        };
        assert_eq!(stored(3, POSITIONS, &[216, 768]), [1, 216, 768]);
        assert_eq!(stored(3, "vit.patch_embedding.position_embeddings/ema", &[8, 4]), [1, 8, 4]);
        assert_eq!(stored(3, "vit.blocks.0.attn.qkv.weight", &[96, 32, 1, 1, 1]), [96, 32]);
        assert_eq!(
            stored(2, "vit.patch_embedding.patch_embeddings.weight", &[8, 1, 1, 16, 16]),
            [8, 1, 16, 16]
        );
        assert_eq!(stored(3, "out.conv.conv.weight", &[2, 16, 1, 1, 1]), [2, 16, 1, 1, 1]);
        assert!(is_of_older_versions("vit.blocks.3.cross_attn.to_q.weight"));
        assert!(!is_of_older_versions("vit.blocks.3.norm_cross_attn.weight"));
    }
}
