//! Models of nnInteractive, which segment the object that prompts mark (Isensee et al. 2025, arXiv:2503.08373).
//!
//! ```text
//! MODEL/
//!     plans.json, dataset.json           as nnU-Net writes them
//!     inference_info.json                prompts that the model knows, and their channels
//!     inference_session_class.json       instead, in folders from before nnInteractive 2
//!     LICENSE                            its first line names the licence
//!     fold_0/checkpoint_final.pth        weights
//! ```
//!
//! The network takes the image, the previous segmentation and a pair of channels for each kind of prompt, and has two outputs: background
//! and object. Each entry has its meaning in nnInteractive 2.6.0.

mod capabilities;
mod license;

use std::path::{Path, PathBuf};

use plimsoll_data::{Channel, Normalisation, Preparation, TargetSpacing};
use plimsoll_graph::DType;
use plimsoll_memory::Budget;
use plimsoll_nn::weights::WeightSource;
use plimsoll_run::{FoldName, printable};
use plimsoll_volume::Spacing;

use super::NnUnetError;
use super::dataset::channel_names;
use super::model::{Checkpoint, NnUnetChoice, checkpoint, folds, no_fold};
use super::network::{Ends, network, patch};
use super::plans::Plans;
use super::trainers::{Trainer, trainer};
use crate::{Answers, Interpolated, ModelError, SegmentationModel, WindowLayout};

pub use capabilities::{ChannelPair, PromptChannels, PromptSettings};

use capabilities::Capabilities;

/// The outputs of a network of nnInteractive: background and object, however many labels its training had.
const OUTPUTS: usize = 2;
/// The beginning of the names of nnInteractive's own trainers, which use the network of the plans.
const OWN_TRAINERS: &str = "nnInteractiveTrainer";

/// A model that segments what prompts mark.
#[derive(Clone, Debug)]
pub struct InteractiveModel {
    /// The network over patches. Its channels are the image's and then the prompts'.
    pub network: SegmentationModel,
    /// The channels of prompts.
    pub channels: PromptChannels,
    /// The drawing of prompts.
    pub prompts: PromptSettings,
    /// The first line of the file `LICENSE`, or the known licence of the official model; `None` if it is unknown.
    pub license: Option<String>,
    /// The folder.
    pub folder: PathBuf,
}

/// Returns `true` if a folder is a model of nnInteractive.
pub fn is_interactive(folder: &Path) -> bool {
    super::find::holds_model(folder) && Capabilities::FILES.iter().any(|file| folder.join(file).is_file())
}

impl InteractiveModel {
    /// Opens the folder of a model. Without a fold, it must have exactly one.
    ///
    /// # Errors
    /// Returns an error if a file is missing or damaged, the model takes other images than those of one channel in three dimensions, or it
    /// describes what nnInteractive 2.6.0 does not know.
    pub fn open(
        folder: &Path,
        fold: Option<FoldName>,
        budget: &Budget,
    ) -> Result<InteractiveModel, ModelError> {
        let Capabilities { channels, prompts } = Capabilities::read(folder, budget)?;
        let plans = Plans::read(folder, budget)?;
        let names = channel_names(folder, budget)?;
        let choice = NnUnetChoice { folds: fold.into_iter().collect(), ..NnUnetChoice::default() };
        let found = folds(folder, &choice)?;
        let [fold] = found[..] else {
            return Err(NnUnetError::SeveralFolds { folder: folder.into(), folds: found }.into());
        };
        let weights = checkpoint(folder, fold, &choice.checkpoint);
        if !weights.is_file() {
            return Err(no_fold(folder, &choice, &found).into());
        }
        let Checkpoint { trainer: name, configuration, .. } = Checkpoint::read(&weights, budget)?;
        let trainer =
            if name.starts_with(OWN_TRAINERS) { Trainer::AsPlanned } else { trainer(&weights, &name)? };
        let license = license::read(folder, &plans, &configuration)?;
        let configuration = plans.configuration(&configuration)?;
        let [image] = &names[..] else {
            return Err(NnUnetError::ImageChannels { folder: folder.into(), found: names.len() }.into());
        };
        let (patch, dimensions) = patch(&configuration)?;
        let entry = configuration.need("patch_size")?;
        if dimensions != 3 || patch.iter().any(|extent| *extent <= 2 * REFINED_MARGIN) {
            let least = 2 * REFINED_MARGIN + 1;
            return Err(entry.refuse(format!("it must be three extents of {least} at least")).into());
        }
        let ends = Ends { inputs: 1 + channels.count, outputs: OUTPUTS };
        let net = network(&configuration, ends, (patch, dimensions), trainer)?;
        let channel = |name: String, normalisation| Channel { name, normalisation };
        let prompt_names = channels.names().into_iter().map(|name| channel(name, Normalisation::None));
        let all = std::iter::once(channel(image.clone(), Normalisation::ZScore)).chain(prompt_names);
        Ok(InteractiveModel {
            network: SegmentationModel {
                net,
                patch,
                precision: DType::F32,
                weights: vec![WeightSource::from(weights)],
                channels: all.collect(),
                file_ending: ".nii.gz".into(),
                foreground: Default::default(),
                preparation: Preparation::Canonical { spacing: TargetSpacing::Native(Spacing([1.0; 3])) },
                earlier_labels: 0,
                answers: Answers::Classes(OUTPUTS),
                outputs: vec!["background".into(), "object".into()],
                mirror_axes: [false; 3],
                windows: WindowLayout::Even,
                interpolated: Interpolated::Logits,
            },
            channels,
            prompts,
            license,
            folder: folder.into(),
        })
    }

    /// Depth, height, width of a patch.
    pub fn patch(&self) -> [usize; 3] {
        self.network.patch
    }

    /// A description in lines.
    pub fn lines(&self) -> Vec<String> {
        let InteractiveModel { network, channels, prompts, license, .. } = self;
        let [depth, height, width] = network.patch;
        let lines = [
            format!("network   {}", network.net.describe()),
            format!("patches   {depth} × {height} × {width}"),
            format!("prompts   {}", channels.kinds().join(", ")),
            format!("points    of radius {}, prompts fade by {}", prompts.point_radius, prompts.decay),
            format!("licence   {}", license.as_deref().unwrap_or("unknown")),
        ];
        // Some names are from files of unknown origin.
        lines.iter().map(|line| printable(line).replace(['\n', '\t'], " ")).collect()
    }
}

/// The voxels at each face of a refined patch that do not count as covered.
pub const REFINED_MARGIN: usize = 24;
