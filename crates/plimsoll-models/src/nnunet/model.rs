//! A folder with a trained configuration, as a model to predict with.

use std::path::{Path, PathBuf};

use plimsoll_data::Preparation;
use plimsoll_graph::DType;
use plimsoll_memory::Budget;
use plimsoll_nn::weights::{PytorchFile, Said, WeightSource};
use plimsoll_run::{FoldName, RunFolder, printable};

use super::NnUnetError;
use super::dataset::ModelDataset;
use super::network::{Ends, network, patch};
use super::plans::Plans;
use super::preparation::{Images, images};
use super::trainers::trainer;
use crate::{Answers, Interpolated, ModelError, SegmentationModel, WindowLayout};

/// The parts of a folder to predict with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NnUnetChoice {
    /// The folds; empty for all that have the checkpoint. As in nnU-Net, `all` is used only if there is no other fold.
    pub folds: Vec<FoldName>,
    /// The name of the file of a fold.
    pub checkpoint: String,
    /// The trainer that is taken instead of the one that the checkpoint names.
    pub trainer: Option<String>,
}

impl Default for NnUnetChoice {
    fn default() -> NnUnetChoice {
        NnUnetChoice { folds: Vec::new(), checkpoint: "checkpoint_final.pth".into(), trainer: None }
    }
}

/// A trained configuration of nnU-Net.
#[derive(Clone, Debug)]
pub struct NnUnetModel {
    /// The model.
    pub model: SegmentationModel,
    /// The data set that it was trained on, where the plans name it.
    pub dataset: Option<String>,
    /// The configuration: `2d`, `3d_fullres`, …
    pub configuration: String,
    /// The configuration whose labels it takes beside the image, if it is of a cascade.
    pub previous: Option<String>,
    /// The trainer.
    pub trainer: String,
    /// Its folds.
    pub folds: Vec<FoldName>,
}

impl NnUnetModel {
    /// Opens a folder that [`find_model`](super::find_model) finds: plans, description and the checkpoints of its folds, of which only
    /// the first is looked into for trainer, configuration and axes to mirror along, as nnU-Net does it.
    ///
    /// # Errors
    /// Returns an error if a file is not there, is none of nnU-Net, describes what is not done here as nnU-Net does it, or there is no
    /// room to read it.
    pub fn open(folder: &Path, choice: &NnUnetChoice, budget: &Budget) -> Result<NnUnetModel, ModelError> {
        let plans = Plans::read(folder, budget)?;
        let dataset = ModelDataset::read(folder, budget)?;
        let folds = folds(folder, choice)?;
        let weights: Vec<PathBuf> =
            folds.iter().map(|fold| checkpoint(folder, *fold, &choice.checkpoint)).collect();
        let no_fold = || no_fold(folder, choice, &folds);
        let first = weights.first().ok_or_else(no_fold)?;
        let Checkpoint { trainer: own, configuration, mirror } = Checkpoint::read(first, budget)?;
        let trainer_name = choice.trainer.clone().unwrap_or(own);
        let trainer = trainer(first, &trainer_name)?;
        let configuration = plans.configuration(&configuration)?;
        let previous = plans.previous(&configuration)?;
        let earlier_labels = match &previous {
            Some(_) => earlier_labels(&dataset, folder)?,
            None => 0,
        };
        let (patch, dimensions) = patch(&configuration)?;
        let ends =
            Ends { inputs: dataset.channels.len() + earlier_labels, outputs: dataset.answers.outputs() };
        let net = network(&configuration, ends, (patch, dimensions), trainer)?;
        let Images { steps, channels, foreground } = images(&plans, &configuration, &dataset, dimensions)?;
        let mirror_axes = mirror_axes(first, &mirror, dimensions)?;
        let name = plans.root().get("dataset_name")?.map(|name| name.text()).transpose()?;
        Ok(NnUnetModel {
            dataset: name.map(Into::into),
            configuration: configuration.name.clone(),
            previous,
            trainer: trainer_name,
            folds,
            model: SegmentationModel {
                net,
                patch,
                precision: DType::F32,
                weights: weights.into_iter().map(WeightSource::from).collect(),
                channels,
                file_ending: dataset.file_ending,
                foreground,
                preparation: Preparation::NnUnet(steps),
                earlier_labels,
                answers: dataset.answers,
                outputs: dataset.outputs,
                mirror_axes,
                windows: WindowLayout::Even,
                interpolated: Interpolated::Logits,
            },
        })
    }
}

/// Labels of an earlier network that stand behind the channels of the image: one channel for each label above 0, which must follow each
/// other, since an earlier network writes the places of its classes.
fn earlier_labels(dataset: &ModelDataset, folder: &Path) -> Result<usize, NnUnetError> {
    let consecutive = dataset.foreground.iter().zip(1u16..).all(|(value, expected)| *value == expected);
    if consecutive {
        return Ok(dataset.foreground.len());
    }
    Err(NnUnetError::Value {
        path: folder.join(ModelDataset::FILE),
        key: "labels".into(),
        found: format!("of the values {:?}", dataset.foreground),
        expected: "labels of a cascade must be 1, 2, 3, …".into(),
    })
}

pub(super) fn checkpoint(folder: &Path, fold: FoldName, name: &str) -> PathBuf {
    RunFolder::new(folder).fold(fold).path().join(name)
}

