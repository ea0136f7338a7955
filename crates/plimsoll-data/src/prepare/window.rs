//! A part of a prepared channel: the voxels that it is made of are read, normalised, brought into the order of the network's axes, and
//! resized one axis after the other.

use plimsoll_memory::Bytes;
use plimsoll_volume::VoxelBox;

use crate::mask::Mask;
use crate::prepare::PrepareError;
use crate::prepare::lines::{Span, combine, prefilter, taps};
use crate::prepare::rule::ResizeRule;
use crate::prepare::survey::Ranges;
use crate::{Interpolation, PatchError, TargetGrid};

/// Clears the buffer of a window of some channels. Returns the voxels of a channel.
///
/// # Errors
/// Returns an error if the buffer has another length.
pub(crate) fn cleared(out: &mut [f32], channels: usize, window: [usize; 3]) -> Result<usize, PrepareError> {
    let voxels: usize = window.iter().product();
    let (expected, found) = (voxels * channels, out.len());
    if expected != found {
        return Err(PrepareError::Patch(PatchError::BufferLength { expected, found }));
    }
    out.fill(0.0);
    Ok(voxels)
}

/// The place of a box in the network's grid and in a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// In the grid.
    pub(crate) of_grid: VoxelBox,
    /// Its first voxel in the window.
    pub(crate) in_window: [usize; 3],
}

impl Part {
    /// The rows of it in a window of a shape: places in one after the other.
    pub(crate) fn rows(self, window: [usize; 3]) -> impl Iterator<Item = std::ops::Range<usize>> {
        let ([depth, height, width], [d, h, w]) = (self.of_grid.shape, self.in_window);
        (0..depth * height).map(move |row| {
            let at = ((d + row / height) * window[1] + h + row % height) * window[2] + w;
            at..at + width
        })
    }

    /// The part of the grid that is in a window that begins at `from`; `None` if they do not overlap.
    pub(crate) fn within_window(grid: [usize; 3], from: [i64; 3], window: [usize; 3]) -> Option<Part> {
        let mut part = Part { of_grid: VoxelBox::whole([0; 3]), in_window: [0; 3] };
        for axis in 0..3 {
            let first = from[axis].max(0);
            let end = from[axis].saturating_add_unsigned(window[axis] as u64).min(grid[axis] as i64);
            if end <= first {
                return None;
            }
            // Both are within the grid, and the difference within the window.
            part.of_grid.start[axis] = first as usize;
            part.of_grid.shape[axis] = (end - first) as usize;
            part.in_window[axis] = (first - from[axis]) as usize;
        }
        Some(part)
    }

    /// Both halves along the longest axis; `None` if it is one voxel.
    pub(crate) fn halves(&self) -> Option<[Part; 2]> {
        let shape = self.of_grid.shape;
        let longest =
            (0..3).fold(0, |longest, axis| if shape[axis] > shape[longest] { axis } else { longest });
        let first = shape[longest] / 2;
        if first == 0 {
            return None;
        }
        let (mut one, mut other) = (*self, *self);
        one.of_grid.shape[longest] = first;
        other.of_grid.shape[longest] -= first;
        other.of_grid.start[longest] += first;
        other.in_window[longest] += first;
        Some([one, other])
    }
}

/// The samples of a part, and where they are stored.
pub(crate) struct Samples {
    spans: [Span; 3],
    /// The region of the stored image.
    pub(crate) region: VoxelBox,
}

impl Samples {
    pub(crate) fn new(grid: &TargetGrid, rule: &ResizeRule, part: VoxelBox) -> Samples {
        let spans = [0, 1, 2].map(|axis| Span::new(rule, axis, part.start[axis], part.shape[axis]));
        let (covered, reorientation) = (grid.covered(), grid.reorientation());
        let mut region = VoxelBox::whole([0; 3]);
        for (axis, stored) in reorientation.source_axis().into_iter().enumerate() {
            let (first, end) = spans[axis].inside(rule.from[axis]);
            let from = if reorientation.flip()[axis] { rule.from[axis] - end } else { first };
            region.start[stored] = covered.start[stored] + from;
            region.shape[stored] = end - first;
        }
        Samples { spans, region }
    }

    /// The number of samples along each axis.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.spans[axis].count())
    }

    /// For each sample along an axis of the network, how far its voxel is from the first of the region. Beyond the image the outermost
    /// voxel stands.
    pub(crate) fn offsets(&self, grid: &TargetGrid, rule: &ResizeRule, axis: usize) -> Vec<usize> {
        let stored = grid.reorientation().source_axis()[axis];
        let [_, height, width] = self.region.shape;
        let stride = [height * width, width, 1][stored];
        let (first, end) = self.spans[axis].inside(rule.from[axis]);
        let offset = |at: i64| {
            let voxel = at.clamp(0, rule.from[axis] as i64 - 1) as usize;
            let place = if grid.reorientation().flip()[axis] { end - 1 - voxel } else { voxel - first };
            place * stride
        };
        (self.spans[axis].from..self.spans[axis].to).map(offset).collect()
    }

    /// The first sample along an axis.
    pub(crate) fn first(&self, axis: usize) -> i64 {
        self.spans[axis].from
    }
}

/// Fills a region of the stored image with normalised intensities.
pub(crate) type ReadRegion<'a> = dyn FnMut(VoxelBox, &mut [f32]) -> Result<(), PatchError> + 'a;

