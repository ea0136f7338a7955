//! Why files of DICOM are no volume, or labels no file of DICOM.

use std::fmt;
use std::io;
use std::path::PathBuf;

use plimsoll_disk::Substitute;
use plimsoll_memory::{MapError, OverBudget};
use plimsoll_volume::{GeometryError, VolumeError};

/// The slices that are missing between others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The number of slices that would fit in the first gap, if it is a whole number.
    pub here: Option<usize>,
    /// The number of gaps.
    pub gaps: usize,
    /// The number of slices that would fit in all gaps, if it is a whole number in each.
    pub in_all: Option<usize>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(here) = self.here {
            write!(f, ": {here} missing")?;
        }
        match (self.gaps, self.in_all) {
            (0 | 1, _) => Ok(()),
            (gaps, Some(in_all)) => {
                write!(f, "; there are {gaps} such gaps, with {in_all} slices missing in all")
            }
            (gaps, None) => write!(f, "; there are {gaps} such places"),
        }
    }
}

/// A slice that is between the planes of the others, or too near to them at an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// The slice.
    pub slice: String,
    /// Tells whether the slice is a file of its own, which can be taken out.
    pub is_file: bool,
}

impl fmt::Display for Extra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "; {} is not on a plane of the others", self.slice)
    }
}

/// An error with all of its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let all: Vec<String> =
        std::iter::successors(Some(error), |error| error.source()).map(|error| error.to_string()).collect();
    all.join(": ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The reason why a segmentation cannot be read as a label map. Frames count from 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SegmentationFault {
    /// A type of segmentation that is not read.
    #[error("its SegmentationType is {found:?}; BINARY, FRACTIONAL and LABELMAP are supported")]
    Type {
        /// The value.
        found: String,
    },
    /// Pixels of a size that the type of segmentation does not have.
    #[error("its SegmentationType is {kind}, but its pixels have {bits} bits")]
    Bits {
        /// The type.
        kind: &'static str,
        /// Bits allocated.
        bits: u32,
    },
    /// Compressed with loss, which changes values.
    #[error("it was compressed with loss ({syntax})")]
    Lossy {
        /// The transfer syntax.
        syntax: &'static str,
    },
    /// No segment is described.
    #[error("its SegmentSequence describes no segment")]
    NoSegments,
    /// More segments than are read.
    #[error("it has more than {most} segments, the most that are supported")]
    TooManySegments {
        /// The most that are read.
        most: usize,
    },
    /// A segment of a mask has the number 0.
    #[error("its segment {name:?} has the number 0, but segments are numbered from 1")]
    NumberZero {
        /// The name of the segment.
        name: String,
    },
    /// Two segments have one number.
    #[error("its segments {one:?} and {other:?} both have the number {number}")]
    OneNumber {
        /// The first.
        one: String,
        /// The second.
        other: String,
        /// Their number.
        number: u16,
    },
    /// A frame refers to a segment that is not described.
    #[error("frame {frame} is of segment {number}, which its SegmentSequence does not describe")]
    UnknownSegment {
        /// The frame.
        frame: u32,
        /// The number of the segment.
        number: u16,
    },
    /// Two frames are of one segment and at one place.
    #[error("frames {one} and {other} have the same segment and position")]
    Twice {
        /// The first.
        one: u32,
        /// The second.
        other: u32,
    },
    /// Frames differ in their directions or in their spacing.
    #[error("frame {frame} differs from frame 1 in {what}")]
    Differs {
        /// The frame.
        frame: u32,
        /// The property that differs.
        what: &'static str,
    },
    /// The distance between planes is unknown: all frames are at one place.
    #[error("its frames are at one position, and neither SpacingBetweenSlices nor SliceThickness is given")]
    NoSpacing,
    /// Frames are on no common grid.
    #[error("its frames are not equally spaced")]
    Uneven,
    /// Several segmentations where one is expected.
    #[error("it has {count} DICOM segmentations (SEG)")]
    Several {
        /// The number of files.
        count: usize,
    },
}

