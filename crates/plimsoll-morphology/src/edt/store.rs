//! Where the rows of an envelope go.

use std::ops::Range;

use crate::simd::{LANES, Simd};
use crate::workers::Parts;

/// The feature of a voxel that has no other side: no voxel has this number.
pub const NO_FEATURE: u32 = u32::MAX;

/// What is known of a piece, a row of a tile, between the passes. Pieces that are all zero are final, and those that are all +∞
/// are not written until the last pass.
pub(super) mod piece {
    pub(crate) const ZERO: u8 = 0;
    pub(crate) const MIXED: u8 = 1;
    pub(crate) const INFINITE: u8 = 2;
}

/// What is done to squared distances in the last pass.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    /// Whether their root is taken.
    pub(super) root: bool,
    /// What they, or their roots, are multiplied by.
    pub(super) scale: f32,
}

/// Which pass the rows come from.
#[derive(Clone, Copy)]
pub(super) enum Pass<'a> {
    /// One that others follow: `pieces` remember what is not written. The tile's first piece, and how many there are from
    /// a row to the next.
    Inner { pieces: &'a Parts<'a, u8>, first: usize, stride: usize },
    /// The last one.
    Last(Finish),
}

/// The voxels of a part, where a pass is made for each part of a tile on its own. The others are zero in this part's envelope,
/// so that the parts add up to the whole.
#[derive(Clone, Copy)]
pub(super) enum Members<'a> {
    /// Those whose values are negative, or those whose values are not.
    Negative(bool, &'a [[f32; LANES]]),
    /// Those with this label.
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

/// The nearest voxels as they were known before this pass.
#[derive(Clone, Copy)]
pub(super) struct Features<'a> {
    /// Their numbers.
    pub(super) known: &'a [[u32; LANES]],
    /// The labels, if the nearest voxels of many labels are looked for at once; else empty.
    pub(super) labels: &'a [[u32; LANES]],
    /// Where the result goes.
    pub(super) to: &'a Parts<'a, u32>,
}

/// Writes rows into a volume.
#[derive(Clone, Copy)]
pub(super) struct Store<'a> {
    pub(super) out: &'a Parts<'a, f32>,
    /// The number of the voxel of row 0 and lane 0.
    pub(super) start: usize,
    /// Voxels between a row and the next.
    pub(super) stride: usize,
    /// How many lanes are of the volume.
    pub(super) busy: usize,
    pub(super) pass: Pass<'a>,
    /// Whether the root of values is taken.
    pub(super) root: bool,
    /// What values, or their roots, are multiplied by.
    pub(super) scale: f32,
    /// All voxels, if this is empty. Otherwise these are added to what is there.
    pub(super) part: Option<Members<'a>>,
    /// Empty if they are not wanted.
    pub(super) features: Option<Features<'a>>,
}

impl Store<'_> {
    /// Row `y` is this.
    #[inline(always)]
    pub(super) fn row<S: Simd>(&self, y: usize, values: S) {
        let values = if self.root { values.root() } else { values };
        let values = values.times(S::splat(self.scale));
        let to = self.to(y);
        if self.busy == LANES {
            let values = if self.part.is_some() { S::load(to).plus(values) } else { values };
            values.store(to);
        } else {
            let mut lanes = [0.0; LANES];
            values.store(&mut lanes);
            for (to, value) in to.iter_mut().zip(lanes) {
                *to = if self.part.is_some() { *to + value } else { value };
            }
        }
    }

    /// Row `y` is measured to these rows; nothing is done with them if features are not wanted.
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

    /// Row `y` before its parts are added: zero, and measured to what it was.
    #[inline(always)]
    pub(super) fn clear(&self, y: usize) {
        self.to(y).fill(0.0);
        self.keep(y..y + 1);
    }

    /// These rows were zero and still are.
    #[inline(always)]
    pub(super) fn keep(&self, rows: Range<usize>) {
        if self.features.is_some() {
            rows.for_each(|y| self.features(y, |features, lane| features.known[y][lane]));
        }
    }

    /// The same for the rows from `first`, which is 0 there.
    #[inline(always)]
    pub(super) fn skipping(&self, first: usize) -> Self {
        Store {
            start: self.start + first * self.stride,
            pass: match self.pass {
                Pass::Inner { pieces, first: piece, stride } => {
                    Pass::Inner { pieces, first: piece + first * stride, stride }
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

    /// Row `y` was infinite and still is, like all others.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn infinite(&self, y: usize) {
        match (self.pass, self.part) {
            (Pass::Inner { pieces, first, stride }, None) if self.scale > 0.0 => {
                // SAFETY: a piece belongs to its tile.
                unsafe { pieces.part(first + y * stride, 1) }.fill(piece::INFINITE);
            }
            // A part that is infinite is the only one of its tile.
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
