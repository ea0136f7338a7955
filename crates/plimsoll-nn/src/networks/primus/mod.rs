//! Primus (Wald et al. 2025, arXiv:2503.01835) in its three versions, as nnU-Net's trainers build it with `dynamic_network_architectures`: a
//! transformer that makes all of its features from tokens.
//!
//! The image is cut into patches of 8 voxels along each axis, which are tokens with a learned vector for each position. Every token attends
//! to all in each block; queries and keys are rotated by angles of their place, the hidden layer is gated, and each branch is normalised
//! inside and scaled (Eva-02, arXiv:2303.11331). Three transposed convolutions lead to logits. Version 1 makes tokens by one convolution,
//! versions 2 and 3 by residual blocks, and version 3 adds the maps on the way to the tokens. The vectors of positions belong to one size
//! of patches, the only one that the network takes.

mod decoder;
mod encoder;
mod initial;
mod names;

use plimsoll_graph::ops::{MOST_ATTENDING, RotaryPairs};
use plimsoll_graph::{Program, Shape, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use super::bounds::{MOST_CONVOLUTIONS, MOST_FEATURES, check_count, check_patch_size, check_probability};
use super::builder::NetBuilder;
use super::design::NetworkSize;
use super::{
    Architecture, Constant, Design, EncoderNames, Extents, Network, NetworkSettings, TokenPositions,
};
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// Voxels of a token along an axis.
const PATCH: usize = 8;
/// Transposed convolutions, each of which doubles the extent.
const STAGES: usize = 3;
/// Channels of the hidden layer of a block, as a multiple of the tokens'.
const MLP_RATIO: f64 = 4.0 * 2.0 / 3.0;
/// The probability with which nnU-Net's trainers skip the last block.
const PATH_DROPOUT: f32 = 0.2;

/// Primus with learned positions, rotary positions, normalised attention and scaled branches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Primus {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// 1, 2 or 3.
    pub version: usize,
    /// Depth, height and width of the patches that it takes (`input_shape`).
    pub image_size: [usize; 3],
    /// Channels of tokens (`embed_dim`).
    pub hidden_size: usize,
    /// Transformer blocks: one number (`eva_depth`).
    pub depths: Vec<usize>,
    /// Heads of the attention: one number (`eva_numheads`).
    pub num_heads: Vec<usize>,
    /// The probability with which the last transformer block is skipped for a sample while training (`drop_path_rate`); the blocks before it are
    /// with less, in equal steps from 0.
    pub path_dropout: f32,
}

/// A size of the authors.
struct Scale {
    hidden_size: usize,
    depth: usize,
    heads: usize,
}

fn scale_of(size: NetworkSize) -> Scale {
    match size {
        NetworkSize::S => Scale { hidden_size: 396, depth: 12, heads: 6 },
        NetworkSize::B => Scale { hidden_size: 792, depth: 12, heads: 12 },
        NetworkSize::M => Scale { hidden_size: 864, depth: 16, heads: 12 },
        NetworkSize::L => Scale { hidden_size: 1056, depth: 24, heads: 16 },
    }
}

/// The residual blocks that make tokens.
struct Stem {
    /// Channels of the blocks at the extent of the image, of a half, of a quarter, and of the tokens.
    features: [usize; STAGES + 1],
    /// The slope of the leaky ReLUs.
    slope: f32,
    /// `true` if the maps before the last are added to the tokens.
    skips: bool,
}

impl Primus {
    pub(super) const SETTINGS: &[&str] =
        &["size", "version", "hidden_size", "depths", "num_heads", "path_dropout"];

