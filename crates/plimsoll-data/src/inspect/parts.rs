//! Parts of an inspection, which several processes write and one merges into the inspection of all cases.
//!
//! A part has what the inspection needs of its cases: their problems, facts and positions, and the sum of their intensities. Sums are of whole
//! numbers, so the merged inspection has the bits of one that read all cases. `NAME.jsonl` has a line with the facts that all parts must have
//! in common, and then one for each file, for some bins of a channel, and for each case. `NAME.bin` has the positions.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use plimsoll_disk::atomic;
use plimsoll_memory::{Bytes, Digest, Digester};
use serde::{Deserialize, Serialize};

use crate::Labels;
use crate::dataset::{Case, Channel, Dataset, LengthUnit};
use crate::fingerprint::CaseFingerprint;
use crate::inspect::record_lines::RecordLines;
use crate::inspect::scan::{Findings, Histograms, InspectionScan, SoundCase};
use crate::inspect::stamp::{FileStamp, stamp, stamps};
use crate::inspect::store::{Stretches, is_possible, label_values, unit_of, write_line};
use crate::inspect::{ForegroundIndex, InspectError, Inspection, Problem};
use crate::moments::Moments;

/// The version of the lines. Raise it when they or the facts in them change.
const VERSION: u32 = 1;
/// The bins of a line.
const BINS: usize = 4096;

/// The files of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFiles {
    lines: PathBuf,
    positions: PathBuf,
}

/// The merged parts of an inspection.
#[derive(Debug)]
pub enum MergedParts {
    /// The inspection of all cases.
    Whole(Box<Inspection>),
    /// The places of the parts that cannot be merged: their files are damaged, or they have read other files, cases or settings.
    Outdated(Vec<usize>),
}

/// The facts that parts have in common.
#[derive(PartialEq, Serialize, Deserialize)]
struct Facts {
    version: u32,
    seed: u64,
    channels: Vec<Channel>,
    labels: Labels,
    unit: Option<LengthUnit>,
    /// A checksum of the classes that values of each label map have.
    label_values: Digest,
    /// The number of cases of all parts.
    cases: usize,
}

/// The first line of a part.
#[derive(Serialize, Deserialize)]
struct Head {
    facts: Facts,
    /// The number of lines of each kind that follow.
    files: usize,
    bins: usize,
    cases: usize,
    /// The number of positions, and their checksum.
    positions: usize,
    hash: Digest,
    /// The most memory that reading a case takes.
    largest: Bytes,
}

/// Some bins of the intensities of a channel that are not empty, with their weights.
#[derive(Serialize, Deserialize)]
struct BinLine {
    channel: usize,
    bins: Vec<(usize, u64)>,
}

/// The line of a case.
#[derive(Serialize, Deserialize)]
struct CaseLine {
    number: usize,
    problems: Vec<Problem>,
    /// A valid case, and the number of its positions by class.
    sound: Option<(CaseFingerprint, Vec<usize>)>,
    /// By channel, the moments of the foreground.
    moments: Vec<[u64; 5]>,
    is_counted: bool,
}

impl CaseLine {
    /// The memory that its values keep.
    fn kept_bytes(&self) -> usize {
        let sound =
            self.sound.as_ref().map_or(0, |(case, counts)| case.heap_bytes() + 2 * size_of_val(&counts[..]));
        let problems: usize = self.problems.iter().map(|problem| 2 * problem.heap_bytes()).sum();
        size_of::<CaseFingerprint>()
            + size_of::<ForegroundIndex>()
            + sound
            + problems
            + size_of_val(&self.moments[..])
    }
}

impl PartFiles {
    /// The files of a part in a folder, by the name of the part.
    pub fn new(folder: &Path, name: &str) -> PartFiles {
        let file = |ending| folder.join(format!("{name}.{ending}"));
        PartFiles { lines: file("jsonl"), positions: file("bin") }
    }

    /// The file that is written last: where it is, the part is finished.
    pub fn lines(&self) -> &Path {
        &self.lines
    }

    /// Removes the files.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn remove(&self) -> Result<(), InspectError> {
        [&self.lines, &self.positions].into_iter().try_for_each(|path| {
            match plimsoll_disk::remove_file(path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    Err(InspectError::Io { path: path.clone(), action: "remove", source })
                }
                _ => Ok(()),
            }
        })
    }
}

/// The stamps of the files of a case.
fn stamps_of<'a>(dataset: &'a Dataset, case: &'a Case) -> impl Iterator<Item = FileStamp> + 'a {
    case.files().map(|path| stamp(&dataset.folder, path))
}

