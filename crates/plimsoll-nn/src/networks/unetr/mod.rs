//! `monai.networks.nets.UNETR` (Hatamizadeh et al. 2022, arXiv:2103.10504): a Vision Transformer as the encoder of a U-Net of residual blocks.
//!
//! The image is cut into patches of 16 voxels along each axis, which are tokens with a learned vector for each position. Twelve transformer
//! blocks follow, in which each token attends to all. The tokens behind the fourth, seventh and tenth block and behind the last become maps of
//! the decoder's stages. The vectors of positions belong to one size of patches, the only one that the network takes.

mod decoder;
mod encoder;
mod names;

use plimsoll_graph::ops::MOST_WINDOW_TOKENS;
use plimsoll_graph::{Kind, Program, Shape, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use super::bounds::{MOST_FEATURES, check_count, check_patch_size, check_probability};
use super::builder::NetBuilder;
use super::segresnet_stages::along;
use super::swinunetr::MOST_MLP_RATIO;
use super::{Architecture, Design, Extents, Network, NetworkSettings};
use crate::init::{truncated_normal, uniform};
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// Voxels of a token along an axis.
const PATCH: usize = 16;
/// Transformer blocks.
const BLOCKS: usize = 12;
/// The blocks whose tokens become maps of the second, third and fourth stage of the decoder, counted from 0.
const SKIPS: [usize; 3] = [3, 6, 9];
/// The standard deviation of the vectors of positions.
const POSITION_DEVIATION: f32 = 0.02;

/// MONAI's UNETR with instance normalisation, residual blocks and learned positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unetr {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// 2 or 3.
    pub dimensions: usize,
    /// Depth, height and width of the patches that it takes (`img_size`).
    pub image_size: [usize; 3],
    /// Channels of the finest stage of the decoder, doubled from stage to stage.
    pub feature_size: usize,
    /// Channels of tokens.
    pub hidden_size: usize,
    /// Channels of the hidden layer of a transformer block, as a multiple of the tokens'.
    pub mlp_ratio: f32,
    /// Heads of the attention: one number.
    pub num_heads: Vec<usize>,
    /// `true` if the linear layer that makes queries, keys and values has a bias.
    pub qkv_bias: bool,
    /// The probability with which elements of linear layers' results, of attention matrices and of embedded tokens are dropped while training.
    pub dropout: f32,
}

impl Unetr {
    pub(super) const SETTINGS: &[&str] =
        &["feature_size", "hidden_size", "mlp_ratio", "num_heads", "qkv_bias", "dropout"];

