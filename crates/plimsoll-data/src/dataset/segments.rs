//! Classes by the names that label maps give their values.
//!
//! Names are in the headers of `.seg.nrrd` and of DICOM SEG and in tables of labels of NIfTI, and in a `dseg.tsv` beside a label map of BIDS. A value means
//! what its own file says, so that two files may number the same classes differently.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::iter::successors;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_volume::{Content, LabelValues, SegmentCoding, Segments, VolumeFile};

use crate::dataset::json::read_bounded;
use crate::dataset::label_entries::IGNORE;
use crate::dataset::names::{BIDS_DESCRIPTION, file_name, list, name_ending, stem};
use crate::dataset::{DatasetError, Labels, SegmentRule, SegmentsBy};

/// The most folders above a label map that are searched for tables of names: a modality, a session, a subject, and the data set.
const MOST_FOLDERS: usize = 5;

/// The ending of the names of BIDS tables.
const TABLE: &str = "dseg.tsv";

/// The endings of formats whose headers name values.
const NAMING: [&str; 6] = [".nrrd", ".nhdr", ".nii", ".nii.gz", ".nii.zst", ".dcm"];

/// A table of names, and the entities of its own name.
#[derive(Clone)]
struct Table {
    entities: BTreeSet<String>,
    segments: Arc<Segments>,
}

/// Finds the names of values, reading each table once.
#[derive(Default)]
pub struct SegmentNames {
    tables: BTreeMap<PathBuf, Vec<Table>>,
}