impl InspectionScan<'_> {
    fn facts(&self) -> Facts {
        let Dataset { channels, labels, cases, .. } = self.dataset;
        Facts {
            version: VERSION,
            seed: self.config.seed,
            channels: channels.clone(),
            labels: labels.clone(),
            unit: unit_of(self.dataset),
            label_values: label_values(self.dataset),
            cases: cases.len(),
        }
    }

    /// Reads the cases of these numbers, each from 0, and writes a part.
    ///
    /// # Errors
    /// Returns the errors of [`Inspection::run_indexing`], and an error if the disk fails.
    pub fn write_part(&self, numbers: &[usize], files: &PartFiles) -> Result<(), InspectError> {
        let dataset = self.dataset;
        let cases = numbers.iter().filter_map(|number| dataset.cases.get(*number));
        // Before anything is read, as of a whole inspection.
        let stamps: Vec<FileStamp> = cases.flat_map(|case| stamps_of(dataset, case)).collect();
        let (histograms, findings) = self.run(numbers, &BTreeSet::new())?;
        let write = |path: &Path, content: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>| {
            let written = atomic::write(path, |file| content(file));
            written.map_err(|source| InspectError::Io { path: path.into(), action: "write", source })
        };
        let (mut hash, mut positions) = (Digester::default(), 0);
        write(&files.positions, &mut |file| {
            (hash, positions) = (Digester::default(), 0);
            let found = numbers.iter().filter_map(|number| findings.reports.get(*number)?.as_ref());
            let sound = found.filter_map(|(_, sound)| sound.as_ref());
            sound.flat_map(|(_, index)| index.packed()).try_for_each(|position| {
                let bytes = position.to_le_bytes();
                hash.update(&bytes);
                positions += 1;
                file.write_all(&bytes)
            })
        })?;
        let bins = bin_lines(&histograms);
        let head = Head {
            facts: self.facts(),
            files: stamps.len(),
            bins: bins.len(),
            cases: numbers.len(),
            positions,
            hash: hash.finish(),
            largest: findings.largest,
        };
        write(&files.lines, &mut |file| {
            write_line(file, &head)?;
            stamps.iter().try_for_each(|stamp| write_line(file, stamp))?;
            bins.iter().try_for_each(|bins| write_line(file, bins))?;
            let mut lines = numbers.iter().filter_map(|number| findings.line(*number));
            lines.try_for_each(|line| write_line(file, &line))
        })
    }

    /// Merges parts that have each case once. Cases that turn out to be unlike all others are read again, to take them out of the intensities;
    /// so are all where channels are normalised inside of masks.
    ///
    /// # Errors
    /// Returns the errors of [`Inspection::run_indexing`].
    pub fn merge(&self, parts: &[PartFiles]) -> Result<MergedParts, InspectError> {
        let dataset = self.dataset;
        let mut uncounted: BTreeSet<usize> = BTreeSet::new();
        loop {
            let stamps = stamps(dataset);
            let mut merged = PartSums {
                histograms: Histograms::new(dataset, self.budget)?,
                findings: Findings::new(dataset),
            };
            // Their reservations are held until the findings are merged.
            let (mut read, mut outdated) = (Vec::new(), Vec::new());
            for (place, files) in parts.iter().enumerate() {
                match self.read_part(files, &mut merged)? {
                    Some(lines) => read.push(lines),
                    None => outdated.push(place),
                }
            }
            if outdated.is_empty() && merged.findings.done < dataset.cases.len() {
                outdated = (0..parts.len()).collect();
            }
            if !outdated.is_empty() {
                return Ok(MergedParts::Outdated(outdated));
            }
            if !uncounted.is_empty() {
                let numbers: Vec<usize> = uncounted.iter().copied().collect();
                let (histograms, _) = self.run(&numbers, &BTreeSet::new())?;
                merged.histograms.subtract(&histograms);
                merged.findings.forget_intensities(&uncounted);
            }
            let PartSums { histograms, findings } = merged;
            let (inspection, unsound) = findings.finish(dataset, &histograms, self.config.seed, &stamps);
            drop((histograms, read));
            if unsound.is_empty() {
                return Ok(MergedParts::Whole(Box::new(inspection.with_masks(self)?)));
            }
            uncounted.extend(unsound);
        }
    }

    /// Adds a part. Returns the reader, which holds the reservation of what was read, or `None` if it cannot be merged.
    fn read_part(
        &self,
        files: &PartFiles,
        merged: &mut PartSums,
    ) -> Result<Option<RecordLines>, InspectError> {
        let dataset = self.dataset;
        let Some(mut lines) = RecordLines::open(&files.lines, self.budget)? else { return Ok(None) };
        let Some(head) = lines.next::<Head>()? else { return Ok(None) };
        if head.facts != self.facts() {
            return Ok(None);
        }
        let mut read_stamps = Vec::new();
        for _ in 0..head.files {
            let Some(stamp) = lines.next::<FileStamp>()? else { return Ok(None) };
            lines.keep(2 * stamp.heap_bytes())?;
            read_stamps.push(stamp);
        }
        for _ in 0..head.bins {
            let Some(BinLine { channel, bins }) = lines.next()? else { return Ok(None) };
            let Some(histogram) = merged.histograms.channels.get_mut(channel) else { return Ok(None) };
            let histogram = histogram.get_mut().unwrap_or_else(PoisonError::into_inner);
            if !bins.into_iter().all(|(bin, weight)| histogram.add_to_bin(bin, weight)) {
                return Ok(None);
            }
        }
        let bytes = (head.positions as u64).checked_mul(size_of::<u32>() as u64);
        let Some(mut positions) = Stretches::open(&files.positions, bytes) else { return Ok(None) };
        let mut current_stamps = Vec::with_capacity(read_stamps.len());
        for _ in 0..head.cases {
            let Some(mut line) = lines.next::<CaseLine>()? else { return Ok(None) };
            if let Some((case, _)) = &mut line.sound {
                case.shrink();
            }
            lines.keep(line.kept_bytes())?;
            let Some(case) = dataset.cases.get(line.number) else { return Ok(None) };
            current_stamps.extend(stamps_of(dataset, case));
            if !self.keep_line(line, case, &mut positions, &mut merged.findings)? {
                return Ok(None);
            }
        }
        merged.findings.largest = merged.findings.largest.max(head.largest);
        let is_current =
            read_stamps == current_stamps && positions.agrees_with(head.hash) && lines.is_at_end();
        Ok(is_current.then_some(lines))
    }

    /// Keeps the facts about a case. Returns `false` if they are impossible, or the case is known already.
    fn keep_line(
        &self,
        line: CaseLine,
        case: &Case,
        positions: &mut Stretches,
        findings: &mut Findings,
    ) -> Result<bool, InspectError> {
        let CaseLine { number, problems, sound, moments, is_counted } = line;
        let sound = match sound {
            None => None,
            Some((found, counts)) => {
                let is_case = found.id == case.id
                    && is_possible(&found, self.dataset)
                    && counts.len() == self.dataset.labels.classes();
                if !is_case {
                    return Ok(false);
                }
                match positions.foreground(&counts, &found, self.budget)? {
                    Some(index) => Some((found, index)),
                    None => return Ok(false),
                }
            }
        };
        let moments: Vec<Moments> = moments.into_iter().map(Moments::from_bits).collect();
        Ok(findings.set(number, (problems, sound), (moments, is_counted)))
    }
}

