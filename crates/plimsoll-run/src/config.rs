//! All that the result of a run depends on, written down.

use plimsoll_data::{Dataset, Fingerprint, Fold, TargetSpacing};
use plimsoll_graph::ops::{Activation, Component, CrossEntropy, Loss, SoftDice, WeightedBce};
use plimsoll_nn::bounds::{MOST_BATCH, check_batch, check_count};
use plimsoll_nn::{
    Classifies, ConfigError, Decay, Design, Network, NetworkName, NetworkSettings, Objective, Optimizer,
    RateInterval, Schedule, Term, Training,
};
use serde::{Deserialize, Serialize};

use crate::bounds::{check_near, check_spacing, check_steps, check_validation};
use crate::slices;
use crate::topology::SMALLEST;
use crate::{
    BadNumbers, ChannelNormalisation, ClassWeights, ClassificationTask, EarlyStopping, ImageSource,
    ImageTarget, Precision, PresetPlan, Products, RunError, SegmentationTask, Settings, Task, Topology,
};

/// The most voxels of the default patch, as many as nnU-Net's at its reference memory of 8 GB: larger patches cost time in proportion, and
/// seldom help.
const MOST_VOXELS: usize = 128 * 128 * 128;
/// The least voxels that a patch is made to have so that it fits. A smaller one sees too little to be chosen silently.
const LEAST_VOXELS: usize = 32 * 32 * 32;
/// The most pixels of the default slice.
const MOST_PIXELS: usize = 512 * 512;
/// The share of a data set that a batch covers at most, as in nnU-Net.
const MOST_OF_ALL: f64 = 0.05;
/// Images of more voxels than this many patches get the Dice of the whole batch. nnU-Net does so if it also makes a configuration of low
/// resolution: if a patch covers less than a quarter of the median image, of which a patch covers half at most.
const MANY_PATCHES: f64 = 8.0;

/// The network of images where no other is set.
const IMAGE_NETWORK: NetworkName = NetworkName::SEResNeXt50;

/// All that the result of a run depends on, but the images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// The task and its data set.
    pub task: Task,
    /// Network, loss, optimizer, patch, batch.
    pub training: Training,
    /// The number format of the products in convolutions.
    pub products: Products,
    /// Learning rates.
    pub schedule: Schedule,
    /// Epochs.
    pub epochs: u64,
    /// Steps of an epoch.
    pub iterations_per_epoch: u64,
    /// Batches that are validated after each epoch.
    pub validation_iterations: u64,
    /// The seed of initial weights, patches and augmentation.
    pub seed: u64,
    /// The response to a loss or a gradient that is not finite.
    pub bad_numbers: BadNumbers,
    /// The rule that ends the run before its last epoch.
    pub early_stopping: Option<EarlyStopping>,
}

impl RunConfig {
    /// The number of samples of a fold that are validated after each epoch: patches as set, or every image.
    pub fn validated(&self, cases: &Fold) -> u64 {
        match &self.task {
            Task::Segmentation(_) => self.validation_iterations * self.training.batch as u64,
            Task::Classification(_) => cases.val.len() as u64,
        }
    }

    /// Completes settings with defaults that follow from the data set. The micro-batch is a whole shard unless it is set.
    ///
    /// # Errors
    /// Returns an error if the settings contradict themselves.
    pub fn resolve(
        settings: &Settings,
        dataset: &Dataset,
        fingerprint: &Fingerprint,
    ) -> Result<RunConfig, RunError> {
        RunConfig::resolve_with(settings, None, dataset, fingerprint)
    }

    /// The patches that a run may have if none is set, the largest first: nnU-Net's sequence. Empty if a patch is set, and for slices,
    /// whose patch does not depend on memory.
    ///
    /// # Errors
    /// Returns an error if the settings contradict each other.
    pub fn patches(
        settings: &Settings,
        dataset: &Dataset,
        fingerprint: &Fingerprint,
    ) -> Result<Vec<[usize; 3]>, RunError> {
        settings.check()?;
        let (spacing, _) = spacing_and_preset(settings, dataset, fingerprint)?;
        if settings.patch_size.is_some() || spacing.is_of_slices() {
            return Ok(Vec::new());
        }
        let mut patches: Vec<[usize; 3]> = Vec::new();
        for topology in Topology::sequence(spacing, fingerprint.median_shape, SMALLEST) {
            if !patches.is_empty() && topology.voxels() < LEAST_VOXELS {
                break;
            }
            patches.push(topology.patch);
        }
        Ok(patches)
    }

