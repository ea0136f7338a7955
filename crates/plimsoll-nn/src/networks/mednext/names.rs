//! Names of parameters, and how weight files have them.

use plimsoll_graph::Shape;

use crate::networks::without_depth;

/// The first convolution.
pub(super) const STEM: &str = "stem";

/// The convolution that makes the logits of a stage.
pub(super) fn head(coarsest: usize, stage: usize) -> String {
    match stage {
        0 => "out_0.conv_out".into(),
        _ => format!("out_blocks.{}.conv_out", coarsest - stage),
    }
}

/// The parameter that a tensor is, or is a moment or an average of.
fn parameter(tensor: &str) -> &str {
    tensor.split('/').next().unwrap_or(tensor)
}

/// Returns `true` if a parameter belongs to a head.
pub(super) fn is_head(tensor: &str) -> bool {
    parameter(tensor).contains(".conv_out.")
}

/// Returns `true` if a tensor has its first two axes in the opposite order in files: heads are transposed convolutions there.
pub(super) fn is_exchanged(tensor: &str) -> bool {
    is_head(tensor) && parameter(tensor).ends_with(".weight")
}

/// The shape of a tensor in MONAI's files.
pub(super) fn stored_shape(dimensions: usize, tensor: &str, shape: &Shape) -> Shape {
    let is_response =
        [".global_resp_gamma", ".global_resp_beta"].iter().any(|part| parameter(tensor).ends_with(part));
    match shape.0[..] {
        [outputs, inputs, d, h, w] if is_exchanged(tensor) => {
            without_depth(dimensions, &Shape(vec![inputs, outputs, d, h, w]))
        }
        [channels] if is_response => Shape([vec![1, channels], vec![1; dimensions]].concat()),
        _ => without_depth(dimensions, shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_responses_have_the_shapes_of_monais_files() {
        let stored = |dimensions, tensor: &str, shape: &[usize]| {
            stored_shape(dimensions, tensor, &Shape(shape.to_vec())).0
        };
        assert_eq!(stored(3, "out_0.conv_out.weight", &[2, 32, 1, 1, 1]), [32, 2, 1, 1, 1]);
        assert_eq!(stored(2, "out_blocks.1.conv_out.weight/exp_avg", &[3, 64, 1, 1, 1]), [64, 3, 1, 1]);
        assert_eq!(stored(3, "out_0.conv_out.bias", &[2]), [2]);
        assert_eq!(stored(3, "bottleneck.0.global_resp_beta", &[64]), [1, 64, 1, 1, 1]);
        assert_eq!(stored(2, "bottleneck.0.global_resp_gamma/ema", &[64]), [1, 64, 1, 1]);
        assert_eq!(stored(2, "enc_stages.0.1.conv1.weight", &[8, 1, 1, 3, 3]), [8, 1, 3, 3]);
    }

    #[test]
    fn the_finest_of_the_coarser_heads_is_the_last_in_monais_list() {
        let names: Vec<String> = (0..=4).map(|stage| head(4, stage)).collect();
        assert_eq!(names[0], "out_0.conv_out");
        assert_eq!(names[1..], [3, 2, 1, 0].map(|place| format!("out_blocks.{place}.conv_out")));
    }
}
