//! The folder, the table or the list of a data set, and the layout that its names suggest.

use std::path::{Component, Path, PathBuf};

use crate::dataset::layout::{table_file, words};
use crate::dataset::names::{file_name, is_picture_ending, list, name_ending};
use crate::dataset::series::is_series;
use crate::dataset::{DataOptions, DatasetError, LayoutName, Names};

/// A folder, or a table or a list in it, with the user's settings for it.
pub(crate) struct DataLocation<'a> {
    /// The folder that files are relative to.
    pub(crate) folder: PathBuf,
    /// The table or the list, if it was named itself.
    pub(crate) file: Option<PathBuf>,
    pub(crate) options: &'a DataOptions,
    /// The folders in it, sorted.
    pub(crate) folders: Vec<PathBuf>,
}

/// An image by its name without the ending.
type Image = (String, PathBuf);

/// The images in a folder, sorted: each with its name without the ending. Of two files that are one image, the header; of a series of
/// slices, its folder.
pub(crate) fn images_in(folder: &Path) -> Result<Vec<Image>, DatasetError> {
    images(folder)?.into_iter().collect()
}

/// The images in a folder that can be read, from which the layout is guessed. The layout's reader reports the others.
fn seen_in(folder: &Path) -> Vec<Image> {
    images(folder).unwrap_or_default().into_iter().flatten().collect()
}

/// The images in a folder, and an error for each folder in it that cannot be read.
fn images(folder: &Path) -> Result<Vec<Result<Image, DatasetError>>, DatasetError> {
    let stem = |path: &PathBuf| -> Result<Option<String>, DatasetError> {
        let name = file_name(path);
        Ok(match name_ending(&name) {
            Some(ending) => Some(name[..name.len() - ending.len()].to_string()),
            None => (path.is_dir() && is_series(path)?).then_some(name),
        })
    };
    let listed = list(folder)?;
    let is_second = |path: &PathBuf| {
        let name = file_name(path);
        let of_header = |end: &str| Some(format!("{}{}", name.strip_suffix(end)?, end.replace("img", "hdr")));
        let header = of_header(".img").or_else(|| of_header(".img.gz"));
        header.is_some_and(|header| listed.binary_search(&path.with_file_name(header)).is_ok())
    };
    let named = |path: &PathBuf| {
        let stem = stem(path).transpose()?;
        Some(stem.map(|stem| (stem, path.clone())))
            .filter(|found| !matches!(found, Ok((stem, _)) if stem.is_empty()))
    };
    Ok(listed.iter().filter(|path| !is_second(path)).filter_map(named).collect())
}

impl<'a> DataLocation<'a> {
    pub(crate) fn open(place: &Path, options: &'a DataOptions) -> Result<DataLocation<'a>, DatasetError> {
        if place.is_file() {
            let folder = place.parent().unwrap_or(Path::new("")).to_path_buf();
            let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
            return Ok(DataLocation { folder, file: Some(place.into()), options, folders: Vec::new() });
        }
        if !place.is_dir() {
            return Err(DatasetError::not_a_folder(place));
        }
        let folders = list(place)?.into_iter().filter(|path| path.is_dir()).collect();
        Ok(DataLocation { folder: place.into(), file: None, options, folders })
    }

    /// The layout that is there, by its names.
    pub(crate) fn layout(&self) -> Option<LayoutName> {
        if let Some(file) = &self.file {
            let ending = file.extension().map(|ending| ending.to_string_lossy().to_lowercase())?;
            return match &ending[..] {
                "json" => Some(LayoutName::Described),
                "csv" | "tsv" => table_file::has_volumes(file).then_some(LayoutName::Table),
                _ => None,
            };
        }
        if ["dataset.json", "datalist.json"].iter().any(|name| self.folder.join(name).is_file()) {
            return Some(LayoutName::Described);
        }
        // Folders within folders and patterns of names are of pairs alone.
        let data = &self.options.data;
        let named = || data.images.iter().flat_map(Names::list).chain(&data.labels);
        if named().any(|name| name.contains(['*', '/'])) {
            return Some(LayoutName::Pairs);
        }
        self.layout_of_folders().or_else(|| named().next().map(|_| LayoutName::Pairs))
    }

    fn layout_of_folders(&self) -> Option<LayoutName> {
        let is_subject = |path: &PathBuf| file_name(path).starts_with("sub-");
        let says_bids = ["dataset_description.json", "derivatives"];
        let is_bids = says_bids.iter().any(|name| self.folder.join(name).exists());
        let with_images: Vec<&PathBuf> = self.folders.iter().filter(|path| has_image(path)).collect();
        // Folders of subjects with images right in them are of cases, unless something else says BIDS.
        if self.folders.iter().any(is_subject) && (is_bids || with_images.is_empty()) {
            return Some(LayoutName::Bids);
        }
        let of_labels = with_images.iter().filter(|path| words::is_of_labels(&file_name(path))).count();
        // Pictures in folders of any name may be of classes: both folders must say that they are not.
        let are_pictures = with_images.iter().all(|path| has_pictures_alone(path));
        let says_images = with_images.iter().any(|path| words::is_of_images(&file_name(path)));
        if of_labels > 0 && with_images.len() > of_labels && (!are_pictures || says_images) {
            return Some(LayoutName::Pairs);
        }
        if with_images.len() > 1 && !are_pictures {
            // Two folders of volumes are images and label maps under names that say nothing, or cases.
            let is_case = |path: &&&PathBuf| has_labels(path);
            let are_cases = match &self.options.data.labels {
                Some(labels) => !self.folder.join(labels).is_dir(),
                None => with_images.iter().filter(is_case).count() * 2 > with_images.len(),
            };
            return Some(if are_cases { LayoutName::Cases } else { LayoutName::Pairs });
        }
        let is_lone_case = |path: &&PathBuf| has_labels(path) && !has_pictures_alone(path);
        with_images.first().filter(|path| is_lone_case(path)).map(|_| LayoutName::Cases)
    }

    /// The path of something that is listed: in the folder by its name alone, unless outside is allowed. Links in the folder may lead
    /// anywhere, since a list cannot make them.
    pub(crate) fn path(&self, list: &Path, listed: &str) -> Result<PathBuf, DatasetError> {
        if self.options.allow_outside {
            return Ok(self.folder.join(listed));
        }
        let mut path = self.folder.clone();
        for part in Path::new(listed).components() {
            match part {
                Component::CurDir => {}
                Component::Normal(name) => path.push(name),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(DatasetError::Outside { path: list.into(), listed: listed.into() });
                }
            }
        }
        match path == self.folder {
            true => Err(DatasetError::NoName { path: list.into(), listed: listed.into() }),
            false => Ok(path),
        }
    }

