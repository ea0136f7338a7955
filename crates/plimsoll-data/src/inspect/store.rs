//! Saving an inspection, so that a data set is read again only if it has changed.
//!
//! `inspection.jsonl` has a line with the facts that must be unchanged, and then one for each file, problem and case. It is read line by
//! line, so that a data set of many cases is opened in little more memory than its cases take. `foreground_index.bin` beside it has the positions
//! of all cases as little-endian 32-bit integers, and `nonzero_masks.bin` the masks of cases that are normalised inside of them.
//! `dataset_fingerprint.json` has nnU-Net's entries for other programs and is not read back.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use plimsoll_disk::{File, atomic};
use plimsoll_memory::{Budget, Bytes, Digest, Digester};
use serde::{Deserialize, Serialize};

use crate::Labels;
use crate::dataset::{Channel, Dataset, LengthUnit};
use crate::fingerprint::{CaseFingerprint, Fingerprint};
use crate::inspect::foreground::unit;
use crate::inspect::record_lines::RecordLines;
use crate::inspect::stamp::{FileStamp, stamps};
use crate::inspect::{ForegroundIndex, InspectConfig, InspectError, Inspection, Problem, masks};
use crate::mask::MaskRuns;
use crate::statistics::IntensityProperties;

const LINES: &str = "inspection.jsonl";
const FINGERPRINT: &str = "dataset_fingerprint.json";
const INDEX: &str = "foreground_index.bin";
const MASKS: &str = "nonzero_masks.bin";

/// The version of the lines. Raise it when the samples or the statistics change.
const VERSION: u32 = 8;

/// The first line: the facts that must be unchanged for the inspection to be current, and the statistics of all cases.
#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
    seed: u64,
    channels: Vec<Channel>,
    labels: Labels,
    /// The unit that headers were taken to be in, where the user said so.
    unit: Option<LengthUnit>,
    /// A checksum of the classes that values of each label map have.
    label_values: Digest,
    /// The number of lines of each kind that follow.
    files: usize,
    problems: usize,
    cases: usize,
    /// Statistics of the foreground by channel.
    intensities: BTreeMap<usize, IntensityProperties>,
    /// The number of positions in the index.
    positions: usize,
    /// The checksum of the index.
    index_hash: Digest,
    /// The bytes of all masks.
    mask_bytes: usize,
    /// The checksum of all masks.
    mask_hash: Digest,
    /// The least budget in which the data set can be inspected again.
    least: Bytes,
}

/// The line of a case.
#[derive(Serialize, Deserialize)]
struct CaseLine {
    case: CaseFingerprint,
    /// The number of positions by class.
    index: Vec<usize>,
    /// The bytes of its mask, where there are masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<usize>,
}

impl CaseLine {
    /// The memory that its values keep. Lists grow to twice their length.
    fn kept_bytes(&self) -> usize {
        let of_case = 2 * size_of::<CaseFingerprint>() + self.case.heap_bytes();
        let of_index = 2 * size_of::<ForegroundIndex>() + 2 * size_of_val(&self.index[..]);
        of_case + of_index + 2 * size_of::<Arc<MaskRuns>>() + size_of::<MaskRuns>()
    }
}

