//! nnU-Net's presets: the network, the patch and the batch that its planners choose for a data set.
//!
//! The rules come from `ExperimentPlanner` and `nnUNetPlannerResEncM`, `L` and `XL` in nnU-Net 2.8.1 (Isensee et al. 2021, 2024).
//! A planner shortens the patch until the estimated memory of the network is within the memory of its reference, and enlarges the batch
//! if memory is left. The estimate is the number of values that convolutions return for one sample, not bytes; each planner has a number
//! of such values as its reference.
//!
//! Axes are not exchanged here, as nnU-Net does to have the coarsest first. They are visited in nnU-Net's order, which decides between axes
//! that are equally long.

use std::fmt;
use std::str::FromStr;

use plimsoll_data::{Fingerprint, Labels, TargetSpacing};
use plimsoll_nn::{ConfigError, NetworkName, PlainConvUNet, ResidualEncoderUNet, UNet};
use plimsoll_volume::Spacing;
use serde::{Deserialize, Serialize};

use crate::bounds::check_spacing;
use crate::{RunError, Settings, Topology, slices};

/// The least samples of a batch (`UNet_min_batch_size`).
const LEAST_BATCH: f64 = 2.0;
/// The samples that a reference is of, for volumes and for slices (`UNet_reference_val_corresp_bs_3d`, `_2d`).
const REFERENCE_BATCH: [f64; 2] = [2.0, 12.0];
/// The share of the median image below which a patch is so small that nnU-Net makes a configuration of a lower resolution as well
/// (`lowres_creation_threshold`).
const LEAST_SHARE: f64 = 0.25;
/// The factor by which spacings are enlarged to find that configuration (`spacing_increase_factor`).
const COARSER: f64 = 1.03;
/// Axes are made coarser together once the coarsest is at most this many times as coarse as any.
const ALIKE: f64 = 2.0;
/// A configuration of a lower resolution is dropped if its images have more than one voxel for this many.
const LEAST_REDUCTION: f64 = 2.0;

/// A planner of nnU-Net.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Preset {
    /// `ExperimentPlanner`.
    #[serde(rename = "nnunet")]
    Nnunet,
    /// `nnUNetPlannerResEncM`.
    #[serde(rename = "resenc-m")]
    ResencM,
    /// `nnUNetPlannerResEncL`.
    #[serde(rename = "resenc-l")]
    ResencL,
    /// `nnUNetPlannerResEncXL`.
    #[serde(rename = "resenc-xl")]
    ResencXl,
}

/// The numbers in which planners differ.
struct Rules {
    /// Convolved values of the reference, for volumes and for slices (`UNet_reference_val_3d`, `_2d`, at the memory that the planner is for).
    reference: [f64; 2],
    /// The share of the data set that a batch covers at most (`max_dataset_covered`).
    most_of_all: f64,
    /// The number of samples, of volumes and of slices, at which the estimate of a patch must be within the reference.
    fits_with: [f64; 2],
}

impl Preset {
    /// All presets, from the least memory to the most.
    pub const ALL: &[Preset] = &[Preset::Nnunet, Preset::ResencM, Preset::ResencL, Preset::ResencXl];

