//! The settings of a network that a user may give, and the design that follows from the data set.

use serde::{Deserialize, Serialize};

use super::{Head, Merging, NetworkName, StemPool, StuNet};
use crate::ConfigError;

/// The design that follows from a data set by nnU-Net's rules; a network reads the parts that it needs. Lists go from
/// the finest stage to the coarsest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// Depth, height, width of a patch.
    pub patch: [usize; 3],
    /// Stride into each stage.
    pub strides: Vec<[usize; 3]>,
    /// Kernel of each stage.
    pub kernels: Vec<[usize; 3]>,
    /// Channels of each stage.
    pub features: Vec<usize>,
}

impl Design {
    /// Returns the number of dimensions of the network's windows: two for patches of one slice, which has no neighbours
    /// along the depth.
    pub(super) fn dimensions(&self) -> usize {
        if self.patch[0] == 1 { 2 } else { 3 }
    }
}

/// The way in which a decoder upsamples a stage to the next finer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpsampleMode {
    /// Linear interpolation, which learns nothing.
    NonTrainable,
    /// A transposed convolution.
    Deconv,
    /// A convolution to channels that are spread over the voxels of the finer stage, and smoothed.
    PixelShuffle,
}

/// A size of the authors of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkSize {
    /// Small.
    S,
    /// Base.
    B,
    /// Medium.
    M,
    /// Large.
    L,
}

impl NetworkSize {
    /// All sizes.
    const ALL: &[NetworkSize] = &[NetworkSize::S, NetworkSize::B, NetworkSize::M, NetworkSize::L];

    /// The sizes that a network has, if it has any.
    fn of(network: NetworkName) -> &'static [NetworkSize] {
        match network {
            NetworkName::StuNet => StuNet::SIZES,
            _ => NetworkSize::ALL,
        }
    }

    /// Returns the size in its written form.
    fn as_str(self) -> &'static str {
        match self {
            NetworkSize::S => "s",
            NetworkSize::B => "b",
            NetworkSize::M => "m",
            NetworkSize::L => "l",
        }
    }
}

/// Settings from which others follow: networks keep only those.
pub(super) const SHORTHANDS: &[&str] = &["size"];

/// Defines [`NetworkSettings`].
macro_rules! network_settings {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// The settings of a network that a user may give. No network has all of them; a setting that is given but not
        /// used is an error. Lists go from the finest stage to the coarsest.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct NetworkSettings {
            /// The network [default: plain].
            pub net: Option<NetworkName>,
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl NetworkSettings {
            /// These settings, completed by the settings of `other`.
            pub fn or(self, other: NetworkSettings) -> NetworkSettings {
                NetworkSettings {
                    net: self.net.or(other.net),
                    $($field: self.$field.or(other.$field),)*
                }
            }

            /// The names of those that are given, the network's left out.
            fn given(&self) -> impl Iterator<Item = &'static str> {
                [$((stringify!($field), self.$field.is_some())),*]
                    .into_iter()
                    .filter_map(|(name, given)| given.then_some(name))
            }
        }
    };
}