/// The requested folds, or the existing ones.
pub(super) fn folds(folder: &Path, choice: &NnUnetChoice) -> Result<Vec<FoldName>, ModelError> {
    let is_there = |fold: &FoldName| checkpoint(folder, *fold, &choice.checkpoint).is_file();
    if !choice.folds.is_empty() {
        return match choice.folds.iter().find(|fold| !is_there(fold)) {
            None => Ok(choice.folds.clone()),
            Some(_) => Err(no_fold(folder, choice, &choice.folds).into()),
        };
    }
    let entries = plimsoll_disk::read_dir(folder).map_err(|source| ModelError::io(folder, source))?;
    let named = |entry: &PathBuf| entry.file_name()?.to_str()?.strip_prefix("fold_")?.parse().ok();
    let mut found: Vec<FoldName> = entries.iter().filter_map(named).filter(is_there).collect();
    found.sort();
    found.dedup();
    // Numbers come before `all`.
    if found.len() > 1 && found.last() == Some(&FoldName::All) {
        found.pop();
    }
    match found.is_empty() {
        true => Err(no_fold(folder, choice, &[]).into()),
        false => Ok(found),
    }
}

pub(super) fn no_fold(folder: &Path, choice: &NnUnetChoice, folds: &[FoldName]) -> NnUnetError {
    let folds = match folds {
        [] => "any of its folders fold_0, fold_1, …, fold_all".into(),
        folds => folds.iter().map(|fold| format!("fold_{fold}")).collect::<Vec<_>>().join(", "),
    };
    NnUnetError::NoFold { folder: folder.into(), checkpoint: choice.checkpoint.clone(), folds }
}

/// The entries of a checkpoint beside its weights.
pub(super) struct Checkpoint {
    pub(super) trainer: String,
    pub(super) configuration: String,
    /// Axes of a window, of those that the network has.
    mirror: Vec<i64>,
}

impl Checkpoint {
    pub(super) fn read(path: &Path, budget: &Budget) -> Result<Checkpoint, ModelError> {
        let file = PytorchFile::open(path, budget)?;
        let text = |key: &[&str]| -> Result<String, NnUnetError> {
            match file.said(key) {
                Some(Said::Text(text)) => Ok(text.into()),
                Some(other) => Err(value(path, &key.join("."), &other, "it must be a text")),
                None => Err(NnUnetError::Missing { path: path.into(), key: key.join(".") }),
            }
        };
        const MIRROR: &str = "inference_allowed_mirroring_axes";
        let mirror = match file.said(&[MIRROR]) {
            // As in nnU-Net, nothing is mirrored by default.
            None | Some(Said::Nothing) => Vec::new(),
            Some(Said::Numbers(axes)) => axes,
            Some(other) => return Err(value(path, MIRROR, &other, "it must be a list of axes").into()),
        };
        Ok(Checkpoint {
            trainer: text(&["trainer_name"])?,
            configuration: text(&["init_args", "configuration"])?,
            mirror,
        })
    }
}

fn value(path: &Path, key: &str, found: &Said<'_>, expected: &str) -> NnUnetError {
    let found = match found {
        Said::Nothing => "nothing".into(),
        Said::Text(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
        Said::Number(number) => number.to_string(),
        Said::Numbers(numbers) => format!("{numbers:?}"),
        Said::Else => "something else".into(),
    };
    NnUnetError::Value { path: path.into(), key: key.into(), found, expected: expected.into() }
}

/// Axes of a checkpoint, which counts those that its network has, as axes of a window.
fn mirror_axes(path: &Path, axes: &[i64], dimensions: usize) -> Result<[bool; 3], NnUnetError> {
    let mut mirrored = [false; 3];
    for axis in axes {
        let own = usize::try_from(*axis).ok().filter(|axis| *axis < dimensions);
        match own.and_then(|axis| mirrored.get_mut(axis + 3 - dimensions)) {
            Some(mirrored) => *mirrored = true,
            None => {
                let found = Said::Numbers(axes.to_vec());
                let expected = format!("axes are from 0 to {}", dimensions - 1);
                return Err(value(path, "inference_allowed_mirroring_axes", &found, &expected));
            }
        }
    }
    Ok(mirrored)
}

impl NnUnetModel {
    /// A description in lines.
    pub fn lines(&self) -> Vec<String> {
        let SegmentationModel { net, patch, channels, answers, mirror_axes, earlier_labels, .. } =
            &self.model;
        let [depth, height, width] = patch;
        let names: Vec<&str> = channels.iter().map(|channel| channel.name.as_str()).collect();
        let folds: Vec<String> = self.folds.iter().map(FoldName::to_string).collect();
        let axes: Vec<String> =
            (0..3).filter(|axis| mirror_axes[*axis]).map(|axis| axis.to_string()).collect();
        let answers = match answers {
            Answers::Classes(classes) => format!("{classes} classes"),
            Answers::Regions(values) => format!("{} regions, written as {values:?}", values.len()),
        };
        let dataset = self.dataset.as_ref().map_or_else(String::new, |name| format!("{name} "));
        let mut lines = vec![
            format!("{dataset}{}, trained by {}", self.configuration, self.trainer),
            format!("network   {}", net.describe()),
            format!("windows   {depth} × {height} × {width}"),
            format!("channels  {}", names.join(", ")),
            format!("answers   {answers}"),
            format!("folds     {}", folds.join(", ")),
            format!(
                "mirrored  {}",
                if axes.is_empty() { "not".into() } else { format!("along axes {}", axes.join(", ")) }
            ),
        ];
        if let Some(previous) = &self.previous {
            lines.push(format!("takes     {earlier_labels} labels of {previous} beside the image"));
        }
        // These names are from files of unknown origin.
        lines.iter().map(|line| printable(line).replace(['\n', '\t'], " ")).collect()
    }
}
