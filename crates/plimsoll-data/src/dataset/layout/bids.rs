//! BIDS, the Brain Imaging Data Structure: `sub-01/[ses-02/]anat/sub-01_ses-02_T1w.nii.gz`, and label maps among the derivatives,
//! `derivatives/manual/sub-01/…_dseg.nii.gz`, with the names of their values in a `dseg.tsv`.
//!
//! Specification: <https://bids-specification.readthedocs.io/en/stable/derivatives/imaging.html#segmentations>.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_memory::Budget;
use serde_json::Value;

use crate::dataset::json::read_bounded;
use crate::dataset::layout::location::images_in;
use crate::dataset::layout::memory;
use crate::dataset::layout::{DataLocation, FoundData, Layout, channels, usual_ending};
use crate::dataset::names::{BIDS_DESCRIPTION, file_name, list, stem};
use crate::dataset::{Case, ChannelFile, DataOptions, DatasetError, FoundImages, LayoutName, Names, Reading};
use crate::files_memory::FilesMemory;

/// The endings of the names of segmentations, the usual one first.
const SEGMENTATIONS: [&str; 4] = ["dseg", "mask", "seg", "label"];

/// The depth of folders below a subject's: a session, a modality, and one more in some derivatives.
const DEPTH: usize = 3;

/// The images below a folder of subjects, by subject and session.
type Subjects = BTreeMap<String, Vec<PathBuf>>;

pub(crate) fn read(place: &DataLocation<'_>) -> Result<FoundData, DatasetError> {
    place.expect_unused(LayoutName::Bids, &["case"])?;
    let data = &place.options.data;
    let images = subjects(&place.folder)?;
    let derivatives = place.folder.join("derivatives");
    let mut label_maps = subjects_of_derivatives(&derivatives, data.labels.as_deref())?;
    let label = label_ending(place, &derivatives, &label_maps)?;
    label_maps.values_mut().for_each(|paths| paths.retain(|path| stem(path).ends_with(&format!("_{label}"))));
    let names = match &data.images {
        Some(names) => Names::list(names).to_vec(),
        None => common_suffixes(place, &images, &label_maps)?,
    };
    let mut warnings = Vec::new();
    let (mut cases, mut test_cases) = (Vec::new(), Vec::new());
    for (id, paths) in images {
        let of_case = label_maps.remove(&id);
        let found = only(place, &id, &label, of_case.as_deref().unwrap_or(&[]))?;
        let mut files = Vec::new();
        let mut missing = None;
        for (channel, name) in names.iter().enumerate() {
            match only(place, &id, name, &paths)? {
                Some(path) => files.push(ChannelFile { path, index: 0 }),
                None => missing = Some((channel, name.clone())),
            }
        }
        match (missing, found) {
            (None, label) => {
                let list = if label.is_some() { &mut cases } else { &mut test_cases };
                list.push(Case { id, images: files, label, reading: Reading::default() });
            }
            (Some((channel, name)), Some(_)) => {
                let path = place.folder.join(&id).join(format!("…_{name}…"));
                return Err(DatasetError::MissingChannel { case: id, channel, name, path, others: 0 });
            }
            // Neither trained on nor predicted.
            (Some((_, name)), None) => {
                warnings.push(format!("{id} is left out: it has neither {name} nor a label map"))
            }
        }
    }
    for path in label_maps.into_values().flatten() {
        warnings.push(format!("{} is left out: there is no image for it", path.display()));
    }
    if let Some(first) = test_cases.first() {
        let (count, first) = (test_cases.len(), &first.id);
        warnings.push(format!("{count} subjects have no label map, like {first}: they are not trained on"));
    }
    if cases.is_empty() {
        let problem = format!("no subject has both images and a label map that ends in _{label}");
        return Err(place.fault(problem, "check the names: sub-01_T1w.nii.gz has sub-01_…_dseg.nii.gz"));
    }
    Ok(FoundData {
        folder: place.folder.clone(),
        name: place.name(),
        channels: channels(place, &names)?,
        unit: None,
        labels: None,
        segments: None,
        folds: BTreeMap::new(),
        file_ending: usual_ending(&cases, &mut warnings),
        layout: Layout::Bids { labels: label },
        cases,
        test_cases,
        warnings,
        memory: FilesMemory::default(),
    })
}

