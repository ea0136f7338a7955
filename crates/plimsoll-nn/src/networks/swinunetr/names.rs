//! Names of parameters, and how weight files have them.

use plimsoll_graph::Shape;

use crate::networks::without_depth;
use crate::weights::NamingScheme;

/// The convolution that makes logits.
pub(super) const HEAD: &str = "out.conv.conv";
/// The name of the encoder's first layer.
pub(super) const EMBEDDING: &str = "swinViT.patch_embed";
/// The prefix of the names of the encoder's parameters.
const ENCODER: &str = "swinViT.";

/// A stage of the encoder.
pub(super) fn stage(stage: usize) -> String {
    format!("{ENCODER}layers{}.0", stage + 1)
}

/// A transformer block.
pub(super) fn block(of_stage: usize, block: usize) -> String {
    format!("{}.blocks.{block}", stage(of_stage))
}

/// The residual block at the beginning of a stage of v2.
pub(super) fn stage_convolutions(stage: usize) -> String {
    format!("{ENCODER}layers{}c.0.layer", stage + 1)
}

/// The residual block on the map of a level: on the image at 0, then on the tokens of the finest three, then on the coarsest. The
/// third level from the coarsest has none.
pub(super) fn encoder(level: usize) -> String {
    format!("encoder{}.layer", if level < 4 { level + 1 } else { 10 })
}

/// A level of the decoder, the finest at 0.
pub(super) fn decoder(level: usize) -> String {
    format!("decoder{}", level + 1)
}

/// Returns `true` if a tensor follows from the configuration.
fn is_constant(tensor: &str) -> bool {
    tensor.ends_with(".relative_position_index")
}

/// MONAI's names, then the names of its self-supervised encoders.
pub(super) fn schemes() -> Vec<NamingScheme> {
    let is_of_encoder = |parameter: &str| parameter.starts_with(ENCODER);
    vec![
        NamingScheme::native("monai").with_duplicates(is_constant),
        // As `SwinUNETR.load_from` reads them: the encoder alone, with other names of the hidden layer.
        NamingScheme::renaming("monai-ssl", |parameter| {
            let own = parameter.strip_prefix(ENCODER).unwrap_or(parameter);
            own.replace(".mlp.linear", ".mlp.fc")
        })
        .with_duplicates(|tensor| {
            is_constant(tensor) || tensor.starts_with("norm.") || tensor.contains("mask_token")
        })
        .with_only(is_of_encoder),
        // As `filter_swinunetr` reads them: stages have their index twice.
        NamingScheme::renaming("monai-dae", |parameter| match parameter.strip_prefix(ENCODER) {
            Some(own) => match own.split_once(".0.") {
                Some((stage, rest)) if stage.starts_with("layers") => format!("encoder.{stage}.0.0.{rest}"),
                _ => format!("encoder.{own}"),
            },
            None => parameter.into(),
        })
        .with_duplicates(|tensor| {
            is_constant(tensor)
                || tensor.starts_with("encoder.norm.")
                || tensor == "encoder.mask_token"
                || !tensor.starts_with("encoder.")
        })
        .with_only(is_of_encoder),
    ]
}

/// The shape of a parameter, or of a moment or an average behind a slash, in MONAI's files: linear layers have two axes.
pub(super) fn stored_shape(dimensions: usize, tensor: &str, shape: &Shape) -> Shape {
    let parameter = tensor.split('/').next().unwrap_or(tensor);
    let is_linear = [".qkv.", ".attn.proj.", ".linear1.", ".linear2.", ".reduction."]
        .iter()
        .any(|layer| parameter.contains(layer));
    match shape.0[..] {
        [outputs, inputs, 1, 1, 1] if is_linear => Shape(vec![outputs, inputs]),
        _ => without_depth(dimensions, shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_supervised_encoders_are_found_under_their_names() {
        let names = |parameter: &str| -> Vec<String> {
            schemes().iter().map(|scheme| scheme.weight_name(parameter)).collect()
        };
        assert_eq!(
            names("swinViT.layers2.0.blocks.1.mlp.linear1.weight"),
            [
                "swinViT.layers2.0.blocks.1.mlp.linear1.weight",
                "layers2.0.blocks.1.mlp.fc1.weight",
                "encoder.layers2.0.0.blocks.1.mlp.linear1.weight",
            ]
        );
        assert_eq!(names("swinViT.patch_embed.proj.bias")[2], "encoder.patch_embed.proj.bias");
        let dae = &schemes()[2];
        assert!(dae.holds("swinViT.patch_embed.proj.bias") && !dae.holds("decoder1.transp_conv.conv.weight"));
        assert!(dae.is_duplicate("encoder.mask_token") && dae.is_duplicate("out.conv.conv.weight"));
    }
}
