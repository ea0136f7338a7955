//! Cases that resampling would make many times larger.

use plimsoll_memory::Bytes;
use plimsoll_volume::Spacing;

use crate::fingerprint::{CaseFingerprint, Fingerprint};
use crate::{PatchGrid, TargetGrid};

/// The growth in voxels at the target spacing from which a case is reported: twice along each axis.
const BLOW_UP: f64 = 8.0;

/// A case that resampling as a whole would make far larger.
#[derive(Clone, Debug, PartialEq)]
pub struct BlowUp {
    /// The case.
    pub case: String,
    /// Its spacing.
    pub spacing: Spacing,
    /// Its shape at the target spacing.
    pub resampled_shape: [usize; 3],
    /// The bytes of all channels of the whole resampled case, in f32.
    pub whole: Bytes,
    /// The bytes of all channels of a patch, in f32.
    pub patch: Bytes,
    /// The bytes of stored voxels that one unrotated patch reads, in f32.
    pub source: Bytes,
}

impl Fingerprint {
    /// The cases that would have at least eight times as many voxels at the spacing of `grid` as are stored, with the
    /// memory of the whole case and of a patch.
    pub fn blow_ups(&self, grid: &PatchGrid) -> Vec<BlowUp> {
        let bytes = |shape: [usize; 3], channels: usize| {
            Bytes(
                shape.iter().fold(4 * channels as u64, |product, size| product.saturating_mul(*size as u64)),
            )
        };
        let of = |case: &CaseFingerprint| {
            let (channels, stored) = (case.channels.len(), case.geometry.shape());
            let target = TargetGrid::new(&case.geometry, grid.spacing);
            let growth = bytes(target.shape(), 1).0 as f64 / bytes(stored, 1).0 as f64;
            let read = target.window([0; 3]).source_box(grid.patch, stored, 0);
            (growth >= BLOW_UP).then(|| BlowUp {
                case: case.id.clone(),
                spacing: case.spacing(),
                resampled_shape: target.shape(),
                whole: bytes(target.shape(), channels),
                patch: bytes(grid.patch, channels),
                source: bytes(read.map_or([0; 3], |region| region.shape), channels),
            })
        };
        self.cases.iter().filter_map(of).collect()
    }
}
