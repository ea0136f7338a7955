//! The options of a distance transform, and the settings derived from them.

use super::states;
use super::store::Finish;
use crate::MorphologyError;
use crate::grid::check_spacing;
use crate::simd::LANES;

/// The voxels to which distances are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distance {
    /// From each foreground voxel to the nearest background voxel; 0 for background voxels. As
    /// `scipy.ndimage.distance_transform_edt`.
    #[default]
    ToBackground,
    /// From each foreground voxel to the nearest voxel of another label, background included; 0 for background voxels.
    /// This is the distance of `edt.edt` with `black_border=False`.
    ToOtherLabel,
    /// From each voxel to the nearest one of the other side: positive outside, in the background, and negative inside.
    Signed,
}

/// The options of a distance transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdtOptions {
    /// The voxels to which distances are measured.
    pub distance: Distance,
    /// `true` if distances are left squared, in mm² (with the sign of the distance).
    pub squared: bool,
}

/// The settings of a transform.
pub(super) struct Job {
    /// Depth, height, width; see [`without_flat_axes`].
    pub(super) shape: [usize; 3],
    /// The squared spacing along each axis, in mm²; in units of the squared spacing if that is isotropic.
    pub(super) weights: [f32; 3],
    pub(super) finish: Finish,
    pub(super) distance: Distance,
    pub(super) features: bool,
    pub(super) threads: usize,
    /// Tiles per unit of the last pass: all of a row, unless there are too few rows to share among threads.
    pub(super) tiles_at_once: usize,
}

impl Job {
    pub(super) fn new(
        shape: [usize; 3],
        spacing: [f64; 3],
        options: &EdtOptions,
        features: bool,
        threads: usize,
    ) -> Result<Job, MorphologyError> {
        check_spacing(shape, spacing)?;
        if threads == 0 {
            return Err(MorphologyError::NoThreads);
        }
        let (shape, spacing) = without_flat_axes(shape, spacing);
        let [step, others @ ..] = spacing;
        let isotropic = others.iter().all(|other| *other == step);
        // Squared distances in voxels are integers, which are exact in f32; the spacing is applied at the end.
        let unit = if isotropic { step } else { 1.0 };
        let scale = if options.squared { unit * unit } else { unit };
        Ok(Job {
            shape,
            weights: spacing.map(|step| ((step / unit) * (step / unit)) as f32),
            finish: Finish { root: !options.squared, scale: scale as f32 },
            distance: options.distance,
            features,
            threads,
            tiles_at_once: if shape[1] / 4 >= threads { shape[2].div_ceil(LANES) } else { 1 },
        })
    }

    /// The number of tiles of `LANES` adjacent columns.
    pub(super) fn tiles(&self) -> usize {
        self.shape[2].div_ceil(LANES)
    }

    /// The bytes of the states of a row.
    pub(super) fn states(&self) -> usize {
        states::bytes(self.tiles())
    }
}

/// The same voxels in the same order, with axes of one voxel moved: an image becomes depth × 1 × width, so that the
/// passes along both of its axes are divided into many units of work. An axis of one voxel gets the spacing of the
/// width.
fn without_flat_axes(shape: [usize; 3], spacing: [f64; 3]) -> ([usize; 3], [f64; 3]) {
    let mut axes = (0..3).filter(|axis| shape[*axis] != 1);
    match (axes.next(), axes.next(), axes.next()) {
        (Some(a), Some(b), None) => ([shape[a], 1, shape[b]], [spacing[a], spacing[b], spacing[b]]),
        (Some(a), None, None) => ([1, 1, shape[a]], [spacing[a]; 3]),
        _ => (shape, spacing),
    }
}
