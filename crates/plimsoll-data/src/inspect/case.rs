//! The inspection of one case, in one pass over each of its files.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use plimsoll_memory::{Budget, Bytes, Digest, Digester};
use plimsoll_volume::{
    Content, ElementType, Geometry, IndexFolder, StoredVolume, VolumeError, VolumeFile, VoxelBox,
};

use crate::dataset::{Case, Channel};
use crate::fingerprint::CaseFingerprint;
use crate::inspect::histogram::Histogram;
use crate::inspect::image_scan::{self, Foreground, ImageScan, Source};
use crate::inspect::label_scan::{self, LabelPlanes, LabelScan};
use crate::inspect::problem::{Problem, Problems, Severity};
use crate::inspect::{InspectError, judge};
use crate::moments::Moments;
use crate::statistics::ChannelStatistics;
use crate::{Labels, VolumeCache};

/// The memory of an open file.
const OPEN_FILE: u64 = VolumeFile::OPEN_BYTES.0;

/// The findings about a case.
pub(crate) struct CaseReport {
    pub(crate) problems: Vec<Problem>,
    /// `None` if a problem is an error.
    pub(crate) fingerprint: Option<CaseFingerprint>,
    /// `None` without a readable label map.
    pub(crate) labels: Option<LabelScan>,
    /// By channel, the moments of the foreground.
    pub(crate) foreground: Vec<Moments>,
    /// `true` if its foreground is in the histograms.
    pub(crate) is_counted: bool,
    /// The bytes that reading the case reserved.
    pub(crate) needed: Bytes,
}

/// The inspection to run on a case.
pub(crate) struct CaseInspection<'a> {
    pub(crate) case: &'a Case,
    pub(crate) channels: &'a [Channel],
    /// `None` for a case that is only predicted.
    pub(crate) labels: Option<&'a Labels>,
    /// By channel, the intensities of the foreground of all cases; empty if they are not counted.
    pub(crate) histograms: &'a [Mutex<Histogram>],
    /// The weight of all foreground voxels of the case together.
    pub(crate) weight: u64,
    /// The key of the random sample.
    pub(crate) key: u64,
    /// The cache that decoded images are kept in, if it has room for them and they are not pictures.
    pub(crate) decoded: Option<&'a VolumeCache>,
    /// The folder of access points of compressed files.
    pub(crate) indexes: Option<&'a IndexFolder>,
    /// Set from outside to end early.
    pub(crate) stop: Option<&'a AtomicBool>,
}

/// The foreground of a case that is counted.
struct Counted {
    /// The first and the last plane with foreground.
    planes: [usize; 2],
    /// The weight of each of its voxels.
    weight: u64,
}

/// A channel that was read.
struct ReadChannel {
    element_type: ElementType,
    scan: ImageScan,
}

