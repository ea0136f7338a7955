//! `monai.networks.nets.SwinUNETR`, v1 and v2: a Swin transformer as the encoder of a U-Net of residual blocks (Hatamizadeh et al.
//! 2022, arXiv:2201.01266; He et al. 2023, doi:10.1007/978-3-031-43901-8_40).
//!
//! The image is cut into patches of 2 voxels along each axis, which are tokens of F features; four stages of transformer blocks
//! follow, each of which ends by merging 2 × 2 × 2 tokens into one of twice the features. Of the tokens before and after each
//! stage, residual blocks make what the decoder reads.

mod attention;
mod decoder;
mod encoder;
mod initial;
mod names;

use plimsoll_graph::ops::{MOST_WINDOW_TOKENS, RelativePositions};
use plimsoll_graph::{Program, Shape, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use super::bounds::{MOST_CONVOLUTIONS, MOST_FEATURES, check_count, check_probability};
use super::builder::NetBuilder;
use super::{Architecture, Constant, Design, Extents, Network, NetworkSettings};
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// Stages of the encoder.
const STAGES: usize = 4;
/// Voxels of a patch along an axis, which becomes a token.
const PATCH: usize = 2;
/// The epsilon of the normalisations of tokens and of maps.
const EPSILON: f32 = 1e-5;
/// The widest hidden layer, as a multiple of a block's own channels.
pub(super) const MOST_MLP_RATIO: f32 = 16.0;

/// In which order patch merging puts the voxels of a block one behind the other. Weights that were trained with one order load
/// into a network with another, and give other results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Merging {
    /// MONAI's `downsample="merging"` since version 1.5.0.
    #[default]
    #[serde(rename = "merging")]
    Merging,
    /// MONAI's `downsample="merging"` up to version 1.4, which in three dimensions reads two of the eight voxels twice and two
    /// not at all.
    #[serde(rename = "merging-1.4")]
    Merging14,
    /// MONAI's `downsample="mergingv2"`.
    #[serde(rename = "mergingv2")]
    MergingV2,
}

impl Merging {
    /// The offsets of the voxels within their block, in two or three dimensions.
    fn offsets(self, dimensions: usize) -> Vec<[usize; 3]> {
        match (dimensions, self) {
            // All of them go down the columns first.
            (2, _) => vec![[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1]],
            (_, Merging::Merging) => {
                vec![[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]]
            }
            (_, Merging::Merging14) => {
                vec![[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
            }
            (_, Merging::MergingV2) => (0..8).map(|k| [k / 4, k / 2 % 2, k % 2]).collect(),
        }
    }
}

/// MONAI's SwinUNETR. Fields have the names and meanings of its arguments, where it has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwinUnetr {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// 2 or 3.
    pub dimensions: usize,
    /// Channels of a token before the first stage; any that its heads divide.
    pub feature_size: usize,
    /// Transformer blocks of each stage.
    pub depths: Vec<usize>,
    /// Heads of the attention of each stage.
    pub num_heads: Vec<usize>,
    /// Tokens of a window along each axis.
    pub window_size: usize,
    /// `true` if the linear layer that makes queries, keys and values has a bias.
    pub qkv_bias: bool,
    /// Channels of the hidden layer of a block, as a multiple of its own, rounded down.
    pub mlp_ratio: f32,
    /// `true` if tokens are normalised behind the patch embedding.
    pub patch_norm: bool,
    /// `true` if skip connections normalise the encoder's maps, without scale and shift.
    pub normalize: bool,
    /// `true` if each stage begins with a residual block of convolutions, as in SwinUNETR-V2.
    pub use_v2: bool,
    /// In which order patch merging reads.
    pub merging: Merging,
    /// `true` if stages have transformer blocks; without them, a stage has only its merging and the block of v2.
    /// MONAI's has no such argument.
    pub attention: bool,
    /// The probability with which an element of a linear layer's result is dropped while training (MONAI's `drop_rate`).
    pub dropout: f32,
    /// The same of an element of an attention matrix (`attn_drop_rate`).
    pub attention_dropout: f32,
    /// The probability with which the last block is skipped for a sample while training, and those before it with less, in equal
    /// steps from 0 (`dropout_path_rate`).
    pub path_dropout: f32,
}

impl SwinUnetr {
    pub(super) const SETTINGS: &[&str] = &[
        "feature_size",
        "depths",
        "num_heads",
        "window_size",
        "qkv_bias",
        "mlp_ratio",
        "patch_norm",
        "normalize",
        "use_v2",
        "merging",
        "attention",
        "dropout",
        "attention_dropout",
        "path_dropout",
    ];