/// The sums of parts.
struct PartSums {
    histograms: Histograms,
    findings: Findings,
}

fn bin_lines(histograms: &Histograms) -> Vec<BinLine> {
    let mut lines = Vec::new();
    for (channel, histogram) in histograms.channels.iter().enumerate() {
        let histogram = histogram.lock().unwrap_or_else(PoisonError::into_inner);
        let bins: Vec<(usize, u64)> = histogram.filled().collect();
        lines.extend(bins.chunks(BINS).map(|bins| BinLine { channel, bins: bins.to_vec() }));
    }
    lines
}

impl Findings {
    /// The line of a case; `None` if it was not read.
    fn line(&self, number: usize) -> Option<CaseLine> {
        let (problems, sound) = self.reports.get(number)?.as_ref()?;
        let (moments, is_counted) = self.foreground.get(number)?;
        Some(CaseLine {
            number,
            problems: problems.clone(),
            sound: sound.as_ref().map(|(case, index)| (case.clone(), index.counts())),
            moments: moments.iter().map(|moments| moments.to_bits()).collect(),
            is_counted: *is_counted,
        })
    }

    /// Sets the findings about a case. Returns `false` if it has findings already.
    fn set(
        &mut self,
        number: usize,
        report: (Vec<Problem>, Option<SoundCase>),
        foreground: (Vec<Moments>, bool),
    ) -> bool {
        match (self.reports.get_mut(number), self.foreground.get_mut(number)) {
            (Some(free @ None), Some(place)) => {
                (*free, *place) = (Some(report), foreground);
                self.done += 1;
                true
            }
            _ => false,
        }
    }

    /// Takes the intensities of cases out of what is counted.
    fn forget_intensities(&mut self, numbers: &BTreeSet<usize>) {
        for number in numbers {
            if let Some((_, is_counted)) = self.foreground.get_mut(*number) {
                *is_counted = false;
            }
        }
    }
}
