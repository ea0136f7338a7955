//! Cases as networks of MONAI see them, window by window: in its order of axes, at a spacing that begins with the first voxel, with
//! intensities that are transformed then.

use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes, MapError};
use plimsoll_volume::{Geometry, Reorientation, Spacing, VoxelBox};

use crate::moments::Moments;
use crate::patch::zoom::Zoom;
use crate::prepare::zoomed_source::{WindowPlace, ZoomedSource};
use crate::prepare::{PrepareError, WindowSource};
use crate::{Case, MonaiIntensity, MonaiSteps, Scratch, TargetGrid, VolumeCache};

/// The cosine of two axes from which they count as sheared: more than the rounding of an affine in f32, and less than what moves a voxel.
const SHEARED: f64 = 1e-5;

/// The grid of a case's windows.
#[derive(Clone, Copy, Debug)]
pub struct SpacedGrid {
    zoom: Zoom,
    grid: TargetGrid,
    own: Spacing,
    target: Spacing,
}

impl SpacedGrid {
    /// The grid of a stored image.
    ///
    /// # Errors
    /// If its axes are not at right angles, and it does not keep its spacing.
    pub fn new(stored: &Geometry, steps: &MonaiSteps) -> Result<SpacedGrid, PrepareError> {
        let (_, canonical) = stored.canonical();
        // From depth, height and width (upwards, forwards, to the right) to MONAI's order.
        let axes = [2, 1, 0].map(|axis| canonical.source_axis()[axis]);
        let flip = [2, 1, 0].map(|axis| canonical.flip()[axis]);
        let reorientation = Reorientation::new(axes, flip).ok_or(PrepareError::Transposed { found: axes })?;
        if steps.spacing.is_some() && is_sheared(stored) {
            return Err(PrepareError::Sheared);
        }
        let own = reorientation.geometry(stored).spacing();
        let zoom = Zoom::spaced(stored, reorientation, steps.spacing);
        let grid = TargetGrid::spaced(stored.shape(), zoom);
        Ok(SpacedGrid { zoom, grid, own, target: steps.spacing.map_or(own, Spacing) })
    }

    /// The grid of windows.
    pub fn grid(&self) -> &TargetGrid {
        &self.grid
    }

    /// The shape that is brought to another spacing, and its spacing, along the network's axes.
    pub fn stored(&self) -> ([usize; 3], Spacing) {
        (self.zoom.axes.map(|axis| axis.from), self.own)
    }

    /// The spacing that it is brought to.
    pub fn target(&self) -> Spacing {
        self.target
    }

    /// Bytes that a case reserves while it is opened.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn bytes(&self) -> Result<Bytes, MapError> {
        ZoomedSource::block_bytes()
    }
}

/// Returns `true` if two axes of a grid are not at right angles.
fn is_sheared(stored: &Geometry) -> bool {
    let rows = stored.affine().0;
    let column = |axis: usize| rows.map(|row| row[axis]);
    let lengths = stored.spacing().0;
    let cosine = |a: usize, b: usize| {
        let product: f64 = column(a).iter().zip(column(b)).map(|(a, b)| a * b).sum();
        (product / (lengths[a] * lengths[b])).abs()
    };
    [(0, 1), (0, 2), (1, 2)].into_iter().any(|(a, b)| cosine(a, b) > SHEARED)
}

/// The transform of a channel's intensities.
#[derive(Clone, Copy, Debug)]
enum Transformed {
    Unchanged,
    /// (x − from) / width, then, if there is one, · range + begin, then kept within both ends.
    Range {
        from: f32,
        width: f32,
        to: Option<(f32, f32)>,
        is_clipped: bool,
    },
    /// (x − mean) / deviation, of voxels that are not 0 if these alone count.
    Normalised {
        mean: f32,
        deviation: f32,
        nonzero: bool,
    },
}

impl Transformed {
    fn apply(self, values: &mut [f32]) {
        match self {
            Transformed::Unchanged => {}
            Transformed::Range { from, width, to, is_clipped } => values.iter_mut().for_each(|value| {
                let share = (*value - from) / width;
                *value = match to {
                    None => share,
                    Some((low, high)) => {
                        let scaled = share * (high - low) + low;
                        if is_clipped { scaled.clamp(low, high) } else { scaled }
                    }
                };
            }),
            Transformed::Normalised { mean, deviation, nonzero } => values
                .iter_mut()
                .filter(|value| !nonzero || **value != 0.0)
                .for_each(|value| *value = (*value - mean) / deviation),
        }
    }
}