impl CaseInspection<'_> {
    pub(crate) fn run(&self, budget: &Budget) -> Result<CaseReport, InspectError> {
        let mut problems = Problems::new(&self.case.id);
        let mut images = self.open_images(&mut problems);
        let first = images.iter().flatten().next().map(|image| *image.geometry());
        let mut label = self.open_label(&mut problems, first);
        let grid = match images.iter().flatten().next() {
            Some(image) => self.grid(&mut problems, image),
            None => None,
        };
        if let Some(grid) = &grid {
            for image in images.iter().flatten() {
                if let Some(found) = self.grid(&mut problems, image) {
                    judge::grids(&mut problems, image.path(), &found, grid, "the first channel");
                }
            }
            if let Some(label) = &label
                && let Some(found) = self.grid(&mut problems, label)
            {
                judge::grids(&mut problems, label.path(), &found, grid, "the image");
            }
            if let (Some(label), Some(image)) = (&label, images.iter().flatten().next()) {
                judge::frames_of_reference(&mut problems, label, image);
            }
        }
        let (memory, needed) = self.reserve(&images, label.as_ref(), budget)?;
        let decoding_bytes = decoding_bytes(&images, label.as_ref());
        for file in images.iter_mut().chain(std::iter::once(&mut label)) {
            let Some(opened) = file else { continue };
            let path = opened.path().to_path_buf();
            if usable(&mut problems, &path, opened.decode(&memory)).is_none() {
                *file = None;
            } else if let Some(folder) = self.indexes {
                // All of it is about to be read.
                opened.index_in(folder);
            }
        }
        let labels = self.read_labels(&mut problems, label.as_mut(), &memory)?;
        let label_bytes = label.as_ref().map_or(Bytes::ZERO, |label| Bytes(label.stored_bytes()));
        // A case with an error is left out of the data set's statistics.
        let counted = labels.as_ref().filter(|_| !problems.any_error()).and_then(|scan| self.counted(scan));
        let foreground = label.as_mut().zip(counted);
        let is_counted = foreground.is_some() && !self.histograms.is_empty();
        let channels = self.read_channels(&mut problems, &mut images, foreground, &memory)?;
        let mut fingerprint = None;
        if let (Some(grid), false) = (grid, problems.any_error()) {
            let found = self.fingerprint(grid, &channels, labels.as_ref(), label_bytes, decoding_bytes);
            judge::ranges(&mut problems, self.case, self.channels, &found);
            fingerprint = (!problems.any_error()).then_some(found);
        }
        let foreground = channels.into_iter().map(|channel| channel.scan.foreground).collect();
        Ok(CaseReport { problems: problems.found, fingerprint, labels, foreground, is_counted, needed })
    }

    fn open_images(&self, problems: &mut Problems) -> Vec<Option<VolumeFile>> {
        let in_one = self.case.image_files().count() == 1;
        let expected = if in_one { self.channels.len() } else { 1 };
        let open_image = |path: &Path| {
            let image = open(problems, path)?;
            warn(problems, &image);
            let found = image.channels();
            if found != expected {
                let hint = if in_one {
                    "the image must have a channel for each that dataset.json names, in that order"
                } else {
                    "each channel must be in its own file"
                };
                problems.error(path, format!("it has {found} channels, but {expected} are expected"), hint);
            }
            Some(image)
        };
        self.case.image_files().map(open_image).collect()
    }

    /// The grid of a file, in the unit that is set.
    fn grid(&self, problems: &mut Problems, file: &VolumeFile) -> Option<Geometry> {
        let Some(unit) = self.case.reading.unit else { return Some(*file.geometry()) };
        let scaled = file.geometry().scaled(self.case.reading.scale(file));
        let hint = "leave the unit to the header, or correct it";
        scaled.map_err(|problem| problems.error(file.path(), format!("in {unit}: {problem}"), hint)).ok()
    }

    /// Opens the label map. A segmentation that has a part of the image's grid is placed on it.
    fn open_label(&self, problems: &mut Problems, on: Option<Geometry>) -> Option<VolumeFile> {
        self.labels?;
        let path = self.case.label.as_deref()?;
        let label = usable(problems, path, VolumeFile::open_as(path, Content::Segments { on }))?;
        warn(problems, &label);
        let found = label.channels();
        if found != 1 {
            let hint = "merge the channels into one label map";
            problems.error(path, format!("it has {found} channels, but a label map has 1"), hint);
        }
        Some(label)
    }

    /// Reserves all memory of the case: the largest plane (planes are held one after the other), open files and
    /// samples. Returns also the bytes without which the case cannot be read.
    fn reserve(
        &self,
        images: &[Option<VolumeFile>],
        label: Option<&VolumeFile>,
        budget: &Budget,
    ) -> Result<(Budget, Bytes), InspectError> {
        let files = images.iter().flatten().chain(label).count() as u64 * OPEN_FILE;
        let image = images.iter().flatten().map(image_scan::plane_bytes).max().unwrap_or(0);
        let decoding = decoding_bytes(images, label);
        let layers =
            images.iter().flatten().chain(label).map(VolumeFile::layer_bytes).max().unwrap_or(Bytes::ZERO);
        // Planes of the label map are read once by themselves, and once beside the planes of each channel.
        let label = label.map_or(0, label_scan::plane_bytes);
        let samples = self.labels.map_or(0, label_scan::sample_bytes);
        let bytes = Bytes(image) + Bytes(label) + Bytes(files) + Bytes(samples) + decoding;
        // With room for all planes that chunks are part of, each chunk is decoded once, and else once for each of its planes.
        let reserve = |bytes| budget.reserve_in_turn("inspection", bytes);
        let reserved = match layers {
            Bytes::ZERO => reserve(bytes),
            layers => reserve(bytes + layers).or_else(|_| reserve(bytes)),
        };
        Ok((reserved?.into_budget(), bytes))
    }

    fn read_labels(
        &self,
        problems: &mut Problems,
        label: Option<&mut VolumeFile>,
        memory: &Budget,
    ) -> Result<Option<LabelScan>, InspectError> {
        let (Some(label), Some(labels)) = (label, self.labels) else { return Ok(None) };
        let scanned =
            label_scan::scan(label, labels, self.case.reading.label_values.as_deref(), self.key, memory)?;
        let scan = usable(problems, label.path(), scanned);
        if let Some(scan) = &scan {
            let values = self.case.reading.label_values.as_deref();
            judge::label_values(problems, label.path(), scan, labels, values);
        }
        Ok(scan)
    }

    /// The planes and the weight of the counted foreground; `None` without foreground.
    fn counted(&self, scan: &LabelScan) -> Option<Counted> {
        let voxels: u64 = scan.counts.iter().take(self.labels?.classes()).skip(1).sum();
        Some(Counted { planes: scan.foreground_planes?, weight: self.weight.checked_div(voxels)? })
    }

    /// Reads the channels. If one cannot be read, an error has been added to `problems`.
    fn read_channels(
        &self,
        problems: &mut Problems,
        images: &mut [Option<VolumeFile>],
        mut counted: Option<(&mut VolumeFile, Counted)>,
        memory: &Budget,
    ) -> Result<Vec<ReadChannel>, InspectError> {
        let mut channels = Vec::with_capacity(self.channels.len());
        for (number, (file, channel)) in self.case.images.iter().zip(self.channels).enumerate() {
            let at = self.case.image_files().position(|path| path == file.path);
            let Some(image) = at.and_then(|at| images.get_mut(at)).and_then(Option::as_mut) else { continue };
            if file.index >= image.channels() {
                continue;
            }
            let Some(decoded) = usable(problems, &file.path, self.decode(&file.path)) else { continue };
            let element_type = image.element_type();
            let foreground = match (&mut counted, self.labels, self.histograms.get(number)) {
                (Some((label, Counted { planes, weight })), Some(labels), Some(histogram)) => {
                    let values = self.case.reading.label_values.as_deref();
                    let labels = LabelPlanes::new(label, labels, values, *planes, memory)?;
                    Some(Foreground { labels, histogram, weight: *weight })
                }
                _ => None,
            };
            let source = match &decoded {
                Some(volume) => Source::Decoded(volume),
                None => Source::File(image),
            };
            let scanned = image_scan::scan(source, file.index, foreground, memory, self.stop)?;
            if let Some(scan) = usable(problems, &file.path, scanned) {
                judge::finite(problems, &file.path, &channel.name, &scan);
                channels.push(ReadChannel { element_type, scan });
            }
        }
        Ok(channels)
    }

    /// The whole image, if it is to be kept and there is room for it.
    fn decode(&self, path: &Path) -> Result<Option<Arc<StoredVolume>>, VolumeError> {
        let Some(cache) = self.decoded else { return Ok(None) };
        let (no_pictures, going) = (Budget::new(Bytes::ZERO), AtomicBool::new(false));
        cache.get_unless(path, Content::Intensities, &no_pictures, self.stop.unwrap_or(&going))
    }

    fn fingerprint(
        &self,
        geometry: Geometry,
        channels: &[ReadChannel],
        labels: Option<&LabelScan>,
        label_bytes: Bytes,
        decoding_bytes: Bytes,
    ) -> CaseFingerprint {
        let boxes = channels.iter().map(|channel| channel.scan.nonzero_box);
        let nonzero_box =
            boxes.fold(None, image_scan::union).unwrap_or_else(|| VoxelBox::whole(geometry.shape()));
        let voxels = nonzero_box.shape.iter().product::<usize>() as u64;
        let statistics = |channel: &ReadChannel| {
            let nonzero = channel.scan.nonzero;
            let all = nonzero.and(Moments::from_zeros(voxels - nonzero.count));
            ChannelStatistics { mean: all.mean, std: all.deviation(), min: all.min, max: all.max }
        };
        let bytes = |channel: &ReadChannel| {
            Bytes::from_len(geometry.voxel_count().saturating_mul(channel.element_type.size()))
        };
        CaseFingerprint {
            id: self.case.id.clone(),
            geometry,
            nonzero_box,
            element_types: channels.iter().map(|channel| channel.element_type).collect(),
            stored_bytes: channels.iter().map(bytes).sum(),
            label_bytes,
            decoding_bytes,
            channels: channels.iter().map(statistics).collect(),
            mask_voxels: None,
            label_voxels: labels.map_or_else(Vec::new, |labels| labels.counts.clone()),
            content: content(&geometry, channels, labels),
        }
    }
}