impl Inspection {
    /// Writes `inspection.jsonl`, `dataset_fingerprint.json` and `foreground_index.bin` into a folder, each atomically.
    ///
    /// # Errors
    /// If the disk fails. Older files may then still be there.
    pub fn save(&self, folder: impl AsRef<Path>, dataset: &Dataset) -> Result<(), InspectError> {
        let folder = folder.as_ref();
        let write = |name: &str, content: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>| {
            let path = folder.join(name);
            let written = atomic::write(&path, |file| content(file));
            written.map_err(|source| InspectError::Io { path, action: "write", source })
        };
        let (mut index_hash, mut mask_hash) = (Digester::default(), Digester::default());
        write(INDEX, &mut |file| {
            // Number by number, so that the file is little-endian on any machine.
            self.foreground.iter().flat_map(ForegroundIndex::packed).try_for_each(|position| {
                let bytes = position.to_le_bytes();
                index_hash.update(&bytes);
                file.write_all(&bytes)
            })
        })?;
        if !self.masks.is_empty() {
            write(MASKS, &mut |file| {
                self.masks.iter().try_for_each(|mask| {
                    mask_hash.update(mask.bytes());
                    file.write_all(mask.bytes())
                })
            })?;
        }
        if let Some(fingerprint) = &self.fingerprint {
            write(FINGERPRINT, &mut |file| {
                serde_json::to_writer_pretty(&mut *file, fingerprint)?;
                file.write_all(b"\n")
            })?;
        }
        let head =
            Head { index_hash: index_hash.finish(), mask_hash: mask_hash.finish(), ..self.head(dataset) };
        // Written last: without these lines the index and the masks are ignored.
        write(LINES, &mut |file| {
            write_line(file, &head)?;
            self.stamps.iter().try_for_each(|stamp| write_line(file, stamp))?;
            self.problems.iter().try_for_each(|problem| write_line(file, problem))?;
            self.case_lines().try_for_each(|line| write_line(file, &line))
        })
    }

    /// The first line, without checksums.
    fn head(&self, dataset: &Dataset) -> Head {
        let fingerprint = self.fingerprint.as_ref();
        Head {
            version: VERSION,
            seed: self.seed,
            channels: dataset.channels.clone(),
            labels: dataset.labels.clone(),
            unit: unit_of(dataset),
            label_values: label_values(dataset),
            files: self.stamps.len(),
            problems: self.problems.len(),
            cases: fingerprint.map_or(0, |all| all.cases.len()),
            // Without a case there are no statistics.
            intensities: fingerprint
                .map_or_else(BTreeMap::new, |all| all.foreground_intensity_properties_per_channel.clone()),
            positions: self.foreground.iter().map(|index| index.packed().len()).sum(),
            index_hash: Digest(0),
            mask_bytes: self.masks.iter().map(|mask| mask.bytes().len()).sum(),
            mask_hash: Digest(0),
            least: self.least,
        }
    }

    fn case_lines(&self) -> impl Iterator<Item = CaseLine> + '_ {
        let cases = self.fingerprint.iter().flat_map(|all| &all.cases);
        cases.zip(&self.foreground).enumerate().map(|(number, (case, index))| {
            let mask = self.masks.get(number).map(|mask| mask.bytes().len());
            CaseLine { case: case.clone(), index: index.counts(), mask }
        })
    }

    /// The memory that loading it takes beside the index and the masks.
    pub(super) fn loading_bytes(&self, dataset: &Dataset) -> Bytes {
        let (mut longest, mut kept) = (length(&self.head(dataset)), 0);
        for stamp in &self.stamps {
            (longest, kept) = (longest.max(length(stamp)), kept + stamp.heap_bytes());
        }
        for problem in &self.problems {
            (longest, kept) = (longest.max(length(problem)), kept + 2 * problem.heap_bytes());
        }
        for line in self.case_lines() {
            (longest, kept) = (longest.max(length(&line)), kept + line.kept_bytes());
        }
        RecordLines::bytes(longest, kept)
    }

    /// Loads an inspection from a folder if it is current: every file of the data set has the same length and
    /// modification time, and channels, labels and seed are the same. `None` if it is outdated, missing or damaged; the
    /// data set must then be inspected again.
    ///
    /// # Errors
    /// If the budget has no room for the index, or for reading a line.
    pub fn load_if_current(
        folder: impl AsRef<Path>,
        dataset: &Dataset,
        config: InspectConfig,
        budget: &Budget,
    ) -> Result<Option<Inspection>, InspectError> {
        let folder = folder.as_ref();
        let Some(mut lines) = RecordLines::open(&folder.join(LINES), budget)? else { return Ok(None) };
        let Some(head) = lines.next::<Head>()? else { return Ok(None) };
        let stamps = stamps(dataset);
        let is_current = head.version == VERSION
            && head.seed == config.seed
            && head.channels == dataset.channels
            && head.labels == dataset.labels
            && head.unit == unit_of(dataset)
            && head.label_values == label_values(dataset)
            && head.files == stamps.len()
            && head.cases <= dataset.cases.len();
        if !is_current {
            return Ok(None);
        }
        lines.keep(stamps.iter().map(FileStamp::heap_bytes).sum())?;
        for stamp in &stamps {
            if lines.next::<FileStamp>()?.as_ref() != Some(stamp) {
                return Ok(None);
            }
        }
        let mut problems = Vec::new();
        for _ in 0..head.problems {
            let Some(problem) = lines.next::<Problem>()? else { return Ok(None) };
            lines.keep(2 * problem.heap_bytes())?;
            problems.push(problem);
        }
        let Some(cases) = StoredCases::read(&mut lines, &head, folder, dataset, budget)? else {
            return Ok(None);
        };
        if !lines.is_at_end() {
            return Ok(None);
        }
        let StoredCases { cases, foreground, masks } = cases;
        let fingerprint = Fingerprint::new(cases, head.intensities);
        if fingerprint.as_ref().is_some_and(|all| masks::are_used(dataset, all) == masks.is_empty()) {
            return Ok(None);
        }
        let (seed, least) = (head.seed, head.least);
        Ok(Some(Inspection { problems, fingerprint, foreground, masks, stamps, seed, least }))
    }
}

