//! Maps of the places in an image that determine a classifier's result.

use plimsoll_graph::{DType, Kind, Op, Program, Shape, differentiate_from};

use super::names;
use crate::{Architecture, ConfigError, ForwardMode};

/// The program of Grad-CAM (Selvaraju et al. 2017, arXiv:1610.02391) for one image: the map that the image is classified by the mean
/// of, and the gradient of a score with respect to that mean, the score being the sum of the outputs, each with a weight that is
/// given. The positive part of the sum of the map's channels, each times its gradient, is large where the image speaks for the score.
/// The gradient of a channel's voxel differs from the gradient of the channel's mean only by the number of voxels.
///
/// # Errors
/// Returns an error if the configuration is impossible, or the network does not classify the mean of a map.
pub fn explain(net: &dyn Architecture, patch: [usize; 3], precision: DType) -> Result<Program, ConfigError> {
    let mut program = Program::new("explain");
    let image = Shape::volume(1, net.in_channels(), patch);
    let image = program.input(names::IMAGE, image, Kind::Volume);
    let logits = net.forward(&mut program, image, ForwardMode { training: false, precision })?[0];
    // Gates within the network have means of their own, which are taken before.
    let pooled = program.nodes.iter().rfind(|node| matches!(node.op, Op::GlobalMean(_)));
    let found = pooled.map(|node| (node.inputs[0], node.outputs[0]));
    let Some((features, mean)) = found else {
        let expected = "only networks that classify the mean of a feature map can be explained".into();
        return Err(ConfigError::Value { setting: "net", found: net.name().into(), expected });
    };
    let score = program.input(names::SCORE, program.shape(logits).clone(), Kind::Volume);
    let gradients = differentiate_from(&mut program, logits, score, &[mean])?;
    let Some(gradient) = gradients.into_iter().flatten().next() else {
        let expected = "its outputs do not depend on the mean of a feature map".into();
        return Err(ConfigError::Value { setting: "net", found: net.name().into(), expected });
    };
    program.mark_output(features, names::FEATURES);
    program.mark_output(gradient, names::FEATURE_WEIGHTS);
    Ok(program)
}
