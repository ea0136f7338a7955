//! Cases as TotalSegmentator's networks see them, window by window: zoomed to a spacing, cut to whole numbers, then prepared as nnU-Net
//! prepares an image of that spacing, which leaves nothing to resize.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes, MapError};
use plimsoll_volume::{Geometry, VoxelBox};

use crate::moments::Moments;
use crate::patch::zoom::Zoom;
use crate::prepare::kept_image::{KeptImage, Seen};
use crate::prepare::zoomed_source::{WindowPlace, ZoomedSource};
use crate::prepare::{PrepareError, WindowSource};
use crate::{
    Case, ChannelStatistics, Intensity, IntensityProperties, NoStatistics, Scratch, TargetGrid, VolumeCache,
    ZoomSteps,
};

/// The share of the network's spacing by which the spacing of the zoomed image may differ from it.
const SAME_SPACING: f64 = 1e-3;

/// The possible places of windows of a zoomed case, before its part that is not zero is known.
#[derive(Clone, Copy, Debug)]
pub struct ZoomedGrid {
    zoom: Zoom,
    stored_shape: [usize; 3],
    is_cut: bool,
}

impl ZoomedGrid {
    /// The grid of a stored image, or of a box that its labels are to be in: TotalSegmentator truncates the
    /// values of such a box to whole numbers before it zooms it.
    ///
    /// # Errors
    /// If the steps are impossible, or none that this is for.
    pub fn new(
        stored: &Geometry,
        within: Option<VoxelBox>,
        steps: &ZoomSteps,
    ) -> Result<ZoomedGrid, PrepareError> {
        let then = &steps.then;
        let refused = |why| Err(PrepareError::AfterZoom { why });
        if then.transposed != [0, 1, 2] {
            return refused("its axes are exchanged");
        }
        if then.channels.iter().any(super::inside_mask) {
            return refused("it is normalised inside a mask");
        }
        let target = then.spacing.for_image(steps.spacing);
        let differs = |axis: usize| (target.0[axis] / steps.spacing.0[axis] - 1.0).abs() > SAME_SPACING;
        if (0..3).any(differs) {
            return refused("it is resized once more, to another spacing");
        }
        let (canonical, reorientation) = stored.canonical();
        let covered = within.unwrap_or(VoxelBox::whole(stored.shape()));
        let zoom = Zoom::new(covered, reorientation, canonical.spacing(), steps.spacing);
        Ok(ZoomedGrid { zoom, stored_shape: stored.shape(), is_cut: within.is_some() })
    }

    /// The grid of the whole zoomed image. That of a case has no more voxels along any axis.
    pub fn largest(&self) -> TargetGrid {
        TargetGrid::zoomed(self.stored_shape, self.zoom, VoxelBox::whole(self.zoom.shape()))
    }

    /// Returns `true` if the voxels of a case of some channels are kept, so that the stored images are not read.
    pub fn is_kept_in(&self, kept: &KeptImage, channels: usize) -> bool {
        kept.found(&self.seen(channels)).is_some()
    }

    fn seen(&self, channels: usize) -> Seen {
        Seen { zoom: self.zoom, stored: self.stored_shape, is_truncated: self.is_cut, channels }
    }

    /// The spacing that is brought to another, and its shape.
    pub fn cropped(&self) -> [usize; 3] {
        self.zoom.axes.map(|axis| axis.from)
    }

    /// Bytes that a case reserves while it is opened.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn bytes(&self) -> Result<Bytes, MapError> {
        ZoomedSource::block_bytes()
    }
}

/// A case to open.
pub struct Zooming<'a> {
    /// The images.
    pub case: &'a Case,
    /// Its preparation.
    pub steps: &'a ZoomSteps,
    /// Intensities of the foreground of the data set that the model was trained on, by channel.
    pub foreground: &'a BTreeMap<usize, IntensityProperties>,
}

/// The memory in which a case is opened.
pub struct ZoomedRoom<'a> {
    /// The decoded images.
    pub cache: &'a VolumeCache,
    /// The memory that windows are read through.
    pub scratch: &'a mut Scratch,
    /// The budget of [`ZoomedGrid::bytes`].
    pub budget: &'a Budget,
}

/// A case whose windows can be pulled as TotalSegmentator's networks see them.
pub struct ZoomedCase {
    source: ZoomedSource,
    grid: TargetGrid,
    /// The first voxel of the grid in the zoomed image.
    first: [usize; 3],
    intensities: Vec<Intensity>,
}

