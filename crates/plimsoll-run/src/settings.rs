//! The settings of a run. Each has a default, which is nnU-Net's if nnU-Net has one.

use std::collections::BTreeMap;

use plimsoll_data::{Augmentation, DataOptions, DataSettings, Oversampling, RegionSettings, SpacingSetting};
use plimsoll_nn::{
    Decay, NetworkName, NetworkSettings, Objective, Optimizer, ParameterGroup, RateInterval, or_infinity,
};
use serde::{Deserialize, Serialize};

use crate::{BadNumbers, EarlyStoppingSettings, ImageSettings, Precision, Preset};

/// The settings of a run, in `plimsoll.toml` or as flags. Unknown keys are errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// nnU-Net's planner that chooses network, patch and batch, where they are not set [default: none].
    pub preset: Option<Preset>,
    /// `true` for the configuration of low resolution that the preset has for large images [default: no].
    pub lowres: Option<bool>,
    /// The network.
    pub network: NetworkSettings,
    /// 2: patches are slices across the depth; 3: they are volumes [default: 2 for patches of one slice, and where images have
    /// one].
    pub dimensions: Option<usize>,
    /// Depth, height, width of a patch in voxels [default: the largest of nnU-Net's sequence that fits the
    /// line, at most 128³ voxels].
    pub patch_size: Option<[usize; 3]>,
    /// Spacing that images are brought to, in millimetres; of slices that in their plane alone; or `"native"`, that each keeps its own
    /// [default: nnU-Net's rule].
    pub spacing: Option<SpacingSetting>,
    /// Samples of a step [default: 2; more where a patch holds the median image, and of slices].
    pub batch_size: Option<usize>,
    /// Equal parts of the batch whose gradients are summed in their order [default: 1].
    pub shards: Option<usize>,
    /// Samples that go through the network at a time [default: as many as fit].
    pub micro_batch: Option<usize>,
    /// The number formats of stored features and of products [default: f32].
    pub precision: Option<Precision>,
    /// Epochs [default: 1000].
    pub epochs: Option<u64>,
    /// Steps of an epoch [default: 250].
    pub iterations_per_epoch: Option<u64>,
    /// Batches that are validated after each epoch [default: 50].
    pub validation_iterations: Option<u64>,
    /// The optimizer [default: SGD with Nesterov momentum 0.99 and weight decay 3e-5].
    pub optimizer: Option<Optimizer>,
    /// The highest learning rate [default: 0.01 for SGD, 0.001 for AdamW].
    pub learning_rate: Option<f64>,
    /// The least learning rate after the warm-up [default: 0].
    pub min_learning_rate: Option<f64>,
    /// Steps over which the learning rate rises [default: 0].
    pub warmup_steps: Option<u64>,
    /// The time between changes of the learning rate [default: a step].
    pub learning_rate_interval: Option<RateInterval>,
    /// The decay of the learning rate [default: poly with power 0.9].
    pub decay: Option<Decay>,
    /// The norm that gradients are scaled down to, or `inf` [default: 12].
    #[serde(with = "or_infinity")]
    pub max_grad_norm: Option<f32>,
    /// The decay of averages of the parameters, with which is validated and predicted [default: none are taken].
    pub ema: Option<f32>,
    /// Parameters that learn at a rate of their own [default: none].
    pub groups: Option<Vec<ParameterGroup>>,
    /// Prefixes of the names of frozen parameters [default: none].
    pub frozen: Option<Vec<String>>,
    /// The loss [default: Dice without background plus cross-entropy].
    pub loss: Option<Objective>,
    /// The random augmentation of patches [default: nnU-Net's].
    pub augmentation: Option<Augmentation>,
    /// The share of patches centred on the foreground [default: 0.33].
    pub oversample_foreground: Option<f64>,
    /// The layout of volumes and the facts that their files lack [default: detected].
    pub data: Option<DataSettings>,
    /// Classes by name with their values in label maps [default: as the data set says, or numbers from 0 as names].
    pub labels: Option<BTreeMap<String, u64>>,
    /// Sets of labels that are predicted for themselves and may overlap [default: as the data set says].
    pub regions: Option<RegionSettings>,
    /// The choice of these patches [default: the last of each batch].
    pub oversampling: Option<Oversampling>,
    /// Images in two dimensions, and how they become inputs [default: see there].
    pub images: Option<ImageSettings>,
    /// The seed of initial weights, patches and augmentation [default: 0].
    pub seed: Option<u64>,
    /// The response to a loss or a gradient that is not finite [default: the run stops].
    pub bad_numbers: Option<BadNumbers>,
    /// The rule that ends the run before its last epoch [default: none].
    pub early_stopping: Option<EarlyStoppingSettings>,
}

impl Settings {
    /// The options for opening the data set.
    pub fn data_options(&self, allow_outside: bool) -> DataOptions {
        let data = self.data.clone().unwrap_or_default();
        DataOptions { data, labels: self.labels.clone(), regions: self.regions.clone(), allow_outside }
    }

    /// The network that is set, for itself or by the preset.
    pub fn network_name(&self) -> Option<NetworkName> {
        self.network.net.or(self.preset.map(Preset::network))
    }

    /// These settings, completed by the settings of `other`.
    pub fn or(self, other: Settings) -> Settings {
        Settings {
            preset: self.preset.or(other.preset),
            lowres: self.lowres.or(other.lowres),
            network: self.network.or(other.network),
            dimensions: self.dimensions.or(other.dimensions),
            patch_size: self.patch_size.or(other.patch_size),
            spacing: self.spacing.or(other.spacing),
            batch_size: self.batch_size.or(other.batch_size),
            shards: self.shards.or(other.shards),
            micro_batch: self.micro_batch.or(other.micro_batch),
            precision: self.precision.or(other.precision),
            epochs: self.epochs.or(other.epochs),
            iterations_per_epoch: self.iterations_per_epoch.or(other.iterations_per_epoch),
            validation_iterations: self.validation_iterations.or(other.validation_iterations),
            optimizer: self.optimizer.or(other.optimizer),
            learning_rate: self.learning_rate.or(other.learning_rate),
            min_learning_rate: self.min_learning_rate.or(other.min_learning_rate),
            warmup_steps: self.warmup_steps.or(other.warmup_steps),
            learning_rate_interval: self.learning_rate_interval.or(other.learning_rate_interval),
            decay: self.decay.or(other.decay),
            max_grad_norm: self.max_grad_norm.or(other.max_grad_norm),
            ema: self.ema.or(other.ema),
            groups: self.groups.or(other.groups),
            frozen: self.frozen.or(other.frozen),
            loss: self.loss.or(other.loss),
            augmentation: self.augmentation.or(other.augmentation),
            oversample_foreground: self.oversample_foreground.or(other.oversample_foreground),
            data: match (self.data, other.data) {
                (Some(own), Some(other)) => Some(own.or(other)),
                (own, other) => own.or(other),
            },
            labels: self.labels.or(other.labels),
            regions: self.regions.or(other.regions),
            oversampling: self.oversampling.or(other.oversampling),
            images: match (self.images, other.images) {
                (Some(own), Some(other)) => Some(own.or(other)),
                (own, other) => own.or(other),
            },
            seed: self.seed.or(other.seed),
            bad_numbers: self.bad_numbers.or(other.bad_numbers),
            early_stopping: self.early_stopping.or(other.early_stopping),
        }
    }
}