    /// Returns `true` if a patch may be the default; larger patches must be set.
    pub fn is_usual_patch(patch: [usize; 3]) -> bool {
        patch.iter().product::<usize>() <= MOST_VOXELS
    }

    /// Resolves settings like [`resolve`](RunConfig::resolve), with one of [`patches`](RunConfig::patches) if no patch is set.
    ///
    /// # Errors
    /// Returns an error if the settings contradict each other.
    pub fn resolve_with(
        settings: &Settings,
        patch: Option<[usize; 3]>,
        dataset: &Dataset,
        fingerprint: &Fingerprint,
    ) -> Result<RunConfig, RunError> {
        settings.check()?;
        settings.expect_none_of(
            "images",
            settings.images.is_some(),
            "volumes are labelled voxel by voxel",
        )?;
        let (spacing, preset) = spacing_and_preset(settings, dataset, fingerprint)?;
        check_near(spacing, fingerprint)?;
        let most = if spacing.is_of_slices() { MOST_PIXELS } else { MOST_VOXELS };
        let topology = match (settings.patch_size.or(patch), &preset) {
            (Some(patch), _) => Topology::new(spacing, patch),
            (None, Some(preset)) => preset.topology(),
            (None, None) => Topology::for_images(spacing, fingerprint.median_shape, most),
        };
        let design = topology.design(dataset.channels.len(), dataset.labels.outputs());
        let named = NetworkSettings { net: settings.network_name(), ..settings.network.clone() };
        let net = Network::design(&design, &named)?;
        if net.classifies() == Classifies::Images {
            return Err(ConfigError::Value {
                setting: "net",
                found: net.name().into(),
                expected: "it classifies whole images, but this data set has a label for each voxel".into(),
            }
            .into());
        }
        // The network may have been given strides of its own.
        let patch = settings.patch_size.unwrap_or_else(|| net.extents().next_larger(topology.patch));
        net.check_patch(patch)?;
        let batch = match (&preset, spacing.is_of_slices(), settings.patch_size) {
            // A patch that is set leaves the batch as it is, so that a smaller one needs less memory.
            (Some(preset), ..) => preset.batch_size.min(MOST_BATCH),
            (None, true, _) => slices::batch(fingerprint, patch),
            (None, false, None) => volumes(fingerprint, patch),
            (None, false, Some(_)) => Usual::SEGMENTATION.batch,
        };
        let usual = Usual { batch, ..Usual::SEGMENTATION };
        // A single slice, or a small part of an image, often has no voxel of a class, so nnU-Net takes the Dice of these over the
        // whole batch. It cannot where a smaller part of it is to go through the network at a time, unless shards exchange their sums.
        let voxels = |shape: [usize; 3]| shape.iter().map(|extent| *extent as f64).product::<f64>();
        let is_part = match &preset {
            Some(preset) => preset.batch_dice,
            None => {
                let median = median_shape(fingerprint);
                settings.patch_size.is_none() && voxels(median) > MANY_PATCHES * voxels(patch)
            }
        };
        let in_parts = settings.shards.unwrap_or(1) == 1
            && settings.micro_batch.is_some_and(|size| size < settings.batch_size.unwrap_or(usual.batch));
        let batch = spacing.is_of_slices() || (is_part && !in_parts);
        let dice = SoftDice { include_background: false, batch, ..SoftDice::default() };
        let task = SegmentationTask::new(settings, dataset, fingerprint, spacing, patch);
        let task = Task::Segmentation(task);
        let (regions, ignore) = (task.regions(), dataset.labels.ignore());
        let nnunet_loss = || match &regions {
            Some(regions) => Objective::for_regions(regions.sets.len(), batch, ignore),
            None => Loss::dice_ce(dice, 1.0).into(),
        };
        if let (Some(given), Some(_)) = (&settings.loss, &regions) {
            given.expect_no_background()?;
        }
        let mut loss = settings.loss.clone().unwrap_or_else(nnunet_loss);
        loss.ignore = loss.ignore.or(ignore);
        loss.regions = regions;
        RunConfig::complete(settings, task, net, loss, patch, &usual)
    }

