//! Scores of lesions: components of a prediction against components of its reference.

use plimsoll_memory::{Budget, Mapped};
use plimsoll_morphology::{Connectivity, Region, component_sizes, components};

use crate::overlap::quotient;
use crate::{ClassMasks, MetricError};

/// The components of two masks, connected at corners (8 neighbours in an image, else 26), and where they overlap.
#[derive(Debug)]
pub struct Lesions {
    predicted: Components,
    reference: Components,
    /// Pairs of overlapping components, the reference's number in the upper bits and the prediction's in the lower,
    /// with their shared voxels. Only the first `overlap_count` elements are used.
    overlaps: Mapped<[u64; 2]>,
    overlap_count: usize,
    counted_voxels: u64,
}

/// By component, from 1: its number of voxels, and of those that the other mask covers.
#[derive(Debug)]
struct Components(Mapped<[u64; 2]>);

impl Components {
    fn new(sizes: &[u64], budget: &Budget) -> Result<Components, MetricError> {
        let mut components = Mapped::zeroed(budget, "components", sizes.len())?;
        for (component, size) in components.iter_mut().zip(sizes) {
            *component = [*size, 0];
        }
        Ok(Components(components))
    }

    /// Counts voxels of a component, which is one of those that were counted, that the other mask covers.
    fn cover(&mut self, component: usize, voxels: u64) {
        self.0[component][1] += voxels;
    }

    fn count(&self) -> u64 {
        self.iter().count() as u64
    }

    /// The number of voxels of a component, which is one of those that were counted.
    fn size(&self, component: usize) -> u64 {
        self.0[component][0]
    }

    /// The size and covered voxels of each component.
    fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().skip(1).map(|[size, covered]| (*size, *covered))
    }

    /// The number of components that are covered by at least one voxel and at least this share.
    fn covered(&self, share: f64) -> u64 {
        let enough = |(size, covered): &(u64, u64)| *covered > 0 && *covered as f64 >= share * *size as f64;
        self.iter().filter(enough).count() as u64
    }
}

/// The voxels shared by a component of the reference and one of the prediction.
struct SharedVoxels {
    reference: usize,
    predicted: usize,
    voxels: u64,
}

impl SharedVoxels {
    fn new(pair: u64, voxels: u64) -> SharedVoxels {
        SharedVoxels { reference: (pair >> 32) as usize, predicted: (pair & 0xffff_ffff) as usize, voxels }
    }
}

/// The number of detected lesions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detection {
    /// Lesions of the reference that are detected.
    pub found: u64,
    /// Lesions of the reference that are missed.
    pub missed: u64,
    /// Lesions of the prediction that are not in the reference.
    pub false_positives: u64,
}

impl Detection {
    /// Detected / (detected + missed); NaN without lesions in the reference.
    pub fn sensitivity(&self) -> f64 {
        quotient(self.found, self.found + self.missed)
    }

    /// Detected / (detected + false positives); NaN without either.
    pub fn precision(&self) -> f64 {
        quotient(self.found, self.found + self.false_positives)
    }

    /// 2 detected / (2 detected + missed + false positives); NaN without lesions anywhere, where ISLES'22 gives 1.
    pub fn f1(&self) -> f64 {
        quotient(2 * self.found, 2 * self.found + self.missed + self.false_positives)
    }
}

/// Panoptic quality and its factors (Kirillov et al. 2019, doi:10.1109/CVPR.2019.00963).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Panoptic {
    /// SQ · RQ; NaN without lesions anywhere, 0 without a match.
    pub quality: f64,
    /// SQ: the mean IoU of matched lesions; NaN without one.
    pub segmentation: f64,
    /// RQ: 2 matched / (2 matched + unmatched of both); NaN without lesions anywhere.
    pub recognition: f64,
}

/// The variation of information (Meilă 2007, doi:10.1016/j.jmva.2006.11.013) between two partitions of the grid, in
/// bits. Each component is a part, and so is the background.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VariationOfInformation {
    /// H(prediction | reference): false splits.
    pub splits: f64,
    /// H(reference | prediction): false merges.
    pub merges: f64,
}

