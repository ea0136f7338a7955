//! Target maps: functions of a patch's labels alone, computed by the loader's threads and not in the training step.

use std::fmt;
use std::sync::Arc;

use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_morphology::{
    Distance, EdtOptions, MorphologyError, Recheck, check_spacing, edt, scratch_bytes, tube_scratch_bytes,
    tubed_skeleton,
};

use crate::Mode;
use crate::loader::LoaderError;

/// The kind of a target map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetKind {
    /// Exact signed distances: outside of the class the distance to its nearest voxel, inside minus the distance to the
    /// nearest other voxel; ∞ if the class is absent, −∞ if it fills the patch.
    Distance {
        /// The spacing along depth, height and width, in the unit of the distances.
        spacing: [f64; 3],
    },
    /// 1 where a voxel of the class lies on the skeleton of the foreground, of all classes together, dilated `radius` times
    /// by the neighbours that share a face; else 0. The skeleton has the topology of the foreground ([`Recheck::Topology`]).
    Skeleton {
        /// The number of dilations.
        radius: usize,
    },
}

/// A map of each foreground class of a patch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetMap {
    /// Depth, height, width; labels come from the nearest voxel (`nearest-exact`).
    pub extent: [usize; 3],
    /// The kind of map.
    pub kind: TargetKind,
    /// `true` if training uses it.
    pub training: bool,
    /// `true` if validation uses it.
    pub validation: bool,
}

/// Returns `true` if a training step needs a map, by its index in the list.
type Needed = Arc<dyn Fn(u64, usize) -> bool + Send + Sync>;

/// The target maps of batches.
#[derive(Clone, Default)]
pub struct Targets {
    /// The maps.
    pub maps: Vec<TargetMap>,
    /// The number of foreground classes: labels from 1 on.
    pub foreground: usize,
    /// The "ignore" label, which belongs to no class.
    pub ignore: Option<u8>,
    /// The training steps that need each map; `None` means every step.
    pub needed: Option<Needed>,
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Targets { maps, foreground, ignore, .. } = self;
        write!(f, "Targets({maps:?}, {foreground} classes, ignore {ignore:?})")
    }
}

fn voxels(extent: [usize; 3]) -> usize {
    extent.iter().fold(1, |product: usize, size| product.saturating_mul(*size))
}

const SIGNED: EdtOptions = EdtOptions { distance: Distance::Signed, squared: false };

impl TargetMap {
    fn is_of(&self, mode: Mode) -> bool {
        match mode {
            Mode::Training => self.training,
            Mode::Validation => self.validation,
        }
    }

    fn scratch_bytes(&self) -> usize {
        match self.kind {
            TargetKind::Distance { .. } => scratch_bytes(self.extent, &SIGNED, 1),
            TargetKind::Skeleton { .. } => {
                voxels(self.extent).saturating_add(tube_scratch_bytes(self.extent))
            }
        }
    }
}

/// The place of a sample in a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchPlace {
    pub(super) mode: Mode,
    pub(super) step: u64,
    /// The number of the sample in the batch.
    pub(super) sample: usize,
}

impl Targets {
    /// The number of values of a map of a batch; 0 in a mode that does not use it.
    fn values(&self, map: &TargetMap, mode: Mode, batch_size: usize) -> usize {
        match map.is_of(mode) {
            true => voxels(map.extent).saturating_mul(self.foreground).saturating_mul(batch_size),
            false => 0,
        }
    }

    /// The bytes that the maps of a batch reserve.
    pub(super) fn bytes(&self, mode: Mode, batch_size: usize) -> Result<Bytes, LoaderError> {
        let of = |map| Ok(Mapped::<f32>::bytes(self.values(map, mode, batch_size))?);
        self.maps.iter().map(of).sum()
    }

