//! `plans.json` and `dataset.json` of a run, with the entries that nnU-Net reads in order to predict.

use std::collections::BTreeSet;

use plimsoll_data::{Channel, Normalisation, Ordered, TargetSpacing};
use plimsoll_nn::{Architecture, Network, UNet, UNetNorm};
use plimsoll_run::{RunConfig, SegmentationTask};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::refused;
use crate::ModelError;

/// The trainer that uses the network of the plans unchanged.
pub(super) const TRAINER: &str = "nnUNetTrainer";
/// The reader that brings images to the canonical orientation, as runs of this program have them.
const READER: &str = "NibabelIOWithReorient";

/// The name that voxels to be ignored have there, and no class may have.
const IGNORE: &str = "ignore";

/// The parts of a run that nnU-Net's files can describe.
pub(super) struct Described<'a> {
    pub(super) task: &'a SegmentationTask,
    pub(super) net: &'a dyn Architecture,
    shape: &'a UNet,
    is_residual: bool,
    patch: [usize; 3],
    spacing: Vec<f64>,
}

impl<'a> Described<'a> {
    /// Describes a run.
    ///
    /// # Errors
    /// Returns an error if it classifies whole images, its network is none of nnU-Net's, or its images are not NIfTI.
    pub(super) fn new(config: &'a RunConfig) -> Result<Described<'a>, ModelError> {
        let task = config.task.segmentation()?;
        let training = &config.training;
        let (shape, is_residual) = match &training.net {
            Network::PlainConvUNet(net) => (&net.shape, false),
            Network::ResidualEncoderUNet(net) => (&net.shape, true),
            Network::Primus(_) => {
                let what = "nnU-Net builds primus by the name of a trainer, not by its plans";
                return Err(refused(what.into(), "export it with ‹format=onnx› or safetensors"));
            }
            other => {
                let what =
                    format!("{} is a network that nnU-Net does not have", other.as_architecture().name());
                return Err(refused(
                    what,
                    "nnU-Net has `plain` and `resenc`: others leave with ‹format=onnx› or safetensors",
                ));
            }
        };
        if !matches!(task.dataset.file_ending.as_str(), ".nii" | ".nii.gz") {
            let what = format!("the run's images are {}", task.dataset.file_ending);
            return Err(refused(
                what,
                "nnU-Net reorients only .nii and .nii.gz to the canonical orientation that the run uses",
            ));
        }
        let net = training.net.as_architecture();
        let spacing = match task.spacing {
            TargetSpacing::Volume(spacing) => spacing.0.to_vec(),
            TargetSpacing::InPlane(lengths) => lengths.to_vec(),
            TargetSpacing::Native(_) => {
                let what = "the run keeps each image's spacing, but nnU-Net resamples all to one";
                return Err(refused(what.into(), "export it with ‹format=onnx› or safetensors"));
            }
        };
        let is_flat = task.spacing.is_of_slices();
        if is_flat != (net.dimensions() == 2) {
            let what = "the run resamples each slice alone, but its network takes volumes, or the reverse";
            return Err(refused(what.into(), "train it with patches and kernels of one kind"));
        }
        if shape.norm == UNetNorm::Instance && !shape.transposed_bias {
            let what = "the network has no biases in its transposed convolutions, but nnU-Net's always does";
            return Err(refused(what.into(), "export it with ‹format=onnx› or safetensors"));
        }
        if let Some((channel, _)) = task.dataset.channels.iter().enumerate().find(|(number, channel)| {
            channel.normalisation == Normalisation::Ct
                && !task.dataset.foreground_intensity_properties_per_channel.contains_key(number)
        }) {
            let what = format!("the run has no intensities of the foreground in channel {channel}");
            return Err(refused(what, "train it again, so that its data set is inspected"));
        }
        Ok(Described { task, spacing, net, shape, is_residual, patch: training.patch })
    }

    /// The name of the configuration.
    pub(super) fn configuration(&self) -> &'static str {
        if self.dimensions() == 2 { "2d" } else { "3d_fullres" }
    }

