//! Trained weights that a run starts from: a checkpoint of nnssl, of nnU-Net or of this program, or weights alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_data::{Normalisation, Preparation};
use plimsoll_memory::Budget;
use plimsoll_nn::weights::{PytorchFile, WeightSource};
use plimsoll_nn::{NetworkSettings, Optimizer, RateInterval};
use plimsoll_run::{
    ChannelNormalisation, CheckpointKind, HeadRule, PretrainedEncoder, RunConfig, RunError, Settings,
    StartRule,
};

use crate::model::{first_fold, trained_folds};
use crate::nnunet::{AdaptationPlan, NnUnetChoice, NnUnetModel, PLAN_FILE, find_model, is_nnunet};
use crate::{ModelError, SegmentationModel};

/// The file of weights in a folder of nnssl or of nnU-Net.
const CHECKPOINT: &str = "checkpoint_final.pth";
/// The entry of a checkpoint under which nnU-Net and nnssl keep the state dict.
const STATE_DICT: &str = "network_weights";

/// Trained weights that a run starts from.
#[derive(Clone, Debug)]
pub struct Start {
    /// The file or folder as named.
    path: PathBuf,
    /// The file of weights.
    weights: PathBuf,
    origin: Origin,
}

/// The origin of weights, and what is known of their network.
#[derive(Clone, Debug)]
enum Origin {
    /// A checkpoint of nnssl with its plan.
    Encoder(Box<AdaptationPlan>),
    /// A checkpoint of nnU-Net without the folder of its model.
    Checkpoint,
    /// A model of nnU-Net.
    NnUnet(Box<NnUnetModel>),
    /// A run of this program.
    Run(Box<RunConfig>),
    /// Weights alone.
    Weights,
}

/// A part of the settings that a run may adopt from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Adoption {
    /// The size of the patch.
    Patch,
    /// The spacing that images are brought to.
    Spacing,
    /// The normalisation of intensities.
    Normalisation,
    /// The network: its kind, features, kernels, strides and blocks.
    Topology,
}

impl Adoption {
    /// All of them.
    pub const ALL: [Adoption; 4] =
        [Adoption::Patch, Adoption::Spacing, Adoption::Normalisation, Adoption::Topology];

    /// The name as parameters have it.
    pub fn name(self) -> &'static str {
        match self {
            Adoption::Patch => "patch",
            Adoption::Spacing => "spacing",
            Adoption::Normalisation => "normalisation",
            Adoption::Topology => "topology",
        }
    }

    /// The one of a name.
    pub fn from_name(name: &str) -> Option<Adoption> {
        Adoption::ALL.into_iter().find(|own| own.name() == name)
    }
}

/// The normalisation that a run adopts.
#[derive(Clone, Debug)]
pub enum NormalisationOf {
    /// The normalisation of a run of this program.
    Run(Box<RunConfig>),
    /// The normalisation of channels by another program.
    Channels(ChannelNormalisation),
}

impl NormalisationOf {
    /// Sets the normalisation of a run.
    ///
    /// # Errors
    /// Returns an error if the run has another task or other channels.
    pub fn apply(&self, config: &mut RunConfig) -> Result<(), RunError> {
        match self {
            NormalisationOf::Run(model) => config.adopt_normalisation(model),
            NormalisationOf::Channels(channels) => config.adopt_channels(channels),
        }
    }
}

/// The rules of nnU-Net 2.8.1 for training on from a pre-trained encoder (`PretrainedTrainer`, and `PretrainedTrainer_Primus` for transformers).
#[derive(Clone, Copy, Debug)]
pub struct FineTuning;

impl FineTuning {
    /// Epochs of a run and steps of an epoch where none are set.
    const EPOCHS: u64 = 1000;
    const STEPS: u64 = 250;
    /// The optimizer of transformers.
    const OF_TRANSFORMERS: Optimizer =
        Optimizer::AdamW { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 5e-2 };

    /// Epochs of the warm-up of a run: 50 of 1,000, 15 of 150 and 300, and a tenth of 30 and fewer, as nnU-Net's trainers have them.
    pub fn warmup_epochs(epochs: u64) -> u64 {
        match epochs {
            301.. => 50,
            31..=300 => 15,
            _ => epochs / 10,
        }
    }

