//! Arguments of `compare`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use plimsoll::PairEnsembles;
use plimsoll::backend::DeviceName;

use super::{Compute, MissingScores, Ram};
use crate::failure::{Failure, Outcome};

/// Candidates to compare.
#[derive(Debug, ClapArgs)]
pub struct Compare {
    /// Folders of runs whose folds are validated, of single folds, or of predictions that `evaluate` scored; or of a sweep, whose arms are
    /// compared and whose seeds are repeats. Of label maps also a summary.json or a model folder of nnU-Net; of classifiers also tables that
    /// `predict` wrote.
    #[arg(required = true, value_name = "RUN|SWEEP")]
    pub candidates: Vec<PathBuf>,
    /// Scores, like dice,nsd, or of classifiers accuracy,auroc,quadratic_kappa; or all that every candidate has [default: dice; of classifiers
    /// accuracy,auroc].
    #[arg(long, value_name = "SCORE,…", value_delimiter = ',')]
    pub metric: Vec<String>,
    /// Classes, by name or number [default: all that are scored].
    #[arg(long = "class", value_name = "NAME,…", value_delimiter = ',')]
    pub classes: Vec<String>,
    /// Compare the cases that all candidates have, instead of requiring the same cases.
    #[arg(long)]
    pub common_cases: bool,
    /// For tables of images: each image has any number of the classes, as for `evaluate --several-labels`.
    #[arg(long)]
    pub several_labels: bool,
    /// For label maps: the treatment of scores that are undefined because only one of prediction and reference has a class [default:
    /// worst].
    #[arg(long, value_enum, value_name = "CONVENTION")]
    pub missing: Option<MissingScores>,
    /// The number of bootstrap resamples of cases, for intervals and the stability of the ranking.
    #[arg(long, value_name = "N", default_value = "10000")]
    pub resamples: NonZeroUsize,
    /// The seed of the resamples.
    #[arg(long, default_value_t)]
    pub seed: u64,
    /// Write a row for each pair, class and score here.
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Draw all differences with their intervals here.
    #[arg(long, value_name = "FILE.png")]
    pub picture: Option<PathBuf>,
    /// Also average each pair of candidates, and rank the averages with the others; results go into this folder. For classifiers, the
    /// probabilities of validation images are averaged. Networks that label voxels predict all validation cases of --data again, with 4
    /// bytes for each voxel and class of temporary disk space.
    #[arg(long, value_name = "DIR")]
    pub ensembles: Option<PathBuf>,
    /// With --ensembles of networks that label voxels: the data set that all were trained on.
    #[arg(long = "data", id = "dataset", value_name = "DATASET", requires = "ensembles")]
    pub dataset: Option<PathBuf>,
    /// With --ensembles: read files outside the data set's folder that its list or table names.
    #[arg(long, requires = "ensembles")]
    pub allow_outside: bool,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub compute: Compute,
}

impl Compare {
    /// The requested ensembles.
    pub fn ensembles(&self) -> Outcome<Option<PairEnsembles>> {
        let Compute { threads, device, vram } = self.compute;
        let given = [
            ("--threads", threads.threads.is_some()),
            ("--device", device != DeviceName::default()),
            ("--vram", vram.is_some()),
            ("--data", self.dataset.is_some()),
            ("--allow-outside", self.allow_outside),
        ];
        let of_predictions = given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag);
        match (&self.ensembles, of_predictions) {
            (Some(folder), _) => Ok(Some(PairEnsembles {
                folder: folder.clone(),
                dataset: self.dataset.clone(),
                allow_outside: self.allow_outside,
                of_predictions,
                backend: self.compute.open()?,
                threads: self.compute.threads.count(),
            })),
            (None, None) => Ok(None),
            (None, Some(flag)) => Err(Failure::new(
                format!("{flag} has no effect without --ensembles: nothing is predicted"),
                "leave it out",
            )),
        }
    }
}
