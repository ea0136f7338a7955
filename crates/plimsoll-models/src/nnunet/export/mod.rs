//! A run as a folder that nnU-Net predicts with.
//!
//! Network and weights are the same; what is done with images before and after is nnU-Net's, as near as its plans can say it.
//! [`DIFFERENCES`] says what is left.

mod checkpoint;
mod pickle;
mod plans;

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_memory::Budget;
use plimsoll_nn::weights::WeightSource;
use serde::Serialize;

use self::checkpoint::Said;
use self::plans::{Described, TRAINER};
use crate::{Model, ModelError};
use plimsoll_run::{FoldFolder, FoldName};

/// The differences of nnU-Net's behaviour with an exported folder, each in a sentence.
pub const DIFFERENCES: [&str; 4] = [
    "nnU-Net predicts each window mirrored as well, along the axes of training, unless it is given --disable_tta; here mirroring has to be asked for, and is along all axes.",
    "nnU-Net cuts images to the box of voxels that are not zero, and gives all voxels outside of it the background; here windows are laid over the whole image.",
    "nnU-Net resizes images and logits as arrays that are cut to that box, here the whole image is resized: where the spacing differs \
     from training, voxels at edges may differ.",
    "nnU-Net sums logits in half precision, here they are summed in single precision.",
];

/// The result of an export.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ExportedFolder {
    /// The configuration.
    pub configuration: String,
    /// The folds.
    pub folds: Vec<String>,
    /// The differences of nnU-Net's behaviour.
    pub differences: Vec<String>,
}

/// Writes a run, or one of its folds, as a folder that nnU-Net 2 predicts with. `plans.json` is written last: nnU-Net ignores a folder
/// without it.
///
/// # Errors
/// Returns an error if nnU-Net does not have such a network, the folder exists and is not empty, a checkpoint is damaged, the budget has
/// no room for a tensor, or the disk refuses. Written files are then removed.
pub fn export_nnunet(model: &Model, to: &Path, budget: &Budget) -> Result<ExportedFolder, ModelError> {
    let described = Described::new(&model.config)?;
    let folds = folds(model)?;
    expect_free(to)?;
    let mut written = Vec::new();
    let done = write(&described, &folds, to, budget, &mut written);
    if done.is_err() {
        // The error that led here is the one that counts.
        for path in written.iter().rev() {
            let _ = plimsoll_disk::remove_file(path).or_else(|_| plimsoll_disk::remove_folder(path));
        }
    }
    done?;
    Ok(ExportedFolder {
        configuration: described.configuration().into(),
        folds: folds.iter().map(|(name, _)| name.to_string()).collect(),
        differences: DIFFERENCES.map(String::from).to_vec(),
    })
}

/// Each fold's name and weights.
fn folds(model: &Model) -> Result<Vec<(FoldName, PathBuf)>, ModelError> {
    let named = |weights: &WeightSource| {
        let weights = &weights.path;
        let fold = weights.parent().and_then(FoldFolder::at);
        let fold = fold.ok_or_else(|| {
            let what = format!("{} is not in the folder of a fold", weights.display());
            refused(what, "name the folder of a run, or of one of its folds")
        })?;
        Ok((fold.name(), weights.clone()))
    };
    model.weights.iter().map(named).collect()
}

/// The first line of the file that is written first, by which a folder that a killed export left is known.
const TITLE: &str = "# A model of Plimsoll for nnU-Net 2";

/// The most bytes of that file that are read.
const LONGEST_README: u64 = 64 << 10;

/// The file that is written last.
const PLANS: &str = "plans.json";

/// Removes what an export left in a folder that was killed, as far as no process writes to it. A folder of anything else stays as it is.
fn remove_unfinished(to: &Path) -> io::Result<()> {
    let readme = to.join(README);
    if !to.is_dir() || plimsoll_disk::exists(to.join(PLANS))? {
        return Ok(());
    }
    let entries = plimsoll_disk::read_dir(to)?;
    let is_title = |text: String| text.lines().next() == Some(TITLE);
    let is_ours = match plimsoll_disk::exists(&readme)? {
        true => plimsoll_disk::read_to_string(&readme, LONGEST_README).is_ok_and(is_title),
        false => false,
    };
    // Before the first file has its name, there is only a temporary one.
    plimsoll_disk::atomic::sweep(to)?;
    if !is_ours {
        return Ok(());
    }
    for folder in entries.iter().filter(|path| FoldFolder::at(path).is_some() && path.is_dir()) {
        plimsoll_disk::atomic::sweep(folder)?;
        let weights = folder.join(WEIGHTS);
        if plimsoll_disk::exists(&weights)? {
            plimsoll_disk::remove_file(&weights)?;
        }
        // One that has other files is not ours, or is being written to.
        let _ = plimsoll_disk::remove_folder(folder);
    }
    for name in [DATASET, README] {
        if plimsoll_disk::exists(to.join(name))? {
            plimsoll_disk::remove_file(to.join(name))?;
        }
    }
    Ok(())
}