impl SegmentNames {
    /// The names that a label map has for its values, if it has any. A file that is missing or not a volume has none; the reader
    /// of its voxels reports the reason.
    ///
    /// # Errors
    /// If the operating system cannot read the file or a table beside it, or the table gives a value two names.
    pub fn read(&mut self, path: &Path) -> Result<Option<Arc<Segments>>, DatasetError> {
        let name = file_name(path);
        if name.starts_with("sub-")
            && let Some(found) = self.find_in_tables(path)?
        {
            return Ok(Some(found));
        }
        let ending = name_ending(&name).map(str::to_ascii_lowercase);
        // A file of DICOM need not end in `.dcm`, and may be alone in a folder.
        if ending.is_some_and(|ending| !NAMING.contains(&&*ending)) {
            return Ok(None);
        }
        match VolumeFile::open_as(path, Content::Segments { on: None }) {
            Ok(file) => Ok(file.segments().cloned().map(Arc::new)),
            // The next try may succeed, and would read other classes without the names.
            Err(error) if is_of_system(&error) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// The table of BIDS that is for a file: in its folder or one above it, the nearest, and there the one that shares the most entities.
    fn find_in_tables(&mut self, path: &Path) -> Result<Option<Arc<Segments>>, DatasetError> {
        let own = entities(&stem(path));
        for folder in path.ancestors().skip(1).take(MOST_FOLDERS) {
            // Of a relative path the last one is empty.
            if folder.as_os_str().is_empty() {
                break;
            }
            let tables = self.in_folder(folder)?;
            let fitting = tables.iter().filter(|table| table.entities.is_subset(&own));
            if let Some(table) = fitting.max_by_key(|table| table.entities.len()) {
                return Ok(Some(Arc::clone(&table.segments)));
            }
            // Above the data set are others'.
            if folder.join(BIDS_DESCRIPTION).exists() || file_name(folder) == "derivatives" {
                break;
            }
        }
        Ok(None)
    }

    fn in_folder(&mut self, folder: &Path) -> Result<&[Table], DatasetError> {
        if !self.tables.contains_key(folder) {
            let mut tables = Vec::new();
            let paths = match list(folder) {
                Ok(paths) => paths,
                // A folder above the label map that may not be listed has no table for it.
                Err(DatasetError::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            for path in paths.iter().filter(|path| file_name(path).ends_with(TABLE)) {
                if let Some(segments) = table(path)? {
                    let name = file_name(path);
                    let entities = entities(name.strip_suffix(".tsv").unwrap_or(&name));
                    tables.push(Table { entities, segments: Arc::new(segments) });
                }
            }
            self.tables.insert(folder.to_path_buf(), tables);
        }
        Ok(self.tables.get(folder).map_or(&[], Vec::as_slice))
    }
}

/// Returns `true` if the operating system failed to read a file that it has.
fn is_of_system(error: &(dyn Error + 'static)) -> bool {
    successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.raw_os_error().is_some() && error.kind() != io::ErrorKind::NotFound)
}

/// The parts of a name like `sub-01` and `desc-manual`.
fn entities(stem: &str) -> BTreeSet<String> {
    stem.split('_').filter(|part| part.contains('-')).map(str::to_string).collect()
}

/// The names of a table of BIDS; none of one without the columns `index` and `name`.
fn table(path: &Path) -> Result<Option<Segments>, DatasetError> {
    let text = String::from_utf8_lossy(&read_bounded(path)?).into_owned();
    let text = text.trim_start_matches('\u{feff}');
    let mut lines = text.lines().map(|line| line.split('\t').map(str::trim).collect::<Vec<_>>());
    let Some(header) = lines.next() else { return Ok(None) };
    let column = |name: &str| header.iter().position(|found| *found == name);
    let Some((index, name)) = column("index").zip(column("name")) else { return Ok(None) };
    let mut names: BTreeMap<u8, String> = BTreeMap::new();
    for line in lines {
        let value = line.get(index).and_then(|value| value.parse().ok());
        let Some((value, name)) = value.zip(line.get(name)) else { continue };
        if let Some(other) = names.insert(value, (*name).to_string()).filter(|other| other != name) {
            return Err(DatasetError::Layout {
                path: path.into(),
                problem: format!("the value {value} has the names {other:?} and {name:?}"),
                hint: "give each value one name".into(),
            });
        }
    }
    Ok((!names.is_empty()).then(|| Segments::from_table(names)))
}

/// The label and the region that a name denotes in a data set.
#[derive(Clone, Copy, Default)]
struct Meaning {
    label: Option<u8>,
    region: Option<usize>,
}

impl Labels {
    /// The same, with what names in label maps are, if that is not what classes are called.
    #[must_use]
    pub fn with_segments(mut self, segments: Option<SegmentRule>) -> Labels {
        self.segments = segments;
        self
    }

    /// The class of each value of a reference, by the names that it gives them; `None` if values are the
    /// numbers of classes.
    pub fn reference_values(&self, segments: Option<&Segments>) -> Option<LabelValues> {
        match segments {
            // Numbers of segments are no values that files store.
            Some(segments) if !self.is_by_value() || segments.coding != SegmentCoding::Values => {
                Some(self.values_by_name(segments))
            }
            _ => self.file_values(),
        }
    }

    /// The same of a prediction, whose values are the numbers of classes where it gives them no names.
    pub fn prediction_values(&self, segments: Option<&Segments>) -> Option<LabelValues> {
        segments
            .filter(|segments| !self.is_by_value() || segments.coding != SegmentCoding::Values)
            .map(|segments| self.values_by_name(segments))
    }

    fn is_by_value(&self) -> bool {
        matches!(self.segments, Some(SegmentRule::By(SegmentsBy::Values)))
    }

    /// The class of each value of a label map, by the names that the map gives them.
    fn values_by_name(&self, segments: &Segments) -> LabelValues {
        let aliases = match &self.segments {
            Some(SegmentRule::Names(names)) => Some(names),
            Some(SegmentRule::By(SegmentsBy::Values)) | None => None,
        };
        LabelValues::from_segments(segments, |names| {
            let named = names.iter().map(|name| {
                let name = aliases.and_then(|aliases| aliases.get(*name)).map_or(*name, String::as_str);
                self.meaning(name)
            });
            self.class_of(&named.collect::<Vec<_>>())
        })
    }

    /// The class of voxels in segments of these meanings.
    fn class_of(&self, named: &[Meaning]) -> Option<u8> {
        if let [Meaning { label: Some(label), .. }] = named {
            return Some(*label);
        }
        if named.iter().any(|meaning| meaning.label.or(meaning.region.map(|_| 0)).is_none()) {
            return None;
        }
        let regions: BTreeSet<usize> = named.iter().filter_map(|meaning| meaning.region).collect();
        let labels: BTreeSet<u8> = named
            .iter()
            .filter(|meaning| meaning.region.is_none())
            .filter_map(|meaning| meaning.label)
            .collect();
        let has = |label: u8| -> BTreeSet<usize> {
            (0..)
                .zip(self.regions())
                .filter(|(_, region)| region.labels.contains(&label))
                .map(|(at, _)| at)
                .collect()
        };
        match (labels.first(), labels.len()) {
            (Some(label), 1) => regions.is_subset(&has(*label)).then_some(*label),
            (Some(_), _) => None,
            // The label that is in these regions and in no other.
            (None, _) => {
                let mut fitting = (1..=u8::MAX).filter(|label| has(*label) == regions);
                let only = fitting.next().filter(|_| fitting.next().is_none());
                let alone = || match regions.iter().collect::<Vec<_>>()[..] {
                    [region] => self.regions().get(*region).map(|region| region.written),
                    _ => None,
                };
                only.or_else(alone)
            }
        }
    }

    /// The class, and the region, of a name: the same, or the only one that differs in capitals and in what is between words alone.
    fn meaning(&self, name: &str) -> Meaning {
        let labels = || {
            let names = self.names().iter().map(String::as_str).chain(self.ignore().map(|_| IGNORE));
            (0..=u8::MAX).zip(names)
        };
        let regions = || self.regions().iter().map(|region| region.name.as_str()).enumerate();
        let same = |own: &str| own == name;
        let exact = Meaning {
            label: labels().find(|(_, own)| same(own)).map(|(label, _)| label),
            region: regions().find(|(_, own)| same(own)).map(|(region, _)| region),
        };
        if exact.label.is_some() || exact.region.is_some() {
            return exact;
        }
        let folded = folded(name);
        let alike = |own: &str| self::folded(own) == folded;
        let similar: BTreeSet<&str> = labels()
            .map(|(_, own)| own)
            .chain(regions().map(|(_, own)| own))
            .filter(|own| alike(own))
            .collect();
        if similar.len() != 1 {
            return Meaning::default();
        }
        Meaning {
            label: labels().find(|(_, own)| alike(own)).map(|(label, _)| label),
            region: regions().find(|(_, own)| alike(own)).map(|(region, _)| region),
        }
    }
}

/// A name without capitals, and with its words apart by single blanks.
pub(crate) fn folded(name: &str) -> String {
    let words = name.split(|letter: char| letter.is_whitespace() || "_-".contains(letter));
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use plimsoll_volume::NamedValue;
    use serde_json::json;

    use super::*;
    use crate::dataset::Ordered;

    fn segments(coding: SegmentCoding, named: &[(u8, &str)]) -> Segments {
        let named = named.iter().map(|(value, name)| NamedValue { value: *value, name: (*name).into() });
        Segments { named: named.collect(), coding }
    }

    fn labels(values: &[(&str, u64)]) -> Labels {
        let values = values.iter().map(|(name, value)| ((*name).to_string(), *value)).collect();
        Labels::from_values(Path::new("dataset.json"), &values).unwrap()
    }

    #[test]
    fn a_value_has_the_class_of_its_name_whatever_its_number() {
        let labels = labels(&[("background", 0), ("left_kidney", 1), ("tumor", 2), ("ignore", 3)]);
        let found =
            segments(SegmentCoding::Values, &[(1, "tumor"), (7, "Left kidney"), (9, "ignore"), (4, "cyst")]);
        let values = labels.reference_values(Some(&found)).unwrap();
        let classes = [0, 1, 7, 9, 4, 2].map(|value| values.class(value));
        assert_eq!(classes, [Some(0), Some(2), Some(1), Some(3), None, None]);
        assert_eq!(values.shown(4), "\"cyst\" (the value 4)");
        assert_eq!(values.shown(2), "2, which has no name in the file");
        let rule = SegmentRule::Names([("cyst".to_string(), "tumor".to_string())].into());
        let other = labels.clone().with_segments(Some(rule));
        assert_eq!(other.reference_values(Some(&found)).unwrap().class(4), Some(2));
        let by_value = SegmentRule::By(SegmentsBy::Values);
        assert_eq!(labels.with_segments(Some(by_value)).reference_values(Some(&found)), None);
    }

    #[test]
    fn names_that_are_alike_are_told_apart_by_their_letters() {
        let labels = labels(&[("background", 0), ("Tumor", 1), ("tumor", 2)]);
        let found = segments(SegmentCoding::Values, &[(1, "tumor"), (2, "Tumor"), (3, "TUMOR")]);
        let values = labels.reference_values(Some(&found)).unwrap();
        assert_eq!([1, 2, 3].map(|value| values.class(value)), [Some(2), Some(1), None]);
    }

    #[test]
    fn segments_that_overlap_are_the_label_of_all_their_regions() {
        // A text, since the order of regions counts and `json!` sorts them.
        let text = r#"{"background": 0, "whole": [1, 2, 4], "core": [2, 4], "enhancing": 4}"#;
        let entries: Ordered<serde_json::Value> = serde_json::from_str(text).unwrap();
        let labels = Labels::from_json(Path::new("dataset.json"), &entries, Some(&json!([1, 2, 4]))).unwrap();
        let found =
            segments(SegmentCoding::Sets, &[(1, "core"), (2, "whole"), (4, "enhancing"), (8, "bone")]);
        let values = labels.reference_values(Some(&found)).unwrap();
        let class = |value| values.class(value).map(|label| labels.value_in_files(label));
        assert_eq!((class(2), class(3), class(7)), (Some(1), Some(2), Some(4)));
        // Enhancing beyond the whole contradicts the regions, and so does a name of none.
        assert_eq!((class(5), class(8), class(10)), (None, None, None));
        assert_eq!(values.shown(10), "\"whole\" and \"bone\" at once");
        let flat = segments(SegmentCoding::Values, &[(5, "core"), (6, "whole"), (7, "enhancing")]);
        let values = labels.reference_values(Some(&flat)).unwrap();
        let class = |value| values.class(value).map(|label| labels.value_in_files(label));
        assert_eq!((class(6), class(5), class(7)), (Some(1), Some(2), Some(4)));
    }
}
