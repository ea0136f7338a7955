//! A volume as a small file: with fewer voxels, of 8 bits, as compressed NIfTI.

use std::path::Path;

use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_volume::{
    Affine, Content, ElementType, Geometry, LabelValues, Outside, SourceBlock, VolumeWriter, VoxelBox,
    VoxelMap, pull_linear, pull_nearest,
};

use super::foreground::Classes;
use super::slice::Greys;
use super::source::Source;
use crate::error::{Outcome, ReportError};

/// By how much voxels grow at a time, until there are few enough.
const GROWTH: f64 = 1.05;

/// A small file, held with room for its text in base 64.
pub struct Small {
    /// Its bytes.
    pub bytes: Vec<u8>,
    _held: Reservation,
}

/// The grid that a volume is brought to.
struct Grid {
    geometry: Geometry,
    /// Stored voxels from one voxel to the next.
    step: [f64; 3],
}

impl Grid {
    /// Returns a grid of at most `most` voxels, which are as nearly cubes as the stored voxels allow.
    fn within(stored: &Geometry, most: usize) -> Outcome<Grid> {
        let (shape, spacing) = (stored.shape(), stored.spacing().0);
        let mut edge = spacing.into_iter().fold(f64::INFINITY, f64::min);
        let (step, shape) = loop {
            let step = spacing.map(|length| (edge / length).max(1.0));
            let counts = [0, 1, 2].map(|axis| ((shape[axis] as f64 / step[axis]).floor() as usize).max(1));
            if counts.iter().product::<usize>() <= most {
                break (step, counts);
            }
            edge *= GROWTH;
        };
        let first = step.map(|step| (step - 1.0) / 2.0);
        let (origin, rows) = (stored.affine().apply(first), stored.affine().0);
        let affine = [0, 1, 2]
            .map(|row| [rows[row][0] * step[0], rows[row][1] * step[1], rows[row][2] * step[2], origin[row]]);
        let geometry = Geometry::new(shape, Affine(affine)).map_err(|error| wrong(&error))?;
        Ok(Grid { geometry, step })
    }

    /// From (0, row, column) of a plane to stored voxels.
    fn plane(&self, depth: usize) -> VoxelMap {
        let [d, h, w] = self.step;
        let centre = |step: f64| (step - 1.0) / 2.0;
        VoxelMap::new([
            [0.0, 0.0, 0.0, d * depth as f64 + centre(d)],
            [0.0, h, 0.0, centre(h)],
            [0.0, 0.0, w, centre(w)],
        ])
    }
}

fn wrong(error: &dyn std::fmt::Display) -> ReportError {
    ReportError::Shrink { reason: error.to_string() }
}

/// Returns the intensities of an image, from the 1st to the 99th percentile, as a file of at most `most` voxels.
pub fn shrunk_image(path: &Path, most: usize, budget: &Budget) -> Outcome<Small> {
    let mut source = Source::image(path, budget)?;
    let (grid, values) = pulled(&mut source, Content::Intensities, most, budget)?;
    drop(source);
    let greys = Greys::new(&[&values], budget)?;
    file(&grid, values.len(), &|place| greys.grey(values[place]), budget)
}

/// The classes of a label map, in the same way.
pub fn shrunk_labels(
    path: &Path,
    image: &Path,
    values: Option<&LabelValues>,
    ignore: Option<u8>,
    most: usize,
    budget: &Budget,
) -> Outcome<Small> {
    let mut labels = Classes { source: Source::labels(path, image, budget)?, values };
    let (grid, found) = pulled(&mut labels.source, Content::Labels, most, budget)?;
    let class = |place: usize| match u8::try_from(labels.class(found[place])) {
        // An ignored voxel belongs to no class.
        Ok(class) if ignore == Some(class) => 0,
        class => class.unwrap_or(u8::MAX),
    };
    file(&grid, found.len(), &class, budget)
}

/// Samples a volume plane by plane.
fn pulled(
    source: &mut Source,
    content: Content,
    most: usize,
    budget: &Budget,
) -> Outcome<(Grid, Mapped<f32>)> {
    let stored = *source.geometry();
    let grid = Grid::within(&stored, most)?;
    let [depth, height, width] = grid.geometry.shape();
    let mut values = Mapped::<f32>::zeroed(budget, "a small volume", depth * height * width)?;
    for (at, plane) in values.chunks_exact_mut(height * width).enumerate() {
        let (map, out) = (grid.plane(at), [1, height, width]);
        let region =
            map.clamped_source_box(out, stored.shape(), 1).unwrap_or(VoxelBox::whole(stored.shape()));
        let mut voxels =
            Mapped::<f32>::zeroed(budget, "planes of a volume", region.voxel_count().unwrap_or(usize::MAX))?;
        source.read(region, &mut voxels)?;
        let block = SourceBlock::new(&voxels[..], region, stored.shape()).map_err(|error| wrong(&error))?;
        match content {
            Content::Intensities => pull_linear(&block, &map, out, Outside::Clamp, plane),
            Content::Labels | Content::Segments { .. } => {
                pull_nearest(&block, &map, out, Outside::Clamp, plane)
            }
        }
        .map_err(|error| wrong(&error))?;
    }
    Ok((grid, values))
}

/// Bytes of voxels as a compressed NIfTI file.
fn file(grid: &Grid, count: usize, voxel: &dyn Fn(usize) -> u8, budget: &Budget) -> Outcome<Small> {
    let of_voxels = budget.reserve("a small volume", Bytes::from_len(count))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("volume.nii.gz");
    let mut writer = VolumeWriter::create(&path, &grid.geometry, 1, ElementType::U8, None)?;
    let voxels: Vec<u8> = (0..count).map(voxel).collect();
    writer.write_planes(&voxels)?;
    writer.finish()?;
    drop((voxels, of_voxels));
    let of_path = |error| ReportError::at_path(&path, error);
    let length = plimsoll_disk::metadata(&path).map_err(of_path)?.len();
    // The file, and four thirds of it as text.
    let held = budget.reserve("a small volume", Bytes(length.saturating_mul(3)))?;
    Ok(Small { bytes: plimsoll_disk::read(&path, length).map_err(of_path)?, _held: held })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use plimsoll_volume::Spacing;

    use super::*;

    #[test]
    fn a_smaller_grid_covers_the_same_place_with_nearly_cubic_voxels() {
        let stored = Geometry::new([40, 200, 200], Affine::from_spacing(Spacing([5.0, 1.0, 1.0]))).unwrap();
        let Grid { geometry, step } = Grid::within(&stored, 100_000).unwrap();
        assert!(geometry.voxel_count() <= 100_000 && geometry.voxel_count() > 50_000, "{geometry:?}");
        assert_eq!(step[0], 1.0, "slices are thick already");
        // The corner of the first voxel is where it was.
        let corner = |geometry: &Geometry| geometry.voxel_to_world([-0.5; 3]);
        let (here, there) = (corner(&stored), corner(&geometry));
        assert!(here.iter().zip(there).all(|(a, b)| (a - b).abs() < 1e-9), "{here:?} {there:?}");
        let whole = Grid::within(&stored, 1 << 30).unwrap();
        assert_eq!((whole.geometry.shape(), whole.step), ([40, 200, 200], [1.0; 3]));
    }
}