/// Why files of DICOM are no volume, or labels no file of DICOM.
#[derive(Debug, thiserror::Error)]
pub enum DicomError {
    /// A segmentation cannot be read as a label map.
    #[error("{}: {fault}", path.display())]
    Segmentation {
        /// The file, or the folder or archive of several.
        path: PathBuf,
        /// Why not.
        fault: SegmentationFault,
    },
    /// An object of DICOM is no image.
    #[error("{} is {what}, not an image", path.display())]
    NotAnImage {
        /// The file.
        path: PathBuf,
        /// The kind of object.
        what: &'static str,
    },
    /// The system refuses a file or a folder.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file begins as DICOM does, and cannot be read on.
    #[error("{}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The fault that the reader found.
        why: String,
    },
    /// Pixels are damaged, or not what the file says of them.
    #[error("{}: {why}", path.display())]
    Pixels {
        /// The file.
        path: PathBuf,
        /// The fault that the decoder found.
        why: String,
    },
    /// An attribute is missing, or is not what it must be.
    #[error("{}: {attribute} {why}", path.display())]
    Attribute {
        /// The file.
        path: PathBuf,
        /// Its name.
        attribute: &'static str,
        /// The fault of the value.
        why: String,
    },
    /// No file is a slice.
    #[error("{} has no DICOM slices", folder.display())]
    Nothing {
        /// The folder.
        folder: PathBuf,
    },
    /// There is more than one series.
    #[error(
        "{} has {} series: {}{}",
        folder.display(),
        match more { true => format!("more than {}", series.len()), false => series.len().to_string() },
        series.join("; "),
        if *more { "; and others" } else { "" }
    )]
    Several {
        /// The folder or archive.
        folder: PathBuf,
        /// A description of each of the first series: its kind, its number of slices and the first of its files.
        series: Vec<String>,
        /// Tells whether there are more series.
        more: bool,
    },
    /// A slice is not as the others are.
    #[error("{slice} has {what} {found}, but {other} has {expected}")]
    Differs {
        /// Its file, and its frame if that has many.
        slice: String,
        /// In what.
        what: &'static str,
        /// The value of this slice.
        found: String,
        /// The first slice.
        other: String,
        /// The value of the other slice.
        expected: String,
    },
    /// Two slices are at one place.
    #[error(
        "{one} and {other} are both at {position:.3} mm{}{}",
        match (is_same, apart) {
            (true, _) => ": the same slice twice".into(),
            (false, Some(apart)) => format!(", with {apart}"),
            (false, None) => String::new(),
        },
        if *places > 1 { format!("; so it is at {places} positions") } else { String::new() }
    )]
    Doubled {
        /// The first.
        one: String,
        /// The second.
        other: String,
        /// Along the normal of the slices.
        position: f64,
        /// The number of slices that are at the place of the one before.
        places: usize,
        /// Tells whether both have one unique identifier.
        is_same: bool,
        /// In which of acquisition, time and echo they differ.
        apart: Option<String>,
    },
    /// Slices are not equally far apart.
    #[error(
        "between {one} and {other} there are {found:.3} mm, but slices are {usual:.3} mm apart{missing}{}",
        extra.as_ref().map(ToString::to_string).unwrap_or_default()
    )]
    Gap {
        /// The slice below.
        one: String,
        /// The slice above.
        other: String,
        /// Millimetres between them.
        found: f64,
        /// The median.
        usual: f64,
        /// The number of slices that would fit between them.
        missing: Missing,
        /// The slice without which the distance would be the usual one, where these are too near.
        extra: Option<Box<Extra>>,
    },
    /// A slice is beside the line that the others are on.
    #[error(
        "{slice} is {beside:.3} mm beside the straight line from the first slice to the last, whose slices are {usual:.3} mm apart"
    )]
    Stray {
        /// The slice.
        slice: String,
        /// The distance from the line, in mm.
        beside: f64,
        /// From one slice to the next, in mm.
        usual: f64,
    },
    /// The grid is none.
    #[error("{}: {source}", folder.display())]
    Grid {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: GeometryError,
    },
    /// The image cannot be written.
    #[error("{0}")]
    Volume(#[from] VolumeError),
    /// The budget has no room for a slice.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// The budget has no room for a file.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// A label map is not on the grid of the series.
    #[error(
        "{} has {} × {} × {} voxels, but the series has {} × {} × {}",
        path.display(),
        found[0],
        found[1],
        found[2],
        expected[0],
        expected[1],
        expected[2]
    )]
    OtherShape {
        /// The label map.
        path: PathBuf,
        /// Its shape, (depth, height, width).
        found: [usize; 3],
        /// The shape of the series.
        expected: [usize; 3],
    },
    /// Labels cannot be segments.
    #[error("{}: {why}", path.display())]
    Segments {
        /// The file that is not written.
        path: PathBuf,
        /// The fault of the labels.
        why: String,
    },
    /// Masks are more than the pixels of a file can be.
    #[error("{}: {masks} masks take {bytes} bytes, but a file must take less than 4 GiB", path.display())]
    TooManyMasks {
        /// The file that is not written.
        path: PathBuf,
        /// The number of masks.
        masks: usize,
        /// The size of the masks in bytes.
        bytes: u64,
    },
    /// An object cannot be encoded, which is no fault of any input.
    #[error("internal error while encoding DICOM: {why}")]
    Unencodable {
        /// The encoder's error.
        why: String,
    },
    /// It was interrupted while labels were written.
    #[error("interrupted while writing {}; nothing was written", path.display())]
    InterruptedWriting {
        /// The file.
        path: PathBuf,
    },
    /// It was interrupted.
    #[error("interrupted while reading {}; nothing was written", folder.display())]
    Interrupted {
        /// The folder.
        folder: PathBuf,
    },
}

