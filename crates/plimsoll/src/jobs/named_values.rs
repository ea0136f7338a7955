//! The label values of predictions and references, matched by the names in their files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_data::{Labels, SegmentNames};
use plimsoll_metrics::CasePaths;
use plimsoll_volume::{SegmentCoding, Segments};

use crate::error::{Error, Outcome};

/// The remedy if nothing defines the number of a class.
const HINT: &str = "put a dataset.json with the labels beside the folder of references: both are then read by the names in the files";

/// Gives each case the classes of the values in its files. With the labels of a data set they follow from names, where files have names;
/// without, values are the numbers of classes, and files have to agree on their names.
pub fn name_values(cases: &mut [CasePaths], labels: Option<&Labels>) -> Outcome {
    let mut names = SegmentNames::default();
    let mut known = KnownNames::default();
    for case in cases {
        let [reference, prediction] = [names.read(&case.reference)?, names.read(&case.prediction)?];
        match labels {
            Some(labels) => {
                case.reference_values = labels.reference_values(reference.as_deref()).map(Arc::new);
                case.prediction_values = labels.prediction_values(prediction.as_deref()).map(Arc::new);
            }
            None => {
                for (path, segments) in [(&case.reference, reference), (&case.prediction, prediction)] {
                    known.add(path, segments.as_deref())?;
                }
            }
        }
    }
    Ok(())
}

/// The values that names have, and the names of values, with the first file that has them.
#[derive(Default)]
struct KnownNames {
    values: BTreeMap<String, (u8, PathBuf)>,
    names: BTreeMap<u8, (String, PathBuf)>,
}

impl KnownNames {
    /// Adds the names of a file.
    ///
    /// # Errors
    /// Returns an error if another file has another value for one of them, or another name for its value.
    fn add(&mut self, path: &std::path::Path, segments: Option<&Segments>) -> Outcome {
        // Layers have no values that numbers of classes could be: they are refused where they are read.
        let Some(segments) = segments.filter(|segments| segments.coding == SegmentCoding::Values) else {
            return Ok(());
        };
        for segment in &segments.named {
            let (name, value) = (&segment.name, segment.value);
            let (other, first) = self.values.entry(name.clone()).or_insert_with(|| (value, path.into()));
            if *other != value {
                let (path, first) = (path.display(), first.display());
                return Err(Error::new(
                    format!("{path}: {name:?} has the value {value}, but {other} in {first}"),
                    HINT,
                ));
            }
            let (other, first) = self.names.entry(value).or_insert_with(|| (name.clone(), path.into()));
            if other != name {
                let (path, first) = (path.display(), first.display());
                return Err(Error::new(
                    format!("{path}: the value {value} is {name:?}, but {other:?} in {first}"),
                    HINT,
                ));
            }
        }
        Ok(())
    }
}
