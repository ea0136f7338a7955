//! Flags of `nnUNetv2_predict`, under the names that its users know.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use plimsoll_models::nnunet::NnUnetChoice;
use plimsoll_run::FoldName;

use crate::failure::{Failure, Outcome};

/// Options of nnU-Net's own command, by the same names.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "Models of nnU-Net (see docs/models.md)")]
pub struct NnUnetFlags {
    /// The model of a data set in the folder that the variable nnUNet_results names, with -c: its number or its name.
    #[arg(short, long, value_name = "DATASET", requires = "configuration")]
    pub dataset: Option<String>,
    /// Its configuration: 2d, 3d_fullres, 3d_lowres, 3d_cascade_fullres.
    #[arg(short, long, value_name = "NAME", requires = "dataset")]
    pub configuration: Option<String>,
    /// Its trainer, also -tr [default: nnUNetTrainer].
    #[arg(long = "tr", value_name = "NAME", requires = "dataset")]
    pub trainer: Option<String>,
    /// Its plans [default: nnUNetPlans].
    #[arg(short, long, value_name = "NAME", requires = "dataset")]
    pub plans: Option<String>,
    /// Folds to average: 0 1 2 3 4, or all [default: the existing folds].
    #[arg(short, long, value_name = "FOLD", num_args = 1.., value_parser = fold)]
    pub folds: Vec<FoldName>,
    /// The file of weights in the folder of a fold, also -chk [default: checkpoint_final.pth].
    #[arg(long = "chk", value_name = "FILE")]
    pub checkpoint_file: Option<String>,
    /// Treat the network as one of this trainer, if the checkpoint names an unknown one.
    #[arg(long, value_name = "NAME")]
    pub trainer_as: Option<String>,
    /// Do not predict mirrored windows, which models of nnU-Net otherwise do along their axes of mirroring.
    #[arg(long, alias = "disable_tta", conflicts_with = "mirror")]
    pub disable_tta: bool,
    /// The share of a window from one to the next, also -step_size: 1 less --overlap.
    #[arg(long, value_name = "SHARE", conflicts_with = "overlap")]
    pub step_size: Option<f64>,
    /// Labels that an earlier stage of a cascade predicted of the same images, also -prev_stage_predictions [default: the earlier stage
    /// is found beside the model, and predicts them].
    #[arg(long, value_name = "DIR")]
    pub prev_stage_predictions: Option<PathBuf>,
    /// Also write probabilities beside labels, as .npz.
    #[arg(long, alias = "save_probabilities")]
    pub save_probabilities: bool,
    /// Keep existing predictions, which is the default.
    #[arg(long, alias = "continue_prediction", conflicts_with = "overwrite")]
    pub continue_prediction: bool,
    /// Describe the model before prediction.
    #[arg(long)]
    pub verbose: bool,
    /// Post-process with the steps of this file, instead of the model's: nnU-Net's postprocessing.json, or one of
    /// Plimsoll's (see docs/postprocessing.md).
    #[arg(long, value_name = "FILE")]
    pub postprocessing: Option<PathBuf>,
}

pub(super) fn fold(text: &str) -> Result<FoldName, String> {
    text.parse().map_err(|_| "folds are 0, 1, 2, … or all".into())
}

/// nnU-Net's names where none are given.
const TRAINER: &str = "nnUNetTrainer";
const PLANS: &str = "nnUNetPlans";
/// The variable with nnU-Net's folder of models.
const RESULTS: &str = "nnUNet_results";

/// The number of a data set, by the name of its folder: `Dataset101_Spleen`, of three digits or more.
fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix("Dataset")?.split_once('_')?.0.parse().ok()
}

impl NnUnetFlags {
    /// The folder that names of a data set, a configuration, a trainer and plans lead to, if they are given.
    pub fn folder(&self) -> Outcome<Option<PathBuf>> {
        let (Some(dataset), Some(configuration)) = (&self.dataset, &self.configuration) else {
            return Ok(None);
        };
        let Some(results) =
            std::env::var_os(RESULTS).filter(|results| !results.is_empty()).map(PathBuf::from)
        else {
            let message = format!("-d {dataset} names a folder below {RESULTS}, which is not set");
            return Err(Failure::new(
                message,
                format!("set {RESULTS}, or name the folder of the model with -m"),
            ));
        };
        let entries =
            plimsoll_disk::read_dir(&results).map_err(|error| Failure::at_path(&results, &error))?;
        let number: Option<u32> = dataset.parse().ok();
        let named = |entry: &PathBuf| {
            let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name == dataset || (number.is_some() && number_of(name) == number)
        };
        let found: Vec<&PathBuf> = entries.iter().filter(|entry| named(entry)).collect();
        let [folder] = found[..] else {
            let message = format!("{} has {} folders for data set {dataset}", results.display(), found.len());
            return Err(Failure::new(message, "name one by its whole name with -d, or its folder with -m"));
        };
        let trainer = self.trainer.as_deref().unwrap_or(TRAINER);
        let plans = self.plans.as_deref().unwrap_or(PLANS);
        Ok(Some(folder.join(format!("{trainer}__{plans}__{configuration}"))))
    }

    /// The parts of a model folder to use.
    pub fn choice(&self) -> NnUnetChoice {
        let usual = NnUnetChoice::default();
        NnUnetChoice {
            folds: self.folds.clone(),
            checkpoint: self.checkpoint_file.clone().unwrap_or(usual.checkpoint),
            trainer: self.trainer_as.clone(),
        }
    }

    /// The given flags that have an effect only with models of nnU-Net; `-f` also with those of HD-BET.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("-f", !self.folds.is_empty()),
            ("-chk", self.checkpoint_file.is_some()),
            ("--trainer-as", self.trainer_as.is_some()),
            ("--disable_tta", self.disable_tta),
            ("-prev_stage_predictions", self.prev_stage_predictions.is_some()),
            ("--verbose", self.verbose),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_data_sets_have_three_digits_or_more() {
        assert_eq!(number_of("Dataset001_Spleen"), Some(1));
        assert_eq!(number_of("Dataset1234_Spleen_2"), Some(1234));
        for name in ["Dataset123", "Datasets_12", "Dataset_A", "Task001_A"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