/// The files below the folders of subjects of all derivatives. Label maps that were predicted by this program are not
/// references, unless `labels` names them.
fn subjects_of_derivatives(derivatives: &Path, labels: Option<&str>) -> Result<Subjects, DatasetError> {
    let mut found = Subjects::new();
    if !derivatives.is_dir() {
        return Ok(found);
    }
    let includes_predicted = labels.is_some_and(|labels| labels.contains(DESCRIBED));
    let pipelines = list(derivatives)?.into_iter().filter(|path| path.is_dir());
    for folder in std::iter::once(derivatives.to_path_buf()).chain(pipelines) {
        if !includes_predicted && is_predicted(&folder)? {
            continue;
        }
        for (subject, paths) in subjects(&folder)? {
            found.entry(subject).or_default().extend(paths);
        }
    }
    Ok(found)
}

/// The ending of the names of label maps: the ending in the settings, or the first of [`SEGMENTATIONS`] that a file has.
fn label_ending(
    place: &DataLocation<'_>,
    derivatives: &Path,
    label_maps: &Subjects,
) -> Result<String, DatasetError> {
    if let Some(label) = &place.options.data.labels {
        return Ok(label.clone());
    }
    let all: BTreeSet<String> = label_maps.values().flatten().map(|path| suffix(path)).collect();
    let known = SEGMENTATIONS.iter().find(|suffix| all.contains(**suffix));
    known.map(|suffix| (*suffix).to_string()).ok_or_else(|| {
        let problem = format!(
            "no label maps are among its derivatives: there is no {}/…/sub-*_dseg.nii.gz",
            derivatives.display()
        );
        let hint = "put them there, or set the ending of their names in plimsoll.toml: under [data], labels = \"desc-lesion_mask\"";
        place.fault(problem, hint)
    })
}

/// The entity in the names of predicted label maps.
const DESCRIBED: &str = "desc-plimsoll";

/// The name in `GeneratedBy` of a derivative data set of predictions.
pub const BIDS_GENERATOR: &str = "Plimsoll";

/// Returns `true` if the description of a folder of derivatives states that this program predicted its label
/// maps.
///
/// # Errors
/// If its description is there and cannot be read: predictions would be taken for references.
pub fn is_predicted(folder: &Path) -> Result<bool, DatasetError> {
    let path = folder.join(BIDS_DESCRIPTION);
    if !path.exists() {
        return Ok(false);
    }
    // A description that is not JSON was not written by this program.
    let described: Value = serde_json::from_slice(&read_bounded(&path)?).unwrap_or_default();
    let programs = described["GeneratedBy"].as_array();
    Ok(programs.is_some_and(|programs| programs.iter().any(|program| program["Name"] == BIDS_GENERATOR)))
}

