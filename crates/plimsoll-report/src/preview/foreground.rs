//! The position of labels: the number of labelled voxels of each slice, and the box around them, on the canonical axes.

use std::collections::BTreeSet;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{Geometry, LabelValues, VoxelBox};

use super::source::Source;
use crate::error::Outcome;

/// The position of labels along each canonical axis.
pub struct Foreground {
    /// Labelled voxels of each slice.
    counts: [Vec<u64>; 3],
    labels: BTreeSet<u16>,
}

/// Voxels of each slice along each stored axis.
struct Counts([Vec<u64>; 3]);

impl Counts {
    fn new(shape: [usize; 3]) -> Counts {
        Counts(shape.map(|slices| vec![0; slices]))
    }

    fn add(&mut self, voxel: [usize; 3]) {
        self.0.iter_mut().zip(voxel).for_each(|(counts, at)| counts[at] += 1);
    }

    fn canonical(mut self, geometry: &Geometry, labels: BTreeSet<u16>) -> Foreground {
        let (_, turned) = geometry.canonical();
        let counts = [0, 1, 2].map(|axis| {
            let mut counts = std::mem::take(&mut self.0[turned.source_axis()[axis]]);
            if turned.flip()[axis] {
                counts.reverse();
            }
            counts
        });
        Foreground { counts, labels }
    }
}

/// The position of labels in either of two label maps, and of their differences.
pub struct Compared {
    pub labelled: Foreground,
    pub wrong: Foreground,
}

impl Compared {
    /// Reads a reference and a prediction plane by plane. Voxels whose reference is the class `ignore` are left out.
    pub fn find(
        [one, other]: [&mut Classes<'_>; 2],
        ignore: Option<u8>,
        budget: &Budget,
    ) -> Outcome<Compared> {
        let geometry = *one.source.geometry();
        let [depth, height, width] = geometry.shape();
        let [mut labelled, mut wrong] = [(); 2].map(|()| Counts::new(geometry.shape()));
        let mut planes = Mapped::<f32>::zeroed(budget, "two planes of labels", 2 * height * width)?;
        let (left, right) = planes.split_at_mut(height * width);
        for d in 0..depth {
            let plane = VoxelBox { start: [d, 0, 0], shape: [1, height, width] };
            one.source.read(plane, left)?;
            other.source.read(plane, right)?;
            for (at, (left, right)) in left.iter().zip(right.iter()).enumerate() {
                let (left, right) = (one.class(*left), other.class(*right));
                if ignore.map(u16::from) == Some(left) {
                    continue;
                }
                let voxel = [d, at / width, at % width];
                if left != 0 || right != 0 {
                    labelled.add(voxel);
                }
                if left != right {
                    wrong.add(voxel);
                }
            }
        }
        let [labelled, wrong] = [labelled, wrong].map(|counts| counts.canonical(&geometry, BTreeSet::new()));
        Ok(Compared { labelled, wrong })
    }

    /// The slice across an axis with the most voxels that are wrong; if none is, the one with the most labels.
    pub fn slice(&self, axis: usize) -> usize {
        let has_any = self.wrong.counts[axis].iter().any(|count| *count > 0);
        if has_any { self.wrong.slice(axis) } else { self.labelled.slice(axis) }
    }
}

/// A label map as classes.
pub struct Classes<'a> {
    pub source: Source,
    /// The class that each value denotes, or `None` if values are the numbers of classes.
    pub values: Option<&'a LabelValues>,
}

impl Classes<'_> {
    /// Returns the class of a value; a value that denotes no class is a class of its own.
    pub fn class(&self, value: f32) -> u16 {
        // Labels are whole numbers of 16 bits.
        let value = value as u16;
        let class = self.values.zip(u8::try_from(value).ok()).and_then(|(values, value)| values.class(value));
        class.map_or(value, u16::from)
    }
}

impl Foreground {
    /// Reads a label map plane by plane.
    pub fn find(labels: &mut Source, budget: &Budget) -> Outcome<Foreground> {
        let geometry = *labels.geometry();
        let [depth, height, width] = geometry.shape();
        let mut counts = Counts::new(geometry.shape());
        let mut plane = Mapped::<f32>::zeroed(budget, "a plane of labels", height * width)?;
        let mut found = BTreeSet::new();
        for d in 0..depth {
            labels.read(VoxelBox { start: [d, 0, 0], shape: [1, height, width] }, &mut plane)?;
            for (at, value) in plane.iter().enumerate().filter(|(_, value)| **value > 0.0) {
                counts.add([d, at / width, at % width]);
                // Labels are whole numbers of 16 bits.
                found.insert(*value as u16);
            }
        }
        Ok(counts.canonical(&geometry, found))
    }

    /// All labels of the map.
    pub fn labels(&self) -> &BTreeSet<u16> {
        &self.labels
    }

    /// The slice across an axis with the most labelled voxels, of equal ones the one nearest to the middle.
    pub fn slice(&self, axis: usize) -> usize {
        let counts = &self.counts[axis];
        let middle = counts.len() / 2;
        let best = (0..counts.len()).max_by_key(|at| (counts[*at], std::cmp::Reverse(at.abs_diff(middle))));
        best.unwrap_or(middle)
    }

    /// The first labelled slice along an axis, and one past the last; none if no voxel is labelled.
    pub fn ends(&self, axis: usize) -> Option<[usize; 2]> {
        let counts = &self.counts[axis];
        let first = counts.iter().position(|count| *count > 0)?;
        let last = counts.iter().rposition(|count| *count > 0)?;
        Some([first, last + 1])
    }
}
