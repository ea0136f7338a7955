//! Distances between the surfaces of two masks.
//!
//! Reference programs agree on the scores but not on the definition of a surface; both common ones are implemented, by
//! name. A surface is a list of parts, each with its distance to the other surface and a weight, and every score is a
//! function of these lists.

use plimsoll_memory::{Budget, Mapped};
use plimsoll_morphology::{
    Distance, EdtOptions, cell_shape, contour_codes, contour_lengths, edt, scratch_bytes, surface_areas,
    surface_codes,
};
use serde::{Deserialize, Serialize};

use crate::quantile::quantile;
use crate::{ClassMasks, MetricError};

/// Distances are computed in f32; one that exceeds the tolerance by less than this relative error is within it.
const ROUNDING: f64 = 1e-6;
/// The rounding tolerance of shares of the area.
const SHARE_ROUNDING: f64 = 1e-12;

/// The definition of the surface of a mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Surface {
    /// Cells between eight voxels that are not all equal, weighted by the area of the surface that runs through them;
    /// in an image, cells between four pixels, weighted by the length of the contour. As DeepMind's surface-distance
    /// (Nikolov et al. 2021, doi:10.2196/26151). A percentile is the distance within which that share of the area lies.
    #[default]
    Elements,
    /// Foreground voxels that share a face with the background or the border of the grid, all of the same weight. As
    /// `monai.metrics` without `use_subvoxels`. A percentile is interpolated between distances, as by
    /// `numpy.quantile`.
    Voxels,
}

/// The parts of two surfaces with their distances to the other surface, sorted by distance.
#[derive(Debug)]
pub struct SurfaceDistances {
    surface: Surface,
    /// The weight of a part, by its code.
    weights: Vec<f64>,
    from_prediction: SurfaceParts,
    from_reference: SurfaceParts,
}

impl SurfaceDistances {
    /// Measures the surfaces of a class. Uses 5 bytes per voxel and 8 bytes per part of both surfaces from `budget`.
    ///
    /// # Errors
    /// Returns an error if the spacing is not positive and finite, or the memory is not available.
    pub fn measure(
        masks: &ClassMasks,
        surface: Surface,
        budget: &Budget,
        threads: usize,
    ) -> Result<SurfaceDistances, MetricError> {
        let definition = Definition::new(masks, surface)?;
        let voxels = definition.shape.iter().product();
        let mut codes = Mapped::<u8>::zeroed(budget, "surface of a mask", voxels)?;
        let mut distances = Mapped::<f32>::zeroed(budget, "distances to a surface", voxels)?;
        let options = EdtOptions { distance: Distance::ToBackground, squared: false };
        let scratch = scratch_bytes(definition.shape, &options, threads);
        let mut scratch = Mapped::<u8>::zeroed(budget, "distances to a surface", scratch)?;
        let mut measure = |from: &[u8], to: &[u8]| -> Result<SurfaceParts, MetricError> {
            definition.mark(to, &mut codes, threads)?;
            for code in codes.iter_mut() {
                *code = u8::from(!definition.is_surface(*code));
            }
            let spacing = masks.spacing();
            edt(&codes, definition.shape, spacing, &options, &mut distances, &mut scratch, threads)?;
            definition.mark(from, &mut codes, threads)?;
            SurfaceParts::gather(&definition, &codes, &distances, budget)
        };
        let from_prediction = measure(masks.prediction(), masks.reference())?;
        let from_reference = measure(masks.reference(), masks.prediction())?;
        Ok(SurfaceDistances { surface, weights: definition.weights, from_prediction, from_reference })
    }

    /// The largest distance from one surface to the other, in mm (Hausdorff 1914). Infinite if one mask is empty, NaN
    /// if both are, as in MONAI.
    pub fn hausdorff(&self) -> f64 {
        self.greater(|parts| parts.0.last().map(|part| distance(*part)))
    }

    /// The greater of the distances within which a share (from 0 to 1) of each surface lies, in mm; 0.95 for HD95.
    /// [`Surface`] defines what the share refers to. Empty masks as for [`hausdorff`](Self::hausdorff).
    pub fn hausdorff_at(&self, share: f64) -> f64 {
        self.greater(|parts| match self.surface {
            Surface::Elements => parts.within_share_of_weight(share, &self.weights),
            Surface::Voxels => quantile(parts.0.len(), |at| distance(parts.0[at]), share),
        })
    }

    /// The mean distance from the prediction's surface to the reference's, and back, by weight, in mm. NaN where a mask
    /// is empty and infinite where only the other is; as `compute_average_surface_distance` of surface-distance, which
    /// returns them in the other order.
    pub fn average_distances(&self) -> [f64; 2] {
        [&self.from_prediction, &self.from_reference].map(|parts| {
            let (sum, weight) = parts.sums(&self.weights);
            sum / weight
        })
    }

    /// The average symmetric surface distance in mm: the mean over all parts of both surfaces, by weight, as
    /// `compute_average_surface_distance(symmetric=True)` of MONAI. Empty masks as for [`hausdorff`](Self::hausdorff).
    pub fn average_symmetric(&self) -> f64 {
        let (a, b) = (self.from_prediction.sums(&self.weights), self.from_reference.sums(&self.weights));
        (a.0 + b.0) / (a.1 + b.1)
    }