/// One channel, and how it is read.
pub(crate) struct Channel<'a> {
    pub(crate) grid: &'a TargetGrid,
    pub(crate) rule: &'a ResizeRule,
    /// The ranges that splines are clipped to, if there are splines.
    pub(crate) ranges: Option<&'a Ranges>,
    /// Outside of it the channel is 0.
    pub(crate) mask: Option<&'a Mask>,
    pub(crate) path: &'a std::path::Path,
}

impl Channel<'_> {
    /// Fills a part of a window `[d][h][w]` of shape `window`. What does not fit the memory is divided.
    ///
    /// # Errors
    /// If `read` fails, or the memory is too small for one voxel.
    pub(crate) fn pull(
        &self,
        part: Part,
        out: &mut [f32],
        window: [usize; 3],
        memory: &mut [f32],
        read: &mut ReadRegion<'_>,
    ) -> Result<(), PrepareError> {
        let samples = Samples::new(self.grid, self.rule, part.of_grid);
        let needed = self.needed(&samples, part.of_grid.shape);
        if needed.is_none_or(|needed| needed.saturating_mul(2) > memory.len()) {
            let Some(halves) = part.halves() else {
                let bytes = |count: usize| Bytes::from_len(count.saturating_mul(size_of::<f32>()));
                return Err(PrepareError::Patch(PatchError::ScratchTooSmall {
                    path: self.path.into(),
                    needed: bytes(needed.map_or(usize::MAX, |needed| needed.saturating_mul(2))),
                    found: bytes(memory.len()),
                }));
            };
            return halves.into_iter().try_for_each(|half| self.pull(half, &mut *out, window, memory, read));
        }
        let (mut values, mut other) = memory.split_at_mut(memory.len() / 2);
        let stored: usize = samples.region.shape.iter().product();
        read(samples.region, &mut other[..stored])?;
        if let Some(mask) = self.mask {
            mask.zero_outside(samples.region, &mut other[..stored]);
        }
        let mut extent = samples.counts();
        self.reorder(&samples, &other[..stored], values);
        for axis in self.order() {
            if self.rule.along[axis].is_some() {
                let before = extent[..axis].iter().product();
                let behind = extent[axis + 1..].iter().product();
                let lines = [before, extent[axis], behind];
                let count = lines.iter().product::<usize>();
                if self.rule.along[axis] == Some(Interpolation::Cubic) {
                    prefilter(&mut values[..count], lines);
                }
                let (start, voxels) = (part.of_grid.start[axis], part.of_grid.shape[axis]);
                let taps = taps(self.rule, axis, start..start + voxels, samples.spans[axis]);
                extent[axis] = voxels;
                let to = &mut other[..before * voxels * behind];
                combine(&values[..count], to, lines, &taps);
                std::mem::swap(&mut values, &mut other);
            }
            // The last axis within slices, or of the volume.
            if Some(axis) == self.order().into_iter().rfind(|axis| self.rule.across != Some(*axis)) {
                self.clip(&samples, extent, values);
            }
        }
        let rows = values.chunks_exact(extent[2]);
        for (number, row) in rows.take(extent[0] * extent[1]).enumerate() {
            let [d, h, w] = part.in_window;
            let (d, h) = (d + number / extent[1], h + number % extent[1]);
            out[(d * window[1] + h) * window[2] + w..][..row.len()].copy_from_slice(row);
        }
        Ok(())
    }

    /// Axes in the order in which they are resized: that across slices last.
    fn order(&self) -> [usize; 3] {
        match self.rule.across {
            Some(0) | None => [2, 1, 0],
            Some(1) => [2, 0, 1],
            Some(_) => [1, 0, 2],
        }
    }

    /// The most numbers that are held on either side of a step; `None` if they cannot be counted.
    fn needed(&self, samples: &Samples, shape: [usize; 3]) -> Option<usize> {
        let product = |extent: [usize; 3]| VoxelBox::whole(extent).voxel_count();
        let mut extent = samples.counts();
        let mut most = product(extent)?;
        for axis in self.order() {
            extent[axis] = shape[axis];
            most = most.max(product(extent)?);
        }
        Some(most)
    }

    /// From the stored order of axes to the network's.
    fn reorder(&self, samples: &Samples, stored: &[f32], to: &mut [f32]) {
        let [planes, rows, columns] = [0, 1, 2].map(|axis| samples.offsets(self.grid, self.rule, axis));
        let mut lines = to.chunks_exact_mut(columns.len());
        for plane in &planes {
            for (row, line) in rows.iter().zip(&mut lines) {
                for (value, column) in line.iter_mut().zip(&columns) {
                    *value = stored[plane + row + column];
                }
            }
        }
    }

    /// Brings values into the range of their slice, or of the volume. Not by `clamp`, which ends the program where there is no range.
    fn clip(&self, samples: &Samples, extent: [usize; 3], values: &mut [f32]) {
        let Some(ranges) = self.ranges else { return };
        let count: usize = extent.iter().product();
        let (across, last) = match self.rule.across {
            None => {
                let [least, greatest] = ranges.range(0);
                values[..count].iter_mut().for_each(|value| *value = value.max(least).min(greatest));
                return;
            }
            Some(axis) => (axis, self.rule.from[axis] as i64 - 1),
        };
        let behind: usize = extent[across + 1..].iter().product();
        let slices = values[..count].chunks_exact_mut(behind).enumerate();
        for (number, slice) in slices {
            let voxel = (samples.first(across) + (number % extent[across]) as i64).clamp(0, last) as usize;
            let mirrored = self.grid.reorientation().flip()[across];
            let [least, greatest] = ranges.range(if mirrored { last as usize - voxel } else { voxel });
            slice.iter_mut().for_each(|value| *value = value.max(least).min(greatest));
        }
    }
}