    /// `UNETR(in_channels, classes, image_size)`
    pub fn new(in_channels: usize, classes: usize, image_size: [usize; 3]) -> Unetr {
        Unetr {
            in_channels,
            classes,
            dimensions: 3,
            image_size,
            feature_size: 16,
            hidden_size: 768,
            mlp_ratio: 4.0,
            num_heads: vec![12],
            qkv_bias: false,
            dropout: 0.0,
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> Unetr {
        let dimensions = design.dimensions();
        let token = along(dimensions, PATCH);
        let image_size = [0, 1, 2].map(|axis| design.patch[axis].max(1).next_multiple_of(token[axis]));
        let usual = Unetr::new(design.in_channels, design.classes, image_size);
        Unetr {
            dimensions,
            feature_size: settings.feature_size.unwrap_or(usual.feature_size),
            hidden_size: settings.hidden_size.unwrap_or(usual.hidden_size),
            mlp_ratio: settings.mlp_ratio.unwrap_or(usual.mlp_ratio),
            num_heads: settings.num_heads.clone().unwrap_or(usual.num_heads),
            qkv_bias: settings.qkv_bias.unwrap_or(usual.qkv_bias),
            dropout: settings.dropout.unwrap_or(usual.dropout),
            ..usual
        }
    }

    pub(super) fn reference(features: Option<&[usize]>) -> Unetr {
        let usual = Unetr::new(1, 2, [96; 3]);
        let feature_size = features.and_then(|features| features.first().copied());
        Unetr { feature_size: feature_size.unwrap_or(usual.feature_size), ..usual }
    }

    /// Voxels of a token.
    fn token(&self) -> [usize; 3] {
        along(self.dimensions, PATCH)
    }

    /// Tokens along each axis.
    fn grid(&self) -> [usize; 3] {
        let token = self.token();
        [0, 1, 2].map(|axis| self.image_size[axis] / token[axis])
    }

    /// Channels of a stage of the decoder.
    fn features_of(&self, stage: usize) -> usize {
        self.feature_size << stage
    }

    /// Channels of the hidden layer of a transformer block.
    fn hidden(&self) -> usize {
        (self.hidden_size as f32 * self.mlp_ratio).round() as usize
    }

    /// The number of heads of the attention.
    fn head_count(&self) -> usize {
        self.num_heads.first().copied().unwrap_or(1)
    }

    /// The patches that divide into tokens.
    fn whole_tokens(&self) -> Extents {
        Extents { multiple: self.token(), least_coarsest: 1 }
    }
}

impl Architecture for Unetr {
    fn name(&self) -> &'static str {
        "unetr"
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 2, 255)?;
        check_count("dimensions", self.dimensions, 2, 3)?;
        check_count("feature_size", self.feature_size, 1, MOST_FEATURES >> SKIPS.len())?;
        check_count("hidden_size", self.hidden_size, 1, MOST_FEATURES)?;
        ConfigError::expect(
            self.mlp_ratio > 0.0 && self.mlp_ratio <= MOST_MLP_RATIO && self.hidden() > 0,
            "mlp_ratio",
            self.mlp_ratio,
            format!("it must be above zero, make at least one channel, and be at most {MOST_MLP_RATIO}"),
        )?;
        check_probability("dropout", self.dropout)?;
        let [heads] = self.num_heads[..] else {
            let found = format!("{:?}", self.num_heads);
            let expected = "one number is needed: all transformer blocks are alike".into();
            return Err(ConfigError::Value { setting: "num_heads", found, expected });
        };
        ConfigError::expect(
            heads > 0 && self.hidden_size.is_multiple_of(heads),
            "num_heads",
            heads,
            format!("it must divide the {} channels of tokens", self.hidden_size),
        )?;
        check_patch_size(self.image_size)?;
        self.whole_tokens().check(self.image_size)?;
        let tokens: usize = self.grid().iter().product();
        ConfigError::expect(
            tokens <= MOST_WINDOW_TOKENS,
            "patch_size",
            format!("{:?}", self.image_size),
            format!("these are {tokens} tokens, and at most {MOST_WINDOW_TOKENS} can attend to each other"),
        )
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn weights(&self) -> f64 {
        let taps = if self.dimensions == 2 { 9.0 } else { 27.0 };
        let tokens = self.hidden_size as f64;
        let of_block = 4.0 * tokens * tokens + 2.0 * tokens * self.hidden() as f64;
        let of_stage = |stage: usize| {
            let features = self.features_of(stage) as f64;
            // Residual blocks over two maps and over one, and transposed convolutions from tokens or the next coarser stage.
            7.0 * taps * features * features + 8.0 * features * (tokens + 2.0 * features)
        };
        BLOCKS as f64 * of_block + (0..=SKIPS.len()).map(of_stage).sum::<f64>()
    }

    /// The one size of patches that it takes.
    fn extents(&self) -> Extents {
        Extents { multiple: self.image_size, least_coarsest: 1 }
    }

    fn check_patch(&self, patch: [usize; 3]) -> Result<(), ConfigError> {
        check_patch_size(patch)?;
        self.whole_tokens().check(patch)?;
        ConfigError::expect(
            patch == self.image_size,
            "patch_size",
            format!("{patch:?}"),
            format!("the vectors of positions of this network are for patches of {:?}", self.image_size),
        )
    }

    fn forward(
        &self,
        program: &mut Program,
        image: TensorId,
        mode: ForwardMode,
    ) -> Result<Vec<TensorId>, ConfigError> {
        self.check()?;
        self.check_patch(program.shape(image).spatial())?;
        let mut builder = NetBuilder::new(program, mode.precision, 0.0);
        if mode.training && self.dropout > 0.0 {
            builder.add_noise();
        }
        let encoded = self.encode(&mut builder, image)?;
        let logits = self.decode(&mut builder, image, encoded)?;
        Ok(vec![logits])
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native("monai").with_duplicates(names::is_of_older_versions)]
    }

    fn idle_biases(&self) -> Vec<(String, usize)> {
        names::unused().map(|name| (name, self.hidden_size)).collect()
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn stored_shape(&self, tensor: &str, shape: &Shape) -> Shape {
        names::stored_shape(self.dimensions, tensor, shape)
    }

    fn heads(&self) -> Vec<String> {
        vec![names::HEAD.into()]
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        let fan = match parameter.kind {
            Kind::Table => return truncated_normal(parameter, POSITION_DEVIATION, seed, values),
            Kind::Weights => Some(parameter.shape.count() / parameter.shape.dim(0)),
            _ => self.bias_fan(&parameter.name),
        };
        uniform(parameter, fan, seed, values);
    }

    fn narrower(&self) -> Vec<Network> {
        let mut sizes: Vec<usize> = [3, 2, 1].map(|quarters| self.feature_size * quarters / 4).to_vec();
        sizes.retain(|size| *size > 0 && *size < self.feature_size);
        sizes.dedup();
        sizes.into_iter().map(|feature_size| Unetr { feature_size, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        vec![self.feature_size]
    }

    fn features_flag(&self) -> String {
        format!("‹feature_size={}›", self.feature_size)
    }

    fn describe(&self) -> String {
        let Unetr { hidden_size, feature_size, image_size: [d, h, w], .. } = self;
        format!(
            "UNETR of {feature_size} features, tokens of {hidden_size} channels, patches of {d} × {h} × {w}"
        )
    }
}

impl Unetr {
    /// Inputs of an output of the layer of a bias; none if it belongs to a normalisation.
    fn bias_fan(&self, bias: &str) -> Option<usize> {
        if bias == format!("{}.bias", names::HEAD) {
            return Some(self.feature_size);
        }
        if bias == format!("{}.bias", names::EMBEDDING) {
            return Some(self.in_channels * self.token().iter().product::<usize>());
        }
        if bias.ends_with(".mlp.linear2.bias") {
            return Some(self.hidden());
        }
        let reads_tokens = [".attn.qkv.bias", ".attn.out_proj.bias", ".mlp.linear1.bias"];
        reads_tokens.iter().any(|layer| bias.ends_with(layer)).then_some(self.hidden_size)
    }
}
