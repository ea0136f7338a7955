//! Pairs of predictions and references: the pairing of images with label maps, applied to two sets of label
//! maps.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::dataset::DatasetError;
use crate::dataset::layout::matching::{Named, matched};
use crate::dataset::names::{file_name, list};

/// A reference label map with the name that its case goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceMap {
    /// The case, or the name of the file without its ending where no data set names cases.
    pub name: String,
    /// The label map.
    pub path: PathBuf,
}

/// A prediction with its reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictedPair {
    /// The name of the prediction without its ending.
    pub case: String,
    /// The predicted label map.
    pub prediction: PathBuf,
    /// The reference label map.
    pub reference: PathBuf,
}

/// Lists the label maps of a folder whose names end in `ending`, sorted by name.
///
/// # Errors
/// If the folder cannot be listed.
pub fn reference_maps(folder: &Path, ending: &str) -> Result<Vec<ReferenceMap>, DatasetError> {
    let map = |path: PathBuf| {
        let name = file_name(&path).strip_suffix(ending).filter(|stem| !stem.is_empty())?.to_string();
        Some(ReferenceMap { name, path })
    };
    Ok(list(folder)?.into_iter().filter_map(map).collect())
}

/// Finds the prediction of every reference among the files of a folder that end in `ending`: the one of the same name, else the one that a
/// data set would pair as image and label map, like `mv01` and `mv01_y`. With `partial`, references without a prediction are left out.
///
/// # Errors
/// If the folder cannot be listed, no reference or not every reference has a prediction, or names are ambiguous.
pub fn pair_predictions(
    predictions: &Path,
    ending: &str,
    references: &Path,
    maps: Vec<ReferenceMap>,
    partial: bool,
) -> Result<Vec<PredictedPair>, DatasetError> {
    let mut unpaired: BTreeSet<String> =
        reference_maps(predictions, ending)?.into_iter().map(|map| map.name).collect();
    let pair = |case: &str, reference: PathBuf| PredictedPair {
        case: case.into(),
        prediction: predictions.join(format!("{case}{ending}")),
        reference,
    };
    let (mut pairs, mut others) = (Vec::new(), Vec::new());
    for map in maps {
        match unpaired.remove(&map.name) {
            true => pairs.push(pair(&map.name, map.path)),
            false => others.push(Named { stem: map.name, path: map.path }),
        }
    }
    let left: Vec<String> = unpaired.into_iter().collect();
    let matches = matched(references, &left, others)?;
    pairs.extend(matches.labels.into_iter().map(|(case, path)| pair(&case, path)));
    if pairs.is_empty() {
        let (predictions, references) = (predictions.into(), references.into());
        return Err(DatasetError::NoPredictions { predictions, references });
    }
    if !matches.unused.is_empty() && !partial {
        let missing = matches.unused.iter().map(|path| file_name(path)).collect();
        let (predictions, references) = (predictions.into(), references.into());
        return Err(DatasetError::MissingPredictions { predictions, references, missing });
    }
    pairs.sort_by(|one, other| one.case.cmp(&other.case));
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(predictions: &[&str], references: &[&str], partial: bool) -> Result<Vec<[String; 2]>, String> {
        let dir = tempfile::tempdir().unwrap();
        let folders = ["predictions", "references"].map(|name| dir.path().join(name));
        for (folder, names) in folders.iter().zip([predictions, references]) {
            std::fs::create_dir(folder).unwrap();
            for name in names {
                std::fs::write(folder.join(format!("{name}.nii.gz")), []).unwrap();
            }
        }
        let maps = reference_maps(&folders[1], ".nii.gz").unwrap();
        let found = pair_predictions(&folders[0], ".nii.gz", &folders[1], maps, partial);
        let names = |pair: PredictedPair| [file_name(&pair.prediction), file_name(&pair.reference)];
        found.map(|found| found.into_iter().map(names).collect()).map_err(|error| error.to_string())
    }

    fn named(expected: &[[&str; 2]]) -> Result<Vec<[String; 2]>, String> {
        Ok(expected.iter().map(|pair| pair.map(|name| format!("{name}.nii.gz"))).collect())
    }

    #[test]
    fn references_are_paired_with_predictions_as_images_with_label_maps() {
        assert_eq!(pairs(&["b", "a"], &["a", "b"], false), named(&[["a", "a"], ["b", "b"]]));
        assert_eq!(
            pairs(&["mv01", "mv02"], &["mv01_y", "mv02_y"], false),
            named(&[["mv01", "mv01_y"], ["mv02", "mv02_y"]])
        );
        // Names that are equal go first: a case that is missing does not take the prediction of another.
        assert_eq!(pairs(&["p_1"], &["p_1", "p_1_2"], true), named(&[["p_1", "p_1"]]));
    }

    #[test]
    fn references_without_a_prediction_are_named() {
        let error = pairs(&["a"], &["a", "b"], false).unwrap_err();
        assert!(error.starts_with("1 of the references in ") && error.ends_with(": b.nii.gz"), "{error}");
        let error = pairs(&["x"], &["a"], true).unwrap_err();
        assert!(error.contains("has no prediction for any reference"), "{error}");
    }
}