    /// The network of a size and version of nnU-Net's trainers, for patches of a size.
    pub fn new(
        in_channels: usize,
        classes: usize,
        size: NetworkSize,
        version: usize,
        image_size: [usize; 3],
    ) -> Primus {
        let Scale { hidden_size, depth, heads } = scale_of(size);
        Primus {
            in_channels,
            classes,
            version,
            image_size,
            hidden_size,
            depths: vec![depth],
            num_heads: vec![heads],
            path_dropout: PATH_DROPOUT,
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> Primus {
        let image_size = match design.dimensions() {
            // Refused by its own check: it has no form for slices.
            2 => design.patch,
            _ => design.patch.map(|extent| extent.max(1).next_multiple_of(PATCH)),
        };
        let size = settings.size.unwrap_or(NetworkSize::S);
        let version = settings.version.unwrap_or(1);
        let usual = Primus::new(design.in_channels, design.classes, size, version, image_size);
        Primus {
            hidden_size: settings.hidden_size.unwrap_or(usual.hidden_size),
            depths: settings.depths.clone().unwrap_or(usual.depths),
            num_heads: settings.num_heads.clone().unwrap_or(usual.num_heads),
            path_dropout: settings.path_dropout.unwrap_or(usual.path_dropout),
            ..usual
        }
    }

    /// The small first version, with the first of some features as channels of tokens, and heads of 66 of them.
    pub(super) fn reference(features: Option<&[usize]>) -> Primus {
        const HEAD: usize = 66;
        let usual = Primus::new(1, 2, NetworkSize::S, 1, [96; 3]);
        match features.and_then(|features| features.first().copied()) {
            None => usual,
            Some(hidden_size) => {
                Primus { hidden_size, num_heads: vec![(hidden_size / HEAD).max(1)], ..usual }
            }
        }
    }

    /// Tokens along each axis.
    fn grid(&self) -> [usize; 3] {
        self.image_size.map(|extent| extent / PATCH)
    }

    /// The number of transformer blocks.
    fn depth(&self) -> usize {
        self.depths.first().copied().unwrap_or(1)
    }

    /// The number of heads of the attention.
    fn heads_of_attention(&self) -> usize {
        self.num_heads.first().copied().unwrap_or(1)
    }

    /// Channels of the hidden layer of a block.
    fn hidden(&self) -> usize {
        (self.hidden_size as f64 * MLP_RATIO) as usize
    }

    /// The residual blocks that make tokens; none if one convolution does.
    fn stem(&self) -> Option<Stem> {
        match self.version {
            1 => None,
            2 => Some(Stem { features: [32, 32, 64, 128], slope: 0.0, skips: false }),
            _ => Some(Stem { features: [32, 64, 256, 1024], slope: 0.01, skips: true }),
        }
    }

    /// The probability with which a block is skipped: from 0 to that of the last one in equal steps.
    fn path_dropout_of(&self, block: usize) -> f32 {
        let last = self.depth().saturating_sub(1).max(1);
        self.path_dropout * block as f32 / last as f32
    }

    /// The patches that divide into tokens; of two, where maps of their extent are normalised.
    fn whole_tokens(&self) -> Extents {
        Extents { multiple: [PATCH; 3], least_coarsest: if self.version == 1 { 1 } else { 2 } }
    }

    /// Checks that a list has one number within bounds.
    fn check_one(setting: &'static str, list: &[usize], most: usize) -> Result<usize, ConfigError> {
        let [number] = list[..] else {
            let found = format!("{list:?}");
            let expected = "one number is needed: all transformer blocks are alike".into();
            return Err(ConfigError::Value { setting, found, expected });
        };
        check_count(setting, number, 1, most)?;
        Ok(number)
    }
}

impl Architecture for Primus {
    fn name(&self) -> &'static str {
        "primus"
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 1, MOST_FEATURES)?;
        check_count("version", self.version, 1, 3)?;
        check_count("hidden_size", self.hidden_size, 1, MOST_FEATURES)?;
        Primus::check_one("depths", &self.depths, MOST_CONVOLUTIONS)?;
        let heads = Primus::check_one("num_heads", &self.num_heads, MOST_FEATURES)?;
        let channels = self.hidden_size / heads;
        ConfigError::expect(
            self.hidden_size.is_multiple_of(heads) && RotaryPairs::new(channels).is_some(),
            "num_heads",
            heads,
            format!("it must divide the {} channels of tokens into multiples of six", self.hidden_size),
        )?;
        check_probability("path_dropout", self.path_dropout)?;
        check_patch_size(self.image_size)?;
        ConfigError::expect(
            self.image_size[0] > 1,
            "patch_size",
            format!("{:?}", self.image_size),
            "this network takes volumes, not slices",
        )?;
        self.whole_tokens().check(self.image_size)?;
        let tokens: usize = self.grid().iter().product();
        ConfigError::expect(
            tokens <= MOST_ATTENDING,
            "patch_size",
            format!("{:?}", self.image_size),
            format!("these are {tokens} tokens, and at most {MOST_ATTENDING} can attend to each other"),
        )
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn weights(&self) -> f64 {
        let tokens = self.hidden_size as f64;
        let of_block = 4.0 * tokens * tokens + 3.0 * tokens * self.hidden() as f64;
        let decoder = self.decoder_features().into_iter().fold((0.0, tokens), |(sum, inputs), outputs| {
            let outputs = outputs as f64;
            (sum + 8.0 * inputs * outputs, outputs)
        });
        let embedding = match self.stem() {
            None => (self.in_channels * PATCH.pow(3)) as f64 * tokens,
            Some(stem) => stem.features.into_iter().enumerate().fold(0.0, |sum, (level, features)| {
                let features = features as f64;
                let skip =
                    if stem.skips { ((PATCH >> level) as f64).powi(3) * features * tokens } else { 0.0 };
                sum + 54.0 * features * features + skip
            }),
        };
        self.depth() as f64 * of_block + decoder.0 + embedding
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
        if mode.training && self.path_dropout > 0.0 {
            builder.add_noise();
        }
        let tokens = self.encode(&mut builder, image)?;
        let logits = self.decode(&mut builder, tokens)?;
        Ok(vec![logits])
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native("nnunet").with_duplicates(names::is_duplicate)]
    }