    /// The settings for a run whose other settings are these.
    fn settings(others: &Settings, encoder: &PretrainedEncoder) -> Settings {
        let steps = others.iterations_per_epoch.unwrap_or(FineTuning::STEPS);
        let epochs = others.epochs.unwrap_or(FineTuning::EPOCHS);
        // Of the networks that nnssl pre-trains, those with positions of tokens are transformers.
        let is_transformer = encoder.grid.is_some();
        let optimizer = others.optimizer.or(is_transformer.then_some(FineTuning::OF_TRANSFORMERS));
        // `DynamicPretrainedTrainer_adam_150ep` has another rate for AdamW.
        let learning_rate = match optimizer {
            None | Some(Optimizer::Sgd { .. }) => 1e-3,
            Some(Optimizer::AdamW { .. } | Optimizer::Adam { .. }) => 1e-4,
        };
        Settings {
            batch_size: Some(2),
            optimizer,
            learning_rate: Some(learning_rate),
            max_grad_norm: is_transformer.then_some(1.0),
            warmup_steps: Some(FineTuning::warmup_epochs(epochs).saturating_mul(steps)),
            learning_rate_interval: Some(RateInterval::Epoch),
            network: NetworkSettings {
                // A transformer has one head.
                deep_supervision: (!is_transformer).then_some(0),
                ..NetworkSettings::default()
            },
            ..Settings::default()
        }
    }
}

/// The differences between a start and the network that are allowed, for starts whose tensors are taken by their names. By default none is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartOptions {
    /// Ignores tensors that the network does not have.
    pub allow_extra: bool,
    /// Initialises heads at random if their shapes differ.
    pub new_head: bool,
    /// Sums the weights of three image channels for a network of one channel.
    pub sum_stem: bool,
    /// Resamples kernels of another extent linearly.
    pub upkern: bool,
}

impl StartOptions {
    /// The name of the first option that is set; `None` if none is.
    pub fn first_set(self) -> Option<&'static str> {
        let StartOptions { allow_extra, new_head, sum_stem, upkern } = self;
        let options = [
            ("allow_extra", allow_extra),
            ("new_head", new_head),
            ("sum_stem", sum_stem),
            ("upkern", upkern),
        ];
        options.into_iter().find_map(|(name, is_set)| is_set.then_some(name))
    }
}

impl Start {
    /// Opens a start: reads the description of its network, and of its weights only the names.
    ///
    /// # Errors
    /// Returns an error if nothing can be started from, a plan describes something that is not supported, or there is no room to read it.
    pub fn open(path: &Path, budget: &Budget) -> Result<Start, ModelError> {
        let start = |weights: PathBuf, origin: Origin| Start { path: path.into(), weights, origin };
        if path.is_file() {
            let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
            return Ok(start(path.into(), Origin::of_file(path, &folder, budget)?));
        }
        if !path.is_dir() {
            return Err(refused(path, "it does not exist"));
        }
        if path.join(PLAN_FILE).is_file() {
            let weights = checkpoint_beside_plan(path)?;
            let origin = Origin::of_file(&weights, path, budget)?;
            return Ok(start(weights, origin));
        }
        if let Some(fold) = first_fold(path)? {
            let folds = trained_folds(path, CheckpointKind::Final)?;
            let [(only, specification)] = &folds[..] else {
                let why = format!("it has {} folds; name one, like {}", folds.len(), fold.path().display());
                return Err(refused(path, why));
            };
            let weights = only.checkpoint(CheckpointKind::Final);
            return Ok(start(weights, Origin::Run(Box::new(specification.config.clone()))));
        }
        if is_nnunet(path)? {
            let model = NnUnetModel::open(&find_model(path)?, &NnUnetChoice::default(), budget)?;
            let [WeightSource { path: weights, .. }] = &model.model.weights[..] else {
                let folds = model.folds.len();
                return Err(refused(path, format!("it has {folds} folds; name the {CHECKPOINT} of one")));
            };
            return Ok(start(weights.clone(), Origin::NnUnet(Box::new(model))));
        }
        if path.join(CHECKPOINT).is_file() {
            let weights = path.join(CHECKPOINT);
            return match Origin::of_file(&weights, path, budget)? {
                origin @ Origin::Encoder(_) => Ok(start(weights, origin)),
                _ => Err(refused(
                    path,
                    format!("it has no {PLAN_FILE}, and its {CHECKPOINT} has no plan either"),
                )),
            };
        }
        Err(refused(
            path,
            "it holds neither a run, nor a model of nnU-Net, nor a checkpoint of nnssl with its plan",
        ))
    }

