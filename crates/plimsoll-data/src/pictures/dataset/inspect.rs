//! Problems of the images of a data set, found before a run starts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_memory::{Budget, Bytes, Digest, OverBudget};
use serde::{Deserialize, Serialize};

use super::DatasetError;
use super::{ImageCase, ImageDataset, Split};
use crate::pictures::Largest;
use plimsoll_image::ImageError;
use plimsoll_image::{DecodeOptions, Decoded, ImageFile, Levels, SampleRange};

/// The settings of an inspection.
#[derive(Clone, Copy, Debug)]
pub struct InspectOptions {
    /// Options for reading files. Without a range of samples of 16 bits, the range covers all images except
    /// images of `test`.
    pub decode: DecodeOptions,
    /// The channels that the network sees: 1 or 3.
    pub channels: usize,
    /// Decodes images, to find those that are damaged, constant or duplicates. Otherwise only headers are read.
    pub contents: bool,
    /// The number of threads.
    pub threads: usize,
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The file is not there.
    Missing,
    /// It is there, but cannot be read.
    Unreadable,
    /// The same pixels have different labels: one of them is wrong.
    ContradictingDuplicate,
    /// The same pixels are in two splits: a scored image was trained on.
    DuplicateAcrossSplits,
    /// The same pixels are there twice.
    Duplicate,
    /// All pixels are the same, as the network sees them.
    Constant,
    /// Nearly all pixels are black or white, as the network sees them.
    Saturated,
    /// An image of 16 bits has few of the 256 levels that the network sees.
    FewLevels,
    /// Some images have 16 bits a sample, others 8.
    MixedDepths,
    /// A group, such as a patient, is in two splits.
    GroupAcrossSplits,
    /// No case has the class.
    EmptyClass,
}

impl ProblemKind {
    /// Returns `true` if the data set should not be used before the problem is repaired.
    pub fn is_error(self) -> bool {
        match self {
            ProblemKind::Missing
            | ProblemKind::Unreadable
            | ProblemKind::ContradictingDuplicate
            | ProblemKind::DuplicateAcrossSplits
            | ProblemKind::GroupAcrossSplits => true,
            ProblemKind::Duplicate
            | ProblemKind::Constant
            | ProblemKind::Saturated
            | ProblemKind::FewLevels
            | ProblemKind::MixedDepths
            | ProblemKind::EmptyClass => false,
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            ProblemKind::Missing => {
                "add the file, or leave the case out; check folder and ending of the settings"
            }
            ProblemKind::Unreadable => "copy the file again from its source, or leave the case out",
            ProblemKind::ContradictingDuplicate => "find the right label, and leave the other case out",
            ProblemKind::DuplicateAcrossSplits => "leave one of the two out, the one to train on",
            ProblemKind::Duplicate => "leave one of the two out: it counts twice",
            ProblemKind::Constant => "leave the case out, unless this is intended",
            ProblemKind::Saturated => "check how the image was exported, or leave the case out",
            ProblemKind::FewLevels => {
                "check the image that has the highest samples, or set `range_16_bit = [low, high]` in [images]"
            }
            ProblemKind::MixedDepths => "export all images with the same number of bits",
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
    /// The remedy of an error of the file; none where it follows from the kind.
    #[serde(default)]
    pub remedy: Option<String>,
}

impl ImageProblem {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> &str {
        self.remedy.as_deref().unwrap_or(self.kind.remedy())
    }
}

impl fmt::Display for ImageProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The findings of an inspection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// Problems, the gravest kinds first, then in the order of cases.
    pub problems: Vec<ImageProblem>,
    /// The largest of the images that can be read.
    pub largest: Largest,
    /// For each case, `true` if it can be read.
    pub readable: Vec<bool>,
    /// The range of samples of 16 bits that becomes 0 to 255: the one that was set, else the range of all images except `test`; none
    /// where no such image has 16 bits, or images were not decoded.
    pub range_16_bit: Option<SampleRange>,
    /// The pixels of each case; none where images were not decoded, or could not be.
    pub contents: Vec<Option<Digest>>,
}

/// The share of black or of white pixels from which on an image counts as saturated.
const SATURATED: f64 = 0.95;

/// The difference of the least and the greatest of 256 levels below which an image of 16 bits has few of them.
const FEW_LEVELS: u8 = 16;

/// The known facts about one image.
#[derive(Clone, Copy, Debug)]
struct Content {
    digest: Digest,
    /// The least and the greatest sample; none of an image with 8 bits.
    samples: Option<(u16, u16)>,
    /// None until the range of samples of 16 bits is known.
    levels: Option<Levels>,
}

/// Reads the headers of all images, and the images themselves if wanted, one at a time on each thread; images of 16 bits a second time
/// once the range of their samples is known. Beside what decoding takes, 128 bytes for each case are reserved.
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
    let _list = budget.reserve("inspection of images", list_bytes(dataset.cases.len())).map_err(memory)?;
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
    let (mut range_16_bit, mut digests) = (options.decode.range_16_bit, vec![None; dataset.cases.len()]);
    if options.contents {
        let reading = Reading { dataset, options, budget };
        let mut contents = reading.each(&mut readable, &mut problems, |_, decoded| reading.content(decoded));
        range_16_bit = range_16_bit.or_else(|| range_of(dataset, &contents));
        if let Some(range) = range_16_bit {
            let is_left = |content: &Option<Content>| content.is_some_and(|content| content.levels.is_none());
            let mut left: Vec<bool> = contents.iter().map(is_left).collect();
            let levels = |_, decoded: &Decoded| decoded.levels(options.channels, range);
            let found = reading.each(&mut left, &mut problems, levels);
            for (content, levels) in contents.iter_mut().zip(found) {
                if let (Some(content), Some(levels)) = (content, levels) {
                    content.levels = Some(levels);
                }
            }
        }
        digests = contents.iter().map(|content| content.map(|content| content.digest)).collect();
        find_levels(dataset, &contents, &mut problems);
        find_mixed_depths(dataset, &contents, &mut problems);
        find_duplicates(dataset, &digests, &mut problems);
    }
    find_leaks(dataset, &mut problems);
    find_empty_classes(dataset, &mut problems);
    problems.sort_by_key(|problem| (problem.kind, problem.case));
    Ok(Inspection { problems, largest, readable, range_16_bit, contents: digests })
}

