//! The residual block of nnU-Net's `dynamic_network_architectures` (`BasicBlockD`).

use plimsoll_graph::{GraphError, TensorId};

use super::builder::{ConvNames, ConvShape, NetBuilder, NormActOptions};

/// A residual block of two convolutions, each normalised, beside a shortcut: the means over its stride, and where channels change a normalised
/// 1×1×1 convolution of them (the ResNet-D of He et al. 2019).
pub(super) struct BasicBlock<'a> {
    /// The prefix of the names of its parameters.
    pub(super) name: &'a str,
    /// Channels of the input.
    pub(super) inputs: usize,
    /// The first convolution. The second has its kernel and no stride.
    pub(super) shape: ConvShape,
    pub(super) options: NormActOptions,
}

/// The names of a convolution of such networks and of its normalisation.
pub(super) fn conv_names(block: &str) -> ConvNames {
    ConvNames { conv: format!("{block}.conv"), norm: format!("{block}.norm") }
}

impl BasicBlock<'_> {
    /// Appends the block.
    pub(super) fn append(&self, builder: &mut NetBuilder<'_>, x: TensorId) -> Result<TensorId, GraphError> {
        let BasicBlock { name, inputs, shape, options } = *self;
        let ConvShape { features, window } = shape;
        let first = builder.conv_norm_act(&conv_names(&format!("{name}.conv1")), &[x], shape, options)?;
        let names = conv_names(&format!("{name}.conv2"));
        let second = ConvShape::same(features, window.kernel, [1; 3]);
        let y = builder.conv(&names.conv, &[first], second, options.conv_bias)?;
        let main = builder.norm(&names.norm, y, options)?;
        let mut shortcut = x;
        let pools = window.stride != [1; 3];
        if pools {
            shortcut = builder.avg_pool(shortcut, window.stride)?;
        }
        if inputs != features {
            let names = conv_names(&format!("{name}.skip.{}", usize::from(pools)));
            let point = ConvShape::point(features);
            let r = builder.conv(&names.conv, &[shortcut], point, false)?;
            shortcut = builder.norm(&names.norm, r, options)?;
        }
        builder.add_act(name, main, shortcut, options.slope)
    }
}
