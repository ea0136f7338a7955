//! The facts about a whole case that every window of it needs: the mask, statistics inside it, and the ranges
//! that splines are clipped to. The planes of each channel that needs any are read one after the other.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_volume::VoxelBox;

use crate::mask::Mask;
use crate::moments::Moments;
use crate::patch::LabelMap;
use crate::prepare::PrepareError;
use crate::{CaseSource, ChannelStatistics, Intensity};

/// A pass over a whole case, in the stored order of axes.
pub(crate) struct Survey {
    /// The box that is read.
    pub(crate) covered: VoxelBox,
    /// The stored axis across slices that are clipped each to its own range; none where the volume is.
    pub(crate) across: Option<usize>,
    plane: Mapped<f32>,
}

/// The least and the greatest value of each slice, or of the volume.
pub(crate) struct Ranges {
    /// `[slice][least, greatest]`; infinite where there is none.
    values: Mapped<f32>,
}

impl Ranges {
    fn new(slices: usize, budget: &Budget) -> Result<Ranges, MapError> {
        let values = Mapped::zeroed(budget, "ranges of slices", slices.saturating_mul(2))?;
        let mut ranges = Ranges { values };
        ranges.values.as_chunks_mut::<2>().0.fill([f32::INFINITY, f32::NEG_INFINITY]);
        Ok(ranges)
    }

    /// The range of a whole volume.
    pub(crate) fn whole_volume(range: [f32; 2], budget: &Budget) -> Result<Ranges, MapError> {
        let mut ranges = Ranges::new(1, budget)?;
        ranges.include(0, range);
        Ok(ranges)
    }

    /// The bytes that the ranges of `slices` slices reserve.
    pub(crate) fn bytes(slices: usize) -> Result<Bytes, MapError> {
        Mapped::<f32>::bytes(slices.saturating_mul(2))
    }

    /// The range of a slice; of the last for those behind it, as a volume has but one.
    pub(crate) fn range(&self, slice: usize) -> [f32; 2] {
        let (ranges, _) = self.values.as_chunks::<2>();
        ranges.get(slice).or(ranges.last()).copied().unwrap_or([f32::NEG_INFINITY, f32::INFINITY])
    }

    fn include(&mut self, slice: usize, [least, greatest]: [f32; 2]) {
        if let Some([low, high]) = self.values.as_chunks_mut::<2>().0.get_mut(slice) {
            *low = low.min(least);
            *high = high.max(greatest);
        }
    }

    /// Converts the ranges of stored intensities to ranges of normalised ones.
    pub(crate) fn normalise(&mut self, intensity: Intensity) {
        let found = |value: f32| value.is_finite();
        // One after the other, as a slice without any voxel has no range.
        for range in self.values.as_chunks_mut::<2>().0.iter_mut().filter(|range| found(range[0])) {
            intensity.apply(range);
        }
    }
}

/// The facts about a channel.
pub(crate) struct Surveyed {
    /// Over all voxels, or those in the mask.
    pub(crate) statistics: ChannelStatistics,
    inside: Ranges,
    /// Slices with voxels outside of the mask.
    outside: Ranges,
}

impl Surveyed {
    /// The ranges once the channel is normalised: voxels outside of the mask are 0.
    pub(crate) fn normalised(mut self, intensity: Intensity) -> Ranges {
        self.inside.normalise(intensity);
        let slices = self.outside.values.len() / 2;
        for slice in 0..slices {
            if self.outside.range(slice)[0] == 0.0 {
                self.inside.include(slice, [0.0, 0.0]);
            }
        }
        self.inside
    }
}

impl Survey {
    /// Prepares a pass over the box `covered`; slices across the stored axis `across`, if any, have a range
    /// each.
    ///
    /// # Errors
    /// If the budget has no room for a plane.
    pub(crate) fn new(covered: VoxelBox, across: Option<usize>, budget: &Budget) -> Result<Survey, MapError> {
        let plane = Mapped::zeroed(budget, "a plane of an image", Survey::plane(covered))?;
        Ok(Survey { covered, across, plane })
    }

    fn plane(covered: VoxelBox) -> usize {
        covered.shape[1].saturating_mul(covered.shape[2])
    }

