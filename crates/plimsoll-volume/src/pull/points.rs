//! Samples at given points, for maps that are not affine.

use crate::VoxelBox;
use crate::pull::cubic::Cubic;
use crate::pull::labels::MostWeight;
use crate::pull::linear::Linear;
use crate::pull::sample::{Sampler, clamp, filled};
use crate::pull::{Outside, PullError, SourceBlock};

/// The box of source voxels that samples at some points (source indices, depth, height, width) read, with `margin` voxels more
/// on each side, clipped to the source; `None` if there is no point. Points beyond the source count as the outermost voxels.
/// Coordinates are finite.
pub fn box_of_points(
    points: impl IntoIterator<Item = [f64; 3]>,
    source_shape: [usize; 3],
    margin: usize,
) -> Option<VoxelBox> {
    let mut extent: Option<[[f64; 2]; 3]> = None;
    for point in points {
        let point: [f64; 3] =
            std::array::from_fn(|axis| point[axis].max(0.0).min((source_shape[axis] - 1) as f64));
        let so_far = extent.unwrap_or(point.map(|at| [at, at]));
        extent = Some(std::array::from_fn(|axis| {
            [so_far[axis][0].min(point[axis]), so_far[axis][1].max(point[axis])]
        }));
    }
    let extent = extent?;
    let (mut start, mut end) = ([0; 3], [0; 3]);
    for axis in 0..3 {
        let [low, high] = extent[axis];
        start[axis] = (low.floor() as usize).saturating_sub(margin);
        end[axis] = (high.ceil() as usize).saturating_add(margin + 1).min(source_shape[axis]);
    }
    Some(VoxelBox::between(start, end))
}

/// Interpolates linearly at source indices (depth, height, width), of which there are as many as of `out`.
///
/// # Errors
/// Returns an error if there are more or fewer indices, the block lacks voxels that are needed (take it from
/// [`box_of_points`]), or an index is not finite.
pub fn sample_linear(
    source: &SourceBlock<'_, f32>,
    points: &[[f64; 3]],
    outside: Outside<f32>,
    out: &mut [f32],
) -> Result<(), PullError> {
    sample_each(source, points, outside, 0, out, &Linear(source))
}

/// Samples like [`sample_linear`], but by Keys' cubic convolution, as [`pull_cubic`](crate::pull_cubic): the block has a margin of one voxel.
///
/// # Errors
/// Returns the errors of [`sample_linear`].
pub fn sample_cubic(
    source: &SourceBlock<'_, f32>,
    points: &[[f64; 3]],
    outside: Outside<f32>,
    out: &mut [f32],
) -> Result<(), PullError> {
    sample_each(source, points, outside, 1, out, &Cubic(source))
}

/// Samples the label with the most weight, as [`pull_labels`](crate::pull_labels), at points as of [`sample_linear`].
///
/// # Errors
/// Returns the errors of [`sample_linear`].
pub fn sample_labels(
    source: &SourceBlock<'_, u8>,
    points: &[[f64; 3]],
    outside: Outside<u8>,
    out: &mut [u8],
) -> Result<(), PullError> {
    sample_each(source, points, outside, 0, out, &MostWeight(source))
}

fn sample_each<T: Copy>(
    source: &SourceBlock<'_, T>,
    points: &[[f64; 3]],
    outside: Outside<T>,
    margin: usize,
    out: &mut [T],
    sampler: &impl Sampler<T>,
) -> Result<(), PullError> {
    if points.len() != out.len() {
        return Err(PullError::Length { shape: [1, 1, points.len()], found: out.len() });
    }
    let volume = source.volume_shape;
    if points.iter().flatten().any(|at| !at.is_finite()) {
        return Err(PullError::NotFinite);
    }
    let is_inside = |point: &[f64; 3]| {
        (0..3).all(|axis| {
            let (low, high) = filled(volume[axis]);
            (low..=high).contains(&point[axis])
        })
    };
    let read = points.iter().copied().filter(|point| matches!(outside, Outside::Clamp) || is_inside(point));
    if let Some(needed) = box_of_points(read, volume, margin)
        && !source.region.contains(&needed)
    {
        return Err(PullError::BlockTooSmall { needed, given: source.region });
    }
    for (value, point) in out.iter_mut().zip(points) {
        *value = match outside {
            Outside::Constant(constant) if !is_inside(point) => constant,
            _ => sampler.sample(std::array::from_fn(|axis| clamp(point[axis], volume[axis]))),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VoxelMap, pull_cubic, pull_labels, pull_linear};

    #[test]
    fn points_of_an_affine_map_are_sampled_as_through_the_map() {
        let (shape, out_shape) = ([7, 9, 8], [6, 7, 8]);
        let count: usize = shape.iter().product();
        let voxels: Vec<f32> = (0..count).map(|i| (i as f32 * 1.7).sin()).collect();
        let labels: Vec<u8> = (0..count).map(|i| (i * i / 7 % 3) as u8).collect();
        let map = VoxelMap::new([[0.9, 0.2, -0.1, -1.0], [-0.3, 1.1, 0.2, 1.5], [0.1, -0.2, 0.8, 0.7]]);
        let points: Vec<[f64; 3]> = (0..out_shape.iter().product::<usize>())
            .map(|at| map.apply([at / 56, at / 8 % 7, at % 8].map(|at| at as f64)))
            .collect();
        let (image, label_map) =
            (SourceBlock::whole(&voxels, shape).unwrap(), SourceBlock::whole(&labels, shape).unwrap());
        let (mut ours, mut theirs) = (vec![0.0; points.len()], vec![1.0; points.len()]);
        sample_linear(&image, &points, Outside::Constant(9.0), &mut ours).unwrap();
        pull_linear(&image, &map, out_shape, Outside::Constant(9.0), &mut theirs).unwrap();
        assert_eq!(ours, theirs);
        sample_cubic(&image, &points, Outside::Constant(9.0), &mut ours).unwrap();
        pull_cubic(&image, &map, out_shape, Outside::Constant(9.0), &mut theirs).unwrap();
        assert_eq!(ours, theirs);
        let (mut ours, mut theirs) = (vec![0; points.len()], vec![1; points.len()]);
        sample_labels(&label_map, &points, Outside::Constant(0), &mut ours).unwrap();
        pull_labels(&label_map, &map, out_shape, Outside::Constant(0), &mut theirs).unwrap();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn a_block_without_the_voxels_of_a_point_and_points_that_are_nowhere_are_errors() {
        let voxels = [0.0f32; 8];
        let part = VoxelBox { start: [0; 3], shape: [2; 3] };
        let block = SourceBlock::new(&voxels, part, [4; 3]).unwrap();
        let mut out = [0.0];
        let sampled = |at, out: &mut [f32]| sample_linear(&block, &[at], Outside::Clamp, out);
        assert!(sampled([0.5; 3], &mut out).is_ok());
        assert!(matches!(sampled([1.5, 0.0, 0.0], &mut out), Err(PullError::BlockTooSmall { .. })));
        assert_eq!(sampled([f64::NAN, 0.0, 0.0], &mut out), Err(PullError::NotFinite));
        assert!(matches!(sampled([0.0; 3], &mut []), Err(PullError::Length { .. })));
    }
}