    /// The name, as settings have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Preset::Nnunet => "nnunet",
            Preset::ResencM => "resenc-m",
            Preset::ResencL => "resenc-l",
            Preset::ResencXl => "resenc-xl",
        }
    }

    /// A description in a few words.
    pub fn summary(self) -> &'static str {
        match self {
            Preset::Nnunet => "nnU-Net's default: a plain U-Net planned for 8 GB",
            Preset::ResencM => "nnUNetPlannerResEncM: a residual encoder planned for 8 GB",
            Preset::ResencL => "nnUNetPlannerResEncL: a residual encoder planned for 24 GB",
            Preset::ResencXl => "nnUNetPlannerResEncXL: a residual encoder planned for 40 GB",
        }
    }

    /// The network.
    pub fn network(self) -> NetworkName {
        match self {
            Preset::Nnunet => NetworkName::PlainConvUNet,
            Preset::ResencM | Preset::ResencL | Preset::ResencXl => NetworkName::ResidualEncoderUNet,
        }
    }

    fn rules(self) -> Rules {
        // `ExperimentPlanner` compares what a batch of two needs, and the others what the batch of the reference needs: of volumes
        // both are two.
        let residual = |volumes, slices| Rules {
            reference: [volumes, slices],
            most_of_all: 1.0,
            fits_with: REFERENCE_BATCH,
        };
        match self {
            Preset::Nnunet => {
                Rules { reference: [560e6, 85e6], most_of_all: 0.05, fits_with: [LEAST_BATCH; 2] }
            }
            Preset::ResencM => residual(680e6, 135e6),
            Preset::ResencL => residual(2100e6, 380e6),
            Preset::ResencXl => residual(3600e6, 560e6),
        }
    }

    /// The configuration of full resolution: `3d_fullres`, or `2d` for a spacing of slices.
    pub fn plan(self, facts: &PlannedImages) -> PresetPlan {
        let is_small = self.low_resolution(facts).is_some();
        let name = match facts.spacing.is_of_slices() {
            true => Configuration::Slices,
            false => Configuration::FullResolution,
        };
        self.plan_as(name, facts, is_small || facts.spacing.is_of_slices())
    }

    /// The configuration `3d_lowres`, whose voxels are so large that a patch covers a quarter of the median image; `None` for slices, and
    /// where a patch of full resolution nearly does.
    pub fn low_resolution(self, facts: &PlannedImages) -> Option<PresetPlan> {
        let (TargetSpacing::Native(full) | TargetSpacing::Volume(full)) = facts.spacing else { return None };
        let axes = Topology::axes(facts.spacing);
        let product = |lengths: [f64; 3]| axes.iter().map(|axis| lengths[*axis]).product::<f64>();
        let all_voxels = product(facts.median_shape);
        let (mut patch, mut image, mut coarse) = (self.topology(facts), all_voxels, full.0);
        let mut facts_of_coarse = *facts;
        while patch.voxels() as f64 / image < LEAST_SHARE {
            let coarsest = coarse.iter().copied().fold(0.0, f64::max);
            let is_fine = coarse.map(|mm| coarsest / mm > ALIKE);
            let any_is_fine = is_fine.contains(&true);
            for axis in axes.iter().copied().filter(|axis| is_fine[*axis] || !any_is_fine) {
                coarse[axis] *= COARSER;
            }
            let shape = [0, 1, 2].map(|axis| full.0[axis] / coarse[axis] * facts.median_shape[axis]);
            image = product(shape);
            facts_of_coarse = PlannedImages {
                spacing: TargetSpacing::Volume(Spacing(coarse)),
                median_shape: shape.map(f64::round_ties_even),
                voxels: image * facts.cases as f64,
                ..*facts
            };
            patch = self.topology(&facts_of_coarse);
        }
        let is_much_coarser = all_voxels / image >= LEAST_REDUCTION;
        is_much_coarser.then(|| self.plan_as(Configuration::LowResolution, &facts_of_coarse, false))
    }

    fn plan_as(self, configuration: Configuration, facts: &PlannedImages, batch_dice: bool) -> PresetPlan {
        let topology = self.topology(facts);
        let shape = self.shape(&topology, facts.labels);
        PresetPlan {
            preset: self,
            configuration,
            spacing: facts.spacing,
            patch_size: topology.patch,
            batch_size: self.batch(&topology, facts),
            features: shape.features,
            strides: shape.strides,
            kernels: shape.kernels,
            encoder: shape.encoder_convs,
            decoder: shape.decoder_convs,
            batch_dice,
        }
    }

    /// The first topology of nnU-Net's sequence whose estimate is within the reference.
    fn topology(self, facts: &PlannedImages) -> Topology {
        let kind = facts.kind();
        let Rules { reference, fits_with, .. } = self.rules();
        let fits = |topology: &Topology| {
            self.convolved(topology, facts.labels) / REFERENCE_BATCH[kind] * fits_with[kind]
                <= reference[kind]
        };
        Topology::first_of_sequence(facts.spacing, facts.median_shape, 1, fits)
    }

    /// The samples of a step with a patch: as many as the reference has memory for, but no more than cover the allowed share of the data
    /// set, and at least two.
    fn batch(self, topology: &Topology, facts: &PlannedImages) -> usize {
        let kind = facts.kind();
        let Rules { reference, most_of_all, .. } = self.rules();
        let convolved = self.convolved(topology, facts.labels);
        let fitting = (reference[kind] / convolved * REFERENCE_BATCH[kind]).round_ties_even();
        let most = (facts.voxels * most_of_all / topology.voxels() as f64).round_ties_even();
        // The cast saturates.
        fitting.min(most).max(LEAST_BATCH) as usize
    }

    /// The shape of the network.
    fn shape(self, topology: &Topology, labels: usize) -> UNet {
        let Topology { kernels, strides, .. } = topology;
        // The number of channels of the image has no part in any rule.
        match self.network() {
            NetworkName::ResidualEncoderUNet => {
                ResidualEncoderUNet::new(1, labels, &topology.features(), kernels, strides).shape
            }
            _ => PlainConvUNet::new(1, labels, &topology.features(), kernels, strides).shape,
        }
    }

    /// The values that the network's convolutions return for one patch: `compute_conv_feature_map_size` of
    /// `dynamic_network_architectures`, with one head. Additions and normalisations are not counted.
    fn convolved(self, topology: &Topology, labels: usize) -> f64 {
        let shape = self.shape(topology, labels);
        let is_residual = self.network() == NetworkName::ResidualEncoderUNet;
        let mut extents = topology.patch;
        let voxels_of_patch = topology.voxels();
        // A stem of one convolution.
        let mut values = if is_residual { shape.features[0] * voxels_of_patch } else { 0 };
        let mut features_before = shape.features[0];
        for (stage, (&features, stride)) in shape.features.iter().zip(&shape.strides).enumerate() {
            extents = [0, 1, 2].map(|axis| extents[axis] / stride[axis]);
            let map = features * extents.iter().product::<usize>();
            let encoder = match is_residual {
                // Two convolutions in a block, and one beside the first of a stage that changes features or extents.
                true => {
                    let changes = features != features_before || *stride != [1; 3];
                    2 * shape.encoder_convs[stage] + usize::from(changes)
                }
                false => shape.encoder_convs[stage],
            };
            // A transposed convolution and convolutions of the decoder, which has no coarsest stage.
            let decoder = shape.decoder_convs.get(stage).map_or(0, |convs| 1 + convs);
            values += (encoder + decoder) * map;
            features_before = features;
        }
        (values + labels * voxels_of_patch) as f64
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that no preset has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown preset `{name}`; known: {}", Preset::ALL.iter().map(|preset| preset.as_str()).collect::<Vec<_>>().join(", "))]
pub struct UnknownPreset {
    /// The name.
    pub name: String,
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(text: &str) -> Result<Preset, UnknownPreset> {
        let known = Preset::ALL.iter().find(|preset| preset.as_str() == text);
        known.copied().ok_or_else(|| UnknownPreset { name: text.into() })
    }
}

/// The facts about the images of a data set that a planner needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedImages {
    /// The spacing that images are brought to.
    pub spacing: TargetSpacing,
    /// The median shape at that spacing, as (depth, height, width).
    pub median_shape: [f64; 3],
    /// The voxels of all cases, if each had the median shape.
    pub voxels: f64,
    /// The number of cases.
    pub cases: usize,
    /// The number of labels or regions in `dataset.json`, among them the background and the ignored label.
    pub labels: usize,
}

