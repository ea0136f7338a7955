//! The scene of a phantom image: trees of vessels on an uneven background.

use plimsoll_volume::Spacing;

use crate::phantom::tree::{self, Tube};
use plimsoll_random::Draws;

/// Intensities: the background, its spatial variation, and the noise.
const BACKGROUND: f64 = 1000.0;
const VARIATION: f64 = 160.0;
const NOISE: f32 = 40.0;

/// The contrast of vessels against the background.
const CONTRAST: [f64; 2] = [200.0, 250.0];

/// The number of waves that make up the background.
const WAVES: usize = 6;

/// The number of trees in an image.
const TREES: usize = 3;

/// A wave across the image: the phase at voxel 0 and the change per voxel along each axis, in radians.
struct Wave {
    phase: f64,
    step: [f64; 3],
    height: f64,
}

/// The contents of an image, independent of the voxel grid.
pub(crate) struct Scene {
    shape: [usize; 3],
    /// The spacing along each axis, in units of the smallest.
    size: [f64; 3],
    tubes: Vec<Tube>,
    waves: Vec<Wave>,
    contrast: f64,
}

impl Scene {
    pub(crate) fn draw(shape: [usize; 3], Spacing(spacing): Spacing, draws: &mut Draws) -> Scene {
        let smallest = spacing.into_iter().fold(f64::INFINITY, f64::min);
        let size = spacing.map(|length| length / smallest);
        let extent: [f64; 3] = std::array::from_fn(|axis| shape[axis] as f64 * size[axis]);
        let tubes = (0..TREES).flat_map(|_| tree::grow(extent, draws)).collect();
        let wave = |_| Wave {
            phase: draws.between([0.0, std::f64::consts::TAU]),
            // At most one period across the image along each axis.
            step: shape.map(|voxels| draws.between([-1.0, 1.0]) * std::f64::consts::TAU / voxels as f64),
            height: VARIATION * (2.0 / WAVES as f64).sqrt(),
        };
        let waves = (0..WAVES).map(wave).collect();
        Scene { shape, size, tubes, waves, contrast: draws.between(CONTRAST) }
    }

    /// Draws one plane: intensities, and 1 where there is a vessel.
    pub(crate) fn render(&self, d: usize, noise: &mut Draws, plane: &mut [f32], mask: &mut [u8]) {
        let [_, height, width] = self.shape;
        // The depth of each voxel inside of a vessel; −1 at one unit outside and beyond.
        plane.fill(-1.0);
        for tube in &self.tubes {
            self.carve(tube, d, plane);
        }
        for h in 0..height {
            let row = &mut plane[h * width..(h + 1) * width];
            for (w, (value, label)) in row.iter_mut().zip(&mut mask[h * width..(h + 1) * width]).enumerate() {
                let depth = f64::from(*value);
                *label = u8::from(depth > 0.0);
                let vessel = self.contrast * (depth + 0.5).clamp(0.0, 1.0);
                let background: f64 = self.waves.iter().map(|wave| wave.at([d, h, w])).sum();
                *value = (BACKGROUND + background + vessel) as f32 + NOISE * noise.normal();
            }
        }
    }

    /// Updates the depth of the voxels of a plane in and next to a tube.
    fn carve(&self, tube: &Tube, d: usize, plane: &mut [f32]) {
        let reach = tube.radii[0].max(tube.radii[1]) + 1.0;
        let range = |axis: usize| {
            let (a, b) = (tube.from[axis], tube.to[axis]);
            let first = ((a.min(b) - reach) / self.size[axis]).ceil().max(0.0) as usize;
            let end = ((a.max(b) + reach) / self.size[axis]).floor().max(-1.0) + 1.0;
            first..(end as usize).min(self.shape[axis])
        };
        if !range(0).contains(&d) {
            return;
        }
        for h in range(1) {
            for w in range(2) {
                let point = [d as f64 * self.size[0], h as f64 * self.size[1], w as f64 * self.size[2]];
                let voxel = &mut plane[h * self.shape[2] + w];
                *voxel = voxel.max(tube.depth_of(point) as f32);
            }
        }
    }
}

impl Wave {
    fn at(&self, voxel: [usize; 3]) -> f64 {
        let turned: f64 = (0..3).map(|axis| self.step[axis] * voxel[axis] as f64).sum();
        self.height * (self.phase + turned).cos()
    }
}
