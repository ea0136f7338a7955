//! The parts of an evaluation: each writes its scores into a file of its own, and the last one to finish merges them into the scores of all.
//!
//! Scores are merged in the order of all cases, so that means have the same bits as the means of one process. Merging is a function of the
//! files of all parts alone: of two parts that finish at the same time both write the same scores.

use std::path::Path;
use std::time::UNIX_EPOCH;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::{CasePaths, CaseScores, Settings, Summary};
use plimsoll_volume::VolumeFile;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::{write, write_json};
use crate::part::{CaseWork, Part, PartRecord, Share};

/// The longest file of a part that is read: scores of a hundred thousand cases are shorter.
const LONGEST: u64 = 512 << 20;

/// The most memory per byte of text while scores are read.
const HELD_PER_BYTE: u64 = 8;

/// The part of the cases that was scored.
#[derive(Clone, Debug)]
pub struct ScoredPart {
    share: Share,
    /// The places of its cases in the list of all.
    places: Vec<usize>,
    /// The number of all cases.
    of: usize,
}

/// The length and the modification time of a scored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileState {
    bytes: u64,
    modified_ns: u64,
}

impl FileState {
    /// The state of a file.
    fn read(path: &Path) -> Outcome<FileState> {
        let metadata = plimsoll_disk::metadata(path).map_err(|error| Error::at_path(path, &error))?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        // File systems without times of changes tell files apart by their length alone.
        let modified_ns = modified.map_or(0, |since| since.as_nanos() as u64);
        Ok(FileState { bytes: metadata.len(), modified_ns })
    }

    /// The states of the prediction and the reference of a case.
    fn read_case(scores: &CaseScores) -> Outcome<[FileState; 2]> {
        Ok([FileState::read(&scores.prediction_file)?, FileState::read(&scores.reference_file)?])
    }
}

/// The scores of a case, its place in the list of all, and the files that were scored.
#[derive(Serialize, Deserialize)]
struct PlacedScores {
    place: usize,
    files: [FileState; 2],
    scores: CaseScores,
}

/// The file of a part.
#[derive(Serialize, Deserialize)]
struct PartScores {
    part: PartRecord,
    settings: Settings,
    cases: Vec<PlacedScores>,
}

impl ScoredPart {
    /// Keeps the cases of a part. Their work is the number of voxels of the reference.
    pub(super) fn choose(
        part: Part,
        predictions: &Path,
        cases: &mut Vec<CasePaths>,
        context: &Context,
    ) -> ScoredPart {
        let name = |case: &CasePaths| {
            let below = case.prediction.strip_prefix(predictions).unwrap_or(&case.prediction);
            below.to_string_lossy().into_owned()
        };
        // An unreadable reference takes no time; the scores report it.
        let work = |case: &CasePaths| {
            let file = VolumeFile::open_labels(&case.reference);
            file.map_or(0, |file| file.geometry().voxel_count() as u64)
        };
        let names: Vec<String> = cases.iter().map(name).collect();
        let list: Vec<CaseWork<'_>> =
            names.iter().zip(&*cases).map(|(name, case)| CaseWork { name, work: work(case) }).collect();
        let share = Share::new(part, &list);
        share.note(&list, context);
        let of = names.len();
        let all = std::mem::take(cases).into_iter().zip(names).enumerate();
        let own = all.filter(|(_, (_, name))| share.has(name)).map(|(place, (case, _))| (place, case));
        let (places, own): (Vec<usize>, Vec<CasePaths>) = own.unzip();
        *cases = own;
        ScoredPart { share, places, of }
    }

    /// The part.
    pub fn part(&self) -> Part {
        self.share.part
    }

    /// Writes the scores of the part beside the file of all scores. Returns the scores of all cases if all parts are finished, and reports
    /// which are not.
    pub(super) fn merge(
        &self,
        output: &Path,
        summary: &Summary,
        ram: Option<Bytes>,
        context: &Context,
    ) -> Outcome<Option<Summary>> {
        let folder = output.with_extension("parts");
        plimsoll_disk::create_dir_all(&folder).map_err(|error| Error::at_path(&folder, &error))?;
        let file = |part: Part| folder.join(format!("{}.json", part.file_stem()));
        let placed = self.places.iter().zip(&summary.metric_per_case).map(|(place, scores)| {
            let files = FileState::read_case(scores)?;
            Ok(PlacedScores { place: *place, files, scores: scores.clone() })
        });
        let own = PartScores {
            part: self.share.record(),
            settings: summary.settings.clone(),
            cases: placed.collect::<Outcome<_>>()?,
        };
        write(&file(self.part()), |to| write_json(to, &own))?;
        let budget = Budget::new(context.limits(ram).limit);
        let (mut found, mut missing, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut memory = Vec::new();
        for part in self.part().all() {
            let path = file(part);
            if !plimsoll_disk::exists(&path).map_err(|error| Error::at_path(&path, &error))? {
                missing.push(part);
                continue;
            }
            memory.push(reserve(&path, &budget)?);
            let scores = read(&path)?;
            let is_same = scores.part.list == own.part.list && scores.settings == own.settings;
            // A file that is gone is another one than was scored.
            let is_same_file = |case: &PlacedScores| {
                FileState::read_case(&case.scores).is_ok_and(|files| files == case.files)
            };
            let is_current = || scores.cases.iter().all(is_same_file);
            match is_same && is_current() {
                true => found.extend(scores.cases),
                false => others.push(part),
            }
        }
        let listed = |parts: &[Part]| parts.iter().map(Part::to_string).collect::<Vec<_>>().join(", ");
        if !others.is_empty() {
            context.warn(format_args!(
                "{}: part {} scored other files, or with other options: repeat it",
                folder.display(),
                listed(&others)
            ));
            return Ok(None);
        }
        let of = self.part().count();
        if !missing.is_empty() {
            let finished = of as usize - missing.len();
            context
                .note(format_args!("{finished} of {of} parts are finished; missing: {}", listed(&missing)));
            return Ok(None);
        }
        found.sort_by_key(|case| case.place);
        let is_whole = found.iter().map(|case| case.place).eq(0..self.of);
        if !is_whole {
            let message = format!("the parts in {} do not have each case once", folder.display());
            return Err(Error::new(message, "remove this folder, and repeat all parts"));
        }
        context.note(format_args!("all {of} parts are finished: {} has the scores of all", output.display()));
        let scores = found.into_iter().map(|case| case.scores).collect();
        Ok(Some(Summary::new(scores, own.settings)))
    }
}

fn reserve(path: &Path, budget: &Budget) -> Outcome<plimsoll_memory::Reservation> {
    let length = plimsoll_disk::metadata(path).map_err(|error| Error::at_path(path, &error))?.len();
    Ok(budget.reserve("scores of parts", Bytes(length.saturating_mul(HELD_PER_BYTE)))?)
}

/// Reads the scores of a part.
fn read(path: &Path) -> Outcome<PartScores> {
    let text = plimsoll_disk::read(path, LONGEST).map_err(|error| Error::at_path(path, &error))?;
    serde_json::from_slice(&text).map_err(|problem| {
        let message = format!("{} has no scores of a part: {problem}", path.display());
        Error::new(message, "remove it, and repeat the part")
    })
}