impl PlannedImages {
    /// The facts of a fingerprint at a spacing.
    pub fn new(fingerprint: &Fingerprint, spacing: TargetSpacing, labels: &Labels) -> PlannedImages {
        let median_shape = match spacing {
            TargetSpacing::Native(_) => fingerprint.median_shape_after_crop(),
            other => fingerprint.median_shape_at(other.for_image(fingerprint.target_spacing)),
        };
        let cases = fingerprint.cases.len();
        let listed = match labels.regions() {
            [] => labels.classes(),
            regions => 1 + regions.len(),
        };
        PlannedImages {
            spacing,
            median_shape,
            voxels: median_shape.iter().product::<f64>() * cases as f64,
            cases,
            labels: listed + usize::from(labels.ignore().is_some()),
        }
    }

    /// 0 for volumes, and 1 for slices.
    fn kind(&self) -> usize {
        usize::from(self.spacing.is_of_slices())
    }
}

/// A configuration in a file of nnU-Net's plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Configuration {
    /// Slices across the depth.
    #[serde(rename = "2d")]
    Slices,
    /// Volumes at the target spacing.
    #[serde(rename = "3d_fullres")]
    FullResolution,
    /// Volumes at a coarser spacing.
    #[serde(rename = "3d_lowres")]
    LowResolution,
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Configuration::Slices => "2d",
            Configuration::FullResolution => "3d_fullres",
            Configuration::LowResolution => "3d_lowres",
        })
    }
}

