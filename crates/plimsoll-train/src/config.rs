//! All that the result of a run depends on, written down.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use plimsoll_data::{
    Augmentation, Channel, Dataset, Fingerprint, IntensityProperties, Labels, PatchGrid, SamplerConfig,
};
use plimsoll_graph::DType;
use plimsoll_graph::ops::{Loss, SoftDice};
use plimsoll_nn::{ConfigError, Decay, Network, Optimizer, Schedule, Training};
use plimsoll_volume::Spacing;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Settings, Topology, TrainError};

/// The file of a run's configuration, in its folder.
pub const CONFIG_FILE: &str = "config.json";

/// Voxels of a patch, about, where nobody asked for another size.
const PATCH_VOXELS: usize = 64 * 64 * 64;

/// What a model needs to know of the data set it was trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatasetSummary {
    /// Its name.
    pub name: String,
    /// The channels of its images.
    pub channels: Vec<Channel>,
    /// Its classes.
    pub labels: Labels,
    /// What the names of its files end in.
    pub file_ending: String,
    /// Intensities of the foreground by channel.
    pub foreground_intensity_properties_per_channel: BTreeMap<usize, IntensityProperties>,
}

/// All that the result of a run depends on, but the images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// What a model needs to know of its data set.
    pub dataset: DatasetSummary,
    /// Network, loss, optimizer, patch, batch.
    pub training: Training,
    /// The spacing that images are brought to, in millimetres.
    pub spacing: Spacing,
    /// Learning rates.
    pub schedule: Schedule,
    /// Epochs.
    pub epochs: u64,
    /// Steps of an epoch.
    pub iterations_per_epoch: u64,
    /// Batches that are validated after each epoch.
    pub validation_iterations: u64,
    /// How patches are changed.
    pub augmentation: Augmentation,
    /// The share of patches centred on the foreground.
    pub oversample_foreground: f64,
    /// Of initial weights, patches and augmentation.
    pub seed: u64,
}

impl RunConfig {
    /// Completes settings with defaults that follow from the data set. The micro-batch is the whole batch unless it is set.
    ///
    /// # Errors
    /// If the settings contradict themselves.
    pub fn resolve(
        settings: &Settings,
        dataset: &Dataset,
        fingerprint: &Fingerprint,
    ) -> Result<RunConfig, TrainError> {
        let spacing = settings.spacing.unwrap_or(fingerprint.target_spacing.0);
        let median_shape = fingerprint.median_shape.map(|extent| extent.round().max(1.0) as usize);
        let topology = match settings.patch_size {
            Some(patch) => Topology::of(spacing, patch),
            None => Topology::for_images(spacing, median_shape, PATCH_VOXELS),
        };
        let design = topology.design(dataset.channels.len(), dataset.labels.classes());
        let net = Network::design(&design, &settings.network)?;
        // The network may have been given strides of its own.
        let patch = settings.patch_size.unwrap_or_else(|| net.extents().next_larger(topology.patch));
        net.check_patch(patch)?;
        let batch = settings.batch_size.unwrap_or(2);
        let optimizer = settings.optimizer.unwrap_or(Optimizer::nnunet());
        let usual_rate = match optimizer {
            Optimizer::AdamW { .. } => 1e-3,
            Optimizer::Sgd { .. } => 1e-2,
        };
        let (epochs, iterations_per_epoch) =
            (settings.epochs.unwrap_or(1000), settings.iterations_per_epoch.unwrap_or(250));
        for (setting, value) in
            [("epochs", epochs), ("iterations_per_epoch", iterations_per_epoch), ("batch_size", batch as u64)]
        {
            if value == 0 {
                return Err(TrainError::Zero { setting });
            }
        }
        let nnunet_loss =
            || Loss::dice_ce(SoftDice { include_background: false, ..SoftDice::default() }, 1.0).into();
        let mut loss = settings.loss.clone().unwrap_or_else(nnunet_loss);
        loss.ignore = loss.ignore.or(dataset.labels.ignore());
        let config = RunConfig {
            dataset: DatasetSummary {
                name: dataset.name.clone(),
                channels: dataset.channels.clone(),
                labels: dataset.labels.clone(),
                file_ending: dataset.file_ending.clone(),
                foreground_intensity_properties_per_channel: fingerprint
                    .foreground_intensity_properties_per_channel
                    .clone(),
            },
            training: Training {
                net,
                loss,
                optimizer,
                max_grad_norm: Some(settings.max_grad_norm.unwrap_or(12.0)),
                patch,
                spacing,
                batch,
                micro_batch: settings.micro_batch.unwrap_or(batch),
                precision: settings.precision.unwrap_or(DType::F32),
            },
            spacing: Spacing(spacing),
            schedule: Schedule {
                learning_rate: settings.learning_rate.unwrap_or(usual_rate),
                warmup_steps: settings.warmup_steps.unwrap_or(0),
                decay: settings.decay.unwrap_or(Decay::Poly { power: 0.9 }),
                total_steps: epochs.saturating_mul(iterations_per_epoch),
            },
            epochs,
            iterations_per_epoch,
            validation_iterations: settings.validation_iterations.unwrap_or(50),
            augmentation: settings.augmentation.unwrap_or_default(),
            oversample_foreground: settings.oversample_foreground.unwrap_or(
                SamplerConfig::new(PatchGrid { patch, spacing: Spacing(spacing) }).oversample_foreground,
            ),
            seed: settings.seed.unwrap_or(0),
        };
        // What does not fit together is said now, and not when the run begins.
        config.training.programs()?;
        if let Some((option, found, expected)) = config.training.loss.epochs_fault(epochs) {
            return Err(ConfigError::Loss { option, found, expected }.into());
        }
        Ok(config)
    }

