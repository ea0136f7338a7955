//! Pairs of images and label maps, found by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::dataset::DatasetError;
use crate::dataset::layout::words::{SEPARATORS, core};

/// A file by the part of its name that is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) stem: String,
    pub(crate) path: PathBuf,
}

/// Images by their names, and by these without words that describe their contents.
struct Names<'a> {
    by_stem: BTreeMap<&'a str, &'a str>,
    by_core: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Names<'a> {
    fn new(images: &'a [String]) -> Names<'a> {
        let mut names = Names { by_stem: BTreeMap::new(), by_core: BTreeMap::new() };
        for image in images {
            names.by_stem.insert(image, image);
            names.by_core.entry(core(image)).or_default().push(image);
        }
        names
    }

    /// The images that a label map is of: the one of the same name; else the ones of the same name without words; else the ones whose names, or
    /// these without words, are the longest beginning of its name.
    fn closest(&self, label: &str) -> Vec<&'a str> {
        if let Some(image) = self.by_stem.get(label) {
            return vec![image];
        }
        if let Some(images) = self.by_core.get(core(label)) {
            return images.clone();
        }
        let beginnings = label.rmatch_indices(SEPARATORS).map(|(at, _)| &label[..at]);
        for beginning in beginnings {
            let of_stem = self.by_stem.get(beginning).copied();
            let of_core = self.by_core.get(beginning).into_iter().flatten().copied();
            let images: BTreeSet<&str> = of_stem.into_iter().chain(of_core).collect();
            if !images.is_empty() {
                return images.into_iter().collect();
            }
        }
        Vec::new()
    }
}

/// The label map of each of some images, by the image's name, and label maps that are of none.
pub(crate) struct Matched {
    pub(crate) labels: BTreeMap<String, PathBuf>,
    pub(crate) unused: Vec<PathBuf>,
}

/// Finds the label map of each image: one of the same name; else of the same name without words like `img` and `seg` at its ends; else
/// one whose name begins with the image's.
///
/// # Errors
/// If a label map could be of two images, or an image has two.
pub(crate) fn matched(folder: &Path, images: &[String], labels: Vec<Named>) -> Result<Matched, DatasetError> {
    let mut found = Matched { labels: BTreeMap::new(), unused: Vec::new() };
    let names = Names::new(images);
    for Named { stem, path } in labels {
        let image = match names.closest(&stem)[..] {
            [] => {
                found.unused.push(path);
                continue;
            }
            [one] => one,
            [one, other, ..] => {
                return Err(DatasetError::Layout {
                    path: folder.into(),
                    problem: format!("{} could be the label map of {one} and of {other}", path.display()),
                    hint: format!(
                        "set the pattern of names in plimsoll.toml: under [data], labels = \"{}/*_seg.nii.gz\", and `images` likewise, \
                         where * is the name of the case",
                        parent(&path)
                    ),
                });
            }
        };
        if let Some(other) = found.labels.insert(image.to_string(), path.clone()) {
            let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Err(DatasetError::Layout {
                path: folder.into(),
                problem: format!("case {image} has two label maps: {} and {}", name(&other), name(&path)),
                hint: format!(
                    "choose one in plimsoll.toml: under [data], labels = \"{}/*_seg.nii.gz\", where * is the name of the case; or move the \
                     others elsewhere",
                    parent(&path)
                ),
            });
        }
    }
    Ok(found)
}

/// The name of the folder of a file.
fn parent(path: &Path) -> String {
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    folder.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(images: &[&str], labels: &[&str]) -> Result<Vec<(String, String)>, String> {
        let images: Vec<String> = images.iter().map(|name| name.to_string()).collect();
        let named = |name: &&str| Named { stem: name.to_string(), path: PathBuf::from(name) };
        let found = matched(Path::new("set"), &images, labels.iter().map(named).collect());
        let found = found.map_err(|error| error.to_string())?;
        assert_eq!(found.labels.len() + found.unused.len(), labels.len());
        Ok(found.labels.into_iter().map(|(image, path)| (image, path.display().to_string())).collect())
    }

    fn pairs(expected: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(expected.iter().map(|(image, label)| (image.to_string(), label.to_string())).collect())
    }

    #[test]
    fn names_match_if_they_are_equal_but_for_words_or_begin_alike() {
        assert_eq!(find(&["a1", "a10"], &["a10", "a1"]), pairs(&[("a1", "a1"), ("a10", "a10")]));
        assert_eq!(
            find(&["a1", "a10"], &["a10_seg", "mask_a1"]),
            pairs(&[("a1", "mask_a1"), ("a10", "a10_seg")])
        );
        let begins = find(&["p_1_img", "p_1_img_2", "p_2_img"], &["p_1_JS", "p_1_img_2_JS", "p_2_AB_v3"]);
        assert_eq!(
            begins,
            pairs(&[("p_1_img", "p_1_JS"), ("p_1_img_2", "p_1_img_2_JS"), ("p_2_img", "p_2_AB_v3")])
        );
        assert_eq!(find(&["a"], &["b"]), pairs(&[]));
    }

    #[test]
    fn what_is_ambiguous_is_named() {
        let said = find(&["a"], &["a_seg", "a_mask"]).unwrap_err();
        assert!(said.contains("case a has two label maps: a_seg and a_mask"), "{said}");
        let said = find(&["a_raw", "a_img"], &["a_seg"]).unwrap_err();
        assert!(said.contains("a_seg could be the label map of a_raw and of a_img"), "{said}");
    }
}