/// The configuration that a preset asks for. Lists go from the finest stage to the coarsest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PresetPlan {
    /// The preset.
    pub preset: Preset,
    /// The name of the configuration.
    pub configuration: Configuration,
    /// The spacing that images are brought to.
    pub spacing: TargetSpacing,
    /// Depth, height, width of a patch.
    pub patch_size: [usize; 3],
    /// Samples of a step.
    pub batch_size: usize,
    /// Channels of each stage.
    pub features: Vec<usize>,
    /// Stride into each stage.
    pub strides: Vec<[usize; 3]>,
    /// Kernel of each stage.
    pub kernels: Vec<[usize; 3]>,
    /// Convolutions, or residual blocks of two, of each stage of the encoder.
    pub encoder: Vec<usize>,
    /// Convolutions of each stage of the decoder, which has none for the coarsest.
    pub decoder: Vec<usize>,
    /// `true` if Dice is taken over all samples of a batch together.
    pub batch_dice: bool,
}

impl PresetPlan {
    /// The plan that settings ask for: `None` without a preset.
    ///
    /// # Errors
    /// Returns an error if settings contradict each other, or ask for a low resolution that the preset has not for this data set.
    pub fn asked_by(
        settings: &Settings,
        labels: &Labels,
        fingerprint: &Fingerprint,
    ) -> Result<Option<PresetPlan>, RunError> {
        let Some(preset) = settings.preset else { return Ok(None) };
        let spacing = slices::target_spacing(settings, fingerprint)?;
        check_spacing(spacing)?;
        let images = PlannedImages::new(fingerprint, spacing, labels);
        if settings.lowres != Some(true) {
            return Ok(Some(preset.plan(&images)));
        }
        let plan = preset.low_resolution(&images).ok_or_else(|| {
            let expected = match spacing.is_of_slices() {
                true => "nnU-Net has no low resolution of slices".into(),
                false => {
                    let [d, h, w] = preset.plan(&images).patch_size;
                    format!(
                        "{preset} has no 3d_lowres for this data set: its patch of {d}×{h}×{w} voxels already covers enough of the \
                         median image"
                    )
                }
            };
            ConfigError::Value { setting: "lowres", found: "true".into(), expected }
        })?;
        Ok(Some(plan))
    }

    /// Returns `true` if the preset has a configuration of low resolution beside this one.
    pub fn has_low_resolution(&self) -> bool {
        // This is when nnU-Net takes the Dice of volumes over a batch.
        self.configuration == Configuration::FullResolution && self.batch_dice
    }

    /// The kernels and strides of the network, and the patch.
    pub(crate) fn topology(&self) -> Topology {
        Topology { patch: self.patch_size, kernels: self.kernels.clone(), strides: self.strides.clone() }
    }
}

impl fmt::Display for PresetPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PresetPlan { preset, configuration, patch_size: [d, h, w], batch_size, features, .. } = self;
        let spacing: Vec<String> = self.spacing.lengths().iter().map(|mm| format!("{mm:.3}")).collect();
        let per_stage =
            |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        write!(
            f,
            "{preset} ({configuration}): {}, patch {d}×{h}×{w} at {} mm, batch {batch_size}, {} stages of {} features, {} {} down and {} up",
            preset.network(),
            spacing.join(" × "),
            features.len(),
            per_stage(features),
            per_stage(&self.encoder),
            if preset.network() == NetworkName::ResidualEncoderUNet {
                "residual blocks"
            } else {
                "convolutions"
            },
            per_stage(&self.decoder),
        )
    }
}