    /// Checks that the settings have no keys of `[data]` that this layout does not use.
    pub(crate) fn expect_unused(
        &self,
        layout: LayoutName,
        keys: &[&'static str],
    ) -> Result<(), DatasetError> {
        let data = &self.options.data;
        let is_given = |key: &str| match key {
            "images" => data.images.is_some(),
            "labels" => data.labels.is_some(),
            "case" => data.case.is_some(),
            _ => data.channels.is_some(),
        };
        match keys.iter().find(|key| is_given(key)) {
            None => Ok(()),
            Some(key) => Err(self.fault(
                format!("`data.{key}` is set, but has no effect on the layout `{layout}`"),
                "remove it from plimsoll.toml, or name another layout under [data]",
            )),
        }
    }

    pub(crate) fn fault(&self, problem: String, hint: &str) -> DatasetError {
        let path = self.file.clone().unwrap_or_else(|| self.folder.clone());
        DatasetError::Layout { path, problem, hint: hint.into() }
    }

    /// The name of the folder.
    pub(crate) fn name(&self) -> String {
        file_name(&self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone()))
    }

    /// The error for a place that is no data set though it has series of DICOM; none if it has none. A few folders are looked into.
    pub(crate) fn series_error(&self) -> Option<DatasetError> {
        let within = |folder: &PathBuf| list(folder).unwrap_or_default().into_iter().take(FEW);
        let few = || self.folders.iter().take(FEW).cloned();
        let mut looked_at = few().chain(few().flat_map(|folder| within(&folder)));
        let found = looked_at.find(|path| is_series(path).unwrap_or(false))?;
        Some(self.fault(
            format!("{} is a series of slices of DICOM, but no label maps are found with it", found.display()),
            "put series into raw/CASE/ and label maps into seg/CASE.nii.gz; or both into a folder for each case, CASE/ct/ and \
             CASE/seg.nii.gz; or list them in a datalist.json or a table",
        ))
    }

    /// Returns `true` if all folders are series of slices. Only some of them are read.
    pub(crate) fn has_series_alone(&self) -> bool {
        let is_series = |folder: &PathBuf| is_series(folder).unwrap_or(false);
        !self.folders.is_empty() && self.folders.iter().take(FEW).all(is_series)
    }

    /// Checks that the folders in it can be read. [`layout`](Self::layout) treats an unreadable folder as one
    /// without images, so that this may be the reason for finding no layout.
    ///
    /// # Errors
    /// If one cannot be read, which is named.
    pub(crate) fn expect_readable(&self) -> Result<(), DatasetError> {
        self.folders.iter().try_for_each(|folder| list(folder).map(|_| ()))
    }

    /// The error for a place that no layout is found in.
    pub(crate) fn unknown(&self) -> DatasetError {
        let names: Vec<String> =
            self.folders.iter().take(6).map(|path| format!("{}/", file_name(path))).collect();
        let seen = if names.is_empty() { "no folders".to_string() } else { names.join(", ") };
        DatasetError::NoLayout { place: self.file.clone().unwrap_or_else(|| self.folder.clone()), seen }
    }
}

fn has_image(folder: &Path) -> bool {
    !seen_in(folder).is_empty()
}

fn has_pictures_alone(folder: &Path) -> bool {
    let is_picture = |path: &PathBuf| name_ending(&file_name(path)).is_some_and(is_picture_ending);
    seen_in(folder).iter().all(|(_, path)| is_picture(path))
}

/// The number of folders that are read before a place is reported as unknown.
const FEW: usize = 16;

/// Returns `true` if a folder has an image and a label map beside it.
fn has_labels(folder: &Path) -> bool {
    let (name, found) = (file_name(folder), seen_in(folder));
    let of_labels = found.iter().filter(|(stem, _)| {
        words::is_of_labels(stem.strip_prefix(&name).unwrap_or(stem).trim_start_matches(words::SEPARATORS))
    });
    let count = of_labels.count();
    count > 0 && (count < found.len() || is_series(folder).unwrap_or(false))
}
