//! All that the result of a run depends on, written down.

use std::collections::BTreeMap;

use plimsoll_data::{
    Augmentation, Channel, Dataset, Fingerprint, IntensityProperties, Labels, PatchGrid, SamplerConfig,
    is_image_ending,
};
use plimsoll_graph::DType;
use plimsoll_graph::ops::{Loss, SoftDice};
use plimsoll_nn::bounds::{check_batch, check_count};
use plimsoll_nn::{ConfigError, Decay, Network, Optimizer, Schedule, Training};
use plimsoll_volume::Spacing;
use serde::{Deserialize, Serialize};

use crate::bounds::{check_choices, check_spacing, check_steps};
use crate::{BadNumbers, EarlyStopping, RunError, Settings, Topology};

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
    /// What is done where a loss or a gradient is no longer a number.
    pub bad_numbers: BadNumbers,
    /// When the run ends before its last epoch.
    pub early_stopping: Option<EarlyStopping>,
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
    ) -> Result<RunConfig, RunError> {
        settings.check()?;
        let spacing = settings.spacing.unwrap_or(fingerprint.target_spacing.0);
        check_spacing(spacing)?;
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
        check_steps(epochs, iterations_per_epoch)?;
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
                ema: settings.ema,
                groups: settings.groups.clone().unwrap_or_default(),
                frozen: settings.frozen.clone().unwrap_or_default(),
                patch,
                spacing,
                batch,
                micro_batch: settings.micro_batch.unwrap_or(batch),
                precision: settings.precision.unwrap_or(DType::F32),
            },
            spacing: Spacing(spacing),
            schedule: Schedule {
                learning_rate: settings.learning_rate.unwrap_or(usual_rate),
                min_learning_rate: settings.min_learning_rate.unwrap_or(0.0),
                warmup_steps: settings.warmup_steps.unwrap_or(0),
                decay: settings.decay.unwrap_or(Decay::Poly { power: 0.9 }),
                total_steps: epochs * iterations_per_epoch,
            },
            epochs,
            iterations_per_epoch,
            validation_iterations: settings.validation_iterations.unwrap_or(50),
            augmentation: settings.augmentation.unwrap_or_default(),
            oversample_foreground: settings.oversample_foreground.unwrap_or(
                SamplerConfig::new(PatchGrid { patch, spacing: Spacing(spacing) }).oversample_foreground,
            ),
            seed: settings.seed.unwrap_or(0),
            bad_numbers: settings.bad_numbers.unwrap_or_default(),
            early_stopping: settings.early_stopping,
        };
        config.schedule.check()?;
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

    /// Takes over how another model normalises images, whose weights are to be trained on.
    ///
    /// # Errors
    /// If it has another number of channels.
    pub fn adopt_normalisation(&mut self, model: &RunConfig) -> Result<(), RunError> {
        let (own, theirs) = (&mut self.dataset, &model.dataset);
        if own.channels.len() != theirs.channels.len() {
            let (found, expected) = (own.channels.len(), theirs.channels.len());
            return Err(RunError::OtherChannels { found, expected });
        }
        for (own, theirs) in own.channels.iter_mut().zip(&theirs.channels) {
            own.normalisation = theirs.normalisation;
        }
        own.foreground_intensity_properties_per_channel
            .clone_from(&theirs.foreground_intensity_properties_per_channel);
        Ok(())
    }

    /// The settings that make the same network on patches of the same size and spacing, whatever the data set.
    ///
    /// # Errors
    /// If the network cannot be said in settings.
    pub fn plans(&self) -> Result<Settings, RunError> {
        Ok(Settings {
            network: self.training.net.settings()?,
            patch_size: Some(self.training.patch),
            spacing: Some(self.spacing.0),
            ..Settings::default()
        })
    }

    /// That what a file says can be one: it is read by who did not write it.
    ///
    /// # Errors
    /// At the first number that is beyond its bound, or does not go with another.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let RunConfig { dataset, training, schedule, epochs, iterations_per_epoch, .. } = self;
        let expect = |is_so: bool, setting: &'static str, found: String, expected: &str| match is_so {
            true => Ok(()),
            false => Err(ConfigError::Value { setting, found, expected: expected.into() }),
        };
        let ending = &dataset.file_ending;
        expect(is_image_ending(ending), "file_ending", format!("{ending:?}"), "it must be that of images")?;
        training.net.check()?;
        let (channels, classes) = (training.net.in_channels(), training.net.classes());
        let (known, labels) = (dataset.channels.len(), dataset.labels.classes());
        expect(channels == known, "channels", known.to_string(), &format!("the network has {channels}"))?;
        expect(classes == labels, "classes", labels.to_string(), &format!("the network has {classes}"))?;
        training.net.check_patch(training.patch)?;
        check_batch(training.batch, training.patch, training.net.weights())?;
        check_count("micro_batch", training.micro_batch, 1, training.batch)?;
        training.check_updates()?;
        check_spacing(self.spacing.0)?;
        check_steps(*epochs, *iterations_per_epoch)?;
        let steps = epochs * iterations_per_epoch;
        let total = schedule.total_steps;
        expect(total == steps, "total_steps", total.to_string(), &format!("the run has {steps}"))?;
        schedule.check()?;
        check_choices(
            self.validation_iterations,
            self.oversample_foreground,
            self.early_stopping.as_ref(),
            self.augmentation,
        )?;
        Ok(())
    }

    /// What is not stored twice is set again.
    pub(crate) fn restore(&mut self) {
        self.training.spacing = self.spacing.0;
    }
}