    /// Completes settings with defaults that follow from images, and from how many of each class a task is trained on; of several
    /// labels, all of them count as of the first.
    ///
    /// # Errors
    /// Returns an error if the settings contradict themselves, or are of volumes.
    pub fn resolve_images(
        settings: &Settings,
        source: ImageSource<'_>,
        trained_on: &dyn Fn(&Task) -> Vec<usize>,
    ) -> Result<RunConfig, RunError> {
        settings.check()?;
        expect_no_volume_settings(settings)?;
        let of_images = settings.images.clone().unwrap_or_default();
        let task = ClassificationTask::new(&of_images, source)?;
        let patch = task.patch()?;
        let design = Design {
            in_channels: task.pipeline.channels,
            classes: task.answer().outputs(),
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
                expected: "it labels voxels, but these images have one label each".into(),
            }
            .into());
        }
        let network = NetworkSettings { net: Some(name), ..settings.network.clone() };
        let net = Network::design(&design, &network)?;
        net.check_patch(patch)?;
        let (target, mixup) = (task.target, task.augmentation.mixup);
        if target != ImageTarget::OneOf && settings.network.single_logit == Some(true) {
            let expected = "false, because several or ordered labels have a logit each".into();
            let (setting, found) = ("network.single_logit", "true".into());
            return Err(ConfigError::Value { setting, found, expected }.into());
        }
        let mut loss = settings.loss.clone().unwrap_or_else(|| {
            let component = match target {
                ImageTarget::OneOf => Component::CrossEntropy(CrossEntropy::default()),
                ImageTarget::AnyOf | ImageTarget::Ordinal => Component::WeightedBce(WeightedBce {
                    activation: Activation::Sigmoid,
                    include_background: true,
                    ..WeightedBce::default()
                }),
            };
            Loss::new(vec![component]).into()
        });
        loss.soft = task.soft_targets();
        let is_softmax = |term: &Term| matches!(term, Term::Sums(Component::CrossEntropy(_)));
        if target != ImageTarget::OneOf && loss.components.iter().any(is_softmax) {
            return Err(ConfigError::Loss {
                option: "components".into(),
                found: "cross_entropy".into(),
                expected: "it is for one class: use weighted_bce for several or ordered labels".into(),
            }
            .into());
        }
        let batch = settings.batch_size.unwrap_or(Usual::CLASSIFICATION.batch);
        if mixup > 0.0 && batch < 2 {
            let expected = "0, or batches of at least 2 images, which are mixed with each other".into();
            let (setting, found) = ("images.augmentation.mixup", mixup.to_string());
            return Err(ConfigError::Value { setting, found, expected }.into());
        }
        let task = Task::Classification(task);
        let counts = trained_on(&task);
        if let Some(rule) = of_images.class_weights {
            weigh_classes(&mut loss, rule, &counts, &task)?;
        }
        let iterations_per_epoch = (counts.iter().sum::<usize>() / batch.max(1)).max(1) as u64;
        let usual = Usual { iterations_per_epoch, ..Usual::CLASSIFICATION };
        RunConfig::complete(settings, task, net, loss, patch, &usual)
    }

    /// Completes settings with defaults that do not depend on the data.
    fn complete(
        settings: &Settings,
        task: Task,
        net: Network,
        loss: Objective,
        patch: [usize; 3],
        usual: &Usual,
    ) -> Result<RunConfig, RunError> {
        let shards = settings.shards.unwrap_or(1);
        let batch = settings.batch_size.unwrap_or_else(|| usual.batch.next_multiple_of(shards));
        let optimizer = settings.optimizer.unwrap_or_else(usual.optimizer);
        let (epochs, iterations_per_epoch) = (
            settings.epochs.unwrap_or(usual.epochs),
            settings.iterations_per_epoch.unwrap_or(usual.iterations_per_epoch),
        );
        check_steps(epochs, iterations_per_epoch)?;
        let early_stopping = settings.early_stopping.map(|rule| rule.for_task(&task));
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
                shards,
                micro_batch: settings.micro_batch.unwrap_or(batch / shards),
                precision: settings.precision.unwrap_or(Precision::F32).storage(),
            },
            products: settings.precision.unwrap_or(Precision::F32).products(),
            task,
            schedule: Schedule {
                learning_rate: settings.learning_rate.unwrap_or((usual.learning_rate)(&optimizer)),
                min_learning_rate: settings.min_learning_rate.unwrap_or(0.0),
                warmup_steps: settings.warmup_steps.unwrap_or(0),
                decay: settings.decay.unwrap_or(usual.decay),
                total_steps: epochs * iterations_per_epoch,
                interval: match settings.learning_rate_interval.unwrap_or_default() {
                    RateInterval::Step => 1,
                    RateInterval::Epoch => iterations_per_epoch,
                },
            },
            epochs,
            iterations_per_epoch,
            validation_iterations: settings.validation_iterations.unwrap_or(usual.validation_iterations),
            seed: settings.seed.unwrap_or(0),
            bad_numbers: settings.bad_numbers.unwrap_or_default(),
            early_stopping,
        };
        // Contradictions are reported before a run is planned, and no run begins whose specification could not be read again.
        config.schedule.check()?;
        config.training.programs()?;
        config.check()?;
        Ok(config)
    }

    /// Takes over how another model normalises images, whose weights are to be trained on.
    ///
    /// # Errors
    /// Returns an error if it has another task, or another number of channels.
    pub fn adopt_normalisation(&mut self, model: &RunConfig) -> Result<(), RunError> {
        match (&mut self.task, &model.task) {
            (Task::Segmentation(own), theirs) => own.adopt_normalisation(theirs.segmentation()?),
            (Task::Classification(own), theirs) => {
                let range_16_bit = own.pipeline.decode.range_16_bit;
                own.pipeline = theirs.classification()?.pipeline.clone();
                let decode = &mut own.pipeline.decode;
                // A model of images with 8 bits knows no range.
                decode.range_16_bit = decode.range_16_bit.or(range_16_bit);
                Ok(())
            }
        }
    }

    /// Normalises the channels of volumes as another model does.
    ///
    /// # Errors
    /// Returns an error if images have a class each, or the model has another number of channels.
    pub fn adopt_channels(&mut self, theirs: &ChannelNormalisation) -> Result<(), RunError> {
        match &mut self.task {
            Task::Segmentation(own) => own.adopt_channels(theirs),
            Task::Classification(_) => self.task.segmentation().map(|_| ()),
        }
    }

    /// The settings that make the same network on patches of the same size and spacing, whatever the data set.
    ///
    /// # Errors
    /// Returns an error if the network cannot be said in settings.
    pub fn plans(&self) -> Result<Settings, RunError> {
        let task = self.task.segmentation().ok();
        Ok(Settings {
            network: self.training.net.settings()?,
            dimensions: task.map(SegmentationTask::dimensions),
            patch_size: task.map(|_| self.training.patch),
            spacing: task.map(|task| task.spacing.into()),
            ..Settings::default()
        })
    }

    /// Checks that a configuration read from a file is possible: a file may come from elsewhere.
    ///
    /// # Errors
    /// At the first number that is beyond its bound, or does not go with another.
    pub fn check(&self) -> Result<(), RunError> {
        let RunConfig { task, training, schedule, epochs, iterations_per_epoch, .. } = self;
        let expect = |is_so: bool, setting: &'static str, found: String, expected: &str| match is_so {
            true => Ok(()),
            false => Err(ConfigError::Value { setting, found, expected: expected.into() }),
        };
        task.check()?;
        training.net.check()?;
        let (channels, classes) = (training.net.in_channels(), training.net.classes());
        let (known, labels) = (task.channels(), task.outputs());
        expect(channels == known, "channels", known.to_string(), &format!("the network has {channels}"))?;
        expect(classes == labels, "classes", labels.to_string(), &format!("the network has {classes}"))?;
        training.net.check_patch(training.patch)?;
        let slices = task.segmentation().is_ok_and(|task| task.spacing.is_of_slices());
        let (patch, one) = (format!("{:?}", training.patch), "slices keep their spacing along the depth");
        expect(!slices || training.patch[0] == 1, "patch_size", patch, one)?;
        check_batch(training.batch, training.patch, training.net.weights())?;
        check_count("shards", training.shards, 1, training.batch)?;
        check_count("micro_batch", training.micro_batch, 1, training.batch)?;
        training.check_updates()?;
        check_steps(*epochs, *iterations_per_epoch)?;
        let (steps, total) = (epochs * iterations_per_epoch, schedule.total_steps);
        expect(total == steps, "total_steps", total.to_string(), &format!("the run has {steps}"))?;
        schedule.check()?;
        check_validation(self.validation_iterations)?;
        if let Some((option, found, expected)) = training.loss.epochs_fault(*epochs) {
            return Err(ConfigError::Loss { option, found, expected }.into());
        }
        self.early_stopping.map_or(Ok(()), |rule| rule.check(task))?;
        Ok(())
    }

    /// Restores the values that a file does not store twice.
    pub fn restore(&mut self) {
        self.training.spacing = self.task.spacing();
        self.training.loss.soft = self.task.soft_targets();
        self.training.loss.regions = self.task.regions();
    }
}

