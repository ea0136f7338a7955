//! Distance transforms with the options of `scipy.ndimage` and of `edt`.

use bytemuck::cast_slice_mut;
use plimsoll_memory::Mapped;
use plimsoll_morphology::{
    Distance, EdtOptions, Label, MorphologyError, NO_FEATURE, Voxels, edt, edt_of_voxels, edt_with_features,
    scratch_bytes, scratch_bytes_with_features,
};

use crate::{Failure, Resources};

/// The grid of an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Depth, height, width in voxels; the depth of an image is 1.
    pub shape: [usize; 3],
    /// The distance between voxels along the same axes.
    pub spacing: [f64; 3],
    /// The number of axes of the array: 2 or 3.
    pub rank: usize,
}

impl Grid {
    /// The number of voxels of an array that exists, which therefore fits the address space.
    fn voxels(&self) -> usize {
        self.shape.iter().product()
    }

    /// The index of the first axis of the array among depth, height and width.
    fn first_axis(&self) -> usize {
        3 - self.rank.min(3)
    }
}

/// The options of a distance transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DistanceOptions {
    /// The voxels that distances are measured to.
    pub distance: Distance,
    /// Returns squared distances.
    pub squared: bool,
    /// Treats everything out of bounds as background, as `edt` does with this option.
    pub black_border: bool,
}

/// Writes the distance of each voxel to `distances`, and with `features` also the number of the voxel that it is measured to, or
/// [`u32::MAX`] where there is none. Voxels are numbered in C order. The distance is infinite where there is nothing to measure to.
///
/// # Errors
/// If a length does not fit the grid, the spacing is not positive and finite, `black_border` is combined with signed distances or
/// features, or the budget has no room for the scratch.
pub fn distance_transform<L: Label>(
    mask: &[L],
    grid: &Grid,
    options: &DistanceOptions,
    distances: &mut [f32],
    features: Option<&mut [u32]>,
    resources: &Resources,
) -> Result<(), Failure> {
    let (Grid { shape, spacing, .. }, threads) = (*grid, resources.threads);
    with_scratch(grid, options, features.is_some(), resources, |edt_options, scratch| match features {
        None => edt(mask, shape, spacing, edt_options, distances, scratch, threads),
        Some(features) => {
            edt_with_features(mask, shape, spacing, edt_options, distances, features, scratch, threads)
        }
    })?;
    if options.black_border {
        limit_to_border(grid, options.squared, distances);
    }
    Ok(())
}

/// Does the same as [`distance_transform`] for a mask in any layout, of which nothing is copied.
///
/// # Errors
/// Returns the errors of [`distance_transform`].
pub fn distance_transform_of_voxels(
    mask: &impl Voxels,
    grid: &Grid,
    options: &DistanceOptions,
    distances: &mut [f32],
    features: Option<&mut [u32]>,
    resources: &Resources,
) -> Result<(), Failure> {
    with_scratch(grid, options, features.is_some(), resources, |edt_options, scratch| {
        edt_of_voxels(mask, grid.spacing, edt_options, distances, features, scratch, resources.threads)
    })?;
    if options.black_border {
        limit_to_border(grid, options.squared, distances);
    }
    Ok(())
}

/// Checks options, and runs a transform with its scratch.
fn with_scratch(
    grid: &Grid,
    options: &DistanceOptions,
    has_features: bool,
    resources: &Resources,
    transform: impl FnOnce(&EdtOptions, &mut [u8]) -> Result<(), MorphologyError>,
) -> Result<(), Failure> {
    let Resources { budget, threads } = resources;
    if options.black_border && options.distance == Distance::Signed {
        return Err(Failure::argument("black_border", "cannot be combined with signed distances"));
    }
    if options.black_border && has_features {
        return Err(Failure::argument(
            "black_border",
            "cannot be combined with indices: the border has none",
        ));
    }
    let edt_options = EdtOptions { distance: options.distance, squared: options.squared };
    let bytes = match has_features {
        false => scratch_bytes(grid.shape, &edt_options, *threads),
        true => scratch_bytes_with_features(grid.shape, &edt_options, *threads),
    };
    let mut scratch = Mapped::<u8>::zeroed(budget, "scratch of a distance transform", bytes)?;
    Ok(transform(&edt_options, &mut scratch)?)
}