/// Attributes that say how pixels and frames are stored, of which not all that DICOM allows is read.
const OF_PIXELS: [&str; 9] = [
    "HighBit",
    "BitsStored",
    "BitsAllocated",
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "PixelRepresentation",
    "ModalityLUTSequence",
    "NumberOfFrames",
    "TransferSyntaxUID",
];

/// The remedy for a segmentation that cannot be read.
pub(crate) const SEGMENTATION_HINT: &str = "open it in 3D Slicer with its image and save the segmentation as .seg.nrrd, whose names are read; or write it again with the \
                                            program that made it";

/// Turns an error of DICOM into one of a volume.
pub(crate) fn added(error: DicomError) -> VolumeError {
    match error {
        DicomError::Volume(error) => error,
        error => VolumeError::Added { hint: error.remedy(), error: error.into() },
    }
}

impl DicomError {
    /// A remedy for the user; `None` if the operating system's error says enough.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            DicomError::Segmentation { fault: SegmentationFault::Several { .. }, .. } => {
                "name one of its files".into()
            }
            DicomError::Segmentation { .. } => SEGMENTATION_HINT.into(),
            DicomError::NotAnImage { .. } => {
                "name the series that it was drawn on as the image, and this file as its label map".into()
            }
            DicomError::Io { source, .. } => return Substitute::find(source).map(|found| found.remedy().into()),
            DicomError::Unreadable { .. } => {
                "copy the file again from its source, or remove it".into()
            }
            DicomError::Pixels { .. } => {
                "if it is damaged at its source too, convert the series to NIfTI with a program that reads it, such as dcm2niix or \
                 SimpleITK, and check the result"
                    .into()
            }
            DicomError::Attribute { attribute, .. } if OF_PIXELS.contains(attribute) => {
                "convert the series to NIfTI with a program that reads such pixels, such as dcm2niix or SimpleITK, and check the result; \
                 or remove the file if it is not a slice"
                    .into()
            }
            DicomError::Attribute { .. } => "remove files that are not slices of a volume".into(),
            DicomError::Nothing { .. } => {
                "name one series (a folder, a ZIP archive, or a file of many slices), or a .nii.gz image"
                    .into()
            }
            DicomError::Several { .. } => "put each series into a separate folder".into(),
            DicomError::Differs { .. } => "put only slices of one volume into the folder".into(),
            DicomError::Doubled { is_same: true, .. } => "remove one of them".into(),
            DicomError::Doubled { .. } => "put the slices of each volume into a separate folder".into(),
            DicomError::Gap { extra: Some(extra), .. } if extra.is_file => format!(
                "move {} out of the folder: the other slices are equally spaced",
                extra.slice
            ),
            DicomError::Gap { missing: Missing { here: Some(_), .. }, .. } => {
                "copy the series again: it is incomplete; or, if its source has no more slices, convert it to NIfTI with dcm2niix, which \
                 interpolates them"
                    .into()
            }
            DicomError::Gap { .. } => {
                "put only slices of one volume into the folder; or, if they are from one, convert it to NIfTI with dcm2niix, which \
                 interpolates slices at equal distances"
                    .into()
            }
            DicomError::Stray { .. } => "put only slices of one volume into the folder".into(),
            DicomError::Grid { source, .. } => return source.remedy(),
            DicomError::Volume(error) => return error.remedy(),
            DicomError::Memory(error) => error.remedy(),
            DicomError::OverBudget(error) => error.remedy(),
            DicomError::OtherShape { .. } => "give the labels of this series".into(),
            DicomError::Segments { .. } => "choose other names, or another format of labels".into(),
            DicomError::TooManyMasks { .. } => {
                "use ‹segmentation_type=labelmap›, or choose fewer labels".into()
            }
            DicomError::Unencodable { .. } => {
                "this is a bug: report it with the command and this message".into()
            }
            DicomError::Interrupted { .. } | DicomError::InterruptedWriting { .. } => {
                "give the same command again".into()
            }
        })
    }
}