/// The images of a data set of BIDS that are to be predicted. Of one suffix, like `T1w`, each image is a case, named as it is without the
/// suffix; of several, which are the channels in their order, each session or subject that has all of them is one. A subject that lacks one, or has two of a suffix,
/// and images that would have their labels in one file, are refused.
///
/// # Errors
/// If the folder cannot be read, has no image that can be predicted, or the budget has no room for its names.
pub fn bids_images(root: &Path, suffixes: &[String], budget: &Budget) -> Result<FoundImages, DatasetError> {
    let options = DataOptions::default();
    let memory = memory::reserve_images(root, budget)?;
    let place = DataLocation::open(root, &options)?;
    let mut found = FoundImages { memory, ..FoundImages::default() };
    for (id, paths) in subjects(root)? {
        if let [suffix] = suffixes {
            let end = format!("_{suffix}");
            for path in paths {
                let name = stem(&path);
                let Some(id) = name.strip_suffix(&end) else { continue };
                let images = vec![ChannelFile { path: path.clone(), index: 0 }];
                found.cases.push(Case { id: id.into(), images, label: None, reading: Reading::default() });
            }
            continue;
        }
        match channels_of_subject(&place, root, &id, suffixes, &paths) {
            Ok(None) => {}
            Ok(Some(images)) => {
                found.cases.push(Case { id, images, label: None, reading: Reading::default() });
            }
            Err(error) => found.refuse(&id, error),
        }
    }
    if found.cases.is_empty() && found.refused.is_empty() {
        let listed = suffixes.join(", _");
        return Err(place.fault(
            format!("there are no images sub-*/…/sub-*_{listed}"),
            "set the endings of their names: ‹bids=T1w›, or ‹bids=T1w,FLAIR› for a model of two channels",
        ));
    }
    found.cases.sort_by(|one, other| one.id.cmp(&other.id));
    refuse_same_labels(&place, root, &mut found);
    found.expect_any()
}

/// The images of a subject, one for each suffix; none if it has none of them.
///
/// # Errors
/// If it lacks one, or has two of a suffix.
fn channels_of_subject(
    place: &DataLocation<'_>,
    root: &Path,
    id: &str,
    suffixes: &[String],
    paths: &[PathBuf],
) -> Result<Option<Vec<ChannelFile>>, DatasetError> {
    // Here names are given on the command line, not in a file of settings.
    let asked = |error: DatasetError| match error {
        DatasetError::Layout { path, problem, .. } => {
            let hint = "give a longer ending of the name: ‹bids=run-01_T1w,FLAIR›";
            DatasetError::Layout { path, problem, hint: hint.into() }
        }
        error => error,
    };
    let found: Vec<Option<PathBuf>> = suffixes
        .iter()
        .map(|suffix| only(place, id, suffix, paths))
        .collect::<Result<_, _>>()
        .map_err(asked)?;
    if found.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut images = Vec::new();
    for (channel, (path, suffix)) in found.into_iter().zip(suffixes).enumerate() {
        let Some(path) = path else {
            let (path, name) = (root.join(id).join(format!("…_{suffix}…")), suffix.clone());
            return Err(DatasetError::MissingChannel { case: id.into(), channel, name, path, others: 0 });
        };
        images.push(ChannelFile { path, index: 0 });
    }
    Ok(Some(images))
}

/// Refuses all cases whose labels would be in one file with another case's.
fn refuse_same_labels(place: &DataLocation<'_>, root: &Path, found: &mut FoundImages) {
    let mut labels: BTreeMap<PathBuf, Vec<Case>> = BTreeMap::new();
    for case in found.cases.drain(..) {
        labels.entry(bids_label(&case)).or_default().push(case);
    }
    for (label, mut cases) in labels {
        let first = |case: &Case| case.image_files().next().unwrap_or(root).to_path_buf();
        if let [one, other, ..] = &cases[..] {
            let images = [first(one), first(other)];
            let problem = format!(
                "{} and {} would have their labels in one file, {}",
                images[0].display(),
                images[1].display(),
                label.display()
            );
            for case in &cases {
                let error = place.fault(
                    problem.clone(),
                    "leave one of them in the folder, or name them so that an entity other than `desc` tells them apart, like run-1 and run-2",
                );
                found.refuse(&case.id, error);
            }
        } else {
            found.cases.append(&mut cases);
        }
    }
    found.cases.sort_by(|one, other| one.id.cmp(&other.id));
}