/// Lowers each distance to that of the nearest position out of bounds. Background voxels keep their 0.
fn limit_to_border(grid: &Grid, squared: bool, distances: &mut [f32]) {
    let Grid { shape: [depth, height, width], spacing, .. } = *grid;
    let to_border = |axis: usize, at: usize, extent: usize| -> f64 {
        if axis < grid.first_axis() {
            return f64::INFINITY;
        }
        (at + 1).min(extent - at) as f64 * spacing[axis]
    };
    let mut rows = distances.chunks_exact_mut(width.max(1));
    for z in 0..depth {
        for y in 0..height {
            let outer = to_border(0, z, depth).min(to_border(1, y, height));
            for (x, distance) in rows.next().into_iter().flatten().enumerate() {
                let border = outer.min(to_border(2, x, width));
                let border = if squared { border * border } else { border };
                *distance = distance.min(border as f32);
            }
        }
    }
}

/// Turns the numbers of voxels in the first part of `indices` into their indices along each axis, as `scipy.ndimage` returns them: an
/// array of shape `[rank, …]`. Voxels without a nearest voxel get −1. Use the first part as the features of [`distance_transform`]:
/// [`features_of`] returns it.
///
/// # Errors
/// If `indices` does not have one element for each axis and voxel.
pub fn indices(grid: &Grid, indices: &mut [i32]) -> Result<(), Failure> {
    let voxels = check_indices(grid, indices)?;
    let [_, height, width] = grid.shape;
    for voxel in 0..voxels {
        // The bits of a `u32` that was stored in an `i32`.
        let feature = indices[voxel].cast_unsigned();
        let number = feature as usize;
        let position = [number / (height * width), number / width % height, number % width];
        for (row, axis) in (grid.first_axis()..3).enumerate() {
            // An extent beyond `i32` is refused by the feature transform, which numbers voxels in 32 bits.
            indices[row * voxels + voxel] = if feature == NO_FEATURE { -1 } else { position[axis] as i32 };
        }
    }
    Ok(())
}

/// Returns the first part of an array of indices as the buffer of features of [`distance_transform`].
///
/// # Errors
/// If `indices` does not have one element for each axis and voxel.
pub fn features_of<'a>(grid: &Grid, indices: &'a mut [i32]) -> Result<&'a mut [u32], Failure> {
    let voxels = check_indices(grid, indices)?;
    Ok(cast_slice_mut(&mut indices[..voxels]))
}

