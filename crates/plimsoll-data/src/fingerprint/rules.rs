//! What nnU-Net concludes from sizes and spacings.

use plimsoll_memory::Bytes;
use plimsoll_volume::Spacing;

use crate::fingerprint::{CaseFingerprint, Fingerprint, percentile};
use crate::{PatchGrid, TargetGrid};

/// An axis is coarse if its spacing is more than this many times that of any other, and short if it has less than one
/// part in this many of the voxels of any other.
const ANISOTROPY: f64 = 3.0;

/// A case that has this many times its stored voxels at the target spacing is worth a warning: twice along each axis.
const BLOW_UP: f64 = 8.0;

/// The shape of an image at another spacing: the nearest whole numbers (of two, the even one), as
/// `compute_new_shape` of nnU-Net; at least one voxel.
pub fn resampled_shape(shape: [usize; 3], spacing: Spacing, target: Spacing) -> [usize; 3] {
    std::array::from_fn(|axis| {
        let voxels = spacing.0[axis] / target.0[axis] * shape[axis] as f64;
        // The cast saturates.
        (voxels.round_ties_even() as usize).max(1)
    })
}

/// The median spacing. Along a coarse and short axis that would blur the cases with thin slices, so there it is the
/// 10th percentile, but not finer than the other axes (`determine_fullres_target_spacing` of nnU-Net).
pub(crate) fn target_spacing(spacings: &[Spacing], shapes: &[[usize; 3]]) -> Spacing {
    let along =
        |axis: usize, percent| percentile::of(spacings.iter().map(|spacing| spacing.0[axis]), percent);
    let mut target = [0, 1, 2].map(|axis| along(axis, 50.0));
    let size = [0, 1, 2].map(|axis| percentile::of(shapes.iter().map(|shape| shape[axis] as f64), 50.0));
    let worst = (0..3).fold(0, |worst, axis| if target[axis] > target[worst] { axis } else { worst });
    let others = (0..3).filter(|axis| *axis != worst);
    let coarsest_other = others.clone().map(|axis| target[axis]).fold(0.0, f64::max);
    let shortest_other = others.map(|axis| size[axis]).fold(f64::INFINITY, f64::min);
    if target[worst] > ANISOTROPY * coarsest_other && size[worst] * ANISOTROPY < shortest_other {
        let fine = along(worst, 10.0);
        target[worst] = if fine < coarsest_other { coarsest_other + 1e-5 } else { fine };
    }
    Spacing(target)
}

pub(crate) fn median_shape(spacings: &[Spacing], shapes: &[[usize; 3]], target: Spacing) -> [f64; 3] {
    [0, 1, 2].map(|axis| {
        let sizes = spacings.iter().zip(shapes);
        percentile::of(
            sizes.map(|(spacing, shape)| resampled_shape(*shape, *spacing, target)[axis] as f64),
            50.0,
        )
    })
}

pub(crate) fn median_relative_size(cases: &[CaseFingerprint]) -> f64 {
    let voxels = |shape: [usize; 3]| shape.iter().map(|size| *size as f64).product::<f64>();
    let shares = cases.iter().map(|case| voxels(case.nonzero_box.shape) / voxels(case.geometry.shape()));
    percentile::of(shares, 50.0)
}

/// A case that would become far larger if it were resampled whole.
#[derive(Clone, Debug, PartialEq)]
pub struct BlowUp {
    /// The case.
    pub case: String,
    /// Its spacing.
    pub spacing: Spacing,
    /// Its shape at the target spacing.
    pub resampled_shape: [usize; 3],
    /// What all channels would need there, whole, in f32.
    pub whole: Bytes,
    /// What all channels of a patch need, in f32.
    pub patch: Bytes,
    /// What one patch, unturned, reads of the stored voxels, in f32.
    pub source: Bytes,
}

impl Fingerprint {
    /// The cases that would have at least eight times as many voxels at the spacing of `grid` as are stored, with what
    /// they would need whole and what a patch needs.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn target_spacings_and_median_shapes_are_those_of_nnu_net() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/data_fingerprint.json");
        let oracle: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let targets = oracle["targets"].as_array().unwrap();
        let mut lowered = 0;
        for example in targets {
            let spacings: Vec<Spacing> = serde_json::from_value(example["spacings"].clone()).unwrap();
            let shapes: Vec<[usize; 3]> = serde_json::from_value(example["shapes"].clone()).unwrap();
            let theirs: [f64; 3] = serde_json::from_value(example["target"].clone()).unwrap();
            let ours = target_spacing(&spacings, &shapes);
            assert!((0..3).all(|axis| (ours.0[axis] - theirs[axis]).abs() < 1e-12), "{ours} {theirs:?}");
            let median: [f64; 3] = serde_json::from_value(example["median_shape"].clone()).unwrap();
            assert_eq!(median_shape(&spacings, &shapes, Spacing(theirs)), median);
            let middle = |axis: usize| percentile::of(spacings.iter().map(|spacing| spacing.0[axis]), 50.0);
            lowered += usize::from((0..3).any(|axis| ours.0[axis] < middle(axis)));
        }
        assert!(lowered >= 3, "the rule for coarse axes is tried as well: {lowered} times");
    }
}
