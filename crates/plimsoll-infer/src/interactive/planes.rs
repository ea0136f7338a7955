//! Means of a channel of prompts over the voxels of a patch that is zoomed out, a few planes at a time.
//!
//! The reference keeps the whole channel of the scaled patch, up to 64 times the patch. Planes are drawn, dilated and averaged in the order of depth
//! here, so that only those exist that a plane of the result needs.

use half::f16;
use plimsoll_memory::{Budget, MapError, Mapped};

use crate::interactive::profile::Profile;
use crate::interactive::prompts::Prompts;
use crate::interactive::zoom::{MOST_ZOOM, dilation, scaled, window};

/// The planes that are drawn: as many as the widest window of dilation.
const DRAWN: usize = 7;
/// The dilated planes: as many as the widest window of a mean, which is 5, and one more.
const DILATED: usize = 6;

/// The buffers of planes.
pub(crate) struct Planes {
    drawn: Mapped<f32>,
    dilated: Mapped<f32>,
    other: Mapped<f32>,
}

/// A channel of prompts in a patch that is zoomed out.
#[derive(Clone, Copy)]
pub(crate) struct ZoomedChannel<'a> {
    pub(crate) prompts: &'a Prompts,
    pub(crate) profile: &'a Profile,
    pub(crate) channel: usize,
    /// The first voxel of the patch in the image.
    pub(crate) start: [i64; 3],
    /// The extents of the patch in voxels of the image.
    pub(crate) scaled: [usize; 3],
    /// The shape of the image, outside of which there are no prompts.
    pub(crate) image: [usize; 3],
    /// The voxels by which prompts are dilated.
    pub(crate) radius: usize,
}

impl Planes {
    /// The buffers for patches of an extent.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for them.
    pub(crate) fn new(patch: [usize; 3], holder: &str, budget: &Budget) -> Result<Planes, MapError> {
        let [_, height, width] = scaled(patch, MOST_ZOOM);
        let plane = height.saturating_mul(width);
        let buffer = |count: usize| Mapped::zeroed(budget, holder, plane.saturating_mul(count));
        debug_assert!(dilation(MOST_ZOOM) <= DRAWN);
        Ok(Planes { drawn: buffer(DRAWN)?, dilated: buffer(DILATED)?, other: buffer(1)? })
    }

    /// Writes the means of a channel `[depth][height][width]` for a patch of the network.
    pub(crate) fn average(&mut self, of: &ZoomedChannel<'_>, patch: [usize; 3], to: &mut [f32]) {
        to.fill(0.0);
        let Some([first, end]) = of.planes() else { return };
        let [_, height, width] = of.scaled;
        let plane = height * width;
        let (mut next_drawn, mut next_dilated) = (None, None);
        for (depth, to) in to.chunks_exact_mut(patch[1] * patch[2]).enumerate() {
            let [from, past] = window(of.scaled[0], patch[0], depth);
            if past <= first || from >= end {
                continue;
            }
            for at in next_dilated.unwrap_or(from)..past {
                let lowest = at.saturating_sub(of.radius);
                let above = (at + of.radius + 1).min(of.scaled[0]);
                for drawn in next_drawn.unwrap_or(lowest)..above {
                    let place = drawn % DRAWN * plane;
                    of.draw(drawn, &mut self.drawn[place..place + plane], &mut self.other[..plane]);
                }
                next_drawn = Some(next_drawn.unwrap_or(above).max(above));
                let dilated = &mut self.dilated[at % DILATED * plane..][..plane];
                dilated.fill(0.0);
                for drawn in lowest..above {
                    let drawn = &self.drawn[drawn % DRAWN * plane..][..plane];
                    dilated.iter_mut().zip(drawn).for_each(|(to, value)| *to = to.max(*value));
                }
            }
            next_dilated = Some(next_dilated.unwrap_or(past).max(past));
            self.mean_plane(of, patch, [from, past], to);
        }
    }