/// Checks the length of an array of indices, and returns the number of voxels.
fn check_indices(grid: &Grid, indices: &[i32]) -> Result<usize, Failure> {
    let voxels = grid.voxels();
    if Some(indices.len()) == voxels.checked_mul(grid.rank) {
        Ok(voxels)
    } else {
        let message =
            format!("has {} elements, but {} axes of {voxels} voxels are needed", indices.len(), grid.rank);
        Err(Failure::argument("indices", message))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::{Budget, Bytes};

    use super::*;

    fn resources(bytes: u64) -> Resources {
        Resources { budget: Budget::new(Bytes(bytes)), threads: 1 }
    }

    /// The distance to the nearest voxel of value 0 by trying all, in order of the numbers of voxels.
    fn brute_force(mask: &[u8], grid: &Grid, black_border: bool) -> Vec<f64> {
        let [_, height, width] = grid.shape;
        let place =
            |at: usize| [at / (height * width), at / width % height, at % width].map(|index| index as f64);
        let between = |a: [f64; 3], b: [f64; 3]| {
            (0..3).map(|axis| ((a[axis] - b[axis]) * grid.spacing[axis]).powi(2)).sum::<f64>().sqrt()
        };
        let border = |at: [f64; 3]| {
            let axes = 3 - grid.rank..3;
            let steps = axes
                .map(|axis| (at[axis] + 1.0).min(grid.shape[axis] as f64 - at[axis]) * grid.spacing[axis]);
            steps.fold(f64::INFINITY, f64::min)
        };
        (0..mask.len())
            .map(|at| {
                let inside = (0..mask.len())
                    .filter(|other| mask[*other] == 0)
                    .map(|other| between(place(at), place(other)));
                let nearest = inside.fold(f64::INFINITY, f64::min);
                if black_border { nearest.min(border(place(at))) } else { nearest }
            })
            .collect()
    }

    fn mask(voxels: usize) -> Vec<u8> {
        (0..voxels).map(|at| u8::from(at % 7 != 3)).collect()
    }

    #[test]
    fn a_border_is_background_along_the_axes_of_the_array_alone() {
        for (shape, rank) in [([1, 6, 5], 2), ([1, 6, 5], 3), ([4, 3, 5], 3)] {
            let grid = Grid { shape, spacing: [2.0, 0.5, 1.5], rank };
            for full in [false, true] {
                let mask = if full { vec![1; shape.iter().product()] } else { mask(shape.iter().product()) };
                let mut found = vec![0.0; mask.len()];
                let options = DistanceOptions { black_border: true, ..DistanceOptions::default() };
                distance_transform(&mask, &grid, &options, &mut found, None, &resources(1 << 20)).unwrap();
                for (found, expected) in found.iter().zip(brute_force(&mask, &grid, true)) {
                    assert!(
                        (f64::from(*found) - expected).abs() < 1e-6,
                        "{shape:?} {rank}: {found} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn indices_are_places_of_background_at_the_distance() {
        for (shape, rank) in [([1, 6, 5], 2), ([4, 3, 5], 3)] {
            let grid = Grid { shape, spacing: [2.0, 0.5, 1.5], rank };
            let mask = mask(shape.iter().product());
            let voxels = mask.len();
            let (mut distances, mut places) = (vec![0.0; voxels], vec![0; voxels * rank]);
            let features = features_of(&grid, &mut places).unwrap();
            let options = DistanceOptions::default();
            distance_transform(&mask, &grid, &options, &mut distances, Some(features), &resources(1 << 20))
                .unwrap();
            indices(&grid, &mut places).unwrap();
            for voxel in 0..voxels {
                let mut place = [0; 3];
                for row in 0..rank {
                    place[3 - rank + row] = places[row * voxels + voxel] as usize;
                }
                let number = (place[0] * shape[1] + place[1]) * shape[2] + place[2];
                assert_eq!(mask[number], 0);
                let here = [voxel / (shape[1] * shape[2]), voxel / shape[2] % shape[1], voxel % shape[2]];
                let square =
                    |axis: usize| ((place[axis] as f64 - here[axis] as f64) * grid.spacing[axis]).powi(2);
                let distance = (0..3).map(square).sum::<f64>().sqrt();
                assert!((distance - f64::from(distances[voxel])).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn a_mask_without_background_has_no_indices() {
        let grid = Grid { shape: [1, 2, 3], spacing: [1.0; 3], rank: 2 };
        let (mut distances, mut places) = ([0.0; 6], [0; 12]);
        let features = features_of(&grid, &mut places).unwrap();
        distance_transform(
            &[1_u8; 6],
            &grid,
            &DistanceOptions::default(),
            &mut distances,
            Some(features),
            &resources(1 << 20),
        )
        .unwrap();
        indices(&grid, &mut places).unwrap();
        assert_eq!((distances, places), ([f32::INFINITY; 6], [-1; 12]));
    }

    #[test]
    fn options_that_contradict_each_other_and_small_budgets_are_errors() {
        let grid = Grid { shape: [2, 2, 2], spacing: [1.0; 3], rank: 3 };
        let signed = DistanceOptions { distance: Distance::Signed, black_border: true, squared: false };
        let transform = |options: &DistanceOptions, bytes: u64| {
            distance_transform(&[1_u8; 8], &grid, options, &mut [0.0; 8], None, &resources(bytes))
        };
        assert!(matches!(
            transform(&signed, 1 << 20),
            Err(Failure::Argument { argument: "black_border", .. })
        ));
        let refused = transform(&DistanceOptions::default(), 1).unwrap_err();
        assert!(matches!(refused, Failure::OverLimit(_)), "{refused:?}");
        assert!(refused.remedy().unwrap().starts_with("pass a budget of at least"));
        let grid = Grid { spacing: [f64::NAN, 1.0, 1.0], ..grid };
        let refused = distance_transform(
            &[1_u8; 8],
            &grid,
            &DistanceOptions::default(),
            &mut [0.0; 8],
            None,
            &resources(1 << 20),
        );
        assert!(matches!(refused, Err(Failure::Argument { argument: "sampling", .. })), "{refused:?}");
    }
}
