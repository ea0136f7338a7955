//! Importing models, showing what they are, and writing and verifying models in one file.

use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::model_file::{MODEL_ENDING, ModelFile, Verified, WrittenModel, export_model};
use plimsoll_models::nnunet::{self, models_below};
use plimsoll_models::{ModelSource, OpenOptions, OpenedModel, deepbet, hd_bet, tensorflow_js};
use plimsoll_run::CheckpointKind;
use serde::Serialize;

use super::memory_limit::MemoryLimit;
use crate::context::{Context, Progress};
use crate::error::{Error, Outcome};

/// The depth below a folder that is searched for models: folders of data sets, of trainers, of models.
const MOST_DEPTH: usize = 3;

/// Models of nnU-Net, a MeshNet of TensorFlow.js, HD-BET or deepbet, to import.
#[derive(Clone, Debug, Default)]
pub struct ImportRequest {
    /// An archive of nnU-Net, a folder with models in it, the `model.json` of a MeshNet or its folder, or the folder of HD-BET's folds, of
    /// deepbet's networks or of the package of one.
    pub from: PathBuf,
    /// The folder that they are put into.
    pub to: PathBuf,
    /// The memory limit; none for what the machine leaves.
    pub ram: Option<Bytes>,
}

/// Models that were imported.
#[derive(Clone, Debug, Serialize)]
pub struct ImportedModels {
    /// The folder that they were put into.
    pub folder: PathBuf,
    /// The number of files.
    pub files: usize,
    /// The length of all files.
    pub bytes: u64,
    /// Files with the text of a licence.
    pub licences: Vec<PathBuf>,
    /// The models.
    pub models: Vec<ShownModel>,
}

/// A model to show, or a folder with models of nnU-Net.
#[derive(Clone, Debug, Default)]
pub struct ShowRequest {
    /// The model or the folder.
    pub path: PathBuf,
    /// The memory limit; none for what the machine leaves.
    pub ram: Option<Bytes>,
}

/// A description of a model.
#[derive(Clone, Debug, Serialize)]
pub struct ShownModel {
    /// The folder or file of the model.
    pub folder: PathBuf,
    /// The description; empty if the model cannot be used.
    pub lines: Vec<String>,
    /// The reason why the model cannot be used; `None` if it can.
    pub error: Option<String>,
}

/// A run to write as a model in one file.
#[derive(Clone, Debug, Default)]
pub struct ModelFileRequest {
    /// The folder of the run, all folds of which are written, or of one fold.
    pub run: PathBuf,
    /// The file.
    pub file: PathBuf,
    /// The checkpoint.
    pub checkpoint: CheckpointKind,
    /// Replaces an existing file.
    pub overwrite: bool,
    /// The memory limit; none for what the machine leaves.
    pub ram: Option<Bytes>,
}

/// A model in one file to verify.
#[derive(Clone, Debug, Default)]
pub struct VerifyRequest {
    /// The file.
    pub file: PathBuf,
    /// The memory limit; none for what the machine leaves.
    pub ram: Option<Bytes>,
}

