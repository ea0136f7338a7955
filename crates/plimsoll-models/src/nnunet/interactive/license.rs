//! The licence of a model.

use std::io::Read;
use std::path::Path;

use super::super::plans::Plans;
use crate::ModelError;

const FILE: &str = "LICENSE";
/// The most bytes of the file that are read: the first line is the name of the licence.
const MOST_READ: usize = 4096;
/// The licence of the official model, whose folders from before nnInteractive 2 have no file.
const OFFICIAL: &str = "CC BY-NC-SA 4.0";
const OFFICIAL_DATASET: &str = "Dataset225_nnInteractiveV2";
const OFFICIAL_CONFIGURATION: &str = "3d_fullres_ps192_bs24";

/// Returns the first line of the file that is not empty, or the known licence of the official model.
pub(super) fn read(folder: &Path, plans: &Plans, configuration: &str) -> Result<Option<String>, ModelError> {
    let path = folder.join(FILE);
    if path.is_file() {
        let failed = |source| ModelError::io(&path, source);
        let mut file = plimsoll_disk::File::open(&path).map_err(failed)?;
        let (mut bytes, mut read) = ([0; MOST_READ], 0);
        loop {
            match file.read(&mut bytes[read..]).map_err(failed)? {
                0 => break,
                more => read += more,
            }
        }
        let text = String::from_utf8_lossy(&bytes[..read]);
        let first = text.lines().map(str::trim).find(|line| !line.is_empty());
        if let Some(first) = first {
            return Ok(Some(first.into()));
        }
    }
    let dataset = plans.root().get("dataset_name")?.map(|name| name.text()).transpose()?;
    let is_official = dataset == Some(OFFICIAL_DATASET) && configuration == OFFICIAL_CONFIGURATION;
    Ok(is_official.then(|| OFFICIAL.into()))
}