/// The stored facts about each case.
struct StoredCases {
    cases: Vec<CaseFingerprint>,
    foreground: Vec<ForegroundIndex>,
    masks: Vec<Arc<MaskRuns>>,
}

impl StoredCases {
    /// Reads the lines of all cases with their parts of the index and the masks; `None` if they are not of the data set, or do not belong
    /// together.
    fn read(
        lines: &mut RecordLines,
        head: &Head,
        folder: &Path,
        dataset: &Dataset,
        budget: &Budget,
    ) -> Result<Option<StoredCases>, InspectError> {
        let index_bytes = (head.positions as u64).checked_mul(size_of::<u32>() as u64);
        let Some(mut index) = Stretches::open(&folder.join(INDEX), index_bytes) else { return Ok(None) };
        let mut of_masks = match head.mask_bytes {
            0 => None,
            bytes => match Stretches::open(&folder.join(MASKS), Some(bytes as u64)) {
                None => return Ok(None),
                masks => masks,
            },
        };
        let mut known = dataset.cases.iter();
        let mut read = StoredCases { cases: Vec::new(), foreground: Vec::new(), masks: Vec::new() };
        for _ in 0..head.cases {
            let Some(mut line) = lines.next::<CaseLine>()? else { return Ok(None) };
            line.case.shrink();
            lines.keep(line.kept_bytes())?;
            let CaseLine { case, index: counts, mask } = line;
            let is_known = known.any(|known| known.id == case.id)
                && is_possible(&case, dataset)
                && counts.len() == dataset.labels.classes()
                && mask.is_some() == of_masks.is_some();
            if !is_known {
                return Ok(None);
            }
            let Some(of_case) = index.foreground(&counts, &case, budget)? else { return Ok(None) };
            read.foreground.push(of_case);
            if let (Some(masks), Some(length)) = (&mut of_masks, mask) {
                let Some(mask) = masks.mask(length, &case, budget)? else { return Ok(None) };
                read.masks.push(Arc::new(mask));
            }
            read.cases.push(case);
        }
        let is_whole = |parts: Stretches, hash| parts.agrees_with(hash);
        let are_whole =
            is_whole(index, head.index_hash) && of_masks.is_none_or(|masks| is_whole(masks, head.mask_hash));
        Ok(are_whole.then_some(read))
    }
}

