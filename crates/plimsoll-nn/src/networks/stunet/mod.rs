//! STU-Net (Huang et al. 2023, arXiv:2304.06716), as the authors' trainers for nnU-Net build it: a U-Net of residual blocks in encoder and
//! decoder.
//!
//! A block is two convolutions with instance normalisation, the first with a leaky ReLU, whose result is added to the block's input before
//! another one. The input passes through a 1×1×1 convolution in the first block of each stage. On the way up, a 1×1×1 convolution to the
//! channels of the finer stage follows on interpolation by the nearest voxel. Here it comes first, which is the same and is computed for
//! fewer voxels.

mod forward;

use plimsoll_graph::{Program, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use self::forward::Block;
use super::bounds::{Lists, MOST_FEATURES, check_count};
use super::builder::NetBuilder;
use super::design::NetworkSize;
use super::segresnet_stages::along;
use super::unet::narrower;
use super::{Architecture, Design, Extents, Network, NetworkSettings};
use crate::init::uniform;
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// STU-Net. Lists go from the finest stage to the coarsest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StuNet {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// Channels of each stage (`dims` of the authors).
    pub features: Vec<usize>,
    /// Kernel of each stage (`conv_kernel_sizes`).
    pub kernels: Vec<[usize; 3]>,
    /// Stride into each stage; that into the first is 1 and is not in `pool_op_kernel_sizes`.
    pub strides: Vec<[usize; 3]>,
    /// Residual blocks of each stage, in the encoder and in the decoder (`depth`).
    pub encoder_blocks: Vec<usize>,
    /// The number of coarser maps that get a head of their own while training, the finest first.
    pub deep_supervision: usize,
}

/// Stages of the authors' networks.
const STAGES: usize = 6;
/// Channels of each stage as multiples of the channels of the finest.
const MULTIPLES: [usize; STAGES] = [1, 2, 4, 8, 16, 16];

/// A size of the authors: channels of the finest stage, and blocks of each stage.
struct Scale {
    channels: usize,
    blocks: usize,
}

/// The scale of a size; of M, which the authors do not have and [`NetworkSettings`] refuses, as of B.
fn scale_of(size: NetworkSize) -> Scale {
    match size {
        NetworkSize::S => Scale { channels: 16, blocks: 1 },
        NetworkSize::B | NetworkSize::M => Scale { channels: 32, blocks: 1 },
        NetworkSize::L => Scale { channels: 64, blocks: 2 },
    }
}

impl StuNet {
    pub(super) const SETTINGS: &[&str] =
        &["size", "features", "kernels", "strides", "encoder_blocks", "deep_supervision"];

    /// The sizes of the authors; their largest, H, has three blocks of 96 channels in the finest stage.
    pub(super) const SIZES: &[NetworkSize] = &[NetworkSize::S, NetworkSize::B, NetworkSize::L];

    /// The authors' network of a size for patches that all strides of 2 divide.
    pub fn new(in_channels: usize, classes: usize, size: NetworkSize) -> StuNet {
        let Scale { channels, blocks } = scale_of(size);
        let features = MULTIPLES.map(|multiple| multiple * channels);
        StuNet::with_features(in_channels, classes, &features, blocks)
    }

