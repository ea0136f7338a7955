//! The cases that are planned or predicted.

use std::path::Path;

use plimsoll_data::Case;
use plimsoll_volume::{ElementType, Geometry, VoxelBox};

/// A case that is to be predicted.
#[derive(Clone, Copy, Debug)]
pub struct CaseRequest<'a> {
    /// The case.
    pub case: &'a Case,
    /// The labels of an earlier network, on the grid of the case's images; none where the model is not a later stage of a cascade.
    pub earlier: Option<&'a Path>,
    /// The box of the stored image that is looked at, of models whose images are zoomed; beyond it is background. None where all of the image
    /// is looked at.
    pub within: Option<VoxelBox>,
    /// The file of labels, which is replaced if it exists.
    pub labels: &'a Path,
    /// The file of probabilities in NumPy's `.npz`: `probabilities`, `[output][depth][height][width]` in f32 on the stored grid,
    /// the softmax of classes or the sigmoid of each region.
    pub probabilities: Option<&'a Path>,
}

/// The inputs of a case.
#[derive(Clone, Copy, Debug)]
pub struct CaseInput<'a> {
    /// The case.
    pub case: &'a Case,
    /// See [`CaseRequest`].
    pub earlier: Option<&'a Path>,
    /// See [`CaseRequest`].
    pub within: Option<VoxelBox>,
}

/// A case of which only the grid is known.
#[derive(Clone, Copy, Debug)]
pub struct CaseGrid<'a> {
    /// Its name in errors.
    pub name: &'a str,
    /// Its grid.
    pub geometry: Geometry,
    /// The stored type of a voxel of a channel.
    pub element: ElementType,
}
