//! Where labels are: how many voxels of each slice, and the box around them, on the canonical axes.

use std::collections::BTreeSet;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{Geometry, VoxelBox};

use super::source::Source;
use crate::failure::Outcome;

/// Where labels are, along each canonical axis.
pub struct Foreground {
    /// Labelled voxels of each slice.
    counts: [Vec<u64>; 3],
    labels: BTreeSet<u16>,
}

impl Foreground {
    /// Reads a label map plane by plane.
    pub fn find(labels: &mut Source, budget: &Budget) -> Outcome<Foreground> {
        let geometry = *labels.geometry();
        let [depth, height, width] = geometry.shape();
        let mut stored = [vec![0u64; depth], vec![0u64; height], vec![0u64; width]];
        let mut plane = Mapped::<f32>::zeroed(budget, "a plane of labels", height * width)?;
        let mut found = BTreeSet::new();
        for d in 0..depth {
            labels.read(VoxelBox { start: [d, 0, 0], shape: [1, height, width] }, &mut plane)?;
            for (h, row) in plane.chunks(width).enumerate() {
                for (w, value) in row.iter().enumerate().filter(|(_, value)| **value > 0.0) {
                    stored[0][d] += 1;
                    stored[1][h] += 1;
                    stored[2][w] += 1;
                    // Labels are whole numbers of 16 bits.
                    found.insert(*value as u16);
                }
            }
        }
        let (_, turned) = geometry.canonical();
        let counts = [0, 1, 2].map(|axis| {
            let mut counts = std::mem::take(&mut stored[turned.source_axis()[axis]]);
            if turned.flip()[axis] {
                counts.reverse();
            }
            counts
        });
        Ok(Foreground { counts, labels: found })
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

    /// The canonical axis of one voxel, of an image of one slice; the first, where there is none.
    pub fn thin_axis(&self, geometry: &Geometry) -> usize {
        let shape = geometry.canonical().0.shape();
        shape.iter().position(|length| *length == 1).unwrap_or(0)
    }
}