/// The spacing that images are brought to, and the plan of the preset, if there is one.
fn spacing_and_preset(
    settings: &Settings,
    dataset: &Dataset,
    fingerprint: &Fingerprint,
) -> Result<(TargetSpacing, Option<PresetPlan>), RunError> {
    let preset = PresetPlan::asked_by(settings, &dataset.labels, fingerprint)?;
    let spacing = match &preset {
        Some(preset) => preset.spacing,
        None => slices::target_spacing(settings, fingerprint)?,
    };
    check_spacing(spacing)?;
    Ok((spacing, preset))
}

fn median_shape(fingerprint: &Fingerprint) -> [usize; 3] {
    fingerprint.median_shape.map(|extent| extent.round().max(1.0) as usize)
}

/// Volumes of a step: two, or where a patch holds the median image as many as have the voxels of two of the largest patches, but no
/// more than a twentieth of the data set has.
fn volumes(fingerprint: &Fingerprint, patch: [usize; 3]) -> usize {
    let median = median_shape(fingerprint);
    if (0..3).any(|axis| patch[axis] < median[axis]) {
        return Usual::SEGMENTATION.batch;
    }
    let voxels = |shape: [usize; 3]| shape.iter().map(|extent| *extent as f64).product::<f64>();
    let most = MOST_OF_ALL * fingerprint.cases.len() as f64 * voxels(median) / voxels(patch);
    let reference = Usual::SEGMENTATION.batch as f64 * MOST_VOXELS as f64 / voxels(patch);
    // The casts saturate, and the quotients are not negative.
    (reference.round().min(most.round()) as usize).max(Usual::SEGMENTATION.batch)
}

