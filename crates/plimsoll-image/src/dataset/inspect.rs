//! What is wrong with the images of a data set, found before a run starts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_memory::{Budget, Bytes, Digest, OverBudget};
use serde::{Deserialize, Serialize};

use super::{ImageCase, ImageDataset, Split};
use crate::decode::{DecodeOptions, ImageFile};
use crate::pipeline::Largest;
use crate::{DatasetError, ImageError};

/// How images are inspected.
#[derive(Clone, Copy, Debug)]
pub struct InspectOptions {
    /// How files are read.
    pub decode: DecodeOptions,
    /// Whether images are decoded, to find those that are damaged, constant or there twice. Otherwise only headers are read.
    pub contents: bool,
    /// The number of threads.
    pub threads: usize,
}

/// What kind a problem is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The file is not there.
    Missing,
    /// It is there, but cannot be read.
    Unreadable,
    /// The same pixels have different labels: one of them is wrong.
    ContradictingDuplicate,
    /// The same pixels are in two splits: what is scored was trained on.
    DuplicateAcrossSplits,
    /// The same pixels are there twice.
    Duplicate,
    /// All pixels are the same.
    Constant,
    /// A group, such as a patient, is in two splits.
    GroupAcrossSplits,
    /// No case has the class.
    EmptyClass,
}

impl ProblemKind {
    /// Whether the data set should not be used before it is mended.
    pub fn is_error(self) -> bool {
        !matches!(self, ProblemKind::Duplicate | ProblemKind::Constant | ProblemKind::EmptyClass)
    }

    fn hint(self) -> &'static str {
        match self {
            ProblemKind::Missing => {
                "add the file, or leave the case out; check folder and ending of the settings"
            }
            ProblemKind::Unreadable => "copy the file again from its source, or leave the case out",
            ProblemKind::ContradictingDuplicate => {
                "find out which label is right, and leave the other case out"
            }
            ProblemKind::DuplicateAcrossSplits => "leave one of the two out, the one to train on",
            ProblemKind::Duplicate => "leave one of the two out: it counts twice",
            ProblemKind::Constant => "leave the case out, unless it is meant to be so",
            ProblemKind::GroupAcrossSplits => "move all cases of the group into one split",
            ProblemKind::EmptyClass => "leave the class out, or add images of it",
        }
    }
}

/// A problem of a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageProblem {
    /// Its kind.
    pub kind: ProblemKind,
    /// The place of the case; `None` for a problem of a class.
    pub case: Option<usize>,
    /// The description, with file and numbers.
    pub text: String,
}

impl ImageProblem {
    /// A remedy to suggest to the user.
    pub fn hint(&self) -> &'static str {
        self.kind.hint()
    }
}

impl fmt::Display for ImageProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What an inspection found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// Problems, the gravest kinds first, then in the order of cases.
    pub problems: Vec<ImageProblem>,
    /// The largest of the images that can be read.
    pub largest: Largest,
    /// Whether each case can be read.
    pub readable: Vec<bool>,
    /// The pixels of each case; none where images were not decoded, or could not be.
    pub contents: Vec<Option<Digest>>,
}

/// What is known of one image.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    digest: Option<Digest>,
    constant: bool,
}

/// Reads the headers of all images, and the images themselves if wanted, one at a time on each thread. Beside what decoding
/// takes, 64 bytes for each case are reserved.
///
/// # Errors
/// If the memory is not available for the list, or for the largest image on one thread. With less memory than for all threads,
/// fewer decode at a time.
pub fn inspect(
    dataset: &ImageDataset,
    options: &InspectOptions,
    budget: &Budget,
) -> Result<Inspection, DatasetError> {
    let memory = |source: OverBudget| DatasetError::Memory {
        path: dataset.cases.first().map_or_else(PathBuf::new, |case| case.path.clone()),
        source,
    };
    let bytes = Bytes::of(dataset.cases.len().saturating_mul(64));
    let _list = budget.reserve("inspection of images", bytes).map_err(memory)?;
    let mut problems = Vec::new();
    let mut largest = Largest::default();
    let mut readable = vec![false; dataset.cases.len()];
    for (at, (case, readable)) in dataset.cases.iter().zip(&mut readable).enumerate() {
        match ImageFile::open(&case.path, &options.decode) {
            // What does not fit the address space is refused by the limit on pixels before.
            Ok(file) => *readable = largest.include(&file).is_ok(),
            Err(error) => problems.push(unreadable(at, case, &error)),
        }
    }
    let mut digests = vec![None; dataset.cases.len()];
    if options.contents {
        let contents = Mutex::new((vec![Content::default(); dataset.cases.len()], Vec::new()));
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..options.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(case) = dataset.cases.get(at) else { break };
                        if !readable.get(at).copied().unwrap_or(false) {
                            continue;
                        }
                        let read = content(case, options, budget);
                        let mut found = contents.lock().unwrap_or_else(PoisonError::into_inner);
                        match read {
                            Ok(content) => found.0[at] = content,
                            Err(error) => found.1.push(unreadable(at, case, &error)),
                        }
                    }
                });
            }
        });
        let (contents, failed) = contents.into_inner().unwrap_or_else(PoisonError::into_inner);
        for at in failed.iter().filter_map(|problem| problem.case) {
            readable[at] = false;
        }
        problems.extend(failed);
        digests = contents.iter().map(|content| content.digest).collect();
        find_constant(dataset, &contents, &mut problems);
        find_duplicates(dataset, &contents, &mut problems);
    }
    find_leaks(dataset, &mut problems);
    find_empty_classes(dataset, &mut problems);
    problems.sort_by_key(|problem| (problem.kind, problem.case));
    Ok(Inspection { problems, largest, readable, contents: digests })
}

