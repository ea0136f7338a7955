//! Networks: what one must say of itself, and the list of all.
//!
//! A network is a file here that implements [`Architecture`] and a line in [`networks!`](self). Settings, checkpoints, plans
//! and the command line follow from these two.

mod attention_unet;
mod basic_block;
mod batch_norm;
pub mod bounds;
mod builder;
mod constant;
mod design;
mod dynunet;
mod extents;
mod hd_bet;
mod linknet;
mod mednext;
mod meshnet;
mod monai_unet;
mod plain;
mod primus;
mod resenc;
mod residual_unit;
mod se_resnext;
mod segresnet;
mod segresnet_ds;
mod segresnet_stages;
mod stunet;
mod swinunetr;
mod unet;
mod unet_norm;
mod unetr;

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use plimsoll_graph::{DType, Program, Shape, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::weights::NamingScheme;

pub use attention_unet::AttentionUnet;
pub use constant::Constant;
pub use design::{Design, NetworkSettings, NetworkSize, UpsampleMode};
pub use dynunet::DynUNet;
pub use extents::Extents;
pub use hd_bet::HdBet;
pub use linknet::LinkNet;
pub use mednext::MedNeXt;
pub use meshnet::{MeshActivation, MeshNet};
pub use monai_unet::MonaiUNet;
pub use plain::PlainConvUNet;
pub use primus::Primus;
pub use resenc::ResidualEncoderUNet;
pub use se_resnext::{Head, SEResNeXt50, StemPool};
pub use segresnet::SegResNet;
pub use segresnet_ds::SegResNetDS;
pub use stunet::StuNet;
pub use swinunetr::{Merging, SwinUnetr};
pub use unet::UNet;
pub use unet_norm::UNetNorm;
pub use unetr::Unetr;

/// The purpose of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardMode {
    /// `true` if it is a training pass, with dropout and all heads.
    pub training: bool,
    /// The storage type of feature maps: f32, bf16 or f16.
    pub precision: DType,
}

/// The unit to which a network assigns a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classifies {
    /// Each voxel of a patch: logits are `[N, C, D, H, W]`, and labels `[N, 1, D, H, W]`.
    Voxels,
    /// An image as a whole: logits are `[N, C, 1, 1, 1]`, and labels `[N, 1, 1, 1, 1]`.
    Images,
}

impl Classifies {
    /// The extent of logits and labels of a patch.
    pub fn extent(self, patch: [usize; 3]) -> [usize; 3] {
        match self {
            Classifies::Voxels => patch,
            Classifies::Images => [1; 3],
        }
    }
}

/// The properties of a network that a run depends on.
pub trait Architecture: fmt::Debug + Send + Sync {
    /// Its name in configurations and on the command line.
    fn name(&self) -> &'static str;

    /// Checks the configuration by itself.
    ///
    /// # Errors
    /// Returns an error if lists differ in length, or a number is impossible.
    fn check(&self) -> Result<(), ConfigError>;

    /// Channels of the image.
    fn in_channels(&self) -> usize;

    /// Classes, background included.
    fn classes(&self) -> usize;

    /// Returns the unit to which it assigns a class.
    fn classifies(&self) -> Classifies {
        Classifies::Voxels
    }

    /// The weights of its convolutions, about: what bounds the work of a step together with its voxels. It is a float, since it
    /// is asked for before anything is known to be countable.
    fn weights(&self) -> f64;

    /// Returns the patches that it takes.
    fn extents(&self) -> Extents;

    /// Checks that it takes a patch of this size along depth, height and width, in voxels.
    ///
    /// # Errors
    /// Returns an error if the patch does not fit.
    fn check_patch(&self, patch: [usize; 3]) -> Result<(), ConfigError> {
        bounds::check_patch_size(patch)?;
        self.extents().check(patch)
    }

    /// Appends the forward pass to a program: f32 logits of the f32 image `[N, C, D, H, W]`, whose extent depends on
    /// [`classifies`](Architecture::classifies). A training pass also has the logits of the coarser maps that have a
    /// head, the finest first, and the parts that only training has, such as dropout, for which the program then has
    /// the input [`names::NOISE`](crate::names::NOISE).
    ///
    /// # Errors
    /// Returns an error if the configuration is impossible, or the image does not fit.
    fn forward(
        &self,
        program: &mut Program,
        image: TensorId,
        mode: ForwardMode,
    ) -> Result<Vec<TensorId>, ConfigError>;

