//! Prepared cases as sources of windows, whichever way they are prepared.

use crate::prepare::PrepareError;
use crate::{Scratch, TargetGrid};

/// A prepared case whose windows can be pulled.
pub trait WindowSource {
    /// The grid of windows.
    fn grid(&self) -> &TargetGrid;

    /// Fills `out`, `[channel][depth][height][width]`, with the window of `window` voxels that begins at voxel `from` of the grid, which
    /// may be out of bounds: what is outside is 0. The bits of a voxel depend on the window and the size of the scratch alone.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, `out` has another length, or the scratch is too small: smaller than
    /// [`PREPARED_SCRATCH`](crate::PREPARED_SCRATCH).
    fn window(
        &mut self,
        from: [i64; 3],
        window: [usize; 3],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), PrepareError>;
}
