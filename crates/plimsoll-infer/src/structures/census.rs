//! The first pass: voxels, boxes, moments of positions, and what intensities are.

use plimsoll_memory::{Budget, Bytes, Reservation};
use plimsoll_volume::VoxelBox;

use super::axes::Moments;
use super::passes::Pass;
use super::runs::Run;
use crate::error::InferError;

/// The bytes of a structure.
pub(super) const BYTES: u64 = size_of::<Census>() as u64;

/// The voxels of a structure.
#[derive(Clone, Debug)]
pub(super) struct Census {
    pub(super) voxels: u64,
    first: [usize; 3],
    last: [usize; 3],
    pub(super) moments: Moments,
    /// The sum of intensities and of their squares, the smallest and the largest one.
    pub(super) sum: f64,
    pub(super) squares: f64,
    pub(super) least: f32,
    pub(super) most: f32,
    /// An intensity is not a finite number.
    pub(super) has_no_number: bool,
}

impl Census {
    fn new() -> Census {
        Census {
            voxels: 0,
            first: [usize::MAX; 3],
            last: [0; 3],
            moments: Moments::default(),
            sum: 0.0,
            squares: 0.0,
            least: f32::INFINITY,
            most: f32::NEG_INFINITY,
            has_no_number: false,
        }
    }

    fn add(&mut self, plane: usize, run: Run, values: &[f32]) {
        self.voxels += values.len() as u64;
        let (from, to) = ([plane, run.row, run.start], [plane, run.row, run.end - 1]);
        self.first = std::array::from_fn(|axis| self.first[axis].min(from[axis]));
        self.last = std::array::from_fn(|axis| self.last[axis].max(to[axis]));
        self.moments.add([plane, run.row], [run.start, run.end]);
        for value in values {
            let wide = f64::from(*value);
            self.sum += wide;
            self.squares += wide * wide;
            self.least = self.least.min(*value);
            self.most = self.most.max(*value);
            self.has_no_number |= !value.is_finite();
        }
    }

    /// The smallest box with all voxels; `None` without voxels.
    pub(super) fn bounds(&self) -> Option<VoxelBox> {
        (self.voxels > 0).then(|| VoxelBox::between(self.first, self.last.map(|last| last + 1)))
    }

    /// Returns `true` if a voxel lies at a face of a grid of more than one voxel along that axis.
    pub(super) fn reaches_face(&self, shape: [usize; 3]) -> bool {
        let is_at_face =
            |axis: usize| shape[axis] > 1 && (self.first[axis] == 0 || self.last[axis] + 1 == shape[axis]);
        self.voxels > 0 && (0..3).any(is_at_face)
    }

    /// Returns `true` if intensities can be measured.
    pub(super) fn has_intensities(&self) -> bool {
        self.voxels > 0 && !self.has_no_number
    }

    /// The mean intensity.
    pub(super) fn mean(&self) -> f64 {
        // Rounding must not make equal intensities differ from their mean.
        if self.least == self.most { self.least.into() } else { self.sum / self.voxels as f64 }
    }
}

/// The censuses of all structures, with their reservation.
pub(super) struct Censuses {
    all: Vec<Census>,
    _reservation: Reservation,
}

impl Censuses {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Census> {
        self.all.iter()
    }
}

/// Takes the census of all structures.
pub(super) fn take(pass: &mut Pass<'_>, count: usize, budget: &Budget) -> Result<Censuses, InferError> {
    let reservation = budget.reserve("structures", Bytes(BYTES * count as u64))?;
    let mut all = vec![Census::new(); count];
    pass.over_values(|plane, run, values| all[run.structure].add(plane, run, values))?;
    Ok(Censuses { all, _reservation: reservation })
}
