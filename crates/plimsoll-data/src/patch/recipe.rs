//! The recipe of a patch: its case, its map to the stored image, its augmentation.

use plimsoll_volume::{Spacing, VoxelBox, VoxelMap, box_of_points};

use crate::TargetGrid;
use crate::patch::augmentation::ImageInterpolation;
use crate::patch::changes::SpatialChange;
use crate::patch::deformation::Deformation;
use crate::patch::intensity::IntensityChange;
use crate::patch::tiles::within;

/// Maps are rounded to multiples of this. The coordinates of patch voxels are then computed exactly, and a tile of a
/// patch has the same coordinates as the whole patch. It is just above the 1e-7 voxels within which a [`VoxelMap`]
/// rounds a translation to an integer, so that this never moves a tile. The ends of a patch of 512 voxels are off by at
/// most 2e-5 voxels.
const QUANTUM: f64 = 1.0 / (1 << 23) as f64;

/// The random stream of a patch's noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) seed: u64,
    pub(crate) group: u32,
    pub(crate) step: u64,
    pub(crate) sample: u64,
}

/// The recipe of one patch.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    pub(crate) case: usize,
    pub(crate) patch: [usize; 3],
    pub(crate) stored_shape: [usize; 3],
    pub(crate) map: VoxelMap,
    /// The displacement of the patch's voxels before the map.
    pub(crate) deformation: Option<Deformation>,
    pub(crate) interpolation: ImageInterpolation,
    pub(crate) change: IntensityChange,
    pub(crate) stream: Stream,
}

impl Recipe {
    /// The patch of `patch` voxels that starts at voxel `start` of `target`, which may be out of bounds; `change`
    /// mirrors, scales, shears and rotates it about its centre, rigidly on a grid of `spacing`. Intensities are unchanged, and
    /// interpolated linearly.
    pub fn new(
        case: usize,
        target: &TargetGrid,
        start: [i64; 3],
        patch: [usize; 3],
        spacing: Spacing,
        change: &SpatialChange,
    ) -> Recipe {
        let centre = patch.map(|voxels| (voxels as f64 - 1.0) / 2.0);
        let mut mirror = [[0.0; 4]; 3];
        for axis in 0..3 {
            let mirrored = change.mirrored[axis];
            mirror[axis][axis] = if mirrored { -1.0 } else { 1.0 };
            mirror[axis][3] = if mirrored { 2.0 * centre[axis] } else { 0.0 };
        }
        let mut shear = [[0.0; 4]; 3];
        for (axis, row) in shear.iter_mut().enumerate() {
            row[axis] = 1.0;
            for by in (0..3).filter(|by| *by != axis) {
                row[by] = change.shears[axis][by] * spacing.0[by] / spacing.0[axis];
                row[3] -= row[by] * centre[by];
            }
        }
        let map = VoxelMap::new(mirror)
            .then(&VoxelMap::scale(change.factors, centre))
            .then(&VoxelMap::new(shear))
            .then(&VoxelMap::rotation(change.radians, spacing, centre))
            .then(&target.window(start));
        Recipe {
            case,
            patch,
            stored_shape: target.stored_shape(),
            map: rounded(&map, centre),
            deformation: None,
            interpolation: ImageInterpolation::Linear,
            change: IntensityChange::default(),
            stream: Stream { seed: 0, group: 0, step: 0, sample: 0 },
        }
    }

    /// The window of `patch` voxels that starts at voxel `start` of `target`, not augmented: the input of a prediction.
    pub fn window(case: usize, target: &TargetGrid, start: [i64; 3], patch: [usize; 3]) -> Recipe {
        Recipe::new(case, target, start, patch, Spacing([1.0; 3]), &SpatialChange::NONE)
    }

    /// The case, by its index in the fingerprint's list.
    pub fn case(&self) -> usize {
        self.case
    }

    /// The voxels along each axis.
    pub fn patch(&self) -> [usize; 3] {
        self.patch
    }

    /// The map from voxels of the patch to voxels of the stored image, all steps composed.
    pub fn map(&self) -> VoxelMap {
        self.map
    }

    /// The changes of intensities.
    pub fn intensity_change(&self) -> &IntensityChange {
        &self.change
    }

    /// The source voxels that a part of the patch reads, with `margin` voxels more on each side; `None` if it lies wholly outside of
    /// the source.
    pub(crate) fn region(&self, part: &VoxelBox, margin: usize) -> Option<VoxelBox> {
        let Some(deformation) = &self.deformation else {
            return within(&self.map, part).source_box(part.shape, self.stored_shape, margin);
        };
        let mut points = vec![[0.0; 3]; part.shape[2]];
        let mut all = [(f64::INFINITY, f64::NEG_INFINITY); 3];
        let mut inside = false;
        for (d, h) in rows(part) {
            self.points(deformation, d, h, part.start[2], &mut points);
            let of_row = extent(&points);
            inside |= of_row
                .iter()
                .zip(self.stored_shape)
                .all(|((low, high), voxels)| *high >= -0.5 && *low <= voxels as f64 - 0.5);
            for (so_far, (low, high)) in all.iter_mut().zip(of_row) {
                *so_far = (so_far.0.min(low), so_far.1.max(high));
            }
        }
        let corners = [all.map(|(low, _)| low), all.map(|(_, high)| high)];
        if inside { box_of_points(corners, self.stored_shape, margin) } else { None }
    }

    /// The source indices of voxels of row (d, h) of the patch, from voxel `from` on, where it is deformed.
    pub(crate) fn points(
        &self,
        deformation: &Deformation,
        d: usize,
        h: usize,
        from: usize,
        points: &mut [[f64; 3]],
    ) {
        deformation.displaced_row(d, h, from, points);
        points.iter_mut().for_each(|point| *point = self.map.apply(*point));
    }

    /// The voxels of a patch.
    pub(crate) fn voxels(&self) -> usize {
        self.patch.iter().product()
    }
}

/// The rows of a part of a patch.
pub(crate) fn rows(part: &VoxelBox) -> impl Iterator<Item = (usize, usize)> {
    let ([depth, height, _], shape) = (part.start, part.shape);
    (depth..depth + shape[0]).flat_map(move |d| (height..height + shape[1]).map(move |h| (d, h)))
}

/// The least and the greatest coordinate along each axis.
fn extent(points: &[[f64; 3]]) -> [(f64, f64); 3] {
    std::array::from_fn(|axis| {
        points.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), point| {
            (low.min(point[axis]), high.max(point[axis]))
        })
    })
}

/// The map with entries rounded to multiples of [`QUANTUM`], which keeps `centre` in place.
fn rounded(map: &VoxelMap, centre: [f64; 3]) -> VoxelMap {
    let round = |value: f64| (value / QUANTUM).round() * QUANTUM;
    let at_centre = map.apply(centre);
    let mut rows = map.rows();
    for (row, at) in rows.iter_mut().zip(at_centre) {
        for factor in &mut row[..3] {
            *factor = round(*factor);
        }
        let turned = (row[0] * centre[0] + row[1] * centre[1]) + row[2] * centre[2];
        row[3] = round(at - turned);
    }
    VoxelMap::new(rows)
}
