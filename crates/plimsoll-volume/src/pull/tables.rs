//! Indices and weights along each axis, for axis-aligned maps.

use std::ops::Range;

use crate::VoxelMap;
use crate::matrix::coordinate;
use crate::pull::sample::{clamp, filled, linear_step, nearest_step, part_within};
use crate::pull::{Outside, SourceBlock};

/// Along one source axis, for each index along the output axis that drives it: the two elements to read (as offsets
/// into the block, in elements) and how far the sample lies between them.
pub(super) struct AxisTable {
    pub(super) lower: Vec<usize>,
    pub(super) upper: Vec<usize>,
    pub(super) fraction: Vec<f32>,
}

impl AxisTable {
    /// Returns `true` if all samples in `range` lie on centres of voxels.
    pub(super) fn is_whole(&self, range: &Range<usize>) -> bool {
        self.fraction[range.clone()].iter().all(|fraction| *fraction == 0.0)
    }
}

/// The tables of an axis-aligned map.
pub(super) struct Tables {
    /// By source axis.
    pub(super) axes: [AxisTable; 3],
    /// The output axis that drives each source axis.
    pub(super) driver: [usize; 3],
    /// The output box that is sampled, along each output axis; outside of it the output is the constant.
    pub(super) inside: [Range<usize>; 3],
}

/// The interpolation that a table is for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Interpolation {
    Linear,
    Nearest,
}

impl Tables {
    /// The tables of `map`, or `None` if it is not axis-aligned. The block must contain all voxels that are read.
    pub(super) fn new<T>(
        source: &SourceBlock<'_, T>,
        map: &VoxelMap,
        out_shape: [usize; 3],
        outside: &Outside<T>,
        kind: Interpolation,
    ) -> Option<Tables> {
        let driver = drivers(map)?;
        let strides = source.strides();
        let mut inside = out_shape.map(|count| 0..count);
        let axes = [0, 1, 2].map(|axis| {
            let by = driver[axis];
            let voxels = source.volume_shape[axis];
            let count = out_shape[by];
            let at = |index: usize| {
                let mut output = [0.0; 3];
                output[by] = index as f64;
                coordinate(&map.matrix()[axis], output)
            };
            let mut table = AxisTable {
                lower: Vec::with_capacity(count),
                upper: Vec::with_capacity(count),
                fraction: Vec::with_capacity(count),
            };
            let offset = |voxel: usize| (voxel - source.region.start[axis]) * strides[axis];
            for index in 0..count {
                let clamped = clamp(at(index), voxels);
                let (lower, upper, fraction) = match kind {
                    Interpolation::Linear => linear_step(clamped),
                    Interpolation::Nearest => (nearest_step(clamped), nearest_step(clamped), 0.0),
                };
                table.lower.push(offset(lower));
                table.upper.push(offset(upper));
                table.fraction.push(fraction);
            }
            if let Outside::Constant(_) = outside {
                let (low, high) = filled(voxels);
                inside[by] = part_within(0..count, low, high, at);
            }
            table
        });
        Some(Tables { axes, driver, inside })
    }

    /// Returns `true` if all samples lie on centres of voxels.
    pub(super) fn are_whole(&self) -> bool {
        (0..3).all(|axis| self.axes[axis].is_whole(&self.inside[self.driver[axis]]))
    }

    /// The entries of source axis `axis` at output row (d, h), for an axis that is not driven by the width.
    pub(super) fn at_row(&self, axis: usize, d: usize, h: usize) -> (usize, usize, f32) {
        let index = if self.driver[axis] == 0 { d } else { h };
        let table = &self.axes[axis];
        (table.lower[index], table.upper[index], table.fraction[index])
    }

    /// The source axis that the output's width drives.
    pub(super) fn driven_by_width(&self) -> usize {
        (0..3).find(|axis| self.driver[*axis] == 2).unwrap_or(2)
    }

    /// The source axes that the output's depth and height drive, in the order of the source.
    pub(super) fn driven_by_rows(&self) -> [usize; 2] {
        match self.driven_by_width() {
            0 => [1, 2],
            1 => [0, 2],
            _ => [0, 1],
        }
    }

    /// Copies voxels where every sample of row (d, h) lies on one.
    pub(super) fn gather_row<T: Copy>(&self, voxels: &[T], d: usize, h: usize, row: &mut [T]) {
        let [first, second] = self.driven_by_rows();
        let start = self.at_row(first, d, h).0 + self.at_row(second, d, h).0;
        let offsets = &self.axes[self.driven_by_width()].lower[self.inside[2].clone()];
        let contiguous = offsets.windows(2).all(|pair| pair[1] == pair[0] + 1);
        if let (true, Some(offset)) = (contiguous, offsets.first()) {
            let from = start + offset;
            row.copy_from_slice(&voxels[from..from + row.len()]);
        } else {
            for (voxel, offset) in row.iter_mut().zip(offsets) {
                *voxel = voxels[start + offset];
            }
        }
    }
}

/// The output axis that drives each source axis; `None` if a source axis depends on several output axes, or two depend
/// on the same one.
fn drivers(map: &VoxelMap) -> Option<[usize; 3]> {
    let mut driver = [None; 3];
    for (axis, row) in map.matrix().iter().enumerate() {
        for (by, factor) in row.iter().take(3).enumerate() {
            if *factor != 0.0 {
                if driver.contains(&Some(by)) || driver[axis].is_some() {
                    return None;
                }
                driver[axis] = Some(by);
            }
        }
    }
    // The coordinate along a source axis that depends on no output axis is constant, so any of the remaining may drive
    // it.
    let mut remaining = (0..3).filter(|by| !driver.contains(&Some(*by))).collect::<Vec<_>>().into_iter();
    let [first, second, third] = driver.map(|by| by.or_else(|| remaining.next()));
    Some([first?, second?, third?])
}