/// Imports models of nnU-Net, a MeshNet of TensorFlow.js, HD-BET or deepbet, and describes each.
///
/// # Errors
/// Returns an error if the source holds no model or cannot be read, or the destination cannot be written. Then nothing half-written is
/// left.
pub fn import_models(request: &ImportRequest, context: &Context) -> Outcome<ImportedModels> {
    let budget = MemoryLimit::set(request.ram, 1, context)?.budget;
    if let Some(file) = tensorflow_js::find(&request.from)? {
        let imported = tensorflow_js::import(&file, &request.to, &budget)?;
        let mut model = shown(&imported.model, &budget);
        model.lines.push(format!("SHA-256   {} of the imported weights", imported.sha256));
        return Ok(ImportedModels {
            folder: request.to.clone(),
            files: imported.files.len(),
            bytes: imported.files.iter().map(|(_, bytes)| bytes).sum(),
            licences: imported.licence.into_iter().collect(),
            models: vec![model],
        });
    }
    if let Some(folder) = hd_bet::find(&request.from) {
        let imported = hd_bet::import(&folder, &request.to, &budget)?;
        let mut model = shown(&imported.model, &budget);
        let hashes = imported.sha256.iter().enumerate();
        model.lines.extend(hashes.map(|(fold, hash)| format!("SHA-256   {hash} of fold {fold}")));
        return Ok(ImportedModels {
            folder: request.to.clone(),
            files: imported.files.len(),
            bytes: imported.files.iter().map(|(_, bytes)| bytes).sum(),
            licences: imported.licence.into_iter().collect(),
            models: vec![model],
        });
    }
    if let Some(folder) = deepbet::find(&request.from) {
        let imported = deepbet::import(&folder, &request.to, &budget)?;
        let mut model = shown(&imported.model, &budget);
        model.lines.extend(imported.sha256.iter().map(|(name, hash)| format!("SHA-256   {hash} of {name}")));
        return Ok(ImportedModels {
            folder: request.to.clone(),
            files: imported.files.len(),
            bytes: imported.files.iter().map(|(_, bytes)| bytes).sum(),
            licences: imported.licence.into_iter().collect(),
            models: vec![model],
        });
    }
    let mut work = None;
    let imported = nnunet::import(&request.from, &request.to, &budget, &mut |done, all| {
        report(&mut work, context, done, all)
    });
    drop(work);
    let imported = imported?;
    Ok(ImportedModels {
        folder: request.to.clone(),
        files: imported.files,
        bytes: imported.bytes,
        licences: imported.licences,
        models: imported.models.iter().map(|folder| shown(folder, &budget)).collect(),
    })
}

/// Describes the models of nnU-Net that are in a folder, or else the model that it is.
///
/// # Errors
/// Returns an error if there is no model, or the only one cannot be opened.
pub fn show_models(request: &ShowRequest, context: &Context) -> Outcome<Vec<ShownModel>> {
    let budget = MemoryLimit::set(request.ram, 1, context)?.budget;
    let path = &request.path;
    if path.is_dir() {
        let found = models_below(path, MOST_DEPTH)?;
        if !found.is_empty() {
            return Ok(found.iter().map(|folder| shown(folder, &budget)).collect());
        }
    }
    let lines = ModelSource::detect(path)?.describe(&budget)?;
    Ok(vec![ShownModel { folder: path.clone(), lines, error: None }])
}

/// Writes all folds of a run, or one of them, as a model in one file.
///
/// # Errors
/// Returns an error if there is no such run, the file exists and is not to be replaced, a checkpoint is damaged, or the disk refuses.
/// Then no new file is left.
pub fn write_model_file(request: &ModelFileRequest, context: &Context) -> Outcome<WrittenModel> {
    let file = &request.file;
    if file.extension().is_none_or(|ending| ending != MODEL_ENDING) {
        let message = format!("{} does not end in .{MODEL_ENDING}", file.display());
        return Err(Error::new(message, "‹job export› writes weights alone, to a .safetensors file"));
    }
    if file.exists() && !request.overwrite {
        let message = format!("{} already exists", file.display());
        return Err(Error::new(message, "choose another file, or ‹overwrite›"));
    }
    let budget = MemoryLimit::set(request.ram, 1, context)?.budget;
    ModelSource::detect(&request.run)?.expect_single()?;
    Ok(export_model(&request.run, request.checkpoint, file, &budget)?)
}

/// Reads all of a model in one file, and checks that every tensor is as it was written.
///
/// # Errors
/// Returns an error if the file is no model, cannot be read, or has a damaged tensor.
pub fn verify_model_file(request: &VerifyRequest, context: &Context) -> Outcome<Verified> {
    let budget = MemoryLimit::set(request.ram, 1, context)?.budget;
    let mut work = None;
    Ok(ModelFile::verify(&request.file, &budget, &mut |done, all| report(&mut work, context, done, all))?)
}

/// Reports bytes that are done, as work that begins with the first of them.
fn report(work: &mut Option<Progress>, context: &Context, done: u64, all: u64) {
    work.get_or_insert_with(|| context.work("bytes", all)).set(done, String::new());
}

/// Describes a model of nnU-Net, or says why it cannot be used.
fn shown(folder: &Path, budget: &Budget) -> ShownModel {
    let (lines, error) = match OpenedModel::open(folder, &OpenOptions::default(), budget) {
        Ok(model) => (model.lines(), None),
        Err(error) => (Vec::new(), Some(Error::from(error).to_string())),
    };
    ShownModel { folder: folder.into(), lines, error }
}