    /// Bytes that it reserves.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub(crate) fn bytes(covered: VoxelBox) -> Result<Bytes, MapError> {
        Mapped::<f32>::bytes(Survey::plane(covered))
    }

    /// The number of slices that have a range of their own.
    pub(crate) fn slices(&self) -> usize {
        self.across.map_or(1, |axis| self.covered.shape[axis])
    }

    /// The mask of all channels, with holes filled.
    ///
    /// # Errors
    /// If a file cannot be read, the budget has no room, or `stop` is set.
    pub(crate) fn mask(
        &mut self,
        source: &mut CaseSource,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<Mask, PrepareError> {
        let mut mask = Mask::new(self.covered, budget)?;
        let width = self.covered.shape[2];
        for channel in 0..source.channels() {
            self.each_plane(source, channel, stop, |d, plane| {
                for (h, row) in plane.chunks_exact(width).enumerate() {
                    mask.include_row(d, h, row);
                }
            })?;
        }
        if !mask.fill_holes(budget, stop)? {
            return Err(PrepareError::Stopped);
        }
        Ok(mask)
    }

    /// Adds to a mask the voxels that have a label on the stored grid.
    ///
    /// # Errors
    /// If the labels cannot be read, or `stop` is set.
    pub(crate) fn add_labels(
        &mut self,
        mask: &mut Mask,
        labels: &mut LabelMap,
        stop: &AtomicBool,
    ) -> Result<(), PrepareError> {
        let [depth, height, width] = self.covered.shape;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.plane);
        // A plane of intensities has room for one of labels.
        let (plane, _) = bytes.split_at_mut(height * width);
        for d in 0..depth {
            if stop.load(Ordering::Relaxed) {
                return Err(PrepareError::Stopped);
            }
            let [first, down, right] = self.covered.start;
            labels.read(VoxelBox { start: [first + d, down, right], shape: [1, height, width] }, plane)?;
            for (h, row) in plane.chunks_exact(width).enumerate() {
                mask.include_row(d, h, row);
            }
        }
        Ok(())
    }

    /// Statistics and ranges of a channel's stored intensities, of the voxels in a mask if there is one.
    ///
    /// # Errors
    /// If a file cannot be read, the budget has no room, or `stop` is set.
    pub(crate) fn channel(
        &mut self,
        source: &mut CaseSource,
        channel: usize,
        mask: Option<&Mask>,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<Surveyed, PrepareError> {
        let (across, width) = (self.across, self.covered.shape[2]);
        let mut inside = Ranges::new(self.slices(), budget)?;
        let mut outside = Ranges::new(self.slices(), budget)?;
        let mut moments = Moments::NONE;
        self.each_plane(source, channel, stop, |d, plane| {
            for (h, row) in plane.chunks_exact(width).enumerate() {
                for (w, value) in row.iter().enumerate() {
                    let slice = across.map_or(0, |axis| [d, h, w][axis]);
                    match mask.is_none_or(|mask| mask.has([d, h, w])) {
                        true => inside.include(slice, [*value; 2]),
                        false => outside.include(slice, [0.0; 2]),
                    }
                }
            }
            // Voxels outside of the mask are zero, so that only zeros inside are counted.
            let zeros = match mask {
                None => plane.iter().filter(|value| **value == 0.0).count(),
                Some(mask) => {
                    let rows = plane.chunks_exact(width).enumerate();
                    let of_row = |(h, row): (usize, &[f32])| {
                        (0..width).filter(|w| row[*w] == 0.0 && mask.has([d, h, *w])).count()
                    };
                    rows.map(of_row).sum()
                }
            };
            moments = moments.and(Moments::from_nonzero(plane)).and(Moments::from_zeros(zeros as u64));
        })?;
        let statistics = ChannelStatistics {
            mean: moments.mean,
            std: moments.deviation(),
            min: moments.min,
            max: moments.max,
        };
        Ok(Surveyed { statistics, inside, outside })
    }

    fn each_plane(
        &mut self,
        source: &mut CaseSource,
        channel: usize,
        stop: &AtomicBool,
        mut visit: impl FnMut(usize, &[f32]),
    ) -> Result<(), PrepareError> {
        let [depth, height, width] = self.covered.shape;
        let (image, found) = source.channel(channel);
        for d in 0..depth {
            if stop.load(Ordering::Relaxed) {
                return Err(PrepareError::Stopped);
            }
            let [first, down, right] = self.covered.start;
            let region = VoxelBox { start: [first + d, down, right], shape: [1, height, width] };
            image.read_f32(found.index, region, &mut self.plane)?;
            visit(d, &self.plane);
        }
        Ok(())
    }
}