/// The bytes that the list of an inspection's findings reserves.
pub(super) fn list_bytes(cases: usize) -> Bytes {
    Bytes::from_len(cases.saturating_mul(128))
}

/// Images that are decoded one at a time on each thread.
struct Reading<'a> {
    dataset: &'a ImageDataset,
    options: &'a InspectOptions,
    budget: &'a Budget,
}

impl Reading<'_> {
    /// Applies `look` to each chosen image and returns the results. Images that cannot be read are no longer
    /// chosen, and are problems.
    fn each<T: Clone + Send>(
        &self,
        chosen: &mut [bool],
        problems: &mut Vec<ImageProblem>,
        look: impl Fn(usize, &Decoded) -> T + Sync,
    ) -> Vec<Option<T>> {
        let cases = &self.dataset.cases;
        let found = Mutex::new((vec![None; cases.len()], Vec::new()));
        let next = AtomicUsize::new(0);
        let is_chosen = &*chosen;
        std::thread::scope(|scope| {
            for _ in 0..self.options.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(case) = cases.get(at) else { break };
                        if is_chosen.get(at) != Some(&true) {
                            continue;
                        }
                        let read = self.decode(case, |decoded| look(at, decoded));
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        match read {
                            Ok(content) => found.0[at] = Some(content),
                            Err(error) => found.1.push(unreadable(at, case, &error)),
                        }
                    }
                });
            }
        });
        let (found, failed) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        for at in failed.iter().filter_map(|problem: &ImageProblem| problem.case) {
            chosen[at] = false;
        }
        problems.extend(failed);
        found
    }

    fn decode<T>(&self, case: &ImageCase, look: impl FnOnce(&Decoded) -> T) -> Result<T, ImageError> {
        let file = ImageFile::open(&case.path, &self.options.decode)?;
        let extent = file.extent();
        let memory = |source| ImageError::Memory {
            path: case.path.clone(),
            height: extent.height,
            width: extent.width,
            source,
        };
        // Threads wait for each other here, and never while they hold anything.
        let bytes = file.decoding_bytes().map_err(memory)?;
        let turn = self
            .budget
            .reserve_in_turn("inspection of images", bytes)
            .map_err(|error| memory(error.into()))?;
        Ok(look(&file.decode(&turn.into_budget())?))
    }

    fn content(&self, decoded: &Decoded) -> Content {
        let samples = decoded.range_16_bit();
        // The range is of no use to images with 8 bits.
        let range = samples.map_or(Some(SampleRange::FULL), |_| self.options.decode.range_16_bit);
        let levels = range.map(|range| decoded.levels(self.options.channels, range));
        Content { digest: decoded.digest(), samples, levels }
    }
}

