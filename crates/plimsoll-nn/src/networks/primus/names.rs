//! Names of parameters, and how weight files have them.

use plimsoll_graph::Shape;

/// The convolution, or the convolutions, that make tokens.
pub(super) const EMBEDDING: &str = "down_projection";
/// The convolution of the image, of the first version.
pub(super) const INPUT: &str = "down_projection.proj";
/// The convolution of the image, where residual blocks make tokens.
pub(super) const RESIDUAL_INPUT: &str = "down_projection.stem.blocks.0.conv1.conv";
/// The transformer blocks, with positions and the last normalisation.
pub(super) const ENCODER: &str = "eva";
/// The vectors of positions.
pub(super) const POSITIONS: &str = "eva.pos_embed";
/// The normalisation of the tokens behind the last block.
pub(super) const NORM: &str = "eva.norm";
/// The layers from tokens to logits. All their widths but the first follow from the number of classes.
pub(super) const DECODER: &str = "up_projection";
/// Zeroes for dropped tokens of masked autoencoders, which are kept with the weights.
pub(super) const MASK: &str = "mask_token";
/// The layer that makes logits.
pub(super) const HEAD: &str = "up_projection.decode.2";

/// A transformer block.
pub(super) fn block(block: usize) -> String {
    format!("eva.blocks.{block}")
}

/// A transposed convolution of the decoder, with its normalisation.
pub(super) fn decoder(stage: usize) -> [String; 2] {
    [0, 1].map(|layer| format!("{DECODER}.decode.{stage}.{layer}"))
}

/// A residual block of the patch embedding, at the extent of the image or of a stage.
pub(super) fn residual(stage: Option<usize>) -> String {
    match stage {
        None => format!("{EMBEDDING}.stem.blocks.0"),
        Some(stage) => format!("{EMBEDDING}.stages.{stage}.blocks.0"),
    }
}

/// The parameter that a tensor is, or is a moment or an average of.
fn parameter(tensor: &str) -> &str {
    tensor.split('/').next().unwrap_or(tensor)
}

/// Returns `true` if a tensor's first two axes stand in the opposite order in files: the layer that makes logits is a transposed convolution
/// there.
pub(super) fn is_exchanged(tensor: &str) -> bool {
    parameter(tensor).strip_prefix(HEAD) == Some(".weight")
}

/// Returns `true` if a tensor is also stored under another name, or follows from the configuration.
pub(super) fn is_duplicate(tensor: &str) -> bool {
    tensor.contains(".all_modules.") || tensor == MASK
}

/// The names under which its authors' programs list a tensor of a residual block again.
pub(super) fn other_names(tensor: &str) -> Vec<String> {
    let listed = [(".conv.", ".all_modules.0."), (".norm.", ".all_modules.1.")].into_iter();
    let is_residual = tensor.starts_with(EMBEDDING) && tensor.contains(".blocks.");
    let listed = listed.filter(|_| is_residual).filter_map(|(layer, place)| {
        let (block, parameter) = tensor.rsplit_once(layer)?;
        Some(format!("{block}{place}{parameter}"))
    });
    listed.collect()
}

/// The shape of a parameter, or of a moment or an average behind a slash, in nnU-Net's files: linear layers have two axes, positions an axis of
/// samples, and factors of whole maps none; the layer that makes logits has a kernel.
pub(super) fn stored_shape(tensor: &str, shape: &Shape) -> Shape {
    let parameter = parameter(tensor);
    let is_linear = [".attn.", ".mlp."].iter().any(|part| parameter.contains(part));
    match shape.0[..] {
        [outputs, inputs, 1, 1, 1] if is_linear => Shape(vec![outputs, inputs]),
        [parts, inputs, 1, 1, 1] if is_exchanged(tensor) => Shape(vec![inputs, parts / 8, 2, 2, 2]),
        [tokens, channels] if parameter == POSITIONS => Shape(vec![1, tokens, channels]),
        [1] if parameter.contains(".scale_proj_to_tokens.") => Shape(Vec::new()),
        _ => shape.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_have_the_shapes_of_nnunets_files() {
        let stored = |tensor: &str, shape: &[usize]| stored_shape(tensor, &Shape(shape.to_vec())).0;
        assert_eq!(stored(POSITIONS, &[216, 396]), [1, 216, 396]);
        assert_eq!(stored("eva.pos_embed/ema", &[8, 4]), [1, 8, 4]);
        assert_eq!(stored("eva.blocks.3.mlp.fc1_g.weight", &[96, 36, 1, 1, 1]), [96, 36]);
        assert_eq!(stored("eva.blocks.3.attn.q_proj.weight/exp_avg", &[36, 36, 1, 1, 1]), [36, 36]);
        assert_eq!(stored("up_projection.decode.2.weight", &[24, 16, 1, 1, 1]), [16, 3, 2, 2, 2]);
        assert_eq!(stored("up_projection.decode.2.bias", &[3]), [3]);
        assert_eq!(stored("up_projection.decode.1.0.weight", &[24, 16, 2, 2, 2]), [24, 16, 2, 2, 2]);
        assert_eq!(stored("down_projection.final_proj.weight", &[36, 128, 1, 1, 1]), [36, 128, 1, 1, 1]);
        assert!(stored("down_projection.scale_proj_to_tokens.1", &[1]).is_empty());
        assert!(
            is_exchanged("up_projection.decode.2.weight/ema") && !is_exchanged("up_projection.decode.2.bias")
        );
    }

    #[test]
    fn residual_blocks_are_listed_twice_and_transformer_blocks_once() {
        let listed = other_names("down_projection.stages.1.blocks.0.skip.1.norm.bias");
        assert_eq!(listed, ["down_projection.stages.1.blocks.0.skip.1.all_modules.1.bias"]);
        assert!(listed.iter().all(|name| is_duplicate(name)));
        assert!(other_names("eva.blocks.0.attn.norm.weight").is_empty());
        assert!(is_duplicate("mask_token"));
    }
}