impl Lesions {
    /// Finds and matches components. Uses slightly more than 8 bytes per voxel while it runs, 24 bytes per component
    /// and 16 per run of voxels that two components share, from `budget`.
    ///
    /// # Errors
    /// Returns an error if there are more voxels than 32 bits can number, or the memory is not available.
    pub fn find(masks: &ClassMasks, budget: &Budget, threads: usize) -> Result<Lesions, MetricError> {
        let label = |mask: &[u8], holder: &str| -> Result<_, MetricError> {
            let mut labels = Mapped::<u32>::zeroed(budget, holder, mask.len())?;
            let (shape, region) = (masks.shape(), Region::Foreground);
            let count = components(mask, shape, Connectivity::Corners, region, &mut labels, budget, threads)?;
            let sizes = component_sizes(&labels, count, budget)?;
            Ok((labels, Components::new(&sizes, budget)?))
        };
        let (prediction, predicted) = label(masks.prediction(), "components of the prediction")?;
        let (truth, reference) = label(masks.reference(), "components of the reference")?;
        let runs = || {
            let mut pairs = truth.iter().zip(prediction.iter()).peekable();
            std::iter::from_fn(move || {
                let first = pairs.next()?;
                let mut length = 1;
                while pairs.next_if_eq(&first).is_some() {
                    length += 1;
                }
                Some((*first.0, *first.1, length))
            })
            .filter(|(reference, predicted, _)| *reference > 0 && *predicted > 0)
        };
        let mut overlaps = Mapped::<[u64; 2]>::zeroed(budget, "overlaps of components", runs().count())?;
        for (entry, (reference, predicted, voxels)) in overlaps.iter_mut().zip(runs()) {
            *entry = [u64::from(reference) << 32 | u64::from(predicted), voxels];
        }
        let overlap_count = merge(&mut overlaps);
        let counted_voxels = masks.counted_voxels();
        let mut lesions = Lesions { predicted, reference, overlaps, overlap_count, counted_voxels };
        for [pair, voxels] in lesions.overlaps.iter().take(overlap_count) {
            let shared = SharedVoxels::new(*pair, *voxels);
            lesions.reference.cover(shared.reference, shared.voxels);
            lesions.predicted.cover(shared.predicted, shared.voxels);
        }
        Ok(lesions)
    }

    fn overlaps(&self) -> impl Iterator<Item = SharedVoxels> {
        self.overlaps.iter().take(self.overlap_count).map(|[pair, voxels]| SharedVoxels::new(*pair, *voxels))
    }

    /// Detection by the rule of ISLES'22 (Hernandez Petzsche et al. 2022, doi:10.1038/s41597-022-01875-5), by which a
    /// lesion is detected if it meets the other mask, with a threshold added. A lesion of the reference is detected if
    /// the prediction covers at least one voxel and at least the share `overlap` (0 for any); a lesion of the
    /// prediction of which the reference covers less is a false positive.
    pub fn detection(&self, overlap: f64) -> Detection {
        let found = self.reference.covered(overlap);
        Detection {
            found,
            missed: self.reference.count() - found,
            false_positives: self.predicted.count() - self.predicted.covered(overlap),
        }
    }

    /// The panoptic quality. Lesions match if their IoU is above one half, so none has two matches. As MONAI's
    /// `compute_panoptic_quality`, without the 10⁻⁶ that it adds to denominators.
    pub fn panoptic(&self) -> Panoptic {
        let ious = self.overlaps().map(|shared| {
            let both = self.reference.size(shared.reference) + self.predicted.size(shared.predicted);
            shared.voxels as f64 / (both - shared.voxels) as f64
        });
        let (matched, sum) =
            ious.filter(|iou| *iou > 0.5).fold((0u64, 0.0), |(matched, sum), iou| (matched + 1, sum + iou));
        let lesions = self.reference.count() + self.predicted.count();
        let recognition = quotient(2 * matched, lesions);
        Panoptic { quality: 2.0 * sum / lesions as f64, segmentation: sum / matched as f64, recognition }
    }

    /// The variation of information, over all counted voxels of the grid; 0 if both masks are empty. As
    /// `skimage.metrics.variation_of_information` of the components.
    pub fn variation_of_information(&self) -> VariationOfInformation {
        let all = self.counted_voxels as f64;
        let entropy = |voxels: u64| match voxels {
            0 => 0.0,
            voxels => -(voxels as f64 / all) * (voxels as f64 / all).log2(),
        };
        let voxels = |components: &Components| components.iter().map(|(size, _)| size).sum::<u64>();
        // The parts of one partition: its components, and the background.
        let partition = |components: &Components| {
            let background = self.counted_voxels - voxels(components);
            components.iter().map(|(size, _)| entropy(size)).sum::<f64>() + entropy(background)
        };
        // The parts of the joint partition: pairs of two components, of a component and the background, or of both
        // backgrounds.
        let uncovered = |components: &Components| {
            components.iter().map(|(size, covered)| entropy(size - covered)).sum::<f64>()
        };
        let shared: u64 = self.overlaps().map(|shared| shared.voxels).sum();
        let outside = self.counted_voxels + shared - voxels(&self.reference) - voxels(&self.predicted);
        let joint = self.overlaps().map(|shared| entropy(shared.voxels)).sum::<f64>()
            + uncovered(&self.reference)
            + uncovered(&self.predicted)
            + entropy(outside);
        let (reference, predicted) = (partition(&self.reference), partition(&self.predicted));
        // Rounding may give a slightly negative value.
        VariationOfInformation { splits: (joint - reference).max(0.0), merges: (joint - predicted).max(0.0) }
    }
}

/// Sorts pairs and merges equal ones at the front. Returns their number.
fn merge(overlaps: &mut [[u64; 2]]) -> usize {
    overlaps.sort_unstable();
    let mut end = 0;
    for at in 0..overlaps.len() {
        let [pair, voxels] = overlaps[at];
        if end > 0 && overlaps[end - 1][0] == pair {
            overlaps[end - 1][1] += voxels;
        } else {
            overlaps[end] = [pair, voxels];
            end += 1;
        }
    }
    end
}