    /// The file of weights.
    pub fn weights(&self) -> &Path {
        &self.weights
    }

    /// Returns `true` if the start is a pre-trained encoder with its plan.
    pub fn is_encoder(&self) -> bool {
        matches!(self.origin, Origin::Encoder(_))
    }

    /// The rule by which its tensors become parameters. The options are of weights whose tensors are taken by their names.
    pub fn rule(&self, options: StartOptions) -> StartRule {
        let StartOptions { allow_extra, new_head, sum_stem, upkern } = options;
        let heads = match self.origin {
            Origin::Encoder(ref plan) => return StartRule::Encoder(plan.encoder.clone()),
            Origin::Checkpoint | Origin::NnUnet(_) => HeadRule::New,
            Origin::Run(_) | Origin::Weights if new_head => HeadRule::NewUnlessFitting,
            Origin::Run(_) | Origin::Weights => HeadRule::Taken,
        };
        StartRule::Names { allow_extra, heads, sum_stem, upkern }
    }

    /// Completes settings by those that are adopted, and by nnU-Net's for pre-trained encoders.
    ///
    /// # Errors
    /// Returns an error if something is adopted that the start does not say.
    pub fn complete(&self, settings: Settings, adopted: &BTreeSet<Adoption>) -> Result<Settings, ModelError> {
        let mut settings = settings;
        for what in adopted {
            settings = settings.or(self.adopted(*what)?);
        }
        if let Origin::Encoder(plan) = &self.origin {
            let mut defaults = FineTuning::settings(&settings, &plan.encoder);
            if settings.network_name().is_none() {
                defaults.network.net = plan.network.settings()?.net;
            }
            settings = settings.or(defaults);
        }
        Ok(settings)
    }

    /// The settings of a part.
    fn adopted(&self, what: Adoption) -> Result<Settings, ModelError> {
        let all = match &self.origin {
            Origin::Run(config) => config.plans()?,
            Origin::NnUnet(model) => self.of_model(&model.model, what)?,
            Origin::Encoder(plan) => Settings {
                network: plan.network.settings()?,
                patch_size: Some(plan.patch),
                spacing: match what {
                    Adoption::Spacing => Some(self.spacing_of(plan)?.into()),
                    _ => None,
                },
                ..Settings::default()
            },
            Origin::Checkpoint | Origin::Weights => {
                return Err(self.not_adopted(what, "a file of weights does not describe it"));
            }
        };
        let none = Settings::default();
        Ok(match what {
            Adoption::Patch => Settings { patch_size: all.patch_size, dimensions: all.dimensions, ..none },
            Adoption::Spacing => Settings { spacing: all.spacing, dimensions: all.dimensions, ..none },
            Adoption::Topology => Settings { network: all.network, ..none },
            Adoption::Normalisation => none,
        })
    }

    fn of_model(&self, model: &SegmentationModel, what: Adoption) -> Result<Settings, ModelError> {
        let Preparation::NnUnet(steps) = &model.preparation else { return Ok(Settings::default()) };
        if what != Adoption::Normalisation && steps.transposed != [0, 1, 2] {
            return Err(self.not_adopted(what, "its plans exchange the axes of images"));
        }
        Ok(Settings {
            network: model.net.settings()?,
            patch_size: Some(model.patch),
            spacing: Some(steps.spacing.into()),
            ..Settings::default()
        })
    }

    /// The spacing of a pre-training.
    fn spacing_of(&self, plan: &AdaptationPlan) -> Result<plimsoll_data::TargetSpacing, ModelError> {
        let [first, others @ ..] = &plan.pretraining[..] else {
            return Err(self.not_adopted(Adoption::Spacing, "its plan has no configuration"));
        };
        match first.spacing {
            _ if others.iter().any(|other| other.spacing != first.spacing) => {
                Err(self.not_adopted(Adoption::Spacing, "configurations of its plan have different ones"))
            }
            Some(spacing) => Ok(spacing.into()),
            None => Err(self.not_adopted(Adoption::Spacing, "its images kept their own")),
        }
    }

