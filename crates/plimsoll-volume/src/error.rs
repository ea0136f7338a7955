//! Errors of reading and writing image files.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_image::ImageError;
use plimsoll_memory::{Bytes, MapError};

use crate::nifti::HeaderError;
use crate::system_error;
use crate::{DecodeError, GeometryDifference, VoxelBox};

/// Why a volume could not be read or written. Each error names the file.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The operating system reported an error.
    #[error("cannot {action} {path}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The attempted action, as a verb.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A compressed image cannot be decompressed into a file on another disk, which is at fault.
    #[error("cannot decompress {path} into a file of {bytes} beside {beside}")]
    Decompress {
        /// The image.
        path: PathBuf,
        /// The file beside which it was to be decompressed.
        beside: PathBuf,
        /// The bytes that it needs there.
        bytes: Bytes,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file name does not have an image's extension.
    #[error("{path} has neither the start nor the name of a supported image: {known}")]
    UnknownName {
        /// The file.
        path: PathBuf,
        /// The endings of images.
        known: String,
    },
    /// The file name does not have the extension of an image that is written.
    #[error(
        "{path} does not have an ending of a format that is written: .nii.gz, .nii, .nrrd, .mha, .mhd, .png, .tif, .tiff"
    )]
    UnwrittenName {
        /// The file that was to be written.
        path: PathBuf,
    },
    /// An image has more bytes than this machine can address.
    #[error("{path} has the shape {shape:?}, with more bytes than can be addressed")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The shape of the image.
        shape: [usize; 3],
    },
    /// The other file of a pair is missing.
    #[error("{path} is one of a pair of files, but the other is missing; searched for {}", list(.tried))]
    MissingPart {
        /// The file that was named.
        path: PathBuf,
        /// The paths that were tried.
        tried: Vec<PathBuf>,
    },
    /// A picture cannot be used.
    #[error("{problem}")]
    Picture {
        /// Why not, with the file.
        #[source]
        problem: Box<ImageError>,
    },
    /// A TIFF file of several pages, or a folder of slices, cannot be read as a volume.
    #[error("{path} cannot be read as a volume: {why}")]
    Stack {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The spacing of such a file is not said as it must be.
    #[error("{path} does not state the spacing of the image beside it: {why}")]
    StackSpacing {
        /// The file with the spacing.
        path: PathBuf,
        /// The fault of the description.
        why: String,
    },
    /// The lengths that a TIFF file says itself cannot be used.
    #[error("{path} states impossible lengths: {why}")]
    StackLengths {
        /// The file or folder.
        path: PathBuf,
        /// The lengths that it states.
        why: String,
    },
    /// A region of a picture was asked for before it was decoded.
    #[error("{path} is a picture whose pixels were requested before it was decoded")]
    NotDecoded {
        /// The file.
        path: PathBuf,
    },
    /// Label maps with several slices, or of a format that is not written.
    #[error(
        "{path}: labels are written as one plane of 8 bits in PNG, or as planes of 8 or 16 bits in TIFF, but the image has {channels} \
         channels of {depth} planes"
    )]
    UnwritablePicture {
        /// The file that was to be written.
        path: PathBuf,
        /// Channels.
        channels: usize,
        /// Planes.
        depth: usize,
    },
    /// A text in a header, or what it describes, cannot be used.
    #[error("{path} cannot be read as {format}: {why}")]
    Text {
        /// The file with the header.
        path: PathBuf,
        /// The format, with its article where it has one.
        format: &'static str,
        /// The field, its value, and the values that it may have.
        why: String,
        /// The remedy.
        hint: &'static str,
    },
    /// The format of an image does not keep labels exactly.
    #[error("{path} cannot hold labels: {why}")]
    NotForLabels {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// An error of a crate that has added a format.
    #[error("{error}")]
    Added {
        /// The error, which names the file.
        error: Box<dyn std::error::Error + Send + Sync>,
        /// The remedy.
        hint: Option<String>,
    },
    /// The header cannot be used.
    #[error("{path}: {problem}")]
    Header {
        /// The file with the header.
        path: PathBuf,
        /// The header's error.
        #[source]
        problem: HeaderError,
    },
    /// The file is too short to be an image.
    #[error("{path} has only {found} bytes, too few for the header of an image")]
    NoHeader {
        /// The file.
        path: PathBuf,
        /// Its length, decompressed.
        found: u64,
    },
    /// The file is shorter than its header says.
    #[error("{path} has {found} bytes, but its header says that the voxels end at byte {needed}")]
    TooShort {
        /// The file with the voxels.
        path: PathBuf,
        /// The end of the voxels in bytes.
        needed: u64,
        /// The length of the file.
        found: u64,
    },
    /// No compressed file of this length can hold what the header says.
    #[error(
        "{path} has {compressed} bytes compressed, which hold at most {most}, \
         but its header says that the voxels end at byte {needed}"
    )]
    ImpossibleSize {
        /// The file with the voxels.
        path: PathBuf,
        /// The end of the voxels in bytes after decompression.
        needed: u64,
        /// The length of the file.
        compressed: u64,
        /// The largest length that deflate can expand it to.
        most: u64,
    },
    /// More is behind the voxels than any header leaves out by mistake.
    #[error(
        "{path}: its header says that the voxels end at byte {end}, but more than {most} bytes follow when it is \
         decompressed"
    )]
    Trailing {
        /// The file.
        path: PathBuf,
        /// The end of the voxels in bytes after decompression.
        end: u64,
        /// The most bytes that may follow.
        most: u64,
    },
    /// The compressed data is truncated or corrupt.
    #[error("{path} is damaged: decompression failed after {got} of {expected} bytes ({problem})")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The expected number of decompressed bytes.
        expected: u64,
        /// The number of bytes that were decompressed.
        got: u64,
        /// The decompressor's error.
        #[source]
        problem: io::Error,
    },
    /// The file does not have this channel.
    #[error("{path} has {channels} channels, but channel {asked} was requested (numbered from 0)")]
    Channel {
        /// The file.
        path: PathBuf,
        /// The channel that was asked for, from 0.
        asked: usize,
        /// The number of channels of the image.
        channels: usize,
    },
    /// The region is not within the image.
    #[error(
        "{path} has shape {shape:?}, which does not contain the {:?} voxels from {:?}",
        asked.shape,
        asked.start
    )]
    Region {
        /// The file.
        path: PathBuf,
        /// The region that was asked for.
        asked: VoxelBox,
        /// The shape of the image.
        shape: [usize; 3],
    },
    /// A buffer has the wrong length.
    #[error("{path}: a buffer has {found} elements instead of {needed}")]
    BufferLength {
        /// The file.
        path: PathBuf,
        /// The elements needed.
        needed: usize,
        /// The elements of the buffer.
        found: usize,
    },
    /// A voxel of a label map is not a label.
    #[error(
        "{path}: voxel {voxel:?} of channel {channel} is {value}, which is not a label: \
         labels are whole numbers from 0 to 255"
    )]
    NotALabel {
        /// The file.
        path: PathBuf,
        /// From 0.
        channel: usize,
        /// (depth, height, width), from 0.
        voxel: [usize; 3],
        /// The value after scaling.
        value: f64,
    },
    /// A value of a label map denotes no class.
    #[error("{path}: voxel {voxel:?} (depth, height, width) is {value}, which is not the value of a class")]
    UnknownLabel {
        /// The file.
        path: PathBuf,
        /// (depth, height, width), from 0.
        voxel: [usize; 3],
        /// The value.
        value: u8,
    },
    /// Values of a label map mean nothing without names, and which classes the names are is not known.
    #[error("{path}: {why}")]
    UnnamedClasses {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A segment of a label map has a name that no class has, or its segments overlap.
    #[error(
        "{path}: voxel {voxel:?} (depth, height, width) is {found}, which is not a class of the data set"
    )]
    UnknownSegment {
        /// The file.
        path: PathBuf,
        /// (depth, height, width), from 0.
        voxel: [usize; 3],
        /// The names of its segments, and their value.
        found: String,
    },
    /// A voxel of a segmentation has a value that no segment of the file has.
    #[error(
        "{path}: voxel {voxel:?} (depth, height, width) is {value} in layer {layer}, which is not a value of a segment of the file"
    )]
    NoSegment {
        /// The file.
        path: PathBuf,
        /// (depth, height, width), from 0.
        voxel: [usize; 3],
        /// The layer, from 0.
        layer: usize,
        /// The value.
        value: i64,
    },
    /// Two segments of a file with many of them overlap.
    #[error("{path}: voxel {voxel:?} (depth, height, width) is in the segments {:?} and {:?}", .segments[0], .segments[1])]
    Overlap {
        /// The file.
        path: PathBuf,
        /// (depth, height, width), from 0.
        voxel: [usize; 3],
        /// Their names.
        segments: [String; 2],
    },
    /// There is no room for a buffer.
    #[error("{path}: {problem}")]
    Memory {
        /// The file.
        path: PathBuf,
        /// The holder, the bytes needed and the bytes free.
        #[source]
        problem: Box<MapError>,
    },
    /// Pairs are read, but not written.
    #[error("{path} is one of a pair of files; pairs are read, but not written")]
    WritesPair {
        /// The file that was to be written.
        path: PathBuf,
    },
    /// The image to be written is on another grid than the template.
    #[error("{path} cannot be written with the header of its template: {difference}")]
    TemplateDiffers {
        /// The file that was to be written.
        path: PathBuf,
        /// The difference of the template's grid (the second).
        difference: GeometryDifference,
    },
    /// The template's header has no usable grid.
    #[error("{path} cannot be written with the header of its template: {problem}")]
    Template {
        /// The file that was to be written.
        path: PathBuf,
        /// The error of the template's header.
        #[source]
        problem: HeaderError,
    },
    /// The volume to be written does not fit the address space, or is empty.
    #[error("{path}: {channels} channels of {plane} bytes per plane cannot be written")]
    UnwritableSize {
        /// The file that was to be written.
        path: PathBuf,
        /// The number of channels.
        channels: usize,
        /// Bytes of a plane.
        plane: usize,
    },
    /// The writer was given a number of bytes that is not a whole number of planes.
    #[error("{path}: {found} bytes are not a whole number of planes of {plane} bytes")]
    PartialPlane {
        /// The file that is being written.
        path: PathBuf,
        /// Bytes that were given.
        found: usize,
        /// Bytes of a plane.
        plane: usize,
    },
    /// The writer was given too many planes, or finished with too few.
    #[error("{path}: {written} planes were given, but the volume has {planes}")]
    PlaneCount {
        /// The file that was to be written.
        path: PathBuf,
        /// Planes of the volume: channels × depth.
        planes: u64,
        /// Planes that were given.
        written: u64,
    },
    /// An earlier write failed, so the file was abandoned.
    #[error("{path} was abandoned after an earlier error")]
    Abandoned {
        /// The file that was to be written.
        path: PathBuf,
    },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The remedy for names in a label map that are not names of classes.
