//! The axes of a grid that are resized, and their interpolation: nnU-Net's rule for images whose slices are far
//! apart.
//!
//! Between slices that are more than three times as far apart as the voxels of one there is nothing that could be interpolated well. So
//! slices are resized for themselves, and along their axis the nearest is taken (`determine_do_sep_z_and_axis` and
//! `resample_data_or_seg` of nnU-Net 2).

use plimsoll_volume::Spacing;

use crate::{Interpolation, Resizing};

/// The ratio of the coarsest to the finest spacing beyond which slices are resized for themselves.
const ANISOTROPIC: f64 = 3.0;

/// The resizing of a grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ResizeRule {
    /// The shape it has.
    pub(crate) from: [usize; 3],
    /// The shape it becomes.
    pub(crate) to: [usize; 3],
    /// The interpolation along each axis; `None` along axes that keep their voxels.
    pub(crate) along: [Option<Interpolation>; 3],
    /// The axis across slices, if these are resized for themselves.
    pub(crate) across: Option<usize>,
}

/// The shape and the spacing of a grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lattice {
    pub(crate) shape: [usize; 3],
    pub(crate) spacing: Spacing,
}

impl ResizeRule {
    /// For a grid of a shape and spacing that becomes one of another.
    pub(crate) fn new(resizing: Resizing, source: Lattice, target: Lattice) -> ResizeRule {
        let (from, to) = (source.shape, target.shape);
        let across = match resizing.slices {
            Some(false) => None,
            Some(true) => coarsest(source.spacing),
            None if is_anisotropic(source.spacing) => coarsest(source.spacing),
            None if is_anisotropic(target.spacing) => coarsest(target.spacing),
            None => None,
        };
        let interpolation = |axis: usize| match from[axis] == to[axis] {
            true => None,
            false if across == Some(axis) => Some(resizing.order_across),
            false => Some(resizing.order),
        };
        ResizeRule { from, to, along: [0, 1, 2].map(interpolation), across }
    }

    /// Returns `true` if values within slices, or the volume, may leave their range, so that they are clipped.
    pub(crate) fn overshoots(&self) -> bool {
        (0..3).any(|axis| self.across != Some(axis) && self.along[axis] == Some(Interpolation::Cubic))
    }

    /// The (continuous) index in the source of the voxel `index` of the result, along an axis: the convention of
    /// `skimage.transform.resize`.
    pub(crate) fn source(&self, axis: usize, index: usize) -> f64 {
        let scale = self.from[axis] as f64 / self.to[axis] as f64;
        scale * (index as f64 + 0.5) - 0.5
    }

    /// The source voxel nearest to the voxel `index` of the result along an axis; of two, the later.
    pub(crate) fn nearest(&self, axis: usize, index: usize) -> usize {
        let last = (self.from[axis] - 1) as f64;
        (self.source(axis, index).clamp(0.0, last) + 0.5).floor() as usize
    }
}

fn is_anisotropic(Spacing(lengths): Spacing) -> bool {
    let greatest = lengths.into_iter().fold(f64::NEG_INFINITY, f64::max);
    let least = lengths.into_iter().fold(f64::INFINITY, f64::min);
    greatest / least > ANISOTROPIC
}

/// The coarsest axis; `None` if two share it.
fn coarsest(Spacing(lengths): Spacing) -> Option<usize> {
    let greatest = lengths.into_iter().fold(f64::NEG_INFINITY, f64::max);
    let mut axes = (0..3).filter(|axis| greatest / lengths[*axis] == 1.0);
    let first = axes.next();
    if axes.next().is_some() { None } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Resizing =
        Resizing { order: Interpolation::Cubic, order_across: Interpolation::Nearest, slices: None };

    fn lattice(shape: [usize; 3], spacing: [f64; 3]) -> Lattice {
        Lattice { shape, spacing: Spacing(spacing) }
    }

    fn across(resizing: Resizing, current: [f64; 3], target: [f64; 3]) -> Option<usize> {
        ResizeRule::new(resizing, lattice([4; 3], current), lattice([5; 3], target)).across
    }

    #[test]
    fn slices_are_resized_for_themselves_by_the_spacing_they_have_and_else_by_the_one_they_get() {
        assert_eq!(
            across(USUAL, [3.0, 1.0, 1.0], [1.0; 3]),
            None,
            "three times is not more than three times"
        );
        assert_eq!(across(USUAL, [3.1, 1.0, 1.0], [1.0; 3]), Some(0));
        assert_eq!(across(USUAL, [1.0; 3], [1.0, 1.0, 4.0]), Some(2));
        assert_eq!(
            across(USUAL, [1.0, 5.0, 1.0], [1.0, 1.0, 4.0]),
            Some(1),
            "the current spacing comes first"
        );
        assert_eq!(
            across(USUAL, [0.2, 1.25, 1.25], [1.0, 1.0, 9.0]),
            None,
            "two axes share the coarsest spacing"
        );
        let always = Resizing { slices: Some(true), ..USUAL };
        assert_eq!(across(always, [1.0, 1.5, 1.0], [9.0, 1.0, 1.0]), Some(1));
        assert_eq!(across(Resizing { slices: Some(false), ..USUAL }, [9.0, 1.0, 1.0], [9.0, 1.0, 1.0]), None);
    }

    #[test]
    fn the_later_of_two_slices_that_are_as_near_is_taken() {
        let rule =
            ResizeRule::new(USUAL, lattice([8, 4, 4], [5.0, 1.0, 1.0]), lattice([4, 4, 4], [10.0, 1.0, 1.0]));
        // scipy.ndimage.map_coordinates(range(8), [2 * (i + 0.5) - 0.5 for i in range(4)], order=0): 0.5, 2.5, …
        assert_eq!([0, 1, 2, 3].map(|index| rule.nearest(0, index)), [1, 3, 5, 7]);
        assert_eq!(rule.along, [Some(Interpolation::Nearest), None, None]);
        assert!(!rule.overshoots());
    }
}
