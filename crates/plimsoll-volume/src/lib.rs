//! Images in physical space.
//!
//! * [`Geometry`] says how many voxels an image has and where they lie: an [`Affine`] from indices to RAS
//!   millimetres, its [`Spacing`], its [`Orientation`], and the [`Reorientation`] that makes its axes run the usual
//!   way.
//! * [`VolumeFile`] reads regions of NIfTI images with a fixed amount of memory; [`StoredVolume`] holds a whole one
//!   in its stored type, inside a budget; [`VolumeWriter`] writes one plane by plane and names it once it is whole.
//! * [`VoxelMap`] says where in a source the voxels of an output lie; [`pull_linear`] and [`pull_nearest`]
//!   interpolate an output through it, from only the part of the source that it touches.
//!
//! Arrays are in the order (depth, height, width), slowest first, everywhere. NIfTI's order (i, j, k) is turned round
//! when a file is read.

mod affine;
mod decode;
mod element;
mod error;
mod file;
mod geometry;
mod gzip;
mod matrix;
mod nifti;
mod orientation;
mod pull;
mod region;
mod stored;
mod stream;
mod voxel_box;
mod voxel_map;
mod writer;

pub use affine::{Affine, Spacing};
pub use decode::{DecodeError, decode_f32, decode_labels};
pub use element::{ByteOrder, ElementType, Scaling};
pub use error::VolumeError;
pub use file::VolumeFile;
pub use geometry::{Geometry, GeometryDifference, GeometryError};
pub use nifti::{HeaderError, NiftiHeader, NiftiVersion};
pub use orientation::{Direction, Orientation, Reorientation};
pub use pull::{Outside, PullError, SourceBlock, pull_linear, pull_nearest};
pub use stored::StoredVolume;
pub use voxel_box::VoxelBox;
pub use voxel_map::{SingularMap, VoxelMap};
pub use writer::VolumeWriter;
