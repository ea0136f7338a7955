//! One pass over a channel of an image: statistics, the box of non-zero voxels, non-finite values, and the intensities of
//! foreground.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use plimsoll_memory::{Budget, Digest, Digester, Mapped};
use plimsoll_volume::{StoredVolume, VolumeError, VolumeFile, VoxelBox};

use crate::inspect::InspectError;
use crate::inspect::histogram::Histogram;
use crate::inspect::label_scan::LabelPlanes;
use crate::moments::Moments;

/// The contents of a channel.
pub(crate) struct ImageScan {
    /// The moments of the non-zero voxels.
    pub(crate) nonzero: Moments,
    /// The box around them; `None` if there are none.
    pub(crate) nonzero_box: Option<VoxelBox>,
    /// The number of voxels that are infinite or NaN.
    pub(crate) not_finite: u64,
    /// The value and the position of the first such voxel.
    pub(crate) first_not_finite: Option<(f32, [usize; 3])>,
    /// The moments of the foreground.
    pub(crate) foreground: Moments,
    /// The digest of all values.
    pub(crate) digest: Digest,
}

/// The bytes of a plane.
pub(crate) fn plane_bytes(file: &VolumeFile) -> u64 {
    let [_, height, width] = file.geometry().shape();
    (height as u64 * width as u64 * size_of::<f32>() as u64).next_multiple_of(4096)
}

/// The source of a pass.
pub(crate) enum Source<'a> {
    File(&'a mut VolumeFile),
    /// A decoded volume.
    Decoded(&'a StoredVolume),
}

/// The foreground of the image, whose intensities are counted.
pub(crate) struct Foreground<'a> {
    pub(crate) labels: LabelPlanes<'a>,
    /// The channel's, of all cases.
    pub(crate) histogram: &'a Mutex<Histogram>,
    /// The weight of each voxel of this case.
    pub(crate) weight: u64,
}

/// Why a pass ended early.
enum Ended {
    Stopped,
    File(VolumeError),
}

impl From<VolumeError> for Ended {
    fn from(problem: VolumeError) -> Ended {
        Ended::File(problem)
    }
}

/// Reads a channel, one plane within `memory`, and as many as chunks are deep if there is room for them. The outer error is the budget's, or that `stop` was
/// set; the inner one is the file's.
pub(crate) fn scan(
    source: Source<'_>,
    channel: usize,
    mut foreground: Option<Foreground<'_>>,
    memory: &Budget,
    stop: Option<&AtomicBool>,
) -> Result<Result<ImageScan, VolumeError>, InspectError> {
    let geometry = match &source {
        Source::File(file) => file.geometry(),
        Source::Decoded(volume) => volume.geometry(),
    };
    let [_, height, width] = geometry.shape();
    let count = height * width;
    let mut plane = Mapped::<f32>::zeroed(memory, "a plane of an image", count)?;
    let mut bounds = Bounds::default();
    let mut digester = Digester::default();
    let mut scan = ImageScan {
        nonzero: Moments::NONE,
        nonzero_box: None,
        not_finite: 0,
        first_not_finite: None,
        foreground: Moments::NONE,
        digest: Digest::compute(&[]),
    };
    let visit = |d: usize, plane: &mut [f32]| {
        if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Ended::Stopped);
        }
        digester.update(bytemuck::cast_slice(plane));
        scan.take_out_not_finite(plane, d, width);
        if let Some(Foreground { labels, histogram, weight }) = &mut foreground {
            labels.for_foreground(d, plane, |values| {
                scan.foreground = scan.foreground.and(Moments::from_values(values));
                histogram.lock().unwrap_or_else(PoisonError::into_inner).add(values, *weight);
            })?;
        }
        scan.nonzero = scan.nonzero.and(Moments::from_nonzero(plane));
        for (h, row) in plane.chunks_exact(width).enumerate() {
            bounds.include_row(d, h, row);
        }
        Ok(())
    };
    let read = match source {
        Source::File(file) => file.for_each_plane_f32(channel, memory, &mut plane, visit),
        Source::Decoded(volume) => volume.for_each_plane_f32(channel, &mut plane, visit),
    };
    match read {
        Ok(()) => {}
        Err(Ended::Stopped) => return Err(InspectError::Stopped),
        Err(Ended::File(problem)) => return Ok(Err(problem)),
    }
    scan.nonzero_box = bounds.into_box();
    scan.digest = digester.finish();
    Ok(Ok(scan))
}

impl ImageScan {
    /// Records non-finite values and replaces them with zeros, so that the statistics cover the rest.
    fn take_out_not_finite(&mut self, plane: &mut [f32], d: usize, width: usize) {
        // Nearly every plane is finite, which is checked fastest without searching for the first exception.
        if !plane.iter().fold(false, |any, value| any | !value.is_finite()) {
            return;
        }
        for (at, value) in plane.iter_mut().enumerate().filter(|(_, value)| !value.is_finite()) {
            self.not_finite += 1;
            self.first_not_finite.get_or_insert((*value, [d, at / width, at % width]));
            *value = 0.0;
        }
    }
}

/// A bounding box under construction.
#[derive(Default)]
struct Bounds {
    seen: Option<([usize; 3], [usize; 3])>,
}

impl Bounds {
    fn include_row(&mut self, d: usize, h: usize, row: &[f32]) {
        let Some(first) = row.iter().position(|value| *value != 0.0) else { return };
        let last = row.iter().rposition(|value| *value != 0.0).unwrap_or(first);
        let (low, high) = self.seen.get_or_insert(([d, h, first], [d, h, last]));
        for (axis, (least, greatest)) in [(d, d), (h, h), (first, last)].into_iter().enumerate() {
            low[axis] = low[axis].min(least);
            high[axis] = high[axis].max(greatest);
        }
    }

    fn into_box(self) -> Option<VoxelBox> {
        self.seen.map(|(low, high)| VoxelBox::between(low, high.map(|last| last + 1)))
    }
}

/// The smallest box that contains both.
pub(crate) fn union(a: Option<VoxelBox>, b: Option<VoxelBox>) -> Option<VoxelBox> {
    let (Some(one), Some(other)) = (a, b) else { return a.or(b) };
    let start = std::array::from_fn(|axis| one.start[axis].min(other.start[axis]));
    let end = |region: &VoxelBox, axis: usize| region.start[axis] + region.shape[axis];
    Some(VoxelBox::between(start, std::array::from_fn(|axis| end(&one, axis).max(end(&other, axis)))))
}