fn unreadable(at: usize, case: &ImageCase, error: &ImageError) -> ImageProblem {
    let missing =
        matches!(error, ImageError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
    let kind = if missing { ProblemKind::Missing } else { ProblemKind::Unreadable };
    ImageProblem { kind, case: Some(at), text: format!("case {}: {error}", case.name) }
}

fn content(case: &ImageCase, options: &InspectOptions, budget: &Budget) -> Result<Content, ImageError> {
    let file = ImageFile::open(&case.path, &options.decode)?;
    let extent = file.extent();
    let memory = |source| ImageError::Memory {
        path: case.path.clone(),
        height: extent.height,
        width: extent.width,
        source,
    };
    // Threads wait for each other here, and never while they hold anything.
    let bytes = file.decoding_bytes().map_err(memory)?;
    let turn = budget.reserve_in_turn("inspection of images", bytes).map_err(|error| memory(error.into()))?;
    let decoded = file.decode(&turn.into_budget())?;
    Ok(Content { digest: Some(decoded.digest()), constant: decoded.is_constant() })
}

fn find_constant(dataset: &ImageDataset, contents: &[Content], problems: &mut Vec<ImageProblem>) {
    for (at, (case, content)) in dataset.cases.iter().zip(contents).enumerate() {
        if content.constant {
            let text = format!("case {}: all pixels of {} are the same", case.name, case.path.display());
            problems.push(ImageProblem { kind: ProblemKind::Constant, case: Some(at), text });
        }
    }
}

/// Each case is compared with the first that has the same pixels.
fn find_duplicates(dataset: &ImageDataset, contents: &[Content], problems: &mut Vec<ImageProblem>) {
    let known = contents.iter().enumerate().filter_map(|(at, content)| Some((content.digest?, at)));
    let mut order: Vec<(Digest, usize)> = known.collect();
    order.sort_unstable();
    for same in order.chunk_by(|a, b| a.0 == b.0) {
        let Some((first, others)) = same.split_first() else { continue };
        for (_, at) in others {
            let (Some(one), Some(two)) = (dataset.cases.get(first.1), dataset.cases.get(*at)) else {
                continue;
            };
            let both = format!("{} and {} have the same pixels", one.path.display(), two.path.display());
            let (kind, text) = if one.labels != two.labels {
                let names = |case: &ImageCase| names(dataset, case);
                let text = format!("{both}, but the labels {} and {}", names(one), names(two));
                (ProblemKind::ContradictingDuplicate, text)
            } else if let (Some(a), Some(b)) = (one.split, two.split)
                && a != b
            {
                let text = format!("{both}, but are in {} and {}", a.name(), b.name());
                (ProblemKind::DuplicateAcrossSplits, text)
            } else {
                (ProblemKind::Duplicate, both)
            };
            problems.push(ImageProblem { kind, case: Some(*at), text });
        }
    }
}

fn names(dataset: &ImageDataset, case: &ImageCase) -> String {
    let name = |label: &u32| dataset.classes.get(*label as usize).map_or("?", String::as_str);
    case.labels.iter().map(name).collect::<Vec<_>>().join(" + ")
}

fn find_leaks(dataset: &ImageDataset, problems: &mut Vec<ImageProblem>) {
    let mut first_of: BTreeMap<&str, (Split, &str)> = BTreeMap::new();
    for (at, case) in dataset.cases.iter().enumerate() {
        let (Some(group), Some(split)) = (case.group.as_deref(), case.split) else { continue };
        let (first, name) = *first_of.entry(group).or_insert((split, &case.name));
        if first != split {
            let (one, two) = (first.name(), split.name());
            let text = format!("group {group}: case {name} is in {one}, but case {} in {two}", case.name);
            problems.push(ImageProblem { kind: ProblemKind::GroupAcrossSplits, case: Some(at), text });
        }
    }
}

/// Classes that no case has; if there are splits, also those that one of the splits lacks.
fn find_empty_classes(dataset: &ImageDataset, problems: &mut Vec<ImageProblem>) {
    let mut splits: Vec<Option<Split>> = dataset.cases.iter().map(|case| case.split).collect();
    splits.sort_unstable();
    splits.dedup();
    for split in splits {
        let counts = dataset.class_counts(&dataset.of_split(split));
        for (class, _) in dataset.classes.iter().zip(counts).filter(|(_, count)| *count == 0) {
            let place = split.map_or_else(String::new, |split| format!(" in {}", split.name()));
            let text = format!("class {class} has no images{place}");
            problems.push(ImageProblem { kind: ProblemKind::EmptyClass, case: None, text });
        }
    }
}
