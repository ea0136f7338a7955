//! Labels as a segmentation of DICOM's, of the slices of a series: a label map, or a mask for each label and slice.
//!
//! PS3.3: A.51 and C.8.20 (segmentations), C.7.6.16 (functional groups of frames), C.7.6.17 (dimensions). The labels are read twice: the
//! functional groups of all frames stand before the first pixel, and which masks are not empty is known only once all labels were seen.

mod anatomy;
mod bit_planes;
mod contours;
mod elements;
mod frames;
mod header;
mod labels;
mod output;
mod references;
mod run_lengths;
mod segments;
mod structures;
mod unique;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, Digester};
use plimsoll_volume::LabelTable;

use self::bit_planes::BitPlanes;
use self::elements::encode;
use self::frames::{Frame, Frames};
use self::labels::LabelPlanes;
use self::output::Output;
use self::references::References;
use self::run_lengths::RunLengths;
use self::segments::Segments;
use self::unique::Unique;
use crate::{DicomError, Series};

/// The ending of the name of a file of DICOM, in lower case.
const ENDING: &str = ".dcm";

/// The memory of elements for each slice and each segment, as objects and encoded.
const OF_SLICE: u64 = 4 << 10;
const OF_SEGMENT: u64 = 16 << 10;

/// The most bytes of a value that is not compressed: lengths have 32 bits, and the last of them says that there is no length.
const MOST_PIXELS: u64 = u32::MAX as u64 - 1;

/// The storage of labels: the values of Segmentation Type (0062,0001).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentationType {
    /// One frame for each slice, whose pixels are labels of 8 bits, or of 16 where there is one above 255, in run lengths (Label Map
    /// Segmentation Storage).
    LabelMap,
    /// A mask of one bit for each label and slice that has it (Segmentation Storage), which older readers know, too.
    Binary,
}

/// The description of a segmentation to write, without its labels.
#[derive(Clone, Copy, Debug)]
pub struct SegmentationRequest<'a> {
    /// The storage of labels.
    pub kind: SegmentationType,
    /// The names of labels. Those without a name are not written: there is background.
    pub names: &'a LabelTable,
    /// The subject of the segmentation, which becomes the description of the series: at most 64 letters.
    pub description: &'a str,
    /// The algorithm that made the segmentation: at most 64 letters.
    pub algorithm: &'a str,
}

/// Structures that are written, but for the labels themselves.
#[derive(Clone, Copy, Debug)]
pub struct StructuresRequest<'a> {
    /// The names of labels. Those without a name are not written: there is background.
    pub names: &'a LabelTable,
    /// The subject of the structures, which becomes the description of the series: at most 64 letters.
    pub description: &'a str,
    /// The algorithm that made the structures: at most 64 letters.
    pub algorithm: &'a str,
}

/// Returns `true` if a path has the name of a file of DICOM.
pub fn is_dicom_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().ends_with(ENDING))
}

impl Series {
    /// Checks that a segmentation can refer to the slices of the series, before there are labels.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, slices lack the attributes that a segmentation refers to or are of
    /// several studies, texts are in an unsupported character set, or the budget has no room.
    pub fn expect_referable(&self, budget: &Budget) -> Result<(), DicomError> {
        References::read(self, budget).map(drop)
    }

    /// Writes the labels of the series, a label map on the grid of [`Series::geometry`] of 8 bits or of unsigned numbers of 16, as a
    /// segmentation. Patient, study and frame of reference are the series'; unique identifiers follow from what is written, so
    /// that the same labels of the same series are the same bytes.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or written, the label map has another shape, slices lack the
    /// attributes that a segmentation refers to, DICOM cannot store a name, masks exceed the size of a file, the budget
    /// has no room, or `stop` is set. Nothing is written then.
    pub fn write_segmentation(
        &self,
        labels: &Path,
        to: &Path,
        request: &SegmentationRequest<'_>,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<(), DicomError> {
        let segments = Segments::new(request, to)?;
        let count = segments.all().len() as u64;
        let elements = Bytes(self.geometry().shape()[0] as u64 * OF_SLICE + count * OF_SEGMENT);
        let _elements = budget.reserve("elements of a segmentation", elements)?;
        let references = References::read(self, budget)?;
        let [depth, rows, columns] = self.geometry().shape();
        let mut planes = LabelPlanes::open(labels, self.geometry().shape(), &segments, budget)?;
        let mut frames = Frames::new(request.kind, depth, segments.all().len(), budget)?;
        let mut digest = Digester::default();
        for slice in 0..depth {
            go_on(to, stop)?;
            let plane = planes.plane(slice)?;
            frames.see(slice, plane);
            digest.update(bytemuck::cast_slice(plane));
            // Where each slice is, and what it is called: with the labels this says what the groups of all frames are.
            let frame = Frame { slice, segment: 0 };
            digest.update(&encode(&frames::frame_groups(&references, SegmentationType::LabelMap, frame)?)?);
        }
        let shared = frames::shared(&references, self.apart);
        digest.update(&encode(&shared)?);
        let pixels = Pixels::new(request.kind, [rows, columns], &segments, &frames, to)?;
        let mut header =
            header::header(&references, [rows, columns], request, &segments, frames.count(), &pixels)?;
        digest.update(&encode(&header)?);
        let unique = Unique::new(&digest);
        header::identify(&mut header, &unique);

        let mut output = Output::create(to, budget)?;
        output.start(request.kind.class(), &unique.instance(), pixels.syntax())?;
        output.object(&header)?;
        output.sequence(frames::SHARED, [Ok(shared)])?;
        output.sequence(
            frames::PER_FRAME,
            frames.all().map(|frame| frames::frame_groups(&references, request.kind, frame)),
        )?;
        pixels.write(&mut output, &mut planes, &frames, &Writing { to, budget, stop })?;
        output.commit()
    }
}