    /// `SwinUNETR(in_channels, classes, feature_size=feature_size)`.
    pub fn new(in_channels: usize, classes: usize, feature_size: usize) -> SwinUnetr {
        SwinUnetr {
            in_channels,
            classes,
            dimensions: 3,
            feature_size,
            depths: vec![2; STAGES],
            num_heads: vec![3, 6, 12, 24],
            window_size: 7,
            qkv_bias: true,
            mlp_ratio: 4.0,
            patch_norm: false,
            normalize: true,
            use_v2: false,
            merging: Merging::default(),
            attention: true,
            dropout: 0.0,
            attention_dropout: 0.0,
            path_dropout: 0.0,
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> SwinUnetr {
        let usual = SwinUnetr::new(design.in_channels, design.classes, 24);
        SwinUnetr {
            dimensions: design.dimensions(),
            feature_size: settings.feature_size.unwrap_or(usual.feature_size),
            depths: settings.depths.clone().unwrap_or(usual.depths),
            num_heads: settings.num_heads.clone().unwrap_or(usual.num_heads),
            window_size: settings.window_size.unwrap_or(usual.window_size),
            qkv_bias: settings.qkv_bias.unwrap_or(usual.qkv_bias),
            mlp_ratio: settings.mlp_ratio.unwrap_or(usual.mlp_ratio),
            patch_norm: settings.patch_norm.unwrap_or(usual.patch_norm),
            normalize: settings.normalize.unwrap_or(usual.normalize),
            use_v2: settings.use_v2.unwrap_or(usual.use_v2),
            merging: settings.merging.unwrap_or(usual.merging),
            attention: settings.attention.unwrap_or(usual.attention),
            dropout: settings.dropout.unwrap_or(usual.dropout),
            attention_dropout: settings.attention_dropout.unwrap_or(usual.attention_dropout),
            path_dropout: settings.path_dropout.unwrap_or(usual.path_dropout),
            ..usual
        }
    }

    pub(super) fn reference(features: Option<&[usize]>) -> SwinUnetr {
        SwinUnetr::new(1, 2, features.and_then(|features| features.first().copied()).unwrap_or(24))
    }

    /// Channels of the tokens of a stage; that behind the last is the coarsest.
    fn features_of(&self, stage: usize) -> usize {
        self.feature_size << stage
    }

    /// Channels of the hidden layer of a stage's blocks.
    fn hidden(&self, stage: usize) -> usize {
        (self.features_of(stage) as f32 * self.mlp_ratio) as usize
    }

    /// One number for each axis: along the depth of images of two dimensions there is nothing to window, merge or convolve.
    fn along_axes(&self, extent: usize) -> [usize; 3] {
        [if self.dimensions == 2 { 1 } else { extent }, extent, extent]
    }

    /// The window that tables of biases are made for.
    fn table_window(&self) -> [usize; 3] {
        self.along_axes(self.window_size)
    }

    /// Blocks of all stages, as (stage, block).
    fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let depths = if self.attention { &self.depths[..] } else { &[] };
        depths.iter().enumerate().flat_map(|(stage, depth)| (0..*depth).map(move |block| (stage, block)))
    }

    /// The least feature size from the set one on that the heads divide, if there is one.
    fn next_feature_size(&self) -> Option<usize> {
        let divides = |size: &usize| {
            self.num_heads.iter().enumerate().all(|(stage, heads)| (size << stage).is_multiple_of(*heads))
        };
        (self.feature_size..=MOST_FEATURES >> STAGES).find(divides)
    }

    /// The most heads of each stage, up to those that are set, that divide its channels.
    fn fitting_heads(&self) -> Vec<usize> {
        let fitting = |(stage, heads): (usize, &usize)| {
            (1..=*heads).rev().find(|heads| self.features_of(stage).is_multiple_of(*heads)).unwrap_or(1)
        };
        self.num_heads.iter().enumerate().map(fitting).collect()
    }

    /// The least feature size that the heads divide; all others are multiples of it.
    fn feature_unit(&self) -> usize {
        let divides = |size: &usize| {
            self.num_heads.iter().enumerate().all(|(stage, heads)| (size << stage).is_multiple_of(*heads))
        };
        if !self.attention {
            return 1;
        }
        (1..=self.feature_size).find(divides).unwrap_or(self.feature_size)
    }
}

/// Checks that a list has a number for each stage.
fn check_stages(list: &'static str, found: &[usize], most: usize) -> Result<(), ConfigError> {
    if found.len() != STAGES {
        return Err(ConfigError::Length { list, found: found.len(), stages: STAGES, expected: STAGES });
    }
    found.iter().try_for_each(|number| check_count(list, *number, 1, most))
}

impl Architecture for SwinUnetr {
    fn name(&self) -> &'static str {
        "swinunetr"
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 2, 255)?;
        check_count("dimensions", self.dimensions, 2, 3)?;
        check_count("feature_size", self.feature_size, 1, MOST_FEATURES >> STAGES)?;
        check_stages("depths", &self.depths, MOST_CONVOLUTIONS)?;
        check_stages("num_heads", &self.num_heads, MOST_FEATURES)?;
        let widest = (1..).take_while(|size: &usize| size.pow(3) <= MOST_WINDOW_TOKENS).last();
        check_count("window_size", self.window_size, 1, widest.unwrap_or(1))?;
        ConfigError::expect(
            self.mlp_ratio > 0.0 && self.mlp_ratio <= MOST_MLP_RATIO && self.hidden(0) > 0,
            "mlp_ratio",
            self.mlp_ratio,
            format!("it must be above zero, make at least one channel, and be at most {MOST_MLP_RATIO}"),
        )?;
        for (setting, rate) in [
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("path_dropout", self.path_dropout),
        ] {
            check_probability(setting, rate)?;
        }
        for (stage, heads) in self.num_heads.iter().enumerate().filter(|_| self.attention) {
            let features = self.features_of(stage);
            if !features.is_multiple_of(*heads) {
                return Err(ConfigError::Heads {
                    feature_size: self.feature_size,
                    stage: stage + 1,
                    features,
                    heads: *heads,
                    fitting_size: self.next_feature_size(),
                    fitting_heads: self.fitting_heads(),
                });
            }
        }
        Ok(())
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn weights(&self) -> f64 {
        let kernel = if self.dimensions == 2 { 9.0 } else { 27.0 };
        let of_stage = |stage: usize| {
            let features = self.features_of(stage) as f64;
            let of_block = 4.0 * features * features + 2.0 * features * self.hidden(stage) as f64;
            // Two residual blocks of this width, one over twice as many channels, a merging and a transposed convolution.
            self.depths.get(stage).map_or(0.0, |depth| *depth as f64 * of_block)
                + (7.0 * kernel + 40.0) * features * features
        };
        (0..=STAGES).map(of_stage).sum::<f64>() + kernel * (self.in_channels * self.feature_size) as f64
    }