    /// A network with these features, the same number of blocks in each stage, kernels of 3 and strides of 2.
    fn with_features(in_channels: usize, classes: usize, features: &[usize], blocks: usize) -> StuNet {
        let stages = features.len();
        let mut strides = vec![[2; 3]; stages];
        strides.iter_mut().take(1).for_each(|first| *first = [1; 3]);
        StuNet {
            in_channels,
            classes,
            features: features.to_vec(),
            kernels: vec![[3; 3]; stages],
            strides,
            encoder_blocks: vec![blocks; stages],
            deep_supervision: stages.saturating_sub(2),
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> StuNet {
        let Scale { channels, blocks } = scale_of(settings.size.unwrap_or(NetworkSize::S));
        let given = settings.features.as_ref().map(Vec::len).or(settings.strides.as_ref().map(Vec::len));
        let stages = given.unwrap_or(STAGES);
        let multiple = |stage: usize| MULTIPLES[stage.min(STAGES - 1)];
        let usual = || (0..stages).map(|stage| multiple(stage) * channels).collect();
        let features = settings.features.clone().unwrap_or_else(usual);
        let usual = StuNet::with_features(design.in_channels, design.classes, &features, blocks);
        // The authors' trainers leave out what a plan has beyond, and do not halve where it ends before.
        let strides =
            || (0..stages).map(|stage| design.strides.get(stage).copied().unwrap_or([1; 3])).collect();
        StuNet {
            kernels: settings.kernels.clone().unwrap_or_else(|| vec![along(design.dimensions(), 3); stages]),
            strides: settings.strides.clone().unwrap_or_else(strides),
            encoder_blocks: settings.encoder_blocks.clone().unwrap_or(usual.encoder_blocks),
            deep_supervision: settings.deep_supervision.unwrap_or(usual.deep_supervision),
            ..usual
        }
    }

    pub(super) fn reference(features: Option<&[usize]>) -> StuNet {
        match features {
            Some(features) => StuNet::with_features(1, 2, features, 1),
            None => StuNet::new(1, 2, NetworkSize::S),
        }
    }

    /// The number of stages.
    fn stages(&self) -> usize {
        self.features.len()
    }

    /// The place of a stage of the decoder, counted from the coarsest, as the authors name it.
    fn decoder_place(&self, stage: usize) -> usize {
        self.stages() - 2 - stage
    }
}

impl Architecture for StuNet {
    fn name(&self) -> &'static str {
        "stunet"
    }

    fn check(&self) -> Result<(), ConfigError> {
        let value = |setting, found: String, expected: &str| {
            Err(ConfigError::Value { setting, found, expected: expected.into() })
        };
        let StuNet { features, kernels, strides, encoder_blocks, .. } = self;
        Lists { features, kernels, strides, encoder_blocks, ..Lists::default() }.check()?;
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 1, MOST_FEATURES)?;
        let stages = self.stages();
        if stages < 2 {
            return value("features", stages.to_string(), "at least two stages are needed");
        }
        for (list, found) in
            [("kernels", kernels.len()), ("strides", strides.len()), ("encoder_blocks", encoder_blocks.len())]
        {
            if found != stages {
                return Err(ConfigError::Length { list, found, stages, expected: stages });
            }
        }
        if strides[0] != [1; 3] {
            return value("strides", format!("{:?} first", strides[0]), "the first must be 1");
        }
        if let Some(stride) = strides.iter().find(|stride| stride.iter().any(|extent| *extent > 2)) {
            return value(
                "strides",
                format!("{stride:?}"),
                "interpolation by the nearest voxel doubles at most",
            );
        }
        if let Some(kernel) = kernels.iter().find(|kernel| kernel.iter().any(|extent| extent % 2 == 0)) {
            return value("kernels", format!("{kernel:?}"), "extents must be odd");
        }
        if self.deep_supervision > stages - 2 {
            let found = self.deep_supervision.to_string();
            let expected = format!("at most {} are possible with {stages} stages", stages - 2);
            return Err(ConfigError::Value { setting: "deep_supervision", found, expected });
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
        let of_block = |block: Block| {
            let taps: f64 = block.kernel.iter().map(|extent| *extent as f64).product();
            let [inputs, outputs] = [block.inputs, block.outputs].map(|channels| channels as f64);
            taps * outputs * (inputs + outputs) + inputs * outputs
        };
        self.blocks().into_iter().map(of_block).sum()
    }

    fn extents(&self) -> Extents {
        let multiple = [0, 1, 2]
            .map(|axis| self.strides.iter().fold(1usize, |all, stride| all.saturating_mul(stride[axis])));
        Extents { multiple, least_coarsest: 2 }
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
        let heads = if mode.training { self.deep_supervision } else { 0 };
        self.append(&mut builder, image, heads)
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native("stunet")]
    }

    fn idle_biases(&self) -> Vec<(String, usize)> {
        let of_block = |block: Block| ["conv1", "conv2"].map(|conv| (block.layer(conv), block.outputs));
        let convolutions = self.blocks().into_iter().flat_map(of_block);
        convolutions.map(|(name, outputs)| (format!("{name}.bias"), outputs)).collect()
    }

    fn heads(&self) -> Vec<String> {
        (0..self.stages().saturating_sub(1)).map(|stage| self.head(stage)).collect()
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        uniform(parameter, self.fan(&parameter.name), seed, values);
    }

    fn narrower(&self) -> Vec<Network> {
        let narrowed = narrower(&self.features).into_iter();
        narrowed.map(|features| StuNet { features, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        self.features.clone()
    }

    fn describe(&self) -> String {
        format!("STU-Net, {} stages of {:?} features", self.stages(), self.features)
    }
}