/// The digest of a case: its grid, the values of its channels, its labels.
fn content(geometry: &Geometry, channels: &[ReadChannel], labels: Option<&LabelScan>) -> Digest {
    let mut all = Digester::default();
    all.update(bytemuck::cast_slice(&geometry.shape().map(|extent| extent as u64)));
    geometry.affine().0.iter().for_each(|row| all.update(bytemuck::cast_slice(row)));
    let digests =
        channels.iter().map(|channel| channel.scan.digest).chain(labels.map(|labels| labels.digest));
    digests.for_each(|Digest(of_file)| all.update(&of_file.to_le_bytes()));
    all.finish()
}

/// The bytes that [`inspect_images`](crate::inspect_images) reserves for a case while it runs: the largest
/// plane, open files, and memory for decoding pictures. Only headers are read.
///
/// # Errors
/// If a file cannot be opened.
pub fn inspection_bytes(case: &Case) -> Result<Bytes, VolumeError> {
    let images: Vec<Option<VolumeFile>> =
        case.image_files().map(|path| VolumeFile::open(path).map(Some)).collect::<Result<_, _>>()?;
    Ok(images_bytes(&images) + decoding_bytes(&images, None))
}

/// The largest plane of images, and their open files.
fn images_bytes(images: &[Option<VolumeFile>]) -> Bytes {
    let planes = images.iter().flatten().map(image_scan::plane_bytes);
    // Planes are held one after the other.
    planes.clone().max().map_or(Bytes::ZERO, |plane| Bytes(plane + planes.count() as u64 * OPEN_FILE))
}

/// The bytes for decoding all pictures of a case.
fn decoding_bytes(images: &[Option<VolumeFile>], label: Option<&VolumeFile>) -> Bytes {
    images.iter().flatten().chain(label).map(VolumeFile::decoding_bytes).sum()
}

fn open(problems: &mut Problems, path: &Path) -> Option<VolumeFile> {
    usable(problems, path, VolumeFile::open(path))
}

/// Tells what a file says of itself that a user should know.
fn warn(problems: &mut Problems, file: &VolumeFile) {
    for text in file.warnings() {
        problems.add(Severity::Warning, file.path(), text, None);
    }
}

fn usable<T>(problems: &mut Problems, path: &Path, read: Result<T, VolumeError>) -> Option<T> {
    read.map_err(|problem| judge::unreadable(problems, path, &problem)).ok()
}
