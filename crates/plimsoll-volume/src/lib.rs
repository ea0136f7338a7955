//! Medical images in physical space: reading, writing, interpolating.
//!
//! * [`Geometry`] is the grid of an image: its shape and the [`Affine`] from voxel indices to RAS millimetres, with its
//!   [`Spacing`], its [`Orientation`], and the [`Reorientation`] to the canonical axes.
//! * [`VolumeFile`] reads regions of images with a fixed amount of memory, whatever their format: `format` has one trait that formats
//!   implement, and the list of them; [`StoredVolume`] holds a whole image in its stored type, inside a budget; [`VolumeWriter`] writes an
//!   image plane by plane, and makes it appear only when it is complete.
//! * [`MemoryVolume`] makes an image that is in memory one that can be read like a file.
//! * [`VoxelMap`] maps voxels of an output to a source; [`pull_linear`], [`pull_labels`] and [`pull_nearest`] resample through it,
//!   reading only the part of the source that the output touches.
//!
//! Arrays are in the order (depth, height, width), slowest first, everywhere. NIfTI's order (i, j, k) is reversed when
//! a file is read.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod affine;
mod beginning;
mod buffered;
mod content;
mod decode;
mod element;
mod error;
mod file;
mod format;
mod geometry;
mod gzip;
mod label_values;
mod layout;
mod matrix;
mod memory;
mod meta_image;
mod nifti;
mod nifti_file;
mod npy;
mod npz;
mod nrrd;
mod orientation;
mod picture;
mod placed;
mod pull;
mod raw;
mod reader;
mod region;
mod segments;
mod source;
mod spacing;
mod stack;
mod stored;
mod stream;
mod system_error;
mod text;
mod unit;
mod voxel_box;
mod voxel_map;
mod writer;
mod zarr;
mod zstd;

pub use affine::{Affine, Spacing};
pub use beginning::Beginning;
pub use content::Content;
pub use decode::{DecodeError, decode_f32, decode_labels};
pub use element::{ByteOrder, ElementType, Scaling};
pub use error::{SEGMENT_HINT, VolumeError};
pub use file::VolumeFile;
pub use format::{Format, add_format, image_ending, image_endings, written_ending};
pub use geometry::{Geometry, GeometryDifference, GeometryError};
pub use gzip::IndexFolder;
pub use label_values::LabelValues;
pub use memory::{MemoryVolume, MemoryVolumeError};
pub use nifti::{HeaderError, LabelTable, NiftiHeader, NiftiVersion, colour as label_colour};
pub use npz::{ArrayMember, MemberReader};
pub use nrrd::{Segment, is_segmentation};
pub use orientation::{Direction, Orientation, Reorientation};
pub use picture::{ENDINGS as PICTURE_ENDINGS, is_picture};
pub use pull::{
    Outside, PullError, SourceBlock, box_of_points, pull_cubic, pull_labels, pull_linear, pull_nearest,
    sample_cubic, sample_labels, sample_linear,
};
pub use segments::{NamedValue, SegmentCoding, Segments};
pub use source::{Opened, VoxelSource};
pub use stored::StoredVolume;
pub use voxel_box::VoxelBox;
pub use voxel_map::{SingularMap, VoxelMap};
pub use writer::VolumeWriter;