/// The range of all samples of 16 bits, without the images that are held out for the end.
fn range_of(dataset: &ImageDataset, contents: &[Option<Content>]) -> Option<SampleRange> {
    let seen = dataset.cases.iter().zip(contents).filter(|(case, _)| case.split != Some(Split::Test));
    let samples = seen.filter_map(|(_, content)| content.as_ref()?.samples);
    let all = samples.reduce(|(low, high), (least, most)| (low.min(least), high.max(most)));
    all.map(|(low, high)| SampleRange::spanning(low, high))
}

fn unreadable(at: usize, case: &ImageCase, error: &ImageError) -> ImageProblem {
    let missing =
        matches!(error, ImageError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
    let kind = if missing { ProblemKind::Missing } else { ProblemKind::Unreadable };
    let remedy = error.remedy().filter(|_| !missing);
    ImageProblem { kind, case: Some(at), text: format!("case {}: {error}", case.name), remedy }
}

/// Images that show the network nothing, or next to nothing.
fn find_levels(dataset: &ImageDataset, contents: &[Option<Content>], problems: &mut Vec<ImageProblem>) {
    for (at, (case, content)) in dataset.cases.iter().zip(contents).enumerate() {
        let Some((content, levels)) = content.as_ref().and_then(|content| Some((content, content.levels?)))
        else {
            continue;
        };
        let (name, path) = (&case.name, case.path.display());
        let [low, high] = levels.range;
        let samples = content
            .samples
            .map_or_else(String::new, |(least, most)| format!("; its 16-bit samples are {least} to {most}"));
        let mut add = |kind, text| problems.push(ImageProblem { kind, case: Some(at), text, remedy: None });
        if levels.is_constant {
            add(ProblemKind::Constant, format!("case {name}: all pixels of {path} are the same{samples}"));
            continue;
        }
        for (share, colour) in [(levels.black, "black"), (levels.white, "white")] {
            if share >= SATURATED {
                let percent = 100.0 * share;
                let text =
                    format!("case {name}: {percent:.1} % of the pixels of {path} are {colour}{samples}");
                add(ProblemKind::Saturated, text);
            }
        }
        if content.samples.is_some() && high - low < FEW_LEVELS {
            let text =
                format!("case {name}: {path} has only the levels {low} to {high} of 0 to 255{samples}");
            add(ProblemKind::FewLevels, text);
        }
    }
}

/// Samples of 8 bits are used unchanged, samples of 16 bits are scaled, so that both together rarely mean the same.
fn find_mixed_depths(dataset: &ImageDataset, contents: &[Option<Content>], problems: &mut Vec<ImageProblem>) {
    let known = || dataset.cases.iter().zip(contents).filter_map(|(case, content)| Some((case, (*content)?)));
    let first = |is_deep| known().find(|(_, content)| content.samples.is_some() == is_deep);
    if let (Some((deep, _)), Some((flat, _))) = (first(true), first(false)) {
        let count = known().filter(|(_, content)| content.samples.is_some()).count();
        let text = format!(
            "{count} of {} images have 16 bits a sample, such as {}; the others have 8, such as {}",
            known().count(),
            deep.path.display(),
            flat.path.display()
        );
        problems.push(ImageProblem { kind: ProblemKind::MixedDepths, case: None, text, remedy: None });
    }
}

/// Each case is compared with the first that has the same pixels.
fn find_duplicates(dataset: &ImageDataset, digests: &[Option<Digest>], problems: &mut Vec<ImageProblem>) {
    let known = digests.iter().enumerate().filter_map(|(at, digest)| Some(((*digest)?, at)));
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
            problems.push(ImageProblem { kind, case: Some(*at), text, remedy: None });
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
            problems.push(ImageProblem {
                kind: ProblemKind::GroupAcrossSplits,
                case: Some(at),
                text,
                remedy: None,
            });
        }
    }
}

/// Classes that no case has; if there are splits, also those that one of the splits lacks.
fn find_empty_classes(dataset: &ImageDataset, problems: &mut Vec<ImageProblem>) {
    let mut splits: Vec<Option<Split>> = dataset.cases.iter().map(|case| case.split).collect();
    splits.sort_unstable();
    splits.dedup();
    for split in splits {
        let counts = dataset.class_counts(&dataset.in_split(split));
        for (class, _) in dataset.classes.iter().zip(counts).filter(|(_, count)| *count == 0) {
            let place = split.map_or_else(String::new, |split| format!(" in {}", split.name()));
            let text = format!("class {class} has no images{place}");
            problems.push(ImageProblem { kind: ProblemKind::EmptyClass, case: None, text, remedy: None });
        }
    }
}