/// A case whose windows can be pulled as networks of MONAI see them.
pub struct SpacedCase {
    source: ZoomedSource,
    grid: TargetGrid,
    channels: Vec<Transformed>,
}

impl SpacedCase {
    /// Opens the images of a case, and looks through all of them once where they are normalised by statistics of their own. Reserves
    /// [`SpacedGrid::bytes`] from `budget` meanwhile.
    ///
    /// # Errors
    /// If a file cannot be read, the budget has no room, or `stop` is set.
    pub fn open(
        case: &Case,
        steps: &MonaiSteps,
        place: SpacedGrid,
        cache: &VolumeCache,
        scratch: &mut Scratch,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<SpacedCase, PrepareError> {
        let count = case.images.len();
        let grid = place.grid;
        let mut source = ZoomedSource::open(case, place.zoom, grid.stored_shape(), false, cache, stop)?;
        let channels = match steps.intensity {
            MonaiIntensity::None {} => vec![Transformed::Unchanged; count],
            MonaiIntensity::ScaleIntensity { minv, maxv, channel_wise } => {
                let mut ranges = Vec::with_capacity(count);
                let mut block = ZoomedSource::block(budget)?;
                let whole = VoxelBox::whole(grid.shape());
                for channel in 0..count {
                    let mut range = [f32::INFINITY, f32::NEG_INFINITY];
                    source.each_block(channel, whole, &mut block, scratch, stop, |_, values| {
                        range = values
                            .iter()
                            .fold(range, |[least, most], value| [least.min(*value), most.max(*value)]);
                    })?;
                    ranges.push(range);
                }
                if !channel_wise {
                    let joined =
                        |[least, most]: [f32; 2], own: &[f32; 2]| [least.min(own[0]), most.max(own[1])];
                    let all = ranges.iter().fold([f32::INFINITY, f32::NEG_INFINITY], joined);
                    ranges.fill(all);
                }
                let (low, high) = (minv as f32, maxv as f32);
                let transformed = |[least, most]: [f32; 2]| match least < most {
                    true => Transformed::Range {
                        from: least,
                        width: most - least,
                        to: Some((low, high)),
                        is_clipped: false,
                    },
                    false => {
                        Transformed::Range { from: 0.0, width: 1.0, to: Some((0.0, low)), is_clipped: false }
                    }
                };
                ranges.into_iter().map(transformed).collect()
            }
            MonaiIntensity::ScaleIntensityRange { a_min, a_max, b_min, b_max, clip } => {
                let to = b_min.zip(b_max).map(|(low, high)| (low as f32, high as f32));
                let (from, width) = (a_min as f32, (a_max - a_min) as f32);
                vec![Transformed::Range { from, width, to, is_clipped: clip }; count]
            }
            MonaiIntensity::NormalizeIntensity { nonzero, channel_wise, subtrahend, divisor } => {
                let normalised = |mean: f64, deviation: f64| {
                    let (mean, deviation) = (mean as f32, deviation as f32);
                    let deviation = if deviation == 0.0 { 1.0 } else { deviation };
                    Transformed::Normalised { mean, deviation, nonzero }
                };
                if let (Some(mean), Some(deviation)) = (subtrahend, divisor) {
                    vec![normalised(mean, deviation); count]
                } else {
                    let mut of_channels = Vec::with_capacity(count);
                    let mut block = ZoomedSource::block(budget)?;
                    let whole = VoxelBox::whole(grid.shape());
                    for channel in 0..count {
                        let mut moments = Moments::NONE;
                        source.each_block(channel, whole, &mut block, scratch, stop, |_, values| {
                            let zeros = values.iter().filter(|value| **value == 0.0).count() as u64;
                            let rest = Moments::from_nonzero(values);
                            let all = if nonzero { rest } else { rest.and(Moments::from_zeros(zeros)) };
                            moments = moments.and(all);
                        })?;
                        of_channels.push(moments);
                    }
                    if !channel_wise {
                        let all = of_channels.iter().fold(Moments::NONE, |all, own| all.and(*own));
                        of_channels.fill(all);
                    }
                    let of = |own: &Moments| {
                        normalised(subtrahend.unwrap_or(own.mean), divisor.unwrap_or(own.deviation()))
                    };
                    of_channels.iter().map(of).collect()
                }
            }
        };
        Ok(SpacedCase { source, grid, channels })
    }
}

impl WindowSource for SpacedCase {
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
        let SpacedCase { source, grid, channels } = self;
        let place = WindowPlace { grid: grid.shape(), first: [0; 3], from, shape: window };
        let transform = |channel: usize, row: &mut [f32]| channels[channel].apply(row);
        source.window(place, channels.len(), out, scratch, transform)
    }
}