/// Sets the weights of classes in the cross-entropy of a loss.
fn weigh_classes(
    loss: &mut Objective,
    rule: ClassWeights,
    counts: &[usize],
    task: &Task,
) -> Result<(), RunError> {
    let refuse = |expected: String| {
        let (setting, found) = ("images.class_weights", "balanced".into());
        Err(ConfigError::Value { setting, found, expected }.into())
    };
    let task = task.classification()?;
    if task.target != ImageTarget::OneOf || task.augmentation.mixup > 0.0 {
        return refuse("weights need one class for each image, and no mixing".into());
    }
    let weights = match rule.weights(counts) {
        Ok(weights) => weights,
        Err(class) => {
            let name = task.classes().nth(class).unwrap_or("?");
            return refuse(format!("no training image has {name}, so its weight would be infinite"));
        }
    };
    let mut is_set = false;
    for term in &mut loss.components {
        if let Term::Sums(Component::CrossEntropy(entropy)) = term
            && entropy.class_weights.is_empty()
        {
            entropy.class_weights.clone_from(&weights);
            is_set = true;
        }
    }
    match is_set {
        true => Ok(()),
        false => refuse("the loss has no cross_entropy without its own class_weights".into()),
    }
}

/// The defaults of a task.
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

    /// The defaults of image classification. All images are validated, whatever the number here.
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

/// Refuses settings of volumes for images with classes.
fn expect_no_volume_settings(settings: &Settings) -> Result<(), RunError> {
    for (setting, is_given) in [
        ("preset", settings.preset.is_some()),
        ("lowres", settings.lowres.is_some()),
        ("dimensions", settings.dimensions.is_some()),
        ("patch_size", settings.patch_size.is_some()),
        ("spacing", settings.spacing.is_some()),
        ("data", settings.data.is_some()),
        ("labels", settings.labels.is_some()),
        ("regions", settings.regions.is_some()),
        ("augmentation", settings.augmentation.is_some()),
        ("oversample_foreground", settings.oversample_foreground.is_some()),
        ("oversampling", settings.oversampling.is_some()),
        ("validation_iterations", settings.validation_iterations.is_some()),
    ] {
        settings.expect_none_of(setting, is_given, "whole images are classified")?;
    }
    Ok(())
}