impl SegmentationType {
    /// The SOP class of files of this kind.
    fn class(self) -> &'static str {
        match self {
            SegmentationType::LabelMap => "1.2.840.10008.5.1.4.1.1.66.7",
            SegmentationType::Binary => "1.2.840.10008.5.1.4.1.1.66.4",
        }
    }

    /// The value of Segmentation Type.
    fn name(self) -> &'static str {
        match self {
            SegmentationType::LabelMap => "LABELMAP",
            SegmentationType::Binary => "BINARY",
        }
    }
}

/// A file that is written: its path, the memory for it, and a flag that ends it.
struct Writing<'a> {
    to: &'a Path,
    budget: &'a Budget,
    stop: &'a AtomicBool,
}

/// The storage of pixels.
enum Pixels {
    /// Labels of this length in bytes, in run lengths.
    Labels { bytes: usize, rows: usize, columns: usize },
    /// Masks, of this total length in bytes.
    Masks { bytes: u32 },
}

impl Pixels {
    fn new(
        kind: SegmentationType,
        [rows, columns]: [usize; 2],
        segments: &Segments,
        frames: &Frames,
        to: &Path,
    ) -> Result<Pixels, DicomError> {
        match kind {
            SegmentationType::LabelMap => Ok(Pixels::Labels { bytes: segments.label_bytes(), rows, columns }),
            SegmentationType::Binary => {
                // Masks follow each other without a gap, and bytes are padded to an even number.
                let bits = (rows as u64).saturating_mul(columns as u64).saturating_mul(frames.count() as u64);
                let bytes = bits.div_ceil(8).next_multiple_of(2);
                match u32::try_from(bytes).ok().filter(|bytes| u64::from(*bytes) <= MOST_PIXELS) {
                    Some(bytes) => Ok(Pixels::Masks { bytes }),
                    None => Err(DicomError::TooManyMasks { path: to.into(), masks: frames.count(), bytes }),
                }
            }
        }
    }

    /// The bits of a pixel.
    fn bits(&self) -> u16 {
        match self {
            Pixels::Labels { bytes: 2, .. } => 16,
            Pixels::Labels { .. } => 8,
            Pixels::Masks { .. } => 1,
        }
    }

    /// RLE Lossless, or Explicit VR Little Endian.
    fn syntax(&self) -> &'static str {
        match self {
            Pixels::Labels { .. } => "1.2.840.10008.1.2.5",
            Pixels::Masks { .. } => "1.2.840.10008.1.2.1",
        }
    }

    fn write(
        &self,
        output: &mut Output<'_>,
        planes: &mut LabelPlanes,
        frames: &Frames,
        writing: &Writing<'_>,
    ) -> Result<(), DicomError> {
        let Writing { to, budget, stop } = *writing;
        match self {
            Pixels::Labels { bytes, rows, columns } => {
                let mut encoder = RunLengths::new(*bytes, [*rows, *columns], budget)?;
                output.fragments()?;
                for frame in frames.all() {
                    go_on(to, stop)?;
                    output.fragment(encoder.encode(planes.plane(frame.slice)?))?;
                }
                output.end_of_sequence()
            }
            Pixels::Masks { bytes } => {
                output.pixels(*bytes)?;
                let mut bits = BitPlanes::default();
                let mut read = None;
                for Frame { slice, segment } in frames.all() {
                    // Frames go through the slices in order.
                    if read != Some(slice) {
                        go_on(to, stop)?;
                        planes.plane(slice)?;
                        read = Some(slice);
                    }
                    bits.append(planes.current(), segment, output)?;
                }
                bits.finish(*bytes, output)
            }
        }
    }
}

/// Ends what a signal ends.
fn go_on(to: &Path, stop: &AtomicBool) -> Result<(), DicomError> {
    match stop.load(Ordering::Relaxed) {
        true => Err(DicomError::InterruptedWriting { path: to.into() }),
        false => Ok(()),
    }
}
