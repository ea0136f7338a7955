//! All that the result of a run depends on, written down.

use plimsoll_data::{Dataset, Fingerprint};
use plimsoll_graph::DType;
use plimsoll_graph::ops::{Component, CrossEntropy, Loss, SoftDice};
use plimsoll_image::ImageDataset;
use plimsoll_nn::bounds::{check_batch, check_count};
use plimsoll_nn::{
    Classifies, ConfigError, Decay, Design, Network, NetworkName, NetworkSettings, Objective, Optimizer,
    Schedule, Training,
};
use serde::{Deserialize, Serialize};

use crate::bounds::{check_spacing, check_steps, check_validation};
use crate::{
    BadNumbers, ClassificationTask, EarlyStopping, RunError, SegmentationTask, Settings, Task, Topology,
};

/// Voxels of a patch, about, where nobody asked for another size.
const PATCH_VOXELS: usize = 64 * 64 * 64;

/// The network of images where no other is set.
const IMAGE_NETWORK: NetworkName = NetworkName::SEResNeXt50;

/// All that the result of a run depends on, but the images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// What is learned, and from what.
    pub task: Task,
    /// Network, loss, optimizer, patch, batch.
    pub training: Training,
    /// Learning rates.
    pub schedule: Schedule,
    /// Epochs.
    pub epochs: u64,
    /// Steps of an epoch.
    pub iterations_per_epoch: u64,
    /// Batches that are validated after each epoch.
    pub validation_iterations: u64,
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
        settings.expect_none_of(
            "images",
            settings.images.is_some(),
            "volumes are labelled voxel by voxel",
        )?;
        let spacing = settings.spacing.unwrap_or(fingerprint.target_spacing.0);
        check_spacing(spacing)?;
        let median_shape = fingerprint.median_shape.map(|extent| extent.round().max(1.0) as usize);
        let topology = match settings.patch_size {
            Some(patch) => Topology::of(spacing, patch),
            None => Topology::for_images(spacing, median_shape, PATCH_VOXELS),
        };
        let design = topology.design(dataset.channels.len(), dataset.labels.classes());
        let net = Network::design(&design, &settings.network)?;
        if net.classifies() == Classifies::Images {
            return Err(ConfigError::Value {
                setting: "net",
                found: net.name().into(),
                expected: "it gives an image one class, and this data set has a label for each voxel".into(),
            }
            .into());
        }
        // The network may have been given strides of its own.
        let patch = settings.patch_size.unwrap_or_else(|| net.extents().next_larger(topology.patch));
        net.check_patch(patch)?;
        let nnunet_loss =
            || Loss::dice_ce(SoftDice { include_background: false, ..SoftDice::default() }, 1.0).into();
        let mut loss = settings.loss.clone().unwrap_or_else(nnunet_loss);
        loss.ignore = loss.ignore.or(dataset.labels.ignore());
        let task = SegmentationTask::new(settings, (dataset, fingerprint), spacing, patch);
        RunConfig::complete(settings, Task::Segmentation(task), (net, loss, patch), &Usual::SEGMENTATION)
    }

    /// Completes settings with defaults that follow from images, and from how many of them a task is trained on.
    ///
    /// # Errors
    /// If the settings contradict themselves, or are of volumes.
    pub fn resolve_images(
        settings: &Settings,
        (name, dataset): (&str, &ImageDataset),
        trained_on: &dyn Fn(&Task) -> usize,
    ) -> Result<RunConfig, RunError> {
        settings.check()?;
        for (setting, is_given) in [
            ("patch_size", settings.patch_size.is_some()),
            ("spacing", settings.spacing.is_some()),
            ("augmentation", settings.augmentation.is_some()),
            ("oversample_foreground", settings.oversample_foreground.is_some()),
            ("validation_iterations", settings.validation_iterations.is_some()),
        ] {
            settings.expect_none_of(setting, is_given, "images are given a class as a whole")?;
        }
        let of_images = settings.images.clone().unwrap_or_default();
        let task = ClassificationTask::new(&of_images, name, dataset)?;
        let patch = task.patch()?;
        let design = Design {
            in_channels: task.pipeline.channels,
            classes: task.labels.len(),
            patch,
            strides: Vec::new(),
            kernels: Vec::new(),
            features: Vec::new(),
        };
        let name = settings.network.net.unwrap_or(IMAGE_NETWORK);
        if Network::reference(name, None)?.classifies() != Classifies::Images {
            return Err(ConfigError::Value {
                setting: "net",
                found: name.to_string(),
                expected: "it labels voxels, and these are images with one label each".into(),
            }
            .into());
        }
        let network = NetworkSettings { net: Some(name), ..settings.network.clone() };
        let net = Network::design(&design, &network)?;
        net.check_patch(patch)?;
        let loss = settings.loss.clone().unwrap_or_else(|| {
            let components = vec![Component::CrossEntropy(CrossEntropy::default())];
            Loss { components, ignore: None }.into()
        });
        let batch = settings.batch_size.unwrap_or(Usual::CLASSIFICATION.batch);
        let task = Task::Classification(task);
        let iterations_per_epoch = (trained_on(&task) / batch.max(1)).max(1) as u64;
        let usual = Usual { iterations_per_epoch, ..Usual::CLASSIFICATION };
        RunConfig::complete(settings, task, (net, loss, patch), &usual)
    }

    /// Completes settings with defaults that do not depend on the data.
    fn complete(
        settings: &Settings,
        task: Task,
        (net, loss, patch): (Network, Objective, [usize; 3]),
        usual: &Usual,
    ) -> Result<RunConfig, RunError> {
        let batch = settings.batch_size.unwrap_or(usual.batch);
        let optimizer = settings.optimizer.unwrap_or_else(usual.optimizer);
        let (epochs, iterations_per_epoch) = (
            settings.epochs.unwrap_or(usual.epochs),
            settings.iterations_per_epoch.unwrap_or(usual.iterations_per_epoch),
        );
        check_steps(epochs, iterations_per_epoch)?;
        if let Some(rule) = settings.early_stopping.filter(|rule| !rule.score.is_of(&task)) {
            return Err(ConfigError::Value {
                setting: "early_stopping.score",
                found: format!("{:?}", rule.score),
                expected: "volumes have ema_pseudo_dice, pseudo_dice and validation_loss, images accuracy, \
                           balanced_accuracy, kappa and validation_loss"
                    .into(),
            }
            .into());
        }
        let config = RunConfig {
            training: Training {
                net,
                loss,
                optimizer,
                max_grad_norm: Some(settings.max_grad_norm.unwrap_or(12.0)),
                ema: settings.ema,
                groups: settings.groups.clone().unwrap_or_default(),
                frozen: settings.frozen.clone().unwrap_or_default(),
                patch,
                spacing: task.spacing(),
                batch,
                micro_batch: settings.micro_batch.unwrap_or(batch),
                precision: settings.precision.unwrap_or(DType::F32),
            },
            task,
            schedule: Schedule {
                learning_rate: settings.learning_rate.unwrap_or((usual.learning_rate)(&optimizer)),
                min_learning_rate: settings.min_learning_rate.unwrap_or(0.0),
                warmup_steps: settings.warmup_steps.unwrap_or(0),
                decay: settings.decay.unwrap_or(usual.decay),
                total_steps: epochs * iterations_per_epoch,
            },
            epochs,
            iterations_per_epoch,
            validation_iterations: settings.validation_iterations.unwrap_or(usual.validation_iterations),
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

    /// Takes over how another model normalises images, whose weights are to be trained on.
    ///
    /// # Errors
    /// If it has another task, or another number of channels.
    pub fn adopt_normalisation(&mut self, model: &RunConfig) -> Result<(), RunError> {
        match (&mut self.task, &model.task) {
            (Task::Segmentation(own), theirs) => own.adopt_normalisation(theirs.segmentation()?),
            (Task::Classification(own), theirs) => {
                own.pipeline = theirs.classification()?.pipeline.clone();
                Ok(())
            }
        }
    }

    /// The settings that make the same network on patches of the same size and spacing, whatever the data set.
    ///
    /// # Errors
    /// If the network cannot be said in settings.
    pub fn plans(&self) -> Result<Settings, RunError> {
        Ok(Settings {
            network: self.training.net.settings()?,
            patch_size: Some(self.training.patch),
            spacing: Some(self.task.spacing()),
            ..Settings::default()
        })
    }

    /// That what a file says can be one: it is read by who did not write it.
    ///
    /// # Errors
    /// At the first number that is beyond its bound, or does not go with another.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let RunConfig { task, training, schedule, epochs, iterations_per_epoch, .. } = self;
        let expect = |is_so: bool, setting: &'static str, found: String, expected: &str| match is_so {
            true => Ok(()),
            false => Err(ConfigError::Value { setting, found, expected: expected.into() }),
        };
        task.check()?;
        training.net.check()?;
        let (channels, classes) = (training.net.in_channels(), training.net.classes());
        let (known, labels) = (task.channels(), task.classes());
        expect(channels == known, "channels", known.to_string(), &format!("the network has {channels}"))?;
        expect(classes == labels, "classes", labels.to_string(), &format!("the network has {classes}"))?;
        training.net.check_patch(training.patch)?;
        check_batch(training.batch, training.patch, training.net.weights())?;
        check_count("micro_batch", training.micro_batch, 1, training.batch)?;
        training.check_updates()?;
        check_steps(*epochs, *iterations_per_epoch)?;
        let steps = epochs * iterations_per_epoch;
        let total = schedule.total_steps;
        expect(total == steps, "total_steps", total.to_string(), &format!("the run has {steps}"))?;
        schedule.check()?;
        check_validation(self.validation_iterations)?;
        self.early_stopping.as_ref().map_or(Ok(()), EarlyStopping::check)?;
        Ok(())
    }

    /// What is not stored twice is set again.
    pub(crate) fn restore(&mut self) {
        self.training.spacing = self.task.spacing();
    }
}

