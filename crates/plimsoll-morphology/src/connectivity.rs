//! Neighbourhoods of voxels.

/// The neighbours of a voxel among the 26 voxels around it. In an image, a volume of depth 1, the first gives 4
/// neighbours and the others 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connectivity {
    /// The 6 that share a face with it.
    Faces,
    /// The 18 that share a face or an edge with it.
    Edges,
    /// All 26, which share at least a corner with it.
    Corners,
}

impl Connectivity {
    /// The number of axes along which a neighbour may differ.
    pub(crate) fn axes(self) -> usize {
        match self {
            Connectivity::Faces => 1,
            Connectivity::Edges => 2,
            Connectivity::Corners => 3,
        }
    }
}