/// A file with a stretch for each case.
pub(super) struct Stretches {
    file: File,
    /// Bytes that are not read yet.
    left: u64,
    hash: Digester,
}

impl Stretches {
    /// Opens a file of a known length; `None` if it has another.
    pub(super) fn open(path: &Path, length: Option<u64>) -> Option<Stretches> {
        let file = File::open(path).ok()?;
        let left = file.len().ok().filter(|found| Some(*found) == length)?;
        Some(Stretches { file, left, hash: Digester::default() })
    }

    /// Returns `true` if all was read, and has this checksum.
    pub(super) fn agrees_with(self, hash: Digest) -> bool {
        self.left == 0 && self.hash.finish() == hash
    }

    /// Takes a part of the bytes that are left. Returns `true` if there are enough.
    fn take(&mut self, bytes: Option<u64>) -> bool {
        let left = bytes.and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Reads the positions of a case.
    pub(super) fn foreground(
        &mut self,
        counts: &[usize],
        case: &CaseFingerprint,
        budget: &Budget,
    ) -> Result<Option<ForegroundIndex>, InspectError> {
        let count = counts.iter().fold(0, |sum: usize, count| sum.saturating_add(*count));
        if !self.take((count as u64).checked_mul(size_of::<u32>() as u64)) {
            return Ok(None);
        }
        let voxels = case.geometry.voxel_count() as u64;
        let unit = unit(case.geometry.voxel_count());
        let mut index = ForegroundIndex::zeroed(counts.iter().copied(), unit, count, budget)?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(index.packed_mut());
        if self.file.read_exact(bytes).is_err() {
            return Ok(None);
        }
        self.hash.update(bytes);
        index.packed_mut().iter_mut().for_each(|position| *position = u32::from_le(*position));
        let is_inside = index.packed().iter().all(|position| u64::from(*position) * unit < voxels);
        Ok(is_inside.then_some(index))
    }

    /// Reads the mask of a case.
    fn mask(
        &mut self,
        length: usize,
        case: &CaseFingerprint,
        budget: &Budget,
    ) -> Result<Option<MaskRuns>, InspectError> {
        let Some(voxels) = case.mask_voxels.filter(|_| self.take(Some(length as u64))) else {
            return Ok(None);
        };
        let mask = MaskRuns::read(case.nonzero_box, length, voxels, &mut self.file, budget)?;
        mask.iter().for_each(|mask| self.hash.update(mask.bytes()));
        Ok(mask)
    }
}

/// The length of a value's line.
fn length(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        // A value that cannot be written is in no file.
        Err(_) => 0,
    }
}

pub(super) fn write_line(file: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, value)?;
    file.write_all(b"\n")
}

/// A checksum of the classes that values of each label map have.
pub(super) fn label_values(dataset: &Dataset) -> Digest {
    let mut sum = Digester::default();
    for values in dataset.cases.iter().map(|case| case.reading.label_values.as_deref()) {
        sum.update(&[u8::from(values.is_some())]);
        for class in values.into_iter().flat_map(|values| (0..=u8::MAX).map(|value| values.class(value))) {
            sum.update(&class.map_or([0, 0], |class| [1, class]));
        }
    }
    sum.finish()
}

/// The unit of lengths in the headers of a data set, if the user sets it: the same for all its cases.
pub(super) fn unit_of(dataset: &Dataset) -> Option<LengthUnit> {
    dataset.cases.first().and_then(|case| case.reading.unit)
}

/// Returns `true` if the facts about a case of a data set are possible.
pub(super) fn is_possible(case: &CaseFingerprint, dataset: &Dataset) -> bool {
    case.nonzero_box.is_within(case.geometry.shape())
        && case.nonzero_box.shape.iter().all(|extent| *extent > 0)
        && case.channels.len() == dataset.channels.len()
        && case.element_types.len() == dataset.channels.len()
}
