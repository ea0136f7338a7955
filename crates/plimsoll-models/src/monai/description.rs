//! The description of a model of MONAI, from a bundle or a file of our own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_data::{
    Channel, MonaiIntensity, MonaiSteps, Normalisation, Preparation, TargetSpacing, is_image_ending,
};
use plimsoll_graph::DType;
use plimsoll_memory::Budget;
use plimsoll_nn::{Network, predict};
use plimsoll_run::bounds::check_spacing;
use plimsoll_run::{LoadOptions, expect_weights};
use plimsoll_volume::Spacing;
use serde::Deserialize;

use super::MonaiModel;
use super::activations::read_slopes;
use super::error::MonaiError;
use super::network::{Built, NetworkArguments};
use crate::{Answers, Interpolated, ModelError, SegmentationModel, WindowLayout};

/// The description of a model of MONAI.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its weights.
    pub weights: PathBuf,
    /// The version of MONAI that trained it, if known.
    pub monai_version: Option<String>,
    /// The network, by the arguments of its constructor.
    pub network: NetworkArguments,
    /// The names of the channels of its images.
    pub channels: Vec<String>,
    /// The ending of the names of its images, with the dot.
    pub file_ending: String,
    /// `pixdim`, in millimetres to the right, forwards and upwards; `None` if images keep their own.
    pub spacing: Option<[f64; 3]>,
    /// The processing of intensities.
    pub intensity: MonaiIntensity,
    /// The sliding of windows.
    pub sliding: Sliding,
    /// The activation of logits.
    pub activation: Activation,
    /// The quantity that is interpolated on the way back.
    pub interpolated: Interpolated,
    /// The name of each output.
    pub labels: Vec<String>,
    /// The value that is written for each output that may overlap others; `None` for values from 1 on.
    pub values: Option<Vec<u16>>,
}

/// The activation of logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// Probabilities of classes, of which the largest is the voxel's.
    Softmax,
    /// A probability of each output, which has the voxels where it is one half or more.
    Sigmoid,
}

/// `SlidingWindowInferer`, by its arguments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sliding {
    /// The extent of a window, in MONAI's order of axes.
    pub roi_size: [usize; 3],
    /// The share of a window that the next one covers too.
    pub overlap: Overlap,
    /// The weights of voxels.
    pub mode: Mode,
    /// The σ of a Gaussian as a share of the extent.
    #[serde(default = "usual_sigma")]
    pub sigma_scale: f64,
    /// The voxels at each face that do not count, for windows whose interior counts.
    #[serde(default)]
    pub margin: Option<usize>,
}

/// MONAI's default.
pub(super) fn usual_sigma() -> f64 {
    0.125
}

/// One share for all axes, or one for each.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum Overlap {
    /// For all.
    All(f64),
    /// For each.
    Each([f64; 3]),
}

/// The weights of the voxels of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All alike.
    Constant,
    /// By a Gaussian around the middle.
    Gaussian,
    /// Voxels of the interior alike, and voxels of the margin only where no other window has them. For networks whose logits depend on voxels
    /// no further than the margin.
    Interior,
}