    /// The normalisation, if it is adopted.
    ///
    /// # Errors
    /// Returns an error if the start does not say it, or it is not one that nnU-Net gives a pre-trained encoder.
    pub fn normalisation(&self, adopted: &BTreeSet<Adoption>) -> Result<Option<NormalisationOf>, ModelError> {
        const WHAT: Adoption = Adoption::Normalisation;
        if !adopted.contains(&WHAT) {
            return Ok(None);
        }
        let channels = match &self.origin {
            Origin::Run(config) => return Ok(Some(NormalisationOf::Run(config.clone()))),
            Origin::NnUnet(model) => ChannelNormalisation::Each {
                channels: model.model.channels.iter().map(|channel| channel.normalisation).collect(),
                foreground: model.model.foreground.clone(),
            },
            Origin::Encoder(plan) => {
                let all = plan.pretraining.iter().flat_map(|of| &of.normalisations);
                // nnU-Net takes z-scores for all channels, whatever the pre-training had.
                if all.into_iter().any(|normalisation| *normalisation != Normalisation::ZScore) {
                    return Err(self.not_adopted(WHAT, "it was pre-trained with another one than z-scores"));
                }
                ChannelNormalisation::Alike(Normalisation::ZScore)
            }
            Origin::Checkpoint | Origin::Weights => {
                return Err(self.not_adopted(WHAT, "a file of weights does not describe it"));
            }
        };
        Ok(Some(NormalisationOf::Channels(channels)))
    }

    fn not_adopted(&self, what: Adoption, why: &str) -> ModelError {
        ModelError::NotAdopted { path: self.path.clone(), what: what.name(), why: why.into() }
    }

    /// Facts that a user may want to know, in lines.
    pub fn notes(&self) -> Vec<String> {
        let weights = self.weights.display();
        let first = match &self.origin {
            Origin::Encoder(plan) => {
                format!("the encoder of {}, pre-trained by nnssl: {weights}", plan.network.describe())
            }
            Origin::Checkpoint => format!("a checkpoint of nnU-Net: {weights}"),
            Origin::NnUnet(model) => format!("{} of nnU-Net: {weights}", model.configuration),
            Origin::Run(_) => format!("a run: {weights}"),
            Origin::Weights => format!("a file of weights: {weights}"),
        };
        let mut notes = vec![format!("start from {first}")];
        if let Origin::Encoder(plan) = &self.origin
            && !plan.unread.is_empty()
        {
            notes.push(format!("entries of the plan that have no effect: {}", plan.unread.join(", ")));
        }
        notes.iter().map(|note| plimsoll_run::printable(note).replace(['\n', '\t'], " ")).collect()
    }
}

impl Origin {
    /// The origin of a file: by its own entries, and else by the plan in its folder.
    fn of_file(path: &Path, folder: &Path, budget: &Budget) -> Result<Origin, ModelError> {
        let has_plan = folder.join(PLAN_FILE).is_file();
        if path.extension().is_some_and(|ending| ending == "safetensors") {
            return match has_plan {
                true => Ok(Origin::Encoder(Box::new(AdaptationPlan::read(folder, budget)?))),
                false => Ok(Origin::Weights),
            };
        }
        let file = PytorchFile::open(path, budget)?;
        // nnU-Net reads the plan of the checkpoint, and of the folder only whether there is one.
        if let Some(plan) = AdaptationPlan::within(&file, path, budget)? {
            return Ok(Origin::Encoder(Box::new(plan)));
        }
        if has_plan {
            return Ok(Origin::Encoder(Box::new(AdaptationPlan::read(folder, budget)?)));
        }
        Ok(if file.said(&[STATE_DICT]).is_some() { Origin::Checkpoint } else { Origin::Weights })
    }
}

/// The checkpoint beside a plan.
fn checkpoint_beside_plan(folder: &Path) -> Result<PathBuf, ModelError> {
    let usual = folder.join(CHECKPOINT);
    if usual.is_file() {
        return Ok(usual);
    }
    let entries = plimsoll_disk::read_dir(folder).map_err(|source| ModelError::io(folder, source))?;
    let is_weights = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "pth" || ending == "pt" || ending == "safetensors")
    };
    let found: Vec<PathBuf> = entries.into_iter().filter(is_weights).collect();
    match &found[..] {
        [only] => Ok(only.clone()),
        found => Err(refused(
            folder,
            format!("it has a plan, but {} files of weights and no {CHECKPOINT}", found.len()),
        )),
    }
}

fn refused(path: &Path, why: impl Into<String>) -> ModelError {
    ModelError::NoStart { path: path.into(), why: why.into() }
}