    /// How patches are chosen.
    pub fn sampler(&self) -> SamplerConfig {
        SamplerConfig {
            grid: PatchGrid { patch: self.training.patch, spacing: self.spacing },
            augmentation: self.augmentation,
            oversample_foreground: self.oversample_foreground,
        }
    }

    /// Reads the configuration of the run in `folder`.
    ///
    /// # Errors
    /// If it is not there, or is none.
    pub fn read(folder: &Path) -> Result<RunConfig, TrainError> {
        let path = folder.join(CONFIG_FILE);
        let file = File::open(&path).map_err(|source| TrainError::io(&path, source))?;
        let mut config: RunConfig = serde_json::from_reader(BufReader::new(file))
            .map_err(|problem| TrainError::Json { path, why: problem.to_string() })?;
        config.training.spacing = config.spacing.0;
        Ok(config)
    }

    /// Makes `folder` the folder of a run with this configuration, or finds that it is one already.
    ///
    /// # Errors
    /// If it is the folder of a run with another configuration, or the disk refuses.
    pub fn establish(&self, folder: &Path) -> Result<(), TrainError> {
        std::fs::create_dir_all(folder).map_err(|source| TrainError::io(folder, source))?;
        if !folder.join(CONFIG_FILE).exists() {
            return self.write(folder);
        }
        let known = RunConfig::read(folder)?;
        let json = |config: &RunConfig| {
            serde_json::to_value(config).map_err(|problem| TrainError::Json {
                path: folder.join(CONFIG_FILE),
                why: problem.to_string(),
            })
        };
        match difference(&json(&known)?, &json(self)?, "") {
            None => Ok(()),
            Some(difference) => Err(TrainError::OtherConfig { folder: folder.into(), difference }),
        }
    }

    /// Writes the configuration into the folder of a run.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write(&self, folder: &Path) -> Result<(), TrainError> {
        crate::journal::write_json(&folder.join(CONFIG_FILE), self)
    }
}

/// The first place where two values differ, with both.
fn difference(known: &Value, new: &Value, place: &str) -> Option<String> {
    match (known, new) {
        (Value::Object(known), Value::Object(new)) => known.iter().find_map(|(key, value)| {
            let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
            difference(value, new.get(key).unwrap_or(&Value::Null), &place)
        }),
        _ if known == new => None,
        _ => Some(format!("`{place}` is {known} there, but {new} here")),
    }
}