    fn dimensions(&self) -> usize {
        self.net.dimensions()
    }

    /// Axes, of those that the network has, along which patches were mirrored in training.
    pub(super) fn mirror(&self) -> Vec<usize> {
        let own = self.own_axes(self.task.augmentation.mirrored_axes()).into_iter().enumerate();
        own.filter(|(_, is_mirrored)| *is_mirrored).map(|(axis, _)| axis).collect()
    }

    /// Extents along the axes that the network has.
    fn own_axes<T: Copy>(&self, extents: [T; 3]) -> Vec<T> {
        extents.into_iter().skip(3 - self.dimensions()).collect()
    }

    /// `plans.json`
    pub(super) fn plans(&self) -> Value {
        let dataset = &self.task.dataset;
        let properties = |channel: usize| match dataset
            .foreground_intensity_properties_per_channel
            .get(&channel)
        {
            Some(known) => json!({
                "mean": known.mean, "median": known.median, "std": known.std, "min": known.min, "max": known.max,
                "percentile_00_5": known.percentile_00_5, "percentile_99_5": known.percentile_99_5,
            }),
            // For channels whose normalisation does not use them.
            None => json!({}),
        };
        let foreground: Map<String, Value> =
            (0..dataset.channels.len()).map(|channel| (channel.to_string(), properties(channel))).collect();
        let mut configurations = Map::new();
        configurations.insert(self.configuration().into(), self.configured());
        json!({
            "dataset_name": dataset.name,
            "plans_name": "nnUNetPlans",
            "image_reader_writer": READER,
            "transpose_forward": [0, 1, 2],
            "transpose_backward": [0, 1, 2],
            "label_manager": "LabelManager",
            "foreground_intensity_properties_per_channel": foreground,
            "configurations": configurations,
        })
    }

    fn configured(&self) -> Value {
        let channels = &self.task.dataset.channels;
        // Linear along all axes: along one that keeps its spacing nothing is changed by that.
        let resampling =
            |is_seg: bool| json!({"is_seg": is_seg, "order": 1, "order_z": 0, "force_separate_z": false});
        let is_masked = |channel: &Channel| channel.normalisation == Normalisation::ZScoreInMask;
        let scheme = |channel: &Channel| match channel.normalisation {
            Normalisation::ZScoreInMask => Normalisation::ZScore,
            other => other,
        };
        const FUNCTION: &str = "resample_data_or_seg_to_shape";
        json!({
            "data_identifier": format!("nnUNetPlans_{}", self.configuration()),
            "preprocessor_name": "DefaultPreprocessor",
            "patch_size": self.own_axes(self.patch),
            "spacing": self.spacing,
            "normalization_schemes": channels.iter().map(scheme).collect::<Vec<_>>(),
            "use_mask_for_norm": channels.iter().map(is_masked).collect::<Vec<_>>(),
            "resampling_fn_data": FUNCTION,
            "resampling_fn_data_kwargs": resampling(false),
            "resampling_fn_seg": FUNCTION,
            "resampling_fn_seg_kwargs": resampling(true),
            "resampling_fn_probabilities": FUNCTION,
            "resampling_fn_probabilities_kwargs": resampling(false),
            "architecture": self.architecture(),
        })
    }