    /// The weights of the losses of this number of heads, the finest first; they sum to one.
    fn head_weights(&self, heads: usize) -> Vec<f32> {
        halved_weights(heads)
    }

    /// The naming schemes of weight files that it can be read from. The first is the one in which it is written;
    /// parameters in programs have the names of this scheme.
    fn naming_schemes(&self) -> Vec<NamingScheme>;

    /// Tensors that a weight file of its first naming scheme holds beside its parameters, all zero, with their lengths: biases
    /// of convolutions which the normalisation behind them cancels.
    fn idle_biases(&self) -> Vec<(String, usize)> {
        Vec::new()
    }

    /// Tensors that a weight file of its first naming scheme holds beside its parameters and idle biases: tables that its authors'
    /// programs keep with the weights though they follow from the configuration.
    fn constants(&self) -> Vec<Constant> {
        Vec::new()
    }

    /// Along how many axes it sees neighbours: 3, or 2 where it takes a slice at a time. Windows are then flat along the depth, and the weights
    /// of a file `[O, I, kh, kw]`.
    fn dimensions(&self) -> usize {
        3
    }

    /// The shape of a parameter, or of a moment or an average behind a slash, in weight files of the first scheme: without the depth of
    /// windows in two dimensions.
    fn stored_shape(&self, tensor: &str, shape: &Shape) -> Shape {
        let _ = tensor;
        without_depth(self.dimensions(), shape)
    }

    /// Returns `true` if the first two axes of weights, of a moment or of an average, stand in the opposite order in weight files: a
    /// convolution that is a transposed one in its authors' program. Its kernel has one voxel.
    fn is_exchanged(&self, tensor: &str) -> bool {
        let _ = tensor;
        false
    }

    /// Other names under which its authors' state dicts hold the tensor of a name, idle biases among them: what
    /// `load_state_dict` asks for beside the parameters.
    fn other_names(&self, tensor: &str) -> Vec<String> {
        let _ = tensor;
        Vec::new()
    }

    /// The names of all convolutions that can make logits, the finest first, whether a forward pass has them or not: the parameters of
    /// one are `NAME.weight` and `NAME.bias`. Their shapes follow from the classes.
    fn heads(&self) -> Vec<String> {
        Vec::new()
    }

    /// The parameter that is the weights of the convolution of the image, where they may be summed over the channels of files that are
    /// of images of three, for images of one.
    fn stem(&self) -> Option<String> {
        None
    }

    /// The names of its stem and its encoder, if nnssl pre-trains networks of this kind.
    fn encoder_names(&self) -> Option<EncoderNames> {
        None
    }

    /// The values that a parameter has before the first step, in the logical order of its shape.
    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]);

    /// Initial values of a parameter: see [`initialise`](Architecture::initialise).
    fn initial_values(&self, parameter: &TensorInfo, seed: u64) -> Vec<f32> {
        let mut values = vec![0.0; parameter.shape.count()];
        self.initialise(parameter, seed, &mut values);
        values
    }

    /// Returns `true` if a parameter is learned by its gradient. One that is not has none, and no moments: running statistics, which the forward
    /// pass updates, are such.
    fn is_trained(&self, parameter: &str) -> bool {
        let _ = parameter;
        true
    }

    /// Why it cannot be trained, if it can only be predicted with.
    fn untrainable(&self) -> Option<&'static str> {
        None
    }

    /// Returns the name of the layer that makes the result for a sample depend on the others of its batch, if there is
    /// one, such as "batch normalisation". Such a network takes a batch in one piece.
    fn couples_samples(&self) -> Option<&'static str> {
        None
    }

    /// The same network with ever fewer features.
    fn narrower(&self) -> Vec<Network>;

    /// Its features as [`NetworkSettings::features`] has them.
    fn features(&self) -> Vec<usize>;

    /// The flag that sets its features.
    fn features_flag(&self) -> String {
        let features: Vec<String> = self.features().iter().map(usize::to_string).collect();
        format!("‹features={}›", features.join(","))
    }

    /// Returns a short description of the network for the first line of a plan.
    fn describe(&self) -> String;
}