impl Description {
    /// Opens the model that the file `path` describes, and checks that its weights fit its network.
    pub(super) fn open(self, path: &Path, budget: &Budget) -> Result<MonaiModel, ModelError> {
        let refuse = |why: String| ModelError::from(MonaiError::refuse(path, why));
        let version = self.monai_version.as_deref();
        let built = self.network.network(version).map_err(|why| refuse(format!("network: {why}")))?;
        let Built { mut net, activation } = built;
        net.check().map_err(|fault| refuse(format!("network: {fault}")))?;
        let patch = self.sliding.roi_size;
        net.check_patch(patch).map_err(|fault| refuse(format!("roi_size: {fault}")))?;
        let windows = self.windows().map_err(refuse)?;
        if let Some(spacing) = self.spacing {
            let spacing = TargetSpacing::Volume(Spacing(spacing));
            check_spacing(spacing).map_err(|fault| refuse(format!("spacing: {fault}")))?;
        }
        if let Some((entry, expected)) = self.intensity.fault() {
            return Err(refuse(format!("{entry}: {expected}")));
        }
        if !is_image_ending(&self.file_ending) {
            return Err(refuse(format!(
                "file_ending is {:?}, which is not an ending of images",
                self.file_ending
            )));
        }
        let (inputs, outputs) = (net.in_channels(), net.classes());
        for (what, found, expected) in
            [("channels", self.channels.len(), inputs), ("labels", self.labels.len(), outputs)]
        {
            if found != expected {
                return Err(refuse(format!("{found} {what} are named, but the network has {expected}")));
            }
        }
        let answers = self.answers(outputs).map_err(refuse)?;
        if let (Network::MonaiUNet(unet), Some(activation)) = (&mut net, activation) {
            read_slopes(unet, &self.weights, path, activation, budget)?;
            unet.check_slopes().map_err(|fault| refuse(format!("network: {fault}")))?;
        }
        let program = predict(net.as_architecture(), patch, 1, DType::F32)?;
        let weights = self.weights.clone().into();
        // The weights have heads of deep supervision, which only training uses.
        expect_weights(&weights, net.as_architecture(), &program, LoadOptions::default(), budget)?;
        let channel = |name: &String| Channel { name: name.clone(), normalisation: Normalisation::None };
        let model = SegmentationModel {
            net,
            patch,
            precision: DType::F32,
            weights: vec![weights],
            channels: self.channels.iter().map(channel).collect(),
            file_ending: self.file_ending.clone(),
            foreground: BTreeMap::new(),
            preparation: Preparation::Monai(MonaiSteps {
                spacing: self.spacing,
                intensity: self.intensity.clone(),
            }),
            earlier_labels: 0,
            answers,
            outputs: self.labels.clone(),
            mirror_axes: [true; 3],
            windows,
            interpolated: self.interpolated,
        };
        Ok(MonaiModel { model, description: self })
    }

    fn windows(&self) -> Result<WindowLayout, String> {
        let Sliding { roi_size, overlap, mode, sigma_scale, margin } = self.sliding;
        match (mode, margin) {
            (Mode::Interior, Some(margin)) => {
                let is_narrow =
                    |extent: &usize| margin.checked_mul(2).is_none_or(|margins| *extent <= margins);
                if roi_size.iter().any(is_narrow) {
                    return Err(format!(
                        "windows of {roi_size:?} have nothing inside of a margin of {margin}"
                    ));
                }
                return Ok(WindowLayout::Interior { margin, extent: roi_size });
            }
            (Mode::Interior, None) => return Err("mode is interior, which needs a margin".into()),
            (_, Some(_)) => return Err("margin is for windows whose mode is interior".into()),
            (Mode::Constant | Mode::Gaussian, None) => {}
        }
        let overlap = match overlap {
            Overlap::All(share) => [share; 3],
            Overlap::Each(shares) => shares,
        };
        if !overlap.iter().all(|share| (0.0..1.0).contains(share)) {
            return Err(format!("overlap is {overlap:?}, but must be from 0 to less than 1"));
        }
        // A σ that is smaller makes all weights alike, and a larger one too.
        if mode == Mode::Gaussian && !(1e-3..=1e3).contains(&sigma_scale) {
            return Err(format!("sigma_scale is {sigma_scale}, but must be from 0.001 to 1000"));
        }
        Ok(WindowLayout::Fixed { overlap, sigma_scale: (mode == Mode::Gaussian).then_some(sigma_scale) })
    }

    fn answers(&self, outputs: usize) -> Result<Answers, String> {
        match (self.activation, &self.values) {
            (Activation::Softmax, None) if outputs >= 2 => Ok(Answers::Classes(outputs)),
            (Activation::Softmax, None) => Err("softmax needs at least two outputs".into()),
            (Activation::Softmax, Some(_)) => {
                Err("values are for overlapping outputs with sigmoid; classes are written as their positions"
                    .into())
            }
            (Activation::Sigmoid, values) => {
                let values: Vec<u16> = match values {
                    Some(values) => values.clone(),
                    None => (1..).take(outputs).collect(),
                };
                let distinct: BTreeSet<u16> = values.iter().copied().collect();
                if values.len() != outputs || distinct.len() != outputs || distinct.contains(&0) {
                    return Err(format!(
                        "values are {values:?}, but must be {outputs} different ones above 0"
                    ));
                }
                Ok(Answers::Regions(values))
            }
        }
    }
}