    fn architecture(&self) -> Value {
        let (shape, dimensions) = (self.shape, self.dimensions());
        let windows =
            |windows: &[[usize; 3]]| windows.iter().map(|window| self.own_axes(*window)).collect::<Vec<_>>();
        let (class, blocks) = match self.is_residual {
            true => ("ResidualEncoderUNet", "n_blocks_per_stage"),
            false => ("PlainConvUNet", "n_conv_per_stage"),
        };
        // Biases before an instance normalisation change nothing, and are zero in the checkpoint.
        let (norm, conv_bias) = match shape.norm {
            UNetNorm::Instance => (format!("instancenorm.InstanceNorm{dimensions}d"), true),
            UNetNorm::Batch { conv_bias } => (format!("batchnorm.BatchNorm{dimensions}d"), conv_bias),
        };
        // From the coarsest on, as plans list it.
        let decoder: Vec<usize> = shape.decoder_convs.iter().rev().copied().collect();
        let mut arguments = json!({
            "n_stages": shape.features.len(),
            "features_per_stage": shape.features,
            "conv_op": format!("torch.nn.modules.conv.Conv{dimensions}d"),
            "kernel_sizes": windows(&shape.kernels),
            "strides": windows(&shape.strides),
            "n_conv_per_stage_decoder": decoder,
            "conv_bias": conv_bias,
            "norm_op": format!("torch.nn.modules.{norm}"),
            "norm_op_kwargs": {"eps": decimal(shape.epsilon), "affine": shape.affine},
            "dropout_op": null,
            "dropout_op_kwargs": null,
            "nonlin": "torch.nn.LeakyReLU",
            "nonlin_kwargs": {"inplace": true, "negative_slope": decimal(shape.slope)},
        });
        if let Some(arguments) = arguments.as_object_mut() {
            arguments.insert(blocks.into(), json!(shape.encoder_convs));
        }
        json!({
            "network_class_name": format!("dynamic_network_architectures.architectures.unet.{class}"),
            "arch_kwargs": arguments,
            "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
        })
    }

    /// `dataset.json`
    pub(super) fn dataset(&self) -> DatasetJson {
        let dataset = &self.task.dataset;
        let channels: Map<String, Value> = dataset
            .channels
            .iter()
            .enumerate()
            .map(|(number, channel)| (number.to_string(), channel.name.clone().into()))
            .collect();
        let (labels, regions_class_order) = dataset.labels.described(false);
        DatasetJson {
            channel_names: channels,
            labels: unique(labels, dataset.labels.ignore()),
            regions_class_order,
            file_ending: dataset.file_ending.clone(),
        }
    }
}

/// A `dataset.json`.
#[derive(Serialize)]
pub(super) struct DatasetJson {
    channel_names: Map<String, Value>,
    /// In the order of outputs, where these are of regions.
    labels: Ordered<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    regions_class_order: Option<Value>,
    file_ending: String,
}

/// Labels with unique names, as nnU-Net requires: a repeated name gets its label as a suffix. Only the ignored label may have the reserved
/// name.
fn unique(labels: Ordered<Value>, ignored: Option<u8>) -> Ordered<Value> {
    let mut taken = BTreeSet::new();
    let own = |(place, (name, value)): (usize, (String, Value))| {
        let is_ignored = name == IGNORE && ignored.is_some_and(|label| value == label);
        // The label of value 0 must have this name there.
        let mut key = if place == 0 { "background".to_string() } else { name };
        while !is_ignored && (key == IGNORE || taken.contains(&key)) {
            key = format!("{key}_{place}");
        }
        taken.insert(key.clone());
        (key, value)
    };
    Ordered(labels.0.into_iter().enumerate().map(own).collect())
}

/// A number of single precision as it was written: 0.01, and not the number of double precision that is nearest to it.
fn decimal(number: f32) -> Value {
    number.to_string().parse::<f64>().map_or_else(|_| json!(number), |number| json!(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_an_entry_of_its_own_whatever_classes_are_called() {
        let names = ["nothing", "vessel", "vessel", "background", "ignore", "vessel_2"].map(String::from);
        let labels = names.into_iter().zip(0..6).map(|(name, value)| (name, Value::from(value)));
        let labels = labels.chain([(IGNORE.to_string(), 6.into())]);
        let expected =
            ["background", "vessel", "vessel_2", "background_3", "ignore_4", "vessel_2_5", "ignore"];
        let found = unique(Ordered(labels.collect()), Some(6)).0;
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), expected);
        assert!(found.iter().enumerate().all(|(place, (_, value))| *value == place));
    }
}