/// The path of a case's labels in a derivative data set of BIDS, without the ending:
/// `sub-01/ses-02/anat/sub-01_ses-02_desc-plimsoll_dseg`. The folders are the folders of its first image below the
/// subject's folder, and the name has the entities that all of its images share.
pub fn bids_label(case: &Case) -> PathBuf {
    let of = |path: &Path| -> Vec<String> {
        let name = stem(path);
        let is_entity = |part: &&str| part.contains('-') && !part.starts_with("desc-");
        name.split('_').filter(is_entity).map(str::to_string).collect()
    };
    let mut files = case.image_files();
    let first = files.next().unwrap_or(Path::new(""));
    let mut entities = of(first);
    for other in files.map(of) {
        entities.retain(|entity| other.contains(entity));
    }
    let subject = entities.first().cloned().unwrap_or_else(|| case.id.clone());
    let folders: Vec<String> = first
        .parent()
        .into_iter()
        .flat_map(Path::iter)
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let mut path = match folders.iter().rposition(|folder| *folder == subject) {
        Some(at) => folders[at..].iter().collect(),
        None => PathBuf::from(subject).join("anat"),
    };
    entities.push(format!("{DESCRIBED}_dseg"));
    path.push(entities.join("_"));
    path
}

/// The images below the folders of subjects.
fn subjects(folder: &Path) -> Result<Subjects, DatasetError> {
    let mut found = Subjects::new();
    for path in list(folder)?.into_iter().filter(|path| file_name(path).starts_with("sub-") && path.is_dir())
    {
        below(&path, DEPTH, &mut |image| {
            let subject = subject(&image);
            if !subject.is_empty() {
                found.entry(subject).or_default().push(image);
            }
        })?;
    }
    Ok(found)
}

fn below(folder: &Path, depth: usize, see: &mut dyn FnMut(PathBuf)) -> Result<(), DatasetError> {
    images_in(folder)?.into_iter().for_each(|(_, path)| see(path));
    if depth > 0 {
        for path in list(folder)?.into_iter().filter(|path| path.is_dir()) {
            below(&path, depth - 1, see)?;
        }
    }
    Ok(())
}

/// `sub-01` or `sub-01_ses-02`, of a name that begins with it.
fn subject(path: &Path) -> String {
    let name = stem(path);
    let parts: Vec<&str> =
        name.split('_').take_while(|part| part.starts_with("sub-") || part.starts_with("ses-")).collect();
    parts.join("_")
}

/// The end of a name after its last entity: `T1w`, `dseg`.
fn suffix(path: &Path) -> String {
    let name = stem(path);
    name.rsplit('_').next().unwrap_or(&name).to_string()
}

/// The suffixes of images that all subjects with label maps have.
fn common_suffixes(
    place: &DataLocation<'_>,
    images: &Subjects,
    label_maps: &Subjects,
) -> Result<Vec<String>, DatasetError> {
    let mut common: Option<BTreeSet<String>> = None;
    for (_, paths) in
        images.iter().filter(|(id, _)| label_maps.get(*id).is_some_and(|paths| !paths.is_empty()))
    {
        let of_subject: BTreeSet<String> = paths.iter().map(|path| suffix(path)).collect();
        common = Some(match common {
            Some(common) => common.intersection(&of_subject).cloned().collect(),
            None => of_subject,
        });
    }
    match common {
        Some(common) if !common.is_empty() => Ok(common.into_iter().collect()),
        _ => Err(place.fault(
            "no kind of image exists for all subjects with label maps".into(),
            "name the images in plimsoll.toml: under [data], images = [\"T1w\", \"FLAIR\"]",
        )),
    }
}

/// The one file of a subject whose name ends so; none if there is none.
fn only(
    place: &DataLocation<'_>,
    id: &str,
    end: &str,
    paths: &[PathBuf],
) -> Result<Option<PathBuf>, DatasetError> {
    let found: Vec<&PathBuf> = paths.iter().filter(|path| stem(path).ends_with(&format!("_{end}"))).collect();
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        [one, other, ..] => Err(place.fault(
            format!("{id} has {} and {}, which both end in _{end}", one.display(), other.display()),
            "set a longer ending of the name in plimsoll.toml: under [data], labels = \"desc-manual_dseg\" or images = \"run-01_T1w\"",
        )),
    }
}
