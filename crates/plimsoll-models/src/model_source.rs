//! The kind of model at a path, recognised by its contents; only files that end in `.toml` are recognised by name.

use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_memory::Budget;
use plimsoll_run::{
    FoldFolder, FolderUse, RunConfig, RunError, RunFolder, Settings, Specification, Task, pairs_in,
};

use crate::hd_bet::HdBetModel;
use crate::model::first_fold;
use crate::model_file::{MODEL_ENDING, ModelFile};
use crate::monai::MonaiModel;
use crate::nnunet::is_nnunet;
use crate::open::{lines_of_run, pair_lines};
use crate::{Model, ModelError, OpenOptions, OpenedModel};

/// The beginning of a file that is looked at.
const BEGINNING: usize = 4096;

/// The kind of model at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// The folder of a run of this program, or of one fold of it.
    Run(PathBuf),
    /// The folder of classifiers of pairs of classes, each a run; the pairs by the numbers of their labels, in order.
    Pairs {
        /// The folder.
        folder: PathBuf,
        /// The pairs: one at least.
        pairs: Vec<(u32, u32)>,
    },
    /// A folder of nnU-Net: of a trained configuration, or one with such in it.
    NnUnet(PathBuf),
    /// A file with all folds of a run, [`ModelFile`].
    File(PathBuf),
    /// The folder of a bundle of MONAI.
    MonaiBundle(PathBuf),
    /// A `model.toml` that describes weights of MONAI, of HD-BET or of deepbet.
    MonaiConfig(PathBuf),
}

impl ModelSource {
    /// Recognises the model at a path.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or is no model of these kinds.
    pub fn detect(path: &Path) -> Result<ModelSource, ModelError> {
        let metadata = plimsoll_disk::metadata(path).map_err(|source| ModelError::io(path, source))?;
        match metadata.is_dir() {
            true => ModelSource::detect_folder(path),
            false => ModelSource::detect_file(path),
        }
    }

    fn detect_folder(path: &Path) -> Result<ModelSource, ModelError> {
        let mut uses = FolderUse::all_of(path)?.into_iter();
        if let (Some(one), Some(other)) = (uses.next(), uses.next()) {
            return Err(ModelError::SeveralUses { folder: path.into(), found: (one, other) });
        }
        let is_fold = FoldFolder::at(path).is_some_and(|fold| fold.is_begun());
        if is_fold || !RunFolder::new(path).folds()?.is_empty() {
            return Ok(ModelSource::Run(path.into()));
        }
        let pairs = pairs_in(path)?;
        if !pairs.is_empty() {
            return Ok(ModelSource::Pairs { folder: path.into(), pairs });
        }
        if is_nnunet(path)? {
            return Ok(ModelSource::NnUnet(path.into()));
        }
        if MonaiModel::is_bundle(path) {
            return Ok(ModelSource::MonaiBundle(path.into()));
        }
        let why = "it has no fold_0 of a run, no plans.json of nnU-Net and no configs/inference.json or .yaml of a MONAI bundle";
        Err(ModelError::NotAModel { path: path.into(), why: why.into() })
    }

    fn detect_file(path: &Path) -> Result<ModelSource, ModelError> {
        let refuse = |why: &str| ModelError::NotAModel { path: path.into(), why: why.into() };
        let mut beginning = Vec::with_capacity(BEGINNING);
        let file = File::open(path).map_err(|source| ModelError::io(path, source))?;
        let length = file.len().map_err(|source| ModelError::io(path, source))?;
        #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
        let read = file.take(BEGINNING as u64).read_to_end(&mut beginning);
        read.map_err(|source| ModelError::io(path, source))?;
        // Neither of the others begins as a text: both have bytes of numbers that are zero.
        if MonaiModel::is_config(path, &beginning, length) {
            return Ok(ModelSource::MonaiConfig(path.into()));
        }
        // The length of a header of safetensors, whose text begins behind it.
        if beginning.get(8) == Some(&b'{') {
            return match ModelFile::is_one(path)?
                || path.extension().is_some_and(|ending| ending == MODEL_ENDING)
            {
                true => Ok(ModelSource::File(path.into())),
                false => Err(refuse(
                    "it is a file of weights alone, which does not describe how images are prepared",
                )),
            };
        }
        if beginning.starts_with(b"PK") {
            return Err(refuse("it is an archive: of weights alone, or of a model that must be imported"));
        }
        Err(refuse("it is neither a .plimsoll file nor a model.toml"))
    }
}