pub const SEGMENT_HINT: &str = "give it the name of a class in the file, or in the table beside it; or set its class in dataset.json, \
                                like \"segments\": {\"Segment_1\": \"vessel\"} (in plimsoll.toml [data] segments = { \"Segment_1\" = \
                                \"vessel\" }); or read all files by value with \"segments\": \"values\"";

impl VolumeError {
    pub(crate) fn memory(path: &Path, problem: MapError) -> VolumeError {
        VolumeError::Memory { path: path.into(), problem: Box::new(problem) }
    }

    /// Returns `true` if another try may succeed a moment later: a network or a disk did not answer.
    pub fn may_pass(&self) -> bool {
        let VolumeError::Io { source, action: "read" | "open", .. } = self else { return false };
        system_error::may_pass(source)
    }

    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            VolumeError::Io { source, .. } => return system_error::hint(source),
            VolumeError::Decompress { bytes, source, .. } => system_error::decompress_hint(*bytes, source),
            VolumeError::Added { hint, .. } => return hint.clone(),
            VolumeError::Text { hint, .. } => (*hint).into(),
            VolumeError::NotForLabels { .. } => {
                "write the labels as .nii.gz, .nrrd or .mha, in one channel of whole numbers; 3D Slicer opens segmentations of most formats, and saves them \
                 as .seg.nrrd, whose names are read"
                    .into()
            }
            VolumeError::UnknownName { .. } => "convert a volume to NIfTI and name it .nii.gz, a plain image to PNG or TIFF".into(),
            VolumeError::Picture { problem } => return problem.remedy(),
            VolumeError::Stack { .. } => {
                "write the planes of one channel at one time as grey pages of a TIFF file, or as slices with numbers in a folder, or as NIfTI".into()
            }
            VolumeError::StackSpacing { .. } => {
                "write {\"spacing\": [1.0, 0.5, 0.5]}: millimetres between planes, rows and columns".into()
            }
            VolumeError::StackLengths { .. } => {
                "write the spacing into a file beside it, with the same name and .json: {\"spacing\": [1.0, 0.5, 0.5]}, millimetres \
                 between planes, rows and columns"
                    .into()
            }
            VolumeError::UnwritablePicture { .. } => "name the output .nii.gz".into(),
            VolumeError::MissingPart { .. } => {
                "put both files of the pair into one folder under the same name".into()
            }
            VolumeError::Header { problem, .. } | VolumeError::Template { problem, .. } => {
                return problem.remedy();
            }
            VolumeError::NoHeader { .. }
            | VolumeError::TooShort { .. }
            | VolumeError::ImpossibleSize { .. }
            | VolumeError::Damaged { .. } => {
                "the file was probably cut off while it was copied or written: copy it again, \
                 or leave the case out"
                    .into()
            }
            VolumeError::Trailing { .. } => {
                "the header does not describe this image: write it again from its source, or leave the case out".into()
            }
            VolumeError::NotALabel { value, .. } => {
                let not_a_label = DecodeError::NotALabel { position: 0, value: *value };
                return not_a_label.remedy();
            }
            VolumeError::UnknownLabel { .. } => {
                "correct the label map, or add its value to `labels`; ‹job inspect› lists all values".into()
            }
            VolumeError::UnnamedClasses { .. } => {
                "put a dataset.json with \"labels\" of these names beside the folder of label maps; or save the segments in one layer".into()
            }
            VolumeError::UnknownSegment { .. } => SEGMENT_HINT.into(),
            VolumeError::NoSegment { .. } => {
                "open the file in 3D Slicer and save it again, so that each of its values has a segment with a name".into()
            }
            VolumeError::Overlap { .. } => format!(
                "in 3D Slicer, take the voxels from one of the two with Logical operators, Subtract; segments that overlap are read as regions \
                 where a file has {} at most",
                crate::segments::MOST_OVERLAPPING
            ),
            VolumeError::Memory { .. } => {
                "raise the memory limit, or read the volume by regions instead of whole".into()
            }
            VolumeError::WritesPair { .. } | VolumeError::UnwrittenName { .. } => "name the output .nii.gz or .nii".into(),
            VolumeError::TemplateDiffers { .. } => {
                "resample to the template's grid first, or write without a template".into()
            }
            VolumeError::TooLarge { .. }
            | VolumeError::Channel { .. }
            | VolumeError::Region { .. }
            | VolumeError::BufferLength { .. }
            | VolumeError::UnwritableSize { .. }
            | VolumeError::PartialPlane { .. }
            | VolumeError::PlaneCount { .. }
            | VolumeError::NotDecoded { .. }
            | VolumeError::Abandoned { .. } => return None,
        })
    }
}