impl ZoomedCase {
    /// Opens the images of a case, and looks through all of them once: for the box that is not zero, which is what windows are cut from,
    /// and for the statistics of it that a normalisation needs. Reserves [`ZoomedGrid::bytes`] from `budget` meanwhile. With `kept`, images
    /// are resampled once: by the first model that sees them, whose voxels the others read. A disk without room for them is no error, and
    /// voxels are the same.
    ///
    /// # Errors
    /// If a file cannot be read, a channel cannot be normalised, the budget has no room, or `stop` is set.
    pub fn open(
        what: &Zooming<'_>,
        place: ZoomedGrid,
        kept: Option<&mut KeptImage>,
        room: ZoomedRoom<'_>,
        stop: &AtomicBool,
    ) -> Result<ZoomedCase, PrepareError> {
        let ZoomedRoom { cache, scratch, budget } = room;
        let steps = &what.steps.then;
        let (found, expected) = (what.case.images.len(), steps.channels.len());
        if found != expected {
            return Err(PrepareError::Channels { found, expected });
        }
        let zoom = place.zoom;
        let mut block = ZoomedSource::block(budget)?;
        let seen = place.seen(expected);
        let (mut source, nonzero) = match kept.as_ref().and_then(|kept| kept.found(&seen)) {
            Some(found) => (ZoomedSource::Kept(found.clone()), found.nonzero),
            None => {
                let source =
                    ZoomedSource::open(what.case, zoom, seen.stored, seen.is_truncated, cache, stop)?;
                surveyed(source, seen, kept, &mut block, scratch, stop)?
            }
        };
        let mut intensities = Vec::with_capacity(expected);
        for (channel, normalised) in steps.channels.iter().enumerate() {
            let mut moments = Moments::NONE;
            if normalised.normalisation.is_of_case() {
                source.each_block(channel, nonzero, &mut block, scratch, stop, |_, voxels| {
                    let zeros = voxels.iter().filter(|value| **value == 0.0).count() as u64;
                    moments = moments.and(Moments::from_nonzero(voxels)).and(Moments::from_zeros(zeros));
                })?;
            }
            let own = ChannelStatistics {
                mean: moments.mean,
                std: moments.deviation(),
                min: moments.min,
                max: moments.max,
            };
            let found = normalised.normalisation.intensity(&own, what.foreground.get(&channel));
            let none = NoStatistics { channel, normalisation: normalised.normalisation };
            intensities.push(found.ok_or(none)?);
        }
        let grid = TargetGrid::zoomed(place.stored_shape, zoom, nonzero);
        Ok(ZoomedCase { source, grid, first: nonzero.start, intensities })
    }
}

impl WindowSource for ZoomedCase {
    fn grid(&self) -> &TargetGrid {
        &self.grid
    }

    fn window(
        &mut self,
        from: [i64; 3],
        window: [usize; 3],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), PrepareError> {
        let ZoomedCase { source, grid, first, intensities } = self;
        let place = WindowPlace { grid: grid.shape(), first: *first, from, shape: window };
        let normalise = |channel: usize, row: &mut [f32]| intensities[channel].apply(row);
        source.window(place, intensities.len(), out, scratch, normalise)
    }
}

/// Looks through all voxels for the box that is not zero, and keeps them on the way if they are to be kept. Returns what they are to be read
/// from.
fn surveyed(
    mut source: ZoomedSource,
    seen: Seen,
    kept: Option<&mut KeptImage>,
    block: &mut [f32],
    scratch: &mut Scratch,
    stop: &AtomicBool,
) -> Result<(ZoomedSource, VoxelBox), PrepareError> {
    let whole = VoxelBox::whole(seen.zoom.shape());
    let mut grown = kept.as_ref().and_then(|kept| kept.begin(seen));
    let mut nonzero: Option<([usize; 3], [usize; 3])> = None;
    for channel in 0..seen.channels {
        source.each_run(channel, whole, block, scratch, stop, |part, voxels| {
            include(&mut nonzero, part, voxels);
            // A disk that fails only costs time: windows are read from the stored image then.
            if grown.as_mut().is_some_and(|grown| grown.write(channel, part, voxels).is_err()) {
                grown = None;
            }
        })?;
    }
    // An image of zeros is taken as it is.
    let nonzero = nonzero.map_or(whole, |(first, last)| VoxelBox::between(first, last.map(|last| last + 1)));
    Ok(match kept.zip(grown) {
        Some((kept, grown)) => (ZoomedSource::Kept(kept.keep(grown, nonzero)), nonzero),
        None => (source, nonzero),
    })
}

/// Widens a box, of the first and the last voxel, by the voxels of a block that are not zero.
fn include(found: &mut Option<([usize; 3], [usize; 3])>, block: VoxelBox, voxels: &[f32]) {
    let [_, height, width] = block.shape;
    for (index, _) in voxels.iter().enumerate().filter(|(_, value)| **value != 0.0) {
        let at = [index / (height * width), index / width % height, index % width];
        let at = [0, 1, 2].map(|axis| block.start[axis] + at[axis]);
        let (first, last) = found.get_or_insert((at, at));
        for axis in 0..3 {
            first[axis] = first[axis].min(at[axis]);
            last[axis] = last[axis].max(at[axis]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_of_what_is_not_zero_is_found_over_blocks() {
        let mut found = None;
        let block = VoxelBox { start: [4, 5, 6], shape: [2, 2, 3] };
        include(&mut found, block, &[0.0; 12]);
        assert_eq!(found, None);
        let mut voxels = [0.0; 12];
        (voxels[1], voxels[9]) = (1.0, -2.0);
        include(&mut found, block, &voxels);
        assert_eq!(found, Some(([4, 5, 6], [5, 6, 7])));
        include(&mut found, VoxelBox { start: [0, 9, 9], shape: [1, 1, 1] }, &[3.0]);
        assert_eq!(found, Some(([0, 5, 6], [5, 9, 9])));
    }
}