/// What holds for a task where nothing is set.
struct Usual {
    batch: usize,
    epochs: u64,
    iterations_per_epoch: u64,
    validation_iterations: u64,
    optimizer: fn() -> Optimizer,
    learning_rate: fn(&Optimizer) -> f64,
    decay: Decay,
}

impl Usual {
    /// nnU-Net's.
    const SEGMENTATION: Usual = Usual {
        batch: 2,
        epochs: 1000,
        iterations_per_epoch: 250,
        validation_iterations: 50,
        optimizer: Optimizer::nnunet,
        learning_rate: |optimizer| match optimizer {
            Optimizer::AdamW { .. } | Optimizer::Adam { .. } => 1e-3,
            Optimizer::Sgd { .. } => 1e-2,
        },
        decay: Decay::Poly { power: 0.9 },
    };

    /// As images are usually classified. All images are validated, whatever is said here.
    const CLASSIFICATION: Usual = Usual {
        batch: 16,
        epochs: 100,
        iterations_per_epoch: 1,
        validation_iterations: 0,
        optimizer: Optimizer::adamw,
        learning_rate: |optimizer| match optimizer {
            Optimizer::AdamW { .. } | Optimizer::Adam { .. } => 3e-4,
            Optimizer::Sgd { .. } => 1e-2,
        },
        decay: Decay::Cosine,
    };
}
