//! Post-processing that nnU-Net found helpful: keeping only the largest component of some labels.

use std::collections::BTreeSet;
use std::path::Path;

use plimsoll_memory::Budget;
use serde_json::Value;

use super::NnUnetError;
use super::entry::Entry;
use super::plans::{one_of, read};
use crate::ModelError;

const KEEP_LARGEST: &str = "remove_all_but_largest_component_from_segmentation";

/// Keeps the largest component of all voxels of some labels together, or several of the same size; other voxels of these labels become
/// background. Voxels that touch at a corner are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepLargest {
    /// The labels.
    pub labels: BTreeSet<u16>,
}

/// Reads `postprocessing.json`: steps, one after the other.
///
/// # Errors
/// Returns an error if it cannot be read, or has a step that is not known.
pub fn read_postprocessing(path: &Path, budget: &Budget) -> Result<Vec<KeepLargest>, ModelError> {
    let file = read::<Value>(path.into(), budget)?;
    let root = Entry::new(&file.path, "", &file.value);
    let functions = root.need("postprocessing_fns")?.list()?;
    let arguments = root.need("postprocessing_kwargs")?.list_of(functions.len())?;
    let step = |(function, arguments): (&Entry<'_>, &Entry<'_>)| -> Result<KeepLargest, NnUnetError> {
        one_of(function, "step of post-processing", &[KEEP_LARGEST])?;
        let mut labels = BTreeSet::new();
        collect(&arguments.need("labels_or_regions")?, 0, &mut labels)?;
        if let Some(background) = arguments.get("background_label")? {
            background.whole(0, 0)?;
        }
        Ok(KeepLargest { labels })
    };
    Ok(functions.iter().zip(&arguments).map(step).collect::<Result<_, _>>()?)
}

/// The values of a label, of a region, or of a list of such: all of them are taken together.
fn collect(entry: &Entry<'_>, depth: usize, labels: &mut BTreeSet<u16>) -> Result<(), NnUnetError> {
    if !entry.value().is_array() {
        let value = entry.whole(0, usize::from(u16::MAX))?;
        labels.insert(u16::try_from(value).map_err(|_| entry.refuse("it must fit 16 bits"))?);
        return Ok(());
    }
    if depth > 1 {
        return Err(entry.refuse("labels and regions are lists of numbers"));
    }
    entry.list()?.iter().try_for_each(|item| collect(item, depth + 1, labels))
}