/// The names of the parts of a network that pre-training learns: prefixes of the names of their parameters, without the dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderNames {
    /// The stages of the encoder (`key_to_encoder` in dynamic_network_architectures).
    pub stages: &'static str,
    /// The stem, which may be the first stage (`key_to_stem`).
    pub stem: &'static str,
    /// The convolution of the image (`keys_to_in_proj`).
    pub input: &'static str,
    /// The learned vectors of positions, if it has such.
    pub positions: Option<TokenPositions>,
}

/// The learned vectors of the positions of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenPositions {
    /// The name of the parameter (`key_to_lpe`).
    pub name: &'static str,
    /// Tokens along depth, height and width.
    pub grid: [usize; 3],
}

/// The shape of weights in files of networks of two or three dimensions: without the depth of windows in two.
fn without_depth(dimensions: usize, shape: &Shape) -> Shape {
    match shape.0[..] {
        [o, i, 1, h, w] if dimensions == 2 => Shape(vec![o, i, h, w]),
        _ => shape.clone(),
    }
}

/// Weights halved from each head to the next coarser one, summing to one. As in nnU-Net, the coarsest of several has none.
fn halved_weights(heads: usize) -> Vec<f32> {
    let counted = if heads > 2 { heads - 1 } else { heads };
    let weights: Vec<f64> =
        (0..heads).map(|i| if i < counted { 0.5f64.powi(i as i32) } else { 0.0 }).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| (weight / sum) as f32).collect()
}

/// Defines [`Network`] and [`NetworkName`]: a line for each network with its name, its type and what it is. The first is the
/// default.
///
/// Beside [`Architecture`], a network's type has
/// - `const SETTINGS: &[&str]`: the fields of [`NetworkSettings`] that it uses;
/// - `fn design(&Design, &NetworkSettings) -> Self`: the network for a data set, as far as settings do not say otherwise;
/// - `fn reference(Option<&[usize]>) -> Self`: the network that speed is measured with, if need be with other features.
macro_rules! networks {
    ($($name:literal => $network:ident: $summary:literal,)*) => {
        /// A network with its configuration. It is used as its [`Architecture`].
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        pub enum Network {
            $(#[doc = $summary] #[serde(rename = $name)] $network($network),)*
        }

        /// The name of a network.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum NetworkName {
            $(#[doc = $summary] #[serde(rename = $name)] $network,)*
        }

        impl Network {
            /// The names of all networks.
            pub const NAMES: &[&str] = &[$($name),*];

            /// The network for a data set, as far as settings do not say otherwise.
            ///
            /// # Errors
            /// Returns an error if a setting is given that the network does not have, or the configuration is
            /// impossible.
            pub fn design(design: &Design, settings: &NetworkSettings) -> Result<Network, ConfigError> {
                let name = settings.net.unwrap_or_default();
                let network: Network = match name {
                    $(NetworkName::$network => {
                        settings.expect_only(name, $network::SETTINGS)?;
                        settings.expect_size(name)?;
                        $network::design(design, settings).into()
                    })*
                };
                network.check()?;
                Ok(network)
            }

            /// The settings that make this network for any data set: all that its kind has.
            ///
            /// # Errors
            /// Returns an error if settings cannot express this network.
            pub fn settings(&self) -> Result<NetworkSettings, ConfigError> {
                let unsaid = |why: String| ConfigError::Value {
                    setting: "network",
                    found: self.describe(),
                    expected: format!("it cannot be written as settings: {why}"),
                };
                // Networks are stored under the names of their settings.
                let stored = serde_json::to_value(self).map_err(|problem| unsaid(problem.to_string()))?;
                let kind = stored.get("name").and_then(|name| name.as_str()).map(str::to_string);
                let kind = kind.ok_or_else(|| unsaid("it has no name".into()))?;
                let name: NetworkName = kind.parse().map_err(|_| unsaid(format!("`{kind}` is none")))?;
                let used = match name {
                    $(NetworkName::$network => $network::SETTINGS,)*
                };
                let mut said = serde_json::Map::new();
                said.insert("net".into(), kind.into());
                let kept = used.iter().filter(|key| !design::SHORTHANDS.contains(key));
                for key in kept {
                    let value = stored.get(*key).ok_or_else(|| unsaid(format!("it has no `{key}`")))?;
                    said.insert((*key).into(), value.clone());
                }
                serde_json::from_value(said.into()).map_err(|problem| unsaid(problem.to_string()))
            }

            /// The network of a name that speed is measured with: one channel and two classes, with the features that its
            /// authors give it unless others are asked for.
            ///
            /// # Errors
            /// Returns an error if the network cannot have these features.
            pub fn reference(name: NetworkName, features: Option<&[usize]>) -> Result<Network, ConfigError> {
                let network: Network = match name {
                    $(NetworkName::$network => $network::reference(features).into(),)*
                };
                network.check()?;
                Ok(network)
            }

            /// Returns the network as an [`Architecture`].
            pub fn as_architecture(&self) -> &(dyn Architecture + 'static) {
                match self {
                    $(Network::$network(network) => network,)*
                }
            }
        }

        impl NetworkName {
            /// All networks.
            pub const ALL: &[NetworkName] = &[$(NetworkName::$network),*];

            /// Returns the name in its written form.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(NetworkName::$network => $name,)*
                }
            }

            /// A line that says what the network is.
            pub fn summary(self) -> &'static str {
                match self {
                    $(NetworkName::$network => $summary,)*
                }
            }
        }

        $(impl From<$network> for Network {
            fn from(network: $network) -> Network {
                Network::$network(network)
            }
        })*
    };
}

