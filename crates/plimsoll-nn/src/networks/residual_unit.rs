//! The residual unit of MONAI's UNETR and SwinUNETR (`UnetResBlock`).

use plimsoll_graph::ops::Over;
use plimsoll_graph::{GraphError, TensorId};

use super::builder::{ConvShape, NetBuilder, NormActOptions, Statistics};

/// Added to variances.
const EPSILON: f32 = 1e-5;
/// The slope of the leaky ReLUs.
const SLOPE: f32 = 0.01;

/// Appends two convolutions with instance normalisation beside a skip, which is a convolution itself where the channels change.
pub(super) fn residual_unit(
    builder: &mut NetBuilder<'_>,
    name: &str,
    sources: &[TensorId],
    features: usize,
    kernel: [usize; 3],
) -> Result<TensorId, GraphError> {
    let channels: usize = sources.iter().map(|id| builder.program().shape(*id).channels()).sum();
    let shape = |kernel| ConvShape::same(features, kernel, [1; 3]);
    let options = NormActOptions {
        statistics: Statistics::Own(Over::Instance),
        epsilon: EPSILON,
        slope: SLOPE,
        affine: false,
        conv_bias: false,
    };
    let first = builder.conv(&format!("{name}.conv1.conv"), sources, shape(kernel), false)?;
    let first = builder.norm_act(&format!("{name}.conv1"), first, options)?;
    let second = builder.conv(&format!("{name}.conv2.conv"), &[first], shape(kernel), false)?;
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
