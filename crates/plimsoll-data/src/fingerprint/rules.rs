//! nnU-Net's rules for the target spacing and the median shape.

use plimsoll_volume::Spacing;

use crate::patch::resampled_shape;
use crate::percentile;

/// An axis is coarse if its spacing is more than this many times the spacing of every other axis, and short if every other
/// axis has more than this many times its voxels.
const ANISOTROPY: f64 = 3.0;

/// The median spacing. Along a coarse and short axis the median would blur the cases with thin slices, so there it is
/// the 10th percentile, but not finer than the other axes (`determine_fullres_target_spacing` of nnU-Net).
pub(crate) fn target_spacing(spacings: &[Spacing], shapes: &[[usize; 3]]) -> Spacing {
    let along = |axis: usize, percent| {
        percentile::from_values(spacings.iter().map(|spacing| spacing.0[axis]), percent)
    };
    let mut target = [0, 1, 2].map(|axis| along(axis, 50.0));
    let size =
        [0, 1, 2].map(|axis| percentile::from_values(shapes.iter().map(|shape| shape[axis] as f64), 50.0));
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
        percentile::from_values(
            sizes.map(|(spacing, shape)| resampled_shape(*shape, *spacing, target)[axis] as f64),
            50.0,
        )
    })
}

/// The median share of voxels that cropping keeps, from each case's shape (after cropping, as stored).
pub(crate) fn median_relative_size(cases: impl Iterator<Item = ([usize; 3], [usize; 3])>) -> f64 {
    let voxels = |shape: [usize; 3]| shape.iter().map(|size| *size as f64).product::<f64>();
    percentile::from_values(cases.map(|(cropped, stored)| voxels(cropped) / voxels(stored)), 50.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn target_spacings_and_median_shapes_match_nnu_net() {
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
            let middle =
                |axis: usize| percentile::from_values(spacings.iter().map(|spacing| spacing.0[axis]), 50.0);
            lowered += usize::from((0..3).any(|axis| ours.0[axis] < middle(axis)));
        }
        assert!(lowered >= 3, "the rule for coarse axes applies at least three times: {lowered} times");
    }
}