networks! {
    "plain" => PlainConvUNet: "nnU-Net's PlainConvUNet",
    "dynunet" => DynUNet: "MONAI's DynUNet",
    "resenc" => ResidualEncoderUNet: "nnU-Net's ResidualEncoderUNet",
    "segresnet" => SegResNet: "MONAI's SegResNet",
    "segresnetds" => SegResNetDS: "MONAI's SegResNetDS",
    "swinunetr" => SwinUnetr: "MONAI's SwinUNETR",
    "unetr" => Unetr: "MONAI's UNETR",
    "mednext" => MedNeXt: "MONAI's MedNeXt",
    "attentionunet" => AttentionUnet: "MONAI's AttentionUnet",
    "stunet" => StuNet: "STU-Net of the authors' trainers for nnU-Net",
    "primus" => Primus: "nnU-Net's Primus, a transformer",
    "meshnet" => MeshNet: "MeshNet, dilated convolutions at the extent of the image",
    "unet" => MonaiUNet: "MONAI's UNet, for prediction only",
    "hdbet" => HdBet: "HD-BET's U-Net, for prediction only",
    "linknet" => LinkNet: "LinkNet of deepbet, for prediction only",
    "seresnext50" => SEResNeXt50: "SE-ResNeXt50 32×4d, which gives an image one class",
}

impl Deref for Network {
    type Target = dyn Architecture;

    fn deref(&self) -> &Self::Target {
        self.as_architecture()
    }
}

impl Default for NetworkName {
    fn default() -> NetworkName {
        NetworkName::ALL[0]
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that no network has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown network `{name}`; known: {}", Network::NAMES.join(", "))]
pub struct UnknownNetwork {
    /// The name.
    pub name: String,
}

impl FromStr for NetworkName {
    type Err = UnknownNetwork;

    fn from_str(text: &str) -> Result<NetworkName, UnknownNetwork> {
        let known = NetworkName::ALL.iter().find(|name| name.as_str() == text);
        known.copied().ok_or_else(|| UnknownNetwork { name: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_stand_in_configurations() {
        for name in NetworkName::ALL {
            assert_eq!(name.to_string().parse(), Ok(*name));
            let network = Network::reference(*name, None).unwrap();
            assert_eq!(network.name(), name.as_str());
            let json = serde_json::to_value(&network).unwrap();
            assert_eq!(json["name"], name.as_str());
            assert_eq!(serde_json::from_value::<Network>(json).unwrap(), network);
        }
        let error = "swine".parse::<NetworkName>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown network `swine`; known: plain, dynunet, resenc, segresnet, segresnetds, swinunetr, unetr, mednext, attentionunet, stunet, primus, meshnet, unet, hdbet, linknet, seresnext50"
        );
    }

    #[test]
    fn keys_that_a_network_does_not_know_are_errors() {
        let network = Network::reference(NetworkName::DynUNet, None).unwrap();
        let mut json = serde_json::to_value(&network).unwrap();
        json["colour"] = "red".into();
        assert!(serde_json::from_value::<Network>(json).unwrap_err().to_string().contains("colour"));
    }

    #[test]
    fn heads_are_weighted_as_in_nnunet() {
        assert_eq!(halved_weights(1), [1.0]);
        assert_eq!(halved_weights(2), [2.0 / 3.0, 1.0 / 3.0]);
        assert_eq!(halved_weights(4), [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0, 0.0]);
    }
}