    /// Buffers for the maps of a batch.
    pub(super) fn buffers(
        &self,
        mode: Mode,
        batch_size: usize,
        budget: &Budget,
    ) -> Result<Vec<Mapped<f32>>, LoaderError> {
        let of = |map| Ok(Mapped::zeroed(budget, "maps of labels", self.values(map, mode, batch_size))?);
        self.maps.iter().map(of).collect()
    }

    /// Computes the maps that a step needs from the labels of one of its samples, `[depth][height][width]` of `patch`.
    pub(super) fn fill(
        &self,
        place: BatchPlace,
        labels: &[u8],
        patch: [usize; 3],
        buffers: &mut [Mapped<f32>],
        scratch: &mut TargetScratch,
    ) -> Result<(), MorphologyError> {
        let BatchPlace { mode, step, sample } = place;
        for (place, (map, buffer)) in self.maps.iter().zip(buffers).enumerate() {
            let needed = || self.needed.as_ref().is_none_or(|needed| needed(step, place));
            if !map.is_of(mode) || (mode == Mode::Training && !needed()) {
                continue;
            }
            let count = voxels(map.extent);
            let labels = match map.extent == patch {
                true => labels,
                false => {
                    let coarse = &mut scratch.labels[..count];
                    downsample(labels, patch, coarse, map.extent);
                    &*coarse
                }
            };
            let of_sample = buffer.chunks_exact_mut(count.max(1)).skip(sample * self.foreground);
            let classes = (1..=self.foreground).zip(of_sample);
            let (mask, work) = (&mut scratch.mask[..count], &mut scratch.work);
            let is = |label: u8, class: usize| usize::from(label) == class && self.ignore != Some(label);
            match map.kind {
                TargetKind::Distance { spacing } => {
                    for (class, out) in classes {
                        for (mask, label) in mask.iter_mut().zip(labels) {
                            *mask = u8::from(is(*label, class));
                        }
                        edt::<u8>(mask, map.extent, spacing, &SIGNED, out, work, 1)?;
                    }
                }
                TargetKind::Skeleton { radius } => {
                    for (mask, label) in mask.iter_mut().zip(labels) {
                        let class = usize::from(*label);
                        *mask = u8::from((1..=self.foreground).contains(&class) && is(*label, class));
                    }
                    let (tube, work) = work.split_at_mut(count);
                    tubed_skeleton::<u8>(mask, map.extent, Recheck::Topology, radius, tube, work)?;
                    for (class, out) in classes {
                        for ((out, label), tube) in out.iter_mut().zip(labels).zip(&*tube) {
                            *out = f32::from(u8::from(*tube != 0 && is(*label, class)));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks that all maps can be computed.
    pub(super) fn check(&self) -> Result<(), LoaderError> {
        for map in &self.maps {
            match map.kind {
                TargetKind::Distance { spacing } => check_spacing(map.extent, spacing)?,
                TargetKind::Skeleton { .. } => {}
            }
        }
        Ok(())
    }
}

/// The label of the nearest voxel: index i of m reads index ⌊(i + ½) · n / m⌋ of n along each axis.
fn downsample(labels: &[u8], from: [usize; 3], out: &mut [u8], to: [usize; 3]) {
    let source = |axis: usize, at: usize| ((2 * at + 1) * from[axis] / (2 * to[axis])).min(from[axis] - 1);
    for (row, out) in out.chunks_exact_mut(to[2].max(1)).enumerate() {
        let (d, h) = (source(0, row / to[1]), source(1, row % to[1]));
        let labels = &labels[(d * from[1] + h) * from[2]..][..from[2]];
        for (w, out) in out.iter_mut().enumerate() {
            *out = labels[source(2, w)];
        }
    }
}

/// A thread's scratch for target maps.
pub(crate) struct TargetScratch {
    labels: Mapped<u8>,
    mask: Mapped<u8>,
    work: Mapped<u8>,
}

impl TargetScratch {
    /// The lengths of its buffers.
    fn lengths(targets: &Targets, mode: Mode) -> [usize; 3] {
        let maps = || targets.maps.iter().filter(|map| map.is_of(mode));
        let largest = maps().map(|map| voxels(map.extent)).max().unwrap_or(0);
        [largest, largest, maps().map(TargetMap::scratch_bytes).max().unwrap_or(0)]
    }

    /// The bytes that it reserves.
    pub(super) fn bytes(targets: &Targets, mode: Mode) -> Result<Bytes, LoaderError> {
        let bytes = TargetScratch::lengths(targets, mode).into_iter().map(Mapped::<u8>::bytes);
        Ok(bytes.sum::<Result<Bytes, _>>()?)
    }

    pub(super) fn new(targets: &Targets, mode: Mode, budget: &Budget) -> Result<TargetScratch, LoaderError> {
        let [labels, mask, work] = TargetScratch::lengths(targets, mode);
        let buffer = |len| Mapped::zeroed(budget, "maps of labels", len);
        Ok(TargetScratch { labels: buffer(labels)?, mask: buffer(mask)?, work: buffer(work)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_morphology::{Connectivity, dilate, skeletonize};

    #[test]
    fn skeletons_are_of_all_classes_together_without_ignored_voxels() {
        let patch = [6, 15, 18];
        let count = voxels(patch);
        // Two classes of one tube, a block beside it, and labels that belong to no class.
        let label = |at: usize| match (at / 270, at / 18 % 15, at % 18) {
            (1..=3, 4..=6, w) if w > 12 => 9,
            (1..=3, 4..=6, w) => 1 + u8::from(w > 8),
            (2..=3, 10..=13, 2..=5) => 3,
            _ => 0,
        };
        let labels: Vec<u8> = (0..count).map(label).collect();
        let map = |extent| TargetMap {
            extent,
            kind: TargetKind::Skeleton { radius: 2 },
            training: true,
            validation: true,
        };
        let maps = vec![map(patch), map([3, 8, 9])];
        let targets = Targets { maps, foreground: 3, ignore: Some(3), needed: None };
        targets.check().unwrap();
        let budget = Budget::new(Bytes::mib(4));
        let mut buffers = targets.buffers(Mode::Training, 2, &budget).unwrap();
        let mut scratch = TargetScratch::new(&targets, Mode::Training, &budget).unwrap();
        let place = BatchPlace { mode: Mode::Training, step: 0, sample: 1 };
        targets.fill(place, &labels, patch, &mut buffers, &mut scratch).unwrap();
        for (map, buffer) in targets.maps.iter().zip(&buffers) {
            let count = voxels(map.extent);
            let mut labels_there = vec![0; count];
            downsample(&labels, patch, &mut labels_there, map.extent);
            let mask: Vec<u8> = labels_there.iter().map(|label| u8::from([1, 2].contains(label))).collect();
            let (mut skeleton, mut tube) = (vec![false; count], vec![false; count]);
            skeletonize(&mask, map.extent, Recheck::Topology, &mut skeleton, &budget, 1).unwrap();
            dilate(&skeleton, map.extent, Connectivity::Faces, 2, &mut tube, &budget, 1).unwrap();
            let (first, second) = buffer.split_at(3 * count);
            assert!(first.iter().all(|voxel| *voxel == 0.0), "another sample's");
            for (at, found) in second.iter().enumerate() {
                let (class, voxel) = (at / count + 1, at % count);
                let expected = tube[voxel] && usize::from(labels_there[voxel]) == class && class < 3;
                assert_eq!(*found, f32::from(u8::from(expected)), "class {class}, {voxel}");
            }
            let has = |class: usize| second[class * count..][..count].contains(&1.0);
            assert!((has(0) && has(1) || map.extent != patch) && !has(2));
            // At half the resolution the tube is two voxels wide, which scikit-image thins away completely.
            assert!(has(0) || has(1));
        }
    }
}
