//! The changes of one patch, drawn by the settings of the augmentation.
//!
//! The changes of a patch follow from its random streams alone. The order of the draws is part of the meaning
//! of a seed.

use plimsoll_random::Draws;

use crate::PatchGrid;
use crate::patch::augmentation::{Augmentation, Range};
use crate::patch::bias_field::BiasField;
use crate::patch::deformation::Deformation;
use crate::patch::intensity::{ChannelChange, IntensityChange};

/// The rotation, scale, shear and mirroring of a patch about its centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpatialChange {
    /// The angles about (depth, height, width) in radians, as for
    /// [`VoxelMap::rotation`](plimsoll_volume::VoxelMap::rotation).
    pub radians: [f64; 3],
    /// The factor of the extent that the patch covers along each axis.
    pub factors: [f64; 3],
    /// `shears[a][b]`: by how many millimetres along axis a a millimetre along axis b is displaced; 0 where they are the same.
    pub shears: [[f64; 3]; 3],
    /// The axes along which it is mirrored.
    pub mirrored: [bool; 3],
}

impl SpatialChange {
    /// No change.
    pub const NONE: SpatialChange =
        SpatialChange { radians: [0.0; 3], factors: [1.0; 3], shears: [[0.0; 3]; 3], mirrored: [false; 3] };
}

impl Augmentation {
    /// Draws the rotation, scale, shear and mirroring of a patch.
    pub(crate) fn draw_space(&self, grid: &PatchGrid, draws: &mut Draws) -> SpatialChange {
        let mut change = SpatialChange::NONE;
        let plane_axis = grid.plane_axis();
        let (turned, scaled) = (draws.chance(self.p_rotation), draws.chance(self.p_scaling));
        if turned {
            let in_plane = self.rotation_in_plane.unwrap_or(grid.usual_rotation_in_plane());
            for axis in 0..3 {
                change.radians[axis] = match plane_axis {
                    None => draws.between(self.rotation).to_radians(),
                    Some(only) if only == axis => draws.between(in_plane).to_radians(),
                    Some(_) => 0.0,
                };
            }
        }
        if scaled {
            let factor = draws.between(self.scaling);
            for axis in (0..3).filter(|axis| plane_axis != Some(*axis)) {
                change.factors[axis] = factor;
            }
        }
        for axis in 0..3 {
            // A patch of one slice has nothing to mirror across slices.
            change.mirrored[axis] =
                draws.chance(self.p_mirror) && self.mirror_axes[axis] && grid.patch[axis] > 1;
        }
        if draws.chance(self.p_shear) {
            let free = |axis: &usize| plane_axis != Some(*axis);
            for along in (0..3).filter(free) {
                for by in (0..3).filter(free).filter(|by| *by != along) {
                    change.shears[along][by] = draws.between(self.shear);
                }
            }
        }
        change
    }

    /// Draws the elastic deformation of a patch, if it has one.
    pub(crate) fn draw_deformation(&self, grid: &PatchGrid, draws: &mut Draws) -> Option<Deformation> {
        if !draws.chance(self.p_elastic) {
            return None;
        }
        let share = draws.between(self.elastic_spacing);
        let magnitude = [0; 3].map(|_| draws.between(self.elastic_magnitude));
        Some(Deformation::draw(grid.patch, grid.plane_axis(), share, magnitude, draws))
    }

    /// Draws the changes of a patch's intensities.
    pub(crate) fn draw_intensity(
        &self,
        grid: &PatchGrid,
        channels: usize,
        draws: &mut Draws,
    ) -> IntensityChange {
        let noise = draws.chance(self.p_gaussian_noise).then(|| draws.between(self.gaussian_noise) as f32);
        let mut of_each = vec![ChannelChange::default(); channels];
        if draws.chance(self.p_gaussian_blur) {
            for channel in &mut of_each {
                if draws.chance(self.p_gaussian_blur_per_channel) {
                    channel.blur = Some([0; 3].map(|_| draws.between(self.gaussian_blur)));
                }
            }
        }
        if draws.chance(self.p_brightness) {
            of_each.iter_mut().for_each(|channel| channel.brightness = Some(factor(self.brightness, draws)));
        }
        if draws.chance(self.p_contrast) {
            of_each.iter_mut().for_each(|channel| channel.contrast = Some(factor(self.contrast, draws)));
        }
        if draws.chance(self.p_low_resolution) {
            for channel in &mut of_each {
                if draws.chance(self.p_low_resolution_per_channel) {
                    let share = draws.between(self.low_resolution);
                    let kept = grid.plane_axis();
                    channel.low_resolution =
                        Some([0, 1, 2].map(|axis| if kept == Some(axis) { 1.0 } else { share }));
                }
            }
        }
        if draws.chance(self.p_inverted_gamma) {
            of_each.iter_mut().for_each(|channel| channel.inverted_gamma = Some(factor(self.gamma, draws)));
        }
        if draws.chance(self.p_gamma) {
            of_each.iter_mut().for_each(|channel| channel.gamma = Some(factor(self.gamma, draws)));
        }
        let bias_field = draws.chance(self.p_bias_field).then(|| BiasField::draw(self.bias_field, draws));
        IntensityChange { bias_field, noise, channels: of_each }
    }
}

/// A factor, equally likely below 1 and above, whatever the range (`BGContrast` of batchgenerators).
fn factor([low, high]: Range, draws: &mut Draws) -> f32 {
    let below = draws.chance(0.5) && low < 1.0;
    draws.between(if below { [low, high.min(1.0)] } else { [low.max(1.0).min(high), high] }) as f32
}