    fn extents(&self) -> Extents {
        Extents { multiple: self.along_axes(PATCH << STAGES), least_coarsest: 2 }
    }

    fn forward(
        &self,
        program: &mut Program,
        image: TensorId,
        mode: ForwardMode,
    ) -> Result<Vec<TensorId>, ConfigError> {
        self.check()?;
        self.check_patch(program.shape(image).spatial())?;
        let spatial = program.shape(image).spatial();
        if self.dimensions == 2 && spatial[0] != 1 {
            return Err(ConfigError::Value {
                setting: "dimensions",
                found: "2".into(),
                expected: format!("a patch is {} slices deep; it must be one slice", spatial[0]),
            });
        }
        let mut builder = NetBuilder::new(program, mode.precision, 0.0);
        let rates = [self.dropout, self.attention_dropout, self.path_dropout];
        if mode.training && rates.iter().any(|rate| *rate > 0.0) {
            builder.add_noise();
        }
        let maps = self.encode(&mut builder, image)?;
        let logits = self.decode(&mut builder, image, &maps)?;
        Ok(vec![logits])
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        names::schemes()
    }

    fn constants(&self) -> Vec<Constant> {
        let window = self.table_window();
        let constant = |(stage, block): (usize, usize)| {
            let name = format!("{}.attn.relative_position_index", names::block(stage, block));
            Constant::rows(name, window.iter().product(), RelativePositions::new(window))
        };
        self.blocks().map(constant).collect()
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
        self.initial(parameter, seed, values);
    }

    fn narrower(&self) -> Vec<Network> {
        let unit = self.feature_unit();
        // MONAI's own network takes multiples of twelve only.
        let step = if self.feature_size.is_multiple_of(12) && 12 % unit == 0 { 12 } else { unit };
        let mut sizes: Vec<usize> =
            [3, 2, 1].map(|quarters| (self.feature_size * quarters / 4).next_multiple_of(step)).to_vec();
        sizes.retain(|size| *size > 0 && *size < self.feature_size);
        sizes.dedup();
        sizes.into_iter().map(|feature_size| SwinUnetr { feature_size, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        vec![self.feature_size]
    }

    fn features_flag(&self) -> String {
        format!("‹feature_size={}›", self.feature_size)
    }

    fn describe(&self) -> String {
        let version = if self.use_v2 { " v2" } else { "" };
        format!("SwinUNETR{version} of {} features in {} dimensions", self.feature_size, self.dimensions)
    }
}
