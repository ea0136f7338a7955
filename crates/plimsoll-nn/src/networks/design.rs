//! What a user may set of a network, and what follows from the data set.

use serde::{Deserialize, Serialize};

use super::NetworkName;
use crate::ConfigError;

/// What follows from a data set by nnU-Net's rules; a network takes of it what it needs. Lists go from the finest stage to the
/// coarsest.
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

/// Defines [`NetworkSettings`].
macro_rules! network_settings {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// What a user may set of a network. No network has all of it; what is given but not used is an error. Lists go from the
        /// finest stage to the coarsest.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct NetworkSettings {
            /// Which network [default: plain].
            pub net: Option<NetworkName>,
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl NetworkSettings {
            /// These settings where they say something, else those of `other`.
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
    /// Whether normalisations have a scale and a shift [default: yes].
    affine: bool,
    /// How many coarser maps get a head of their own while training [default: all but the two coarsest].
    deep_supervision: usize,
    /// The probability with which an element of a convolution's result is dropped while training [default: 0].
    dropout: f32,
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
        assert!(error.hint().is_some_and(|hint| hint.contains("deep_supervision")));
    }
}