    /// The normalised surface distance, or surface Dice: the share of both surfaces that is within `tolerance` mm of
    /// the other (Nikolov et al. 2021). 0 if one mask is empty, NaN if both are, as in surface-distance and MONAI.
    pub fn surface_dice(&self, tolerance: f64) -> f64 {
        let [mut within, mut all] = [0.0; 2];
        for part in self.from_prediction.0.iter().chain(self.from_reference.0.iter()) {
            let weight = weight(*part, &self.weights);
            all += weight;
            if distance(*part) <= tolerance * (1.0 + ROUNDING) {
                within += weight;
            }
        }
        within / all
    }

    fn greater(&self, score: impl Fn(&SurfaceParts) -> Option<f64>) -> f64 {
        match (score(&self.from_prediction), score(&self.from_reference)) {
            (Some(a), Some(b)) => a.max(b),
            (None, None) => f64::NAN,
            // Distances to an empty mask are infinite.
            _ => f64::INFINITY,
        }
    }
}

/// A definition of surfaces, applied to the grid of two masks.
struct Definition {
    surface: Surface,
    /// The shape of the masks.
    voxels: [usize; 3],
    /// The shape of the grid that surfaces are marked on.
    shape: [usize; 3],
    /// The weight of each code.
    weights: Vec<f64>,
}

impl Definition {
    fn new(masks: &ClassMasks, surface: Surface) -> Result<Definition, MetricError> {
        let (voxels, [_, height, width]) = (masks.shape(), masks.spacing());
        let (shape, weights) = match surface {
            Surface::Voxels => (voxels, vec![0.0, 1.0, 0.0]),
            Surface::Elements if masks.is_image() => {
                let [_, rows, columns] = cell_shape(voxels);
                ([1, rows, columns], contour_lengths([height, width])?.to_vec())
            }
            Surface::Elements => (cell_shape(voxels), surface_areas(masks.spacing())?.to_vec()),
        };
        Ok(Definition { surface, voxels, shape, weights })
    }

    /// Returns `true` if the surface passes through a cell with this code: neither all background nor all foreground.
    fn is_surface(&self, code: u8) -> bool {
        code != 0 && usize::from(code) + 1 != self.weights.len()
    }

    fn mark(&self, mask: &[u8], codes: &mut [u8], threads: usize) -> Result<(), MetricError> {
        match self.surface {
            Surface::Voxels => mark_rim(mask, self.voxels, codes),
            Surface::Elements if self.voxels[0] == 1 => {
                contour_codes(mask, [self.voxels[1], self.voxels[2]], codes)?;
            }
            Surface::Elements => surface_codes(mask, self.voxels, codes, threads)?,
        }
        Ok(())
    }
}

/// Marks foreground voxels with a background neighbour across a face. The masks' margin stands for voxels out of
/// bounds.
fn mark_rim(mask: &[u8], shape: [usize; 3], rim: &mut [u8]) {
    let steps = [shape[1] * shape[2], shape[2], 1];
    let steps: Vec<usize> = (0..3).filter(|axis| shape[*axis] > 1).map(|axis| steps[axis]).collect();
    let voxel = |at: usize| mask.get(at).copied().unwrap_or(0);
    for (at, rim) in rim.iter_mut().enumerate() {
        let inside = || steps.iter().all(|step| voxel(at.wrapping_sub(*step)) & voxel(at + step) == 1);
        *rim = u8::from(voxel(at) == 1 && !inside());
    }
}

/// The sorted parts of a surface: the bits of the distance, which sort like the distances, above the code.
#[derive(Debug)]
struct SurfaceParts(Mapped<u64>);

fn distance(part: u64) -> f64 {
    f64::from(f32::from_bits((part >> 32) as u32))
}

/// The weight of a part. Its code was made with the same definition, so that it has one.
fn weight(part: u64, weights: &[f64]) -> f64 {
    weights[(part & 0xff) as usize]
}

impl SurfaceParts {
    fn gather(
        definition: &Definition,
        codes: &[u8],
        distances: &[f32],
        budget: &Budget,
    ) -> Result<SurfaceParts, MetricError> {
        let count = codes.iter().filter(|code| definition.is_surface(**code)).count();
        let mut parts = Mapped::<u64>::zeroed(budget, "distances between surfaces", count)?;
        let found = codes.iter().zip(distances).filter(|(code, _)| definition.is_surface(**code));
        for (part, (code, distance)) in parts.iter_mut().zip(found) {
            *part = u64::from(distance.to_bits()) << 32 | u64::from(*code);
        }
        parts.sort_unstable();
        Ok(SurfaceParts(parts))
    }

    /// The sums of distance × weight, and of weight.
    fn sums(&self, weights: &[f64]) -> (f64, f64) {
        self.0.iter().fold((0.0, 0.0), |(sum, all), part| {
            let weight = weight(*part, weights);
            (sum + distance(*part) * weight, all + weight)
        })
    }

    fn within_share_of_weight(&self, share: f64, weights: &[f64]) -> Option<f64> {
        let (_, all) = self.sums(weights);
        let mut sum = 0.0;
        let reached = self.0.iter().find(|part| {
            sum += weight(**part, weights);
            sum / all >= share - SHARE_ROUNDING
        });
        reached.or(self.0.last()).map(|part| distance(*part))
    }
}
