//! Writing the rows of an envelope to the output.

use std::ops::Range;

use plimsoll_parallel::Parts;

use super::states::{self, State};
use crate::simd::{LANES, Simd};

/// The feature of a voxel that has none; no voxel has this number.
pub const NO_FEATURE: u32 = u32::MAX;

/// The conversion of squared distances in the last pass.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    /// `true` to take the square root.
    pub(super) root: bool,
    /// The factor of the distances, or their squares.
    pub(super) scale: f32,
}

/// The pass that writes the rows.
#[derive(Clone, Copy)]
pub(super) enum Pass<'a> {
    /// A pass that others follow: `states` records what is not written. `first` is the first byte of the states of row 0,
    /// `stride` the bytes of a row's, and `piece` the tile's piece of each row.
    Inner { states: &'a Parts<'a, u8>, first: usize, stride: usize, piece: usize },
    /// The last one.
    Last(Finish),
}

/// The voxels of a part, where each part of a tile has a pass of its own. Other voxels are zero in this part's
/// envelope, so that the parts add up to the whole.
#[derive(Clone, Copy)]
pub(super) enum Members<'a> {
    /// Voxels with negative values, or those without.
    Negative(bool, &'a [[f32; LANES]]),
    /// Voxels with this label.
    Label(u32, &'a [[u32; LANES]]),
}

impl Members<'_> {
    #[inline(always)]
    fn contain(&self, y: usize, lane: usize) -> bool {
        match *self {
            Members::Negative(negative, values) => (values[y][lane] < 0.0) == negative,
            Members::Label(label, labels) => labels[y][lane] == label,
        }
    }
}

/// The nearest voxels known before this pass.
#[derive(Clone, Copy)]
pub(super) struct Features<'a> {
    /// Their numbers.
    pub(super) known: &'a [[u32; LANES]],
    /// The labels, if the nearest voxels of many labels are searched for together; otherwise empty.
    pub(super) labels: &'a [[u32; LANES]],
    /// The output.
    pub(super) to: &'a Parts<'a, u32>,
}

/// Writes rows into a volume.
#[derive(Clone, Copy)]
pub(super) struct Store<'a> {
    pub(super) out: &'a Parts<'a, f32>,
    /// The number of the voxel of row 0 and lane 0.
    pub(super) start: usize,
    /// Voxels from one row to the next.
    pub(super) stride: usize,
    /// The number of lanes within the volume.
    pub(super) busy: usize,
    pub(super) pass: Pass<'a>,
    /// `true` to take the square root of values.
    pub(super) root: bool,
    /// The factor of values, or of their roots.
    pub(super) scale: f32,
    /// If given, only these voxels are written, added to the existing values.
    pub(super) part: Option<Members<'a>>,
    /// Empty if they are not requested.
    pub(super) features: Option<Features<'a>>,
}

impl Store<'_> {
    /// Writes row `y`.
    #[inline(always)]
    pub(super) fn row<S: Simd>(&self, y: usize, values: S) {
        let values = if self.root { values.root() } else { values };
        let values = values.times(S::splat(values.proof(), self.scale));
        let to = self.to(y);
        if self.busy == LANES {
            let values = if self.part.is_some() { S::load(values.proof(), to).plus(values) } else { values };
            values.store(to);
        } else {
            let mut lanes = [0.0; LANES];
            values.store(&mut lanes);
            for (to, value) in to.iter_mut().zip(lanes) {
                *to = if self.part.is_some() { *to + value } else { value };
            }
        }
    }

    /// Writes the features of row `y` from the rows that it is measured to, if features are requested.
    #[inline(always)]
    pub(super) fn apexes(&self, y: usize, apexes: &[u32; LANES]) {
        self.features(y, |features, lane| {
            let apex = apexes[lane] as usize;
            let is_site = match self.part {
                Some(members) => !members.contain(apex, lane),
                None => features.labels.get(apex).is_some_and(|row| row[lane] != features.labels[y][lane]),
            };
            if is_site { (self.start + apex * self.stride + lane) as u32 } else { features.known[apex][lane] }
        });
    }

    /// Initialises row `y` before its parts are added: zero distance, features kept.
    #[inline(always)]
    pub(super) fn clear(&self, y: usize) {
        self.to(y).fill(0.0);
        self.keep(y..y + 1);
    }

    /// Rows that were zero and remain so: features are kept.
    #[inline(always)]
    pub(super) fn keep(&self, rows: Range<usize>) {
        if self.features.is_some() {
            rows.for_each(|y| self.features(y, |features, lane| features.known[y][lane]));
        }
    }

    /// The same for the rows from `first`, renumbered from 0.
    #[inline(always)]
    pub(super) fn skipping(&self, first: usize) -> Self {
        Store {
            start: self.start + first * self.stride,
            pass: match self.pass {
                Pass::Inner { states, first: byte, stride, piece } => {
                    Pass::Inner { states, first: byte + first * stride, stride, piece }
                }
                last @ Pass::Last(_) => last,
            },
            part: self.part.map(|members| match members {
                Members::Negative(negative, values) => Members::Negative(negative, &values[first..]),
                Members::Label(label, labels) => Members::Label(label, &labels[first..]),
            }),
            features: self.features.map(|features| Features {
                known: &features.known[first..],
                labels: features.labels.get(first..).unwrap_or_default(),
                to: features.to,
            }),
            ..*self
        }
    }

    /// Row `y`, like all others, was infinite and remains so.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn infinite(&self, y: usize) {
        match (self.pass, self.part) {
            (Pass::Inner { states, first, stride, piece }, None) if self.scale > 0.0 => {
                // SAFETY: the states of a row belong to the unit of work of its slice, which passes over tile after tile.
                let row = unsafe { states.part(first + y * stride, stride) };
                states::set(row, piece, State::Infinite);
            }
            // An infinite part is the only one of its tile.
            _ => {
                self.to(y).fill(f32::INFINITY * self.scale);
            }
        }
        self.features(y, |_, _| NO_FEATURE);
    }

    #[inline(always)]
    #[allow(unsafe_code, clippy::mut_from_ref)]
    fn to(&self, y: usize) -> &mut [f32] {
        // SAFETY: each tile belongs to one unit of work, which writes row after row.
        unsafe { self.out.part(self.start + y * self.stride, self.busy) }
    }

    /// Writes the features of row `y`.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn features(&self, y: usize, feature: impl Fn(&Features<'_>, usize) -> u32) {
        let Some(features) = &self.features else { return };
        // SAFETY: as in `to`.
        let to = unsafe { features.to.part(self.start + y * self.stride, self.busy) };
        for (lane, to) in to.iter_mut().enumerate() {
            match self.part {
                Some(members) if !members.contain(y, lane) => {}
                _ => *to = feature(features, lane),
            }
        }
    }
}