network_settings! {
    /// Channels of each stage [default: 32, doubled to at most 320].
    features: Vec<usize>,
    /// Kernel of each stage [default: from spacing and patch].
    kernels: Vec<[usize; 3]>,
    /// Stride into each stage [default: from spacing and patch].
    strides: Vec<[usize; 3]>,
    /// Convolutions of each stage of the encoder [default: 2].
    encoder_convs: Vec<usize>,
    /// Convolutions of each stage of the decoder, which has none for the coarsest [default: 2].
    decoder_convs: Vec<usize>,
    /// Residual blocks of each stage of the encoder [default: the value of the network's authors].
    encoder_blocks: Vec<usize>,
    /// Residual blocks of each stage of the decoder, which has none for the coarsest [default: 1].
    decoder_blocks: Vec<usize>,
    /// The size of the network's authors, from which blocks, expansions and channels follow [default: s].
    size: NetworkSize,
    /// The version of the network's authors: 1, 2 or 3 [default: 1].
    version: usize,
    /// Extent of the kernels, of MedNeXt of its depthwise ones; odd [default: 3].
    kernel_size: usize,
    /// Channels inside of the blocks of each stage of the encoder, as a multiple of their input's [default: of the size].
    encoder_expansion: Vec<usize>,
    /// Channels inside of the blocks of each stage of the decoder, which has none for the coarsest, as a multiple of their input's
    /// [default: of the size].
    decoder_expansion: Vec<usize>,
    /// `true` if blocks have global response normalisation [default: no].
    grn: bool,
    /// Channels of the finest stage, doubled from stage to stage [default: the value of the network's authors].
    init_filters: usize,
    /// Groups of channels of group normalisation [default: 8].
    norm_groups: usize,
    /// The upsampling of the decoder [default: the value of the network's authors].
    upsample: UpsampleMode,
    /// Voxels from one voxel of each layer's kernel to the next [default: 1, 2, 4, 8, 16, 8, 4, 2, 1].
    dilations: Vec<usize>,
    /// Spacing along depth, height and width, by which a network with kernels of its own halves the finer axes first [default: all
    /// alike].
    resolution: [f64; 3],
    /// `true` if normalisations have a scale and a shift [default: yes].
    affine: bool,
    /// The number of coarser maps that get a head of their own while training [default: all but the two coarsest].
    deep_supervision: usize,
    /// The probability with which an element of a convolution's result, of a linear layer's, or of the vector that a head classifies, is
    /// dropped while training [default: 0].
    dropout: f32,
    /// Channels behind the patch embedding, or of the finest stage of UNETR's decoder, doubled from stage to stage [default: 24; 16 of UNETR].
    feature_size: usize,
    /// Channels of tokens [default: 768; of Primus, of the size].
    hidden_size: usize,
    /// Transformer blocks of each stage, of Primus one number [default: 2; of Primus, of the size].
    depths: Vec<usize>,
    /// Heads of the attention of each stage, of UNETR and Primus one number [default: 3, 6, 12, 24; 12 of UNETR; of Primus, of the size].
    num_heads: Vec<usize>,
    /// Tokens of an attention window along each axis [default: 7].
    window_size: usize,
    /// `true` if the linear layer that makes queries, keys and values has a bias [default: yes; no of UNETR].
    qkv_bias: bool,
    /// Channels of the hidden layer of a transformer block, as a multiple of its own [default: 4].
    mlp_ratio: f32,
    /// `true` if tokens are normalised behind the patch embedding [default: no].
    patch_norm: bool,
    /// `true` if skip connections normalise the encoder's maps [default: yes].
    normalize: bool,
    /// `true` if each stage begins with a residual block of convolutions, as in SwinUNETR-V2 [default: no].
    use_v2: bool,
    /// The order in which patch merging reads the voxels of a block [default: merging].
    merging: Merging,
    /// `true` if stages have transformer blocks [default: yes].
    attention: bool,
    /// The probability with which an element of an attention matrix is dropped while training [default: 0].
    attention_dropout: f32,
    /// The probability with which the last transformer block is skipped for a sample while training, and those before it
    /// with less, in equal steps from 0 [default: 0; 0.2 of Primus].
    path_dropout: f32,
    /// The max pool of the stem: padded, as in timm, or ceil, as in pretrainedmodels and MONAI [default: padded].
    pool: StemPool,
    /// The classifier of an image's vector: linear, or mlp with 512 and 128 features between [default: linear].
    head: Head,
    /// `true` if two classes share one logit, for the second against the first [default: no].
    single_logit: bool,
}

impl NetworkSettings {
    /// Checks that nothing is given but what a network uses.
    pub(super) fn expect_only(
        &self,
        network: NetworkName,
        used: &'static [&'static str],
    ) -> Result<(), ConfigError> {
        match self.given().find(|setting| !used.contains(setting)) {
            None => Ok(()),
            Some(setting) => Err(ConfigError::Unused { setting, network, used }),
        }
    }
}

impl NetworkSettings {
    /// Checks that a network has the size that is given.
    pub(super) fn expect_size(&self, network: NetworkName) -> Result<(), ConfigError> {
        let (Some(size), sizes) = (self.size, NetworkSize::of(network)) else { return Ok(()) };
        if sizes.contains(&size) {
            return Ok(());
        }
        let known: Vec<&str> = sizes.iter().map(|size| size.as_str()).collect();
        let expected = format!("the sizes of {network} are {}", known.join(", "));
        Err(ConfigError::Value { setting: "size", found: size.as_str().into(), expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;

    #[test]
    fn a_setting_that_the_network_does_not_use_is_an_error_that_names_it() {
        let design = Design {
            in_channels: 1,
            classes: 2,
            patch: [32; 3],
            strides: vec![[1; 3], [2; 3], [2; 3]],
            kernels: vec![[3; 3]; 3],
            features: vec![8, 16, 32],
        };
        let settings = NetworkSettings { encoder_convs: Some(vec![1, 2, 2]), ..NetworkSettings::default() };
        assert!(Network::design(&design, &settings).is_ok());
        let settings = NetworkSettings { net: Some(NetworkName::DynUNet), ..settings };
        let error = Network::design(&design, &settings).unwrap_err();
        assert!(error.to_string().contains("`encoder_convs`"), "{error}");
        assert!(error.to_string().contains("dynunet"), "{error}");
        assert!(error.remedy().is_some_and(|hint| hint.contains("deep_supervision")));
    }
}