    fn idle_biases(&self) -> Vec<(String, usize)> {
        let of_stem = |stem: Stem| {
            let name = names::residual(None);
            ["conv1", "conv2"].map(|conv| (format!("{name}.{conv}.conv.bias"), stem.features[0])).to_vec()
        };
        self.stem().map_or_else(Vec::new, of_stem)
    }

    fn constants(&self) -> Vec<Constant> {
        vec![Constant::zeroes(names::MASK, Shape(vec![1, 1, self.hidden_size]))]
    }

    fn stored_shape(&self, tensor: &str, shape: &Shape) -> Shape {
        names::stored_shape(tensor, shape)
    }

    fn is_exchanged(&self, tensor: &str) -> bool {
        names::is_exchanged(tensor)
    }

    fn other_names(&self, tensor: &str) -> Vec<String> {
        names::other_names(tensor)
    }

    /// The decoder as a whole: the widths of all its layers follow from the classes.
    fn heads(&self) -> Vec<String> {
        vec![names::DECODER.into()]
    }

    fn encoder_names(&self) -> Option<EncoderNames> {
        Some(EncoderNames {
            stages: names::ENCODER,
            stem: names::EMBEDDING,
            input: if self.version == 1 { names::INPUT } else { names::RESIDUAL_INPUT },
            positions: Some(TokenPositions { name: names::POSITIONS, grid: self.grid() }),
        })
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        self.initial(parameter, seed, values);
    }

    /// None: the authors' sizes differ in more than features.
    fn narrower(&self) -> Vec<Network> {
        Vec::new()
    }

    fn features(&self) -> Vec<usize> {
        vec![self.hidden_size]
    }

    fn describe(&self) -> String {
        let Primus { version, hidden_size, image_size: [d, h, w], .. } = self;
        let (blocks, heads) = (self.depth(), self.heads_of_attention());
        format!(
            "Primus V{version}, {blocks} blocks of {heads} heads, tokens of {hidden_size} channels, patches of {d} × {h} × {w}"
        )
    }
}