    /// Averages dilated planes into a plane of the result.
    fn mean_plane(
        &self,
        of: &ZoomedChannel<'_>,
        patch: [usize; 3],
        [from, past]: [usize; 2],
        to: &mut [f32],
    ) {
        let [_, height, width] = of.scaled;
        let plane = height * width;
        for (row, to) in to.chunks_exact_mut(patch[2]).enumerate() {
            let rows = window(height, patch[1], row);
            for (column, to) in to.iter_mut().enumerate() {
                let columns = window(width, patch[2], column);
                let mut sum = HalfSum::default();
                for depth in from..past {
                    for row in rows[0]..rows[1] {
                        let first = depth % DILATED * plane + row * width;
                        self.dilated[first + columns[0]..first + columns[1]]
                            .iter()
                            .for_each(|value| sum.add(*value));
                    }
                }
                *to = sum.mean([past - from, rows[1] - rows[0], columns[1] - columns[0]]);
            }
        }
    }
}

impl ZoomedChannel<'_> {
    /// The planes of the scaled patch that dilated prompts touch.
    fn planes(&self) -> Option<[usize; 2]> {
        let [first, end] = self.prompts.depths(self.channel, self.profile)?;
        let (radius, start) = (self.radius as i64, self.start[0]);
        let first = (first - start - radius).clamp(0, self.scaled[0] as i64);
        let end = (end - start + radius).clamp(0, self.scaled[0] as i64);
        (first < end).then_some([first as usize, end as usize])
    }

    /// Draws a plane, and dilates it along height and width.
    fn draw(&self, depth: usize, plane: &mut [f32], other: &mut [f32]) {
        let [_, height, width] = self.scaled;
        let at = self.start[0] + depth as i64;
        let is_inside = |at: i64, axis: usize| usize::try_from(at).is_ok_and(|at| at < self.image[axis]);
        for (row, values) in other.chunks_exact_mut(width).enumerate() {
            let height = self.start[1] + row as i64;
            if !is_inside(at, 0) || !is_inside(height, 1) {
                values.fill(0.0);
                continue;
            }
            self.prompts.draw(self.channel, self.profile, [at, height, self.start[2]], values);
            clear_outside(values, self.start[2], self.image[2]);
        }
        let radius = self.radius;
        for (row, to) in plane.chunks_exact_mut(width).enumerate() {
            // Rows first, into the plane; the second pass reads the other buffer.
            let from = &other[row * width..][..width];
            to.copy_from_slice(from);
            for shift in 1..=radius.min(width - 1) {
                to[shift..].iter_mut().zip(from).for_each(|(to, value)| *to = to.max(*value));
                to.iter_mut().zip(&from[shift..]).for_each(|(to, value)| *to = to.max(*value));
            }
        }
        if radius == 0 {
            return;
        }
        other.copy_from_slice(plane);
        for shift in 1..=radius.min(height - 1) {
            let step = shift * width;
            plane[step..].iter_mut().zip(&*other).for_each(|(to, value)| *to = to.max(*value));
            plane.iter_mut().zip(&other[step..]).for_each(|(to, value)| *to = to.max(*value));
        }
    }
}

/// Clears the voxels of a row outside of the image: points may reach beyond it.
pub(crate) fn clear_outside(row: &mut [f32], start: i64, extent: usize) {
    let length = row.len() as i64;
    let first = (-start).clamp(0, length) as usize;
    let end = (extent as i64 - start).clamp(0, length) as usize;
    row[..first].fill(0.0);
    row[end.max(first)..].fill(0.0);
}

/// A sum of numbers in half precision, rounded after each, and their mean: divided by one extent after the other, as PyTorch averages on processors.
#[derive(Default)]
pub(crate) struct HalfSum(f16);

impl HalfSum {
    fn add(&mut self, value: f32) {
        if value != 0.0 {
            self.0 = f16::from_f32(self.0.to_f32() + value);
        }
    }

    /// A sum of ones. Windows have at most 125 voxels, which half precision counts exactly.
    pub(crate) fn of_ones(count: u32) -> HalfSum {
        HalfSum(f16::from_f32(count as f32))
    }

    /// The mean over a window of three extents.
    pub(crate) fn mean(self, extents: [usize; 3]) -> f32 {
        if self.0 == f16::ZERO {
            return 0.0;
        }
        extents.into_iter().fold(self.0, |sum, extent| f16::from_f32(sum.to_f32() / extent as f32)).to_f32()
    }
}