impl ModelSource {
    /// Returns whether the model gives each image a class as a whole. A run that cannot be read is none: opening it says why.
    ///
    /// # Errors
    /// Returns an error if a model in one file cannot be read.
    pub fn is_classifier(&self) -> Result<bool, ModelError> {
        let is_of_images = |config: &RunConfig| matches!(config.task, Task::Classification(_));
        match self {
            ModelSource::Pairs { .. } => Ok(true),
            ModelSource::Run(folder) => Ok(Model::plans(folder).is_ok_and(|config| is_of_images(&config))),
            ModelSource::File(file) => Ok(is_of_images(&ModelFile::open(file)?.record.config)),
            ModelSource::NnUnet(_) | ModelSource::MonaiBundle(_) | ModelSource::MonaiConfig(_) => Ok(false),
        }
    }

    /// Checks that it is a single model.
    ///
    /// # Errors
    /// Returns an error if it has a model for each pair of classes.
    pub fn expect_single(&self) -> Result<(), ModelError> {
        match self {
            ModelSource::Pairs { folder, pairs } => Err(ModelError::pairs_refused(folder, pairs)),
            _ => Ok(()),
        }
    }

    /// Returns whether the model is one of MONAI.
    pub fn is_monai(&self) -> bool {
        matches!(self, ModelSource::MonaiBundle(_) | ModelSource::MonaiConfig(_))
    }

    /// Returns whether the model is one of HD-BET, which has numbered folds.
    pub fn is_hd_bet(&self) -> bool {
        matches!(self, ModelSource::MonaiConfig(path) if HdBetModel::is_one(path))
    }

    /// The settings that a run began with, or of the first of several pairs; `None` for models of other programs and runs without a fold.
    ///
    /// # Errors
    /// Returns an error if a specification or a model file cannot be read.
    pub fn settings(&self) -> Result<Option<Settings>, ModelError> {
        let run = match self {
            ModelSource::File(file) => return Ok(Some(ModelFile::open(file)?.record.settings)),
            ModelSource::Pairs { folder, pairs } => {
                pairs.first().map(|pair| RunFolder::for_pair(folder, *pair).path().to_path_buf())
            }
            ModelSource::Run(folder) => Some(folder.clone()),
            ModelSource::NnUnet(_) | ModelSource::MonaiBundle(_) | ModelSource::MonaiConfig(_) => None,
        };
        let fold = run.map(|run| first_fold(&run)).transpose()?.flatten();
        let read = |fold| -> Result<Settings, RunError> { Ok(Specification::read(&fold)?.settings) };
        Ok(fold.map(read).transpose()?)
    }

    /// Describes the model, in lines. A run needs no weights for it.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened.
    pub fn describe(&self, budget: &Budget) -> Result<Vec<String>, ModelError> {
        match self {
            ModelSource::Run(folder) => Ok(lines_of_run(&Model::plans(folder)?)),
            ModelSource::Pairs { folder, pairs } => {
                let first = pairs.first().map(|pair| Model::plans(RunFolder::for_pair(folder, *pair).path()));
                Ok(pair_lines(pairs.len(), first.transpose()?.as_ref()))
            }
            ModelSource::File(path)
            | ModelSource::NnUnet(path)
            | ModelSource::MonaiBundle(path)
            | ModelSource::MonaiConfig(path) => {
                Ok(OpenedModel::open(path, &OpenOptions::default(), budget)?.lines())
            }
        }
    }
}
