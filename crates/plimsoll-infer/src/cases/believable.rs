//! Checks that a grid is plausible, before anything that depends on it is allocated.
//!
//! The spacing in a header is any number. One that is wrong by orders of magnitude makes a resampled image of which nobody
//! waits for the end, or one so small that its labels mean nothing.

use plimsoll_data::{Case, far_apart};
use plimsoll_volume::Spacing;

use crate::error::{GridFault, InferError};

/// The most voxels of a resampled image: a cube of ten thousand along each axis.
const MOST_VOXELS: f64 = (1u64 << 40) as f64;

/// The most voxels that a stored one becomes along an axis.
const MOST_OF_ONE: f64 = (1 << 16) as f64;

/// The least part of a voxel that an axis of several stored voxels becomes.
const LEAST_EXTENT: f64 = 1.0 / 1024.0;

/// The grid of an image along the axes of its network.
#[derive(Clone, Copy)]
pub(crate) struct ImageGrid {
    pub(crate) shape: [usize; 3],
    pub(crate) spacing: Spacing,
}

/// Refuses a case whose image cannot plausibly be resampled to `target`.
pub(crate) fn check(case: &Case, image: ImageGrid, target: Spacing) -> Result<(), InferError> {
    let ImageGrid { shape, spacing } = image;
    let factors = [0, 1, 2].map(|axis| spacing.0[axis] / target.0[axis]);
    let extents = [0, 1, 2].map(|axis| factors[axis] * shape[axis] as f64);
    // What is not a number breaks the first limit.
    let is_within = |axis: usize| extents[axis] >= LEAST_EXTENT || (shape[axis] == 1 && factors[axis] > 0.0);
    let limit = if !factors.iter().all(|factor| *factor <= MOST_OF_ONE) {
        "a stored voxel may become at most 65536 voxels along an axis"
    } else if extents.iter().map(|extent| extent.max(1.0)).product::<f64>() > MOST_VOXELS {
        "at most 2^40 are supported"
    } else if !(0..3).all(is_within) {
        "the whole image should not be thinner than a thousandth of a voxel"
    } else {
        return Ok(());
    };
    Err(fault(case, image, target, limit))
}

/// Refuses a case whose spacing is so far from the training spacing that the unit of its header is wrong.
pub(crate) fn check_unit(case: &Case, image: ImageGrid, target: Spacing) -> Result<(), InferError> {
    let ImageGrid { shape, spacing } = image;
    // From slice to slice, planes have no spacing to speak of.
    let axes = || (0..3).filter(|axis| shape[*axis] > 1);
    let along = |lengths: Spacing| axes().map(|axis| lengths.0[axis]).collect::<Vec<f64>>();
    match far_apart(&along(spacing), &along(target)) {
        None => Ok(()),
        Some(_) => Err(fault(
            case,
            image,
            target,
            "they may differ by at most 50 times: is the unit of its header right?",
        )),
    }
}

fn fault(
    case: &Case,
    ImageGrid { shape, spacing }: ImageGrid,
    target: Spacing,
    limit: &'static str,
) -> InferError {
    let extents = [0, 1, 2].map(|axis| spacing.0[axis] / target.0[axis] * shape[axis] as f64);
    let fault = GridFault {
        file: case.images.first().map_or_else(|| case.id.clone().into(), |image| image.path.clone()),
        spacing: format!("{} mm", triple(spacing.0)),
        target: format!("{} mm", triple(target.0)),
        shape: triple(extents),
        limit,
    };
    InferError::Grid { case: case.id.clone(), fault: Box::new(fault) }
}

/// Three lengths, with as many digits as tell them apart.
fn triple(lengths: [f64; 3]) -> String {
    lengths.map(number).join(" × ")
}

fn number(value: f64) -> String {
    match value {
        _ if (100.0..1e6).contains(&value) => format!("{value:.0}"),
        _ if (1e-3..100.0).contains(&value) => {
            format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').into()
        }
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_data::{ChannelFile, Reading};

    fn checked(shape: [usize; 3], spacing: [f64; 3], target: [f64; 3]) -> Result<(), InferError> {
        let images = vec![ChannelFile { path: "images/a_0000.nii".into(), index: 0 }];
        let case = Case { id: "a".into(), images, label: None, reading: Reading::default() };
        check(&case, ImageGrid { shape, spacing: Spacing(spacing) }, Spacing(target))
    }

    #[test]
    fn images_that_are_large_or_coarse_are_believed() {
        checked([10_000; 3], [1.0; 3], [1.0; 3]).unwrap();
        // A unit that is wrong by a thousand can be computed, if only slowly.
        checked([100, 64, 64], [1.0, 1e-3, 1e-3], [1e-3; 3]).unwrap();
        // An image of one plane has no thickness to speak of.
        checked([1, 64, 64], [1e-6, 1.0, 1.0], [1.0; 3]).unwrap();
        checked([2, 64, 64], [0.1, 1.0, 1.0], [1.0; 3]).unwrap();
    }

    #[test]
    fn a_spacing_that_cannot_be_meant_is_refused_with_the_file_and_the_numbers() {
        for (spacing, expected) in [
            (1e8, "1.00e8 × 1 × 1 mm"),
            (1e20, "3.00e21 × 30 × 40 voxels"),
            (1e90, "3.00e91 × 30 × 40"),
            (1e-20, "3.00e-19 × 30 × 40"),
            (65_537.0, "at most 65536"),
        ] {
            let error = checked([30, 30, 40], [spacing, 1.0, 1.0], [1.0; 3]).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with("a: images/a_0000.nii: ") && text.contains(expected), "{text}");
            assert!(error.remedy().unwrap().contains("spacing"));
        }
        assert!(checked([1 << 14, 1 << 13, (1 << 13) + 1], [1.0; 3], [1.0; 3]).is_err(), "2^40 and some");
    }

    #[test]
    fn a_spacing_a_thousand_times_that_of_training_is_asked_for_its_unit() {
        let images = vec![ChannelFile { path: "images/a_0000.nii".into(), index: 0 }];
        let case = Case { id: "a".into(), images, label: None, reading: Reading::default() };
        let check = |shape, spacing| {
            check_unit(&case, ImageGrid { shape, spacing: Spacing(spacing) }, Spacing([5e-3, 1e-3, 1e-3]))
        };
        let text = check([9; 3], [5.0, 1.0, 1.0]).unwrap_err().to_string();
        assert!(text.contains("is the unit of its header right?"), "{text}");
        check([9; 3], [0.1, 1e-3, 1e-3]).unwrap();
        check([1, 9, 9], [5.0, 1e-3, 1e-3]).unwrap();
    }

    #[test]
    fn a_spacing_of_training_that_is_none_is_refused() {
        for target in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            assert!(checked([30, 30, 40], [1.0; 3], [1.0, target, 1.0]).is_err(), "{target}");
        }
    }
}