const README: &str = "README.md";
const DATASET: &str = "dataset.json";
const WEIGHTS: &str = "checkpoint_final.pth";

/// Checks that the folder does not exist or is empty.
fn expect_free(to: &Path) -> Result<(), ModelError> {
    remove_unfinished(to).map_err(|source| ModelError::io(to, source))?;
    if !plimsoll_disk::exists(to).map_err(|source| ModelError::io(to, source))? {
        return Ok(());
    }
    let is_empty =
        to.is_dir() && plimsoll_disk::read_dir(to).map_err(|source| ModelError::io(to, source))?.is_empty();
    match is_empty {
        true => Ok(()),
        false => {
            Err(refused(format!("{} already exists", to.display()), "choose another folder, or remove it"))
        }
    }
}

fn write(
    described: &Described<'_>,
    folds: &[(FoldName, PathBuf)],
    to: &Path,
    budget: &Budget,
    written: &mut Vec<PathBuf>,
) -> Result<(), ModelError> {
    make(to, written)?;
    write_text(&to.join(README), &readme(described, folds, to), written)?;
    let mirror = described.mirror();
    let said = Said { trainer: TRAINER, configuration: described.configuration(), mirror: &mirror };
    for (name, weights) in folds {
        let folder = to.join(format!("fold_{name}"));
        make(&folder, written)?;
        let path = folder.join(WEIGHTS);
        written.push(path.clone());
        checkpoint::write(weights, described.net, &said, &path, budget)?;
    }
    write_text(&to.join(DATASET), &pretty(to, &described.dataset())?, written)?;
    write_text(&to.join(PLANS), &pretty(to, &described.plans())?, written)
}

fn write_text(path: &Path, text: &str, written: &mut Vec<PathBuf>) -> Result<(), ModelError> {
    written.push(path.into());
    plimsoll_disk::atomic::write(path, |file| file.write_all(text.as_bytes()))
        .map_err(|source| ModelError::io(path, source))
}

/// Makes a folder, and those that it is in, where they are not there.
fn make(folder: &Path, written: &mut Vec<PathBuf>) -> Result<(), ModelError> {
    let failed = |source: io::Error| ModelError::io(folder, source);
    let mut missing = Vec::new();
    for above in folder.ancestors().take_while(|above| !above.as_os_str().is_empty()) {
        if plimsoll_disk::exists(above).map_err(failed)? {
            break;
        }
        missing.push(above.to_path_buf());
    }
    // Named first: some of them may be there when another one is refused.
    written.extend(missing.into_iter().rev());
    plimsoll_disk::create_dir_all(folder).map_err(failed)
}

/// JSON for people.
fn pretty(path: &Path, value: &impl Serialize) -> Result<String, ModelError> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| text + "\n").map_err(|problem| ModelError::io(path, problem.into()))
}

fn readme(described: &Described<'_>, folds: &[(FoldName, PathBuf)], to: &Path) -> String {
    let folder = to.file_name().map_or_else(|| "FOLDER".into(), |name| name.to_string_lossy());
    let configuration = described.configuration();
    let folds: Vec<String> = folds.iter().map(|(name, _)| name.to_string()).collect();
    let folds = folds.join(" ");
    let differences: String = DIFFERENCES.iter().map(|difference| format!("- {difference}\n")).collect();
    format!(
        "{TITLE}\n\n\
         ```sh\n\
         nnUNetv2_predict_from_modelfolder -m {folder} -i IMAGES -o LABELS -f {folds}\n\
         ```\n\n\
         For `nnUNetv2_predict -d 1 -c {configuration} -tr {TRAINER} -p nnUNetPlans -f {folds}` put it into the folder of the variable nnUNet_results, as\n\
         `Dataset001_NAME/{TRAINER}__nnUNetPlans__{configuration}`. Images are named CASE_0000{ending}, CASE_0001{ending}, … by channel.\n\n\
         The network and its weights are those of the run. What is done with images is nnU-Net's, which differs from Plimsoll in this:\n\n\
         {differences}\n\
         Where an image has the spacing of training and no border of zeros, only the first and the last are left. The folder holds nothing to train on with.\n",
        ending = described.task.dataset.file_ending,
    )
}

/// The error for a part that cannot be exported.
fn refused(what: String, hint: &'static str) -> ModelError {
    ModelError::NotExported { what, hint }
}
